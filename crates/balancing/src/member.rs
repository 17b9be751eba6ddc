//! One server of a pool, for as long as anybody knows it: counts, health and what the operator wants of it.

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

/// A member's run time state, shared by all workers and by every generation that names it.
///
/// What a configuration says about it (weight, limits, server name) stands in the pool's [`PoolEntry`](crate::Entry), so
/// that a reload does not alter a generation that still runs.
#[derive(Debug)]
pub struct Member {
    id: u64,
    pool: Arc<str>,
    address: Arc<str>,
    /// Attempts in flight, those of them that hold a JRuby, and whether anything below keeps requests away.
    pub(crate) slots: Slots,
    /// What its pool's members hold together.
    tally: Arc<Tally>,
    /// Attempts in flight, by kind of work: those that hold a JRuby, and those that do not.
    holding_jruby: [AtomicU32; Work::ALL.len()],
    without_jruby: [AtomicU32; Work::ALL.len()],
    /// Milliseconds of work that those that hold a JRuby are expected to be.
    expected_ms: AtomicU64,
    pub(crate) pace: Pace,
    /// Learned from the status service; 0: unknown.
    jrubies: AtomicU32,
    /// Percent of the configured weight, by source, and their product.
    percents: [AtomicU32; WeightSource::ALL.len()],
    percent: AtomicU32,
    pub(crate) credit: Credit,
    health: AtomicU8,
    administrative: AtomicU8,
    /// What its agent check takes away, as a state.
    agent_administrative: AtomicU8,
    agent: Mutex<AgentState>,
    pub(crate) ejection: Ejection,
    warmup: Warmup,
    /// Milliseconds since start from which an unprobed member that is down may be tried once; 0: not to be tried.
    retry_at_ms: AtomicU64,
    overload: Overload,
    evidence: Mutex<Evidence>,
}

/// What a request takes of a member.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Need {
    pub(crate) task: Task,
    /// How long it is expected to keep a JRuby busy.
    pub(crate) expected_ms: u32,
}

/// What lowers a member's weight while it runs. The percentages of all sources are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightSource {
    /// The member's own answer to the agent check.
    AgentCheck,
    /// It was restarted and is not warm yet.
    SlowStart,
}

impl WeightSource {
    /// All sources, in the order of their index.
    pub const ALL: [Self; 2] = [Self::AgentCheck, Self::SlowStart];
}

