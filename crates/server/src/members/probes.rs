//! The probes of members, each a task that ends when its member leaves its pool or is probed another way.

use std::{sync::Arc, time::SystemTime};

use balancing::{
    Health, Member,
    settings::{AgentCheckSettings, CheckKind, CheckSettings},
};
use proxy::{Generation, Shared};
use tokio::{task::JoinSet, time::sleep};
use upstream::Connector;

use crate::{
    http_date::clock_offset,
    members::{agent_checks, jrubies},
};

/// Probes once, all at the same time, the members of pools in which a commit of `next` would leave nobody known to be
/// up: so requests that come right after it find somebody. Those that answer well come into `answered`, by pool and
/// place in it, as they do: a caller that waits no longer for a member that hangs still knows of the others.
pub(crate) async fn first(
    next: &Generation,
    current: &Generation,
    answered: &mut Vec<(usize, usize)>,
) {
    let mut asking = JoinSet::new();
    for (pool, runtime) in next.pools.iter().enumerate() {
        let check = runtime.pool.check();
        let mut before = current.pools.iter().map(|before| &before.pool);
        let kept =
            before.any(|before| before.name() == runtime.pool.name() && before.check() == check);
        let mut members = runtime.pool.entries().iter().map(|entry| &entry.member);
        let known = kept && members.any(|member| member.health() != Health::Unknown);
        if known || check.kind == CheckKind::None {
            continue;
        }
        for (member, connector) in runtime.connectors().enumerate() {
            let (connector, check) = (Arc::clone(connector), check.clone());
            asking.spawn(async move {
                let probed = upstream::probe(&connector, &check).await;
                probed.result.ok().map(|()| (pool, member))
            });
        }
    }
    while let Some(probed) = asking.join_next().await {
        answered.extend(probed.ok().flatten());
    }
}

/// The probes of all members, by the pools' places. Dropping them ends them.
pub(crate) struct Probes(Vec<Vec<Probing>>);

/// The probes of one member.
struct Probing {
    connector: Arc<Connector>,
    check: CheckSettings,
    agent: Option<AgentCheckSettings>,
    /// Dropping it ends them.
    _tasks: JoinSet<()>,
}

impl Probes {
    /// Starts a task for each member whose pool has a check; those in `answered` were probed just now.
    pub(crate) fn start(
        generation: &Generation,
        shared: &Arc<Shared>,
        answered: &[(usize, usize)],
    ) -> Self {
        let mut probes = Self(Vec::new());
        probes.0.resize_with(generation.pools.len(), Vec::new);
        for pool in 0..generation.pools.len() {
            probes.replace(generation, pool, shared, answered);
        }
        probes
    }

    /// Starts the probes of members that are new in a pool, and ends those of members that have left it. The others go on
    /// in their rhythm, however often the pool is replaced.
    pub(crate) fn replace(
        &mut self,
        generation: &Generation,
        pool: usize,
        shared: &Arc<Shared>,
        answered: &[(usize, usize)],
    ) {
        self.restart(generation, pool, shared, answered);
        // Last, when no task of before notes anything.
        jrubies::forget(generation, shared);
        agent_checks::forget(generation, shared);
    }

    fn restart(
        &mut self,
        generation: &Generation,
        pool: usize,
        shared: &Arc<Shared>,
        answered: &[(usize, usize)],
    ) {
        let runtime = &generation.pools[pool];
        let check = runtime.pool.check();
        let mut before = std::mem::take(&mut self.0[pool]);
        let agent = &runtime.rules.guards.agent_check;
        if check.kind == CheckKind::None && agent.is_none() {
            return;
        }
        let probing = |(member, connector): (usize, &Arc<Connector>)| {
            let same = before.iter().position(|probing| {
                Arc::ptr_eq(&probing.connector, connector)
                    && probing.check == *check
                    && probing.agent == *agent
            });
            if let Some(same) = same {
                return before.swap_remove(same);
            }
            let probed = Probed {
                member: Arc::clone(&runtime.pool.entries()[member].member),
                connector: Arc::clone(connector),
                check: check.clone(),
                shared: Arc::clone(shared),
            };
            let mut tasks = JoinSet::new();
            if let Some(agent) = agent {
                tasks.spawn(agent_checks::ask_for_ever(probed.clone(), agent.clone()));
            }
            if jrubies::is_read(&runtime.pool) {
                tasks.spawn(jrubies::read_for_ever(probed.clone()));
            }
            let is_answered = answered.contains(&(pool, member));
            if check.kind != CheckKind::None {
                tasks.spawn(probe_for_ever(probed, member, is_answered));
            }
            Probing {
                connector: Arc::clone(connector),
                check: check.clone(),
                agent: agent.clone(),
                _tasks: tasks,
            }
        };
        self.0[pool] = runtime.connectors().enumerate().map(probing).collect();
    }
}

/// A member that is probed, and how.
#[derive(Clone)]
pub(crate) struct Probed {
    pub(crate) member: Arc<Member>,
    pub(crate) connector: Arc<Connector>,
    pub(crate) check: CheckSettings,
    pub(crate) shared: Arc<Shared>,
}

/// `place`: of the member in its pool.
async fn probe_for_ever(probed: Probed, place: usize, probed_already: bool) {
    let Probed {
        member: state,
        connector,
        check,
        shared,
    } = probed;
    // Members probed in the same instant for ever would all be slow in the same instant.
    let spread = check.interval / 10 * (place as u32 % 10);
    if probed_already {
        sleep(check.interval + spread).await;
    }
    for turn in 0u64.. {
        let probed = upstream::probe(&connector, &check).await;
        let failure = probed.result.err().map(|error| error.to_string());
        let (pool, address) = (state.pool(), &connector.address);
        let now = SystemTime::now();
        let differs = shared
            .members
            .probed(pool, address, failure.as_deref(), now);
        if let Some(offset) = probed.date.and_then(|date| clock_offset(&date, now)) {
            shared.members.clock_compared(pool, address, offset);
        }
        shared.assess_clocks();
        if let Some(cause) = failure.as_ref().filter(|_| differs) {
            tracing::warn!(%pool, member = %address, %cause, "probe failed");
        }
        let change = match failure {
            None => state.probe_succeeded(&check),
            Some(_) => state.probe_failed(&check),
        };
        state.refresh(shared.now());
        if let Some(change) = change {
            shared.health_changed(pool, address, &change);
        }
        let first = turn == 0 && !probed_already;
        let wait = check.wait(state.is_changing(), state.id(), turn);
        sleep(if first { wait + spread } else { wait }).await;
    }
}
