//! Names of members: DNS is asked again when an answer runs out, and an answer that changes replaces the pools that use it.

mod answers;
mod status;
mod stored;

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use config::Config;
use discovery::{DnsQuestion, LookupError, Resolved, Resolver, question, settings::DnsSettings};
use proxy::{Generation, PoolRuntime};
use routing::pool_names;
use telemetry::Alarm;
use tokio::{
    task::{JoinSet, spawn_blocking},
    time::{sleep_until, timeout},
};

pub(crate) use self::{
    answers::{Answers, questions, rules},
    stored::{FILE, Writer, configured},
};
use crate::{
    app::{App, adopt},
    members::{passthrough, probes},
    prepare::{Foundation, may_lose_writes},
};

/// Time that new members have for their first probe before requests may come, where their pool has no other.
const FIRST_PROBES_MAX: Duration = Duration::from_secs(1);
/// What the alarm is about while the writes to the CA stay where DNS no longer has them first.
const HELD_WRITES: &str = "writes to the CA";
/// Names that are asked about at once.
const QUESTIONS_AT_ONCE: usize = 16;

/// A question that was asked.
pub(crate) struct Lookup {
    question: DnsQuestion,
    result: Result<Resolved, LookupError>,
    servers: Arc<[SocketAddr]>,
}

/// Asks several questions at once; answers come into `answered` as they arrive.
async fn ask(settings: &DnsSettings, questions: BTreeSet<DnsQuestion>, answered: &mut Vec<Lookup>) {
    let resolver = Resolver::new(settings);
    let mut questions = questions.into_iter();
    let mut asking = JoinSet::new();
    loop {
        while asking.len() < QUESTIONS_AT_ONCE
            && let Some(question) = questions.next()
        {
            let resolver = resolver.clone();
            asking.spawn(async move {
                let result = resolver.resolve(&question).await;
                Lookup {
                    question,
                    result,
                    servers: Arc::clone(resolver.servers()),
                }
            });
        }
        match asking.join_next().await {
            Some(asked) => answered.extend(asked.ok()),
            None => return,
        }
    }
}

/// Asks again whenever an answer runs out.
pub(crate) async fn keep(app: Arc<App>) {
    let answers = &app.lasting.answers;
    let alarms = &app.lasting.metrics.alarms;
    loop {
        let (config, due) = {
            // Not what a reload has just asked for.
            let _one_at_a_time = app.reloading.lock().await;
            let config = app.state().foundation.config.clone();
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
        let mut answered = Vec::new();
        let asked = config.dns.clone();
        ask(&asked, answers.due(&config), &mut answered).await;
        // A reload that runs now may have other pools, and other servers.
        let _one_at_a_time = app.reloading.lock().await;
        let config = app.state().foundation.config.clone();
        if config.dns != asked {
            continue;
        }
        let mut changed = answers.learn(&config, answered, alarms);
        if app.may_move_writes() {
            changed.insert(pool_names::CA.to_owned());
        }
        if !changed.is_empty() {
            app.replace_pools(&changed).await;
        }
    }
}

impl App {
    /// Replaces pools by the members that DNS names now. The caller holds `reloading`. What runs goes on with the members
    /// it has; what waits may get the new ones.
    async fn replace_pools(self: &Arc<Self>, names: &BTreeSet<String>) {
        let before = self.generation();
        let foundation = self.state().foundation.clone();
        let mut replaced = Vec::new();
        let mut are_states_moved = false;
        for (index, pool) in before.pools.iter().enumerate() {
            let name = pool.pool.name();
            if !names.contains(&**name) {
                continue;
            }
            match foundation.replaced_pool(pool, &self.lasting) {
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
        let first = probes::first(&generation, &before, &mut answered);
        let _ = timeout(FIRST_PROBES_MAX, first).await;
        if !self.is_serving() {
            return;
        }
        self.put_pools_in_force(&generation, &indexes, &answered);
        self.assess_writes(&generation, &foundation);
        if are_states_moved {
            self.store_member_states().await;
        }
    }

    /// Whether the writes to the CA stay at a member that DNS does not name first and that does not answer any longer.
    fn may_move_writes(&self) -> bool {
        let alarms = &self.lasting.metrics.alarms;
        let generation = self.generation();
        let mut pools = generation.pools.iter();
        let pool = pools.find(|pool| **pool.pool.name() == *pool_names::CA);
        let entry = pool.and_then(|pool| pool.pool.entries().get(pool.pool.writer()?));
        alarms.get(Alarm::DnsAnswer, HELD_WRITES).is_some()
            && entry.is_some_and(|entry| may_lose_writes(&entry.member))
    }

    /// Raises or clears the alarm about writes to the CA that stay where DNS no longer has them first.
    pub(crate) fn assess_writes(&self, generation: &Generation, foundation: &Foundation) {
        let first = foundation.first_ca(&self.lasting);
        let mut pools = generation.pools.iter();
        let pool = pools.find(|pool| **pool.pool.name() == *pool_names::CA);
        let writer =
            pool.and_then(|pool| Some(&pool.members[pool.pool.writer()?].connector.address));
        self.note_writer(pool, &foundation.config);
        let alarms = &self.lasting.metrics.alarms;
        match (first, writer) {
            (Some(first), Some(writer)) if **writer != *first => {
                let message = format!(
                    "DNS names {first} first for the CA, but {writer} answers and keeps the writes; to move them, put {writer} into maintenance"
                );
                alarms.raise(Alarm::DnsAnswer, HELD_WRITES, message, SystemTime::now());
            }
            _ => alarms.clear(Alarm::DnsAnswer, HELD_WRITES),
        }
    }

    /// Remembers where writes to the CA go, for the next start: DNS may name another member first by then.
    fn note_writer(&self, pool: Option<&Arc<PoolRuntime>>, config: &Config) {
        let named = config.pools.iter().find(|p| p.pool.name == pool_names::CA);
        let writer = pool.and_then(|pool| Some(&pool.members.get(pool.pool.writer()?)?.connector));
        let (Some(named), Some(writer)) = (named, writer) else {
            return;
        };
        if named.pool.members.iter().any(|m| question(m).is_some()) {
            self.lasting.answers.note_writer(Writer {
                member: writer.address.to_string(),
                addresses: writer.addresses().to_vec(),
                configured: configured(named),
            });
        }
    }

    /// Stores answers and the member that gets the writes to the CA, if they are not stored yet.
    pub(crate) async fn store_answers(self: &Arc<Self>) {
        let app = Arc::clone(self);
        let _ = spawn_blocking(move || app.lasting.answers.store(&app.state_directory)).await;
    }

    fn put_pools_in_force(
        &self,
        generation: &Arc<Generation>,
        replaced: &[usize],
        answered: &[(usize, usize)],
    ) {
        adopt(generation, &self.shared, answered);
        self.shared.current.store(Arc::clone(generation));
        self.shared.assess_pools();
        passthrough::assess(&self.lasting.metrics.alarms, generation);
        // Tunnels to members that DNS no longer names end in their turn.
        let passing = |pool: &usize| generation.pools[*pool].rules.passthrough.is_used;
        if replaced.iter().any(passing) {
            self.shared.signals.send_modify(|_| ());
        }
        self.forget_members(generation);
        let mut state = self.state();
        for pool in replaced {
            state
                .probes
                .replace(generation, *pool, &self.shared, answered);
        }
    }
}

/// Which members came and which went.
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
