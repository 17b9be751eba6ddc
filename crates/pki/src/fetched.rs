//! Lists that come from elsewhere than from files: what of them may be put in force, held against what is.
//!
//! A file is put in its place by somebody who means it. What a server answers is not: an infrastructure CRL in the place
//! of the full one, a CA restored from last week's backup and a forgery all look like a list. So one that takes anything
//! back is refused until an operator has said that it is meant.

use std::{fmt, str::FromStr, sync::Arc};

use rustls_pki_types::UnixTime;

use crate::bundle::Fingerprint;
use crate::certificate::Subject;
use crate::crl::Crl;
use crate::pem::{self, Block, Named};
use crate::problem::PkiProblem;
use crate::store::{CrlOrigin, CrlSorter, IndexedCrl, OverruledCrl, SortedCrl, TrustStore};

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

/// What an operator has said no longer counts: an issuer's lists up to one that was in force, for a list with a lower
/// number took its place. Without it the next start would find the old one in a file and put it in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAsideRule {
    issuer: Fingerprint,
    /// The list that was accepted.
    accepted: Fingerprint,
    /// Its number: nothing below it has to be set aside.
    number: Box<[u8]>,
    /// When the newest of those set aside was made: whatever the CA makes later counts.
    made: UnixTime,
    /// That newest one: dates have seconds, and another that was made within the same one counts. None where a version
    /// that did not know wrote it: then none of that second counts.
    replaced: Option<Fingerprint>,
}

/// A text that is none of what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its content has changed since the proxy wrote it")]
pub struct SetAsideError;

impl TrustStore {
    /// Holds the lists of a PEM text against those in force. Long lists take their time.
    ///
    /// # Errors
    /// Text that is not PEM, is cut short, or holds something that is no list.
    pub fn examine(&self, fetched: Named<Vec<u8>>) -> Result<ExaminedCrls, PkiProblem> {
        let blocks = pem::crls(&fetched)?;
        // As long as the blocks themselves, and a third more.
        drop(fetched);
        self.examine_blocks(blocks)
    }

    /// As [`Self::examine`], of the DER of one list: how [`FetchedCrl::der`] is kept.
    ///
    /// # Errors
    /// Bytes that are no list.
    pub fn examine_der(&self, kept: Named<Vec<u8>>) -> Result<ExaminedCrls, PkiProblem> {
        self.examine_blocks(vec![Block {
            name: kept.name,
            number: 1,
            der: kept.value,
        }])
    }

