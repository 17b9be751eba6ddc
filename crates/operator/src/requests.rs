//! Requests of operators whose results combine facts from several parts of the process.

use std::sync::Arc;

use admin::{
    BlockError, BlockOutcome, BlockRequest, MemberStateError, MemberStateOutcome,
    MemberStateRequest, MemberStatus, OperatorAccount, PoolMemberStatus,
};
use lifecycle::App;
use membership::in_pool;

use crate::{status::members_status, who::refusals_of};

/// Sets the state of all selected members, or of none, and then stores it.
pub(crate) async fn set_member_states(
    app: Arc<App>,
    request: MemberStateRequest,
    by: OperatorAccount,
) -> Result<MemberStateOutcome, MemberStateError> {
    let changed = app.membership().set_states(&request, by).await?;
    // Otherwise, a connection of a former process could send a request to the member after `drain --wait` has found none.
    app.follow_states().await;
    let members = changed.names.into_iter().filter_map(|(pool, address)| {
        let member = member(&app, &pool, &address).ok()?;
        Some(PoolMemberStatus { pool, member })
    });
    Ok(MemberStateOutcome {
        members: members.collect(),
        not_persisted: changed.not_persisted,
        replaced: changed.replaced,
        fleet: None,
    })
}

/// The status of one member of the active configuration.
pub(crate) fn member(
    app: &App,
    pool: &str,
    member: &str,
) -> Result<MemberStatus, MemberStateError> {
    let generation = app.active().generation();
    let (runtime, index) = in_pool(&generation.pools, pool, member)?;
    Ok(members_status(app, runtime).swap_remove(index))
}

/// Blocks a client. The outcome has the client's last refusal.
pub(crate) async fn block(
    app: Arc<App>,
    request: BlockRequest,
    by: OperatorAccount,
) -> Result<BlockOutcome, BlockError> {
    let mut outcome = Arc::clone(app.trust()).block(request, by).await?;
    let name = outcome.block.blocked.certname.as_deref();
    outcome.refusal = name.and_then(|name| refusals_of(&app, name).into_iter().next());
    Ok(outcome)
}
