//! A request that looks for a member, and why it gets none.

use std::sync::Arc;

use crate::{pick_criteria::PickCriteria, share::Holding};

/// What the admission needs to know of a request.
#[derive(Clone, Debug)]
pub struct Offer {
    /// What its client holds of the pool.
    pub account: Arc<Holding>,
    /// Which members may be asked.
    pub target: EligibleMembers,
    /// What leads the choice among them, and what kind of work it is.
    pub lead: PickCriteria,
    /// Members that were asked before, by [`Member::id`](crate::Member::id).
    pub tried: Vec<u64>,
    /// Whether the attempt before failed on a connection that was used before. The member may then be asked again.
    pub after_reuse: bool,
    /// Whether the agent comes back after a 503. Those that do not fail their run on it (PUP-11853).
    pub comes_back: bool,
}

impl Offer {
    /// Whether the same members have room for both.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let members = |offer: &Self| (offer.target, offer.after_reuse, offer.lead.task);
        members(self) == members(other)
            && self.lead.key == other.lead.key
            && self.tried == other.tried
    }
}

/// Which members of a pool may be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EligibleMembers {
    /// Any.
    #[default]
    Any,
    /// The one that gets writes, or a backup while that one is down.
    Write,
    /// The one that gets writes, and no other.
    WriterAlone,
}

/// Why no member was picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PickError {
    /// None is up and ready.
    #[error("no member is available")]
    NoneAvailable,
    /// Those that are up and ready have been tried.
    #[error("every available member has been tried")]
    AllTried,
    /// Those that are up and ready and were not tried are at their limit.
    #[error("every available member is at its limit")]
    Full,
}
