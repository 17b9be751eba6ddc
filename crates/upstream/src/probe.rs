//! One run of a check.

use std::time::Duration;

use balancing::settings::{CheckKind, CheckSettings};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use crate::{
    ask::{AskError, Question, ask},
    cause::{Peer, cause},
    connector::Connector,
    dial::{DialError, authority, dial, dial_port},
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

/// How a probe ended.
#[derive(Debug)]
pub struct ProbeOutcome {
    /// Whether the member can work.
    pub result: Result<(), ProbeError>,
    /// `Date` of the answer, good or bad: the member's clock.
    pub date: Option<HeaderValue>,
}

/// Why a probe was bad.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The member was not reached.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// No whole answer came in time.
    #[error("no answer within {0:?}")]
    Late(Duration),
    /// The answer broke off or was none.
    #[error("no answer to {path}: {}", cause(&**source, Peer::Member))]
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
pub async fn probe(connector: &Connector, check: &CheckSettings) -> ProbeOutcome {
    let mut date = None;
    let asked = async {
        match (check.kind, check.port) {
            (CheckKind::None, _) => Ok(()),
            (CheckKind::Tcp, None) => dial(connector).await.map(drop).map_err(ProbeError::from),
            (CheckKind::Tcp, Some(port)) => {
                let dialled = dial_port(connector, port).await;
                dialled.map(drop).map_err(ProbeError::from)
            }
            (CheckKind::Http, None) => inquire(connector, &SIMPLE, check.timeout, &mut date).await,
            (CheckKind::Http, Some(port)) => ask_port(connector, port).await,
            (CheckKind::Legacy, _) => inquire(connector, &LEGACY, check.timeout, &mut date).await,
        }
    };
    let result = timeout(check.timeout, asked)
        .await
        .unwrap_or(Err(ProbeError::Late(check.timeout)));
    ProbeOutcome { result, date }
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

async fn inquire(
    connector: &Connector,
    inquiry: &Inquiry,
    limit: Duration,
    date: &mut Option<HeaderValue>,
) -> Result<(), ProbeError> {
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, HeaderValue::from_static(inquiry.accept));
    headers.insert("x-client-verify", HeaderValue::from_static("NONE"));
    let path = inquiry.path;
    let question = Question {
        path,
        headers,
        timeout: limit,
        body_bytes_max: ANSWER_BYTES_MAX,
    };
    let answer = ask(connector, &question)
        .await
        .map_err(|error| match error {
            AskError::Dial(error) => ProbeError::Dial(error),
            AskError::Late(limit) => ProbeError::Late(limit),
            AskError::Broken(source) => ProbeError::Broken { path, source },
        })?;
    *date = answer.headers.get(header::DATE).cloned();
    let text = String::from_utf8_lossy(&answer.body).trim().to_owned();
    match answer.status == StatusCode::OK && (inquiry.is_good)(&text) {
        true => Ok(()),
        false => Err(ProbeError::Unwanted {
            path,
            status: answer.status,
            text: printable(&text),
            wanted: inquiry.wanted,
        }),
    }
}
