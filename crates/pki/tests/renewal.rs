//! Responses of a CA: renewed certificates, and the CA's own certificates.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use pki::{CaCertificatesError, RenewedCertificateError, check_renewed_certificate};
use rcgen::{DistinguishedName, DnType, DnValue, KeyPair};
use support::*;

fn check(leaf: &Leaf, answer: &str) -> Result<(), String> {
    let checked = check_renewed_certificate(&leaf.der, answer.as_bytes());
    checked.map_err(|error| error.to_string())
}

#[test]
fn a_renewed_certificate_has_the_same_subject_and_key_in_any_encoding() {
    let puppet = Puppet::new();
    let agent = puppet.ca.agent("web01", 5);
    let key = || KeyPair::from_pem(&agent.key.serialize_pem()).unwrap();
    let subject = |attributes: &[(DnType, DnValue)]| {
        let mut params = leaf_params("web01", 6);
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in attributes {
            params.distinguished_name.push(kind.clone(), value.clone());
        }
        pem("CERTIFICATE", &puppet.ca.sign_key(&params, key()).der)
    };
    let cn = |value| (DnType::CommonName, value);
    let printable = |text: &str| DnValue::PrintableString(text.try_into().unwrap());
    let utf8 = |text: &str| DnValue::Utf8String(text.to_owned());
    assert_eq!(check(&agent, &subject(&[cn(utf8("web01"))])), Ok(()));
    assert_eq!(check(&agent, &subject(&[cn(printable("web01"))])), Ok(()));
    let unit = (DnType::OrganizationalUnitName, utf8("web01"));
    for other in [
        vec![cn(utf8("WEB01"))],
        vec![cn(utf8("web01 "))],
        vec![cn(utf8("web01")), unit.clone()],
        vec![unit.clone(), cn(utf8("web01"))],
        vec![unit],
        vec![],
    ] {
        let error = check(&agent, &subject(&other)).unwrap_err();
        assert!(error.starts_with("it is a certificate of "), "{error}");
    }
    let of_another_key = pem("CERTIFICATE", &puppet.ca.agent("web01", 7).der);
    let checked = check_renewed_certificate(&agent.der, of_another_key.as_bytes());
    assert_eq!(checked, Err(RenewedCertificateError::Key));
}

#[test]
fn only_a_single_certificate_is_accepted_as_renewed() {
    let puppet = Puppet::new();
    let agent = puppet.ca.agent("web01", 5);
    let good = pem("CERTIFICATE", &agent.der);
    assert_eq!(check(&agent, &good), Ok(()));
    assert_eq!(check(&agent, &format!("\n{good}\n")), Ok(()));
    for bad in [
        String::new(),
        good.repeat(2),
        format!("web01\n{good}"),
        format!("{good}web01"),
        good.replace("CERTIFICATE", "TRUSTED CERTIFICATE"),
        good.replace("CERTIFICATE", "X509 CRL"),
        good.replace('\n', " "),
        good[..good.len() / 2].to_owned(),
        pem("CERTIFICATE", b"\x30\x03\x02\x01\x01"),
        pem("CERTIFICATE", &[&agent.der[..], b"\0"].concat()),
    ] {
        let error = check(&agent, &bad).unwrap_err();
        assert!(
            error.starts_with("it is not a single certificate"),
            "{bad}: {error}"
        );
    }
}

#[test]
fn only_certificates_of_the_bundle_are_accepted_from_the_ca() {
    let puppet = Puppet::new();
    let store = puppet.store();
    let text = |der: &[u8]| pem("CERTIFICATE", der);
    let (ca, root) = (text(&puppet.ca.der), text(&puppet.root.der));
    for good in [
        format!("{ca}{root}"),
        format!("{root}{ca}"),
        ca.clone(),
        format!("Puppet's\n{ca}"),
    ] {
        assert_eq!(store.check_cas(good.as_bytes()), Ok(()));
    }
    let other = text(&Puppet::new().ca.der);
    let agent = text(&puppet.ca.agent("web01", 5).der);
    for strange in [&other, &agent, &format!("{ca}{root}{other}")] {
        let checked = store.check_cas(strange.as_bytes());
        assert!(
            matches!(checked, Err(CaCertificatesError::Strange(_))),
            "{checked:?}"
        );
    }
    let list = pem("X509 CRL", &puppet.ca.crl(1, &[]));
    for unreadable in [
        format!("{ca}{list}"),
        ca[..ca.len() / 2].to_owned(),
        text(b"\x30"),
    ] {
        let checked = store.check_cas(unreadable.as_bytes());
        assert_eq!(
            checked,
            Err(CaCertificatesError::Unreadable),
            "{unreadable}"
        );
    }
    assert_eq!(store.check_cas(b""), Err(CaCertificatesError::Empty));
}
