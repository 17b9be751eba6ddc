//! One server of a pool: its counters, its health and its administrative state.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::administrative::Administrative;
use crate::agent_answer::AgentState;
use crate::ejection::Ejection;
use crate::health::{Evidence, Health, HealthChange, REFUSED_RETRY};
use crate::overload::{Overload, OverloadCause};
use crate::pace::Pace;
use crate::rotation::Credit;
use crate::settings::{CheckSettings, EjectionSettings, SlowStartSettings};
use crate::slots::{Closures, SlotLimits, Slots, Tally};
use crate::warmup::Warmup;
use crate::work::{Task, Work};

/// A member's run-time state, shared by all workers and by every generation that names it.
///
/// What a configuration says about the member (weight, limits, server name) is in the pool's
/// [`PoolEntry`](crate::PoolEntry), so that a reload does not change a generation that still runs.
#[derive(Debug)]
pub struct Member {
    id: u64,
    pool: Arc<str>,
    address: Arc<str>,
    /// Attempts in flight, how many of them hold a JRuby, and the reasons that close the member.
    pub(crate) slots: Slots,
    /// The counts over all members of its pool.
    tally: Arc<Tally>,
    /// Attempts in flight by kind of work, with and without a JRuby.
    holding_jruby: [AtomicU32; Work::ALL.len()],
    without_jruby: [AtomicU32; Work::ALL.len()],
    /// Expected milliseconds of work of the attempts in flight that hold a JRuby.
    expected_ms: AtomicU64,
    pub(crate) pace: Pace,
    /// The number of JRubies that the status service shows. 0: unknown.
    jrubies: AtomicU32,
    /// The percentage of the configured weight for each source, and the product of all of them.
    percents: [AtomicU32; WeightSource::ALL.len()],
    percent: AtomicU32,
    pub(crate) credit: Credit,
    health: AtomicU8,
    administrative: AtomicU8,
    /// The agent check's effect, as an administrative state.
    agent_administrative: AtomicU8,
    agent: Mutex<AgentState>,
    pub(crate) ejection: Ejection,
    warmup: Warmup,
    /// Milliseconds since start at which one request may try a member that is down without probes. 0: no request may
    /// try it.
    retry_at_ms: AtomicU64,
    /// Milliseconds since start at which the member last went down. 0: it was never up, or never went down.
    down_at_ms: AtomicU64,
    overload: Overload,
    evidence: Mutex<Evidence>,
}

/// What a request uses of a member while it runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Need {
    pub(crate) task: Task,
    /// How long the request is expected to keep a JRuby busy, in milliseconds.
    pub(crate) expected_ms: u32,
}

/// A reason for a lower weight at run time. The percentages of all sources are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightSource {
    /// The member's own response to the agent check.
    AgentCheck,
    /// Slow start: the member was restarted and is not warm yet.
    SlowStart,
}

impl WeightSource {
    /// All sources, in the order of their index.
    pub const ALL: [Self; 2] = [Self::AgentCheck, Self::SlowStart];
}

/// Maximum number of JRubies that a member may report.
pub const JRUBIES_MAX: u32 = 1_000;

impl Member {
    pub(crate) fn new(id: u64, pool: &str, address: &str, tally: &Arc<Tally>) -> Self {
        Self {
            id,
            pool: pool.into(),
            address: address.into(),
            slots: Slots::new(Closures::HEALTH),
            tally: Arc::clone(tally),
            holding_jruby: Default::default(),
            without_jruby: Default::default(),
            expected_ms: AtomicU64::new(0),
            pace: Pace::default(),
            jrubies: AtomicU32::new(0),
            percents: WeightSource::ALL.map(|_| AtomicU32::new(100)),
            percent: AtomicU32::new(100),
            credit: Credit::default(),
            health: AtomicU8::new(Health::Unknown as u8),
            administrative: AtomicU8::new(Administrative::Ready as u8),
            agent_administrative: AtomicU8::new(Administrative::Ready as u8),
            agent: Mutex::default(),
            ejection: Ejection::default(),
            warmup: Warmup::default(),
            retry_at_ms: AtomicU64::new(0),
            down_at_ms: AtomicU64::new(0),
            overload: Overload::default(),
            evidence: Mutex::default(),
        }
    }

