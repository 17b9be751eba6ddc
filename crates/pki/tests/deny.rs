//! The deny list, which applies like a CRL.

use crate::support::*;
use identity::{Certname, Reason};
use pki::{Block, BlockTarget, DenyList, SerialNumber, TrustStore};
use rustls_pki_types::UnixTime;

fn with(store: &TrustStore, blocked: BlockTarget, until: Option<UnixTime>) -> TrustStore {
    store.with_deny_list(DenyList::new([Block {
        blocked,
        why: "stolen".to_owned(),
        by: "uid 0".to_owned(),
        since: at(0),
        until,
    }]))
}

fn serial_of(issuer: &str, serial: &str) -> BlockTarget {
    BlockTarget::Serial {
        issuer: issuer.to_owned(),
        serial: SerialNumber::parse(serial).unwrap(),
    }
}

#[test]
fn a_certificate_is_blocked_by_its_name_its_serial_its_issuers_serial_and_its_fingerprint() {
    let puppet = Puppet::new();
    let agent = puppet.ca.agent("web01.example.com", 0x80);
    let other = puppet.ca.agent("web02.example.com", 0x81);
    let print = |der: &[u8]| {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, der);
        BlockTarget::Fingerprint(digest.as_ref().try_into().unwrap())
    };
    let name = |name: &str| BlockTarget::Certname(Certname::parse(name).unwrap());
    let ca = "CN=Puppet CA: test";
    let root_serial = pki::facts_of(&puppet.root.der).unwrap().serial;
    for (blocked, meets_other) in [
        (name("web01.example.com"), false),
        (name("WEB01.example.com"), false),
        (serial_of(ca, "80"), false),
        (print(&agent.der), false),
        // A block of the intermediate or of the root applies to every certificate that it issued.
        (serial_of("CN=Puppet Root CA: test", "02"), true),
        (print(&puppet.ca.der), true),
        (serial_of("CN=Puppet Root CA: test", &root_serial), true),
        (print(&puppet.root.der), true),
    ] {
        let store = with(&puppet.store(), blocked.clone(), None);
        assert_eq!(verdict(&store, &agent), Some(Reason::Blocked), "{blocked}");
        let expected = meets_other.then_some(Reason::Blocked);
        assert_eq!(verdict(&store, &other), expected, "{blocked}");
    }
    for blocked in [
        name("web"),
        serial_of(ca, "08"),
        serial_of("CN=Another", "80"),
        BlockTarget::Fingerprint([0; 32]),
    ] {
        let store = with(&puppet.store(), blocked.clone(), None);
        assert_eq!(verdict(&store, &agent), None, "{blocked}");
    }
}

#[test]
fn an_open_connection_is_verified_again_when_a_block_is_added_and_when_it_expires() {
    let puppet = Puppet::new();
    let store = puppet.store();
    let agent = puppet.ca.agent("web01.example.com", 5);
    let before = store.verify(std::slice::from_ref(&agent.der), now());
    let blocked = with(&store, serial_of("CN=Puppet CA: test", "05"), None);
    assert_eq!(
        (
            store.deny_list().blocks().len(),
            blocked.deny_list().blocks().len()
        ),
        (0, 1)
    );
    assert!(!before.is_current(blocked.generation(), now()));
    let during = blocked.reverify(&before, now());
    assert_eq!(reason(&during), Some(Reason::Blocked));
    let lifted = blocked.with_deny_list(DenyList::default());
    assert!(!during.is_current(lifted.generation(), now()));
    assert_eq!(reason(&lifted.reverify(&during, now())), None);
}

#[test]
fn a_block_expires_at_its_time() {
    let puppet = Puppet::new();
    let agent = puppet.ca.agent("web01.example.com", 5);
    let store = with(
        &puppet.store(),
        serial_of("CN=Puppet CA: test", "05"),
        Some(now()),
    );
    let one = std::slice::from_ref(&agent.der);
    assert_eq!(reason(&store.verify(one, now())), Some(Reason::Blocked));
    let later = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now().as_secs() + 1));
    assert_eq!(reason(&store.verify(one, later)), None);
}

#[test]
fn a_rebuilt_store_keeps_the_deny_list() {
    let puppet = Puppet::new();
    let agent = puppet.ca.agent("web01.example.com", 5);
    let store = with(&puppet.store(), serial_of("CN=Puppet CA: test", "05"), None);
    let lists = puppet.crls(2, &[9]);
    let settings = pki::TrustSettings::default();
    let next = store_with(&puppet.bundle(), &lists, &settings, Some(&store)).unwrap();
    assert!(next.generation() > store.generation());
    assert_eq!(verdict(&next, &agent), Some(Reason::Blocked));
}

#[test]
fn a_refused_certificate_keeps_its_own_reason_and_the_agent_does_not_learn_why_it_is_blocked() {
    let puppet = Puppet::new();
    let lists = puppet.crls(1, &[5]);
    let agent = puppet.ca.agent("web01.example.com", 5);
    let revoking = store(&puppet.bundle(), &lists).unwrap();
    let blocked = serial_of("CN=Puppet CA: test", "05");
    let both = with(&revoking, blocked.clone(), None);
    assert_eq!(verdict(&both, &agent), Some(Reason::Revoked));
    let store = with(&puppet.store(), blocked, None);
    let text = refusal(&store.verify(&[agent.der], now())).text();
    assert!(text.contains("is blocked by the operator"), "{text}");
    assert!(!text.contains("stolen"), "{text}");
}
