//! Whether a request can expect a member: now, after a wait, or not at all.

use std::time::Duration;

use crate::{
    administrative::Administrative, health::Health, offer::EligibleMembers, pool::Pool,
    pool_entry::PoolEntry, settings::Role,
};

/// What a request can expect of the members that may get it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// A member is up and ready. It may be at its limit.
    Available,
    /// No member is available, but one went down a short while ago, as in a restart.
    Returning {
        /// Until when it is waited for, as time since start.
        until: Duration,
    },
    /// No member is available. All were never up, have been down for too long, or were taken out of service.
    Unavailable,
}

impl Pool {
    /// What a request can expect of the members that may get it. `wait_max`: how long a member that went down is
    /// waited for. `now` is the time since start.
    ///
    /// A member that was taken out of service, by the operator or by its agent check, is not waited for.
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
        // A member without probes that is down may be tried now and then, but is not up.
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

/// Whether a member gets requests as soon as it is up. An agent check that says `down` says what a probe would.
fn is_in_service(entry: &PoolEntry) -> bool {
    let agent = entry.member.agent_state();
    entry.member.operator_state() == Administrative::Ready
        && agent.administrative == Administrative::Ready
        && agent.weight_percent > 0
}
