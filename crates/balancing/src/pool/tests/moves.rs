//! Requests that leave a failed member while they wait.

use super::super::*;
use super::support::*;

/// Three probed members that are up.
fn probed() -> Pool {
    let mut settings = settings(Algorithm::LeastConnections, &[(1, None); 3]);
    settings.check = CheckSettings {
        fall: 1,
        rise: 1,
        ..CheckSettings::default()
    };
    let pool = Pool::new(&settings, CONNECTIONS_MAX, &Registry::default());
    for entry in pool.entries() {
        entry.member.probe_succeeded(pool.check());
    }
    pool
}

#[test]
fn a_waiting_request_leaves_a_member_that_is_down_or_in_maintenance_and_no_other() {
    use Administrative::{Drain, Maintenance, Ready};
    for (state, down, moves) in [
        (Ready, false, false),
        (Ready, true, true),
        (Maintenance, false, true),
        (Maintenance, true, true),
        // A drained member finishes its requests.
        (Drain, false, false),
        (Drain, true, true),
    ] {
        let pool = probed();
        let member = &pool.entries()[0].member;
        member.administer(state);
        if down {
            member.probe_failed(pool.check(), NOW);
        }
        let lease = pool.pick_elsewhere(0, &[], any(), NOW);
        assert_eq!(lease.is_some(), moves, "{state}, down: {down}");
        assert_ne!(lease.map(|lease| lease.index()), Some(0), "{state}");
    }
}

#[test]
fn a_move_needs_a_member_that_is_available_and_was_not_tried() {
    let pool = probed();
    let down = |index: usize| pool.entries()[index].member.probe_failed(pool.check(), NOW);
    let moved = |tried: &[u64]| {
        let lease = pool.pick_elsewhere(0, tried, any(), NOW);
        lease.map(|lease| lease.index())
    };
    down(0);
    assert_eq!(moved(&[1]), Some(2));
    assert_eq!(moved(&[1, 2]), None);
    down(1);
    assert_eq!(moved(&[]), Some(2));
    down(2);
    assert_eq!(moved(&[]), None);
    assert_eq!(pool.entries()[2].member.in_flight(), 0);
}

#[test]
fn moves_beyond_the_limit_wait_and_hold_nothing() {
    let pool = probed();
    pool.entries()[0].member.probe_failed(pool.check(), NOW);
    let moved = |now| {
        (0..100)
            .filter_map(|_| pool.pick_elsewhere(0, &[], any(), now))
            .collect::<Vec<_>>()
    };
    (0..20).for_each(|_| pool.count_request(100));
    let leases = moved(NOW);
    assert_eq!(leases.len(), 20);
    let in_flight = pool.entries().iter().map(|entry| entry.member.in_flight());
    assert_eq!(in_flight.sum::<u32>(), 20);
    let later = pool.pick_elsewhere(0, &[], any(), Duration::from_millis(100));
    assert!(later.is_some(), "a tenth of a second allows one more");
    // Moves count as retries too. 19 of the retries that are always allowed are left, and two more are added per second.
    drop((leases, later));
    assert_eq!(moved(Duration::from_secs(10)).len(), 20);
    assert_eq!(moved(Duration::from_secs(12)).len(), 4);
    let in_flight = pool.entries().iter().map(|entry| entry.member.in_flight());
    assert_eq!(in_flight.sum::<u32>(), 0);
}

#[test]
fn the_trial_of_an_unprobed_member_stays_where_it_is() {
    let pool = weights(Algorithm::LeastConnections, &[1, 1]);
    pool.entries()[0].member.connect_refused(NOW);
    assert!(pool.pick_elsewhere(0, &[], any(), NOW).is_none());
    pool.entries()[0]
        .member
        .administer(Administrative::Maintenance);
    assert!(pool.pick_elsewhere(0, &[], any(), NOW).is_some());
}
