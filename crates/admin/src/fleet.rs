//! Several proxies that share drains and blocks: the status of the fleet, and where else a change applies.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Timestamp;

/// Answer to `GET /v1/fleet`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetStatus {
    /// The name of this proxy in the fleet.
    pub name: String,
    /// The name of the fleet in the store.
    pub site: String,
    /// The endpoints of the store.
    pub endpoints: Vec<String>,
    /// Whether the store is reached: changes of other proxies arrive, and those of this one are sent.
    pub connected: bool,
    /// Since when the store is not reached, and why; none: it is reached, or no attempt has ended since the start.
    pub unreached: Option<FleetUnreached>,
    /// Why the store accepts no change although it is reached.
    pub no_space: Option<String>,
    /// When the records of the other proxies arrived for the first time since the start; none: not yet.
    pub first_list: Option<Timestamp>,
    /// The records of operators' acts that this proxy has, by kind.
    pub records: BTreeMap<String, u64>,
    /// The proxy that may be restarted or upgraded now; none: no proxy has asked for the turn.
    #[serde(default)]
    pub turn: Option<FleetTurn>,
    /// The proxies that are registered, by name. Without the store, those that were registered last.
    pub proxies: Vec<FleetProxyStatus>,
    /// In what they differ.
    pub differences: Vec<FleetDifference>,
    /// Keys of the store that are ignored.
    pub refused: Vec<FleetRefusedKey>,
    /// How many records were ignored since the start, by reason.
    pub rejected_records: BTreeMap<String, u64>,
    /// For how long no changes of other proxies have arrived because there is no watch of the store; none: there was no list yet.
    pub sync_age_seconds: Option<u64>,
    /// Whether a load balancer should wait because the proxy has just started and has no list of the records yet.
    pub is_starting: bool,
    /// After how many milliseconds all other proxies had applied the last change that was made on this one; none: there was no
    /// change, or not all have applied it.
    pub apply_delay_milliseconds: Option<u64>,
}

/// Why the store is not reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetUnreached {
    /// Since when.
    pub since: Timestamp,
    /// The last error.
    pub why: String,
}

/// One proxy of the fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetProxyStatus {
    /// Its certname.
    pub name: String,
    /// Its version, and the commit of its sources.
    pub version: String,
    /// `serving` or `draining`.
    pub phase: String,
    /// Why a load balancer should send agents to another proxy; none: it is ready.
    #[serde(default)]
    pub unready: Option<String>,
    /// When it started.
    pub started: Option<Timestamp>,
    /// When its entry was last changed; by its own clock, if it was changed before this proxy started.
    pub heard_at: Option<Timestamp>,
    /// Numbers of its CRLs, by issuer (RFC 2253).
    pub crls: BTreeMap<String, String>,
    /// Keys of its active alarms.
    pub alarms: BTreeSet<String>,
    /// Members that it sends nothing new.
    pub withdrawn: Vec<FleetWithdrawnMember>,
    /// Members that another proxy has drained, and that this one still uses because no other member of the pool is available, as
    /// `pool/address`.
    pub withheld: BTreeSet<String>,
    /// The highest revision of the store whose records it has applied.
    pub applied: i64,
}

/// The turn of the fleet: at most one proxy has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetTurn {
    /// The certname of the proxy that has it.
    pub proxy: String,
    /// The account on its host that has asked for it, as `root`.
    pub by: String,
    /// The command that runs meanwhile.
    pub command: String,
    /// Since when.
    pub since: Option<Timestamp>,
}

/// A member that a proxy sends nothing new.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetWithdrawnMember {
    /// Name of its pool.
    pub pool: String,
    /// Its address.
    pub member: String,
    /// Requests and tunnels that it still has.
    pub in_flight: u64,
}

/// Something in which proxies differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetDifference {
    /// What differs: `version`, `configuration SECTION`, `CRL of ISSUER`, `clock` or `records`.
    pub what: String,
    /// The values, each with the proxies that have it. Those of sections and of records are digests.
    pub values: BTreeMap<String, Vec<String>>,
}

/// A key of the store that is ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetRefusedKey {
    /// The key, without the prefix.
    pub key: String,
    /// Why.
    pub why: String,
}

/// Where else a change applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetOutcome {
    /// Why the change was not sent; none: the store has it.
    pub not_sent: Option<String>,
    /// The revision of the store that has it; 0 if it was not sent.
    pub revision: i64,
    /// The other proxies that are registered.
    pub proxies: Vec<FleetProxyOutcome>,
}

/// Whether a change applies on another proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetProxyOutcome {
    /// The proxy.
    pub name: String,
    /// How long after the change its confirmation arrived; none: it has not confirmed it yet.
    pub applied_after_milliseconds: Option<u64>,
    /// Members that it still uses because no other member of the pool is available there, as `pool/address`.
    #[serde(default)]
    pub withheld: BTreeSet<String>,
}
