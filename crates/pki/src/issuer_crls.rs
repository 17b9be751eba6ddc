//! The CRLs of one issuer. They apply together: a certificate is revoked if any of them lists it.
//!
//! A CA may drop entries from its CRL, usually because the certificates have expired. The proxy cannot distinguish this from
//! lost revocations. A serial that no CRL lists any longer therefore stays revoked until an operator accepts the change.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::crl::SerialSet;
use crate::earlier_revocations::EarlierRevocations;
use crate::fingerprint::Fingerprint;
use crate::indexed_crl::{CrlOrigin, IndexedCrl};

#[derive(Clone, Debug)]
pub(crate) struct IssuerCrls {
    /// The newest CRL, whose dates apply. It may no longer be provided, because files and CAs can be restored from a backup.
    pub(crate) newest: Arc<IndexedCrl>,
    /// The CRLs that the files and the CA provide now. There is at least one, and at most [`CRLS_OF_ISSUER_MAX`] different
    /// ones.
    pub(crate) provided: Vec<Arc<IndexedCrl>>,
    /// Further, older CRLs that exceed that number.
    pub(crate) further: Vec<Arc<IndexedCrl>>,
    /// The serials of the further CRLs.
    of_further: Arc<SerialSet>,
    /// Whether the provided CRLs are used only because the CRLs that an operator accepted in their place are missing. Their
    /// revocations apply for now, but they do not determine which revocations were dropped.
    pub(crate) is_fallback: bool,
    /// Revoked serials that none of the provided CRLs lists. If `is_fallback` is true, all serials that earlier CRLs revoked.
    pub(crate) dropped: Arc<SerialSet>,
    /// Number of serials that were dropped beyond [`DROPPED_SERIALS_MAX`]. They are no longer revoked.
    pub(crate) forgotten: usize,
}

impl IssuerCrls {
    /// Combines the CRLs that are provided now. Earlier revocations stay active. None if no CRL is provided.
    ///
    /// CRLs that an operator has replaced by other CRLs are used only if there is no other CRL.
    pub(crate) fn new(
        mut provided: Vec<Arc<IndexedCrl>>,
        counts: impl Fn(&IndexedCrl) -> bool,
        earlier: &EarlierRevocations,
    ) -> Option<Self> {
        let is_fallback = !provided.iter().any(|crl| counts(crl));
        provided.retain(|crl| is_fallback || counts(crl));
        // The same CRL from a file and from the CA counts as two CRLs: if the CA returns another one later, the one in the file
        // stays.
        let mut seen = Vec::new();
        provided.retain(|crl| {
            let is_new = !seen.contains(&(crl.fingerprint, crl.origin));
            seen.push((crl.fingerprint, crl.origin));
            is_new
        });
        let is_provided_as = |crl: &IndexedCrl, is_copy| {
            let mut seen = seen.iter();
            seen.any(|(seen, origin)| {
                *seen == crl.fingerprint && (*origin == CrlOrigin::Copy) == is_copy
            })
        };
        provided.retain(|crl| crl.origin != CrlOrigin::Copy || !is_provided_as(crl, false));
        // Of several equal CRLs, this returns the first one in `provided`.
        let newest = provided.iter().rev().max_by(|a, b| a.crl.age(&b.crl))?;
        let mut newest = Arc::clone(newest);
        let further = match distinct(&provided) {
            ..=CRLS_OF_ISSUER_MAX => Vec::new(),
            _ => {
                provided.sort_by_key(|crl| {
                    let number = crl.crl.number.clone();
                    let number = number.map(|number| (number.len(), number));
                    let is_newest = crl.fingerprint == newest.fingerprint;
                    let made = crl.crl.this_update.as_secs();
                    Reverse((is_newest, number, made, crl.fingerprint))
                });
                let mut kept = provided.len();
                while distinct(&provided[..kept]) > CRLS_OF_ISSUER_MAX {
                    kept -= 1;
                }
                provided.split_off(kept)
            }
        };
        let of_further = further.iter().flat_map(|crl| crl.crl.serials.iter());
        let of_further = SerialSet::new(of_further.collect());
        let is_provided = |serial: &[u8]| {
            let mut provided = provided.iter();
            let is_listed = provided.any(|crl| crl.crl.serials.contains(serial));
            !is_fallback && (is_listed || of_further.contains(serial))
        };
        let only = |serials: Vec<&[u8]>| {
            let dropped = serials.into_iter().filter(|serial| !is_provided(serial));
            SerialSet::new(dropped.collect())
        };
        let known = only(earlier.dropped.iter().collect());
        let gone = earlier.lists.iter();
        let is_seen = |crl: &IndexedCrl| is_provided_as(crl, false) || is_provided_as(crl, true);
        let gone = gone.filter(|crl| !is_seen(crl));
        let gone = gone.flat_map(|crl| crl.crl.serials.iter());
        let (dropped, forgotten) = united(known, &only(gone.collect()), DROPPED_SERIALS_MAX);
        // A CA that was restored has lower CRL numbers. The dates of its CRL apply once that CRL lists every revocation again.
        let is_complete = |older: &IndexedCrl| {
            dropped.len() == 0
                && newest.crl.this_update.as_secs() >= older.crl.this_update.as_secs()
        };
        let newer = earlier.newest();
        let newer = newer.filter(|crl| crl.crl.age(&newest.crl).is_gt() && !is_complete(crl));
        if let Some(newer) = newer.map(Arc::clone) {
            newest = newer;
        }
        // The agent's copy is not used once the CA has responded. Copies are not compared with each other, because two equal
        // copies would both be removed.
        let others = provided.iter().filter(|crl| crl.origin != CrlOrigin::Copy);
        let others: Vec<_> = others.chain([&newest]).cloned().collect();
        provided.retain(|crl| {
            let is_listed = |serial: &[u8]| {
                let mut others = others.iter();
                others.any(|other| other.crl.serials.contains(serial))
            };
            crl.origin != CrlOrigin::Copy
                || crl.fingerprint == newest.fingerprint
                || !crl.crl.serials.iter().all(is_listed)
        });
        Some(Self {
            newest,
            is_fallback,
            dropped: Arc::new(dropped),
            forgotten: forgotten + earlier.forgotten,
            provided,
            further,
            of_further: Arc::new(of_further),
        })
    }

