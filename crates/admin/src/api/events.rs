//! `GET /v1/events`: alarms, states of members and rates as server-sent events. `GET /v1/events/history`: what has happened in
//! the last day.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{
    extract::{RawQuery, State},
    http::StatusCode,
    response::{IntoResponse, Response, Sse, sse::Event},
};
use futures_util::{Stream, stream};
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde_json::json;
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval_at},
};

use super::{
    Api,
    messages::{ApiError, Pretty, Problem, problem},
};
use crate::{
    AdministrativeState, AlarmStatus, Caller, Control, EventHistoryStatus, MemberHealth, Status,
    Timestamp, TrafficStatus, connections::AccountPermit,
};

/// Maximum number of event streams of one account. The account may have more connections, so that it can still send commands.
const STREAMS_MAX: usize = 8;
/// How often the stream compares the status with the previous one. A state that lasts less than this may not be shown.
const INTERVAL: Duration = Duration::from_secs(1);

/// Alarms, states of members, and rates, as they change.
///
/// The first events show all active alarms and all members. `alarm` has the fields of an alarm and `active`; `member` has
/// pool, member and states; `rates` comes every second.
#[utoipa::path(get, path = "/v1/events", tag = "process",
    responses((status = 200, content_type = "text/event-stream", body = String), Problem))]
pub(super) async fn events(State(api): State<Api>, caller: Caller) -> Response {
    let Some(permit) = api.streams.acquire(caller.uid, STREAMS_MAX) else {
        let full = format!(
            "{STREAMS_MAX} clients of this account read events already: end one of them first"
        );
        return problem(StatusCode::SERVICE_UNAVAILABLE, full).into_response();
    };
    Sse::new(changes(api.control, api.stop, permit)).into_response()
}

/// Alarms, changes of members, reloads, operators' changes, starts and stops of the last day, the oldest first.
#[utoipa::path(get, path = "/v1/events/history", tag = "process",
    params(
        ("since" = Option<Timestamp>, Query, description = "Only events since this time; percent-encode the + of an offset"),
        ("limit" = Option<u32>, Query, maximum = 4294967295_u64, description = "Only this number of events, the newest"),
    ),
    responses((status = 200, body = EventHistoryStatus), Problem))]
pub(super) async fn history(
    State(api): State<Api>,
    RawQuery(query): RawQuery,
) -> Result<Pretty<EventHistoryStatus>, ApiError> {
    let (since, limit) = wanted(query.as_deref().unwrap_or_default())?;
    let events = api.control.past_events(since, limit);
    Ok(Pretty(StatusCode::OK, EventHistoryStatus { events }))
}

/// The time and the number of events in a query.
fn wanted(query: &str) -> Result<(SystemTime, usize), ApiError> {
    let (mut since, mut limit) = (SystemTime::UNIX_EPOCH, usize::MAX);
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let value = percent_decode_str(value).decode_utf8_lossy();
        let is_known = match name {
            "since" => {
                let time = Timestamp::parse(&value).and_then(|time| time.instant());
                time.map(|time| since = time).is_some()
            }
            "limit" => {
                let number = value.parse::<u32>().ok();
                number.map(|number| limit = number as usize).is_some()
            }
            _ => false,
        };
        if !is_known {
            let detail = format!(
                "invalid query parameter {name:?}: use since=TIME, as in since=2026-01-31T08:00:00Z, and limit=NUMBER"
            );
            return Err(problem(StatusCode::BAD_REQUEST, detail));
        }
    }
    Ok((since, limit))
}

/// What a stream has shown so far.
#[derive(Default)]
struct Shown {
    alarms: BTreeMap<String, AlarmStatus>,
    members: BTreeMap<(String, String), MemberEvent>,
    traffic: Option<TrafficStatus>,
}

/// A member whose state has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct MemberEvent {
    pool: String,
    member: String,
    health: MemberHealth,
    administrative_state: AdministrativeState,
    why: Option<String>,
}

