//! CRLs being sorted in: which CA of the bundle made each, and which of one CA counts.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::anchors::Anchors;
use crate::certificate::{Signed, Subject};
use crate::crl::{Crl, CrlError};
use crate::fingerprint::Fingerprint;
use crate::indexed_crl::{CrlOrigin, IndexedCrl, OverruledCrl};
use crate::legacy_signatures;
use crate::pem::Block;
use crate::problem::PkiProblem;
use crate::revocation::RevocationIndex;
use crate::set_aside::SetAsideRule;

/// CRLs being sorted in.
pub(crate) struct CrlSorter<'a> {
    pub(crate) anchors: &'a Anchors,
    /// What the store before had already read and verified.
    known: HashMap<Fingerprint, (Fingerprint, Arc<IndexedCrl>), RandomState>,
    pub(crate) set_aside: Arc<[SetAsideRule]>,
    pub(crate) index: HashMap<Fingerprint, Arc<IndexedCrl>, RandomState>,
    pub(crate) strays: Vec<Arc<IndexedCrl>>,
    pub(crate) warnings: Vec<String>,
    pub(crate) overruled: Vec<OverruledCrl>,
}

/// What one CRL turned out to be.
pub(crate) enum SortedCrl {
    /// That of an issuer of the bundle.
    Known(Fingerprint, IndexedCrl),
    /// Of no key of the bundle.
    Stray(IndexedCrl),
    /// Nobody's to judge by: why, as a sentence.
    Unusable(String),
}

