//! A certificate that was revoked once stays revoked, whatever CRLs the files and CAs provide, until an operator accepts
//! exactly that change.

use crate::support::*;
use identity::Reason;
use pki::{
    CertificatePurpose, CrlComparison, FetchedCrl, Fingerprint, Named, RetainedSerials,
    SetAsideRule, StoredRevocations, TrustSettings, TrustStore,
};
use rustls_pki_types::CertificateRevocationListDer;

type CrlDer = CertificateRevocationListDer<'static>;

/// A proxy with its files and its state directory.
struct Site<'a> {
    puppet: &'a Puppet,
    settings: TrustSettings,
    /// The CRL of the root. Every file contains it.
    root: CrlDer,
    trust: TrustStore,
    /// The stored serials of the agents' CA, as text.
    serials: Option<String>,
    /// The stored CRL of the agents' CA.
    fetched: Option<CrlDer>,
    rules: Vec<SetAsideRule>,
}

impl<'a> Site<'a> {
    /// A site whose files have these CRLs of the agents' CA.
    fn new(puppet: &'a Puppet, crls: &[&CrlDer]) -> Self {
        let root = puppet.root.crl(1, &[]);
        let settings = TrustSettings::default();
        let trust = built(puppet, &root, crls, &settings, None);
        let mut site = Self {
            puppet,
            settings,
            root,
            trust,
            serials: None,
            fetched: None,
            rules: Vec::new(),
        };
        site.store();
        site
    }

    fn key(&self) -> Fingerprint {
        let mut issuers = self.trust.issuers().into_iter();
        issuers
            .find(|(_, name)| *name == "CN=Puppet CA: test")
            .unwrap()
            .0
    }

    /// Stores what the proxy would write to the state directory.
    fn store(&mut self) {
        let fetched = self.fetched.as_ref();
        let fetched = fetched.map(|crl| self.examined(crl).0.fingerprint());
        if let Some(retained) = self.trust.retained(self.key(), fetched) {
            self.serials = Some(retained.text());
        }
        self.rules = self.trust.set_aside_rules().to_vec();
    }

    /// Loads these CRLs of the agents' CA from files.
    fn reload(&mut self, crls: &[&CrlDer]) {
        let trust = Some(&self.trust);
        let next = built(self.puppet, &self.root, crls, &self.settings, trust);
        // A store of the same generation is not used.
        if next.generation() != self.trust.generation() {
            self.trust = next;
        }
        self.store();
    }

    /// Loads the CRLs as [`Self::reload`] does, but in a new process.
    fn restart(&mut self, crls: &[&CrlDer]) {
        let trust = built(self.puppet, &self.root, crls, &self.settings, None);
        let rules = self.rules.iter().map(|rule| rule.to_string());
        let rules = rules.map(|rule| rule.parse().unwrap());
        let trust = trust.with_set_aside_rules(rules.collect());
        let text = self.serials.as_deref().unwrap_or_default();
        let stored = StoredRevocations {
            key: self.key(),
            crl: self.fetched.as_ref().map(|crl| self.examined(crl).0),
            retained: RetainedSerials::read(text.as_bytes()).unwrap(),
        };
        let fetches = self.fetched.is_some();
        self.trust = trust.with_restored(&[stored], fetches).unwrap_or(trust);
        self.store();
    }

    /// Fetches this CRL. Returns it, the number of revoked certificates that it lacks, and the number of these that no file
    /// lists either.
    fn fetch(&mut self, crl: &CrlDer) -> (FetchedCrl, usize, usize) {
        let (fetched, comparison) = self.examined(crl);
        let (lacking, accepted_again, is_news) = match comparison {
            CrlComparison::DropsRevocations {
                lacking,
                accepted_again,
                is_news,
                ..
            } => (lacking, accepted_again, is_news),
            CrlComparison::Newer => (0, 0, true),
            CrlComparison::Active | CrlComparison::Replaced => (0, 0, false),
        };
        if is_news {
            self.trust = self.trust.with_crls(std::slice::from_ref(&fetched));
            self.fetched = Some(crl.clone());
        }
        self.store();
        (fetched, lacking, accepted_again)
    }

