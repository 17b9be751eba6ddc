//! One run of a check.

use std::time::Duration;

use balancing::{
    ANSWER_BYTES_MAX as AGENT_ANSWER_BYTES_MAX, host_and_port,
    settings::{CheckKind, CheckSettings, StatusRange},
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use crate::{
    cause::cause,
    connector::Connector,
    dial::{DialError, dial, dial_port, dial_tls},
    query::{MemberQuery, QueryError, query},
};

/// Bytes of a probe's answer that are read.
const ANSWER_BYTES_MAX: usize = 4096;
/// Bytes of a status line that are read.
const STATUS_LINE_BYTES_MAX: usize = 256;

/// Path of the status that a Puppet server shows to every client (Puppet Server `status` service, `simple` level). A
/// service's name may follow it.
const SIMPLE: &str = "/status/v1/simple";
/// What that status is while the server can work.
const RUNNING: &str = "running";
/// What masters from 0.25 to 3 answer, in any environment that they have; `production` is there when no other is.
const LEGACY: &str = "/production/status/no_key";
/// What that status contains while the master works.
const ALIVE: &str = "\"is_alive\":true";

/// What a member is asked, and which answer shows that it can work.
#[derive(Clone, Copy, Debug)]
pub struct HttpCheck<'c> {
    /// Path and query.
    pub path: &'c str,
    accept: &'static str,
    /// Status codes that pass; empty: 200.
    status: &'c [StatusRange],
    body: ExpectedBody<'c>,
}

