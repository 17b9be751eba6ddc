//! How many waiting requests may leave a failed member. Pure: time is an argument.

use std::time::Duration;

use crate::rate::{Rate, SharedBucket};

/// Requests that may move from the failed members of one pool to other members: 20 at once and then 10 a second.
///
/// A member that fails because its pool is overloaded may have a hundred waiting requests. If all of them moved to the other
/// members at once, they could overload the next member, and then the one after it.
pub const MOVE_RATE: Rate = Rate {
    per_second: 10,
    burst: 20,
};

/// Enforces [`MOVE_RATE`] for one pool.
#[derive(Debug, Default)]
pub struct MoveLimiter(SharedBucket);

impl MoveLimiter {
    /// Counts a move at `now` (time since start). False: the limit is reached and nothing was counted. The request
    /// stays where it is and may try again later.
    pub fn admit(&self, now: Duration) -> bool {
        self.0.admit(MOVE_RATE, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_moves_at_once_and_the_rest_at_the_rate() {
        let limiter = MoveLimiter::default();
        let mut waiting = 128;
        let mut left = Vec::new();
        for second in 0..13 {
            let now = Duration::from_secs(second);
            let moved = (0..waiting).take_while(|_| limiter.admit(now)).count();
            waiting -= moved;
            left.push(waiting);
        }
        assert_eq!(
            left,
            [108, 98, 88, 78, 68, 58, 48, 38, 28, 18, 8, 0, 0],
            "requests that still wait, second by second"
        );
    }

    #[test]
    fn a_quiet_time_allows_another_burst_and_no_more() {
        let limiter = MoveLimiter::default();
        for (seconds, expected) in [(0, 20), (0, 0), (3600, 20), (3601, 10), (3602, 10)] {
            let now = Duration::from_secs(seconds);
            let moved = (0..100).filter(|_| limiter.admit(now)).count();
            assert_eq!(moved, expected, "after {seconds} s");
        }
    }
}
