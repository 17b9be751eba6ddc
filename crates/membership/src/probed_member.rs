//! A member that the probes, the agent checks and the JRuby counts query, and how.

use std::sync::Arc;

use balancing::{Member, settings::CheckSettings};
use proxy::Shared;
use upstream::Connector;

/// A member that is probed, and how.
#[derive(Clone)]
pub(crate) struct ProbedMember {
    pub(crate) member: Arc<Member>,
    pub(crate) connector: Arc<Connector>,
    pub(crate) check: CheckSettings,
    pub(crate) shared: Arc<Shared>,
}
