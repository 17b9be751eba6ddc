//! One pool's admission: a request runs, waits in the pool's queue, or is refused.
//!
//! The queue is a state machine without a clock and without IO. A [`Picker`] finds the member, so the queue does not depend on
//! how members are picked. The queue outlasts generations: waiting requests get the members of the newest configuration.
//!
//! A request that need not wait takes no lock: its client's account and its member are atomic counters.

use std::{
    collections::{BTreeSet, HashMap},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering, fence},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use crate::{
    offer::{Offer, PickError},
    share::Holding,
    work::Work,
};

mod lanes;

use lanes::{Lanes, Order, QueuePosition};

/// Finds a member for a request and takes a slot on it.
pub trait Picker<L>: Send + Sync {
    /// # Errors
    /// No member can get the request now.
    fn pick(&self, request: &Offer) -> Result<L, PickError>;

    /// How many catalogs the members are expected to compile in this time.
    fn catalogs_in(&self, _time: Duration) -> u32 {
        u32::MAX
    }
}

/// The configured limits of the queue and of each client's part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Requests that may wait at once.
    pub queue_max: u32,
    /// Requests of one client that may run at once. Its further requests wait.
    pub client_max: u32,
    /// Requests of one client that may wait, in addition to those that may run. Further requests are refused. None: only the
    /// limit of the queue applies.
    pub client_queue_max: Option<u32>,
}

/// The decision on a request.
#[derive(Debug)]
pub enum AdmissionDecision<L> {
    /// It runs.
    Run(Admitted<L>),
    /// It waits.
    Wait(Ticket<L>),
    /// It is refused.
    Refuse(AdmissionRefusal),
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionRefusal {
    /// No member is up and ready.
    #[error("no member is available")]
    NoneAvailable,
    /// Every available member has been tried.
    #[error("every available member has been tried")]
    AllTried,
    /// The queue is full.
    #[error("the queue is full")]
    QueueFull,
    /// The queue is full, and an agent that cannot retry needs the slot.
    #[error("gave its place in the queue to an agent that cannot come back")]
    MadeRoom,
    /// The client has as many waiting requests as it may have.
    #[error("too many requests of this client are waiting")]
    ClientQueueFull,
}

/// The requests that wait now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueState {
    /// Requests by kind of work, in the order of [`Work::ALL`](crate::Work::ALL).
    pub waiting: [u32; 4],
    /// When the oldest waiting request arrived, as time since start.
    pub oldest: Option<Duration>,
}

/// The admission of one pool. `L` is the lease on a member that a request holds while it runs.
pub struct Admission<L> {
    /// Number of waiting requests, readable without the lock.
    waiting: AtomicU32,
    /// When waiting requests last looked for members without a known change, in milliseconds since start.
    looked_ms: AtomicU64,
    queue: Mutex<Queue<L>>,
}

/// A request is in `waiters` until its ticket has taken its outcome or is dropped. While it has no outcome, it counts
/// in `waiting` and is in either `lanes` or `blocked`.
struct Queue<L> {
    next: u64,
    waiters: HashMap<u64, Waiter<L>>,
    waiting: u32,
    lanes: Lanes,
    /// The queue is crowded when more requests than this wait.
    crowded_from: u32,
    /// Requests that wait because their client already runs the maximum number of requests, by account.
    blocked: HashMap<usize, BTreeSet<u64>>,
    /// Requests of agents that retry after a 503.
    comes_back: BTreeSet<u64>,
    picker: Option<Arc<dyn Picker<L>>>,
    /// Wakers of the requests that are decided while the lock is held.
    woken: Vec<Waker>,
}

struct Waiter<L> {
    offer: Offer,
    place: QueuePosition,
    /// The request's order in its lane. None: it is at the front of the queue.
    order: Option<Order>,
    client_max: u32,
    since: Duration,
    waker: Option<Waker>,
    outcome: Option<Result<L, AdmissionRefusal>>,
}

impl<L> Default for Admission<L> {
    fn default() -> Self {
        Self {
            waiting: AtomicU32::new(0),
            looked_ms: AtomicU64::new(0),
            queue: Mutex::new(Queue {
                next: 0,
                waiters: HashMap::new(),
                waiting: 0,
                lanes: Lanes::default(),
                crowded_from: 0,
                blocked: HashMap::new(),
                comes_back: BTreeSet::new(),
                picker: None,
                woken: Vec::new(),
            }),
        }
    }
}

impl<L> std::fmt::Debug for Admission<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admission").finish_non_exhaustive()
    }
}

