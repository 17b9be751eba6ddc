//! The client of the admin socket: one request per connection, and every wait is limited.

use std::{
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;
use tokio::{net::UnixStream, time::timeout};

use crate::{
    AgentsStatus, AppliedConfigurations, BlockCertnamesOutcome, BlockCertnamesRequest,
    BlockOutcome, BlockRequest, BlockStatus, BlockSubject, CertificatesStatus, ConfigurationStatus,
    ConfigurationText, CrlAcceptRequest, CrlAccepted, CrlFetchOutcome, EventHistoryStatus,
    ExplainRequest, FleetStatus, LogLevelStatus, LogsReopened, MemberStateOutcome,
    MemberStateRequest, MemberStatus, RefusalsStatus, ReloadOutcome, RequestExplanation,
    RequestsStatus, RollbackOutcome, RollbackRequest, Status, Timestamp, TrafficStatus, TurnAnswer,
    TurnEnd, TurnRequest, WhoRequest, WhoStatus,
    api::{LogLevelRequest, Problem},
};

/// The part of a status that every version has.
#[derive(Deserialize)]
struct ListenersOnly {
    listeners: Vec<AddressesOnly>,
    #[serde(default)]
    metrics_address: Option<String>,
}

/// The part of a listener's status that every version has.
#[derive(Deserialize)]
struct AddressesOnly {
    address: String,
    #[serde(default)]
    addresses: Vec<String>,
}

/// A client of a running proxy's admin socket. It needs a tokio runtime with IO and time.
#[derive(Clone, Debug)]
pub struct AdminClient {
    socket: PathBuf,
    reload_timeout: Duration,
}

impl AdminClient {
    /// A client for the proxy that listens on `socket`; nothing is connected yet.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
            reload_timeout: RELOAD_TIMEOUT,
        }
    }

    /// The status of the proxy.
    ///
    /// # Errors
    /// The proxy does not answer, or its response is invalid.
    pub async fn status(&self) -> Result<Status, AdminClientError> {
        let answer = self
            .exchange(Method::GET, "/v1/status", None, READ_TIMEOUT)
            .await?;
        self.expect_ok(&answer)?;
        self.parse(&answer)
    }

    /// The addresses that the proxy accepts connections on. Only these are read from the status, because a proxy of another
    /// version may lack other fields.
    ///
    /// # Errors
    /// No process answers, or the answer is not a status.
    pub async fn listener_addresses(&self) -> Result<Vec<String>, AdminClientError> {
        let answer = self
            .exchange(Method::GET, "/v1/status", None, READ_TIMEOUT)
            .await?;
        self.expect_ok(&answer)?;
        let status: ListenersOnly = self.parse(&answer)?;
        let listeners = status.listeners.into_iter();
        let addresses = listeners.flat_map(|mut listener| {
            if listener.addresses.is_empty() {
                listener.addresses.push(listener.address);
            }
            listener.addresses
        });
        Ok(addresses.chain(status.metrics_address).collect())
    }

    /// Makes the proxy read its configuration and materials again, and waits for the result.
    ///
    /// # Errors
    /// The proxy does not answer. A refused reload is not an error: the result says so.
    pub async fn reload(&self) -> Result<ReloadOutcome, AdminClientError> {
        self.reload_outcome("/v1/reload").await
    }

    /// The configurations that were applied last.
    ///
    /// # Errors
    /// The proxy does not answer, or cannot read them.
    pub async fn applied_configurations(&self) -> Result<AppliedConfigurations, AdminClientError> {
        self.get("/v1/configurations").await
    }

    /// The text of an applied configuration.
    ///
    /// # Errors
    /// The proxy does not answer, has no such text, or this account may not read it.
    pub async fn configuration_text(
        &self,
        id: &str,
    ) -> Result<ConfigurationText, AdminClientError> {
        let id = utf8_percent_encode(id, SEGMENT);
        self.get(&format!("/v1/configurations/{id}")).await
    }

    /// What a rollback would do.
    ///
    /// # Errors
    /// The proxy does not answer, or there is no such configuration. A rollback that would be refused is not an error.
    pub async fn try_roll_back(
        &self,
        request: &RollbackRequest,
    ) -> Result<RollbackOutcome, AdminClientError> {
        self.outcome("/v1/rollback/dry-run", Some(request)).await
    }

    /// Applies a configuration again that was applied before.
    ///
    /// # Errors
    /// The proxy does not answer, or there is no such configuration. A refused rollback is not an error.
    pub async fn roll_back(
        &self,
        request: &RollbackRequest,
    ) -> Result<RollbackOutcome, AdminClientError> {
        self.outcome("/v1/rollback", Some(request)).await
    }

    async fn reload_outcome(&self, path: &str) -> Result<ReloadOutcome, AdminClientError> {
        self.outcome(path, None).await
    }

    /// The outcome of a reload or a rollback, whatever its result.
    async fn outcome<T: DeserializeOwned>(
        &self,
        path: &str,
        body: Option<&RollbackRequest>,
    ) -> Result<T, AdminClientError> {
        let body = body.map(serde_json::to_vec).transpose();
        let body = body.map_err(|error| self.broken(&error))?;
        let answer = self
            .exchange(Method::POST, path, body, self.reload_timeout)
            .await?;
        match answer.status() {
            StatusCode::OK | StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY => {
                self.parse(&answer)
            }
            _ => Err(self.refused(&answer)),
        }
    }

    /// Makes the proxy open its log files again.
    ///
    /// # Errors
    /// The proxy does not answer, or cannot open a file: the error names it.
    pub async fn reopen_logs(&self) -> Result<LogsReopened, AdminClientError> {
        // A running reload finishes first.
        let answer = self
            .exchange(Method::POST, "/v1/reopen-logs", None, self.reload_timeout)
            .await?;
        self.expect_ok(&answer)?;
        self.parse(&answer)
    }

    /// Which events the proxy logs.
    ///
    /// # Errors
    /// The proxy does not answer.
    pub async fn log_level(&self) -> Result<LogLevelStatus, AdminClientError> {
        let answer = self
            .exchange(Method::GET, "/v1/log-level", None, READ_TIMEOUT)
            .await?;
        self.expect_ok(&answer)?;
        self.parse(&answer)
    }

    /// Changes which events the proxy logs.
    ///
    /// # Errors
    /// The proxy does not answer, or `level` is not a log level.
    pub async fn set_log_level(&self, level: &str) -> Result<LogLevelStatus, AdminClientError> {
        let level = level.to_owned();
        self.post("/v1/log-level", &LogLevelRequest { level }).await
    }

    /// Sets the administrative state of members, and returns them with their new state.
    ///
    /// # Errors
    /// The proxy does not answer, there is no such member (the error names the members), or a pool would be left without
    /// an available member.
    pub async fn set_member_states(
        &self,
        request: &MemberStateRequest,
    ) -> Result<MemberStateOutcome, AdminClientError> {
        self.post("/v1/members/state", request).await
    }

    /// The status of one member.
    ///
    /// # Errors
    /// The proxy does not answer, or there is no such member.
    pub async fn member(&self, pool: &str, member: &str) -> Result<MemberStatus, AdminClientError> {
        let path = format!(
            "/v1/pools/{}/members/{}",
            utf8_percent_encode(pool, SEGMENT),
            utf8_percent_encode(member, SEGMENT),
        );
        let answer = self
            .exchange(Method::GET, &path, None, READ_TIMEOUT)
            .await?;
        self.expect_ok(&answer)?;
        self.parse(&answer)
    }

    /// All blocks, the oldest first.
    ///
    /// # Errors
    /// The proxy does not answer, or its response is invalid.
    pub async fn blocks(&self) -> Result<Vec<BlockStatus>, AdminClientError> {
        let answer = self
            .exchange(Method::GET, "/v1/blocks", None, READ_TIMEOUT)
            .await?;
        self.expect_ok(&answer)?;
        self.parse(&answer)
    }

    /// Sets a block.
    ///
    /// # Errors
    /// The proxy does not answer, or the block is invalid: the error says why.
    pub async fn block(&self, request: &BlockRequest) -> Result<BlockOutcome, AdminClientError> {
        self.post("/v1/blocks", request).await
    }

    /// Blocks several certnames, all of them or none.
    ///
    /// # Errors
    /// The proxy does not answer, or a name is invalid: the error says which.
    pub async fn block_certnames(
        &self,
        request: &BlockCertnamesRequest,
    ) -> Result<BlockCertnamesOutcome, AdminClientError> {
        self.post("/v1/blocks/certnames", request).await
    }

    /// Agents seen since the start, the one whose certificate expires first comes first.
    ///
    /// # Errors
    /// The proxy does not answer, or its response is invalid.
    pub async fn agents(&self) -> Result<AgentsStatus, AdminClientError> {
        let answer = self
            .exchange(Method::GET, "/v1/agents", None, READ_TIMEOUT)
            .await?;
        self.expect_ok(&answer)?;
        self.parse(&answer)
    }

    /// Clients that were refused since the start, the latest refusal first.
    ///
    /// # Errors
    /// The proxy does not answer, or the answer cannot be read.
    pub async fn refusals(&self) -> Result<RefusalsStatus, AdminClientError> {
        let answer = self
            .exchange(Method::GET, "/v1/refusals", None, READ_TIMEOUT)
            .await?;
        self.expect_ok(&answer)?;
        self.parse(&answer)
    }

    /// What the proxy knows about an agent or a certificate, and how it would decide now.
    ///
    /// # Errors
    /// The proxy does not answer, or the request is invalid: the error says why.
    pub async fn who(&self, request: &WhoRequest) -> Result<WhoStatus, AdminClientError> {
        self.post("/v1/who", request).await
    }

    /// Lifts a block.
    ///
    /// # Errors
    /// The proxy does not answer, or there is no such block.
    pub async fn unblock(&self, blocked: &BlockSubject) -> Result<BlockOutcome, AdminClientError> {
        self.post("/v1/blocks/lift", blocked).await
    }

    /// Makes the proxy fetch CRLs from the CA, and waits for the result.
    ///
    /// # Errors
    /// The proxy does not answer. A CRL that drops revocations and a failed fetch are not errors: the result says so.
    pub async fn fetch_crls(&self) -> Result<CrlFetchOutcome, AdminClientError> {
        let answer = self
            .exchange(Method::POST, "/v1/crl/fetch", None, self.reload_timeout)
            .await?;
        match answer.status() {
            StatusCode::OK
            | StatusCode::CONFLICT
            | StatusCode::UNPROCESSABLE_ENTITY
            | StatusCode::BAD_GATEWAY => self.parse(&answer),
            _ => Err(self.refused(&answer)),
        }
    }

    /// Accepts that a CRL drops revocations.
    ///
    /// # Errors
    /// The proxy does not answer, or no CRL of that issuer drops revocations: the error names the issuers with one that does.
    pub async fn accept_crl(
        &self,
        request: &CrlAcceptRequest,
    ) -> Result<CrlAccepted, AdminClientError> {
        self.post("/v1/crl/accept", request).await
    }

    /// Counts of requests since the start.
    ///
    /// # Errors
    /// The proxy does not answer, or its response is invalid.
    pub async fn traffic(&self) -> Result<TrafficStatus, AdminClientError> {
        self.get("/v1/traffic").await
    }

    /// The events of the last day since this time, at most `limit`, the oldest first.
    ///
    /// # Errors
    /// The proxy does not answer, or its response is invalid.
    pub async fn past_events(
        &self,
        since: Option<&Timestamp>,
        limit: Option<usize>,
    ) -> Result<EventHistoryStatus, AdminClientError> {
        let since = since.map(|since| format!("since={since}"));
        let limit = limit.map(|limit| format!("limit={limit}"));
        let query: Vec<_> = since.into_iter().chain(limit).collect();
        self.get(&format!("/v1/events/history?{}", query.join("&")))
            .await
    }

    /// Requests in flight and in queues, and the slowest.
    ///
    /// # Errors
    /// The proxy does not answer, or its response is invalid.
    pub async fn requests(&self) -> Result<RequestsStatus, AdminClientError> {
        self.get("/v1/requests").await
    }

    /// Certificates that expire soon.
    ///
    /// # Errors
    /// The proxy does not answer, or its response is invalid.
    pub async fn certificates(&self) -> Result<CertificatesStatus, AdminClientError> {
        self.get("/v1/certificates").await
    }

    /// The active configuration, and what a reload would change.
    ///
    /// # Errors
    /// The proxy does not answer, or its response is invalid.
    pub async fn configuration(&self) -> Result<ConfigurationStatus, AdminClientError> {
        self.get("/v1/configuration").await
    }

    /// What a reload would do.
    ///
    /// # Errors
    /// The proxy does not answer. A reload that would be refused is not an error: the result says so.
    pub async fn dry_run(&self) -> Result<ReloadOutcome, AdminClientError> {
        self.reload_outcome("/v1/reload/dry-run").await
    }

    /// How the running proxy would handle a request.
    ///
    /// # Errors
    /// The proxy does not answer, or the request is invalid: the error says why.
    pub async fn explain(
        &self,
        request: &ExplainRequest,
    ) -> Result<RequestExplanation, AdminClientError> {
        self.post("/v1/explain", request).await
    }

    /// The fleet that this proxy is part of.
    ///
    /// # Errors
    /// The proxy does not answer, or is not part of a fleet.
    pub async fn fleet(&self) -> Result<FleetStatus, AdminClientError> {
        self.get("/v1/fleet").await
    }

    /// Requests the turn of the fleet, or repeats a request for it.
    ///
    /// # Errors
    /// The proxy does not answer, is not part of a fleet, or the request is invalid.
    pub async fn ask_for_turn(
        &self,
        request: &TurnRequest,
    ) -> Result<TurnAnswer, AdminClientError> {
        self.post("/v1/fleet/turn", request).await
    }

    /// Ends a request for the turn, and the turn if it was taken for this request.
    ///
    /// # Errors
    /// The proxy does not answer, or is not part of a fleet.
    pub async fn end_turn(&self, end: &TurnEnd) -> Result<TurnAnswer, AdminClientError> {
        self.post("/v1/fleet/turn/end", end).await
    }

    /// Returns the body of a response without parsing it.
    ///
    /// # Errors
    /// The proxy does not answer.
    pub async fn text(&self, path: &str) -> Result<Bytes, AdminClientError> {
        let answer = self
            .exchange(Method::GET, path, None, self.reload_timeout)
            .await?;
        self.expect_ok(&answer)?;
        Ok(answer.into_body())
    }

    /// Waits as long as for a reload, because a running reload finishes first.
    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, AdminClientError> {
        let answer = self
            .exchange(Method::GET, path, None, self.reload_timeout)
            .await?;
        self.expect_ok(&answer)?;
        self.parse(&answer)
    }

    /// Waits as long as for a reload, because a running reload finishes first.
    async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, AdminClientError> {
        let body = serde_json::to_vec(body).map_err(|error| self.broken(&error))?;
        let answer = self
            .exchange(Method::POST, path, Some(body), self.reload_timeout)
            .await?;
        self.expect_ok(&answer)?;
        self.parse(&answer)
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        allowed: Duration,
    ) -> Result<Response<Bytes>, AdminClientError> {
        let stream = timeout(CONNECT_TIMEOUT, UnixStream::connect(&self.socket))
            .await
            .map_err(|_| self.late(CONNECT_TIMEOUT))?
            .map_err(|error| self.unreachable(error))?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, HeaderValue::from_static("localhost"))
            .header(
                header::CONTENT_TYPE,
                HeaderValue::from_static("application/json"),
            )
            .body(Full::new(Bytes::from(body.unwrap_or_default())))
            .map_err(|error| self.broken(&error))?;
        timeout(allowed, async {
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
                .await
                .map_err(|error| self.broken(&error))?;
            let answer = async {
                let response = sender
                    .send_request(request)
                    .await
                    .map_err(|error| self.broken(&error))?;
                self.collected(response).await
            };
            tokio::pin!(answer);
            tokio::pin!(connection);
            // The connection is driven here and not in a task, so that it is closed when this function returns.
            tokio::select! {
                biased;
                answer = &mut answer => answer,
                _ = &mut connection => answer.await,
            }
        })
        .await
        .map_err(|_| self.late(allowed))?
    }

    async fn collected(
        &self,
        response: Response<Incoming>,
    ) -> Result<Response<Bytes>, AdminClientError> {
        let (head, body) = response.into_parts();
        match Limited::new(body, ANSWER_BYTES_MAX).collect().await {
            Ok(body) => Ok(Response::from_parts(head, body.to_bytes())),
            Err(error) if error.is::<LengthLimitError>() => Err(AdminClientError::TooLong {
                socket: self.socket.clone(),
            }),
            Err(error) => Err(self.broken(error.as_ref())),
        }
    }

    fn expect_ok(&self, answer: &Response<Bytes>) -> Result<(), AdminClientError> {
        match answer.status() {
            StatusCode::OK => Ok(()),
            _ => Err(self.refused(answer)),
        }
    }

    fn parse<T: DeserializeOwned>(&self, answer: &Response<Bytes>) -> Result<T, AdminClientError> {
        serde_json::from_slice(answer.body()).map_err(|error| self.broken(&error))
    }

    fn refused(&self, answer: &Response<Bytes>) -> AdminClientError {
        let status = answer.status();
        let sentence = serde_json::from_slice::<Problem>(answer.body()).map_or_else(
            |_| format!("the proxy refused the request without a reason ({status})"),
            |problem| problem.detail,
        );
        AdminClientError::Refused { status, sentence }
    }

    fn unreachable(&self, error: io::Error) -> AdminClientError {
        let socket = self.socket.clone();
        match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => AdminClientError::NotListening {
                socket,
                source: error,
            },
            ErrorKind::PermissionDenied => AdminClientError::PermissionDenied {
                socket,
                source: error,
            },
            _ => AdminClientError::Connect {
                socket,
                source: error,
            },
        }
    }

    fn late(&self, allowed: Duration) -> AdminClientError {
        AdminClientError::Late {
            socket: self.socket.clone(),
            allowed,
        }
    }

    fn broken(&self, error: &(dyn std::error::Error + 'static)) -> AdminClientError {
        AdminClientError::Broken {
            socket: self.socket.clone(),
            error: error.to_string(),
        }
    }

    /// The socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

/// Why a running proxy did not answer, and what to do.
#[derive(Debug, Error)]
pub enum AdminClientError {
    /// The socket does not exist, or no process listens on it.
    #[error(
        "no proscenium is listening on {}: is it running? start it with `systemctl start proscenium` or `proscenium run`; to use another socket, set --socket or --config", .socket.display()
    )]
    NotListening {
        /// The socket.
        socket: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The socket exists, but this account may not use it.
    #[error("no permission to use {}: run as root or as the account of the service", .socket.display())]
    PermissionDenied {
        /// The socket.
        socket: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Any other failure to connect.
    #[error("cannot connect to {}", .socket.display())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Connected, but no response in time.
    #[error(
        "no response on {} within {} s: a reload may still be in progress; see `proscenium status` and the log",
        .socket.display(), .allowed.as_secs()
    )]
    Late {
        /// The socket.
        socket: PathBuf,
        /// The time that was allowed.
        allowed: Duration,
    },
    /// The response is longer than any response of the proxy.
    #[error("the response on {} is too long: is that proscenium?", .socket.display())]
    TooLong {
        /// The socket.
        socket: PathBuf,
    },
    /// The response is not one of the proxy.
    #[error("the response on {} is invalid ({error}): is that proscenium, of the same version as this command?", .socket.display())]
    Broken {
        /// The socket.
        socket: PathBuf,
        /// What is wrong with it.
        error: String,
    },
    /// The proxy refused the request.
    #[error("{sentence}")]
    Refused {
        /// Its status code.
        status: StatusCode,
        /// Its reason.
        sentence: String,
    },
}

/// What stays unescaped in a path segment; `/`, `%` and everything else that has a meaning in a URI is escaped.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b':');

/// Time allowed to connect. The queue of the socket is full only if the proxy does not accept connections.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time allowed for a response that needs no work.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Time allowed for a reload: slightly more than the proxy allows itself, so that the proxy answers first.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(310);
/// Maximum length of a response. Metrics of a large estate have a few hundred KiB.
const ANSWER_BYTES_MAX: usize = 16 << 20;
