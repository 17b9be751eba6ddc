//! Sorts CRLs by issuer: which CA of the bundle signed each CRL, and which CRLs of a CA are used.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use foldhash::fast::RandomState;

use crate::anchors::Anchors;
use crate::certificate::{Signed, Subject};
use crate::crl::{Crl, CrlError};
use crate::fingerprint::Fingerprint;
use crate::indexed_crl::{CrlOrigin, IndexedCrl};
use crate::legacy_signatures;
use crate::pem::Block;
use crate::problem::PkiProblem;
use crate::revocation::RevocationIndex;
use crate::settings::TrustSettings;

/// Collects CRLs for a trust store.
pub(crate) struct CrlSorter<'a> {
    pub(crate) anchors: &'a Anchors,
    /// The CRLs that the previous store has already parsed and verified.
    known: HashMap<(Fingerprint, CrlOrigin), (Fingerprint, Arc<IndexedCrl>), RandomState>,
    found: HashMap<Fingerprint, Vec<Arc<IndexedCrl>>, RandomState>,
    pub(crate) strays: Vec<Arc<IndexedCrl>>,
    pub(crate) warnings: Vec<String>,
}

/// The result of sorting one CRL.
pub(crate) enum SortedCrl {
    /// The CRL of an issuer of the bundle.
    Known(Fingerprint, IndexedCrl),
    /// A CRL that no key of the bundle has signed.
    Stray(IndexedCrl),
    /// An unusable CRL. The reason is a sentence.
    Unusable(String),
}

impl<'a> CrlSorter<'a> {
    pub(crate) fn new(anchors: &'a Anchors, previous: Option<&RevocationIndex>) -> Self {
        let known = previous
            .into_iter()
            .flat_map(|previous| &previous.crls)
            .flat_map(|(issuer, crls)| {
                let lists = crls.all();
                lists.map(|crl| ((crl.fingerprint, crl.origin), (*issuer, Arc::clone(crl))))
            })
            .collect();
        Self {
            anchors,
            known,
            found: HashMap::default(),
            strays: Vec::new(),
            warnings: Vec::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty() && self.strays.is_empty()
    }

    /// Adds one CRL.
    ///
    /// # Errors
    /// The bytes are not a CRL. An unusable CRL is only a warning, because the other CRLs of the file are still valid.
    pub(crate) fn put(&mut self, block: Block, origin: CrlOrigin) -> Result<(), PkiProblem> {
        let fingerprint = Fingerprint::of([&*block.der]);
        if let Some((issuer, crl)) = self.known.get(&(fingerprint, origin))
            && crl.place == block.place()
            && self.may_sign_crls(*issuer)
        {
            let (issuer, crl) = (*issuer, Arc::clone(crl));
            self.insert(issuer, crl);
            return Ok(());
        }
        match self.sort(&block, origin)? {
            SortedCrl::Known(issuer, crl) => self.insert(issuer, Arc::new(crl)),
            SortedCrl::Stray(crl) => self.add_stray(crl, block),
            SortedCrl::Unusable(why) => self.warnings.push(why),
        }
        Ok(())
    }

    /// Parses one CRL and verifies its signature.
    ///
    /// # Errors
    /// The bytes are not a CRL.
    pub(crate) fn sort(&self, block: &Block, origin: CrlOrigin) -> Result<SortedCrl, PkiProblem> {
        let crl = match Crl::read(&block.der) {
            Ok(crl) => crl,
            Err(CrlError::Der(error)) => return Err(block.malformed("CRL", error)),
            Err(CrlError::Unusable(why)) => {
                let why = format!("CRL {} is not used: {why}", block.place());
                return Ok(SortedCrl::Unusable(why));
            }
        };
        let signer = self.issuer_of(&crl, block);
        let indexed = IndexedCrl {
            crl,
            fingerprint: Fingerprint::of([&*block.der]),
            place: block.place(),
            origin,
            unverified: Box::default(),
        };
        Ok(match signer {
            CrlSigner::Known(issuer) => SortedCrl::Known(issuer, indexed),
            CrlSigner::MayNot => SortedCrl::Unusable(format!(
                "CRL {} is not used: the key usage of its issuer {} does not allow signing CRLs",
                block.place(),
                Subject(&indexed.crl.issuer)
            )),
            CrlSigner::Unknown => SortedCrl::Stray(indexed),
        })
    }

    /// The issuer of the bundle that signed this CRL, found by name and then by signature.
    fn issuer_of(&self, crl: &Crl, block: &Block) -> CrlSigner {
        let signer = self.anchors.bundle.issuers.values().find(|issuer| {
            issuer.has_name(&crl.issuer)
                && Signed::read(&block.der).is_ok_and(|(_, signed)| {
                    self.anchors.legacy.check_signed(signed, issuer).is_ok()
                })
        });
        match signer {
            Some(issuer) if self.may_sign_crls(issuer.id) => CrlSigner::Known(issuer.id),
            Some(_) => CrlSigner::MayNot,
            None => CrlSigner::Unknown,
        }
    }

    /// Whether the issuer is a CA of the bundle that may sign CRLs.
    fn may_sign_crls(&self, issuer: Fingerprint) -> bool {
        let mut cas = self.anchors.bundle.cas.iter();
        cas.any(|ca| ca.issuer.id == issuer && ca.signs_crls)
    }

    fn insert(&mut self, issuer: Fingerprint, crl: Arc<IndexedCrl>) {
        self.found.entry(issuer).or_default().push(crl);
    }

    fn add_stray(&mut self, indexed: IndexedCrl, block: Block) {
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

    /// Keeps the fetched CRLs of the previous store. A CRL stays even if the rule by which it was verified has changed:
    /// otherwise, certificates that only this CRL revokes would be accepted again.
    pub(crate) fn keep_fetched(&mut self, previous: Option<&RevocationIndex>) {
        for (issuer, crls) in previous.into_iter().flat_map(|previous| &previous.crls) {
            if self.may_sign_crls(*issuer) {
                let fetched = crls.all_provided();
                let fetched = fetched.filter(|crl| crl.origin == CrlOrigin::Fetched);
                fetched.for_each(|crl| self.insert(*issuer, Arc::clone(crl)));
            }
        }
    }

    /// Builds the index of these CRLs. Revocations of the previous store stay active, even if a file was removed or restored,
    /// or a CA has dropped entries.
    pub(crate) fn index(
        self,
        settings: &TrustSettings,
        previous: Option<&RevocationIndex>,
    ) -> RevocationIndex {
        let mut index = RevocationIndex {
            settings: settings.clone(),
            anchors: self.anchors.clone(),
            crls: HashMap::default(),
            retained: HashMap::default(),
            strays: self.strays,
            late: Mutex::default(),
            set_aside: previous.map_or_else(Arc::default, |before| Arc::clone(&before.set_aside)),
        };
        if let Some(before) = previous {
            for issuer in before.crls.keys().chain(before.retained.keys()) {
                if !self.found.contains_key(issuer) {
                    index.retain(*issuer, before.earlier(*issuer));
                }
            }
        }
        for (issuer, found) in self.found {
            let earlier = previous.map(|before| before.earlier(issuer));
            index.put(issuer, found, earlier.unwrap_or_default());
        }
        index
    }
}

enum CrlSigner {
    Known(Fingerprint),
    /// A CA of the bundle that may not sign CRLs.
    MayNot,
    Unknown,
}

/// Maximum number of CRLs whose issuers are not in the bundle. Each may be large, and a directory may contain any number.
const STRAY_CRLS_MAX: usize = 64;
