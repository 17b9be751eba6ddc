//! The state of a pool that outlasts generations.

use std::sync::{Arc, Mutex};

use crate::{
    moves::MoveLimiter,
    pace::ServiceTimes,
    retry_budget::RetryBudget,
    rotation::{Ties, Wheel},
    slots::Tally,
};

/// The state of a pool that outlasts generations: the turns among members, the limits on moves and retries, and how long work
/// takes.
#[derive(Debug, Default)]
pub struct PoolState {
    pub(crate) tally: Arc<Tally>,
    pub(crate) draws: Ties,
    pub(crate) ties: Ties,
    pub(crate) wheel: Wheel,
    pub(crate) moves: MoveLimiter,
    /// Limits searches for a filebucket file on further members.
    pub(crate) searches: MoveLimiter,
    /// Locked while a member is ejected, so that two concurrent workers do not eject more members than allowed.
    pub(crate) ejecting: Mutex<()>,
    pub(crate) retries: RetryBudget,
    pub(crate) times: ServiceTimes,
}
