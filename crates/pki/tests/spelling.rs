//! CA names whose string types differ from those in the CA's own certificate. Puppet Server encodes the name of an imported CA
//! in its own way in every certificate that it signs. The name is the same, and all other checks apply.

use std::sync::Arc;

use crate::support::tls::{Fixed, shake};
use crate::support::*;
use identity::Reason;
use pki::{MemberNames, TrustSettings, TrustStore, client_config};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, DnValue, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, date_time_ymd,
};
use rustls::ServerConfig;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

#[test]
fn agents_of_an_imported_ca_are_verified_at_any_level() {
    for spelled in [printable, bmp] {
        let root = TestCa::root("root");
        let above = Spelled::below(&root, spelled);
        let alone = Spelled::root(spelled);
        for (bundle, ca, above) in [
            (vec![&root.der, &above.ca.der], &above, Some(&root)),
            (vec![&above.ca.der], &above, None),
            (vec![&alone.ca.der], &alone, None),
        ] {
            let lists = |serials: &[u64]| {
                [
                    above.map(|root| root.crl(1, &[])),
                    Some(ca.ca.crl(1, serials)),
                ]
            };
            let store = |serials: &[u64]| store_of(&bundle, &lists(serials));
            let agent = ca.agent("web01", 5);
            let (open, revoking) = (store(&[6]), store(&[5]));
            let verification = open.verify(std::slice::from_ref(&agent.der), now());
            let name = verification
                .identity
                .agent()
                .map(|agent| agent.dn().to_owned());
            assert_eq!(
                name.as_deref(),
                Some("CN=web01"),
                "{:?}",
                verification.identity
            );
            assert_eq!(verdict(&revoking, &agent), Some(Reason::Revoked));
            let again = revoking.reverify(&verification, now());
            assert_eq!(reason(&again), Some(Reason::Revoked));
            assert!(open.check_member(&agent.der, now()).is_ok());
            assert!(revoking.check_member(&agent.der, now()).is_err());
        }
    }
}

#[test]
fn the_client_may_send_the_imported_ca_itself() {
    let root = TestCa::root("root");
    let ca = Spelled::below(&root, printable);
    let store = store_of(
        &[&root.der],
        &[Some(root.crl(1, &[])), Some(ca.ca.crl(1, &[9]))],
    );
    let verdict_of = |serial| {
        let chain = [ca.agent("web01", serial).der, ca.ca.der.clone()];
        reason(&store.verify(&chain, now()))
    };
    assert_eq!(
        (verdict_of(5), verdict_of(9)),
        (None, Some(Reason::Revoked))
    );
}

#[test]
fn a_revoked_imported_ca_revokes_its_agents() {
    let root = TestCa::root("root");
    let ca = Spelled::below(&root, printable);
    let store = store_of(
        &[&root.der, &ca.ca.der],
        &[Some(root.crl(1, &[SERIAL])), Some(ca.ca.crl(1, &[]))],
    );
    assert_eq!(
        verdict(&store, &ca.agent("web01", 5)),
        Some(Reason::Revoked)
    );
}

#[test]
fn members_with_certificates_of_such_a_ca_are_verified() {
    let root = TestCa::root("root");
    let ca = Spelled::below(&root, printable);
    let store = |serials: &[u64]| {
        let lists = [Some(root.crl(1, &[])), Some(ca.ca.crl(1, serials))];
        Arc::new(store_of(&[&root.der, &ca.ca.der], &lists))
    };
    let mut params = leaf_params("puppet", 5);
    params.subject_alt_names = vec![SanType::DnsName("puppet".try_into().unwrap())];
    let member = ca.sign(&name_of(NAME.into()), &params);
    let key = PrivateKeyDer::try_from(member.key.serialize_der()).unwrap();
    let member = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![member.der], key)
        .unwrap();
    let member = Arc::new(member);
    let believed = |store| {
        let names = MemberNames {
            indicated: true,
            from_cn: false,
        };
        let mut client = (*client_config(&store, None, names).unwrap()).clone();
        client.time_provider = Arc::new(Fixed);
        shake(&Arc::new(client), &member).0.is_ok()
    };
    assert_eq!((believed(store(&[])), believed(store(&[5]))), (true, false));
}

