//! The control plane: what the running proxy says and does for its operator, over a Unix socket.
//!
//! The server implements [`Control`] and hands [`serve`] a socket that it bound; the command line asks through
//! [`Client`]. Nothing here opens a file.
//!
//! | request | answer |
//! | --- | --- |
//! | `GET /v1/status` | [`Status`] |
//! | `GET /metrics` | OpenMetrics text |
//! | `POST /v1/reload` | [`ReloadOutcome`]: 200, 409 (stopping) or 422 (refused, with the report) |
//! | `GET /v1/blocks` | the deny list: [`BlockStatus`] of each |
//! | `POST /v1/blocks` with [`BlockRequest`] | [`BlockOutcome`] |
//! | `POST /v1/blocks/lift` with [`Blocked`] | [`BlockOutcome`] |
//! | `GET /v1/agents` | [`AgentsStatus`]: agents seen, whose certificate ends first first |
//! | `POST /v1/who` with [`WhoRequest`] | [`WhoStatus`] |
//! | `POST /v1/crl/fetch` | [`CrlFetchOutcome`]: 200, 409 (off), 422 (a list is refused) or 502 (failed) |
//! | `POST /v1/crl/accept` with `{"issuer": DN, "why": TEXT}` | [`CrlAccepted`] |
//! | `POST /v1/pools/{pool}/members/{member}` with `{"state": "drain"}` | [`MemberStatus`] |

pub mod settings;

mod api;
mod blocks;
mod client;
mod control;
mod crl;
mod serve;
mod status;
mod who;

pub use blocks::{BlockError, BlockOutcome, BlockRequest, BlockStatus, Blocked};
pub use client::{Client, ClientError};
pub use control::{Caller, Control, MemberStateError, ReloadOutcome, ReloadResult};
pub use crl::{
    CrlAcceptError, CrlAcceptRequest, CrlAccepted, CrlFetchOutcome, CrlFetchResult, CrlFetchStatus,
    FailingFetch, RefusedCrl,
};
pub use serve::serve;
pub use status::{
    AdministrativeState, CaStatus, CrlStatus, DistrustedStatus, GenerationStatus, Health,
    LastReload, ListenerStatus, MaterialsStatus, MemberStatus, Phase, PoolStatus, RefusedMaterials,
    RenewalOff, RenewalStatus, StateStatus, Status, Timestamp, TrustStatus, Watch,
};
pub use who::{
    AGENTS_TOLD_MAX, AccessStatus, AgentStatus, AgentsStatus, CertificateStatus, ListStatus,
    RequestStatus, SeenStatus, WhoError, WhoRequest, WhoStatus,
};

#[cfg(test)]
mod tests;