    /// The member's number. No other member of the same registry ever has it.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Name of its pool.
    pub fn pool(&self) -> &Arc<str> {
        &self.pool
    }

    /// `host:port` or `unix:/path`, as the configuration spells it.
    pub fn address(&self) -> &Arc<str> {
        &self.address
    }

    /// Attempts that hold a lease and are not finished, over all workers.
    pub fn in_flight(&self) -> u32 {
        self.slots.get().in_flight()
    }

    /// Attempts in flight by kind of work, in the order of [`Work::ALL`].
    pub fn in_flight_by_work(&self) -> [u32; Work::ALL.len()] {
        let read = |counts: &[AtomicU32], work: Work| counts[work.index()].load(Ordering::Relaxed);
        Work::ALL.map(|work| read(&self.holding_jruby, work) + read(&self.without_jruby, work))
    }

    /// Attempts in flight that hold a JRuby.
    pub fn working(&self) -> u32 {
        self.slots.get().working()
    }

    /// How long the work in flight on the member is expected to keep one JRuby busy, in milliseconds.
    pub fn expected_ms(&self) -> u64 {
        self.expected_ms.load(Ordering::Relaxed)
    }

    /// The number of JRubies that the status service has shown. None: unknown.
    pub fn jrubies(&self) -> Option<u32> {
        Some(self.jrubies.load(Ordering::Relaxed)).filter(|count| *count > 0)
    }

    /// Sets the number of JRubies that the status service has shown. False: the number is not 1 to [`JRUBIES_MAX`], so it
    /// counts as unknown from now on.
    pub fn learn_jrubies(&self, count: Option<u32>) -> bool {
        let believed = count.filter(|count| (1..=JRUBIES_MAX).contains(count));
        let count_now = believed.unwrap_or(0);
        if self.jrubies.swap(count_now, Ordering::Relaxed) != count_now {
            self.tally.changed();
        }
        believed == count
    }

    /// The current weight as a percentage of the configured weight: the product of the percentages of all sources. At 0 the
    /// member gets no new requests.
    pub fn weight_percent(&self) -> u32 {
        self.percent.load(Ordering::Relaxed)
    }

    /// The percentage that one source allows.
    pub fn source_percent(&self, source: WeightSource) -> u32 {
        self.percents[source as usize].load(Ordering::Relaxed)
    }

    /// Sets the percentage of one source, at most 100. If no source is 0, at least 1 percent remains.
    pub fn set_weight_percent(&self, source: WeightSource, percent: u32) {
        self.note(|evidence| self.weigh(evidence, source, percent));
    }

    /// Called under the lock, so that the product is right if two sources change at the same time.
    fn weigh(&self, _evidence: &Evidence, source: WeightSource, percent: u32) {
        self.percents[source as usize].store(percent.min(100), Ordering::Relaxed);
        let product = self.percents.iter().fold(100, |product, percent| {
            let percent = percent.load(Ordering::Relaxed);
            (product * percent / 100).max(u32::from(product * percent > 0))
        });
        if self.percent.swap(product, Ordering::Relaxed) != product {
            self.tally.changed();
        }
    }

    /// What is known about the member's health.
    pub fn health(&self) -> Health {
        match self.health.load(Ordering::Acquire) {
            value if value == Health::Up as u8 => Health::Up,
            value if value == Health::Down as u8 => Health::Down,
            _ => Health::Unknown,
        }
    }

    /// The operator's state or that of the agent check, whichever is stricter.
    pub fn administrative(&self) -> Administrative {
        let operator = self.administrative.load(Ordering::Acquire);
        let agent = self.agent_administrative.load(Ordering::Acquire);
        Administrative::of(operator.max(agent))
    }

