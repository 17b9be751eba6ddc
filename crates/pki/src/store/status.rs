//! The status of a trust store: its CAs, active CRLs, missing CRLs and alarms.

use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::UnixTime;

use super::TrustStore;
use crate::anchors::Anchors;
use crate::bundle::Ca;
use crate::certificate::{Day, Subject};
use crate::fingerprint::Fingerprint;
use crate::indexed_crl::{CrlOrigin, IndexedCrl};
use crate::issuer_crls::{CRLS_OF_ISSUER_MAX, IssuerCrls};
use crate::revocation::RevocationIndex;
use crate::settings::Revocation;

/// The status of a trust store for metrics and `check`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustStoreStatus {
    /// The store's generation.
    pub generation: u64,
    /// Each CA of the bundle.
    pub cas: Vec<TrustedCaStatus>,
    /// The active CRLs. An issuer may have several.
    pub crls: Vec<ActiveCrlStatus>,
    /// Subjects of CAs without a CRL whose certificates are therefore refused.
    pub crl_missing: Vec<String>,
    /// Subjects of CAs without a CRL whose certificates are accepted because of `unchecked`.
    pub unchecked: Vec<String>,
    /// CRLs whose issuer is not in the bundle, by source.
    pub strays: Vec<String>,
    /// Problems that do not stop the proxy.
    pub alarms: Vec<TrustAlarm>,
}

/// One problem of the CAs or CRLs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustAlarm {
    /// The CA or CRL, and the kind of problem. It stays the same while the message changes with time. If the message never
    /// changes, it equals the message.
    pub about: String,
    /// A sentence for the operator.
    pub message: String,
    /// Whether the problem makes the proxy refuse every certificate of a CA.
    pub refuses: bool,
}

/// One CA of the bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedCaStatus {
    /// The subject in RFC 2253.
    pub subject: String,
    /// Whether paths may end at this CA.
    pub anchor: bool,
    /// Start of its validity period.
    pub not_before: UnixTime,
    /// End of its validity period.
    pub not_after: UnixTime,
    /// Whether the CA is within its validity period.
    pub in_time: bool,
    /// Whether the bundle has another certificate of the same CA, with the same key, that expires later.
    pub is_superseded: bool,
    /// The file and PEM block.
    pub source: String,
}

/// One active CRL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveCrlStatus {
    /// The issuer in RFC 2253.
    pub issuer: String,
    /// CRL number.
    pub number: String,
    /// Number of revoked certificates.
    pub entries: usize,
    /// When the CA issued it.
    pub this_update: UnixTime,
    /// When the CA promises a newer CRL; none if the CRL has no such date.
    pub next_update: Option<UnixTime>,
    /// Whether the date of the next CRL has passed.
    pub expired: bool,
    /// The last second in which the proxy uses the CRL; none if the policy sets no end.
    pub accepted_until: Option<UnixTime>,
    /// The file and PEM block.
    pub source: String,
    /// Whether it is the issuer's newest CRL, whose dates apply.
    pub is_newest: bool,
}

/// The newest CRL of a CA of the bundle, whose dates apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewestCrl {
    /// Digest of the issuer's name and key.
    pub key: Fingerprint,
    /// The issuer (RFC 2253).
    pub issuer: String,
    /// CRL number: decimal, hexadecimal with `0x` from 16 bytes on, or `none`.
    pub number: String,
    /// Digest of the CRL.
    pub digest: Fingerprint,
}

/// Revocations of an issuer that its CRLs no longer list and that stay active until an operator accepts the change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedRevocations {
    /// Digest of the issuer's name and key.
    pub key: Fingerprint,
    /// The issuer (RFC 2253).
    pub issuer: String,
    /// Number of the newest CRL that is provided.
    pub number: String,
    /// Number of certificates that it revokes.
    pub entries: usize,
    /// The file and PEM block of that CRL.
    pub source: String,
    /// Number of revoked certificates that no CRL lists any longer.
    pub missing: usize,
    /// Number of revocations that [`TrustStore::accepting`] removes: the missing ones, and those of copies that are not
    /// accepted.
    pub accepted_again: usize,
    /// Number of further revocations that were dropped. They exceed the maximum, so their certificates are no longer revoked.
    pub forgotten: usize,
}

