//! JRuby counts, read from the status service of each compiler.

use std::time::{Duration, SystemTime};

use balancing::{Health, JRUBIES_MAX, Pool};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use proxy::{Generation, JrubyAnswer, JrubyReading, Shared};
use routing::pool_names;
use serde::Deserialize;
use serde_json::Value;
use telemetry::Alarm;
use tokio::time::sleep;
use upstream::{MemberQuery, QueryConnection, QueryResponse};

use crate::probed_member::ProbedMember;

/// The path at which Puppet Server 5.0 and later shows its JRubies. Its default auth.conf allows the request without a
/// certificate.
pub const PATH: &str = "/status/v1/services/jruby-metrics?level=debug";
/// The rule that another auth.conf needs.
pub const AUTH_RULE: &str = "{ match-request: { path: \"/status/v1/services/jruby-metrics\", type: path, method: get }, \
     allow-unauthenticated: true, sort-order: 400, name: \"proscenium JRuby counts\" }";
/// Maximum size of a response. A busy server lists each request that holds or waits for a JRuby, with 300 bytes for each.
pub(crate) const ANSWER_BYTES_MAX: usize = 256 << 10;
/// Timeout of a response.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(3);
/// A member that does not show its counts is queried once in this many intervals.
const TURNS_WITHOUT_COUNTS: u32 = 12;

/// The parts of a response that are used here (puppetlabs/services/jruby/jruby_metrics_core.clj).
#[derive(Deserialize)]
struct Answer {
    status: Status,
}

#[derive(Deserialize)]
struct Status {
    experimental: Experimental,
}

#[derive(Deserialize)]
struct Experimental {
    metrics: Metrics,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Metrics {
    num_jrubies: Value,
    #[serde(default)]
    num_free_jrubies: u32,
    #[serde(default)]
    requested_instances: Vec<serde::de::IgnoredAny>,
    #[serde(default)]
    average_borrow_time: f64,
    #[serde(default)]
    average_wait_time: f64,
    #[serde(default)]
    borrow_count: u64,
    #[serde(default)]
    borrow_timeout_count: u64,
    #[serde(default)]
    queue_limit_hit_count: u64,
}

/// Why a response has no usable counts.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum JrubyError {
    /// auth.conf does not allow the request.
    #[error("auth.conf of the server does not allow the request")]
    Forbidden,
    /// Not a Puppet Server, or one without this service.
    #[error("answered {0}")]
    Status(StatusCode),
    /// The response is too long.
    #[error("the answer is longer than {ANSWER_BYTES_MAX} bytes")]
    TooLong,
    /// The response is not the JSON of a Puppet Server.
    #[error("the answer has no JRuby counts: {0}")]
    Unreadable(String),
    /// A count outside the possible range.
    #[error("the server reports {0} JRubies, and a count outside 1 to {JRUBIES_MAX} is ignored")]
    Impossible(String),
}

/// The request for the counts of a member, at the port that probes use.
pub fn counts_query(port: Option<u16>) -> MemberQuery<'static> {
    let accept = HeaderValue::from_static("application/json");
    MemberQuery {
        method: Method::GET,
        path: PATH,
        port,
        headers: HeaderMap::from_iter([(header::ACCEPT, accept)]),
        timeout: TIMEOUT,
        // One more byte shows that the response is too long.
        body_bytes_max: ANSWER_BYTES_MAX + 1,
    }
}

/// Reads a response.
///
/// # Errors
/// Why it has no usable counts.
pub fn read(response: &QueryResponse, at: SystemTime) -> Result<JrubyReading, JrubyError> {
    match response.status {
        StatusCode::OK => {}
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => return Err(JrubyError::Forbidden),
        status => return Err(JrubyError::Status(status)),
    }
    if response.body.len() > ANSWER_BYTES_MAX {
        return Err(JrubyError::TooLong);
    }
    let answer: Answer = serde_json::from_slice(&response.body)
        .map_err(|error| JrubyError::Unreadable(error.to_string().chars().take(200).collect()))?;
    let metrics = answer.status.experimental.metrics;
    let count = metrics.num_jrubies.as_u64();
    let count = count.and_then(|count| u32::try_from(count).ok());
    let Some(count) = count.filter(|count| (1..=JRUBIES_MAX).contains(count)) else {
        let shown = metrics.num_jrubies.to_string();
        return Err(JrubyError::Impossible(shown.chars().take(32).collect()));
    };
    let time = |milliseconds: f64| {
        // A value that is not a number, negative or too large counts as zero.
        Duration::try_from_secs_f64(milliseconds / 1000.0).unwrap_or_default()
    };
    Ok(JrubyReading {
        at,
        count,
        free: metrics.num_free_jrubies.min(count),
        waiting: u32::try_from(metrics.requested_instances.len()).unwrap_or(u32::MAX),
        borrow_time: time(metrics.average_borrow_time),
        wait_time: time(metrics.average_wait_time),
        borrows: metrics.borrow_count,
        borrow_timeouts: metrics.borrow_timeout_count,
        queue_limit_hits: metrics.queue_limit_hit_count,
    })
}

