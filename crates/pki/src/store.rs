//! The trust store: the CA bundle, revocation, deny list and memory as one value. It is built as a whole and is read-only
//! afterwards.

mod closed;
mod lockout;
mod status;

use std::sync::Arc;

use rustls_pki_types::UnixTime;

use crate::anchors::Anchors;
use crate::bundle::Bundle;
use crate::chain_memory::{ChainMemory, ChainMemoryStats};
use crate::crl_sorting::CrlSorter;
use crate::deny::DenyList;
use crate::fingerprint::Fingerprint;
use crate::indexed_crl::CrlOrigin;
use crate::legacy_signatures::LegacySignatures;
use crate::pem::{self, Named};
use crate::problem::PkiProblem;
use crate::revocation::RevocationIndex;
use crate::settings::TrustSettings;
use crate::trust_memory::TrustMemory;

pub use lockout::Lockout;
pub use status::{
    ActiveCrlStatus, DroppedRevocations, EmptyCrl, NewestCrl, TrustAlarm, TrustStoreStatus,
    TrustedCaStatus, about_ca,
};

/// The files of a trust store, as bytes.
#[derive(Clone, Debug, Default)]
pub struct TrustMaterial {
    /// PEM bundles of CA certificates.
    pub bundle: Vec<Named<Vec<u8>>>,
    /// PEM CRLs, one or several in each value. For a directory, these are all files for which [`crate::holds_crl`] is true.
    pub crls: Vec<Named<Vec<u8>>>,
    /// CRLs that another process fetches (an agent's own copy) while the proxy also fetches CRLs. No operator has provided
    /// them.
    pub copied_crls: Vec<Named<Vec<u8>>>,
}

/// The CA bundle, the CRLs with their policy, the deny list and the memory of verified chains.
///
/// It does not change, except for two caches. When a path first has the key of an issuer that is not in the bundle, CRLs of
/// that issuer are verified and the result is stored. Verified chains are stored too.
#[derive(Debug)]
pub struct TrustStore {
    pub(crate) generation: u64,
    /// Digest of everything on which a path depends: bundle, policy and subject rule, but not the CRLs.
    pub(crate) paths: Fingerprint,
    /// Digest of the whole store.
    pub(crate) whole: Fingerprint,
    pub(crate) identity: identity::IdentitySettings,
    pub(crate) anchors: Anchors,
    pub(crate) revocation: RevocationIndex,
    pub(crate) deny: Arc<DenyList>,
    pub(crate) memory: TrustMemory,
    /// Problems of the files.
    material_warnings: Vec<String>,
    /// The warnings about the files, and those that follow from the policy.
    warnings: Vec<String>,
}

impl TrustStore {
    /// Builds a store and reuses the parts that have not changed since `previous`.
    ///
    /// If nothing has changed, the generation is that of `previous`; otherwise it is one more. The first generation is 1. A
    /// certificate that `previous` revokes stays revoked, even if a new CRL does not list it.
    ///
    /// # Errors
    /// All problems at once: material that cannot be parsed, a bundle without a CA, or no CRL although `unchecked` names no
    /// issuer.
    pub fn build(
        material: &TrustMaterial,
        settings: &TrustSettings,
        identity: &identity::IdentitySettings,
        previous: Option<&Self>,
    ) -> Result<Self, Vec<PkiProblem>> {
        let mut problems = Vec::new();
        let bundle = Bundle::read(
            &material.bundle,
            previous.map(|previous| &previous.anchors.bundle),
        );
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
        let anchors = Anchors { bundle, legacy };
        // If the rule for legacy signatures has changed, the signature of every CRL is verified again.
        let before = previous.map(|previous| &previous.revocation);
        let known =
            before.filter(|known| known.settings.legacy_signatures == settings.legacy_signatures);
        let mut sorter = CrlSorter::new(&anchors, known);
        for (block, origin) in blocks {
            if let Err(problem) = sorter.put(block, origin) {
                problems.push(problem);
            }
        }
        sorter.keep_fetched(before);
        if sorter.is_empty() && !settings.leaves_unchecked() && problems.is_empty() {
            problems.extend(sorter.warnings.iter().cloned().map(PkiProblem::CrlUnusable));
            problems.push(PkiProblem::NoCrl);
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self::assemble(sorter, settings, identity, previous))
    }

    fn assemble(
        mut sorter: CrlSorter<'_>,
        settings: &TrustSettings,
        identity: &identity::IdentitySettings,
        previous: Option<&Self>,
    ) -> Self {
        let before = previous.map(|previous| &previous.revocation);
        let anchors = sorter.anchors.clone();
        let bundle = &anchors.bundle;
        let policy = format!("{settings:?} {identity:?}");
        let paths = Fingerprint::of([&bundle.fingerprint.as_bytes()[..], policy.as_bytes()]);
        let mut material_warnings = bundle.warnings.clone();
        material_warnings.append(&mut sorter.warnings);
        let chains = match previous {
            Some(previous) if previous.paths == paths => Arc::clone(&previous.memory.chains),
            other => {
                let lookups = other.map(|other| other.memory.chains.lookups());
                let lookups = lookups.unwrap_or_default();
                Arc::new(ChainMemory::new(settings.chain_cache_max, lookups))
            }
        };
        let mut store = Self {
            generation: 1,
            paths,
            whole: paths,
            identity: *identity,
            revocation: sorter.index(settings, before),
            anchors: anchors.clone(),
            deny: previous.map_or_else(Arc::default, |previous| Arc::clone(&previous.deny)),
            memory: TrustMemory {
                chains,
                members_seen: previous.map_or_else(Arc::default, |previous| {
                    Arc::clone(&previous.memory.members_seen)
                }),
            },
            material_warnings,
            warnings: Vec::new(),
        };
        store.settle();
        if let Some(previous) = previous {
            store.generation = previous.generation + u64::from(previous.whole != store.whole);
        }
        store
    }

