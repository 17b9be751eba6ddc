//! The information that trust stores and credentials provide for `check`, metrics and the log.

use crate::support::tls::credential;
use crate::support::*;
use identity::Certname;
use pki::{
    BlockTarget, Credential, ListenerCredentials, Named, PkiProblem, SerialNumber, TrustSettings,
};
use rcgen::{CustomExtension, DistinguishedName, KeyPair, KeyUsagePurpose, SanType, date_time_ymd};
use rustls_pki_types::CertificateDer;

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../../../ssl-fixtures/", $name))
    };
}

#[test]
fn a_credential_has_its_subject_names_dates_and_kind_of_key() {
    let ca = TestCa::root("root");
    for (algorithm, kind) in [
        (&rcgen::PKCS_ECDSA_P256_SHA256, "ECDSA P-256"),
        (&rcgen::PKCS_ECDSA_P384_SHA384, "ECDSA P-384"),
    ] {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let actual = credential(&ca.sign_key(&leaf_params("puppet", 5), key));
        assert_eq!(actual.key_kind(), kind);
        assert_eq!(
            (actual.subject(), actual.names()),
            ("CN=puppet", &["puppet".to_owned()][..])
        );
        assert_eq!(
            (actual.not_before(), actual.not_after()),
            (at(1_577_836_800), at(2_177_452_800))
        );
    }
    for (chain, key, kind) in [
        (fixture!("ed25519.pem"), fixture!("ed25519.key"), "Ed25519"),
        (fixture!("rsa2048.pem"), fixture!("rsa2048.key"), "RSA 2048"),
    ] {
        let actual =
            Credential::parse(&Named::new("c", chain.into()), &Named::new("k", key.into()));
        assert_eq!(actual.unwrap().key_kind(), kind);
    }
}

#[test]
fn credentials_know_whether_a_key_among_them_is_rsa() {
    let parse = |chain: &str, key: &str| {
        Credential::parse(&Named::new("c", chain.into()), &Named::new("k", key.into())).unwrap()
    };
    let ed25519 = parse(fixture!("ed25519.pem"), fixture!("ed25519.key"));
    let rsa = parse(fixture!("rsa2048.pem"), fixture!("rsa2048.key"));
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let ecdsa = credential(&TestCa::root("root").sign_key(&leaf_params("puppet", 5), key));
    for (credentials, have_rsa) in [
        (vec![&ed25519], false),
        (vec![&ecdsa], false),
        (vec![&ed25519, &ecdsa], false),
        (vec![&rsa], true),
        (vec![&rsa, &ecdsa], true),
        (vec![&ed25519, &ecdsa, &rsa], true),
    ] {
        let shown = ListenerCredentials::new(credentials).unwrap();
        assert_eq!(shown.have_rsa(), have_rsa);
    }
}

#[test]
fn names_of_certificates_are_addresses_and_host_names_each_once() {
    let ca = TestCa::root("root");
    let mut params = leaf_params("puppet", 5);
    params.subject_alt_names.extend([
        SanType::DnsName("puppet".try_into().unwrap()),
        SanType::IpAddress("2001:db8::7".parse().unwrap()),
        SanType::Rfc822Name("root@example.com".try_into().unwrap()),
        SanType::DnsName("*.example.com".try_into().unwrap()),
    ]);
    let actual = credential(&ca.sign(params));
    assert_eq!(actual.names(), ["puppet", "2001:db8::7", "*.example.com"]);
    let shown = ListenerCredentials::new([&actual]).unwrap();
    assert!(!shown.have_no_names());
    for (name, good) in [
        ("puppet", true),
        ("PUPPET", true),
        ("a.example.com", true),
        ("a.b.example.com", false),
        ("example.com", false),
        ("master", false),
    ] {
        assert_eq!(shown.are_valid_for(name), good, "{name}");
    }
    let mut params = leaf_params("nameless", 6);
    params.subject_alt_names.clear();
    assert!(
        ListenerCredentials::new([&credential(&ca.sign(params))])
            .unwrap()
            .have_no_names()
    );
    assert!(
        ListenerCredentials::new([]).is_err(),
        "nothing to show is a problem"
    );
}

