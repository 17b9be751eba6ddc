//! What a request needs, which members it may get, and whether it waits for a member to return because none is available or the only one is
//! stopping.

use std::{sync::Arc, time::Duration};

use balancing::{Availability, EligibleMembers, Task};
use routing::ForwardPlan;
use tokio::time::sleep;
use upstream::{MemberHead, MemberIo, settings::UpstreamSettings};

use crate::{attempts::Attempts, pool_runtime::PoolLease, record::ActiveExchange, respond};

/// Pause before a stopping or starting member is tried again. A stopping Puppet Server closes its port 0.2 s after its first
/// 503. A starting one has its services 0.4 s after it opens its port (docs/decisions/starting-server-404.md).
pub(crate) const STOP_PAUSE: Duration = Duration::from_secs(1);

/// The members that may get a request. Writes to the CA go to one member, or to a backup while that member is down. Renewals go
/// only to that one member. All other requests are balanced.
pub fn eligible_members(plan: &ForwardPlan<'_>) -> EligibleMembers {
    if plan.is_renewal() {
        EligibleMembers::WriterOnly
    } else if plan.endpoint.ca_write {
        EligibleMembers::WriterOrBackup
    } else {
        EligibleMembers::Any
    }
}

/// Whether a Puppet server needs one of its few JRubies for a request.
pub(crate) fn holds_jruby(plan: &ForwardPlan<'_>) -> bool {
    plan.is_puppets() && !plan.endpoint.task.without_jruby
}

/// The work of a request. A tunnel holds no JRuby.
pub fn task(plan: &ForwardPlan<'_>, is_tunnel: bool) -> Task {
    let task = plan.endpoint.task;
    Task {
        without_jruby: task.without_jruby || is_tunnel,
        ..task
    }
}

/// How long a request waits for a member after the member went down, while no member is available. Agents continue their run
/// without the CA's documents and without a renewed certificate, so requests for these do not wait. Tunnels do not wait either.
pub(crate) fn unavailable_wait_max(
    plan: &ForwardPlan<'_>,
    settings: &UpstreamSettings,
    is_tunnel: bool,
) -> Duration {
    if !is_tunnel && plan.is_puppets() && plan.document().is_none() && !plan.is_renewal() {
        settings.unavailable_wait_max
    } else {
        Duration::ZERO
    }
}

impl Attempts<'_> {
    /// The same as [`eligible_members`].
    pub(crate) fn eligible(&self) -> EligibleMembers {
        eligible_members(self.plan)
    }

    /// The same as [`unavailable_wait_max`].
    pub(crate) fn unavailable_wait_max(&self) -> Duration {
        let is_tunnel = self.request.upgrade.is_some();
        unavailable_wait_max(self.plan, &self.pool.settings, is_tunnel)
    }

    /// Whether the request would wait for a member to return if none were available.
    pub(crate) fn may_wait_for_return(&self, exchange: &ActiveExchange) -> bool {
        let admission = self.admission_request(exchange);
        !self.unavailable_wait_max().is_zero() && admission.has_time_left(&exchange.upload)
    }

    /// Whether the request may wait now for a member to return, because none is available.
    pub(crate) fn waits_for_return(&self, exchange: &ActiveExchange) -> bool {
        let (wait_max, now) = (
            self.unavailable_wait_max(),
            self.context.worker.shared.now(),
        );
        let availability = || self.pool.pool.availability(self.eligible(), wait_max, now);
        self.may_wait_for_return(exchange)
            && matches!(availability(), Availability::Returning { .. })
    }

    /// Whether the member's web server responded instead of Puppet's code, and the request may wait for the member to return.
    pub(crate) fn stops(&self, head: &MemberHead, exchange: &ActiveExchange) -> bool {
        !respond::is_puppets_own(&head.fields) && self.may_wait_for_return(exchange)
    }

    /// Whether no process listens on the member's port after a pause. If so, the member counts as down. During the pause the
    /// member's slot is free for another request.
    pub(crate) async fn is_gone(&self, lease: PoolLease) -> bool {
        let (connector, member) = (Arc::clone(lease.connector()), Arc::clone(lease.member()));
        drop(lease);
        sleep(STOP_PAUSE).await;
        let dialled = MemberIo::open_raw(&connector, None, |_| false).await;
        let is_gone = dialled.is_err_and(|error| error.refused());
        if is_gone {
            self.note_refused(&member);
        }
        is_gone
    }
}
