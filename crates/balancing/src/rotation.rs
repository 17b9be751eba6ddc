//! Turns among members that are equally good.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Turns among members with equal cost, in proportion to their weights and without a lock.
#[derive(Debug, Default)]
pub(crate) struct Ties(AtomicU64);

impl Ties {
    pub(crate) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    /// The number of the next turn. The turn is not taken.
    pub(crate) fn peek(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A point in `0..total` for each turn. Consecutive turns have points that are far apart. In any sequence of turns, the number
/// of points in each part of `0..total` is in proportion to the size of the part, within a few.
pub(crate) fn point(turn: u64, total: u64) -> u64 {
    // The reversed bits of the turn, as a fraction of 2^64 (van der Corput sequence). Two or four equal members alternate.
    let fraction = turn.reverse_bits();
    ((u128::from(fraction) * u128::from(total)) >> 64) as u64
}

/// The lock of the smooth weighted rotation, which works as in nginx. In each turn, the credit of every candidate grows by its
/// weight. The candidate with the highest credit is picked, and its credit drops by the sum of all weights. The credits belong
/// to the members, so they outlast reloads.
#[derive(Debug, Default)]
pub(crate) struct Wheel(Mutex<()>);

impl Wheel {
    /// Locks the rotation for one turn, which takes a few additions.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A member's credit. It changes only while its pool's [`Wheel`] is locked.
#[derive(Debug, Default)]
pub(crate) struct Credit(AtomicI64);

impl Credit {
    pub(crate) fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, credit: i64) {
        self.0.store(credit, Ordering::Relaxed);
    }

    /// Adds to the credit and returns the new value.
    #[inline]
    pub(crate) fn gain(&self, part: i64) -> i64 {
        let credit = self.get() + part;
        self.set(credit);
        credit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_gets_its_share_of_turns_within_six() {
        for total in [2, 3, 7, 100, 1_000] {
            for part in [1, total / 2, total - 1] {
                let mut hits = 0;
                for turn in 0..5_000 {
                    hits += u64::from(point(turn, total) < part);
                    assert!((hits * total).abs_diff((turn + 1) * part) <= 6 * total);
                }
            }
        }
        assert!(point(u64::MAX, u64::MAX) < u64::MAX);
    }
}