    fn examined(&self, crl: &CrlDer) -> (FetchedCrl, CrlComparison) {
        let stored = Named::new("fetched", crl.to_vec());
        self.trust.examine_der(stored).unwrap().crls.remove(0)
    }

    fn accept(&mut self, fetched: Option<&FetchedCrl>) {
        if let Some(fetched) = fetched {
            self.fetched = Some(CrlDer::from(fetched.der().to_vec()));
        }
        self.trust = self.trust.accepting(self.key(), fetched);
        self.store();
    }

    /// The serials from 4 to 9 whose certificates are revoked.
    fn revoked(&self) -> Vec<u64> {
        let is_revoked = |serial: &u64| {
            let agent = self.puppet.ca.agent("web01", *serial);
            verdict(&self.trust, &agent) == Some(Reason::Revoked)
        };
        (4..=9).filter(is_revoked).collect()
    }

    /// The number of revocations that are reported as dropped.
    fn missing(&self) -> usize {
        let dropped = self.trust.dropped_revocations().into_iter();
        dropped.map(|dropped| dropped.missing).sum()
    }
}

/// A CRL of the agents' CA that was issued on this day.
fn dated(puppet: &Puppet, day: u8, number: u64, serials: &[u64]) -> CrlDer {
    let mut crl = crl_params(number, serials, 2040);
    crl.this_update = rcgen::date_time_ymd(2020, 2, day);
    crl.signed_by(&puppet.ca.issuer).unwrap().der().clone()
}

fn built(
    puppet: &Puppet,
    root: &CrlDer,
    crls: &[&CrlDer],
    settings: &TrustSettings,
    previous: Option<&TrustStore>,
) -> TrustStore {
    let crls: Vec<CrlDer> = crls.iter().copied().chain([root]).cloned().collect();
    store_with(&puppet.bundle(), &crls, settings, previous).unwrap()
}

#[test]
fn revocations_outlast_a_time_without_a_crl() {
    let puppet = Puppet::new();
    let [first, second] = [(101, &[7][..]), (102, &[])].map(|(n, s)| puppet.ca.crl(n, s));
    for settings in [TrustSettings::default(), unchecked(&["CN=Puppet CA: test"])] {
        for restarts in 0..8 {
            let change = |site: &mut Site<'_>, bit: u32, crls: &[&CrlDer]| match restarts >> bit & 1
            {
                0 => site.reload(crls),
                _ => site.restart(crls),
            };
            let mut site = Site::new(&puppet, &[&first]);
            site.settings = settings.clone();
            change(&mut site, 0, &[&second]);
            assert_eq!((site.revoked(), site.missing()), (vec![7], 1), "{restarts}");
            change(&mut site, 1, &[]);
            assert_eq!(site.revoked(), [7], "without a CRL, {restarts}");
            let other = verdict(&site.trust, &site.puppet.ca.agent("web01", 4));
            let is_unchecked = settings.policy("CN=Puppet CA: test").unchecked;
            assert_eq!(other, (!is_unchecked).then_some(Reason::CrlMissing));
            change(&mut site, 2, &[&second]);
            assert_eq!((site.revoked(), site.missing()), (vec![7], 1), "{restarts}");
            site.accept(None);
            for _ in 0..2 {
                change(&mut site, 0, &[]);
                change(&mut site, 1, &[&second]);
                assert_eq!((site.revoked(), site.missing()), (vec![], 0), "{restarts}");
            }
        }
    }
}

