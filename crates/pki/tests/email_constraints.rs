//! Name constraints on e-mail addresses, in whole chains. Below such a constraint, no certificate with an address is accepted.

use crate::support::crls::element;
use crate::support::*;
use identity::Reason;
use pki::{ChainVerification, TrustStore};
use rcgen::{
    CertificateParams, CustomExtension, DnType, DnValue, KeyPair, OtherNameValue, SanType,
};

#[test]
fn below_a_constraint_on_addresses_no_certificate_with_an_address_is_accepted() {
    let both = [
        element(0xa0, &subtree(EMAIL, "example.com")),
        element(0xa1, &subtree(EMAIL, "admin@example.com")),
    ];
    let mixed = [subtree(DNS, "example.com"), subtree(EMAIL, "example.com")];
    let directory = element(0x30, &element(0xa4, &element(0x30, &[])));
    let with_directory = [directory, subtree(EMAIL, "example.com")];
    for constraints in [
        permitted(&subtree(EMAIL, "example.com")),
        permitted(&subtree(EMAIL, "")),
        excluded(&subtree(EMAIL, "example.org")),
        excluded(&subtree(EMAIL, "a@b@c")),
        element(0x30, &both.concat()),
        permitted(&mixed.concat()),
        permitted(&with_directory.concat()),
    ] {
        let expected = |params: &CertificateParams, expected: Option<Reason>| {
            for verification in verify_below(Some(&constraints), params) {
                assert_eq!(reason(&verification), expected, "{constraints:02x?}");
                if expected.is_some() {
                    let text = refusal(&verification).text();
                    assert!(text.contains("e-mail addresses"), "{text}");
                }
            }
        };
        // The CA can still issue certificates to agents, which have no address.
        expected(&named(Vec::new()), None);
        expected(&named(vec![dns("web01.example.com")]), None);
        for address in ["a@example.com", "a@example.org", "a@b@example.com", ""] {
            expected(&named(vec![email(address)]), REFUSED);
            expected(&with_subject(address), REFUSED);
        }
        expected(
            &named(vec![dns("web01.example.com"), email("a@example.com")]),
            REFUSED,
        );
        // An alternative name does not hide an address in the subject.
        let mut hidden = with_subject("a@example.com");
        hidden.subject_alt_names = vec![dns("web01.example.com")];
        expected(&hidden, REFUSED);
    }
}

#[test]
fn an_address_without_a_constraint_on_addresses_is_accepted() {
    let of_dns = permitted(&subtree(DNS, "example.com"));
    for constraints in [None, Some(&of_dns[..])] {
        for params in [
            with_subject("a@b@example.com"),
            named(vec![dns("web01.example.com"), email("a@example.com")]),
        ] {
            let reasons = verify_below(constraints, &params).map(|one| reason(&one));
            assert_eq!(reasons, [None; 2], "{constraints:02x?}");
        }
    }
}

/// Neither the string type nor the position hides an address in the subject.
#[test]
fn an_address_of_any_string_type_is_refused_also_beside_another_attribute() {
    let constraints = permitted(&subtree(EMAIL, "example.com"));
    for value in [
        DnValue::Utf8String("a@example.com".into()),
        DnValue::TeletexString("a@example.com".try_into().unwrap()),
        DnValue::BmpString("a@example.com".try_into().unwrap()),
    ] {
        let mut params = named(Vec::new());
        params.distinguished_name.push(email_address(), value);
        let reasons = verify_below(Some(&constraints), &params).map(|one| reason(&one));
        assert_eq!(reasons, [REFUSED; 2]);
    }
}

/// RFC 9598: constraints on e-mail addresses also apply to such an address.
#[test]
fn an_address_that_is_not_ascii_is_refused_below_a_constraint() {
    let other = |kind: &[u64], text: &str| {
        let value = OtherNameValue::Utf8String(text.into());
        named(vec![SanType::OtherName((kind.to_vec(), value))])
    };
    let address = other(&[1, 3, 6, 1, 5, 5, 7, 8, 9], "rööt@example.com");
    // Other names of that form are not e-mail addresses. This one is a Microsoft user name.
    let user = other(&[1, 3, 6, 1, 4, 1, 311, 20, 2, 3], "a@example.org");
    let constraints = permitted(&subtree(EMAIL, "example.com"));
    for (constraints, params, expected) in [
        (None, &address, None),
        (Some(&constraints[..]), &address, REFUSED),
        (Some(&constraints[..]), &user, None),
    ] {
        let reasons = verify_below(constraints, params).map(|one| reason(&one));
        assert_eq!(reasons, [expected; 2]);
    }
}

