//! Requests that the proxy itself sends to a member on a separate connection: for probes, fetches, renewals and the doctor.

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
    settings::{HttpVersion, Scheme},
    wire::Wire,
};

/// A request without a body: a GET, or the POST that renews a certificate of the proxy.
#[derive(Clone, Debug)]
pub struct MemberQuery<'q> {
    /// GET or POST. Only [`query`] may send a POST, because [`QueryConnection`](crate::QueryConnection) may send a query twice.
    pub method: Method,
    /// Path and query.
    pub path: &'q str,
    /// The port of the member's host. `None`: the member's own port.
    pub port: Option<u16>,
    /// Fields in addition to Host and Connection.
    pub headers: HeaderMap,
    /// Maximum time of the whole query, including the connection.
    pub timeout: Duration,
    /// Maximum bytes of the response body that are read. The rest is ignored.
    pub body_bytes_max: usize,
}

/// The response of a member to a query.
#[derive(Clone, Debug)]
pub struct QueryResponse {
    /// Status code.
    pub status: StatusCode,
    /// Fields.
    pub headers: HeaderMap,
    /// The beginning of the body.
    pub body: Bytes,
    /// The certificate that the member presented. `None` without TLS.
    pub certificate: Option<CertificateDer<'static>>,
}

/// Why a query failed.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The member was not reached.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// No complete response arrived in time.
    #[error("no answer within {0:?}")]
    Late(Duration),
    /// The response was malformed or incomplete.
    #[error("{}", cause(&**.0))]
    Broken(#[source] Box<dyn Error + Send + Sync>),
}

impl QueryError {
    /// Whether the proxy refused the member's certificate.
    pub fn refused_certificate(&self) -> bool {
        matches!(
            self.tls(),
            Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented)
        )
    }

    /// The TLS alert from the member. Usually the member has refused the proxy's certificate.
    pub fn alert(&self) -> Option<String> {
        match self.tls() {
            Some(rustls::Error::AlertReceived(alert)) => Some(format!("{alert:?}")),
            _ => None,
        }
    }

    /// The TLS error, if TLS failed.
    pub fn tls(&self) -> Option<&rustls::Error> {
        match self {
            Self::Dial(DialError::Handshake { source, .. }) => tls_error(source),
            Self::Broken(source) => tls_error(&**source),
            _ => None,
        }
    }
}

/// Sends the query once, on a separate connection.
///
/// # Errors
/// [`QueryError`] is the reason why there is no response.
pub async fn query(
    connector: &Connector,
    query: &MemberQuery<'_>,
) -> Result<QueryResponse, QueryError> {
    timeout(query.timeout, exchange(connector, query))
        .await
        .unwrap_or(Err(QueryError::Late(query.timeout)))
}

async fn exchange(
    connector: &Connector,
    query: &MemberQuery<'_>,
) -> Result<QueryResponse, QueryError> {
    let io = dial_tls(connector, query.port).await?;
    let certificate = io.presented();
    let mut wire = Wire::new(MemberIo::new(io, None));
    let close = HeaderValue::from_static("close");
    let (response, _) = exchange_on(&mut wire, connector, query, Some(close)).await?;
    Ok(QueryResponse {
        certificate,
        ..response
    })
}

/// Sends the query on this connection. Also returns whether the connection can be used for another query.
pub(crate) async fn exchange_on(
    wire: &mut Wire,
    connector: &Connector,
    query: &MemberQuery<'_>,
    connection: Option<HeaderValue>,
) -> Result<(QueryResponse, bool), QueryError> {
    let mut fields = query.headers.clone();
    fields.insert(header::HOST, connector.host_at(query.port));
    fields.extend(connection.map(|value| (header::CONNECTION, value)));
    let target = query
        .path
        .parse()
        .map_err(|error| QueryError::Broken(Box::new(error)))?;
    let line = RequestLine {
        method: &query.method,
        target: &target,
        version: match connector.settings.http_version {
            HttpVersion::Http11 => Version::HTTP_11,
            HttpVersion::Http10 => Version::HTTP_10,
        },
    };
    let fields = fields
        .iter()
        .map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
    // A POST declares that its body is empty.
    let has_length = query.method == Method::POST;
    let body = Empty::<Bytes>::new();
    let fields_max = connector.settings.response_fields_max as usize;
    let begun = Conversation::begin(wire, line, fields, None, has_length, body, fields_max);
    let mut conversation = begun.map_err(broken)?;
    let head = poll_fn(|cx| conversation.poll_head(wire, cx)).await;
    let head = head.map_err(broken)?;
    let kind = head
        .body(line.method)
        .map_err(|error| broken(WireError::Head(error)))?;
    let mut decoder = Decoder::of_response(kind);
    let mut body = Vec::new();
    while body.len() < query.body_bytes_max {
        let Some(data) = poll_fn(|cx| conversation.poll_data(&mut decoder, wire, cx)).await else {
            break;
        };
        let data = data.map_err(broken)?;
        body.extend_from_slice(&data[..data.len().min(query.body_bytes_max - body.len())]);
    }
    let lasts =
        head.keeps_alive() && decoder.is_end() && conversation.is_sent() && wire.input.is_empty();
    let response = QueryResponse {
        status: head.status,
        headers: head.fields.to_map(),
        body: body.into(),
        certificate: None,
    };
    Ok((response, lasts))
}

/// Marks a request of the proxy itself as one without a client, for servers that read identity headers from plain HTTP. Over
/// TLS the headers are left out: the member sees the proxy's certificate, and a Puppet Server logs a warning for each identity
/// header that it ignores. `reads_headers`: the member reads these headers over TLS too.
pub(crate) fn mark_anonymous(connector: &Connector, reads_headers: bool, headers: &mut HeaderMap) {
    if reads_headers || connector.settings.scheme == Scheme::Http {
        headers.insert("x-client-verify", HeaderValue::from_static("NONE"));
    }
}

fn broken(error: WireError) -> QueryError {
    QueryError::Broken(Box::new(error))
}

fn tls_error<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        // An IO error shows its inner error only in this way, and never as its source.
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