#[test]
fn a_fetched_crl_after_a_time_without_one_drops_nothing() {
    let puppet = Puppet::new();
    let [first, second] = [(101, &[7][..]), (102, &[8])].map(|(n, s)| puppet.ca.crl(n, s));
    let mut site = Site::new(&puppet, &[&first]);
    site.restart(&[]);
    let (fetched, comparison) = site.examined(&second);
    let is_drop = |comparison: &CrlComparison| {
        matches!(
            comparison,
            CrlComparison::DropsRevocations {
                lacking: 1,
                is_older: false,
                is_news: true,
                ..
            }
        )
    };
    assert!(is_drop(&comparison), "{comparison:?}");
    site.trust = site.trust.with_crls(&[fetched]);
    assert_eq!((site.revoked(), site.missing()), (vec![7, 8], 1));
}

#[test]
fn a_crl_that_was_set_aside_hides_no_loss_while_it_is_the_only_one() {
    let puppet = Puppet::new();
    let [first, second, third] =
        [(101, &[5, 7][..]), (102, &[7]), (103, &[])].map(|(n, s)| puppet.ca.crl(n, s));
    for restarts in 0..8 {
        let change = |site: &mut Site<'_>, bit: u32, crls: &[&CrlDer]| match restarts >> bit & 1 {
            0 => site.reload(crls),
            _ => site.restart(crls),
        };
        let mut site = Site::new(&puppet, &[&first]);
        site.reload(&[&second]);
        site.accept(None);
        assert_eq!((site.revoked(), site.missing()), (vec![7], 0));
        change(&mut site, 0, &[&third]);
        assert_eq!((site.revoked(), site.missing()), (vec![7], 1));
        change(&mut site, 1, &[&first]);
        assert_eq!(site.revoked(), [5, 7], "better than none: {restarts}");
        let warnings = site.trust.warnings().concat();
        assert!(warnings.contains("an operator has replaced"), "{warnings}");
        let (_, comparison) = site.examined(&third);
        assert!(
            matches!(
                comparison,
                CrlComparison::DropsRevocations { lacking: 1, .. }
            ),
            "{comparison:?}"
        );
        change(&mut site, 2, &[&third]);
        let found = (site.revoked(), site.missing());
        assert_eq!(found, (vec![7], 1), "{restarts}");
    }
}

#[test]
fn accepting_a_fetched_crl_ends_nothing_that_a_file_lists() {
    let puppet = Puppet::new();
    let dated = |day, number, serials: &[u64]| dated(&puppet, day, number, serials);
    let full = dated(1, 50, &[5, 6, 7]);
    for (number, restarts) in [(60, 0), (60, 15), (60, 5), (7, 0), (7, 15), (7, 10)] {
        let case = format!("number {number}, {restarts}");
        let change = |site: &mut Site<'_>, bit: u32, crls: &[&CrlDer]| match restarts >> bit & 1 {
            0 => site.reload(crls),
            _ => site.restart(crls),
        };
        let mut site = Site::new(&puppet, &[&full]);
        site.fetch(&dated(1, number - 2, &[4, 6]));
        assert_eq!(site.revoked(), [4, 5, 6, 7], "{case}");
        // The CA serves its infrastructure CRL, and has dropped the entry of an expired certificate from it.
        let infrastructure = dated(3, number, &[6]);
        let (fetched, lacking, accepted_again) = site.fetch(&infrastructure);
        assert_eq!((lacking, accepted_again), (3, 1), "{case}");
        site.accept(Some(&fetched));
        assert_eq!(site.revoked(), [5, 6, 7], "{case}");
        change(&mut site, 0, &[&full]);
        assert_eq!(
            (site.revoked(), site.missing()),
            (vec![5, 6, 7], 0),
            "{case}"
        );
        let (_, lacking, accepted_again) = site.fetch(&infrastructure);
        assert_eq!((lacking, accepted_again), (2, 0), "{case}");
        // The job that copies the file is late, so the file is older than the fetched CRL.
        change(&mut site, 1, &[&dated(2, 51, &[5, 6, 7, 8])]);
        assert_eq!(
            (site.revoked(), site.missing()),
            (vec![5, 6, 7, 8], 0),
            "{case}"
        );
        assert_eq!(site.trust.warnings(), [""; 0], "{case}");
        // The operator accepts the serials that the file drops together with the fetched CRL.
        let pruned = dated(2, 52, &[7, 8]);
        change(&mut site, 2, &[&pruned]);
        assert_eq!(
            (site.revoked(), site.missing()),
            (vec![5, 6, 7, 8], 1),
            "{case}"
        );
        let (fetched, lacking, accepted_again) = site.fetch(&infrastructure);
        assert_eq!((lacking, accepted_again), (3, 1), "{case}");
        site.accept(Some(&fetched));
        change(&mut site, 3, &[&pruned]);
        assert_eq!(
            (site.revoked(), site.missing()),
            (vec![6, 7, 8], 0),
            "{case}"
        );
    }
}

