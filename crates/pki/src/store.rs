//! The trust store: CA bundle, CRL index and policy as one value that is built whole and then only read.

mod crl_sorting;
mod lockout;
mod status;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::fast::RandomState;
use rustls_pki_types::SubjectPublicKeyInfoDer;

use crate::bundle::{Bundle, Fingerprint, Issuer};
use crate::chain_memory::{ChainMemory, ChainMemoryStats};
use crate::deny::DenyList;
use crate::fetched::SetAsideRule;
use crate::legacy_signatures::LegacySignatures;
use crate::pem::{self, Named};
use crate::problem::PkiProblem;
use crate::required_cas::MembersSeen;
use crate::settings::{Revocation, TrustSettings};

pub(crate) use crl_sorting::{CrlOrigin, CrlSorter, IndexedCrl, OverruledCrl, SortedCrl};
pub use lockout::Lockout;
pub use status::{CaStatus, CrlStatus, TrustAlarm, TrustStatus};

/// The bytes a trust store is made of.
#[derive(Clone, Debug, Default)]
pub struct TrustMaterial {
    /// PEM bundles of CA certificates.
    pub bundle: Vec<Named<Vec<u8>>>,
    /// PEM CRLs, each blob one or several; of a directory every file that [`crate::holds_crl`].
    pub crls: Vec<Named<Vec<u8>>>,
    /// The same that something else fetches (an agent's own copy) while lists are fetched here: nobody means what it says,
    /// and it may take nothing back.
    pub copied_crls: Vec<Named<Vec<u8>>>,
}

/// CA bundle, CRLs and policy.
///
/// Immutable but for what need not be found out twice: a CRL whose issuer is not in the bundle is verified when a path
/// first yields that issuer's key, and chains that were verified are remembered.
#[derive(Debug)]
pub struct TrustStore {
    pub(crate) generation: u64,
    /// Of everything a path depends on: bundle, policy, subject rule. Not of the CRLs.
    pub(crate) paths: Fingerprint,
    /// Of everything.
    whole: Fingerprint,
    pub(crate) settings: TrustSettings,
    pub(crate) identity: identity::IdentitySettings,
    pub(crate) bundle: Arc<Bundle>,
    pub(crate) legacy: Arc<LegacySignatures>,
    pub(crate) deny: Arc<DenyList>,
    /// Lists that no longer count, since an operator has accepted one with a lower number in their place.
    pub(crate) set_aside: Arc<[SetAsideRule]>,
    /// The newest CRL of each issuer of the bundle.
    pub(crate) index: HashMap<Fingerprint, Arc<IndexedCrl>, RandomState>,
    pub(crate) strays: Vec<Arc<IndexedCrl>>,
    /// What became of the strays at issuers that clients sent: a CRL, or none.
    late: Mutex<HashMap<Fingerprint, Option<Arc<IndexedCrl>>, RandomState>>,
    /// Shared with every store of the same bundle and policy.
    pub(crate) remembered: Arc<ChainMemory>,
    /// Of stores towards members, shared with every later one.
    pub(crate) members_seen: Arc<MembersSeen>,
    /// What is wrong with the material.
    material_warnings: Vec<String>,
    /// Lists of copies that take something back.
    pub(crate) overruled: Arc<[OverruledCrl]>,
    /// That, and what the policy makes of it.
    warnings: Vec<String>,
}