#[test]
fn a_store_finds_its_issuers_by_name_and_reports_lost_crls() {
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
fn every_wrong_date_raises_an_alarm() {
    let puppet = Puppet::new();
    let alarms = |year: i32| {
        let now = at(u64::try_from(date_time_ymd(year, 6, 1).unix_timestamp()).unwrap_or(0));
        puppet
            .store()
            .status(now)
            .alarms
            .into_iter()
            .map(|alarm| alarm.message)
            .collect::<Vec<_>>()
    };
    let alarm_count = |year: i32, words: &str| {
        alarms(year)
            .iter()
            .filter(|alarm| alarm.contains(words))
            .count()
    };
    assert_eq!(alarms(2030), Vec::<String>::new());
    assert_eq!(
        alarm_count(2019, "is not valid before 2020-01-01T00:00:00Z"),
        2
    );
    assert_eq!(
        alarm_count(2019, "which is in the future: check the clocks"),
        2
    );
    assert_eq!(
        alarm_count(2040, "expired on 2040-01-01T00:00:00Z"),
        4,
        "two CAs, two CRLs"
    );
}

#[test]
fn a_policy_for_an_unknown_issuer_is_a_warning() {
    let puppet = Puppet::new();
    let settings = unchecked(&["CN=Unknown"]);
    let store = store_with(&puppet.bundle(), &puppet.crls(1, &[]), &settings, None).unwrap();
    assert!(store.warnings().iter().any(|warning| warning.contains(
        "[trust] has a policy for \"CN=Unknown\", but no CA of the bundle has this subject"
    )));
    assert_eq!(puppet.store().warnings(), &[] as &[String]);
}

#[test]
fn certificates_that_are_not_cas_are_skipped_with_a_reason() {
    let ca = TestCa::root("root");
    let mut unable = ca_params("unable");
    unable.key_usages = vec![KeyUsagePurpose::CrlSign];
    let unable = TestCa::root_with(unable, KeyPair::generate().unwrap());
    let mut nameless = ca_params("");
    nameless.distinguished_name = DistinguishedName::new();
    let nameless = TestCa::root_with(nameless, KeyPair::generate().unwrap());
    let mut odd = ca_params("odd");
    let mut extension = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
    extension.set_criticality(true);
    odd.custom_extensions.push(extension);
    let odd = TestCa::root_with(odd, KeyPair::generate().unwrap());
    let leaf = ca.agent("web01", 5).der;
    let refused = |der: CertificateDer<'static>| {
        let alone = store(std::slice::from_ref(&der), &[ca.crl(1, &[])]).unwrap_err();
        assert!(
            alone
                .iter()
                .any(|problem| matches!(problem, PkiProblem::NoCa)),
            "{alone:?}"
        );
        let beside = store(&[ca.der.clone(), der], &[ca.crl(1, &[])]).unwrap();
        beside.warnings().join("\n")
    };
    for (der, words) in [
        (leaf, "is not a CA certificate"),
        (unable.der, "does not allow signing certificates"),
        (nameless.der, "its subject is empty"),
        (odd.der, "the critical extension 1.2.3.4"),
    ] {
        let actual = refused(der);
        assert!(
            actual.contains("certificate \"ca.pem\" block 2 is not used as a CA")
                && actual.contains(words),
            "{actual}"
        );
    }
}

#[test]
fn blocks_are_printed_in_the_format_of_the_input() {
    let serial = SerialNumber::parse("0x9A05").unwrap();
    for (blocked, text) in [
        (
            BlockTarget::Certname(Certname::parse("web01").unwrap()),
            "certname web01".to_owned(),
        ),
        (
            BlockTarget::Serial {
                issuer: "CN=a".to_owned(),
                serial,
            },
            "serial 0x9A05 of CN=a".to_owned(),
        ),
        (
            BlockTarget::Fingerprint([0xab; 32]),
            format!("fingerprint {}", "AB".repeat(32)),
        ),
    ] {
        assert_eq!(blocked.to_string(), text);
    }
}

