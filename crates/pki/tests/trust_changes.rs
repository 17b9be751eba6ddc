//! Changes of a trust store: verdicts that are verified again, generations, and the status.

use crate::support::*;
use identity::Reason;
use pki::{TrustSettings, TrustStore};
use rcgen::{KeyPair, date_time_ymd};

#[test]
fn a_new_crl_applies_to_a_chain_that_was_verified_before() {
    let puppet = Puppet::new();
    let agent = puppet.ca.agent("web01", 5);
    let before = store(&puppet.bundle(), &puppet.crls(1, &[])).unwrap();
    let verification = before.verify(&[agent.der], now());
    assert!(verification.is_current(before.generation(), now()));

    let after = store_with(
        &puppet.bundle(),
        &puppet.crls(2, &[7]),
        &TrustSettings::default(),
        Some(&before),
    )
    .unwrap();
    assert!(!verification.is_current(after.generation(), now()));
    let again = after.reverify(&verification, now());
    assert_eq!(reason(&again), None);
    assert!(again.is_current(after.generation(), now()));
    // Only the links are checked. The agent and its header values stay the same object.
    let same = |a: &pki::ChainVerification, b: &pki::ChainVerification| {
        std::sync::Arc::ptr_eq(
            a.chain.as_ref().unwrap().agent(),
            b.chain.as_ref().unwrap().agent(),
        )
    };
    assert!(same(&verification, &again));

    let revoking = store_with(
        &puppet.bundle(),
        &puppet.crls(3, &[5]),
        &TrustSettings::default(),
        Some(&after),
    )
    .unwrap();
    let refused = revoking.reverify(&again, now());
    assert_eq!(reason(&refused), Some(Reason::Revoked));
    // A newer CRL removes no revocation until an operator accepts that.
    let pruned = store_with(
        &puppet.bundle(),
        &puppet.crls(4, &[]),
        &TrustSettings::default(),
        Some(&revoking),
    )
    .unwrap();
    let still = pruned.reverify(&refused, now());
    assert_eq!(reason(&still), Some(Reason::Revoked));
    let text = refusal(&still).help.clone();
    assert!(
        text.contains("It was on an earlier CRL of CN=Puppet CA: test. The present one, number 4,"),
        "{text}"
    );
    // An open connection that was refused then gets the verdict that a new connection would get.
    let accepted = pruned.accepting(pruned.dropped_revocations()[0].key, None);
    assert_eq!(reason(&accepted.reverify(&still, now())), None);
}

#[test]
fn a_new_root_crl_revokes_the_intermediate_of_a_verified_chain() {
    let puppet = Puppet::new();
    let before = puppet.store();
    let verification = before.verify(&[puppet.ca.agent("web01", 5).der], now());
    let crls = [puppet.ca.crl(1, &[]), puppet.root.crl(2, &[2])];
    let after = store_with(
        &puppet.bundle(),
        &crls,
        &TrustSettings::default(),
        Some(&before),
    )
    .unwrap();
    assert_eq!(
        reason(&after.reverify(&verification, now())),
        Some(Reason::Revoked)
    );
}

#[test]
fn a_changed_bundle_or_policy_builds_new_paths() {
    let puppet = Puppet::new();
    let before = puppet.store();
    let verification = before.verify(&[puppet.ca.agent("web01", 5).der], now());
    let other = TestCa::root("other");
    let after = store_with(
        std::slice::from_ref(&other.der),
        &[other.crl(1, &[])],
        &TrustSettings::default(),
        Some(&before),
    );
    assert_eq!(
        reason(&after.unwrap().reverify(&verification, now())),
        Some(Reason::UnknownIssuer)
    );
    let shallow = TrustSettings {
        depth: 0,
        ..TrustSettings::default()
    };
    let after = store_with(
        &puppet.bundle(),
        &puppet.crls(1, &[]),
        &shallow,
        Some(&before),
    )
    .unwrap();
    assert_eq!(
        reason(&after.reverify(&verification, now())),
        Some(Reason::Depth)
    );
}

#[test]
fn a_verdict_ends_with_the_earliest_certificate_or_rejecting_crl() {
    let root = TestCa::root("root");
    let bundle = [root.der.clone()];
    let agent = root.agent("web01", 5);
    let in_2039 = 2_177_452_800;
    let store = store(&bundle, &[root.crl_until(1, &[], 2035)]).unwrap();
    let verification = store.verify(std::slice::from_ref(&agent.der), now());
    assert!(verification.is_current(1, at(in_2039)));
    assert!(!verification.is_current(1, at(in_2039 + 1)));
    assert_eq!(
        reason(&store.reverify(&verification, at(in_2039 + 1))),
        Some(Reason::Expired)
    );
    assert_eq!(
        reason(&store.reverify(&verification, at(IN_2041))),
        Some(Reason::Expired)
    );

    let in_2035 = 2_051_222_400;
    let store = store_with(&bundle, &[root.crl_until(1, &[], 2035)], &rejecting(), None).unwrap();
    let verification = store.verify(&[agent.der], now());
    assert!(verification.is_current(1, at(in_2035)));
    assert!(!verification.is_current(1, at(in_2035 + 1)));
    assert_eq!(
        reason(&store.reverify(&verification, at(in_2035 + 1))),
        Some(Reason::CrlExpired)
    );
}

