//! CRLs that the proxy fetched, and their comparison with the active ones.
//!
//! An operator who replaces a file intends the change. The response of a server shows no such intention: it may contain the
//! infrastructure CRL instead of the full one, the CRL of a CA that was restored from an old backup, or a forgery. Revocations
//! in a fetched CRL therefore apply at once, and revocations that it drops stay active until an operator accepts the change.

use std::sync::Arc;

use crate::certificate::Subject;
use crate::crl::{Crl, SerialSet};
use crate::crl_sorting::{CrlSorter, SortedCrl};
use crate::earlier_revocations::EarlierRevocations;
use crate::fingerprint::Fingerprint;
use crate::indexed_crl::{CrlOrigin, IndexedCrl};
use crate::issuer_crls::IssuerCrls;
use crate::pem::{self, Block, Named};
use crate::problem::PkiProblem;
use crate::retained_serials::RetainedSerials;
use crate::revocation::RevocationIndex;
use crate::set_aside::{SetAsideRule, SetAsideScope, is_set_aside};
use crate::store::TrustStore;

/// The result of examining a fetched document.
#[derive(Debug, Default)]
pub struct ExaminedCrls {
    /// The CRLs of each issuer of the bundle, compared with the active ones.
    pub crls: Vec<(FetchedCrl, CrlComparison)>,
    /// Why CRLs are unusable, as sentences. Only the first few are included.
    pub unusable: Vec<String>,
}

/// The CRLs of one issuer in a response. Their signatures were verified with the issuer's key in the bundle.
#[derive(Clone, Debug)]
pub struct FetchedCrl {
    pub(crate) issuer: Fingerprint,
    /// The newest of these CRLs.
    pub(crate) crl: Arc<IndexedCrl>,
    name: String,
    der: Arc<[u8]>,
    others: Vec<Arc<IndexedCrl>>,
}

/// The stored revocations of one issuer in the state directory.
#[derive(Debug)]
pub struct StoredRevocations {
    /// Digest of the issuer's name and key.
    pub key: Fingerprint,
    /// The CRL that was fetched last.
    pub crl: Option<FetchedCrl>,
    /// The serials that this CRL does not list.
    pub retained: RetainedSerials,
}

/// How a fetched CRL compares with the active CRLs of the same issuer key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CrlComparison {
    /// It is the active CRL, or has no revocation that the active CRL lacks.
    Active,
    /// It is newer than the active CRL, or revokes more.
    Newer,
    /// An operator has replaced this CRL. It never becomes active again.
    Replaced,
    /// It drops revocations: it is a different CRL, an old copy, or from a CA that was restored, or the CA has removed entries.
    DropsRevocations {
        /// Number of the newest active CRL.
        active_number: String,
        /// Whether the number of the fetched CRL is lower.
        is_older: bool,
        /// Number of revoked certificates that the fetched CRL lacks.
        lacking: usize,
        /// Number of these that no file lists either. [`TrustStore::accepting`] removes these revocations.
        accepted_again: usize,
        /// Whether it is nevertheless newer or revokes more, and therefore becomes active too.
        is_news: bool,
    },
}

impl TrustStore {
    /// Compares the CRLs of a PEM document with the active CRLs. This takes a while for large CRLs.
    ///
    /// # Errors
    /// A document that is not PEM, is truncated, or contains a block that is not a CRL.
    pub fn examine(&self, fetched: Named<Vec<u8>>) -> Result<ExaminedCrls, PkiProblem> {
        let blocks = pem::crls(&fetched)?;
        // The document is a third larger than the blocks, so its memory is freed early.
        drop(fetched);
        self.revocation.examine_blocks(blocks)
    }

    /// Like [`Self::examine`], for the DER of one CRL. [`FetchedCrl::der`] is stored in that format.
    ///
    /// # Errors
    /// Bytes that are not a CRL.
    pub fn examine_der(&self, stored: Named<Vec<u8>>) -> Result<ExaminedCrls, PkiProblem> {
        self.revocation.examine_blocks(vec![Block {
            name: stored.name,
            number: 1,
            der: stored.value,
        }])
    }

    /// The next generation, in which these CRLs replace those that were fetched before. Every revocation stays active.
    #[must_use]
    pub fn with_crls(&self, crls: &[FetchedCrl]) -> Self {
        let mut next = self.next();
        for fetched in crls {
            let active = self.revocation.crls.get(&fetched.issuer);
            let files = active.into_iter().flat_map(|active| active.of_files());
            let provided = fetched.lists().chain(files).cloned().collect();
            let earlier = self.revocation.earlier(fetched.issuer);
            next.put(fetched.issuer, provided, earlier);
        }
        next.settle();
        next
    }

