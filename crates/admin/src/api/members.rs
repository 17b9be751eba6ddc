//! Endpoints of members and their administrative states.

use axum::{
    extract::{Path, State, rejection::PathRejection},
    http::StatusCode,
};
use serde::Serialize;
use serde_json::json;

use super::{
    Api,
    conditions::{Condition, EntityTag, Tagged},
    messages::{ApiError, BODY_BYTES_MAX, Describe, Document, Pretty, Problem, problem},
};
use crate::{
    AdministrativeState, AdministrativeStatus, AuditEntry, MemberSelection, MemberStateChange,
    MemberStateError, MemberStateOutcome, MemberStateRequest, MemberStatus, OperatorAccount,
    SetMemberState,
};

/// Pool and member of a path; in names, `/` is percent-encoded.
type MemberPath = Result<Path<(String, String)>, PathRejection>;

/// One member.
#[utoipa::path(get, path = "/v1/pools/{pool}/members/{member}", tag = "members",
    params(("pool" = String, Path), ("member" = String, Path)),
    responses((status = 200, body = MemberStatus, headers(("ETag" = String))), Problem))]
pub(super) async fn member(
    State(api): State<Api>,
    path: MemberPath,
) -> Result<Tagged<MemberStatus>, ApiError> {
    let Path((pool, member)) = path.map_err(invalid_path)?;
    let status = api.control.member(&pool, &member).map_err(refused)?;
    let tag = tag_of(&api, &pool, &status);
    Ok(Tagged(tag, status))
}

/// The administrative state of every member.
#[utoipa::path(get, path = "/v1/members/state", tag = "members",
    responses((status = 200, body = Vec<SetMemberState>, headers(("ETag" = String))), Problem))]
pub(super) async fn states(State(api): State<Api>) -> Tagged<Vec<SetMemberState>> {
    let states = all_states(&api);
    Tagged(tag_of_all(&api, &states), states)
}

/// Set the administrative state of one member.
#[utoipa::path(post, path = "/v1/pools/{pool}/members/{member}", tag = "members", request_body = MemberStateChange,
    params(
        ("pool" = String, Path),
        ("member" = String, Path),
        ("If-Match" = Option<String>, Header, description = "ETag of the same path"),
    ),
    responses((status = 200, body = MemberStatus), Problem))]
pub(super) async fn set_state(
    State(api): State<Api>,
    by: OperatorAccount,
    path: MemberPath,
    condition: Condition,
    Document(change): Document<MemberStateChange, BODY_BYTES_MAX>,
) -> Result<Pretty<MemberStatus>, ApiError> {
    let Path((pool, member)) = path.map_err(invalid_path)?;
    let _one_at_a_time = api.control.locks().members.lock().await;
    let before = api.control.member(&pool, &member).map_err(refused)?;
    condition.check(&tag_of(&api, &pool, &before))?;
    let members = MemberSelection {
        pool: Some(pool.clone()),
        member: Some(member.clone()),
        host: None,
    };
    set(&api, by, MemberStateRequest::new(members, change)).await?;
    let status = api.control.member(&pool, &member).map_err(refused)?;
    Ok(Pretty(StatusCode::OK, status))
}

/// Set the administrative state of members: of all that are selected, or of none.
#[utoipa::path(post, path = "/v1/members/state", tag = "members", request_body = MemberStateRequest,
    params(("If-Match" = Option<String>, Header, description = "ETag of the same path")),
    responses((status = 200, body = MemberStateOutcome), Problem))]
pub(super) async fn set_states(
    State(api): State<Api>,
    by: OperatorAccount,
    condition: Condition,
    Document(request): Document<MemberStateRequest, BODY_BYTES_MAX>,
) -> Result<Pretty<MemberStateOutcome>, ApiError> {
    let one_at_a_time = api.control.locks().members.lock().await;
    condition.check(&tag_of_all(&api, &all_states(&api)))?;
    let mut outcome = set(&api, by, request).await?;
    drop(one_at_a_time);
    let members = outcome.members.iter();
    let members = members.map(|member| (member.pool.clone(), member.member.address.clone()));
    outcome.fleet = api.control.applied_elsewhere(members.collect()).await;
    Ok(Pretty(StatusCode::OK, outcome))
}

