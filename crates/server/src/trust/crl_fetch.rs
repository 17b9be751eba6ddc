//! Revocation lists from the CA itself: asked for time and again, held against what is in force, put in force, kept.
//!
//! Whatever goes wrong on the way leaves what is in force as it is, with an alarm.

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use admin::{CrlFetchOutcome, CrlFetchResult, RefusedCrl};
use bytes::Bytes;
use config::Fetch;
use pki::{CrlComparison, ExaminedCrls, FetchedCrl, Named, PkiProblem, TrustStore};
use routing::Document;
use tokio::{task::spawn_blocking, time::sleep};

use crate::{
    app::App,
    trust::{
        ca_requests::{Answered, Members, Wanted},
        conditional_request::Validator,
        crl_fetch_state::{Refused, Sorted},
        stored_crls,
    },
};

/// Where a CA has its list, and that of each CA above it.
const PATH: &str = "/puppet-ca/v1/certificate_revocation_list/ca";

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FetchScope {
    /// Whatever has changed.
    Changes,
    /// The whole list, whatever its date.
    Whole,
}

/// Fetches until it is dropped: at once, then time and again, and after each reload.
pub(crate) async fn keep(app: Arc<App>) {
    let mut asked = FetchScope::Whole;
    loop {
        let fetch = app.fetch_settings();
        app.judge_copies().await;
        app.fetching.forget_others(&app.generation().trust);
        app.update_fetch_alarms();
        if fetch.is_some() {
            Arc::clone(&app).fetch_lists(asked).await;
        }
        // Where nothing is fetched any more it clears its alarm.
        app.fetch_cas(asked).await;
        asked = tokio::select! {
            () = wait(fetch) => FetchScope::Changes,
            () = app.fetching.reloaded.notified() => FetchScope::Whole,
        };
    }
}

async fn wait(fetch: Option<Fetch>) {
    match fetch {
        // Shorter and never longer: the interval is how long a revoked agent may go on.
        Some(fetch) => {
            let jitter = part_of(fetch.jitter.min(fetch.interval / 2));
            sleep(fetch.interval - jitter).await;
        }
        None => std::future::pending().await,
    }
}