/// Whether the counts of this pool's members are read. Requests of agents to a CA do not need a JRuby.
pub(crate) fn is_read(pool: &Pool) -> bool {
    let is_ca = **pool.name() == *pool_names::CA;
    upstream::reads_jrubies(pool.check()) && (!is_ca || pool.check().read_jrubies.is_some())
}

/// Forgets the counts of members that `generation` does not read, and clears the alarms about them.
pub(crate) fn forget(generation: &Generation, shared: &Shared) {
    let alarms = &shared.metrics.alarms;
    let read = |about: &str| {
        generation.pools.iter().any(|runtime| {
            is_read(&runtime.pool)
                && runtime
                    .connectors()
                    .any(|connector| about == key(runtime.pool.name(), &connector.address))
        })
    };
    for runtime in generation.pools.iter() {
        if !is_read(&runtime.pool) {
            for entry in runtime.pool.entries() {
                entry.member.learn_jrubies(None);
            }
        }
    }
    for active in alarms.active() {
        if active.alarm == Alarm::JrubyCount && !read(&active.about) {
            alarms.clear(Alarm::JrubyCount, &active.about);
        }
    }
}

/// Reads the counts of one member at each interval of its check, while it is up.
pub(crate) async fn read_at_intervals(probed: ProbedMember) {
    let ProbedMember {
        member: state,
        connector,
        check,
        shared,
    } = probed;
    let query = counts_query(check.port);
    let mut connection = QueryConnection::default();
    let mut pause = 0;
    for turn in 0u64.. {
        // A member that comes up may be another server, so nothing is assumed about it.
        if state.health() != Health::Up {
            (pause, connection) = (0, QueryConnection::default());
        } else if pause > 0 {
            pause -= 1;
        } else {
            let response = connection.query(&connector, &query).await;
            match response.map(|response| read(&response, SystemTime::now())) {
                Ok(outcome) => {
                    if outcome.is_err() {
                        connection.close();
                        pause = TURNS_WITHOUT_COUNTS - 1;
                    }
                    note(&shared, (state.pool(), &connector.address), &state, outcome);
                }
                // The known counts stay. Probes find out whether the member still responds.
                Err(error) => {
                    tracing::debug!(member = %connector.address, %error, "no JRuby counts")
                }
            }
        }
        sleep(check.wait(false, state.id() ^ SPREAD, turn)).await;
    }
}

/// Changes the seed of the schedule, so that counts are not read at the times of the probes.
const SPREAD: u64 = 0x6a72_7562;

fn note(
    shared: &Shared,
    (pool, address): (&str, &str),
    member: &balancing::Member,
    outcome: Result<JrubyReading, JrubyError>,
) {
    let alarms = &shared.metrics.alarms;
    let about = key(pool, address);
    match &outcome {
        Err(error @ JrubyError::Impossible(_)) => {
            let message = format!("member {address} of pool {pool}: {error}");
            alarms.raise(Alarm::JrubyCount, &about, message, SystemTime::now());
        }
        _ => alarms.clear(Alarm::JrubyCount, &about),
    }
    let answer = match outcome {
        Ok(reading) => {
            member.learn_jrubies(Some(reading.count));
            note_load(shared, (pool, address), member, &reading);
            JrubyAnswer::Known(reading)
        }
        Err(JrubyError::Forbidden) => {
            member.learn_jrubies(None);
            member.show_overload(None);
            JrubyAnswer::Forbidden
        }
        Err(error) => {
            member.learn_jrubies(None);
            member.show_overload(None);
            JrubyAnswer::Unknown(error.to_string())
        }
    };
    let forbidden = answer == JrubyAnswer::Forbidden;
    if shared.members.jrubies_read(pool, address, answer) && forbidden {
        tracing::warn!(
            %pool, member = %address,
            "the member does not show its JRuby counts (403): add this rule to its auth.conf, or set read_jrubies = false: {AUTH_RULE}"
        );
    }
}

