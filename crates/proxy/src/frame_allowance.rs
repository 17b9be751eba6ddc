//! How many frames that carry nothing a client of HTTP/2 may send: each is work, and none moves a request on
//! (CVE-2019-9512 and its kind).

use std::{cell::Cell, time::Duration};

use tokio::time::Instant;

/// Frames that carry nothing, which anybody may send in one period. Keep-alive pings are one in seconds.
const FRAMES_MAX: u32 = 1000;
const PERIOD: Duration = Duration::from_secs(10);

/// What is earned by each frame of an answer: a client of some kinds says a word or two of each stream.
const EARNED_BY_FRAME: u32 = 4;
/// Bytes of an answer that earn one more: whoever takes a large one makes room for more of it, some (Go's library) for
/// each 4 KiB, of the stream and of the connection.
const BYTES_EARNING_ONE: usize = 512;
/// Data in smaller pieces earns nothing: a client could ask for it byte by byte (CVE-2019-9511).
const EARNING_BYTES_MIN: usize = 64;

/// What is left of a connection's frames.
#[derive(Debug)]
pub(crate) struct FrameAllowance {
    left: Cell<u32>,
    /// When the period began.
    since: Cell<Instant>,
}

impl FrameAllowance {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            left: Cell::new(FRAMES_MAX),
            since: Cell::new(now),
        }
    }

    /// Whether there was one left. The clock is looked at only where there was none.
    pub(crate) fn spend(&self, now: impl FnOnce() -> Instant) -> bool {
        if self.left.get() == 0 {
            let now = now();
            if now.saturating_duration_since(self.since.get()) < PERIOD {
                return false;
            }
            self.since.set(now);
            self.left.set(FRAMES_MAX);
        }
        self.left.set(self.left.get() - 1);
        true
    }

    /// Notes the head of an answer.
    pub(crate) fn earn_by_head(&self) {
        self.earn(EARNED_BY_FRAME);
    }

    /// Notes data of an answer.
    pub(crate) fn earn_by_data(&self, bytes: usize) {
        if bytes >= EARNING_BYTES_MIN {
            let more = u32::try_from(bytes / BYTES_EARNING_ONE).unwrap_or(FRAMES_MAX);
            self.earn(EARNED_BY_FRAME.saturating_add(more));
        }
    }

    fn earn(&self, frames: u32) {
        self.left
            .set(self.left.get().saturating_add(frames).min(FRAMES_MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(allowance: &FrameAllowance, now: Instant) -> u32 {
        (0..).find(|_| !allowance.spend(|| now)).unwrap_or_default()
    }

    #[test]
    fn frames_come_back_with_time_and_with_answers_and_are_never_saved_up() {
        let start = Instant::now();
        let allowance = FrameAllowance::new(start);
        assert_eq!(spent(&allowance, start), FRAMES_MAX);
        allowance.earn_by_head();
        allowance.earn_by_data(16 << 10);
        assert_eq!(spent(&allowance, start), 4 + 4 + 32);
        allowance.earn_by_data(EARNING_BYTES_MIN - 1);
        assert_eq!(spent(&allowance, start), 0, "byte by byte");
        assert_eq!(spent(&allowance, start + PERIOD), FRAMES_MAX);
        allowance.earn_by_data(1 << 30);
        assert_eq!(spent(&allowance, start + PERIOD), FRAMES_MAX);
    }

    #[test]
    fn whoever_pings_ten_times_a_second_never_meets_it() {
        let start = Instant::now();
        let allowance = FrameAllowance::new(start);
        let kept = (0..36_000).all(|n| allowance.spend(|| start + Duration::from_millis(100) * n));
        assert!(kept, "within an hour");
    }
}
