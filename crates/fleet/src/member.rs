//! The record of a member's administrative state. A member that is ready has one too.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Stamp;

/// The administrative state of a member, and who set it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRecord {
    /// The pool.
    pub pool: String,
    /// The address of the member in it.
    pub member: String,
    /// The state.
    pub state: MemberState,
    /// The account that set it, as `root`. Its proxy is in the stamp.
    pub by: String,
    /// When it was set, in milliseconds since the epoch. Setting the same state again does not change it.
    pub since: u64,
    /// The reason, if one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// When the member becomes ready without another change, in milliseconds since the epoch. Each proxy evaluates it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
    /// Whether it applies even where it leaves a pool without an available member.
    #[serde(default)]
    pub force: bool,
    /// Its position in the order of changes to this member.
    pub stamp: Stamp,
}

/// An administrative state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberState {
    /// In service.
    Ready,
    /// No new requests.
    Drain,
    /// No new requests and no probes.
    Maintenance,
}

impl MemberState {
    /// The word in records, events and the audit log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Drain => "drain",
            Self::Maintenance => "maintenance",
        }
    }
}

impl fmt::Display for MemberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
