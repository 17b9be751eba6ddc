//! The column of Proscenium: the code that the proxy itself runs, with a virtual clock.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use balancing::{
    Administrative, Admission, AdmissionDecision, AdmissionRefusal, Admitted, AttemptFailure,
    AttemptStage, ClientKey, ClientSlot, EligibleMembers, Holding, Holdings, Lease, Offer,
    PickCriteria, PickError, Picker, Pool, QueueLimits, Registry, Task, Ticket, key_hash,
    settings::{Algorithm, CheckSettings, GuardSettings, MemberSettings, PoolSettings},
};

use crate::{
    balancer::{
        Balancer, BalancerDecision, MemberReply, OperatorOrder, RequestId, SimulatedRequest,
        may_repeat,
    },
    random::Random,
    time::Micros,
};

/// The settings that an operator may change. A test in xtask compares the defaults with those of the program.
#[derive(Clone, Debug, PartialEq)]
pub struct ProsceniumSettings {
    /// `algorithm`.
    pub algorithm: Algorithm,
    /// `jruby_load_max`, in percent.
    pub jruby_load_max: u32,
    /// Whether the status service shows JRuby counts.
    pub counts: bool,
    /// `connections_max`.
    pub connections_max: u32,
    /// `queue_max`.
    pub queue_max: u32,
    /// `queue_wait_max`.
    pub queue_wait_max: Duration,
    /// `retry_after_max`.
    pub retry_after_max: Duration,
    /// `agent_max`.
    pub agent_max: u32,
    /// `agent_queue_max`.
    pub agent_queue_max: u32,
    /// `attempts_max`.
    pub attempts_max: u32,
    /// `[pools.NAME.check]`.
    pub check: CheckSettings,
    /// `[pools.NAME.ejection]` and `retry_budget`.
    pub guards: GuardSettings,
}

impl Default for ProsceniumSettings {
    fn default() -> Self {
        Self {
            algorithm: Algorithm::default(),
            jruby_load_max: 100,
            counts: true,
            connections_max: 128,
            queue_max: 10_000,
            queue_wait_max: Duration::from_secs(480),
            retry_after_max: Duration::from_secs(1800),
            agent_max: 2,
            agent_queue_max: 4,
            attempts_max: 3,
            check: CheckSettings::default(),
            guards: GuardSettings::default(),
        }
    }
}

/// The proxy's balancing, with the part of the crate `proxy` that decides on attempts.
pub struct Proscenium {
    settings: ProsceniumSettings,
    shared: Arc<Shared>,
    shares: Arc<Holdings>,
    resource: Arc<str>,
    requests: Vec<Request>,
    woken: Arc<Woken>,
    waiting: usize,
    random: Random,
}

/// The state that leases and the queue refer to.
struct Shared {
    pool: Pool,
    admission: Arc<Admission<MemberLease>>,
    /// Microseconds since the start.
    clock: AtomicU64,
}

/// A lease as in the proxy: the slot is free before that is announced.
struct MemberLease {
    lease: Lease,
    _freed: Freed,
}

struct Freed(Arc<Shared>);

impl Drop for Freed {
    fn drop(&mut self) {
        self.0.admission.members_changed();
    }
}

/// Picks members for the queue. The queue stores this value, so the reference is weak.
struct PickNow(std::sync::Weak<Shared>);

impl Picker<MemberLease> for PickNow {
    fn pick(&self, request: &Offer) -> Result<MemberLease, PickError> {
        let shared = self.0.upgrade().ok_or(PickError::NoneAvailable)?;
        shared.pick(request)
    }
}

impl Picker<MemberLease> for Arc<Shared> {
    fn pick(&self, request: &Offer) -> Result<MemberLease, PickError> {
        let lease = self.pool.pick_for(request, self.now())?;
        Ok(MemberLease {
            lease,
            _freed: Freed(Self::clone(self)),
        })
    }

    fn catalogs_in(&self, time: Duration) -> u32 {
        self.pool.catalogs_in(time, self.now())
    }
}

impl Shared {
    fn now(&self) -> Duration {
        Duration::from_micros(self.clock.load(Ordering::Relaxed))
    }
}

#[derive(Default)]
struct Request {
    ask: Option<SimulatedRequest>,
    account: Option<Arc<Holding>>,
    hold: Option<ClientSlot<MemberLease>>,
    lease: Option<MemberLease>,
    ticket: Option<Ticket<MemberLease>>,
    tried: Vec<u64>,
    attempts: u32,
    /// When the attempt in flight began.
    sent: Duration,
    /// When the current wait began, if the request waits.
    waits_since: Option<Duration>,
    /// How long the request waited before the current wait.
    waited: Duration,
}

/// Requests whose wait has ended.
#[derive(Default)]
struct Woken(Mutex<Vec<RequestId>>);