impl<L> Admission<L> {
    /// Decides on a request that arrived at `now` (time since start). If it need not wait, `picker` finds its member.
    ///
    /// `limits` is called only where limits matter. A client that runs one request at a time never exceeds a limit.
    pub fn offer(
        self: &Arc<Self>,
        offer: Offer,
        limits: impl Fn() -> QueueLimits,
        picker: &dyn Picker<L>,
        now: Duration,
    ) -> AdmissionDecision<L> {
        let work = offer.criteria.task.work;
        let run_began = offer.account.run_began(now, work == Work::Catalog);
        let raise = || {
            let account = &offer.account;
            account.raise(1, 1) || account.raise(1, limits().client_max.into())
        };
        if self.waiting.load(Ordering::SeqCst) == 0 && raise() {
            match picker.pick(&offer) {
                Ok(lease) => return AdmissionDecision::Run(self.admitted(offer.account, lease)),
                Err(PickError::Full | PickError::NoneYet) => offer.account.lower(1),
                Err(error) => {
                    // Another request of this client may have started to wait because of this request.
                    self.finished(&offer.account);
                    return AdmissionDecision::Refuse(error.into());
                }
            }
        }
        let order = Order::new(work, now, run_began);
        self.enqueue(offer, Some(order), &limits(), picker, now)
    }

    /// Makes waiting requests use the members of another configuration from now on.
    pub fn adopt(&self, picker: Arc<dyn Picker<L>>) {
        self.queue().picker = Some(picker);
        self.members_changed();
    }

    /// Gives members that have become available to waiting requests, and refuses requests that have no member left to try.
    pub fn members_changed(&self) {
        // Ordered after the caller's change: a request that joins the queue after this fence sees the change.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.change(Queue::drain);
        }
    }

    /// Like [`members_changed`](Self::members_changed), for changes that nothing reports. Each waiting request calls it from
    /// time to time, but members are looked for at most twice a second.
    pub fn look(&self, now: Duration) {
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let due = |last: u64| {
            (now.saturating_sub(last) >= LOOK_INTERVAL.as_millis() as u64).then_some(now)
        };
        let looked = self
            .looked_ms
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, due);
        if looked.is_ok() {
            self.members_changed();
        }
    }

    /// The requests that wait now.
    pub fn state(&self) -> QueueState {
        let mut state = QueueState::default();
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return state;
        }
        let queue = self.queue();
        for waiter in queue
            .waiters
            .values()
            .filter(|waiter| waiter.outcome.is_none())
        {
            state.waiting[waiter.offer.criteria.task.work.index()] += 1;
            state.oldest = state.oldest.into_iter().chain([waiter.since]).min();
        }
        state
    }

    /// How many requests of a client wait because the client already runs the maximum number of requests.
    pub fn blocked(&self, account: &Arc<Holding>) -> usize {
        let queue = self.queue();
        queue.blocked.get(&key(account)).map_or(0, BTreeSet::len)
    }

    /// Puts a request into the queue. `order`: its order in its lane. None: the request already holds a slot of its client.
    fn enqueue(
        self: &Arc<Self>,
        offer: Offer,
        order: Option<Order>,
        limits: &QueueLimits,
        picker: &dyn Picker<L>,
        now: Duration,
    ) -> AdmissionDecision<L> {
        let decided = self.change(|queue| {
            let account = Arc::clone(&offer.account);
            let order = order.map(|order| queue.order(&offer, order, picker));
            let id = queue.join(offer, order, limits, now);
            // The request is counted before it looks for members. A slot that is given back after that is therefore offered to
            // it.
            self.waiting.store(queue.waiting, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            queue.unblock(&account);
            queue.drain();
            queue.settle(id, limits, picker)
        });
        match decided {
            Settled::Runs(account, lease) => AdmissionDecision::Run(self.admitted(account, lease)),
            Settled::Waits { id, for_return } => AdmissionDecision::Wait(Ticket {
                for_return,
                admission: Arc::clone(self),
                id,
            }),
            Settled::Refused(refusal) => AdmissionDecision::Refuse(refusal),
        }
    }

    fn admitted(self: &Arc<Self>, account: Arc<Holding>, lease: L) -> Admitted<L> {
        let hold = ClientSlot {
            admission: Arc::clone(self),
            account: Some(account),
        };
        Admitted { lease, hold }
    }

    /// Records that one of this client's requests has ended.
    fn finished(&self, account: &Arc<Holding>) {
        account.lower(1);
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.change(|queue| {
                queue.unblock(account);
                queue.drain();
            });
        }
    }

    /// Changes the queue, then wakes the requests that were decided.
    fn change<R>(&self, change: impl FnOnce(&mut Queue<L>) -> R) -> R {
        let mut queue = self.queue();
        let result = change(&mut queue);
        self.waiting.store(queue.waiting, Ordering::SeqCst);
        let woken = std::mem::take(&mut queue.woken);
        drop(queue);
        woken.into_iter().for_each(Waker::wake);
        result
    }

    /// A panic leaves the queue consistent: a picker that panics has taken no slot.
    fn queue(&self) -> MutexGuard<'_, Queue<L>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The outcome for a request that joined the queue.
