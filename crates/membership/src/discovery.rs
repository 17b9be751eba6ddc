//! Members from DNS while the process runs: names are looked up again when their TTL ends, and a changed answer replaces the
//! pools that use it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use proxy::{Generation, PoolRuntime};
use routing::pool_names;
use state::{GenerationWriter, passthrough, supervise::blocking};
use tokio::time::{sleep_until, timeout};

use crate::{
    Membership,
    dns::resolve,
    probes::{self, AnsweredProbe},
};

/// How long new members have for their first probe before they get requests, if their pool has no other member.
const FIRST_PROBES_MAX: Duration = Duration::from_secs(1);

impl Membership {
    /// Looks up names when they are due, until this future is dropped.
    pub async fn look_up_when_due(&self) {
        let answers = &self.members.answers;
        let alarms = self.active.alarms();
        loop {
            let (foundation, due) = {
                // Waits for a running reload, which looks up new names itself.
                let _no_reload = self.active.writer().await;
                let foundation = self.active.foundation();
                let due = answers.next_due(&foundation.config, alarms);
                (foundation, due)
            };
            self.store_answers().await;
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
            let settings = &foundation.config.dns;
            resolve(settings, answers.due(&foundation.config), &mut finished).await;
            let writer = self.active.writer().await;
            // A reload may have changed the pools and the servers meanwhile.
            let now = self.active.foundation();
            if now.config.dns != *settings {
                continue;
            }
            let mut changed = answers.learn(&now.config, &finished, Some(alarms));
            if self.may_move_ca_writes() {
                changed.insert(pool_names::CA.to_owned());
            }
            if !changed.is_empty() {
                self.replace_pools(&writer, &changed).await;
            }
        }
    }

    /// Stores the answers and the member that gets the writes to the CA, if they have changed.
    pub(crate) async fn store_answers(&self) {
        let (members, directory) = (Arc::clone(&self.members), Arc::clone(&self.directory));
        blocking("store-dns-answers", move || {
            members.answers.store(&directory)
        })
        .await;
    }

    /// Gives pools the members that DNS names now. Running requests stay with their members; waiting requests may get the new
    /// members.
    async fn replace_pools(&self, writer: &GenerationWriter<'_>, names: &BTreeSet<String>) {
        let before = self.active.generation();
        let foundation = self.active.foundation();
        let mut replaced = Vec::new();
        let mut are_states_moved = false;
        for (index, pool) in before.pools.iter().enumerate() {
            let name = pool.pool.name();
            if !names.contains(&**name) {
                continue;
            }
            match self.members.replaced_pool(pool, &foundation) {
                Some(Ok((runtime, moved))) => {
                    replaced.push((index, Arc::new(runtime)));
                    are_states_moved |= moved;
                }
                Some(Err((member, error))) => {
                    tracing::error!(pool = %name, "members from DNS are not used: {member}: {error}")
                }
                None => {}
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
        if !self.active.is_serving() {
            return;
        }
        self.activate_pools(writer, &generation, &indexes, &answered);
        self.assess_ca_writer(&generation, &foundation);
        if are_states_moved {
            self.store_states().await;
        }
    }

    fn activate_pools(
        &self,
        writer: &GenerationWriter<'_>,
        generation: &Arc<Generation>,
        replaced: &[usize],
        answered: &[AnsweredProbe],
    ) {
        probes::adopt(generation, self.active.shared(), answered);
        writer.store(generation);
        self.active.shared().assess_pools();
        passthrough::assess(self.active.alarms(), generation);
        // Tunnels to members that DNS no longer names are closed one after the other.
        let passes_through = |pool: &usize| generation.pools[*pool].rules.passthrough.is_used;
        if replaced.iter().any(passes_through) {
            self.active.shared().signals.send_modify(|_| ());
        }
        self.forget_removed(generation);
        let mut probes = self.probes();
        for pool in replaced {
            probes.replace(generation, *pool, self.active.shared(), answered);
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
