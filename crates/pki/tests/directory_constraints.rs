//! Name constraints on directory names, in whole chains: at each level, and with each form of name.

use crate::support::crls::element;
use crate::support::*;
use identity::Reason;
use pki::TrustStore;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, DnType, DnValue, KeyPair};

const REFUSED: Option<Reason> = Some(Reason::PathConstraint);
const UTF8: u8 = 0x0c;
const PRINTABLE: u8 = 0x13;
const TELETEX: u8 = 0x14;
const O: u8 = 10;
const OU: u8 = 11;
const CN: u8 = 3;

/// An RDN with one attribute.
fn rdn(kind: u8, tag: u8, text: &str) -> Vec<u8> {
    element(0x31, &attribute(kind, tag, text))
}

fn attribute(kind: u8, tag: u8, text: &str) -> Vec<u8> {
    let oid = element(0x06, &[0x55, 4, kind]);
    element(0x30, &[oid, element(tag, text.as_bytes())].concat())
}

/// A subtree of the name with these RDNs.
fn subtree(rdns: &[Vec<u8>]) -> Vec<u8> {
    element(0x30, &element(0xa4, &element(0x30, &rdns.concat())))
}

fn constraints(permitted: &[Vec<u8>], excluded: &[Vec<u8>]) -> Vec<u8> {
    let lists = [(0xa0, permitted), (0xa1, excluded)];
    let lists = lists.iter().filter(|(_, list)| !list.is_empty());
    let lists: Vec<_> = lists
        .map(|(tag, list)| element(*tag, &list.concat()))
        .collect();
    element(0x30, &lists.concat())
}

/// An agent with the subject O=Example, OU=Servers, CN=web01, and without alternative names.
fn agent() -> CertificateParams {
    let mut params = leaf_params("web01", 5);
    params.subject_alt_names.clear();
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, "Example");
    name.push(DnType::OrganizationalUnitName, "Servers");
    name.push(DnType::CommonName, "web01");
    params.distinguished_name = name;
    params
}