#[test]
fn a_verdict_on_the_same_paths_is_confirmed_by_serials() {
    let puppet = Puppet::new();
    let before = store_with(&puppet.bundle(), &puppet.crls(1, &[]), &rejecting(), None).unwrap();
    let agent = puppet.ca.agent("web01", 5);
    let checked = before.verify(std::slice::from_ref(&agent.der), now());
    assert!(
        before.confirms_by_serial(&checked)
            && before.confirms_by_serial(&before.verify(&[], now()))
    );
    assert_eq!(
        checked.good_until(),
        Some(at(2_177_452_800)),
        "the leaf's end"
    );
    // If a CRL expires earlier, the verdict ends with it.
    let crls = [puppet.ca.crl_until(2, &[], 2031), puppet.root.crl(1, &[])];
    let after = store_with(&puppet.bundle(), &crls, &rejecting(), Some(&before)).unwrap();
    let again = after.reverify(&checked, now());
    assert_eq!(
        (reason(&again), again.good_until()),
        (None, Some(at(1_924_992_000)))
    );
    assert!(after.confirms_by_serial(&again));
    let confirmed = after.confirmed(&checked, now()).unwrap();
    assert_eq!(
        (confirmed.generation, confirmed.good_until()),
        (again.generation, again.good_until())
    );
    let anonymous = before.verify(&[], now());
    assert!(after.confirmed(&anonymous, now()).is_some());
    let elsewhere = Puppet::new().store();
    assert!(!elsewhere.confirms_by_serial(&checked));
    let refused = before.verify(
        std::slice::from_ref(&Puppet::new().ca.agent("web01", 5).der),
        now(),
    );
    assert!(!before.confirms_by_serial(&refused) && refused.good_until().is_none());
    assert!(elsewhere.confirmed(&checked, now()).is_none());
    assert!(before.confirmed(&refused, now()).is_none());
}

#[test]
fn a_chain_with_an_invalid_certificate_names_its_block() {
    let ca = TestCa::root("root");
    let leaf = ca.agent("puppet", 5);
    let key = Named::new("key.pem", leaf.key.serialize_pem().into_bytes());
    let parse = |chain: String| Credential::parse(&Named::new("cert.pem", chain.into()), &key);
    let good = pem("CERTIFICATE", &leaf.der);
    assert!(parse(good.clone()).is_ok());
    for (chain, block) in [
        (pem("CERTIFICATE", b"none"), 1),
        (good + &pem("CERTIFICATE", b"none"), 2),
    ] {
        let actual = parse(chain).unwrap_err().to_string();
        assert!(
            actual.starts_with(&format!("certificate \"cert.pem\" block {block}: ")),
            "{actual}"
        );
    }
}

#[test]
fn a_chain_expires_with_its_first_certificate_that_expires() {
    let root = TestCa::root("root");
    let until = |year| {
        let mut params = ca_params("issuing");
        params.not_after = date_time_ymd(year, 1, 1);
        params
    };
    let key = KeyPair::generate().unwrap();
    let old = root.intermediate_with(until(2030), key, 2);
    let params = leaf_params("puppet", 5);
    let leaf = old.sign(params);
    let renewed = root.intermediate("issuing", 3);
    let stranger = root.intermediate_with(
        {
            let mut params = until(2025);
            params.distinguished_name = ca_params("stranger").distinguished_name;
            params
        },
        KeyPair::generate().unwrap(),
        4,
    );
    for (chain, year, ends_with) in [
        (vec![&leaf.der], 2039, None),
        (vec![&leaf.der, &old.der], 2030, Some("CN=issuing")),
        (
            vec![&leaf.der, &old.der, &root.der],
            2030,
            Some("CN=issuing"),
        ),
        // The renewed certificate of the same CA expires later.
        (vec![&leaf.der, &old.der, &renewed.der], 2039, None),
        (vec![&leaf.der, &renewed.der, &old.der], 2039, None),
        // The chain does not need the other certificates.
        (vec![&leaf.der, &stranger.der], 2039, None),
    ] {
        let chain: String = chain.iter().map(|der| pem("CERTIFICATE", der)).collect();
        let chain = Named::new("chain.pem", chain.into());
        let key = Named::new("key.pem", leaf.key.serialize_pem().into());
        let credential = Credential::parse(&chain, &key).unwrap();
        let end = u64::try_from(date_time_ymd(year, 1, 1).unix_timestamp()).unwrap();
        assert_eq!(credential.not_after(), at(end));
        assert_eq!(credential.ends_with(), ends_with);
    }
}