#[test]
fn two_copies_of_one_list_keep_each_other_from_being_forgotten() {
    let puppet = Puppet::new();
    let [old, older, oldest] =
        [(7, &[5][..]), (6, &[5]), (5, &[5, 6])].map(|(n, s)| puppet.ca.crl(n, s));
    let fetched = puppet.ca.crl(8, &[7]);
    for copies in [
        vec![&old, &older],
        vec![&older, &old],
        vec![&oldest, &older, &old],
        vec![&old, &oldest, &older],
    ] {
        let copies: Vec<_> = copies
            .into_iter()
            .chain([&puppet.root.crl(1, &[])])
            .cloned()
            .collect();
        let mut found = material(&puppet.bundle(), &copies);
        std::mem::swap(&mut found.crls, &mut found.copied_crls);
        let (settings, identity) = Default::default();
        let built = |previous: Option<&TrustStore>| {
            TrustStore::build(&found, &settings, &identity, previous).unwrap()
        };
        let trust = built(None);
        let crl = trust
            .examine_der(Named::new("fetched", fetched.to_vec()))
            .unwrap()
            .crls
            .remove(0)
            .0;
        let next = trust.with_crls(&[crl]);
        for trust in [&built(Some(&next)), &next, &trust] {
            let agent = puppet.ca.agent("web01", 5);
            assert_eq!(
                verdict(trust, &agent),
                Some(Reason::Revoked),
                "{}",
                copies.len()
            );
        }
        assert_eq!(
            verdict(&next, &puppet.ca.agent("web01", 7)),
            Some(Reason::Revoked)
        );
        let count = copies.len();
        if count == 4 {
            assert_eq!(
                verdict(&next, &puppet.ca.agent("web01", 6)),
                Some(Reason::Revoked)
            );
        }
    }
}

#[test]
fn of_many_crls_of_one_ca_the_newest_are_looked_up_one_by_one_and_all_revoke() {
    let puppet = Puppet::new();
    // The names of the files do not show the age of the CRLs.
    let crls: Vec<_> = (0..20).map(|n| puppet.ca.crl(100 + n, &[4 + n])).collect();
    let files: Vec<_> = crls.iter().collect();
    let mut site = Site::new(&puppet, &files);
    let numbers = |site: &Site<'_>| -> Vec<String> {
        let crls = site.trust.status(now()).crls.into_iter();
        let crls = crls.filter(|crl| crl.issuer == "CN=Puppet CA: test");
        let mut numbers: Vec<_> = crls.map(|crl| crl.number).collect();
        numbers.sort();
        numbers
    };
    let further = |site: &Site<'_>| (site.missing(), site.trust.further_crls(site.key()));
    let newest: Vec<_> = (104..120).map(|number: u32| number.to_string()).collect();
    for round in 0..4 {
        assert_eq!(numbers(&site), newest, "{round}");
        for serial in 4..24 {
            let agent = puppet.ca.agent("web01", serial);
            assert_eq!(
                verdict(&site.trust, &agent),
                Some(Reason::Revoked),
                "{round}: {serial}"
            );
        }
        assert_eq!(further(&site), (0, 4), "{round}");
        let warnings = site.trust.warnings().concat();
        assert!(
            warnings.contains("20 CRLs of CN=Puppet CA: test"),
            "{warnings}"
        );
        match round {
            0 => site.reload(&files),
            1 => site.restart(&files),
            // The fetched CRL has no news.
            _ => {
                site.fetch(&crls[19]);
            }
        }
    }
    // A removed file drops its serials like any other change.
    site.reload(&files[2..]);
    assert_eq!((site.revoked(), site.missing()), ((4..=9).collect(), 2));
    site.reload(&files[5..]);
    assert_eq!((site.revoked(), site.missing()), ((4..=9).collect(), 5));
    assert_eq!(further(&site), (5, 0));
    site.accept(None);
    assert_eq!((site.revoked(), site.missing()), (vec![9], 0));
}