enum Settled<L> {
    Runs(Arc<Holding>, L),
    Waits { id: u64, for_return: bool },
    Refused(AdmissionRefusal),
}

impl<L> Queue<L> {
    /// The order of a request. If more catalogs wait than can be compiled within [`CATALOGS_WAIT`], the requests that an agent
    /// sends before its catalog request wait with the catalogs.
    ///
    /// An agent limits its wait for each response separately. If too many agents reached their catalog requests at the same
    /// time, these would wait too long. So each agent spends part of its wait on each of its earlier requests.
    fn order(&self, offer: &Offer, order: Order, picker: &dyn Picker<L>) -> Order {
        let task = offer.criteria.task;
        let may_wait = matches!(task.work, Work::File | Work::Other)
            && !task.without_jruby
            && !offer.account.has_catalog();
        let catalogs = self.lanes.catalogs();
        Order {
            with_catalogs: may_wait && catalogs > 0 && catalogs > picker.catalogs_in(CATALOGS_WAIT),
            ..order
        }
    }

    fn join(
        &mut self,
        offer: Offer,
        order: Option<Order>,
        limits: &QueueLimits,
        now: Duration,
    ) -> u64 {
        let client_max = limits.client_max;
        let id = self.next;
        self.next += 1;
        let place = match order {
            None => QueuePosition::Front,
            Some(order) if offer.account.raise(1, client_max.into()) => {
                Lanes::place_of(&offer, order)
            }
            Some(_) => QueuePosition::Blocked,
        };
        match place {
            QueuePosition::Blocked => {
                _ = self
                    .blocked
                    .entry(key(&offer.account))
                    .or_default()
                    .insert(id)
            }
            _ => self.lanes.insert(place, id),
        }
        self.waiting += 1;
        self.crowded_from = limits.queue_max / 2;
        // A request that has run before may belong to an agent run that is half finished, so it is not refused.
        if offer.comes_back && order.is_some() {
            self.comes_back.insert(id);
        }
        let waiter = Waiter {
            offer,
            place,
            order,
            client_max,
            since: now,
            waker: None,
            outcome: None,
        };
        self.waiters.insert(id, waiter);
        id
    }

    /// The outcome for a request that has just joined the queue. It may not have got a member by joining.
    fn settle(&mut self, id: u64, limits: &QueueLimits, picker: &dyn Picker<L>) -> Settled<L> {
        let waiter = &self.waiters[&id];
        let mut cause = PickError::Full;
        if waiter.outcome.is_none() && waiter.place != QueuePosition::Blocked {
            match picker.pick(&waiter.offer) {
                Ok(lease) => self.decide(id, Ok(lease)),
                Err(error @ (PickError::Full | PickError::NoneYet)) => cause = error,
                Err(error) => self.decide(id, Err(error.into())),
            }
        }
        if self.waiters[&id].outcome.is_none()
            && let Err(refusal) = self.make_room(id, limits)
        {
            let is_full = refusal == AdmissionRefusal::QueueFull;
            // If the queue is full because no member is available, the refusal gives that as the cause.
            self.decide(id, Err(if is_full { cause.into() } else { refusal }));
        }
        if self.waiters[&id].outcome.is_none() {
            let for_return = cause == PickError::NoneYet;
            return Settled::Waits { id, for_return };
        }
        let waiter = self.waiters.remove(&id).expect("it was looked at");
        match waiter.outcome.expect("it was looked at") {
            Ok(lease) => Settled::Runs(waiter.offer.account, lease),
            Err(refusal) => Settled::Refused(refusal),
        }
    }

    /// Enforces the limits. The request that has just joined is counted.
    fn make_room(&mut self, id: u64, limits: &QueueLimits) -> Result<(), AdmissionRefusal> {
        let Waiter { offer, place, .. } = &self.waiters[&id];
        if let (QueuePosition::Blocked, Some(max)) = (place, limits.client_queue_max)
            && self.blocked[&key(&offer.account)].len() > max as usize
        {
            return Err(AdmissionRefusal::ClientQueueFull);
        }
        let comes_back = offer.comes_back;
        if self.waiting > limits.queue_max {
            // One new request replaces one waiting request. If a reload has lowered the limit, the other waiting requests keep
            // their slots. The newest request whose agent retries is replaced, because it has waited the shortest time.
            match self.comes_back.last() {
                Some(last) if !comes_back => self.decide(*last, Err(AdmissionRefusal::MadeRoom)),
                _ => return Err(AdmissionRefusal::QueueFull),
            }
        }
        Ok(())
    }

