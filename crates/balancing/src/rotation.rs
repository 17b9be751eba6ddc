//! Turns among members: which of several equals is next.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Turns among members that tie, by weight and without a lock.
#[derive(Debug, Default)]
pub(crate) struct Ties(AtomicU64);

impl Ties {
    /// Takes a turn.
    pub(crate) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    /// The turn that would be taken next.
    pub(crate) fn peek(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A point in `0..total` for each turn, neighbours far apart: over any run of turns each part of `0..total` is met within
/// a few of its share.
pub(crate) fn point(turn: u64, total: u64) -> u64 {
    // The bits of turns reversed, as fractions of 2^64 (van der Corput): two or four equals have their turns one by one.
    let fraction = turn.reverse_bits();
    ((u128::from(fraction) * u128::from(total)) >> 64) as u64
}

/// Smooth weighted rotation, as nginx does it: each turn every candidate gains its weight, the richest is picked and
/// pays what all have gained. The credits are the members' own, so that they last over reloads.
#[derive(Debug, Default)]
pub(crate) struct Wheel(Mutex<()>);

impl Wheel {
    /// Held for one turn: a few additions, shared over workers.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a member has gained and not paid yet. It changes under its pool's [`Wheel`] only.
#[derive(Debug, Default)]
pub(crate) struct Credit(AtomicI64);

impl Credit {
    pub(crate) fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, credit: i64) {
        self.0.store(credit, Ordering::Relaxed);
    }

    /// Adds to it, and yields what it is then.
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
    fn each_part_is_met_within_six_of_its_share_whenever_one_counts() {
        for total in [2, 3, 7, 100, 1_000] {
            for part in [1, total / 2, total - 1] {
                let mut met = 0;
                for turn in 0..5_000 {
                    met += u64::from(point(turn, total) < part);
                    assert!((met * total).abs_diff((turn + 1) * part) <= 6 * total);
                }
            }
        }
        assert!(point(u64::MAX, u64::MAX) < u64::MAX);
    }
}
