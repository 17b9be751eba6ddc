//! CAs that mark extensions about policies as critical. They are accepted unless a policy is required, and every other
//! restriction of the path applies.

use crate::support::*;
use identity::Reason;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, ExtendedKeyUsagePurpose, GeneralSubtree,
    IsCa, KeyPair, NameConstraints, date_time_ymd,
};
use rustls_pki_types::CertificateDer;

/// `certificatePolicies` with anyPolicy, `policyMappings`, `policyConstraints` without a required policy, and
/// `inhibitAnyPolicy`.
const HARMLESS: [(u64, &[u8]); 4] = [
    (32, &[0x30, 8, 0x30, 6, 0x06, 4, 0x55, 0x1d, 0x20, 0]),
    (33, &[0x30, 8, 0x30, 6, 0x06, 1, 0x2a, 0x06, 1, 0x2b]),
    (36, &[0x30, 3, 0x81, 1, 0]),
    (54, &[0x02, 1, 0]),
];
const REQUIRED: (u64, &[u8]) = (36, &[0x30, 3, 0x80, 1, 0]);
const ANY: (u64, &[u8]) = HARMLESS[0];

fn with(mut params: CertificateParams, (id, value): (u64, &[u8])) -> CertificateParams {
    let mut extension = CustomExtension::from_oid_content(&[2, 5, 29, id], value.to_vec());
    extension.set_criticality(true);
    params.custom_extensions.push(extension);
    params
}

fn below(ca: &TestCa, params: CertificateParams, serial: u64) -> TestCa {
    ca.intermediate_with(params, KeyPair::generate().unwrap(), serial)
}

/// The verdict on an agent of the last CA. The bundle has all CAs, and each has a CRL.
fn verdict_below(cas: &[&TestCa]) -> (Option<Reason>, String) {
    let bundle: Vec<CertificateDer<'static>> = cas.iter().map(|ca| ca.der.clone()).collect();
    let crls: Vec<_> = cas.iter().map(|ca| ca.crl(1, &[66])).collect();
    let store = store(&bundle, &crls).unwrap();
    let agent = cas.last().unwrap().agent("web01.example.com", 9);
    let verification = store.verify(&[agent.der], now());
    let text = match reason(&verification) {
        Some(_) => refusal(&verification).help.clone(),
        None => String::new(),
    };
    (reason(&verification), text)
}

#[test]
fn critical_policies_that_require_none_are_accepted_on_any_ca_of_the_bundle() {
    for extension in HARMLESS {
        let params = |name| with(ca_params(name), extension);
        let plain_root = TestCa::root("root");
        let root = TestCa::root_with(params("root"), KeyPair::generate().unwrap());
        let sub = below(&plain_root, params("sub"), 2);
        let deep = below(&sub, params("deep"), 3);
        let plain = below(&sub, ca_params("plain"), 4);
        let below_plain = below(&plain, params("below plain"), 5);
        let below_root = below(&root, params("below root"), 6);
        for cas in [
            &[&root][..],
            &[&plain_root, &sub],
            &[&plain_root, &sub, &deep],
            &[&plain_root, &sub, &plain],
            &[&plain_root, &sub, &plain, &below_plain],
            &[&root, &below_root],
            // Without its root in the bundle, the CA is trusted directly.
            &[&sub],
        ] {
            let (reason, text) = verdict_below(cas);
            assert_eq!(reason, None, "{extension:?}, {} CAs: {text}", cas.len());
        }
    }
}

#[test]
fn a_required_policy_or_another_critical_extension_is_the_reason_for_a_refusal() {
    let root = TestCa::root("root");
    for (extension, words) in [
        (REQUIRED, "requireExplicitPolicy"),
        ((99, &[5, 0][..]), "the critical extension 2.5.29.99"),
        // A qualifier of another kind.
        (
            (
                32,
                &[
                    0x30, 17, 0x30, 15, 0x06, 4, 0x55, 0x1d, 0x20, 0, 0x30, 7, 0x30, 5, 0x06, 1,
                    0x2a, 5, 0,
                ],
            ),
            "a qualifier that the proxy does not support",
        ),
    ] {
        for params in [
            with(ca_params("sub"), extension),
            with(with(ca_params("sub"), ANY), extension),
        ] {
            if extension.0 == 32 && params.custom_extensions.len() == 2 {
                continue;
            }
            let sub = below(&root, params, 2);
            let (reason, text) = verdict_below(&[&root, &sub]);
            assert_eq!(reason, Some(Reason::CriticalExtension), "{words}");
            assert!(text.contains(words) && text.contains("CN=sub"), "{text}");
        }
    }
}

/// webpki ignores the required policy if it accepts the other extensions, but it refuses these.
#[test]
fn a_required_policy_beside_a_critical_extension_is_refused_although_it_is_not_critical() {
    let root = TestCa::root("root");
    let mut params = with(ca_params("sub"), ANY);
    let required = CustomExtension::from_oid_content(&[2, 5, 29, REQUIRED.0], REQUIRED.1.to_vec());
    params.custom_extensions.push(required);
    let (reason, text) = verdict_below(&[&root, &below(&root, params, 2)]);
    assert_eq!(reason, Some(Reason::CriticalExtension));
    assert!(text.contains("requireExplicitPolicy"), "{text}");
}

