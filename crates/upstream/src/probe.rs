//! One run of a check.

use std::sync::Arc;

use balancing::settings::{CheckKind, CheckSettings};
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use crate::{
    connector::Connector,
    dial::{DialError, authority, dial, dial_port},
    io::{Counted, Intake},
};

/// Bytes of a probe's answer that are read.
const ANSWER_BYTES_MAX: usize = 4096;
/// Bytes of a status line that are read.
const STATUS_LINE_BYTES_MAX: usize = 256;

/// What a member is asked, and what shows that it can work.
struct Inquiry {
    path: &'static str,
    accept: &'static str,
    wanted: &'static str,
    /// Judges the body of a 200.
    is_good: fn(&str) -> bool,
}

/// What a Puppet server's status service answers to everybody (Puppet Server `status` service, `simple` level).
static SIMPLE: Inquiry = Inquiry {
    path: "/status/v1/simple",
    accept: "*/*",
    wanted: "running",
    is_good: |text| text == "running",
};

/// What masters from 0.25 to 3 answer, in any environment that they have; `production` is there when no other is.
static LEGACY: Inquiry = Inquiry {
    path: "/production/status/no_key",
    accept: "pson",
    wanted: "\"is_alive\":true",
    is_good: |text| text.contains("\"is_alive\":true"),
};

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
    #[error("no answer to {path}: {source}")]
    Broken {
        /// What was asked.
        path: &'static str,
        /// What went wrong.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The answer was another than wanted.
    #[error("{path} answered {status} `{text}`, wanted 200 `{wanted}`")]
    Unwanted {
        /// What was asked.
        path: &'static str,
        /// Status code.
        status: StatusCode,
        /// Beginning of the body, printable.
        text: String,
        /// What the body should have been, or have held.
        wanted: &'static str,
    },
    /// The port of the check answered otherwise than with 200.
    #[error("port {port} answered `{line}`, wanted a status line with 200")]
    Port {
        /// The port.
        port: u16,
        /// What came, printable; empty where it closed without a word.
        line: String,
    },
}

/// Asks a member once whether it can work.
///
/// # Errors
/// [`ProbeError`] says why it cannot, for the event.
pub async fn probe(connector: &Connector, check: &CheckSettings) -> Result<(), ProbeError> {
    let asked = async {
        match (check.kind, check.port) {
            (CheckKind::None, _) => Ok(()),
            (CheckKind::Tcp, None) => dial(connector).await.map(drop).map_err(ProbeError::from),
            (CheckKind::Tcp, Some(port)) => {
                let dialled = dial_port(connector, port).await;
                dialled.map(drop).map_err(ProbeError::from)
            }
            (CheckKind::Http, None) => ask(connector, &SIMPLE).await,
            (CheckKind::Http, Some(port)) => ask_port(connector, port).await,
            (CheckKind::Legacy, _) => ask(connector, &LEGACY).await,
        }
    };
    timeout(check.timeout, asked)
        .await
        .unwrap_or(Err(ProbeError::Late(check.timeout)))
}

/// Asks what answers for the member on a port of its own: 200 is up, and nothing of the body counts.
///
/// Such a thing is often a shell script below inetd, which writes its answer without reading a byte and closes. An HTTP
/// client takes that for a fault; the status line is all that is wanted, so it alone is read.
async fn ask_port(connector: &Connector, port: u16) -> Result<(), ProbeError> {
    let mut stream = dial_port(connector, port).await?;
    let host = authority(connector.target.host(), port);
    let request =
        format!("GET / HTTP/1.1\r\nHost: {host}\r\nAccept: */*\r\nConnection: close\r\n\r\n");
    // Whoever has closed already may have answered before.
    let _ = stream.write_all(request.as_bytes()).await;
    let mut read = Vec::with_capacity(STATUS_LINE_BYTES_MAX);
    let mut stream = stream.take(STATUS_LINE_BYTES_MAX as u64);
    while !read.contains(&b'\n') {
        match stream.read_buf(&mut read).await {
            Ok(1..) => {}
            // A reset after the answer is how a script closes that has read nothing.
            Ok(0) | Err(_) => break,
        }
    }
    let line = read.split(|byte| *byte == b'\n').next().unwrap_or_default();
    match is_status_200(line) && read.contains(&b'\n') {
        true => Ok(()),
        false => Err(ProbeError::Port {
            port,
            line: printable(&String::from_utf8_lossy(line)),
        }),
    }
}

/// Version, status code, and perhaps a reason (RFC 9112, 4).
fn is_status_200(line: &[u8]) -> bool {
    let mut words = line.trim_ascii_end().splitn(3, |byte| *byte == b' ');
    let version = words.next().unwrap_or_default();
    matches!(version, b"HTTP/1.0" | b"HTTP/1.1") && words.next() == Some(b"200")
}

fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(64).collect()
}

async fn ask(connector: &Connector, inquiry: &Inquiry) -> Result<(), ProbeError> {
    let intake = Arc::new(Intake::new());
    intake.expect_head();
    let io = TokioIo::new(Counted::new(dial(connector).await?, intake, None));
    let path = inquiry.path;
    let broken = |error: hyper::Error| ProbeError::Broken {
        path,
        source: Box::new(error),
    };
    let (mut sender, connection) = http1::handshake::<_, Empty<Bytes>>(io)
        .await
        .map_err(broken)?;
    let request = Request::get(path)
        .header(header::HOST, connector.host.clone())
        .header(header::ACCEPT, inquiry.accept)
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
            .map_err(|source| ProbeError::Broken { path, source })?;
        let text = String::from_utf8_lossy(&body.to_bytes()).trim().to_owned();
        match status == StatusCode::OK && (inquiry.is_good)(&text) {
            true => Ok(()),
            false => Err(ProbeError::Unwanted {
                path,
                status,
                text: printable(&text),
                wanted: inquiry.wanted,
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
