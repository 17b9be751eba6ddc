//! The trust store: CA bundle, CRL index and policy as one value that is built whole and then only read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;
use rustls_pki_types::{SubjectPublicKeyInfoDer, UnixTime};

use crate::bundle::{Bundle, Fingerprint, Issuer};
use crate::certificate::{Day, Signed, Subject};
use crate::crl::{Crl, CrlError};
use crate::deny::DenyList;
use crate::fetched::SetAside;
use crate::legacy::{self, Legacy};
use crate::pem::{self, Block, Named};
use crate::problem::PkiProblem;
use crate::remembered::{ChainMemory, Remembered};
use crate::settings::{Revocation, TrustSettings};
use crate::signature;

/// The bytes a trust store is made of.
#[derive(Clone, Debug, Default)]
pub struct Material {
    /// PEM bundles of CA certificates.
    pub bundle: Vec<Named<Vec<u8>>>,
    /// PEM CRLs, each blob one or several; of a directory every file that [`crate::holds_crl`].
    pub crls: Vec<Named<Vec<u8>>>,
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
    pub(crate) identity: identity::Settings,
    pub(crate) bundle: Arc<Bundle>,
    pub(crate) legacy: Arc<Legacy>,
    pub(crate) deny: Arc<DenyList>,
    /// Lists that no longer count, since an operator has accepted one with a lower number in their place.
    pub(crate) set_aside: Arc<[SetAside]>,
    /// The newest CRL of each issuer of the bundle.
    pub(crate) index: HashMap<Fingerprint, Arc<IndexedCrl>, RandomState>,
    strays: Vec<Arc<IndexedCrl>>,
    /// What became of the strays at issuers that clients sent: a CRL, or none.
    late: Mutex<HashMap<Fingerprint, Option<Arc<IndexedCrl>>, RandomState>>,
    /// Shared with every store of the same bundle and policy.
    pub(crate) remembered: Arc<Remembered>,
    /// What is wrong with the material.
    material_warnings: Vec<String>,
    /// That, and what the policy makes of it.
    warnings: Vec<String>,
}

/// A CRL that counts, or may come to count.
#[derive(Debug)]
pub(crate) struct IndexedCrl {
    pub(crate) crl: Crl,
    /// Of its DER.
    pub(crate) fingerprint: Fingerprint,
    /// Where it stood: `"crl.pem" block 1`.
    pub(crate) place: String,
    pub(crate) origin: Origin,
    /// The DER of a stray, for its signature is still to be checked. Empty once that is done.
    unverified: Box<[u8]>,
}

/// Where a CRL came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// One of the materials: it is there again when they are read again.
    File,
    /// Handed in: the stores built on this one have it from this one.
    Fetched,
}

/// What metrics and `check` say about a trust store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustStatus {
    /// The store's generation.
    pub generation: u64,
    /// Each CA of the bundle.
    pub cas: Vec<CaStatus>,
    /// The CRL in force of each issuer that has one.
    pub crls: Vec<CrlStatus>,
    /// Subjects of CAs without a CRL whose certificates are therefore refused.
    pub crl_missing: Vec<String>,
    /// Subjects of CAs without a CRL whose certificates are accepted, since `unchecked` says so.
    pub unchecked: Vec<String>,
    /// CRLs whose issuer is not in the bundle, by place.
    pub strays: Vec<String>,
    /// What is wrong and does not stop anything: sentences for the log.
    pub alarms: Vec<String>,
}

/// One CA of the bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaStatus {
    /// RFC 2253.
    pub subject: String,
    /// Whether paths may end at it.
    pub anchor: bool,
    /// Begin of its time.
    pub not_before: UnixTime,
    /// End of its time.
    pub not_after: UnixTime,
    /// Whether it is before or past its time.
    pub in_time: bool,
    /// Where it stood.
    pub source: String,
}