    /// The operator's state.
    pub fn operator_state(&self) -> Administrative {
        Administrative::of(self.administrative.load(Ordering::Acquire))
    }

    /// The state that the agent check has set.
    pub fn agent_state(&self) -> AgentState {
        *self.agent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the member is up and ready, and its weight is not 0.
    pub fn is_available(&self) -> bool {
        self.health() == Health::Up
            && self.administrative() == Administrative::Ready
            && self.weight_percent() > 0
    }

    /// Sets the operator's state. Requests in flight may finish. A probed member that leaves maintenance is down
    /// until `rise` consecutive probes succeed.
    pub fn administer(&self, state: Administrative) -> Option<HealthChange> {
        self.set_state(&self.administrative, state)
    }

    /// Sets the state from the agent check. Requests in flight may finish. `now` is the time since start.
    pub fn set_agent_state(&self, state: AgentState, now: Duration) {
        let before = {
            let mut agent = self.agent.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *agent, state)
        };
        // `down` counts like a failed probe, because the next probe is expected to fail.
        if state.is_down && !before.is_down && self.health() == Health::Up {
            self.down_at_ms.store(millis(now), Ordering::Relaxed);
        }
        self.set_weight_percent(WeightSource::AgentCheck, state.weight_percent);
        self.set_state(&self.agent_administrative, state.effect());
    }

    fn set_state(&self, source: &AtomicU8, state: Administrative) -> Option<HealthChange> {
        self.note(|evidence| {
            // Probes continue while the agent check keeps the member in maintenance, so their results still apply afterwards.
            let source_is_operator = std::ptr::eq(source, &self.administrative);
            let before = self.operator_state();
            let ends = source_is_operator
                && before == Administrative::Maintenance
                && state != Administrative::Maintenance;
            source.store(state as u8, Ordering::Release);
            if source_is_operator && state != Administrative::Ready {
                evidence.withdraw();
            } else if source_is_operator && before == Administrative::Drain {
                evidence.end_drain();
            }
            if ends && evidence.is_unprobed() {
                // Probes would first have shown that the member is down. A member without probes may have been restarted
                // meanwhile.
                self.start_cold(evidence);
            }
            ends.then(|| evidence.end_maintenance()).flatten()
        })
    }

    /// Copies the state of a member that is the same server under another name.
    pub(crate) fn take_over(&self, other: &Self) {
        self.learn_jrubies(other.jrubies());
        self.warmup.take_over(&other.warmup);
        self.teach(|overload| overload.take_over(&other.overload));
        let known = other.evidence().clone();
        let retry_at = other.retry_at_ms.load(Ordering::Acquire);
        let down_at = other.down_at_ms.load(Ordering::Relaxed);
        self.down_at_ms.store(down_at, Ordering::Relaxed);
        self.note(|evidence| {
            // If there are no probes, only such a retry can bring the member up again.
            self.set_retry_at(retry_at);
            *evidence = known;
        });
    }

    /// Records a response to a request that held a JRuby. It makes a member that is not warm yet warmer.
    pub(crate) fn served(&self, now: Duration) {
        if self.warmup.is_active() {
            self.warmup.count();
            self.warm_up(now);
        }
    }

    /// Applies changes that depend only on time. Call it from time to time, for example with each probe.
    pub fn refresh(&self, now: Duration) {
        self.teach(|overload| overload.expire(now));
        self.warm_up(now);
    }

    /// Sets the weight that slow start allows at `now` (time since start). Returns how warm the member is, in percent. None: it
    /// is warm.
    pub fn warm_up(&self, now: Duration) -> Option<u32> {
        if !self.warmup.is_active() {
            return None;
        }
        if self.administrative() != Administrative::Ready {
            self.warmup.restart_clock();
        }
        let progress = self.warmup.progress(self.jrubies(), now);
        let weight = self.warmup.weight(progress);
        if weight != self.source_percent(WeightSource::SlowStart) {
            self.set_weight_percent(WeightSource::SlowStart, weight);
        }
        (progress < 100).then_some(progress)
    }

