//! The traffic of the last hours: what was counted in each period, for plots without a monitoring system.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{RecentRates, Timestamp, TrafficStatus, WorkTraffic};

/// Length of a short period.
pub(crate) const PERIOD: Duration = Duration::from_secs(10);
/// Short periods in memory: a quarter of an hour.
const RECENT_MAX: usize = 90;
/// Minutes in memory: four hours, which are eight run intervals of agents.
const MINUTES_MAX: usize = 240;
const MINUTE_MILLISECONDS: u64 = 60_000;
/// The kind of failures that the proxy refuses by a rule or a certificate.
const REFUSED: &str = "refused";
/// Ended periods in the rates of the status; the current one is added.
const RATE_PERIODS: usize = 6;

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
    /// Requests and handshakes that failed, by kind: `here`, the proxy answered with status 500 or above; `member`, a member
    /// did; `refused`, the proxy refused a client or a request; `cut`, a response was cut short. Kinds without any are left out.
    #[serde(default)]
    pub failures: BTreeMap<String, u64>,
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

    /// Requests and failures of the last minute. `traffic` has the present counts.
    pub(crate) fn rates(&self, traffic: &TrafficStatus) -> RecentRates {
        let periods = self.periods();
        let current = periods.last.as_ref();
        let current = current.map(|last| period(last, traffic, SystemTime::UNIX_EPOCH));
        let ended = periods.recent.iter().rev().take(RATE_PERIODS);
        let mut rates = RecentRates::default();
        for period in ended.chain(&current) {
            rates.milliseconds += period.milliseconds;
            rates.requests += period.work.values().map(|work| work.requests).sum::<u64>();
            // One blocked agent that tries again and again is not a failure of the service.
            let failures = period.failures.iter().filter(|(kind, _)| *kind != REFUSED);
            rates.failures += failures.map(|(_, count)| count).sum::<u64>();
        }
        rates
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
    let failures = now.failures.iter().map(|(kind, count)| {
        let earlier = before.failures.get(kind).copied().unwrap_or(0);
        (kind.clone(), count.saturating_sub(earlier))
    });
    let sum = |counts: &BTreeMap<String, u64>| counts.values().sum::<u64>();
    TrafficPeriod {
        ended: ended.into(),
        milliseconds: elapsed(before, now),
        work: work.filter(|(_, period)| period.requests > 0).collect(),
        failures: failures.filter(|(_, count)| *count > 0).collect(),
        refusals: sum(&now.refusals).saturating_sub(sum(&before.refusals)),
        in_flight: now.in_flight,
        waiting: now.waiting,
    }
}

fn work_period(before: &WorkTraffic, now: &WorkTraffic) -> WorkPeriod {
    let requests = now.requests.saturating_sub(before.requests);
    let milliseconds = now.milliseconds.saturating_sub(before.milliseconds);
    WorkPeriod {
        requests,
        mean_milliseconds: milliseconds.checked_div(requests).unwrap_or(0),
        p95_milliseconds: now.p95_milliseconds_since(before).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DurationCount;

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
            failures: [
                ("refused".to_owned(), catalogs),
                ("cut".to_owned(), catalogs / 10),
                ("here".to_owned(), 0),
            ]
            .into(),
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
        let failures = [("cut".to_owned(), 10), ("refused".to_owned(), 100)];
        assert_eq!(period.failures, failures.into());
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
    fn rates_have_the_last_minute_and_the_current_period() {
        let history = TrafficHistory::default();
        assert_eq!(history.rates(&traffic(1, 10)), RecentRates::default());
        for (periods, expected) in [(0, 4), (1, 14), (20, 64)] {
            for n in 0..=periods {
                history.record(traffic(10 * n, 100 * n), SystemTime::UNIX_EPOCH);
            }
            let rates = history.rates(&traffic(10 * periods + 4, 100 * periods + 40));
            assert_eq!(rates.milliseconds, expected * 1_000);
            assert_eq!(rates.requests, expected * 10);
            assert_eq!(rates.failures, expected);
        }
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
}
