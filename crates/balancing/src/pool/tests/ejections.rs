//! Passive ejection, and how many members it leaves.

use super::super::*;
use super::support::*;

#[test]
fn below_the_panic_threshold_no_member_is_ejected_and_ejected_ones_are_used_again() {
    for (panic_threshold, ejected, below) in
        [(0, 5, false), (60, 4, true), (61, 3, true), (100, 0, true)]
    {
        let pool = weights(Algorithm::LeastConnections, &[1; 10]);
        let settings = EjectionSettings {
            ejected_max: 50,
            panic_threshold,
            ..EjectionSettings::default()
        };
        let eject =
            |index| (0..100).any(|_| pool.attempt_failed(index, None, &settings, NOW).is_some());
        assert_eq!(
            (0..10).filter(|index| eject(*index)).count(),
            ejected,
            "{panic_threshold} %"
        );
        assert!(
            !pool.end_ejections_in_panic(&settings, NOW),
            "enough are left"
        );
        let active = || {
            let entries = pool.entries().iter();
            entries
                .filter(|entry| entry.member.ejected_for(NOW).is_some())
                .count()
        };
        assert_eq!(active(), ejected);
        pool.entries()[9].member.administer(Administrative::Drain);
        assert_eq!(
            pool.end_ejections_in_panic(&settings, NOW),
            below && ejected > 0
        );
        assert_eq!(active(), if below { 0 } else { ejected });
    }
}

#[test]
fn ejections_leave_half_of_the_pool_and_the_last_available_member() {
    let pool = weights(Algorithm::LeastConnections, &[1; 5]);
    assert!(eject(&pool, 0, NOW) && eject(&pool, 1, NOW));
    assert!(
        !eject(&pool, 2, NOW),
        "half of five, rounded down, are ejected"
    );
    assert_eq!(
        shares(&sequence(&pool, 9)).into_keys().collect::<Vec<_>>(),
        [2, 3, 4]
    );
    let alone = weights(Algorithm::LeastConnections, &[1]);
    assert!(!eject(&alone, 0, NOW));
    let pair = weights(Algorithm::LeastConnections, &[1, 1]);
    pair.entries()[1].member.administer(Administrative::Drain);
    assert!(
        !eject(&pair, 0, NOW),
        "it is the last one that is available"
    );
}

#[test]
fn ejected_members_are_used_again_in_time_and_where_no_other_is_left() {
    let pool = weights(Algorithm::RoundRobin, &[1, 1]);
    assert!(eject(&pool, 0, NOW));
    assert_eq!(sequence(&pool, 4), [1; 4]);
    let order = pool.order(any(), NOW);
    assert!(
        order
            .iter()
            .any(|place| place.index == 0 && place.why == RankReason::Ejected)
    );
    let later = NOW + EjectionSettings::default().eject_time;
    let picked_later = pool.pick(&[pool.entries()[1].member.id()], any(), later);
    assert_eq!(picked_later.expect("it is in again").index(), 0);
    assert!(eject(&pool, 0, later));
    pool.entries()[1].member.administer(Administrative::Drain);
    assert_eq!(
        pool.pick(&[], any(), later)
            .expect("better than none")
            .index(),
        0
    );
    // Requests wait for a member that is full: a full member does not end an ejection.
    let limited = pool_of_full_and_ejected();
    assert_eq!(limited.0.pick(&[], any(), NOW).err(), Some(PickError::Full));
}

/// Two members: the first is ejected, and the only slot of the second is taken.
fn pool_of_full_and_ejected() -> (Pool, Lease) {
    let pool = pool(Algorithm::RoundRobin, &[(1, Some(1)), (1, Some(1))]);
    assert!(eject(&pool, 0, NOW));
    let lease = picked(&pool);
    assert_eq!(lease.index(), 1);
    (pool, lease)
}
