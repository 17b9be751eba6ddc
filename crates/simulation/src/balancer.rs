//! The interface of every column of the comparison: the part of a proxy that picks members, queues and retries.

use balancing::{AttemptFailure, RetryVerdict, Work};

use crate::time::Micros;

/// A request, identified by its slot in the simulation. The run of an agent makes one request at a time.
pub type RequestId = u32;

/// The properties of a request that a proxy can see.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedRequest {
    /// The agent's certname, as a number.
    pub certname: u32,
    /// The kind of work, derived from the path.
    pub work: Work,
    /// Whether the request may be sent twice.
    pub safe: bool,
    /// Whether `X-Puppet-Version` is one that honours `Retry-After`.
    pub comes_back: bool,
}

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BalancerDecision {
    /// The request is sent to this member.
    Send(usize),
    /// The request waits. [`Balancer::decided`] returns the decision later.
    Wait,
    /// The agent gets an error, with this number of seconds as `Retry-After` if there is one.
    Refuse(Option<f64>),
}

/// An operator's change of a member's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorOrder {
    /// The member gets no new requests.
    Drain,
    /// The member gets requests again.
    Ready,
}

/// A member's answer, as far as the next step depends on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MemberReply {
    /// The request was served.
    Served,
    /// 503 with `Retry-After` (seconds): the member's queue is full, and it has done nothing.
    QueueFull(f64),
    /// 503 without `Retry-After`: the member is stopping, or the request has waited too long for a JRuby.
    Unavailable,
}

/// A proxy or an algorithm in the comparison: one column of the results. It receives only the events that a real proxy
/// would receive.
pub trait Balancer {
    /// Decides on a new request.
    fn offer(&mut self, id: RequestId, ask: SimulatedRequest, now: Micros) -> BalancerDecision;

    /// Handles a member's answer. `None` if the answer goes to the agent and the request ends.
    fn replied(
        &mut self,
        id: RequestId,
        reply: MemberReply,
        now: Micros,
    ) -> Option<BalancerDecision>;

    /// Handles a failed attempt. `None` if the agent gets an error and the request ends.
    fn failed(
        &mut self,
        id: RequestId,
        failure: &AttemptFailure,
        now: Micros,
    ) -> Option<BalancerDecision>;

    /// Ends a request whose agent has disconnected, or that has waited too long.
    fn gone(&mut self, id: RequestId, now: Micros);

    /// Handles the result of a probe.
    fn probed(&mut self, member: usize, good: bool, now: Micros);

    /// Handles an order of the operator.
    fn order(&mut self, member: usize, order: OperatorOrder, now: Micros);

    /// Adds the waiting requests that were decided on since the last call.
    fn decided(&mut self, now: Micros, decided: &mut Vec<(RequestId, BalancerDecision)>);

    /// Whether a member is up according to its probes.
    fn is_up(&self, member: usize) -> bool;

    /// Number of requests that a member has.
    fn in_flight(&self, member: usize) -> u32;

    /// Number of waiting requests.
    fn waiting(&self) -> usize;

    /// How long a request that begins to wait now may wait.
    fn patience(&self, id: RequestId) -> Micros;

    /// Called once for each second.
    fn tick(&mut self, _now: Micros) {}

    /// Seconds of `Retry-After` on the 503 that ends a wait; `None` if the response has no such field.
    fn after_wait(&mut self, id: RequestId) -> Option<f64>;

    /// The run of this request's certname has ended, and its connections are closed.
    fn closed(&mut self, id: RequestId);

    /// Seconds between two probes of a member.
    fn probe_interval(&self) -> f64;

    /// Called when the first of several proxies dies.
    fn lose_proxy(&mut self) {}

    /// Whether the proxy of a request has died.
    fn is_lost(&self, _id: RequestId) -> bool {
        false
    }
}

/// Whether a failed attempt may be repeated under the rules of [`balancing::RetryPolicy`].
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