    /// The next generation with the revocations that earlier processes stored. `fetches`: whether the stored CRLs count as
    /// provided by the CA until the next fetch. None if nothing changes.
    #[must_use]
    pub fn with_restored(&self, stored: &[StoredRevocations], fetches: bool) -> Option<Self> {
        let mut next = self.next();
        for StoredRevocations { key, crl, retained } in stored {
            let stored: Vec<_> = crl.iter().flat_map(FetchedCrl::lists).cloned().collect();
            let mut provided = if fetches { stored.clone() } else { Vec::new() };
            if let Some(active) = self.revocation.crls.get(key) {
                provided.extend(active.all_provided().cloned());
            }
            let counts =
                |crl: &Arc<IndexedCrl>| !is_set_aside(&self.revocation.set_aside, *key, crl);
            let stored = stored.into_iter().filter(counts).collect();
            let earlier = self.revocation.earlier(*key);
            next.put(*key, provided, earlier.with(stored, &retained.0));
        }
        next.settle();
        (next.whole != self.whole).then_some(next)
    }

    /// Makes these CRLs the provided CRLs of an issuer of the bundle, except for those that are set aside.
    fn put(
        &mut self,
        issuer: Fingerprint,
        provided: Vec<Arc<IndexedCrl>>,
        earlier: EarlierRevocations,
    ) {
        if self.anchors.bundle.issuers.contains_key(&issuer) {
            self.revocation.put(issuer, provided, earlier);
        }
    }

    /// The next generation, in which an operator has accepted the CRLs that the CA and the files provide for an issuer.
    /// Revocations of other CRLs are removed, and these other CRLs are not used again, wherever they come from. `fetched` is
    /// accepted in place of the CRL that was fetched before. The new rule sets no files aside, because an operator provides
    /// them. [`Self::further_crls`] must be 0.
    #[must_use]
    pub fn accepting(&self, issuer: Fingerprint, fetched: Option<&FetchedCrl>) -> Self {
        let mut next = self.next();
        let Some(active) = self.revocation.crls.get(&issuer) else {
            return next;
        };
        let accepted = match fetched {
            Some(fetched) => self.revocation.with_files(fetched),
            None => active.without_copies(),
        };
        next.revocation.set_aside = self.rules_accepting(issuer, active, &accepted).into();
        next.put(issuer, accepted, EarlierRevocations::default());
        next.settle();
        next
    }

    /// How many CRLs are provided for an issuer beyond those that can be accepted.
    #[must_use]
    pub fn further_crls(&self, issuer: Fingerprint) -> usize {
        let active = self.revocation.crls.get(&issuer);
        active.map_or(0, |active| active.further_count())
    }

    /// The rules that set aside the CRLs that are not accepted, together with earlier rules and the rules for other CAs of the
    /// bundle.
    fn rules_accepting(
        &self,
        issuer: Fingerprint,
        active: &IssuerCrls,
        accepted: &[Arc<IndexedCrl>],
    ) -> Vec<SetAsideRule> {
        let is_accepted = |crl: &&Arc<IndexedCrl>| {
            accepted
                .iter()
                .any(|accepted| accepted.fingerprint == crl.fingerprint)
        };
        let replaced: Vec<_> = active.lists().filter(|crl| !is_accepted(crl)).collect();
        let is_file = |crl: &IndexedCrl| crl.origin == CrlOrigin::File;
        let are_files = accepted.iter().all(|crl| is_file(crl));
        let rules = (0..accepted.len().max(replaced.len())).map(|index| {
            let one = &accepted[index.min(accepted.len() - 1)];
            let replaced = replaced.get(index);
            SetAsideRule {
                issuer,
                accepted: one.fingerprint,
                scope: match (is_file(one), are_files) {
                    (true, true) => SetAsideScope::All,
                    (true, false) => SetAsideScope::Files,
                    (false, _) => SetAsideScope::Fetched,
                },
                number: one.crl.number.clone(),
                made: replaced
                    .map_or(&active.newest, |replaced| *replaced)
                    .crl
                    .this_update,
                replaced: replaced.map(|replaced| replaced.fingerprint),
            }
        });
        let rules: Vec<_> = rules.collect();
        let earlier = self.revocation.set_aside.iter();
        let (of_issuer, others): (Vec<_>, Vec<_>) =
            earlier.cloned().partition(|rule| rule.issuer == issuer);
        // A CRL that was set aside before stays set aside. This includes a CRL that was accepted earlier and is replaced now.
        let former = of_issuer
            .into_iter()
            .filter(|rule| !rules.iter().any(|new| new.includes(rule)))
            .map(|rule| SetAsideRule {
                accepted: rules.first().map_or(rule.accepted, |new| new.accepted),
                ..rule
            });
        let former: Vec<_> = former.collect();
        let forgotten = former.len().saturating_sub(FORMER_RULES_MAX);
        let is_in_bundle =
            |rule: &SetAsideRule| self.anchors.bundle.issuers.contains_key(&rule.issuer);
        let others = others.into_iter().filter(is_in_bundle);
        let former = former.into_iter().skip(forgotten);
        others.chain(former).chain(rules).collect()
    }

