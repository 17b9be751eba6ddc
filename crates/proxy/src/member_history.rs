//! What probes and requests last showed about each member, and when. It is for the status only; no decision uses it.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use balancing::{HealthCause, OverloadCause};
use upstream::DateFault;

use crate::{
    clock_offsets::{ClockOffset, MemberClock},
    pool_runtime::PoolRuntime,
};

/// Maximum number of probes of a member in memory.
const PROBES_MAX: usize = 20;

/// The facts by pool and address. A reload removes members that are no longer configured, which bounds the size.
#[derive(Debug, Default)]
pub struct MemberHistory(Mutex<BTreeMap<(String, String), MemberFacts>>);

/// What is known about one member.
#[derive(Clone, Debug, Default)]
pub struct MemberFacts {
    /// When its health last changed, and why. `None` before the first change.
    pub changed: Option<(SystemTime, HealthCause)>,
    /// When the last probe ended, and why it failed. `None` before the first probe.
    pub probed: Option<(SystemTime, Option<String>)>,
    /// Why the last probe failed, if the dates of the member's certificate, or of its CA or CRL, were the reason.
    pub date_fault: Option<DateFault>,
    /// The last probes, the oldest first, each with its cause if it failed.
    pub recent_probes: VecDeque<(SystemTime, Option<String>)>,
    /// The offset of its clock, from the last probe whose response had a `Date`. `None` before the first one.
    pub clock_offset: Option<ClockOffset>,
    /// The last response to a request for its JRuby counts. `None` before the first one.
    pub jrubies: Option<JrubyAnswer>,
    /// The result of its agent check. `None` before the first check.
    pub agent: Option<AgentFacts>,
}

/// The result of a member's agent check.
#[derive(Clone, Debug)]
pub struct AgentFacts {
    /// When the last check ended.
    pub at: SystemTime,
    /// The last readable answer.
    pub answer: Option<String>,
    /// Why the last answer was not readable. `None` if it was readable.
    pub failure: Option<String>,
    /// Number of checks without a readable answer.
    pub failures: u64,
}

/// A member's response to a request for its JRuby counts.
#[derive(Clone, Debug, PartialEq)]
pub enum JrubyAnswer {
    /// The counts.
    Known(JrubyReading),
    /// A 403: the member's auth.conf does not allow the request.
    Forbidden,
    /// The response has no counts, or counts that are not plausible.
    Unknown(String),
}

/// How many JRubies a member has and how busy they are, as the member itself reports.
#[derive(Clone, Debug, PartialEq)]
pub struct JrubyReading {
    /// When it was read.
    pub at: SystemTime,
    /// Number of JRubies.
    pub count: u32,
    /// Number of idle JRubies.
    pub free: u32,
    /// Requests in the member that wait for a JRuby.
    pub waiting: u32,
    /// Mean time for which a request holds a JRuby.
    pub borrow_time: Duration,
    /// Mean time for which a request waits for a JRuby.
    pub wait_time: Duration,
    /// Requests that got a JRuby since the server started.
    pub borrows: u64,
    /// Requests that waited too long for a JRuby since the server started.
    pub borrow_timeouts: u64,
    /// Requests that the server refused since it started, because too many were waiting.
    pub queue_limit_hits: u64,
}

impl JrubyReading {
    /// Whether the server was restarted after an earlier reading, which resets its counters.
    pub fn is_restarted_since(&self, before: &Self) -> bool {
        self.borrows < before.borrows || self.queue_limit_hits < before.queue_limit_hits
    }

    /// The cause of an overload, if this reading shows one. `before` is an earlier reading from the same server.
    pub fn overload(&self, before: Option<&Self>) -> Option<OverloadCause> {
        let before = before.unwrap_or(self);
        if self.queue_limit_hits > before.queue_limit_hits {
            return Some(OverloadCause::QueueLimit);
        }
        if self.borrow_timeouts > before.borrow_timeouts {
            return Some(OverloadCause::BorrowTimeout);
        }
        let waits = self.free == 0 && self.waiting > 0 && self.wait_time > self.borrow_time;
        waits.then_some(OverloadCause::JrubyWait)
    }
}

impl MemberHistory {
    /// Notes a change of health.
    pub fn changed(&self, pool: &str, member: &str, cause: HealthCause, now: SystemTime) {
        self.facts(pool, member, |facts| facts.changed = Some((now, cause)));
    }