#[test]
fn a_crl_with_another_encoding_of_the_name_belongs_to_that_ca() {
    let root = TestCa::root("root");
    let ca = Spelled::below(&root, printable);
    let in_utf8 = ca.calling_itself(&name_of(NAME.into()));
    let list = crl_params(1, &[5], 2040).signed_by(&in_utf8).unwrap();
    let lists = [Some(root.crl(1, &[])), Some(list.der().clone())];
    let agents = [4, 5].map(|serial| ca.agent("web01", serial));
    let known = store_of(&[&root.der, &ca.ca.der], &lists);
    assert!(known.warnings().is_empty(), "{:?}", known.warnings());
    let actual = agents.each_ref().map(|agent| verdict(&known, agent));
    assert_eq!(actual, [None, Some(Reason::Revoked)]);
    let sent = store_of(&[&root.der], &lists);
    let actual = agents.map(|agent| reason(&sent.verify(&[agent.der, ca.ca.der.clone()], now())));
    assert_eq!(actual, [None, Some(Reason::Revoked)]);
}

#[test]
fn another_key_or_another_name_is_another_ca() {
    let ca = Spelled::root(printable);
    let store = store_of(&[&ca.ca.der], &[Some(ca.ca.crl(1, &[]))]);
    let forged = Spelled::root(printable).agent("web01", 5);
    let verification = store.verify(std::slice::from_ref(&forged.der), now());
    assert_eq!(reason(&verification), Some(Reason::UnknownIssuer));
    let actual = format!("{:?}", verification.identity);
    assert!(
        actual.contains("The CA's key did not sign this certificate"),
        "{actual}"
    );
    // The key is the same, and the names differ.
    for name in [
        "puppet ca: x",
        "Puppet CA: y",
        "Puppet CA:  x",
        "Puppet CA: x ",
    ] {
        let agent = ca.agent_of(&[(DnType::CommonName, name.into())], "web01");
        assert_eq!(
            verdict(&store, &agent),
            Some(Reason::UnknownIssuer),
            "{name:?}"
        );
    }
    let more = [
        (DnType::OrganizationName, "o".into()),
        (DnType::CommonName, NAME.into()),
    ];
    let agent = ca.agent_of(&more, "web01");
    assert_eq!(verdict(&store, &agent), Some(Reason::UnknownIssuer));
}

#[test]
fn such_a_ca_must_pass_the_checks_of_every_ca() {
    type Change = fn(&mut CertificateParams);
    let cases: &[(Change, Option<Reason>)] = &[
        (|_| {}, None),
        (
            |p| p.is_ca = IsCa::Ca(BasicConstraints::Constrained(0)),
            None,
        ),
        (
            |p| p.is_ca = IsCa::ExplicitNoCa,
            Some(Reason::UnknownIssuer),
        ),
        (
            |p| p.key_usages = vec![KeyUsagePurpose::CrlSign],
            Some(Reason::PathConstraint),
        ),
        (
            |p| p.not_after = date_time_ymd(2029, 12, 31),
            Some(Reason::UnknownIssuer),
        ),
        (
            |p| p.not_before = date_time_ymd(2030, 1, 2),
            Some(Reason::UnknownIssuer),
        ),
        (
            |p| {
                p.name_constraints = Some(rcgen::NameConstraints {
                    permitted_subtrees: vec![rcgen::GeneralSubtree::DnsName("example.com".into())],
                    excluded_subtrees: Vec::new(),
                });
            },
            Some(Reason::UnknownIssuer),
        ),
    ];
    for (index, (change, expected)) in cases.iter().enumerate() {
        let root = TestCa::root("root");
        let ca = Spelled::below_with(&root, printable, change);
        let lists = [Some(root.crl(1, &[]))];
        let settings = unchecked(&["CN=Puppet CA: x"]);
        let lists: Vec<_> = lists.into_iter().flatten().collect();
        // The client sends the CA certificate, so the bundle does not decide whether it is a CA.
        let store = store_with(std::slice::from_ref(&root.der), &lists, &settings, None).unwrap();
        let chain = [ca.agent("web01", 5).der, ca.ca.der.clone()];
        assert_eq!(
            reason(&store.verify(&chain, now())),
            *expected,
            "case {index}"
        );
    }
}

