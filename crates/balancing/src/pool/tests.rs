//! Picks by table, and seeded simulations of a pool under load.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering as Atomic};

use super::*;
use crate::agent_answer::AgentState;
use crate::member::WeightSource;
use crate::rendezvous::mix;
use crate::settings::CheckKind;
use crate::share::{ClientKey, Holdings};
use crate::work::Work;

const NOW: Duration = Duration::ZERO;

/// A small generator of our own (xorshift64*), so that a seed means the same run for ever.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

/// More than any test holds at once.
const CONNECTIONS_MAX: u32 = 10_000;

/// Members `a`, `b`, … with these weights and limits, all up.
fn settings(algorithm: Algorithm, members: &[(u32, Option<u32>)]) -> PoolSettings {
    let member = |(index, (weight, max)): (usize, &(u32, Option<u32>))| MemberSettings {
        weight: *weight,
        in_flight_max: *max,
        ..MemberSettings::new(&format!("c{}.example.com:8140", index + 1))
    };
    PoolSettings {
        members: members.iter().enumerate().map(member).collect(),
        algorithm,
        check: CheckSettings {
            kind: CheckKind::None,
            ..CheckSettings::default()
        },
        ..PoolSettings::new("compilers")
    }
}

fn pool(algorithm: Algorithm, members: &[(u32, Option<u32>)]) -> Pool {
    Pool::new(
        &settings(algorithm, members),
        CONNECTIONS_MAX,
        &Registry::default(),
    )
}

fn weights(algorithm: Algorithm, weights: &[u32]) -> Pool {
    let members: Vec<_> = weights.iter().map(|weight| (*weight, None)).collect();
    pool(algorithm, &members)
}

/// Led by nothing but chance, a new number each time.
fn any() -> PickCriteria {
    thread_local!(static RANDOM: Cell<u64> = const { Cell::new(1) });
    let random = mix(RANDOM.replace(RANDOM.get() + 1));
    PickCriteria {
        random,
        ..PickCriteria::default()
    }
}

/// Led by a key, if there is one.
fn keyed(hash: Option<u64>) -> PickCriteria {
    PickCriteria { key: hash, ..any() }
}

fn picked(pool: &Pool) -> Lease {
    pool.pick(&[], any(), NOW).expect("a member is available")
}

/// Picks one after the other, each given back before the next.
fn sequence(pool: &Pool, picks: usize) -> Vec<usize> {
    (0..picks).map(|_| picked(pool).index()).collect()
}

fn shares(picks: &[usize]) -> BTreeMap<usize, usize> {
    let mut shares = BTreeMap::new();
    for index in picks {
        *shares.entry(*index).or_default() += 1;
    }
    shares
}

const ALGORITHMS: [Algorithm; 7] = [
    Algorithm::LeastLoad,
    Algorithm::CertnameHash,
    Algorithm::First,
    Algorithm::LeastConnections,
    Algorithm::RoundRobin,
    Algorithm::Random,
    Algorithm::SourceHash,
];

/// Those whose shares are exact.
const EVEN: [Algorithm; 2] = [Algorithm::LeastConnections, Algorithm::RoundRobin];

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
fn writes_go_to_the_first_member_or_nowhere() {
    let pool = pool(Algorithm::RoundRobin, &[(1, Some(2)), (9, None)]);
    let leases = [
        pool.pick_for_write(&[], Task::default(), NOW),
        pool.pick_for_write(&[], Task::default(), NOW),
    ]
    .map(|lease| lease.expect("free"));
    assert!(leases.iter().all(|lease| lease.index() == 0));
    assert_eq!(
        pool.pick_for_write(&[], Task::default(), NOW).err(),
        Some(PickError::Full)
    );
    drop(leases);
    pool.entries()[0].member.connect_refused(NOW);
    assert_eq!(
        pool.pick_for_write(&[], Task::default(), NOW).err(),
        Some(PickError::NoneAvailable)
    );
}

/// Members of weight 1 with these limits, of which those from `backups` on are backups.
fn with_backups(algorithm: Algorithm, max: &[Option<u32>], backups: usize) -> Pool {
    let members: Vec<_> = max.iter().map(|max| (1, *max)).collect();
    let mut settings = settings(algorithm, &members);
    for member in &mut settings.members[backups..] {
        member.role = Role::Backup;
    }
    Pool::new(&settings, CONNECTIONS_MAX, &Registry::default())
}

#[test]
fn a_backup_is_asked_only_while_no_ordinary_member_is_available() {
    for algorithm in ALGORITHMS {
        for hash in [None, Some(1), Some(2), Some(3)] {
            let pool = with_backups(algorithm, &[Some(1), None, Some(1), None], 2);
            let pick = |tried: &[u64]| pool.pick(tried, keyed(hash), NOW);
            let seen = |picks: usize| {
                let picks: Vec<_> = (0..picks).map(|_| pick(&[]).expect("up").index()).collect();
                shares(&picks).into_keys().collect::<Vec<_>>()
            };
            assert!(seen(60).iter().all(|index| *index < 2), "{algorithm:?}");
            // What one request has tried is no reason: an ordinary member is still there.
            assert_eq!(pick(&[0, 1]).err(), Some(PickError::AllTried));
            pool.entries()[1].member.connect_refused(NOW);
            assert_eq!(seen(20), [0]);
            // Full is not available.
            let full = pick(&[]).expect("free");
            assert_eq!(full.index(), 0);
            let backup = seen(20);
            assert!(backup.iter().all(|index| *index >= 2), "{backup:?}");
            pool.entries()[3].member.administer(Administrative::Drain);
            let second = pick(&[]).expect("the other backup");
            assert_eq!(second.index(), 2);
            assert_eq!(pick(&[]).err(), Some(PickError::Full));
            drop(full);
            assert_eq!(seen(20), [0], "back at once");
            pool.entries()[0]
                .member
                .administer(Administrative::Maintenance);
            assert_eq!(pick(&[2]).err(), Some(PickError::AllTried));
            drop(second);
            assert_eq!(seen(20), [2]);
            assert!(pool.is_available(NOW));
            pool.entries()[2].member.connect_refused(NOW);
            assert_eq!(pick(&[]).err(), Some(PickError::NoneAvailable));
        }
    }
}

#[test]
fn order_puts_backups_after_all_others() {
    for algorithm in ALGORITHMS {
        let pool = with_backups(algorithm, &[None; 5], 3);
        let order: Vec<_> = pool
            .order(any(), NOW)
            .iter()
            .map(|place| place.index >= 3)
            .collect();
        assert_eq!(order, [false, false, false, true, true], "{algorithm:?}");
    }
}