    /// Updates the digest and the warnings after a change of the CRLs.
    pub(crate) fn settle(&mut self) {
        let index = &self.revocation;
        // A revocation that is retained without a CRL has another effect than the CRL itself.
        let crls = index.crls.iter();
        let crls = crls.map(|(issuer, crls)| (*issuer, true, crls.digest()));
        let retained = index.retained.iter();
        let retained = retained.map(|(issuer, earlier)| (*issuer, false, earlier.digest()));
        let strays = index.strays.iter();
        let strays = strays.map(|stray| (stray.fingerprint, true, stray.fingerprint));
        let mut parts: Vec<_> = crls.chain(retained).chain(strays).collect();
        parts.sort_unstable();
        let parts = parts.iter().map(|(issuer, is_crl, digest)| {
            Fingerprint::of([
                issuer.as_bytes(),
                &[u8::from(*is_crl)][..],
                digest.as_bytes(),
            ])
        });
        let parts: Vec<_> = std::iter::once(self.paths).chain(parts).collect();
        self.whole = Fingerprint::of(parts.iter().map(|part| &part.as_bytes()[..]));
        self.warnings.clone_from(&self.material_warnings);
        self.warn_of_policy();
    }

    /// The next generation with another deny list. Stores that are built on it inherit the list.
    #[must_use]
    pub fn with_deny_list(&self, deny: DenyList) -> Self {
        Self {
            deny: Arc::new(deny),
            ..self.next()
        }
    }

    /// The next generation with the same content.
    pub(crate) fn next(&self) -> Self {
        Self {
            generation: self.generation + 1,
            paths: self.paths,
            whole: self.whole,
            identity: self.identity,
            anchors: self.anchors.clone(),
            revocation: self.revocation.next(),
            deny: Arc::clone(&self.deny),
            memory: self.memory.clone(),
            material_warnings: self.material_warnings.clone(),
            warnings: self.warnings.clone(),
        }
    }

    /// The deny list.
    pub fn deny_list(&self) -> &DenyList {
        &self.deny
    }

    /// The generation. It increases with each change, and connections compare it on each request.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Problems that did not prevent building the store.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The policy.
    pub fn settings(&self) -> &TrustSettings {
        &self.revocation.settings
    }

    /// How many chains are remembered, and how often a remembered chain was found.
    pub fn chain_memory(&self) -> ChainMemoryStats {
        self.memory.chains.stats()
    }

    /// Digest of the CA bundle.
    pub fn cas(&self) -> Fingerprint {
        self.anchors.cas()
    }

    /// Whether this is the subject (RFC 2253) of a CA of the bundle.
    pub fn knows_issuer(&self, name: &str) -> bool {
        self.anchors.knows_issuer(name)
    }

    /// Subjects (RFC 2253) of the CAs of the bundle that are not above another CA of the bundle.
    pub fn issuing_cas(&self) -> impl Iterator<Item = &str> {
        let bundle = &self.anchors.bundle;
        let issuing = bundle.issuers.values();
        let issuing = issuing.filter(|ca| !bundle.is_above_others(ca));
        issuing.map(|ca| ca.text.as_str())
    }

    /// The subject (RFC 2253) of one root of each estate, if there are several estates; otherwise empty. CAs that do not sign
    /// each other can each issue a certificate for any certname.
    pub fn separate_roots(&self, now: UnixTime) -> Vec<&str> {
        let roots = self.anchors.bundle.estate_roots(now);
        match roots.len() {
            ..2 => Vec::new(),
            _ => roots,
        }
    }

    /// Whether two issuers (RFC 2253) are CAs of separate estates of the bundle.
    pub fn are_separate(&self, one: &str, other: &str) -> bool {
        self.anchors.bundle.are_separate(one, other)
    }

    /// Subjects of the bundle's CAs whose legacy signatures are accepted.
    pub fn legacy_cas(&self) -> impl Iterator<Item = &str> {
        self.anchors.legacy_cas()
    }

    /// Digests of names and keys of the bundle's CAs, with the names (RFC 2253), in a fixed order.
    pub fn issuers(&self) -> Vec<(Fingerprint, &str)> {
        self.anchors.issuers()
    }

    /// Subjects of CAs that had a CRL in the store before, are still in the bundle, and have no CRL here. The cause is a file
    /// that was removed or truncated.
    pub fn crls_lost(&self, before: &Self) -> Vec<String> {
        self.revocation.crls_lost(&before.revocation)
    }

    /// Whether every certificate from this CA of the bundle is refused while the CA has no CRL.
    pub fn needs_crl(&self, issuer: &str) -> bool {
        self.revocation.needs_crl(issuer)
    }

    /// Size of the index of revoked serials in bytes.
    pub fn index_bytes(&self) -> usize {
        self.revocation.index_bytes()
    }
}
