//! The effect of policies for single issuers on verdicts.

use std::time::Duration;

use crate::support::*;
use identity::Reason;
use pki::{CrlExpired, IssuerSettings, Revocation, TrustSettings};

const ROOT: &str = "CN=Puppet Root CA: test";
const ISSUING: &str = "CN=Puppet CA: test";

fn own(name: &str) -> IssuerSettings {
    IssuerSettings {
        name: name.to_owned(),
        crl_expired: None,
        unchecked: None,
        revocation: None,
    }
}

fn policies(issuers: Vec<IssuerSettings>) -> TrustSettings {
    TrustSettings {
        issuers,
        ..TrustSettings::default()
    }
}

#[test]
fn the_strictest_policy_on_a_path_decides() {
    let puppet = Puppet::new();
    let agent = puppet.ca.agent("web01", 5);
    let expired = [
        puppet.ca.crl_until(1, &[9], 2025),
        puppet.root.crl_until(1, &[], 2025),
    ];
    let rejects = |name| IssuerSettings {
        crl_expired: Some(CrlExpired::Reject),
        ..own(name)
    };
    let warns = |name| IssuerSettings {
        crl_expired: Some(CrlExpired::Warn),
        ..own(name)
    };
    for (settings, expected) in [
        (policies(vec![]), None),
        (policies(vec![rejects(ISSUING)]), Some(Reason::CrlExpired)),
        (policies(vec![rejects(ROOT)]), Some(Reason::CrlExpired)),
        (policies(vec![rejects("CN=another CA")]), None),
        (
            TrustSettings {
                crl_expired: CrlExpired::Reject,
                ..policies(vec![warns(ROOT)])
            },
            Some(Reason::CrlExpired),
        ),
        (
            TrustSettings {
                crl_expired: CrlExpired::Reject,
                ..policies(vec![warns(ROOT), warns(ISSUING)])
            },
            None,
        ),
    ] {
        let store = store_with(&puppet.bundle(), &expired, &settings, None).unwrap();
        assert_eq!(verdict(&store, &agent), expected, "{settings:?}");
        let revoked = puppet.ca.agent("web09", 9);
        assert_eq!(verdict(&store, &revoked), Some(Reason::Revoked));
    }
}

#[test]
fn a_grace_period_and_its_verdict_end_at_the_same_second() {
    let root = TestCa::root("root");
    let agent = root.agent("web01", 5);
    let settings = TrustSettings {
        crl_expired: CrlExpired::Grace(Duration::from_secs(60)),
        ..TrustSettings::default()
    };
    let crls = [root.crl_until(1, &[], 2035)];
    let store = store_with(std::slice::from_ref(&root.der), &crls, &settings, None).unwrap();
    let in_2035 = 2_051_222_400;
    let verify = |seconds| store.verify(std::slice::from_ref(&agent.der), at(seconds));
    let verification = verify(in_2035 - 100);
    assert_eq!(verification.good_until(), Some(at(in_2035 + 60)));
    assert!(verification.is_current(1, at(in_2035 + 60)));
    assert!(!verification.is_current(1, at(in_2035 + 61)));
    for (seconds, expected, alarm) in [
        (in_2035, None, ""),
        (in_2035 + 1, None, "in use until 2035-01-01T00:01:00Z"),
        (in_2035 + 60, None, "in use until"),
        (
            in_2035 + 61,
            Some(Reason::CrlExpired),
            "expired on 2035-01-01T00:00:00Z: its issuer's certificates are refused",
        ),
    ] {
        assert_eq!(reason(&verify(seconds)), expected, "{seconds}");
        let alarms = store.status(at(seconds)).alarms;
        assert_eq!(alarms.is_empty(), alarm.is_empty(), "{alarms:?}");
        for actual in alarms {
            assert!(actual.message.contains(alarm), "{actual:?}");
            // There is one alarm, although its message changes.
            assert_eq!(actual.about, "CRL of CN=root");
            assert_eq!(actual.refuses, expected.is_some(), "{actual:?}");
        }
    }
    let late = verify(in_2035 + 61);
    let help = &refusal(&late).help;
    assert!(help.contains(", and the proxy's grace period"), "{help}");
    // The status changes at two times: when the CRL expires, and when its grace period ends.
    assert_eq!(store.next_change(at(in_2035 - 1)), Some(at(in_2035 + 1)));
    assert_eq!(store.next_change(at(in_2035 + 1)), Some(at(in_2035 + 61)));
}

