//! Repeatable random choices. When a test fails, its seed is printed.

use std::{
    env,
    hash::{BuildHasher, RandomState},
    io::Write,
    thread,
};

/// Environment variable that sets the seed.
const VARIABLE: &str = "PROSCENIUM_SEED";

/// A source of choices (splitmix64) that prints its seed if the test panics.
#[derive(Debug)]
pub struct Seed {
    start: u64,
    state: u64,
}

impl Seed {
    /// The seed from `PROSCENIUM_SEED`, or a new one.
    pub fn from_env_or_random() -> Self {
        let given = env::var(VARIABLE).ok().and_then(|text| text.parse().ok());
        Self::new(given.unwrap_or_else(|| RandomState::new().hash_one(0)))
    }

    /// A source with this seed.
    pub fn new(start: u64) -> Self {
        Self {
            start,
            state: start,
        }
    }

    /// The next choice.
    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.number() % (bound.max(1) as u64)) as usize
    }

    /// True once in `n`.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// The seed that repeats this run.
    pub fn value(&self) -> u64 {
        self.start
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        if thread::panicking() {
            // The test is failing already, so an error here is ignored.
            let _ = writeln!(
                std::io::stderr(),
                "{VARIABLE}={} repeats this run",
                self.start
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_make_equal_choices() {
        let (mut a, mut b) = (Seed::new(7), Seed::new(7));
        let first: Vec<_> = (0..100).map(|_| a.below(10)).collect();
        assert_eq!(first, (0..100).map(|_| b.below(10)).collect::<Vec<_>>());
        assert!((0..10).all(|n| first.contains(&n)));
    }
}