    /// The serials of an issuer that the state directory must have in addition to the stored CRL with this digest. None if the
    /// issuer has no active CRL; then the stored serials stay as they are.
    #[must_use]
    pub fn retained(
        &self,
        issuer: Fingerprint,
        stored: Option<Fingerprint>,
    ) -> Option<RetainedSerials> {
        self.revocation.crls.get(&issuer)?;
        let active = self.revocation.earlier(issuer);
        let is_stored = |crl: &&Arc<IndexedCrl>| Some(crl.fingerprint) == stored;
        let stored: Vec<_> = active.lists.iter().filter(is_stored).cloned().collect();
        Some(RetainedSerials(active.unlisted_in(&stored)))
    }

    /// These serials of an issuer, together with those of `before` that are still revoked.
    #[must_use]
    pub fn retained_with(
        &self,
        issuer: Fingerprint,
        retained: &RetainedSerials,
        before: &RetainedSerials,
    ) -> RetainedSerials {
        let active = self.revocation.crls.get(&issuer);
        let is_revoked = |serial: &&[u8]| active.is_some_and(|active| active.revoke(serial));
        let before = before.0.iter().filter(is_revoked);
        RetainedSerials(SerialSet::new(retained.0.iter().chain(before).collect()))
    }

    /// The next generation with other set-aside rules. A rule for CRLs that are not loaded has no effect.
    ///
    /// For an issuer with a new rule, only revocations in CRLs that are used now stay active, because an operator has accepted
    /// these CRLs meanwhile.
    #[must_use]
    pub fn with_set_aside_rules(&self, rules: Vec<SetAsideRule>) -> Self {
        let mut next = self.next();
        let is_new = |rule: &&SetAsideRule| !self.revocation.set_aside.contains(rule);
        let issuers: Vec<_> = rules
            .iter()
            .filter(is_new)
            .map(|rule| rule.issuer)
            .collect();
        next.revocation.set_aside = rules.into();
        for issuer in issuers {
            if let Some(active) = self.revocation.crls.get(&issuer) {
                let provided = active.all_provided().cloned().collect();
                next.put(issuer, provided, EarlierRevocations::default());
            }
        }
        next.settle();
        next
    }

    /// The set-aside rules.
    pub fn set_aside_rules(&self) -> &[SetAsideRule] {
        &self.revocation.set_aside
    }

    /// Compares a CRL with the active one of the same issuer.
    #[must_use]
    pub fn compare(&self, fetched: &FetchedCrl) -> CrlComparison {
        self.revocation.compare(fetched)
    }

    /// Subjects of the bundle's CAs whose active CRL was fetched, by the proxy or by an agent, and that are not among
    /// `issuers`.
    #[must_use]
    pub fn fetched_crls_not_among(&self, issuers: &[Fingerprint]) -> Vec<&str> {
        self.revocation.fetched_crls_not_among(issuers)
    }
}

impl RevocationIndex {
    fn examine_blocks(&self, blocks: Vec<Block>) -> Result<ExaminedCrls, PkiProblem> {
        let sorter = CrlSorter::new(&self.anchors, None);
        let mut examined = ExaminedCrls::default();
        let mut crls: Vec<FetchedCrl> = Vec::new();
        for block in blocks {
            let sorted = match sorter.sort(&block, CrlOrigin::Fetched)? {
                SortedCrl::Known(issuer, crl) => FetchedCrl {
                    issuer,
                    name: Subject(&crl.crl.issuer).to_string(),
                    crl: Arc::new(crl),
                    der: block.der.into(),
                    others: Vec::new(),
                },
                SortedCrl::Unusable(why) => {
                    examined.note_unusable(why);
                    continue;
                }
                SortedCrl::Stray(crl) => {
                    examined.note_unusable(format!(
                        "CRL {} is not used: no CA {} of the bundle signed it",
                        block.place(),
                        Subject(&crl.crl.issuer)
                    ));
                    continue;
                }
            };
            match crls.iter_mut().find(|known| known.issuer == sorted.issuer) {
                None => crls.push(sorted),
                Some(known) => known.add(sorted),
            }
        }
        let compared = crls.into_iter().map(|fetched| {
            let finding = self.compare(&fetched);
            (fetched, finding)
        });
        examined.crls = compared.collect();
        Ok(examined)
    }

