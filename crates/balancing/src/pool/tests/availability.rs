//! Which members may get a request, and in which order.

use super::super::*;
use super::support::*;
use crate::{AgentState, member::WeightSource};
use std::collections::BTreeMap;

#[test]
fn a_member_tried_down_drained_or_full_is_not_picked() {
    for algorithm in ALGORITHMS {
        let pool = pool(algorithm, &[(1, None), (1, None), (1, None), (1, Some(1))]);
        let full = pool.pick(&[0, 1, 2], any(), NOW).expect("free");
        assert_eq!(full.index(), 3);
        pool.entries()[1].member.connect_refused(NOW);
        pool.entries()[2].member.administer(Administrative::Drain);
        for hash in [None, Some(1), Some(2), Some(3)] {
            for _ in 0..20 {
                assert_eq!(
                    pool.pick(&[], keyed(hash), NOW)
                        .expect("the first is free")
                        .index(),
                    0
                );
            }
            assert_eq!(
                pool.pick(&[0], keyed(hash), NOW).err(),
                Some(PickError::Full)
            );
        }
        drop(full);
        assert_eq!(
            pool.pick(&[0, 3], any(), NOW).err(),
            Some(PickError::AllTried)
        );
        pool.entries()[0]
            .member
            .administer(Administrative::Maintenance);
        pool.entries()[3].member.connect_refused(NOW);
        assert_eq!(
            pool.pick(&[], any(), NOW).err(),
            Some(PickError::NoneAvailable)
        );
        assert!(!pool.is_available(NOW));
    }
}

#[test]
fn a_pool_depends_on_the_last_members_that_are_available() {
    let pool = weights(Algorithm::RoundRobin, &[1, 1, 1]);
    assert!(!pool.depends_on(&[0]));
    assert!(!pool.depends_on(&[0, 1]));
    assert!(pool.depends_on(&[0, 1, 2]));
    pool.entries()[1].member.administer(Administrative::Drain);
    pool.entries()[2].member.connect_refused(NOW);
    assert!(pool.depends_on(&[0]));
    assert!(pool.depends_on(&[0, 1]));
    assert!(!pool.depends_on(&[1, 2]), "they are out already");
    pool.entries()[0].member.administer(Administrative::Drain);
    assert!(!pool.depends_on(&[0, 1, 2]), "none is available anyway");
}

#[test]
fn a_member_that_is_ready_again_counts_for_another_drain_after_a_probe() {
    let mut settings = settings(Algorithm::RoundRobin, &[(1, None), (1, None)]);
    settings.check = CheckSettings {
        assume_up: true,
        ..CheckSettings::default()
    };
    let pool = Pool::new(&settings, CONNECTIONS_MAX, &Registry::default());
    let again = &pool.entries()[1].member;
    again.administer(Administrative::Drain);
    again.administer(Administrative::Ready);
    assert!(pool.depends_on(&[0]));
    assert!(!pool.depends_on(&[1]), "the first is up");
    assert_eq!(pool.available(), 2, "both get requests");
    again.confirmed(again.awaited_probe().expect("a probe"));
    assert!(!pool.depends_on(&[0]));
}

#[test]
fn a_member_not_probed_yet_is_not_picked_unless_assumed_up() {
    for (assume_up, expected) in [(false, Some(PickError::NoneAvailable)), (true, None)] {
        let mut settings = settings(Algorithm::LeastConnections, &[(1, None)]);
        settings.check = CheckSettings {
            assume_up,
            ..CheckSettings::default()
        };
        let pool = Pool::new(&settings, CONNECTIONS_MAX, &Registry::default());
        assert_eq!(pool.pick(&[], any(), NOW).err(), expected);
    }
}

#[test]
fn a_member_that_is_down_without_probes_is_tried_by_one_request_at_a_time() {
    for algorithm in EVEN {
        let pool = weights(algorithm, &[9, 1]);
        let later = Duration::from_secs(1);
        pool.entries()[0].member.connect_refused(NOW);
        let picks: Vec<usize> = (0..20)
            .map(|_| {
                pool.pick(&[], any(), later)
                    .expect("the other is up")
                    .index()
            })
            .collect();
        assert_eq!(
            shares(&picks),
            BTreeMap::from([(0, 1), (1, 19)]),
            "{algorithm:?}"
        );
        assert_eq!(
            pool.pick_for_write(&[], Task::default(), later).err(),
            Some(PickError::NoneAvailable)
        );
        pool.entries()[0].member.answered();
        assert!(pool.pick_for_write(&[], Task::default(), later).is_ok());
    }
}

