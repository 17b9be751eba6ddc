//! Verdicts on presented chains: the table of what is accepted and why the rest is not.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use identity::{ClientIdentity, Reason};
use pki::{Named, PkiProblem, TrustMaterial, TrustSettings, TrustStore};
use rcgen::{
    BasicConstraints, CrlDistributionPoint, IsCa, KeyUsagePurpose, PublicKeyData, date_time_ymd,
};
use rcgen::{
    CustomExtension, ExtendedKeyUsagePurpose, GeneralSubtree, KeyPair, NameConstraints, SanType,
    SerialNumber,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};
use support::*;

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
fn a_refusal_of_another_cas_agent_names_the_trusted_cas() {
    let puppet = Puppet::new();
    let text = |leaf: &Leaf| {
        let verification = puppet
            .store()
            .verify(std::slice::from_ref(&leaf.der), now());
        refusal(&verification).text()
    };
    let stranger = text(&TestCa::root("elsewhere").agent("web01", 5));
    assert!(
        stranger.contains("The proxy trusts CN=Puppet CA: test; CN=Puppet Root CA: test."),
        "{stranger}"
    );
    let impostor = text(&TestCa::root("Puppet CA: test").agent("web01", 5));
    assert!(
        impostor.contains(
            "The proxy trusts a CA CN=Puppet CA: test, but that CA's key did not sign this certificate: the CA was recreated, or another CA has the same name."
        ),
        "{impostor}"
    );
    let junk = puppet.store().verify(&[b"junk".as_slice().into()], now());
    assert!(
        refusal(&junk).text().contains("The reader says: "),
        "{}",
        refusal(&junk).text()
    );
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
fn the_newer_of_two_crls_is_used_in_either_order() {
    let puppet = Puppet::new();
    let agent = puppet.ca.agent("web01", 5);
    let (old, new, root) = (
        puppet.ca.crl(255, &[]),
        puppet.ca.crl(256, &[5]),
        puppet.root.crl(1, &[]),
    );
    for crls in [[old.clone(), new.clone(), root.clone()], [new, root, old]] {
        let store = store(&puppet.bundle(), &crls).unwrap();
        assert_eq!(verdict(&store, &agent), Some(Reason::Revoked));
    }
}

#[test]
fn a_rekeyed_ca_of_the_same_name_is_checked_with_its_own_crl() {
    let (old, new) = (
        TestCa::root("Puppet CA: test"),
        TestCa::root("Puppet CA: test"),
    );
    let bundle = [old.der.clone(), new.der.clone()];
    let crls = [old.crl(9, &[5]), new.crl(1, &[6])];
    let store = store(&bundle, &crls).unwrap();
    assert_eq!(verdict(&store, &new.agent("web05", 5)), None);
    assert_eq!(
        verdict(&store, &new.agent("web06", 6)),
        Some(Reason::Revoked)
    );
    assert_eq!(
        verdict(&store, &old.agent("web05", 5)),
        Some(Reason::Revoked)
    );
    assert_eq!(verdict(&store, &old.agent("web06", 6)), None);
}

#[test]
fn a_renamed_ca_with_the_old_key_is_checked_with_the_crl_of_its_name() {
    let key = KeyPair::generate().unwrap();
    let again = || KeyPair::from_pem(&key.serialize_pem()).unwrap();
    let (old, new) = (
        TestCa::root_with(ca_params("old"), again()),
        TestCa::root_with(ca_params("new"), again()),
    );
    let bundle = [old.der.clone(), new.der.clone()];
    let store = store(&bundle, &[old.crl(1, &[5]), new.crl(2, &[])]).unwrap();
    assert_eq!(
        verdict(&store, &old.agent("web05", 5)),
        Some(Reason::Revoked)
    );
    assert_eq!(verdict(&store, &new.agent("web05", 5)), None);
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

#[test]
fn an_intermediate_revoked_by_the_roots_crl_verifies_no_agent() {
    let puppet = Puppet::new();
    let agent = puppet.ca.agent("web01", 5);
    let crls = [puppet.ca.crl(1, &[]), puppet.root.crl(2, &[2])];
    let store = store(&puppet.bundle(), &crls).unwrap();
    let verification = store.verify(std::slice::from_ref(&agent.der), now());
    assert_eq!(reason(&verification), Some(Reason::Revoked));
    assert!(
        refusal(&verification)
            .certificate
            .contains("CN=Puppet CA: test")
    );
    // Sending the intermediate too changes nothing.
    let verification = store.verify(&[agent.der, puppet.ca.der.clone()], now());
    assert_eq!(reason(&verification), Some(Reason::Revoked));
}

#[test]
fn a_reissued_intermediate_is_used_if_the_first_is_revoked() {
    let root = TestCa::root("root");
    let key = KeyPair::generate().unwrap();
    let again = || KeyPair::from_pem(&key.serialize_pem()).unwrap();
    let first = root.intermediate_with(ca_params("sub"), again(), 2);
    let second = root.intermediate_with(ca_params("sub"), again(), 3);
    let agent = first.agent("web01", 5);
    let bundle = [root.der.clone(), first.der.clone(), second.der];
    let store = store(&bundle, &[root.crl(1, &[2]), first.crl(1, &[])]).unwrap();
    assert_eq!(verdict(&store, &agent), None);
}

#[test]
fn a_reissued_intermediate_is_used_whether_it_is_in_the_bundle_or_sent() {
    let root = TestCa::root("root");
    let key = KeyPair::generate().unwrap();
    let again = || KeyPair::from_pem(&key.serialize_pem()).unwrap();
    let mut over = ca_params("sub");
    over.not_after = date_time_ymd(2029, 1, 1);
    let first = root.intermediate_with(over, again(), 2);
    let second = root.intermediate_with(ca_params("sub"), again(), 3);
    let agent = first.agent("web01", 5);
    let crls = [root.crl(1, &[]), second.crl(1, &[])];
    let with = |cas: &[&TestCa]| {
        let bundle: Vec<_> = cas.iter().map(|ca| ca.der.clone()).collect();
        store(&bundle, &crls).unwrap()
    };
    assert_eq!(verdict(&with(&[&root, &first, &second]), &agent), None);
    assert_eq!(verdict(&with(&[&root, &second]), &agent), None);
    let old = with(&[&root, &first]);
    assert_eq!(verdict(&old, &agent), Some(Reason::CaExpired));
    // A client may send the new one itself.
    let verification = old.verify(&[agent.der, second.der], now());
    assert_eq!(reason(&verification), None);
}

#[test]
fn any_path_of_a_cross_signed_ca_is_enough_and_each_uses_its_own_crls() {
    let key = KeyPair::generate().unwrap();
    let again = || KeyPair::from_pem(&key.serialize_pem()).unwrap();
    let old = TestCa::root("old");
    let new = TestCa::root_with(ca_params("new"), again());
    let cross = old.intermediate_with(ca_params("new"), again(), 7);
    let agent = new.agent("web01", 5);
    let (calm, revoking) = (old.crl(1, &[]), old.crl(2, &[7]));
    for (bundle, of_old, serials, expected) in [
        (&[&old, &cross][..], &calm, &[][..], None),
        (&[&old, &cross], &revoking, &[], Some(Reason::Revoked)),
        // As an anchor, it does not need the other certificate.
        (&[&old, &cross, &new], &revoking, &[], None),
        (&[&new], &revoking, &[], None),
        // One key with one name is one issuer, whichever CA certifies it.
        (&[&old, &cross, &new], &calm, &[5], Some(Reason::Revoked)),
        (&[&old, &cross], &calm, &[5], Some(Reason::Revoked)),
    ] {
        let bundle: Vec<_> = bundle.iter().map(|ca| ca.der.clone()).collect();
        let store = store(&bundle, &[of_old.clone(), new.crl(1, serials)]).unwrap();
        assert_eq!(verdict(&store, &agent), expected, "{} CAs", bundle.len());
        // Sending the path through the old CA changes nothing.
        let chain = [agent.der.clone(), cross.der.clone()];
        assert_eq!(reason(&store.verify(&chain, now())), expected);
    }
}

/// A CA in the format of Puppet 2 and 3, and an agent of it (ssl-fixtures/README.md).
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
fn a_missing_crl_refuses_unless_unchecked_names_the_issuer() {
    let puppet = Puppet::new();
    let agent = puppet.ca.agent("web01", 5);
    let revoked = puppet.ca.agent("web09", 9);
    let ca_only = [puppet.ca.crl(1, &[9])];
    for (entries, crls, expected) in [
        (&[][..], &ca_only[..], Some(Reason::CrlMissing)),
        (&["CN=Puppet CA: test"], &ca_only, Some(Reason::CrlMissing)),
        (&["CN=Puppet Root CA: test"], &ca_only, None),
        (&["*"], &ca_only, None),
        (&["*"], &[], None),
        (&["CN=Puppet Root CA: test"], &[], Some(Reason::CrlMissing)),
    ] {
        let store = store_with(&puppet.bundle(), crls, &unchecked(entries), None).unwrap();
        assert_eq!(verdict(&store, &agent), expected, "{entries:?}");
        // A revocation counts, even for an unchecked issuer.
        if !crls.is_empty() {
            assert_eq!(
                verdict(&store, &revoked),
                Some(Reason::Revoked),
                "{entries:?}"
            );
        }
    }
}

/// Part of the message if another certificate would not help the agent.
const NOT_THE_AGENT: &str = "Nothing is wrong with the agent's certificate";

#[test]
fn the_policy_decides_whether_an_expired_crl_is_used() {
    let root = TestCa::root("root");
    let (agent, revoked) = (root.agent("web01", 5), root.agent("web09", 9));
    let bundle = [root.der.clone()];
    let crls = [root.crl_until(1, &[9], 2025)];
    let warning = store(&bundle, &crls).unwrap();
    assert_eq!(verdict(&warning, &agent), None);
    assert_eq!(verdict(&warning, &revoked), Some(Reason::Revoked));
    let status = warning.status(now());
    assert!(status.crls[0].expired);
    assert!(
        status
            .alarms
            .iter()
            .any(|alarm| alarm.message.contains("expired")),
        "{:?}",
        status.alarms
    );

    let rejecting = store_with(&bundle, &crls, &rejecting(), None).unwrap();
    assert_eq!(verdict(&rejecting, &agent), Some(Reason::CrlExpired));
    let verification = rejecting.verify(std::slice::from_ref(&agent.der), now());
    let help = &refusal(&verification).help;
    for words in ["number 1, expired on 20", NOT_THE_AGENT] {
        assert!(help.contains(words), "{words:?}: {help}");
    }
    assert_eq!(verdict(&rejecting, &revoked), Some(Reason::Revoked));
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
    // Without that root it is an intermediate that the operator trusts as an anchor.
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
fn the_crl_of_a_ca_that_the_client_sends_is_used_from_the_first_path() {
    let puppet = Puppet::new();
    let sub = puppet.ca.intermediate("sub", 7);
    let (good, bad) = (sub.agent("web01", 5), sub.agent("web09", 9));
    let mut crls = puppet.crls(1, &[]);
    let without = store(&puppet.bundle(), &crls).unwrap();
    let chain = |leaf: &Leaf| [leaf.der.clone(), sub.der.clone()];
    assert_eq!(
        reason(&without.verify(&chain(&good), now())),
        Some(Reason::CrlMissing)
    );

    // Another CA with that name neither helps nor harms.
    crls.push(TestCa::root("sub").crl(99, &[5]));
    crls.push(sub.crl(1, &[]));
    crls.push(sub.crl(2, &[9]));
    let with = store(&puppet.bundle(), &crls).unwrap();
    assert_eq!(with.status(now()).strays.len(), 3);
    for _ in 0..2 {
        assert_eq!(reason(&with.verify(&chain(&good), now())), None);
        assert_eq!(
            reason(&with.verify(&chain(&bad), now())),
            Some(Reason::Revoked)
        );
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
    // Nor do they determine the reason.
    let unknown = TestCa::root("elsewhere").agent("web01", 5);
    let junk = CertificateDer::from(vec![0x30, 0x03, 1, 2, 3]);
    assert_eq!(
        reason(&puppet.store().verify(&[unknown.der, junk], now())),
        Some(Reason::UnknownIssuer)
    );
}

#[test]
fn serials_of_any_length_are_found_on_the_crl() {
    let root = TestCa::root("root");
    let serials: &[&[u8]] = &[&[1], &[0x7f], &[0x80], &[1, 0], &[0x12; 20], &[0x92; 19]];
    let mut params = crl_params(1, &[], 2040);
    params.revoked_certs = crl_params(1, &vec![0; serials.len()], 2040).revoked_certs;
    for (entry, serial) in params.revoked_certs.iter_mut().zip(serials) {
        entry.serial_number = SerialNumber::from_slice(serial);
    }
    let crl = params.signed_by(&root.issuer).unwrap().der().clone();
    let store = store(std::slice::from_ref(&root.der), &[crl]).unwrap();
    assert_eq!(store.status(now()).crls[0].entries, serials.len());
    for (serial, expected) in serials
        .iter()
        .map(|serial| (*serial, Some(Reason::Revoked)))
        .chain([
            (&[2][..], None),
            (&[0x7e], None),
            (&[0x12; 19], None),
            (&[1, 1], None),
        ])
    {
        let mut params = leaf_params("web01", 5);
        params.serial_number = Some(SerialNumber::from_slice(serial));
        assert_eq!(
            verdict(&store, &root.sign(params)),
            expected,
            "{serial:02x?}"
        );
    }
}

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
    // Only the links are checked: the agent and its header values are the same object.
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
    // Only a newer CRL drops a revocation. A refused connection then gets the verdict of a new one.
    let back = store_with(
        &puppet.bundle(),
        &puppet.crls(4, &[]),
        &TrustSettings::default(),
        Some(&revoking),
    )
    .unwrap();
    assert_eq!(reason(&back.reverify(&refused, now())), None);
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
    // ECDSA signatures differ each time, so the same bytes are needed for a store without a change.
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
        "(number 14) is older than the active one (number 15), which stays active",
        "uses the older one unless it has fetched a newer one from the CA",
    ] {
        assert!(warning.contains(words), "{words:?} is not in {warning}");
    }
}

#[test]
fn there_is_no_way_to_start_open() {
    let puppet = Puppet::new();
    assert_eq!(
        store(&puppet.bundle(), &[]).unwrap_err(),
        [PkiProblem::NoCrl]
    );
    let agent = puppet.ca.agent("web01", 5);
    let no_ca = store(&[agent.der], &puppet.crls(1, &[])).unwrap_err();
    assert!(
        matches!(&no_ca[..], [PkiProblem::CaUnusable(_), PkiProblem::NoCa]),
        "{no_ca:?}"
    );
    let empty = TrustMaterial {
        bundle: vec![Named::new("ca.pem", Vec::new())],
        crls: vec![Named::new("crl.pem", b"nothing".to_vec())],
        ..TrustMaterial::default()
    };
    let problems = TrustStore::build(
        &empty,
        &TrustSettings::default(),
        &identity::IdentitySettings::default(),
        None,
    )
    .unwrap_err();
    let texts: Vec<_> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "certificate \"ca.pem\": contains no certificate",
            "CRL \"crl.pem\": contains no CRL"
        ]
    );
    let problems = TrustStore::build(
        &TrustMaterial::default(),
        &TrustSettings::default(),
        &identity::IdentitySettings::default(),
        None,
    )
    .unwrap_err();
    assert_eq!(problems, [PkiProblem::NoCa]);
}