    /// Records that the member responded like a server that is starting. Such responses alone must not keep a member cold
    /// forever, because a client may be able to provoke them.
    pub fn noted_starting(&self) {
        if !self.warmup.is_active() {
            self.restarted();
        }
    }

    /// Records that the member was restarted although its probes have not failed.
    pub fn restarted(&self) {
        self.note(|evidence| self.start_cold(evidence));
    }

    pub(crate) fn configure_slow_start(&self, settings: &SlowStartSettings, jrubies: Option<u32>) {
        self.warmup.configure(settings, jrubies);
    }

    fn start_cold(&self, evidence: &Evidence) {
        // The member's queue is empty now, whatever it responded while it was stopping.
        self.teach(Overload::forget);
        self.warmup.begin();
        self.weigh(evidence, WeightSource::SlowStart, self.warmup.weight(0));
    }

    /// Remaining time of the member's ejection. None: it is not ejected.
    pub fn ejected_for(&self, now: Duration) -> Option<Duration> {
        self.ejection.remaining(now)
    }

    /// How often the member has been ejected.
    pub fn ejections(&self) -> u64 {
        self.ejection.total()
    }

    /// Ejects the member at `now`. Returns the length of the ejection.
    pub(crate) fn eject(&self, settings: &EjectionSettings, now: Duration) -> Duration {
        self.note(|_| self.ejection.eject(settings, now))
    }

    pub(crate) fn end_ejection(&self) {
        self.note(|_| self.ejection.end());
    }

    /// Records an attempt that got a response.
    pub fn attempt_succeeded(&self) {
        self.ejection.succeeded();
    }

    /// Records a successful probe that used `check`. The result is ignored if the member has another check now.
    pub fn probe_succeeded(&self, check: &CheckSettings) -> Option<HealthChange> {
        self.note(|evidence| evidence.probe_succeeded(check))
    }

    /// The number of the probe that is awaited since the operator ended a drain. None once a probe has succeeded. Until then,
    /// the member does not count when another member is drained ([`Pool::depends_on`](crate::Pool::depends_on)).
    pub fn awaited_probe(&self) -> Option<u64> {
        self.evidence().awaited()
    }

    /// Records a successful probe that started while [`awaited_probe`](Self::awaited_probe) returned `awaited`.
    pub fn confirmed(&self, awaited: u64) {
        self.evidence().confirm(awaited);
    }

    /// Records a failed probe that used `check`. The result is ignored if the member has another check now. `now` is the time
    /// since start.
    pub fn probe_failed(&self, check: &CheckSettings, now: Duration) -> Option<HealthChange> {
        self.note_failure(now, |evidence| evidence.probe_failed(check))
    }

    /// When the member went down, as time since start. None: it is not down, or was never up.
    pub(crate) fn down_at(&self) -> Option<Duration> {
        let at = self.down_at_ms.load(Ordering::Relaxed);
        let is_down = self.health() != Health::Up || self.agent_state().is_down;
        (at != 0 && is_down).then(|| Duration::from_millis(at))
    }

    /// Makes a change that may take the member down.
    fn note_failure(
        &self,
        now: Duration,
        change: impl FnOnce(&mut Evidence) -> Option<HealthChange>,
    ) -> Option<HealthChange> {
        self.note(|evidence| {
            let change = change(evidence)?;
            if change.from == Health::Up {
                self.down_at_ms.store(millis(now), Ordering::Relaxed);
            }
            Some(change)
        })
    }

    /// Records that the member refused a connection, or that its name does not resolve. The member is down until its next
    /// successful probe.
    ///
    /// If the member has no probes, one request may try it again [`REFUSED_RETRY`] after `now` (time since start). A response
    /// brings it up.
    pub fn connect_refused(&self, now: Duration) -> Option<HealthChange> {
        self.note_failure(now, |evidence| {
            if evidence.is_unprobed() {
                self.set_retry_at(retry_after(now));
            }
            evidence.connect_refused()
        })
    }

