//! Names of members: DNS is asked again when an answer runs out, and an answer that changes replaces the pools that use it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use config::{Config, PoolConfig};
use discovery::{Answer, LookupError, Question, Resolved, Resolver, Rules, question};
use proxy::{Generation, PoolRuntime};
use routing::pool_names;
use telemetry::{Alarm, Alarms};
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};
use upstream::{Plaintext, Scheme};

use crate::{
    app::{App, adopt},
    probes,
};

/// Time that a start and a reload wait for the first answers; later ones are used as they come.
const FIRST_ANSWERS_MAX: Duration = Duration::from_secs(3);
/// Time that new members have for their first probe before requests may come, where their pool has no other.
const FIRST_PROBES_MAX: Duration = Duration::from_secs(1);
/// What the alarm is about while the writes to the CA stay where DNS no longer has them first.
const HELD_WRITES: &str = "writes to the CA";
/// Names that are asked about at once.
const QUESTIONS_AT_ONCE: usize = 16;

type Asked = (Question, Result<Resolved, LookupError>);

/// What DNS answered last that the pools accept.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    known: Mutex<Known>,
    /// Notified when another configuration is active.
    pub(crate) configured: Notify,
}

#[derive(Debug, Default)]
struct Known {
    /// By pool, because each has its own rules.
    accepted: BTreeMap<(String, Question), Answer>,
    /// When each question is asked again.
    due: BTreeMap<Question, Instant>,
}

impl Answers {
    /// The last valid answer.
    pub(crate) fn of(&self, pool: &str, question: &Question) -> Option<Answer> {
        let key = (pool.to_owned(), question.clone());
        self.known().accepted.get(&key).cloned()
    }

    /// Asks those questions of a configuration that are `wanted` and were never asked, within a limit: members that are
    /// not known by then join their pools later.
    pub(crate) async fn ask_new(
        &self,
        config: &Config,
        wanted: impl Fn(&Question) -> bool,
        alarms: &Alarms,
    ) {
        let mut new = questions(config);
        new.retain(|question| wanted(question));
        {
            let known = self.known();
            new.retain(|question| !known.due.contains_key(question));
        }
        if new.is_empty() {
            return;
        }
        let mut answered = Vec::new();
        let _ = timeout(FIRST_ANSWERS_MAX, ask(config, new, &mut answered)).await;
        self.learn(config, answered, alarms);
    }

    /// Accepts or refuses answers; the names of pools whose members may have changed come back.
    fn learn(&self, config: &Config, asked: Vec<Asked>, alarms: &Alarms) -> BTreeSet<String> {
        let mut changed = BTreeSet::new();
        let mut known = self.known();
        for (question, result) in asked {
            let after = match &result {
                Ok(resolved) => config.dns.refresh_after(resolved.ttl),
                Err(_) => config.dns.ttl_min,
            };
            known.due.insert(question.clone(), Instant::now() + after);
            for (pool, rules) in asking(config, &question) {
                let key = (pool.to_owned(), question.clone());
                let before = known.accepted.get(&key);
                let answer = accepted(&result, &rules, before);
                let about = format!("{pool}: {question}");
                match answer {
                    Ok(answer) => {
                        alarms.clear(Alarm::DnsAnswer, &about);
                        if before != Some(&answer) {
                            known.accepted.insert(key, answer);
                            changed.insert(pool.to_owned());
                        }
                    }
                    // A host without any answer so far is a member that is down, as its probes show.
                    Err(_) if before.is_none() && matches!(question, Question::Host(_)) => {}
                    Err(why) => {
                        let effect = match before {
                            Some(_) => "the last valid answer stays in use",
                            None => "it has no members of this name",
                        };
                        let message = format!(
                            "pool {pool}: cannot use the DNS answer for {question}: {why}; {effect}"
                        );
                        alarms.raise(Alarm::DnsAnswer, &about, message, SystemTime::now());
                    }
                }
            }
        }
        changed
    }

    /// Forgets what no configuration asks any more; the first time that a question is due comes back.
    fn next_due(&self, config: &Config, alarms: &Alarms) -> Option<Instant> {
        let wanted = questions(config);
        let mut known = self.known();
        known.due.retain(|question, _| wanted.contains(question));
        let is_asked = |pool: &str, question: &Question| {
            asking(config, question)
                .iter()
                .any(|(named, _)| *named == pool)
        };
        known
            .accepted
            .retain(|(pool, question), _| is_asked(pool, question));
        let gone = alarms.active().into_iter().filter(|active| {
            let mut wanted = wanted.iter().flat_map(|question| {
                let pools = asking(config, question).into_iter();
                pools.map(move |(pool, _)| format!("{pool}: {question}"))
            });
            let is_other = active.alarm != Alarm::DnsAnswer || active.about == HELD_WRITES;
            !is_other && !wanted.any(|about| about == active.about)
        });
        gone.for_each(|active| alarms.clear(Alarm::DnsAnswer, &active.about));
        let now = Instant::now();
        let due = wanted
            .iter()
            .map(|question| known.due.get(question).copied().unwrap_or(now));
        due.min()
    }

