//! Remembered chains, and clocks that change: a remembered chain never leads to another verdict than a new verification.

use crate::support::*;
use aws_lc_rs::digest::{SHA256, digest};
use identity::Reason;
use pki::{BlockTarget, ChainMemoryStats, DenyList, TrustSettings, TrustStore};
use rcgen::date_time_ymd;
use rustls_pki_types::CertificateDer;

fn counts(store: &TrustStore) -> (usize, u64, u64) {
    let ChainMemoryStats {
        chains,
        hits,
        misses,
    } = store.chain_memory();
    (chains, hits, misses)
}

#[test]
fn a_chain_is_remembered_only_for_exactly_the_same_bytes() {
    let puppet = Puppet::new();
    let store = puppet.store();
    let agent = puppet.ca.agent("web01", 5).der;
    let verify = |chain: &[CertificateDer<'static>]| reason(&store.verify(chain, now()));
    let alone = std::slice::from_ref(&agent);
    assert_eq!(verify(alone), None);
    assert_eq!(counts(&store), (1, 0, 1));
    assert_eq!(verify(alone), None);
    assert_eq!(counts(&store), (1, 1, 1));
    // The same leaf together with another certificate is another chain, which replaces the first.
    let more = [agent.clone(), puppet.ca.der.clone()];
    assert_eq!(verify(&more), None);
    assert_eq!(counts(&store), (1, 1, 2));
    assert_eq!(verify(&more), None);
    assert_eq!(counts(&store), (1, 2, 2));
    // An altered certificate matches no remembered chain.
    for index in (0..agent.len()).step_by(7) {
        let mut bytes = agent.to_vec();
        bytes[index] ^= 0x01;
        assert!(verify(&[bytes.into()]).is_some(), "byte {index}");
    }
    assert_eq!(
        store.chain_memory().chains,
        1,
        "a refused chain is not remembered"
    );
    assert_eq!(store.chain_memory().hits, 2);
}

#[test]
fn a_remembered_chain_is_checked_against_the_active_crls() {
    let puppet = Puppet::new();
    let agent = puppet.ca.agent("web01", 5);
    let settings = TrustSettings::default();
    let before = puppet.store();
    assert_eq!(verdict(&before, &agent), None);
    let swap = |crls: &[_], previous| {
        store_with(&puppet.bundle(), crls, &settings, Some(previous)).unwrap()
    };
    let revoking = swap(&puppet.crls(2, &[5]), &before);
    assert_eq!(verdict(&revoking, &agent), Some(Reason::Revoked));
    let pruned = swap(&puppet.crls(3, &[]), &revoking);
    let back = pruned.accepting(pruned.dropped_revocations()[0].key, None);
    assert_eq!(verdict(&back, &agent), None);
    let above = swap(&[puppet.ca.crl(4, &[]), puppet.root.crl(2, &[2])], &back);
    assert_eq!(verdict(&above, &agent), Some(Reason::Revoked));
    assert_eq!(
        counts(&above),
        (1, 1, 3),
        "found once, where nothing revoked it"
    );
    // A remembered chain does not bypass the deny list either.
    let blocked = back.with_deny_list(DenyList::new([pki::Block {
        blocked: BlockTarget::Certname(identity::Certname::parse_puppet("web01").unwrap()),
        why: "stolen".to_owned(),
        by: "root".to_owned(),
        since: now(),
        until: None,
    }]));
    assert_eq!(verdict(&blocked, &agent), Some(Reason::Blocked));
}

#[test]
fn another_bundle_or_policy_starts_with_an_empty_memory_and_the_same_counts() {
    let puppet = Puppet::new();
    let agent = puppet.ca.agent("web01", 5);
    let before = puppet.store();
    assert_eq!(verdict(&before, &agent), None);
    assert_eq!(counts(&before), (1, 0, 1));
    let crls = puppet.crls(1, &[]);
    let shallow = TrustSettings {
        depth: 0,
        ..TrustSettings::default()
    };
    let strict = store_with(&puppet.bundle(), &crls, &shallow, Some(&before)).unwrap();
    assert_eq!(counts(&strict), (0, 0, 1));
    assert_eq!(verdict(&strict, &agent), Some(Reason::Depth));
    let other = TestCa::root("other");
    let bundle = [puppet.root.der.clone(), other.der.clone()];
    let crls = [puppet.root.crl(1, &[]), other.crl(1, &[])];
    let without = store_with(&bundle, &crls, &TrustSettings::default(), Some(&before)).unwrap();
    assert_eq!(verdict(&without, &agent), Some(Reason::UnknownIssuer));
    assert_eq!(counts(&without), (0, 0, 3));
}

#[test]
fn the_memory_holds_no_more_chains_than_its_limit() {
    let root = TestCa::root("root");
    let agents: Vec<_> = (1..=40)
        .map(|serial| root.agent(&format!("web{serial}"), serial))
        .collect();
    for chain_cache_max in [0, 1, 2, 10] {
        let settings = TrustSettings {
            chain_cache_max,
            ..TrustSettings::default()
        };
        let bundle = std::slice::from_ref(&root.der);
        let store = store_with(bundle, &[root.crl(1, &[])], &settings, None).unwrap();
        let often = &agents[0];
        for agent in &agents {
            assert_eq!(verdict(&store, agent), None);
            assert_eq!(verdict(&store, often), None);
            assert!(store.chain_memory().chains <= chain_cache_max);
        }
        // A chain that is used often stays in the memory.
        let hits = store.chain_memory().hits;
        assert_eq!(hits, if chain_cache_max < 4 { hits } else { 40 });
    }
}

/// The first second of each of these months of 2030.
const JUNE: u64 = 1_906_502_400;
const JULY: u64 = 1_909_094_400;

/// An agent whose certificate is valid in that June.
fn of_june(puppet: &Puppet) -> Leaf {
    let mut params = leaf_params("web01", 5);
    params.not_before = date_time_ymd(2030, 6, 1);
    params.not_after = date_time_ymd(2030, 7, 1);
    puppet.ca.sign(params)
}

/// The system clock may be set forward and back between two verdicts. Each verdict must be the one that a client that was never
/// seen would get.
#[test]
fn a_clock_that_is_set_forward_and_back_changes_each_verdict() {
    let puppet = Puppet::new();
    let agent = of_june(&puppet);
    let store = puppet.store();
    let fresh = || puppet.store();
    let chain = std::slice::from_ref(&agent.der);
    let mut live = store.verify(chain, at(JUNE));
    assert_eq!(reason(&live), None);
    for seconds in [
        JUNE,
        JUNE - 1,
        JUNE + 1,
        JULY + 1,
        JULY,
        0,
        JULY,
        u64::from(u32::MAX) * 4,
        JUNE,
    ] {
        let expected = reason(&fresh().verify(chain, at(seconds)));
        let in_time = (JUNE..=JULY).contains(&seconds);
        assert_eq!(expected.is_none(), in_time, "{seconds}: {expected:?}");
        assert_eq!(
            reason(&store.verify(chain, at(seconds))),
            expected,
            "{seconds}"
        );
        // A connection is verified again if its verdict does not hold at this time.
        let is_current = live.is_current(store.generation(), at(seconds));
        assert!(
            in_time || !is_current || reason(&live).is_some(),
            "{seconds}"
        );
        live = store.reverify(&live, at(seconds));
        assert_eq!(reason(&live), expected, "{seconds}");
    }
}

#[test]
fn a_clock_set_back_before_the_start_of_a_ca_ends_the_verdict() {
    let mut params = ca_params("root");
    params.not_before = date_time_ymd(2025, 1, 1);
    let root = TestCa::root_with(params, rcgen::KeyPair::generate().unwrap());
    let agent = root.agent("web01", 5);
    let store = store(std::slice::from_ref(&root.der), &[root.crl(1, &[])]).unwrap();
    let verification = store.verify(std::slice::from_ref(&agent.der), now());
    let in_2024 = at(1_704_067_200);
    assert!(verification.is_current(1, now()));
    assert!(!verification.is_current(1, in_2024));
    let again = store.reverify(&verification, in_2024);
    assert_eq!(reason(&again), Some(Reason::CaNotYetValid));
    assert_eq!(reason(&store.reverify(&again, now())), None);
    let first_second = at(1_735_689_600);
    assert_eq!(reason(&store.reverify(&again, first_second)), None);
}

/// A verdict that is recalled by fingerprint, without the certificate, equals the verdict on a new connection.
#[test]
fn a_recalled_verdict_is_the_current_one() {
    let puppet = Puppet::new();
    let agent = of_june(&puppet);
    let fingerprint: [u8; 32] = digest(&SHA256, &agent.der).as_ref().try_into().unwrap();
    let before = puppet.store();
    let refused = |store: &TrustStore, seconds| {
        let recalled = store.recall(&fingerprint, at(seconds)).unwrap();
        assert_eq!(recalled.agent.certname().as_str(), "web01");
        recalled.refused
    };
    assert!(before.recall(&fingerprint, at(JUNE)).is_none(), "not seen");
    let verification = before.verify(std::slice::from_ref(&agent.der), at(JUNE));
    let chain = verification.chain.as_ref().unwrap();
    assert_eq!(chain.fingerprint(), Some(&fingerprint));
    assert!(before.recall(&[0; 32], at(JUNE)).is_none(), "another's");
    for (seconds, expected) in [
        (JUNE - 1, Some(Reason::CaNotYetValid)),
        (JUNE, None),
        (JULY, None),
        (JULY + 1, Some(Reason::CaExpired)),
    ] {
        assert_eq!(refused(&before, seconds), expected, "{seconds}");
    }
    let recalled = before.recall(&fingerprint, at(JUNE)).unwrap();
    assert!(recalled.block.is_none());
    let path: Vec<_> = recalled
        .path
        .iter()
        .map(|(issuer, serial)| format!("{issuer} {serial}"))
        .collect();
    let expected = ["CN=Puppet CA: test 0x05", "CN=Puppet Root CA: test 0x02"];
    assert_eq!(path, expected, "its own first");

    let crls = puppet.crls(2, &[5]);
    let settings = TrustSettings::default();
    let revoking = store_with(&puppet.bundle(), &crls, &settings, Some(&before)).unwrap();
    assert_eq!(refused(&revoking, JUNE), Some(Reason::Revoked));
    let blocked = before.with_deny_list(DenyList::new([pki::Block {
        blocked: BlockTarget::Certname(identity::Certname::parse_puppet("web01").unwrap()),
        why: "stolen".to_owned(),
        by: "root".to_owned(),
        since: at(JUNE),
        until: None,
    }]));
    assert_eq!(refused(&blocked, JUNE), Some(Reason::Blocked));
    let recalled = blocked.recall(&fingerprint, at(JUNE)).unwrap();
    assert_eq!(
        recalled.block.map(|block| block.why).as_deref(),
        Some("stolen")
    );
}
