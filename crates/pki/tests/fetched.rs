//! Fetched CRLs: which of them become active, and for how long.

use crate::support::*;
use identity::{IdentitySettings, Reason};
use pki::{
    CrlComparison, ExaminedCrls, FetchedCrl, Named, PkiProblem, RetainedSerials, SetAsideRule,
    StoredRevocations, TrustSettings, TrustStore,
};
use rustls_pki_types::CertificateRevocationListDer;

fn text(crls: &[CertificateRevocationListDer<'_>]) -> Named<Vec<u8>> {
    let text: String = crls.iter().map(|der| pem("X509 CRL", der)).collect();
    Named::new("fetched from ca:8140", text.into_bytes())
}

fn examined(store: &TrustStore, crls: &[CertificateRevocationListDer<'_>]) -> ExaminedCrls {
    store.examine(text(crls)).unwrap()
}

fn the_one(mut examined: ExaminedCrls) -> (FetchedCrl, CrlComparison) {
    assert_eq!(
        (examined.crls.len(), &examined.unusable),
        (1, &Vec::new()),
        "{examined:?}"
    );
    examined.crls.remove(0)
}

/// A store and its CRL, which has number 7 and revokes 5 and 6.
fn store_of(puppet: &Puppet) -> TrustStore {
    store(&puppet.bundle(), &puppet.crls(7, &[5, 6])).unwrap()
}

fn again(store: &TrustStore, puppet: &Puppet, number: u64, serials: &[u64]) -> TrustStore {
    let settings = TrustSettings::default();
    store_with(
        &puppet.bundle(),
        &puppet.crls(number, serials),
        &settings,
        Some(store),
    )
    .unwrap()
}

#[test]
fn a_fetched_crl_revokes_at_once_and_what_it_drops_stays_revoked() {
    let puppet = Puppet::new();
    let store = store_of(&puppet);
    let drops = |is_older, lacking, is_news| CrlComparison::DropsRevocations {
        active_number: "7".to_owned(),
        is_older,
        lacking,
        // The file lists all of them.
        accepted_again: 0,
        is_news,
    };
    let agents: Vec<_> = (4..=8)
        .map(|serial| (serial, puppet.ca.agent("web01", serial)))
        .collect();
    for (number, serials, expected) in [
        (8, &[5, 6][..], CrlComparison::Newer),
        (8, &[4, 5, 6, 0x7fff_ffff], CrlComparison::Newer),
        (7, &[5, 6], CrlComparison::Active),
        (7, &[5, 6, 7], CrlComparison::Newer),
        (7, &[5], drops(false, 1, false)),
        (7, &[5, 8], drops(false, 1, true)),
        (8, &[], drops(false, 2, true)),
        (300, &[6, 7, 8], drops(false, 1, true)),
        // Another CA server has restored its database, but no revocation is lost.
        (6, &[5, 6], CrlComparison::Active),
        (6, &[5, 6, 7], CrlComparison::Newer),
        (0, &[], drops(true, 2, false)),
        (0, &[8], drops(true, 2, true)),
    ] {
        let case = format!("number {number}, {serials:?}");
        let (list, finding) = the_one(examined(&store, &[puppet.ca.crl(number, serials)]));
        assert_eq!(finding, expected, "{case}");
        assert_eq!(list.number(), number.to_string());
        assert_eq!(list.entries(), serials.len());
        assert_eq!(list.issuer(), "CN=Puppet CA: test");
        let is_applied = matches!(
            finding,
            CrlComparison::Newer | CrlComparison::DropsRevocations { is_news: true, .. }
        );
        if !is_applied {
            continue;
        }
        // The result is the same after a reload of the files.
        let next = store.with_crls(&[list]);
        for store in [
            again(&next, &puppet, 7, &[5, 6]),
            again(&next, &puppet, 9, &[]),
            next,
        ] {
            for (serial, agent) in &agents {
                let is_revoked = [5, 6].contains(serial) || serials.contains(serial);
                let expected = is_revoked.then_some(Reason::Revoked);
                assert_eq!(verdict(&store, agent), expected, "{case}: serial {serial}");
            }
        }
    }
    // For a CA without a CRL, any CRL is newer.
    let without = TrustStore::build(
        &material(&puppet.bundle(), &[puppet.root.crl(1, &[])]),
        &TrustSettings::default(),
        &IdentitySettings::default(),
        None,
    )
    .unwrap();
    let (_, finding) = the_one(examined(&without, &[puppet.ca.crl(1, &[])]));
    assert_eq!(finding, CrlComparison::Newer);
}

#[test]
fn the_dates_of_a_lower_number_apply_once_it_lists_every_revocation() {
    let puppet = Puppet::new();
    let dated = |number, serials: &[u64], year, until| {
        let mut list = crl_params(number, serials, until);
        list.this_update = rcgen::date_time_ymd(year, 1, 1);
        list.signed_by(&puppet.ca.issuer).unwrap().der().clone()
    };
    let store = store(&puppet.bundle(), &[puppet.root.crl(1, &[])]).unwrap();
    let (first, _) = the_one(examined(&store, &[dated(20, &[5, 6], 2021, 2031)]));
    let store = store.with_crls(&[first]);
    for (year, serials, number, is_alarm) in [
        (2022, &[5][..], "20", true),
        (2022, &[5, 7], "20", true),
        (2022, &[5, 6], "3", false),
        (2022, &[5, 6, 7], "3", false),
        (2020, &[5, 6], "20", true),
        (2020, &[5, 6, 7], "20", true),
    ] {
        let (list, finding) = the_one(examined(&store, &[dated(3, serials, year, 2035)]));
        let is_older = matches!(
            finding,
            CrlComparison::DropsRevocations { is_older: true, .. }
        );
        assert_eq!(is_older, is_alarm, "{year} {serials:?}: {finding:?}");
        let crls = store.with_crls(&[list]).status(now()).crls;
        let newest = crls
            .iter()
            .find(|crl| crl.is_newest && crl.issuer.contains("Puppet CA"));
        assert_eq!(newest.unwrap().number, number, "{year} {serials:?}");
    }
}

#[test]
fn several_crls_of_one_issuer_in_a_response_count_together() {
    let puppet = Puppet::new();
    let store = store_of(&puppet);
    let lists = [
        puppet.ca.crl(8, &[5]),
        puppet.ca.crl(9, &[7]),
        puppet.ca.crl(6, &[6, 8]),
        puppet.root.crl(2, &[2]),
    ];
    let examined = examined(&store, &lists);
    let found: Vec<_> = examined
        .crls
        .iter()
        .map(|(list, finding)| (list.issuer(), list.number(), finding))
        .collect();
    assert_eq!(
        found,
        [
            ("CN=Puppet CA: test", "9".to_owned(), &CrlComparison::Newer),
            (
                "CN=Puppet Root CA: test",
                "2".to_owned(),
                &CrlComparison::Newer
            ),
        ]
    );
    assert_eq!(&*examined.crls[0].0.der(), lists[1].as_ref());
    let next = store.with_crls(&[examined.crls[0].0.clone()]);
    for serial in 5..=8 {
        let agent = puppet.ca.agent("web01", serial);
        assert_eq!(verdict(&next, &agent), Some(Reason::Revoked), "{serial}");
    }
    assert!(next.dropped_revocations().is_empty());
}

#[test]
fn however_often_a_ca_drops_entries_each_stays_revoked_until_it_is_accepted() {
    let puppet = Puppet::new();
    let issuer = |store: &TrustStore| store.dropped_revocations()[0].key;
    let mut trust = store(&puppet.bundle(), &puppet.crls(1, &[100])).unwrap();
    // Each night, one entry is dropped and one is added, so no two CRLs list all revocations.
    for night in 1..=40 {
        let (list, finding) = the_one(examined(
            &trust,
            &[puppet.ca.crl(1 + night, &[100 + night])],
        ));
        let is_news = matches!(
            finding,
            CrlComparison::DropsRevocations { is_news: true, .. }
        );
        assert!(is_news, "{finding:?}");
        trust = trust.with_crls(&[list]);
        // The file is still as old as at the start.
        trust = again(&trust, &puppet, 1, &[100]);
    }
    let revoked = |store: &TrustStore| -> Vec<u64> {
        let is_revoked =
            |serial: &u64| verdict(store, &puppet.ca.agent("web01", *serial)).is_some();
        (100..=141).filter(is_revoked).collect()
    };
    let all: Vec<u64> = (100..=140).collect();
    assert_eq!(revoked(&trust), all);
    let [dropped] = &trust.dropped_revocations()[..] else {
        panic!("{:?}", trust.dropped_revocations());
    };
    assert_eq!(
        (&*dropped.number, dropped.missing, dropped.forgotten),
        ("41", 39, 0)
    );
    let crls = trust.status(now()).crls;
    assert_eq!(
        crls.iter().filter(|crl| crl.is_newest).count(),
        2,
        "{crls:#?}"
    );

    // A restart with the stored CRL and serials changes nothing.
    let (list, _) = the_one(examined(&trust, &[puppet.ca.crl(41, &[140])]));
    let restored = restarted(&trust, &puppet, &list);
    assert_eq!(revoked(&restored), all);

    let accepted = restored.accepting(issuer(&restored), None);
    assert_eq!(
        revoked(&accepted),
        [100, 140],
        "what the file and the CA provide"
    );
    assert!(accepted.dropped_revocations().is_empty());
    let again = again(&accepted, &puppet, 1, &[100]);
    assert_eq!(revoked(&again), [100, 140]);
}

/// A new process whose state directory has this CRL and the retained serials of `trust`.
fn restarted(trust: &TrustStore, puppet: &Puppet, list: &FetchedCrl) -> TrustStore {
    let retained = trust
        .retained(list.key(), Some(list.fingerprint()))
        .unwrap();
    let text = retained.text();
    let begun = store(&puppet.bundle(), &puppet.crls(1, &[100])).unwrap();
    let stored = Named::new("stored", list.der().to_vec());
    let (crl, _) = the_one(begun.examine_der(stored).unwrap());
    let stored = StoredRevocations {
        key: list.key(),
        crl: Some(crl),
        retained: RetainedSerials::read(text.as_bytes()).unwrap(),
    };
    begun.with_restored(&[stored], true).unwrap()
}

#[test]
fn a_crl_that_no_key_of_the_bundle_signed_is_unusable_and_does_not_affect_others() {
    let puppet = Puppet::new();
    let store = store_of(&puppet);
    let namesake = Puppet::new();
    let forged = namesake.ca.crl(9, &[]);
    let examined = examined(&store, &[forged, puppet.root.crl(2, &[])]);
    assert_eq!(examined.crls.len(), 1, "{examined:?}");
    let actual = examined.unusable.concat();
    for word in ["fetched from ca:8140", "block 1", "CN=Puppet CA: test"] {
        assert!(actual.contains(word), "{actual}");
    }
    // One bit of the signature is altered, or one bit of the content.
    let good = puppet.ca.crl(9, &[5, 6]).to_vec();
    for place in [good.len() - 5, good.len() / 2] {
        let mut bad = good.clone();
        bad[place] ^= 1;
        let outcome = store.examine_der(Named::new("stored", bad));
        let nothing = outcome.map_or(true, |examined| examined.crls.is_empty());
        assert!(nothing, "byte {place}");
    }
}

#[test]
fn a_document_that_is_not_a_crl_or_is_truncated_is_refused_as_a_whole() {
    let puppet = Puppet::new();
    let store = store_of(&puppet);
    let whole = text(&puppet.crls(9, &[5, 6]));
    let end = whole.value.len();
    let half = Named::new("half", whole.value[..end - 40].to_vec());
    assert!(matches!(
        store.examine(half).unwrap_err(),
        PkiProblem::NotPem { .. }
    ));
    for no_list in ["", "<html>504</html>", "Not Found"] {
        let refused = store
            .examine(Named::new("x", no_list.as_bytes().to_vec()))
            .unwrap_err();
        assert!(matches!(refused, PkiProblem::Empty { .. }), "{refused}");
    }
    let der = puppet.ca.crl(9, &[5, 6]);
    for length in [0, 1, 10, der.len() - 1] {
        let stored = Named::new("stored", der[..length].to_vec());
        assert!(store.examine_der(stored).is_err(), "{length}");
    }
}

#[test]
fn a_fetched_crl_counts_together_with_older_and_newer_files() {
    let puppet = Puppet::new();
    let (revoked, later) = (puppet.ca.agent("web01", 9), puppet.ca.agent("web02", 10));
    let files = puppet.crls(7, &[5, 6]);
    let first = store(&puppet.bundle(), &files).unwrap();
    assert_eq!(verdict(&first, &revoked), None);
    let (list, _) = the_one(examined(&first, &[puppet.ca.crl(8, &[5, 6, 9])]));
    let second = first.with_crls(std::slice::from_ref(&list));
    assert_eq!(second.generation(), 2);
    assert_eq!(verdict(&second, &revoked), Some(Reason::Revoked));
    let crls = second.status(now()).crls;
    let sources: Vec<_> = crls
        .iter()
        .map(|crl| (&*crl.source, crl.is_newest))
        .collect();
    let expected = [
        ("\"crl.pem\" block 1", false),
        ("\"fetched from ca:8140\" block 1", true),
        ("\"crl.pem\" block 2", true),
    ];
    assert_eq!(sources, expected);
    // Whether the files are the same, older or different, the newest CRL stays active without a warning.
    let settings = TrustSettings::default();
    let mut third = store_with(&puppet.bundle(), &files, &settings, Some(&second)).unwrap();
    assert_eq!(third.generation(), 2);
    for number in [6, 1] {
        third = again(&third, &puppet, number, &[]);
        assert_eq!(verdict(&third, &revoked), Some(Reason::Revoked));
        assert_eq!(third.warnings(), [""; 0], "{number}");
    }
    // If a file has a newer CRL, the dates of that CRL apply.
    let fourth = again(&third, &puppet, 9, &[5, 6, 9, 10]);
    assert_eq!(verdict(&fourth, &later), Some(Reason::Revoked));
    let (_, finding) = the_one(examined(&fourth, &[puppet.ca.crl(8, &[5, 6, 9])]));
    assert!(matches!(
        finding,
        CrlComparison::DropsRevocations {
            is_older: true,
            lacking: 1,
            ..
        }
    ));
    // A bundle without that CA ignores its CRL.
    let other = Puppet::new();
    let fifth = store_with(
        &other.bundle(),
        &other.crls(1, &[]),
        &settings,
        Some(&third),
    )
    .unwrap();
    assert_eq!(fifth.status(now()).crls.len(), 2);
    assert!(fifth.status(now()).crls.iter().all(|crl| crl.number == "1"));
}

#[test]
fn fetching_a_missing_crl_ends_the_warning() {
    let puppet = Puppet::new();
    let store = store(&puppet.bundle(), &[puppet.root.crl(1, &[])]).unwrap();
    assert!(store.warnings().concat().contains("no CRL of CA"));
    let (list, _) = the_one(examined(&store, &[puppet.ca.crl(1, &[])]));
    let store = store.with_crls(&[list]);
    assert_eq!(store.warnings(), [""; 0]);
    assert_eq!(verdict(&store, &puppet.ca.agent("web01", 9)), None);
}

#[test]
fn stored_revocations_stay_whatever_the_files_contain_after_a_restart() {
    let puppet = Puppet::new();
    let settings = TrustSettings::default();
    let agents: Vec<_> = (4..=7)
        .map(|serial| (serial, puppet.ca.agent("web01", serial)))
        .collect();
    for (file, stored, retained, dropped) in [
        ((7, &[5][..]), Some((8, &[5, 6][..])), &[][..], (0, 1)),
        ((9, &[]), Some((8, &[5])), &[], (0, 1)),
        ((9, &[6]), Some((8, &[5])), &[4], (1, 2)),
        ((8, &[5]), Some((8, &[5])), &[], (0, 0)),
        ((9, &[5]), None, &[], (0, 0)),
        ((9, &[5]), None, &[5, 6], (1, 1)),
    ] {
        for (is_copy, fetches) in [(false, false), (false, true), (true, true)] {
            let case = format!("{file:?} {stored:?} {retained:?} {is_copy} {fetches}");
            let mut found = material(&puppet.bundle(), &puppet.crls(file.0, file.1));
            if is_copy {
                std::mem::swap(&mut found.crls, &mut found.copied_crls);
            }
            let built = |previous: Option<&TrustStore>| {
                let identity = IdentitySettings::default();
                TrustStore::build(&found, &settings, &identity, previous).unwrap()
            };
            let begun = built(None);
            let crl = stored.map(|(number, serials)| {
                let list = puppet.ca.crl(number, serials).to_vec();
                the_one(begun.examine_der(Named::new("stored", list)).unwrap()).0
            });
            let earlier = store(&puppet.bundle(), &puppet.crls(1, retained)).unwrap();
            let (key, _) = begun
                .issuers()
                .into_iter()
                .find(|(_, name)| name.contains("Puppet CA"))
                .unwrap();
            let of_issuer = StoredRevocations {
                key,
                crl,
                retained: earlier.retained(key, None).unwrap(),
            };
            let restored = begun.with_restored(&[of_issuer], fetches);
            let restored = restored.unwrap_or_else(|| built(None));
            for store in [&restored, &built(Some(&restored))] {
                for (serial, agent) in &agents {
                    let of_stored = stored.is_some_and(|(_, serials)| serials.contains(serial));
                    let is_revoked =
                        of_stored || file.1.contains(serial) || retained.contains(serial);
                    let expected = is_revoked.then_some(Reason::Revoked);
                    assert_eq!(verdict(store, agent), expected, "{case}: {serial}");
                }
                let expected = if fetches { dropped.0 } else { dropped.1 };
                let missing = store
                    .dropped_revocations()
                    .into_iter()
                    .map(|one| one.missing);
                assert_eq!(missing.sum::<usize>(), expected, "{case}");
            }
        }
    }
}

#[test]
fn an_accepted_crl_replaces_the_active_one_and_its_copies_in_files() {
    let puppet = Puppet::new();
    let agent = puppet.ca.agent("web01", 5);
    // The bytes are the same each time. If the CA signs a CRL again within the same second, it counts as a later CRL.
    let file = puppet.crls(7, &[5, 6]);
    let of_copies = |crls: &[CertificateRevocationListDer<'_>], previous: Option<&TrustStore>| {
        let mut copies = material(&puppet.bundle(), crls);
        std::mem::swap(&mut copies.crls, &mut copies.copied_crls);
        let (settings, identity) = (TrustSettings::default(), IdentitySettings::default());
        TrustStore::build(&copies, &settings, &identity, previous).unwrap()
    };
    let of_file = |previous: Option<&TrustStore>| of_copies(&file, previous);
    let store = of_file(None);
    let (list, finding) = the_one(examined(&store, &[puppet.ca.crl(2, &[6])]));
    assert!(matches!(
        finding,
        CrlComparison::DropsRevocations { is_older: true, .. }
    ));
    let accepted = store.accepting(list.key(), Some(&list));
    let rules = accepted.set_aside_rules().to_vec();
    assert_eq!(verdict(&accepted, &agent), None);
    // The file still contains the other CRL, now and after a restart.
    let reloaded = of_file(Some(&accepted));
    assert_eq!(verdict(&reloaded, &agent), None);
    assert_eq!(reloaded.warnings(), [""; 0]);
    // The replaced CRL is not used either if the file contains both, in either order.
    let der = CertificateRevocationListDer::from(list.der().to_vec());
    for both in [[&der, &file[0], &file[1]], [&file[0], &der, &file[1]]] {
        let both = both.map(Clone::clone);
        let known = store.with_set_aside_rules(rules.clone());
        let store = of_copies(&both, Some(&known));
        assert_eq!(verdict(&store, &agent), None);
    }
    let written: Vec<String> = rules.iter().map(ToString::to_string).collect();
    let read: Vec<SetAsideRule> = written.iter().map(|rule| rule.parse().unwrap()).collect();
    assert_eq!(read, rules);
    let restarted = of_file(None).with_set_aside_rules(read);
    let stored = Named::new("stored", list.der().to_vec());
    let (stored, finding) = the_one(restarted.examine_der(stored).unwrap());
    assert_eq!(finding, CrlComparison::Newer);
    let restarted = restarted.with_crls(&[stored]);
    assert_eq!(verdict(&restarted, &agent), None);
    // While the accepted CRL is missing, the CRL that was set aside is better than none.
    let lost = of_file(None).with_set_aside_rules(rules);
    assert_eq!(verdict(&lost, &agent), Some(Reason::Revoked));
    // It is not used either if another server provides it.
    let (_, finding) = the_one(examined(&restarted, &file[..1]));
    assert_eq!(finding, CrlComparison::Replaced);
    let (_, finding) = the_one(examined(&restarted, &[puppet.ca.crl(7, &[5, 6])]));
    assert_eq!(finding, CrlComparison::Newer);
    // A CRL that the CA issues while its clock is slow is a new CRL, not an old one.
    let mut behind = crl_params(4, &[5, 6], 2040);
    behind.this_update = rcgen::date_time_ymd(2019, 1, 1);
    let behind = behind.signed_by(&puppet.ca.issuer).unwrap();
    let (_, finding) = the_one(examined(&restarted, &[behind.der().clone()]));
    assert_eq!(finding, CrlComparison::Newer);
    // An older version of the proxy did not store which CRL was replaced, so its rules lack that.
    let mut words: Vec<_> = written[0].split(' ').collect();
    for _ in 0..2 {
        words.pop();
        let known: SetAsideRule = words.join(" ").parse().unwrap();
        assert_eq!(known.to_string(), words.join(" "));
    }
    // From now on, the CA continues from its low number, and no revocation is dropped again.
    let (next, finding) = the_one(examined(&restarted, &[puppet.ca.crl(3, &[5, 6])]));
    assert_eq!(finding, CrlComparison::Newer);
    assert_eq!(
        verdict(&restarted.with_crls(&[next]), &agent),
        Some(Reason::Revoked)
    );
    let (_, finding) = the_one(examined(&restarted, &[puppet.ca.crl(1, &[])]));
    assert!(matches!(
        finding,
        CrlComparison::DropsRevocations { is_older: true, .. }
    ));
    for text in ["", "a b c d", "00 00 00 1", "x"] {
        assert!(text.parse::<SetAsideRule>().is_err(), "{text}");
    }
}

#[test]
fn a_fetched_crl_has_its_issuer_and_size() {
    let puppet = Puppet::new();
    let store = store_of(&puppet);
    let crl = puppet.ca.crl(300, &[5, 6, 7]);
    let (list, _) = the_one(examined(&store, std::slice::from_ref(&crl)));
    assert_eq!(
        (list.issuer(), &*list.number(), list.entries()),
        ("CN=Puppet CA: test", "300", 3)
    );
    assert_eq!(&*list.der(), crl.as_ref());
    let issuers = store.issuers();
    assert_eq!(issuers.len(), 2);
    assert!(issuers.contains(&(list.key(), list.issuer())));
    let (same, _) = the_one(examined(&store, &[crl]));
    let (other, _) = the_one(examined(&store, &[puppet.ca.crl(301, &[5, 6, 7])]));
    assert!(same.fingerprint() == list.fingerprint() && other.fingerprint() != list.fingerprint());
    assert!(store.set_aside_rules().is_empty());
    let rules = store.accepting(list.key(), Some(&list));
    let rules = rules.set_aside_rules();
    assert_eq!(
        store.with_set_aside_rules(rules.to_vec()).set_aside_rules(),
        rules
    );
}

#[test]
fn an_unusable_fetched_crl_is_reported_with_the_others() {
    let puppet = Puppet::new();
    let mut partitioned = crl_params(9, &[], 2040);
    partitioned.issuing_distribution_point = Some(rcgen::CrlIssuingDistributionPoint {
        distribution_point: rcgen::CrlDistributionPoint {
            uris: vec!["http://crl.example.com".into()],
        },
        scope: None,
    });
    let partitioned = partitioned
        .signed_by(&puppet.ca.issuer)
        .unwrap()
        .der()
        .clone();
    let found = examined(
        &store_of(&puppet),
        &[partitioned, puppet.ca.crl(8, &[5, 6])],
    );
    assert_eq!(found.crls.len(), 1);
    assert!(
        found.unusable[0].contains("partitioned or indirect"),
        "{:?}",
        found.unusable
    );
}

#[test]
fn a_fetched_crl_stays_when_legacy_signatures_change() {
    let puppet = Puppet::new();
    let settings = TrustSettings {
        unchecked: vec!["*".to_owned()],
        ..TrustSettings::default()
    };
    // No file contains the CRL of the CA.
    let files = [puppet.root.crl(1, &[])];
    let built = |settings: &TrustSettings, previous: Option<&TrustStore>| {
        store_with(&puppet.bundle(), &files, settings, previous).unwrap()
    };
    let first = built(&settings, None);
    let (list, _) = the_one(examined(&first, &[puppet.ca.crl(7, &[5])]));
    let fetched = first.with_crls(&[list]);
    let agent = puppet.ca.agent("web01.example.com", 5);
    assert_eq!(verdict(&fetched, &agent), Some(Reason::Revoked));
    let other = TrustSettings {
        legacy_signatures: vec!["CN=Another".to_owned()],
        ..settings
    };
    let reloaded = built(&other, Some(&fetched));
    assert_eq!(verdict(&reloaded, &agent), Some(Reason::Revoked));
}

#[test]
fn of_a_thousand_unusable_crls_a_few_are_reported_and_the_valid_one_is_used() {
    let puppet = Puppet::new();
    let mut lists = vec![Puppet::new().ca.crl(9, &[]); 1_000];
    lists.push(puppet.ca.crl(9, &[5, 6]));
    let found = examined(&store_of(&puppet), &lists);
    assert_eq!((found.crls.len(), found.unusable.len()), (1, 16));
}
