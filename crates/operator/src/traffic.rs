//! What passes through the proxy, for `GET /v1/traffic` and `GET /v1/requests`.

use std::collections::BTreeMap;

use admin::{
    DurationCount, RequestInFlight, RequestsStatus, RunningRequestStatus, SlowRequestStatus,
    TrafficStatus, WorkTraffic,
};
use lifecycle::App;
use proxy::Generation;
use telemetry::LatencyCounts;

/// Maximum number of requests in flight that are listed.
const REQUESTS_MAX: usize = 1_000;

/// Counts since the start.
pub(crate) fn traffic(app: &App) -> TrafficStatus {
    let counts = app.active().shared().metrics.traffic();
    let generation = app.active().generation();
    let named = |counts: BTreeMap<&'static str, u64>| {
        let named = counts.into_iter();
        named
            .map(|(name, count)| (name.to_owned(), count))
            .collect()
    };
    let entries = || {
        generation
            .pools
            .iter()
            .flat_map(|runtime| runtime.pool.entries())
    };
    let work = counts.work.into_iter();
    TrafficStatus {
        elapsed_milliseconds: u64::try_from(app.active().shared().now().as_millis())
            .unwrap_or(u64::MAX),
        work: work
            .map(|(work, counts)| (work.to_owned(), work_traffic(counts)))
            .collect(),
        refusals: named(counts.refusals),
        certificate_refusals: named(counts.certificate_refusals),
        failures: named(counts.failures),
        codes: counts.codes,
        limits_hit: named(counts.limits_hit),
        handshakes: named(counts.handshakes),
        in_flight: entries()
            .map(|entry| u64::from(entry.member.in_flight()))
            .sum::<u64>()
            + app.former_in_flight(),
        waiting: waiting(&generation),
    }
}

fn waiting(generation: &Generation) -> u64 {
    let queues = generation.pools.iter();
    let waiting = queues.flat_map(|runtime| runtime.admission.state().waiting);
    waiting.map(u64::from).sum()
}

fn work_traffic(counts: LatencyCounts) -> WorkTraffic {
    WorkTraffic {
        requests: counts.requests(),
        milliseconds: counts.sum_us / 1_000,
        durations: counts
            .buckets
            .into_iter()
            .map(|(at_most_microseconds, requests)| DurationCount {
                at_most_microseconds,
                requests,
            })
            .collect(),
    }
}

/// Requests in flight and the slowest; the queues are left out.
pub(crate) fn requests(app: &App) -> RequestsStatus {
    let generation = app.active().generation();
    let mut members = BTreeMap::new();
    for runtime in &*generation.pools {
        for (entry, member) in runtime.pool.entries().iter().zip(&runtime.members) {
            let address = member.connector.address.to_string();
            let name = (runtime.pool.name().to_string(), address);
            members.insert(entry.member.id(), name);
        }
    }
    let oldest = app
        .active()
        .shared()
        .long_requests
        .oldest(REQUESTS_MAX)
        .into_iter();
    let in_flight = oldest.map(|(member, request)| {
        // A member that a reload removed finishes its requests.
        let (pool, member) = members.get(&member).cloned().unwrap_or_default();
        RequestInFlight {
            pool,
            member,
            request: RunningRequestStatus {
                client: request.client.to_string(),
                request: request.request,
                since: request.since.into(),
            },
        }
    });
    let slowest = app
        .active()
        .shared()
        .slowest
        .list(app.active().shared().now())
        .into_iter();
    let slowest = slowest.map(|request| SlowRequestStatus {
        client: request.client.to_string(),
        request: request.request,
        member: request.member.map(|member| member.to_string()),
        status: request.status,
        at: request.when.into(),
        milliseconds: u64::try_from(request.took.as_millis()).unwrap_or(u64::MAX),
    });
    RequestsStatus {
        in_flight: in_flight.collect(),
        queues: Vec::new(),
        slowest: slowest.collect(),
    }
}
