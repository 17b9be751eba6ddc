//! What the admin API needs from the running proxy: implemented by the server, and by a stand-in in tests.

use std::{fmt, pin::Pin, time::SystemTime};

use serde::{Deserialize, Serialize};
use telemetry::Exposition;
use thiserror::Error;
use tokio::sync::Mutex;
use utoipa::ToSchema;

use crate::{
    AgentsStatus, AppliedConfigurations, AuditEntry, BlockCertnamesOutcome, BlockCertnamesRequest,
    BlockError, BlockOutcome, BlockRequest, BlockStatus, BlockSubject, ConfigurationStatus,
    ConfigurationText, CrlAcceptError, CrlAcceptRequest, CrlAccepted, CrlFetchOutcome,
    ExplainError, ExplainRequest, FleetOutcome, MemberStateError, MemberStateOutcome,
    MemberStateRequest, MemberStatus, PastEvent, Permission, RefusalsStatus, RequestExplanation,
    RequestsStatus, RollbackError, RollbackOutcome, RollbackRequest, Status, TrafficStatus,
    TurnAnswer, TurnEnd, TurnError, TurnRequest, WhoError, WhoRequest, WhoStatus,
};

/// The running proxy from the operator's point of view.
pub trait Control: Send + Sync + 'static {
    /// The locks of changes. Changes that other proxies of the fleet have made wait for them too.
    fn locks(&self) -> &ChangeLocks;

    /// The last change of a member's administrative state by an operator, here or on another proxy of the fleet. Must not
    /// block.
    fn last_member_change(&self, pool: &str, member: &str) -> Option<LastChange>;

    /// The last change of the blocks by an operator, here or on another proxy of the fleet. Must not block.
    fn last_block_change(&self) -> Option<LastChange>;

    /// The content of `GET /v1/status`. Must not block: the admin runtime has one thread.
    fn status(&self) -> Status;

    /// Why a load balancer should send agents to another proxy. `None` if the proxy is ready. Must not block.
    fn unready(&self) -> Option<&'static str>;

    /// All metrics in this format. Must not block.
    fn metrics(&self, format: Exposition) -> String;

    /// Counts of requests since the start. Must not block.
    fn traffic(&self) -> TrafficStatus;

    /// Requests in flight, and the slowest. The queues are part of the status and are left empty here. Must not block.
    fn requests(&self) -> RequestsStatus;

    /// The newest events of the last day since this time, at most `limit`, the oldest first. Must not block.
    fn past_events(&self, since: SystemTime, limit: usize) -> Vec<PastEvent>;

    /// The active configuration, and what a reload would change.
    fn configuration(&self) -> Pin<Box<dyn Future<Output = ConfigurationStatus> + Send + '_>>;

    /// What a reload would do. It changes nothing.
    fn dry_run(&self) -> Pin<Box<dyn Future<Output = ReloadOutcome> + Send + '_>>;

    /// The configurations that were applied last.
    ///
    /// # Errors
    /// They cannot be read.
    fn applied_configurations(
        &self,
    ) -> Pin<Box<dyn Future<Output = Result<AppliedConfigurations, RollbackError>> + Send + '_>>;

    /// The text of an applied configuration, for root and the account of the proxy.
    ///
    /// # Errors
    /// There is no such text, or this account may not read it.
    fn configuration_text(
        &self,
        id: String,
        by: Caller,
    ) -> Pin<Box<dyn Future<Output = Result<ConfigurationText, RollbackError>> + Send + '_>>;

    /// What a rollback would do. It changes nothing.
    ///
    /// # Errors
    /// There is no such configuration.
    fn try_roll_back(
        &self,
        request: RollbackRequest,
    ) -> Pin<Box<dyn Future<Output = Result<RollbackOutcome, RollbackError>> + Send + '_>>;

    /// Applies a configuration again that was applied before. The file stays as it is. Dropping the future does not stop it.
    ///
    /// # Errors
    /// There is no such configuration.
    fn roll_back(
        &self,
        request: RollbackRequest,
    ) -> Pin<Box<dyn Future<Output = Result<RollbackOutcome, RollbackError>> + Send + '_>>;

    /// How a request would be handled now.
    ///
    /// # Errors
    /// The request is invalid.
    fn explain(
        &self,
        request: ExplainRequest,
    ) -> Pin<Box<dyn Future<Output = Result<RequestExplanation, ExplainError>> + Send + '_>>;

    /// What an account may do. Looking up its groups can take time, so it must not run on the admin thread.
    fn permission(&self, caller: Caller) -> Pin<Box<dyn Future<Output = Permission> + Send + '_>>;

    /// The name of an account for records of its changes. Looking it up can take time, which is limited.
    fn account(&self, caller: Caller)
    -> Pin<Box<dyn Future<Output = OperatorAccount> + Send + '_>>;

    /// Writes one line to the audit log. A failure is logged and does not undo the change.
    fn audit(&self, entry: AuditEntry) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Reads configuration and materials again and applies them, or returns why not.
    ///
    /// Dropping the future (the caller disconnected) stops the wait, not the reload: a reload completes or changes nothing. It
    /// cancels a hand-over to another build, unless the new process already has the sockets.
    fn reload(&self) -> Pin<Box<dyn Future<Output = ReloadOutcome> + Send + '_>>;

    /// Opens the log files again and changes nothing else.
    ///
    /// # Errors
    /// A file cannot be opened; the proxy keeps writing to the file that is open.
    fn reopen_logs(
        &self,
    ) -> Pin<Box<dyn Future<Output = Result<LogsReopened, ReopenLogsError>> + Send + '_>>;

    /// Which events are logged.
    fn log_level(&self) -> LogLevelStatus;

    /// Changes which events are logged, until the process ends.
    ///
    /// # Errors
    /// `level` is not a log level. The previous level stays active.
    fn set_log_level(
        &self,
        level: &str,
        by: OperatorAccount,
    ) -> Result<LogLevelStatus, LogLevelError>;

    /// Sets the administrative state of members: of all that are selected, or of none. It survives reloads and restarts.
    ///
    /// # Errors
    /// No such pool or member, or a pool would be left without an available member.
    fn set_member_states(
        &self,
        request: MemberStateRequest,
        by: OperatorAccount,
    ) -> Pin<Box<dyn Future<Output = Result<MemberStateOutcome, MemberStateError>> + Send + '_>>;

    /// Which other proxies have applied the changes that were made on this proxy until now, after a limited wait. `None`
    /// without `[fleet]`. `members` are the pools and addresses of the changed members.
    fn applied_elsewhere(
        &self,
        members: Vec<(String, String)>,
    ) -> Pin<Box<dyn Future<Output = Option<FleetOutcome>> + Send + '_>>;

    /// Requests the turn of the fleet, or repeats a request that still waits.
    ///
    /// # Errors
    /// This proxy is not part of a fleet, or the request is invalid.
    fn ask_for_turn(
        &self,
        request: TurnRequest,
        by: OperatorAccount,
    ) -> Pin<Box<dyn Future<Output = Result<TurnAnswer, TurnError>> + Send + '_>>;

    /// Ends a request for the turn, and the turn if it was taken for this request.
    ///
    /// # Errors
    /// This proxy is not part of a fleet.
    fn end_turn(
        &self,
        end: TurnEnd,
    ) -> Pin<Box<dyn Future<Output = Result<TurnAnswer, TurnError>> + Send + '_>>;

    /// The status of one member. Must not block.
    ///
    /// # Errors
    /// No such pool, or no such member in it.
    fn member(&self, pool: &str, member: &str) -> Result<MemberStatus, MemberStateError>;

    /// All blocks, the oldest first.
    fn blocks(&self) -> Vec<BlockStatus>;

    /// Sets a block, active at once for handshakes, requests and tunnels.
    fn block(
        &self,
        request: BlockRequest,
        by: OperatorAccount,
    ) -> Pin<Box<dyn Future<Output = Result<BlockOutcome, BlockError>> + Send + '_>>;

    /// Blocks several certnames, all of them or none.
    fn block_certnames(
        &self,
        request: BlockCertnamesRequest,
        by: OperatorAccount,
    ) -> Pin<Box<dyn Future<Output = Result<BlockCertnamesOutcome, BlockError>> + Send + '_>>;

    /// Agents seen since the start, the one whose certificate expires first comes first.
    fn agents(&self) -> AgentsStatus;

    /// Clients that were refused since the start, the latest refusal first. Must not block.
    fn refusals(&self) -> RefusalsStatus;

    /// What the proxy knows about an agent or a certificate, and how it would decide now. May read CRLs from disk, so it must not
    /// run on the admin thread.
    fn who(
        &self,
        request: WhoRequest,
    ) -> Pin<Box<dyn Future<Output = Result<WhoStatus, WhoError>> + Send + '_>>;

    /// Lifts a block.
    fn unblock(
        &self,
        blocked: BlockSubject,
        by: OperatorAccount,
    ) -> Pin<Box<dyn Future<Output = Result<BlockOutcome, BlockError>> + Send + '_>>;

    /// Fetches all CRLs from the CA and activates newer ones.
    ///
    /// Dropping the future stops the wait, not the fetch.
    fn fetch_crls(&self) -> Pin<Box<dyn Future<Output = CrlFetchOutcome> + Send + '_>>;

    /// Accepts that a CRL drops revocations.
    fn accept_crl(
        &self,
        request: CrlAcceptRequest,
        by: OperatorAccount,
    ) -> Pin<Box<dyn Future<Output = Result<CrlAccepted, CrlAcceptError>> + Send + '_>>;
}