    /// Gives members to all requests that can run now, and refuses requests that have no member left to try.
    fn drain(&mut self) {
        let Some(picker) = self.picker.clone() else {
            return;
        };
        while self.waiting > 0 && self.serve_one(&*picker) {}
    }

    /// Gives a member to the first request that a member has room for, or refuses the first request that has no member left to
    /// try.
    fn serve_one(&mut self, picker: &dyn Picker<L>) -> bool {
        self.lanes.crowded = self.waiting > self.crowded_from;
        let front = self
            .lanes
            .front
            .iter()
            .map(|id| (QueuePosition::Front, *id));
        // After a member has failed, hundreds of requests may be at the front. Only one request of each kind is tried.
        let mut without_room: Vec<&Offer> = Vec::new();
        let found = front.chain(self.lanes.heads()).find_map(|(place, id)| {
            let offer = &self.waiters[&id].offer;
            if without_room.iter().any(|other| other.is_like(offer)) {
                return None;
            }
            match picker.pick(offer) {
                Ok(lease) => Some((place, id, Ok(lease))),
                Err(PickError::AllTried) => Some((place, id, Err(AdmissionRefusal::AllTried))),
                // A member may become available before the request has waited its maximum time.
                Err(PickError::Full | PickError::NoneYet | PickError::NoneAvailable) => {
                    without_room.push(offer);
                    None
                }
            }
        });
        let Some((place, id, outcome)) = found else {
            return false;
        };
        if outcome.is_ok() {
            self.lanes.served(place);
        }
        self.decide(id, outcome);
        true
    }

    fn decide(&mut self, id: u64, outcome: Result<L, AdmissionRefusal>) {
        let refused = outcome.is_err();
        let waiter = self
            .waiters
            .get_mut(&id)
            .expect("only those that wait are decided on");
        waiter.outcome = Some(outcome);
        self.woken.extend(waiter.waker.take());
        let (place, account) = (waiter.place, Arc::clone(&waiter.offer.account));
        self.leave(id, place);
        if refused && place != QueuePosition::Blocked {
            self.finish(&account);
        }
    }

    /// Removes a request from the counts and from the queue.
    fn leave(&mut self, id: u64, place: QueuePosition) {
        self.waiting -= 1;
        self.comes_back.remove(&id);
        self.take_off(id, place);
    }

    /// Gives back one of the client's slots.
    fn finish(&mut self, account: &Arc<Holding>) {
        account.lower(1);
        self.unblock(account);
    }

    /// Moves requests of a client to their lanes until the client runs its maximum number of requests.
    fn unblock(&mut self, account: &Arc<Holding>) {
        let first = |queue: &Self| queue.blocked.get(&key(account))?.first().copied();
        while let Some(id) = first(self) {
            if !account.raise(1, self.waiters[&id].client_max.into()) {
                return;
            }
            self.take_off(id, QueuePosition::Blocked);
            let waiter = self.waiters.get_mut(&id).expect("it is blocked");
            waiter.place = match waiter.order {
                Some(order) => Lanes::place_of(&waiter.offer, order),
                None => QueuePosition::Front,
            };
            self.lanes.insert(waiter.place, id);
        }
    }

    fn take_off(&mut self, id: u64, place: QueuePosition) {
        if place != QueuePosition::Blocked {
            return self.lanes.remove(place, id);
        }
        let account = key(&self.waiters[&id].offer.account);
        if let Some(rest) = self.blocked.get_mut(&account) {
            rest.remove(&id);
            if rest.is_empty() {
                self.blocked.remove(&account);
            }
        }
    }

    /// Removes a request whose client has closed the connection. Returns the lease that the request was given, if any.
    fn withdraw(&mut self, id: u64) -> Option<L> {
        let waiter = self.waiters.get(&id)?;
        let (place, account) = (waiter.place, Arc::clone(&waiter.offer.account));
        let waits = waiter.outcome.is_none();
        if waits {
            self.leave(id, place);
        }
        let given = self.waiters.remove(&id)?.outcome.and_then(Result::ok);
        // A refused request has already given back its client's slot.
        if given.is_some() || (waits && place != QueuePosition::Blocked) {
            self.finish(&account);
        }
        self.drain();
        given
    }
}