/// What the body must be.
#[derive(Clone, Copy, Debug)]
enum ExpectedBody<'c> {
    Any,
    /// This and nothing else.
    Is(&'c str),
    Contains(&'c str),
}

impl<'c> HttpCheck<'c> {
    /// What a check requests; none: it requests nothing by HTTP.
    pub fn of(check: &'c CheckSettings) -> Option<Self> {
        let (path, accept, body) = match check.kind {
            CheckKind::Tcp | CheckKind::None => return None,
            CheckKind::Legacy => (LEGACY, "pson", ExpectedBody::Contains(ALIVE)),
            CheckKind::Http => {
                let other_service = check.port.is_some() && !check.tls;
                let default = if other_service { "/" } else { SIMPLE };
                let path = check.path.as_deref().unwrap_or(default);
                let is_default = is_simple(path) && check.expect_status.is_empty();
                let body = match (&check.expect_body, is_default) {
                    (Some(text), _) => ExpectedBody::Contains(text),
                    (None, true) => ExpectedBody::Is(RUNNING),
                    (None, false) => ExpectedBody::Any,
                };
                (path, "*/*", body)
            }
        };
        Some(Self {
            path,
            accept,
            status: &check.expect_status,
            body,
        })
    }

    /// Whether this answer shows that the member can work.
    pub fn accepts(&self, status: StatusCode, body: &str) -> bool {
        self.accepts_status(status.as_u16())
            && match self.body {
                ExpectedBody::Any => true,
                ExpectedBody::Is(text) => body.trim() == text,
                ExpectedBody::Contains(text) => body.contains(text),
            }
    }

    /// Whether it requests the status of a Puppet server.
    pub fn is_puppet_status(&self) -> bool {
        is_simple(self.path)
    }

    fn accepts_status(&self, status: u16) -> bool {
        match self.status {
            [] => status == 200,
            ranges => ranges.iter().any(|range| range.contains(status)),
        }
    }

    /// What is expected, for messages.
    pub fn expected(&self) -> String {
        let status = match self.status {
            [] => "200".to_owned(),
            ranges => {
                let words: Vec<_> = ranges.iter().map(StatusRange::to_string).collect();
                words.join(", ")
            }
        };
        match self.body {
            ExpectedBody::Any => status,
            ExpectedBody::Is(text) | ExpectedBody::Contains(text) => format!("{status} `{text}`"),
        }
    }
}

/// Whether the JRuby counts of members with this check are read.
pub fn reads_jrubies(check: &CheckSettings) -> bool {
    let by_default = || {
        let own_service = check.port.is_none() || check.tls;
        own_service && HttpCheck::of(check).is_some_and(|inquiry| inquiry.is_puppet_status())
    };
    check.read_jrubies.unwrap_or_else(by_default)
}

/// Whether it is the status of a Puppet server, or of one of its services.
fn is_simple(path: &str) -> bool {
    let rest = path.strip_prefix(SIMPLE);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

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
    #[error("no answer to {path}: {}", cause(&**source))]
    Broken {
        /// What was asked.
        path: String,
        /// What went wrong.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The answer was another than wanted.
    #[error("{path} answered {status} `{text}`, wanted {wanted}")]
    Unwanted {
        /// What was asked.
        path: String,
        /// Status code.
        status: StatusCode,
        /// Beginning of the body, printable.
        text: String,
        /// What was expected.
        wanted: String,
    },
    /// A line of an agent that is longer than any answer.
    #[error("the answer has no end of a line within {AGENT_ANSWER_BYTES_MAX} bytes")]
    LongLine,
    /// The connection broke before an agent's line was complete.
    #[error("no whole line: {}", cause(_0))]
    CutLine(#[source] std::io::Error),
    /// The port of the check answered otherwise than expected.
    #[error("port {port} answered `{line}`, wanted a status line with {wanted}")]
    Port {
        /// The port.
        port: u16,
        /// What came, printable; empty where it closed without a word.
        line: String,
        /// What was expected.
        wanted: String,
    },
}

/// Asks a member once whether it can work.
pub async fn probe(connector: &Connector, check: &CheckSettings) -> ProbeOutcome {
    let mut date = None;
    let asked = async {
        match (HttpCheck::of(check), check.port) {
            (Some(inquiry), Some(port)) if !check.tls => ask_port(connector, port, &inquiry).await,
            (Some(inquiry), port) => {
                inquire(connector, (&inquiry, port), check.timeout, &mut date).await
            }
            (None, _) if check.kind == CheckKind::None => Ok(()),
            (None, None) => dial(connector).await.map(drop).map_err(ProbeError::from),
            (None, Some(port)) => {
                let dialled = match check.tls {
                    true => dial_tls(connector, Some(port)).await.map(drop),
                    false => dial_port(connector, port).await.map(drop),
                };
                dialled.map_err(ProbeError::from)
            }
        }
    };
    let result = timeout(check.timeout, asked)
        .await
        .unwrap_or(Err(ProbeError::Late(check.timeout)));
    ProbeOutcome { result, date }
}

/// Asks what answers for the member on a port of its own, in plain text.
///
/// Such a thing is often a shell script below inetd, which writes its answer without reading a byte and closes. An HTTP
/// client takes that for a fault; so the answer is read as bytes, and no more of it than the check needs.
async fn ask_port(
    connector: &Connector,
    port: u16,
    inquiry: &HttpCheck<'_>,
) -> Result<(), ProbeError> {
    let mut stream = dial_port(connector, port).await?;
    let host = host_and_port(connector.target.host(), port);
    let path = inquiry.path;
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: */*\r\nConnection: close\r\n\r\n");
    // Whoever has closed already may have answered before.
    let _ = stream.write_all(request.as_bytes()).await;
    let reads_body = !matches!(inquiry.body, ExpectedBody::Any);
    let most = if reads_body {
        ANSWER_BYTES_MAX
    } else {
        STATUS_LINE_BYTES_MAX
    };
    let mut read = Vec::with_capacity(most);
    let mut stream = stream.take(most as u64);
    // With an expected text, until it has come: what answers may keep the connection open.
    let is_enough = |read: &[u8]| match inquiry.body {
        ExpectedBody::Any => read.contains(&b'\n'),
        ExpectedBody::Is(_) => false,
        ExpectedBody::Contains(_) => is_accepted(read, inquiry),
    };
    while !is_enough(&read) {
        match stream.read_buf(&mut read).await {
            Ok(1..) => {}
            // A reset after the answer is how a script closes that has read nothing.
            Ok(0) | Err(_) => break,
        }
    }
    let line = read.split(|byte| *byte == b'\n').next().unwrap_or_default();
    match is_accepted(&read, inquiry) {
        true => Ok(()),
        false => Err(ProbeError::Port {
            port,
            line: printable(&String::from_utf8_lossy(line)),
            wanted: inquiry.expected(),
        }),
    }
}

/// Whether the answer that has been read so far shows that the member can work.
fn is_accepted(read: &[u8], inquiry: &HttpCheck<'_>) -> bool {
    let line = read.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let status = read.contains(&b'\n').then(|| status_of(line)).flatten();
    let text = String::from_utf8_lossy(read);
    let body = text
        .split_once("\r\n\r\n")
        .or_else(|| text.split_once("\n\n"));
    let body = body.map_or("", |(_, body)| body);
    status.is_some_and(|status| inquiry.accepts(status, body))
}

/// Reads the line that an agent beside the member sends as soon as it is connected to, or sends before it closes.
///
/// # Errors
/// [`ProbeError`] says why there is none.
pub async fn agent_check(connector: &Connector, port: u16) -> Result<Vec<u8>, ProbeError> {
    let limit = connector.settings.connect_timeout;
    let asked = async {
        let stream = dial_port(connector, port).await?;
        let mut read = Vec::with_capacity(AGENT_ANSWER_BYTES_MAX);
        let mut stream = stream.take(AGENT_ANSWER_BYTES_MAX as u64);
        while !read.contains(&b'\n') && !read.contains(&b'\r') {
            match stream.read_buf(&mut read).await {
                Ok(1..) => {}
                // A part of a line could say something else than the whole.
                Ok(0) if read.len() == AGENT_ANSWER_BYTES_MAX => return Err(ProbeError::LongLine),
                Ok(0) => break,
                Err(error) => return Err(ProbeError::CutLine(error)),
            }
        }
        Ok(read)
    };
    timeout(limit, asked)
        .await
        .unwrap_or(Err(ProbeError::Late(limit)))
}

/// The status code of a status line: version, status code, and perhaps a reason (RFC 9112, 4).
fn status_of(line: &[u8]) -> Option<StatusCode> {
    let mut words = line.trim_ascii_end().splitn(3, |byte| *byte == b' ');
    let version = words.next().unwrap_or_default();
    let is_version = matches!(version, b"HTTP/1.0" | b"HTTP/1.1");
    let code = words.next().filter(|code| is_version && code.len() == 3)?;
    StatusCode::from_bytes(code).ok()
}

/// The beginning of what a peer sent, for a log and a terminal. Not all that moves a cursor is a control character, nor all
/// that turns a line around.
pub fn printable(text: &str) -> String {
    let plain = |c: char| if matches!(c, ' '..='~') { c } else { '?' };
    let visible = text.chars().filter(|c| !c.is_control());
    visible.map(plain).take(64).collect()
}

async fn inquire(
    connector: &Connector,
    (inquiry, port): (&HttpCheck<'_>, Option<u16>),
    limit: Duration,
    date: &mut Option<HeaderValue>,
) -> Result<(), ProbeError> {
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, HeaderValue::from_static(inquiry.accept));
    headers.insert("x-client-verify", HeaderValue::from_static("NONE"));
    let path = inquiry.path.to_owned();
    let question = MemberQuery {
        path: inquiry.path,
        port,
        headers,
        timeout: limit,
        body_bytes_max: ANSWER_BYTES_MAX,
    };
    let answer = match query(connector, &question).await {
        Ok(answer) => answer,
        Err(QueryError::Dial(error)) => return Err(ProbeError::Dial(error)),
        Err(QueryError::Late(limit)) => return Err(ProbeError::Late(limit)),
        Err(QueryError::Broken(source)) => return Err(ProbeError::Broken { path, source }),
    };
    *date = answer.headers.get(header::DATE).cloned();
    let text = String::from_utf8_lossy(&answer.body);
    match inquiry.accepts(answer.status, &text) {
        true => Ok(()),
        false => Err(ProbeError::Unwanted {
            path,
            status: answer.status,
            text: printable(text.trim()),
            wanted: inquiry.expected(),
        }),
    }
}
