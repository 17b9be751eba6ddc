//! Endpoints of the deny list.

use axum::{extract::State, http::StatusCode};
use serde_json::json;

use super::{
    Api,
    conditions::{Condition, EntityTag, Tagged},
    messages::{ApiError, BODY_BYTES_MAX, Describe, Document, Pretty, Problem, problem},
};
use crate::{
    AuditEntry, BlockCertnamesOutcome, BlockCertnamesRequest, BlockError, BlockOutcome,
    BlockRequest, BlockStatus, BlockSubject, OperatorAccount,
};

/// The blocks that are active, the oldest first.
#[utoipa::path(get, path = "/v1/blocks", tag = "blocks",
    responses((status = 200, body = Vec<BlockStatus>, headers(("ETag" = String))), Problem))]
pub(super) async fn blocks(State(api): State<Api>) -> Tagged<Vec<BlockStatus>> {
    let blocks = api.control.blocks();
    Tagged(tag_of(&api, &blocks), blocks)
}

/// Block a client: its handshakes, requests and tunnels are refused from now on.
#[utoipa::path(post, path = "/v1/blocks", tag = "blocks", request_body = BlockRequest,
    params(("If-Match" = Option<String>, Header, description = "ETag of GET /v1/blocks")),
    responses((status = 200, body = BlockOutcome), Problem))]
pub(super) async fn block(
    State(api): State<Api>,
    by: OperatorAccount,
    condition: Condition,
    Document(request): Document<BlockRequest, BODY_BYTES_MAX>,
) -> Result<Pretty<BlockOutcome>, ApiError> {
    let one_at_a_time = api.control.locks().blocks.lock().await;
    let before = api.control.blocks();
    condition.check(&tag_of(&api, &before))?;
    let subject = json!(request.blocked);
    let (why, same) = (
        request.why.clone(),
        before
            .into_iter()
            .find(|block| block.blocked == request.blocked),
    );
    let outcome = api.control.block(request, by.clone()).await;
    let after = outcome.as_ref().ok().map(|outcome| &outcome.block);
    let entry = AuditEntry::new(&by, "block", subject)
        .why(&why)
        .change(&same, &after);
    api.control.audit(entry.result(&outcome)).await;
    drop(one_at_a_time);
    let mut outcome = outcome.map_err(refused)?;
    outcome.replaced = same;
    outcome.fleet = api.control.applied_elsewhere(Vec::new()).await;
    Ok(Pretty(StatusCode::OK, outcome))
}

/// Block several certnames, all of them or none.
#[utoipa::path(post, path = "/v1/blocks/certnames", tag = "blocks", request_body = BlockCertnamesRequest,
    params(("If-Match" = Option<String>, Header, description = "ETag of GET /v1/blocks")),
    responses((status = 200, body = BlockCertnamesOutcome), Problem))]
pub(super) async fn block_certnames(
    State(api): State<Api>,
    by: OperatorAccount,
    condition: Condition,
    Document(request): Document<BlockCertnamesRequest, CERTNAMES_BYTES_MAX>,
) -> Result<Pretty<BlockCertnamesOutcome>, ApiError> {
    let one_at_a_time = api.control.locks().blocks.lock().await;
    let before = api.control.blocks();
    condition.check(&tag_of(&api, &before))?;
    let subject = json!({"certnames": request.certnames});
    let why = request.why.clone();
    let outcome = api.control.block_certnames(request, by.clone()).await;
    let after = outcome.as_ref().ok().map(|outcome| &outcome.blocks);
    let entry = AuditEntry::new(&by, "block", subject)
        .why(&why)
        .change(&None::<BlockStatus>, &after);
    api.control.audit(entry.result(&outcome)).await;
    drop(one_at_a_time);
    let mut outcome = outcome.map_err(refused)?;
    let is_replaced = |block: &BlockStatus| {
        let mut new = outcome.blocks.iter();
        new.any(|new| new.blocked == block.blocked)
    };
    outcome.replaced = before.into_iter().filter(is_replaced).collect();
    outcome.fleet = api.control.applied_elsewhere(Vec::new()).await;
    Ok(Pretty(StatusCode::OK, outcome))
}

/// Remove a block.
#[utoipa::path(post, path = "/v1/blocks/lift", tag = "blocks", request_body = BlockSubject,
    params(("If-Match" = Option<String>, Header, description = "ETag of GET /v1/blocks")),
    responses((status = 200, body = BlockOutcome), Problem))]
pub(super) async fn lift(
    State(api): State<Api>,
    by: OperatorAccount,
    condition: Condition,
    Document(blocked): Document<BlockSubject, BODY_BYTES_MAX>,
) -> Result<Pretty<BlockOutcome>, ApiError> {
    let one_at_a_time = api.control.locks().blocks.lock().await;
    condition.check(&tag_of(&api, &api.control.blocks()))?;
    let subject = json!(blocked);
    let outcome = api.control.unblock(blocked, by.clone()).await;
    let before = outcome.as_ref().ok().map(|outcome| &outcome.block);
    let entry = AuditEntry::new(&by, "unblock", subject).change(&before, &None::<BlockStatus>);
    api.control.audit(entry.result(&outcome)).await;
    drop(one_at_a_time);
    let mut outcome = outcome.map_err(refused)?;
    outcome.fleet = api.control.applied_elsewhere(Vec::new()).await;
    Ok(Pretty(StatusCode::OK, outcome))
}

/// The tag of the blocks. It leaves out their accounts, to which another proxy of a fleet adds the name of this one.
fn tag_of(api: &Api, blocks: &[BlockStatus]) -> EntityTag {
    let acts = blocks
        .iter()
        .map(|block| (&block.blocked, &block.why, &block.since, &block.until));
    let acts: Vec<_> = acts.collect();
    EntityTag::of_shared(&acts, api.control.last_block_change())
}

fn refused(error: BlockError) -> ApiError {
    let status = match error {
        BlockError::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
        BlockError::NotBlocked(_) => StatusCode::NOT_FOUND,
        BlockError::Stopping => StatusCode::CONFLICT,
        BlockError::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    };
    problem(status, error.to_string())
}

impl Describe for BlockRequest {
    const FORM: &str = "the body must be {\"blocked\": {\"certname\": NAME} | {\"serial\": HEX, \"issuer\": DN} | \
        {\"fingerprint\": HEX}, \"why\": TEXT, \"until\": TIME or nothing}";
}

impl Describe for BlockCertnamesRequest {
    const FORM: &str =
        "the body must be {\"certnames\": [NAME, ...], \"why\": TEXT, \"until\": TIME or nothing}";
}

/// Maximum length of a body with certnames: that of the longest list of blocks with names of 255 bytes.
const CERTNAMES_BYTES_MAX: usize = 3 << 20;

impl Describe for BlockSubject {
    const FORM: &str = "the body must be {\"certname\": NAME} | {\"serial\": HEX, \"issuer\": DN} | {\"fingerprint\": HEX}";
}
