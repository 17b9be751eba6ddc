//! One GET of our own to a member, for what the proxy itself wants to know; its limits are apart from those of requests.

use std::{error::Error, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use crate::{
    cause::cause,
    connector::Connector,
    dial::DialError,
    query::{MemberQuery, QueryError, QueryResponse, query},
};

/// What is asked for, and how much of it is taken.
#[derive(Clone, Debug)]
pub struct FetchRequest {
    /// Path.
    pub path: &'static str,
    /// Accept.
    pub accept: &'static str,
    /// If-Modified-Since: the Last-Modified of what is known, as its member spelled it.
    pub if_modified_since: Option<HeaderValue>,
    /// Time for all of it: connecting, the head, the whole body.
    pub timeout: Duration,
    /// Most bytes of a body.
    pub body_bytes_max: u64,
}

/// What a member has answered.
#[derive(Clone, Debug)]
pub struct FetchedDocument {
    /// The whole body; none: what is known is still what there is (304).
    pub body: Option<Vec<u8>>,
    /// Last-Modified.
    pub last_modified: Option<HeaderValue>,
    /// Date: the member's clock.
    pub date: Option<HeaderValue>,
}

/// Why there is no answer to be used.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The member was not reached.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// It took too long.
    #[error("{address}: no whole answer within {limit:?}")]
    Late {
        /// The member.
        address: Arc<str>,
        /// The limit.
        limit: Duration,
    },
    /// The answer broke off or was none.
    #[error("{address}: the answer broke off: {}", cause(&**source))]
    Broken {
        /// The member.
        address: Arc<str>,
        /// What went wrong.
        source: Box<dyn Error + Send + Sync>,
    },
    /// Neither 200 nor, where that was asked for, 304.
    #[error("{address}: answered {status}, wanted 200")]
    Unwanted {
        /// The member.
        address: Arc<str>,
        /// Status code.
        status: StatusCode,
    },
    /// More than is taken.
    #[error("{address}: the answer is larger than {max} bytes")]
    TooLarge {
        /// The member.
        address: Arc<str>,
        /// The limit.
        max: u64,
    },
}

/// Asks a member once, as nobody: without a client's identity, on a connection of its own.
///
/// # Errors
/// [`FetchError`] says why there is no answer.
pub async fn fetch(
    connector: &Connector,
    wish: &FetchRequest,
) -> Result<FetchedDocument, FetchError> {
    let mut headers = HeaderMap::from_iter([
        (header::ACCEPT, HeaderValue::from_static(wish.accept)),
        (X_CLIENT_VERIFY, HeaderValue::from_static("NONE")),
    ]);
    let since = wish.if_modified_since.clone();
    headers.extend(since.map(|since| (header::IF_MODIFIED_SINCE, since)));
    let max = wish.body_bytes_max;
    let question = MemberQuery {
        path: wish.path,
        port: None,
        headers,
        timeout: wish.timeout,
        // A byte more shows that there is more.
        body_bytes_max: usize::try_from(max).unwrap_or(usize::MAX).saturating_add(1),
    };
    let told = query(connector, &question).await;
    let told = told.map_err(|error| FetchError::of(error, connector))?;
    let field = |name| told.headers.get(name).cloned();
    let answer = FetchedDocument {
        body: None,
        last_modified: field(header::LAST_MODIFIED),
        date: field(header::DATE),
    };
    let address = Arc::clone(&connector.address);
    let QueryResponse { status, body, .. } = told;
    match status {
        StatusCode::OK if body.len() as u64 > max => Err(FetchError::TooLarge { address, max }),
        StatusCode::OK => Ok(FetchedDocument {
            body: Some(body.into()),
            ..answer
        }),
        StatusCode::NOT_MODIFIED if wish.if_modified_since.is_some() => Ok(answer),
        // Redirects among them: where a list comes from is the configuration's to say.
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

const X_CLIENT_VERIFY: HeaderName = HeaderName::from_static("x-client-verify");