/// A random part of a duration: the standard library's hasher starts at random.
fn part_of(most: Duration) -> Duration {
    let random = RandomState::new().hash_one(()) as u32;
    most.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

impl App {
    pub(crate) fn fetch_settings(&self) -> Option<Fetch> {
        self.state().foundation.config.trust.fetch
    }

    /// Asks the CA for its lists and puts in force what is newer.
    pub(crate) async fn fetch_lists(self: Arc<Self>, asked: FetchScope) -> CrlFetchOutcome {
        let mut validator = self.fetching.turn.lock().await;
        let Some(fetch) = self.fetch_settings().filter(|_| self.is_serving()) else {
            return CrlFetchOutcome {
                result: CrlFetchResult::Off,
                report: "CRLs are not fetched: [trust.fetch] is off, or the process is stopping"
                    .to_owned(),
            };
        };
        let is_copied = self.shared.edge.copy(Document::Crl).is_some();
        if asked == FetchScope::Whole || self.answers_from_copies() && !is_copied {
            validator.forget();
        }
        self.fetching.asks(SystemTime::now());
        let outcome = self.fetch_from_members(fetch, &mut validator).await;
        let outcome = outcome.unwrap_or_else(|why| {
            // What is wrong may have been that answer alone: the next one is wanted whole.
            validator.forget();
            self.fetching.failed(&why);
            CrlFetchOutcome {
                result: CrlFetchResult::Failed,
                report: why,
            }
        });
        self.update_fetch_alarms();
        self.lasting.metrics.crls_fetched(outcome.result.as_str());
        outcome
    }

    /// As [`Self::fetch_lists`], because an operator asks.
    pub(crate) async fn fetch_lists_by_hand(self: Arc<Self>) -> CrlFetchOutcome {
        let Ok(_place) = self.fetching.by_hand.try_acquire() else {
            return CrlFetchOutcome {
                result: CrlFetchResult::Failed,
                report: "a fetch is in progress and another is waiting: see \"proscenium crl show\", or try again later"
                    .to_owned(),
            };
        };
        Arc::clone(&self).fetch_lists(FetchScope::Whole).await
    }

    /// What came of the first answer that is of use and takes nothing back; otherwise what is wrong with each.
    async fn fetch_from_members(
        self: &Arc<Self>,
        fetch: Fetch,
        validator: &mut Validator,
    ) -> Result<CrlFetchOutcome, String> {
        let wanted = Wanted {
            path: PATH,
            bytes_max: fetch.body_bytes_max,
            fetch,
        };
        let mut members = Members::of(self)?;
        let (mut silent, mut before) = (Vec::new(), Before::default());
        while let Some(answered) = members.ask_next(wanted, validator).await {
            match answered {
                Err(why) => silent.push(why),
                Ok(answered) => {
                    let member = Arc::clone(&answered.member);
                    match self.judge(answered, validator, &mut before).await {
                        // Another may know what this one has lost.
                        Ok(outcome) if before.is_open => before.told(outcome),
                        Ok(outcome) => return Ok(before.with(outcome)),
                        Err(why) => {
                            let story = format!("the response of {member} cannot be used: {why}");
                            before.useless.push(story);
                        }
                    }
                }
            }
        }
        if let Some(outcome) = before.outcome {
            return Ok(outcome);
        }
        silent.append(&mut before.useless);
        Err(silent.join("; "))
    }

    /// Holds an answer against what is in force, and puts in force what is newer. `before`: what came of answers of other
    /// members.
    async fn judge(
        self: &Arc<Self>,
        answered: Answered,
        validator: &mut Validator,
        before: &mut Before,
    ) -> Result<CrlFetchOutcome, String> {
        let Answered {
            member,
            asked,
            asked_at,
            mut answer,
        } = answered;
        let Some(body) = answer.body.take() else {
            validator.stays(&answer, asked);
            self.shared.edge.confirm(Document::Crl, asked_at);
            self.fetching.succeeded(&member, asked);
            let outcome = self.unchanged();
            before.is_open = outcome.result == CrlFetchResult::Refused;
            return Ok(outcome);
        };
        let (copy, mut examined) = self.examine(&member, body).await?;
        if examined.crls.is_empty() {
            return Err(examined.unusable.join("; "));
        }
        let lists: Vec<_> = examined.crls.into_iter().map(|(list, _)| list).collect();
        let given: Vec<_> = lists.iter().map(FetchedCrl::key).collect();
        let (sorted, trust) = self.take_newer(lists).await?;
        validator.came(&member, &answer, asked, Instant::now());
        examined
            .unusable
            .extend(sorted.replaced.iter().map(|list| replaced(&member, list)));
        // All of it is in force now, so that whoever gets the same bytes is told the same.
        match copy.filter(|_| sorted.refused.is_empty() && examined.unusable.is_empty()) {
            Some(copy) => self.keep_copy(Document::Crl, copy, (&answer, asked_at), &trust),
            None => self.shared.edge.outdate(Document::Crl),
        }
        self.fetching.succeeded(&member, asked);
        before.is_open = !(sorted.refused.is_empty() && sorted.replaced.is_empty());
        if !sorted.replaced.is_empty() {
            // Nothing is known of what this member will have next.
            validator.forget();
        }
        before.useless.append(&mut examined.unusable);
        let lacking = trust.fetched_crls_not_among(&given).into_iter();
        before
            .useless
            .extend(lacking.map(|issuer| not_given(&member, issuer)));
        self.fetching.sorted(&sorted, before);
        for list in &sorted.newer {
            tracing::info!(
                %member,
                issuer = list.issuer(),
                number = list.number(),
                entries = list.entries(),
                "activated a fetched CRL"
            );
        }
        let lists = sorted.newer.iter().chain(&sorted.in_force);
        let not_persisted = self.keep_lists(lists.cloned().collect()).await;
        Ok(self.outcome_of(&sorted, not_persisted))
    }

    /// Reads an answer; with it a copy to answer with, where that is wanted.
    async fn examine(
        &self,
        member: &str,
        body: Vec<u8>,
    ) -> Result<(Option<Bytes>, ExaminedCrls), String> {
        let name = format!("fetched from {member}");
        let is_copied = self.answers_from_copies();
        let trust = Arc::clone(&self.generation().trust);
        // A million entries take a second: on no thread that somebody waits for, and before anything is locked.
        let examined = spawn_blocking(move || {
            let copy = is_copied.then(|| Bytes::copy_from_slice(&body));
            let is_alone = !is_copied || pki::holds_only_crls(&body);
            let mut examined = trust.examine(Named::new(name, body))?;
            if !is_alone {
                examined.unusable.push(
                    "the CA's response contains something other than CRLs that agents could take for a CRL, so the proxy does not serve it from a copy"
                        .to_owned(),
                );
            }
            Ok((copy, examined))
        });
        let examined = examined
            .await
            .map_err(|_| "reading the CRL failed".to_owned())?;
        examined.map_err(|problem: PkiProblem| problem.to_string())
    }

    /// Compares lists with what is in force now, and puts in force what is newer; with the trust that they are part of.
    async fn take_newer(
        self: &Arc<Self>,
        lists: Vec<FetchedCrl>,
    ) -> Result<(Sorted, Arc<TrustStore>), String> {
        let _one_at_a_time = self.reloading.lock().await;
        if !self.is_serving() {
            return Err("the process is stopping".to_owned());
        }
        let trust = Arc::clone(&self.generation().trust);
        let compared = spawn_blocking(move || {
            let mut sorted = Sorted::default();
            for list in lists {
                match trust.compare(&list) {
                    CrlComparison::Newer => sorted.newer.push(list),
                    CrlComparison::Active => sorted.in_force.push(list),
                    CrlComparison::Replaced => sorted.replaced.push(list),
                    finding => sorted.refused.extend(Refused::of(&list, finding)),
                }
            }
            let next = (!sorted.newer.is_empty()).then(|| trust.with_crls(&sorted.newer));
            (sorted, next)
        });
        let (sorted, next) = compared
            .await
            .map_err(|_| "the comparison of the CRLs failed".to_owned())?;
        if let Some(next) = next {
            self.swap_trust(next);
        }
        Ok((sorted, Arc::clone(&self.generation().trust)))
    }

    /// Keeps lists for the next start, as far as they are not, and those that could not be kept before; why one is not,
    /// if so.
    pub(crate) async fn keep_lists(&self, lists: Vec<FetchedCrl>) -> Option<String> {
        let is_damaged = {
            let mut standing = self.fetching.standing();
            for list in lists {
                match standing.kept.get(&list.key()) == Some(&list.fingerprint()) {
                    true => standing.unkept.remove(&list.key()),
                    false => standing.unkept.insert(list.key(), list),
                };
            }
            !standing.unusable.is_empty()
        };
        // First: without an operator's word an accepted list would not count.
        let word = is_damaged || self.state_directory.lacks(stored_crls::ACCEPTED_FILE);
        let mut not_persisted = match word {
            true => self.keep_accepted().await,
            false => None,
        };
        let _one_at_a_time = self.fetching.keeping.lock().await;
        // Read now: of two that write the later one writes what is in force by then.
        let unkept: Vec<_> = self.fetching.standing().unkept.values().cloned().collect();
        let directory = Arc::clone(&self.state_directory);
        let written = spawn_blocking(move || {
            let write = |list: FetchedCrl| {
                let written =
                    stored_crls::keep(&directory, &list).map_err(|error| error.to_string());
                (list.key(), list.fingerprint(), written)
            };
            unkept.into_iter().map(write).collect::<Vec<_>>()
        });
        let written = match written.await {
            Ok(written) => written,
            Err(error) => return Some(error.to_string()),
        };
        let mut standing = self.fetching.standing();
        for (key, list, written) in written {
            if let Err(why) = written {
                standing.kept.remove(&key);
                not_persisted.get_or_insert(why);
                continue;
            }
            standing.kept.insert(key, list);
            let latest = standing.unkept.get(&key);
            if latest.is_some_and(|latest| latest.fingerprint() == list) {
                standing.unkept.remove(&key);
            }
        }
        if not_persisted.is_none() {
            standing.unusable.clear();
        }
        drop(standing);
        self.update_fetch_alarms();
        not_persisted
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

    fn outcome_of(&self, sorted: &Sorted, not_persisted: Option<String>) -> CrlFetchOutcome {
        let newer = sorted.newer.iter().map(|list| {
            format!(
                "{}: number {} with {} entries is active",
                list.issuer(),
                list.number(),
                list.entries()
            )
        });
        let refused = sorted.refused.iter().map(|refused| refusal(&refused.told));
        let not_persisted =
            not_persisted.map(|why| format!("it could not be saved for the next start: {why}"));
        let report: Vec<_> = newer.chain(refused).chain(not_persisted).collect();
        let result = match (sorted.refused.is_empty(), sorted.newer.is_empty()) {
            (false, _) => CrlFetchResult::Refused,
            (true, false) => CrlFetchResult::Applied,
            (true, true) => CrlFetchResult::Unchanged,
        };
        CrlFetchOutcome {
            result,
            report: report.join("\n"),
        }
    }
}

/// What came of the answers of members that were asked before another, for one of them was refused or of no use.
#[derive(Default)]
pub(crate) struct Before {
    /// What is wrong with them, as sentences.
    pub(crate) useless: Vec<String>,
    /// What was told of the first that takes something back.
    outcome: Option<CrlFetchOutcome>,
    /// Whether the last answer was of use and took something back.
    is_open: bool,
}

impl Before {
    /// Whether a refusal stands, whatever another member says.
    pub(crate) fn is_refused(&self) -> bool {
        let outcome = self.outcome.as_ref();
        outcome.is_some_and(|outcome| outcome.result == CrlFetchResult::Refused)
    }

    fn told(&mut self, outcome: CrlFetchOutcome) {
        self.outcome.get_or_insert(outcome);
    }

    /// An answer that takes nothing back, beside what was told of one that does.
    fn with(self, outcome: CrlFetchOutcome) -> CrlFetchOutcome {
        match self.outcome {
            Some(refused) if refused.result == CrlFetchResult::Refused => CrlFetchOutcome {
                report: format!("{}\n{}", refused.report, outcome.report)
                    .trim_end()
                    .to_owned(),
                ..refused
            },
            _ => outcome,
        }
    }
}

fn not_given(member: &str, issuer: &str) -> String {
    format!(
        "{member} provides no CRL of {issuer}, a CA of the bundle, so the active CRL, which was fetched, is no longer refreshed; fix the CA server, or set that CRL in [trust] crl"
    )
}

fn replaced(member: &str, list: &FetchedCrl) -> String {
    format!(
        "the response of {member} cannot be used: CRL number {} of {} is the one that an operator has replaced (crl accept)",
        list.number(),
        list.issuer()
    )
}

fn refusal(refused: &RefusedCrl) -> String {
    format!("refused: {refused}")
}
