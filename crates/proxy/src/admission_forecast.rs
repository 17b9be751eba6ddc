//! What the admission of a pool would decide on a request now, for `explain`. Nothing is counted and nothing is taken.

use std::time::Duration;

use balancing::{Availability, PickCriteria, PickError};
use routing::ForwardPlan;

use crate::{
    admission::ClientLimits,
    client_shares::{Account, ShareHolder},
    generation::Generation,
    member_return::{eligible_members, holds_jruby, unavailable_wait_max},
    pool_runtime::PoolRuntime,
    reason::LogReason,
    shared::Shared,
};

/// What the admission of a pool would decide on a request now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdmissionForecast {
    /// A member has room for it.
    Runs,
    /// It waits.
    Waits {
        /// For at most this long.
        max: Duration,
        /// Why it waits.
        why: String,
    },
    /// It is refused with 503 at once.
    Refused {
        /// The reason in records and metrics.
        reason: &'static str,
        /// What is missing.
        why: String,
    },
}

/// A request whose admission is forecast.
#[derive(Clone, Copy, Debug)]
pub struct ForecastRequest<'a> {
    /// Where it goes.
    pub plan: &'a ForwardPlan<'a>,
    /// How its member is picked.
    pub criteria: &'a PickCriteria,
    /// Its client, if it is known.
    pub client: Option<ShareHolder<'a>>,
    /// Whether it becomes a tunnel. A tunnel does not wait.
    pub is_tunnel: bool,
}

impl ForecastRequest<'_> {
    /// What the admission would decide now, as time since the start. `shared` are the counts of the running process. Without
    /// them, no client has other requests.
    pub fn forecast(
        &self,
        generation: &Generation,
        shared: Option<&Shared>,
        now: Duration,
    ) -> AdmissionForecast {
        let pool = &generation.pools[self.plan.pool];
        let own = shared.and_then(|shared| self.own_limit(generation, shared, now));
        own.unwrap_or_else(|| self.of_members(pool, now))
    }

    /// The decision if the client runs the maximum number of its requests.
    fn own_limit(
        &self,
        generation: &Generation,
        shared: &Shared,
        now: Duration,
    ) -> Option<AdmissionForecast> {
        let (client, pool) = (self.client?, &generation.pools[self.plan.pool]);
        let jruby = holds_jruby(self.plan);
        let account = Account::of(pool, client.certname.map(|certname| &**certname), jruby);
        let limits = ClientLimits {
            pool,
            share: generation.settings.client_share,
            task: self.criteria.task,
            jruby,
        };
        let limits = limits.queue_limits(account, now);
        let holding = shared.shares.find(client, pool, jruby)?;
        let held = holding.held();
        // A client may always run one request.
        if held < u64::from(limits.client_max.max(1)) {
            return None;
        }
        let limit = match account {
            Account::Jrubies => "agent_max",
            Account::Share => "client_share",
        };
        let waiting = pool.admission.blocked(&holding);
        let has_room = |max: u32| waiting < max as usize;
        if self.is_tunnel || !limits.client_queue_max.is_none_or(has_room) {
            return Some(AdmissionForecast::Refused {
                reason: account.reason().as_str(),
                why: format!("the client has too many requests in this pool ({limit})"),
            });
        }
        // While no member is available, a request that would not wait for one does not wait for its client either.
        if self.return_wait_max(pool).is_zero()
            && !pool.settings.unavailable_wait_max.is_zero()
            && self.availability(pool, now) != Availability::Available
        {
            return Some(none_available());
        }
        let max = limits.client_max;
        Some(AdmissionForecast::Waits {
            max: queue_wait_max(pool),
            why: format!(
                "the client already runs {held} of at most {max} requests in this pool ({limit})"
            ),
        })
    }

    /// The decision if only the members count.
    fn of_members(&self, pool: &PoolRuntime, now: Duration) -> AdmissionForecast {
        let eligible = eligible_members(self.plan);
        let Err(refusal) = pool.pool.would_pick(eligible, self.criteria, now) else {
            return AdmissionForecast::Runs;
        };
        if refusal != PickError::NoneAvailable {
            let waiting: u32 = pool.admission.state().waiting.iter().sum();
            return if self.is_tunnel {
                let why = "every available member is at its limit, and a tunnel does not wait";
                refused(LogReason::QueueFull, why)
            } else if waiting < pool.settings.queue_max {
                AdmissionForecast::Waits {
                    max: queue_wait_max(pool),
                    why: "every available member is at its limit".to_owned(),
                }
            } else {
                refused(LogReason::QueueFull, "the queue is full (queue_max)")
            };
        }
        match self.availability(pool, now) {
            Availability::Returning { until } => AdmissionForecast::Waits {
                max: until - now,
                why: "no member is available, and one that was up a short while ago may return"
                    .to_owned(),
            },
            Availability::Available | Availability::Unavailable => none_available(),
        }
    }

    fn return_wait_max(&self, pool: &PoolRuntime) -> Duration {
        unavailable_wait_max(self.plan, &pool.settings, self.is_tunnel)
    }

    fn availability(&self, pool: &PoolRuntime, now: Duration) -> Availability {
        let return_max = self.return_wait_max(pool);
        let eligible = eligible_members(self.plan);
        pool.pool.availability(eligible, return_max, now)
    }
}

fn queue_wait_max(pool: &PoolRuntime) -> Duration {
    let settings = &pool.settings;
    settings.queue_wait_max.min(settings.first_byte_timeout)
}

fn none_available() -> AdmissionForecast {
    refused(LogReason::NoMemberAvailable, "no member is available")
}

fn refused(reason: LogReason, why: &'static str) -> AdmissionForecast {
    AdmissionForecast::Refused {
        reason: reason.as_str(),
        why: why.to_owned(),
    }
}