#[test]
fn revocation_leaf_exempts_only_ca_certificates() {
    let puppet = Puppet::new();
    let (agent, revoked) = (puppet.ca.agent("web01", 5), puppet.ca.agent("web09", 9));
    let own_of_root = puppet.root.agent("web02", 7);
    let crls = [puppet.ca.crl(1, &[9]), puppet.root.crl(2, &[2, 7])];
    let leaf_of = |name| IssuerSettings {
        revocation: Some(Revocation::Leaf),
        ..own(name)
    };
    let all = TrustSettings {
        revocation: Revocation::Leaf,
        ..TrustSettings::default()
    };
    for (settings, expected) in [
        (policies(vec![]), Some(Reason::Revoked)),
        (policies(vec![leaf_of(ROOT)]), None),
        (policies(vec![leaf_of(ISSUING)]), Some(Reason::Revoked)),
        (all, None),
    ] {
        let store = store_with(&puppet.bundle(), &crls, &settings, None).unwrap();
        assert_eq!(verdict(&store, &agent), expected, "{settings:?}");
        // An agent's certificate is looked up in the CRL of every issuer.
        for agent in [&revoked, &own_of_root] {
            assert_eq!(verdict(&store, agent), Some(Reason::Revoked));
        }
    }
}

#[test]
fn unchecked_of_an_issuer_overrides_the_general_setting() {
    let puppet = Puppet::new();
    let agent = puppet.ca.agent("web01", 5);
    let is = |name, unchecked| IssuerSettings {
        unchecked: Some(unchecked),
        ..own(name)
    };
    let crls = [puppet.ca.crl(1, &[9])];
    for (settings, expected) in [
        (policies(vec![is(ROOT, true)]), None),
        (policies(vec![is(ISSUING, true)]), Some(Reason::CrlMissing)),
        (
            TrustSettings {
                issuers: vec![is(ROOT, false)],
                ..unchecked(&["*"])
            },
            Some(Reason::CrlMissing),
        ),
    ] {
        let store = store_with(&puppet.bundle(), &crls, &settings, None).unwrap();
        assert_eq!(verdict(&store, &agent), expected, "{settings:?}");
    }
    // Without any CRL, the store builds only if a policy exempts an issuer.
    let none = policies(vec![is(ROOT, true), is(ISSUING, true)]);
    let store = store_with(&puppet.bundle(), &[], &none, None).unwrap();
    assert_eq!(verdict(&store, &agent), None);
    let checked = policies(vec![is(ROOT, false)]);
    assert!(store_with(&puppet.bundle(), &[], &checked, None).is_err());
}

#[test]
fn with_revocation_leaf_only_the_cas_of_clients_need_a_crl() {
    let puppet = Puppet::new();
    // The second CA is next to the first, and above no CA.
    let second = puppet.root.intermediate("Puppet CA: second", 3);
    let bundle = [puppet.bundle(), vec![second.der.clone()]].concat();
    let crls = [puppet.crls(1, &[]), vec![second.crl(1, &[])]].concat();
    for (revocation, of_root) in [(Revocation::Leaf, false), (Revocation::Chain, true)] {
        let settings = TrustSettings {
            revocation,
            ..TrustSettings::default()
        };
        let store = store_with(&bundle, &crls, &settings, None).unwrap();
        for (name, expected) in [
            (ISSUING, true),
            ("CN=Puppet CA: second", true),
            (ROOT, of_root),
        ] {
            assert_eq!(store.needs_crl(name), expected, "{revocation:?}: {name}");
        }
    }
}

