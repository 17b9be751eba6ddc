//! Lists that come from elsewhere than from files: what of them may be put in force, held against what is.
//!
//! A file is put in its place by somebody who means it. What a server answers is not: an infrastructure CRL in the place
//! of the full one, a CA restored from last week's backup and a forgery all look like a list. So one that takes anything
//! back is refused until an operator has said that it is meant.

use std::sync::Arc;

use crate::certificate::Subject;
use crate::crl_sorting::{CrlSorter, SortedCrl};
use crate::fingerprint::Fingerprint;
use crate::indexed_crl::{CrlOrigin, IndexedCrl, OverruledCrl};
use crate::pem::{self, Block, Named};
use crate::problem::PkiProblem;
use crate::revocation::RevocationIndex;
use crate::set_aside::SetAsideRule;
use crate::store::TrustStore;

/// What was fetched, list by list.
#[derive(Debug, Default)]
pub struct ExaminedCrls {
    /// The newest list of each issuer of the bundle, and how it compares with what is in force.
    pub crls: Vec<(FetchedCrl, CrlComparison)>,
    /// Lists that are of no use, and why: sentences, of the first that there are.
    pub unusable: Vec<String>,
}

/// A list whose signature has been checked with the key of an issuer of the bundle.
#[derive(Clone, Debug)]
pub struct FetchedCrl {
    pub(crate) issuer: Fingerprint,
    pub(crate) crl: Arc<IndexedCrl>,
    name: String,
    der: Arc<[u8]>,
}

/// How a list compares with the one of the same issuer key that is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CrlComparison {
    /// It is the one in force, or says nothing that this one does not.
    Active,
    /// It may be put in force.
    Newer,
    /// The very list that an operator has replaced: out of force for good, whoever has it still.
    Replaced,
    /// It takes something back: another list in its place, an old copy, a CA set back or one that has pruned its list.
    DropsRevocations {
        /// Number of the one in force.
        active_number: String,
        /// Whether its number is lower than that.
        is_older: bool,
        /// How many revoked certificates it does not name.
        lacking: usize,
        /// How many are revoked.
        of: usize,
    },
}

impl TrustStore {
    /// Holds the lists of a PEM text against those in force. Long lists take their time.
    ///
    /// # Errors
    /// Text that is not PEM, is cut short, or holds something that is no list.
    pub fn examine(&self, fetched: Named<Vec<u8>>) -> Result<ExaminedCrls, PkiProblem> {
        let blocks = pem::crls(&fetched)?;
        // As long as the blocks themselves, and a third more.
        drop(fetched);
        self.revocation.examine_blocks(blocks)
    }

    /// As [`Self::examine`], of the DER of one list: how [`FetchedCrl::der`] is kept.
    ///
    /// # Errors
    /// Bytes that are no list.
    pub fn examine_der(&self, kept: Named<Vec<u8>>) -> Result<ExaminedCrls, PkiProblem> {
        self.revocation.examine_blocks(vec![Block {
            name: kept.name,
            number: 1,
            der: kept.value,
        }])
    }

    /// The same with these lists in force, as the next generation. Whatever is built on it keeps them while they are the
    /// newest.
    #[must_use]
    pub fn with_crls(&self, lists: &[FetchedCrl]) -> Self {
        let mut next = self.next();
        let known = lists
            .iter()
            .filter(|list| self.anchors.bundle.issuers.contains_key(&list.issuer));
        for list in known {
            next.revocation
                .crls
                .insert(list.issuer, Arc::clone(&list.crl));
        }
        next.settle();
        next
    }

    /// The same with what was in force before a start, as far as it goes before what files have now: where it is newer, and
    /// where it names somebody whom a newer copy lacks. None: nothing of it does.
    #[must_use]
    pub fn with_restored_crls(&self, kept: &[FetchedCrl]) -> Option<Self> {
        let (mut restored, mut overruled) = (Vec::new(), Vec::new());
        for list in kept {
            let copy = match (self.compare(list), self.revocation.crls.get(&list.issuer)) {
                (CrlComparison::Active | CrlComparison::Replaced, _) => continue,
                (CrlComparison::DropsRevocations { .. }, Some(of_file))
                    if list.crl.crl.age(&of_file.crl).is_le() =>
                {
                    let Some(copy) = OverruledCrl::of(list.issuer, of_file, &list.crl) else {
                        continue;
                    };
                    Some(copy)
                }
                // By its number, as while it was in force, whomever the file names.
                _ => None,
            };
            restored.push(list.clone());
            overruled.extend(copy);
        }
        if restored.is_empty() {
            return None;
        }
        let mut next = self.with_crls(&restored);
        next.revocation.overruled = overruled.into();
        next.settle();
        Some(next)
    }

    /// The same with other rules for what no longer counts; those of lists that are not there are without effect.
    #[must_use]
    pub fn with_set_aside_rules(&self, rules: Vec<SetAsideRule>) -> Self {
        let mut next = self.next();
        next.revocation.set_aside = rules.into();
        next
    }

    /// What no longer counts.
    pub fn set_aside_rules(&self) -> &[SetAsideRule] {
        &self.revocation.set_aside
    }

    /// Compares a CRL with the active one of the same issuer.
    #[must_use]
    pub fn compare(&self, list: &FetchedCrl) -> CrlComparison {
        self.revocation.compare(list)
    }

