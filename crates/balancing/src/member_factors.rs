//! Values of one member for picks, computed when something changes.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::slots::{AtomicSlotLimits, Occupancy, SlotLimits};
use crate::work::Task;

/// Precomputed values of one member. During a new computation, other workers may read a mixture of old and new values.
#[derive(Debug, Default)]
pub(crate) struct MemberFactors {
    /// The limits for requests that need a JRuby, and for those that need none.
    pub(crate) limits: [AtomicSlotLimits; 2],
    /// The member's share of the pool's work, at least 1.
    pub(crate) share: AtomicU64,
    /// The sum of the shares of all members before it.
    pub(crate) shares_before: AtomicU64,
    /// The cost of one unit of work on this member. It is higher for a smaller share and for a slower member.
    pub(crate) unit_cost: AtomicU64,
    /// The inverse of the member's share, up to `INVERSE_MAX` for the smallest share.
    pub(crate) inverse: AtomicU64,
    /// The additional cost on this member for each millisecond of a request's own work.
    pub(crate) own_cost: AtomicU64,
}

impl MemberFactors {
    #[inline]
    pub(crate) fn admit(&self, task: Task, occupancy: Occupancy) -> bool {
        self.limits[usize::from(task.without_jruby)]
            .get()
            .admit(occupancy)
    }

    pub(crate) fn limits(&self, task: Task) -> SlotLimits {
        self.limits[usize::from(task.without_jruby)].get()
    }

    #[inline]
    pub(crate) fn share(&self) -> u64 {
        self.share.load(Ordering::Relaxed)
    }

    pub(crate) fn shares_before(&self) -> u64 {
        self.shares_before.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn unit_cost(&self) -> u64 {
        self.unit_cost.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn inverse(&self) -> u64 {
        self.inverse.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn own_cost(&self) -> u64 {
        self.own_cost.load(Ordering::Relaxed)
    }
}
