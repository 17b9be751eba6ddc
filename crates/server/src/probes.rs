//! The probes of one generation's members, each a task that ends with its generation.

use std::{sync::Arc, time::Duration};

use balancing::{Administrative, settings::CheckKind};
use proxy::{Generation, Shared};
use tokio::{task::JoinSet, time::sleep};

/// Starts a task for each member whose pool has a check. Dropping the set ends them.
pub(crate) fn start(generation: &Arc<Generation>, shared: &Arc<Shared>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for (pool, runtime) in generation.pools.iter().enumerate() {
        if runtime.pool.check().kind == CheckKind::None {
            continue;
        }
        for member in 0..runtime.connectors.len() {
            tasks.spawn(probe_for_ever(Arc::clone(generation), Arc::clone(shared), pool, member));
        }
    }
    tasks
}

async fn probe_for_ever(generation: Arc<Generation>, shared: Arc<Shared>, pool: usize, member: usize) {
    let runtime = &generation.pools[pool];
    let (check, connector) = (runtime.pool.check(), &runtime.connectors[member]);
    let state = &runtime.pool.entries()[member].member;
    // Members probed in the same instant for ever would all be slow in the same instant.
    let spread = check.interval / 10 * (member as u32 % 10);
    let mut told = None;
    for turn in 0u64.. {
        if state.administrative() != Administrative::Maintenance {
            let probed = upstream::probe(connector, check).await;
            let change = match &probed {
                Ok(()) => state.probe_succeeded(check),
                Err(_) => state.probe_failed(check),
            };
            let story = probed.err().map(|error| error.to_string());
            if story != told {
                if let Some(story) = &story {
                    tracing::warn!(pool = %runtime.pool.name(), member = %connector.address, cause = %story, "probe failed");
                }
                told = story;
            }
            if let Some(change) = change {
                shared.health_changed(runtime.pool.name(), &connector.address, &change);
            }
        }
        sleep(check.interval + if turn == 0 { spread } else { Duration::ZERO }).await;
    }
}