#[test]
fn a_write_goes_to_a_backup_only_while_the_first_is_known_to_be_out() {
    let pool = with_backups(Algorithm::RoundRobin, &[Some(1), None, None, None], 2);
    let pick = |tried: &[u64]| {
        pool.pick_for_write(tried, Task::default(), NOW)
            .map(|lease| lease.index())
    };
    let first = &pool.entries()[0].member;
    assert_eq!(pick(&[]), Ok(0));
    assert_eq!(pick(&[0]), Err(PickError::AllTried), "tried and still up");
    let held = pool
        .pick_for_write(&[], Task::default(), NOW)
        .expect("free");
    assert_eq!(pick(&[]), Err(PickError::Full), "full is at work");
    drop(held);
    first.connect_refused(NOW);
    assert_eq!(pick(&[0]), Ok(2), "down: the first backup, no ordinary one");
    pool.entries()[2].member.connect_refused(NOW);
    assert_eq!(pick(&[0]), Ok(3));
    assert_eq!(pick(&[0, 3]), Err(PickError::NoneAvailable));
    first.answered();
    assert_eq!(pick(&[]), Ok(0), "back");
    first.administer(Administrative::Drain);
    assert_eq!(pick(&[]), Ok(3), "taken out by the operator");
}

#[test]
fn a_write_waits_for_a_first_member_that_nobody_has_probed_yet() {
    let mut settings = settings(Algorithm::LeastConnections, &[(1, None), (1, None)]);
    settings.members[1].role = Role::Backup;
    settings.check = CheckSettings::default();
    let pool = Pool::new(&settings, CONNECTIONS_MAX, &Registry::default());
    pool.entries()[1].member.probe_succeeded(pool.check());
    let pick = || {
        pool.pick_for_write(&[], Task::default(), NOW)
            .map(|lease| lease.index())
    };
    assert_eq!(pick(), Err(PickError::NoneAvailable));
    pool.entries()[0].member.probe_failed(pool.check());
    assert_eq!(pick(), Ok(1));
}

