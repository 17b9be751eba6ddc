//! A member's counts and the reasons that close it, in one word. A slot is checked and taken in one step, so no race
//! exceeds a limit or sends a request to a member that has been drained.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// From the lowest bit: the closures (13 bits and a spare bit), the number of attempts that hold a JRuby (24 bits and a spare
/// bit), and the number of attempts in flight (24 bits and a spare bit).
#[derive(Debug)]
pub(crate) struct Slots(AtomicU64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Occupancy(u64);

/// The limits of a member. Each part is the number that makes the same part of the word reach its spare bit once the part is at
/// its limit. Below the limit, the sum does not reach the spare bit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotLimits(u64);

/// Reasons why a member gets no requests. Some reasons expire, so a pick looks closely at a closed member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Closures(u64);

impl Closures {
    /// The member is not up.
    pub(crate) const HEALTH: Self = Self(1);
    /// The operator has taken the member out.
    pub(crate) const OPERATOR: Self = Self(2);
    /// The agent check has taken the member out.
    pub(crate) const AGENT: Self = Self(4);
    /// The member's weight is 0.
    pub(crate) const WEIGHT: Self = Self(8);
    /// The member's own queue was full.
    pub(crate) const PAUSE: Self = Self(16);
    /// Attempts on the member failed.
    pub(crate) const EJECTION: Self = Self(32);

    pub(crate) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These closures, and `more` if `holds` is true.
    pub(crate) fn and(self, more: Self, holds: bool) -> Self {
        if holds { self.or(more) } else { self }
    }
}

impl Occupancy {
    pub(crate) fn in_flight(self) -> u32 {
        (self.0 >> IN_FLIGHT_SHIFT) as u32
    }

    /// Attempts in flight that hold a JRuby.
    pub(crate) fn working(self) -> u32 {
        (self.0 >> WORKING_SHIFT & COUNT_MAX) as u32
    }

    #[inline]
    pub(crate) fn has(self, closures: Closures) -> bool {
        self.0 & closures.0 != 0
    }

    #[inline]
    pub(crate) fn is_closed(self) -> bool {
        self.0 & CLOSURES != 0
    }
}

/// Limits that may change while picks read them.
#[derive(Debug, Default)]
pub(crate) struct AtomicSlotLimits(AtomicU64);

impl AtomicSlotLimits {
    #[inline]
    pub(crate) fn get(&self) -> SlotLimits {
        SlotLimits(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, limits: SlotLimits) {
        self.0.store(limits.0, Ordering::Relaxed);
    }
}

/// Counts over all members of a pool, and the number of changes, by which picks notice a change.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    in_flight: AtomicU32,
    working: AtomicU32,
    changes: AtomicU64,
    pace_changes: AtomicU64,
}

impl Tally {
    pub(crate) fn add(&self, holds_jruby: bool) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        if holds_jruby {
            self.working.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn subtract(&self, holds_jruby: bool) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        if holds_jruby {
            self.working.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Attempts in flight. Like `working`, it may lag behind changes of other workers.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Attempts in flight that hold a JRuby.
    pub(crate) fn working(&self) -> u32 {
        self.working.load(Ordering::Relaxed)
    }

    /// Records a change. Call it after the change, so that a pick that reads the new number sees all of the change.
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Records a change of the members' speed.
    pub(crate) fn pace_changed(&self) {
        self.pace_changes.fetch_add(1, Ordering::Release);
    }

    /// Number of changes that affect which requests members may get.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Number of these changes and of changes of the members' speed.
    #[inline]
    pub(crate) fn all_changes(&self) -> u64 {
        self.changes() + self.pace_changes.load(Ordering::Acquire)
    }
}

impl SlotLimits {
    /// Limits of at least one slot each.
    pub(crate) fn new(in_flight_max: u32, working_max: u32) -> Self {
        let missing = |max: u32| COUNT_MAX + 1 - u64::from(max).clamp(1, COUNT_MAX);
        Self(
            CLOSURES
                | missing(working_max) << WORKING_SHIFT
                | missing(in_flight_max) << IN_FLIGHT_SHIFT,
        )
    }

    /// The limits for a request that needs no JRuby.
    pub(crate) fn without_jruby(self) -> Self {
        Self(self.0 & !(COUNT_MAX << WORKING_SHIFT))
    }

    /// Whether the member is open and a slot is free. One addition compares all parts of the word.
    #[inline]
    pub(crate) fn admit(self, occupancy: Occupancy) -> bool {
        (self.0 + occupancy.0) & SPARE == 0
    }
}

impl Slots {
    pub(crate) const fn new(closures: Closures) -> Self {
        Self(AtomicU64::new(closures.0))
    }

    #[inline]
    pub(crate) fn get(&self) -> Occupancy {
        Occupancy(self.0.load(Ordering::Relaxed))
    }

    /// Takes a slot. Fails if no slot is free, or if the member is closed for one of the reasons in `heeded`. Returns the
    /// counts from before the change.
    pub(crate) fn take(
        &self,
        holds_jruby: bool,
        limits: SlotLimits,
        heeded: Closures,
    ) -> Option<Occupancy> {
        let heeded = heeded.0 | !CLOSURES;
        let taken = |word: u64| {
            let free = limits.admit(Occupancy(word & heeded));
            free.then(|| word + slot(holds_jruby))
        };
        let taken = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, taken);
        taken.ok().map(Occupancy)
    }

    pub(crate) fn give_back(&self, holds_jruby: bool) {
        self.0.fetch_sub(slot(holds_jruby), Ordering::AcqRel);
    }

    /// Replaces all closures. A concurrent attempt takes its slot before that or not at all, so a later look at the counts
    /// includes it. Returns whether anything changed.
    pub(crate) fn close(&self, closures: Closures) -> bool {
        let closed = |word: u64| Some(word & !CLOSURES | closures.0);
        let before = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, closed);
        before.is_ok_and(|word| word & CLOSURES != closures.0)
    }
}

/// The number that one request adds to the word.
const fn slot(holds_jruby: bool) -> u64 {
    1 << IN_FLIGHT_SHIFT | (holds_jruby as u64) << WORKING_SHIFT
}

const CLOSURES: u64 = (1 << 13) - 1;
const COUNT_MAX: u64 = (1 << 24) - 1;
const WORKING_SHIFT: u32 = 14;
const IN_FLIGHT_SHIFT: u32 = 39;
const SPARE: u64 = 1 << 13 | 1 << 38 | 1 << 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_and_each_closure_alone_keeps_a_request_away() {
        let slots = Slots::new(Closures::default());
        let limits = SlotLimits::new(3, 2);
        let take = |holds_jruby: bool| {
            let limits = if holds_jruby {
                limits
            } else {
                limits.without_jruby()
            };
            slots
                .take(holds_jruby, limits, Closures(CLOSURES))
                .is_some()
        };
        assert!(take(true) && take(true));
        assert!(!take(true), "its JRubies are busy");
        assert!(take(false));
        assert!(!take(false), "it is at its limit");
        assert_eq!((slots.get().in_flight(), slots.get().working()), (3, 2));
        slots.give_back(true);
        assert!(limits.admit(slots.get()));
        for bit in 0..13 {
            slots.close(Closures(1 << bit));
            assert!(!limits.admit(slots.get()) && !take(true) && slots.get().is_closed());
            let others = Closures(CLOSURES & !(1 << bit));
            assert!(slots.take(true, limits, others).is_some());
            slots.give_back(true);
        }
        slots.close(Closures::default());
        assert!(take(true));
    }

    #[test]
    fn limits_larger_than_the_word_counts_to_hold_as_its_largest() {
        let counts = (COUNT_MAX - 1) << IN_FLIGHT_SHIFT | (COUNT_MAX - 1) << WORKING_SHIFT;
        let slots = Slots(AtomicU64::new(counts));
        let limits = SlotLimits::new(u32::MAX, u32::MAX);
        assert!(slots.take(true, limits, Closures::default()).is_some());
        assert!(slots.take(true, limits, Closures::default()).is_none());
    }
}
