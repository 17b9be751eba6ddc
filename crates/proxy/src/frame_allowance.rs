//! Limits how many frames without a head or data an HTTP/2 client may send. Each of these frames costs work and advances no
//! request (CVE-2019-9512 and similar).

use std::{cell::Cell, time::Duration};

use tokio::time::Instant;

/// Frames without content that a client may send in one period. Keep-alive pings come only every few seconds.
const FRAMES_MAX: u32 = 1000;
const PERIOD: Duration = Duration::from_secs(10);

/// Frames that a client may send for each frame of a response. Some clients send one or two frames about each stream.
const EARNED_BY_FRAME: u32 = 4;
/// Bytes of a response for which a client may send one more frame. A client that reads a large response sends WINDOW_UPDATE
/// frames. Go's library sends them every 4 KiB, for the stream and for the connection.
const BYTES_EARNING_ONE: usize = 512;
/// Smaller pieces of data allow no frames, because a client could request a response byte by byte (CVE-2019-9511).
const EARNING_BYTES_MIN: usize = 64;

/// The number of frames that a connection may still send.
#[derive(Debug)]
pub(crate) struct FrameAllowance {
    left: Cell<u32>,
    since: Cell<Instant>,
}

impl FrameAllowance {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            left: Cell::new(FRAMES_MAX),
            since: Cell::new(now),
        }
    }

    /// Uses one frame. False: no frame is left in this period. The clock is read only when the allowance is used up.
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

    pub(crate) fn earn_by_head(&self) {
        self.earn(EARNED_BY_FRAME);
    }

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
    fn the_allowance_grows_with_time_and_responses_up_to_its_maximum() {
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
    fn a_client_that_pings_ten_times_a_second_stays_within_the_allowance() {
        let start = Instant::now();
        let allowance = FrameAllowance::new(start);
        let kept = (0..36_000).all(|n| allowance.spend(|| start + Duration::from_millis(100) * n));
        assert!(kept, "within an hour");
    }
}
