//! The minimum rate at which a client must send a body or read a response, after a grace period.

use std::{
    cell::{Cell, RefCell},
    sync::Arc,
    task::Waker,
    time::Duration,
};

use tokio::time::Instant;

use crate::slow_readers::{Download, SLOW_AFTER, SlowReaderEntry, SlowReaders};

/// Minimum rates of one listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateLimits {
    /// Minimum bytes per second at which a client must send a request body.
    pub(crate) body_min: u64,
    /// Minimum bytes per second at which a client must read a response.
    pub(crate) read_min: u64,
    /// How long a client may be slower than these rates.
    pub(crate) grace: Duration,
}

/// The time that a client has left. The time decreases while the proxy waits for the client, and increases with the bytes that
/// the client sends or reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    rate_min: u64,
    left_max: Duration,
    left: Duration,
}

impl Pace {
    /// The pace of a client that sends. Its time is limited to the grace period, so that a client that was fast at first cannot
    /// stall longer than a new one.
    pub(crate) fn new(rate_min: u64, grace: Duration) -> Self {
        Self {
            rate_min: rate_min.max(1),
            left_max: grace,
            left: grace,
        }
    }

    /// The pace of a client that reads. Its time has no limit, because buffers on the path accept many bytes at once that the
    /// client then reads slowly. `write_timeout` limits how long it may stall.
    pub(crate) fn of_reader(rate_min: u64, grace: Duration) -> Self {
        Self {
            left_max: Duration::MAX,
            ..Self::new(rate_min, grace)
        }
    }

    /// The minimum rate, in bytes per second.
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
        let left = self
            .left
            .saturating_add(time_for(bytes as u64, self.rate_min));
        self.left = left.min(self.left_max);
    }
}

fn time_for(bytes: u64, rate: u64) -> Duration {
    Duration::from_micros(bytes.saturating_mul(1_000_000) / rate.max(1))
}

/// The pace at which a client reads a response, on a connection with one response at a time. The connection requests the next
/// piece when its own buffer has room. Bytes that the client's socket accepts until then count as read.
#[derive(Debug)]
pub(crate) struct ReaderPace {
    limits: RateLimits,
    /// Bytes that the client's socket had accepted when the response started.
    written_before: Cell<u64>,
    /// How long the connection has had no room so far, in total.
    waited: Cell<Duration>,
    /// When the connection got the last piece, until it requests the next one.
    since: Cell<Option<Instant>>,
    /// The response, if the proxy may end it and its client has not proved slow.
    download: RefCell<Option<Download>>,
    /// The response, once the client has proved slow.
    slow: RefCell<Option<SlowReaderEntry>>,
}

impl ReaderPace {
    pub(crate) fn new(limits: RateLimits) -> Self {
        Self {
            limits,
            written_before: Cell::new(0),
            waited: Cell::new(Duration::ZERO),
            since: Cell::new(None),
            download: RefCell::default(),
            slow: RefCell::default(),
        }
    }

    /// Called when a response starts. `written`: the number of bytes that the client's socket has accepted so far. `download`:
    /// the response, if the proxy may end it.
    pub(crate) fn begin(&self, written: u64, download: Option<Download>) {
        self.since.set(None);
        self.waited.set(Duration::ZERO);
        self.written_before.set(written);
        self.download.replace(download);
    }

    /// Adds the response to the list of slow downloads if its client has proved slow. `task` sends the response. `written`: the
    /// number of bytes that the client's socket has accepted so far.
    pub(crate) fn note_slow(&self, all: &Arc<SlowReaders>, written: u64, task: &Waker) {
        let Some(since) = self.since.get() else {
            return;
        };
        let now = Instant::now();
        if self.waited.get() + now.saturating_duration_since(since) < SLOW_AFTER {
            return;
        }
        let mut slow = self.slow.borrow_mut();
        if slow.is_none()
            && let Some(download) = self.download.take()
        {
            *slow = Some(all.note(download, now, task));
        }
        if let Some(slow) = &*slow {
            slow.accepted(written.saturating_sub(self.written_before.get()));
        }
    }

    /// Whether the response must end, because a request waits for its connection to the member.
    pub(crate) fn is_displaced(&self) -> bool {
        let slow = self.slow.borrow();
        slow.as_ref().is_some_and(SlowReaderEntry::is_ended)
    }

    /// Called when the connection requests the next piece, because it has room again.
    pub(crate) fn requested(&self) {
        if let Some(since) = self.since.take() {
            self.waited.set(self.waited.get() + since.elapsed());
        }
    }

    /// Called when the connection got a piece and more pieces follow.
    pub(crate) fn handed(&self) {
        self.since.set(Some(Instant::now()));
    }

    pub(crate) fn end(&self) {
        self.since.set(None);
        self.download.take();
        self.slow.take();
    }

    /// When the client's pace becomes too slow if its socket accepts no more bytes until then. `written`: the number of bytes
    /// that the socket has accepted so far.
    pub(crate) fn due(&self, written: u64) -> Option<Instant> {
        let since = self.since.get()?;
        let accepted = written.saturating_sub(self.written_before.get());
        let allowed = self.limits.grace + time_for(accepted, self.limits.read_min);
        Some(since + allowed.saturating_sub(self.waited.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(30);

    /// Whether a client that sends `bytes` in each interval `every` is still within the limit after an hour.
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
    fn earlier_speed_earns_no_time_beyond_the_grace_period() {
        let mut pace = Pace::new(1024, GRACE);
        pace.moved(1 << 30);
        assert_eq!(pace.left(), GRACE);
        pace.waited(GRACE);
        assert_eq!(pace.left(), Duration::ZERO);
    }

    #[test]
    fn a_reader_gets_time_for_all_bytes_that_buffers_accepted_at_once() {
        let mut pace = Pace::of_reader(1024, GRACE);
        pace.moved(1 << 20);
        pace.waited(Duration::from_secs(1024));
        assert_eq!(pace.left(), GRACE);
        pace.waited(GRACE);
        assert_eq!(pace.left(), Duration::ZERO);
    }

    #[test]
    fn only_a_connection_that_has_not_requested_more_is_late() {
        let limits = RateLimits {
            body_min: 1,
            read_min: 1024,
            grace: GRACE,
        };
        let reader = ReaderPace::new(limits);
        reader.begin(500, None);
        assert_eq!(reader.due(500), None);
        let before = Instant::now();
        reader.handed();
        let due = |written| reader.due(written).expect("it has not requested more");
        assert!(due(500) >= before + GRACE);
        assert!(due(500) <= Instant::now() + GRACE);
        assert_eq!(due(500 + 2048), due(500) + Duration::from_secs(2));
        reader.requested();
        assert_eq!(reader.due(500), None, "the member is waited for");
        reader.handed();
        reader.end();
        assert_eq!(reader.due(500), None);
    }
}
