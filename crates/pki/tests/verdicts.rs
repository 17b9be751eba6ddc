//! Verdicts on presented chains: which chains are accepted, and why the others are refused.

use crate::support::*;
use identity::{ClientIdentity, Reason};
use pki::{Named, PkiProblem, TrustMaterial, TrustSettings, TrustStore};
use rcgen::{
    BasicConstraints, CustomExtension, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, KeyPair,
    KeyUsagePurpose, NameConstraints, PublicKeyData, SanType, SerialNumber, date_time_ymd,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

#[test]
fn a_leaf_sent_alone_is_verified_through_the_bundles_intermediate() {
    let puppet = Puppet::new();
    let agent = puppet.ca.agent("web01.example.com", 5);
    let verification = puppet.store().verify(&[agent.der], now());
    let agent = verification.identity.agent().expect("verified");
    assert_eq!(agent.dn(), "CN=web01.example.com");
    assert_eq!(
        verification.chain.unwrap().earliest_end(),
        at(2_177_452_800)
    );
}

#[test]
fn an_invalid_certificate_is_not_anonymous_and_no_certificate_is_not_verified() {
    let puppet = Puppet::new();
    let verification = puppet.store().verify(&[], now());
    assert!(matches!(verification.identity, ClientIdentity::Anonymous));
    let garbage = CertificateDer::from(b"garbage".to_vec());
    let verification = puppet.store().verify(&[garbage], now());
    assert_eq!(reason(&verification), Some(Reason::Malformed));
}

#[test]
fn each_invalid_certificate_is_refused_with_its_own_reason() {
    let puppet = Puppet::new();
    let store = store(&puppet.bundle(), &puppet.crls(1, &[9])).unwrap();
    type Change = fn(&mut rcgen::CertificateParams);
    let cases: &[(Change, Option<Reason>)] = &[
        (|_| {}, None),
        (|p| p.extended_key_usages.clear(), None),
        (|p| p.key_usages.clear(), None),
        (
            |p| p.serial_number = Some(SerialNumber::from_slice(&[9])),
            Some(Reason::Revoked),
        ),
        (
            |p| p.not_after = date_time_ymd(2029, 12, 31),
            Some(Reason::Expired),
        ),
        (
            |p| p.not_before = date_time_ymd(2030, 1, 2),
            Some(Reason::NotYetValid),
        ),
        (
            |p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth],
            Some(Reason::WrongPurpose),
        ),
        (
            |p| p.is_ca = IsCa::Ca(BasicConstraints::Unconstrained),
            Some(Reason::NotAnEndEntity),
        ),
        (
            |p| {
                let mut unknown = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
                unknown.set_criticality(true);
                p.custom_extensions.push(unknown);
            },
            Some(Reason::CriticalExtension),
        ),
        (
            |p| {
                p.custom_extensions
                    .push(CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]))
            },
            None,
        ),
        (
            |p| {
                p.distinguished_name
                    .push(rcgen::DnType::OrganizationName, "x")
            },
            Some(Reason::Subject),
        ),
    ];
    for (index, (change, expected)) in cases.iter().enumerate() {
        let mut params = leaf_params("web01.example.com", 5);
        change(&mut params);
        assert_eq!(
            verdict(&store, &puppet.ca.sign(params)),
            *expected,
            "case {index}"
        );
    }
}

#[test]
fn keys_and_signatures_of_every_supported_kind_are_accepted() {
    let puppet = Puppet::new();
    for algorithm in [
        &rcgen::PKCS_ECDSA_P256_SHA256,
        &rcgen::PKCS_ECDSA_P384_SHA384,
        &rcgen::PKCS_ECDSA_P521_SHA512,
        &rcgen::PKCS_ED25519,
    ] {
        let root = TestCa::root_with(ca_params("root"), KeyPair::generate_for(algorithm).unwrap());
        let agent = root.sign_key(
            &leaf_params("web01", 5),
            KeyPair::generate_for(algorithm).unwrap(),
        );
        let store = store(std::slice::from_ref(&root.der), &[root.crl(1, &[])]).unwrap();
        assert_eq!(verdict(&store, &agent), None, "{algorithm:?}");
        assert_eq!(
            verdict(&puppet.store(), &agent),
            Some(Reason::UnknownIssuer)
        );
    }
}

