//! Members from DNS while the process runs: names are looked up again when their TTL ends, and a changed answer replaces the
//! pools that use it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use proxy::{Generation, PoolRuntime};
use routing::pool_names;
use state::{GenerationWriter, passthrough};
use tokio::{
    task::spawn_blocking,
    time::{sleep_until, timeout},
};

use crate::{
    dns::resolve,
    members::probes::{self, AnsweredProbe},
    shared_state::App,
};

/// How long new members have for their first probe before they get requests, if their pool has no other member.
const FIRST_PROBES_MAX: Duration = Duration::from_secs(1);

/// Looks up names when they are due, until this future is dropped.
pub(crate) async fn look_up_when_due(app: Arc<App>) {
    let answers = &app.lasting.answers;
    let alarms = &app.lasting.metrics.alarms;
    loop {
        let (config, due) = {
            // After a running reload, which looks up new names itself.
            let _no_reload = app.active.writer().await;
            let config = app.foundation().config.clone();
            let due = answers.next_due(&config, alarms);
            (config, due)
        };
        app.store_answers().await;
        match due {
            Some(due) => tokio::select! {
                () = sleep_until(due) => {}
                () = answers.configured.notified() => continue,
            },
            None => {
                answers.configured.notified().await;
                continue;
            }
        }
        let mut finished = Vec::new();
        let settings = config.dns.clone();
        resolve(&settings, answers.due(&config), &mut finished).await;
        let writer = app.active.writer().await;
        // A reload may have changed the pools and the servers meanwhile.
        let config = app.foundation().config.clone();
        if config.dns != settings {
            continue;
        }
        let mut changed = answers.learn(&config, finished, alarms);
        if app.may_move_ca_writes() {
            changed.insert(pool_names::CA.to_owned());
        }
        if !changed.is_empty() {
            app.replace_pools(&writer, &changed).await;
        }
    }
}

impl App {
    /// Stores the answers and the member that gets the writes to the CA, if they have changed.
    pub(crate) async fn store_answers(self: &Arc<Self>) {
        let app = Arc::clone(self);
        let _ = spawn_blocking(move || app.lasting.answers.store(&app.state_directory)).await;
    }

    /// Gives pools the members that DNS names now. Running requests stay with their members; waiting requests may get the
    /// new ones.
    async fn replace_pools(
        self: &Arc<Self>,
        writer: &GenerationWriter<'_>,
        names: &BTreeSet<String>,
    ) {
        let app = self;
        let before = app.generation();
        let foundation = app.foundation();
        let mut replaced = Vec::new();
        let mut are_states_moved = false;
        for (index, pool) in before.pools.iter().enumerate() {
            let name = pool.pool.name();
            if !names.contains(&**name) {
                continue;
            }
            match app.lasting.replaced_pool(pool, &foundation) {
                Ok((runtime, moved)) => {
                    replaced.push((index, Arc::new(runtime)));
                    are_states_moved |= moved;
                }
                Err(error) => {
                    tracing::error!(pool = %name, "members from DNS are not used: {error}")
                }
            }
        }
        for (index, runtime) in &replaced {
            log(&before.pools[*index], runtime);
        }
        let indexes: Vec<_> = replaced.iter().map(|(index, _)| *index).collect();
        let generation = Arc::new(before.with_pools(replaced));
        let mut answered = Vec::new();
        let first = probes::first(&generation, Some(&before), &mut answered);
        let _ = timeout(FIRST_PROBES_MAX, first).await;
        if !app.is_serving() {
            return;
        }
        self.activate_pools(writer, &generation, &indexes, &answered);
        app.assess_ca_writer(&generation, &foundation);
        if are_states_moved {
            app.store_member_states().await;
        }
    }

    fn activate_pools(
        &self,
        writer: &GenerationWriter<'_>,
        generation: &Arc<Generation>,
        replaced: &[usize],
        answered: &[AnsweredProbe],
    ) {
        let app = self;
        probes::adopt(generation, &app.shared, answered);
        writer.store(generation);
        app.shared.assess_pools();
        passthrough::assess(&app.lasting.metrics.alarms, generation);
        // Tunnels to members that DNS no longer names are closed one after the other.
        let passes_through = |pool: &usize| generation.pools[*pool].rules.passthrough.is_used;
        if replaced.iter().any(passes_through) {
            app.shared.signals.send_modify(|_| ());
        }
        app.forget_removed_members(generation);
        let mut state = app.state();
        for pool in replaced {
            state
                .probes
                .replace(generation, *pool, &app.shared, answered);
        }
    }
}

/// Logs which members were added and removed.
fn log(before: &PoolRuntime, after: &PoolRuntime) {
    let addresses = |pool: &PoolRuntime| -> BTreeSet<Arc<str>> {
        let entries = pool.pool.entries().iter();
        entries
            .map(|entry| Arc::clone(entry.member.address()))
            .collect()
    };
    let (before, pool, after) = (addresses(before), after.pool.name(), addresses(after));
    let joined = |addresses: &mut dyn Iterator<Item = &Arc<str>>| {
        addresses
            .map(|address| &**address)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let added = joined(&mut after.difference(&before));
    let removed = joined(&mut before.difference(&after));
    if added.is_empty() && removed.is_empty() {
        tracing::info!(%pool, "DNS changed weights, priorities or addresses of the members of a pool");
        return;
    }
    tracing::info!(%pool, added, removed, "DNS changed the members of a pool");
}
