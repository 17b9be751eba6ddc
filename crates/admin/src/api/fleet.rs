//! The endpoints of the fleet.

use axum::{extract::State, http::StatusCode};
use serde_json::json;

use super::{
    Api,
    conditions::Condition,
    messages::{ApiError, BODY_BYTES_MAX, Describe, Document, Pretty, Problem, problem},
};
use crate::{
    AuditEntry, FleetStatus, OperatorAccount, TurnAnswer, TurnEnd, TurnError, TurnRequest,
};

/// The proxies that share drains and blocks with this one, and in what they differ. 404 without `[fleet]`.
#[utoipa::path(get, path = "/v1/fleet", tag = "fleet", responses((status = 200, body = FleetStatus), Problem))]
pub(super) async fn fleet(State(api): State<Api>) -> Result<Pretty<FleetStatus>, ApiError> {
    match api.control.status().fleet {
        Some(fleet) => Ok(Pretty(StatusCode::OK, fleet)),
        None => Err(problem(
            StatusCode::NOT_FOUND,
            TurnError::NoFleet.to_string(),
        )),
    }
}

/// Ask for the turn of the fleet. Repeat it at least every 5 s: a request that is silent for 10 s ends, and its turn too.
#[utoipa::path(post, path = "/v1/fleet/turn", tag = "fleet", request_body = TurnRequest,
    responses((status = 200, body = TurnAnswer), Problem))]
pub(super) async fn ask_for_turn(
    State(api): State<Api>,
    by: OperatorAccount,
    condition: Condition,
    Document(request): Document<TurnRequest, BODY_BYTES_MAX>,
) -> Result<Pretty<TurnAnswer>, ApiError> {
    condition.check_without_tag()?;
    let (command, had_turn) = (request.command.clone(), request.had_turn);
    let answer = api.control.ask_for_turn(request, by.clone()).await;
    if answer.as_ref().is_ok_and(|answer| answer.has_turn) && !had_turn {
        let entry = AuditEntry::new(&by, "fleet-turn", json!({ "command": command }));
        api.control.audit(entry).await;
    }
    Ok(Pretty(StatusCode::OK, answer.map_err(refused)?))
}

/// End a request for the turn, and the turn if it was taken for this request.
#[utoipa::path(post, path = "/v1/fleet/turn/end", tag = "fleet", request_body = TurnEnd,
    responses((status = 200, body = TurnAnswer), Problem))]
pub(super) async fn end_turn(
    State(api): State<Api>,
    condition: Condition,
    Document(end): Document<TurnEnd, BODY_BYTES_MAX>,
) -> Result<Pretty<TurnAnswer>, ApiError> {
    condition.check_without_tag()?;
    let answer = api.control.end_turn(end).await.map_err(refused)?;
    Ok(Pretty(StatusCode::OK, answer))
}

#[expect(clippy::needless_pass_by_value, reason = "an argument of map_err")]
fn refused(error: TurnError) -> ApiError {
    let status = match error {
        TurnError::NoFleet => StatusCode::NOT_FOUND,
        TurnError::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
    };
    problem(status, error.to_string())
}

impl Describe for TurnRequest {
    const FORM: &str = "the body must be {\"request\": NAME, \"command\": TEXT, \"timeout_seconds\": NUMBER}, optionally with \
        \"had_turn\": true";
}

impl Describe for TurnEnd {
    const FORM: &str = "the body must be {\"request\": NAME}";
}
