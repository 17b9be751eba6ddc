//! Fetches documents from a member for the proxy itself, with separate limits.

use std::{error::Error, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use crate::{
    cause::cause,
    connector::Connector,
    dial::DialError,
    query::{MemberQuery, QueryError, QueryResponse, mark_anonymous, query},
};

/// A document to fetch, and the limits of the fetch.
#[derive(Clone, Debug)]
pub struct FetchRequest {
    /// Path.
    pub path: &'static str,
    /// The Accept field.
    pub accept: &'static str,
    /// If-Modified-Since: the Last-Modified of the known document, as the member sent it.
    pub if_modified_since: Option<HeaderValue>,
    /// Maximum time of the whole fetch: connecting, the head and the whole body.
    pub timeout: Duration,
    /// Maximum bytes of the body.
    pub body_bytes_max: u64,
}

/// The response of a member.
#[derive(Clone, Debug)]
pub struct FetchedDocument {
    /// The whole body. `None`: the known document is still current (304).
    pub body: Option<Vec<u8>>,
    /// Last-Modified.
    pub last_modified: Option<HeaderValue>,
    /// Date, which shows the member's clock.
    pub date: Option<HeaderValue>,
}

/// Why a fetch failed.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The member was not reached.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The fetch exceeded its time.
    #[error("{address}: no complete response within {limit:?}")]
    Late {
        /// The member.
        address: Arc<str>,
        /// The limit.
        limit: Duration,
    },
    /// The response was malformed or incomplete.
    #[error("{address}: the response broke off: {}", cause(&**source))]
    Broken {
        /// The member.
        address: Arc<str>,
        /// What went wrong.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The status code is neither 200 nor, with If-Modified-Since, 304.
    #[error("{address}: answered {status}, wanted 200")]
    Unwanted {
        /// The member.
        address: Arc<str>,
        /// Status code.
        status: StatusCode,
    },
    /// The body exceeds the limit.
    #[error("{address}: the response is larger than {max} bytes")]
    TooLarge {
        /// The member.
        address: Arc<str>,
        /// The limit.
        max: u64,
    },
}

/// Fetches a document once, without a client's identity and on a separate connection.
///
/// # Errors
/// [`FetchError`] is the reason why there is no document.
pub async fn fetch(
    connector: &Connector,
    request: &FetchRequest,
) -> Result<FetchedDocument, FetchError> {
    let accept = HeaderValue::from_static(request.accept);
    let mut headers = HeaderMap::from_iter([(header::ACCEPT, accept)]);
    mark_anonymous(connector, false, &mut headers);
    let since = request.if_modified_since.clone();
    headers.extend(since.map(|since| (header::IF_MODIFIED_SINCE, since)));
    let max = request.body_bytes_max;
    let get = MemberQuery {
        method: Method::GET,
        path: request.path,
        port: None,
        headers,
        timeout: request.timeout,
        // One byte more than the maximum shows that the body exceeds it.
        body_bytes_max: usize::try_from(max).unwrap_or(usize::MAX).saturating_add(1),
    };
    let response = query(connector, &get).await;
    let response = response.map_err(|error| FetchError::of(error, connector))?;
    let field = |name| response.headers.get(name).cloned();
    let document = FetchedDocument {
        body: None,
        last_modified: field(header::LAST_MODIFIED),
        date: field(header::DATE),
    };
    let address = Arc::clone(&connector.address);
    let QueryResponse { status, body, .. } = response;
    match status {
        StatusCode::OK if body.len() as u64 > max => Err(FetchError::TooLarge { address, max }),
        StatusCode::OK => Ok(FetchedDocument {
            body: Some(body.into()),
            ..document
        }),
        StatusCode::NOT_MODIFIED if request.if_modified_since.is_some() => Ok(document),
        // Redirects are refused too, because the configuration decides where a CRL comes from.
        status => Err(FetchError::Unwanted { address, status }),
    }
}

impl FetchError {
    fn of(error: QueryError, connector: &Connector) -> Self {
        let address = Arc::clone(&connector.address);
        match error {
            QueryError::Dial(error) => Self::Dial(error),
            QueryError::Late(limit) => Self::Late { address, limit },
            QueryError::Broken(source) => Self::Broken { address, source },
        }
    }
}