#[test]
fn a_member_down_without_probes_is_tried_by_one_pick_while_others_pass_it_by() {
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
fn order_tells_what_picks_then_do() {
    for algorithm in ALGORITHMS {
        let pool = weights(algorithm, &[3, 1, 2, 1]);
        let mut random = Random(7);
        for round in 0..200 {
            let hash = (round % 3 == 0).then(|| random.below(1 << 31));
            let held: Vec<Lease> = (0..random.below(6)).map(|_| picked(&pool)).collect();
            let lead = keyed(hash);
            let told: Vec<usize> = pool
                .order(lead, NOW)
                .iter()
                .map(|place| place.index)
                .collect();
            assert_eq!(
                told,
                pool.order(lead, NOW)
                    .iter()
                    .map(|place| place.index)
                    .collect::<Vec<_>>()
            );
            let (mut tried, mut order) = (Vec::new(), Vec::new());
            while let Ok(lease) = pool.pick(&tried, lead, NOW) {
                tried.push(lease.member().id());
                order.push(lease.index());
            }
            assert_eq!(told, order, "{algorithm:?}, round {round}");
            drop(held);
        }
    }
}

#[test]
fn order_says_why_the_others_are_not_asked() {
    let pool = pool(
        Algorithm::LeastConnections,
        &[(1, Some(1)), (1, None), (1, None), (1, None)],
    );
    let _full = pool
        .pick_for_write(&[], Task::default(), NOW)
        .expect("free");
    pool.entries()[1].member.connect_refused(NOW);
    pool.entries()[2].member.administer(Administrative::Drain);
    let told: Vec<String> = pool
        .order(any(), NOW)
        .iter()
        .map(|place| format!("{} {}", place.index, place.why))
        .collect();
    assert_eq!(
        told,
        [
            "3 fewest in flight for its weight (0 in flight, weight 1)",
            "0 not used: at its limit (1 of 1 in flight)",
            "1 not used: down",
            "2 not used: drain",
        ]
    );
}

#[test]
fn a_key_stays_with_its_member_and_losing_another_does_not_move_it() {
    let pool = weights(Algorithm::LeastConnections, &[1, 1, 1, 1]);
    let keys: Vec<u64> = (0..4_000)
        .map(|n| key_hash(format!("{{md5}}{n:032x}").as_bytes()))
        .collect();
    let home = |key: u64| pool.pick(&[], keyed(Some(key)), NOW).expect("up").index();
    let before: Vec<usize> = keys.iter().map(|key| home(*key)).collect();
    for (index, share) in shares(&before) {
        assert!(
            share.abs_diff(1_000) < 150,
            "member {index} has {share} of 4000 keys"
        );
    }
    pool.entries()[2].member.connect_refused(NOW);
    let mut moved = Vec::new();
    for (key, home_before) in keys.iter().zip(&before) {
        let home_now = home(*key);
        match *home_before {
            2 => moved.push(home_now),
            kept => assert_eq!(home_now, kept),
        }
    }
    assert_eq!(
        shares(&moved).len(),
        3,
        "the lost member's keys spread over all others"
    );
    pool.entries()[2].member.answered();
    assert_eq!(
        keys.iter().map(|key| home(*key)).collect::<Vec<_>>(),
        before
    );
}

#[test]
fn a_key_finds_its_member_whatever_the_order_of_the_file() {
    let forward = settings(Algorithm::RoundRobin, &[(1, None), (2, None), (3, None)]);
    let mut backward = forward.clone();
    backward.members.reverse();
    let address = |pool: &Pool, key| {
        pool.pick(&[], keyed(Some(key)), NOW)
            .expect("up")
            .member()
            .address()
            .to_string()
    };
    let (forward, backward) = [forward, backward]
        .map(|settings| Pool::new(&settings, CONNECTIONS_MAX, &Registry::default()))
        .into();
    for n in 0..500_u32 {
        let key = key_hash(&n.to_be_bytes());
        assert_eq!(address(&forward, key), address(&backward, key));
    }
}

#[test]
fn keys_share_by_weight() {
    let pool = weights(Algorithm::RoundRobin, &[1, 3]);
    let heavy = (0..8_000_u32)
        .filter(|n| {
            pool.pick(&[], keyed(Some(key_hash(&n.to_be_bytes()))), NOW)
                .expect("up")
                .index()
                == 1
        })
        .count();
    assert!(
        heavy.abs_diff(6_000) < 200,
        "{heavy} of 8000, 6000 are fair"
    );
}

#[test]
fn a_client_stays_with_its_member_and_losing_another_does_not_move_it() {
    let pool = weights(Algorithm::SourceHash, &[1, 1, 2]);
    let home = |n: u32| {
        let source = Some(key_hash(&n.to_be_bytes()));
        let lead = PickCriteria { source, ..any() };
        pool.pick(&[], lead, NOW).expect("up").index()
    };
    let before: Vec<usize> = (0..4_000).map(home).collect();
    for (index, share) in shares(&before) {
        let fair = [1_000, 1_000, 2_000][index];
        assert!(share.abs_diff(fair) < 150, "member {index} has {share}");
    }
    pool.entries()[1].member.administer(Administrative::Drain);
    let now: Vec<usize> = (0..4_000).map(home).collect();
    for (before, now) in before.iter().zip(now) {
        assert!(*before == now || *before == 1, "{before} became {now}");
    }
    pool.entries()[1].member.administer(Administrative::Ready);
    assert_eq!((0..4_000).map(home).collect::<Vec<_>>(), before);
}

#[test]
fn a_key_goes_before_the_clients_address_and_other_algorithms_do_not_look_at_that() {
    let lead = |key, source| PickCriteria {
        key,
        source,
        ..any()
    };
    let others = ALGORITHMS
        .into_iter()
        .filter(|algorithm| *algorithm != Algorithm::First);
    for algorithm in others {
        let pool = weights(algorithm, &[1, 1, 1, 1]);
        let picks = |lead: &dyn Fn() -> PickCriteria| -> usize {
            let pick = |_| pool.pick(&[], lead(), NOW).expect("up").index();
            shares(&(0..60).map(pick).collect::<Vec<_>>()).len()
        };
        assert_eq!(picks(&|| lead(Some(7), Some(any().random))), 1);
        let one = algorithm == Algorithm::SourceHash;
        assert_eq!(picks(&|| lead(None, Some(7))) == 1, one, "{algorithm:?}");
    }
}

#[test]
fn a_draw_shares_by_weight_and_keeps_away_from_who_is_busy() {
    let pool = weights(Algorithm::Random, &[1, 1, 6]);
    let idle = shares(&sequence(&pool, 8_000));
    for (index, fair) in [1_000, 1_000, 6_000].into_iter().enumerate() {
        assert!(idle[&index].abs_diff(fair) < 200, "{idle:?}");
    }
    // Two draws of three, of which the busy one is taken only where nobody else is among them: never.
    let busy = weights(Algorithm::Random, &[1, 1, 1]);
    let lead = any();
    let held = busy.pick(&[], lead, NOW).expect("up");
    let seen = shares(&sequence(&busy, 300));
    assert!(!seen.contains_key(&held.index()), "{seen:?}");
    assert_eq!(seen.len(), 2);
    assert!(sequence(&busy, 300).windows(2).any(|two| two[0] == two[1]));
}

#[test]
fn key_hash_is_what_it_was() {
    assert_eq!(key_hash(b""), KEY_HASH_OF_NOTHING);
    assert_eq!(
        key_hash(b"{md5}d41d8cd98f00b204e9800998ecf8427e"),
        KEY_HASH_OF_EMPTY_FILE
    );
}

#[test]
fn a_reload_keeps_counts_and_health_and_does_not_alter_the_running_pool() {
    let registry = Registry::default();
    let mut settings = settings(Algorithm::LeastConnections, &[(1, Some(1)), (1, None)]);
    let old = Pool::new(&settings, CONNECTIONS_MAX, &registry);
    let held = old.pick_for_write(&[], Task::default(), NOW).expect("free");
    old.entries()[1].member.connect_refused(NOW);
    settings.members[0].in_flight_max = Some(2);
    settings.members[0].weight = 7;
    let new = Pool::new(&settings, CONNECTIONS_MAX, &registry);
    assert!(new.adopt().is_empty());
    assert_eq!(
        old.pick_for_write(&[], Task::default(), NOW).err(),
        Some(PickError::Full),
        "the old limit holds for the old generation"
    );
    let second = new
        .pick_for_write(&[], Task::default(), NOW)
        .expect("the new limit leaves a place");
    assert_eq!(second.member().in_flight(), 2);
    assert_eq!(new.entries()[1].member.health(), Health::Down);
    drop((held, second));
    assert_eq!(registry.members()[0].in_flight(), 0);
}

#[test]
fn a_changed_check_takes_hold_when_adopted_and_resets_health_only() {
    let registry = Registry::default();
    let mut settings = settings(Algorithm::LeastConnections, &[(1, None), (1, None)]);
    let old = Pool::new(&settings, CONNECTIONS_MAX, &registry);
    old.entries()[0].member.connect_refused(NOW);
    old.entries()[1].member.administer(Administrative::Drain);
    settings.check = CheckSettings::default();
    let new = Pool::new(&settings, CONNECTIONS_MAX, &registry);
    assert_eq!(
        old.entries()[0].member.health(),
        Health::Down,
        "building a pool changes nothing"
    );
    let changes = new.adopt();
    assert_eq!(changes.len(), 1);
    assert_eq!((changes[0].0, changes[0].1.to), (0, Health::Unknown));
    assert_eq!(
        new.entries()[1].member.administrative(),
        Administrative::Drain
    );
}

#[test]
fn a_limit_is_never_exceeded_by_threads_and_no_lease_is_lost() {
    for algorithm in ALGORITHMS {
        let pool = pool(algorithm, &[(1, Some(3)), (2, Some(5)), (1, Some(1))]);
        let held = [const { AtomicU32::new(0) }; 3];
        std::thread::scope(|scope| {
            for seed in 1..=8 {
                let (pool, held) = (&pool, &held);
                scope.spawn(move || hammer(pool, held, seed));
            }
        });
        for entry in pool.entries() {
            assert_eq!(entry.member.in_flight(), 0, "{algorithm:?}");
        }
    }
}

/// Takes and gives back at random, checking at each step that nobody is over its limit.
fn hammer(pool: &Pool, held: &[AtomicU32; 3], seed: u64) {
    let mut random = Random(seed);
    let mut leases = Vec::new();
    for _ in 0..5_000 {
        if random.below(2) == 0 {
            let hash = (random.below(4) == 0).then(|| random.below(1 << 31));
            if let Ok(lease) = pool.pick(&[], keyed(hash), NOW) {
                let count = held[lease.index()].fetch_add(1, Atomic::SeqCst) + 1;
                let max = pool.entries()[lease.index()].in_flight_max;
                assert!(count <= max, "{count} held of {max}, seed {seed}");
                leases.push(lease);
            }
        } else if !leases.is_empty() {
            let lease: Lease = leases.swap_remove(random.below(leases.len() as u64) as usize);
            held[lease.index()].fetch_sub(1, Atomic::SeqCst);
            drop(lease);
        }
    }
    for lease in leases {
        held[lease.index()].fetch_sub(1, Atomic::SeqCst);
    }
}

#[test]
fn a_simulated_day_of_failures_keeps_every_promise() {
    for seed in 1..=40 {
        simulate(seed);
    }
}

/// Requests of random length against members that die, come back, are drained and made ready, over two generations.
fn simulate(seed: u64) {
    let mut random = Random(seed);
    let algorithm = ALGORITHMS[random.below(7) as usize];
    let members: Vec<_> = (0..2 + random.below(5))
        .map(|_| {
            (
                1 + random.below(4) as u32,
                (random.below(2) == 0).then(|| 1 + random.below(6) as u32),
            )
        })
        .collect();
    let mut settings = settings(algorithm, &members);
    settings.check = CheckSettings::default();
    let registry = Registry::default();
    let mut pool = Pool::new(&settings, CONNECTIONS_MAX, &registry);
    let mut leases: Vec<Lease> = Vec::new();
    for step in 0..2_000_u64 {
        let now = Duration::from_millis(step * 10);
        let entry = &pool.entries()[random.below(members.len() as u64) as usize];
        match random.below(20) {
            0 => drop(entry.member.connect_refused(now)),
            1 | 2 => drop(entry.member.probe_succeeded(pool.check())),
            3 => drop(entry.member.probe_failed(pool.check())),
            4 => drop(entry.member.administer(Administrative::Drain)),
            5 | 6 => drop(entry.member.administer(Administrative::Ready)),
            7 if random.below(50) == 0 => {
                settings.check.fall = 1 + random.below(4) as u32;
                pool = Pool::new(&settings, CONNECTIONS_MAX, &registry);
                pool.adopt();
            }
            8..=13 if !leases.is_empty() => {
                drop(leases.swap_remove(random.below(leases.len() as u64) as usize))
            }
            _ => {
                // Numbers of members are their slots: they have a registry of their own.
                let tried: Vec<u64> = (0..random.below(3))
                    .map(|_| random.below(members.len() as u64))
                    .collect();
                let hash = (random.below(5) == 0).then(|| random.below(1 << 31));
                match pool.pick(&tried, keyed(hash), now) {
                    Ok(lease) => {
                        assert!(
                            !tried.contains(&lease.member().id()),
                            "seed {seed}, step {step}"
                        );
                        assert_eq!(
                            lease.member().health(),
                            Health::Up,
                            "seed {seed}, step {step}"
                        );
                        assert_eq!(
                            lease.member().administrative(),
                            Administrative::Ready,
                            "seed {seed}, step {step}"
                        );
                        leases.push(lease);
                    }
                    Err(error) => assert_eq!(
                        error,
                        expected_refusal(&pool, &tried),
                        "seed {seed}, step {step}"
                    ),
                }
            }
        }
        for (index, entry) in pool.entries().iter().enumerate() {
            let held = leases.iter().filter(|lease| lease.index() == index).count();
            assert_eq!(
                entry.member.in_flight() as usize,
                held,
                "seed {seed}, step {step}"
            );
            assert!(
                held <= entry.in_flight_max as usize,
                "seed {seed}, step {step}"
            );
        }
    }
    drop(leases);
    assert!(
        registry
            .members()
            .iter()
            .all(|member| member.in_flight() == 0),
        "seed {seed}"
    );
}

#[test]
fn capacity_is_that_of_available_members_within_both_limits() {
    let members = [(1, None), (1, Some(10)), (1, Some(500))];
    let settings = settings(Algorithm::LeastConnections, &members);
    let pool = Pool::new(&settings, 128, &Registry::default());
    assert_eq!(pool.capacity(Task::default(), NOW), 128 + 10 + 128);
    let first = &pool.entries()[0].member;
    first.administer(Administrative::Drain);
    assert_eq!(pool.capacity(Task::default(), NOW), 10 + 128);
    for entry in pool.entries() {
        entry.member.administer(Administrative::Maintenance);
    }
    assert_eq!(
        pool.capacity(Task::default(), NOW),
        128 + 10 + 128,
        "none is available"
    );
    let boundless = Pool::new(&settings, u32::MAX, &Registry::default());
    assert_eq!(boundless.capacity(Task::default(), NOW), u32::MAX);
}

#[test]
fn capacity_for_work_that_holds_jrubies_is_what_these_can_run() {
    let mut settings = settings(Algorithm::LeastLoad, &[(1, None), (1, Some(5)), (1, None)]);
    settings.members[0].jrubies = Some(4);
    settings.members[1].jrubies = Some(8);
    settings.jruby_load_max = 150;
    let pool = Pool::new(&settings, 100, &Registry::default());
    let catalogs = Task::of(Work::Catalog);
    assert_eq!(pool.capacity(catalogs, NOW), 6 + 5 + 100);
    assert_eq!(pool.capacity(STATIC_FILE.task, NOW), 100 + 5 + 100);
    pool.entries()[2].member.learn_jrubies(Some(2));
    assert_eq!(pool.capacity(catalogs, NOW), 6 + 5 + 3);
}

/// The same question asked in another way, from what can be seen outside.
fn expected_refusal(pool: &Pool, tried: &[u64]) -> PickError {
    let up: Vec<(usize, &PoolEntry)> = pool
        .entries()
        .iter()
        .enumerate()
        .filter(|(_, entry)| entry.member.health() == Health::Up)
        .filter(|(_, entry)| entry.member.administrative() == Administrative::Ready)
        .collect();
    let untried: Vec<_> = up
        .iter()
        .filter(|(_, entry)| !tried.contains(&entry.member.id()))
        .collect();
    let is_full = |entry: &PoolEntry| entry.member.in_flight() >= entry.in_flight_max;
    assert!(
        untried.iter().all(|(_, entry)| is_full(entry)),
        "somebody could have been picked"
    );
    match (up.is_empty(), untried.is_empty()) {
        (true, _) => PickError::NoneAvailable,
        (false, true) => PickError::AllTried,
        (false, false) => PickError::Full,
    }
}

const KEY_HASH_OF_NOTHING: u64 = 17_665_956_581_633_026_203;
const KEY_HASH_OF_EMPTY_FILE: u64 = 16_160_422_974_487_284_033;

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
        // It finishes what it has.
        (Drain, false, false),
        (Drain, true, true),
    ] {
        let pool = probed();
        let member = &pool.entries()[0].member;
        member.administer(state);
        if down {
            member.probe_failed(pool.check());
        }
        let lease = pool.pick_elsewhere(0, &[], any(), NOW);
        assert_eq!(lease.is_some(), moves, "{state}, down: {down}");
        assert_ne!(lease.map(|lease| lease.index()), Some(0), "{state}");
    }
}

