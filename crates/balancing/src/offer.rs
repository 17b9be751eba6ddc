//! A request that needs a member, and the reasons why it gets none.

use std::{sync::Arc, time::Duration};

use crate::{pick_criteria::PickCriteria, share::Holding};

/// A request as the admission gets it.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The account of the client in this pool.
    pub account: Arc<Holding>,
    /// Which members may get it.
    pub eligible: EligibleMembers,
    /// The criteria of the pick, and the kind of work.
    pub criteria: PickCriteria,
    /// Members that the request has tried before, by [`Member::id`](crate::Member::id).
    pub tried: Vec<u64>,
    /// Whether the previous attempt failed on a reused connection. The same member may then be tried again.
    pub after_reuse: bool,
    /// Whether the agent retries after a 503. Other agents fail their run (PUP-11853).
    pub comes_back: bool,
    /// The maximum time, after a member went down, for which the request waits for it if no member is available. Zero: the
    /// request does not wait.
    pub unavailable_wait_max: Duration,
}

impl Offer {
    /// Whether members without room for one of the two requests have none for the other either.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let members = |offer: &Self| (offer.eligible, offer.after_reuse, offer.criteria.task);
        members(self) == members(other)
            && self.criteria.key == other.criteria.key
            && self.tried == other.tried
    }
}

/// Which members of a pool may get a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EligibleMembers {
    /// Any member.
    #[default]
    Any,
    /// The member that gets writes, or a backup while that member is down.
    WriterOrBackup,
    /// Only the member that gets writes.
    WriterOnly,
}

/// Why no member was picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PickError {
    /// No member is up and ready.
    #[error("no member is available")]
    NoneAvailable,
    /// No member is up and ready, but the request may wait for a member that went down a short while ago.
    #[error("no member is available, and one that was up a short while ago may return")]
    NoneYet,
    /// All members that are up and ready have been tried.
    #[error("every available member has been tried")]
    AllTried,
    /// All members that are up and ready and were not tried are at their limits.
    #[error("every available member is at its limit")]
    Full,
}
