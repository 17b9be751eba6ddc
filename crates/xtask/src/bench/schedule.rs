//! Sends requests on a fixed schedule: the time at which a request is sent does not depend on how long the previous one
//! took.
//!
//! A separate thread waits for each time, because timers of the runtime have a granularity of one millisecond.

use std::{
    thread,
    time::{Duration, Instant},
};

use tokio::sync::mpsc;

/// The times at which one connection sends.
pub(super) enum Turns {
    /// This number of times, each after the previous response.
    AtOnce(u64),
    /// Until this time, each after the previous response.
    Until(Instant),
    /// On a fixed schedule.
    Due(mpsc::Receiver<Instant>),
}

impl Turns {
    /// Waits for the next turn and returns the time at which it was due; `None` after the last.
    pub(super) async fn next(&mut self) -> Option<Instant> {
        match self {
            Self::AtOnce(0) => None,
            Self::AtOnce(left) => {
                *left -= 1;
                Some(Instant::now())
            }
            Self::Until(end) => Some(Instant::now()).filter(|now| now < end),
            Self::Due(moments) => moments.recv().await,
        }
    }
}

/// Distributes `count` times, `rate` per second, to `lanes` in turn.
pub(super) fn start(rate: u32, count: u64, lanes: usize) -> Vec<Turns> {
    let (senders, turns): (Vec<_>, Vec<_>) = (0..lanes)
        .map(|_| {
            let (sender, receiver) = mpsc::channel(WAITING_MAX);
            (sender, Turns::Due(receiver))
        })
        .unzip();
    let start = Instant::now() + LEAD;
    thread::spawn(move || {
        for (number, sender) in (0..count).zip(senders.iter().cycle()) {
            let due = start + offset(number, rate);
            thread::sleep(due.saturating_duration_since(Instant::now()));
            // Sending fails if the connection has failed. The task that awaits the connection then ends the run.
            let _ = sender.blocking_send(due);
        }
    });
    turns
}

/// The time from the first request to this one.
fn offset(number: u64, rate: u32) -> Duration {
    Duration::from_secs(number) / rate
}

/// Time until the first request is due.
const LEAD: Duration = Duration::from_millis(10);
/// Maximum number of turns that wait while their connection is busy.
const WAITING_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_due_at_equal_intervals() {
        assert_eq!(offset(0, 5_000), Duration::ZERO);
        assert_eq!(offset(1, 5_000), Duration::from_micros(200));
        assert_eq!(offset(30_000, 5_000), Duration::from_secs(6));
    }
}