    /// Whether the certificate with this serial is revoked. `serial` is in its shortest form.
    pub(crate) fn revoke(&self, serial: &[u8]) -> bool {
        self.dropped.contains(serial)
            || self.of_further.contains(serial)
            || self.listing(serial).is_some()
    }

    /// The newest CRL that lists this serial.
    pub(crate) fn listing(&self, serial: &[u8]) -> Option<&IndexedCrl> {
        let lists = |crl: &&Arc<IndexedCrl>| crl.crl.serials.contains(serial);
        self.lists().find(lists).map(|crl| &**crl)
    }

    /// A sentence that says on which CRL of this issuer a revoked serial is.
    pub(crate) fn described(&self, issuer: &str, serial: &[u8]) -> String {
        match self.listing(serial) {
            Some(listing) => format!(
                "It is on the CRL of {issuer}, number {}.",
                listing.crl.number_text()
            ),
            None if self.of_further.contains(serial) => format!(
                "It is on an old CRL of {issuer}, and the proxy has {CRLS_OF_ISSUER_MAX} newer ones."
            ),
            None => format!(
                "It was on an earlier CRL of {issuer}. The present one, number {}, does not list it, but no operator has accepted that.",
                self.newest.crl.number_text()
            ),
        }
    }

    /// All CRLs in use, the newest first. A CRL from several sources is included once for each.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<IndexedCrl>> {
        let others = self.all_provided();
        let others = others.filter(|crl| !Arc::ptr_eq(crl, &self.newest));
        std::iter::once(&self.newest).chain(others)
    }

    /// The CRLs in use that are looked up one by one, the newest first. Other CRLs equal to the newest are left out.
    pub(crate) fn lists(&self) -> impl Iterator<Item = &Arc<IndexedCrl>> + Clone {
        let others = self.provided.iter();
        let others = others.filter(|crl| crl.fingerprint != self.newest.fingerprint);
        std::iter::once(&self.newest).chain(others)
    }

    /// The revocations that later CRLs must not lose: all of them, except those of CRLs for which `counts` is false.
    pub(crate) fn earlier(&self, counts: impl Fn(&IndexedCrl) -> bool) -> EarlierRevocations {
        EarlierRevocations {
            lists: self.all().filter(|crl| counts(crl)).cloned().collect(),
            dropped: Arc::clone(&self.dropped),
            forgotten: self.forgotten,
        }
    }

    /// Whether the newest CRL is among those that are provided now.
    pub(crate) fn is_newest_provided(&self) -> bool {
        let mut provided = self.provided.iter();
        provided.any(|crl| crl.fingerprint == self.newest.fingerprint)
    }

    /// All CRLs that the files and the CA provide now.
    pub(crate) fn all_provided(&self) -> impl Iterator<Item = &Arc<IndexedCrl>> {
        self.provided.iter().chain(&self.further)
    }

    /// How many different CRLs are provided.
    pub(crate) fn provided_count(&self) -> usize {
        distinct(self.all_provided())
    }

    /// The number of provided CRLs that exceed [`CRLS_OF_ISSUER_MAX`].
    pub(crate) fn further_count(&self) -> usize {
        distinct(&self.further)
    }

    /// The provided CRLs that the proxy did not fetch.
    pub(crate) fn of_files(&self) -> impl Iterator<Item = &Arc<IndexedCrl>> {
        let provided = self.all_provided();
        provided.filter(|crl| crl.origin != CrlOrigin::Fetched)
    }

    /// The provided CRLs without copies that another process has fetched. If there are only copies, all of them.
    pub(crate) fn without_copies(&self) -> Vec<Arc<IndexedCrl>> {
        let provided = self.provided.iter();
        let others = provided.filter(|crl| crl.origin != CrlOrigin::Copy);
        let others: Vec<_> = others.cloned().collect();
        if others.is_empty() {
            self.provided.clone()
        } else {
            others
        }
    }

    /// The number of revoked serials that no provided CRL lists.
    pub(crate) fn missing(&self) -> usize {
        if !self.is_fallback {
            return self.dropped.len();
        }
        let is_listed = |serial: &[u8]| {
            let mut provided = self.all_provided();
            provided.any(|crl| crl.crl.serials.contains(serial))
        };
        let missing = self.dropped.iter().filter(|serial| !is_listed(serial));
        missing.count()
    }

    /// Digest of everything on which a verdict or a later CRL depends, whatever the order of the files.
    pub(crate) fn digest(&self) -> Fingerprint {
        let provided = self.all_provided();
        let provided = provided.map(|crl| (crl.fingerprint, crl.origin));
        let provided: BTreeSet<_> = provided.collect();
        let dropped = Fingerprint::of(self.dropped.iter());
        let newest = (!self.is_newest_provided()).then_some(self.newest.origin as u8);
        let mut parts = vec![
            self.newest.fingerprint.as_bytes().to_vec(),
            newest.into_iter().collect(),
            vec![u8::from(self.is_fallback)],
            dropped.as_bytes().to_vec(),
        ];
        for (crl, origin) in provided {
            parts.push(crl.as_bytes().to_vec());
            parts.push(vec![origin as u8]);
        }
        Fingerprint::of(parts.iter().map(Vec::as_slice))
    }

    /// Size of the serials in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let lists = self.all().map(|crl| crl.crl.serials.bytes());
        lists.sum::<usize>() + self.of_further.bytes() + self.dropped.bytes()
    }
}