impl Woken {
    fn take(&self) -> Vec<RequestId> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct WakeOne {
    id: RequestId,
    woken: Arc<Woken>,
}

impl Wake for WakeOne {
    fn wake(self: Arc<Self>) {
        let mut woken = self.woken.0.lock().unwrap_or_else(PoisonError::into_inner);
        woken.push(self.id);
    }
}

impl Proscenium {
    /// A pool with one member for each element of `jrubies`, the member's number of JRubies.
    pub fn new(settings: ProsceniumSettings, jrubies: &[u32], seed: u64) -> Self {
        let members = (0..jrubies.len())
            .map(|index| MemberSettings::new(&format!("compiler{index}.example.com:8140")));
        let pool = PoolSettings {
            members: members.collect(),
            algorithm: settings.algorithm,
            jruby_load_max: settings.jruby_load_max,
            check: CheckSettings {
                assume_up: true,
                ..settings.check.clone()
            },
            ..PoolSettings::new("compilers")
        };
        let registry = Registry::default();
        let pool = Pool::new(&pool, settings.connections_max, &registry);
        pool.adopt();
        if settings.counts {
            for (entry, jrubies) in pool.entries().iter().zip(jrubies) {
                entry.member.learn_jrubies(Some(*jrubies));
            }
        }
        let shared = Arc::new(Shared {
            pool,
            admission: Arc::default(),
            clock: AtomicU64::new(0),
        });
        shared
            .admission
            .adopt(Arc::new(PickNow(Arc::downgrade(&shared))));
        Self {
            resource: "compilers".into(),
            shares: Arc::default(),
            requests: Vec::new(),
            woken: Arc::default(),
            waiting: 0,
            random: Random::keyed(&[seed, OURS]),
            shared,
            settings,
        }
    }

    fn at(&self, now: Micros) {
        self.shared.clock.store(now, Ordering::Relaxed);
    }

    fn request(&mut self, id: RequestId) -> &mut Request {
        let index = id as usize;
        if self.requests.len() <= index {
            self.requests.resize_with(index + 1, Request::default);
        }
        &mut self.requests[index]
    }

    /// The facts about a request that its admission depends on.
    fn offer_of(&mut self, id: RequestId, after_reuse: bool) -> Offer {
        let random = self.random.bits();
        let by_certname = self.settings.algorithm == Algorithm::CertnameHash;
        let (resource, shares) = (Arc::clone(&self.resource), Arc::clone(&self.shares));
        let request = self.request(id);
        let ask = request.ask.expect("only requests are attempted");
        let account = request.account.get_or_insert_with(|| {
            let certname = certname(ask.certname);
            shares.of(&resource, ClientKey::Agent(certname.into()))
        });
        Offer {
            account: Arc::clone(account),
            eligible: EligibleMembers::Any,
            criteria: PickCriteria {
                task: Task {
                    work: ask.work,
                    without_jruby: false,
                },
                random,
                certname: by_certname.then(|| key_hash(certname(ask.certname).as_bytes())),
                ..PickCriteria::default()
            },
            tried: request.tried.clone(),
            after_reuse,
            comes_back: ask.comes_back,
            // In no scenario are all members down.
            unavailable_wait_max: Duration::ZERO,
        }
    }

    /// Offers a request for its first attempt or a later one.
    fn attempt(&mut self, id: RequestId, after_reuse: bool) -> BalancerDecision {
        let offer = self.offer_of(id, after_reuse);
        let hold = self.request(id).hold.take();
        let now = self.shared.now();
        let limits = || self.limits();
        let decision = match hold {
            None => self
                .shared
                .admission
                .offer(offer, limits, &self.shared, now),
            Some(hold) => hold.again(offer, limits, &self.shared, now),
        };
        match decision {
            AdmissionDecision::Run(admitted) => BalancerDecision::Send(self.runs(id, admitted)),
            AdmissionDecision::Refuse(refusal) => self.refused(id, refusal),
            AdmissionDecision::Wait(ticket) => {
                self.waiting += 1;
                let request = self.request(id);
                request.ticket = Some(ticket);
                request.waits_since = Some(now);
                match self.look(id) {
                    None => BalancerDecision::Wait,
                    Some(answer) => answer,
                }
            }
        }
    }

    /// Polls a request that is waiting.
    fn look(&mut self, id: RequestId) -> Option<BalancerDecision> {
        let wake = WakeOne {
            id,
            woken: Arc::clone(&self.woken),
        };
        let waker = Waker::from(Arc::new(wake));
        let ticket = self.request(id).ticket.as_mut()?;
        let Poll::Ready(outcome) = std::pin::pin!(ticket).poll(&mut Context::from_waker(&waker))
        else {
            return None;
        };
        self.waiting -= 1;
        let now = self.shared.now();
        let request = self.request(id);
        request.ticket = None;
        request.waited += now - request.waits_since.take().unwrap_or(now);
        Some(match outcome {
            Ok(admitted) => BalancerDecision::Send(self.runs(id, admitted)),
            Err(refusal) => self.refused(id, refusal),
        })
    }