#[test]
fn constraints_of_the_root_apply_below_such_a_ca() {
    let mut params = ca_params("root");
    params.name_constraints = Some(rcgen::NameConstraints {
        permitted_subtrees: vec![rcgen::GeneralSubtree::DnsName("example.com".into())],
        excluded_subtrees: Vec::new(),
    });
    params.distinguished_name = name_of(printable(NAME));
    let ca = Spelled::of(TestCa::root_with, params);
    let store = store_of(&[&ca.ca.der], &[Some(ca.ca.crl(1, &[]))]);
    for (name, expected) in [
        ("web01.example.com", None),
        ("web01.example.org", Some(Reason::PathConstraint)),
    ] {
        let mut params = leaf_params("web01", 5);
        params.subject_alt_names = vec![SanType::DnsName(name.try_into().unwrap())];
        let agent = ca.sign(&name_of(NAME.into()), &params);
        assert_eq!(verdict(&store, &agent), expected, "{name}");
    }
}

#[test]
fn further_from_the_root_names_must_match_byte_for_byte() {
    let root = TestCa::root("root");
    let policy = root.intermediate("policy", 3);
    let ca = Spelled::below(&policy, printable);
    let store = store_of(
        &[&root.der, &policy.der, &ca.ca.der],
        &[
            Some(root.crl(1, &[])),
            Some(policy.crl(1, &[])),
            Some(ca.ca.crl(1, &[])),
        ],
    );
    let agent = ca.agent("web01", 5);
    let verification = store.verify(std::slice::from_ref(&agent.der), now());
    assert_eq!(reason(&verification), Some(Reason::UnknownIssuer));
    let actual = format!("{:?}", verification.identity);
    assert!(actual.contains("directly below a root"), "{actual}");
    let same = ca.agent_of(&[(DnType::CommonName, printable(NAME))], "web01");
    assert_eq!(verdict(&store, &same), None);
}

const NAME: &str = "Puppet CA: x";
const SERIAL: u64 = 7;

fn printable(name: &str) -> DnValue {
    DnValue::PrintableString(name.try_into().unwrap())
}

fn bmp(name: &str) -> DnValue {
    DnValue::BmpString(name.try_into().unwrap())
}

fn name_of(value: DnValue) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, value);
    name
}

/// A CA, with its key to sign with other encodings of its name.
struct Spelled {
    ca: TestCa,
    key_der: Vec<u8>,
}

impl Spelled {
    fn of(
        make: impl FnOnce(CertificateParams, KeyPair) -> TestCa,
        params: CertificateParams,
    ) -> Self {
        let key = KeyPair::generate().unwrap();
        let key_der = key.serialize_der();
        Self {
            ca: make(params, key),
            key_der,
        }
    }

    fn root(spelled: fn(&str) -> DnValue) -> Self {
        let mut params = ca_params(NAME);
        params.distinguished_name = name_of(spelled(NAME));
        Self::of(TestCa::root_with, params)
    }

    fn below(above: &TestCa, spelled: fn(&str) -> DnValue) -> Self {
        Self::below_with(above, spelled, &|_| {})
    }

    fn below_with(
        above: &TestCa,
        spelled: fn(&str) -> DnValue,
        change: &dyn Fn(&mut CertificateParams),
    ) -> Self {
        let mut params = ca_params(NAME);
        params.distinguished_name = name_of(spelled(NAME));
        change(&mut params);
        Self::of(
            |params, key| above.intermediate_with(params, key, SERIAL),
            params,
        )
    }

    /// A root with the same key and this encoding of its name.
    fn once_more(&self, name: DistinguishedName) -> Self {
        let mut params = ca_params(NAME);
        params.distinguished_name = name;
        let key = KeyPair::try_from(self.key_der.as_slice()).unwrap();
        Self {
            ca: TestCa::root_with(params, key),
            key_der: self.key_der.clone(),
        }
    }

    /// An agent's certificate, signed as Puppet Server signs it.
    fn agent(&self, name: &str, serial: u64) -> Leaf {
        self.sign(&name_of(NAME.into()), &leaf_params(name, serial))
    }

    fn agent_of(&self, issuer: &[(DnType, DnValue)], name: &str) -> Leaf {
        let mut spelled = DistinguishedName::new();
        for (kind, value) in issuer {
            spelled.push(kind.clone(), value.clone());
        }
        self.sign(&spelled, &leaf_params(name, 5))
    }

