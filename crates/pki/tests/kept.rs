//! Which CAs a changed bundle must keep: those above our own certificates, the members' and agents seen lately.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;

use std::time::Duration;

use pki::{CA_SEEN_WITHIN, TrustStore};
use rustls_pki_types::UnixTime;
use support::*;

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
    let lost = |since| alone.seen_cas_lost(&both, since);
    assert!(lost(now()).is_empty(), "no agent was seen");
    assert_eq!(both.cas_seen(), "");
    let expired = UnixTime::since_unix_epoch(Duration::from_secs(IN_2041));
    let agent = theirs.ca.agent("web01", 5).der;
    both.judge(std::slice::from_ref(&agent), expired);
    assert!(lost(now()).is_empty(), "a refused agent does not count");
    both.judge(&[agent], now());
    let names = ["CN=Puppet CA: test", "CN=Puppet Root CA: test"];
    assert_eq!(lost(now()), names);
    // Until the hour after a day is over.
    let hour = Duration::from_secs(3600);
    let since = |days: Duration| lost(later(days));
    assert_eq!(since(Duration::from_secs(1)), names);
    assert!(since(hour + Duration::from_secs(1)).is_empty());
    assert_eq!(CA_SEEN_WITHIN, 24 * hour);
    // As it is stored and read again, with lines that are of no use beside it.
    let stored = both.cas_seen();
    assert_eq!(stored.lines().count(), 2, "{stored}");
    let next = of(&[&ours, &theirs]);
    next.restore_cas_seen(&format!("no line\n00 7\n{stored}x y\n"));
    assert_eq!(next.cas_seen(), stored);
    assert_eq!(alone.seen_cas_lost(&next, now()), names);
}

#[test]
fn the_cas_above_a_certificate_are_those_of_its_path_whatever_a_crl_says() {
    let (ours, theirs) = (Puppet::new(), Puppet::new());
    let own = ours.ca.agent("front", 5).der;
    let revoked = store(&ours.bundle(), &ours.crls(2, &[5])).unwrap();
    let chain = std::slice::from_ref(&own);
    let cas = revoked.cas_above(chain, now()).unwrap();
    assert_eq!(cas.len(), 2);
    let strange = of(&[&theirs]);
    assert_eq!(strange.cas_above(chain, now()), None);
    let names = ["CN=Puppet CA: test", "CN=Puppet Root CA: test"];
    assert_eq!(strange.cas_lost(&revoked, &cas), names);
    let cut = store(std::slice::from_ref(&ours.ca.der), &ours.crls(1, &[])).unwrap();
    assert_eq!(cut.cas_lost(&revoked, &cas), names[1..]);
    assert!(of(&[&theirs, &ours]).cas_lost(&revoked, &cas).is_empty());
}
