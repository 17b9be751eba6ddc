//! CRLs that the proxy fetched: which of them may become active, compared with the active CRLs.
//!
//! An operator who replaces a file intends the change. A server's response carries no such intention: it may be the
//! infrastructure CRL instead of the full one, the CRL of a CA restored from an old backup, or a forgery. The proxy
//! therefore refuses a CRL that drops revocations until an operator accepts it.

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

/// The result of examining a fetched document.
#[derive(Debug, Default)]
pub struct ExaminedCrls {
    /// The newest CRL of each issuer of the bundle, compared with the active CRL.
    pub crls: Vec<(FetchedCrl, CrlComparison)>,
    /// Why CRLs are unusable, as sentences. Limited to the first few.
    pub unusable: Vec<String>,
}

/// A CRL whose signature was verified with the key of an issuer of the bundle.
#[derive(Clone, Debug)]
pub struct FetchedCrl {
    pub(crate) issuer: Fingerprint,
    pub(crate) crl: Arc<IndexedCrl>,
    name: String,
    der: Arc<[u8]>,
}

/// How a CRL compares with the active CRL of the same issuer key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CrlComparison {
    /// It is the active CRL, or has no revocation that the active CRL lacks.
    Active,
    /// It may become active.
    Newer,
    /// An operator has replaced exactly this CRL. It never becomes active again.
    Replaced,
    /// It drops revocations: it is another CRL, an old copy, from a CA that was restored, or the CA removed entries.
    DropsRevocations {
        /// Number of the active CRL.
        active_number: String,
        /// Whether its own number is lower.
        is_older: bool,
        /// How many revoked certificates it lacks.
        lacking: usize,
        /// How many certificates the active CRL revokes.
        of: usize,
    },
}

impl TrustStore {
    /// Compares the CRLs of a PEM document with the active CRLs. Large CRLs take a while.
    ///
    /// # Errors
    /// A document that is not PEM, is truncated, or contains a block that is not a CRL.
    pub fn examine(&self, fetched: Named<Vec<u8>>) -> Result<ExaminedCrls, PkiProblem> {
        let blocks = pem::crls(&fetched)?;
        // The document is a third larger than the blocks; free it early.
        drop(fetched);
        self.revocation.examine_blocks(blocks)
    }

    /// As [`Self::examine`], for the DER of one CRL, the format in which [`FetchedCrl::der`] is stored.
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

    /// The next generation with these CRLs active. Stores that are built on it keep them while they are the newest.
    #[must_use]
    pub fn with_crls(&self, crls: &[FetchedCrl]) -> Self {
        let mut next = self.next();
        let known = crls
            .iter()
            .filter(|fetched| self.anchors.bundle.issuers.contains_key(&fetched.issuer));
        for fetched in known {
            next.revocation
                .crls
                .insert(fetched.issuer, Arc::clone(&fetched.crl));
        }
        next.settle();
        next
    }

    /// The next generation with stored CRLs from before a start, as far as they take precedence over the files. That is
    /// so if they are newer, or if they revoke a certificate that a newer copy lacks. None if no stored CRL applies.
    #[must_use]
    pub fn with_restored_crls(&self, stored: &[FetchedCrl]) -> Option<Self> {
        let (mut restored, mut overruled) = (Vec::new(), Vec::new());
        for fetched in stored {
            let copy = match (
                self.compare(fetched),
                self.revocation.crls.get(&fetched.issuer),
            ) {
                (CrlComparison::Active | CrlComparison::Replaced, _) => continue,
                (CrlComparison::DropsRevocations { .. }, Some(from_file))
                    if fetched.crl.crl.age(&from_file.crl).is_le() =>
                {
                    let Some(copy) = OverruledCrl::of(fetched.issuer, from_file, &fetched.crl)
                    else {
                        continue;
                    };
                    Some(copy)
                }
                // The stored CRL applies by its number, whatever the file contains.
                _ => None,
            };
            restored.push(fetched.clone());
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

    /// The next generation with other set-aside rules. Rules for CRLs that are not loaded have no effect.
    #[must_use]
    pub fn with_set_aside_rules(&self, rules: Vec<SetAsideRule>) -> Self {
        let mut next = self.next();
        next.revocation.set_aside = rules.into();
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

    /// Subjects of the bundle's CAs whose active CRL was fetched, by the proxy or an agent, and that are not among these.
    #[must_use]
    pub fn fetched_crls_not_among(&self, issuers: &[Fingerprint]) -> Vec<&str> {
        self.revocation.fetched_crls_not_among(issuers)
    }

    /// The rules that allow `fetched` to replace the active CRL although its number is lower: one for this CRL, and the rules of
    /// other CAs of the bundle.
    #[must_use]
    pub fn rules_accepting(&self, fetched: &FetchedCrl) -> Vec<SetAsideRule> {
        self.revocation.rules_accepting(fetched)
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
                Some(known) if known.crl.crl.age(&sorted.crl.crl).is_lt() => *known = sorted,
                Some(_) => {}
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
        let Some(active) = self.crls.get(&fetched.issuer) else {
            return CrlComparison::Newer;
        };
        if active.fingerprint == fetched.crl.fingerprint {
            return CrlComparison::Active;
        }
        let mut rules = self.set_aside.iter();
        if rules.any(|rule| rule.replaced(fetched.issuer, &fetched.crl)) {
            return CrlComparison::Replaced;
        }
        let counts = |crl| {
            let mut rules = self.set_aside.iter();
            !rules.any(|rule| rule.covers(fetched.issuer, crl))
        };
        if !counts(active) && counts(&fetched.crl) {
            return CrlComparison::Newer;
        }
        let (new, old) = (&fetched.crl.crl, &active.crl);
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

    fn fetched_crls_not_among(&self, issuers: &[Fingerprint]) -> Vec<&str> {
        let fetched = self.anchors.issuers().into_iter().filter(|(issuer, _)| {
            let active = self.crls.get(issuer);
            active.is_some_and(|active| active.origin != CrlOrigin::File)
                && !issuers.contains(issuer)
        });
        fetched.map(|(_, subject)| subject).collect()
    }

    fn rules_accepting(&self, fetched: &FetchedCrl) -> Vec<SetAsideRule> {
        let others = self.set_aside.iter().filter(|rule| {
            rule.issuer != fetched.issuer && self.anchors.bundle.issuers.contains_key(&rule.issuer)
        });
        let active = self.crls.get(&fetched.issuer);
        let rule = active.map(|active| SetAsideRule {
            issuer: fetched.issuer,
            accepted: fetched.crl.fingerprint,
            number: fetched.crl.crl.number.clone(),
            made: active.crl.this_update,
            replaced: Some(active.fingerprint),
        });
        others.cloned().chain(rule).collect()
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

    /// Digest of the CRL.
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

    /// The DER, to be stored.
    #[must_use]
    pub fn der(&self) -> Arc<[u8]> {
        Arc::clone(&self.der)
    }
}

/// Maximum number of reported unusable CRLs. A response can hold hundreds of thousands, and each would raise an alarm.
const UNUSABLE_REPORTED_MAX: usize = 16;
