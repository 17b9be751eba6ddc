//! What each algorithm picks, and how picks share by weight.

use super::super::*;
use super::support::*;
use crate::hash::mix;
use std::collections::BTreeMap;

#[test]
fn least_connections_goes_where_least_is_in_flight_for_its_weight() {
    let pool = weights(Algorithm::LeastConnections, &[1, 2]);
    let leases: Vec<Lease> = (0..30).map(|_| picked(&pool)).collect();
    let indexes: Vec<usize> = leases.iter().map(Lease::index).collect();
    assert_eq!(shares(&indexes), BTreeMap::from([(0, 10), (1, 20)]));
    let (first, rest): (Vec<Lease>, Vec<Lease>) =
        leases.into_iter().partition(|lease| lease.index() == 0);
    drop(first);
    assert_eq!(picked(&pool).index(), 0);
    drop(rest);
}

#[test]
fn idle_members_share_by_weight_under_either_algorithm() {
    for algorithm in EVEN {
        for weights in [
            &[1, 1][..],
            &[1, 1, 1],
            &[5, 1, 1],
            &[1, 2, 3, 4],
            &[100, 1],
        ] {
            let pool = self::weights(algorithm, weights);
            let total: u32 = weights.iter().sum();
            let picks = 60 * total as usize;
            let shares = shares(&sequence(&pool, picks));
            for (index, weight) in weights.iter().enumerate() {
                let share = shares.get(&index).copied().unwrap_or(0);
                let fair = 60 * *weight as usize;
                assert!(
                    share.abs_diff(fair) <= 3,
                    "{algorithm:?} {weights:?}: {index} got {share}, fair is {fair}"
                );
            }
        }
    }
}

#[test]
fn round_robin_is_smooth() {
    let pool = weights(Algorithm::RoundRobin, &[5, 1, 1]);
    assert_eq!(sequence(&pool, 7), [0, 0, 1, 0, 2, 0, 0]);
}

#[test]
fn two_equal_members_share_evenly_from_the_first_pick_on() {
    for algorithm in EVEN {
        let pool = weights(algorithm, &[1, 1]);
        for window in 1..40 {
            let shares = shares(&sequence(&pool, 2 * window));
            let first = shares.get(&0).copied().unwrap_or(0);
            assert!(
                first.abs_diff(window) <= 1,
                "{algorithm:?}: {first} of {}",
                2 * window
            );
        }
    }
}

#[test]
fn a_random_draw_shares_by_weight_and_avoids_busy_members() {
    let pool = weights(Algorithm::Random, &[1, 1, 6]);
    let idle = shares(&sequence(&pool, 8_000));
    for (index, fair) in [1_000, 1_000, 6_000].into_iter().enumerate() {
        assert!(idle[&index].abs_diff(fair) < 200, "{idle:?}");
    }
    // Two of the three members are drawn. The busy one is never picked, because at least one of the two is idle.
    let busy = weights(Algorithm::Random, &[1, 1, 1]);
    let criteria = any();
    let held = busy.pick(&[], criteria, NOW).expect("up");
    let seen = shares(&sequence(&busy, 300));
    assert!(!seen.contains_key(&held.index()), "{seen:?}");
    assert_eq!(seen.len(), 2);
    assert!(sequence(&busy, 300).windows(2).any(|two| two[0] == two[1]));
}

#[test]
fn turns_go_on_where_they_were_after_a_reload_that_changes_the_order_of_members() {
    let registry = Registry::default();
    let mut settings = settings(Algorithm::RoundRobin, &[(1, None), (1, None), (1, None)]);
    let address = |pool: &Pool| picked(pool).member().address().to_string();
    let old = Pool::new(&settings, CONNECTIONS_MAX, &registry);
    assert_eq!(address(&old), "c1.example.com:8140");
    settings.members.reverse();
    let new = Pool::new(&settings, CONNECTIONS_MAX, &registry);
    let next: Vec<String> = (0..2).map(|_| address(&new)).collect();
    assert_eq!(
        next.iter().map(|address| &address[..2]).collect::<Vec<_>>(),
        ["c3", "c2"],
        "the first member has had its turn"
    );
}

#[test]
fn first_takes_the_first_below_its_limit_in_the_configured_order() {
    let pool = pool(Algorithm::First, &[(1, Some(2)), (9, Some(1)), (1, None)]);
    let held: Vec<Lease> = (0..5).map(|_| picked(&pool)).collect();
    let indexes: Vec<usize> = held.iter().map(Lease::index).collect();
    assert_eq!(indexes, [0, 0, 1, 2, 2]);
    assert_eq!(pool.order(any(), NOW)[0].why, RankReason::First);
}

/// Each slot is given back at once, so that the weights alone decide.
#[test]
fn shares_are_within_two_percent_of_weights_over_ten_thousand_picks() {
    let weights = [1, 2, 3, 10];
    let total: u32 = weights.iter().sum();
    let by_connections = weights.map(|weight| (weight, None));
    for (algorithm, pool) in [
        Algorithm::LeastConnections,
        Algorithm::RoundRobin,
        Algorithm::LeastLoad,
        Algorithm::Random,
        Algorithm::SourceHash,
        Algorithm::CertnameHash,
    ]
    .map(|algorithm| (algorithm, pool(algorithm, &by_connections)))
    .into_iter()
    .chain([(
        Algorithm::LeastLoad,
        jrubies(Algorithm::LeastLoad, &[(1, 1), (1, 2), (3, 1), (5, 2)]),
    )]) {
        let pick = |n: u64| {
            let criteria = PickCriteria {
                source: Some(mix(n ^ 0xabcd)),
                certname: Some(mix(n ^ 0xabcd)),
                ..any()
            };
            pool.pick(&[], criteria, NOW).expect("up").index()
        };
        let shares = shares(&(0..10_000).map(pick).collect::<Vec<_>>());
        for (index, weight) in weights.iter().enumerate() {
            let fair = 10_000 * *weight as usize / total as usize;
            let share = shares.get(&index).copied().unwrap_or(0);
            assert!(share.abs_diff(fair) <= 200, "{algorithm:?}: {shares:?}");
        }
    }
}
