//! Counts of one member: its attempts, how long it took to respond, and its responses that failed.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use balancing::Work;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;

use super::{AttemptResult, Metrics};
use crate::latency::{Latency, RANGES, bounds, percentile_us};

/// Maximum number of members with series of `proscenium_attempt_duration_seconds`, the first by pool and address. Each has up
/// to 19 series for each kind of work.
pub const ATTEMPT_DURATION_MEMBERS_MAX: usize = 256;

/// Counters of one member of a pool.
#[derive(Clone, Debug)]
pub struct MemberMetrics {
    pub(super) attempts: [Counter; AttemptResult::ALL.len()],
    pub(super) failed_responses: [Counter; ResponseFailure::ALL.len()],
    pub(super) durations: WorkDurations,
}

/// How a member's response failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFailure {
    /// The status code is 500 or above.
    ServerError,
    /// The member broke off the body of the response, or stalled in it.
    Cut,
}

/// A histogram for each kind of work.
type WorkDurations = [Latency; Work::ALL.len()];

impl MemberMetrics {
    /// Counts an attempt that has ended.
    pub fn attempt(&self, result: AttemptResult) {
        self.attempts[result as usize].inc();
    }

    /// Counts how long the member took for work.
    pub fn took(&self, work: Work, time: Duration) {
        self.durations[work.index()].observe(time);
    }

    /// Counts a response that failed.
    pub fn response_failed(&self, failure: ResponseFailure) {
        self.failed_responses[failure as usize].inc();
    }

    /// The present counts.
    pub fn counts(&self) -> MemberCounts {
        let attempts = self.attempts.iter().map(Counter::get);
        let failed = self.failed_responses.iter().map(Counter::get);
        let durations = self.durations.iter().flat_map(Latency::counts);
        let mut counts = MemberCounts::default();
        for (cell, count) in counts
            .0
            .iter_mut()
            .zip(attempts.chain(failed).chain(durations))
        {
            *cell = count;
        }
        counts
    }
}

/// Counts of one member: since its counters began, or in a window of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberCounts(Box<[u64; CELLS]>);

/// In this order: attempts by result, failed responses, and the ranges of durations of each kind of work.
const CELLS: usize = DURATIONS_AT + Work::ALL.len() * RANGES;
const FAILED_AT: usize = AttemptResult::ALL.len();
const DURATIONS_AT: usize = FAILED_AT + ResponseFailure::ALL.len();

impl Default for MemberCounts {
    fn default() -> Self {
        Self(Box::new([0; CELLS]))
    }
}

impl MemberCounts {
    /// Attempts that have ended. A request that moved to another member counts there.
    pub fn requests(&self) -> u64 {
        let attempts = AttemptResult::ALL.into_iter().zip(self.0.iter());
        let counted = attempts.filter(|(result, _)| *result != AttemptResult::Moved);
        counted.map(|(_, count)| count).sum()
    }

    /// Failed attempts by result, and failed responses. An attempt that its client abandoned is not a failure of the member.
    pub fn failures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let attempts = AttemptResult::ALL.into_iter().zip(self.0.iter());
        let attempts = attempts
            .filter(|(result, _)| result.is_failure())
            .map(|(result, count)| (result.as_str(), *count));
        let responses = ResponseFailure::ALL.map(ResponseFailure::as_str);
        let responses = responses
            .into_iter()
            .zip(self.0[FAILED_AT..].iter().copied());
        attempts.chain(responses).filter(|(_, count)| *count > 0)
    }

    /// How often the time for this kind of work was counted.
    pub fn durations(&self, work: Work) -> u64 {
        self.ranges(work).map(|(_, count)| count).sum()
    }

    /// The time in microseconds within which the member did `percent` of this kind of work.
    pub fn percentile_us(&self, work: Work, percent: u64) -> u64 {
        percentile_us(self.ranges(work), percent)
    }

    fn ranges(&self, work: Work) -> impl Iterator<Item = (Option<u64>, u64)> + Clone {
        let from = DURATIONS_AT + work.index() * RANGES;
        bounds().zip(self.0[from..from + RANGES].iter().copied())
    }

    fn since(&self, earlier: &Self) -> CountedPeriod {
        let cells = self.0.iter().zip(earlier.0.iter()).enumerate();
        let changed = cells.filter_map(|(index, (now, before))| {
            let count = u32::try_from(now.saturating_sub(*before)).unwrap_or(u32::MAX);
            (count > 0).then_some((index as u16, count))
        });
        CountedPeriod(changed.collect())
    }

    fn add(&mut self, period: &CountedPeriod) {
        for (index, count) in &period.0 {
            self.0[usize::from(*index)] += u64::from(*count);
        }
    }
}