#[test]
fn an_empty_crl_with_number_0_is_reported_if_its_ca_has_issued_many_certificates() {
    let puppet = Puppet::new();
    for (number, serials, of_file, serial, is_reported) in [
        (0, &[][..], false, 20, true),
        (0, &[], false, 0x7fff_ffff, true),
        (0, &[], false, 19, false),
        // The CA uses random serials.
        (0, &[], false, 0x1_0000_0000, false),
        (0, &[5], false, 20, false),
        (1, &[], false, 20, false),
        (0, &[], true, 20, false),
    ] {
        let case = format!("{number} {serials:?} {of_file} {serial}");
        let crls: &[_] = if of_file {
            &[puppet.ca.crl(0, &[])]
        } else {
            &[]
        };
        let crls: Vec<_> = crls.iter().collect();
        let mut site = Site::new(&puppet, &crls);
        site.settings = unchecked(&["*"]);
        site.reload(&crls);
        site.fetch(&puppet.ca.crl(number, serials));
        let agent = puppet.ca.agent("web01", serial);
        let chain = [agent.der.clone()];
        let found = site
            .trust
            .revocation_of(&chain, CertificatePurpose::Client, now());
        assert_eq!(found, None, "{case}");
        let reported = |site: &Site<'_>| -> Vec<u32> {
            let empty = site.trust.empty_crls().into_iter();
            empty.map(|empty| empty.highest_serial).collect()
        };
        let expected: Vec<_> = is_reported.then_some(serial as u32).into_iter().collect();
        assert_eq!(reported(&site), expected, "{case}");
        // The serial survives a reload, and the operator's decision also survives a restart.
        site.reload(&crls);
        assert_eq!(reported(&site), expected, "{case}");
        site.accept(None);
        assert_eq!(reported(&site), [0; 0], "{case}");
        site.restart(&crls);
        let found = site
            .trust
            .revocation_of(&chain, CertificatePurpose::Client, now());
        assert_eq!((found, reported(&site)), (None, vec![]), "{case}");
    }
}

#[test]
fn a_second_decision_does_not_forget_the_first() {
    let puppet = Puppet::new();
    let dated = |day, number, serials: &[u64]| dated(&puppet, day, number, serials);
    // Several times, the CA is restored from a backup and later drops an entry.
    let first = dated(1, 103, &[5, 7]);
    let restored = dated(2, 50, &[7]);
    let mut site = Site::new(&puppet, &[&first]);
    site.reload(&[&restored]);
    assert_eq!(site.missing(), 1);
    site.accept(None);
    for round in 0..40 {
        let one = dated(3, 51 + 2 * round, &[9]);
        let next = dated(3, 52 + 2 * round, &[]);
        site.reload(&[&one]);
        site.reload(&[&next]);
        assert_eq!(
            (site.revoked().contains(&9), site.missing() > 0),
            (true, true)
        );
        site.accept(None);
        assert_eq!(site.revoked(), [0; 0], "{round}");
        for backup in [&first, &restored, &one] {
            site.reload(&[&next, backup]);
            assert_eq!((site.revoked(), site.missing()), (vec![], 0), "{round}");
            site.restart(&[&next, backup]);
            assert_eq!((site.revoked(), site.missing()), (vec![], 0), "{round}");
        }
        assert!(site.rules.len() <= 3, "{:?}", site.rules);
        for rule in &site.rules {
            assert!(rule.continues(&rule.to_string()));
        }
    }
    assert!(!site.rules[0].continues(&site.rules[1].to_string()));
    assert!(!site.rules[0].continues("damaged"));
}

