//! The administrative state of members: what an operator asks for, and what came of it.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{AdministrativeState, MemberStatus, Timestamp};

/// Body of `POST /v1/members/state`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStateRequest {
    /// Which members.
    pub members: MemberSelection,
    /// What is to become of them.
    #[serde(flatten)]
    pub change: MemberStateChange,
}

/// One member, or all members on one host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberSelection {
    /// Name of the pool of `member`; none: the only pool that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Address of a member, as the configuration has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// Host of members, in every pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// Body of `POST /v1/pools/{pool}/members/{member}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberStateChange {
    /// The new state.
    pub state: AdministrativeState,
    /// The reason, for the log and the status. Up to 500 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// When the members become ready by themselves; none: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Whether a pool may be left without an available member.
    #[serde(default)]
    pub force: bool,
}

impl MemberStateChange {
    /// A change of state with nothing else.
    pub fn to(state: AdministrativeState) -> Self {
        Self {
            state,
            why: None,
            until: None,
            force: false,
        }
    }
}

/// What came of a change of state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStateOutcome {
    /// The members whose state was set.
    pub members: Vec<PoolMemberStatus>,
    /// Why a restart would undo this; none: it would not.
    pub not_persisted: Option<String>,
}

/// A member with the name of its pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolMemberStatus {
    /// Name of its pool.
    pub pool: String,
    /// The member.
    #[serde(flatten)]
    pub member: MemberStatus,
}

/// Why an operator took a member out of service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdministrativeStatus {
    /// When the member got its state.
    pub since: Timestamp,
    /// The account that set it, as `uid 0`.
    pub by: String,
    /// The reason, if one was given.
    pub why: Option<String>,
    /// When the member becomes ready by itself; none: never.
    pub until: Option<Timestamp>,
}

/// A tunnel to a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelStatus {
    /// Certname of the client; its address if it has none that is verified.
    pub client: String,
    /// When the tunnel was opened.
    pub since: Timestamp,
}

/// A request that a member has not answered, or did not within the first seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningRequestStatus {
    /// Certname of the client; its address if it has none that is verified.
    pub client: String,
    /// Method and path.
    pub request: String,
    /// When the request came.
    pub since: Timestamp,
}

/// Why a member's state could not be set or shown.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MemberStateError {
    /// No pool of that name.
    #[error("no pool {pool:?}; the pools are: {}", .known.join(", "))]
    UnknownPool {
        /// What was asked for.
        pool: String,
        /// Names of all pools.
        known: Vec<String>,
    },
    /// No member of that address in the pool.
    #[error("no member {member:?} in pool {pool:?}; the members are: {}", .known.join(", "))]
    UnknownMember {
        /// The pool that was found.
        pool: String,
        /// What was asked for.
        member: String,
        /// Addresses of all its members.
        known: Vec<String>,
    },
    /// No member of that address in any pool.
    #[error("no member {member:?} in any pool; the members are: {}", .known.join(", "))]
    UnknownAnywhere {
        /// What was asked for.
        member: String,
        /// Addresses of all members.
        known: Vec<String>,
    },
    /// No member on that host.
    #[error("no member on host {host:?}; the members are: {}", .known.join(", "))]
    UnknownHost {
        /// What was asked for.
        host: String,
        /// Addresses of all members.
        known: Vec<String>,
    },
    /// Several pools have a member of that address.
    #[error("member {member:?} is in several pools, specify one of them: {}", .pools.join(", "))]
    Ambiguous {
        /// What was asked for.
        member: String,
        /// Names of the pools.
        pools: Vec<String>,
    },
    /// Pools would have no available member left.
    #[error(
        "no other member is available in: {}; requests to it would get 503; to do it anyway, use --force (\"force\": true)",
        .pools.join(", ")
    )]
    LastAvailable {
        /// Names of the pools.
        pools: Vec<String>,
    },
    /// The request makes no sense.
    #[error("{0}")]
    Invalid(String),
}
