//! What passes through the proxy: counts since the start, requests in flight, and the slowest requests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use telemetry::percentile_us;
use utoipa::ToSchema;

use crate::{RunningRequestStatus, Timestamp};

/// Answer to `GET /v1/traffic`: counts since the proxy started. Two answers give rates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TrafficStatus {
    /// Milliseconds since the proxy started, by a clock that never jumps.
    pub elapsed_milliseconds: u64,
    /// Requests by kind of work (`catalog`, `file`, `report`, `other`).
    pub work: BTreeMap<String, WorkTraffic>,
    /// Requests that the proxy answered with an error of its own, by reason.
    pub refusals: BTreeMap<String, u64>,
    /// Requests and handshakes refused because of the client's certificate, by reason.
    pub certificate_refusals: BTreeMap<String, u64>,
    /// Requests and handshakes that failed, by kind, as in [`TrafficPeriod`](crate::TrafficPeriod).
    #[serde(default)]
    pub failures: BTreeMap<String, u64>,
    /// Requests answered, by the first digit of the status code (`2xx`).
    #[serde(default)]
    pub codes: BTreeMap<String, u64>,
    /// How often a limit was hit, over all listeners, by the name of the limit.
    pub limits_hit: BTreeMap<String, u64>,
    /// TLS handshakes, over all listeners, by result.
    pub handshakes: BTreeMap<String, u64>,
    /// Requests in flight to members now.
    pub in_flight: u64,
    /// Requests that wait for a member now.
    pub waiting: u64,
}

/// Requests of one kind of work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkTraffic {
    /// Requests answered.
    pub requests: u64,
    /// Their total duration in milliseconds, each from its head to the last byte of its response.
    pub milliseconds: u64,
    /// How many took at most each duration. The last entry has no bound.
    pub durations: Vec<DurationCount>,
}

impl WorkTraffic {
    /// The duration in milliseconds that 95 % of the requests since `earlier` did not exceed, estimated from ranges of
    /// durations. None: there were none.
    pub fn p95_milliseconds_since(&self, earlier: &Self) -> Option<u64> {
        let before = earlier.durations.iter().map(|range| range.requests);
        let before = before.chain(std::iter::repeat(0));
        let ranges = self.durations.iter().zip(before);
        let ranges = ranges.map(|(range, before)| {
            let requests = range.requests.saturating_sub(before);
            (range.at_most_microseconds, requests)
        });
        let is_any = ranges.clone().any(|(_, requests)| requests > 0);
        is_any.then(|| percentile_us(ranges, 95) / 1_000)
    }
}

/// How many requests were in one range of durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DurationCount {
    /// Upper bound of the range in microseconds; none: no bound.
    pub at_most_microseconds: Option<u64>,
    /// Requests in the range, without those of shorter ranges.
    pub requests: u64,
}

/// Answer to `GET /v1/requests`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestsStatus {
    /// Requests that a member has not answered within the first seconds, the oldest first, at most 1,000.
    pub in_flight: Vec<RequestInFlight>,
    /// Pools in which requests wait for a member.
    pub queues: Vec<QueueStatus>,
    /// The slowest requests that ended within the last hour or the hour before, the slowest first.
    pub slowest: Vec<SlowRequestStatus>,
}

/// A request that is at a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestInFlight {
    /// Name of the pool.
    pub pool: String,
    /// Address of the member.
    pub member: String,
    /// The request and its client.
    #[serde(flatten)]
    pub request: RunningRequestStatus,
}

/// Requests of a pool that wait for a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueStatus {
    /// Name of the pool.
    pub pool: String,
    /// How many wait.
    pub waiting: u64,
    /// How long the first has waited, in milliseconds.
    pub longest_wait_milliseconds: Option<u64>,
}

/// A request that took long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SlowRequestStatus {
    /// The client's verified certname, or its address.
    pub client: String,
    /// Method and path, at most 200 characters.
    pub request: String,
    /// Address of the member that answered; none: the proxy answered itself.
    pub member: Option<String>,
    /// The status code of the response.
    pub status: u16,
    /// When the request arrived.
    pub at: Timestamp,
    /// Its duration in milliseconds.
    pub milliseconds: u64,
}
