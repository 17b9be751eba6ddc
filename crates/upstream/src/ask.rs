//! One question of our own to a member, over a connection of its own: what probes, fetches and the doctor ask.

use std::{error::Error, io, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode, Version, header};
use http_body_util::{BodyExt, Empty};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use rustls::pki_types::CertificateDer;
use tokio::time::timeout;

use crate::{
    cause::{Peer, cause},
    connector::Connector,
    dial::{DialError, dial_tls},
    io::{Counted, Intake},
    settings::HttpVersion,
};

/// A GET of ours; nothing that changes a member can be asked.
#[derive(Clone, Debug)]
pub struct Question<'q> {
    /// Path and query.
    pub path: &'q str,
    /// Port of the member's host that is asked; none: the member's own.
    pub port: Option<u16>,
    /// Fields beside Host and Connection.
    pub headers: HeaderMap,
    /// Time for all of it, the connection among it.
    pub timeout: Duration,
    /// Bytes of the answer's body that are read; the rest is left.
    pub body_bytes_max: usize,
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Told {
    /// Status code.
    pub status: StatusCode,
    /// Fields.
    pub headers: HeaderMap,
    /// Beginning of the body.
    pub body: Bytes,
    /// The certificate that the member showed; none without TLS.
    pub certificate: Option<CertificateDer<'static>>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The member was not reached.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// No whole answer came in time.
    #[error("no answer within {0:?}")]
    Late(Duration),
    /// The answer broke off or was none.
    #[error("{}", cause(&**.0, Peer::Member))]
    Broken(#[source] Box<dyn Error + Send + Sync>),
}

impl AskError {
    /// Whether it was we who would not have the other side's certificate.
    pub fn is_ours(&self) -> bool {
        matches!(
            self.tls(),
            Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented)
        )
    }

    /// The TLS alert by which the other side said that it would not have ours; the certificate, most often.
    pub fn alert(&self) -> Option<String> {
        match self.tls() {
            Some(rustls::Error::AlertReceived(alert)) => Some(format!("{alert:?}")),
            _ => None,
        }
    }

    /// What TLS failed of.
    pub fn tls(&self) -> Option<&rustls::Error> {
        match self {
            Self::Dial(DialError::Handshake { source, .. }) => tls_error(source),
            Self::Broken(source) => tls_error(&**source),
            _ => None,
        }
    }
}

/// Asks once.
///
/// # Errors
/// [`AskError`] says why nothing came.
pub async fn ask(connector: &Connector, question: &Question<'_>) -> Result<Told, AskError> {
    timeout(question.timeout, exchange(connector, question))
        .await
        .unwrap_or(Err(AskError::Late(question.timeout)))
}

async fn exchange(connector: &Connector, question: &Question<'_>) -> Result<Told, AskError> {
    let intake = Arc::new(Intake::new());
    intake.expect_head();
    let io = dial_tls(connector, question.port).await?;
    let certificate = io.shown();
    let io = TokioIo::new(Counted::new(io, Arc::clone(&intake), None));
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(READ_BYTES_MAX)
        .handshake::<_, Empty<Bytes>>(io)
        .await
        .map_err(broken)?;
    let mut request = request(connector, question)?;
    let close = HeaderValue::from_static("close");
    request.headers_mut().insert(header::CONNECTION, close);
    let answer = async {
        let answer = sender.send_request(request).await.map_err(broken)?;
        intake.expect_body(question.body_bytes_max);
        Ok(Told {
            status: answer.status(),
            headers: answer.headers().clone(),
            body: beginning(answer.into_body(), question.body_bytes_max).await?,
            certificate,
        })
    };
    tokio::pin!(answer, connection);
    tokio::select! {
        biased;
        answered = &mut answer => answered,
        // The connection ends first where the member closes at once; what it sent is still to be read.
        ended = &mut connection => {
            ended.map_err(broken)?;
            answer.await
        }
    }
}

pub(crate) fn request(
    connector: &Connector,
    question: &Question<'_>,
) -> Result<Request<Empty<Bytes>>, AskError> {
    let mut request = Request::get(question.path)
        .body(Empty::new())
        .map_err(|error| AskError::Broken(Box::new(error)))?;
    if connector.settings.http_version == HttpVersion::Http10 {
        *request.version_mut() = Version::HTTP_10;
    }
    let fields = request.headers_mut();
    fields.clone_from(&question.headers);
    fields.insert(header::HOST, connector.host_at(question.port));
    Ok(request)
}

pub(crate) async fn beginning(mut body: Incoming, bytes_max: usize) -> Result<Bytes, AskError> {
    let mut read = Vec::new();
    while read.len() < bytes_max {
        let Some(frame) = body.frame().await else {
            break;
        };
        if let Ok(data) = frame.map_err(broken)?.into_data() {
            read.extend_from_slice(&data[..data.len().min(bytes_max - read.len())]);
        }
    }
    Ok(read.into())
}

/// About the most that is read at once, and most of a head: what is read and is nothing (blanks in a chunk's size) is gone
/// through before anything else has its turn, as often as the runtime lets one connection read.
pub(crate) const READ_BYTES_MAX: usize = 64 << 10;

pub(crate) fn broken(error: hyper::Error) -> AskError {
    AskError::Broken(Box::new(error))
}

fn tls_error<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        // An IO error shows what it was made of here alone, never as its source.
        let inner = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        if let Some(found) = inner.and_then(|inner| inner.downcast_ref()) {
            return Some(found);
        }
        next = error.source();
    }
    None
}
