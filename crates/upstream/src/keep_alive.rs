//! How the system detects that the host of a member is gone, on each connection.
//!
//! The system sends keep-alive probes while no data is unacknowledged. The system of the member's host answers them, whatever
//! its programs do. Unacknowledged data is instead sent again for a quarter of an hour, without probes. `TCP_USER_TIMEOUT`
//! limits that time, but it also ends a connection whose peer acknowledges data and has no room for more (Linux,
//! `tcp_probe_timer`). A busy server may do that without being gone. The proxy therefore sets the option only while everything
//! that was sent fits into the smallest usual window.

use std::{io, time::Duration};

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// Maximum probes without an answer.
const PROBES_MAX: u32 = 3;
/// The interval between two probes is the whole time divided by this.
const INTERVAL_PART: u64 = 6;
/// Maximum bytes of a request for which the time of unacknowledged data is limited. Systems offer a window of 64 KiB to a new
/// connection.
const LIMITED_BYTES_MAX: u64 = 48 << 10;

/// The parameters of keep-alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeepAlive {
    /// How long the member must be silent before the first probe.
    idle: Duration,
    /// Time between two probes, and after the last one.
    interval: Duration,
    /// Number of probes without an answer after which the connection ends.
    probes: u32,
}

impl KeepAlive {
    /// The parameters that end a connection after `down_wait`, which is reduced to whole seconds and is at least 2 s.
    pub(crate) fn within(down_wait: Duration) -> Self {
        let seconds = down_wait.as_secs().max(2);
        let interval = (seconds / INTERVAL_PART).max(1);
        let probes = PROBES_MAX.min(u32::try_from(seconds - 1).unwrap_or(PROBES_MAX));
        Self {
            idle: Duration::from_secs(seconds - interval * u64::from(probes)),
            interval: Duration::from_secs(interval),
            probes,
        }
    }

    /// The time from the last packet of the member until the connection ends.
    pub(crate) fn total(&self) -> Duration {
        self.idle + self.interval * self.probes
    }

    /// Enables keep-alive. A socket that has ended meanwhile refuses it. The next use of the socket shows that.
    pub(crate) fn enable(&self, stream: &TcpStream) {
        let parameters = TcpKeepalive::new()
            .with_time(self.idle)
            .with_interval(self.interval)
            .with_retries(self.probes);
        let _ = SockRef::from(stream).set_tcp_keepalive(&parameters);
    }
}

/// The limit on the time of unacknowledged data, for a request of `bytes`. `None`: no limit, because the request is too long or
/// its length is unknown.
pub(crate) fn unacknowledged_max(bytes: Option<u64>, down_wait: Duration) -> Option<Duration> {
    bytes
        .filter(|bytes| *bytes <= LIMITED_BYTES_MAX)
        .map(|_| KeepAlive::within(down_wait).total())
}

/// Limits how long data may stay unacknowledged, or removes the limit.
pub(crate) fn limit_unacknowledged(stream: &TcpStream, limit: Option<Duration>) {
    let _ = SockRef::from(stream).set_tcp_user_timeout(limit);
}

/// Whether the system ended the connection because the member's host did not answer. Network errors count too: a router or this
/// host reported them meanwhile.
pub fn is_unanswered(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::TimedOut
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keep_alive_ends_a_connection_after_down_wait() {
        for (down_wait, idle, interval, probes) in [
            (2000, 1, 1, 1),
            (2999, 1, 1, 1),
            (3000, 1, 1, 2),
            (4000, 1, 1, 3),
            (5000, 2, 1, 3),
            (13_000, 7, 2, 3),
            (60_000, 30, 10, 3),
            (570_000, 285, 95, 3),
            (3_600_000, 1800, 600, 3),
        ] {
            let down_wait = Duration::from_millis(down_wait);
            let expected = KeepAlive {
                idle: Duration::from_secs(idle),
                interval: Duration::from_secs(interval),
                probes,
            };
            assert_eq!(KeepAlive::within(down_wait), expected, "{down_wait:?}");
        }
        for seconds in 2..=3600 {
            let keep_alive = KeepAlive::within(Duration::from_secs(seconds));
            assert_eq!(keep_alive.total(), Duration::from_secs(seconds));
            assert!(!keep_alive.idle.is_zero(), "{keep_alive:?}");
        }
    }

    #[test]
    fn a_reset_is_not_a_host_that_is_gone() {
        // ETIMEDOUT, EHOSTUNREACH and ENETUNREACH; ECONNRESET, EPIPE and ECONNABORTED.
        for (number, expected) in [
            (110, true),
            (113, true),
            (101, true),
            (104, false),
            (32, false),
            (103, false),
        ] {
            let error = io::Error::from_raw_os_error(number);
            assert_eq!(is_unanswered(&error), expected, "{error}");
        }
    }

    #[test]
    fn only_a_request_that_fits_into_a_window_limits_unacknowledged_data() {
        let limit = |bytes| unacknowledged_max(bytes, Duration::from_millis(2500));
        let two = Some(Duration::from_secs(2));
        for (bytes, expected) in [
            (Some(0), two),
            (Some(48 << 10), two),
            (Some((48 << 10) + 1), None),
            (None, None),
        ] {
            assert_eq!(limit(bytes), expected, "{bytes:?}");
        }
    }
}