    fn due(&self, config: &Config) -> BTreeSet<Question> {
        let (now, known) = (Instant::now(), self.known());
        let mut wanted = questions(config);
        wanted.retain(|question| known.due.get(question).is_none_or(|due| *due <= now));
        wanted
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answer that a pool uses, or why it does not.
fn accepted(
    result: &Result<Resolved, LookupError>,
    rules: &Rules<'_>,
    before: Option<&Answer>,
) -> Result<Answer, String> {
    let resolved = result.as_ref().map_err(ToString::to_string)?;
    let mut answer = resolved.answer.clone();
    if let Some(before) = before {
        answer.fill_addresses(before);
    }
    rules.check(&answer).map_err(|error| error.to_string())?;
    Ok(answer)
}

/// What the members of a configuration need answered.
pub(crate) fn questions(config: &Config) -> BTreeSet<Question> {
    let pools = config.pools.iter();
    pools
        .flat_map(|pool| pool.pool.members.iter().filter_map(question))
        .collect()
}

/// The pools that ask a question, with what each requires of the answer.
fn asking<'c>(config: &'c Config, asked: &Question) -> Vec<(&'c str, Rules<'c>)> {
    let mut asking = Vec::new();
    for pool in &config.pools {
        let mut members = pool.pool.members.iter();
        if members.any(|member| question(member).as_ref() == Some(asked)) {
            asking.push((pool.pool.name.as_str(), rules(pool)));
        }
    }
    asking
}

/// An entry with a `server_name` of its own needs no `server_names`: one name holds for all targets.
fn rules(pool: &PoolConfig) -> Rules<'_> {
    let upstream = &pool.upstream;
    Rules {
        server_names: (!pool.server_names.is_empty()).then_some(pool.server_names.as_slice()),
        is_loopback_only: upstream.scheme == Scheme::Http
            && upstream.plaintext == Plaintext::Loopback,
    }
}

/// Asks several questions at once; answers come into `answered` as they arrive.
async fn ask(config: &Config, questions: BTreeSet<Question>, answered: &mut Vec<Asked>) {
    let resolver = Resolver::new(&config.dns);
    let mut questions = questions.into_iter();
    let mut asking = JoinSet::new();
    loop {
        while asking.len() < QUESTIONS_AT_ONCE
            && let Some(question) = questions.next()
        {
            let resolver = resolver.clone();
            asking.spawn(async move {
                let result = resolver.resolve(&question).await;
                (question, result)
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
        ask(&config, answers.due(&config), &mut answered).await;
        // A reload that runs now may have other pools.
        let _one_at_a_time = app.reloading.lock().await;
        let config = app.state().foundation.config.clone();
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
    async fn replace_pools(&self, names: &BTreeSet<String>) {
        let before = self.generation();
        let foundation = self.state().foundation.clone();
        let mut replaced = Vec::new();
        for (index, pool) in before.pools.iter().enumerate() {
            let name = pool.pool.name();
            if !names.contains(&**name) {
                continue;
            }
            match foundation.replaced_pool(pool, &self.lasting) {
                Ok(runtime) => replaced.push((index, Arc::new(runtime))),
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
        self.assess_writes(&generation, foundation.first_ca(&self.lasting).as_deref());
    }

    /// Whether the writes to the CA stay at a member that DNS does not name first and that does not answer any longer.
    fn may_move_writes(&self) -> bool {
        let alarms = &self.lasting.metrics.alarms;
        let generation = self.generation();
        let mut pools = generation.pools.iter();
        let pool = pools.find(|pool| **pool.pool.name() == *pool_names::CA);
        let entry = pool.and_then(|pool| pool.pool.entries().get(pool.pool.writer()?));
        alarms.get(Alarm::DnsAnswer, HELD_WRITES).is_some()
            && entry.is_some_and(|entry| !entry.member.is_available())
    }

    /// Raises or clears the alarm about writes to the CA that stay where DNS no longer has them first.
    pub(crate) fn assess_writes(&self, generation: &Generation, first: Option<&str>) {
        let mut pools = generation.pools.iter();
        let pool = pools.find(|pool| **pool.pool.name() == *pool_names::CA);
        let writer = pool.and_then(|pool| Some(&pool.connectors[pool.pool.writer()?].address));
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

    fn put_pools_in_force(
        &self,
        generation: &Arc<Generation>,
        replaced: &[usize],
        answered: &[(usize, usize)],
    ) {
        adopt(generation, &self.shared, answered);
        self.shared.current.store(Arc::clone(generation));
        self.shared.assess_pools();
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