#[test]
fn the_shown_order_is_the_order_of_the_next_picks() {
    for algorithm in ALGORITHMS {
        let pool = weights(algorithm, &[3, 1, 2, 1]);
        let mut random = Random(7);
        for round in 0..200 {
            let hash = (round % 3 == 0).then(|| random.below(1 << 31));
            let held: Vec<Lease> = (0..random.below(6)).map(|_| picked(&pool)).collect();
            let criteria = keyed(hash);
            let shown: Vec<usize> = pool
                .order(criteria, NOW)
                .iter()
                .map(|place| place.index)
                .collect();
            assert_eq!(
                shown,
                pool.order(criteria, NOW)
                    .iter()
                    .map(|place| place.index)
                    .collect::<Vec<_>>()
            );
            let (mut tried, mut order) = (Vec::new(), Vec::new());
            while let Ok(lease) = pool.pick(&tried, criteria, NOW) {
                tried.push(lease.member().id());
                order.push(lease.index());
            }
            assert_eq!(shown, order, "{algorithm:?}, round {round}");
            drop(held);
        }
    }
}

#[test]
fn the_shown_order_gives_a_reason_for_each_member_left_out() {
    let pool = pool(
        Algorithm::LeastConnections,
        &[(1, Some(1)), (1, None), (1, None), (1, None)],
    );
    let _full = pool
        .pick_for_write(&[], Task::default(), NOW)
        .expect("free");
    pool.entries()[1].member.connect_refused(NOW);
    pool.entries()[2].member.administer(Administrative::Drain);
    let shown: Vec<String> = pool
        .order(any(), NOW)
        .iter()
        .map(|place| format!("{} {}", place.index, place.why))
        .collect();
    assert_eq!(
        shown,
        [
            "3 fewest in flight for its weight (0 in flight, weight 1)",
            "0 not used: at its limit (1 of 1 in flight)",
            "1 not used: down",
            "2 not used: drain",
        ]
    );
}

#[test]
fn a_lowered_weight_lowers_the_share_and_none_keeps_requests_away() {
    for algorithm in [EVEN[0], EVEN[1], Algorithm::Random] {
        let pool = weights(algorithm, &[1, 1]);
        let lowered = &pool.entries()[0].member;
        lowered.set_weight_percent(WeightSource::AgentCheck, 25);
        let first = sequence(&pool, 10_000).iter().filter(|i| **i == 0).count();
        assert!(first.abs_diff(2_000) <= 200, "{algorithm:?}: {first}");
        lowered.set_weight_percent(WeightSource::AgentCheck, 0);
        assert!(sequence(&pool, 100).iter().all(|index| *index == 1));
        let order = pool.order(any(), NOW);
        assert_eq!((order[1].index, order[1].why), (0, RankReason::NoWeight));
    }
}

#[test]
fn the_next_priority_is_used_while_no_better_one_is_available_and_backups_come_last() {
    let mut settings = settings(Algorithm::RoundRobin, &[(1, Some(1)); 4]);
    for (member, priority) in settings.members.iter_mut().zip([2, 1, 0, 1]) {
        member.priority = priority;
    }
    settings.members[2].role = Role::Backup;
    let pool = Pool::new(&settings, CONNECTIONS_MAX, &Registry::default());
    assert_eq!(pool.writer(), Some(0));
    let order: Vec<usize> = pool
        .order(any(), NOW)
        .iter()
        .map(|place| place.index)
        .collect();
    assert_eq!(order, [1, 3, 0, 2]);
    let down = |index: usize| pool.entries()[index].member.connect_refused(NOW);
    down(1);
    assert_eq!(picked(&pool).index(), 3);
    down(3);
    down(0);
    assert_eq!(picked(&pool).index(), 2);
}

/// `c1` and `c2` of priority 0, `c3` and `c4` of priority 1.
fn two_sites() -> Pool {
    let mut settings = settings(
        Algorithm::RoundRobin,
        &[(75, Some(1)), (25, Some(1)), (1, None), (1, None)],
    );
    for (index, member) in settings.members.iter_mut().enumerate() {
        member.priority = (index / 2) as u16;
    }
    Pool::new(&settings, CONNECTIONS_MAX, &Registry::default())
}

