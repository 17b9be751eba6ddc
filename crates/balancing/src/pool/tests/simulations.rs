//! Seeded simulations and threads: limits and guarantees hold whatever happens.

use super::super::*;
use super::support::*;
use crate::agent_answer::AgentState;
use std::sync::atomic::{AtomicU32, Ordering as Atomic};

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

/// Takes and gives back slots at random, and checks at each step that no member exceeds its limit.
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

/// Requests of random length to members that fail, return, are drained and made ready, over two generations.
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
            3 => drop(entry.member.probe_failed(pool.check(), now)),
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
                // The members have a registry of their own, so their numbers are their indexes.
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

/// Computes the expected refusal in another way, from the public state of the members.
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
        "a member could have been picked"
    );
    match (up.is_empty(), untried.is_empty()) {
        (true, _) => PickError::NoneAvailable,
        (false, true) => PickError::AllTried,
        (false, false) => PickError::Full,
    }
}

/// Whatever happens to the members, the word that a pick reads agrees with a check of every reason.
#[test]
fn the_packed_state_of_a_member_agrees_with_a_full_check_after_any_event() {
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
                    let known = entry.factors.admit(task, places);
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
        4 => drop(member.probe_failed(pool.check(), now)),
        5 => drop(member.administer([Drain, Maintenance][random.below(2) as usize])),
        6 | 7 => drop(member.administer(Ready)),
        8 => {
            let answer: &[u8] = [&b"drain"[..], b"50%", b"0%", b"maint"][random.below(4) as usize];
            member.set_agent_state(AgentState::default().after(answer).expect("readable"), now);
        }
        9 | 10 => member.set_agent_state(AgentState::default(), now),
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
