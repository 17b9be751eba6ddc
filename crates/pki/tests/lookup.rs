//! Tests of looking up one serial in CRLs.

use crate::support::*;
use pki::{Named, SerialNumber, crl_entry_in_pem, facts_of};
use rcgen::RevocationReason;

fn serial(text: &str) -> SerialNumber {
    SerialNumber::parse(text).unwrap()
}

const CA: &str = "CN=Puppet CA: test";

#[test]
fn the_crl_of_every_ca_with_the_name_is_searched_for_the_serial() {
    let puppet = Puppet::new();
    // The CA was created again, with another key and the same name.
    let again = puppet.root.intermediate("Puppet CA: test", 3);
    let mut bundle = puppet.bundle();
    bundle.push(again.der.clone());
    let crls = [
        puppet.ca.crl(7, &[5]),
        again.crl(8, &[6]),
        puppet.root.crl(1, &[]),
    ];
    let store = store(&bundle, &crls).unwrap();
    let listed = |text: &str| {
        let listings = store.listings(CA, &serial(text), now());
        let mut found: Vec<_> = listings
            .iter()
            .map(|listing| {
                (
                    listing.crl.as_ref().unwrap().number.clone(),
                    listing.is_listed,
                )
            })
            .collect();
        found.sort();
        found
    };
    let both = |seven, eight| vec![("7".to_owned(), seven), ("8".to_owned(), eight)];
    assert_eq!(listed("05"), both(true, false));
    assert_eq!(listed("06"), both(false, true));
    assert_eq!(listed("07"), both(false, false));
    assert!(
        store
            .listings("CN=Unknown", &serial("05"), now())
            .is_empty()
    );
}

#[test]
fn a_ca_without_a_crl_is_reported_as_such() {
    let puppet = Puppet::new();
    let store = store(&puppet.bundle(), &[puppet.root.crl(1, &[])]).unwrap();
    let listings = store.listings(CA, &serial("05"), now());
    assert_eq!(listings.len(), 1);
    assert!(listings[0].crl.is_none() && !listings[0].is_listed);
}

#[test]
fn an_entry_has_its_date_and_reason() {
    let puppet = Puppet::new();
    let mut params = crl_params(7, &[4, 5, 6], 2040);
    params.revoked_certs[1].reason_code = Some(RevocationReason::KeyCompromise);
    params.revoked_certs[2].reason_code = Some(RevocationReason::AaCompromise);
    let list = params.signed_by(&puppet.ca.issuer).unwrap().der().clone();
    let lists = [puppet.root.crl(1, &[5]), list, puppet.ca.crl(8, &[9])];
    let text: String = lists.iter().map(|der| pem("X509 CRL", der)).collect();
    let named = Named::new("crl.pem", text.into_bytes());
    let entry = |issuer: &str, text: &str| {
        let entry = crl_entry_in_pem(&named, issuer, &serial(text))?;
        assert_eq!(entry.revoked_at, at(1_609_459_200));
        Some(entry.reason)
    };
    assert_eq!(entry(CA, "04"), Some(None));
    assert_eq!(entry(CA, "05"), Some(Some("keyCompromise")));
    assert_eq!(entry(CA, "06"), Some(Some("aACompromise")));
    assert_eq!(entry(CA, "09"), Some(None), "of a later block");
    assert_eq!(entry(CA, "07"), None);
    assert_eq!(entry("CN=Puppet Root CA: test", "05"), Some(None));
    assert_eq!(entry("CN=Unknown", "05"), None);
    let rubbish = Named::new(
        "crl.pem",
        b"-----BEGIN X509 CRL-----\nMAA=\n-----END X509 CRL-----\n".to_vec(),
    );
    assert_eq!(crl_entry_in_pem(&rubbish, CA, &serial("05")), None);
    assert_eq!(
        crl_entry_in_pem(&Named::new("none", Vec::new()), CA, &serial("05")),
        None
    );
}

#[test]
fn the_facts_of_a_certificate_do_not_depend_on_its_signer() {
    let puppet = Puppet::new();
    let agent = puppet.ca.agent("web01", 0x9a05);
    let facts = facts_of(&agent.der).unwrap();
    assert_eq!(
        (&*facts.subject, &*facts.issuer, &*facts.serial),
        ("CN=web01", CA, "0x9A05")
    );
    assert_eq!(
        (facts.not_before, facts.not_after),
        (at(1_577_836_800), at(2_177_452_800))
    );
    assert_eq!(facts_of(&agent.der[1..]), None);
}