/// One CRL in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrlStatus {
    /// RFC 2253.
    pub issuer: String,
    /// CRL number.
    pub number: String,
    /// How many certificates are revoked.
    pub entries: usize,
    /// When it was made.
    pub this_update: UnixTime,
    /// Until when it promises to be the newest; none if it does not say.
    pub next_update: Option<UnixTime>,
    /// Whether that is past.
    pub expired: bool,
    /// The last second for which it is judged by; none where the policy sets no end.
    pub judged_by_until: Option<UnixTime>,
    /// Where it stood.
    pub source: String,
}

impl TrustStore {
    /// Builds a store, reusing what has not changed since `previous`.
    ///
    /// The generation is `previous`'s when nothing at all has changed, else one more, beginning with 1. A CRL older
    /// than the one in force is not taken: the newer stays, with a warning, until the process starts anew.
    ///
    /// # Errors
    /// Every problem at once: material that cannot be read, no CA, or no CRL where `unchecked` names no issuer.
    pub fn build(
        material: &Material,
        settings: &TrustSettings,
        identity: &identity::Settings,
        previous: Option<&Self>,
    ) -> Result<Self, Vec<PkiProblem>> {
        let mut problems = Vec::new();
        let bundle = Bundle::read(&material.bundle, previous.map(|previous| &previous.bundle));
        let mut blocks = Vec::new();
        for crl in &material.crls {
            match pem::crls(crl) {
                Ok(found) => blocks.extend(found),
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
        let legacy = Arc::new(Legacy::of(&bundle, &settings.legacy_signatures));
        // What was verified by a rule that has changed is verified again.
        let known =
            previous.filter(|known| known.settings.legacy_signatures == settings.legacy_signatures);
        let mut shelf = Shelf::new(&bundle, &legacy, known);
        if let Some(previous) = previous {
            shelf.set_aside = Arc::clone(&previous.set_aside);
        }
        for block in blocks {
            if let Err(problem) = shelf.put(block) {
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
        shelf: Shelf<'_>,
        settings: &TrustSettings,
        identity: &identity::Settings,
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
                Arc::new(Remembered::new(settings.remembered_max, lookups))
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
            material_warnings,
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
        self.warn_of_policy();
    }

    fn warn_of_policy(&mut self) {
        for (issuer, unchecked) in self.without_crl() {
            self.warnings.push(match unchecked {
                true => format!("certificates of CA {issuer} are accepted without a CRL: `unchecked` says so"),
                false => format!(
                    "no CRL of CA {issuer}: every certificate it issued is refused; give its CRL (puppetserver keeps \
                     both of a root and its intermediate in ca_crl.pem)"
                ),
            });
        }
        for name in self.settings.named_issuers() {
            let known = self
                .bundle
                .issuers
                .values()
                .any(|issuer| issuer.text == *name);
            if !known {
                self.warnings.push(format!(
                    "\"{name}\", which [trust] has a policy for, is not the subject of a CA of the bundle, as RFC 2253 \
                     spells it"
                ));
            }
        }
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
            material_warnings: self.material_warnings.clone(),
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
        let mut names: Vec<&[u8]> = self
            .bundle
            .issuers
            .values()
            .map(|issuer| &*issuer.name)
            .collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter()
    }

    /// The policy.
    pub fn settings(&self) -> &TrustSettings {
        &self.settings
    }

    /// What is remembered of chains, and how often that was of use.
    pub fn chain_memory(&self) -> ChainMemory {
        self.remembered.told()
    }

    /// Bytes that the index of revoked serials takes.
    pub fn index_bytes(&self) -> usize {
        let lists = self.index.values().chain(&self.strays);
        lists.map(|indexed| indexed.crl.serials.bytes()).sum()
    }

    /// What metrics and `check` print.
    pub fn status(&self, now: UnixTime) -> TrustStatus {
        let cas = self.bundle.cas.iter().map(|ca| CaStatus {
            subject: ca.issuer.text.clone(),
            anchor: ca.is_anchor,
            not_before: ca.not_before,
            not_after: ca.not_after,
            in_time: ca.not_before <= now && now <= ca.not_after,
            source: ca.place.clone(),
        });
        let mut crls: Vec<_> = self
            .index
            .values()
            .map(|indexed| self.crl_status(indexed, now))
            .collect();
        crls.sort_by(|a, b| (&a.issuer, &a.source).cmp(&(&b.issuer, &b.source)));
        let (unchecked, missing): (Vec<_>, Vec<_>) = self
            .without_crl()
            .into_iter()
            .partition(|(_, unchecked)| *unchecked);
        TrustStatus {
            generation: self.generation,
            cas: cas.collect(),
            crls,
            crl_missing: missing.into_iter().map(|(issuer, _)| issuer).collect(),
            unchecked: unchecked.into_iter().map(|(issuer, _)| issuer).collect(),
            strays: self
                .strays
                .iter()
                .map(|stray| stray.place.clone())
                .collect(),
            alarms: self.alarms(now),
        }
    }

    pub(crate) fn crl_status(&self, indexed: &IndexedCrl, now: UnixTime) -> CrlStatus {
        let crl = &indexed.crl;
        let issuer = crate::subject_text(&crl.issuer);
        CrlStatus {
            number: crl.number_text(),
            entries: crl.serials.len(),
            this_update: crl.this_update,
            next_update: crl.next_update,
            expired: crl.is_expired(now),
            judged_by_until: crl.judged_by_until(self.settings.policy(&issuer)),
            source: indexed.place.clone(),
            issuer,
        }
    }

    fn alarms(&self, now: UnixTime) -> Vec<String> {
        let mut alarms = self.warnings.clone();
        for ca in &self.bundle.cas {
            if now > ca.not_after {
                alarms.push(format!(
                    "CA {} expired on {}",
                    ca.issuer.text,
                    Day(ca.not_after)
                ));
            } else if now < ca.not_before {
                alarms.push(format!(
                    "CA {} is not valid before {}",
                    ca.issuer.text,
                    Day(ca.not_before)
                ));
            }
        }
        for indexed in self.index.values() {
            let issuer = Subject(&indexed.crl.issuer);
            if let Some(next_update) = indexed
                .crl
                .next_update
                .filter(|_| indexed.crl.is_expired(now))
            {
                alarms.push(format!(
                    "the CRL of {issuer} ({}) expired on {}: {}",
                    indexed.place,
                    Day(next_update),
                    self.consequence_of_expiry(indexed, now)
                ));
            }
            if indexed.crl.this_update > now {
                alarms.push(format!(
                    "the CRL of {issuer} ({}) says it was made on {}, which is to come: compare the clocks",
                    indexed.place,
                    Day(indexed.crl.this_update)
                ));
            }
        }
        alarms
    }

    fn consequence_of_expiry(&self, indexed: &IndexedCrl, now: UnixTime) -> String {
        let policy = self
            .settings
            .policy(&crate::subject_text(&indexed.crl.issuer));
        match indexed.crl.judged_by_until(policy) {
            None => "it is still judged by; what was revoked since passes".into(),
            Some(end) if now > end => "its issuer's certificates are refused".into(),
            Some(end) => format!(
                "it is judged by until {}, then its issuer's certificates are refused",
                Day(end)
            ),
        }
    }

    /// The next instant at which there is something else to say of dates than now; none if there is none.
    pub fn next_change(&self, now: UnixTime) -> Option<UnixTime> {
        let cas = self.bundle.cas.iter();
        let dates = cas.flat_map(|ca| [Some(ca.not_before), after(ca.not_after)]);
        let lists = self.index.values().flat_map(|indexed| {
            let policy = self
                .settings
                .policy(&crate::subject_text(&indexed.crl.issuer));
            [
                Some(indexed.crl.this_update),
                indexed.crl.next_update.and_then(after),
                indexed.crl.judged_by_until(policy).and_then(after),
            ]
        });
        dates.chain(lists).flatten().filter(|at| *at > now).min()
    }

    /// Subjects of CAs without a CRL, and whether `unchecked` names them.
    fn without_crl(&self) -> Vec<(String, bool)> {
        let mut found: Vec<_> = self
            .bundle
            .issuers
            .values()
            .filter(|issuer| !self.index.contains_key(&issuer.id))
            .map(|issuer| (issuer, self.settings.policy(&issuer.text)))
            // A root over the CA that issues to clients: where nothing is looked up in its list, none is missed.
            .filter(|(issuer, policy)| {
                policy.revocation == Revocation::Chain || !self.bundle.is_above_others(issuer)
            })
            .map(|(issuer, policy)| (issuer.text.clone(), policy.unchecked))
            .collect();
        found.sort();
        found
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
        let has_name = |stray: &&Arc<IndexedCrl>| stray.crl.issuer == issuer.name;
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
            .filter(|stray| is_signed_by(&stray.unverified, &spki))
            .max_by(|a, b| a.crl.age(&b.crl))
            .cloned();
        if late.len() < LATE_ISSUERS_MAX {
            late.insert(issuer.id, newest.clone());
        }
        newest
    }
}

/// CRLs being sorted in.
pub(crate) struct Shelf<'a> {
    bundle: &'a Arc<Bundle>,
    legacy: &'a Arc<Legacy>,
    /// What the store before had already read and verified.
    known: HashMap<Fingerprint, (Fingerprint, Arc<IndexedCrl>), RandomState>,
    set_aside: Arc<[SetAside]>,
    index: HashMap<Fingerprint, Arc<IndexedCrl>, RandomState>,
    strays: Vec<Arc<IndexedCrl>>,
    warnings: Vec<String>,
}

/// What one CRL turned out to be.
pub(crate) enum Sorted {
    /// That of an issuer of the bundle.
    Known(Fingerprint, IndexedCrl),
    /// Of no key of the bundle.
    Stray(IndexedCrl),
    /// Nobody's to judge by: why, as a sentence.
    Unusable(String),
}

impl<'a> Shelf<'a> {
    pub(crate) fn new(
        bundle: &'a Arc<Bundle>,
        legacy: &'a Arc<Legacy>,
        previous: Option<&TrustStore>,
    ) -> Self {
        let known = previous
            .into_iter()
            .flat_map(|previous| &previous.index)
            .map(|(issuer, crl)| (crl.fingerprint, (*issuer, Arc::clone(crl))))
            .collect();
        Self {
            bundle,
            legacy,
            known,
            set_aside: Arc::default(),
            index: HashMap::default(),
            strays: Vec::new(),
            warnings: Vec::new(),
        }
    }

    fn is_empty(&self) -> bool {
        self.index.is_empty() && self.strays.is_empty()
    }

    /// Sorts one CRL in.
    ///
    /// # Errors
    /// Bytes that are no CRL. One that cannot be used is a warning: the others of the file are still good.
    fn put(&mut self, block: Block) -> Result<(), PkiProblem> {
        let fingerprint = Fingerprint::of([&*block.der]);
        if let Some((issuer, crl)) = self.known.get(&fingerprint)
            && crl.place == block.place()
            && self.may_sign_crls(*issuer)
        {
            let (issuer, crl) = (*issuer, Arc::clone(crl));
            self.place(issuer, crl);
            return Ok(());
        }
        match self.sort(&block, Origin::File)? {
            Sorted::Known(issuer, crl) => self.place(issuer, Arc::new(crl)),
            Sorted::Stray(crl) => self.stray(crl, block),
            Sorted::Unusable(why) => self.warnings.push(why),
        }
        Ok(())
    }

    /// Reads one CRL and checks its signature.
    ///
    /// # Errors
    /// Bytes that are no CRL.
    pub(crate) fn sort(&self, block: &Block, origin: Origin) -> Result<Sorted, PkiProblem> {
        let crl = match Crl::read(&block.der) {
            Ok(crl) => crl,
            Err(CrlError::Der(error)) => return Err(block.malformed("CRL", error)),
            Err(CrlError::Unusable(why)) => {
                let why = format!("CRL {} is not used: {why}", block.place());
                return Ok(Sorted::Unusable(why));
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
            Maker::Known(issuer) => Sorted::Known(issuer, indexed),
            Maker::MayNot => Sorted::Unusable(format!(
                "CRL {} is not used: the key usage of its issuer {} does not allow to sign CRLs",
                block.place(),
                Subject(&indexed.crl.issuer)
            )),
            Maker::Unknown => Sorted::Stray(indexed),
        })
    }

    /// Which issuer of the bundle made this CRL: by name, then by signature.
    fn issuer_of(&self, crl: &Crl, block: &Block) -> Maker {
        let made_it = self.bundle.issuers.values().find(|issuer| {
            issuer.name == crl.issuer
                && Signed::read(&block.der)
                    .is_ok_and(|(_, signed)| self.legacy.check_signed(signed, issuer).is_ok())
        });
        match made_it {
            Some(issuer) if self.may_sign_crls(issuer.id) => Maker::Known(issuer.id),
            Some(_) => Maker::MayNot,
            None => Maker::Unknown,
        }
    }

    /// Whether this is a CA of the bundle and may sign lists.
    fn may_sign_crls(&self, issuer: Fingerprint) -> bool {
        let mut cas = self.bundle.cas.iter();
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
                "CRL {} is not used: its issuer {} is not in the CA bundle, and {STRAY_CRLS_MAX} such are kept already",
                block.place(),
                Subject(&crl.issuer)
            ));
            return;
        }
        let issuers = self.bundle.issuers.values();
        let mut same_name = issuers
            .filter(|issuer| issuer.name == crl.issuer)
            .peekable();
        let is_same_name = same_name.peek().is_some();
        let is_sha1 = Signed::read(&block.der).is_ok_and(|(_, signed)| legacy::is_sha1(signed));
        let is_legacy = is_sha1 || same_name.any(|issuer| legacy::is_small_rsa(&issuer.spki));
        if is_same_name && is_legacy {
            self.warnings.push(format!(
                "CRL {} is not used: SHA-1, or an RSA key under 2048 bits, counts only if `legacy_signatures` names {}",
                block.place(),
                Subject(&crl.issuer)
            ));
        } else if is_same_name {
            self.warnings.push(format!(
                "CRL {} is not by the CA {} of the bundle but by another key of that name (a CA made anew?)",
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
    fn keep_fetched(&mut self, previous: Option<&TrustStore>) {
        let lists = previous.into_iter().flat_map(|previous| &previous.index);
        for (issuer, crl) in lists.filter(|(_, crl)| crl.origin == Origin::Fetched) {
            if self.may_sign_crls(*issuer) {
                self.place(*issuer, Arc::clone(crl));
            }
        }
    }

    /// Where the store before held a newer CRL of an issuer, that one stays: an older list would bring back what was
    /// revoked since (a file restored, a copy that lost the race).
    fn keep_newer(&mut self, previous: Option<&TrustStore>) {
        let Some(previous) = previous else { return };
        let rules = &self.set_aside;
        for (issuer, crl) in &mut self.index {
            let Some(in_force) = previous.index.get(issuer) else {
                continue;
            };
            let counts = !rules.iter().any(|rule| rule.covers(*issuer, in_force));
            if counts && in_force.crl.age(&crl.crl).is_gt() {
                self.warnings.push(format!(
                    "the CRL of {} in {} (number {}) is older than the one in force (number {}), which stays; a start \
                     takes the older one",
                    Subject(&crl.crl.issuer),
                    crl.place,
                    crl.crl.number_text(),
                    in_force.crl.number_text(),
                ));
                *crl = Arc::clone(in_force);
            }
        }
    }
}

/// Who made a CRL.
enum Maker {
    Known(Fingerprint),
    /// A CA of the bundle that may not.
    MayNot,
    Unknown,
}

/// The second after.
fn after(time: UnixTime) -> Option<UnixTime> {
    let second = time.as_secs().checked_add(1)?;
    Some(UnixTime::since_unix_epoch(Duration::from_secs(second)))
}

fn is_signed_by(crl: &[u8], spki: &SubjectPublicKeyInfoDer<'_>) -> bool {
    Signed::read(crl).is_ok_and(|(_, signed)| signature::check_signed(signed, spki).is_ok())
}

/// CRLs of issuers that are not in the bundle. Each may be long, and a directory may hold any number.
const STRAY_CRLS_MAX: usize = 64;

/// Issuers sent by clients whose CRL is remembered. They are all below a CA of the bundle, so there are few; beyond
/// this the signature is checked each time.
const LATE_ISSUERS_MAX: usize = 64;
