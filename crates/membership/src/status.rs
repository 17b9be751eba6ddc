//! The status of members, as the admin API shows it.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use admin::{AgentCheckStatus, JrubyStatus, MemberStatus, ProbeStatus};
use balancing::{Health, Member, PoolEntry, WeightSource, Work, settings::Role};
use proxy::{AgentFacts, JrubyAnswer, PoolRuntime, Shared};
use state::stored_states::{instruction_status, state_status};

use crate::{Membership, jrubies};

/// Maximum number of requests of one member that the status names, the oldest first.
pub const REQUESTS_NAMED_MAX: usize = 10;
/// Maximum number of tunnels of one member that the status names, the oldest first.
pub const TUNNELS_NAMED_MAX: usize = 5;

/// The cause of `unknown` for a member that is ready again and that no probe has shown to be up since.
const DRAIN_ENDED: &str = "drain-ended";

impl Membership {
    /// The status of one member of a pool, with the requests of this process alone.
    pub fn status_of(&self, runtime: &PoolRuntime, index: usize) -> MemberStatus {
        let shared = self.active.shared();
        let entry = &runtime.pool.entries()[index];
        let address = &runtime.members[index].connector.address;
        let pool = runtime.pool.name();
        let facts = shared.members.of(pool, address);
        let (tunnels, oldest) = shared.tunnels.to(pool, address, TUNNELS_NAMED_MAX);
        let instruction = self.members.instruction(pool, address);
        // Scripts wait for `up` before they drain another member.
        let health = match entry.member.awaited_probe() {
            Some(_) if entry.member.health() == Health::Up => Health::Unknown,
            _ => entry.member.health(),
        };
        let (since, why) = match facts.changed {
            Some(_) if health != entry.member.health() => (None, Some(DRAIN_ENDED.to_owned())),
            Some((at, cause)) => (Some(at.into()), Some(cause.to_string())),
            None => (None, None),
        };
        MemberStatus {
            since,
            why,
            clock_offset_seconds: facts
                .clock_offset
                .filter(|_| runtime.pool.check().shows_clock())
                .map(|offset| offset.seconds),
            last_probe: facts.probed.map(probe_status),
            recent_probes: facts.recent_probes.into_iter().map(probe_status).collect(),
            address: address.to_string(),
            health: match health {
                Health::Unknown => admin::MemberHealth::Unknown,
                Health::Up => admin::MemberHealth::Up,
                Health::Down => admin::MemberHealth::Down,
            },
            jrubies: facts
                .jrubies
                .filter(|_| entry.member.health() == Health::Up)
                .filter(|_| jrubies::is_read(&runtime.pool))
                .map(jruby_status),
            agent_check: facts
                .agent
                .filter(|_| runtime.rules.guards.agent_check.is_some())
                .map(|facts| agent_status(&entry.member, facts)),
            warming: warming_status(&entry.member, shared.now()),
            overloaded: overload_status(entry, shared.now()),
            ejected_seconds: entry
                .member
                .ejected_for(shared.now())
                .map(|left| left.as_secs()),
            ejections: entry.member.ejections(),
            administrative_state: state_status(entry.member.operator_state()),
            administrative: instruction.map(instruction_status),
            in_flight: entry.member.in_flight().into(),
            in_flight_by_work: in_flight_by_work(&entry.member),
            tunnels: tunnels as u64,
            oldest_tunnels: oldest
                .into_iter()
                .map(|tunnel| admin::TunnelStatus {
                    client: tunnel.client.to_string(),
                    since: tunnel.since.into(),
                })
                .collect(),
            oldest_requests: oldest_requests(shared, &entry.member),
            connections: self.members.connections(pool, address).into(),
            traffic: self.traffic.of(runtime, index, shared.now()),
            weight: entry.weight,
            priority: entry.priority,
            backup: entry.role == Role::Backup,
        }
    }
}

fn oldest_requests(shared: &Shared, member: &Member) -> Vec<admin::RunningRequestStatus> {
    let requests = shared.long_requests.at(member.id(), REQUESTS_NAMED_MAX);
    let shown = requests
        .into_iter()
        .map(|request| admin::RunningRequestStatus {
            client: request.client.to_string(),
            request: request.request,
            since: request.since.into(),
        });
    shown.collect()
}

fn in_flight_by_work(member: &Member) -> BTreeMap<String, u64> {
    let counts = Work::ALL.into_iter().zip(member.in_flight_by_work());
    counts
        .filter(|(_, count)| *count > 0)
        .map(|(work, count)| (work.as_str().to_owned(), count.into()))
        .collect()
}

fn overload_status(entry: &PoolEntry, now: Duration) -> Option<admin::OverloadStatus> {
    let cause = entry.member.overload_cause(now)?;
    Some(admin::OverloadStatus {
        why: cause.to_string(),
        limit: entry.member.learned_limit(),
    })
}

fn warming_status(member: &Member, now: Duration) -> Option<admin::WarmingStatus> {
    let progress_percent = member.warm_up(now)?;
    Some(admin::WarmingStatus {
        progress_percent,
        weight_percent: member.source_percent(WeightSource::SlowStart),
    })
}

fn agent_status(member: &Member, facts: AgentFacts) -> AgentCheckStatus {
    let state = member.agent_state();
    AgentCheckStatus {
        state: state_status(state.administrative),
        down: state.is_down,
        weight_percent: state.weight_percent,
        at: facts.at.into(),
        answer: facts.answer,
        failure: facts.failure,
        failures: facts.failures,
    }
}

fn jruby_status(answer: JrubyAnswer) -> JrubyStatus {
    let problem = match answer {
        JrubyAnswer::Known(reading) => {
            return JrubyStatus {
                count: Some(reading.count),
                free: Some(reading.free),
                waiting: Some(reading.waiting),
                borrow_milliseconds: Some(milliseconds(reading.borrow_time)),
                wait_milliseconds: Some(milliseconds(reading.wait_time)),
                at: Some(reading.at.into()),
                problem: None,
            };
        }
        JrubyAnswer::Forbidden => format!(
            "its auth.conf does not allow {}: add {}",
            jrubies::PATH,
            jrubies::AUTH_RULE
        ),
        JrubyAnswer::Unknown(why) => why,
    };
    JrubyStatus {
        problem: Some(problem),
        ..JrubyStatus::default()
    }
}

fn probe_status((at, failure): (SystemTime, Option<String>)) -> ProbeStatus {
    ProbeStatus {
        at: at.into(),
        failure,
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
