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

/// A point in `0..total` for each turn, spread by the golden ratio: any run of turns meets every share evenly, and no
/// rhythm of requests can fall in step with it, as it could with a plain remainder.
pub(crate) fn point(turn: u64, total: u64) -> u64 {
    let spread = turn.wrapping_mul(GOLDEN_RATIO);
    ((u128::from(spread) * u128::from(total)) >> 64) as u64
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

const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;
