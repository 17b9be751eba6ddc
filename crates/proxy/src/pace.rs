//! The minimum rate at which a client must send a body or read a response, after a grace period.

use std::{cell::Cell, time::Duration};

use tokio::time::Instant;

/// Minimum rates of one listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateLimits {
    /// Bytes per second that a client must send of a request body.
    pub(crate) body_min: u64,
    /// Bytes per second that a client must read of a response.
    pub(crate) read_min: u64,
    /// How long a client may be slower than that.
    pub(crate) grace: Duration,
}

/// How long a client may still be waited for. Waiting uses the time up, bytes earn it back, up to the grace period: a
/// client that was fast before cannot stall for longer than one that has just begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    rate_min: u64,
    grace: Duration,
    left: Duration,
}

impl Pace {
    pub(crate) fn new(rate_min: u64, grace: Duration) -> Self {
        Self {
            rate_min: rate_min.max(1),
            grace,
            left: grace,
        }
    }

    /// Bytes per second.
    pub(crate) fn rate_min(&self) -> u64 {
        self.rate_min
    }

    pub(crate) fn left(&self) -> Duration {
        self.left
    }

    pub(crate) fn waited(&mut self, time: Duration) {
        self.left = self.left.saturating_sub(time);
    }

    pub(crate) fn moved(&mut self, bytes: usize) {
        let earned = (bytes as u64).saturating_mul(1_000_000) / self.rate_min;
        let left = self.left.saturating_add(Duration::from_micros(earned));
        self.left = left.min(self.grace);
    }
}

/// Since when the client of a connection that carries one response at a time has not asked for more of it.
#[derive(Debug)]
pub(crate) struct ReaderPace {
    limits: RateLimits,
    pace: Cell<Pace>,
    /// When the last piece was handed to the connection, while it has not asked for the next one.
    since: Cell<Option<Instant>>,
}

impl ReaderPace {
    pub(crate) fn new(limits: RateLimits) -> Self {
        Self {
            limits,
            pace: Cell::new(Pace::new(limits.read_min, limits.grace)),
            since: Cell::new(None),
        }
    }

    /// A response begins.
    pub(crate) fn begin(&self) {
        self.since.set(None);
        let limits = self.limits;
        self.pace.set(Pace::new(limits.read_min, limits.grace));
    }

    /// The connection asks for the next piece: it has room again.
    pub(crate) fn asked(&self) {
        if let Some(since) = self.since.take() {
            let mut pace = self.pace.get();
            pace.waited(since.elapsed());
            self.pace.set(pace);
        }
    }

    /// The connection was handed a piece, and there are more.
    pub(crate) fn handed(&self, bytes: usize) {
        let mut pace = self.pace.get();
        pace.moved(bytes);
        self.pace.set(pace);
        self.since.set(Some(Instant::now()));
    }

    /// The member is no longer waiting for the client.
    pub(crate) fn end(&self) {
        self.since.set(None);
    }

    /// When the client will have been too slow, if it asks for nothing until then.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.since.get().map(|since| since + self.pace.get().left())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(30);

    /// Whether a client that sends `bytes` after each wait of `every` is within the limit after an hour.
    fn holds(bytes: usize, every: Duration) -> bool {
        let mut pace = Pace::new(1024, GRACE);
        let mut time = Duration::ZERO;
        while time < Duration::from_secs(3600) {
            if every >= pace.left() {
                return false;
            }
            time += every;
            pace.waited(every);
            pace.moved(bytes);
        }
        true
    }

    #[test]
    fn a_client_at_the_rate_goes_on_and_a_slower_one_ends() {
        for (bytes, every, expected) in [
            (1024, 1, true),
            (16 << 10, 16, true),
            (29 << 10, 29, true),
            (1000, 1, false),
            (1, 1, false),
            (1, 29, false),
            (1 << 20, 31, false),
        ] {
            let every = Duration::from_secs(every);
            assert_eq!(holds(bytes, every), expected, "{bytes} every {every:?}");
        }
    }

    #[test]
    fn speed_of_before_is_not_saved_up() {
        let mut pace = Pace::new(1024, GRACE);
        pace.moved(1 << 30);
        assert_eq!(pace.left(), GRACE);
        pace.waited(GRACE);
        assert_eq!(pace.left(), Duration::ZERO);
    }

    #[test]
    fn only_a_connection_that_has_not_asked_for_more_is_late() {
        let limits = RateLimits {
            body_min: 1,
            read_min: 1024,
            grace: GRACE,
        };
        let reader = ReaderPace::new(limits);
        assert_eq!(reader.due(), None);
        reader.handed(10);
        assert!(reader.due().is_some_and(|due| due > Instant::now()));
        reader.asked();
        assert_eq!(reader.due(), None, "the member is waited for");
        reader.handed(10);
        reader.end();
        assert_eq!(reader.due(), None);
    }
}