/// Locks by which changes of one kind run one after the other, so that `If-Match` is compared with the state that the change
/// replaces.
#[derive(Debug, Default)]
pub struct ChangeLocks {
    /// The lock for changes of the deny list.
    pub blocks: Mutex<()>,
    /// The lock for changes of the administrative states of members.
    pub members: Mutex<()>,
    /// The lock for changes of the log level.
    pub log_level: Mutex<()>,
    /// The lock for changes of the configuration.
    pub generation: Mutex<()>,
}

/// The last change of something that the proxies of a fleet share. Later ones are greater.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct LastChange {
    /// When it was made, in milliseconds since the epoch, or one more than the change before it.
    #[serde(skip)]
    pub at: u64,
    /// A value that differs for each change, and is the same on all proxies that have the same changes.
    pub version: String,
    /// Who changed what, when and why.
    #[serde(skip)]
    pub text: String,
}

/// The account that sent a request, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Account of the calling process; none if the kernel does not report it.
    pub uid: Option<u32>,
    /// Primary group of the calling process; none if the kernel does not report it.
    pub gid: Option<u32>,
}

/// The account of an operator who changes something, for records of the change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorAccount {
    /// Its number; none if the kernel does not report it.
    pub uid: Option<u32>,
    /// Its name, or `uid 4711` if it has no name.
    pub name: String,
}

