//! The control plane: status and commands of the running proxy, over a Unix socket.
//!
//! The server implements [`Control`] and passes [`serve`] a bound socket; the command line uses [`AdminClient`]. This crate
//! opens no file.
//!
//! `GET /v1/openapi.json` describes every endpoint (OpenAPI 3.1).

pub mod settings;

mod api;
mod audit;
mod blocks;
mod client;
mod configuration;
mod connections;
mod control;
mod crl;
mod event_history;
mod explanation;
mod fleet;
mod gauges;
mod history;
mod http_listener;
mod member_traffic;
mod members;
mod metrics_listener;
mod readiness;
mod refused_changes;
mod serve;
mod status;
mod traffic;
mod turn;
mod who;

pub use audit::{AuditEntry, AuditOrigin, Permission};
pub use blocks::{
    BlockCertnamesOutcome, BlockCertnamesRequest, BlockError, BlockOutcome, BlockRequest,
    BlockStatus, BlockSubject, BlockedAgentStatus,
};
pub use client::{AdminClient, AdminClientError};
pub use configuration::{
    AppliedConfiguration, AppliedConfigurations, ConfigurationStatus, ConfigurationText,
    RollbackError, RollbackOutcome, RollbackRequest,
};
pub use control::{
    Caller, ChangeLocks, Control, LastChange, LogLevelError, LogLevelStatus, LogsReopened,
    OperatorAccount, ReloadOutcome, ReloadResult, ReopenLogsError,
};
pub use crl::{
    CrlAcceptError, CrlAcceptRequest, CrlAccepted, CrlFetchOutcome, CrlFetchResult, CrlFetchStatus,
    FailingFetch, ShrunkCrlStatus,
};
pub use event_history::{EventHistoryStatus, PastEvent};
pub use explanation::{
    ExplainError, ExplainRequest, ExplainedClient, ExplainedCopy, ExplainedExtension,
    ExplainedForward, ExplainedMember, ExplainedOutcome, ExplainedQueue, ExplainedRefusal,
    ExplainedStep, ListenerDifference, NamedValue, RequestExplanation,
};
pub use fleet::{
    FleetDifference, FleetOutcome, FleetProxyOutcome, FleetProxyStatus, FleetRefusedKey,
    FleetStatus, FleetTurn, FleetUnreached, FleetWithdrawnMember,
};
pub use gauges::gauges;
pub use history::{HistoryStatus, TrafficPeriod, WorkPeriod};
pub use http_listener::serve_http;
pub use member_traffic::{MemberTraffic, MemberWork, RecentRates, SlowMember, shown_milliseconds};
pub use members::{
    AdministrativeStatus, MemberSelection, MemberStateChange, MemberStateError, MemberStateOutcome,
    MemberStateRequest, PoolMemberStatus, RunningRequestStatus, SetMemberState, TunnelStatus,
};
pub use metrics_listener::serve_metrics;
pub use readiness::unready;
pub use serve::serve;
pub use status::{
    AGENT_ISSUERS_MAX, ActiveCa, ActiveCrl, ActiveTrust, AdministrativeState, AgentCheckStatus,
    AgentCounts, AlarmSeverity, AlarmStatus, BuildStatus, ChainCacheStatus, DOCUMENTATION,
    DistrustedStatus, FormerProcessStatus, GenerationStatus, HandOverStatus, JrubyStatus,
    LastReload, ListenerStatus, MaterialsStatus, MaterialsWatch, MemberHealth, MemberStatus,
    NameStatus, OverloadStatus, PoolStatus, ProbeStatus, ProcessPhase, ProcessStatus,
    ProxyCertificateStatus, RefusedMaterials, RenewalDisabled, RenewalStatus, StateStatus, Status,
    Timestamp, WarmingStatus,
};
pub use traffic::{
    DurationCount, QueueStatus, RequestInFlight, RequestsStatus, SlowRequestStatus, TrafficStatus,
    WorkTraffic,
};
pub use turn::{
    TURN_COMMAND_BYTES_MAX, TURN_TIMEOUT_SECONDS_MAX, TurnAnswer, TurnEnd, TurnError, TurnRequest,
};
pub use who::{
    AGENTS_SHOWN_MAX, AccessStatus, AgentStatus, AgentsStatus, CertificateStatus,
    CertificatesStatus, RefusalStatus, RefusalsStatus, RequestStatus, RevocationStatus, SeenStatus,
    WhoError, WhoRequest, WhoStatus,
};

#[cfg(test)]
mod tests;