#[test]
fn a_forged_issuer_is_a_bad_signature_and_an_unknown_one_an_unknown_issuer() {
    let puppet = Puppet::new();
    let impostor = TestCa::root("Puppet CA: test").agent("web01", 5);
    assert_eq!(
        verdict(&puppet.store(), &impostor),
        Some(Reason::BadSignature)
    );
    let stranger = TestCa::root("elsewhere").agent("web01", 5);
    assert_eq!(
        verdict(&puppet.store(), &stranger),
        Some(Reason::UnknownIssuer)
    );
}

#[test]
fn the_name_in_a_refused_certificate_is_proven_only_if_a_trusted_ca_issued_it() {
    let puppet = Puppet::new();
    let store = store(&puppet.bundle(), &puppet.crls(1, &[9])).unwrap();
    let impostor = TestCa::root("Puppet CA: test");
    let expired = |serial| {
        let mut params = leaf_params("web01", serial);
        params.not_after = date_time_ymd(2029, 12, 31);
        params
    };
    for (leaf, expected, is_issued) in [
        (puppet.ca.agent("web01", 9), Reason::Revoked, true),
        (puppet.ca.sign(expired(5)), Reason::Expired, true),
        (impostor.sign(expired(5)), Reason::Expired, false),
        (
            TestCa::root("elsewhere").sign(expired(5)),
            Reason::Expired,
            false,
        ),
        (impostor.agent("web01", 9), Reason::BadSignature, false),
    ] {
        let verification = store.verify(std::slice::from_ref(&leaf.der), now());
        let refusal = refusal(&verification);
        assert_eq!(refusal.reason, expected);
        assert_eq!(refusal.is_issued, is_issued, "{expected}");
    }
}

#[test]
fn a_certificate_is_valid_in_its_first_and_last_second() {
    let root = TestCa::root("root");
    let ca_of = |begin, end| {
        let mut params = ca_params("issuing");
        (params.not_before, params.not_after) = (begin, end);
        root.intermediate_with(params, KeyPair::generate().unwrap(), 2)
    };
    let (past, today, future) = (
        date_time_ymd(2020, 1, 1),
        date_time_ymd(2030, 1, 1),
        date_time_ymd(2039, 1, 1),
    );
    for (ca, begin, end, expected) in [
        (
            ca_of(past, date_time_ymd(2029, 1, 1)),
            past,
            today,
            Reason::CaExpired,
        ),
        (
            ca_of(date_time_ymd(2031, 1, 1), future),
            today,
            future,
            Reason::CaNotYetValid,
        ),
    ] {
        let bundle = [root.der.clone(), ca.der.clone()];
        let store = store(&bundle, &[root.crl(1, &[]), ca.crl(1, &[])]).unwrap();
        let mut params = leaf_params("web01", 5);
        (params.not_before, params.not_after) = (begin, end);
        assert_eq!(verdict(&store, &ca.sign(params)), Some(expected));
    }
}

#[test]
fn a_path_with_too_many_cas_is_too_deep() {
    let root = TestCa::root("root");
    let mut cas = vec![root.intermediate("ca 1", 2)];
    while cas.len() < 9 {
        let next = cas[cas.len() - 1].intermediate(&format!("ca {}", cas.len() + 1), 2);
        cas.push(next);
    }
    let sent: Vec<_> = std::iter::once(cas[8].agent("web01", 5).der)
        .chain(cas.iter().rev().map(|ca| ca.der.clone()))
        .collect();
    let store = store(std::slice::from_ref(&root.der), &[root.crl(1, &[])]).unwrap();
    let verification = store.verify(&sent, now());
    assert_eq!(reason(&verification), Some(Reason::Depth));
}

