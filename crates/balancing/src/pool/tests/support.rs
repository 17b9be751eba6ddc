//! Pools for tests, and requests to them.

use super::super::*;
use crate::hash::mix;
use std::cell::Cell;
use std::collections::BTreeMap;

pub(super) const NOW: Duration = Duration::ZERO;

/// A small generator (xorshift64*) that always produces the same sequence for a seed.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

/// More connections than any test holds at once.
pub(super) const CONNECTIONS_MAX: u32 = 10_000;

/// Members `a`, `b`, … with these weights and limits. All are up.
pub(super) fn settings(algorithm: Algorithm, members: &[(u32, Option<u32>)]) -> PoolSettings {
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

pub(super) fn pool(algorithm: Algorithm, members: &[(u32, Option<u32>)]) -> Pool {
    Pool::new(
        &settings(algorithm, members),
        CONNECTIONS_MAX,
        &Registry::default(),
    )
}

pub(super) fn weights(algorithm: Algorithm, weights: &[u32]) -> Pool {
    let members: Vec<_> = weights.iter().map(|weight| (*weight, None)).collect();
    pool(algorithm, &members)
}

/// Criteria with a new random number each time.
pub(super) fn any() -> PickCriteria {
    thread_local!(static RANDOM: Cell<u64> = const { Cell::new(1) });
    let random = mix(RANDOM.replace(RANDOM.get() + 1));
    PickCriteria {
        random,
        ..PickCriteria::default()
    }
}

/// Criteria with a key, if there is one.
pub(super) fn keyed(hash: Option<u64>) -> PickCriteria {
    PickCriteria { key: hash, ..any() }
}

pub(super) fn picked(pool: &Pool) -> Lease {
    pool.pick(&[], any(), NOW).expect("a member is available")
}

/// Picks one member after the other. Each slot is given back before the next pick.
pub(super) fn sequence(pool: &Pool, picks: usize) -> Vec<usize> {
    (0..picks).map(|_| picked(pool).index()).collect()
}

pub(super) fn shares(picks: &[usize]) -> BTreeMap<usize, usize> {
    let mut shares = BTreeMap::new();
    for index in picks {
        *shares.entry(*index).or_default() += 1;
    }
    shares
}

pub(super) const ALGORITHMS: [Algorithm; 7] = [
    Algorithm::LeastLoad,
    Algorithm::CertnameHash,
    Algorithm::First,
    Algorithm::LeastConnections,
    Algorithm::RoundRobin,
    Algorithm::Random,
    Algorithm::SourceHash,
];

/// The algorithms whose shares are exact.
pub(super) const EVEN: [Algorithm; 2] = [Algorithm::LeastConnections, Algorithm::RoundRobin];

/// Members with these numbers of JRubies and weights. All are up.
pub(super) fn jrubies(algorithm: Algorithm, members: &[(u32, u32)]) -> Pool {
    let weights: Vec<_> = members.iter().map(|(_, weight)| (*weight, None)).collect();
    let mut settings = settings(algorithm, &weights);
    for (member, (jrubies, _)) in settings.members.iter_mut().zip(members) {
        member.jrubies = Some(*jrubies);
    }
    Pool::new(&settings, CONNECTIONS_MAX, &Registry::default())
}

pub(super) fn of_work(work: Work) -> PickCriteria {
    PickCriteria {
        task: Task::of(work),
        ..any()
    }
}

pub(super) const STATIC_FILE: PickCriteria = PickCriteria {
    key: None,
    source: None,
    certname: None,
    random: 0,
    task: Task {
        work: Work::File,
        without_jruby: true,
    },
    persistence: MemberPersistence::No,
};

/// Fails attempts on a member until it is ejected. False: many failures did not eject it.
pub(super) fn eject(pool: &Pool, index: usize, now: Duration) -> bool {
    let settings = EjectionSettings::default();
    (0..100).any(|_| pool.attempt_failed(index, None, &settings, now).is_some())
}
