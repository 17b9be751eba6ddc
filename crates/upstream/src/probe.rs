//! One run of a health check.

use std::time::Duration;

use balancing::{
    ANSWER_BYTES_MAX as AGENT_ANSWER_BYTES_MAX, host_and_port,
    settings::{CheckKind, CheckSettings, StatusRange},
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use crate::{
    cause::cause,
    connector::Connector,
    dial::{DateFault, DialError, dial, dial_port, dial_tls},
    host_limit::HostLimit,
    query::{MemberQuery, QueryError, mark_anonymous, query},
};

/// Maximum bytes of a response that a probe reads.
const ANSWER_BYTES_MAX: usize = 4096;
/// Maximum bytes of a status line that a probe reads.
const STATUS_LINE_BYTES_MAX: usize = 256;

/// Path of the status that Puppet servers show to every client (Puppet Server `status` service, `simple` level). The name of a
/// service may follow the path.
const SIMPLE: &str = "/status/v1/simple";
/// The body of that status while the server is running.
const RUNNING: &str = "running";
/// Path of the status of masters from 0.25 to 3. The status exists in every environment, and `production` always exists.
const LEGACY: &str = "/production/status/no_key";
/// A part of that status while the master is running.
const ALIVE: &str = "\"is_alive\":true";

/// An HTTP check: the request, and the responses that show that the member works.
#[derive(Clone, Copy, Debug)]
pub struct HttpCheck<'c> {
    /// Path and query.
    pub path: &'c str,
    accept: &'static str,
    /// Status codes that pass. Empty: only 200.
    status: &'c [StatusRange],
    body: ExpectedBody<'c>,
}