    /// Records that the member accepted a connection or responded. Call it each time: it usually costs one load.
    pub fn answered(&self) -> Option<HealthChange> {
        match self.health() {
            Health::Up => None,
            Health::Unknown | Health::Down => self.note(Evidence::answered),
        }
    }

    /// Records that the member refused a request because its own queue is full; the request still holds its slot. The number of
    /// requests in flight becomes the member's limit. If there is no other request in flight, the member gets no requests for a
    /// second. False: the member was overloaded already.
    pub fn overloaded(&self, now: Duration) -> bool {
        self.note(|_| self.teach(|overload| overload.refused(self.working(), now)))
    }

    /// Records a response, to a request that held a JRuby, that shows room in the member's queue. Several such responses raise
    /// the limit again.
    pub fn has_room(&self) {
        self.teach(Overload::answered);
    }

    /// Changes what the proxy has learned from the member's refusals.
    fn teach<R>(&self, change: impl FnOnce(&Overload) -> R) -> R {
        let learned = || (self.overload.limit(), self.overload.paused_until_ms());
        let before = learned();
        let taught = change(&self.overload);
        if learned() != before {
            self.tally.changed();
        }
        taught
    }

    /// Maximum attempts in flight that hold a JRuby, learned from the member's refusals. None: it has not refused any.
    pub fn learned_limit(&self) -> Option<u32> {
        Some(self.overload.limit()).filter(|limit| *limit > 0)
    }

    /// Why the member counts as overloaded at `now`, if it does.
    pub fn overload_cause(&self, now: Duration) -> Option<OverloadCause> {
        self.overload.cause(now)
    }

    /// Sets the overload that the status service shows. True: this cause was not shown before.
    pub fn show_overload(&self, cause: Option<OverloadCause>) -> bool {
        self.overload.show(cause)
    }

    /// Whether the member gets no requests for a moment, because its own queue was full.
    pub(crate) fn is_paused(&self, now: Duration) -> bool {
        self.overload.is_paused(now)
    }

    /// Whether the last probes disagree with the member's health, but were too few to change it.
    pub fn is_changing(&self) -> bool {
        self.evidence().is_changing()
    }

    pub(crate) fn begin_check(&self, check: &CheckSettings) -> Option<HealthChange> {
        self.note(|evidence| evidence.begin(check))
    }

    pub(crate) fn replace_check(&self, check: &CheckSettings) -> Option<HealthChange> {
        self.note(|evidence| evidence.replace(check))
    }

    /// Whether the member is up, or is down without probes and may be tried now.
    pub(crate) fn may_get_requests(&self, now: Duration) -> bool {
        self.health() == Health::Up || self.retry_due(now).is_some()
    }

    /// Takes one slot. It fails if no slot is free, or if another request is trying a member that is down. It also fails if the
    /// operator has taken the member out of service, because no request may start once a drain has seen no request in flight.
    pub(crate) fn take(&self, need: Need, limits: SlotLimits, now: Duration) -> bool {
        let is_trial = self.slots.get().has(Closures::HEALTH);
        let heeded = Closures::OPERATOR.and(Closures::HEALTH, !is_trial);
        let task = need.task;
        let Some(before) = self.slots.take(!task.without_jruby, limits, heeded) else {
            return false;
        };
        if is_trial && self.health() != Health::Up && !self.claim_retry(now) {
            self.slots.give_back(!task.without_jruby);
            return false;
        }
        if before.has(TIMED) {
            self.end_elapsed(now);
        }
        self.tally.add(!task.without_jruby);
        self.count_of(task).fetch_add(1, Ordering::Relaxed);
        self.expected_ms
            .fetch_add(need.expected_ms.into(), Ordering::Relaxed);
        true
    }

