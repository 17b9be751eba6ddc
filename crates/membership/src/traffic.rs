//! What members did in the last minutes, for the status, and the alarm about slow members.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use admin::{MemberTraffic, MemberWork, SlowMember};
use balancing::Work;
use proxy::{Generation, PoolRuntime, Shared};
use telemetry::{Alarm, MemberCounts, MemberWindow};
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    Membership,
    slow_members::{CatalogTimes, slow_members},
};

/// Length of a period, after which its counts are noted.
const PERIOD: Duration = Duration::from_secs(10);
/// Maximum age of the beginning of the window in the status.
const STATUS_WINDOW: Duration = Duration::from_secs(65);
/// Maximum age of the catalogs that are compared. Small estates compile a catalog every few seconds.
const SLOW_WINDOW: Duration = Duration::from_secs(305);

/// The last minutes of each member, by pool and address. Members that the active generation does not name are removed, which
/// bounds the size.
#[derive(Debug, Default)]
pub(crate) struct TrafficWindows(Mutex<BTreeMap<(String, String), MeasuredMember>>);

#[derive(Debug)]
struct MeasuredMember {
    window: MemberWindow,
    slow: Option<SlowMember>,
}

impl Membership {
    /// Notes what members did, and which of them are slow.
    pub async fn measure_at_intervals(&self) {
        let mut periods = interval(PERIOD);
        periods.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            periods.tick().await;
            let shared = self.active.shared();
            self.traffic.end_period(&self.active.generation(), shared);
        }
    }
}

impl TrafficWindows {
    /// Begins the windows of new members, and removes those of members that the generation does not name.
    pub(crate) fn follow(&self, generation: &Generation, shared: &Shared) {
        let mut members = self.members();
        let mut before = std::mem::take(&mut *members);
        for runtime in measured(generation) {
            for member in &runtime.members {
                let key = key(runtime, &member.connector.address);
                let measured = before.remove(&key).unwrap_or_else(|| MeasuredMember {
                    window: MemberWindow::new(member.metrics.counts(), shared.now()),
                    slow: None,
                });
                members.insert(key, measured);
            }
        }
        drop(members);
        self.clear_alarms_of_removed(shared);
    }

    fn end_period(&self, generation: &Generation, shared: &Shared) {
        let mut members = self.members();
        for runtime in measured(generation) {
            let now = shared.now();
            let mut times = Vec::with_capacity(runtime.members.len());
            for (member, entry) in runtime.members.iter().zip(runtime.pool.entries()) {
                let key = key(runtime, &member.connector.address);
                let Some(measured) = members.get_mut(&key) else {
                    continue;
                };
                // Every compiler is slow after a restart.
                let is_warm = entry.member.warm_up(now).is_none();
                let counts = member.metrics.counts();
                measured
                    .window
                    .end_period(counts, now, is_warm, SLOW_WINDOW);
                let warm = measured.window.warm();
                let catalogs = CatalogTimes {
                    catalogs: warm.durations(Work::Catalog),
                    p95_microseconds: warm.percentile_us(Work::Catalog, 95),
                    is_slow: measured.slow.is_some(),
                };
                times.push((key, catalogs));
            }
            let (keys, times): (Vec<_>, Vec<_>) = times.into_iter().unzip();
            for (key, slow) in keys.into_iter().zip(slow_members(&times)) {
                assess(shared, &key, slow);
                if let Some(measured) = members.get_mut(&key) {
                    measured.slow = slow;
                }
            }
        }
    }

    /// The traffic of one member. Its share is left at 0, because it needs the other members.
    pub(crate) fn of(
        &self,
        runtime: &PoolRuntime,
        index: usize,
        now: Duration,
    ) -> Option<MemberTraffic> {
        let member = &runtime.members[index];
        let members = self.members();
        let measured = members.get(&key(runtime, &member.connector.address))?;
        let counts = member.metrics.counts();
        let (counts, length) = measured.window.recent(&counts, now, STATUS_WINDOW);
        Some(MemberTraffic {
            window_milliseconds: u64::try_from(length.as_millis()).unwrap_or(u64::MAX),
            requests: counts.requests(),
            share_percent: 0,
            failures: counts
                .failures()
                .map(|(cause, count)| (cause.to_owned(), count))
                .collect(),
            work: Work::ALL
                .into_iter()
                .filter_map(|work| Some((work.as_str().to_owned(), member_work(&counts, work)?)))
                .collect(),
            slow: measured.slow,
        })
    }

    fn clear_alarms_of_removed(&self, shared: &Shared) {
        let members = self.members();
        let alarms = &shared.metrics.alarms;
        for active in alarms.active() {
            let is_measured = |key: &(String, String)| about(key) == active.about;
            if active.alarm == Alarm::SlowMember && !members.keys().any(is_measured) {
                alarms.clear(Alarm::SlowMember, &active.about);
            }
        }
    }

    fn members(&self) -> MutexGuard<'_, BTreeMap<(String, String), MeasuredMember>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Raises or clears the alarm about a slow member. Its message keeps the numbers that raised it; the status has the present ones.
fn assess(shared: &Shared, key: &(String, String), slow: Option<SlowMember>) {
    let (pool, member) = key;
    let alarms = &shared.metrics.alarms;
    alarms.assess(Alarm::SlowMember, &about(key), SystemTime::now(), || {
        let slow = slow?;
        Some(format!(
            "member {member} of pool {pool} is slow: {slow}; look at its load, its memory and its JRubies, or drain it"
        ))
    });
}

fn about((pool, member): &(String, String)) -> String {
    format!("{pool}/{member}")
}

fn key(runtime: &PoolRuntime, address: &str) -> (String, String) {
    (runtime.pool.name().to_string(), address.to_owned())
}

/// The pools whose members get requests and not connections.
fn measured(generation: &Generation) -> impl Iterator<Item = &PoolRuntime> {
    let pools = generation.pools.iter().map(AsRef::as_ref);
    pools.filter(|runtime: &&PoolRuntime| !runtime.rules.passthrough.is_used)
}

fn member_work(counts: &MemberCounts, work: Work) -> Option<MemberWork> {
    let milliseconds = |percent| counts.percentile_us(work, percent) / 1_000;
    Some(MemberWork {
        requests: Some(counts.durations(work)).filter(|count| *count > 0)?,
        p50_milliseconds: milliseconds(50),
        p95_milliseconds: milliseconds(95),
    })
}