/// The body that passes.
#[derive(Clone, Copy, Debug)]
enum ExpectedBody<'c> {
    Any,
    /// Exactly this string.
    Is(&'c str),
    Contains(&'c str),
}

impl<'c> HttpCheck<'c> {
    /// The request of a check. `None` if the check does not use HTTP.
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

    /// Whether this response shows that the member works.
    pub fn accepts(&self, status: StatusCode, body: &str) -> bool {
        self.accepts_status(status.as_u16())
            && match self.body {
                ExpectedBody::Any => true,
                ExpectedBody::Is(text) => body.trim() == text,
                ExpectedBody::Contains(text) => body.contains(text),
            }
    }

    /// Whether the check requests the status of a Puppet server.
    pub fn is_puppet_status(&self) -> bool {
        is_simple(self.path)
    }

    fn accepts_status(&self, status: u16) -> bool {
        match self.status {
            [] => status == 200,
            ranges => ranges.iter().any(|range| range.contains(status)),
        }
    }

    /// A description of the expected response, for messages.
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

/// Whether the proxy reads the JRuby counts of members with this check.
pub fn reads_jrubies(check: &CheckSettings) -> bool {
    let by_default = || {
        let own_service = check.port.is_none() || check.tls;
        own_service && HttpCheck::of(check).is_some_and(|check| check.is_puppet_status())
    };
    check.read_jrubies.unwrap_or_else(by_default)
}

/// Whether a path is that of a Puppet server's status, or of one of its services' status.
fn is_simple(path: &str) -> bool {
    let rest = path.strip_prefix(SIMPLE);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The result of a probe.
#[derive(Debug)]
pub struct ProbeOutcome {
    /// Whether the member works.
    pub result: Result<(), ProbeError>,
    /// The `Date` of the response, whatever the result. It shows the member's clock.
    pub date: Option<HeaderValue>,
}

/// Why a probe failed.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The member was not reached.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// No complete response arrived in time.
    #[error("no answer within {0:?}")]
    Late(Duration),
    /// The response was malformed or incomplete.
    #[error("no answer to {path}: {}", cause(&**source))]
    Broken {
        /// The path of the request.
        path: String,
        /// The error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The response differs from the expected one.
    #[error("{path} answered {status} `{text}`, wanted {wanted}")]
    Unwanted {
        /// The path of the request.
        path: String,
        /// Status code.
        status: StatusCode,
        /// The beginning of the body, in printable characters.
        text: String,
        /// The expected response.
        wanted: String,
    },
    /// The agent's answer to a check is too long.
    #[error("the response has no end of line within {AGENT_ANSWER_BYTES_MAX} bytes")]
    LongLine,
    /// The connection broke before the agent's answer to a check was complete.
    #[error("no complete line: {}", cause(_0))]
    CutLine(#[source] std::io::Error),
    /// The port of the check sent an unexpected response.
    #[error("port {port} answered `{line}`, wanted a status line with {wanted}")]
    Port {
        /// The port.
        port: u16,
        /// The first line, in printable characters. Empty if the server closed the connection without sending one.
        line: String,
        /// The expected response.
        wanted: String,
    },
}

impl ProbeError {
    /// As [`DialError::date_fault`].
    pub fn date_fault(&self) -> Option<DateFault> {
        match self {
            Self::Dial(error) => error.date_fault(),
            _ => None,
        }
    }

    /// The limit of this host that made the probe fail. Such a failure shows nothing about the member.
    pub fn host_limit(&self) -> Option<HostLimit> {
        match self {
            Self::Dial(error) => error.host_limit(),
            _ => None,
        }
    }
}

/// Probes a member once.
pub async fn probe(connector: &Connector, check: &CheckSettings) -> ProbeOutcome {
    let mut date = None;
    let attempt = async {
        match (HttpCheck::of(check), check.port) {
            (Some(http), Some(port)) if !check.tls => probe_port(connector, port, &http).await,
            (Some(http), port) => {
                run_http_check(connector, (&http, port), check.timeout, &mut date).await
            }
            (None, _) if check.kind == CheckKind::None => Ok(()),
            (None, None) => dial(connector).await.map(drop).map_err(ProbeError::from),
            (None, Some(port)) => {
                let dialled = if check.tls {
                    dial_tls(connector, Some(port)).await.map(drop)
                } else {
                    dial_port(connector, port).await.map(drop)
                };
                dialled.map_err(ProbeError::from)
            }
        }
    };
    let result = timeout(check.timeout, attempt)
        .await
        .unwrap_or(Err(ProbeError::Late(check.timeout)));
    ProbeOutcome { result, date }
}

/// Probes a separate port of the member in plain HTTP.
///
/// Such a port is often served by a shell script under inetd. The script writes its response without reading a byte, and
/// closes. An HTTP client would treat that as an error. The response is therefore read as bytes, and only as much of it as the
/// check needs.
async fn probe_port(
    connector: &Connector,
    port: u16,
    check: &HttpCheck<'_>,
) -> Result<(), ProbeError> {
    let mut stream = dial_port(connector, port).await?;
    let host = host_and_port(connector.target.host(), port);
    let path = check.path;
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: */*\r\nConnection: close\r\n\r\n");
    // A failed write is not an error: a server that has already closed may have sent its response before.
    let _ = stream.write_all(request.as_bytes()).await;
    let reads_body = !matches!(check.body, ExpectedBody::Any);
    let most = if reads_body {
        ANSWER_BYTES_MAX
    } else {
        STATUS_LINE_BYTES_MAX
    };
    let mut read = Vec::with_capacity(most);
    let mut stream = stream.take(most as u64);
    // Reads only until the expected string has arrived, because the server may keep the connection open.
    let is_enough = |read: &[u8]| match check.body {
        ExpectedBody::Any => read.contains(&b'\n'),
        ExpectedBody::Is(_) => false,
        ExpectedBody::Contains(_) => is_accepted(read, check),
    };
    while !is_enough(&read) {
        match stream.read_buf(&mut read).await {
            Ok(1..) => {}
            // If a script has not read the request, the connection is reset after its response.
            Ok(0) | Err(_) => break,
        }
    }
    let line = read.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if is_accepted(&read, check) {
        Ok(())
    } else {
        Err(ProbeError::Port {
            port,
            line: printable(&String::from_utf8_lossy(line)),
            wanted: check.expected(),
        })
    }
}

/// Whether the bytes read so far show that the member works.
fn is_accepted(read: &[u8], check: &HttpCheck<'_>) -> bool {
    let line = read.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let status = read.contains(&b'\n').then(|| status_of(line)).flatten();
    let text = String::from_utf8_lossy(read);
    let body = text
        .split_once("\r\n\r\n")
        .or_else(|| text.split_once("\n\n"));
    let body = body.map_or("", |(_, body)| body);
    status.is_some_and(|status| check.accepts(status, body))
}

/// Runs an agent check: connects to the port, and reads the line that the agent sends.
///
/// # Errors
/// [`ProbeError`] is the reason why there is no line.
pub async fn agent_check(connector: &Connector, port: u16) -> Result<Vec<u8>, ProbeError> {
    let limit = connector.settings.connect_timeout;
    let attempt = async {
        let stream = dial_port(connector, port).await?;
        let mut read = Vec::with_capacity(AGENT_ANSWER_BYTES_MAX);
        let mut stream = stream.take(AGENT_ANSWER_BYTES_MAX as u64);
        while !read.contains(&b'\n') && !read.contains(&b'\r') {
            match stream.read_buf(&mut read).await {
                Ok(1..) => {}
                // An incomplete line could have another meaning than the complete one.
                Ok(0) if read.len() == AGENT_ANSWER_BYTES_MAX => return Err(ProbeError::LongLine),
                Ok(0) => break,
                Err(error) => return Err(ProbeError::CutLine(error)),
            }
        }
        Ok(read)
    };
    timeout(limit, attempt)
        .await
        .unwrap_or(Err(ProbeError::Late(limit)))
}

/// The status code of a status line: version, status code and optional reason (RFC 9112, 4).
fn status_of(line: &[u8]) -> Option<StatusCode> {
    let mut words = line.trim_ascii_end().splitn(3, |byte| *byte == b' ');
    let version = words.next().unwrap_or_default();
    let is_version = matches!(version, b"HTTP/1.0" | b"HTTP/1.1");
    let code = words.next().filter(|code| is_version && code.len() == 3)?;
    StatusCode::from_bytes(code).ok()
}

/// The beginning of a peer's bytes, made safe for logs and terminals: only printable ASCII. Some characters that move the
/// cursor or reverse a line are not control characters.
pub fn printable(text: &str) -> String {
    let plain = |c: char| if matches!(c, ' '..='~') { c } else { '?' };
    let visible = text.chars().filter(|c| !c.is_control());
    visible.map(plain).take(64).collect()
}

async fn run_http_check(
    connector: &Connector,
    (check, port): (&HttpCheck<'_>, Option<u16>),
    limit: Duration,
    date: &mut Option<HeaderValue>,
) -> Result<(), ProbeError> {
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, HeaderValue::from_static(check.accept));
    // Old masters behind a front end read the identity headers of any request.
    let is_legacy = check.path == LEGACY;
    mark_anonymous(connector, is_legacy, &mut headers);
    let path = check.path.to_owned();
    let get = MemberQuery {
        method: Method::GET,
        path: check.path,
        port,
        headers,
        timeout: limit,
        body_bytes_max: ANSWER_BYTES_MAX,
    };
    let answer = match query(connector, &get).await {
        Ok(answer) => answer,
        Err(QueryError::Dial(error)) => return Err(ProbeError::Dial(error)),
        Err(QueryError::Late(limit)) => return Err(ProbeError::Late(limit)),
        Err(QueryError::Broken(source)) => return Err(ProbeError::Broken { path, source }),
    };
    *date = answer.headers.get(header::DATE).cloned();
    let text = String::from_utf8_lossy(&answer.body);
    if check.accepts(answer.status, &text) {
        Ok(())
    } else {
        Err(ProbeError::Unwanted {
            path,
            status: answer.status,
            text: printable(text.trim()),
            wanted: check.expected(),
        })
    }
}