    /// Notes the end of a probe, with its cause if it failed. Returns whether the result differs from the previous one.
    pub fn probed(&self, pool: &str, member: &str, failure: Option<&str>, now: SystemTime) -> bool {
        self.facts(pool, member, |facts| {
            let before = facts.probed.take().and_then(|(_, failure)| failure);
            let differs = before.as_deref() != failure;
            let probe = (now, failure.map(str::to_owned));
            if facts.recent_probes.len() >= PROBES_MAX {
                facts.recent_probes.pop_front();
            }
            facts.recent_probes.push_back(probe.clone());
            facts.probed = Some(probe);
            differs
        })
    }

    /// Notes whether the last probe failed because of a date, so that a wrong clock may be the cause.
    pub fn refused_by_date(&self, pool: &str, member: &str, fault: Option<DateFault>) {
        self.facts(pool, member, |facts| facts.date_fault = fault);
    }

    /// Notes the offset of a member's clock: its time minus the proxy's.
    pub fn clock_compared(&self, pool: &str, member: &str, offset_seconds: i64) {
        self.facts(pool, member, |facts| {
            let before = facts.clock_offset;
            facts.clock_offset = Some(ClockOffset::measured(offset_seconds, before));
        });
    }

    /// Notes the end of an agent check, with the answer or the cause of the failure. Returns whether the check failed with
    /// another cause than the previous one.
    pub fn agent_answered(
        &self,
        pool: &str,
        member: &str,
        answer: Result<String, String>,
        now: SystemTime,
    ) -> bool {
        self.facts(pool, member, |facts| {
            let agent = facts.agent.get_or_insert(AgentFacts {
                at: now,
                answer: None,
                failure: None,
                failures: 0,
            });
            agent.at = now;
            let failure = match answer {
                Ok(answer) => {
                    agent.answer = Some(answer);
                    None
                }
                Err(why) => {
                    agent.failures += 1;
                    Some(why)
                }
            };
            let differs = failure != agent.failure && failure.is_some();
            agent.failure = failure;
            differs
        })
    }

    /// Notes a member's response about its JRubies. Returns whether it is another kind of response than the previous one.
    pub fn jrubies_read(&self, pool: &str, member: &str, answer: JrubyAnswer) -> bool {
        self.facts(pool, member, |facts| {
            let differs = match (&facts.jrubies, &answer) {
                (Some(JrubyAnswer::Known(_)), JrubyAnswer::Known(_)) => false,
                (before, answer) => before.as_ref() != Some(answer),
            };
            facts.jrubies = Some(answer);
            differs
        })
    }

    /// The facts about one member.
    pub fn of(&self, pool: &str, member: &str) -> MemberFacts {
        let key = (pool.to_owned(), member.to_owned());
        self.members().get(&key).cloned().unwrap_or_default()
    }

    /// The clocks of the members of these pools, by address. Empty until each member has been probed, so that the first probe
    /// does not decide alone.
    pub(crate) fn clock_offsets(
        &self,
        pools: &[Arc<PoolRuntime>],
    ) -> Option<BTreeMap<String, MemberClock>> {
        let mut offsets = BTreeMap::new();
        for runtime in pools {
            if !runtime.pool.check().shows_clock() {
                continue;
            }
            for connector in runtime.connectors() {
                let facts = self.of(runtime.pool.name(), &connector.address);
                let (_, failure) = facts.probed.as_ref()?;
                let clock = facts.clock_offset.map(|offset| MemberClock {
                    offset,
                    is_current: failure.is_none(),
                });
                // A server in two pools has one clock.
                offsets.extend(clock.map(|clock| (connector.address.to_string(), clock)));
            }
        }
        Some(offsets)
    }

    /// Removes the members for which `named(pool, address)` returns false.
    pub fn retain(&self, named: impl Fn(&str, &str) -> bool) {
        self.members()
            .retain(|(pool, member), _| named(pool, member));
    }

    fn facts<T>(&self, pool: &str, member: &str, note: impl FnOnce(&mut MemberFacts) -> T) -> T {
        let key = (pool.to_owned(), member.to_owned());
        note(self.members().entry(key).or_default())
    }

    fn members(&self) -> MutexGuard<'_, BTreeMap<(String, String), MemberFacts>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