#[test]
fn every_other_restriction_of_the_path_holds() {
    let root = TestCa::root("root");
    let policies = |name| with(ca_params(name), ANY);
    let good = below(&root, policies("good"), 2);
    assert_eq!(verdict_below(&[&root, &good]).0, None);

    let mut params = policies("short");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let short = below(&root, params, 3);
    assert_eq!(verdict_below(&[&root, &short]).0, None);
    for next in [ca_params("below"), policies("below")] {
        let next = below(&short, next, 4);
        assert!(verdict_below(&[&root, &short, &next]).0.is_some());
    }
    let mut params = ca_params("one");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(1));
    let one = below(&root, params, 5);
    let two = below(&one, policies("two"), 6);
    assert_eq!(verdict_below(&[&root, &one, &two]).0, None);
    let three = below(&two, policies("three"), 7);
    assert!(verdict_below(&[&root, &one, &two, &three]).0.is_some());

    let mut params = policies("old");
    params.not_after = date_time_ymd(2025, 1, 1);
    let old = below(&root, params, 8);
    assert!(verdict_below(&[&root, &old]).0.is_some());

    // The root's CRL lists 66.
    let revoked = below(&root, policies("revoked"), 66);
    assert_eq!(verdict_below(&[&root, &revoked]).0, Some(Reason::Revoked));
    let under = below(&revoked, policies("under"), 9);
    assert_eq!(
        verdict_below(&[&root, &revoked, &under]).0,
        Some(Reason::Revoked)
    );

    for (domain, is_met) in [("example.com", true), ("example.org", false)] {
        let mut params = policies("constraining");
        params.name_constraints = Some(NameConstraints {
            permitted_subtrees: vec![GeneralSubtree::DnsName(domain.to_owned())],
            excluded_subtrees: Vec::new(),
        });
        let constraining = below(&root, params, 10);
        let (reason, text) = verdict_below(&[&root, &constraining]);
        assert_eq!(reason.is_none(), is_met, "{domain}: {reason:?} {text}");
        let next = below(&constraining, ca_params("next"), 11);
        assert_eq!(
            verdict_below(&[&root, &constraining, &next]).0.is_none(),
            is_met
        );
    }

    let both = [
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    for (usages, is_accepted) in [(&both[..], true), (&both[..1], false)] {
        let mut params = policies("purposes");
        params.extended_key_usages = usages.to_vec();
        let purposes = below(&root, params, 12);
        assert_eq!(verdict_below(&[&root, &purposes]).0.is_none(), is_accepted);
    }

    // This CA is signed by another CA with the root's name. Like any other CA, it is trusted as an anchor only if the operator
    // added it.
    let other = below(&TestCa::root("root"), policies("other"), 13);
    let store = store(
        &[root.der.clone(), good.der.clone()],
        &[root.crl(1, &[]), good.crl(1, &[])],
    );
    let store = store.unwrap();
    let agent = other.agent("web01.example.com", 9);
    let verification = store.verify(&[agent.der, other.der.clone()], now());
    assert_eq!(reason(&verification), Some(Reason::UnknownIssuer));
}

#[test]
fn a_restriction_above_policies_that_the_proxy_does_not_support_is_the_reason_for_a_refusal() {
    let plain = TestCa::root("root");
    let constrained = |mut params: CertificateParams, domain: &str| {
        params.name_constraints = Some(NameConstraints {
            permitted_subtrees: vec![GeneralSubtree::DnsName(domain.to_owned())],
            excluded_subtrees: Vec::new(),
        });
        params
    };
    let server = |mut params: CertificateParams| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params
    };
    let policies = || with(ca_params("policies"), ANY);
    let root = constrained(ca_params("constrained"), "example.com");
    let root = TestCa::root_with(root, KeyPair::generate().unwrap());
    let middle = below(&plain, constrained(ca_params("middle"), "example.com"), 2);
    let purposes = below(&plain, server(ca_params("purposes")), 3);
    let below_root = below(&root, policies(), 4);
    let below_middle = below(&middle, policies(), 5);
    let below_purposes = below(&purposes, policies(), 6);
    let own = below(&plain, server(policies()), 7);
    let next = below(&below_middle, ca_params("next"), 8);
    for (cas, words) in [
        (
            &[&root, &below_root][..],
            "name constraints of CN=constrained",
        ),
        (
            &[&plain, &middle, &below_middle],
            "name constraints of CN=middle",
        ),
        (
            &[&plain, &middle, &below_middle, &next],
            "name constraints of CN=middle",
        ),
        (
            &[&plain, &purposes, &below_purposes],
            "purposes of TLS of CN=purposes",
        ),
        (&[&plain, &own], "purposes of TLS of CN=policies"),
    ] {
        let (reason, text) = verdict_below(cas);
        assert_eq!(reason, Some(Reason::CriticalExtension), "{words}: {text}");
        assert!(text.contains(words), "{words}: {text}");
        assert!(
            text.contains("CN=policies has critical extensions"),
            "{text}"
        );
    }
    // The issuer of a certificate from another CA with the root's name stays unknown.
    let bundle = [plain.der.clone(), own.der.clone()];
    let store = store(&bundle, &[plain.crl(1, &[]), own.crl(1, &[])]).unwrap();
    let agent = TestCa::root("policies").agent("web01", 9);
    let verification = store.verify(&[agent.der], now());
    assert_eq!(reason(&verification), Some(Reason::UnknownIssuer));
}