#[test]
fn an_agent_cannot_issue_certificates() {
    let puppet = Puppet::new();
    let key = KeyPair::generate().unwrap();
    let agent = puppet.ca.sign_key(
        &leaf_params("evil", 5),
        KeyPair::from_pem(&key.serialize_pem()).unwrap(),
    );
    let params = leaf_params("evil", 5);
    let forged = leaf_params("victim", 6)
        .signed_by(
            &key,
            &rcgen::Issuer::new(params, KeyPair::from_pem(&key.serialize_pem()).unwrap()),
        )
        .unwrap();
    let verification = puppet
        .store()
        .verify(&[forged.der().clone(), agent.der], now());
    assert_eq!(reason(&verification), Some(Reason::PathConstraint));
}

#[test]
fn a_ca_without_the_usage_to_sign_certificates_issues_none() {
    let puppet = Puppet::new();
    let mut params = ca_params("sub");
    params.key_usages = vec![KeyUsagePurpose::CrlSign];
    let sub = puppet
        .ca
        .intermediate_with(params, KeyPair::generate().unwrap(), 7);
    let agent = sub.agent("web01", 5);
    let verification = puppet.store().verify(&[agent.der, sub.der], now());
    assert_eq!(reason(&verification), Some(Reason::PathConstraint));
}

#[test]
fn an_expired_anchor_is_refused_although_webpki_accepts_it() {
    for (change, expected) in [
        ((2020, 2029), Reason::CaExpired),
        ((2031, 2040), Reason::CaNotYetValid),
    ] {
        let mut params = ca_params("root");
        params.not_before = date_time_ymd(change.0, 1, 1);
        params.not_after = date_time_ymd(change.1, 1, 1);
        let root = TestCa::root_with(params, KeyPair::generate().unwrap());
        let store = store(std::slice::from_ref(&root.der), &[root.crl(1, &[])]).unwrap();
        let verification = store.verify(&[root.agent("web01", 5).der], now());
        assert_eq!(reason(&verification), Some(expected));
        assert!(
            refusal(&verification).help.contains("CN=root"),
            "{:?}",
            refusal(&verification)
        );
    }
}

#[test]
fn an_expired_intermediate_is_reported_as_an_expired_ca() {
    let root = TestCa::root("root");
    let mut params = ca_params("sub");
    params.not_after = date_time_ymd(2029, 1, 1);
    let sub = root.intermediate_with(params, KeyPair::generate().unwrap(), 2);
    let store = store(
        &[root.der.clone(), sub.der.clone()],
        &[root.crl(1, &[]), sub.crl(1, &[])],
    )
    .unwrap();
    assert_eq!(
        verdict(&store, &sub.agent("web01", 5)),
        Some(Reason::CaExpired)
    );
}

#[test]
fn any_certificate_of_a_renewed_ca_is_enough() {
    let key = KeyPair::generate().unwrap();
    let again = || KeyPair::from_pem(&key.serialize_pem()).unwrap();
    let mut params = ca_params("root");
    params.not_after = date_time_ymd(2029, 1, 1);
    let (old, new) = (
        TestCa::root_with(params, again()),
        TestCa::root_with(ca_params("root"), again()),
    );
    for bundle in [
        [old.der.clone(), new.der.clone()],
        [new.der.clone(), old.der.clone()],
    ] {
        let store = store(&bundle, &[new.crl(1, &[])]).unwrap();
        assert_eq!(verdict(&store, &old.agent("web01", 5)), None);
    }
}

/// A CA in the format of Puppet 2 and 3, and a certificate that it issued to an agent (ssl-fixtures/README.md).
#[test]
fn a_sha1_ca_is_refused_with_its_reason_unless_it_is_named() {
    let [ca, agent] = [OLD_CA, OLD_AGENT].map(|pem| CertificateDer::from_pem_slice(pem).unwrap());
    let material = |crl: &[u8]| TrustMaterial {
        bundle: vec![Named::new("ca.pem", OLD_CA.to_vec())],
        crls: vec![Named::new("crl.pem", crl.to_vec())],
        ..TrustMaterial::default()
    };
    let verify = |crl: &[u8], settings: &TrustSettings| {
        let identity = identity::IdentitySettings::default();
        let store = TrustStore::build(&material(crl), settings, &identity, None).unwrap();
        reason(&store.verify(&[agent.clone(), ca.clone()], now()))
    };
    let strict = TrustSettings::default();
    assert_eq!(verify(OLD_CRL, &strict), Some(Reason::UnsupportedAlgorithm));
    let named = TrustSettings {
        legacy_signatures: vec!["CN=Puppet CA: old.lab.test".into()],
        ..TrustSettings::default()
    };
    assert_eq!(verify(OLD_CRL, &named), None);
    assert_eq!(verify(OLD_CRL_REVOKED, &named), Some(Reason::Revoked));
}