/// Notes a restart and an overload that the counters show.
fn note_load(
    shared: &Shared,
    (pool, address): (&str, &str),
    member: &balancing::Member,
    reading: &JrubyReading,
) {
    // Read before the new reading replaces it.
    let before = match shared.members.of(pool, address).jrubies {
        Some(JrubyAnswer::Known(before)) => Some(before),
        _ => None,
    };
    if before
        .as_ref()
        .is_some_and(|before| reading.is_restarted_since(before))
    {
        member.restarted();
    }
    let cause = reading.overload(before.as_ref());
    if member.show_overload(cause) {
        let cause = cause.map_or("", balancing::OverloadCause::as_str);
        tracing::warn!(%pool, member = %address, cause, "member overloaded, as its status service shows");
    }
}

fn key(pool: &str, address: &str) -> String {
    format!("{pool} {address}")
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn response(status: u16, body: impl Into<Bytes>) -> QueryResponse {
        QueryResponse {
            status: StatusCode::from_u16(status).unwrap(),
            headers: HeaderMap::new(),
            body: body.into(),
            certificate: None,
        }
    }

    fn answered(metrics: &str) -> Result<JrubyReading, JrubyError> {
        let body = format!(
            r#"{{"detail_level":"debug","state":"running","status":{{"experimental":{{"jruby-pool-lock-status":{{}},"metrics":{metrics}}}}}}}"#
        );
        read(&response(200, body), SystemTime::UNIX_EPOCH)
    }

    #[test]
    fn the_counts_of_a_puppet_server_are_read() {
        let reading = answered(
            r#"{"num-jrubies":4,"num-free-jrubies":1,"requested-count":20,"borrow-count":15,"borrow-timeout-count":2,
            "borrow-retry-count":0,"average-borrow-time":1234.5,"average-wait-time":10,"queue-limit-hit-count":7,
            "requested-instances":[{"duration-millis":3},{"duration-millis":9}],"borrow-timers":{"total":{}}}"#,
        );
        let expected = JrubyReading {
            at: SystemTime::UNIX_EPOCH,
            count: 4,
            free: 1,
            waiting: 2,
            borrow_time: Duration::from_micros(1_234_500),
            wait_time: Duration::from_millis(10),
            borrows: 15,
            borrow_timeouts: 2,
            queue_limit_hits: 7,
        };
        assert_eq!(reading, Ok(expected));
        assert_eq!(answered(r#"{"num-jrubies":1000}"#).unwrap().count, 1000);
    }

    #[test]
    fn an_impossible_count_is_ignored() {
        for count in ["0", "1001", "-1", "4.5", "1e9", "null", "\"4\"", "[]"] {
            let error = answered(&format!(r#"{{"num-jrubies":{count}}}"#)).unwrap_err();
            assert!(
                matches!(error, JrubyError::Impossible(_)),
                "{count}: {error}"
            );
        }
    }

    #[test]
    fn a_response_of_another_server_has_no_counts_and_causes_no_panic() {
        let deep = "[".repeat(100_000);
        for body in [
            "",
            "{",
            "[]",
            "null",
            r#"{"status":{}}"#,
            &deep,
            "\u{1}\u{ff}",
        ] {
            let error = read(&response(200, body.to_owned()), SystemTime::UNIX_EPOCH).unwrap_err();
            assert!(matches!(error, JrubyError::Unreadable(_)), "{error}");
        }
        for times in ["1e308", "-5", "0"] {
            let metrics = format!(r#"{{"num-jrubies":4,"average-borrow-time":{times}}}"#);
            assert_eq!(answered(&metrics).unwrap().borrow_time, Duration::ZERO);
        }
        let long = read(
            &response(200, vec![b' '; ANSWER_BYTES_MAX + 1]),
            SystemTime::UNIX_EPOCH,
        );
        assert_eq!(long, Err(JrubyError::TooLong));
        let refused = |status| read(&response(status, ""), SystemTime::UNIX_EPOCH).unwrap_err();
        assert_eq!(refused(403), JrubyError::Forbidden);
        assert_eq!(refused(404), JrubyError::Status(StatusCode::NOT_FOUND));
    }
}
