//! Random waits. They spread the load of several proxies and need no secrecy.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

/// A random part of a duration. The standard library seeds its hasher at random.
pub fn random_part_of(maximum: Duration) -> Duration {
    let random = RandomState::new().hash_one(()) as u32;
    maximum.mul_f64(f64::from(random) / f64::from(u32::MAX))
}
