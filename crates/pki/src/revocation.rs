//! Revocation: the CRLs of a trust store by issuer, the policy for them, and whether a certificate is revoked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::fast::RandomState;
use identity::Reason;
use rustls_pki_types::{CertificateDer, SubjectPublicKeyInfoDer, UnixTime};

use crate::anchors::Anchors;
use crate::bundle::Issuer;
use crate::certificate::Day;
use crate::chain::Link;
use crate::earlier_revocations::EarlierRevocations;
use crate::fingerprint::Fingerprint;
use crate::indexed_crl::IndexedCrl;
use crate::issuer_crls::IssuerCrls;
use crate::refusal::{CertificateFault, described};
use crate::set_aside::{SetAsideRule, is_set_aside};
use crate::settings::{CrlExpired, Revocation, TrustSettings, UNCHECKED_ALL};

/// The CRLs by issuer, and the policy of `[trust]`.
#[derive(Debug)]
pub(crate) struct RevocationIndex {
    pub(crate) settings: TrustSettings,
    /// The CAs that may have signed the CRLs.
    pub(crate) anchors: Anchors,
    /// The CRLs of each issuer of the bundle that has a CRL.
    pub(crate) crls: HashMap<Fingerprint, Arc<IssuerCrls>, RandomState>,
    /// The revocations of issuers that have no CRL now. They stay active, and count with the issuer's next CRL.
    pub(crate) retained: HashMap<Fingerprint, Arc<EarlierRevocations>, RandomState>,
    /// CRLs whose issuer is not in the bundle.
    pub(crate) strays: Vec<Arc<IndexedCrl>>,
    /// The stray CRLs of issuers whose certificates clients sent, or none. They are found by signature on first use.
    pub(crate) late: Mutex<HashMap<Fingerprint, Option<Arc<IssuerCrls>>, RandomState>>,
    /// The rules for CRLs that are no longer used, because an operator has accepted others in their place.
    pub(crate) set_aside: Arc<[SetAsideRule]>,
}

/// The link of a path that fails, counted from the anchor down, and the reason.
pub(crate) struct LinkFault {
    pub(crate) link: usize,
    pub(crate) reason: Reason,
}

impl RevocationIndex {
    /// A copy for the next generation of the trust store.
    pub(crate) fn next(&self) -> Self {
        Self {
            settings: self.settings.clone(),
            anchors: self.anchors.clone(),
            crls: self.crls.clone(),
            retained: self.retained.clone(),
            strays: self.strays.clone(),
            late: Mutex::default(),
            set_aside: Arc::clone(&self.set_aside),
        }
    }

    /// The same CAs without revocation checks.
    pub(crate) fn without_crls(&self) -> Self {
        let mut unchecked = self.next();
        unchecked.settings.unchecked = vec![UNCHECKED_ALL.to_owned()];
        unchecked.settings.issuers.clear();
        unchecked.crls.clear();
        unchecked.retained.clear();
        unchecked.strays.clear();
        unchecked
    }

    /// The revocations of an issuer so far. CRLs that are used only because the CRLs that an operator accepted in their place
    /// are missing do not count.
    pub(crate) fn earlier(&self, issuer: Fingerprint) -> EarlierRevocations {
        match self.crls.get(&issuer) {
            Some(crls) => crls.earlier(|crl| !is_set_aside(&self.set_aside, issuer, crl)),
            None => {
                let retained = self.retained.get(&issuer);
                retained.map_or_else(EarlierRevocations::default, |earlier| (**earlier).clone())
            }
        }
    }

    /// Makes these CRLs the provided CRLs of an issuer. Earlier revocations stay active.
    pub(crate) fn put(
        &mut self,
        issuer: Fingerprint,
        provided: Vec<Arc<IndexedCrl>>,
        earlier: EarlierRevocations,
    ) {
        let counts = |crl: &IndexedCrl| !is_set_aside(&self.set_aside, issuer, crl);
        match IssuerCrls::new(provided, counts, &earlier) {
            Some(crls) => {
                self.crls.insert(issuer, Arc::new(crls));
                self.retained.remove(&issuer);
            }
            None => self.retain(issuer, earlier),
        }
    }

