//! Endpoints of the configurations that were applied before.

use axum::{
    extract::{Path, State, rejection::PathRejection},
    http::StatusCode,
};
use serde_json::json;

use super::{
    Api,
    messages::{ApiError, BODY_BYTES_MAX, Describe, Document, Pretty, Problem, problem},
    process::reload_status,
};
use crate::{
    AppliedConfigurations, AuditEntry, Caller, ConfigurationText, OperatorAccount, RollbackError,
    RollbackOutcome, RollbackRequest,
};

/// The configurations that were applied last, the newest first.
#[utoipa::path(get, path = "/v1/configurations", tag = "process",
    responses((status = 200, body = AppliedConfigurations), Problem))]
pub(super) async fn configurations(
    State(api): State<Api>,
) -> Result<Pretty<AppliedConfigurations>, ApiError> {
    let configurations = api.control.applied_configurations().await;
    Ok(Pretty(StatusCode::OK, configurations.map_err(refused)?))
}

/// The text of an applied configuration, for root and the account of the proxy.
#[utoipa::path(get, path = "/v1/configurations/{id}", tag = "process", params(("id" = String, Path)),
    responses((status = 200, body = ConfigurationText), Problem))]
pub(super) async fn configuration_text(
    State(api): State<Api>,
    by: Caller,
    path: Result<Path<String>, PathRejection>,
) -> Result<Pretty<ConfigurationText>, ApiError> {
    let Path(id) = path.map_err(|error| problem(StatusCode::BAD_REQUEST, error.body_text()))?;
    let text = api.control.configuration_text(id, by).await;
    Ok(Pretty(StatusCode::OK, text.map_err(refused)?))
}

/// What a rollback would change; changes nothing.
#[utoipa::path(post, path = "/v1/rollback/dry-run", tag = "process", request_body = RollbackRequest,
    responses(
        (status = 200, body = RollbackOutcome),
        (status = 409, body = RollbackOutcome, description = "The proxy is stopping"),
        (status = 422, body = RollbackOutcome, description = "The rollback would be refused"),
        Problem,
    ))]
pub(super) async fn dry_run(
    State(api): State<Api>,
    Document(request): Document<RollbackRequest, BODY_BYTES_MAX>,
) -> Result<Pretty<RollbackOutcome>, ApiError> {
    let outcome = api.control.try_roll_back(request).await.map_err(refused)?;
    Ok(Pretty(reload_status(outcome.reload.result), outcome))
}

/// Apply a configuration again that was applied before, or say why not. The configuration file stays as it is.
#[utoipa::path(post, path = "/v1/rollback", tag = "process", request_body = RollbackRequest,
    responses(
        (status = 200, body = RollbackOutcome),
        (status = 409, body = RollbackOutcome, description = "The proxy is stopping"),
        (status = 422, body = RollbackOutcome, description = "The rollback was refused"),
        Problem,
    ))]
pub(super) async fn roll_back(
    State(api): State<Api>,
    by: OperatorAccount,
    Document(request): Document<RollbackRequest, BODY_BYTES_MAX>,
) -> Result<Pretty<RollbackOutcome>, ApiError> {
    let wanted = json!(request.to);
    let before = api.control.status().generation;
    let outcome = api.control.roll_back(request).await;
    let after = api.control.status().generation;
    let subject = outcome
        .as_ref()
        .map_or(wanted, |outcome| json!(outcome.configuration.id));
    let mut entry = AuditEntry::new(&by, "rollback", subject).change(&before, &after);
    entry.result = match &outcome {
        Ok(outcome) => outcome.reload.audit_result(),
        Err(error) => error.to_string(),
    };
    api.control.audit(entry).await;
    let outcome = outcome.map_err(refused)?;
    Ok(Pretty(reload_status(outcome.reload.result), outcome))
}

fn refused(error: RollbackError) -> ApiError {
    let status = match error {
        RollbackError::NoOther | RollbackError::Unknown(_) => StatusCode::NOT_FOUND,
        RollbackError::Forbidden => StatusCode::FORBIDDEN,
        RollbackError::Unreadable(_) | RollbackError::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    };
    problem(status, error.to_string())
}

impl Describe for RollbackRequest {
    const FORM: &str = "the body must be {} or {\"to\": ID}";
}