    /// Subjects of the bundle's CAs whose active CRL was fetched, by the proxy or an agent, and that are not among these.
    #[must_use]
    pub fn fetched_crls_not_among(&self, issuers: &[Fingerprint]) -> Vec<&str> {
        self.revocation.fetched_crls_not_among(issuers)
    }

    /// The rules that allow `list` to replace the active CRL although its number is lower: one for this CRL, and the rules of
    /// other CAs of the bundle.
    #[must_use]
    pub fn rules_accepting(&self, list: &FetchedCrl) -> Vec<SetAsideRule> {
        self.revocation.rules_accepting(list)
    }
}

impl RevocationIndex {
    fn examine_blocks(&self, blocks: Vec<Block>) -> Result<ExaminedCrls, PkiProblem> {
        let sorter = CrlSorter::new(&self.anchors, None);
        let mut examined = ExaminedCrls::default();
        let mut lists: Vec<FetchedCrl> = Vec::new();
        for block in blocks {
            let sorted = match sorter.sort(&block, CrlOrigin::Fetched)? {
                SortedCrl::Known(issuer, crl) => FetchedCrl {
                    issuer,
                    name: Subject(&crl.crl.issuer).to_string(),
                    crl: Arc::new(crl),
                    der: block.der.into(),
                },
                SortedCrl::Unusable(why) => {
                    examined.no_use(why);
                    continue;
                }
                SortedCrl::Stray(crl) => {
                    examined.no_use(format!(
                        "CRL {} is not used: no CA {} of the bundle signed it",
                        block.place(),
                        Subject(&crl.crl.issuer)
                    ));
                    continue;
                }
            };
            match lists.iter_mut().find(|known| known.issuer == sorted.issuer) {
                None => lists.push(sorted),
                Some(known) if known.crl.crl.age(&sorted.crl.crl).is_lt() => *known = sorted,
                Some(_) => {}
            }
        }
        let compared = lists.into_iter().map(|list| {
            let finding = self.compare(&list);
            (list, finding)
        });
        examined.crls = compared.collect();
        Ok(examined)
    }

    /// How a list compares with what is in force now.
    fn compare(&self, list: &FetchedCrl) -> CrlComparison {
        let Some(active) = self.crls.get(&list.issuer) else {
            return CrlComparison::Newer;
        };
        if active.fingerprint == list.crl.fingerprint {
            return CrlComparison::Active;
        }
        let mut rules = self.set_aside.iter();
        if rules.any(|rule| rule.replaced(list.issuer, &list.crl)) {
            return CrlComparison::Replaced;
        }
        let counts = |crl| {
            let mut rules = self.set_aside.iter();
            !rules.any(|rule| rule.covers(list.issuer, crl))
        };
        if !counts(active) && counts(&list.crl) {
            return CrlComparison::Newer;
        }
        let (new, old) = (&list.crl.crl, &active.crl);
        let is_older = new.is_numbered_below(old);
        match (is_older, old.serials.missing_from(&new.serials)) {
            (false, 0) if new.age(old).is_gt() => CrlComparison::Newer,
            (false, 0) => CrlComparison::Active,
            (is_older, lacking) => CrlComparison::DropsRevocations {
                active_number: old.number_text(),
                is_older,
                lacking,
                of: old.serials.len(),
            },
        }
    }

    /// Subjects of the bundle's CAs whose list in force was fetched, here or by an agent, and that are not among these.
    fn fetched_crls_not_among(&self, issuers: &[Fingerprint]) -> Vec<&str> {
        let fetched = self.anchors.issuers().into_iter().filter(|(issuer, _)| {
            let active = self.crls.get(issuer);
            active.is_some_and(|active| active.origin != CrlOrigin::File)
                && !issuers.contains(issuer)
        });
        fetched.map(|(_, subject)| subject).collect()
    }

    /// The rule by which `list` takes the place of the one in force, where its number alone would not let it; with it
    /// go the others that still matter.
    fn rules_accepting(&self, list: &FetchedCrl) -> Vec<SetAsideRule> {
        let others = self.set_aside.iter().filter(|rule| {
            rule.issuer != list.issuer && self.anchors.bundle.issuers.contains_key(&rule.issuer)
        });
        let active = self.crls.get(&list.issuer);
        let rule = active.map(|active| SetAsideRule {
            issuer: list.issuer,
            accepted: list.crl.fingerprint,
            number: list.crl.crl.number.clone(),
            made: active.crl.this_update,
            replaced: Some(active.fingerprint),
        });
        others.cloned().chain(rule).collect()
    }
}

impl ExaminedCrls {
    fn no_use(&mut self, why: String) {
        if self.unusable.len() < USELESS_TOLD_MAX {
            self.unusable.push(why);
        }
    }
}

impl FetchedCrl {
    /// Its issuer's name (RFC 2253).
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.name
    }

    /// Digest of its issuer's name and key.
    #[must_use]
    pub fn key(&self) -> Fingerprint {
        self.issuer
    }

    /// Digest of the list.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.crl.fingerprint
    }

    /// CRL number, as people write it.
    #[must_use]
    pub fn number(&self) -> String {
        self.crl.crl.number_text()
    }

    /// How many certificates it revokes.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.crl.crl.serials.len()
    }

    /// Its bytes, to be kept.
    #[must_use]
    pub fn der(&self) -> Arc<[u8]> {
        Arc::clone(&self.der)
    }
}

/// Lists of no use that are told of. An answer has room for hundreds of thousands, and each would be an alarm.
const USELESS_TOLD_MAX: usize = 16;