/// The address of an account identifies it: waiting requests hold the account, so the address is not reused.
fn key(account: &Arc<Holding>) -> usize {
    Arc::as_ptr(account) as usize
}

/// A request that may run.
#[derive(Debug)]
pub struct Admitted<L> {
    /// The slot of its member. Code that gives this slot back must then call
    /// [`members_changed`](Admission::members_changed).
    pub lease: L,
    /// The slot of its client.
    pub hold: ClientSlot<L>,
}

/// One of a client's slots, which a request holds during all its attempts. Dropping it gives the slot back.
#[derive(Debug)]
pub struct ClientSlot<L> {
    admission: Arc<Admission<L>>,
    /// None once the slot was given back.
    account: Option<Arc<Holding>>,
}

impl<L> ClientSlot<L> {
    /// Looks for a member for another attempt of a request that has given up its member. The request precedes those that have
    /// not run yet. The account in the offer is ignored.
    pub fn again(
        mut self,
        offer: Offer,
        limits: impl Fn() -> QueueLimits,
        picker: &dyn Picker<L>,
        now: Duration,
    ) -> AdmissionDecision<L> {
        match picker.pick(&offer) {
            Ok(lease) => AdmissionDecision::Run(Admitted { lease, hold: self }),
            Err(error @ (PickError::Full | PickError::NoneYet)) => {
                let admission = Arc::clone(&self.admission);
                let account = self.account.take().expect("it is held until it is dropped");
                let mut offer = Offer { account, ..offer };
                if error == PickError::NoneYet {
                    // A member that failed and returned may be picked like any other.
                    offer.tried.clear();
                }
                admission.enqueue(offer, None, &limits(), picker, now)
            }
            Err(error) => AdmissionDecision::Refuse(error.into()),
        }
    }
}

impl<L> ClientSlot<L> {
    /// The account of the client.
    pub fn account(&self) -> Option<&Arc<Holding>> {
        self.account.as_ref()
    }
}

impl<L> Drop for ClientSlot<L> {
    fn drop(&mut self) {
        if let Some(account) = self.account.take() {
            self.admission.finished(&account);
        }
    }
}

/// A request's position in the queue. It resolves when the request may run or is refused. Dropping it removes the
/// request from the queue.
#[derive(Debug)]
pub struct Ticket<L> {
    admission: Arc<Admission<L>>,
    id: u64,
    for_return: bool,
}

impl<L> Ticket<L> {
    /// Whether the request waits for other requests of its own client, and not for a member.
    pub fn is_behind_its_client(&self) -> bool {
        let queue = self.admission.queue();
        let waiter = queue.waiters.get(&self.id);
        waiter.is_some_and(|waiter| {
            waiter.outcome.is_none() && waiter.place == QueuePosition::Blocked
        })
    }

    /// Whether no member was available when the request joined the queue, so that it waits for a member to return.
    pub fn is_for_return(&self) -> bool {
        self.for_return
    }

    /// Changes how many requests the client may run at once, including this one.
    pub fn set_client_max(&self, client_max: u32) {
        self.admission.change(|queue| {
            let Some(waiter) = queue.waiters.get_mut(&self.id) else {
                return;
            };
            waiter.client_max = client_max;
            let account = Arc::clone(&waiter.offer.account);
            queue.unblock(&account);
            queue.drain();
        });
    }
}

impl<L> Future for Ticket<L> {
    type Output = Result<Admitted<L>, AdmissionRefusal>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut queue = self.admission.queue();
        let waiter = queue
            .waiters
            .get_mut(&self.id)
            .expect("polled until it is ready");
        let Some(outcome) = waiter.outcome.take() else {
            waiter.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let waiter = queue.waiters.remove(&self.id).expect("it was looked at");
        drop(queue);
        let admitted = |lease| self.admission.admitted(waiter.offer.account, lease);
        Poll::Ready(outcome.map(admitted))
    }
}

impl<L> Drop for Ticket<L> {
    fn drop(&mut self) {
        let given = self.admission.change(|queue| queue.withdraw(self.id));
        if given.is_some() {
            drop(given);
            self.admission.members_changed();
        }
    }
}

/// If catalogs are expected to wait longer than this, the requests that precede a catalog wait with them.
const CATALOGS_WAIT: Duration = Duration::from_secs(240);
/// How often members are looked for while requests wait and nothing reports a change.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

impl From<PickError> for AdmissionRefusal {
    fn from(error: PickError) -> Self {
        match error {
            PickError::NoneAvailable | PickError::NoneYet => Self::NoneAvailable,
            PickError::AllTried => Self::AllTried,
            PickError::Full => Self::QueueFull,
        }
    }
}

#[cfg(test)]
mod tests;