#[test]
fn depth_counts_the_intermediates_of_the_verified_path() {
    let root = TestCa::root("root");
    let one = root.intermediate("one", 2);
    let two = one.intermediate("two", 3);
    let agent = two.agent("web01", 5);
    let bundle = [root.der.clone(), one.der.clone(), two.der.clone()];
    let crls = [root.crl(1, &[]), one.crl(1, &[]), two.crl(1, &[])];
    for (depth, expected) in [
        (6, None),
        (2, None),
        (1, Some(Reason::Depth)),
        (0, Some(Reason::Depth)),
    ] {
        let settings = TrustSettings {
            depth,
            ..TrustSettings::default()
        };
        let store = store_with(&bundle, &crls, &settings, None).unwrap();
        assert_eq!(store.settings().depth, depth);
        assert_eq!(verdict(&store, &agent), expected, "depth {depth}");
    }
}

#[test]
fn an_intermediate_without_its_root_is_an_anchor_with_a_warning() {
    let puppet = Puppet::new();
    let agent = puppet.ca.agent("web01", 5);
    let store = store(
        std::slice::from_ref(&puppet.ca.der),
        &[puppet.ca.crl(1, &[])],
    )
    .unwrap();
    assert_eq!(verdict(&store, &agent), None);
    assert!(
        store
            .warnings()
            .iter()
            .any(|warning| warning.contains("trusts this CA directly"))
    );
    assert!(
        puppet.store().warnings().is_empty(),
        "{:?}",
        puppet.store().warnings()
    );
}

#[test]
fn an_intermediate_of_an_unusable_root_is_not_an_anchor() {
    let mut odd = ca_params("odd");
    let mut extension = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
    extension.set_criticality(true);
    odd.custom_extensions.push(extension);
    let odd = TestCa::root_with(odd, KeyPair::generate().unwrap());
    let (above, other) = (odd.intermediate("above", 7), TestCa::root("other"));
    let below = above.intermediate("below", 8);
    let agents = [&above, &below].map(|ca| ca.agent("web01", 5));
    let crls = [&odd, &above, &below, &other].map(|ca| ca.crl(1, &[]));
    // The lower CA comes first: it loses its issuer only after the other CA is removed.
    let unusable = [&below, &above, &odd].map(|ca| ca.der.clone());
    let bundle = [&unusable[..], std::slice::from_ref(&other.der)].concat();
    let store_beside = store(&bundle, &crls).unwrap();
    for agent in &agents {
        assert_eq!(
            verdict(&store_beside, agent),
            Some(Reason::UnknownIssuer),
            "{:?}",
            store_beside.warnings()
        );
    }
    let actual = store_beside.warnings().join("\n");
    for words in [
        "block 3 is not used as a CA: ",
        "block 2 is not used as a CA: its issuer CN=odd is in the bundle but is not a valid CA",
        "block 1 is not used as a CA: its issuer CN=above is in the bundle but is not a valid CA",
    ] {
        assert!(actual.contains(words), "{words}: {actual}");
    }
    let alone = store(&unusable, &crls).unwrap_err();
    assert_eq!(alone.len(), 4, "{alone:?}");
    assert_eq!(alone[3], PkiProblem::NoCa);
    // Without that root, it is an intermediate CA that the operator trusts as an anchor.
    assert_eq!(
        verdict(&store(&unusable[..2], &crls).unwrap(), &agents[1]),
        None
    );
}