/// The number of different CRLs among these, which have the same CRL once for each of its sources.
fn distinct<'a>(crls: impl IntoIterator<Item = &'a Arc<IndexedCrl>>) -> usize {
    let crls = crls.into_iter().map(|crl| crl.fingerprint);
    crls.collect::<BTreeSet<_>>().len()
}

/// The union of two sets that have no serial in common. `max` limits the size of the union by leaving out serials of the second
/// set. Also returns how many are left out.
fn united(first: SerialSet, second: &SerialSet, max: usize) -> (SerialSet, usize) {
    let second: Vec<_> = second
        .iter()
        .filter(|serial| !first.contains(serial))
        .collect();
    if second.is_empty() {
        return (first, 0);
    }
    let room = max.saturating_sub(first.len());
    let cut = second.len().saturating_sub(room);
    let all = first.iter().chain(second.into_iter().take(room));
    (SerialSet::new(all.collect()), cut)
}

/// Maximum number of CRLs of one issuer that are looked up one by one. These are the newest ones. A directory may contain any
/// number; the serials of the other CRLs are looked up as one set, with a warning.
pub(crate) const CRLS_OF_ISSUER_MAX: usize = 16;

/// Maximum number of revoked serials of one issuer that its CRLs no longer list. They need 20 MB. A CA with short-lived
/// certificates may drop some every day. Serials that are dropped beyond the maximum are no longer revoked, as in the CA's CRL,
/// and the alarm shows their number.
pub(crate) const DROPPED_SERIALS_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_the_limit_serials_that_were_dropped_before_stay_and_the_others_are_counted() {
        let set = |serials: &[u8]| SerialSet::new(serials.chunks(1).collect());
        for (first, second, max, expected, cut) in [
            (&[][..], &[][..], 2, &[][..], 0),
            (&[5], &[6], 2, &[5, 6], 0),
            (&[5, 9], &[6], 2, &[5, 9], 1),
            (&[5], &[6, 7, 8], 3, &[5, 6, 7], 1),
            (&[5, 6, 7], &[8], 2, &[5, 6, 7], 1),
            (&[5], &[5], 1, &[5], 0),
        ] {
            let (union, count) = united(set(first), &set(second), max);
            let union: Vec<u8> = union.iter().flatten().copied().collect();
            assert_eq!((&union[..], count), (expected, cut), "{first:?} {second:?}");
        }
    }
}