/// A fetched CRL with number 0 and without entries, of a CA that has issued many certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmptyCrl {
    /// Digest of the issuer's name and key.
    pub key: Fingerprint,
    /// The issuer (RFC 2253).
    pub issuer: String,
    /// The file and PEM block.
    pub source: String,
    /// The highest serial number that was seen.
    pub highest_serial: u32,
}

impl TrustStore {
    /// The status for metrics and `check`.
    pub fn status(&self, now: UnixTime) -> TrustStoreStatus {
        let crls = self.revocation.crls.values().flat_map(|crls| {
            let status = |crl: &Arc<IndexedCrl>| self.revocation.crl_status(crls, crl, now);
            crls.lists().map(status)
        });
        let mut crls: Vec<_> = crls.collect();
        crls.sort_by(|a, b| (&a.issuer, &a.source).cmp(&(&b.issuer, &b.source)));
        let (unchecked, missing): (Vec<_>, Vec<_>) = self
            .revocation
            .without_crl()
            .into_iter()
            .partition(|(_, unchecked)| *unchecked);
        TrustStoreStatus {
            generation: self.generation,
            cas: self.cas_status(now),
            crls,
            crl_missing: missing.into_iter().map(|(issuer, _)| issuer).collect(),
            unchecked: unchecked.into_iter().map(|(issuer, _)| issuer).collect(),
            strays: self
                .revocation
                .strays
                .iter()
                .map(|stray| stray.place.clone())
                .collect(),
            alarms: self.alarms(now),
        }
    }

    /// The newest CRL of each CA of the bundle that has one. Their signatures were verified.
    pub fn newest_crls(&self) -> impl Iterator<Item = NewestCrl> {
        let crls = self.revocation.crls.iter();
        crls.map(|(key, crls)| NewestCrl {
            key: *key,
            issuer: crate::subject_text(&crls.newest.crl.issuer),
            number: crls.newest.crl.number_text(),
            digest: crls.newest.fingerprint,
        })
    }

    /// Each CA of the bundle.
    pub fn cas_status(&self, now: UnixTime) -> Vec<TrustedCaStatus> {
        let cas = self.anchors.bundle.cas.iter().map(|ca| TrustedCaStatus {
            subject: ca.issuer.text.clone(),
            anchor: ca.is_anchor,
            not_before: ca.not_before,
            not_after: ca.not_after,
            in_time: ca.is_in_time(now),
            is_superseded: self.anchors.is_superseded(ca),
            source: ca.place.clone(),
        });
        cas.collect()
    }

    fn alarms(&self, now: UnixTime) -> Vec<TrustAlarm> {
        let missing: Vec<_> = self
            .revocation
            .without_crl()
            .iter()
            .filter(|(_, unchecked)| !unchecked)
            .map(|(issuer, _)| crl_missing(issuer))
            .collect();
        let warnings = self.warnings.iter().map(|warning| TrustAlarm {
            about: warning.clone(),
            message: warning.clone(),
            refuses: missing.contains(warning),
        });
        let mut alarms: Vec<_> = warnings.collect();
        alarms.extend(self.anchors.ca_alarms(now));
        alarms.extend(self.revocation.crl_alarms(now));
        alarms
    }

