//! The traffic of the last hours: what was counted in each period, for plots without a monitoring system.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{DurationCount, Timestamp, TrafficStatus, WorkTraffic};

/// Length of a short period.
pub(crate) const PERIOD: Duration = Duration::from_secs(10);
/// Short periods in memory: a quarter of an hour.
const RECENT_MAX: usize = 90;
/// Minutes in memory: four hours, which are eight run intervals of agents.
const MINUTES_MAX: usize = 240;
const MINUTE_MILLISECONDS: u64 = 60_000;

/// Answer to `GET /v1/history`: requests by kind of work in past periods, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistoryStatus {
    /// Periods of 10 seconds, for a quarter of an hour.
    pub recent: Vec<TrafficPeriod>,
    /// Periods of one minute, for four hours.
    pub minutes: Vec<TrafficPeriod>,
}

/// What was counted in one period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TrafficPeriod {
    /// When it ended.
    pub ended: Timestamp,
    /// Its length in milliseconds.
    pub milliseconds: u64,
    /// Requests by kind of work; kinds without any are left out.
    pub work: BTreeMap<String, WorkPeriod>,
    /// Requests that the proxy answered with an error of its own.
    pub refusals: u64,
    /// Requests in flight to members at its end.
    pub in_flight: u64,
    /// Requests that waited for a member at its end.
    pub waiting: u64,
}

/// Requests of one kind of work that were answered in one period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkPeriod {
    /// Requests answered.
    pub requests: u64,
    /// Their mean duration in milliseconds.
    pub mean_milliseconds: u64,
    /// The duration in milliseconds that 95 % of them did not exceed, estimated from ranges of durations.
    pub p95_milliseconds: u64,
}

/// The periods in memory.
#[derive(Debug, Default)]
pub(crate) struct TrafficHistory(Mutex<Periods>);

#[derive(Debug, Default)]
struct Periods {
    last: Option<TrafficStatus>,
    /// The counts at the beginning of the current minute.
    minute: Option<TrafficStatus>,
    recent: VecDeque<TrafficPeriod>,
    minutes: VecDeque<TrafficPeriod>,
}

impl TrafficHistory {
    /// Notes the counts at the end of a period.
    pub(crate) fn record(&self, traffic: TrafficStatus, now: SystemTime) {
        let mut periods = self.periods();
        if let Some(last) = &periods.last {
            let period = period(last, &traffic, now);
            push(&mut periods.recent, period, RECENT_MAX);
        }
        let minute = periods.minute.get_or_insert_with(|| traffic.clone());
        // A timer may be early by a fraction of a period.
        let length = elapsed(minute, &traffic) + PERIOD.as_millis() as u64 / 2;
        if length >= MINUTE_MILLISECONDS {
            let period = period(minute, &traffic, now);
            periods.minute = Some(traffic.clone());
            push(&mut periods.minutes, period, MINUTES_MAX);
        }
        periods.last = Some(traffic);
    }

    /// The periods in memory.
    pub(crate) fn status(&self) -> HistoryStatus {
        let periods = self.periods();
        HistoryStatus {
            recent: periods.recent.iter().cloned().collect(),
            minutes: periods.minutes.iter().cloned().collect(),
        }
    }

    fn periods(&self) -> MutexGuard<'_, Periods> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn push(periods: &mut VecDeque<TrafficPeriod>, period: TrafficPeriod, length_max: usize) {
    if periods.len() >= length_max {
        periods.pop_front();
    }
    periods.push_back(period);
}

fn elapsed(before: &TrafficStatus, now: &TrafficStatus) -> u64 {
    let (before, now) = (before.elapsed_milliseconds, now.elapsed_milliseconds);
    now.saturating_sub(before)
}

fn period(before: &TrafficStatus, now: &TrafficStatus, ended: SystemTime) -> TrafficPeriod {
    let none = WorkTraffic::default();
    let work = now.work.iter().map(|(name, now)| {
        let before = before.work.get(name).unwrap_or(&none);
        (name.clone(), work_period(before, now))
    });
    let sum = |counts: &BTreeMap<String, u64>| counts.values().sum::<u64>();
    TrafficPeriod {
        ended: ended.into(),
        milliseconds: elapsed(before, now),
        work: work.filter(|(_, period)| period.requests > 0).collect(),
        refusals: sum(&now.refusals).saturating_sub(sum(&before.refusals)),
        in_flight: now.in_flight,
        waiting: now.waiting,
    }
}

