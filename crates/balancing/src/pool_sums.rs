//! Sums over the members of a pool. They are computed when something changes and not for each request, so a request costs the
//! same in a pool of 2 members and in a pool of 100.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::member::millis;
use crate::pool_entry::PoolEntry;
use crate::settings::Role;
use crate::slots::Tally;

/// The sums at one moment. They do not depend on the requests in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sums {
    /// Milliseconds since start from which the sums apply.
    from_ms: u64,
    /// Milliseconds since start until which the sums apply, if nothing changes.
    until_ms: u64,
    /// Connections of the ordinary members that are available or would be if they were not full. 0: there is no such member.
    pub(crate) open_connections: u32,
    /// JRubies of the members that are up and ready, whatever their priority.
    pub(crate) jrubies: u32,
    pub(crate) ordinary: TierSums,
    pub(crate) backup: TierSums,
}

/// Sums over the members of one role that get requests while this role gets them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TierSums {
    pub(crate) tier: u32,
    /// How many requests that need a JRuby they may have in flight, and how many that need none.
    pub(crate) slots: [u32; 2],
    /// Connections of the members that are up and ready.
    pub(crate) connections: u32,
}

impl Sums {
    /// Adds up all members in their state at `now`.
    pub(crate) fn of(entries: &[PoolEntry], now: Duration) -> Self {
        let now_ms = millis(now);
        let (mut from_ms, mut until_ms) = (0, u64::MAX);
        for at in entries.iter().flat_map(|entry| entry.member.times()) {
            if at <= now_ms {
                from_ms = at.max(from_ms);
            } else {
                until_ms = at.min(until_ms);
            }
        }
        let is_open = |entry: &&PoolEntry| {
            entry.role == Role::Ordinary && entry.is_available_unless_full(now)
        };
        let is_up = |entry: &&PoolEntry| entry.is_up_and_ready(now);
        Self {
            from_ms,
            until_ms,
            open_connections: sum(entries.iter().filter(is_open), connections),
            jrubies: sum(entries.iter().filter(is_up), PoolEntry::working_max),
            ordinary: TierSums::of(entries, Role::Ordinary, now),
            backup: TierSums::of(entries, Role::Backup, now),
        }
    }
}

impl TierSums {
    fn of(entries: &[PoolEntry], role: Role, now: Duration) -> Self {
        let of_role = || entries.iter().filter(|entry| entry.role == role);
        let is_up = |entry: &&PoolEntry| entry.is_up_and_ready(now);
        let tier = |entry: &PoolEntry| entry.tier;
        let lowest_up = of_role().filter(is_up).map(tier).min();
        let tier = lowest_up.or_else(|| of_role().map(tier).min()).unwrap_or(0);
        let usable = || {
            let usable = |entry: &&PoolEntry| entry.tier == tier && entry.is_up_and_ready(now);
            entries.iter().filter(usable)
        };
        let slots = [PoolEntry::working_max, connections].map(|most| match sum(usable(), most) {
            0 => sum(entries.iter(), most),
            available => available,
        });
        Self {
            tier,
            slots,
            connections: sum(usable(), connections),
        }
    }
}

fn connections(entry: &PoolEntry) -> u32 {
    entry.in_flight_max
}

fn sum<'a>(entries: impl Iterator<Item = &'a PoolEntry>, most: fn(&PoolEntry) -> u32) -> u32 {
    entries.fold(0, |sum, entry| sum.saturating_add(most(entry)))
}

/// The sums of a pool that were computed last.
#[derive(Debug, Default)]
pub(crate) struct PoolSums {
    /// The number of changes at the last computation, plus 1. 0: nothing has been computed yet.
    changes: AtomicU64,
    computing: Mutex<()>,
    from_ms: AtomicU64,
    until_ms: AtomicU64,
    open_connections: AtomicU32,
    jrubies: AtomicU32,
    ordinary: AtomicTierSums,
    backup: AtomicTierSums,
    #[cfg(test)]
    computations: AtomicU64,
}

#[derive(Debug, Default)]
struct AtomicTierSums {
    tier: AtomicU32,
    slots: [AtomicU32; 2],
    connections: AtomicU32,
}

impl PoolSums {
    /// The sums at `now`. They are computed again only if something has changed, or if a time has passed on which a sum
    /// depends.
    #[inline]
    pub(crate) fn at(&self, entries: &[PoolEntry], tally: &Tally, now: Duration) -> Sums {
        if self.changes.load(Ordering::Acquire) == tally.changes() + 1 {
            // This time is read first, so that the sums are at least as new as it.
            let until_ms = self.until_ms.load(Ordering::Acquire);
            let from_ms = self.from_ms.load(Ordering::Relaxed);
            if (from_ms..until_ms).contains(&millis(now)) {
                return Sums {
                    from_ms,
                    until_ms,
                    open_connections: self.open_connections.load(Ordering::Relaxed),
                    jrubies: self.jrubies.load(Ordering::Relaxed),
                    ordinary: self.ordinary.load(),
                    backup: self.backup.load(),
                };
            }
        }
        self.compute(entries, tally, now)
    }

    #[cfg(test)]
    pub(crate) fn computations(&self) -> u64 {
        self.computations.load(Ordering::Relaxed)
    }

    #[cold]
    fn compute(&self, entries: &[PoolEntry], tally: &Tally, now: Duration) -> Sums {
        // One worker at a time, so that a slower worker cannot overwrite newer sums.
        let _one = self
            .computing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        #[cfg(test)]
        self.computations.fetch_add(1, Ordering::Relaxed);
        // Read before the members, so that after a later change the next request computes the sums again.
        let changes = tally.changes() + 1;
        let sums = Sums::of(entries, now);
        // A request whose time is before that of the stored sums does not replace them.
        let is_newer = self.changes.load(Ordering::Relaxed) != changes
            || sums.from_ms >= self.from_ms.load(Ordering::Relaxed);
        if is_newer {
            self.open_connections
                .store(sums.open_connections, Ordering::Relaxed);
            self.jrubies.store(sums.jrubies, Ordering::Relaxed);
            self.ordinary.store(&sums.ordinary);
            self.backup.store(&sums.backup);
            self.from_ms.store(sums.from_ms, Ordering::Relaxed);
            self.until_ms.store(sums.until_ms, Ordering::Release);
            self.changes.store(changes, Ordering::Release);
        }
        sums
    }
}

impl AtomicTierSums {
    #[inline]
    fn load(&self) -> TierSums {
        TierSums {
            tier: self.tier.load(Ordering::Relaxed),
            slots: [
                self.slots[0].load(Ordering::Relaxed),
                self.slots[1].load(Ordering::Relaxed),
            ],
            connections: self.connections.load(Ordering::Relaxed),
        }
    }

    fn store(&self, sums: &TierSums) {
        self.tier.store(sums.tier, Ordering::Relaxed);
        for (to, slots) in self.slots.iter().zip(sums.slots) {
            to.store(slots, Ordering::Relaxed);
        }
        self.connections.store(sums.connections, Ordering::Relaxed);
    }
}