    /// The revocations that no CRL lists any longer, by issuer.
    pub fn dropped_revocations(&self) -> Vec<DroppedRevocations> {
        let crls = self.revocation.crls.iter();
        let mut dropped: Vec<_> = crls
            .filter_map(|(key, crls)| {
                let missing = crls.missing();
                if missing + crls.forgotten == 0 {
                    return None;
                }
                let accepted = crls.without_copies();
                let accepted_again = if accepted.len() == crls.provided.len() {
                    missing
                } else {
                    self.revocation.earlier(*key).unlisted_in(&accepted).len()
                };
                let provided = crls.provided.iter();
                let newest = provided.max_by(|a, b| a.crl.age(&b.crl))?;
                Some(DroppedRevocations {
                    key: *key,
                    issuer: crate::subject_text(&newest.crl.issuer),
                    number: newest.crl.number_text(),
                    entries: newest.crl.serials.len(),
                    source: newest.place.clone(),
                    missing,
                    accepted_again,
                    forgotten: crls.forgotten,
                })
            })
            .collect();
        dropped.sort_by(|a, b| (&a.issuer, a.key).cmp(&(&b.issuer, b.key)));
        dropped
    }

    /// The CRLs that are empty and always were, of CAs with many certificates. Such a CA has never revoked a certificate,
    /// serves the CRL of another CA, or has lost its CRL. A CA for which an operator has accepted such a CRL is not included.
    pub fn empty_crls(&self) -> Vec<EmptyCrl> {
        let is_first = |number: Option<&[u8]>| number.is_some_and(|n| n.iter().all(|b| *b == 0));
        let crls = self.revocation.crls.iter();
        let empty = crls.filter_map(|(key, crls)| {
            let newest = &crls.newest;
            let ca = self.anchors.bundle.issuers.get(key)?;
            let is_empty = crls.dropped.len() == 0
                && crls.lists().all(|crl| crl.crl.serials.len() == 0)
                && newest.origin != CrlOrigin::File
                && is_first(newest.crl.number.as_deref());
            let mut accepted = self.revocation.set_aside.iter();
            let is_accepted =
                accepted.any(|rule| rule.issuer == *key && is_first(rule.number.as_deref()));
            let highest_serial = ca.highest_serial.number();
            let is_due = is_empty && !is_accepted && highest_serial >= CERTIFICATES_MANY;
            is_due.then(|| EmptyCrl {
                key: *key,
                issuer: ca.text.clone(),
                source: newest.place.clone(),
                highest_serial,
            })
        });
        let mut empty: Vec<_> = empty.collect();
        empty.sort_by(|a, b| (&a.issuer, a.key).cmp(&(&b.issuer, b.key)));
        empty
    }

    /// The next time at which a date changes the status; none if there is none.
    pub fn next_change(&self, now: UnixTime) -> Option<UnixTime> {
        let cas = self.anchors.bundle.cas.iter();
        let dates = cas.flat_map(|ca| [Some(ca.not_before), after(ca.not_after)]);
        let lists = self.revocation.crls.values().flat_map(|crls| {
            let indexed = &crls.newest;
            let policy = self
                .revocation
                .settings
                .policy(&crate::subject_text(&indexed.crl.issuer));
            [
                Some(indexed.crl.this_update),
                indexed.crl.next_update.and_then(after),
                indexed.crl.accepted_until(policy).and_then(after),
            ]
        });
        dates.chain(lists).flatten().filter(|at| *at > now).min()
    }

    pub(super) fn warn_of_policy(&mut self) {
        for crls in self.revocation.crls.values() {
            self.warnings.extend(crls.warning_of_older_files());
            self.warnings.extend(crls.warning_of_many_files());
        }
        for (issuer, unchecked) in self.revocation.without_crl() {
            self.warnings.push(if unchecked {
                format!("certificates of CA {issuer} are accepted without a CRL, because `unchecked` names it")
            } else {
                crl_missing(&issuer)
            });
        }
        for name in self.revocation.settings.named_issuers() {
            let known = self
                .anchors
                .bundle
                .issuers
                .values()
                .any(|issuer| issuer.text == *name);
            if !known {
                self.warnings.push(format!(
                    "[trust] has a policy for \"{name}\", but no CA of the bundle has this subject (write it as in RFC 2253)"
                ));
            }
        }
    }
}

