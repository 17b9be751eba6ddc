//! The deny list as the operator speaks of it: whom to block, why, until when.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{RefusalStatus, Timestamp};

/// Whom a block is about: a certname, a fingerprint, or a serial with its issuer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockSubject {
    /// Every certificate of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certname: Option<String>,
    /// Serial in hexadecimal, of `issuer`'s.
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockRequest {
    /// Whom to block.
    pub blocked: BlockSubject,
    /// Why: it stands in the log and in the list. Up to 500 bytes.
    pub why: String,
    /// When it ends by itself; none: when it is lifted.
    #[serde(default)]
    pub until: Option<Timestamp>,
}

/// A block in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockStatus {
    /// Whom it is about.
    pub blocked: BlockSubject,
    /// Why.
    pub why: String,
    /// Who asked for it, as `uid 0`.
    pub by: String,
    /// Since when.
    pub since: Timestamp,
    /// When it ends by itself; none: when it is lifted.
    pub until: Option<Timestamp>,
}

/// What came of a block, or of lifting one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockOutcome {
    /// The block that is in force now, or was until now.
    pub block: BlockStatus,
    /// Why a restart would undo this; none: it would not.
    pub not_persisted: Option<String>,
    /// The agent with this name, if a block by name was set and the agent connected since the start.
    pub agent: Option<BlockedAgentStatus>,
    /// The latest refusal of a client with this name, if a block by name was set; nothing may prove the name.
    #[serde(default)]
    pub refusal: Option<RefusalStatus>,
}

/// The agent that a block by name closes out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockedAgentStatus {
    /// When it connected or sent a request last.
    pub last_seen: Timestamp,
    /// From which address.
    pub client: String,
    /// Its connections that were open when the block became active; the proxy closes them.
    pub connections: usize,
}

/// Why the deny list was not changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BlockError {
    /// It makes no sense.
    #[error("{0}")]
    Senseless(String),
    /// There is no such block.
    #[error("{0} is not blocked; proscenium blocks lists the blocks")]
    NotBlocked(String),
    /// The process is stopping.
    #[error("the process is stopping")]
    Stopping,
}
