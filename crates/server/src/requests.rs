//! Requests of operators whose results have facts of several parts.

use std::sync::Arc;

use admin::{
    BlockError, BlockOutcome, BlockRequest, Caller, MemberStateError, MemberStateOutcome,
    MemberStateRequest, MemberStatus, PoolMemberStatus,
};
use membership::in_pool;

use crate::{shared_state::App, status::member_status};

impl App {
    /// Sets the state of all selected members, or of none, and then stores it.
    pub(crate) async fn set_member_states(
        self: Arc<Self>,
        request: MemberStateRequest,
        by: Caller,
    ) -> Result<MemberStateOutcome, MemberStateError> {
        let changed = self.membership.set_states(&request, by).await?;
        // Its connections could otherwise send a request to the member after `drain --wait` has found none.
        self.hand_over
            .former
            .follow(self.state_directory.path())
            .await;
        let members = changed.names.into_iter().filter_map(|(pool, address)| {
            let member = self.member(&pool, &address).ok()?;
            Some(PoolMemberStatus { pool, member })
        });
        Ok(MemberStateOutcome {
            members: members.collect(),
            not_persisted: changed.not_persisted,
            replaced: changed.replaced,
            fleet: None,
        })
    }

    /// One member of the active configuration.
    pub(crate) fn member(
        &self,
        pool: &str,
        member: &str,
    ) -> Result<MemberStatus, MemberStateError> {
        let generation = self.generation();
        let (runtime, index) = in_pool(&generation.pools, pool, member)?;
        Ok(member_status(self, runtime, index))
    }

    /// Blocks a client. The outcome has its last refusal.
    pub(crate) async fn block(
        self: Arc<Self>,
        request: BlockRequest,
        by: Caller,
    ) -> Result<BlockOutcome, BlockError> {
        let mut outcome = Arc::clone(&self.trust).block(request, by).await?;
        let name = outcome.block.blocked.certname.as_deref();
        outcome.refusal = name.and_then(|name| self.refusals_of(name).into_iter().next());
        Ok(outcome)
    }
}
