//! A member as one generation's configuration sees it.

use std::{sync::Arc, time::Duration};

use crate::{
    administrative::Administrative,
    hash::key_hash,
    health::Health,
    member::Member,
    member_factors::MemberFactors,
    rank::RankReason,
    registry::Registry,
    settings::{MemberSettings, PoolSettings, Role},
    slots::{Occupancy, SlotLimits},
    work::Task,
};

/// Most members of a pool that are chosen among.
pub const MEMBERS_MAX: usize = 1_024;

/// A member, and what this generation's configuration says about it.
#[derive(Debug)]
pub struct PoolEntry {
    /// Its run time state, shared with other generations.
    pub member: Arc<Member>,
    /// Share of the load, at least 1.
    pub weight: u32,
    /// Most attempts in flight at once.
    pub in_flight_max: u32,
    /// Name its certificate must carry; none: the host of its address.
    pub server_name: Option<Arc<str>>,
    /// Whether it is asked only while no ordinary member is available.
    pub role: Role,
    /// As configured.
    pub priority: u16,
    /// The place of its priority among those of the pool; members of the first are asked while one is available.
    pub tier: u32,
    /// JRubies as configured, which override those that its status service shows.
    pub(crate) jrubies: Option<u32>,
    pub(crate) jruby_load_max: u32,
    pub(crate) index: u32,
    pub(crate) address_hash: u64,
    pub(crate) factors: MemberFactors,
}

/// What decided a choice.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    Key,
    Source,
    Certname,
    LeastLoad,
    LeastConnections,
    Rotation,
    Drawn,
    First,
    Persistence,
}

impl PoolEntry {
    pub(crate) fn new(
        settings: &MemberSettings,
        pool: &PoolSettings,
        connections_max: u32,
        registry: &Registry,
    ) -> Self {
        Self {
            member: registry.member(&pool.name, &settings.address),
            weight: settings.weight.max(1),
            in_flight_max: settings
                .in_flight_max
                .map_or(connections_max, |max| max.min(connections_max)),
            server_name: settings.server_name.as_deref().map(Into::into),
            role: settings.role,
            priority: settings.priority,
            tier: 0,
            jrubies: settings.jrubies.or(pool.jrubies),
            jruby_load_max: pool.jruby_load_max,
            index: 0,
            address_hash: key_hash(settings.address.as_bytes()).rotate_left(32),
            factors: MemberFactors::default(),
        }
    }

    /// Its JRubies, configured or learned.
    pub fn jrubies(&self) -> Option<u32> {
        self.jrubies.or_else(|| self.member.jrubies())
    }

    /// Most attempts in flight that hold a JRuby: by its JRubies, and by what its own full queue has taught.
    pub fn working_max(&self) -> u32 {
        let share = |jrubies: u32| jrubies.saturating_mul(self.jruby_load_max).div_ceil(100);
        self.jrubies()
            .map_or(self.in_flight_max, |jrubies| share(jrubies).max(1))
            .min(self.in_flight_max)
            .min(self.member.learned_limit().unwrap_or(u32::MAX))
    }

    /// What keeps it from being asked, if anything does.
    pub(crate) fn obstacle(&self, task: Task, now: Duration) -> Option<RankReason> {
        match self.member.administrative() {
            Administrative::Ready => {}
            state @ (Administrative::Drain | Administrative::Maintenance) => {
                return Some(RankReason::Administrative(state));
            }
        }
        if self.member.weight_percent() == 0 {
            return Some(RankReason::NoWeight);
        }
        if !self.member.may_be_asked(now) {
            return Some(RankReason::Health(self.member.health()));
        }
        if self.member.is_paused(now) {
            return Some(RankReason::Overloaded);
        }
        let (in_flight, max) = (self.member.in_flight(), self.in_flight_max);
        if in_flight >= max {
            return Some(RankReason::Full { in_flight, max });
        }
        let (working, max) = (self.member.working(), self.working_max());
        (!task.without_jruby && working >= max).then_some(RankReason::Working { working, max })
    }

    /// Whether its check or the operator keeps requests from it, whatever its agent check says.
    pub(crate) fn is_down_or_taken_out(&self) -> bool {
        self.member.health() != Health::Up || self.member.operator_state() != Administrative::Ready
    }

    pub(crate) fn limits(&self, task: Task) -> SlotLimits {
        let limits = SlotLimits::new(self.in_flight_max, self.working_max());
        match task.without_jruby {
            true => limits.without_jruby(),
            false => limits,
        }
    }

    /// Whether nothing keeps it from being asked.
    pub(crate) fn is_open(&self, task: Task, now: Duration) -> bool {
        let occupancy = self.member.slots.get();
        self.limits(task).admit(occupancy) || self.is_open_now(occupancy, task, now)
    }

    /// The same by a closer look at a member that is closed, since what closes it may end with time.
    #[cold]
    pub(crate) fn is_open_now(&self, occupancy: Occupancy, task: Task, now: Duration) -> bool {
        occupancy.is_closed()
            && self.obstacle(task, now).is_none()
            && !self.member.ejection.is_active(now)
    }

    /// Whether it is up, ready and below its `max`.
    pub(crate) fn is_available(&self, now: Duration) -> bool {
        matches!(
            self.obstacle(Task::default(), now),
            None | Some(RankReason::Working { .. })
        )
    }

    #[inline]
    pub(crate) fn is_among(&self, members: &[u64]) -> bool {
        members.contains(&self.member.id())
    }

    pub(crate) fn is_up_and_ready(&self, now: Duration) -> bool {
        matches!(
            self.obstacle(Task::default(), now),
            None | Some(
                RankReason::Full { .. } | RankReason::Working { .. } | RankReason::Overloaded
            )
        )
    }

    /// Its weight without what lowers it for now: a client that stays does not move because of that.
    pub(crate) fn lasting_weight(&self) -> u64 {
        self.weight.into()
    }

    /// Its weight with what lowers it for now, in hundredths.
    pub(crate) fn weight_now(&self) -> u32 {
        self.weight.saturating_mul(self.member.weight_percent())
    }

    /// Its part of the pool's work, in hundredths: its weight, and `by_load` times its JRubies, of which a member that shows
    /// none is taken to have one.
    pub(crate) fn part_now(&self, by_load: bool) -> u64 {
        let jrubies = self.jrubies().filter(|_| by_load).unwrap_or(1);
        u64::from(jrubies) * u64::from(self.weight_now())
    }

    pub(crate) fn is_less_loaded_than(&self, other: &Self) -> bool {
        let times = |entry: &Self, other: &Self| {
            u64::from(entry.member.in_flight()) * u64::from(other.weight_now())
        };
        times(self, other) < times(other, self)
    }

    pub(crate) fn reason(&self, way: Way) -> RankReason {
        let (in_flight, weight) = (self.member.in_flight(), self.weight);
        match way {
            Way::Key => RankReason::Hash,
            Way::Source => RankReason::SourceHash,
            Way::Certname => RankReason::CertnameHash,
            Way::LeastLoad => RankReason::LeastLoad {
                expected: Duration::from_millis(self.member.expected_ms()),
                jrubies: self.jrubies().unwrap_or(0),
                weight,
            },
            Way::LeastConnections => RankReason::LeastConnections { in_flight, weight },
            Way::Rotation => RankReason::Rotation { weight },
            Way::Drawn => RankReason::Drawn { in_flight, weight },
            Way::First => RankReason::First,
            Way::Persistence => RankReason::Persistence,
        }
    }
}
