//! What picks go by for one member of a pool, computed when something changes.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::slots::{AtomicSlotLimits, Occupancy, SlotLimits};
use crate::work::Task;

/// What a pick goes by for one member. While it is worked out again, other workers may read some of it as it was before.
#[derive(Debug, Default)]
pub(crate) struct MemberFactors {
    /// For requests that hold a JRuby, and for those that do not.
    pub(crate) limits: [AtomicSlotLimits; 2],
    /// Its part of the pool's work, at least 1.
    pub(crate) part: AtomicU64,
    /// The parts of all members before it.
    pub(crate) parts_before: AtomicU64,
    /// What one unit of work costs here: the more, the smaller its part and the slower it is.
    pub(crate) unit_cost: AtomicU64,
    /// The inverse of its part, up to [`INVERSE_MAX`] for the smallest.
    pub(crate) inverse: AtomicU64,
    /// What a millisecond of a request's own work costs here beside that.
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
    pub(crate) fn part(&self) -> u64 {
        self.part.load(Ordering::Relaxed)
    }

    pub(crate) fn parts_before(&self) -> u64 {
        self.parts_before.load(Ordering::Relaxed)
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
