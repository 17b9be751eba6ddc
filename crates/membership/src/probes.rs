//! The probes of members. The tasks of a member end when it leaves its pool or when its check changes.

use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, SystemTime},
};

use balancing::{
    Health, Member,
    settings::{AgentCheckSettings, CheckKind, CheckSettings},
};
use proxy::{Generation, Shared};
use state::{
    http_date::clock_offset,
    supervise::{SupervisedTasks, joined},
};
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Instant, sleep_until, timeout_at},
};
use upstream::{Connector, ProbeError};

use crate::{agent_checks, jrubies, probed_member::ProbedMember};

/// A member that has passed a probe before its generation became active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnsweredProbe {
    /// Index of its pool in the generation.
    pub(crate) pool: usize,
    /// Index of the member in the pool.
    pub(crate) member: usize,
}

/// Probes members of `next` once, all at the same time, if their pool would otherwise start without a member that is known
/// to be up. Requests that arrive right after the commit then find a member. Each member that passes is pushed to `answered`
/// at once, so that a caller that stops waiting for a slow member has the others. Without `current`, all pools are probed.
pub async fn first(
    next: &Generation,
    current: Option<&Generation>,
    answered: &mut Vec<AnsweredProbe>,
) {
    let mut running = JoinSet::new();
    for (pool, runtime) in next.pools.iter().enumerate() {
        let check = runtime.pool.check();
        let pools = current.into_iter().flat_map(|current| current.pools.iter());
        let mut before = pools.map(|before| &before.pool);
        let kept =
            before.any(|before| before.name() == runtime.pool.name() && before.check() == check);
        let mut members = runtime.pool.entries().iter().map(|entry| &entry.member);
        let known = kept && members.any(|member| member.health() != Health::Unknown);
        if known || check.kind == CheckKind::None {
            continue;
        }
        for (member, connector) in runtime.connectors().enumerate() {
            let (connector, check) = (Arc::clone(connector), check.clone());
            running.spawn(async move {
                let probed = upstream::probe(&connector, &check).await;
                probed.result.ok().map(|()| AnsweredProbe { pool, member })
            });
        }
    }
    while let Some(probed) = running.join_next().await {
        answered.extend(joined("first-probe", probed).flatten());
    }
}

/// Activates the pools of a generation that is about to serve. Members in `answered` start with one passed probe.
pub(crate) fn adopt(generation: &Generation, shared: &Shared, answered: &[AnsweredProbe]) {
    for (index, runtime) in generation.pools.iter().enumerate() {
        let pool = &runtime.pool;
        let mut changes = pool.adopt();
        runtime.adopt_queue(shared.started);
        for answered in answered.iter().filter(|answered| answered.pool == index) {
            let member = &pool.entries()[answered.member].member;
            let change = member.probe_succeeded(pool.check());
            changes.extend(change.map(|change| (answered.member, change)));
        }
        for (member, change) in changes {
            shared.health_changed(
                pool.name(),
                &runtime.members[member].connector.address,
                &change,
            );
        }
    }
}

/// The probes of all members, by the index of their pool. Dropping them ends the tasks.
#[derive(Default)]
pub(crate) struct Probes(Vec<Vec<Probing>>);

/// The probes of one member.
struct Probing {
    connector: Arc<Connector>,
    check: CheckSettings,
    agent: Option<AgentCheckSettings>,
    member: Arc<Member>,
    /// Notified when the next probe must start at once.
    due: Arc<Notify>,
    /// Dropping this field ends the tasks.
    _tasks: SupervisedTasks,
}

impl Probes {
    /// Starts the tasks of each member whose pool has a check. Members in `answered` have just been probed.
    pub(crate) fn start(
        generation: &Generation,
        shared: &Arc<Shared>,
        answered: &[AnsweredProbe],
    ) -> Self {
        let mut probes = Self(Vec::new());
        probes.0.resize_with(generation.pools.len(), Vec::new);
        for pool in 0..generation.pools.len() {
            probes.replace(generation, pool, shared, answered);
        }
        probes
    }

    /// Starts the probes of members that are new in a pool, and ends those of members that have left it. The probes of other
    /// members keep their schedule, however often the pool is replaced.
    pub(crate) fn replace(
        &mut self,
        generation: &Generation,
        pool: usize,
        shared: &Arc<Shared>,
        answered: &[AnsweredProbe],
    ) {
        self.restart(generation, pool, shared, answered);
        // Comes last, when no ended task can note anything any more.
        jrubies::forget(generation, shared);
        agent_checks::forget(generation, shared);
    }

    /// Probes a member at once if it is ready again after a drain.
    pub(crate) fn probe_now(&self, pool: &str, address: &str) {
        let probing = self.0.iter().flatten();
        for probing in
            probing.filter(|one| **one.member.pool() == *pool && *one.connector.address == *address)
        {
            if probing.member.awaited_probe().is_some() {
                probing.due.notify_one();
            }
        }
    }