    fn sign(&self, issuer: &DistinguishedName, params: &CertificateParams) -> Leaf {
        let key = KeyPair::generate().unwrap();
        let signed = params.signed_by(&key, &self.calling_itself(issuer));
        let der = signed.unwrap().der().clone();
        Leaf { der, key }
    }

    fn calling_itself(&self, name: &DistinguishedName) -> Issuer<'static, KeyPair> {
        let mut params = ca_params(NAME);
        params.distinguished_name = name.clone();
        let key = KeyPair::try_from(self.key_der.as_slice()).unwrap();
        Issuer::new(params, key)
    }
}

fn store_of(
    bundle: &[&CertificateDer<'static>],
    lists: &[Option<rustls_pki_types::CertificateRevocationListDer<'static>>],
) -> TrustStore {
    let bundle: Vec<_> = bundle.iter().map(|der| (*der).clone()).collect();
    let lists: Vec<_> = lists.iter().flatten().cloned().collect();
    store_with(&bundle, &lists, &TrustSettings::default(), None).unwrap()
}

#[test]
fn a_ca_with_two_encodings_of_its_name_has_one_crl() {
    let old = Spelled::root(printable);
    let renewed = old.once_more(name_of(NAME.into()));
    for bundle in [[&old.ca, &renewed.ca], [&renewed.ca, &old.ca]] {
        let bundle = bundle.map(|ca| &ca.der);
        for (first, second) in [(&old, &renewed), (&renewed, &old)] {
            // One of the two has no CRL of its own, or an old CRL.
            for stale in [None, Some(first.ca.crl(1, &[]))] {
                let list = second.ca.crl(2, &[5]);
                let lists = [stale, Some(list)];
                let settings = unchecked(&["*"]);
                let ders: Vec<_> = bundle.iter().map(|der| (*der).clone()).collect();
                let lists: Vec<_> = lists.into_iter().flatten().collect();
                let strict = store_with(&ders, &lists, &TrustSettings::default(), None).unwrap();
                let lenient = store_with(&ders, &lists, &settings, None).unwrap();
                for store in [&strict, &lenient] {
                    for spelled in [NAME.into(), printable(NAME)] {
                        let actual = [4, 5].map(|serial| {
                            let params = leaf_params("web01", serial);
                            verdict(store, &old.sign(&name_of(spelled.clone()), &params))
                        });
                        assert_eq!(actual, [None, Some(Reason::Revoked)], "{spelled:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn sending_a_ca_with_another_encoding_does_not_evade_its_crl() {
    let root = TestCa::root("root");
    let ca = Spelled::below(&root, printable);
    let mut params = ca_params(NAME);
    params.distinguished_name = name_of(NAME.into());
    let key = KeyPair::try_from(ca.key_der.as_slice()).unwrap();
    let again = root.intermediate_with(params, key, 8);
    let lists = [root.crl(1, &[]), ca.ca.crl(1, &[5])];
    for settings in [TrustSettings::default(), unchecked(&["*"])] {
        for bundle in [vec![&root.der], vec![&root.der, &ca.ca.der]] {
            let bundle: Vec<_> = bundle.into_iter().cloned().collect();
            let store = store_with(&bundle, &lists, &settings, None).unwrap();
            let actual = [4, 5].map(|serial| {
                let chain = [ca.agent("web01", serial).der, again.der.clone()];
                reason(&store.verify(&chain, now()))
            });
            assert_eq!(actual, [None, Some(Reason::Revoked)], "{bundle:?}");
        }
    }
}

#[test]
fn a_self_issued_root_certificate_does_not_evade_a_crl() {
    let root = Spelled::root(printable);
    let mut params = ca_params(NAME);
    params.distinguished_name = name_of(NAME.into());
    let again = root.sign(&name_of(NAME.into()), &params);
    let twin = root.once_more(name_of(NAME.into()));
    for settings in [TrustSettings::default(), unchecked(&["*"])] {
        let bundle = [root.ca.der.clone()];
        let store = store_with(&bundle, &[root.ca.crl(1, &[5])], &settings, None).unwrap();
        for beside in [&again.der, &twin.ca.der] {
            let chain = [root.agent("web01", 5).der, beside.clone()];
            let actual = reason(&store.verify(&chain, now()));
            assert_eq!(actual, Some(Reason::Revoked));
        }
    }
}