impl TrustStore {
    /// Builds a store, reusing what has not changed since `previous`.
    ///
    /// The generation is `previous`'s when nothing at all has changed, else one more, beginning with 1. A CRL older
    /// than the active one is not loaded: the newer one stays active, with a warning, until the process restarts.
    ///
    /// # Errors
    /// Every problem at once: material that cannot be read, no CA, or no CRL where `unchecked` names no issuer.
    pub fn build(
        material: &TrustMaterial,
        settings: &TrustSettings,
        identity: &identity::IdentitySettings,
        previous: Option<&Self>,
    ) -> Result<Self, Vec<PkiProblem>> {
        let mut problems = Vec::new();
        let bundle = Bundle::read(&material.bundle, previous.map(|previous| &previous.bundle));
        let mut blocks = Vec::new();
        let files = material.crls.iter().map(|crl| (crl, CrlOrigin::File));
        let copies = material
            .copied_crls
            .iter()
            .map(|crl| (crl, CrlOrigin::Copy));
        for (crl, origin) in files.chain(copies) {
            match pem::crls(crl) {
                Ok(found) => blocks.extend(found.into_iter().map(|block| (block, origin))),
                Err(problem) => problems.push(problem),
            }
        }
        let bundle = match bundle {
            Ok(bundle) => bundle,
            Err(found) => {
                problems.splice(0..0, found);
                return Err(problems);
            }
        };
        let legacy = Arc::new(LegacySignatures::of(&bundle, &settings.legacy_signatures));
        // What was verified by a rule that has changed is verified again.
        let known =
            previous.filter(|known| known.settings.legacy_signatures == settings.legacy_signatures);
        let mut shelf = CrlSorter::new(&bundle, &legacy, known);
        if let Some(previous) = previous {
            shelf.set_aside = Arc::clone(&previous.set_aside);
        }
        for (block, origin) in blocks {
            if let Err(problem) = shelf.put(block, origin) {
                problems.push(problem);
            }
        }
        shelf.keep_fetched(previous);
        if shelf.is_empty() && !settings.leaves_unchecked() && problems.is_empty() {
            problems.extend(shelf.warnings.iter().cloned().map(PkiProblem::CrlUnusable));
            problems.push(PkiProblem::NoCrl);
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        shelf.keep_newer(previous);
        Ok(Self::assemble(shelf, settings, identity, previous))
    }

    fn assemble(
        shelf: CrlSorter<'_>,
        settings: &TrustSettings,
        identity: &identity::IdentitySettings,
        previous: Option<&Self>,
    ) -> Self {
        let bundle = Arc::clone(shelf.bundle);
        let policy = format!("{settings:?} {identity:?}");
        let paths = Fingerprint::of([&bundle.fingerprint.as_bytes()[..], policy.as_bytes()]);
        let mut material_warnings = bundle.warnings.clone();
        material_warnings.extend(shelf.warnings);
        let remembered = match previous {
            Some(previous) if previous.paths == paths => Arc::clone(&previous.remembered),
            other => {
                let lookups = other.map(|other| other.remembered.lookups());
                let lookups = lookups.unwrap_or_default();
                Arc::new(ChainMemory::new(settings.chain_cache_max, lookups))
            }
        };
        let mut store = Self {
            generation: 1,
            paths,
            whole: paths,
            settings: settings.clone(),
            identity: *identity,
            bundle,
            legacy: Arc::clone(shelf.legacy),
            deny: previous.map_or_else(Arc::default, |previous| Arc::clone(&previous.deny)),
            set_aside: shelf.set_aside,
            index: shelf.index,
            strays: shelf.strays,
            late: Mutex::default(),
            remembered,
            members_seen: previous
                .map_or_else(Arc::default, |previous| Arc::clone(&previous.members_seen)),
            material_warnings,
            overruled: shelf.overruled.into(),
            warnings: Vec::new(),
        };
        store.settle();
        if let Some(previous) = previous {
            store.generation = previous.generation + u64::from(previous.whole != store.whole);
        }
        store
    }

    /// Works out what follows from the lists that are in it.
    pub(crate) fn settle(&mut self) {
        let mut crls: Vec<_> = self
            .index
            .values()
            .chain(&self.strays)
            .map(|crl| crl.fingerprint)
            .collect();
        crls.sort_unstable();
        self.whole = Fingerprint::of(
            std::iter::once(&self.paths)
                .chain(&crls)
                .map(|fingerprint| &fingerprint.as_bytes()[..]),
        );
        self.warnings.clone_from(&self.material_warnings);
        let still = self.overruled.iter().filter(|overruled| {
            let active = self.index.get(&overruled.issuer);
            active.is_some_and(|active| active.fingerprint == overruled.by)
        });
        self.warnings
            .extend(still.map(|overruled| overruled.why.clone()));
        self.warn_of_policy();
    }

    /// The same with another deny list, as the next generation. Every other one is built on it and inherits the list.
    #[must_use]
    pub fn with_deny_list(&self, deny: DenyList) -> Self {
        Self {
            deny: Arc::new(deny),
            ..self.next()
        }
    }

    /// The same as the next generation.
    pub(crate) fn next(&self) -> Self {
        Self {
            generation: self.generation + 1,
            paths: self.paths,
            whole: self.whole,
            settings: self.settings.clone(),
            identity: self.identity,
            bundle: Arc::clone(&self.bundle),
            legacy: Arc::clone(&self.legacy),
            deny: Arc::clone(&self.deny),
            set_aside: Arc::clone(&self.set_aside),
            index: self.index.clone(),
            strays: self.strays.clone(),
            late: Mutex::default(),
            remembered: Arc::clone(&self.remembered),
            members_seen: Arc::clone(&self.members_seen),
            material_warnings: self.material_warnings.clone(),
            overruled: Arc::clone(&self.overruled),
            warnings: self.warnings.clone(),
        }
    }

    /// Whom the operator has blocked.
    pub fn deny_list(&self) -> &DenyList {
        &self.deny
    }

    /// Of the CA bundle.
    pub fn cas(&self) -> Fingerprint {
        self.bundle.fingerprint
    }

    /// Whether this is the subject (RFC 2253) of a CA of the bundle.
    pub fn knows_issuer(&self, name: &str) -> bool {
        self.bundle
            .issuers
            .values()
            .any(|issuer| issuer.text == name)
    }

    /// Rises with each change; connections compare it on each request.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// What was found wrong while building, and does not stop it.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Subjects of CAs that had a CRL in the store before, are still in the bundle, and have none here: what a file that
    /// went away or was cut short leaves behind.
    pub fn crls_lost(&self, before: &Self) -> Vec<String> {
        let issuers = self.bundle.issuers.values();
        let mut lost: Vec<_> = issuers
            .filter(|issuer| {
                before.index.contains_key(&issuer.id) && !self.index.contains_key(&issuer.id)
            })
            .map(|issuer| issuer.text.clone())
            .collect();
        lost.sort();
        lost
    }

    /// Whether all that this CA of the bundle issued is refused while it has no CRL.
    pub fn needs_crl(&self, issuer: &str) -> bool {
        let policy = self.settings.policy(issuer);
        let mut named = self.bundle.issuers.values().filter(|ca| ca.text == issuer);
        let issues_to_clients = named.any(|ca| !self.bundle.is_above_others(ca));
        !policy.unchecked && (policy.revocation == Revocation::Chain || issues_to_clients)
    }

    /// Subjects of the bundle's CAs whose signatures of another time are admitted.
    pub fn legacy_cas(&self) -> impl Iterator<Item = &str> {
        self.legacy.subjects()
    }

    /// The Names of the bundle's CAs, as hints for clients that hold several certificates.
    pub(crate) fn subjects(&self) -> impl Iterator<Item = &[u8]> {
        let mut names: Vec<&[u8]> = self.bundle.cas.iter().map(|ca| &*ca.issuer.name).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter()
    }

    /// The policy.
    pub fn settings(&self) -> &TrustSettings {
        &self.settings
    }

    /// What is remembered of chains, and how often that was of use.
    pub fn chain_memory(&self) -> ChainMemoryStats {
        self.remembered.stats()
    }

    /// Bytes that the index of revoked serials takes.
    pub fn index_bytes(&self) -> usize {
        let lists = self.index.values().chain(&self.strays);
        lists.map(|indexed| indexed.crl.serials.bytes()).sum()
    }

    /// The CRL in force of an issuer.
    pub(crate) fn crl_of(&self, issuer: &Issuer) -> Option<Arc<IndexedCrl>> {
        match self.index.get(&issuer.id) {
            Some(crl) => Some(Arc::clone(crl)),
            // An issuer of the bundle has been matched with every CRL at load.
            None if self.bundle.issuers.contains_key(&issuer.id) || !issuer.signs_crls => None,
            None => self.stray_of(issuer),
        }
    }

    /// Looks for an issuer's CRL among those that no CA of the bundle made, and remembers the outcome.
    fn stray_of(&self, issuer: &Issuer) -> Option<Arc<IndexedCrl>> {
        let has_name = |stray: &&Arc<IndexedCrl>| issuer.has_name(&stray.crl.issuer);
        if !self.strays.iter().any(|stray| has_name(&stray)) {
            return None;
        }
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = late.get(&issuer.id) {
            return known.clone();
        }
        let spki = SubjectPublicKeyInfoDer::from(&*issuer.spki);
        let newest = self
            .strays
            .iter()
            .filter(has_name)
            .filter(|stray| stray.is_signed_by(&spki))
            .max_by(|a, b| a.crl.age(&b.crl))
            .cloned();
        if late.len() < LATE_ISSUERS_MAX {
            late.insert(issuer.id, newest.clone());
        }
        newest
    }
}

/// Issuers sent by clients whose CRL is remembered. They are all below a CA of the bundle, so there are few; beyond
/// this the signature is checked each time.
const LATE_ISSUERS_MAX: usize = 64;