#[test]
fn problems_contain_the_file_and_block() {
    let puppet = Puppet::new();
    let mut material = material(&puppet.bundle(), &puppet.crls(1, &[]));
    material.bundle[0]
        .value
        .extend_from_slice(pem("CERTIFICATE", &[0x30, 0x01]).as_bytes());
    material.crls[0]
        .value
        .extend_from_slice(pem("X509 CRL", &[0x04, 0x00]).as_bytes());
    let build = |material: &TrustMaterial| {
        TrustStore::build(
            material,
            &TrustSettings::default(),
            &identity::IdentitySettings::default(),
            None,
        )
    };
    let problems = build(&material).unwrap_err();
    assert_eq!(
        problems[0].to_string(),
        "certificate \"ca.pem\" block 3: not a certificate: bad DER: it ends too early"
    );
    material.bundle[0].value.truncate(100);
    assert!(
        build(&material).unwrap_err()[0]
            .to_string()
            .starts_with("certificate \"ca.pem\": not PEM: block 1")
    );
}

#[test]
fn unusable_crls_are_warnings_with_a_valid_one_and_errors_alone() {
    let root = TestCa::root("root");
    let mut partitioned = crl_params(2, &[], 2040);
    partitioned.issuing_distribution_point = Some(rcgen::CrlIssuingDistributionPoint {
        distribution_point: CrlDistributionPoint {
            uris: vec!["http://crl.example.com".into()],
        },
        scope: Some(rcgen::CrlScope::UserCertsOnly),
    });
    let partitioned = partitioned.signed_by(&root.issuer).unwrap().der().clone();
    let bundle = [root.der.clone()];
    let both = store(&bundle, &[partitioned.clone(), root.crl(1, &[5])]).unwrap();
    assert!(
        both.warnings()
            .iter()
            .any(|warning| warning.contains("block 1 is not used"))
    );
    assert_eq!(
        verdict(&both, &root.agent("web01", 5)),
        Some(Reason::Revoked)
    );
    let alone = store(&bundle, &[partitioned]).unwrap_err();
    assert!(
        matches!(&alone[..], [PkiProblem::CrlUnusable(_), PkiProblem::NoCrl]),
        "{alone:?}"
    );
}

