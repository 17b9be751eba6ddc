//! One question of our own to a member, over a connection of its own: what probes, fetches and the doctor ask.

use std::{error::Error, future::poll_fn, io, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Version, header};
use http_body_util::Empty;
use http1::{Decoder, RequestLine};
use rustls::pki_types::CertificateDer;
use tokio::time::timeout;

use crate::{
    cause::cause,
    connector::Connector,
    conversation::{Conversation, WireError},
    dial::{DialError, dial_tls},
    io::MemberIo,
    settings::HttpVersion,
    wire::Wire,
};

/// A GET of ours; nothing that changes a member can be asked.
#[derive(Clone, Debug)]
pub struct MemberQuery<'q> {
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
pub struct QueryResponse {
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
pub enum QueryError {
    /// The member was not reached.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// No whole answer came in time.
    #[error("no answer within {0:?}")]
    Late(Duration),
    /// The answer broke off or was none.
    #[error("{}", cause(&**.0))]
    Broken(#[source] Box<dyn Error + Send + Sync>),
}

impl QueryError {
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
/// [`QueryError`] says why nothing came.
pub async fn query(
    connector: &Connector,
    question: &MemberQuery<'_>,
) -> Result<QueryResponse, QueryError> {
    timeout(question.timeout, exchange(connector, question))
        .await
        .unwrap_or(Err(QueryError::Late(question.timeout)))
}

async fn exchange(
    connector: &Connector,
    question: &MemberQuery<'_>,
) -> Result<QueryResponse, QueryError> {
    let io = dial_tls(connector, question.port).await?;
    let certificate = io.shown();
    let mut wire = Wire::new(MemberIo::new(io, None));
    let close = HeaderValue::from_static("close");
    let (told, _) = converse(&mut wire, connector, question, Some(close)).await?;
    Ok(QueryResponse {
        certificate,
        ..told
    })
}

/// Asks on this connection. Says whether another question may follow on it.
pub(crate) async fn converse(
    wire: &mut Wire,
    connector: &Connector,
    question: &MemberQuery<'_>,
    connection: Option<HeaderValue>,
) -> Result<(QueryResponse, bool), QueryError> {
    let mut fields = question.headers.clone();
    fields.insert(header::HOST, connector.host_at(question.port));
    fields.extend(connection.map(|value| (header::CONNECTION, value)));
    let target = question
        .path
        .parse()
        .map_err(|error| QueryError::Broken(Box::new(error)))?;
    let line = RequestLine {
        method: &Method::GET,
        target: &target,
        version: match connector.settings.http_version {
            HttpVersion::Http11 => Version::HTTP_11,
            HttpVersion::Http10 => Version::HTTP_10,
        },
    };
    let fields = fields.iter().map(|(name, value)| (name, value.as_bytes()));
    let begun = Conversation::begin(wire, line, fields, None, false, Empty::<Bytes>::new());
    let mut conversation = begun.map_err(broken)?;
    let head = poll_fn(|cx| conversation.poll_head(wire, &mut HeaderMap::new(), cx)).await;
    let head = head.map_err(broken)?;
    let kind = head
        .body(line.method)
        .map_err(|error| broken(WireError::Head(error)))?;
    let mut decoder = Decoder::new(kind);
    let mut body = Vec::new();
    while body.len() < question.body_bytes_max {
        let Some(data) = poll_fn(|cx| conversation.poll_data(&mut decoder, wire, cx)).await else {
            break;
        };
        let data = data.map_err(broken)?;
        body.extend_from_slice(&data[..data.len().min(question.body_bytes_max - body.len())]);
    }
    let lasts =
        head.keeps_alive() && decoder.is_end() && conversation.is_sent() && wire.input.is_empty();
    let told = QueryResponse {
        status: head.status,
        headers: head.headers,
        body: body.into(),
        certificate: None,
    };
    Ok((told, lasts))
}

fn broken(error: WireError) -> QueryError {
    QueryError::Broken(Box::new(error))
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
