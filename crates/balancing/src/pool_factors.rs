//! Values for picks. They are computed when something changes and not at each pick, because weights, JRubies and limits change
//! seldom and requests arrive often.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::pool_entry::{MEMBERS_MAX, PoolEntry};
use crate::slots::{SlotLimits, Tally};

/// Precomputed values of the whole pool.
#[derive(Debug, Default)]
pub(crate) struct PoolFactors {
    /// The number of changes at the last computation, plus 1. 0: nothing has been computed yet.
    changes: AtomicU64,
    refreshing: Mutex<()>,
    /// Bits of the priorities whose members are compared by the load of their JRubies: the algorithm uses that load, and the
    /// number of JRubies of all these members is known.
    by_load: AtomicU64,
    /// Whether some members are slower than others.
    uneven: AtomicBool,
    shares: AtomicU64,
    /// The sum of the shares of the members that are not closed.
    open_shares: AtomicU64,
    share_max: AtomicU64,
    /// Smallest inverse of a share. 0: the shares differ so much that the inverses are too inexact.
    inverse_min: AtomicU64,
}

impl PoolFactors {
    /// Whether members of this priority are compared by the load of their JRubies.
    pub(crate) fn by_load(&self, tier: u32) -> bool {
        self.by_load.load(Ordering::Relaxed) & tier_bit(tier) != 0
    }

    pub(crate) fn is_uneven(&self) -> bool {
        self.uneven.load(Ordering::Relaxed)
    }

    pub(crate) fn shares(&self) -> u64 {
        self.shares.load(Ordering::Relaxed)
    }

    pub(crate) fn open_shares(&self) -> u64 {
        self.open_shares.load(Ordering::Relaxed)
    }

    pub(crate) fn inverse_min(&self) -> u64 {
        self.inverse_min.load(Ordering::Relaxed)
    }

    pub(crate) fn share_max(&self) -> u64 {
        self.share_max.load(Ordering::Relaxed)
    }

    /// Computes everything again if anything has changed.
    #[inline]
    pub(crate) fn refresh(&self, entries: &[PoolEntry], tally: &Tally, goes_by_load: bool) {
        // One more than the number of changes, so that 0 means that nothing has been computed yet.
        if self.changes.load(Ordering::Acquire) != tally.all_changes() + 1 {
            self.work_out(entries, tally, goes_by_load);
        }
    }

    #[cold]
    fn work_out(&self, entries: &[PoolEntry], tally: &Tally, goes_by_load: bool) {
        // One worker at a time, so that a slower worker cannot overwrite newer values.
        let _one = self
            .refreshing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Read before the values, so that after a later change the next pick computes them again.
        let changes = tally.all_changes() + 1;
        let by_load = if goes_by_load { counted(entries) } else { 0 };
        self.by_load.store(by_load, Ordering::Relaxed);
        let (mut shares, mut open_shares) = (0, 0);
        let (mut share_min, mut share_max) = (u64::MAX, 1);
        let mut uneven = false;
        for entry in entries {
            let factors = &entry.factors;
            let limits = SlotLimits::new(entry.in_flight_max, entry.working_max());
            factors.limits[0].set(limits);
            factors.limits[1].set(limits.without_jruby());
            let share = entry.share_now(by_load & tier_bit(entry.tier) != 0).max(1);
            factors.share.store(share, Ordering::Relaxed);
            factors.shares_before.store(shares, Ordering::Relaxed);
            shares += share;
            if !entry.member.slots.get().is_closed() {
                open_shares += share;
            }
            share_min = share_min.min(share);
            share_max = share_max.max(share);
            uneven |= entry.member.pace.slowness() != entries[0].member.pace.slowness();
        }
        self.shares.store(shares, Ordering::Relaxed);
        self.open_shares.store(open_shares, Ordering::Relaxed);
        self.share_max.store(share_max, Ordering::Relaxed);
        self.uneven.store(uneven, Ordering::Relaxed);
        let inverse = |share: u64| share_min.saturating_mul(INVERSE_MAX) / share;
        let inverse_min = Some(inverse(share_max)).filter(|inverse| *inverse >= INVERSE_ROUGH);
        self.inverse_min
            .store(inverse_min.unwrap_or(0), Ordering::Relaxed);
        let base = base(entries, share_min);
        for entry in entries {
            let factors = &entry.factors;
            factors
                .inverse
                .store(inverse(factors.share()), Ordering::Relaxed);
            let slowness = match by_load & tier_bit(entry.tier) {
                0 => 1,
                _ => entry.member.pace.slowness(),
            };
            let unit_cost = slowness * base / factors.share();
            factors.unit_cost.store(unit_cost, Ordering::Relaxed);
            // A share is in hundredths.
            let own_cost = slowness * (base / 100);
            factors.own_cost.store(own_cost, Ordering::Relaxed);
        }
        self.changes.store(changes, Ordering::Release);
    }
}

/// Bits of the priorities in which the number of JRubies is known for every member that is not closed.
fn counted(entries: &[PoolEntry]) -> u64 {
    let uncounted = entries
        .iter()
        .filter(|entry| entry.jrubies().is_none() && !entry.member.slots.get().is_closed());
    !uncounted.fold(0, |tiers, entry| tiers | tier_bit(entry.tier))
}

/// Priorities after the last bit share that bit: they are compared by load only if all of them can be.
const fn tier_bit(tier: u32) -> u64 {
    1 << if tier < 63 { tier } else { 63 }
}

/// The unit of costs: a common multiple of all shares, so that equal costs compare as equal. If that multiple is too large for
/// the multiplications, the largest possible number is used. Then the costs of members whose weights differ widely are slightly
/// inexact.
fn base(entries: &[PoolEntry], share_min: u64) -> u64 {
    let most = share_min.saturating_mul(UNIT_COST_MAX).min(BASE_MAX);
    let mut base = 100;
    for entry in entries.iter().take(MEMBERS_MAX) {
        let share = entry.factors.share();
        base = base / greatest_common_divisor(base, share) * share;
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

/// Multiplied by 31 bits of a hash, this is below 2^64.
const INVERSE_MAX: u64 = 1 << 32;
/// From this inverse on, its rounding error is below the margin of [`surely_most_wanted`].
///
/// [`surely_most_wanted`]: crate::rendezvous::surely_most_wanted
const INVERSE_ROUGH: u64 = 1 << 12;
/// Multiplied by the slowest pace (2^4) and all the work that a member can have (100,000 requests of 64 s, below 2^33 ms), this
/// is below 2^64.
const UNIT_COST_MAX: u64 = 1 << 26;
/// Multiplied by the slowest pace and the longest work of a request (64 s, 2^16 ms), this is below 2^64.
const BASE_MAX: u64 = 1 << 43;