#[test]
fn an_intermediate_stays_if_one_certificate_of_its_root_is_usable() {
    let key = KeyPair::generate().unwrap();
    let again = KeyPair::try_from(key.serialize_der().as_slice()).unwrap();
    let root = TestCa::root_with(ca_params("root"), key);
    let mut unable = ca_params("root");
    unable.key_usages = vec![KeyUsagePurpose::CrlSign];
    let unable = TestCa::root_with(unable, again);
    let sub = root.intermediate("sub", 7);
    let agent = sub.agent("web01", 5);
    let lists = [root.crl(1, &[]), sub.crl(1, &[])];
    for bundle in [[&unable, &root, &sub], [&sub, &root, &unable]] {
        let store = store(&bundle.map(|ca| ca.der.clone()), &lists).unwrap();
        assert_eq!(verdict(&store, &agent), None, "{:?}", store.warnings());
    }
}

#[test]
fn unrelated_certificates_in_a_good_chain_change_nothing() {
    let puppet = Puppet::new();
    let agent = puppet.ca.agent("web01", 5);
    let junk = CertificateDer::from(vec![0x30, 0x03, 1, 2, 3]);
    let stranger = TestCa::root("elsewhere");
    let chain = [
        agent.der.clone(),
        junk,
        stranger.der,
        agent.der,
        puppet.root.der.clone(),
    ];
    assert_eq!(reason(&puppet.store().verify(&chain, now())), None);
    // Certificates that do not belong to the path do not determine the reason.
    let unknown = TestCa::root("elsewhere").agent("web01", 5);
    let junk = CertificateDer::from(vec![0x30, 0x03, 1, 2, 3]);
    assert_eq!(
        reason(&puppet.store().verify(&[unknown.der, junk], now())),
        Some(Reason::UnknownIssuer)
    );
}

/// The same test for certificates that clients send.
#[test]
fn no_certificate_makes_verification_panic_and_no_altered_one_is_verified() {
    let puppet = Puppet::new();
    let store = puppet.store();
    let agent = puppet.ca.agent("web01", 5).der;
    for end in 0..agent.len() {
        let cut = CertificateDer::from(agent[..end].to_vec());
        assert!(
            reason(&store.verify(&[cut], now())).is_some(),
            "cut at {end}"
        );
    }
    for index in 0..agent.len() {
        let mut bytes = agent.to_vec();
        bytes[index] ^= 0x01;
        assert!(
            reason(&store.verify(&[bytes.into()], now())).is_some(),
            "byte {index}"
        );
    }
}

/// RUSTSEC-2026-0098 (URI names) and RUSTSEC-2026-0099 (wildcard names) bypassed name constraints.
#[test]
fn rustsec_2026_0098_and_0099_name_constraints_hold_for_uris_and_wildcards() {
    let root = TestCa::root("root");
    let constrain = |permitted: Vec<GeneralSubtree>, excluded: Vec<GeneralSubtree>| {
        let mut params = ca_params("sub");
        params.name_constraints = Some(NameConstraints {
            permitted_subtrees: permitted,
            excluded_subtrees: excluded,
        });
        root.intermediate_with(params, KeyPair::generate().unwrap(), 2)
    };
    let permitted = constrain(
        vec![GeneralSubtree::DnsName("good.example.com".into())],
        Vec::new(),
    );
    let mut wildcard = leaf_params("x.good.example.com", 5);
    wildcard.subject_alt_names = vec![SanType::DnsName("*.example.com".try_into().unwrap())];
    for (sub, params, expected) in [
        (&permitted, leaf_params("x.good.example.com", 5), None),
        (
            &permitted,
            leaf_params("x.bad.example.com", 5),
            Some(Reason::PathConstraint),
        ),
        (&permitted, wildcard, Some(Reason::PathConstraint)),
    ] {
        let bundle = [root.der.clone(), sub.der.clone()];
        let store = store(&bundle, &[root.crl(1, &[]), sub.crl(1, &[])]).unwrap();
        assert_eq!(verdict(&store, &sub.sign(params)), expected);
    }
    // A constraint on URIs, which rcgen cannot write: permitted [0] { [0] { [6] ".good.example.com" } }.
    let mut params = ca_params("sub");
    let name = b".good.example.com";
    let mut content = vec![0x30, 23, 0xa0, 21, 0x30, 19, 0x86, 17];
    content.extend_from_slice(name);
    let mut extension = CustomExtension::from_oid_content(&[2, 5, 29, 30], content);
    extension.set_criticality(true);
    params.custom_extensions.push(extension);
    let sub = root.intermediate_with(params, KeyPair::generate().unwrap(), 2);
    let mut uri = leaf_params("web01", 5);
    uri.subject_alt_names = vec![SanType::URI("https://bad.example.org/".try_into().unwrap())];
    let store = store(
        &[root.der.clone(), sub.der.clone()],
        &[root.crl(1, &[]), sub.crl(1, &[])],
    )
    .unwrap();
    assert_eq!(
        verdict(&store, &sub.sign(uri)),
        Some(Reason::PathConstraint)
    );
}

