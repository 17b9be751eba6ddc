//! CAs directly below an anchor that webpki refuses: CAs with constraints on directory names, and self-issued CAs. The proxy
//! accepts what RFC 5280 allows, and every other check still applies to such a CA.

use crate::support::crls::element;
use crate::support::*;
use identity::Reason;
use pki::{TrustSettings, TrustStore};
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType, date_time_ymd,
};

#[test]
fn the_constraints_of_the_anchor_apply_although_the_ca_below_it_has_its_own() {
    let of_root = constraint(&[(PERMITTED, DNS, "example.com")]);
    let root = TestCa::root_with(constrained("root", &of_root), KeyPair::generate().unwrap());
    let sub = below(&root, constrained("sub", &elsewhere()));
    let leaf = sub.sign(with_name("web01.example.org"));
    assert_eq!(verdict_with(&root, &[&sub], &leaf), REFUSED);
}

/// The proxy also finds faults that webpki does not check on such a CA.
#[test]
fn the_ca_below_the_anchor_must_pass_every_other_check() {
    type Change = fn(&mut CertificateParams);
    let changes: &[(Change, Option<Reason>)] = &[
        (|_| {}, None),
        (
            |p| p.is_ca = IsCa::Ca(BasicConstraints::Constrained(0)),
            None,
        ),
        (|p| p.is_ca = IsCa::ExplicitNoCa, REFUSED),
        (|p| p.is_ca = IsCa::NoCa, REFUSED),
        (|p| p.key_usages = vec![KeyUsagePurpose::CrlSign], REFUSED),
        (
            |p| p.not_after = date_time_ymd(2029, 12, 31),
            Some(Reason::CaExpired),
        ),
        (
            |p| p.not_before = date_time_ymd(2030, 1, 2),
            Some(Reason::CaNotYetValid),
        ),
        // webpki checks the extended key usage of a CA.
        (
            |p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
            REFUSED,
        ),
        (
            |p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth],
            Some(Reason::WrongPurpose),
        ),
        (
            |p| {
                let mut unknown = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
                unknown.set_criticality(true);
                p.custom_extensions.push(unknown);
            },
            Some(Reason::UnknownIssuer),
        ),
    ];
    let root = TestCa::root("root");
    for (index, (change, expected)) in changes.iter().enumerate() {
        let mut params = constrained("sub", &elsewhere());
        change(&mut params);
        let sub = below(&root, params);
        let leaf = sub.agent("web01", 5);
        assert_eq!(
            verdict_with(&root, &[&sub], &leaf),
            *expected,
            "case {index}"
        );
    }
}

#[test]
fn a_ca_that_the_anchor_did_not_sign_is_not_trusted() {
    let root = TestCa::root("root");
    let forger = TestCa::root("root");
    let sub = below(&forger, constrained("sub", &elsewhere()));
    let leaf = sub.agent("web01", 5);
    assert_ne!(verdict_with(&root, &[&sub], &leaf), None);
    // The real CA's key does not verify a certificate that a forger signs in its name.
    let own = below(&root, constrained("sub", &elsewhere()));
    assert_ne!(verdict_with(&root, &[&own], &leaf), None);
    assert_ne!(verdict_with(&root, &[&own, &sub], &leaf), None);
}

/// Alters any byte of the CA certificate, and any byte of the certificate that it signed.
#[test]
fn no_altered_ca_below_the_anchor_is_accepted() {
    let root = TestCa::root("root");
    let sub = below(&root, constrained("sub", &elsewhere()));
    let leaf = sub.agent("web01", 5).der;
    let store = trusting(&root);
    let verify =
        |leaf: Vec<u8>, sub: Vec<u8>| reason(&store.verify(&[leaf.into(), sub.into()], now()));
    assert_eq!(verify(leaf.to_vec(), sub.der.to_vec()), None);
    for index in 0..sub.der.len() {
        let mut bytes = sub.der.to_vec();
        bytes[index] ^= 0x01;
        assert_ne!(verify(leaf.to_vec(), bytes), None, "byte {index} of the CA");
        assert_ne!(verify(leaf.to_vec(), sub.der[..index].to_vec()), None);
    }
    for index in 0..leaf.len() {
        let mut bytes = leaf.to_vec();
        bytes[index] ^= 0x01;
        assert_ne!(verify(bytes, sub.der.to_vec()), None, "byte {index}");
    }
}