#[test]
fn sixty_four_crls_of_unknown_issuers_are_stored() {
    let puppet = Puppet::new();
    let strangers = (0..65).map(|n| TestCa::root(&format!("stranger {n}")));
    let mut crls = puppet.crls(1, &[5]);
    crls.extend(strangers.map(|stranger| stranger.crl(1, &[7])));
    let store = store(&puppet.bundle(), &crls).unwrap();
    assert_eq!(store.status(now()).strays.len(), 64);
    let is_warning =
        |warning: &&String| warning.contains("is not used") && warning.contains("stranger 64");
    assert_eq!(store.warnings().iter().filter(is_warning).count(), 1);
    // The CAs of the bundle are used, whatever else is sent.
    let agent = puppet.ca.agent("web01", 5);
    assert_eq!(verdict(&store, &agent), Some(Reason::Revoked));
}

#[test]
fn a_crl_of_a_ca_that_may_not_sign_crls_is_not_used() {
    let mut params = ca_params("root");
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate().unwrap();
    let signer = TestCa::root_with(
        ca_params("root"),
        KeyPair::from_pem(&key.serialize_pem()).unwrap(),
    );
    let root = TestCa::root_with(params, key);
    let bundle = [root.der.clone()];
    assert!(store(&bundle, &[signer.crl(1, &[])]).is_err());
    // Nor does a CRL of a CA that the client sends.
    let puppet = Puppet::new();
    let mut params = ca_params("sub");
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate().unwrap();
    let signer = TestCa::root_with(
        ca_params("sub"),
        KeyPair::from_pem(&key.serialize_pem()).unwrap(),
    );
    let sub = puppet.ca.intermediate_with(params, key, 7);
    let crls = [puppet.crls(1, &[]), vec![signer.crl(1, &[])]].concat();
    let store = store(&puppet.bundle(), &crls).unwrap();
    assert_eq!(store.status(now()).strays.len(), 1);
    let verification = store.verify(&[sub.agent("web01", 5).der, sub.der.clone()], now());
    assert_eq!(reason(&verification), Some(Reason::CrlMissing));
}

