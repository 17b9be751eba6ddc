//! Compares the stored sums of a pool with sums over all members, after every change and at every time.

use super::super::*;
use super::support::*;
use crate::agent_answer::AgentState;
use crate::member::WeightSource;
use proptest::prelude::{
    Just, ProptestConfig, Strategy, TestCaseError, any as arbitrary, prop, prop_assert_eq,
    prop_oneof, proptest,
};

/// A change of a member, by its index, or of a whole pool.
#[derive(Clone, Debug)]
enum Change {
    Administer(usize, Administrative),
    Agent(usize, AgentState),
    Weight(usize, u32),
    SlowStart(usize),
    Starting(usize),
    WarmUp(usize),
    Refresh(usize),
    Jrubies(usize, Option<u32>),
    Probe(usize, bool),
    Refused(usize),
    Answered(usize),
    Overloaded(usize),
    HasRoom(usize),
    Fail(usize),
    EndEjections,
    Pick {
        pool: usize,
        static_file: bool,
    },
    PickWrite(usize),
    GiveBack(usize),
    Learn(usize),
    Adopt(usize),
    /// Gives a member the state of another one, as when DNS names a server differently.
    Inherit(usize, usize),
    /// Replaces a pool by one with other settings, as a reload does.
    Replace(usize, Box<PoolSettings>),
    /// This number of milliseconds passes.
    Pass(u64),
    /// A request that read the time this number of milliseconds ago uses the sums.
    LookBack(u64),
}

const NAMES: usize = 5;

fn states() -> impl Strategy<Value = Administrative> {
    prop::sample::select(vec![
        Administrative::Ready,
        Administrative::Drain,
        Administrative::Maintenance,
    ])
}

fn pool_settings() -> impl Strategy<Value = PoolSettings> {
    let member = |name| {
        let limits = (prop::option::of(1..4u32), prop::option::of(1..4u32));
        (1..3u32, limits, arbitrary::<bool>(), 0..3u16).prop_map(
            move |(weight, (in_flight_max, jrubies), is_backup, priority)| MemberSettings {
                weight,
                in_flight_max,
                jrubies,
                priority,
                role: if is_backup {
                    Role::Backup
                } else {
                    Role::Ordinary
                },
                ..MemberSettings::new(&address(name))
            },
        )
    };
    let members: Vec<_> = (0..NAMES).map(member).collect();
    let kind = prop::sample::select(vec![CheckKind::None, CheckKind::Tcp]);
    let shape = (
        1..=NAMES,
        0..NAMES,
        arbitrary::<bool>(),
        arbitrary::<bool>(),
    );
    (members, shape, kind, 0..3u64).prop_map(|(mut members, shape, kind, slow_start)| {
        let (count, first, one_priority, no_backups) = shape;
        members.rotate_left(first);
        members.truncate(count);
        for member in &mut members {
            if one_priority {
                member.priority = 0;
            }
            if no_backups {
                member.role = Role::Ordinary;
            }
        }
        PoolSettings {
            members,
            algorithm: Algorithm::LeastLoad,
            jruby_load_max: 150,
            check: CheckSettings {
                kind,
                ..CheckSettings::default()
            },
            slow_start: SlowStartSettings {
                duration: Duration::from_secs(slow_start),
                requests: 2,
            },
            ..PoolSettings::new("compilers")
        }
    })
}

fn change() -> impl Strategy<Value = Change> {
    let member = || 0..NAMES;
    let agent =
        (states(), arbitrary::<bool>(), 0..3u32).prop_map(|(administrative, is_down, weight)| {
            AgentState {
                administrative,
                is_down,
                weight_percent: weight * 50,
            }
        });
    let of_member = prop_oneof![
        2 => (member(), states()).prop_map(|(at, state)| Change::Administer(at, state)),
        1 => (member(), agent).prop_map(|(at, state)| Change::Agent(at, state)),
        1 => (member(), 0..3u32).prop_map(|(at, weight)| Change::Weight(at, weight * 50)),
        1 => member().prop_map(Change::SlowStart),
        1 => member().prop_map(Change::Starting),
        1 => member().prop_map(Change::WarmUp),
        1 => member().prop_map(Change::Refresh),
        1 => (member(), prop::option::of(1..4u32)).prop_map(|(at, count)| Change::Jrubies(at, count)),
        4 => (member(), arbitrary::<bool>()).prop_map(|(at, good)| Change::Probe(at, good)),
        3 => member().prop_map(Change::Refused),
        1 => member().prop_map(Change::Answered),
        2 => member().prop_map(Change::Overloaded),
        1 => member().prop_map(Change::HasRoom),
        2 => member().prop_map(Change::Fail),
        1 => (member(), member()).prop_map(|(from, to)| Change::Inherit(from, to)),
    ];
    let pool = || 0..2usize;
    let of_pool = prop_oneof![
        8 => (pool(), arbitrary::<bool>())
            .prop_map(|(pool, static_file)| Change::Pick { pool, static_file }),
        1 => pool().prop_map(Change::PickWrite),
        4 => arbitrary::<usize>().prop_map(Change::GiveBack),
        1 => arbitrary::<usize>().prop_map(Change::Learn),
        1 => Just(Change::EndEjections),
        1 => pool().prop_map(Change::Adopt),
        1 => (pool(), pool_settings())
            .prop_map(|(pool, settings)| Change::Replace(pool, Box::new(settings))),
        // A member that refused a connection may be tried after a second. A pause has the same length.
        6 => prop::sample::select(vec![1, 10, 400, 999, 1_000, 10_000, 600_000])
            .prop_map(Change::Pass),
        2 => (0..3_000u64).prop_map(Change::LookBack),
    ];
    prop_oneof![1 => of_member, 1 => of_pool]
}