impl Anchors {
    fn is_superseded(&self, ca: &Ca) -> bool {
        let cas = self.bundle.cas.iter();
        let mut same = cas.filter(|other| other.issuer.id == ca.issuer.id);
        same.any(|other| other.not_after > ca.not_after)
    }

    fn ca_alarms(&self, now: UnixTime) -> impl Iterator<Item = TrustAlarm> {
        self.bundle.cas.iter().filter_map(move |ca| {
            let subject = &ca.issuer.text;
            let what = if now > ca.not_after {
                format!("expired on {}", Day(ca.not_after))
            } else if now < ca.not_before {
                format!("is not valid before {}", Day(ca.not_before))
            } else {
                return None;
            };
            // The bundle may also contain the renewed certificate of the same CA.
            let mut others = self.bundle.cas.iter();
            let is_replaced =
                others.any(|other| other.issuer.has_name(&ca.issuer.name) && other.is_in_time(now));
            Some(TrustAlarm {
                about: about_ca(subject, &ca.place),
                message: format!("CA {subject} {what}"),
                refuses: !is_replaced,
            })
        })
    }
}

impl IssuerCrls {
    /// The warning about files that are older than the active CRLs: a file was restored, or a copy was written late.
    fn warning_of_older_files(&self) -> Option<String> {
        if self.is_fallback {
            let crl = self.provided.first()?;
            return Some(format!(
                "the CRL of {} in {} (number {}) is one that an operator has replaced (crl accept). It is used because there \
                 is no other, so certificates on it are refused; restore the newer file",
                Subject(&crl.crl.issuer),
                crl.place,
                crl.crl.number_text(),
            ));
        }
        if self.is_newest_provided() || self.newest.origin == CrlOrigin::Fetched {
            return None;
        }
        let older = self.provided.first()?;
        Some(format!(
            "the CRL of {} in {} (number {}) is older than the active one (number {}), whose dates and revocations still \
             apply; restore the newer file",
            Subject(&older.crl.issuer),
            older.place,
            older.crl.number_text(),
            self.newest.crl.number_text(),
        ))
    }
}

impl IssuerCrls {
    fn warning_of_many_files(&self) -> Option<String> {
        let further = self.further.first()?;
        Some(format!(
            "there are {} CRLs of {}, and certificates on any of them are refused. The proxy uses only the newest \
             {CRLS_OF_ISSUER_MAX} one by one, and crl accept is refused; remove old ones, for example {}",
            self.provided_count(),
            Subject(&further.crl.issuer),
            further.place,
        ))
    }
}

impl RevocationIndex {
    pub(crate) fn crl_status(
        &self,
        crls: &IssuerCrls,
        indexed: &IndexedCrl,
        now: UnixTime,
    ) -> ActiveCrlStatus {
        let crl = &indexed.crl;
        let issuer = crate::subject_text(&crl.issuer);
        ActiveCrlStatus {
            number: crl.number_text(),
            entries: crl.serials.len(),
            this_update: crl.this_update,
            next_update: crl.next_update,
            expired: crl.is_expired(now),
            accepted_until: crl.accepted_until(self.settings.policy(&issuer)),
            source: indexed.place.clone(),
            is_newest: indexed.fingerprint == crls.newest.fingerprint,
            issuer,
        }
    }

