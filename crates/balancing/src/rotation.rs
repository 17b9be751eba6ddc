//! Turns among members: which of several equals is next.

use std::sync::atomic::{AtomicU64, Ordering};
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

/// A point in `0..total` for each turn: each `total` turns meet every point once, neighbours far apart, so that shares are
/// exact over a cycle and smooth within it.
pub(crate) fn point(turn: u64, total: u64) -> u64 {
    let golden = (u128::from(total) * GOLDEN_RATIO_PERMILLE / 1000).max(1) as u64;
    let step = (golden..).find(|step| gcd(*step, total) == 1).unwrap_or(1);
    (u128::from(turn % total) * u128::from(step) % u128::from(total)) as u64
}

fn gcd(a: u64, b: u64) -> u64 {
    match b {
        0 => a,
        _ => gcd(b, a % b),
    }
}

/// Smooth weighted rotation, as nginx does it: each turn every candidate gains its weight, the richest is picked and
/// pays what all have gained.
#[derive(Debug)]
pub(crate) struct Wheel(Mutex<Box<[i64]>>);

impl Wheel {
    pub(crate) fn new(members: usize) -> Self {
        Self(Mutex::new(vec![0; members].into()))
    }

    /// Its credits, held for one turn: a few additions, shared over workers.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Box<[i64]>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One turn of a wheel among `candidates` (index, weight).
pub(crate) fn turn(
    credits: &mut [i64],
    candidates: impl Iterator<Item = (usize, u32)>,
) -> Option<usize> {
    let mut total = 0;
    let mut richest: Option<usize> = None;
    for (index, weight) in candidates {
        total += i64::from(weight);
        credits[index] += i64::from(weight);
        if richest.is_none_or(|best| credits[index] > credits[best]) {
            richest = Some(index);
        }
    }
    credits[richest?] -= total;
    richest
}

const GOLDEN_RATIO_PERMILLE: u128 = 618;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_of_turns_meets_every_point_once() {
        for total in 1..200 {
            for start in [0, 5 * total] {
                let mut met: Vec<u64> = (start..start + total)
                    .map(|turn| point(turn, total))
                    .collect();
                met.sort_unstable();
                assert!(met.iter().copied().eq(0..total), "{total}: {met:?}");
            }
        }
        assert!(point(u64::MAX, u64::MAX) < u64::MAX);
    }

    #[test]
    fn a_wheel_picks_nobody_from_nobody() {
        assert_eq!(turn(&mut [], std::iter::empty()), None);
    }
}