/// What was counted in one period: the cells of [`MemberCounts`] that grew, and by how much. Most do not grow.
#[derive(Clone, Debug)]
struct CountedPeriod(Box<[(u16, u32)]>);

/// The counts of one member in the last minutes.
#[derive(Clone, Debug)]
pub struct MemberWindow {
    last: MemberCounts,
    last_at: Duration,
    periods: VecDeque<EndedPeriod>,
}

#[derive(Clone, Debug)]
struct EndedPeriod {
    began: Duration,
    is_warm: bool,
    counted: CountedPeriod,
}

impl MemberWindow {
    /// A window that begins now, when these counts were read. Times are since the start of the process.
    pub fn new(counts: MemberCounts, now: Duration) -> Self {
        Self {
            last: counts,
            last_at: now,
            periods: VecDeque::new(),
        }
    }

    /// Ends a period, and forgets those that began before `now - length`. `is_warm`: whether the member was warm during it.
    pub fn end_period(
        &mut self,
        counts: MemberCounts,
        now: Duration,
        is_warm: bool,
        length: Duration,
    ) {
        let counted = counts.since(&self.last);
        let began = self.last_at;
        (self.last, self.last_at) = (counts, now);
        self.periods.push_back(EndedPeriod {
            began,
            is_warm,
            counted,
        });
        let first = now.saturating_sub(length);
        while self.periods.len() > PERIODS_MAX
            || self
                .periods
                .front()
                .is_some_and(|period| period.began < first)
        {
            self.periods.pop_front();
        }
    }

    /// What was counted from a moment at most `length` ago until now, and the time since that moment. `counts` are the present
    /// ones.
    pub fn recent(
        &self,
        counts: &MemberCounts,
        now: Duration,
        length: Duration,
    ) -> (MemberCounts, Duration) {
        let mut sum = MemberCounts::default();
        sum.add(&counts.since(&self.last));
        let first = now.saturating_sub(length);
        let mut began = self.last_at;
        for period in self
            .periods
            .iter()
            .rev()
            .take_while(|period| period.began >= first)
        {
            sum.add(&period.counted);
            began = period.began;
        }
        (sum, now.saturating_sub(began))
    }

    /// What was counted while the member was warm, in all periods.
    pub fn warm(&self) -> MemberCounts {
        let mut sum = MemberCounts::default();
        for period in self.periods.iter().filter(|period| period.is_warm) {
            sum.add(&period.counted);
        }
        sum
    }
}

/// Maximum number of periods of one member in memory.
const PERIODS_MAX: usize = 60;

/// The durations by pool and member. They have a family of their own, because only kinds of work that have occurred are
/// exported, and only for a limited number of members.
#[derive(Clone, Debug, Default)]
pub(super) struct AttemptDurations(Arc<Mutex<BTreeMap<(String, String), WorkDurations>>>);

impl AttemptDurations {
    pub(super) fn of(&self, pool: &str, member: &str) -> WorkDurations {
        let key = (pool.to_owned(), member.to_owned());
        self.lock().entry(key).or_default().clone()
    }

    pub(super) fn forget(&self, member: &(String, String)) {
        self.lock().remove(member);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, String), WorkDurations>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EncodeMetric for AttemptDurations {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let members = self.lock().clone();
        for ((pool, member), durations) in members.iter().take(ATTEMPT_DURATION_MEMBERS_MAX) {
            for (work, durations) in Work::ALL.into_iter().zip(durations) {
                if durations.is_empty() {
                    continue;
                }
                let labels = DurationLabels {
                    pool: pool.clone(),
                    member: member.clone(),
                    work: work.as_str(),
                };
                durations.encode_into(&mut encoder.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    pool: String,
    member: String,
    work: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ResponseLabels {
    pub(super) pool: String,
    pub(super) member: String,
    pub(super) failure: &'static str,
}

impl Metrics {
    /// The handle of a member; resolve it once per generation.
    pub fn member(&self, pool: &str, member: &str) -> MemberMetrics {
        let name = (pool.to_owned(), member.to_owned());
        self.named().members.insert(name);
        MemberMetrics {
            attempts: AttemptResult::ALL.map(|result| {
                self.attempts.get_or_create_owned(&super::AttemptLabels {
                    pool: pool.to_owned(),
                    member: member.to_owned(),
                    result: result.as_str(),
                })
            }),
            failed_responses: ResponseFailure::ALL.map(|failure| {
                self.failed_responses.get_or_create_owned(&ResponseLabels {
                    pool: pool.to_owned(),
                    member: member.to_owned(),
                    failure: failure.as_str(),
                })
            }),
            durations: self.attempt_duration.of(pool, member),
        }
    }
}

#[cfg(test)]
mod tests;