#[test]
fn a_later_priority_is_used_only_while_no_member_of_an_earlier_one_is_up() {
    let pool = two_sites();
    let pick = |tried: &[u64]| pool.pick(tried, PickCriteria::default(), Duration::ZERO);
    let held: Vec<_> = (0..2).map(|_| pick(&[]).expect("site A")).collect();
    assert!(held.iter().all(|lease| lease.index() < 2));
    // A full member is not down: another site would cost more than the wait.
    assert_eq!(pick(&[]).err(), Some(PickError::Full));
    drop(held);
    let tried: Vec<_> = pool.entries()[..2]
        .iter()
        .map(|entry| entry.member.id())
        .collect();
    assert_eq!(pick(&tried).err(), Some(PickError::AllTried));
    for entry in &pool.entries()[..2] {
        entry.member.administer(Administrative::Drain);
    }
    assert!(pick(&[]).expect("site B").index() >= 2);
    pool.entries()[1].member.administer(Administrative::Ready);
    assert_eq!(pick(&[]).expect("site A again").index(), 1);
}

#[test]
fn the_order_shows_an_earlier_priority_first() {
    let order = two_sites().order(PickCriteria::default(), Duration::ZERO);
    let indexes: Vec<_> = order.iter().map(|place| place.index).collect();
    assert_eq!(indexes, [0, 1, 2, 3]);
}

/// In random states of pools with priorities, backups, limits, drains, agent checks and ejections.
#[test]
fn it_is_known_without_a_pick_whether_a_request_would_get_a_member() {
    let mut outcomes = BTreeMap::<_, usize>::new();
    for seed in 1..=3000 {
        let mut random = Random(seed);
        let pool = random_pool(&mut random);
        let mut leases = Vec::new();
        for _ in 0..random.below(12) {
            change(&pool, &mut random, &mut leases);
        }
        let criteria = PickCriteria::default();
        let task = criteria.task;
        // The pick that may end ejections is the last.
        let known = [
            EligibleMembers::WriterOnly,
            EligibleMembers::WriterOrBackup,
            EligibleMembers::Any,
        ]
        .map(|eligible| (eligible, pool.would_pick(eligible, &criteria, NOW)));
        for (eligible, known) in known {
            let picked = match eligible {
                EligibleMembers::WriterOnly => pool.pick_writer(task, NOW),
                EligibleMembers::WriterOrBackup => pool.pick_for_write(&[], task, NOW),
                EligibleMembers::Any => pool.pick(&[], criteria, NOW),
            };
            assert_eq!(known, picked.map(drop), "seed {seed}, {eligible:?}");
            *outcomes
                .entry(format!("{eligible:?} {known:?}"))
                .or_default() += 1;
        }
    }
    assert_eq!(outcomes.len(), 9, "each outcome is reached: {outcomes:?}");
}

fn random_pool(random: &mut Random) -> Pool {
    let members: Vec<_> = (0..1 + random.below(4))
        .map(|_| (1, (random.below(2) == 0).then_some(1)))
        .collect();
    let algorithm = ALGORITHMS[random.below(7) as usize];
    let mut settings = settings(algorithm, &members);
    for member in &mut settings.members[1..] {
        member.priority = random.below(2) as u16;
        if random.below(3) == 0 {
            member.role = Role::Backup;
        }
    }
    if random.below(2) == 0 {
        settings.check = CheckSettings::default();
    }
    Pool::new(&settings, CONNECTIONS_MAX, &Registry::default())
}

/// Changes one member, or has it hold a request.
fn change(pool: &Pool, random: &mut Random, leases: &mut Vec<Lease>) {
    let index = random.below(pool.entries().len() as u64) as usize;
    let member = &pool.entries()[index].member;
    let _ = match random.below(8) {
        0 => member.connect_refused(NOW),
        1 => member.administer(Administrative::Drain),
        2 => member.administer(Administrative::Ready),
        3 => {
            let state = AgentState::default().after(b"drain").expect("readable");
            member.set_agent_state(state, NOW);
            None
        }
        4 => {
            eject(pool, index, NOW);
            None
        }
        5 => member.probe_failed(pool.check(), NOW),
        6 => member.probe_succeeded(pool.check()),
        _ => {
            leases.extend(pool.pick(&[], PickCriteria::default(), NOW));
            None
        }
    };
}