/// The verdicts on such an agent if the root has the constraints, and if the CA below it has them.
fn verdicts_below(constraints: &[u8], params: &CertificateParams) -> [(Option<Reason>, String); 2] {
    [(Some(constraints), None), (None, Some(constraints))].map(|(of_root, of_sub)| {
        let root = TestCa::root_with(constrained("root", of_root), KeyPair::generate().unwrap());
        let sub = constrained("sub", of_sub);
        let sub = root.intermediate_with(sub, KeyPair::generate().unwrap(), 2);
        let verification = trusting(&root, &sub).verify(&[sub.sign(params.clone()).der], now());
        let help = reason(&verification).map(|_| refusal(&verification).help.clone());
        (reason(&verification), help.unwrap_or_default())
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

/// A CA whose name is in O=Example.
fn constrained(name: &str, constraints: Option<&[u8]>) -> CertificateParams {
    let mut params = ca_params(name);
    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, "Example");
    subject.push(DnType::CommonName, name);
    params.distinguished_name = subject;
    if let Some(content) = constraints {
        let mut extension = CustomExtension::from_oid_content(&[2, 5, 29, 30], content.to_vec());
        extension.set_criticality(true);
        params.custom_extensions.push(extension);
    }
    params
}

#[test]
fn a_directory_name_is_checked_against_every_ca_above() {
    let example = || rdn(O, UTF8, "Example");
    let other = || subtree(&[rdn(O, UTF8, "Other")]);
    let servers = || subtree(&[example(), rdn(OU, UTF8, "Servers")]);
    let two = element(
        0x31,
        &[attribute(O, UTF8, "Example"), attribute(OU, UTF8, "x")].concat(),
    );
    let (accepted, refused) = ([None, None], [REFUSED, REFUSED]);
    for (permitted, excluded, expected) in [
        (vec![subtree(&[example()])], vec![], accepted),
        (vec![other(), subtree(&[example()])], vec![], accepted),
        // OpenSSL ignores string types, case and additional blanks.
        (
            vec![subtree(&[rdn(O, PRINTABLE, " eXample ")])],
            vec![],
            accepted,
        ),
        (vec![subtree(&[])], vec![], accepted),
        (vec![subtree(&[example()])], vec![other()], accepted),
        (vec![], vec![other()], accepted),
        (
            vec![],
            vec![subtree(&[example(), rdn(OU, UTF8, "x")])],
            accepted,
        ),
        // The name of the CA below the root is in no such unit.
        (vec![servers()], vec![], [REFUSED, None]),
        (vec![], vec![servers()], refused),
        (
            vec![],
            vec![subtree(&[rdn(O, PRINTABLE, "EXAMPLE")])],
            refused,
        ),
        (vec![subtree(&[example()])], vec![servers()], refused),
        (vec![], vec![subtree(&[])], refused),
        (vec![other()], vec![], refused),
        // The subtree does not match the beginning of the name, or its text is only the beginning of an attribute.
        (vec![subtree(&[rdn(OU, UTF8, "Servers")])], vec![], refused),
        (vec![subtree(&[rdn(O, UTF8, "Exam")])], vec![], refused),
        (vec![subtree(&[rdn(CN, UTF8, "Example")])], vec![], refused),
        (
            vec![subtree(&[
                example(),
                rdn(OU, UTF8, "Servers"),
                rdn(CN, UTF8, "web01"),
                rdn(CN, UTF8, "x"),
            ])],
            vec![],
            refused,
        ),
        // A name that cannot be compared is refused.
        (vec![], vec![subtree(&[rdn(O, TELETEX, "Other")])], refused),
        (vec![], vec![subtree(&[two])], refused),
        // webpki checks other names, but not together with directory names.
        (
            vec![
                subtree(&[example()]),
                element(0x30, &element(0x82, b"example.com")),
            ],
            vec![],
            refused,
        ),
    ] {
        let constraints = constraints(&permitted, &excluded);
        let verdicts = verdicts_below(&constraints, &agent());
        let case = format!("{permitted:02x?} {excluded:02x?} {verdicts:?}");
        assert_eq!([verdicts[0].0, verdicts[1].0], expected, "{case}");
        for (reason, help) in verdicts {
            assert!(
                reason.is_none() || help.contains("name constraint"),
                "{case}"
            );
        }
    }
}

#[test]
fn a_subtree_with_a_minimum_is_refused() {
    let with_minimum = element(
        0x30,
        &[
            element(0xa4, &element(0x30, &rdn(O, UTF8, "Example"))),
            element(0x80, &[0]),
        ]
        .concat(),
    );
    let verdicts = verdicts_below(&constraints(&[with_minimum], &[]), &agent());
    assert!(
        verdicts.iter().all(|(reason, _)| reason.is_some()),
        "{verdicts:?}"
    );
}

#[test]
fn names_that_cannot_be_compared_are_refused_below_a_constraint_on_directory_names() {
    let permitted = constraints(&[subtree(&[rdn(O, UTF8, "Example")])], &[]);
    let mut teletex = agent();
    let value = DnValue::TeletexString("Servers".try_into().unwrap());
    teletex.distinguished_name.push(DnType::LocalityName, value);
    // The alternative names contain another directory name.
    let named = |organization: &str| {
        let mut params = agent();
        let name = element(0x30, &rdn(O, UTF8, organization));
        let content = element(0x30, &element(0xa4, &name));
        let extension = CustomExtension::from_oid_content(&[2, 5, 29, 17], content);
        params.custom_extensions.push(extension);
        params
    };
    for (params, expected) in [
        (agent(), None),
        (teletex, REFUSED),
        (named("Example"), None),
        (named("Other"), REFUSED),
    ] {
        let verdicts = verdicts_below(&permitted, &params).map(|(reason, _)| reason);
        assert_eq!(verdicts, [expected; 2]);
    }
}