#[test]
fn a_file_that_equals_the_fetched_crl_stays_a_file() {
    let puppet = Puppet::new();
    let before = dated(&puppet, 1, 100, &[5, 6, 7, 8]);
    let full = dated(&puppet, 2, 101, &[5, 6, 7]);
    let infrastructure = dated(&puppet, 3, 3, &[]);
    // Whether the file or the fetched CRL comes first, and whether the process restarts before the CA returns another CRL.
    for (is_file_first, restarts) in [(true, false), (true, true), (false, false), (false, true)] {
        let case = format!("file first {is_file_first}, restart {restarts}");
        let mut site = Site::new(&puppet, &[&before]);
        site.fetch(&before);
        if is_file_first {
            site.reload(&[&full])
        } else {
            drop(site.fetch(&full))
        }
        if is_file_first {
            drop(site.fetch(&full))
        } else {
            site.reload(&[&full])
        }
        site.fetched = Some(full.clone());
        site.store();
        assert_eq!(
            (site.revoked(), site.missing()),
            (vec![5, 6, 7, 8], 1),
            "{case}"
        );
        if restarts {
            site.restart(&[&full]);
        }
        let (fetched, lacking, accepted_again) = site.fetch(&infrastructure);
        assert_eq!((lacking, accepted_again), (4, 1), "{case}");
        site.accept(Some(&fetched));
        for _ in 0..2 {
            assert_eq!(
                (site.revoked(), site.missing()),
                (vec![5, 6, 7], 0),
                "{case}"
            );
            site.reload(&[&full]);
            assert_eq!(
                (site.revoked(), site.missing()),
                (vec![5, 6, 7], 0),
                "{case}"
            );
            site.restart(&[&full]);
        }
        assert_eq!(site.trust.warnings(), [""; 0], "{case}");
    }
}

#[test]
fn a_file_that_equals_the_accepted_crl_stays_a_file() {
    let puppet = Puppet::new();
    let before = dated(&puppet, 1, 100, &[5, 6, 7, 8]);
    let full = dated(&puppet, 2, 101, &[5, 6, 7]);
    let infrastructure = dated(&puppet, 3, 3, &[]);
    for restarts in [false, true] {
        let mut site = Site::new(&puppet, &[&before, &full]);
        site.reload(&[&full]);
        let (fetched, lacking, accepted_again) = site.fetch(&full);
        assert_eq!((lacking, accepted_again), (1, 1), "{restarts}");
        site.accept(Some(&fetched));
        if restarts {
            site.restart(&[&full]);
        }
        let (fetched, lacking, accepted_again) = site.fetch(&infrastructure);
        assert_eq!((lacking, accepted_again), (3, 0), "{restarts}");
        site.accept(Some(&fetched));
        site.restart(&[&full]);
        assert_eq!(
            (site.revoked(), site.missing()),
            (vec![5, 6, 7], 0),
            "{restarts}"
        );
    }
}

#[test]
fn a_file_that_is_added_counts_although_the_same_crl_was_fetched() {
    let puppet = Puppet::new();
    let full = dated(&puppet, 2, 101, &[5, 6, 7]);
    let infrastructure = dated(&puppet, 3, 3, &[]);
    let mut site = Site::new(&puppet, &[]);
    site.settings = unchecked(&["*"]);
    site.reload(&[]);
    site.fetch(&full);
    let before = site.trust.generation();
    site.reload(&[&full]);
    assert_ne!(site.trust.generation(), before);
    let (fetched, lacking, accepted_again) = site.fetch(&infrastructure);
    assert_eq!((lacking, accepted_again), (3, 0));
    site.accept(Some(&fetched));
    assert_eq!((site.revoked(), site.missing()), (vec![5, 6, 7], 0));
}

