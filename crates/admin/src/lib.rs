//! The control plane: status and commands of the running proxy, over a Unix socket.
//!
//! The server implements [`Control`] and passes [`serve`] a bound socket; the command line uses [`AdminClient`]. This crate
//! opens no file.
//!
//! | request | answer |
//! | --- | --- |
//! | `GET /v1/status` | [`Status`] |
//! | `GET /metrics` | Prometheus text 0.0.4, or OpenMetrics where `Accept` prefers it |
//! | `POST /v1/reload` | [`ReloadOutcome`]: 200, 409 (stopping) or 422 (refused, with the report) |
//! | `POST /v1/reopen-logs` | [`LogsReopened`], or 500 where a file cannot be opened |
//! | `GET /v1/log-level` | [`LogLevelStatus`] |
//! | `POST /v1/log-level` with `{"level": "debug"}` | [`LogLevelStatus`] with the previous level, or 422 |
//! | `GET /v1/blocks` | the deny list: [`BlockStatus`] of each |
//! | `POST /v1/blocks` with [`BlockRequest`] | [`BlockOutcome`] |
//! | `POST /v1/blocks/lift` with [`BlockSubject`] | [`BlockOutcome`] |
//! | `GET /v1/agents` | [`AgentsStatus`]: agents seen, the first expiry first |
//! | `GET /v1/refusals` | [`RefusalsStatus`]: refused clients, the latest first |
//! | `POST /v1/who` with [`WhoRequest`] | [`WhoStatus`] |
//! | `POST /v1/crl/fetch` | [`CrlFetchOutcome`]: 200, 409 (off), 422 (a CRL is refused) or 502 (failed) |
//! | `POST /v1/crl/accept` with `{"issuer": DN, "why": TEXT}` | [`CrlAccepted`] |
//! | `POST /v1/members/state` with [`MemberStateRequest`] | [`MemberStateOutcome`] |
//! | `GET /v1/pools/{pool}/members/{member}` | [`MemberStatus`] |
//! | `POST /v1/pools/{pool}/members/{member}` with [`MemberStateChange`] | [`MemberStatus`] |

pub mod settings;

mod api;
mod blocks;
mod client;
mod control;
mod crl;
mod gauges;
mod members;
mod serve;
mod status;
mod who;

pub use blocks::{
    BlockError, BlockOutcome, BlockRequest, BlockStatus, BlockSubject, BlockedAgentStatus,
};
pub use client::{AdminClient, AdminClientError};
pub use control::{
    Caller, Control, LogLevelError, LogLevelStatus, LogsReopened, ReloadOutcome, ReloadResult,
    ReopenLogsError,
};
pub use crl::{
    CrlAcceptError, CrlAcceptRequest, CrlAccepted, CrlFetchOutcome, CrlFetchResult, CrlFetchStatus,
    FailingFetch, RefusedCrl,
};
pub use gauges::gauges;
pub use members::{
    AdministrativeStatus, MemberSelection, MemberStateChange, MemberStateError, MemberStateOutcome,
    MemberStateRequest, PoolMemberStatus, RunningRequestStatus, TunnelStatus,
};
pub use serve::serve;
pub use status::{
    ActiveCa, ActiveCrl, ActiveTrust, AdministrativeState, AgentCheckStatus, AgentCounts,
    AlarmStatus, BuildStatus, ChainCacheStatus, DistrustedStatus, GenerationStatus, JrubyStatus,
    LastReload, ListenerStatus, MaterialsStatus, MaterialsWatch, MemberHealth, MemberStatus,
    NameStatus, OverloadStatus, PoolStatus, ProbeStatus, ProcessPhase, ProcessStatus,
    ProxyCertificateStatus, RefusedMaterials, RenewalDisabled, RenewalStatus, StateStatus, Status,
    Timestamp, WarmingStatus,
};
pub use who::{
    AGENTS_SHOWN_MAX, AccessStatus, AgentStatus, AgentsStatus, CertificateStatus, RefusalStatus,
    RefusalsStatus, RequestStatus, RevocationStatus, SeenStatus, WhoError, WhoRequest, WhoStatus,
};

#[cfg(test)]
mod tests;
