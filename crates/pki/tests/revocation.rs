//! Revocation: which CRL applies to a certificate, and which CRLs are not used.

use crate::support::*;
use identity::Reason;
use pki::{Named, PkiProblem, TrustMaterial, TrustSettings, TrustStore};
use rcgen::{CrlDistributionPoint, KeyPair, KeyUsagePurpose, SerialNumber, date_time_ymd};
use rustls_pki_types::CertificateRevocationListDer;

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
    // It changes nothing if the client also sends the intermediate.
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
    // A client may send the new certificate itself.
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
        // The same key and name are one issuer, whichever CA certifies it.
        (&[&old, &cross, &new], &calm, &[5], Some(Reason::Revoked)),
        (&[&old, &cross], &calm, &[5], Some(Reason::Revoked)),
    ] {
        let bundle: Vec<_> = bundle.iter().map(|ca| ca.der.clone()).collect();
        let store = store(&bundle, &[of_old.clone(), new.crl(1, serials)]).unwrap();
        assert_eq!(verdict(&store, &agent), expected, "{} CAs", bundle.len());
        // It changes nothing if the client sends the path through the old CA.
        let chain = [agent.der.clone(), cross.der.clone()];
        assert_eq!(reason(&store.verify(&chain, now())), expected);
    }
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
        // A revocation applies even for an unchecked issuer.
        if !crls.is_empty() {
            assert_eq!(
                verdict(&store, &revoked),
                Some(Reason::Revoked),
                "{entries:?}"
            );
        }
    }
}

/// Part of the message for a fault that another certificate of the agent would not fix.
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

    // Another CA with the same name has no effect.
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
fn a_store_without_cas_verifies_no_certificate_and_reports_no_lockout() {
    let puppet = Puppet::new();
    let agent = puppet.ca.agent("web01", 5);
    let trusting = store(&puppet.bundle(), &puppet.crls(1, &[])).expect("a store");
    for settings in [
        TrustSettings::default(),
        TrustSettings {
            unchecked: vec!["*".to_owned()],
            ..TrustSettings::default()
        },
    ] {
        for previous in [None, Some(&trusting)] {
            let identity = identity::IdentitySettings::default();
            let closed = TrustStore::without_cas(&settings, &identity, previous);
            let verification = verdict(&closed, &agent);
            assert_eq!(verification, Some(Reason::UnknownIssuer));
            assert!(closed.has_no_cas() && closed.warnings().is_empty());
            assert_eq!(closed.lockout(previous, now()), None);
            assert!(closed.status(now()).alarms.is_empty());
        }
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
    // The CAs of the bundle are used, whatever other certificates the client sends.
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
    // A CRL of a CA that the client sends has no effect either.
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

/// RUSTSEC-2026-0104: a CRL could make webpki before 0.103.13 panic. The proxy has its own parser. The test passes it every
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
