//! How a request gets a member: at once, after a wait in its pool's queue, or not at all.

use std::{pin::pin, sync::Arc, time::Duration};

use balancing::{
    AdmissionDecision, AdmissionRefusal, Admitted, ClientSlot, Offer, QueueLimits, Task, Ticket,
    key_hash, source_hash,
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

/// A request that asks a pool's admission for a member.
#[derive(Clone, Copy)]
pub(crate) struct AdmissionRequest<'a> {
    pub(crate) context: &'a RequestContext,
    pub(crate) pool: &'a Arc<PoolRuntime>,
    /// What it is for a member.
    pub(crate) task: Task,
    /// Whether it holds a JRuby while it runs.
    pub(crate) jruby: bool,
    /// As [`Offer::comes_back`].
    pub(crate) comes_back: bool,
}

/// Gets a member for a request, and its client's place where it has none yet. It waits while all members are at their
/// limits, and while its client runs as much as it may: many agents fail on a 503.
///
/// # Errors
/// No member is available, the queue is full, or the wait was too long.
pub(crate) async fn admit(
    asking: AdmissionRequest<'_>,
    offer: Offer,
    hold: Option<ClientSlot<PoolLease>>,
    patience: WaitPolicy<'_>,
    now: Duration,
) -> Result<Admitted<PoolLease>, ProxyError> {
    let pool = asking.pool;
    let limits = || asking.limits(now);
    let picker = PickNow { pool, now };
    let decision = match hold {
        None => pool.admission.offer(offer, limits, &picker, now),
        Some(hold) => hold.again(offer, limits, &picker, now),
    };
    match decision {
        AdmissionDecision::Run(admitted) => Ok(admitted),
        AdmissionDecision::Refuse(refusal) => Err(asking.refused_by_queue(refusal)),
        AdmissionDecision::Wait(ticket) => match patience {
            // Boxed: requests that need not wait have no room for it.
            WaitPolicy::Waits(upload) => {
                let _waiting = Waiting::begin(asking.context, upload);
                Box::pin(asking.wait(ticket, upload)).await
            }
            WaitPolicy::None => {
                let reason = match ticket.is_behind_its_client() {
                    true => asking.own_limit(),
                    false => LogReason::QueueFull,
                };
                Err(asking.refused(reason))
            }
        },
    }
}

/// Whether a request may wait.
pub(crate) enum WaitPolicy<'a> {
    /// It may; the time counts towards the answer to this body.
    Waits(&'a Upload),
    /// It may not: tunnels stay open for so long that waiting for one to end is no use.
    None,
}

/// A wait, which is noted when it ends, by the client's leaving too.
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
        // What the end of the drain refuses stays counted: its answer is still to be sent.
        if !self.context.worker.shared.is_cutting() {
            let waiting = &self.context.conn.waiting;
            waiting.set(waiting.get() - 1);
        }
    }
}

impl AdmissionRequest<'_> {
    fn account(&self) -> Account {
        let shares = &self.context.worker.shared.shares;
        let (_, account) = shares.of_pool(
            self.context.client_accounts(),
            &self.context.generation,
            self.pool.pool.name(),
            self.jruby,
        );
        account
    }

    fn limits(&self, now: Duration) -> QueueLimits {
        let settings = &self.pool.settings;
        let queue_max = settings.queue_max;
        match self.account() {
            Account::Jrubies => QueueLimits {
                queue_max,
                client_max: settings.agent_max,
                client_queue_max: Some(settings.agent_queue_max),
            },
            Account::Share => QueueLimits {
                queue_max,
                client_max: match self.jruby {
                    // An exception from `agent_max` is not to be less than that.
                    true => self.share(now).max(settings.agent_max),
                    false => self.share(now),
                },
                // One client must not fill the queue that all share.
                client_queue_max: Some((queue_max / CLIENT_QUEUE_PART).max(1)),
            },
        }
    }

    /// `now`: time since start.
    fn share(&self, now: Duration) -> u32 {
        let share = self.context.generation.settings.client_share;
        match share.percent {
            // The whole of a pool is not a share: its members' own limits say who waits.
            100.. => u32::MAX,
            _ => share.of(self.pool.pool.capacity(self.task, now)),
        }
    }

    /// What a request is refused for that its own client's requests keep waiting.
    fn own_limit(&self) -> LogReason {
        match self.account() {
            Account::Jrubies => LogReason::AgentMax,
            Account::Share => LogReason::ClientShare,
        }
    }

    /// What a request is refused for when it may not wait longer.
    fn waited_for(&self, ticket: &Ticket<PoolLease>) -> LogReason {
        match ticket.is_behind_its_client() {
            true => self.own_limit(),
            false => LogReason::QueueTimeout,
        }
    }

    async fn wait(
        &self,
        mut ticket: Ticket<PoolLease>,
        upload: &Upload,
    ) -> Result<Admitted<PoolLease>, ProxyError> {
        if ticket.is_behind_its_client() {
            let limit = match self.account() {
                Account::Jrubies => Limit::AgentMax,
                Account::Share => Limit::ClientShare,
            };
            self.context.conn.metrics.limit(limit);
        }
        let until = Instant::now() + self.time_left(upload);
        let mut signals = self.context.worker.shared.signals.subscribe();
        let mut cut = pin!(signals.wait_for(|signals| signals.phase == LifecyclePhase::Cutting));
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.refused(self.waited_for(&ticket)));
            }
            let decided = select! {
                biased;
                _ = &mut cut => return Err(self.refused(LogReason::DrainGrace)),
                decided = timeout(left.min(LOOK_INTERVAL), &mut ticket) => decided,
            };
            match decided {
                Ok(Ok(admitted)) => return Ok(admitted),
                Ok(Err(refusal)) => return Err(self.refused_by_queue(refusal)),
                Err(_) => self.look(),
            }
        }
    }

    /// Looks for members of its own accord: one without probes that is down may be tried again by now, which nothing
    /// announces.
    fn look(&self) {
        let (pool, shared) = (self.pool, &self.context.worker.shared);
        let current = self.context.worker.current();
        let mut pools = current.pools.iter();
        match pools.any(|known| Arc::ptr_eq(&known.admission, &pool.admission)) {
            true => pool.admission.look(shared.now()),
            // The pool was removed or has other rules by now. Requests that wait run by the configuration that they came under.
            false => pool.adopt_queue(shared.started),
        }
    }

    /// Whether the request may wait again.
    pub(crate) fn has_time_left(&self, upload: &Upload) -> bool {
        !self.time_left(upload).is_zero()
    }

    /// How long a request may wait. Earlier waits and attempts count: the agent gives up by the time of all together.
    fn time_left(&self, upload: &Upload) -> Duration {
        let settings = &self.pool.settings;
        let queued = upload.time_in_queue().unwrap_or_default();
        let spent = match upload.finished() {
            Some(finished) => finished.elapsed(),
            None => upload.time_in_queue_incomplete(),
        };
        let in_queue = settings.queue_wait_max.saturating_sub(queued);
        in_queue.min(settings.first_byte_timeout.saturating_sub(spent))
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

    /// When an agent that can be sent away is to come back: spread by its certname over the run interval. Never soon, because
    /// an agent gives up after a hundred tries.
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

/// The part of a pool's queue, as one in so many, that requests of one client may take beyond its share of the pool.
const CLIENT_QUEUE_PART: u32 = 8;
/// How often a request that waits looks for members by itself.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The part of `retry_after_max`, as one in so many, that an agent waits at least.
const RETRY_AFTER_PART: u64 = 20;