fn changes(
    control: Arc<dyn Control>,
    stop: watch::Receiver<bool>,
    permit: AccountPermit,
) -> impl Stream<Item = Result<Event, Infallible>> {
    let mut ticks = interval_at(Instant::now(), INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let state = (control, stop, permit, ticks, Shown::default(), Vec::new());
    stream::unfold(
        state,
        |(control, mut stop, permit, mut ticks, mut shown, mut ready)| async move {
            while ready.is_empty() {
                tokio::select! {
                    biased;
                    _ = stop.wait_for(|stop| *stop) => return None,
                    _ = ticks.tick() => {}
                }
                ready = shown.update(control.status(), control.traffic());
                ready.reverse();
            }
            let event = ready.pop()?;
            Some((Ok(event), (control, stop, permit, ticks, shown, ready)))
        },
    )
}

impl Shown {
    /// The events that lead to this state.
    fn update(&mut self, status: Status, traffic: TrafficStatus) -> Vec<Event> {
        let mut events = Vec::new();
        let alarms = status
            .alarms
            .into_iter()
            .map(|alarm| (alarm.key.clone(), alarm));
        let alarms: BTreeMap<_, _> = alarms.collect();
        for (key, alarm) in &alarms {
            if self.alarms.get(key) != Some(alarm) {
                events.push(event("alarm", &alarm_event(alarm, true)));
            }
        }
        for (key, alarm) in &self.alarms {
            if !alarms.contains_key(key) {
                events.push(event("alarm", &alarm_event(alarm, false)));
            }
        }
        self.alarms = alarms;
        let members = status.pools.into_iter().flat_map(|pool| {
            let name = pool.name;
            pool.members.into_iter().map(move |member| {
                let event = MemberEvent {
                    pool: name.clone(),
                    member: member.address,
                    health: member.health,
                    administrative_state: member.administrative_state,
                    why: member.why,
                };
                ((event.pool.clone(), event.member.clone()), event)
            })
        });
        let members: BTreeMap<_, _> = members.collect();
        for (name, member) in &members {
            if self.members.get(name) != Some(member) {
                events.push(event("member", member));
            }
        }
        self.members = members;
        if let Some(before) = self.traffic.replace(traffic.clone()) {
            events.push(event("rates", &rates(&before, &traffic)));
        }
        events
    }
}

fn alarm_event(alarm: &AlarmStatus, active: bool) -> serde_json::Value {
    let mut event = json!(alarm);
    event["active"] = active.into();
    event
}

/// Requests, refusals and failures per second between two counts.
fn rates(before: &TrafficStatus, now: &TrafficStatus) -> serde_json::Value {
    let elapsed = now
        .elapsed_milliseconds
        .saturating_sub(before.elapsed_milliseconds)
        .max(1);
    let per_second = |was: u64, is: u64| is.saturating_sub(was) as f64 * 1000.0 / elapsed as f64;
    let work: BTreeMap<_, _> = now
        .work
        .iter()
        .map(|(name, work)| {
            let was = before.work.get(name).cloned().unwrap_or_default();
            let requests = work.requests.saturating_sub(was.requests);
            let milliseconds = work.milliseconds.saturating_sub(was.milliseconds);
            let mean = (requests > 0).then(|| milliseconds as f64 / requests as f64);
            let rate = per_second(was.requests, work.requests);
            (
                name,
                json!({"requests_per_second": rate, "mean_milliseconds": mean}),
            )
        })
        .collect();
    let total = |counts: &BTreeMap<String, u64>| counts.values().sum::<u64>();
    let refused =
        |traffic: &TrafficStatus| total(&traffic.refusals) + total(&traffic.certificate_refusals);
    json!({
        "work": work,
        "refusals_per_second": per_second(refused(before), refused(now)),
        "failures_per_second": per_second(total(&before.failures), total(&now.failures)),
        "in_flight": now.in_flight,
        "waiting": now.waiting,
    })
}

fn event(name: &str, data: &impl Serialize) -> Event {
    let data = serde_json::to_string(data).unwrap_or_default();
    Event::default().event(name).data(data)
}