#[test]
fn the_generation_changes_whenever_a_verdict_may() {
    let puppet = Puppet::new();
    let [backup, full, other] = [(1, 100, &[7][..]), (2, 101, &[7]), (3, 102, &[])]
        .map(|(day, number, serials)| dated(&puppet, day, number, serials));
    // Each row is a sequence of files. From one to the next, the newest CRL or its role changes.
    for steps in [
        &[&[&full][..], &[], &[&full]][..],
        &[
            &[&full, &backup],
            &[&backup],
            &[],
            &[&backup],
            &[&full, &backup],
        ],
        &[
            &[&full],
            &[&other],
            &[],
            &[&other],
            &[&other, &full],
            &[&full],
        ],
    ] {
        for is_accepted in [false, true] {
            // A CRL that an operator has replaced changes nothing if another CRL is present.
            if is_accepted
                && steps
                    .iter()
                    .flat_map(|crls| *crls)
                    .any(|crl| *crl == &other)
            {
                continue;
            }
            let mut site = Site::new(&puppet, steps[0]);
            if is_accepted {
                site.reload(&[&other]);
                site.accept(None);
                site.reload(steps[0]);
            }
            for (number, crls) in steps.iter().enumerate().skip(1) {
                let before = site.trust.generation();
                site.reload(crls);
                assert_eq!(
                    site.trust.generation(),
                    before + 1,
                    "{is_accepted} {number}"
                );
                site.reload(crls);
                assert_eq!(
                    site.trust.generation(),
                    before + 1,
                    "{is_accepted} {number}"
                );
            }
        }
    }
}

#[test]
fn a_crl_that_was_replaced_by_one_of_the_same_number_does_not_count_again() {
    let puppet = Puppet::new();
    // The numbers of the replaced CRL and of the accepted CRL.
    for (before, after) in [(5, 5), (6, 5), (4, 5)] {
        let case = format!("{before} {after}");
        let old = dated(&puppet, 1, before, &[5, 7]);
        let same = dated(&puppet, 1, after, &[5, 6]);
        let new = dated(&puppet, 2, after, &[7, 8]);
        let later = dated(&puppet, 3, after, &[9]);
        let mut site = Site::new(&puppet, &[&old]);
        site.reload(&[&new]);
        assert_eq!(
            (site.revoked(), site.missing()),
            (vec![5, 7, 8], 1),
            "{case}"
        );
        site.accept(None);
        for crls in [&[&old, &new][..], &[&new, &old], &[&new]] {
            site.reload(crls);
            assert_eq!((site.revoked(), site.missing()), (vec![7, 8], 0), "{case}");
            site.restart(crls);
            assert_eq!((site.revoked(), site.missing()), (vec![7, 8], 0), "{case}");
        }
        // Another earlier CRL with the same number is just as old and is not used. A CRL that the CA issues later is used.
        site.reload(&[&same, &new]);
        assert_eq!(
            site.revoked(),
            if before > after {
                vec![5, 6, 7, 8]
            } else {
                vec![7, 8]
            },
            "{case}"
        );
        site.reload(&[&new, &later]);
        assert!(site.revoked().contains(&9), "{case}");

        let mut site = Site::new(&puppet, &[]);
        site.settings = unchecked(&["*"]);
        site.reload(&[]);
        site.fetch(&old);
        let (fetched, lacking, accepted_again) = site.fetch(&new);
        assert_eq!((lacking, accepted_again), (1, 1), "{case}");
        site.accept(Some(&fetched));
        assert_eq!(site.revoked(), [7, 8], "{case}");
        let (_, comparison) = site.examined(&old);
        assert_eq!(comparison, CrlComparison::Replaced, "{case}");
    }
}