#[test]
fn a_moved_crl_is_reported_with_its_new_source() {
    let puppet = Puppet::new();
    let mut crls = puppet.crls(1, &[]);
    let first = store(&puppet.bundle(), &crls).unwrap();
    crls.rotate_left(1);
    let moved = store_with(
        &puppet.bundle(),
        &crls,
        &TrustSettings::default(),
        Some(&first),
    );
    let places = |store: TrustStore| {
        let crls = store.status(now()).crls;
        crls.into_iter().map(|crl| crl.source).collect::<Vec<_>>()
    };
    let (one, two) = ("\"crl.pem\" block 1", "\"crl.pem\" block 2");
    assert_eq!(places(first), [one, two]);
    assert_eq!(places(moved.unwrap()), [two, one]);
}

#[test]
fn the_generation_increases_only_with_a_change() {
    let puppet = Puppet::new();
    let settings = TrustSettings::default();
    let first = puppet.store();
    let same = store_with(
        &puppet.bundle(),
        &puppet.crls(1, &[]),
        &settings,
        Some(&first),
    )
    .unwrap();
    // Each ECDSA signature is different, so an unchanged store needs the same bytes.
    assert_eq!((first.generation(), same.generation()), (1, 2));
    let crls = puppet.crls(2, &[]);
    let one = store_with(&puppet.bundle(), &crls, &settings, Some(&same)).unwrap();
    let two = store_with(&puppet.bundle(), &crls, &settings, Some(&one)).unwrap();
    assert_eq!((one.generation(), two.generation()), (3, 3));
    let three = store_with(&puppet.bundle(), &crls, &unchecked(&["*"]), Some(&two)).unwrap();
    assert_eq!(three.generation(), 4);
}

#[test]
fn an_older_crl_drops_no_revocation() {
    let puppet = Puppet::new();
    let agent = puppet.ca.agent("web01", 5);
    let first = store(&puppet.bundle(), &puppet.crls(15, &[5])).unwrap();
    let second = store_with(
        &puppet.bundle(),
        &puppet.crls(14, &[]),
        &TrustSettings::default(),
        Some(&first),
    )
    .unwrap();
    assert_eq!(verdict(&second, &agent), Some(Reason::Revoked));
    let [warning] = second.warnings() else {
        panic!("{:?}", second.warnings());
    };
    for words in [
        "(number 14) is older than the active one (number 15), whose dates and revocations still apply",
        "restore the newer file",
    ] {
        assert!(warning.contains(words), "{words:?} is not in {warning}");
    }
}

#[test]
fn the_status_contains_cas_crls_and_missing_crls() {
    let puppet = Puppet::new();
    let status = store(&puppet.bundle(), &[puppet.ca.crl(300, &[5, 6])])
        .unwrap()
        .status(now());
    let cas: Vec<_> = status
        .cas
        .iter()
        .map(|ca| (ca.subject.as_str(), ca.anchor, ca.in_time))
        .collect();
    assert_eq!(
        cas,
        [
            ("CN=Puppet CA: test", false, true),
            ("CN=Puppet Root CA: test", true, true)
        ]
    );
    let crl = &status.crls[0];
    assert_eq!(
        (crl.issuer.as_str(), crl.number.as_str(), crl.entries),
        ("CN=Puppet CA: test", "300", 2)
    );
    assert_eq!(crl.source, "\"crl.pem\" block 1");
    assert_eq!(status.crl_missing, ["CN=Puppet Root CA: test"]);
}

#[test]
fn the_status_changes_at_the_exact_second() {
    let (in_2030, in_2031, in_2040) = (1_893_456_000, 1_924_992_000, 2_208_988_800);
    let mut params = ca_params("root");
    params.not_before = date_time_ymd(2030, 1, 1);
    let root = TestCa::root_with(params, KeyPair::generate().unwrap());
    let mut list = crl_params(1, &[], 2041);
    list.this_update = date_time_ymd(2031, 1, 1);
    let list = list.signed_by(&root.issuer).unwrap().der().clone();
    let store = store(std::slice::from_ref(&root.der), &[list]).unwrap();
    let made = "the CRL of CN=root (\"crl.pem\" block 1) was issued on 2031-01-01T00:00:00Z, which is in the future: check the clocks of this host and of the CA server";
    let early = "CA CN=root is not valid before 2030-01-01T00:00:00Z";
    let over = "CA CN=root expired on 2040-01-01T00:00:00Z";
    for (seconds, in_time, alarms) in [
        (in_2030 - 1, false, &[early, made][..]),
        (in_2030, true, &[made]),
        (in_2031 - 1, true, &[made]),
        (in_2031, true, &[]),
        (in_2040, true, &[]),
        (in_2040 + 1, false, &[over]),
    ] {
        let status = store.status(at(seconds));
        let found: Vec<_> = status.alarms.iter().map(|alarm| &*alarm.message).collect();
        assert_eq!(
            (status.cas[0].in_time, &found[..]),
            (in_time, alarms),
            "{seconds}"
        );
    }
}