#[test]
fn unreadable_constraints_and_names_are_refused() {
    let address = element(EMAIL, b"example.com");
    // `minimum` and `maximum`, which RFC 5280 does not allow; a constructed address; and a tenth form of name.
    let limited = |limit: &[u8]| element(0x30, &[&address[..], limit].concat());
    for constraints in [
        permitted(&limited(&[0x80, 1, 0])),
        permitted(&limited(&[0x81, 1, 9])),
        permitted(&subtree(0xa1, "example.com")),
        permitted(&subtree(0x89, "example.com")),
    ] {
        for verification in verify_below(Some(&constraints), &named(Vec::new())) {
            assert_ne!(reason(&verification), None, "{constraints:02x?}");
        }
    }
    let constraints = permitted(&subtree(EMAIL, "example.com"));
    // GeneralName has nine forms, numbered from 0. An address and a host name are never constructed.
    for (form, is_accepted) in [(0x88, true), (0x89, false), (0xa1, false), (0xa2, false)] {
        let names = element(0x30, &element(form, &[0x2a, 3]));
        let mut params = named(Vec::new());
        let extension = CustomExtension::from_oid_content(&[2, 5, 29, 17], names);
        params.custom_extensions.push(extension);
        for verification in verify_below(Some(&constraints), &params) {
            assert_eq!(reason(&verification).is_none(), is_accepted, "{form:02x}");
        }
    }
}

/// RFC 5280, 6.1.3 (b).
#[test]
fn a_ca_with_an_address_below_such_a_constraint_is_refused_unless_it_is_self_issued() {
    let constraints = permitted(&subtree(EMAIL, "example.com"));
    let root = constrained("root", Some(&constraints));
    let root = TestCa::root_with(root, KeyPair::generate().unwrap());
    for (name, expected) in [("sub", REFUSED), ("root", None)] {
        let mut params = ca_params(name);
        params.subject_alt_names = vec![email("ca@example.com")];
        let sub = root.intermediate_with(params, KeyPair::generate().unwrap(), 2);
        let verification =
            trusting(&root, &sub).verify(&[sub.agent("web01", 5).der, sub.der.clone()], now());
        assert_eq!(reason(&verification), expected, "{name}");
    }
}

#[test]
fn name_constraints_in_an_agents_own_certificate_are_refused() {
    for critical in [false, true] {
        let mut params = leaf_params("web01", 5);
        let content = permitted(&subtree(DNS, "web01"));
        let mut extension = CustomExtension::from_oid_content(&[2, 5, 29, 30], content);
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

const EMAIL: u8 = 0x81;
const DNS: u8 = 0x82;

/// The verdicts on such an agent if the root has the constraints, and if the CA below it has them.
fn verify_below(constraints: Option<&[u8]>, params: &CertificateParams) -> [ChainVerification; 2] {
    [(constraints, None), (None, constraints)].map(|(of_root, of_sub)| {
        let root = TestCa::root_with(constrained("root", of_root), KeyPair::generate().unwrap());
        let sub = constrained("sub", of_sub);
        let sub = root.intermediate_with(sub, KeyPair::generate().unwrap(), 2);
        trusting(&root, &sub).verify(&[sub.sign(params.clone()).der], now())
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
    let mut params = named(Vec::new());
    let value = DnValue::Ia5String(address.try_into().unwrap());
    params.distinguished_name.push(email_address(), value);
    params
}

fn named(names: Vec<SanType>) -> CertificateParams {
    let mut params = leaf_params("web01", 5);
    params.subject_alt_names = names;
    params
}

fn email_address() -> DnType {
    DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1])
}

fn email(address: &str) -> SanType {
    SanType::Rfc822Name(address.try_into().unwrap())
}

fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().unwrap())
}

fn permitted(subtrees: &[u8]) -> Vec<u8> {
    element(0x30, &element(0xa0, subtrees))
}

fn excluded(subtrees: &[u8]) -> Vec<u8> {
    element(0x30, &element(0xa1, subtrees))
}

fn subtree(form: u8, base: &str) -> Vec<u8> {
    element(0x30, &element(form, base.as_bytes()))
}