/// RUSTSEC-2026-0104: a CRL could make webpki before 0.103.13 panic. The proxy has its own parser, which gets every
/// prefix of a CRL, and the CRL with each byte altered.
#[test]
fn rustsec_2026_0104_no_crl_makes_the_reader_panic() {
    let root = TestCa::root("root");
    let crl = root.crl(1, &[5, 300, 70_000]);
    let bundle = [root.der.clone()];
    let build = |bytes: Vec<u8>| {
        let _outcome = store(&bundle, &[CertificateRevocationListDer::from(bytes)]);
    };
    (1..crl.len()).for_each(|end| build(crl[..end].to_vec()));
    for index in 0..crl.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut bytes = crl.to_vec();
            bytes[index] ^= flip;
            build(bytes);
        }
    }
}

/// The same for certificates that clients send.
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

/// RUSTSEC-2026-0049: webpki did not match a CRL to certificates with several distribution points. The proxy finds a
/// CRL only by its issuer.
#[test]
fn rustsec_2026_0049_distribution_points_hide_no_crl() {
    let root = TestCa::root("root");
    let mut params = leaf_params("web01", 5);
    params.crl_distribution_points = ["http://one.example.com", "http://two.example.com"]
        .map(|uri| CrlDistributionPoint {
            uris: vec![uri.into()],
        })
        .into();
    let store = store(std::slice::from_ref(&root.der), &[root.crl(1, &[5])]).unwrap();
    assert_eq!(verdict(&store, &root.sign(params)), Some(Reason::Revoked));
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
fn a_refusal_contains_the_certificate_its_dates_and_the_commands() {
    let puppet = Puppet::new();
    let store = store(&puppet.bundle(), &puppet.crls(7, &[9])).unwrap();
    let text = refusal(&store.verify(&[puppet.ca.agent("web09.example.com", 9).der], now())).text();
    assert_eq!(
        text,
        "The certificate \"CN=web09.example.com\" (serial 0x09, issued by \"CN=Puppet CA: test\", valid \
         2020-01-01T00:00:00Z to 2039-01-01T00:00:00Z) is revoked. It is on the CRL of CN=Puppet CA: test, \
         number 7. To get a new certificate: on the CA run puppetserver ca clean --certname web09.example.com, on the \
         agent run puppet ssl clean, then puppet agent -t."
    );
}

/// Comes before any other advice if a date is at fault: the clock may be wrong instead of the certificate.
const CLOCKS: &str = "First, check the clocks of the agent and of the proxy. ";

#[test]
fn a_refusal_because_of_a_date_mentions_the_clocks_first() {
    let puppet = Puppet::new();
    let store = store(&puppet.bundle(), &puppet.crls(7, &[])).unwrap();
    let agent = puppet.ca.agent("web09.example.com", 9).der;
    let clean = "If both are correct, the agent needs a new certificate. To get a new certificate: on the CA run \
                 puppetserver ca clean --certname web09.example.com, on the agent run puppet ssl clean, then puppet agent \
                 -t.";
    let ca_server = "If both are correct, check the clock of the CA server.";
    for (now, sentence, then) in [
        (at(2_190_000_000), "has expired. ", clean),
        (
            at(1_560_000_000),
            "is not valid yet (not-yet-valid). ",
            ca_server,
        ),
    ] {
        let text = refusal(&store.verify(std::slice::from_ref(&agent), now)).text();
        let expected = format!(") {sentence}{CLOCKS}{then}");
        assert!(
            text.ends_with(&expected),
            "{expected:?} is not the end of {text}"
        );
    }
}

#[test]
fn a_refusal_names_the_excess_part_of_the_subject() {
    let puppet = Puppet::new();
    let store = store(&puppet.bundle(), &puppet.crls(1, &[])).unwrap();
    let mut params = leaf_params("web01.example.com", 5);
    params
        .distinguished_name
        .push(rcgen::DnType::OrganizationName, "x");
    let text = refusal(&store.verify(&[puppet.ca.sign(params).der], now())).text();
    assert!(
        text.contains(
            "In detail: the subject has 2 RDNs where the Puppet CA writes exactly one CN \
             (subject = \"single-cn\" allows it)."
        ),
        "{text}"
    );
}

#[test]
fn a_refusal_puts_only_names_that_a_puppet_ca_signs_into_commands() {
    let puppet = Puppet::new();
    let store = store(&puppet.bundle(), &puppet.crls(7, &[9])).unwrap();
    for name in ["web09 && halt", "$(halt)", "--all", "Web09"] {
        let text = refusal(&store.verify(&[puppet.ca.agent(name, 9).der], now())).text();
        assert!(text.contains("ca clean --certname NAME,"), "{text}");
    }
}

#[test]
fn a_refusal_because_of_a_revoked_ca_does_not_advise_a_new_certificate() {
    let puppet = Puppet::new();
    let crls = [puppet.ca.crl(7, &[]), puppet.root.crl(8, &[2])];
    let store = store(&puppet.bundle(), &crls).unwrap();
    let text = refusal(&store.verify(&[puppet.ca.agent("web09", 9).der], now())).text();
    assert!(
        text.starts_with("The certificate \"CN=Puppet CA: test\"") && text.contains("is revoked"),
        "{text}"
    );
    assert!(
        text.contains("web09") && text.contains("puppetserver ca setup"),
        "{text}"
    );
    assert!(!text.contains("ca clean"), "{text}");
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
    // The curve's OID is right before the bit string's tag, length and unused-bits byte.
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

#[test]
fn of_several_paths_the_refusal_reports_the_fault_that_the_user_can_fix() {
    // The same CA under two roots: one path is revoked, the other too long.
    let (root, other) = (TestCa::root("root"), TestCa::root("other"));
    let key = || KeyPair::from_pem(include_str!("keys/sec1.pem")).unwrap();
    let revoked = root.intermediate_with(ca_params("ca"), key(), 7);
    let kept = other.intermediate_with(ca_params("ca"), key(), 8);
    let agent = revoked.agent("web01", 5).der;
    let bundle = [root.der.clone(), other.der.clone()];
    let crls = [
        root.crl(1, &[7]),
        other.crl_until(1, &[], 2025),
        revoked.crl(1, &[]),
    ];
    for sent in [
        [revoked.der.clone(), kept.der.clone()],
        [kept.der, revoked.der],
    ] {
        let chain = [&[agent.clone()][..], &sent].concat();
        let strict = store_with(&bundle, &crls, &rejecting(), None).unwrap();
        assert_eq!(reason(&strict.verify(&chain, now())), Some(Reason::Revoked));
        let lenient = store(&bundle, &crls).unwrap();
        assert_eq!(
            reason(&lenient.verify(&chain, now())),
            None,
            "any acceptable path will do"
        );
    }
}

#[test]
fn the_expired_ca_is_named_and_not_one_in_its_first_or_last_second() {
    let mut params = ca_params("in its last second");
    params.not_after = date_time_ymd(2030, 1, 1);
    let ending = TestCa::root_with(params, KeyPair::generate().unwrap());
    let mut params = ca_params("in its first second");
    params.not_before = date_time_ymd(2030, 1, 1);
    let beginning = TestCa::root_with(params, KeyPair::generate().unwrap());
    let root = TestCa::root("root");
    let mut params = ca_params("over");
    params.not_after = date_time_ymd(2029, 1, 1);
    let over = root.intermediate_with(params, KeyPair::generate().unwrap(), 2);
    let bundle = [&ending, &beginning, &over, &root].map(|ca| ca.der.clone());
    let crls = [&ending, &beginning, &over, &root].map(|ca| ca.crl(1, &[]));
    let store = store(&bundle, &crls).unwrap();
    assert_eq!(verdict(&store, &ending.agent("web01", 5)), None);
    assert_eq!(verdict(&store, &beginning.agent("web01", 5)), None);
    let verification = store.verify(&[over.agent("web01", 5).der], now());
    assert!(
        refusal(&verification)
            .help
            .contains("The CA certificate is CN=over,")
    );
}