fn address(name: usize) -> String {
    format!("c{name}.example.com:8140")
}

/// Two generations of a pool, which share members.
struct Site {
    registry: Registry,
    pools: [Pool; 2],
    leases: Vec<(usize, Lease)>,
    now: Duration,
}

impl Site {
    fn new(settings: &[PoolSettings; 2]) -> Self {
        let registry = Registry::default();
        let pools = settings
            .each_ref()
            .map(|settings| Pool::new(settings, 4, &registry));
        Self {
            registry,
            pools,
            leases: Vec::new(),
            now: NOW,
        }
    }

    fn make(&mut self, change: Change) {
        let now = self.now;
        let member = |name: usize| self.registry.member("compilers", &address(name));
        match change {
            Change::Administer(name, state) => drop(member(name).administer(state)),
            Change::Agent(name, state) => member(name).set_agent_state(state, now),
            Change::Weight(name, percent) => {
                member(name).set_weight_percent(WeightSource::AgentCheck, percent);
            }
            Change::SlowStart(name) => member(name).restarted(),
            Change::Starting(name) => member(name).noted_starting(),
            Change::WarmUp(name) => drop(member(name).warm_up(now)),
            Change::Refresh(name) => member(name).refresh(now),
            Change::Jrubies(name, count) => drop(member(name).learn_jrubies(count)),
            Change::Probe(name, good) => {
                for pool in &self.pools {
                    if good {
                        member(name).probe_succeeded(pool.check())
                    } else {
                        member(name).probe_failed(pool.check(), now)
                    };
                }
            }
            Change::Refused(name) => drop(member(name).connect_refused(now)),
            Change::Answered(name) => drop(member(name).answered()),
            Change::Overloaded(name) => drop(member(name).overloaded(now)),
            Change::HasRoom(name) => (0..8).for_each(|_| member(name).has_room()),
            Change::Fail(index) => {
                for pool in &self.pools {
                    if index < pool.entries().len() {
                        eject(pool, index, now);
                    }
                }
            }
            Change::EndEjections => {
                for pool in &self.pools {
                    pool.end_ejections_in_panic(&EjectionSettings::default(), now);
                }
            }
            Change::Pick { pool, static_file } => {
                let criteria = if static_file { STATIC_FILE } else { any() };
                let lease = self.pools[pool].pick(&[], criteria, now).ok();
                self.leases.extend(lease.map(|lease| (pool, lease)));
            }
            Change::PickWrite(pool) => {
                let lease = self.pools[pool].pick_for_write(&[], Task::default(), now);
                self.leases.extend(lease.ok().map(|lease| (pool, lease)));
            }
            Change::GiveBack(n) if !self.leases.is_empty() => {
                self.leases.swap_remove(n % self.leases.len());
            }
            Change::Learn(n) if !self.leases.is_empty() => {
                let (pool, lease) = &self.leases[n % self.leases.len()];
                self.pools[*pool].learn(lease, Duration::from_secs(1), false, now);
            }
            Change::Adopt(pool) => drop(self.pools[pool].adopt()),
            Change::Inherit(from, to) => {
                self.registry
                    .inherit("compilers", &address(from), &[(&address(to), true)]);
            }
            Change::Replace(pool, settings) => {
                self.pools[pool] = Pool::new(&settings, 4, &self.registry);
                self.pools[pool].adopt();
            }
            Change::Pass(ms) => self.now += Duration::from_millis(ms),
            Change::GiveBack(_) | Change::Learn(_) | Change::LookBack(_) => {}
        }
    }
}

