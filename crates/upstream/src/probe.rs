//! One run of a check.

use std::sync::Arc;

use balancing::settings::{CheckKind, CheckSettings};
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use crate::{
    connector::Connector,
    dial::{DialError, dial},
    io::{Counted, Intake},
};

/// Bytes of a probe's answer that are read.
const ANSWER_BYTES_MAX: usize = 4096;
/// What a Puppet server's status service answers to everybody (Puppet Server `status` service, `simple` level).
const STATUS_PATH: &str = "/status/v1/simple";

/// Why a probe was bad.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The member was not reached.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// No whole answer came in time.
    #[error("no answer within {0:?}")]
    Late(std::time::Duration),
    /// The answer broke off or was none.
    #[error("no answer to {STATUS_PATH}: {0}")]
    Broken(Box<dyn std::error::Error + Send + Sync>),
    /// The answer was another than wanted.
    #[error("{STATUS_PATH} answered {status} `{text}`, wanted 200 `running`")]
    Unwanted {
        /// Status code.
        status: StatusCode,
        /// Beginning of the body, printable.
        text: String,
    },
}

/// Asks a member once whether it can work.
///
/// # Errors
/// [`ProbeError`] says why it cannot, for the event.
pub async fn probe(connector: &Connector, check: &CheckSettings) -> Result<(), ProbeError> {
    let asked = async {
        match check.kind {
            CheckKind::None => Ok(()),
            CheckKind::Tcp => dial(connector).await.map(drop).map_err(ProbeError::from),
            CheckKind::Http => ask(connector).await,
        }
    };
    timeout(check.timeout, asked)
        .await
        .unwrap_or(Err(ProbeError::Late(check.timeout)))
}

async fn ask(connector: &Connector) -> Result<(), ProbeError> {
    let intake = Arc::new(Intake::new());
    intake.expect_head();
    let io = TokioIo::new(Counted::new(dial(connector).await?, intake));
    let broken = |error: hyper::Error| ProbeError::Broken(Box::new(error));
    let (mut sender, connection) = http1::handshake::<_, Empty<Bytes>>(io)
        .await
        .map_err(broken)?;
    let request = Request::get(STATUS_PATH)
        .header(header::HOST, connector.host.clone())
        .header(header::ACCEPT, "*/*")
        .header(header::CONNECTION, "close")
        .header("x-client-verify", "NONE")
        .body(Empty::new())
        .expect("a request of constants is well formed");
    let answer = async {
        let answer = sender.send_request(request).await.map_err(broken)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await
            .map_err(ProbeError::Broken)?;
        let text = String::from_utf8_lossy(&body.to_bytes()).trim().to_owned();
        if status == StatusCode::OK && text == "running" {
            Ok(())
        } else {
            Err(ProbeError::Unwanted {
                status,
                text: text.chars().filter(|c| !c.is_control()).take(64).collect(),
            })
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