impl<'a> CrlSorter<'a> {
    pub(crate) fn new(anchors: &'a Anchors, previous: Option<&RevocationIndex>) -> Self {
        let known = previous
            .into_iter()
            .flat_map(|previous| &previous.crls)
            .map(|(issuer, crl)| (crl.fingerprint, (*issuer, Arc::clone(crl))))
            .collect();
        Self {
            anchors,
            known,
            set_aside: Arc::default(),
            index: HashMap::default(),
            strays: Vec::new(),
            warnings: Vec::new(),
            overruled: Vec::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.index.is_empty() && self.strays.is_empty()
    }

    /// Sorts one CRL in.
    ///
    /// # Errors
    /// Bytes that are no CRL. One that cannot be used is a warning: the others of the file are still good.
    pub(crate) fn put(&mut self, block: Block, origin: CrlOrigin) -> Result<(), PkiProblem> {
        let fingerprint = Fingerprint::of([&*block.der]);
        if let Some((issuer, crl)) = self.known.get(&fingerprint)
            && crl.place == block.place()
            && self.may_sign_crls(*issuer)
        {
            let (issuer, crl) = (*issuer, Arc::clone(crl));
            self.place(issuer, crl);
            return Ok(());
        }
        match self.sort(&block, origin)? {
            SortedCrl::Known(issuer, crl) => self.place(issuer, Arc::new(crl)),
            SortedCrl::Stray(crl) => self.stray(crl, block),
            SortedCrl::Unusable(why) => self.warnings.push(why),
        }
        Ok(())
    }

    /// Reads one CRL and checks its signature.
    ///
    /// # Errors
    /// Bytes that are no CRL.
    pub(crate) fn sort(&self, block: &Block, origin: CrlOrigin) -> Result<SortedCrl, PkiProblem> {
        let crl = match Crl::read(&block.der) {
            Ok(crl) => crl,
            Err(CrlError::Der(error)) => return Err(block.malformed("CRL", error)),
            Err(CrlError::Unusable(why)) => {
                let why = format!("CRL {} is not used: {why}", block.place());
                return Ok(SortedCrl::Unusable(why));
            }
        };
        let maker = self.issuer_of(&crl, block);
        let indexed = IndexedCrl {
            crl,
            fingerprint: Fingerprint::of([&*block.der]),
            place: block.place(),
            origin,
            unverified: Box::default(),
        };
        Ok(match maker {
            CrlSigner::Known(issuer) => SortedCrl::Known(issuer, indexed),
            CrlSigner::MayNot => SortedCrl::Unusable(format!(
                "CRL {} is not used: the key usage of its issuer {} does not allow signing CRLs",
                block.place(),
                Subject(&indexed.crl.issuer)
            )),
            CrlSigner::Unknown => SortedCrl::Stray(indexed),
        })
    }

    /// Which issuer of the bundle made this CRL: by name, then by signature.
    fn issuer_of(&self, crl: &Crl, block: &Block) -> CrlSigner {
        let made_it = self.anchors.bundle.issuers.values().find(|issuer| {
            issuer.has_name(&crl.issuer)
                && Signed::read(&block.der).is_ok_and(|(_, signed)| {
                    self.anchors.legacy.check_signed(signed, issuer).is_ok()
                })
        });
        match made_it {
            Some(issuer) if self.may_sign_crls(issuer.id) => CrlSigner::Known(issuer.id),
            Some(_) => CrlSigner::MayNot,
            None => CrlSigner::Unknown,
        }
    }

    /// Whether this is a CA of the bundle and may sign lists.
    fn may_sign_crls(&self, issuer: Fingerprint) -> bool {
        let mut cas = self.anchors.bundle.cas.iter();
        cas.any(|ca| ca.issuer.id == issuer && ca.signs_crls)
    }

    fn place(&mut self, issuer: Fingerprint, crl: Arc<IndexedCrl>) {
        match self.index.get(&issuer) {
            Some(known) if self.is_before(issuer, &crl, known) => {}
            _ => {
                self.index.insert(issuer, crl);
            }
        }
    }

    /// Whether `one` has to stand back behind `other`, both of one issuer: what no longer counts behind what does, else
    /// the older one.
    fn is_before(&self, issuer: Fingerprint, one: &IndexedCrl, other: &IndexedCrl) -> bool {
        let counts = |crl| !self.set_aside.iter().any(|rule| rule.covers(issuer, crl));
        match (counts(one), counts(other)) {
            (false, true) => true,
            (true, false) => false,
            _ => one.crl.age(&other.crl).is_le(),
        }
    }

    fn stray(&mut self, indexed: IndexedCrl, block: Block) {
        let crl = &indexed.crl;
        if self.strays.len() == STRAY_CRLS_MAX {
            self.warnings.push(format!(
                "CRL {} is not used: its issuer {} is not in the CA bundle, and {STRAY_CRLS_MAX} such CRLs are loaded already",
                block.place(),
                Subject(&crl.issuer)
            ));
            return;
        }
        let issuers = self.anchors.bundle.issuers.values();
        let mut same_name = issuers
            .filter(|issuer| issuer.has_name(&crl.issuer))
            .peekable();
        let is_same_name = same_name.peek().is_some();
        let is_sha1 =
            Signed::read(&block.der).is_ok_and(|(_, signed)| legacy_signatures::is_sha1(signed));
        let is_legacy =
            is_sha1 || same_name.any(|issuer| legacy_signatures::is_small_rsa(&issuer.spki));
        if is_same_name && is_legacy {
            self.warnings.push(format!(
                "CRL {} is not used: it is signed with SHA-1 or an RSA key under 2048 bits, and `legacy_signatures` does not name {}",
                block.place(),
                Subject(&crl.issuer)
            ));
        } else if is_same_name {
            self.warnings.push(format!(
                "CRL {} is not signed by the CA {} of the bundle but by another key of a CA with that name (was the CA recreated?)",
                block.place(),
                Subject(&crl.issuer)
            ));
        }
        self.strays.push(Arc::new(IndexedCrl {
            unverified: block.der.into_boxed_slice(),
            ..indexed
        }));
    }

    /// What was fetched stays while no file has a newer one: files know nothing of it. It stays by whatever rule it was
    /// verified, for without it whom it alone revokes would come in again.
    pub(crate) fn keep_fetched(&mut self, previous: Option<&RevocationIndex>) {
        let lists = previous.into_iter().flat_map(|previous| &previous.crls);
        for (issuer, crl) in lists.filter(|(_, crl)| crl.origin == CrlOrigin::Fetched) {
            if self.may_sign_crls(*issuer) {
                self.place(*issuer, Arc::clone(crl));
            }
        }
    }

    /// Where the store before held a newer CRL of an issuer, that one stays: an older list would bring back what was
    /// revoked since (a file restored, a copy that lost the race). So it does where a copy has a newer one that lacks some
    /// of it: the CA's answer to whoever made the copy is refused here.
    pub(crate) fn keep_newer(&mut self, previous: Option<&RevocationIndex>) {
        let Some(previous) = previous else { return };
        let rules = &self.set_aside;
        for (issuer, crl) in &mut self.index {
            let Some(active) = previous.crls.get(issuer) else {
                continue;
            };
            let counts = !rules.iter().any(|rule| rule.covers(*issuer, active));
            if counts && active.crl.age(&crl.crl).is_gt() {
                self.warnings.push(format!(
                    "the CRL of {} in {} (number {}) is older than the active one (number {}), which stays active; restore \
                     the newer file, because after a restart the proxy uses the older one unless it has fetched a \
                     newer one from the CA",
                    Subject(&crl.crl.issuer),
                    crl.place,
                    crl.crl.number_text(),
                    active.crl.number_text(),
                ));
                *crl = Arc::clone(active);
            } else if let Some(overruled) =
                OverruledCrl::of(*issuer, crl, active).filter(|_| counts)
            {
                self.overruled.push(overruled);
                *crl = Arc::clone(active);
            }
        }
    }
}

/// Who made a CRL.
enum CrlSigner {
    Known(Fingerprint),
    /// A CA of the bundle that may not.
    MayNot,
    Unknown,
}

/// CRLs of issuers that are not in the bundle. Each may be long, and a directory may hold any number.
const STRAY_CRLS_MAX: usize = 64;