/// Computes the same results as [`Pool`], each with a look at every member.
struct Full<'a>(&'a Pool, Duration);

impl Full<'_> {
    fn tier(&self) -> u32 {
        let Self(pool, now) = *self;
        let of = |role: Role| pool.entries.iter().filter(move |entry| entry.role == role);
        let is_available = of(Role::Ordinary).any(|entry| entry.is_available(now));
        let only_backups = of(Role::Ordinary).next().is_none();
        let role = if !is_available && of(Role::Backup).next().is_some() {
            Role::Backup
        } else {
            Role::Ordinary
        };
        let up = of(role).filter(|entry| entry.is_up_and_ready(now));
        let lowest_up = up.map(|entry| entry.tier).min();
        let lowest = of(role).map(|entry| entry.tier).min();
        if only_backups && pool.tiers == 1 {
            0
        } else {
            lowest_up.or(lowest).unwrap_or(0)
        }
    }

    fn usable(&self) -> Vec<&PoolEntry> {
        let Self(pool, now) = *self;
        let tier = self.tier();
        let entries = pool.entries.iter();
        entries
            .filter(|entry| entry.tier == tier && entry.is_up_and_ready(now))
            .collect()
    }

    fn capacity(&self, without_jruby: bool) -> u32 {
        let most = |entry: &PoolEntry| {
            if without_jruby {
                entry.in_flight_max
            } else {
                entry.working_max()
            }
        };
        let usable = self.usable();
        if usable.is_empty() {
            self.0.entries.iter().map(most).sum()
        } else {
            usable.into_iter().map(most).sum()
        }
    }

    fn free_connections(&self) -> u32 {
        let free = |entry: &PoolEntry| entry.in_flight_max.saturating_sub(entry.member.in_flight());
        self.usable().into_iter().map(free).sum()
    }

    fn jrubies(&self) -> u32 {
        let Self(pool, now) = *self;
        let up = pool
            .entries
            .iter()
            .filter(|entry| entry.is_up_and_ready(now));
        up.map(PoolEntry::working_max).sum()
    }
}

fn compare(pool: &Pool, now: Duration) -> Result<(), TestCaseError> {
    let full = Full(pool, now);
    for without_jruby in [false, true] {
        let task = Task {
            without_jruby,
            ..Task::default()
        };
        prop_assert_eq!(pool.capacity(task, now), full.capacity(without_jruby));
    }
    prop_assert_eq!(pool.active_tier(now), full.tier());
    let free = full.free_connections();
    for number in [0, 1, free.saturating_sub(1), free, free + 1] {
        prop_assert_eq!(
            pool.has_free_connections(number, now),
            free > number,
            "{}",
            number
        );
    }
    let sums = pool.sums.at(&pool.entries, &pool.state.tally, now);
    prop_assert_eq!(sums.jrubies, full.jrubies());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn sums_are_those_over_all_members_after_every_change_and_at_every_time(
        first in pool_settings(),
        second in pool_settings(),
        changes in prop::collection::vec(change(), 1..80),
    ) {
        let mut site = Site::new(&[first, second]);
        for change in changes {
            let back = match &change {
                Change::LookBack(ms) => Duration::from_millis(*ms),
                _ => Duration::ZERO,
            };
            site.make(change);
            for pool in &site.pools {
                compare(pool, site.now.saturating_sub(back))?;
                compare(pool, site.now)?;
            }
        }
    }
}

/// `cargo xtask bench growth` measures what this saves.
#[test]
fn sums_are_computed_once_until_something_changes_or_a_time_passes() {
    let pool = weights(Algorithm::LeastLoad, &[1; 100]);
    let at = Duration::from_secs;
    let computations = |now: Duration| {
        let before = pool.sums.computations();
        let capacity = pool.capacity(Task::default(), now);
        assert!(pool.has_free_connections(0, now));
        (
            capacity / CONNECTIONS_MAX,
            pool.sums.computations() - before,
        )
    };
    assert_eq!(computations(at(1)), (100, 1));
    let leases: Vec<_> = (0..200).map(|_| picked(&pool)).collect();
    assert_eq!(computations(at(2)), (100, 0), "requests change no sum");
    drop(leases);
    pool.entries()[0].member.connect_refused(at(2));
    assert_eq!(computations(at(2)), (99, 1));
    assert_eq!(computations(at(2)), (99, 0));
    assert_eq!(computations(at(3)), (100, 1), "it may be tried again");
    assert_eq!(computations(at(4)), (100, 0));
    assert_eq!(
        computations(at(2)),
        (99, 2),
        "a request that is late stores nothing"
    );
    assert_eq!(computations(at(4)), (100, 0));
}