impl OperatorAccount {
    /// An account with this name. Without a name, its number is shown.
    pub fn new(uid: Option<u32>, name: Option<String>) -> Self {
        let number = || uid.map_or_else(|| "unknown".to_owned(), |uid| format!("uid {uid}"));
        Self {
            uid,
            name: name.unwrap_or_else(number),
        }
    }
}

impl fmt::Display for OperatorAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The result of a reload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReloadOutcome {
    /// Whether it was applied.
    pub result: ReloadResult,
    /// The active generation afterwards.
    pub generation: u64,
    /// For people: problems if it was refused, warnings and changes if it was applied.
    pub report: String,
}

impl ReloadOutcome {
    /// The result for the audit log.
    pub(crate) fn audit_result(&self) -> String {
        match self.result {
            ReloadResult::Refused | ReloadResult::Failed => self.report.clone(),
            result => result.to_string(),
        }
    }
}

/// Whether a reload was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReloadResult {
    /// A new generation is active.
    Applied,
    /// Nothing differs from the active generation, so nothing was swapped.
    Unchanged,
    /// There are problems; the previous generation stays active.
    Refused,
    /// The process is stopping and does not reload.
    Stopping,
    /// The program on disk is another build, and a process of it has taken over.
    HandedOver,
    /// The program on disk is another build, and it has not taken over, for a reason other than the configuration. Or the
    /// reload failed because of an internal error.
    Failed,
}

impl fmt::Display for ReloadResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Applied => "applied",
            Self::Unchanged => "unchanged",
            Self::Refused => "refused",
            Self::Stopping => "stopping",
            Self::HandedOver => "handed-over",
            Self::Failed => "failed",
        })
    }
}

/// The log files that were opened again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogsReopened {
    /// Their paths; empty if the proxy writes no log file.
    pub reopened: Vec<String>,
}

/// Which events are logged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogLevelStatus {
    /// `error`, `warn`, `info`, `debug` or `trace`, or a list by part (`info,proxy=debug`).
    pub level: String,
    /// The level before a change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
}

/// Why the log level was not changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct LogLevelError(pub String);

/// Why a log file was not opened again.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}; the proxy continues to write to the open file")]
pub struct ReopenLogsError(pub String);
