//! A member with the settings of one generation.

use std::{sync::Arc, time::Duration};

use crate::{
    administrative::Administrative,
    hash::key_hash,
    health::Health,
    member::Member,
    member_factors::MemberFactors,
    offer::PickError,
    rank::RankReason,
    registry::Registry,
    settings::{MemberSettings, PoolSettings, Role},
    slots::{Occupancy, SlotLimits},
    work::Task,
};

/// Maximum number of members of a pool. Further members are ignored.
pub const MEMBERS_MAX: usize = 1_024;

/// A member with the settings of this generation.
#[derive(Debug)]
pub struct PoolEntry {
    /// Its run-time state, shared with other generations.
    pub member: Arc<Member>,
    /// Share of the load, at least 1.
    pub weight: u32,
    /// Maximum attempts in flight.
    pub in_flight_max: u32,
    /// Name that its certificate must have. None: the host of its address.
    pub server_name: Option<Arc<str>>,
    /// Whether it gets requests only while no ordinary member is available.
    pub role: Role,
    /// The priority as configured.
    pub priority: u16,
    /// The rank of its priority in the pool. Members of the first rank get requests while one of them is available.
    pub tier: u32,
    /// Configured number of JRubies. It overrides the number that its status service shows.
    pub(crate) jrubies: Option<u32>,
    pub(crate) jruby_load_max: u32,
    pub(crate) index: u32,
    pub(crate) address_hash: u64,
    pub(crate) factors: MemberFactors,
}

#[derive(Clone, Copy)]
pub(crate) enum PickRule {
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

    /// The member's JRubies, configured or learned.
    pub fn jrubies(&self) -> Option<u32> {
        self.jrubies.or_else(|| self.member.jrubies())
    }

    /// Maximum attempts in flight that hold a JRuby. The number of JRubies, and the limit learned when the member's queue was
    /// full, bound it.
    pub fn working_max(&self) -> u32 {
        let share = |jrubies: u32| jrubies.saturating_mul(self.jruby_load_max).div_ceil(100);
        self.jrubies()
            .map_or(self.in_flight_max, |jrubies| share(jrubies).max(1))
            .min(self.in_flight_max)
            .min(self.member.learned_limit().unwrap_or(u32::MAX))
    }

    /// The reason why the member gets no requests, if there is one.
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
        if !self.member.may_get_requests(now) {
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

    /// Whether the check or the operator keeps requests away from the member. The agent check is ignored.
    pub(crate) fn is_down_or_taken_out(&self) -> bool {
        self.member.health() != Health::Up || self.member.operator_state() != Administrative::Ready
    }

    /// Whether a backup may get the writes that this member, the writer of its pool, cannot get because of an obstacle.
    ///
    /// # Errors
    /// No backup may get them: the member is only busy, its state is unknown, or only its agent check takes it out. The answers of
    /// agent checks are plain text, so they must not move writes to another CA.
    pub(crate) fn may_be_replaced(&self, obstacle: RankReason) -> Result<(), PickError> {
        let is_unknown = obstacle == RankReason::Health(Health::Unknown);
        if obstacle.is_busy() || is_unknown || !self.is_down_or_taken_out() {
            Err(obstacle.refusal())
        } else {
            Ok(())
        }
    }

    pub(crate) fn limits(&self, task: Task) -> SlotLimits {
        let limits = SlotLimits::new(self.in_flight_max, self.working_max());
        if task.without_jruby {
            limits.without_jruby()
        } else {
            limits
        }
    }

    /// Whether the member may get requests.
    pub(crate) fn is_open(&self, task: Task, now: Duration) -> bool {
        let occupancy = self.member.slots.get();
        self.limits(task).admit(occupancy) || self.is_open_now(occupancy, task, now)
    }

    /// Whether the member may get requests, with a closer look if it is closed, because the reason may have expired.
    #[cold]
    pub(crate) fn is_open_now(&self, occupancy: Occupancy, task: Task, now: Duration) -> bool {
        occupancy.is_closed()
            && self.obstacle(task, now).is_none()
            && !self.member.ejection.is_active(now)
    }

    /// Whether the member is up, ready and below `in_flight_max`.
    pub(crate) fn is_available(&self, now: Duration) -> bool {
        matches!(
            self.obstacle(Task::default(), now),
            None | Some(RankReason::Working { .. })
        )
    }

    /// Whether the member is up and ready. It may be at `in_flight_max`.
    pub(crate) fn is_available_unless_full(&self, now: Duration) -> bool {
        matches!(
            self.obstacle(Task::default(), now),
            None | Some(RankReason::Full { .. } | RankReason::Working { .. })
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

    /// The configured weight. A client with persistence does not move when the weight is lowered for a while.
    pub(crate) fn lasting_weight(&self) -> u64 {
        self.weight.into()
    }

    /// The present weight, in hundredths.
    pub(crate) fn weight_now(&self) -> u32 {
        self.weight.saturating_mul(self.member.weight_percent())
    }

    /// The member's share of the pool's work, in hundredths: its weight, and with `by_load` multiplied by its JRubies. A member
    /// whose JRubies are unknown counts as having one.
    pub(crate) fn share_now(&self, by_load: bool) -> u64 {
        let jrubies = self.jrubies().filter(|_| by_load).unwrap_or(1);
        u64::from(jrubies) * u64::from(self.weight_now())
    }

    pub(crate) fn is_less_loaded_than(&self, other: &Self) -> bool {
        let times = |entry: &Self, other: &Self| {
            u64::from(entry.member.in_flight()) * u64::from(other.weight_now())
        };
        times(self, other) < times(other, self)
    }

    pub(crate) fn reason(&self, rule: PickRule) -> RankReason {
        let (in_flight, weight) = (self.member.in_flight(), self.weight);
        match rule {
            PickRule::Key => RankReason::Hash,
            PickRule::Source => RankReason::SourceHash,
            PickRule::Certname => RankReason::CertnameHash,
            PickRule::LeastLoad => RankReason::LeastLoad {
                expected: Duration::from_millis(self.member.expected_ms()),
                jrubies: self.jrubies().unwrap_or(0),
                weight,
            },
            PickRule::LeastConnections => RankReason::LeastConnections { in_flight, weight },
            PickRule::Rotation => RankReason::Rotation { weight },
            PickRule::Drawn => RankReason::Drawn { in_flight, weight },
            PickRule::First => RankReason::First,
            PickRule::Persistence => RankReason::Persistence,
        }
    }
}
