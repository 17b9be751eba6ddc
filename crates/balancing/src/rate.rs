//! How often something may be asked, by one address and by all together; pure, with time and chance as arguments.
//!
//! It says when to come again, each time something else: what a herd is told must spread it.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::hash::mix;

/// How often: in the long run, and at once after a quiet time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Requests a second.
    pub per_second: u32,
    /// Requests at once.
    pub burst: u32,
}

/// The two rates that a request has to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Of one address; of IPv6 the /64 that it is in, since whoever has one address there has them all.
    pub address: Rate,
    /// Of all addresses together.
    pub total: Rate,
}

impl Default for Rates {
    /// Those of clients without a verified certificate at the CA. An agent that enrols asks for four things (CA
    /// certificate, CRL, its request, its certificate), and then twice every two minutes until it is signed: 500 behind
    /// one address ask 2,000 times at once, and 8 times a second after that.
    fn default() -> Self {
        Self {
            address: Rate {
                per_second: 20,
                burst: 500,
            },
            total: Rate {
                per_second: 100,
                burst: 1000,
            },
        }
    }
}

/// A request that came too soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateExceeded {
    /// Whose rate it is.
    pub of: RateScope,
    /// When to come again: never zero.
    pub retry_after: Duration,
}

/// Whose rate was exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateScope {
    /// That of the client's address.
    Address,
    /// That of all.
    Total,
}

/// Remembers who asked when. It outlasts configurations: the rates are an argument.
#[derive(Debug)]
pub struct RateLimiter {
    seed: u64,
    memory: Mutex<Memory>,
}

#[derive(Debug, Default)]
struct Memory {
    total: Bucket,
    /// [`SOURCES_MAX`] places in sets of [`WAYS`]; empty until somebody asks.
    sources: Vec<Source>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Source {
    /// 0: nobody's place.
    key: u64,
    bucket: Bucket,
}

/// The generic cell rate algorithm, in microseconds since start: full while `due` is not in the future.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bucket {
    /// When it would be full again.
    due: u64,
    /// The last turn that was given to somebody who came too soon.
    turn: u64,
}

/// A bucket that workers share.
#[derive(Debug, Default)]
pub(crate) struct SharedBucket(Mutex<Bucket>);

impl SharedBucket {
    /// Counts one at `now` (time since start). False: the rate is reached, and nothing was counted.
    pub(crate) fn admit(&self, rate: Rate, now: Duration) -> bool {
        let now = u64::try_from(now.as_micros()).unwrap_or(u64::MAX / 2);
        // A panic elsewhere leaves a whole number behind.
        let mut bucket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let admitted = bucket.has_room(rate, now);
        if admitted {
            bucket.take(rate, now);
        }
        admitted
    }
}

impl RateLimiter {
    /// One that has seen nobody. `seed` is a secret: who knew it could choose addresses that share a place.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            memory: Mutex::default(),
        }
    }

    /// Counts a request of `source` at `now` (time since start), unless it comes too soon. `random` spreads those who
    /// are told to come again.
    ///
    /// # Errors
    /// It comes too soon; nothing is counted then.
    pub fn count(
        &self,
        rates: &Rates,
        source: IpAddr,
        now: Duration,
        random: u64,
    ) -> Result<(), RateExceeded> {
        let now = u64::try_from(now.as_micros()).unwrap_or(u64::MAX / 2);
        let mut memory = self.memory();
        let Memory { total, sources } = &mut *memory;
        if sources.is_empty() {
            sources.resize(SOURCES_MAX, Source::default());
        }
        let bucket = place_of(sources, key_of(source, self.seed));
        let too_soon = |of, bucket: &mut Bucket, rate| RateExceeded {
            of,
            retry_after: bucket.turn(rate, now, random),
        };
        if !bucket.has_room(rates.address, now) {
            return Err(too_soon(RateScope::Address, bucket, rates.address));
        }
        if !total.has_room(rates.total, now) {
            return Err(too_soon(RateScope::Total, total, rates.total));
        }
        bucket.take(rates.address, now);
        total.take(rates.total, now);
        Ok(())
    }

    /// A panic elsewhere leaves whole numbers behind.
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rate {
    /// Microseconds between two requests.
    fn gap(self) -> u64 {
        1_000_000 / u64::from(self.per_second.max(1))
    }
}

impl Bucket {
    /// What a slower rate or a deeper burst of an earlier configuration has left behind counts as no more than empty: a
    /// rate that is raised would else hold only once the old one has been paid.
    pub(crate) fn has_room(&mut self, rate: Rate, now: u64) -> bool {
        let depth = rate.gap() * u64::from(rate.burst.max(1));
        self.due = self.due.min(now + depth);
        self.due.max(now) + rate.gap() <= now + depth
    }

    pub(crate) fn take(&mut self, rate: Rate, now: u64) {
        self.due = self.due.max(now) + rate.gap();
    }

    /// When whoever came too soon may come again: each a gap after the one before, so that a herd comes back at the rate
    /// that is kept. Those whom no turn is left for within [`TURNS_MAX`] are spread over all of it.
    fn turn(&mut self, rate: Rate, now: u64, random: u64) -> Duration {
        let next = self.turn.max(now) + rate.gap();
        let wait = if next - now <= TURNS_MAX {
            self.turn = next;
            next - now
        } else {
            random.rotate_left(32) % TURNS_MAX
        };
        Duration::from_micros(wait + TURN_MIN + random % SPREAD)
    }
}

/// The place of a source: its own; else that of whoever in its set has the most room, who is forgotten. Whoever exceeds
/// a rate is so the last to be forgotten.
fn place_of(sources: &mut [Source], key: u64) -> &mut Bucket {
    let sets = SOURCES_MAX / WAYS;
    let begin = ((key >> 32) as usize % sets) * WAYS;
    let set = &mut sources[begin..begin + WAYS];
    let known = set.iter().position(|source| source.key == key);
    let index = known.unwrap_or_else(|| {
        let quietest = (0..WAYS).min_by_key(|index| set[*index].bucket.due);
        let index = quietest.unwrap_or_default();
        set[index] = Source {
            key,
            bucket: Bucket::default(),
        };
        index
    });
    &mut set[index].bucket
}

/// Whose a request is where addresses are counted: an IPv4 address however it came; of IPv6 the /64, since whoever has one
/// address there has them all.
pub fn counted_as(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
        address => address,
    }
}

/// An address, or a /64, as a number that nobody outside can foresee; never 0.
fn key_of(source: IpAddr, seed: u64) -> u64 {
    let (number, family) = match counted_as(source) {
        IpAddr::V4(address) => (u64::from(address.to_bits()), 4),
        IpAddr::V6(address) => ((address.to_bits() >> 64) as u64, 6),
    };
    // Two rounds keyed by a secret: a bijection of the number, so that no two of a family share a key.
    mix(mix(number ^ seed).wrapping_add(seed.rotate_left(family))).max(1)
}

/// Addresses that are remembered, 32 bytes each: a site's agents behind as many addresses of their own enrol in one
/// night. Of more, those who ask least are forgotten, and may ask their burst anew; the total holds for all.
pub const SOURCES_MAX: usize = 8192;
/// Places among which one of an address is: so many whose numbers collide are told apart.
const WAYS: usize = 8;
/// Most time that somebody is told to wait for a turn.
const TURNS_MAX: u64 = 120_000_000;
/// Least time: an agent sleeps whole seconds.
const TURN_MIN: u64 = 1_000_000;
/// What is added by chance.
const SPREAD: u64 = 10_000_000;

#[cfg(test)]
mod tests;