#[test]
fn a_store_that_refuses_every_agent_says_why() {
    let puppet = Puppet::new();
    let foreign = TestCa::root("other");
    let expired = [puppet.ca.crl_until(1, &[], 2025), puppet.root.crl(1, &[])];
    let leaf = TrustSettings {
        revocation: Revocation::Leaf,
        ..TrustSettings::default()
    };
    let default = TrustSettings::default();
    let (root_alone, issuing_alone) = ([puppet.root.crl(1, &[])], [puppet.ca.crl(1, &[])]);
    let root_and_foreign = [puppet.root.crl(1, &[]), foreign.crl(1, &[])];
    for (crls, settings, words) in [
        (&puppet.crls(1, &[])[..], &default, &[][..]),
        (
            &root_alone,
            &default,
            &["no CRL of CN=Puppet CA: test is provided"],
        ),
        (
            &root_and_foreign,
            &default,
            &["no CRL of CN=Puppet CA: test", "cannot be used"],
        ),
        (
            &issuing_alone,
            &default,
            &["no CRL of CN=Puppet Root CA: test"],
        ),
        (&issuing_alone, &leaf, &[]),
        (&root_alone, &leaf, &["no CRL of CN=Puppet CA: test"]),
        (&root_alone, &unchecked(&["CN=Puppet CA: test"]), &[]),
        (&expired, &default, &[]),
        (
            &expired,
            &rejecting(),
            &["the CRL of CN=Puppet CA: test (", ") has expired"],
        ),
    ] {
        let store = store_with(&puppet.bundle(), crls, settings, None).unwrap();
        let agent = puppet.ca.agent("web01", 5);
        let found = store.lockout(None, now());
        assert_eq!(
            found.is_some(),
            verdict(&store, &agent).is_some(),
            "{found:?}"
        );
        assert_eq!(found.is_some(), !words.is_empty(), "{found:?}");
        if let Some(found) = found {
            assert!(found.is_by_crls);
            let is_said = |words: &&str| found.why.contains(*words);
            assert!(words.iter().all(is_said), "{found:?}");
        }
    }
    // If a CA has expired, no CRL helps.
    let late = puppet.store().lockout(None, at(IN_2041)).unwrap();
    assert!(
        !late.is_by_crls && late.why.contains("validity"),
        "{late:?}"
    );
}

#[test]
fn one_usable_ca_of_two_is_enough() {
    let (good, bad) = (TestCa::root("good"), TestCa::root("bad"));
    let bundle = [good.der.clone(), bad.der.clone()];
    let store = store_with(
        &bundle,
        &[good.crl(1, &[])],
        &TrustSettings::default(),
        None,
    );
    assert_eq!(store.unwrap().lockout(None, now()), None);
}

#[test]
fn an_expired_crl_that_is_newer_causes_no_lockout_because_it_may_revoke() {
    let root = TestCa::root("root");
    let bundle = [root.der.clone()];
    let active = store_with(&bundle, &[root.crl(1, &[])], &rejecting(), None).unwrap();
    let newer = [root.crl_until(2, &[5], 2025)];
    let newer = store_with(&bundle, &newer, &rejecting(), Some(&active)).unwrap();
    assert!(newer.lockout(None, now()).is_some());
    assert_eq!(newer.lockout(Some(&active), now()), None);
    // The same CRL under a stricter policy causes a lockout.
    let crl = [root.crl_until(1, &[], 2025)];
    let lenient = store_with(&bundle, &crl, &TrustSettings::default(), None).unwrap();
    let strict = store_with(&bundle, &crl, &rejecting(), Some(&lenient)).unwrap();
    assert!(strict.lockout(Some(&lenient), now()).is_some());
}
