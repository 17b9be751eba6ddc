//! The administrative state of members: requests of the operator, and their results.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use utoipa::ToSchema;

use crate::{AdministrativeState, FleetOutcome, MemberStatus, Timestamp};

/// Body of `POST /v1/members/state`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MemberStateRequest {
    /// Which members.
    pub members: MemberSelection,
    /// Their new state.
    pub state: AdministrativeState,
    /// The reason, for the log and the status. Up to 500 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// When the members become ready again; none: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Whether a pool may lose its last available member.
    #[serde(default)]
    pub force: bool,
}

impl MemberStateRequest {
    /// A change of these members.
    pub fn new(members: MemberSelection, change: MemberStateChange) -> Self {
        let MemberStateChange {
            state,
            why,
            until,
            force,
        } = change;
        Self {
            members,
            state,
            why,
            until,
            force,
        }
    }
}

/// One member, or all members on one host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MemberSelection {
    /// Name of the pool of `member`; none: the only pool that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Address of a member, as in the configuration, or its host if no other member is on that host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// Host of members, in every pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// Body of `POST /v1/pools/{pool}/members/{member}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MemberStateChange {
    /// The new state.
    pub state: AdministrativeState,
    /// The reason, for the log and the status. Up to 500 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// When the members become ready again; none: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Whether a pool may lose its last available member.
    #[serde(default)]
    pub force: bool,
}

impl MemberStateChange {
    /// A change of state without options.
    pub fn to(state: AdministrativeState) -> Self {
        Self {
            state,
            why: None,
            until: None,
            force: false,
        }
    }
}

/// The result of a change of state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemberStateOutcome {
    /// The members whose state was set.
    pub members: Vec<PoolMemberStatus>,
    /// Why a restart would undo this; none: it would not.
    pub not_persisted: Option<String>,
    /// The states that operators had set before, with their authors and times.
    #[serde(default)]
    pub replaced: Vec<SetMemberState>,
    /// Where else the change applies; none without `[fleet]`.
    #[serde(default)]
    pub fleet: Option<FleetOutcome>,
}

/// A member with the name of its pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolMemberStatus {
    /// Name of its pool.
    pub pool: String,
    /// The member.
    #[serde(flatten)]
    pub member: MemberStatus,
}

/// The administrative state of one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetMemberState {
    /// Name of its pool.
    pub pool: String,
    /// Its address.
    pub member: String,
    /// The state that the operator set.
    pub administrative_state: AdministrativeState,
    /// The account that took it out of service, since when and why; none: it is ready.
    pub administrative: Option<AdministrativeStatus>,
}

/// Why an operator took a member out of service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AdministrativeStatus {
    /// When the member got its state.
    pub since: Timestamp,
    /// The account that set it, as `root`.
    pub by: String,
    /// The reason, if given.
    pub why: Option<String>,
    /// When the member becomes ready again; none: never.
    pub until: Option<Timestamp>,
}

/// A tunnel to a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TunnelStatus {
    /// Certname of the client; its address if no certname is verified.
    pub client: String,
    /// When the tunnel was opened.
    pub since: Timestamp,
}

/// A request that a member did not answer within the first seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunningRequestStatus {
    /// Certname of the client; its address if no certname is verified.
    pub client: String,
    /// Method and path.
    pub request: String,
    /// When the request arrived.
    pub since: Timestamp,
}

/// Why a member's state could not be set or shown.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MemberStateError {
    /// The proxy failed while it worked on the request.
    #[error("the request failed because of an internal error; the events of the proxy show it")]
    Internal,
    /// Another process has taken over while the request waited.
    #[error("another process has taken over; send the request again")]
    HandedOver,
    /// No pool with that name.
    #[error("no pool {pool:?}; the pools are: {}", .known.join(", "))]
    UnknownPool {
        /// The requested name.
        pool: String,
        /// Names of all pools.
        known: Vec<String>,
    },
    /// No member with that address in the pool.
    #[error("no member {member:?} in pool {pool:?}; the members are: {}", .known.join(", "))]
    UnknownMember {
        /// The pool.
        pool: String,
        /// The requested address.
        member: String,
        /// Addresses of all its members.
        known: Vec<String>,
    },
    /// No member with that address in any pool.
    #[error("no member {member:?} in any pool; the members are: {}", .known.join(", "))]
    UnknownAnywhere {
        /// The requested address.
        member: String,
        /// Addresses of all members.
        known: Vec<String>,
    },
    /// No member on that host.
    #[error("no member on host {host:?}; the members are: {}", .known.join(", "))]
    UnknownHost {
        /// The requested host.
        host: String,
        /// Addresses of all members.
        known: Vec<String>,
    },
    /// Several members have that address or are on that host.
    #[error(
        "several members match {member:?}: {}; nothing was changed; specify the pool and the address of one of them",
        .members.join(", ")
    )]
    Ambiguous {
        /// The requested address or host.
        member: String,
        /// The members, each with its pool.
        members: Vec<String>,
    },
    /// Pools would lose their last available member.
    #[error(
        "no other member is available in: {}; requests to it would get 503{}; to do it anyway, use --force (\"force\": true)",
        .pools.join(", "), not_known_to_be_up(.unconfirmed)
    )]
    LastAvailable {
        /// Names of the pools.
        pools: Vec<String>,
        /// Addresses of the other members that are ready after a drain and not known to be up.
        unconfirmed: Vec<String>,
    },
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
}

/// Why members that are ready do not count, if there are any.
fn not_known_to_be_up(unconfirmed: &[String]) -> String {
    match unconfirmed {
        [] => String::new(),
        _ => format!(
            ", because no probe has succeeded since the end of the drain of: {} (`proscenium status` shows the last probe)",
            unconfirmed.join(", ")
        ),
    }
}
