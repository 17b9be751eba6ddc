//! The proxy does not verify the signatures of a known chain again, but checks again everything that may have changed.

use testkit::TestCredential;

use crate::support::{Estate, LIMIT, assert_identity, assert_refused, paths::CATALOG};

#[test]
fn the_next_connection_of_an_agent_reuses_its_verified_chain_and_checks_revocation_again() {
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    assert_eq!(lookups(&estate), (0.0, 0.0, 0.0));
    for connection in 0..3 {
        assert_accepted(&estate, &agent);
        assert_eq!(lookups(&estate), (1.0, f64::from(connection), 1.0));
    }
    // A resumed session is verified too; a second request on the same connection is not.
    let client = estate.client(&agent);
    let mut kept = client.connect().expect("connects");
    assert_eq!(kept.get(CATALOG).status, 200);
    assert_eq!(kept.get(CATALOG).status, 200);
    assert_eq!(lookups(&estate), (1.0, 3.0, 1.0));
    assert_eq!(client.get(CATALOG).status, 200);
    assert_eq!(lookups(&estate), (1.0, 4.0, 1.0));
    // The new CRL is also checked for a cached chain.
    estate.ca.revoke(&agent);
    estate.proxy.swap_crl();
    let answer = estate.client(&agent).get(CATALOG);
    assert_refused(&answer, 403, &["is revoked"]);
    assert_refused(&client.get(CATALOG), 403, &["is revoked"]);
    assert!(kept.is_closed_within(LIMIT));
    let (_, hits, _) = lookups(&estate);
    assert_eq!(hits, 4.0);
    // The cached chain of one agent is not used for another one.
    assert_accepted(&estate, &estate.ca.agent("web01"));
    let (chains, hits, _) = lookups(&estate);
    assert_eq!((chains, hits), (2.0, 4.0));
}

#[test]
fn an_expired_certificate_is_refused_although_its_chain_is_cached() {
    let estate = Estate::start();
    let agent = estate.ca.leaf("web01").valid_seconds(-60, 8).issue();
    assert_accepted(&estate, &agent);
    assert_accepted(&estate, &agent);
    let (_, hits, _) = lookups(&estate);
    assert_eq!(hits, 1.0);
    let refused = testkit::wait_until(LIMIT, || {
        let answer = estate.client(&agent).get(CATALOG);
        (answer.status != 200).then_some(answer)
    });
    assert_refused(&refused.expect("it ends"), 403, &["has expired"]);
}

#[test]
fn a_changed_bundle_or_policy_clears_the_cache_and_size_zero_disables_it() {
    let estate = Estate::builder().with("[trust]\ndepth = 6").start();
    let agent = estate.ca.agent("web01");
    for _ in 0..2 {
        assert_accepted(&estate, &agent);
    }
    assert_eq!(lookups(&estate), (1.0, 1.0, 1.0));
    estate.edit_config("depth = 6", "depth = 5");
    estate.proxy.reload_applied();
    assert_accepted(&estate, &agent);
    assert_eq!(lookups(&estate), (1.0, 1.0, 2.0));
    estate.edit_config("depth = 5", "chain_cache_max = 0");
    estate.proxy.reload_applied();
    for _ in 0..2 {
        assert_accepted(&estate, &agent);
    }
    assert_eq!(lookups(&estate), (0.0, 1.0, 4.0));
    let other = testkit::Ca::other().bundle_pem();
    estate.edit_config("chain_cache_max = 0", "chain_cache_max = 2");
    estate.proxy.reload_applied();
    assert_accepted(&estate, &agent);
    assert_eq!(lookups(&estate), (1.0, 1.0, 5.0));
    let bundle = estate.ca.bundle_pem() + &other;
    estate.proxy.write("ssl/certs/ca.pem", &bundle, 0o644);
    estate.proxy.reload_applied();
    assert_eq!(lookups(&estate), (0.0, 1.0, 5.0));
    assert_accepted(&estate, &agent);
    assert_eq!(estate.proxy.status()["limits"]["chain_cache_max"], 2);
    for serial in 0..5 {
        assert_accepted(&estate, &estate.ca.agent("web01"));
        let (chains, ..) = lookups(&estate);
        assert!(chains <= 2.0, "{serial}: {chains} of 2");
    }
}

/// Asserts that a new connection is accepted, and which verdict the member gets.
#[track_caller]
fn assert_accepted(estate: &Estate, agent: &TestCredential) {
    estate.forget();
    assert_eq!(estate.client(agent).get(CATALOG).status, 200);
    assert_identity(&estate.only_request(), "SUCCESS", Some("CN=web01"));
}

/// Cached chains, verdicts with a cached chain, and verdicts without one.
fn lookups(estate: &Estate) -> (f64, f64, f64) {
    let metrics = estate.proxy.metrics();
    let count = |result| {
        metrics.sum(
            "proscenium_chain_cache_lookups_total",
            &[("result", result)],
        )
    };
    let chains = metrics.sum("proscenium_chain_cache_entries", &[]);
    (chains, count("hit"), count("miss"))
}