/// Largest number of JRubies that is believed.
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
            overload: Overload::default(),
            evidence: Mutex::default(),
        }
    }

    /// Its number, which no other member of its registry has, ever.
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

    /// Attempts leased and not finished, over all workers.
    pub fn in_flight(&self) -> u32 {
        self.slots.get().in_flight()
    }

    /// The same by kind of work, in the order of [`Work::ALL`].
    pub fn in_flight_by_work(&self) -> [u32; Work::ALL.len()] {
        let read = |counts: &[AtomicU32], work: Work| counts[work.index()].load(Ordering::Relaxed);
        Work::ALL.map(|work| read(&self.holding_jruby, work) + read(&self.without_jruby, work))
    }

    /// Attempts in flight that hold a JRuby.
    pub fn working(&self) -> u32 {
        self.slots.get().working()
    }

    /// How long its work in flight is expected to keep one JRuby busy, in milliseconds.
    pub fn expected_ms(&self) -> u64 {
        self.expected_ms.load(Ordering::Relaxed)
    }

    /// JRubies that its status service has shown; none: unknown.
    pub fn jrubies(&self) -> Option<u32> {
        Some(self.jrubies.load(Ordering::Relaxed)).filter(|count| *count > 0)
    }

    /// Sets how many JRubies its status service has shown. False, and unknown from now on: the count is not 1 to
    /// [`JRUBIES_MAX`].
    pub fn learn_jrubies(&self, count: Option<u32>) -> bool {
        let believed = count.filter(|count| (1..=JRUBIES_MAX).contains(count));
        let count_now = believed.unwrap_or(0);
        if self.jrubies.swap(count_now, Ordering::Relaxed) != count_now {
            self.tally.changed();
        }
        believed == count
    }

    /// Percent of the configured weight that it has now, over all sources; 0: it gets no new requests.
    pub fn weight_percent(&self) -> u32 {
        self.percent.load(Ordering::Relaxed)
    }

    /// What one source leaves it.
    pub fn source_percent(&self, source: WeightSource) -> u32 {
        self.percents[source as usize].load(Ordering::Relaxed)
    }

    /// Sets one source's percentage, at most 100. More than 0 of each source leaves at least 1.
    pub fn set_weight_percent(&self, source: WeightSource, percent: u32) {
        self.note(|evidence| self.weigh(evidence, source, percent));
    }

    /// Under the lock, so that of two sources at once the product holds both.
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

    /// What is known of it.
    pub fn health(&self) -> Health {
        match self.health.load(Ordering::Acquire) {
            value if value == Health::Up as u8 => Health::Up,
            value if value == Health::Down as u8 => Health::Down,
            _ => Health::Unknown,
        }
    }

    /// What the operator and its agent check want of it: the stricter of both.
    pub fn administrative(&self) -> Administrative {
        let operator = self.administrative.load(Ordering::Acquire);
        let agent = self.agent_administrative.load(Ordering::Acquire);
        Administrative::of(operator.max(agent))
    }

    /// What the operator wants of it.
    pub fn operator_state(&self) -> Administrative {
        Administrative::of(self.administrative.load(Ordering::Acquire))
    }

    /// What its agent check has said.
    pub fn agent_state(&self) -> AgentState {
        *self.agent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is up and ready, and its weight is not 0 for now.
    pub fn is_available(&self) -> bool {
        self.health() == Health::Up
            && self.administrative() == Administrative::Ready
            && self.weight_percent() > 0
    }

    /// Sets what the operator wants; requests in flight are left to finish. A probed member that leaves maintenance is
    /// down until `rise` good probes in a row.
    pub fn administer(&self, state: Administrative) -> Option<HealthChange> {
        self.set_state(&self.administrative, state)
    }

    /// Sets what its agent check has said; requests in flight are left to finish.
    pub fn set_agent_state(&self, state: AgentState) {
        *self.agent.lock().unwrap_or_else(PoisonError::into_inner) = state;
        self.set_weight_percent(WeightSource::AgentCheck, state.weight_percent);
        self.set_state(&self.agent_administrative, state.effect());
    }

    fn set_state(&self, source: &AtomicU8, state: Administrative) -> Option<HealthChange> {
        self.note(|evidence| {
            // Probes go on under an agent check, so what they have found holds when its maintenance ends.
            let ends = std::ptr::eq(source, &self.administrative)
                && self.operator_state() == Administrative::Maintenance
                && state != Administrative::Maintenance;
            source.store(state as u8, Ordering::Release);
            if ends && evidence.is_unprobed() {
                // Probes would show it down first. It may have been restarted.
                self.cool(evidence);
            }
            ends.then(|| evidence.end_maintenance()).flatten()
        })
    }

    /// Takes over what is known of the same server under another name.
    pub(crate) fn take_over(&self, other: &Self) {
        self.learn_jrubies(other.jrubies());
        self.warmup.take_over(&other.warmup);
        self.teach(|overload| overload.take_over(&other.overload));
        let known = other.evidence().clone();
        let retry_at = other.retry_at_ms.load(Ordering::Acquire);
        self.note(|evidence| {
            // Where no probes are made, nothing else would bring it up again.
            self.retry_at_ms.store(retry_at, Ordering::Release);
            *evidence = known;
        });
    }

    /// Notes an answer to a request that held a JRuby: a member that is not warm yet comes nearer to it.
    pub(crate) fn served(&self, now: Duration) {
        if self.warmup.is_active() {
            self.warmup.count();
            self.warm_up(now);
        }
    }

    /// Applies what time alone changes. To be called from time to time, as with each probe.
    pub fn refresh(&self, now: Duration) {
        self.teach(|overload| overload.expire(now));
        self.warm_up(now);
    }

    /// Gives it the weight that slow start allows at `now` (time since start). Yields how warm it is, in percent; none: it is
    /// warm.
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

    /// Notes that it answered as a server that is starting. Such an answer alone does not keep a member cold for ever, because
    /// a client may be able to provoke it.
    pub fn noted_starting(&self) {
        if !self.warmup.is_active() {
            self.restarted();
        }
    }

    /// Notes that it was restarted although its probes have not failed.
    pub fn restarted(&self) {
        self.note(|evidence| self.cool(evidence));
    }

    /// Puts a pool's slow start in force. `jrubies`: as configured.
    pub(crate) fn configure_slow_start(&self, settings: &SlowStartSettings, jrubies: Option<u32>) {
        self.warmup.configure(settings, jrubies);
    }

    fn cool(&self, evidence: &Evidence) {
        // Its queue is empty now, whatever it answered while it stopped.
        self.teach(Overload::forget);
        self.warmup.begin();
        self.weigh(evidence, WeightSource::SlowStart, self.warmup.weight(0));
    }

    /// Time for which it is still ejected; none: it is not.
    pub fn ejected_for(&self, now: Duration) -> Option<Duration> {
        self.ejection.remaining(now)
    }

    /// How often it has been ejected.
    pub fn ejections(&self) -> u64 {
        self.ejection.total()
    }

    /// Leaves it out from `now` on, and yields for how long.
    pub(crate) fn eject(&self, settings: &EjectionSettings, now: Duration) -> Duration {
        self.note(|_| self.ejection.eject(settings, now))
    }

    /// Takes it back in.
    pub(crate) fn end_ejection(&self) {
        self.note(|_| self.ejection.end());
    }

    /// Notes an attempt that brought an answer.
    pub fn attempt_succeeded(&self) {
        self.ejection.succeeded();
    }

    /// Notes a good probe made by `check`; one made by a check no longer in force is ignored.
    pub fn probe_succeeded(&self, check: &CheckSettings) -> Option<HealthChange> {
        self.note(|evidence| evidence.probe_succeeded(check))
    }

    /// Notes a bad probe made by `check`; one made by a check no longer in force is ignored.
    pub fn probe_failed(&self, check: &CheckSettings) -> Option<HealthChange> {
        self.note(|evidence| evidence.probe_failed(check))
    }

    /// Notes that nobody listens (refused, or a name that does not resolve): down until its next good probe.
    ///
    /// Where no probes are made, one request may try it again [`REFUSED_RETRY`] after `now` (time since start), and its
    /// answer brings it up.
    pub fn connect_refused(&self, now: Duration) -> Option<HealthChange> {
        self.note(|evidence| {
            if evidence.is_unprobed() {
                self.retry_at_ms.store(retry_after(now), Ordering::Release);
            }
            evidence.connect_refused()
        })
    }

    /// Notes that it accepted a connection or answered; to be called on each, since one load is all it mostly costs.
    pub fn answered(&self) -> Option<HealthChange> {
        match self.health() {
            Health::Up => None,
            Health::Unknown | Health::Down => self.note(Evidence::answered),
        }
    }

    /// Notes that it refused a request, which still has its place, because its own queue is full. The number of requests in
    /// flight is its limit then; if there is no other, it is not asked for a second. False: it was overloaded already.
    pub fn overloaded(&self, now: Duration) -> bool {
        self.note(|_| self.teach(|overload| overload.refused(self.working(), now)))
    }

    /// Notes an answer that shows room in its queue, to a request that held a JRuby. Some of them raise its limit again.
    pub fn has_room(&self) {
        self.teach(Overload::answered);
    }

    /// Changes what its refusals have taught.
    fn teach<R>(&self, change: impl FnOnce(&Overload) -> R) -> R {
        let before = self.overload.limit();
        let taught = change(&self.overload);
        if self.overload.limit() != before {
            self.tally.changed();
        }
        taught
    }

    /// Most attempts in flight that hold a JRuby, learned from its refusals; none: it has not refused any.
    pub fn learned_limit(&self) -> Option<u32> {
        Some(self.overload.limit()).filter(|limit| *limit > 0)
    }

    /// Why it counts as overloaded at `now`, if it does.
    pub fn overload_cause(&self, now: Duration) -> Option<OverloadCause> {
        self.overload.cause(now)
    }

    /// Sets what its status service shows of an overload. True: it is a cause that was not shown before.
    pub fn show_overload(&self, cause: Option<OverloadCause>) -> bool {
        self.overload.show(cause)
    }

    /// Whether it is not asked for now, because its own queue was full.
    pub(crate) fn is_paused(&self, now: Duration) -> bool {
        self.overload.is_paused(now)
    }

    /// Whether its last probes disagree with its health, but too few of them to change it yet.
    pub fn is_changing(&self) -> bool {
        self.evidence().is_changing()
    }

    pub(crate) fn begin_check(&self, check: &CheckSettings) -> Option<HealthChange> {
        self.note(|evidence| evidence.begin(check))
    }

    pub(crate) fn replace_check(&self, check: &CheckSettings) -> Option<HealthChange> {
        self.note(|evidence| evidence.replace(check))
    }

    /// Whether it is up, or down without probes and due to be tried.
    pub(crate) fn may_be_asked(&self, now: Duration) -> bool {
        self.health() == Health::Up || self.retry_due(now).is_some()
    }

    /// Takes one place, unless as many are taken as may be, another request is trying a member that is down, or the
    /// operator has taken it out of service: a drain that has seen no request left must see none afterwards.
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
        let counts = match task.without_jruby {
            true => &self.without_jruby,
            false => &self.holding_jruby,
        };
        &counts[task.work.index()]
    }

    fn claim_retry(&self, now: Duration) -> bool {
        let Some(due) = self.retry_due(now) else {
            return false;
        };
        self.retry_at_ms
            .compare_exchange(due, retry_after(now), Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    fn retry_due(&self, now: Duration) -> Option<u64> {
        let at = self.retry_at_ms.load(Ordering::Acquire);
        (at != 0 && at <= millis(now)).then_some(at)
    }

    /// Ends a pause and an ejection whose time is over. Nothing does so earlier: what closes a member only makes a pick look
    /// closer.
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

    /// Makes a change under the lock, and then shows requests all that it means for them in one step. Whatever closes or
    /// opens a member goes through here.
    fn note<R>(&self, change: impl FnOnce(&mut Evidence) -> R) -> R {
        let mut evidence = self.evidence();
        let noted = change(&mut evidence);
        if !evidence.is_unprobed() || evidence.health() == Health::Up {
            self.retry_at_ms.store(0, Ordering::Release);
        }
        // Not at the proxy's own start, when it is seen for the first time.
        if self.health() == Health::Down && evidence.health() == Health::Up {
            self.cool(&evidence);
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

    /// A panic elsewhere leaves whole evidence behind: each step is a few plain stores.
    fn evidence(&self) -> MutexGuard<'_, Evidence> {
        self.evidence.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What ends with time.
const TIMED: Closures = Closures::PAUSE.or(Closures::EJECTION);

fn retry_after(now: Duration) -> u64 {
    millis(now + REFUSED_RETRY)
}

/// Never 0, which means "not to be tried".
fn millis(since_start: Duration) -> u64 {
    u64::try_from(since_start.as_millis())
        .unwrap_or(u64::MAX)
        .max(1)
}

#[cfg(test)]
mod tests;