#[test]
fn a_move_needs_a_member_that_is_available_and_was_not_tried() {
    let pool = probed();
    let down = |index: usize| pool.entries()[index].member.probe_failed(pool.check());
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
    pool.entries()[0].member.probe_failed(pool.check());
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
    // They are retries too: 19 are left of those that are always allowed, then there are two a second.
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
fn slow_start_gives_a_restarted_member_its_share_back_by_time_and_by_requests() {
    let mut settings = settings(Algorithm::RoundRobin, &[(1, None), (1, None)]);
    settings.slow_start = SlowStartSettings {
        duration: Duration::from_secs(60),
        requests: 50,
    };
    settings.jrubies = Some(4);
    let pool = Pool::new(&settings, CONNECTIONS_MAX, &Registry::default());
    pool.adopt();
    let member = &pool.entries()[0].member;
    let at = |seconds| Duration::from_secs(seconds);
    let share = |times: usize| {
        let picks = sequence(&pool, times * 100);
        picks.iter().filter(|index| **index == 0).count()
    };
    assert_eq!(member.warm_up(at(1)), None, "a start is no restart");
    assert_eq!(share(1), 50);
    member.connect_refused(NOW);
    member.answered();
    assert_eq!(member.warm_up(at(100)), Some(0));
    assert!(
        share(11).abs_diff(100) <= 10,
        "a tenth of the other's share"
    );
    assert_eq!(member.warm_up(at(130)), Some(50));
    assert!(share(31).abs_diff(1_100) <= 20, "55 of 155");
    for _ in 0..200 {
        let lease = pool.lease(0, Task::of(Work::Catalog), NOW).expect("room");
        pool.learn(&lease, at(1), false, at(130));
    }
    assert_eq!(member.warm_up(at(130)), None, "50 requests of each JRuby");
    assert_eq!(share(1), 50);
}

#[test]
fn a_pool_whose_only_available_member_is_warming_uses_all_of_it() {
    for algorithm in [
        Algorithm::LeastLoad,
        Algorithm::CertnameHash,
        Algorithm::RoundRobin,
        Algorithm::Random,
    ] {
        let mut settings = settings(algorithm, &[(1, None), (1, None)]);
        settings.slow_start.duration = Duration::from_secs(60);
        settings.jrubies = Some(4);
        let pool = Pool::new(&settings, CONNECTIONS_MAX, &Registry::default());
        pool.adopt();
        pool.entries()[0].member.restarted();
        pool.entries()[1].member.connect_refused(NOW);
        let leases: Vec<_> = (0..4).map(|_| picked(&pool)).collect();
        assert!(
            leases.iter().all(|lease| lease.index() == 0),
            "{algorithm:?}"
        );
        assert_eq!(pool.pick(&[], any(), NOW).err(), Some(PickError::Full));
    }
}

#[test]
fn the_end_of_maintenance_begins_slow_start_with_and_without_probes() {
    for kind in [CheckKind::None, CheckKind::Http] {
        let mut settings = settings(Algorithm::LeastLoad, &[(1, None)]);
        settings.check.kind = kind;
        let pool = Pool::new(&settings, CONNECTIONS_MAX, &Registry::default());
        pool.adopt();
        let member = &pool.entries()[0].member;
        let probes = || {
            for _ in 0..pool.check().rise {
                member.probe_succeeded(pool.check());
            }
        };
        probes();
        assert!(member.is_available());
        member.administer(Administrative::Maintenance);
        member.administer(Administrative::Ready);
        probes();
        assert!(member.is_available());
        assert_eq!(member.warm_up(NOW), Some(0), "{kind:?}");
    }
}

/// A server with so many JRubies that lets so many requests wait and refuses others.
#[test]
fn a_herd_on_a_member_of_unknown_size_ends_as_soon_as_its_jrubies_allow() {
    let (jrubies, inside_max, herd) = (4, 14, 400);
    for algorithm in [Algorithm::LeastLoad, Algorithm::LeastConnections] {
        let pool = pool(algorithm, &[(1, Some(128))]);
        let mut inside: Vec<Lease> = Vec::new();
        let (mut waiting, mut refused, mut second) = (herd, 0, 0);
        while waiting > 0 || !inside.is_empty() {
            let now = Duration::from_secs(second);
            let mut sent = Vec::new();
            while waiting > 0
                && let Ok(lease) = pool.pick(&[], any(), now)
            {
                waiting -= 1;
                sent.push(lease);
            }
            for lease in sent {
                if inside.len() < inside_max {
                    inside.push(lease);
                    continue;
                }
                lease.member().overloaded(now);
                (refused, waiting) = (refused + 1, waiting + 1);
            }
            for lease in inside.drain(..jrubies.min(inside.len())) {
                lease.member().has_room();
            }
            second += 1;
        }
        assert_eq!(
            second, 100,
            "{algorithm:?}: 400 requests of a second each on 4 JRubies"
        );
        assert!((114..=120).contains(&refused), "{algorithm:?}: {refused}");
    }
}

#[test]
fn a_restarted_member_is_asked_at_once_however_full_its_queue_was() {
    let pool = weights(Algorithm::LeastLoad, &[1]);
    let member = &pool.entries()[0].member;
    let at = |seconds| Duration::from_secs(seconds);
    let lease = || pool.pick(&[], any(), at(10));
    drop((lease(), member.overloaded(at(10))));
    assert_eq!(lease().err(), Some(PickError::Full), "for a second");
    member.restarted();
    let leases: Vec<_> = (0..3).map(|_| lease().expect("room")).collect();
    member.overloaded(at(10));
    assert_eq!(
        lease().err(),
        Some(PickError::Full),
        "two of three accepted"
    );
    member.restarted();
    assert!(lease().is_ok());
    drop(leases);
}

#[test]
fn time_in_drain_does_not_make_a_member_warm() {
    let pool = weights(Algorithm::LeastLoad, &[1, 1]);
    let member = &pool.entries()[0].member;
    let at = |seconds| Duration::from_secs(seconds);
    member.restarted();
    assert_eq!(member.warm_up(at(1)), Some(0));
    member.administer(Administrative::Drain);
    assert_eq!(member.warm_up(at(10_000)), Some(0));
    member.administer(Administrative::Ready);
    assert_eq!(member.warm_up(at(10_150)), Some(50));
    assert_eq!(member.warm_up(at(10_300)), None);
}

/// Members with so many JRubies and weights, all up.
fn jrubies(algorithm: Algorithm, members: &[(u32, u32)]) -> Pool {
    let weights: Vec<_> = members.iter().map(|(_, weight)| (*weight, None)).collect();
    let mut settings = settings(algorithm, &weights);
    for (member, (jrubies, _)) in settings.members.iter_mut().zip(members) {
        member.jrubies = Some(*jrubies);
    }
    Pool::new(&settings, CONNECTIONS_MAX, &Registry::default())
}

fn of_work(work: Work) -> PickCriteria {
    PickCriteria {
        task: Task::of(work),
        ..any()
    }
}

const STATIC_FILE: PickCriteria = PickCriteria {
    key: None,
    source: None,
    certname: None,
    random: 0,
    task: Task {
        work: Work::File,
        without_jruby: true,
    },
    stay: MemberPersistence::No,
};

#[test]
fn least_load_spreads_catalogs_over_jrubies_and_keeps_files_away_from_catalogs() {
    let pool = jrubies(Algorithm::LeastLoad, &[(2, 1), (6, 1)]);
    let pick = |work| pool.pick(&[], of_work(work), NOW).expect("up");
    let catalogs: Vec<Lease> = (0..4).map(|_| pick(Work::Catalog)).collect();
    let indexes: Vec<usize> = catalogs.iter().map(Lease::index).collect();
    assert_eq!(shares(&indexes), BTreeMap::from([(0, 1), (1, 3)]));
    // Ten files on the first are less work than two catalogs more on the second.
    drop(catalogs);
    let held = pool
        .pick(&[1], of_work(Work::Catalog), NOW)
        .expect("the first is free");
    let files: Vec<Lease> = (0..3).map(|_| pick(Work::File)).collect();
    assert!(files.iter().all(|lease| lease.index() == 1));
    drop((held, files));
    assert!(
        pool.entries()
            .iter()
            .all(|entry| entry.member.expected_ms() == 0)
    );
}

#[test]
fn without_all_counts_least_load_decides_as_least_connections() {
    let registry = Registry::default();
    let members = [(1, None), (3, None), (2, None)];
    let pool = |algorithm| {
        let pool = Pool::new(&settings(algorithm, &members), CONNECTIONS_MAX, &registry);
        pool.entries()[0].member.learn_jrubies(Some(1_000));
        pool
    };
    let (by_load, by_connections) = (
        pool(Algorithm::LeastLoad),
        self::pool(Algorithm::LeastConnections, &members),
    );
    let mut random = Random(7);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..2_000 {
        if random.below(3) > 0 || ours.is_empty() {
            ours.push(by_load.pick(&[], of_work(Work::Catalog), NOW).expect("up"));
            theirs.push(picked(&by_connections));
            let last = |leases: &[Lease]| leases.last().map(Lease::index);
            assert_eq!(last(&ours), last(&theirs));
        } else {
            let ended = random.below(ours.len() as u64) as usize;
            drop((ours.swap_remove(ended), theirs.swap_remove(ended)));
        }
    }
}

#[test]
fn a_slow_member_gets_less_until_it_has_been_left_alone_for_a_while() {
    let pool = jrubies(Algorithm::LeastLoad, &[(4, 1); 4]);
    let mut got = [0; 4];
    for _ in 0..400 {
        let lease = pool.pick(&[], of_work(Work::Catalog), NOW).expect("up");
        got[lease.index()] += 1;
        let took = if lease.index() == 0 { 20 } else { 4 };
        pool.learn(&lease, Duration::from_secs(took), false, NOW);
    }
    assert!(got[0] < 40, "{got:?}");
    let later = |minutes: u64| Duration::from_secs(60 * minutes);
    let back = (1..600).find(|seconds| {
        let now = later(1) + Duration::from_secs(*seconds);
        pool.pick(&[], of_work(Work::Catalog), now)
            .expect("up")
            .index()
            == 0
    });
    assert!(back.is_some(), "it is asked again within ten minutes");
}

#[test]
fn quick_errors_attract_nothing() {
    let pool = jrubies(Algorithm::LeastLoad, &[(4, 1); 2]);
    let mut got = [0; 2];
    for _ in 0..1_000 {
        let lease = pool.pick(&[], of_work(Work::Catalog), NOW).expect("up");
        got[lease.index()] += 1;
        let failing = lease.index() == 0;
        let took = if failing { 1 } else { 4_000 };
        pool.learn(&lease, Duration::from_millis(took), failing, NOW);
    }
    assert!(got[0] <= 510, "{got:?}");
}

#[test]
fn busy_jrubies_make_requests_wait_and_those_without_a_jruby_run() {
    let mut settings = settings(Algorithm::LeastLoad, &[(1, None), (1, Some(3))]);
    settings.jrubies = Some(2);
    settings.jruby_load_max = 150;
    settings.members[1].jrubies = Some(4);
    settings.members[1].priority = 1;
    let pool = Pool::new(&settings, CONNECTIONS_MAX, &Registry::default());
    assert_eq!(pool.entries()[0].working_max(), 3);
    assert_eq!(pool.entries()[1].working_max(), 3, "never above `max`");
    let held: Vec<Lease> = (0..3).map(|_| picked(&pool)).collect();
    assert!(held.iter().all(|lease| lease.index() == 0));
    assert_eq!(
        pool.pick(&[], any(), NOW).err(),
        Some(PickError::Full),
        "busy JRubies are no reason to ask the next priority"
    );
    let file = pool.pick(&[], STATIC_FILE, NOW).expect("it needs no JRuby");
    assert_eq!((file.index(), file.member().working()), (0, 3));
    let why = pool.order(any(), NOW)[1].why;
    assert_eq!(why, RankReason::Working { working: 3, max: 3 });
    drop((held, file));
    assert_eq!(pool.entries()[0].member.working(), 0);
}

#[test]
fn learned_jrubies_count_until_configured_ones_override_them() {
    let registry = Registry::default();
    let mut settings = settings(Algorithm::LeastLoad, &[(1, None)]);
    let pool = Pool::new(&settings, CONNECTIONS_MAX, &registry);
    assert_eq!(pool.entries()[0].working_max(), CONNECTIONS_MAX);
    pool.entries()[0].member.learn_jrubies(Some(6));
    assert_eq!(pool.entries()[0].working_max(), 6);
    settings.jrubies = Some(4);
    let pool = Pool::new(&settings, CONNECTIONS_MAX, &registry);
    assert_eq!(pool.entries()[0].working_max(), 4);
    settings.members[0].jrubies = Some(5);
    let pool = Pool::new(&settings, CONNECTIONS_MAX, &registry);
    assert_eq!(pool.entries()[0].working_max(), 5);
}

#[test]
fn the_next_priority_is_asked_while_none_of_a_better_one_is_available_and_backups_last() {
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

#[test]
fn first_takes_the_first_below_its_limit_in_the_configured_order() {
    let pool = pool(Algorithm::First, &[(1, Some(2)), (9, Some(1)), (1, None)]);
    let held: Vec<Lease> = (0..5).map(|_| picked(&pool)).collect();
    let indexes: Vec<usize> = held.iter().map(Lease::index).collect();
    assert_eq!(indexes, [0, 0, 1, 2, 2]);
    assert_eq!(pool.order(any(), NOW)[0].why, RankReason::First);
}

#[test]
fn a_certname_stays_on_its_member_while_that_is_within_the_bound() {
    let pool = jrubies(Algorithm::CertnameHash, &[(2, 1), (4, 1), (6, 2)]);
    let lead = |certname: usize| PickCriteria {
        certname: Some(key_hash(format!("web{certname}").as_bytes())),
        ..any()
    };
    let home = |certname| pool.pick(&[], lead(certname), NOW).expect("up").index();
    let before: Vec<usize> = (0..10_000).map(home).collect();
    // By JRubies times weight: 2, 4 and 12 of 18.
    for (index, fair) in [(0, 1_111), (1, 2_222), (2, 6_667)] {
        let share = before.iter().filter(|home| **home == index).count();
        assert!(share.abs_diff(fair) < 200, "{index}: {share}");
    }
    pool.entries()[0].member.connect_refused(NOW);
    for (certname, before) in before.iter().enumerate() {
        assert!(
            *before == 0 || home(certname) == *before,
            "only its own move"
        );
    }
}

/// Whatever the number of requests and their clients, no member has more than 1.25 times the mean for its JRubies.
#[test]
fn certname_hash_keeps_every_member_within_its_bound() {
    let members = [2, 4, 8, 8];
    let pool = jrubies(
        Algorithm::CertnameHash,
        &members.map(|jrubies| (jrubies, 1)),
    );
    let total: u32 = members.iter().sum();
    let mut held = Vec::new();
    for certname in 0..u64::from(total) {
        let lead = PickCriteria {
            // Half of the requests are of one agent.
            certname: Some(mix(certname / 2 * (certname % 2))),
            ..any()
        };
        let Ok(lease) = pool.pick(&[], lead, NOW) else {
            break;
        };
        let (index, running) = (lease.index(), held.len() as f64 + 1.0);
        held.push(lease);
        let working = f64::from(pool.entries()[index].member.working());
        let bound = 1.25 * running * f64::from(members[index]) / f64::from(total);
        assert!(working <= bound.ceil(), "{working} of {bound}");
    }
    assert!(held.len() >= 18, "{}", held.len());
}

/// Picks given back at once, so that weights alone decide.
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
            let lead = PickCriteria {
                source: Some(mix(n ^ 0xabcd)),
                certname: Some(mix(n ^ 0xabcd)),
                ..any()
            };
            pool.pick(&[], lead, NOW).expect("up").index()
        };
        let shares = shares(&(0..10_000).map(pick).collect::<Vec<_>>());
        for (index, weight) in weights.iter().enumerate() {
            let fair = 10_000 * *weight as usize / total as usize;
            let share = shares.get(&index).copied().unwrap_or(0);
            assert!(share.abs_diff(fair) <= 200, "{algorithm:?}: {shares:?}");
        }
    }
}

