//! What trust and credentials say of themselves, for `check`, metrics and the log.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use pki::{Credential, Named, ShownCredentials, TrustSettings};
use rcgen::{KeyPair, SanType, date_time_ymd};
use support::tls::credential;
use support::*;

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../../../ssl-fixtures/", $name))
    };
}

#[test]
fn a_credential_tells_subject_names_dates_and_kind_of_key() {
    let ca = Ca::root("root");
    for (algorithm, kind) in [
        (&rcgen::PKCS_ECDSA_P256_SHA256, "ECDSA P-256"),
        (&rcgen::PKCS_ECDSA_P384_SHA384, "ECDSA P-384"),
    ] {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let told = credential(&ca.sign_key(&leaf_params("puppet", 5), key));
        assert_eq!(told.key_kind(), kind);
        assert_eq!(
            (told.subject(), told.names()),
            ("CN=puppet", &["puppet".to_owned()][..])
        );
        assert_eq!(
            (told.not_before(), told.not_after()),
            (at(1_577_836_800), at(2_177_452_800))
        );
    }
    for (chain, key, kind) in [
        (fixture!("ed25519.pem"), fixture!("ed25519.key"), "Ed25519"),
        (fixture!("rsa2048.pem"), fixture!("rsa2048.key"), "RSA 2048"),
    ] {
        let told = Credential::parse(&Named::new("c", chain.into()), &Named::new("k", key.into()));
        assert_eq!(told.unwrap().key_kind(), kind);
    }
}

#[test]
fn names_of_certificates_are_addresses_and_host_names_each_once() {
    let ca = Ca::root("root");
    let mut params = leaf_params("puppet", 5);
    params.subject_alt_names.extend([
        SanType::DnsName("puppet".try_into().unwrap()),
        SanType::IpAddress("2001:db8::7".parse().unwrap()),
        SanType::Rfc822Name("root@example.com".try_into().unwrap()),
        SanType::DnsName("*.example.com".try_into().unwrap()),
    ]);
    let told = credential(&ca.sign(params));
    assert_eq!(told.names(), ["puppet", "2001:db8::7", "*.example.com"]);
    let shown = ShownCredentials::new([&told]).unwrap();
    assert!(!shown.are_nameless());
    for (name, good) in [
        ("puppet", true),
        ("PUPPET", true),
        ("a.example.com", true),
        ("a.b.example.com", false),
        ("example.com", false),
        ("master", false),
    ] {
        assert_eq!(shown.are_good_for(name), good, "{name}");
    }
    let mut params = leaf_params("nobody", 6);
    params.subject_alt_names.clear();
    assert!(
        ShownCredentials::new([&credential(&ca.sign(params))])
            .unwrap()
            .are_nameless()
    );
    assert!(
        ShownCredentials::new([]).is_err(),
        "nothing to show is a problem"
    );
}

#[test]
fn a_store_knows_its_issuers_by_name_and_what_it_has_lost() {
    let puppet = Puppet::new();
    let whole = puppet.store();
    assert!(whole.knows_issuer("CN=Puppet CA: test") && !whole.knows_issuer("CN=Puppet CA"));
    let half = store_with(
        &puppet.bundle(),
        &[puppet.ca.crl(1, &[])],
        &TrustSettings::default(),
        Some(&whole),
    );
    let half = half.unwrap();
    assert_eq!(half.crls_lost(&whole), ["CN=Puppet Root CA: test"]);
    assert!(whole.crls_lost(&half).is_empty() && whole.crls_lost(&whole).is_empty());
    assert!(
        half.warnings()
            .iter()
            .any(|warning| warning.starts_with("no CRL of CA CN=Puppet Root CA: test"))
    );
    assert_eq!(half.index_bytes(), 0);
    let three = store(&puppet.bundle(), &puppet.crls(1, &[5, 300, 70_000])).unwrap();
    assert_eq!(three.index_bytes(), 1 + 2 + 3);
}

#[test]
fn alarms_tell_of_every_date_that_is_wrong() {
    let puppet = Puppet::new();
    let alarms = |year: i32| {
        let now = at(u64::try_from(date_time_ymd(year, 6, 1).unix_timestamp()).unwrap_or(0));
        puppet.store().status(now).alarms
    };
    let told = |year: i32, words: &str| {
        alarms(year)
            .iter()
            .filter(|alarm| alarm.contains(words))
            .count()
    };
    assert_eq!(alarms(2030), Vec::<String>::new());
    assert_eq!(told(2019, "is not valid before 2020-01-01T00:00:00Z"), 2);
    assert_eq!(told(2019, "which is to come: compare the clocks"), 2);
    assert_eq!(
        told(2040, "expired on 2040-01-01T00:00:00Z"),
        4,
        "two CAs, two lists"
    );
}

#[test]
fn a_policy_for_nobody_is_told() {
    let puppet = Puppet::new();
    let settings = unchecked(&["CN=Nobody"]);
    let store = store_with(&puppet.bundle(), &puppet.crls(1, &[]), &settings, None).unwrap();
    assert!(
        store.warnings().iter().any(|warning| warning
            .contains("\"CN=Nobody\", which [trust] has a policy for, is not the subject of a CA"))
    );
    assert_eq!(puppet.store().warnings(), &[] as &[String]);
}