    fn runs(&mut self, id: RequestId, admitted: Admitted<MemberLease>) -> usize {
        let index = admitted.lease.lease.index();
        let now = self.shared.now();
        let request = self.request(id);
        request.sent = now;
        request.attempts += 1;
        request.hold = Some(admitted.hold);
        request.lease = Some(admitted.lease);
        index
    }

    fn refused(&mut self, id: RequestId, refusal: AdmissionRefusal) -> BalancerDecision {
        let retry_after = match refusal {
            AdmissionRefusal::NoneAvailable | AdmissionRefusal::AllTried => Some(self.soon()),
            AdmissionRefusal::QueueFull | AdmissionRefusal::MadeRoom => self.sent_away(id),
            AdmissionRefusal::ClientQueueFull => None,
        };
        self.end(id);
        BalancerDecision::Refuse(retry_after)
    }

    /// The `Retry-After` of a proxy without an available member.
    fn soon(&mut self) -> f64 {
        self.random.between(10.0, 30.0)
    }

    /// The `Retry-After` of a full queue, for agents that honour it. It is spread over `retry_after_max` by certname.
    fn sent_away(&mut self, id: RequestId) -> Option<f64> {
        let ask = self.request(id).ask.filter(|ask| ask.comes_back)?;
        let max = self.settings.retry_after_max.as_secs().max(1);
        let min = (max / RETRY_AFTER_PART).max(1);
        let client = key_hash(certname(ask.certname).as_bytes());
        Some((min + client % (max - min + 1)) as f64)
    }

    /// The limits of the queue. Every request of a run needs a JRuby, so all of them count towards the agent's fair
    /// share.
    fn limits(&self) -> QueueLimits {
        QueueLimits {
            queue_max: self.settings.queue_max,
            client_max: self.settings.agent_max,
            client_queue_max: Some(self.settings.agent_queue_max),
        }
    }

    /// Releases everything that a request holds.
    fn end(&mut self, id: RequestId) {
        let request = self.request(id);
        let account = request.account.take();
        let waited = request.ticket.is_some();
        // The order is that of the proxy: first the member's slot, then the client's.
        let ended = std::mem::replace(
            request,
            Request {
                account,
                ..Request::default()
            },
        );
        drop(ended.ticket);
        drop(ended.lease);
        drop(ended.hold);
        self.waiting -= usize::from(waited);
    }

    /// Records a member's answer. Unless the request was served, the member may have answered without doing the work.
    fn member_answered(&self, id: RequestId, reply: MemberReply) {
        let request = &self.requests[id as usize];
        let Some(MemberLease { lease, .. }) = &request.lease else {
            return;
        };
        let now = self.shared.now();
        let member = lease.member();
        let doubtful = reply != MemberReply::Served;
        self.shared
            .pool
            .learn(lease, now - request.sent, doubtful, now);
        member.attempt_succeeded();
        match reply {
            MemberReply::QueueFull(_) => _ = member.overloaded(now),
            MemberReply::Served => member.has_room(),
            MemberReply::Unavailable => {}
        }
        if member.answered().is_some() {
            self.shared.admission.members_changed();
        }
    }

    /// Counts a retry, if the pool may make another one.
    fn admit_retry(&self) -> bool {
        self.shared.pool.admit_retry(self.shared.now())
    }

    /// How long a request may still wait, in addition to the time that it has already waited.
    fn time_left(&self, id: RequestId) -> Duration {
        let waited = self.requests[id as usize].waited;
        self.settings.queue_wait_max.saturating_sub(waited)
    }
}

impl Balancer for Proscenium {
    fn offer(&mut self, id: RequestId, ask: SimulatedRequest, now: Micros) -> BalancerDecision {
        self.at(now);
        self.request(id).ask = Some(ask);
        let budget = self.settings.guards.retry_budget;
        self.shared.pool.count_request(budget);
        self.attempt(id, false)
    }

