//! The probes of one generation's members, each a task that ends with its generation.

use std::{sync::Arc, time::SystemTime};

use balancing::{Health, settings::CheckKind};
use proxy::{Generation, Shared};
use tokio::{task::JoinSet, time::sleep};

use crate::{http_date::clock_offset, jrubies};

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
        for (member, connector) in runtime.connectors.iter().enumerate() {
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

/// Starts a task for each member whose pool has a check; those in `answered` were probed just now. Dropping the set
/// ends them.
pub(crate) fn start(
    generation: &Arc<Generation>,
    shared: &Arc<Shared>,
    answered: &[(usize, usize)],
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    jrubies::forget(generation, shared);
    for (pool, runtime) in generation.pools.iter().enumerate() {
        if runtime.pool.check().kind == CheckKind::None {
            continue;
        }
        for member in 0..runtime.connectors.len() {
            tasks.spawn(probe_for_ever(
                Arc::clone(generation),
                Arc::clone(shared),
                (pool, member),
                answered.contains(&(pool, member)),
            ));
            if upstream::reads_jrubies(runtime.pool.check()) {
                let (generation, shared) = (Arc::clone(generation), Arc::clone(shared));
                tasks.spawn(jrubies::read_for_ever(generation, shared, (pool, member)));
            }
        }
    }
    tasks
}

async fn probe_for_ever(
    generation: Arc<Generation>,
    shared: Arc<Shared>,
    (pool, member): (usize, usize),
    probed_already: bool,
) {
    let runtime = &generation.pools[pool];
    let (check, connector) = (runtime.pool.check(), &runtime.connectors[member]);
    let state = &runtime.pool.entries()[member].member;
    // Members probed in the same instant for ever would all be slow in the same instant.
    let spread = check.interval / 10 * (member as u32 % 10);
    if probed_already {
        sleep(check.interval + spread).await;
    }
    for turn in 0u64.. {
        let probed = upstream::probe(connector, check).await;
        let failure = probed.result.err().map(|error| error.to_string());
        let (pool, address) = (runtime.pool.name(), &connector.address);
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
            None => state.probe_succeeded(check),
            Some(_) => state.probe_failed(check),
        };
        if let Some(change) = change {
            shared.health_changed(pool, address, &change);
        }
        let first = turn == 0 && !probed_already;
        let wait = check.wait(state.is_changing(), state.id(), turn);
        sleep(if first { wait + spread } else { wait }).await;
    }
}