    fn examine_blocks(&self, blocks: Vec<Block>) -> Result<ExaminedCrls, PkiProblem> {
        let shelf = CrlSorter::new(&self.bundle, &self.legacy, None);
        let mut examined = ExaminedCrls::default();
        let mut lists: Vec<FetchedCrl> = Vec::new();
        for block in blocks {
            let sorted = match shelf.sort(&block, CrlOrigin::Fetched)? {
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
    #[must_use]
    pub fn compare(&self, list: &FetchedCrl) -> CrlComparison {
        let Some(active) = self.index.get(&list.issuer) else {
            return CrlComparison::Newer;
        };
        if active.fingerprint == list.crl.fingerprint {
            return CrlComparison::Active;
        }
        let mut rules = self.set_aside.iter();
        if rules.any(|rule| rule.replaced(list)) {
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
    #[must_use]
    pub fn fetched_crls_not_among(&self, issuers: &[Fingerprint]) -> Vec<&str> {
        let fetched = self.issuers().into_iter().filter(|(issuer, _)| {
            let active = self.index.get(issuer);
            active.is_some_and(|active| active.origin != CrlOrigin::File)
                && !issuers.contains(issuer)
        });
        fetched.map(|(_, subject)| subject).collect()
    }

    /// The same with these lists in force, as the next generation. Whatever is built on it keeps them while they are the
    /// newest.
    #[must_use]
    pub fn with_crls(&self, lists: &[FetchedCrl]) -> Self {
        let mut next = self.next();
        let known = lists
            .iter()
            .filter(|list| self.bundle.issuers.contains_key(&list.issuer));
        for list in known {
            next.index.insert(list.issuer, Arc::clone(&list.crl));
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
            let copy = match (self.compare(list), self.index.get(&list.issuer)) {
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
        next.overruled = overruled.into();
        next.settle();
        Some(next)
    }

    /// The same with other rules for what no longer counts; those of lists that are not there are without effect.
    #[must_use]
    pub fn with_set_aside_rules(&self, rules: Vec<SetAsideRule>) -> Self {
        let mut next = self.next();
        next.set_aside = rules.into();
        next
    }

    /// What no longer counts.
    pub fn set_aside_rules(&self) -> &[SetAsideRule] {
        &self.set_aside
    }

    /// The rule by which `list` takes the place of the one in force, where its number alone would not let it; with it
    /// go the others that still matter.
    #[must_use]
    pub fn rules_accepting(&self, list: &FetchedCrl) -> Vec<SetAsideRule> {
        let others = self.set_aside.iter().filter(|rule| {
            rule.issuer != list.issuer && self.bundle.issuers.contains_key(&rule.issuer)
        });
        let active = self.index.get(&list.issuer);
        let rule = active.map(|active| SetAsideRule {
            issuer: list.issuer,
            accepted: list.crl.fingerprint,
            number: list.crl.crl.number.clone(),
            made: active.crl.this_update,
            replaced: Some(active.fingerprint),
        });
        others.cloned().chain(rule).collect()
    }

    /// Digests of names and keys of the bundle's CAs, with the names (RFC 2253), in a steady order.
    pub fn issuers(&self) -> Vec<(Fingerprint, &str)> {
        let issuers = self.bundle.issuers.values();
        let mut issuers: Vec<_> = issuers
            .map(|issuer| (issuer.id, issuer.text.as_str()))
            .collect();
        issuers.sort_unstable();
        issuers
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

impl SetAsideRule {
    /// Whether a list is the very one that an operator has replaced. Others that would be set aside in a file may be the
    /// CA's newest: its clock may be behind what it was.
    fn replaced(&self, list: &FetchedCrl) -> bool {
        self.issuer == list.issuer && self.replaced == Some(list.crl.fingerprint)
    }

    /// Whether a list of this issuer is one of those that no longer count.
    pub(crate) fn covers(&self, issuer: Fingerprint, list: &IndexedCrl) -> bool {
        let (made, newest) = (list.crl.this_update.as_secs(), self.made.as_secs());
        let is_replaced = |replaced| replaced == list.fingerprint;
        self.issuer == issuer
            && self.accepted != list.fingerprint
            && !list.crl.is_numbered_below_number(&self.number)
            && (made < newest || made == newest && self.replaced.is_none_or(is_replaced))
    }
}

impl fmt::Display for SetAsideRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.issuer, self.accepted)?;
        self.number
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, " {}", self.made.as_secs())?;
        match &self.replaced {
            Some(replaced) => write!(f, " {replaced}"),
            None => Ok(()),
        }
    }
}

impl FromStr for SetAsideRule {
    type Err = SetAsideError;

    fn from_str(text: &str) -> Result<Self, SetAsideError> {
        let words: Vec<_> = text.split(' ').collect();
        let (issuer, accepted, number, made, replaced) = match words[..] {
            [issuer, accepted, number, made] => (issuer, accepted, number, made, None),
            [issuer, accepted, number, made, replaced] => {
                (issuer, accepted, number, made, Some(fingerprint(replaced)?))
            }
            _ => return Err(SetAsideError),
        };
        let seconds = made.parse().map_err(|_| SetAsideError)?;
        Ok(Self {
            issuer: fingerprint(issuer)?,
            accepted: fingerprint(accepted)?,
            number: bytes(number)?.into(),
            made: UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds)),
            replaced,
        })
    }
}

fn fingerprint(hex: &str) -> Result<Fingerprint, SetAsideError> {
    let bytes = bytes(hex)?.try_into().map_err(|_| SetAsideError)?;
    Ok(Fingerprint::from_bytes(bytes))
}

fn bytes(hex: &str) -> Result<Vec<u8>, SetAsideError> {
    let digits: Option<Vec<u32>> = hex.chars().map(|digit| digit.to_digit(16)).collect();
    match digits {
        Some(digits) if digits.len() % 2 == 0 => Ok(digits
            .chunks_exact(2)
            .map(|pair| (pair[0] << 4 | pair[1]) as u8)
            .collect()),
        _ => Err(SetAsideError),
    }
}

impl Crl {
    fn is_numbered_below(&self, other: &Self) -> bool {
        self.is_numbered_below_number(&other.number)
    }

    fn is_numbered_below_number(&self, number: &[u8]) -> bool {
        (self.number.len(), &*self.number) < (number.len(), number)
    }
}

/// Lists of no use that are told of. An answer has room for hundreds of thousands, and each would be an alarm.
const USELESS_TOLD_MAX: usize = 16;
