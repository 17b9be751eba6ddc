//! The messages of refusals and problems.

use crate::support::*;
use identity::Reason;
use pki::{TrustMaterial, TrustSettings, TrustStore};
use rcgen::{KeyPair, date_time_ymd};

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
        refusal(&junk).text().contains("The parser reports: "),
        "{}",
        refusal(&junk).text()
    );
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
fn of_several_paths_the_refusal_reports_the_fault_that_the_user_can_fix() {
    // The same CA is below two roots. One path has a revoked certificate, and the other is too long.
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
