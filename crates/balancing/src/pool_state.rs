//! What a pool keeps over generations.

use std::sync::{Arc, Mutex};

use crate::{
    moves::MoveLimiter,
    pace::ServiceTimes,
    retry_budget::RetryBudget,
    rotation::{Ties, Wheel},
    slots::Tally,
};

/// What a pool keeps over generations: whose turn it is, how many requests may leave a failed member, and how long work
/// takes.
#[derive(Debug, Default)]
pub struct PoolState {
    pub(crate) tally: Arc<Tally>,
    pub(crate) draws: Ties,
    pub(crate) ties: Ties,
    pub(crate) wheel: Wheel,
    pub(crate) moves: MoveLimiter,
    /// Requests that look for a filebucket's file on a further member.
    pub(crate) searches: MoveLimiter,
    /// Held while a member is ejected, so that two workers cannot eject more than may be.
    pub(crate) ejecting: Mutex<()>,
    pub(crate) retries: RetryBudget,
    pub(crate) times: ServiceTimes,
}
