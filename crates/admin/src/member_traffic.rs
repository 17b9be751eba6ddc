//! What one member did in the last minute.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Requests of this process to one member, in a window of about a minute that ends now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemberTraffic {
    /// Length of the window in milliseconds; shorter after a start.
    pub window_milliseconds: u64,
    /// Attempts that ended. A request that moved to another member counts there.
    pub requests: u64,
    /// Its part of the requests to the pool, in percent.
    pub share_percent: u64,
    /// Attempts that failed by cause (`connect`, `timeout`), responses with status 500 or above (`5xx`), and responses that it
    /// broke off (`cut`); causes without any are left out.
    pub failures: BTreeMap<String, u64>,
    /// How long it took by kind of work; kinds without any are left out.
    pub work: BTreeMap<String, MemberWork>,
    /// Why it counts as slow; none: it does not.
    pub slow: Option<SlowMember>,
}

/// How long a member took for one kind of work: from the last byte of the request to the head of the response. Responses with
/// status 500 or above are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemberWork {
    /// Requests.
    pub requests: u64,
    /// The time in milliseconds that half of them did not exceed, estimated from ranges of durations.
    pub p50_milliseconds: u64,
    /// The same for 95 % of them.
    pub p95_milliseconds: u64,
}

/// A member whose catalogs take much longer than those of the other members of its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SlowMember {
    /// The time in milliseconds that 95 % of its catalogs did not exceed in the last five minutes.
    pub p95_milliseconds: u64,
    /// The median of the same number of the other members.
    pub median_milliseconds: u64,
}

/// Requests of the whole process in a window of about a minute that ends now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecentRates {
    /// Length of the window in milliseconds; shorter after a start.
    pub milliseconds: u64,
    /// Requests answered.
    pub requests: u64,
    /// Requests that failed, of every kind except `refused` (`failures` of a traffic period).
    pub failures: u64,
}

impl fmt::Display for SlowMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = shown_milliseconds(self.p95_milliseconds);
        let neighbours = shown_milliseconds(self.median_milliseconds);
        write!(f, "catalogs take {own} at p95, its neighbours {neighbours}")
    }
}

/// A duration as people read it: `4 ms`, `1.3 s`, `12 s`.
pub fn shown_milliseconds(milliseconds: u64) -> String {
    match milliseconds {
        ..1_000 => format!("{milliseconds} ms"),
        1_000..10_000 => format!("{:.1} s", milliseconds as f64 / 1e3),
        _ => format!("{} s", milliseconds / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_member_is_described_with_durations_of_suitable_units() {
        for (p95_milliseconds, median_milliseconds, expected) in [
            (
                12_400,
                3_100,
                "catalogs take 12 s at p95, its neighbours 3.1 s",
            ),
            (
                1_000,
                200,
                "catalogs take 1.0 s at p95, its neighbours 200 ms",
            ),
        ] {
            let slow = SlowMember {
                p95_milliseconds,
                median_milliseconds,
            };
            assert_eq!(slow.to_string(), expected);
        }
    }
}
