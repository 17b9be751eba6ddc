//! The deny list as the operator sees it: what is blocked, why, and until when.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use utoipa::ToSchema;

use crate::{FleetOutcome, RefusalStatus, Timestamp};

/// The subject of a block: a certname, a fingerprint, or a serial with its issuer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BlockSubject {
    /// Every certificate of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certname: Option<String>,
    /// Serial of a certificate of `issuer`, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Distinguished name (RFC 2253) of a CA of the bundle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// SHA-256 of the certificate in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}

/// Body of `POST /v1/blocks`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BlockRequest {
    /// The subject.
    pub blocked: BlockSubject,
    /// The reason, shown in the log and in the list of blocks. Up to 500 bytes.
    pub why: String,
    /// When it expires; none: it stays until it is lifted.
    #[serde(default)]
    pub until: Option<Timestamp>,
}

/// Body of `POST /v1/blocks/certnames`: one change that blocks all of these names, or none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BlockCertnamesRequest {
    /// The names: every certificate of each of them is blocked.
    pub certnames: Vec<String>,
    /// The reason, shown in the log and in the list of blocks. Up to 500 bytes.
    pub why: String,
    /// When the blocks expire; none: they stay until they are lifted.
    #[serde(default)]
    pub until: Option<Timestamp>,
}

/// The result of blocking several certnames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockCertnamesOutcome {
    /// The blocks that were set.
    pub blocks: Vec<BlockStatus>,
    /// Why a restart would undo this; none: it would not.
    pub not_persisted: Option<String>,
    /// The blocks of the same names that were replaced.
    #[serde(default)]
    pub replaced: Vec<BlockStatus>,
    /// Where else the change applies; none without `[fleet]`.
    #[serde(default)]
    pub fleet: Option<FleetOutcome>,
}

/// An active block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockStatus {
    /// The subject.
    pub blocked: BlockSubject,
    /// The reason.
    pub why: String,
    /// The account that set it, as `root`.
    pub by: String,
    /// When it was set.
    pub since: Timestamp,
    /// When it expires; none: it stays until it is lifted.
    pub until: Option<Timestamp>,
}

/// The result of setting or lifting a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockOutcome {
    /// The block that is active now, or was until now.
    pub block: BlockStatus,
    /// Why a restart would undo this; none: it would not.
    pub not_persisted: Option<String>,
    /// The agent with this name, if a block by name was set and the agent connected since the start.
    pub agent: Option<BlockedAgentStatus>,
    /// The latest refusal of a client with this name, if a block by name was set. The client may have proved no
    /// name.
    #[serde(default)]
    pub refusal: Option<RefusalStatus>,
    /// The CAs of the bundle that do not sign each other (RFC 2253), if a block by name was set: it applies to the
    /// certificates of each. Empty if there is only one.
    #[serde(default)]
    pub separate_cas: Vec<String>,
    /// The block of the same client that was replaced.
    #[serde(default)]
    pub replaced: Option<BlockStatus>,
    /// Where else the change applies; none without `[fleet]`.
    #[serde(default)]
    pub fleet: Option<FleetOutcome>,
}

/// The agent that a block by name refuses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockedAgentStatus {
    /// When it last connected or sent a request.
    pub last_seen: Timestamp,
    /// Its address at that time.
    pub client: String,
    /// Its connections that were open when the block became active; the proxy closes them.
    pub connections: usize,
    /// The issuer of the certificate that it showed last (RFC 2253).
    #[serde(default)]
    pub issuer: String,
}

/// Why the deny list was not changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BlockError {
    /// The proxy failed while it worked on the request.
    #[error("the request failed because of an internal error; the events of the proxy show it")]
    Internal,
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// There is no such block.
    #[error("{0} is not blocked; proscenium blocks lists the blocks")]
    NotBlocked(String),
    /// The process is stopping.
    #[error("the process is stopping")]
    Stopping,
}
