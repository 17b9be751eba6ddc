//! Revocation lists from the CA itself: asked for time and again, held against what is in force, put in force, kept.
//!
//! Whatever goes wrong on the way leaves what is in force as it is, with an alarm.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use admin::{
    Caller, CrlAcceptError, CrlAcceptRequest, CrlAccepted, CrlFetchOutcome, CrlFetchResult,
    CrlFetchStatus, FailingFetch, RefusedCrl,
};
use balancing::{Administrative, settings::Role};
use bytes::Bytes;
use config::Fetch;
use pki::{FetchedCrl, Finding, Fingerprint, Named};
use proxy::{Generation, PoolRuntime};
use routing::Document;
use tokio::{sync::Notify, task::spawn_blocking, time::sleep};
use upstream::{Answer, Wish};

use crate::{
    app::App,
    lists::{self, Accepted, Restored},
    validator::Validator,
};

/// Where a CA has its list, and that of each CA above it.
const PATH: &str = "/puppet-ca/v1/certificate_revocation_list/ca";
/// The pool that is asked.
const POOL: &str = "ca";
/// Most bytes of a reason.
const WHY_BYTES_MAX: usize = 500;

/// Fetching as it stands, over all generations.
#[derive(Debug, Default)]
pub(crate) struct Fetching {
    /// Held by the fetch that runs: one at a time.
    turn: tokio::sync::Mutex<Validator>,
    standing: Mutex<Standing>,
    /// Told after a reload, and when the bundle has other CAs: whom to ask may be another, and so may what is in force.
    pub(crate) reloaded: Notify,
}

/// What came of it so far.
#[derive(Debug, Default)]
struct Standing {
    asked: Option<SystemTime>,
    answered: Option<SystemTime>,
    member: Option<Arc<str>>,
    failing: Option<(SystemTime, String)>,
    /// Of the last answer, what is of no use.
    useless: Vec<String>,
    /// Lists that take something back, by the digest of their issuer: one each, there are as many as CAs in the bundle.
    refused: BTreeMap<Fingerprint, Refused>,
    accepted: Vec<Accepted>,
    /// What the start could not use of the state directory.
    unusable: Vec<String>,
    /// The list of each issuer that the state directory has.
    kept: BTreeMap<Fingerprint, Fingerprint>,
}

#[derive(Clone, Debug)]
struct Refused {
    list: FetchedCrl,
    told: RefusedCrl,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Whatever has changed.
    Changes,
    /// The whole list, whatever its date.
    Whole,
}

/// An answer of use, and who gave it.
pub(crate) struct Answered {
    pub(crate) member: Arc<str>,
    /// Our clock before it was asked.
    pub(crate) asked: SystemTime,
    pub(crate) answer: Answer,
}

/// What became of the lists of one answer.
#[derive(Default)]
struct Sorted {
    newer: Vec<FetchedCrl>,
    refused: Vec<Refused>,
    in_force: Vec<FetchedCrl>,
}

/// Fetches until it is dropped: at once, then time and again, and after each reload.
pub(crate) async fn keep(app: Arc<App>) {
    let mut asked = Asked::Whole;
    loop {
        let fetch = app.fetch_settings();
        app.judge_copies().await;
        if fetch.is_some() {
            Arc::clone(&app).fetch_lists(asked).await;
            app.fetch_cas(asked).await;
        }
        asked = tokio::select! {
            () = wait(fetch) => Asked::Changes,
            () = app.fetching.reloaded.notified() => Asked::Whole,
        };
    }
}

async fn wait(fetch: Option<Fetch>) {
    match fetch {
        Some(fetch) => sleep(fetch.interval + part_of(fetch.jitter)).await,
        None => std::future::pending().await,
    }
}

