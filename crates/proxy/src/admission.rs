//! How a request gets a member: at once, after a wait in its pool's queue, or not at all.

use std::{pin::pin, sync::Arc, time::Duration};

use balancing::{
    AdmissionDecision, AdmissionRefusal, Admitted, Availability, ClientShare, ClientSlot,
    EligibleMembers, Holding, Offer, QueueLimits, Task, Ticket, Work, key_hash, source_hash,
};
use telemetry::{Limit, QueueRefusal};
use tokio::{
    select,
    time::{Instant, timeout},
};

use crate::{
    client_shares::Account,
    context::RequestContext,
    error::ProxyError,
    pool_runtime::{PickNow, PoolLease, PoolRuntime},
    reason::LogReason,
    respond::soon,
    signals::LifecyclePhase,
    upload::Upload,
};

/// A request that asks the admission of its pool for a member.
#[derive(Clone, Copy)]
pub(crate) struct AdmissionRequest<'a> {
    pub(crate) context: &'a RequestContext,
    pub(crate) pool: &'a Arc<PoolRuntime>,
    pub(crate) task: Task,
    pub(crate) jruby: bool,
    /// The same as [`Offer::comes_back`].
    pub(crate) comes_back: bool,
}

/// Gets a member for a request, and a slot of the client's share if the request has none yet. The request waits while all
/// members are at their limits, while no member is available but one may return, or while its client runs the maximum number of
/// requests. It waits because many agents fail their run on a 503.
///
/// # Errors
/// No member is available, the queue is full, or the wait was too long.
pub(crate) async fn admit(
    request: AdmissionRequest<'_>,
    offer: Offer,
    hold: Option<ClientSlot<PoolLease>>,
    wait_policy: WaitPolicy<'_>,
    now: Duration,
) -> Result<Admitted<PoolLease>, ProxyError> {
    let pool = request.pool;
    let limits = || request.limits(now);
    let picker = PickNow { pool, now };
    let return_wait = ReturnWait {
        eligible: offer.eligible,
        max: offer.unavailable_wait_max,
    };
    let decision = match hold {
        None => pool.admission.offer(offer, limits, &picker, now),
        Some(hold) => hold.again(offer, limits, &picker, now),
    };
    match decision {
        AdmissionDecision::Run(admitted) => Ok(admitted),
        AdmissionDecision::Refuse(refusal) => Err(request.refused_by_queue(refusal)),
        AdmissionDecision::Wait(ticket) => match wait_policy {
            // Boxed, so that requests that do not wait need no room for it.
            WaitPolicy::Waits(upload) => {
                let _waiting = Waiting::begin(request.context, upload);
                Box::pin(request.wait(ticket, return_wait, upload)).await
            }
            WaitPolicy::None => {
                let reason = if ticket.is_behind_its_client() {
                    request.own_limit()
                } else {
                    LogReason::QueueFull
                };
                Err(request.refused(reason))
            }
        },
    }
}

/// A request's wait for a member to return while none is available.
#[derive(Clone, Copy)]
struct ReturnWait {
    /// The same as [`Offer::eligible`].
    eligible: EligibleMembers,
    /// The same as [`Offer::unavailable_wait_max`].
    max: Duration,
}

pub(crate) enum WaitPolicy<'a> {
    /// The request may wait. The wait counts towards the time for the response.
    Waits(&'a Upload),
    /// The request may not wait. For tunnels, which stay open for long, waiting for one to close is pointless.
    None,
}

/// A wait in the queue. Its time is noted when it ends, even if the client leaves.
struct Waiting<'a> {
    context: &'a RequestContext,
    upload: &'a Upload,
    began: Instant,
}

impl<'a> Waiting<'a> {
    fn begin(context: &'a RequestContext, upload: &'a Upload) -> Self {
        let waiting = &context.conn.waiting;
        waiting.set(waiting.get() + 1);
        Self {
            context,
            upload,
            began: Instant::now(),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.upload.queued(self.began.elapsed());
        // Requests that are refused at the end of the drain stay counted, because their responses still have to be sent.
        if !self.context.worker.shared.is_cutting() {
            let waiting = &self.context.conn.waiting;
            waiting.set(waiting.get() - 1);
        }
    }
}

/// What limits the requests of one client in a pool.
#[derive(Clone, Copy)]
pub(crate) struct ClientLimits<'a> {
    pub(crate) pool: &'a PoolRuntime,
    pub(crate) share: ClientShare,
    pub(crate) task: Task,
    /// The same as [`AdmissionRequest::jruby`].
    pub(crate) jruby: bool,
}