    fn crl_alarms(&self, now: UnixTime) -> Vec<TrustAlarm> {
        let mut alarms = Vec::new();
        for IssuerCrls {
            newest: indexed, ..
        } in self.crls.values().map(|crls| &**crls)
        {
            let crl = &indexed.crl;
            let issuer = Subject(&crl.issuer);
            // Two CAs may have the same name.
            let namesakes = self
                .crls
                .values()
                .filter(|other| other.newest.crl.issuer == crl.issuer);
            let place = match namesakes.count() {
                1 => String::new(),
                _ => format!(" ({})", indexed.place),
            };
            if let Some(next_update) = crl.next_update.filter(|_| crl.is_expired(now)) {
                alarms.push(TrustAlarm {
                    about: format!("CRL of {issuer}{place}"),
                    message: format!(
                        "the CRL of {issuer} ({}) expired on {}: {}; check the proxy's clock, then why no newer CRL arrives from the CA",
                        indexed.place,
                        Day(next_update),
                        self.consequence_of_expiry(indexed, now)
                    ),
                    refuses: self.is_rejected_as_expired(indexed, now) && self.consults(indexed),
                });
            }
            if crl.this_update > now {
                alarms.push(TrustAlarm {
                    about: format!("date of the CRL of {issuer}{place}"),
                    message: format!(
                        "the CRL of {issuer} ({}) was issued on {}, which is in the future: check the clocks of this host and of the CA server",
                        indexed.place,
                        Day(crl.this_update)
                    ),
                    refuses: false,
                });
            }
        }
        alarms
    }

    /// Whether the proxy looks up certificates in a CRL. With `revocation = "leaf"`, it does not use the CRL of a root above
    /// the CA that issues to agents.
    fn consults(&self, indexed: &IndexedCrl) -> bool {
        let named = self.anchors.bundle.issuers.values();
        let mut named = named.filter(|issuer| issuer.has_name(&indexed.crl.issuer));
        named.any(|issuer| {
            self.settings.policy(&issuer.text).revocation == Revocation::Chain
                || !self.anchors.bundle.is_above_others(issuer)
        })
    }

    fn consequence_of_expiry(&self, indexed: &IndexedCrl, now: UnixTime) -> String {
        let policy = self
            .settings
            .policy(&crate::subject_text(&indexed.crl.issuer));
        match indexed.crl.accepted_until(policy) {
            None => "it is still in use; certificates revoked since then are accepted".into(),
            Some(end) if now > end => "its issuer's certificates are refused".into(),
            Some(end) => format!(
                "it stays in use until {}, then its issuer's certificates are refused",
                Day(end)
            ),
        }
    }

    /// Subjects of CAs without a CRL, and whether `unchecked` names them.
    fn without_crl(&self) -> Vec<(String, bool)> {
        let mut found: Vec<_> = self
            .anchors
            .bundle
            .issuers
            .values()
            .filter(|issuer| !self.crls.contains_key(&issuer.id))
            .map(|issuer| (issuer, self.settings.policy(&issuer.text)))
            // A root above the CA that issues to agents needs no CRL if the proxy does not use that CRL.
            .filter(|(issuer, policy)| {
                policy.revocation == Revocation::Chain
                    || !self.anchors.bundle.is_above_others(issuer)
            })
            .map(|(issuer, policy)| (issuer.text.clone(), policy.unchecked))
            .collect();
        found.sort();
        found
    }
}

/// The object of an alarm about the dates of a CA: its subject (RFC 2253), with its file and PEM block.
pub fn about_ca(subject: &str, source: &str) -> String {
    format!("CA {subject} ({source})")
}

fn crl_missing(issuer: &str) -> String {
    format!(
        "no CRL of CA {issuer}: every certificate it issued is refused; provide its CRL in a file of `[trust] crl`, or on the \
         CA server if the proxy fetches CRLs from there (Puppet Server stores those of a root and its intermediate in \
         ca_crl.pem)"
    )
}

/// The second after this time.
fn after(time: UnixTime) -> Option<UnixTime> {
    let second = time.as_secs().checked_add(1)?;
    Some(UnixTime::since_unix_epoch(Duration::from_secs(second)))
}

/// From this serial number on, it is unlikely that the CA has never revoked a certificate. Each agent and server has had a
/// certificate.
const CERTIFICATES_MANY: u32 = 20;