    fn replied(
        &mut self,
        id: RequestId,
        reply: MemberReply,
        now: Micros,
    ) -> Option<BalancerDecision> {
        self.at(now);
        self.member_answered(id, reply);
        let attempts_max = self.settings.attempts_max;
        let has_time_left = !self.time_left(id).is_zero();
        let request = self.request(id);
        let ask = request.ask?;
        match reply {
            // The member did no work, so this does not count as an attempt. An agent that retries gets the member's 503.
            MemberReply::QueueFull(_) if !ask.comes_back && has_time_left => {
                request.lease = None;
                request.attempts -= 1;
                return Some(self.attempt(id, false));
            }
            // A stopping server has done no work. A safe request is sent to another member, or waits until one has
            // room.
            MemberReply::Unavailable
                if ask.safe && request.attempts < attempts_max && self.admit_retry() =>
            {
                let request = self.request(id);
                let asked = request.lease.as_ref()?.lease.member().id();
                request.tried.push(asked);
                let offer = self.offer_of(id, false);
                match self.shared.pick(&offer) {
                    Ok(lease) => {
                        let hold = self.request(id).hold.take()?;
                        return Some(BalancerDecision::Send(
                            self.runs(id, Admitted { lease, hold }),
                        ));
                    }
                    Err(PickError::Full) => {
                        self.request(id).lease = None;
                        return Some(self.attempt(id, false));
                    }
                    Err(PickError::AllTried | PickError::NoneAvailable | PickError::NoneYet) => {}
                }
            }
            _ => {}
        }
        self.end(id);
        match reply {
            MemberReply::Served | MemberReply::QueueFull(_) => None,
            // The proxy adds `Retry-After` to a member's 503 without it.
            MemberReply::Unavailable => Some(BalancerDecision::Refuse(Some(self.soon()))),
        }
    }

    fn failed(
        &mut self,
        id: RequestId,
        failure: &AttemptFailure,
        now: Micros,
    ) -> Option<BalancerDecision> {
        self.at(now);
        let attempts_max = self.settings.attempts_max;
        let since_start = self.shared.now();
        let shared = Arc::clone(&self.shared);
        let ejection = self.settings.guards.ejection;
        let request = self.request(id);
        let ask = request.ask?;
        let lease = request.lease.take()?;
        let client = ClientKey::Agent(certname(ask.certname).into());
        let client = (!failure.unsent).then_some(client);
        let index = lease.lease.index();
        let ejected = shared
            .pool
            .attempt_failed(index, client, &ejection, since_start);
        let member = lease.lease.member();
        let changed =
            failure.stage == AttemptStage::Connect && member.connect_refused(since_start).is_some();
        if failure.blames_member() {
            request.tried.push(member.id());
        }
        let again = may_repeat(failure, request.attempts, attempts_max, ask.safe);
        drop(lease);
        if changed || ejected.is_some() {
            self.shared.admission.members_changed();
        }
        if again && self.admit_retry() {
            return Some(self.attempt(id, failure.reused));
        }
        self.end(id);
        None
    }

    fn gone(&mut self, id: RequestId, now: Micros) {
        self.at(now);
        self.end(id);
    }

    fn probed(&mut self, member: usize, good: bool, now: Micros) {
        self.at(now);
        let check = self.shared.pool.check();
        let member = &self.shared.pool.entries()[member].member;
        let change = if good {
            member.probe_succeeded(check)
        } else {
            member.probe_failed(check, self.shared.now())
        };
        if change.is_some() {
            self.shared.admission.members_changed();
        }
    }

    fn order(&mut self, member: usize, order: OperatorOrder, now: Micros) {
        self.at(now);
        let state = match order {
            OperatorOrder::Drain => Administrative::Drain,
            OperatorOrder::Ready => Administrative::Ready,
        };
        self.shared.pool.entries()[member].member.administer(state);
        self.shared.admission.members_changed();
    }

    fn decided(&mut self, now: Micros, decided: &mut Vec<(RequestId, BalancerDecision)>) {
        self.at(now);
        for id in self.woken.take() {
            if let Some(answer) = self.look(id) {
                decided.push((id, answer));
            }
        }
    }

    fn is_up(&self, member: usize) -> bool {
        self.shared.pool.entries()[member].member.health() == balancing::Health::Up
    }

    fn in_flight(&self, member: usize) -> u32 {
        self.shared.pool.entries()[member].member.in_flight()
    }

    fn waiting(&self) -> usize {
        self.waiting
    }

    fn patience(&self, id: RequestId) -> Micros {
        u64::try_from(self.time_left(id).as_micros()).unwrap_or(u64::MAX)
    }

    fn tick(&mut self, now: Micros) {
        self.at(now);
        if self.waiting > 0 {
            self.shared.admission.look(self.shared.now());
        }
    }

    fn after_wait(&mut self, id: RequestId) -> Option<f64> {
        self.sent_away(id)
    }

    fn closed(&mut self, id: RequestId) {
        self.request(id).account = None;
    }

    fn probe_interval(&self) -> f64 {
        self.settings.check.interval.as_secs_f64()
    }
}

fn certname(number: u32) -> String {
    format!("agent{number}.example.com")
}

const OURS: u64 = 2;
/// An agent waits at least this fraction (1 in 20) of `retry_after_max`, as with the proxy.
const RETRY_AFTER_PART: u64 = 20;
