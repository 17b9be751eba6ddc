//! Rate limits for one address and for all addresses together. Pure: time and random numbers are arguments.
//!
//! A refusal says when the client may retry. The times differ, so that the retries of many clients are spread.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::hash::mix;

/// A rate: requests per second, and a burst after a quiet time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Requests per second.
    pub per_second: u32,
    /// Maximum number of requests at the same time.
    pub burst: u32,
}

/// The two rates that apply to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// The rate of one address. An IPv6 address counts as its /64 network, because a client that has one address of a /64 has
    /// all of them.
    pub address: Rate,
    /// The rate of all addresses together.
    pub total: Rate,
}

impl Default for Rates {
    /// The rates of clients without a verified certificate at the CA. An agent that enrols makes four requests (CA certificate,
    /// CRL, certificate request, certificate), then two every two minutes until its certificate is signed. So 500 agents behind
    /// one address make 2,000 requests at once and 8 per second after that.
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

/// A request that exceeds a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateExceeded {
    /// Which rate it exceeds.
    pub of: RateScope,
    /// After which time the client may retry. Never zero.
    pub retry_after: Duration,
}

/// The scope of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateScope {
    /// The client's address.
    Address,
    /// All addresses.
    Total,
}

/// The memory of recent requests. It outlasts configurations, because the rates are an argument.
#[derive(Debug)]
pub struct RateLimiter {
    seed: u64,
    memory: Mutex<Memory>,
}

#[derive(Debug, Default)]
struct Memory {
    total: Bucket,
    /// [`SOURCES_MAX`] slots in sets of [`WAYS`]. Empty until the first request.
    sources: Vec<Source>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Source {
    /// 0: the slot is free.
    key: u64,
    bucket: Bucket,
}

/// The generic cell rate algorithm, in microseconds since start. The bucket is full while `due` is not in the future.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bucket {
    /// When the bucket will be full again.
    due: u64,
    /// The last turn that was given to a refused client.
    turn: u64,
}

/// A bucket that workers share.
#[derive(Debug, Default)]
pub(crate) struct SharedBucket(Mutex<Bucket>);

impl SharedBucket {
    /// Counts one request at `now` (time since start). False: the rate is exceeded and nothing was counted.
    pub(crate) fn admit(&self, rate: Rate, now: Duration) -> bool {
        let now = u64::try_from(now.as_micros()).unwrap_or(u64::MAX / 2);
        // A panic elsewhere leaves a consistent number.
        let mut bucket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let admitted = bucket.has_room(rate, now);
        if admitted {
            bucket.take(rate, now);
        }
        admitted
    }
}

impl RateLimiter {
    /// An empty limiter. `seed` must be secret: a client that knows it could choose addresses that share a slot.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            memory: Mutex::default(),
        }
    }

    /// Counts a request from `source` at `now` (time since start), unless it exceeds a rate. `random` spreads the retries of
    /// refused clients.
    ///
    /// # Errors
    /// The request exceeds a rate. Nothing is counted then.
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
        let bucket = bucket_of(sources, key_of(source, self.seed));
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

    /// A panic elsewhere leaves consistent numbers.
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
    /// Whether the bucket has room. A debt from an earlier configuration, with a slower rate or a larger burst, is limited to
    /// an empty bucket. Otherwise a raised rate would apply only after the old debt is paid.
    pub(crate) fn has_room(&mut self, rate: Rate, now: u64) -> bool {
        let depth = rate.gap() * u64::from(rate.burst.max(1));
        self.due = self.due.min(now + depth);
        self.due.max(now) + rate.gap() <= now + depth
    }

    pub(crate) fn take(&mut self, rate: Rate, now: u64) {
        self.due = self.due.max(now) + rate.gap();
    }

    /// After which time a refused client may retry. Each client gets a turn one gap after the previous one, so that the clients
    /// return at the allowed rate. If no turn is left within [`TURNS_MAX`], the client gets a random time within it.
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

/// The bucket of a source. A new source replaces the source with the most room in its set, so a source that exceeds a rate is
/// the last to be forgotten.
fn bucket_of(sources: &mut [Source], key: u64) -> &mut Bucket {
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

/// The address for which a request is counted. An IPv4 address on an IPv6 socket counts as the IPv4 address. An IPv6 address
/// counts as its /64 network, because a client that has one address of a /64 has all of them.
pub fn counted_as(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
        address => address,
    }
}

/// An address, or a /64 network, as a number that no client can predict. Never 0.
fn key_of(source: IpAddr, seed: u64) -> u64 {
    let (number, family) = match counted_as(source) {
        IpAddr::V4(address) => (u64::from(address.to_bits()), 4),
        IpAddr::V6(address) => ((address.to_bits() >> 64) as u64, 6),
    };
    // Two rounds with a secret key. They are a bijection, so no two addresses of a family have the same number.
    mix(mix(number ^ seed).wrapping_add(seed.rotate_left(family))).max(1)
}

/// Number of addresses that are remembered, at 32 bytes each. This is enough for a site whose agents enrol in one night, each
/// behind an address of its own. Beyond that, the addresses with the fewest requests are forgotten and get a new burst. The
/// total rate still applies.
pub const SOURCES_MAX: usize = 8192;
/// Slots in a set. This number of addresses that share a set are counted separately.
const WAYS: usize = 8;
/// Maximum wait for a turn, in microseconds.
const TURNS_MAX: u64 = 120_000_000;
/// Minimum wait, in microseconds, because an agent sleeps for whole seconds.
const TURN_MIN: u64 = 1_000_000;
/// Maximum random addition to a wait, in microseconds.
const SPREAD: u64 = 10_000_000;

#[cfg(test)]
mod tests;
