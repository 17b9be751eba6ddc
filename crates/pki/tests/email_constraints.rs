//! Name constraints on e-mail addresses, on whole chains: at each level, and with each form of address.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use crate::support::crls::element;
use crate::support::*;
use identity::Reason;
use pki::TrustStore;
use rcgen::{
    CertificateParams, CustomExtension, DnType, DnValue, KeyPair, OtherNameValue, SanType,
};

#[test]
fn an_address_in_the_subject_is_checked_against_every_ca_above() {
    for (constraints, address, expected) in [
        (Some(permitted(&["example.com"])), "a@example.com", None),
        (Some(permitted(&["example.com"])), "a@example.org", REFUSED),
        (Some(permitted(&[".example.com"])), "a@example.com", REFUSED),
        (
            Some(permitted(&["example.org", "a@example.com"])),
            "a@EXAMPLE.com",
            None,
        ),
        (Some(excluded(&["example.com"])), "a@example.com", REFUSED),
        (Some(excluded(&["example.org"])), "a@example.com", None),
        (Some(permitted(&[""])), "a@example.com", REFUSED),
        (Some(excluded(&[""])), "a@example.com", REFUSED),
        (
            Some(permitted(&["example.com"])),
            "a@b@example.com",
            REFUSED,
        ),
        (None, "a@b@example.com", None),
    ] {
        let case = format!("{constraints:02x?} {address}");
        let actual = verdicts_below(constraints.as_deref(), &with_subject(address));
        assert_eq!(actual, [expected; 2], "{case}");
    }
}

#[test]
fn an_alternative_name_does_not_bypass_the_check_of_the_subject() {
    let mut params = with_subject("a@example.org");
    params.subject_alt_names = vec![SanType::DnsName("web01".try_into().unwrap())];
    let actual = verdicts_below(Some(&permitted(&["example.com"])), &params);
    assert_eq!(actual, [REFUSED; 2]);
}

#[test]
fn a_constraint_on_addresses_ignores_certificates_without_an_address() {
    for constraints in [
        permitted(&["example.com"]),
        excluded(&[""]),
        permitted(&["a@b@c"]),
    ] {
        let actual = verdicts_below(Some(&constraints), &leaf_params("web01", 5));
        assert_eq!(actual, [None; 2], "{constraints:02x?}");
    }
}

/// RFC 9598: constraints on addresses apply to such an address too.
#[test]
fn an_address_that_is_not_ascii_is_refused_below_a_constraint() {
    let mut params = leaf_params("web01", 5);
    let name = OtherNameValue::Utf8String("rööt@example.com".into());
    let kind = vec![1, 3, 6, 1, 5, 5, 7, 8, 9];
    params.subject_alt_names = vec![SanType::OtherName((kind, name))];
    assert_eq!(verdicts_below(None, &params), [None; 2]);
    let actual = verdicts_below(Some(&permitted(&["example.com"])), &params);
    assert_eq!(actual, [REFUSED; 2]);
    // Other names of that form are not e-mail addresses; this one is a Microsoft user name.
    let name = OtherNameValue::Utf8String("a@example.org".into());
    let kind = vec![1, 3, 6, 1, 4, 1, 311, 20, 2, 3];
    params.subject_alt_names = vec![SanType::OtherName((kind, name))];
    let actual = verdicts_below(Some(&permitted(&["example.com"])), &params);
    assert_eq!(actual, [None; 2]);
}

#[test]
fn name_constraints_in_an_agents_own_certificate_are_refused() {
    for critical in [false, true] {
        let mut params = leaf_params("web01", 5);
        let mut extension = CustomExtension::from_oid_content(&[2, 5, 29, 30], dns("web01"));
        extension.set_criticality(critical);
        params.custom_extensions.push(extension);
        let root = TestCa::root("root");
        let store = store(std::slice::from_ref(&root.der), &[root.crl(1, &[])]).unwrap();
        let verification = store.verify(&[root.sign(params).der], now());
        assert_eq!(reason(&verification), Some(Reason::Malformed));
        let text = refusal(&verification).text();
        assert!(text.contains("has name constraints, which only"), "{text}");
    }
}

const REFUSED: Option<Reason> = Some(Reason::PathConstraint);

/// The verdicts on such an agent if the root has the constraints, and if the CA below it has them.
fn verdicts_below(constraints: Option<&[u8]>, params: &CertificateParams) -> [Option<Reason>; 2] {
    [(constraints, None), (None, constraints)].map(|(of_root, of_sub)| {
        let root = TestCa::root_with(constrained("root", of_root), KeyPair::generate().unwrap());
        let sub = constrained("sub", of_sub);
        let sub = root.intermediate_with(sub, KeyPair::generate().unwrap(), 2);
        verdict(&trusting(&root, &sub), &sub.sign(params.clone()))
    })
}

fn trusting(root: &TestCa, sub: &TestCa) -> TrustStore {
    let crls = [root.crl(1, &[]), sub.crl(1, &[])];
    TrustStore::build(
        &material(&[root.der.clone(), sub.der.clone()], &crls),
        &pki::TrustSettings::default(),
        &identity::IdentitySettings {
            subject: identity::SubjectRule::SingleCn,
            ..identity::IdentitySettings::default()
        },
        None,
    )
    .unwrap()
}

fn constrained(name: &str, constraints: Option<&[u8]>) -> CertificateParams {
    let mut params = ca_params(name);
    if let Some(content) = constraints {
        let mut extension = CustomExtension::from_oid_content(&[2, 5, 29, 30], content.to_vec());
        extension.set_criticality(true);
        params.custom_extensions.push(extension);
    }
    params
}

/// An agent with an address in its subject and without alternative names.
fn with_subject(address: &str) -> CertificateParams {
    let mut params = leaf_params("web01", 5);
    params.subject_alt_names.clear();
    let kind = DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1]);
    let value = DnValue::Ia5String(address.try_into().unwrap());
    params.distinguished_name.push(kind, value);
    params
}

fn permitted(addresses: &[&str]) -> Vec<u8> {
    element(0x30, &element(0xa0, &subtrees(0x81, addresses)))
}

fn excluded(addresses: &[&str]) -> Vec<u8> {
    element(0x30, &element(0xa1, &subtrees(0x81, addresses)))
}

fn dns(name: &str) -> Vec<u8> {
    element(0x30, &element(0xa0, &subtrees(0x82, &[name])))
}

fn subtrees(form: u8, bases: &[&str]) -> Vec<u8> {
    let subtree = |base: &&str| element(0x30, &element(form, base.as_bytes()));
    bases.iter().flat_map(subtree).collect()
}