fn work_period(before: &WorkTraffic, now: &WorkTraffic) -> WorkPeriod {
    let requests = now.requests.saturating_sub(before.requests);
    let milliseconds = now.milliseconds.saturating_sub(before.milliseconds);
    let earlier = before.durations.iter().map(|range| range.requests);
    let earlier = earlier.chain(std::iter::repeat(0));
    let ranges = now.durations.iter().zip(earlier);
    let ranges: Vec<_> = ranges
        .map(|(range, earlier)| DurationCount {
            requests: range.requests.saturating_sub(earlier),
            ..*range
        })
        .collect();
    WorkPeriod {
        requests,
        mean_milliseconds: milliseconds.checked_div(requests).unwrap_or(0),
        p95_milliseconds: p95_microseconds(&ranges) / 1_000,
    }
}

/// Within a range, durations are assumed to be spread evenly. The last range has no bound, and its lower bound is used.
fn p95_microseconds(ranges: &[DurationCount]) -> u64 {
    let all: u64 = ranges.iter().map(|range| range.requests).sum();
    let wanted = (all * 95).div_ceil(100);
    let (mut below, mut lower) = (0, 0);
    for range in ranges {
        let upper = range.at_most_microseconds.unwrap_or(lower);
        if range.requests > 0 && below + range.requests >= wanted {
            return lower + (upper - lower) * (wanted - below) / range.requests;
        }
        below += range.requests;
        lower = upper;
    }
    lower
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(seconds: u64, catalogs: u64) -> TrafficStatus {
        let range = |at_most_microseconds, requests| DurationCount {
            at_most_microseconds,
            requests,
        };
        let catalog = WorkTraffic {
            requests: catalogs,
            milliseconds: catalogs * 150,
            durations: vec![
                range(Some(100_000), 0),
                range(Some(200_000), catalogs),
                range(None, 0),
            ],
        };
        TrafficStatus {
            elapsed_milliseconds: seconds * 1_000,
            work: [
                ("catalog".to_owned(), catalog),
                ("file".to_owned(), WorkTraffic::default()),
            ]
            .into(),
            refusals: [("no-route".to_owned(), catalogs / 10)].into(),
            in_flight: 3,
            ..TrafficStatus::default()
        }
    }

    fn recorded(periods: u64) -> HistoryStatus {
        let history = TrafficHistory::default();
        for n in 0..=periods {
            let now = SystemTime::UNIX_EPOCH + PERIOD * n as u32;
            history.record(traffic(10 * n, 100 * n), now);
        }
        history.status()
    }

    #[test]
    fn a_period_has_what_was_counted_in_it() {
        let history = recorded(7);
        assert_eq!((history.recent.len(), history.minutes.len()), (7, 1));
        let period = &history.recent[6];
        assert_eq!(period.ended, Timestamp::from_unix_seconds(70));
        assert_eq!((period.milliseconds, period.refusals), (10_000, 10));
        let expected = WorkPeriod {
            requests: 100,
            mean_milliseconds: 150,
            p95_milliseconds: 195,
        };
        assert_eq!(period.work, [("catalog".to_owned(), expected)].into());
        let minute = &history.minutes[0];
        assert_eq!(minute.ended, Timestamp::from_unix_seconds(60));
        assert_eq!(minute.work["catalog"].requests, 600);
    }

    #[test]
    fn only_the_last_hours_are_in_memory() {
        let history = recorded(6 * 300);
        assert_eq!(history.recent.len(), RECENT_MAX);
        assert_eq!(history.minutes.len(), MINUTES_MAX);
        assert_eq!(
            history.minutes[0].ended,
            Timestamp::from_unix_seconds(61 * 60)
        );
    }

    #[test]
    fn a_duration_beyond_the_last_bound_counts_as_that_bound() {
        let ranges = [(Some(10), 0), (Some(20), 1), (None, 9)];
        let ranges = ranges.map(|(at_most_microseconds, requests)| DurationCount {
            at_most_microseconds,
            requests,
        });
        assert_eq!(p95_microseconds(&ranges), 20);
        assert_eq!(p95_microseconds(&[]), 0);
    }
}
