//! The interface of every column of the comparison: the part of a proxy that picks members, queues and retries.

use balancing::{AttemptFailure, RetryVerdict, Work};

use crate::time::Micros;

/// A request, by its place in the simulation; one agent's run makes one request at a time.
pub type RequestId = u32;

/// What a proxy can see of a request.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedRequest {
    /// The agent's certname, as a number.
    pub certname: u32,
    /// Kind of work, from the path.
    pub work: Work,
    /// Whether it may be sent twice.
    pub safe: bool,
    /// Whether `X-Puppet-Version` is one that honours `Retry-After`.
    pub comes_back: bool,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BalancerDecision {
    /// It goes to this member.
    Send(usize),
    /// It waits. [`Balancer::decided`] returns the decision later.
    Wait,
    /// The agent gets an error; with the seconds of `Retry-After`, if there are any.
    Refuse(Option<f64>),
}

/// What the operator does with a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorOrder {
    /// No new requests.
    Drain,
    /// Requests again.
    Ready,
}

/// A member's answer, as far as the choice of what to do next depends on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MemberReply {
    /// The request was served.
    Served,
    /// 503 with `Retry-After` (seconds): its queue is full, nothing was done.
    QueueFull(f64),
    /// 503 without `Retry-After`: it is stopping, or a JRuby was waited for in vain.
    Unavailable,
}

/// A proxy or an algorithm under comparison: one column of the results. It receives only the events that a real proxy
/// receives.
pub trait Balancer {
    /// Decides on a new request.
    fn offer(&mut self, id: RequestId, ask: SimulatedRequest, now: Micros) -> BalancerDecision;

    /// A member has answered. None: the answer goes to the agent, and the request is over.
    fn replied(
        &mut self,
        id: RequestId,
        reply: MemberReply,
        now: Micros,
    ) -> Option<BalancerDecision>;

    /// An attempt has failed. None: the agent gets an error, and the request is over.
    fn failed(
        &mut self,
        id: RequestId,
        failure: &AttemptFailure,
        now: Micros,
    ) -> Option<BalancerDecision>;

    /// The agent is gone, or its wait was too long.
    fn gone(&mut self, id: RequestId, now: Micros);

    /// A probe has an outcome.
    fn probed(&mut self, member: usize, good: bool, now: Micros);

    /// The operator gives an order.
    fn order(&mut self, member: usize, order: OperatorOrder, now: Micros);

    /// Requests that waited and were decided on since the last call.
    fn decided(&mut self, now: Micros, decided: &mut Vec<(RequestId, BalancerDecision)>);

    /// Whether a member is up according to its probes.
    fn is_up(&self, member: usize) -> bool;

    /// Requests that a member has.
    fn in_flight(&self, member: usize) -> u32;

    /// Requests that wait.
    fn waiting(&self) -> usize;

    /// How long a request may wait that begins to wait now.
    fn patience(&self, id: RequestId) -> Micros;

    /// A second has passed.
    fn tick(&mut self, _now: Micros) {}

    /// Seconds of `Retry-After` on the 503 that ends a wait; none: there is no such field.
    fn after_wait(&mut self, id: RequestId) -> Option<f64>;

    /// The certname's connections are closed: its run is over.
    fn closed(&mut self, id: RequestId);

    /// Seconds between probes of one member.
    fn probe_interval(&self) -> f64;

    /// The first of several proxies dies.
    fn lose_proxy(&mut self) {}

    /// Whether the proxy of a request has died.
    fn is_lost(&self, _id: RequestId) -> bool {
        false
    }
}

/// Whether a failed attempt may be made again, by the rules of one [`balancing::RetryPolicy`].
pub fn may_repeat(failure: &AttemptFailure, attempts: u32, attempts_max: u32, safe: bool) -> bool {
    let progress = balancing::Progress {
        attempts,
        response_started: false,
        safe,
        body_replayable: true,
        single_member: false,
        late: false,
    };
    let policy = balancing::RetryPolicy { attempts_max };
    policy.decide(failure, &progress) == RetryVerdict::Again
}