    fn restart(
        &mut self,
        generation: &Generation,
        pool: usize,
        shared: &Arc<Shared>,
        answered: &[AnsweredProbe],
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
            let probed = ProbedMember {
                member: Arc::clone(&runtime.pool.entries()[member].member),
                connector: Arc::clone(connector),
                check: check.clone(),
                shared: Arc::clone(shared),
            };
            let probed = Arc::new(probed);
            let mut tasks = SupervisedTasks::new(&shared.metrics.alarms);
            let name = |task| format!("{task} {}/{}", runtime.pool.name(), connector.address);
            if let Some(agent) = agent.clone() {
                tasks.start(name("agent-check"), &probed, move |probed| {
                    agent_checks::query_at_intervals((*probed).clone(), agent.clone())
                });
            }
            if jrubies::is_read(&runtime.pool) {
                tasks.start(name("jrubies"), &probed, |probed| {
                    jrubies::read_at_intervals((*probed).clone())
                });
            }
            let is_answered = answered.contains(&AnsweredProbe { pool, member });
            let due = Arc::new(Notify::new());
            if check.kind != CheckKind::None {
                let due = Arc::clone(&due);
                tasks.start(name("probe"), &probed, move |probed| {
                    probe_at_intervals((*probed).clone(), member, is_answered, Arc::clone(&due))
                });
            }
            Probing {
                member: Arc::clone(&runtime.pool.entries()[member].member),
                due,
                connector: Arc::clone(connector),
                check: check.clone(),
                agent: agent.clone(),
                _tasks: tasks,
            }
        };
        self.0[pool] = runtime.connectors().enumerate().map(probing).collect();
    }
}

/// Probes one member at the interval of its check, and at once when `due` is notified. `index` is its index in the pool.
async fn probe_at_intervals(
    probed: ProbedMember,
    index: usize,
    probed_already: bool,
    due: Arc<Notify>,
) {
    let ProbedMember {
        member: state,
        connector,
        check,
        shared,
    } = probed;
    let wait = async |time| {
        tokio::select! {
            () = until_next_probe(&shared, state.pool(), time) => {}
            () = due.notified() => {}
        }
    };
    // Members that were always probed at the same moment would all be slow at the same moment.
    let spread = check.interval / 10 * (index as u32 % 10);
    if probed_already {
        wait(check.interval + spread).await;
    }
    for turn in 0u64.. {
        let awaited = state.awaited_probe();
        let probed = upstream::probe(&connector, &check).await;
        let error = probed.result.err();
        let host_limit = error.as_ref().and_then(ProbeError::host_limit);
        let by_date = error.as_ref().and_then(ProbeError::date_fault);
        let failure = error.map(|error| error.to_string());
        let (pool, address) = (state.pool(), &connector.address);
        let now = SystemTime::now();
        let differs = shared
            .members
            .probed(pool, address, failure.as_deref(), now);
        shared.members.refused_by_date(pool, address, by_date);
        if let Some(offset) = probed.date.and_then(|date| clock_offset(&date, now)) {
            shared.members.clock_compared(pool, address, offset);
        }
        shared.assess_clocks();
        if let Some(cause) = failure.as_ref().filter(|_| differs) {
            tracing::warn!(%pool, member = %address, %cause, "probe failed");
        }
        let change = match (failure, host_limit) {
            (None, _) => {
                if let Some(awaited) = awaited {
                    state.confirmed(awaited);
                }
                state.probe_succeeded(&check)
            }
            // The host's limit prevented the probe, which therefore shows nothing about the member.
            (Some(_), Some(limit)) => {
                let alarms = &shared.metrics.alarms;
                shared.descriptors.limit_hit(alarms, limit, shared.now());
                None
            }
            (Some(_), None) => state.probe_failed(&check, shared.now()),
        };
        state.refresh(shared.now());
        if let Some(change) = change {
            shared.health_changed(pool, address, &change);
        } else if differs {
            shared.note_causes(pool);
        }
        let first = turn == 0 && !probed_already;
        let interval = check.wait(state.is_changing(), state.id(), turn);
        wait(if first { interval + spread } else { interval }).await;
    }
}

/// Waits for the time until a member's next probe. The wait is at most [`RETURN_INTERVAL`] while requests may be waiting for a
/// member of the same pool to return.
async fn until_next_probe(shared: &Shared, pool: &str, wait: Duration) {
    let due = Instant::now() + wait;
    loop {
        let mut member_down = pin!(shared.member_down.notified());
        member_down.as_mut().enable();
        if shared.awaits_return(pool) {
            return sleep_until(due.min(Instant::now() + RETURN_INTERVAL)).await;
        }
        if timeout_at(due, member_down).await.is_err() {
            return;
        }
    }
}

/// Time between probes of a member while requests wait for a member of its pool to return.
const RETURN_INTERVAL: Duration = Duration::from_secs(1);