    /// Retains the revocations of an issuer without a CRL.
    pub(crate) fn retain(&mut self, issuer: Fingerprint, earlier: EarlierRevocations) {
        let is_in_bundle = |id: &Fingerprint| self.anchors.bundle.issuers.contains_key(id);
        let outside = self.retained.keys().filter(|id| !is_in_bundle(id)).count();
        if !earlier.is_empty() && (is_in_bundle(&issuer) || outside < RETAINED_ISSUERS_MAX) {
            self.retained.insert(issuer, Arc::new(earlier));
        }
    }

    /// Whether the certificate of this issuer with this serial is revoked. `serial` is in its shortest form.
    pub(crate) fn revokes(&self, issuer: &Issuer, serial: &[u8]) -> bool {
        match self.crls_of(issuer) {
            Some(crls) => crls.revoke(serial),
            None => {
                let retained = self.retained.get(&issuer.id);
                retained.is_some_and(|earlier| earlier.revoke(serial))
            }
        }
    }

    /// A sentence that says on which CRL of the issuer a revoked serial is.
    pub(crate) fn described(&self, issuer: &Issuer, serial: &[u8]) -> String {
        match self.crls_of(issuer) {
            Some(crls) => crls.described(&issuer.text, serial),
            None => format!(
                "It was on an earlier CRL of {}. The proxy has no CRL of this CA now.",
                issuer.text
            ),
        }
    }

    /// The active CRLs of an issuer.
    pub(crate) fn crls_of(&self, issuer: &Issuer) -> Option<Arc<IssuerCrls>> {
        match self.crls.get(&issuer.id) {
            Some(crls) => Some(Arc::clone(crls)),
            // At load, every CRL was matched with the issuers of the bundle.
            None if self.anchors.bundle.issuers.contains_key(&issuer.id) || !issuer.signs_crls => {
                None
            }
            None => self.strays_of(issuer),
        }
    }

    /// Finds an issuer's CRLs among the strays, and stores the result.
    fn strays_of(&self, issuer: &Issuer) -> Option<Arc<IssuerCrls>> {
        let has_name = |stray: &&Arc<IndexedCrl>| issuer.has_name(&stray.crl.issuer);
        if !self.strays.iter().any(|stray| has_name(&stray)) {
            return None;
        }
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = late.get(&issuer.id) {
            return known.clone();
        }
        let spki = SubjectPublicKeyInfoDer::from(&*issuer.spki);
        let found = self.strays.iter().filter(has_name);
        let found = found.filter(|stray| stray.is_signed_by(&spki)).cloned();
        let crls = IssuerCrls::new(found.collect(), |_| true, &self.earlier(issuer.id));
        let crls = crls.map(Arc::new);
        if late.len() < LATE_ISSUERS_MAX {
            late.insert(issuer.id, crls.clone());
        }
        crls
    }

    /// Looks up the links in the CRLs of their issuers, according to the policy. Returns how long the result is valid.
    pub(crate) fn unrevoked(
        &self,
        links: &[Link],
        earliest_end: UnixTime,
        now: UnixTime,
    ) -> Result<UnixTime, LinkFault> {
        let mut good_until = earliest_end;
        let mut fault = None;
        for (index, link) in links.iter().enumerate() {
            if index + 1 < links.len() && self.exempts_cas(&link.issuer) {
                continue;
            }
            match self.check_link(link, now) {
                Ok(until) => good_until = good_until.min(until.unwrap_or(good_until)),
                Err(reason) => {
                    if fault.is_none() || reason == Reason::Revoked {
                        fault = Some(LinkFault {
                            link: index,
                            reason,
                        });
                    }
                }
            }
        }
        fault.map_or(Ok(good_until), Err)
    }

    /// Whether the policy exempts CA certificates of this issuer from revocation checks.
    fn exempts_cas(&self, issuer: &Issuer) -> bool {
        self.settings.policy(&issuer.text).revocation == Revocation::Leaf
    }

    fn check_link(&self, link: &Link, now: UnixTime) -> Result<Option<UnixTime>, Reason> {
        if self.revokes(&link.issuer, &link.serial) {
            return Err(Reason::Revoked);
        }
        let policy = self.settings.policy(&link.issuer.text);
        let Some(crls) = self.crls_of(&link.issuer) else {
            return if policy.unchecked {
                Ok(None)
            } else {
                Err(Reason::CrlMissing)
            };
        };
        match crls.newest.crl.accepted_until(policy) {
            Some(end) if now > end => Err(Reason::CrlExpired),
            until => Ok(until),
        }
    }

