//! How fetching of revocation lists stands: what was answered last, what fails, what is refused and waits for an operator.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use admin::{CrlFetchStatus, FailingFetch, RefusedCrl};
use pki::{CrlComparison, FetchedCrl, Fingerprint, TrustStore};
use telemetry::Alarm;
use tokio::sync::{Notify, Semaphore};

use crate::trust::{
    conditional_request::Validator,
    crl_fetch::Before,
    stored_crls::{Accepted, Restored},
};

/// Fetches that operators may have under way: the one that runs, and one that begins after it and so sees whatever has
/// changed until then. Each takes a place of the admin socket while it waits for a CA.
const ASKED_BY_HAND_MAX: usize = 2;

/// Fetching as it stands, over all generations.
#[derive(Debug)]
pub(crate) struct Fetching {
    /// Held by the fetch that runs: one at a time.
    pub(crate) turn: tokio::sync::Mutex<Validator>,
    /// Places for fetches that operators ask for.
    pub(crate) by_hand: Semaphore,
    /// Held by who writes lists down, or what operators have accepted.
    pub(crate) keeping: tokio::sync::Mutex<()>,
    standing: Mutex<FetchRecord>,
    /// Told after a reload, and when the bundle has other CAs: whom to ask may be another, and so may what is in force.
    pub(crate) reloaded: Notify,
}

/// What came of it so far.
#[derive(Debug, Default)]
pub(crate) struct FetchRecord {
    asked: Option<SystemTime>,
    answered: Option<SystemTime>,
    member: Option<Arc<str>>,
    failing: Option<(SystemTime, String)>,
    /// Of the last answer, what is of no use.
    useless: Vec<String>,
    /// Lists that take something back, by the digest of their issuer: one each, there are as many as CAs in the bundle.
    pub(crate) refused: BTreeMap<Fingerprint, Refused>,
    pub(crate) accepted: Vec<Accepted>,
    /// What the start could not use of the state directory.
    pub(crate) unusable: Vec<String>,
    /// The list of each issuer that the state directory has.
    pub(crate) kept: BTreeMap<Fingerprint, Fingerprint>,
    /// The list of each issuer that it is to have and has not.
    pub(crate) unkept: BTreeMap<Fingerprint, FetchedCrl>,
}

/// A list that takes something back, and what is told of it.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    pub(crate) list: FetchedCrl,
    pub(crate) told: RefusedCrl,
}

/// What became of the lists of one answer.
#[derive(Default)]
pub(crate) struct Sorted {
    pub(crate) newer: Vec<FetchedCrl>,
    pub(crate) refused: Vec<Refused>,
    pub(crate) in_force: Vec<FetchedCrl>,
    /// Those that an operator has replaced.
    pub(crate) replaced: Vec<FetchedCrl>,
}

impl Fetching {
    /// With what a start has found of the time before.
    pub(crate) fn restored(restored: &Restored) -> Self {
        let standing = FetchRecord {
            accepted: restored.accepted.clone(),
            unusable: restored.unusable.clone(),
            kept: restored.kept.clone(),
            ..FetchRecord::default()
        };
        Self {
            turn: tokio::sync::Mutex::default(),
            by_hand: Semaphore::new(ASKED_BY_HAND_MAX),
            keeping: tokio::sync::Mutex::default(),
            standing: Mutex::new(standing),
            reloaded: Notify::new(),
        }
    }

    pub(crate) fn standing(&self) -> MutexGuard<'_, FetchRecord> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the operator.
    pub(crate) fn status(&self) -> CrlFetchStatus {
        let standing = self.standing();
        CrlFetchStatus {
            last_attempt: standing.asked.map(Into::into),
            last_answer: standing.answered.map(Into::into),
            member: standing.member.as_ref().map(ToString::to_string),
            failing: standing.failing.as_ref().map(|(since, why)| FailingFetch {
                since: (*since).into(),
                why: why.clone(),
            }),
            refused: standing.refused.values().map(|r| r.told.clone()).collect(),
        }
    }

    /// What is wrong: the kind of alarm, which of several, and the sentence.
    pub(crate) fn alarms(&self) -> Vec<(Alarm, String, String)> {
        let standing = self.standing();
        let failing = standing.failing.iter().map(|(since, why)| {
            let since = admin::Timestamp::from(*since);
            let message = format!(
                "no CRL could be fetched since {since}; the previous CRLs stay active: {why}"
            );
            (Alarm::CrlFetch, String::new(), message)
        });
        let refused = standing.refused.values().map(|refused| {
            let refused = &refused.told;
            let message = format!(
                "refused a fetched CRL because it drops revocations: {refused}. To accept it, run proscenium crl accept \"{}\" --why TEXT",
                refused.issuer
            );
            (Alarm::CrlRefused, refused.issuer.clone(), message)
        });
        let unusable = standing.useless.iter().chain(&standing.unusable);
        let unusable = unusable.map(|why| (Alarm::CrlUnusable, why.clone(), why.clone()));
        failing.chain(refused).chain(unusable).collect()
    }

    pub(crate) fn asks(&self, at: SystemTime) {
        self.standing().asked = Some(at);
    }

    /// Notes a fetch that brought nothing of use; the same story is told once.
    pub(crate) fn failed(&self, why: &str) {
        let mut standing = self.standing();
        let since = match &standing.failing {
            Some((_, told)) if told == why => return,
            Some((since, _)) => *since,
            None => SystemTime::now(),
        };
        standing.failing = Some((since, why.to_owned()));
    }

    pub(crate) fn succeeded(&self, member: &Arc<str>, at: SystemTime) {
        let mut standing = self.standing();
        standing.answered = Some(at);
        standing.member = Some(Arc::clone(member));
        standing.failing = None;
    }

    /// Forgets what was refused of CAs that have left the bundle.
    pub(crate) fn forget_others(&self, trust: &TrustStore) {
        let issuers = trust.issuers();
        let is_there = |key: &Fingerprint| issuers.iter().any(|(issuer, _)| issuer == key);
        self.standing().refused.retain(|key, _| is_there(key));
    }

    /// Notes what became of an answer's lists. A refusal is told once, and that of a member asked before stays.
    pub(crate) fn sorted(&self, sorted: &Sorted, before: &Before) {
        let mut standing = self.standing();
        standing.useless.clone_from(&before.useless);
        if before.is_refused() {
            return;
        }
        for list in sorted.newer.iter().chain(&sorted.in_force) {
            standing.refused.remove(&list.key());
        }
        for refused in &sorted.refused {
            let known = standing.refused.get(&refused.list.key());
            if known.is_some_and(|known| known.is_same(refused)) {
                continue;
            }
            standing.refused.insert(refused.list.key(), refused.clone());
        }
    }
}

impl Refused {
    /// A list that compares so with what is in force; none: it takes nothing back.
    pub(crate) fn of(list: &FetchedCrl, finding: CrlComparison) -> Option<Self> {
        let CrlComparison::DropsRevocations {
            active_number: in_force,
            is_older,
            lacking,
            of: _,
        } = finding
        else {
            return None;
        };
        Some(Self {
            told: RefusedCrl {
                issuer: list.issuer().to_owned(),
                number: list.number(),
                entries: list.entries() as u64,
                active_number: in_force,
                is_older,
                missing: lacking as u64,
                since: SystemTime::now().into(),
            },
            list: list.clone(),
        })
    }

    /// Whether it is the same list, and takes the same back.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let of = |one: &Self| (one.told.active_number.clone(), one.told.missing);
        self.list.fingerprint() == other.list.fingerprint() && of(self) == of(other)
    }
}
