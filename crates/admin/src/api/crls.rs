//! Endpoints of CRLs.

use axum::{extract::State, http::StatusCode};
use serde_json::json;

use super::{
    Api,
    conditions::Condition,
    messages::{ApiError, BODY_BYTES_MAX, Describe, Document, Pretty, Problem, problem},
};
use crate::{
    AuditEntry, CrlAcceptError, CrlAcceptRequest, CrlAccepted, CrlFetchOutcome, CrlFetchResult,
    OperatorAccount,
};

/// Fetch all CRLs from the CA and activate newer ones.
#[utoipa::path(post, path = "/v1/crl/fetch", tag = "crl",
    responses(
        (status = 200, body = CrlFetchOutcome),
        (status = 409, body = CrlFetchOutcome, description = "Fetching is off"),
        (status = 422, body = CrlFetchOutcome, description = "A CRL drops revocations, which stay active"),
        (status = 502, body = CrlFetchOutcome, description = "No CA server provided the CRLs"),
        Problem,
    ))]
pub(super) async fn fetch(
    State(api): State<Api>,
    by: OperatorAccount,
    condition: Condition,
) -> Result<Pretty<CrlFetchOutcome>, ApiError> {
    condition.check_without_tag()?;
    let outcome = api.control.fetch_crls().await;
    let status = match outcome.result {
        CrlFetchResult::Applied | CrlFetchResult::Unchanged => StatusCode::OK,
        CrlFetchResult::Shrunk => StatusCode::UNPROCESSABLE_ENTITY,
        CrlFetchResult::Failed => StatusCode::BAD_GATEWAY,
        CrlFetchResult::Off => StatusCode::CONFLICT,
    };
    let mut entry = AuditEntry::new(&by, "fetch-crls", json!(null));
    entry.result = outcome.result.to_string();
    api.control.audit(entry).await;
    Ok(Pretty(status, outcome))
}

/// Accept that a CRL drops revocations.
#[utoipa::path(post, path = "/v1/crl/accept", tag = "crl", request_body = CrlAcceptRequest,
    responses((status = 200, body = CrlAccepted), Problem))]
pub(super) async fn accept(
    State(api): State<Api>,
    by: OperatorAccount,
    condition: Condition,
    Document(request): Document<CrlAcceptRequest, BODY_BYTES_MAX>,
) -> Result<Pretty<CrlAccepted>, ApiError> {
    condition.check_without_tag()?;
    let (subject, why) = (json!({"issuer": request.issuer}), request.why.clone());
    let outcome = api.control.accept_crl(request, by.clone()).await;
    let accepted = outcome.as_ref().ok().map(|outcome| &outcome.accepted);
    let entry = AuditEntry::new(&by, "accept-crl", subject).why(&why);
    let entry = entry.change(&None::<()>, &accepted);
    api.control.audit(entry.result(&outcome)).await;
    outcome
        .map(|outcome| Pretty(StatusCode::OK, outcome))
        .map_err(|error| {
            let status = match error {
                CrlAcceptError::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
                CrlAcceptError::NotShrunk { .. } => StatusCode::NOT_FOUND,
                CrlAcceptError::Changed(_) | CrlAcceptError::Stopping => StatusCode::CONFLICT,
                CrlAcceptError::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            };
            problem(status, error.to_string())
        })
}

impl Describe for CrlAcceptRequest {
    const FORM: &str =
        "the body must be {\"issuer\": DN, \"number\": TEXT, \"missing\": NUMBER, \"why\": TEXT}";
}
