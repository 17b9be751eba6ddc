//! What picks go by for each member of a pool, worked out when something changes and not at each pick: weights, JRubies
//! and limits change seldom, requests come often.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::pool_entry::{MEMBERS_MAX, PoolEntry};
use crate::slots::{SlotLimits, Tally};

/// What picks go by that is of the whole pool.
#[derive(Debug, Default)]
pub(crate) struct PoolFactors {
    /// The number of changes that is known.
    changes: AtomicU64,
    refreshing: Mutex<()>,
    /// Priorities, by bit, whose members all have a count of JRubies, where the algorithm goes by it.
    by_load: AtomicU64,
    /// Whether some members are slower than others.
    uneven: AtomicBool,
    parts: AtomicU64,
    /// Of the members that nothing closes.
    open_parts: AtomicU64,
    part_max: AtomicU64,
    /// Smallest inverse of a part; 0: parts are so far apart that inverses are too rough.
    inverse_min: AtomicU64,
}

impl PoolFactors {
    /// Whether members of this priority are compared by the work of their JRubies.
    pub(crate) fn by_load(&self, tier: u32) -> bool {
        self.by_load.load(Ordering::Relaxed) & tier_bit(tier) != 0
    }

    pub(crate) fn is_uneven(&self) -> bool {
        self.uneven.load(Ordering::Relaxed)
    }

    pub(crate) fn parts(&self) -> u64 {
        self.parts.load(Ordering::Relaxed)
    }

    pub(crate) fn open_parts(&self) -> u64 {
        self.open_parts.load(Ordering::Relaxed)
    }

    pub(crate) fn inverse_min(&self) -> u64 {
        self.inverse_min.load(Ordering::Relaxed)
    }

    pub(crate) fn part_max(&self) -> u64 {
        self.part_max.load(Ordering::Relaxed)
    }

    /// Works everything out again if anything has changed.
    #[inline]
    pub(crate) fn refresh(&self, entries: &[PoolEntry], tally: &Tally, goes_by_load: bool) {
        // One more than the changes, so that 0 means that nothing is known yet.
        if self.changes.load(Ordering::Acquire) != tally.changes() + 1 {
            self.work_out(entries, tally, goes_by_load);
        }
    }

    #[cold]
    fn work_out(&self, entries: &[PoolEntry], tally: &Tally, goes_by_load: bool) {
        // One at a time, or what was worked out from older values could be stored last.
        let _one = self
            .refreshing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Read before the values: what changes from here on is worked out by the next pick.
        let changes = tally.changes() + 1;
        let by_load = if goes_by_load { counted(entries) } else { 0 };
        self.by_load.store(by_load, Ordering::Relaxed);
        let (mut parts, mut open_parts) = (0, 0);
        let (mut part_min, mut part_max) = (u64::MAX, 1);
        let mut uneven = false;
        for entry in entries {
            let factors = &entry.factors;
            let limits = SlotLimits::new(entry.in_flight_max, entry.working_max());
            factors.limits[0].set(limits);
            factors.limits[1].set(limits.without_jruby());
            let part = entry.part_now(by_load & tier_bit(entry.tier) != 0).max(1);
            factors.part.store(part, Ordering::Relaxed);
            factors.parts_before.store(parts, Ordering::Relaxed);
            parts += part;
            if !entry.member.slots.get().is_closed() {
                open_parts += part;
            }
            part_min = part_min.min(part);
            part_max = part_max.max(part);
            uneven |= entry.member.pace.slowness() != entries[0].member.pace.slowness();
        }
        self.parts.store(parts, Ordering::Relaxed);
        self.open_parts.store(open_parts, Ordering::Relaxed);
        self.part_max.store(part_max, Ordering::Relaxed);
        self.uneven.store(uneven, Ordering::Relaxed);
        let inverse = |part: u64| part_min.saturating_mul(INVERSE_MAX) / part;
        let inverse_min = Some(inverse(part_max)).filter(|inverse| *inverse >= INVERSE_ROUGH);
        self.inverse_min
            .store(inverse_min.unwrap_or(0), Ordering::Relaxed);
        let base = base(entries, part_min);
        for entry in entries {
            let factors = &entry.factors;
            factors
                .inverse
                .store(inverse(factors.part()), Ordering::Relaxed);
            let slowness = match by_load & tier_bit(entry.tier) {
                0 => 1,
                _ => entry.member.pace.slowness(),
            };
            let unit_cost = slowness * base / factors.part();
            factors.unit_cost.store(unit_cost, Ordering::Relaxed);
            // A part is in hundredths.
            let own_cost = slowness * (base / 100);
            factors.own_cost.store(own_cost, Ordering::Relaxed);
        }
        self.changes.store(changes, Ordering::Release);
    }
}

/// The priorities, by bit, of whose members that nothing closes all have a count of JRubies.
fn counted(entries: &[PoolEntry]) -> u64 {
    let uncounted = entries
        .iter()
        .filter(|entry| entry.jrubies().is_none() && !entry.member.slots.get().is_closed());
    !uncounted.fold(0, |tiers, entry| tiers | tier_bit(entry.tier))
}

/// Those after the last bit share it: they are compared by load while all of them can be.
const fn tier_bit(tier: u32) -> u64 {
    1 << if tier < 63 { tier } else { 63 }
}

/// What costs are counted in: a multiple of all parts, so that costs that are equal compare so. Where that is too large to
/// be multiplied, the largest number that is not; costs of members whose weights are far apart are then a little rough.
fn base(entries: &[PoolEntry], part_min: u64) -> u64 {
    let most = part_min.saturating_mul(UNIT_COST_MAX).min(BASE_MAX);
    let mut base = 100;
    for entry in entries.iter().take(MEMBERS_MAX) {
        let part = entry.factors.part();
        base = base / greatest_common_divisor(base, part) * part;
        if base > most {
            return most;
        }
    }
    base
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Times 31 bits of a hash this is below 2^64.
const INVERSE_MAX: u64 = 1 << 32;
/// An inverse from which on its rounding is below the margin of [`surely_most_wanted`].
///
/// [`surely_most_wanted`]: crate::rendezvous::surely_most_wanted
const INVERSE_ROUGH: u64 = 1 << 12;
/// Times the slowest pace (2^4) and all the work that a member can hold (100,000 requests of 64 s, below 2^33 ms) this is
/// below 2^64.
const UNIT_COST_MAX: u64 = 1 << 26;
/// Times the slowest pace and the longest work of a request (64 s, 2^16 ms) this is below 2^64.
const BASE_MAX: u64 = 1 << 43;
