//! Whether a request can get a member: now, after a wait, or not at all.

use std::time::Duration;

use crate::{
    administrative::Administrative, health::Health, offer::EligibleMembers, pool::Pool,
    pool_entry::PoolEntry, settings::Role,
};

/// Whether the members that may get a request are available to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// A member is up and ready. It may be at its limit.
    Available,
    /// No member is available, but a member went down a short while ago, for example because it is restarting.
    Returning {
        /// Until when requests wait for that member, as time since start.
        until: Duration,
    },
    /// No member is available. All members were never up, have been down for too long, or were taken out of service.
    Unavailable,
}

impl Pool {
    /// Whether the members that may get a request are available to it. `wait_max`: how long requests wait for a member that
    /// went down. `now` is the time since start.
    ///
    /// Requests do not wait for a member that the operator or its agent check has taken out of service.
    pub fn availability(
        &self,
        eligible: EligibleMembers,
        wait_max: Duration,
        now: Duration,
    ) -> Availability {
        let writer = self.writer();
        let may_get = |(index, entry): &(usize, &PoolEntry)| match eligible {
            EligibleMembers::Any => true,
            EligibleMembers::WriterOrBackup => Some(*index) == writer || entry.role == Role::Backup,
            EligibleMembers::WriterOnly => Some(*index) == writer,
        };
        let members = || self.entries().iter().enumerate().filter(may_get);
        // A member without probes that is down may be tried now and then, but it is not up.
        let is_up =
            |entry: &PoolEntry| entry.member.health() == Health::Up && entry.is_up_and_ready(now);
        if members().any(|(_, entry)| is_up(entry)) {
            return Availability::Available;
        }
        let until = members()
            .filter(|(_, entry)| is_in_service(entry))
            .filter_map(|(_, entry)| entry.member.down_at())
            .max()
            .map(|down_at| down_at.saturating_add(wait_max));
        match until {
            Some(until) if until > now => Availability::Returning { until },
            _ => Availability::Unavailable,
        }
    }
}

/// Whether a member gets requests as soon as it is up. `down` from an agent check counts like a failed probe.
fn is_in_service(entry: &PoolEntry) -> bool {
    let agent = entry.member.agent_state();
    entry.member.operator_state() == Administrative::Ready
        && agent.administrative == Administrative::Ready
        && agent.weight_percent > 0
}
