//! Members that must not get passed-through connections, because a member that gets identity headers is on the same host.

use std::time::SystemTime;

use proxy::{Generation, PoolRuntime, guarded_by};
use telemetry::{Alarm, Alarms};

/// A member that must not be used, and why.
pub struct Conflict {
    /// The pool of the member.
    pub pool: String,
    /// Its address.
    pub member: String,
    /// Why it must not be used.
    pub message: String,
}

/// The conflicts among these pools, by the known addresses of their members.
pub fn conflicts<'a>(pools: impl Iterator<Item = &'a PoolRuntime> + Clone) -> Vec<Conflict> {
    let passing = pools.clone().filter(|pool| pool.rules.passthrough.is_used);
    let mut found = Vec::new();
    for pool in passing {
        let off = pool.rules.passthrough.trusted_headers_off;
        for connector in pool.connectors() {
            let (target, addresses) = (&connector.target, connector.addresses());
            let Some((other, guarded)) = guarded_by(pools.clone(), target, addresses, off) else {
                continue;
            };
            found.push(Conflict {
                pool: pool.pool.name().to_string(),
                member: connector.address.to_string(),
                message: format!(
                    "\"{}\" is on the host of \"{}\", a member of pool `{}` that gets identity headers",
                    connector.address,
                    guarded.address,
                    other.pool.name()
                ),
            });
        }
    }
    found
}

/// Raises the alarm about each such member of a generation, and clears alarms that no longer apply.
pub fn assess(alarms: &Alarms, generation: &Generation) {
    let found = conflicts(generation.pools.iter().map(|pool| &**pool));
    let about = |conflict: &Conflict| format!("{}: {}", conflict.pool, conflict.member);
    for active in alarms.active() {
        let is_found = || found.iter().any(|conflict| about(conflict) == active.about);
        if active.alarm == Alarm::PassthroughMember && !is_found() {
            alarms.clear(Alarm::PassthroughMember, &active.about);
        }
    }
    for conflict in &found {
        let message = format!(
            "no connection is passed through to a member of pool {}: {}",
            conflict.pool, conflict.message
        );
        let now = SystemTime::now();
        alarms.raise(Alarm::PassthroughMember, &about(conflict), message, now);
    }
}