/// Sets states and writes the audit log; the caller holds the lock.
async fn set(
    api: &Api,
    by: OperatorAccount,
    request: MemberStateRequest,
) -> Result<MemberStateOutcome, ApiError> {
    let before = all_states(api);
    let (action, subject, why) = (request.state, json!(request.members), request.why.clone());
    let outcome = api.control.set_member_states(request, by.clone()).await;
    let after = all_states(api);
    let is_new = |state: &&SetMemberState| !before.contains(state);
    let changed: Vec<_> = after.iter().filter(is_new).collect();
    let was = |state: &&SetMemberState| {
        let same = |new: &&SetMemberState| (&new.pool, &new.member) == (&state.pool, &state.member);
        changed.iter().any(same)
    };
    let was: Vec<_> = before.iter().filter(was).collect();
    let entry =
        AuditEntry::new(&by, &action.to_string(), subject).why(why.as_deref().unwrap_or_default());
    let entry = entry.change(&Some(was), &Some(&changed));
    api.control.audit(entry.result(&outcome)).await;
    outcome.map_err(refused)
}

fn all_states(api: &Api) -> Vec<SetMemberState> {
    let pools = api.control.status().pools;
    let states = pools.into_iter().flat_map(|pool| {
        let name = pool.name;
        pool.members.into_iter().map(move |member| SetMemberState {
            pool: name.clone(),
            member: member.address,
            administrative_state: member.administrative_state,
            administrative: member.administrative,
        })
    });
    states.collect()
}

/// The tag covers only the state that operators set, because health changes all the time.
fn tag_of(api: &Api, pool: &str, member: &MemberStatus) -> EntityTag {
    let set = set_by_operators(member.administrative_state, member.administrative.as_ref());
    let last = api.control.last_member_change(pool, &member.address);
    EntityTag::of_shared(&set, last)
}

fn tag_of_all(api: &Api, states: &[SetMemberState]) -> EntityTag {
    let all = states.iter().map(|state| {
        let (pool, member) = (&state.pool, &state.member);
        let set = set_by_operators(state.administrative_state, state.administrative.as_ref());
        let last = api.control.last_member_change(pool, member);
        (pool, member, set, last)
    });
    let all: Vec<_> = all.collect();
    let last = all.iter().filter_map(|(.., last)| last.clone()).max();
    EntityTag::of_shared(&all, last)
}

/// The state without its account and its time. Other proxies show the account together with its proxy, and the last change has
/// both.
fn set_by_operators(
    state: AdministrativeState,
    set: Option<&AdministrativeStatus>,
) -> impl Serialize {
    (state, set.map(|set| (set.why.clone(), set.until.clone())))
}

fn refused(error: MemberStateError) -> ApiError {
    let status = match error {
        MemberStateError::UnknownPool { .. }
        | MemberStateError::UnknownMember { .. }
        | MemberStateError::UnknownAnywhere { .. }
        | MemberStateError::UnknownHost { .. } => StatusCode::NOT_FOUND,
        MemberStateError::LastAvailable { .. } | MemberStateError::HandedOver => {
            StatusCode::CONFLICT
        }
        MemberStateError::Ambiguous { .. } | MemberStateError::Invalid(_) => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
        MemberStateError::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    };
    problem(status, error.to_string())
}

#[expect(clippy::needless_pass_by_value, reason = "an argument of map_err")]
fn invalid_path(error: PathRejection) -> ApiError {
    problem(StatusCode::BAD_REQUEST, error.body_text())
}

impl Describe for MemberStateChange {
    const FORM: &str = "the body must be {\"state\": \"ready\" | \"drain\" | \"maintenance\"}, optionally with \
        \"why\": TEXT, \"until\": TIME, \"force\": true";
}

impl Describe for MemberStateRequest {
    const FORM: &str = "the body must be {\"members\": {\"pool\": NAME, \"member\": ADDRESS} | \
        {\"member\": ADDRESS} | {\"host\": NAME}, \"state\": \"ready\" | \"drain\" | \"maintenance\"}, optionally with \
        \"why\": TEXT, \"until\": TIME, \"force\": true";
}