/// A random part of a duration: the standard library's hasher starts at random.
fn part_of(most: Duration) -> Duration {
    let random = RandomState::new().hash_one(()) as u32;
    most.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

impl Fetching {
    /// With what a start has found of the time before.
    pub(crate) fn restored(restored: &Restored) -> Self {
        let standing = Standing {
            accepted: restored.accepted.clone(),
            unusable: restored.unusable.clone(),
            kept: restored.kept.clone(),
            ..Standing::default()
        };
        Self {
            standing: Mutex::new(standing),
            ..Self::default()
        }
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the operator.
    pub(crate) fn status(&self) -> CrlFetchStatus {
        let standing = self.standing();
        CrlFetchStatus {
            asked: standing.asked.map(Into::into),
            answered: standing.answered.map(Into::into),
            member: standing.member.as_ref().map(ToString::to_string),
            failing: standing.failing.as_ref().map(|(since, why)| FailingFetch {
                since: (*since).into(),
                why: why.clone(),
            }),
            refused: standing.refused.values().map(|r| r.told.clone()).collect(),
        }
    }

    /// For metrics.
    pub(crate) fn reading(&self) -> telemetry::CrlFetchReading {
        let standing = self.standing();
        telemetry::CrlFetchReading {
            answered: standing.answered,
            failing: standing.failing.is_some(),
            refused: standing
                .refused
                .values()
                .map(|refused| (refused.told.issuer.clone(), refused.told.lacking))
                .collect(),
        }
    }

    /// What is wrong, as sentences.
    pub(crate) fn alarms(&self) -> Vec<String> {
        let standing = self.standing();
        let failing = standing.failing.iter().map(|(since, why)| {
            format!(
                "no CRL could be fetched since {}, those in force stay: {why}",
                admin::Timestamp::from(*since)
            )
        });
        let refused = standing.refused.values().map(|refused| {
            format!(
                "a fetched CRL is refused, for it takes something back: {}. If that is meant, run proscenium crl accept \
                 \"{}\" --why TEXT",
                refused.told, refused.told.issuer
            )
        });
        failing
            .chain(refused)
            .chain(standing.useless.iter().cloned())
            .chain(standing.unusable.iter().cloned())
            .collect()
    }

    fn asks(&self, at: SystemTime) {
        self.standing().asked = Some(at);
    }

    /// Notes a fetch that brought nothing of use; the same story is told once.
    fn failed(&self, why: &str) {
        let mut standing = self.standing();
        let since = match &standing.failing {
            Some((_, told)) if told == why => return,
            Some((since, _)) => *since,
            None => SystemTime::now(),
        };
        tracing::warn!(why, "no CRL could be fetched, those in force stay");
        standing.failing = Some((since, why.to_owned()));
    }

    fn succeeded(&self, member: &Arc<str>, at: SystemTime) {
        let mut standing = self.standing();
        standing.answered = Some(at);
        standing.member = Some(Arc::clone(member));
        if standing.failing.take().is_some() {
            tracing::info!(%member, "CRLs can be fetched again");
        }
    }

    /// Notes what became of an answer's lists. A refusal is told once.
    fn sorted(&self, member: &str, sorted: &Sorted, useless: Vec<String>) {
        let mut standing = self.standing();
        for why in useless.iter().filter(|why| !standing.useless.contains(why)) {
            tracing::warn!(member, "{why}");
        }
        standing.useless = useless;
        for list in sorted.newer.iter().chain(&sorted.in_force) {
            standing.refused.remove(&list.key());
        }
        for refused in &sorted.refused {
            let known = standing.refused.get(&refused.list.key());
            if known.is_some_and(|known| known.list.fingerprint() == refused.list.fingerprint()) {
                continue;
            }
            tracing::error!(
                member,
                issuer = refused.told.issuer,
                number = refused.told.number,
                lacking = refused.told.lacking,
                "a fetched CRL is refused, for it takes something back: {}",
                refused.told
            );
            standing.refused.insert(refused.list.key(), refused.clone());
        }
    }
}

impl App {
    pub(crate) fn fetch_settings(&self) -> Option<Fetch> {
        self.state().foundation.config.trust.fetch
    }

    /// Asks the CA for its lists and puts in force what is newer.
    pub(crate) async fn fetch_lists(self: Arc<Self>, asked: Asked) -> CrlFetchOutcome {
        let mut validator = self.fetching.turn.lock().await;
        let Some(fetch) = self.fetch_settings().filter(|_| self.is_serving()) else {
            return CrlFetchOutcome {
                result: CrlFetchResult::Off,
                report: "lists are not fetched: [trust.fetch] is off, or the process is stopping"
                    .to_owned(),
            };
        };
        let is_copied = self.shared.edge.copy(Document::Crl).is_some();
        if asked == Asked::Whole || self.answers_from_copies() && !is_copied {
            validator.forget();
        }
        self.fetching.asks(SystemTime::now());
        let asked = self.ask(PATH, fetch.body_bytes_max, fetch, &validator);
        let outcome = match asked.await {
            Ok(answered) => self.judge(answered, &mut validator).await,
            Err(why) => Err(why),
        };
        let outcome = outcome.unwrap_or_else(|why| {
            // What is wrong may have been that answer alone: the next one is wanted whole.
            validator.forget();
            self.fetching.failed(&why);
            CrlFetchOutcome {
                result: CrlFetchResult::Failed,
                report: why,
            }
        });
        self.lasting.metrics.crls_fetched(outcome.result.as_str());
        outcome
    }

    /// The first answer of the pool's members, asked in order; otherwise what each of them said.
    pub(crate) async fn ask(
        &self,
        path: &'static str,
        body_bytes_max: u64,
        fetch: Fetch,
        validator: &Validator,
    ) -> Result<Answered, String> {
        let generation = self.generation();
        let Some(pool) = ca_pool(&generation) else {
            return Err(format!("there is no pool `{POOL}` to ask"));
        };
        let mut stories = Vec::new();
        for connector in members(pool).map(|index| &pool.connectors[index]) {
            let member = &connector.address;
            let now = Instant::now();
            let wish = Wish {
                path,
                accept: "text/plain",
                if_modified_since: validator.condition(member, now, fetch.whole_interval),
                timeout: fetch.timeout,
                body_bytes_max,
            };
            let asked = SystemTime::now();
            match upstream::fetch(connector, &wish).await {
                Ok(answer) => {
                    return Ok(Answered {
                        member: Arc::clone(member),
                        asked,
                        answer,
                    });
                }
                Err(error) => stories.push(error.to_string()),
            }
        }
        match stories.is_empty() {
            true => Err(format!("all members of pool `{POOL}` are in maintenance")),
            false => Err(stories.join("; ")),
        }
    }

    /// Holds an answer against what is in force, and puts in force what is newer.
    async fn judge(
        self: &Arc<Self>,
        answered: Answered,
        validator: &mut Validator,
    ) -> Result<CrlFetchOutcome, String> {
        let Answered {
            member,
            asked,
            mut answer,
        } = answered;
        let Some(body) = answer.body.take() else {
            validator.stays(&answer, asked);
            self.shared.edge.confirm(Document::Crl);
            self.fetching.succeeded(&member, asked);
            return Ok(self.unchanged());
        };
        let name = format!("fetched from {member}");
        let copy = self
            .answers_from_copies()
            .then(|| Bytes::copy_from_slice(&body));
        let trust = Arc::clone(&self.generation().trust);
        // A million entries take a second: on no thread that somebody waits for, and before anything is locked.
        let examined = spawn_blocking(move || trust.examine(Named::new(name, body))).await;
        let examined = examined.map_err(|_| "reading the list broke off".to_owned())?;
        let examined = examined.map_err(|problem| problem.to_string())?;
        if examined.lists.is_empty() {
            return Err(examined.useless.join("; "));
        }
        let lists = examined.lists.into_iter().map(|(list, _)| list).collect();
        let sorted = self.take_newer(lists).await?;
        validator.came(&member, &answer, asked, Instant::now());
        // All of it is in force now, so that whoever gets the same bytes is told the same.
        match copy.filter(|_| sorted.refused.is_empty() && examined.useless.is_empty()) {
            Some(copy) => {
                let trust = Arc::clone(&self.generation().trust);
                self.keep_copy(Document::Crl, copy, &answer, &trust);
            }
            None => self.shared.edge.outdate(Document::Crl),
        }
        self.fetching.succeeded(&member, asked);
        self.fetching.sorted(&member, &sorted, examined.useless);
        for list in &sorted.newer {
            tracing::info!(
                %member,
                issuer = list.issuer(),
                number = list.number(),
                entries = list.entries(),
                "a fetched CRL is in force"
            );
        }
        let lists = sorted.newer.iter().chain(&sorted.in_force);
        let not_kept = self.keep_lists(lists.cloned().collect()).await;
        Ok(self.outcome_of(&sorted, not_kept))
    }

    /// Compares lists with what is in force now, and puts in force what is newer.
    async fn take_newer(self: &Arc<Self>, lists: Vec<FetchedCrl>) -> Result<Sorted, String> {
        let _one_at_a_time = self.reloading.lock().await;
        if !self.is_serving() {
            return Err("the process is stopping".to_owned());
        }
        let trust = Arc::clone(&self.generation().trust);
        let compared = spawn_blocking(move || {
            let mut sorted = Sorted::default();
            for list in lists {
                match trust.compare(&list) {
                    Finding::Newer => sorted.newer.push(list),
                    Finding::InForce => sorted.in_force.push(list),
                    Finding::TakesBack {
                        in_force,
                        is_older,
                        lacking,
                        of: _,
                    } => sorted.refused.push(Refused {
                        told: RefusedCrl {
                            issuer: list.issuer().to_owned(),
                            number: list.number(),
                            entries: list.entries() as u64,
                            in_force,
                            is_older,
                            lacking: lacking as u64,
                            since: SystemTime::now().into(),
                        },
                        list,
                    }),
                }
            }
            let next = (!sorted.newer.is_empty()).then(|| trust.with_lists(&sorted.newer));
            (sorted, next)
        });
        let (sorted, next) = compared
            .await
            .map_err(|_| "comparing the list broke off".to_owned())?;
        if let Some(next) = next {
            self.swap_trust(next);
        }
        Ok(sorted)
    }

    /// Keeps lists for the next start, as far as they are not; why they are not, if so.
    async fn keep_lists(&self, mut lists: Vec<FetchedCrl>) -> Option<String> {
        let unusable = {
            let standing = self.fetching.standing();
            lists.retain(|list| standing.kept.get(&list.key()) != Some(&list.fingerprint()));
            !standing.unusable.is_empty()
        };
        if unusable && let Some(why) = self.keep_accepted().await {
            return Some(why);
        }
        let directory = Arc::clone(&self.state_directory);
        let kept = spawn_blocking(move || {
            let mut kept = BTreeMap::new();
            for list in lists {
                if let Err(error) = lists::keep(&directory, &list) {
                    return (kept, Some(error.to_string()));
                }
                kept.insert(list.key(), list.fingerprint());
            }
            (kept, None)
        });
        let (kept, not_kept) = kept
            .await
            .unwrap_or_else(|error| (BTreeMap::new(), Some(error.to_string())));
        let mut standing = self.fetching.standing();
        standing.kept.extend(kept);
        if not_kept.is_none() {
            standing.unusable.clear();
        }
        not_kept
    }

    fn unchanged(&self) -> CrlFetchOutcome {
        let refused = self.fetching.status().refused;
        CrlFetchOutcome {
            result: match refused.is_empty() {
                true => CrlFetchResult::Unchanged,
                false => CrlFetchResult::Refused,
            },
            report: refused.iter().map(refusal).collect::<Vec<_>>().join("\n"),
        }
    }

    fn outcome_of(&self, sorted: &Sorted, not_kept: Option<String>) -> CrlFetchOutcome {
        let newer = sorted.newer.iter().map(|list| {
            format!(
                "{}: number {} with {} entries is in force",
                list.issuer(),
                list.number(),
                list.entries()
            )
        });
        let refused = sorted.refused.iter().map(|refused| refusal(&refused.told));
        let not_kept = not_kept.map(|why| format!("it is not kept for the next start: {why}"));
        let report: Vec<_> = newer.chain(refused).chain(not_kept).collect();
        let result = match (sorted.refused.is_empty(), sorted.newer.is_empty()) {
            (false, _) => CrlFetchResult::Refused,
            (true, false) => CrlFetchResult::Taken,
            (true, true) => CrlFetchResult::Unchanged,
        };
        CrlFetchOutcome {
            result,
            report: report.join("\n"),
        }
    }

    /// Puts a refused list in force, because an operator says that it is meant.
    pub(crate) async fn accept_list(
        self: Arc<Self>,
        request: CrlAcceptRequest,
        by: Caller,
    ) -> Result<CrlAccepted, CrlAcceptError> {
        let why = request.why.trim().to_owned();
        if why.is_empty() || why.len() > WHY_BYTES_MAX || why.chars().any(char::is_control) {
            return Err(CrlAcceptError::Senseless(format!(
                "say why in one line of 1 to {WHY_BYTES_MAX} bytes"
            )));
        }
        // Between two fetches: what is accepted is what was told last.
        let _turn = self.fetching.turn.lock().await;
        let refused = self.refused_of(&request.issuer)?;
        {
            let _one_at_a_time = self.reloading.lock().await;
            if !self.is_serving() {
                return Err(CrlAcceptError::Stopping);
            }
            for Refused { list, told } in &refused {
                let trust = &self.generation().trust;
                let rules = trust.rules_accepting(list);
                let next = trust.setting_aside(rules.clone());
                self.swap_trust(next.with_lists(std::slice::from_ref(list)));
                self.note_accepted(&rules, told, &why, by);
            }
        }
        let lists = refused.iter().map(|refused| refused.list.clone()).collect();
        let not_kept = match self.keep_accepted().await {
            None => self.keep_lists(lists).await,
            not_kept => not_kept,
        };
        Ok(CrlAccepted {
            accepted: refused.into_iter().map(|refused| refused.told).collect(),
            not_kept,
        })
    }

    fn refused_of(&self, issuer: &str) -> Result<Vec<Refused>, CrlAcceptError> {
        let standing = self.fetching.standing();
        let refused = standing.refused.values();
        let found: Vec<_> = refused
            .clone()
            .filter(|refused| refused.told.issuer == issuer)
            .cloned()
            .collect();
        match found.is_empty() {
            false => Ok(found),
            true => Err(CrlAcceptError::NotRefused {
                issuer: issuer.to_owned(),
                refused: refused.map(|r| r.told.issuer.clone()).collect(),
            }),
        }
    }

    fn note_accepted(&self, rules: &[pki::SetAside], told: &RefusedCrl, why: &str, by: Caller) {
        tracing::warn!(
            issuer = told.issuer,
            number = told.number,
            lacking = told.lacking,
            instead_of = told.in_force,
            %by,
            why,
            "a CRL that takes something back was accepted"
        );
        let mut standing = self.fetching.standing();
        standing.refused.retain(|_, refused| refused.told != *told);
        let rules: Vec<_> = rules.iter().map(ToString::to_string).collect();
        standing.accepted.retain(|one| rules.contains(&one.rule));
        let is_new = |rule: &&String| standing.accepted.iter().all(|one| one.rule != **rule);
        let new: Vec<_> = rules.iter().filter(is_new).cloned().collect();
        standing
            .accepted
            .extend(new.into_iter().map(|rule| Accepted {
                rule,
                issuer: told.issuer.clone(),
                number: told.number.clone(),
                why: why.to_owned(),
                by: by.to_string(),
                at: SystemTime::now().into(),
            }));
    }

    async fn keep_accepted(&self) -> Option<String> {
        let accepted = self.fetching.standing().accepted.clone();
        let directory = Arc::clone(&self.state_directory);
        let kept = spawn_blocking(move || lists::keep_accepted(&directory, &accepted));
        match kept.await {
            Ok(kept) => kept.err().map(|error| error.to_string()),
            Err(error) => Some(error.to_string()),
        }
    }
}

fn refusal(told: &RefusedCrl) -> String {
    format!("refused: {told}")
}

fn ca_pool(generation: &Generation) -> Option<&PoolRuntime> {
    let mut pools = generation.pools.iter();
    pools.find(|pool| &**pool.pool.name() == POOL)
}

/// Places of the members to ask, in order; a backup, whose list may be an older one, after the others.
fn members(pool: &PoolRuntime) -> impl Iterator<Item = usize> {
    let asked = |role: Role| {
        let entries = pool.pool.entries().iter().enumerate();
        entries
            .filter(move |(_, entry)| {
                entry.role == role && entry.member.administrative() != Administrative::Maintenance
            })
            .map(|(index, _)| index)
    };
    asked(Role::Ordinary).chain(asked(Role::Backup))
}