#[test]
fn crls_dates_and_depth_apply_to_such_a_path() {
    let root = TestCa::root("root");
    let sub = below(&root, constrained("sub", &elsewhere()));
    let leaf = sub.agent("web01", 5);
    let chain = [leaf.der.clone(), sub.der.clone()];
    let verification_with = |of_root: &[u64], of_sub: Option<&[u64]>, settings: &TrustSettings| {
        let mut lists = vec![root.crl(1, of_root)];
        lists.extend(of_sub.map(|serials| sub.crl(1, serials)));
        let bundle = [root.der.clone()];
        let store = store_with(&bundle, &lists, settings, None).unwrap();
        store.verify(&chain, now())
    };
    let usual = TrustSettings::default();
    let none_between = TrustSettings {
        depth: 0,
        ..TrustSettings::default()
    };
    for (of_root, of_sub, settings, expected) in [
        (&[][..], Some(&[][..]), &usual, None),
        (&[], Some(&[5]), &usual, Some(Reason::Revoked)),
        (&[2], Some(&[]), &usual, Some(Reason::Revoked)),
        (&[], None, &usual, Some(Reason::CrlMissing)),
        (&[], Some(&[]), &none_between, Some(Reason::Depth)),
    ] {
        assert_eq!(
            reason(&verification_with(of_root, of_sub, settings)),
            expected
        );
    }
    let good = verification_with(&[], Some(&[]), &usual);
    assert_eq!(good.chain.unwrap().earliest_end(), at(2_177_452_800));
    let refused = verification_with(&[2], Some(&[]), &usual);
    assert!(refusal(&refused).text().contains("CN=root"));
}

#[test]
fn a_verdict_on_such_a_path_is_remembered_and_ends_with_a_new_crl() {
    let root = TestCa::root("root");
    let sub = below(&root, constrained("sub", &elsewhere()));
    let leaf = sub.agent("web01", 5);
    let bundle = [sub.der.clone(), root.der.clone()];
    let first = store(&bundle, &[root.crl(1, &[]), sub.crl(1, &[])]).unwrap();
    let checked = first.verify(std::slice::from_ref(&leaf.der), now());
    assert_eq!(reason(&checked), None);
    let lists = [root.crl(2, &[2]), sub.crl(1, &[])];
    let second = store_with(&bundle, &lists, &TrustSettings::default(), Some(&first)).unwrap();
    assert_eq!(
        reason(&second.reverify(&checked, now())),
        Some(Reason::Revoked)
    );
}

#[test]
fn a_self_issued_ca_does_not_count_in_the_path_length() {
    let root = TestCa::root("root");
    let short = below(&root, with_length("short", 1));
    let again = below(&short, ca_params("short"));
    let first = below(&again, ca_params("first"));
    let second = below(&first, ca_params("second"));
    let third = below(&short, with_length("third", 0));
    let fourth = below(&third, ca_params("third"));
    let cas = [&short, &again, &first, &second, &third, &fourth];
    for (ca, expected) in [
        (&short, None),
        (&again, None),
        (&first, None),
        (&second, REFUSED),
        (&third, None),
        // This CA is not directly below the anchor, so webpki checks the path length, and includes every CA in it. It reports
        // the other key with the same name.
        (&fourth, Some(Reason::BadSignature)),
    ] {
        let leaf = ca.agent("web01", 5);
        assert_eq!(verdict_with(&root, &cas, &leaf), expected);
    }
    // A CA with another name is always included in the path length.
    let none = below(&root, with_length("none", 0));
    let other = below(&none, ca_params("other"));
    assert_eq!(
        verdict_with(&root, &[&none, &other, &again], &other.agent("web01", 5)),
        REFUSED
    );
    // The same name is not enough: the CA must have signed the certificate.
    let forged = TestCa::root("short").agent("web01", 5);
    assert_ne!(verdict_with(&root, &cas, &forged), None);
}

#[test]
fn a_self_issued_root_key_may_have_any_name_and_constrains_all_below_it() {
    let within = constraint(&[
        (PERMITTED, DNS, "example.com"),
        (EXCLUDED, DNS, "bad.example.com"),
    ]);
    let root = TestCa::root_with(constrained("root", &within), KeyPair::generate().unwrap());
    let outside = |name: &str| {
        let mut params = ca_params(name);
        params.subject_alt_names = vec![dns("ca.example.org")];
        params
    };
    let again = below(&root, outside("root"));
    for (name, expected) in [
        ("web01.example.com", None),
        ("web01.example.org", REFUSED),
        ("bad.example.com", REFUSED),
    ] {
        let leaf = again.agent(name, 5);
        assert_eq!(verdict_with(&root, &[&again], &leaf), expected, "{name}");
    }
    // Neither a CA with another name nor an agent with the root's name is exempt.
    let other = below(&root, outside("other"));
    let leaf = other.agent("web01.example.com", 5);
    assert_eq!(verdict_with(&root, &[&other], &leaf), REFUSED);
    assert_ne!(verdict_with(&root, &[&other, &again], &leaf), None);
    let under = below(&again, outside("under"));
    let leaf = under.agent("web01.example.com", 5);
    assert_eq!(verdict_with(&root, &[&again, &under], &leaf), REFUSED);
    let mut own_name = leaf_params("root", 5);
    own_name.subject_alt_names = vec![dns("web01.example.org")];
    assert_eq!(
        verdict_with(&root, &[&again], &again.sign(own_name)),
        REFUSED
    );
    // The CA's own constraints apply too, and webpki checks them.
    let mut params = constrained("root", &constraint(&[(PERMITTED, DNS, "a.example.com")]));
    params.subject_alt_names = vec![dns("ca.example.org")];
    let narrower = below(&root, params);
    assert_ne!(
        verdict_with(&root, &[&narrower], &narrower.agent("b.example.com", 5)),
        None
    );
}