    fn compare(&self, fetched: &FetchedCrl) -> CrlComparison {
        let lists = fetched.lists().cloned();
        let counts = |crl: &Arc<IndexedCrl>| !is_set_aside(&self.set_aside, fetched.issuer, crl);
        let lists: Vec<_> = lists.filter(counts).collect();
        let Some(newest) = lists.iter().max_by(|a, b| a.crl.age(&b.crl)) else {
            return CrlComparison::Replaced;
        };
        let earlier = self.earlier(fetched.issuer);
        let lacking = earlier.unlisted_in(&lists).len();
        let accepted_again = earlier.unlisted_in(&self.with_files(fetched)).len();
        let old = earlier.newest().map(|newest| &newest.crl);
        let by_date = |old: &Crl| {
            let dates = [&newest.crl, old].map(|crl| crl.this_update.as_secs());
            dates[0].cmp(&dates[1])
        };
        let is_older = old
            .is_some_and(|old| newest.crl.is_before(old) && (lacking > 0 || by_date(old).is_lt()));
        let is_newer = old
            .is_none_or(|old| newest.crl.age(old).is_gt() || lacking == 0 && by_date(old).is_gt());
        let is_news = is_newer || earlier.is_extended_by(&lists);
        if lacking > 0 || is_older {
            CrlComparison::DropsRevocations {
                active_number: old.map_or_else(|| "none".to_owned(), Crl::number_text),
                is_older,
                lacking,
                accepted_again,
                is_news,
            }
        } else if is_news || earlier.dropped.len() > 0 {
            CrlComparison::Newer
        } else {
            CrlComparison::Active
        }
    }

    /// A fetched CRL together with its issuer's CRLs in files. An operator accepts all of them together.
    fn with_files(&self, fetched: &FetchedCrl) -> Vec<Arc<IndexedCrl>> {
        let active = self.crls.get(&fetched.issuer);
        let provided = active.into_iter().flat_map(|active| active.all_provided());
        let files = provided.filter(|crl| crl.origin == CrlOrigin::File);
        fetched.lists().chain(files).cloned().collect()
    }

    fn fetched_crls_not_among(&self, issuers: &[Fingerprint]) -> Vec<&str> {
        let fetched = self.anchors.issuers().into_iter().filter(|(issuer, _)| {
            let active = self.crls.get(issuer);
            active.is_some_and(|active| active.newest.origin != CrlOrigin::File)
                && !issuers.contains(issuer)
        });
        fetched.map(|(_, subject)| subject).collect()
    }
}

impl ExaminedCrls {
    fn note_unusable(&mut self, why: String) {
        if self.unusable.len() < UNUSABLE_REPORTED_MAX {
            self.unusable.push(why);
        }
    }
}

impl FetchedCrl {
    /// Adds another CRL of the same issuer.
    fn add(&mut self, mut other: Self) {
        if self.crl.crl.age(&other.crl.crl).is_lt() {
            std::mem::swap(&mut self.crl, &mut other.crl);
            self.der = other.der;
        }
        self.others.push(other.crl);
    }

    /// All CRLs, the newest first.
    fn lists(&self) -> impl Iterator<Item = &Arc<IndexedCrl>> {
        std::iter::once(&self.crl).chain(&self.others)
    }

    /// The issuer's name (RFC 2253).
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.name
    }

    /// Digest of the issuer's name and key.
    #[must_use]
    pub fn key(&self) -> Fingerprint {
        self.issuer
    }

    /// Digest of the newest CRL.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.crl.fingerprint
    }

    /// The CRL number as printed.
    #[must_use]
    pub fn number(&self) -> String {
        self.crl.crl.number_text()
    }

    /// Number of certificates that it revokes.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.crl.crl.serials.len()
    }

    /// The DER of the newest CRL, to be stored.
    #[must_use]
    pub fn der(&self) -> Arc<[u8]> {
        Arc::clone(&self.der)
    }
}

/// Maximum number of earlier rules for an issuer that are retained. Few decisions concern a CA that was restored. A decision
/// about dropped entries covers the earlier decisions about them.
const FORMER_RULES_MAX: usize = 16;

/// Maximum number of reported unusable CRLs. A response can contain hundreds of thousands, and each would raise an alarm.
const UNUSABLE_REPORTED_MAX: usize = 16;