#[test]
fn an_unverifiable_key_gives_no_identity() {
    let puppet = Puppet::new();
    // An agent's certificate with an unknown kind of key.
    let agent = puppet.ca.agent("web01", 5);
    let point = agent.key.der_bytes();
    let mut bytes = agent.der.to_vec();
    let place = bytes
        .windows(point.len())
        .position(|window| window == point)
        .unwrap();
    // The curve's OID precedes the tag, the length and the unused-bits byte of the bit string.
    bytes[place - 4] ^= 0x01;
    let verification = puppet.store().verify(&[bytes.into()], now());
    assert_eq!(reason(&verification), Some(Reason::UnsupportedAlgorithm));
}

const OLD_CA: &[u8] = include_bytes!("../../../ssl-fixtures/old-ca.pem");
const OLD_AGENT: &[u8] = include_bytes!("../../../ssl-fixtures/old-agent.pem");
const OLD_CRL: &[u8] = include_bytes!("../../../ssl-fixtures/old-crl.pem");
const OLD_CRL_REVOKED: &[u8] = include_bytes!("../../../ssl-fixtures/old-crl-revoked.pem");

#[test]
fn a_future_intermediate_is_reported_as_not_yet_valid() {
    let root = TestCa::root("root");
    let mut params = ca_params("ca");
    params.not_before = date_time_ymd(2035, 1, 1);
    let ca = root.intermediate_with(params, KeyPair::generate().unwrap(), 2);
    let store = store(
        &[ca.der.clone(), root.der.clone()],
        &[ca.crl(1, &[]), root.crl(1, &[])],
    );
    let verification = store.unwrap().verify(&[ca.agent("web01", 5).der], now());
    let refusal = refusal(&verification);
    assert_eq!(refusal.reason, Reason::CaNotYetValid);
    assert!(
        refusal.help.contains("valid 2035-01-01T00:00:00Z"),
        "{}",
        refusal.help
    );
    assert!(refusal.help.contains(CLOCKS), "{}", refusal.help);
}

#[test]
fn a_ca_without_a_name_issues_no_certificate() {
    let root = TestCa::root("root");
    let mut params = ca_params("");
    params.distinguished_name = rcgen::DistinguishedName::new();
    let nameless = root.intermediate_with(params, KeyPair::generate().unwrap(), 2);
    let below = nameless.intermediate("below", 3);
    let crls = [root.crl(1, &[]), below.crl(1, &[])];
    let store = store_with(
        std::slice::from_ref(&root.der),
        &crls,
        &unchecked(&["*"]),
        None,
    )
    .unwrap();
    let by_nameless = nameless.agent("web01", 5).der;
    let verification = store.verify(&[by_nameless, nameless.der.clone()], now());
    assert_eq!(reason(&verification), Some(Reason::Malformed));
    assert!(refusal(&verification).help.contains("Its issuer is empty."));
    let below_it = below.agent("web01", 5).der;
    let verification = store.verify(&[below_it, below.der, nameless.der], now());
    assert_eq!(reason(&verification), Some(Reason::PathConstraint));
    assert!(
        refusal(&verification)
            .help
            .contains("A CA above it has an empty name.")
    );
}
