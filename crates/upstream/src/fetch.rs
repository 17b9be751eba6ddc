//! One GET of our own to a member, for what the proxy itself wants to know; its limits are apart from those of requests.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use crate::{
    connector::Connector,
    dial::{DialError, dial},
    io::{Counted, Intake},
};

/// What is asked for, and how much of it is taken.
#[derive(Clone, Debug)]
pub struct Wish {
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
pub struct Answer {
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
    #[error("{address}: the answer broke off: {source}")]
    Broken {
        /// The member.
        address: Arc<str>,
        /// What went wrong.
        source: hyper::Error,
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
pub async fn fetch(connector: &Connector, wish: &Wish) -> Result<Answer, FetchError> {
    timeout(wish.timeout, ask(connector, wish))
        .await
        .unwrap_or_else(|_| {
            Err(FetchError::Late {
                address: Arc::clone(&connector.address),
                limit: wish.timeout,
            })
        })
}

async fn ask(connector: &Connector, wish: &Wish) -> Result<Answer, FetchError> {
    let broken = |source| FetchError::Broken {
        address: Arc::clone(&connector.address),
        source,
    };
    let intake = Arc::new(Intake::new());
    intake.expect_head();
    let io = TokioIo::new(Counted::new(dial(connector).await?, intake, None));
    let (mut sender, connection) = http1::handshake::<_, Empty<Bytes>>(io)
        .await
        .map_err(broken)?;
    let mut request = Request::get(wish.path)
        .header(header::HOST, connector.host.clone())
        .header(header::ACCEPT, wish.accept)
        .header(header::CONNECTION, "close")
        .header("x-client-verify", "NONE")
        .body(Empty::new())
        .expect("a request of constants is well formed");
    if let Some(since) = &wish.if_modified_since {
        let headers = request.headers_mut();
        headers.insert(header::IF_MODIFIED_SINCE, since.clone());
    }
    let answer = async {
        let response = sender.send_request(request).await.map_err(broken)?;
        let field = |name| response.headers().get(name).cloned();
        let mut answer = Answer {
            body: None,
            last_modified: field(header::LAST_MODIFIED),
            date: field(header::DATE),
        };
        match response.status() {
            StatusCode::OK => {
                let body = response.into_body();
                answer.body = Some(gather(connector, wish, body).await?);
                Ok(answer)
            }
            StatusCode::NOT_MODIFIED if wish.if_modified_since.is_some() => Ok(answer),
            // Redirects among them: where a list comes from is the configuration's to say.
            status => Err(FetchError::Unwanted {
                address: Arc::clone(&connector.address),
                status,
            }),
        }
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

/// The body, frame by frame, no byte more than is taken.
async fn gather(
    connector: &Connector,
    wish: &Wish,
    mut body: Incoming,
) -> Result<Vec<u8>, FetchError> {
    let too_large = || FetchError::TooLarge {
        address: Arc::clone(&connector.address),
        max: wish.body_bytes_max,
    };
    let mut gathered: Vec<u8> = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|source| FetchError::Broken {
            address: Arc::clone(&connector.address),
            source,
        })?;
        let Some(bytes) = frame.data_ref() else {
            continue;
        };
        if (gathered.len() + bytes.len()) as u64 > wish.body_bytes_max {
            return Err(too_large());
        }
        gathered.extend_from_slice(bytes);
    }
    Ok(gathered)
}
