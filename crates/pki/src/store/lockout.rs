//! Whether a trust store refuses every agent, because of its dates and CRLs.

use rustls_pki_types::UnixTime;

use super::TrustStore;
use crate::bundle::{Ca, Issuer};
use crate::revocation::RevocationIndex;
use crate::settings::Revocation;

/// Why the store can accept no certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lockout {
    /// The faults of the CAs and CRLs, each with the name of the CA.
    pub why: String,
    /// Whether usable CRLs alone would make the proxy accept agents again.
    pub is_by_crls: bool,
}

impl TrustStore {
    /// Why every agent is refused. None if the store is meant to verify no client, or if at least one CA that issues to agents
    /// is usable, together with all CAs above it.
    ///
    /// An expired CRL counts as usable if it is newer than the CRL of `active`. It may revoke more certificates, so its expiry
    /// alone is not a reason to keep the older CRL active.
    pub fn lockout(&self, active: Option<&Self>, now: UnixTime) -> Option<Lockout> {
        if self.has_no_cas() {
            return None;
        }
        let active = active.map(|active| &active.revocation);
        self.revocation.lockout(active, now)
    }
}

impl RevocationIndex {
    fn lockout(&self, active: Option<&Self>, now: UnixTime) -> Option<Lockout> {
        let dates = |ca: &Ca| ca.is_in_time(now);
        let crls = |ca: &Ca| self.crl_fault(&ca.issuer, active, now).is_none();
        if self.has_path(&dates, &crls) {
            return None;
        }
        let is_by_crls = self.has_path(&dates, &|_| true);
        let mut faults: Vec<_> = self
            .anchors
            .bundle
            .cas
            .iter()
            .filter_map(|ca| {
                if dates(ca) {
                    self.crl_fault(&ca.issuer, active, now)
                } else {
                    Some(format!("CA {} is out of its validity period", ca.described))
                }
            })
            .collect();
        faults.sort();
        faults.dedup();
        if !self.strays.is_empty() {
            let places: Vec<_> = self.strays.iter().map(|stray| &*stray.place).collect();
            faults.push(format!("{} cannot be used", places.join(", ")));
        }
        if faults.is_empty() {
            let depth = self.settings.depth;
            faults.push(format!(
                "[trust] depth = {depth} allows no CA that issues to agents"
            ));
        }
        Some(Lockout {
            why: faults.join(", and "),
            is_by_crls,
        })
    }

    /// Whether a CA that issues to agents is usable, together with each CA above it up to an anchor.
    fn has_path(&self, dates: &dyn Fn(&Ca) -> bool, crls: &dyn Fn(&Ca) -> bool) -> bool {
        let issuing = self.anchors.bundle.cas.iter();
        let mut issuing = issuing.filter(|ca| !self.anchors.bundle.is_above_others(&ca.issuer));
        issuing.any(|ca| crls(ca) && self.climbs(ca, dates, crls, 0))
    }

    fn climbs(
        &self,
        ca: &Ca,
        dates: &dyn Fn(&Ca) -> bool,
        crls: &dyn Fn(&Ca) -> bool,
        above: u8,
    ) -> bool {
        if !dates(ca) || above > self.settings.depth {
            return false;
        }
        let is_consulted =
            |ca: &Ca| self.settings.policy(&ca.issuer.text).revocation == Revocation::Chain;
        let mut parents = self.anchors.bundle.cas.iter().filter(|parent| {
            parent.issuer.has_name(&ca.issued_by) && parent.issuer.id != ca.issuer.id
        });
        ca.is_anchor
            || parents.any(|parent| {
                (!is_consulted(parent) || crls(parent))
                    && self.climbs(parent, dates, crls, above + 1)
            })
    }

    /// Why the proxy refuses the certificates of a CA without a usable CRL.
    fn crl_fault(&self, issuer: &Issuer, active: Option<&Self>, now: UnixTime) -> Option<String> {
        let Some(crls) = self.crls.get(&issuer.id) else {
            let is_unchecked = self.settings.policy(&issuer.text).unchecked;
            return (!is_unchecked).then(|| format!("no CRL of {} is provided", issuer.text));
        };
        let before = active.and_then(|active| active.crls.get(&issuer.id));
        let crl = &crls.newest;
        let is_newer = before.is_some_and(|before| crl.crl.age(&before.newest.crl).is_gt());
        let is_rejected = self.is_rejected_as_expired(crl, now) && !is_newer;
        is_rejected.then(|| format!("the CRL of {} ({}) has expired", issuer.text, crl.place))
    }
}