    pub(crate) fn revocation_fault(
        &self,
        fault: &LinkFault,
        links: &[Link],
        leaf: &CertificateDer<'_>,
        revoked: &CertificateDer<'_>,
    ) -> CertificateFault {
        let link = &links[fault.link];
        let issuer = &link.issuer;
        let detail = match (fault.reason, self.crls_of(issuer)) {
            (Reason::Revoked, _) => {
                let listed = self.described(issuer, &link.serial);
                if fault.link + 1 == links.len() {
                    listed
                } else {
                    format!(
                        "{listed} The revoked certificate is that of a CA above the certificate {}.",
                        described(leaf)
                    )
                }
            }
            (Reason::CrlExpired, Some(crls)) => format!(
                "The CRL of {}, number {}, expired on {}{}.",
                issuer.text,
                crls.newest.crl.number_text(),
                crls.newest
                    .crl
                    .next_update
                    .map_or_else(String::new, |end| Day(end).to_string()),
                self.grace_text(issuer),
            ),
            _ => format!("The proxy has no CRL of {}.", issuer.text),
        };
        // If a CRL is missing, the CA certificate itself is not at fault.
        match fault.reason {
            Reason::Revoked => CertificateFault::new(fault.reason, revoked, detail),
            reason => CertificateFault::new(reason, leaf, detail),
        }
    }

    /// The addition to a message about a CRL whose grace period has also expired.
    fn grace_text(&self, issuer: &Issuer) -> &'static str {
        match self.settings.policy(&issuer.text).crl_expired {
            CrlExpired::Grace(_) => ", and the proxy's grace period for it has expired too",
            CrlExpired::Reject | CrlExpired::Warn => "",
        }
    }

    /// Subjects of CAs that had a CRL in the store before, are still in the bundle, and have no CRL here. The cause is a file
    /// that was removed or truncated.
    pub(crate) fn crls_lost(&self, before: &Self) -> Vec<String> {
        let issuers = self.anchors.bundle.issuers.values();
        let mut lost: Vec<_> = issuers
            .filter(|issuer| {
                before.crls.contains_key(&issuer.id) && !self.crls.contains_key(&issuer.id)
            })
            .map(|issuer| issuer.text.clone())
            .collect();
        lost.sort();
        lost
    }

    /// Whether every certificate from this CA of the bundle is refused while the CA has no CRL.
    pub(crate) fn needs_crl(&self, issuer: &str) -> bool {
        let policy = self.settings.policy(issuer);
        let mut named = self
            .anchors
            .bundle
            .issuers
            .values()
            .filter(|ca| ca.text == issuer);
        let issues_to_clients = named.any(|ca| !self.anchors.bundle.is_above_others(ca));
        !policy.unchecked && (policy.revocation == Revocation::Chain || issues_to_clients)
    }

    /// Whether the policy refuses the certificates of the issuer, because its CRL has expired.
    pub(crate) fn is_rejected_as_expired(&self, indexed: &IndexedCrl, now: UnixTime) -> bool {
        let issuer = crate::subject_text(&indexed.crl.issuer);
        let end = indexed.crl.accepted_until(self.settings.policy(&issuer));
        end.is_some_and(|end| now > end)
    }

    /// Size of the index of revoked serials in bytes.
    pub(crate) fn index_bytes(&self) -> usize {
        let strays = self.strays.iter().map(|stray| stray.crl.serials.bytes());
        let retained = self.retained.values().map(|earlier| earlier.bytes());
        let crls = self.crls.values().map(|crls| crls.bytes());
        crls.chain(retained).chain(strays).sum()
    }
}

/// Maximum number of issuers that have left the bundle and whose revocations are retained.
const RETAINED_ISSUERS_MAX: usize = 64;

/// Maximum number of issuers from clients whose CRLs are stored. All of them are below a CA of the bundle, so there are few.
/// Beyond the maximum, the signature is verified each time.
const LATE_ISSUERS_MAX: usize = 64;
