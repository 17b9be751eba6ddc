//! Responses of a CA: renewed certificates, and certificates of the CA itself.

use crate::support::*;
use pki::{
    CaCertificatesError, OwnRenewalError, RenewedCertificateError, check_own_renewal,
    check_renewed_certificate,
};
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType, DnValue,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};

/// A change of a certificate.
type Change<'c> = dyn Fn(&mut CertificateParams) + 'c;

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

fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().unwrap())
}

/// The proxy's certificate, which expires in 2030.
fn present_params() -> CertificateParams {
    let mut params = leaf_params("puppet", 5);
    let address = SanType::IpAddress([192, 0, 2, 5].into());
    params
        .subject_alt_names
        .extend([dns("Puppet.example.com"), address]);
    params.not_after = date_time_ymd(2030, 2, 1);
    params
}

/// The certificate that replaces it.
fn later() -> CertificateParams {
    let mut params = present_params();
    params.serial_number = Some(6.into());
    params.not_before = date_time_ymd(2029, 12, 31);
    params.not_after = date_time_ymd(2030, 4, 1);
    params
}

fn copy(key: &KeyPair) -> KeyPair {
    KeyPair::from_pem(&key.serialize_pem()).unwrap()
}

fn check_own(present: &Leaf, answer: &str) -> Result<(), OwnRenewalError> {
    check_own_renewal(&present.der, answer.as_bytes(), now())
}

#[test]
fn the_proxys_next_certificate_differs_from_the_present_one_in_its_dates_alone() {
    let puppet = Puppet::new();
    let present = puppet.ca.sign(present_params());
    let with = |change: &Change<'_>| {
        let mut params = later();
        change(&mut params);
        let renewed = puppet.ca.sign_key(&params, copy(&present.key));
        check_own(&present, &pem("CERTIFICATE", &renewed.der))
    };
    assert_eq!(with(&|_| ()), Ok(()));
    let respelled = |params: &mut CertificateParams| {
        params.subject_alt_names[1] = dns("puppet.EXAMPLE.com");
        params.subject_alt_names.push(dns("more"));
    };
    assert_eq!(with(&respelled), Ok(()));
    assert_eq!(with(&|params| params.is_ca = IsCa::ExplicitNoCa), Ok(()));
    let lost = |names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned());
        Err(OwnRenewalError::NamesLost(names.collect()))
    };
    let cases: [(&Change<'_>, _); 12] = [
        (&|p| drop(p.subject_alt_names.remove(0)), lost(&["puppet"])),
        (&|p| drop(p.subject_alt_names.pop()), lost(&["192.0.2.5"])),
        (
            &|p| p.subject_alt_names.clear(),
            lost(&["puppet", "Puppet.example.com", "192.0.2.5"]),
        ),
        // A wildcard is a different name, and a renewal must keep the names.
        (
            &|p| p.subject_alt_names[1] = dns("*.example.com"),
            lost(&["Puppet.example.com"]),
        ),
        (
            &|p| drop(p.extended_key_usages.pop()),
            Err(OwnRenewalError::Purposes),
        ),
        (
            &|p| p.extended_key_usages.push(ExtendedKeyUsagePurpose::Any),
            Err(OwnRenewalError::Purposes),
        ),
        (
            &|p| p.key_usages.push(KeyUsagePurpose::KeyCertSign),
            Err(OwnRenewalError::Purposes),
        ),
        (
            &|p| p.is_ca = IsCa::Ca(BasicConstraints::Unconstrained),
            Err(OwnRenewalError::Purposes),
        ),
        (
            &|p| {
                let oid = [1, 3, 6, 1, 4, 1, 34380, 1, 3, 39];
                let extension = CustomExtension::from_oid_content(&oid, b"\x0c\x04true".to_vec());
                p.custom_extensions.push(extension);
            },
            Err(OwnRenewalError::Authorization),
        ),
        (
            &|p| p.not_before = date_time_ymd(2030, 1, 2),
            Err(OwnRenewalError::NotYetValid(at(1_893_456_000 + 86_400))),
        ),
        (
            &|p| p.not_after = date_time_ymd(2030, 2, 1),
            Err(OwnRenewalError::ExpiresEarlier(at(
                1_893_456_000 + 31 * 86_400
            ))),
        ),
        (
            &|p| p.not_after = date_time_ymd(2029, 1, 1),
            Err(OwnRenewalError::ExpiresEarlier(at(
                1_893_456_000 - 365 * 86_400
            ))),
        ),
    ];
    for (change, expected) in cases {
        assert_eq!(with(change), expected);
    }
    let subject = |p: &mut CertificateParams| {
        p.distinguished_name = leaf_params("other", 1).distinguished_name
    };
    let error = with(&subject).unwrap_err().to_string();
    assert_eq!(error, "it is a certificate of CN=other");
}

#[test]
fn the_proxys_next_certificate_has_the_same_key_and_issuer() {
    let puppet = Puppet::new();
    let present = puppet.ca.sign(present_params());
    let of_another_key = puppet.ca.sign(later());
    let answer = pem("CERTIFICATE", &of_another_key.der);
    assert_eq!(check_own(&present, &answer), Err(OwnRenewalError::Key));
    let other = TestCa::root("Other CA").sign_key(&later(), copy(&present.key));
    let answer = pem("CERTIFICATE", &other.der);
    assert_eq!(
        check_own(&present, &answer),
        Err(OwnRenewalError::Issuer("CN=Other CA".into()))
    );
    for garbage in ["", "north", &answer.repeat(2), &answer[..90]] {
        let error = check_own(&present, garbage).unwrap_err();
        assert!(matches!(error, OwnRenewalError::Unrelated(_)), "{error}");
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
