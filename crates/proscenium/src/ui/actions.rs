//! Changes from the page, each with a reason. The proxy writes them to its audit log as those of this process's account.

use std::sync::Arc;

use admin::{
    AdministrativeState, BlockRequest, BlockSubject, MemberSelection, MemberStateChange,
    MemberStateRequest,
};
use axum::{body::Bytes, extract::State, http::StatusCode, response::Response};
use serde::Deserialize;

use super::{
    Page,
    endpoints::{answer, document},
    guard::problem,
};
use crate::block::{TIME_OR_DURATION, time_or_duration};

/// A member that is drained or becomes ready.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MemberAction {
    pool: String,
    member: String,
    state: MemberActionState,
    why: String,
    /// When it becomes ready again: a time, or a duration from now.
    #[serde(default)]
    until: Option<String>,
    #[serde(default)]
    force: bool,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum MemberActionState {
    Ready,
    Drain,
}

/// An agent that is blocked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BlockAction {
    certname: String,
    why: String,
}

pub(super) async fn set_member(State(page): State<Arc<Page>>, body: Bytes) -> Response {
    let action: MemberAction = match document(&body) {
        Ok(action) => action,
        Err(refused) => return *refused,
    };
    let Some(why) = reason(&action.why) else {
        return without_reason();
    };
    let until = match action.until.as_deref().map(time_or_duration) {
        None => None,
        Some(Some(until)) => Some(until),
        Some(None) => return without_time(),
    };
    let members = MemberSelection {
        pool: Some(action.pool),
        member: Some(action.member),
        host: None,
    };
    let state = match action.state {
        MemberActionState::Ready => AdministrativeState::Ready,
        MemberActionState::Drain => AdministrativeState::Drain,
    };
    let change = MemberStateChange {
        why: Some(why),
        until,
        force: action.force,
        ..MemberStateChange::to(state)
    };
    let request = MemberStateRequest::new(members, change);
    answer(page.client.set_member_states(&request).await)
}

pub(super) async fn block(State(page): State<Arc<Page>>, body: Bytes) -> Response {
    let action: BlockAction = match document(&body) {
        Ok(action) => action,
        Err(refused) => return *refused,
    };
    let Some(why) = reason(&action.why) else {
        return without_reason();
    };
    let request = BlockRequest {
        blocked: BlockSubject {
            certname: Some(action.certname),
            ..BlockSubject::default()
        },
        why,
        until: None,
    };
    answer(page.client.block(&request).await)
}

pub(super) async fn unblock(State(page): State<Arc<Page>>, body: Bytes) -> Response {
    match document::<BlockSubject>(&body) {
        Ok(subject) => answer(page.client.unblock(&subject).await),
        Err(refused) => *refused,
    }
}

fn reason(why: &str) -> Option<String> {
    let why = why.trim();
    (!why.is_empty()).then(|| why.to_owned())
}

fn without_reason() -> Response {
    problem(
        StatusCode::UNPROCESSABLE_ENTITY,
        "write a reason: it is shown in the status and in the audit log",
    )
}

fn without_time() -> Response {
    problem(
        StatusCode::UNPROCESSABLE_ENTITY,
        &format!("the end of the drain is not a time: write {TIME_OR_DURATION}"),
    )
}