    pub(crate) fn give_back(&self, need: Need) {
        let expected_ms = u64::from(need.expected_ms);
        self.expected_ms.fetch_sub(expected_ms, Ordering::Relaxed);
        self.count_of(need.task).fetch_sub(1, Ordering::Relaxed);
        self.tally.subtract(!need.task.without_jruby);
        self.slots.give_back(!need.task.without_jruby);
    }

    fn count_of(&self, task: Task) -> &AtomicU32 {
        let counts = if task.without_jruby {
            &self.without_jruby
        } else {
            &self.holding_jruby
        };
        &counts[task.work.index()]
    }

    fn claim_retry(&self, now: Duration) -> bool {
        let Some(due) = self.retry_due(now) else {
            return false;
        };
        let claimed = self
            .retry_at_ms
            .compare_exchange(due, retry_after(now), Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        if claimed {
            self.tally.changed();
        }
        claimed
    }

    fn set_retry_at(&self, at_ms: u64) {
        if self.retry_at_ms.swap(at_ms, Ordering::AcqRel) != at_ms {
            self.tally.changed();
        }
    }

    /// The times, in milliseconds since start, at which the member may get requests again without another change. 0: none.
    pub(crate) fn times(&self) -> [u64; 2] {
        let retry_at = self.retry_at_ms.load(Ordering::Acquire);
        [retry_at, self.overload.paused_until_ms()]
    }

    fn retry_due(&self, now: Duration) -> Option<u64> {
        let at = self.retry_at_ms.load(Ordering::Acquire);
        (at != 0 && at <= millis(now)).then_some(at)
    }

    /// Ends a pause and an ejection that have expired. They may stay recorded for a while after they expired, because each pick
    /// looks closely at a closed member.
    #[cold]
    fn end_elapsed(&self, now: Duration) {
        self.note(|_| {
            if !self.is_paused(now) {
                self.overload.end_pause();
            }
            if !self.ejection.is_active(now) {
                self.ejection.end();
            }
        });
    }

    /// Makes a change under the lock, then publishes all its effects on requests in one step. Every change that
    /// closes or opens a member goes through here.
    fn note<R>(&self, change: impl FnOnce(&mut Evidence) -> R) -> R {
        let mut evidence = self.evidence();
        let noted = change(&mut evidence);
        if !evidence.is_unprobed() || evidence.health() == Health::Up {
            self.set_retry_at(0);
        }
        // A member that is seen for the first time at the start of the proxy does not count as restarted.
        if self.health() == Health::Down && evidence.health() == Health::Up {
            self.start_cold(&evidence);
        }
        self.health
            .store(evidence.health() as u8, Ordering::Release);
        if self.slots.close(self.closures()) {
            self.tally.changed();
        }
        noted
    }

    fn closures(&self) -> Closures {
        let is_out =
            |state: &AtomicU8| state.load(Ordering::Relaxed) != Administrative::Ready as u8;
        Closures::default()
            .and(Closures::HEALTH, self.health() != Health::Up)
            .and(Closures::OPERATOR, is_out(&self.administrative))
            .and(Closures::AGENT, is_out(&self.agent_administrative))
            .and(Closures::WEIGHT, self.weight_percent() == 0)
            .and(Closures::PAUSE, self.overload.has_paused())
            .and(Closures::EJECTION, self.ejection.is_noted())
    }

    /// A panic elsewhere leaves the evidence consistent, because each step is a few plain stores.
    fn evidence(&self) -> MutexGuard<'_, Evidence> {
        self.evidence.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closures that expire.
const TIMED: Closures = Closures::PAUSE.or(Closures::EJECTION);

fn retry_after(now: Duration) -> u64 {
    millis(now + REFUSED_RETRY)
}

/// Never 0, because 0 means that no request may try the member.
pub(crate) fn millis(since_start: Duration) -> u64 {
    u64::try_from(since_start.as_millis())
        .unwrap_or(u64::MAX)
        .max(1)
}

#[cfg(test)]
mod tests;