#[test]
fn a_member_more_takes_its_share_of_the_keys_and_no_other_key_moves() {
    for algorithm in [Algorithm::SourceHash, Algorithm::CertnameHash] {
        let lead = |n: u64| PickCriteria {
            source: Some(mix(n)),
            certname: Some(mix(n)),
            ..any()
        };
        let homes = |members: usize| {
            let pool = weights(algorithm, &vec![1; members]);
            let home = |n| pool.pick(&[], lead(n), NOW).expect("up").index();
            (0..10_000).map(home).collect::<Vec<_>>()
        };
        let (before, after) = (homes(9), homes(10));
        let moved = before.iter().zip(&after).filter(|(a, b)| a != b).count();
        assert!((800..=1_200).contains(&moved), "{algorithm:?}: {moved}");
        let elsewhere = before
            .iter()
            .zip(&after)
            .filter(|(a, b)| a != b && **b != 9);
        assert_eq!(elsewhere.count(), 0);
    }
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
fn a_later_priority_is_asked_only_while_no_member_of_an_earlier_one_is_up() {
    let pool = two_sites();
    let pick = |tried: &[u64]| pool.pick(tried, PickCriteria::default(), Duration::ZERO);
    let held: Vec<_> = (0..2).map(|_| pick(&[]).expect("site A")).collect();
    assert!(held.iter().all(|lease| lease.index() < 2));
    // Full is not down: another site would cost more than the wait.
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

/// Fails attempts at a member until it is ejected, or `false` after many.
fn eject(pool: &Pool, index: usize, now: Duration) -> bool {
    let settings = EjectionSettings::default();
    (0..100).any(|_| pool.attempt_failed(index, None, &settings, now).is_some())
}

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
    // One that is full is waited for: that its place is taken does not end an ejection.
    let limited = pool_of_full_and_ejected();
    assert_eq!(limited.0.pick(&[], any(), NOW).err(), Some(PickError::Full));
}

/// Two members: the first is ejected, the second has its one place taken.
fn pool_of_full_and_ejected() -> (Pool, Lease) {
    let pool = pool(Algorithm::RoundRobin, &[(1, Some(1)), (1, Some(1))]);
    assert!(eject(&pool, 0, NOW));
    let lease = picked(&pool);
    assert_eq!(lease.index(), 1);
    (pool, lease)
}

#[test]
fn neither_an_agent_check_nor_an_ejection_moves_the_writes_of_a_ca() {
    let mut settings = settings(
        Algorithm::LeastConnections,
        &[(1, None), (1, None), (1, None)],
    );
    settings.members[2].role = Role::Backup;
    let pool = Pool::new(&settings, CONNECTIONS_MAX, &Registry::default());
    let write = || pool.pick_for_write(&[], Task::default(), NOW);
    assert!(eject(&pool, 0, NOW));
    assert_eq!(write().expect("ejections do not concern it").index(), 0);
    for answer in ["drain", "maint", "down", "0%"] {
        let state = AgentState::default()
            .after(answer.as_bytes())
            .expect("readable");
        pool.entries()[0].member.set_agent_state(state);
        assert_eq!(write().err(), Some(PickError::NoneAvailable), "{answer}");
    }
    pool.entries()[0].member.administer(Administrative::Drain);
    assert_eq!(write().expect("the operator may move them").index(), 2);
}

#[test]
fn a_client_stays_with_its_member_while_that_is_available_and_not_full() {
    for algorithm in ALGORITHMS {
        let pool = pool(algorithm, &[(1, Some(1)), (1, Some(1)), (1, Some(1))]);
        let home = &pool.entries()[1].member;
        let hash = (0..).find(|hash| pool.first_choice(*hash) == Some(1));
        for stay in [
            MemberPersistence::Member(home.id()),
            MemberPersistence::Hash(hash.expect("a hash")),
        ] {
            let lead = PickCriteria { stay, ..any() };
            let pick = |tried: &[u64]| pool.pick(tried, lead, NOW);
            let held = pick(&[]).expect("free");
            assert_eq!(held.index(), 1, "{stay:?}");
            let other = pick(&[]).expect("the next request does not wait");
            assert_ne!(other.index(), 1, "{stay:?}");
            assert!(pool.keeps_clients(1, NOW), "it is full, not gone");
            drop(held);
            assert_eq!(pick(&[]).expect("free").index(), 1, "{stay:?}");
            drop(other);
            assert_ne!(pick(&[home.id()]).expect("another").index(), 1, "{stay:?}");
            for state in [Administrative::Drain, Administrative::Maintenance] {
                home.administer(state);
                let moved = pick(&[]).expect("another");
                assert_ne!(moved.index(), 1, "{stay:?} {state}");
                assert!(!pool.keeps_clients(1, NOW), "{state}");
            }
            home.administer(Administrative::Ready);
            assert_eq!(pick(&[]).expect("free").index(), 1, "{stay:?}");
        }
        assert!(eject(&pool, 1, NOW));
        assert!(!pool.keeps_clients(1, NOW), "it is ejected");
        let stay = MemberPersistence::Member(home.id());
        let moved = pool.pick(&[], PickCriteria { stay, ..any() }, NOW);
        assert_ne!(moved.expect("another").index(), 1);
        let stay = MemberPersistence::Member(u64::MAX);
        assert!(pool.pick(&[], PickCriteria { stay, ..any() }, NOW).is_ok());
    }
}

#[test]
fn a_client_that_stays_asks_its_member_again_after_a_kept_connection_broke() {
    let pool = pool(Algorithm::RoundRobin, &[(1, None), (1, None)]);
    let home = pool.entries()[1].member.id();
    let client = ClientKey::Address("127.0.0.1".parse().expect("an address"));
    let offer = |tries: usize, after_reuse| Offer {
        account: Arc::new(Holdings::default()).of(&"p".into(), client.clone()),
        target: EligibleMembers::Any,
        lead: PickCriteria {
            stay: MemberPersistence::Member(home),
            ..any()
        },
        tried: vec![home; tries],
        after_reuse,
        comes_back: false,
    };
    for (tries, after_reuse, index) in [(1, true, 1), (1, false, 0), (2, false, 0), (2, true, 0)] {
        let lease = pool.pick_for(&offer(tries, after_reuse), NOW);
        assert_eq!(lease.expect("up").index(), index, "{tries} {after_reuse}");
    }
}

/// Whatever happens to members, the word that a pick reads says of each what a look at every reason says.
#[test]
fn the_word_of_a_member_agrees_with_a_closer_look_after_whatever_happened() {
    for seed in 1..=40 {
        let mut random = Random(seed);
        let mut settings = settings(
            Algorithm::LeastLoad,
            &[(1, Some(4)), (3, None), (2, Some(9))],
        );
        settings.jrubies = (seed % 2 == 0).then_some(2);
        if seed % 4 > 1 {
            settings.check = CheckSettings::default();
        }
        let pool = Pool::new(&settings, CONNECTIONS_MAX, &Registry::default());
        let mut leases = Vec::new();
        let mut opened = 0;
        for step in 0..3_000_u64 {
            let now = Duration::from_millis(step * 50);
            let index = random.below(3) as usize;
            happen(&pool, index, &mut random, &mut leases, now);
            pool.refresh();
            for entry in pool.entries() {
                for task in [Task::default(), STATIC_FILE.task] {
                    let (places, why) = (entry.member.slots.get(), entry.obstacle(task, now));
                    let open = why.is_none() && entry.member.ejected_for(now).is_none();
                    assert_eq!(
                        entry.is_open(task, now),
                        open,
                        "seed {seed}, step {step}: {why:?}"
                    );
                    let looks = entry.limits(task).admit(places);
                    assert!(open || !looks, "seed {seed}, step {step}: {why:?}");
                    let known = entry.terms.admit(task, places);
                    assert_eq!(
                        known, looks,
                        "seed {seed}, step {step}: a change was missed"
                    );
                    opened += u32::from(looks);
                }
            }
        }
        assert!(opened > 1_000, "seed {seed}: {opened}");
    }
}

/// Something that happens to a member.
fn happen(pool: &Pool, index: usize, random: &mut Random, leases: &mut Vec<Lease>, now: Duration) {
    use Administrative::{Drain, Maintenance, Ready};
    let member = &pool.entries()[index].member;
    match random.below(23) {
        0 => drop(member.connect_refused(now)),
        1..=3 => drop((member.probe_succeeded(pool.check()), member.answered())),
        4 => drop(member.probe_failed(pool.check())),
        5 => drop(member.administer([Drain, Maintenance][random.below(2) as usize])),
        6 | 7 => drop(member.administer(Ready)),
        8 => {
            let answer: &[u8] = [&b"drain"[..], b"50%", b"0%", b"maint"][random.below(4) as usize];
            member.set_agent_state(AgentState::default().after(answer).expect("readable"));
        }
        9 | 10 => member.set_agent_state(AgentState::default()),
        11 => drop(member.overloaded(now)),
        12 => member.has_room(),
        13 => drop(eject(pool, index, now)),
        14 => drop(member.learn_jrubies(Some(1 + random.below(5) as u32))),
        15..=18 if !leases.is_empty() => {
            leases.swap_remove(random.below(leases.len() as u64) as usize);
        }
        _ => leases.extend(pool.pick(&[], of_work(Work::Catalog), now)),
    }
}
