//! The CAs that a changed bundle must contain: those above the proxy's own certificates, above members' certificates, and above
//! agents that were seen recently.

use std::time::Duration;

use crate::support::*;
use pki::{CA_SEEN_WITHIN, CertificatePurpose, TrustStore};
use rustls_pki_types::UnixTime;

fn later(time: Duration) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(now().as_secs()) + time)
}

fn of(cas: &[&Puppet]) -> TrustStore {
    let bundle: Vec<_> = cas.iter().flat_map(|ca| ca.bundle()).collect();
    let crls: Vec<_> = cas.iter().flat_map(|ca| ca.crls(1, &[])).collect();
    store(&bundle, &crls).unwrap()
}

#[test]
fn a_ca_is_in_use_for_a_day_after_an_agent_below_it_was_verified() {
    let (ours, theirs) = (Puppet::new(), Puppet::new());
    let (both, alone) = (of(&[&ours, &theirs]), of(&[&ours]));
    let lost = |since| alone.seen_cas_lost(&both, since, now());
    assert!(lost(now()).is_empty(), "no agent was seen");
    assert_eq!(both.cas_seen(now()), "");
    let expired = UnixTime::since_unix_epoch(Duration::from_secs(IN_2041));
    let agent = theirs.ca.agent("web01", 5).der;
    both.verify(std::slice::from_ref(&agent), expired);
    assert!(lost(now()).is_empty(), "a refused agent does not count");
    both.verify(&[agent], now());
    let names = ["CN=Puppet CA: test", "CN=Puppet Root CA: test"];
    assert_eq!(lost(now()), names);
    // The CA is required until the end of the hour in which one day has passed.
    let hour = Duration::from_secs(3600);
    let since = |days: Duration| lost(later(days));
    assert_eq!(since(Duration::from_secs(1)), names);
    assert!(since(hour + Duration::from_secs(1)).is_empty());
    assert_eq!(CA_SEEN_WITHIN, 24 * hour);
    // The times are stored and restored, with invalid lines in between.
    let stored = both.cas_seen(now());
    assert_eq!(stored.lines().count(), 2, "{stored}");
    let next = of(&[&ours, &theirs]);
    next.restore_cas_seen(&format!("no line\n00 7\n{stored}x y\n"), now());
    assert_eq!(next.cas_seen(now()), stored);
    assert_eq!(alone.seen_cas_lost(&next, now(), now()), names);
}

#[test]
fn the_cas_above_a_certificate_do_not_depend_on_crls() {
    let (ours, theirs) = (Puppet::new(), Puppet::new());
    let own = ours.ca.agent("front", 5).der;
    let revoked = store(&ours.bundle(), &ours.crls(2, &[5])).unwrap();
    let chain = std::slice::from_ref(&own);
    let purpose = CertificatePurpose::Server;
    let cas = revoked.cas_above(chain, purpose, now()).unwrap();
    assert_eq!(cas.len(), 2);
    let strange = of(&[&theirs]);
    assert_eq!(strange.cas_above(chain, purpose, now()), None);
    let names = ["CN=Puppet CA: test", "CN=Puppet Root CA: test"];
    assert_eq!(strange.cas_lost(&revoked, &cas), names);
    let cut = store(std::slice::from_ref(&ours.ca.der), &ours.crls(1, &[])).unwrap();
    assert_eq!(cut.cas_lost(&revoked, &cas), names[1..]);
    assert!(of(&[&theirs, &ours]).cas_lost(&revoked, &cas).is_empty());
}

#[test]
fn a_certificate_is_verified_only_for_its_purposes() {
    let ours = Puppet::new();
    let mut params = leaf_params("front", 5);
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let for_members = [ours.ca.sign(params).der];
    let store = of(&[&ours]);
    let cas = |purpose| store.cas_above(&for_members, purpose, now());
    assert_eq!(cas(CertificatePurpose::Server), None);
    assert_eq!(
        cas(CertificatePurpose::Client).map(|cas| cas.len()),
        Some(2)
    );
}

/// The same CA (name and key) with another certificate.
fn again(ca: &TestCa, change: impl FnOnce(&mut rcgen::CertificateParams)) -> TrustStore {
    let mut params = ca_params("Puppet CA: test");
    change(&mut params);
    let key = rcgen::KeyPair::try_from(ca.issuer.key().serialize_der()).unwrap();
    let copy = TestCa::root_with(params, key);
    store(std::slice::from_ref(&copy.der), &[copy.crl(1, &[])]).unwrap()
}

#[test]
fn a_copy_of_a_ca_that_verifies_fewer_agents_counts_as_lost() {
    let ca = TestCa::root("Puppet CA: test");
    let before = store(std::slice::from_ref(&ca.der), &[ca.crl(1, &[])]).unwrap();
    before.verify(&[ca.agent("web01", 5).der], now());
    let lost = |after: &TrustStore| after.seen_cas_lost(&before, now(), now());
    let names = ["CN=Puppet CA: test"];
    let date = rcgen::date_time_ymd;
    let renewed = again(&ca, |params| params.not_after = date(2050, 1, 1));
    assert!(lost(&renewed).is_empty());
    let expired = again(&ca, |params| params.not_after = date(2029, 1, 1));
    assert_eq!(lost(&expired), names, "expired");
    let future = again(&ca, |params| params.not_before = date(2031, 1, 1));
    assert_eq!(lost(&future), names, "not yet valid");
    let constrained = again(&ca, |params| {
        params.name_constraints = Some(rcgen::NameConstraints {
            permitted_subtrees: vec![rcgen::GeneralSubtree::DnsName("example.com".to_owned())],
            excluded_subtrees: Vec::new(),
        });
    });
    assert_eq!(lost(&constrained), names, "name constraints");
    let other_purpose = again(&ca, |params| {
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::CodeSigning];
    });
    assert_eq!(lost(&other_purpose), names, "purpose");
}

#[test]
fn a_clock_that_was_ahead_does_not_keep_a_ca_in_use_for_years() {
    let (ours, theirs) = (Puppet::new(), Puppet::new());
    let (both, alone) = (of(&[&ours, &theirs]), of(&[&ours]));
    let hour = Duration::from_secs(3600);
    let agent = theirs.ca.agent("web01", 5).der;
    both.verify(&[agent], later(1000 * hour));
    // The times are stored by a wrong clock and restored by the right one, and restored from a damaged file.
    let damaged: String = both
        .cas_seen(later(1000 * hour))
        .lines()
        .map(|line| format!("{line}9\n"))
        .collect();
    let stored = both.cas_seen(now());
    let is_in_use =
        |store: &TrustStore, at| !alone.seen_cas_lost(store, later(at), later(at)).is_empty();
    assert!(is_in_use(&both, hour));
    assert!(!is_in_use(&both, 3 * hour));
    for found in [stored, damaged] {
        let next = of(&[&ours, &theirs]);
        next.restore_cas_seen(&found, now());
        assert!(is_in_use(&next, hour));
        assert!(!is_in_use(&next, 3 * hour), "{found}");
    }
}

#[test]
fn an_agent_that_stays_connected_keeps_its_ca_in_use() {
    let (ours, theirs) = (Puppet::new(), Puppet::new());
    let (both, alone) = (of(&[&ours, &theirs]), of(&[&ours]));
    let verification = both.verify(&[theirs.ca.agent("web01", 5).der], now());
    let tomorrow = later(Duration::from_secs(25 * 3600));
    let lost = || alone.seen_cas_lost(&both, tomorrow, tomorrow);
    assert!(lost().is_empty());
    both.note_in_use(&verification, tomorrow);
    assert_eq!(lost().len(), 2);
}