#[test]
fn a_start_that_does_not_lead_to_the_leaf_does_not_change_the_refusal() {
    let root = TestCa::root("root");
    let everywhere = element(0x30, &element(EXCLUDED, &directory(&[])));
    let sub = below(&root, constrained("sub", &everywhere));
    let elsewhere = below(&root, constrained("elsewhere", &elsewhere()));
    let agent = sub.agent("web01", 5);
    assert_eq!(verdict_with(&root, &[&sub], &agent), REFUSED);
    assert_eq!(verdict_with(&root, &[&sub, &elsewhere], &agent), REFUSED);
    assert_eq!(verdict_with(&root, &[&elsewhere, &sub], &agent), REFUSED);
}

#[test]
fn only_a_few_of_many_sent_cas_are_tried() {
    let (root, forger) = (TestCa::root("root"), TestCa::root("root"));
    let sub = below(&root, constrained("sub", &elsewhere()));
    let leaf = sub.agent("web01", 5);
    let forged: Vec<_> = (0..9)
        .map(|n| below(&forger, constrained(&format!("sub{n}"), &elsewhere())))
        .collect();
    let sent = |after: usize| {
        let cas: Vec<_> = forged.iter().take(after).chain([&sub]).collect();
        verdict_with(&root, &cas, &leaf)
    };
    assert_eq!(sent(3), None);
    assert_eq!(sent(9), REFUSED);
}

const REFUSED: Option<Reason> = Some(Reason::PathConstraint);

const PERMITTED: u8 = 0xa0;
const EXCLUDED: u8 = 0xa1;
const DNS: u8 = 0x82;

/// The verdict on an agent that sends these CAs. Only the root is trusted, and no certificate is revoked.
fn verdict_with(root: &TestCa, cas: &[&TestCa], leaf: &Leaf) -> Option<Reason> {
    let sent = cas.iter().map(|ca| ca.der.clone());
    let chain: Vec<_> = [leaf.der.clone()].into_iter().chain(sent).collect();
    reason(&trusting(root).verify(&chain, now()))
}

fn trusting(root: &TestCa) -> TrustStore {
    let bundle = std::slice::from_ref(&root.der);
    store_with(bundle, &[root.crl(1, &[])], &unchecked(&["*"]), None).unwrap()
}

fn below(issuer: &TestCa, params: CertificateParams) -> TestCa {
    issuer.intermediate_with(params, KeyPair::generate().unwrap(), 2)
}

fn with_length(name: &str, length: u8) -> CertificateParams {
    let mut params = ca_params(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(length));
    params
}

fn constrained(name: &str, content: &[u8]) -> CertificateParams {
    let mut params = ca_params(name);
    let mut extension = CustomExtension::from_oid_content(&[2, 5, 29, 30], content.to_vec());
    extension.set_criticality(true);
    params.custom_extensions.push(extension);
    params
}

fn with_name(name: &str) -> CertificateParams {
    let mut params = leaf_params("web01", 5);
    params.subject_alt_names = vec![dns(name)];
    params
}

fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().unwrap())
}

/// A constraint on the directory name O=Elsewhere. No certificate in these tests violates it, but webpki accepts none below it.
fn elsewhere() -> Vec<u8> {
    let oid = element(0x06, &[0x55, 4, 10]);
    let attribute = element(0x30, &[oid, element(0x0c, b"Elsewhere")].concat());
    element(
        0x30,
        &element(EXCLUDED, &directory(&element(0x31, &attribute))),
    )
}

fn directory(rdns: &[u8]) -> Vec<u8> {
    element(0x30, &element(0xa4, &element(0x30, rdns)))
}

/// NameConstraints with these subtrees, each as list, form and base.
fn constraint(subtrees: &[(u8, u8, &str)]) -> Vec<u8> {
    let list = |of: u8| {
        let subtrees = subtrees.iter().filter(|(list, ..)| *list == of);
        let content: Vec<_> = subtrees
            .flat_map(|(_, form, base)| element(0x30, &element(*form, base.as_bytes())))
            .collect();
        match content.as_slice() {
            [] => Vec::new(),
            content => element(of, content),
        }
    };
    element(0x30, &[list(PERMITTED), list(EXCLUDED)].concat())
}