impl ClientLimits<'_> {
    pub(crate) fn queue_limits(&self, account: Account, now: Duration) -> QueueLimits {
        let settings = &self.pool.settings;
        let queue_max = settings.queue_max;
        match account {
            Account::Jrubies => QueueLimits {
                queue_max,
                client_max: settings.agent_max,
                client_queue_max: Some(settings.agent_queue_max),
            },
            Account::Share => QueueLimits {
                queue_max,
                client_max: if self.jruby {
                    // A client that is exempt from `agent_max` may always run at least that many requests.
                    self.share(now).max(settings.agent_max)
                } else {
                    self.share(now)
                },
                // One client must not fill the queue that all clients share.
                client_queue_max: Some((queue_max / CLIENT_QUEUE_PART).max(1)),
            },
        }
    }

    /// How many requests the client may run at once. `now`: time since start.
    fn share(&self, now: Duration) -> u32 {
        match self.share.percent {
            // At 100 % there is no share: only the members' own limits apply.
            100.. => u32::MAX,
            _ => {
                let pool = &self.pool.pool;
                let connections = pool.capacity(self.task, now);
                if self.jruby || pool.has_free_connections(reserved(connections), now) {
                    self.share.of(connections)
                } else {
                    1
                }
            }
        }
    }
}

impl AdmissionRequest<'_> {
    /// The account that counts the request, and the limits that apply to the account.
    fn account(&self) -> (Arc<Holding>, Account) {
        let shares = &self.context.worker.shared.shares;
        shares.of_pool(
            self.context.client_accounts(),
            self.context.generation.number,
            self.pool,
            self.jruby,
        )
    }

    fn client_limits(&self) -> ClientLimits<'_> {
        ClientLimits {
            pool: self.pool,
            share: self.context.generation.settings.client_share,
            task: self.task,
            jruby: self.jruby,
        }
    }

    fn limits(&self, now: Duration) -> QueueLimits {
        self.client_limits().queue_limits(self.account().1, now)
    }

    /// Ends a download whose client reads slowly, if the request waits for the download's connection or for a reserved one.
    fn displace_reader(&self, ticket: &Ticket<PoolLease>) {
        let shared = &self.context.worker.shared;
        let (pool, now) = (&self.pool.pool, shared.now());
        let connections = pool.capacity(ANY_WORK, now);
        let end_slowest = || {
            let unreserved = connections - reserved(connections);
            let readers = &shared.slow_readers;
            readers.end_slowest(pool.name(), unreserved, Instant::now())
        };
        if !ticket.is_behind_its_client() {
            // While no member is up, a free connection does not help.
            if !pool.has_free_connections(0, now) && pool.is_available(now) {
                end_slowest();
            }
            return;
        }
        let (holding, account) = self.account();
        if self.jruby || account == Account::Jrubies {
            return;
        }
        // The request may be waiting because few connections are free, although its client holds less than its share.
        let share = self.context.generation.settings.client_share;
        let share_now = self.client_limits().share(now);
        let share = share.of(pool.capacity(self.task, now));
        let waits_for_others = share_now < share && holding.held() < u64::from(share);
        ticket.set_client_max(if waits_for_others && end_slowest() {
            // The request gets one of the reserved connections. The connection of the ended download takes its place among
            // them.
            share
        } else {
            share_now
        });
    }

    /// The reason for a refusal that the client's own requests cause.
    fn own_limit(&self) -> LogReason {
        self.account().1.reason()
    }

    /// The reason for a refusal when a request may wait no longer.
    fn waited_for(&self, ticket: &Ticket<PoolLease>) -> LogReason {
        if ticket.is_behind_its_client() {
            self.own_limit()
        } else {
            LogReason::QueueTimeout
        }
    }

    async fn wait(
        &self,
        mut ticket: Ticket<PoolLease>,
        return_wait: ReturnWait,
        upload: &Upload,
    ) -> Result<Admitted<PoolLease>, ProxyError> {
        if ticket.is_behind_its_client() {
            let limit = match self.account().1 {
                Account::Jrubies => Limit::AgentMax,
                Account::Share => Limit::ClientShare,
            };
            self.context.conn.metrics.limit(limit);
        }
        let until = Instant::now() + self.time_left(upload);
        let mut signals = self.context.worker.shared.signals.subscribe();
        let mut cut = pin!(signals.wait_for(|signals| signals.phase == LifecyclePhase::Cutting));
        let mut awaits_return = ticket.is_for_return();
        loop {
            self.displace_reader(&ticket);
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.refused(if awaits_return {
                    LogReason::NoMemberAvailable
                } else {
                    self.waited_for(&ticket)
                }));
            }
            let Some(interval) = self.look_interval(&ticket, return_wait, &mut awaits_return)
            else {
                return Err(self.refused(LogReason::NoMemberAvailable));
            };
            let decided = select! {
                biased;
                _ = &mut cut => return Err(self.refused(LogReason::DrainGrace)),
                decided = timeout(left.min(interval), &mut ticket) => decided,
            };
            match decided {
                Ok(Ok(admitted)) => return Ok(admitted),
                Ok(Err(refusal)) => return Err(self.refused_by_queue(refusal)),
                Err(_) => self.look(),
            }
        }
    }

    /// How long a request waits before it looks for a member without being notified. `None`: the request waits no longer,
    /// because no member is available and none is expected to return. `awaits_return`: whether the request has been waiting for
    /// a member to return.
    fn look_interval(
        &self,
        ticket: &Ticket<PoolLease>,
        return_wait: ReturnWait,
        awaits_return: &mut bool,
    ) -> Option<Duration> {
        let wait_max = self.pool.settings.unavailable_wait_max;
        if wait_max.is_zero() {
            return Some(LOOK_INTERVAL);
        }
        let now = self.context.worker.shared.now();
        let newest = self.newest_pool();
        if *awaits_return && newest.is_none() && !self.has_configured_member() {
            return None;
        }
        let pool = newest.as_ref().unwrap_or(self.pool);
        let availability = pool.pool.availability(return_wait.eligible, wait_max, now);
        match availability {
            Availability::Available => *awaits_return = false,
            // If its own client were not at a limit, the request would be refused at once.
            _ if return_wait.max.is_zero() && ticket.is_behind_its_client() => {
                return None;
            }
            Availability::Returning { until } => {
                *awaits_return = true;
                return Some(LOOK_INTERVAL.min(until - now));
            }
            Availability::Unavailable if *awaits_return => return None,
            // The request has waited for a busy member. That member was then taken out of service, and may be put back.
            Availability::Unavailable => {}
        }
        Some(LOOK_INTERVAL)
    }

    /// The pool in the current configuration. `None`: the configuration does not have the pool, or gives it other rules.
    fn newest_pool(&self) -> Option<Arc<PoolRuntime>> {
        let current = self.context.worker.current();
        let mut pools = current.pools.iter();
        let newest = pools.find(|known| Arc::ptr_eq(&known.admission, &self.pool.admission));
        newest.cloned()
    }

    /// Whether the current configuration has a member of this pool. Such a member is still probed and may return.
    fn has_configured_member(&self) -> bool {
        let current = self.context.worker.current();
        let own = self.pool.pool.entries();
        current.pool(self.pool.pool.name()).is_some_and(|known| {
            let mut configured = known.pool.entries().iter().map(|entry| &entry.member);
            configured.any(|member| own.iter().any(|entry| Arc::ptr_eq(&entry.member, member)))
        })
    }

    /// Looks for a member without being notified. This is necessary because no notification is sent when a failed member
    /// without probes may be tried again.
    fn look(&self) {
        let (pool, shared) = (self.pool, &self.context.worker.shared);
        match self.newest_pool() {
            Some(_) => pool.admission.look(shared.now()),
            // Waiting requests run under the configuration that they arrived under.
            None => pool.adopt_queue(shared.started),
        }
    }

    pub(crate) fn has_time_left(&self, upload: &Upload) -> bool {
        !self.time_left(upload).is_zero()
    }

    /// How long the request may still wait. Earlier waits and attempts count, because the agent's own timeout covers
    /// all of them.
    fn time_left(&self, upload: &Upload) -> Duration {
        let settings = &self.pool.settings;
        let queued = upload.time_in_queue().unwrap_or_default();
        let spent = match upload.finished() {
            Some(finished) => finished.elapsed(),
            None => upload.time_in_queue_incomplete(),
        };
        let queue_left = settings.queue_wait_max.saturating_sub(queued);
        queue_left.min(settings.first_byte_timeout.saturating_sub(spent))
    }

    fn refused_by_queue(&self, refusal: AdmissionRefusal) -> ProxyError {
        if refusal == AdmissionRefusal::QueueFull && !self.comes_back {
            let shared = &self.context.worker.shared;
            let alarms = &shared.metrics.alarms;
            let pool = self.pool.pool.name();
            shared.full_queues.refused(alarms, pool, shared.now());
        }
        self.refused(match refusal {
            AdmissionRefusal::NoneAvailable | AdmissionRefusal::AllTried => {
                LogReason::NoMemberAvailable
            }
            AdmissionRefusal::QueueFull => LogReason::QueueFull,
            AdmissionRefusal::MadeRoom => LogReason::QueueMadeRoom,
            AdmissionRefusal::ClientQueueFull => self.own_limit(),
        })
    }

    fn refused(&self, reason: LogReason) -> ProxyError {
        let pool = Arc::clone(self.pool.pool.name());
        let (counted, retry_after) = match reason {
            LogReason::QueueFull => (QueueRefusal::Full, self.retry_after()),
            LogReason::QueueMadeRoom => (QueueRefusal::MadeRoom, self.retry_after()),
            LogReason::QueueTimeout => (QueueRefusal::Timeout, self.retry_after()),
            LogReason::ClientShare => (QueueRefusal::ClientShare, None),
            LogReason::AgentMax => (QueueRefusal::AgentMax, Some(soon(&self.context.worker))),
            LogReason::DrainGrace => {
                return ProxyError::Queue {
                    pool,
                    reason,
                    retry_after: None,
                };
            }
            _ => {
                return ProxyError::Unavailable {
                    pool,
                    reason,
                    source: None,
                };
            }
        };
        self.pool.metrics.queue_refused(counted);
        ProxyError::Queue {
            pool,
            reason,
            retry_after,
        }
    }

    /// When an agent that supports `Retry-After` should try again. The time is spread over the run interval by its certname. It
    /// is never short, because an agent gives up after a hundred tries.
    fn retry_after(&self) -> Option<Duration> {
        if !self.comes_back {
            return None;
        }
        let client = match &self.context.verdict.certname {
            Some(certname) => key_hash(certname.as_bytes()),
            None => source_hash(self.context.conn.downstream.client.ip()),
        };
        let max = self.pool.settings.retry_after_max.as_secs().max(1);
        let min = (max / RETRY_AFTER_PART).max(1);
        Some(Duration::from_secs(min + client % (max - min + 1)))
    }
}

/// The number of a pool's connections that are reserved for clients that hold none. Clients that collude therefore gain little,
/// and a client with one request at a time does not wait for them.
fn reserved(connections: u32) -> u32 {
    connections / RESERVED_PART
}

/// One in this many of a pool's connections is reserved for clients that hold none.
const RESERVED_PART: u32 = 4;
/// Work that only connections limit.
const ANY_WORK: Task = Task {
    work: Work::File,
    without_jruby: true,
};
/// Requests of one client beyond its share may use this part of a pool's queue, as one slot in this many.
const CLIENT_QUEUE_PART: u32 = 8;
/// How often a waiting request looks for members without being notified.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The minimum `Retry-After` is `retry_after_max` divided by this.
const RETRY_AFTER_PART: u64 = 20;
