//! Endpoints of clients: agents seen, refused clients, what is known about one, and certificates that expire.

use std::time::{Duration, SystemTime};

use axum::{extract::State, http::StatusCode};

use super::{
    Api,
    messages::{ApiError, CERTIFICATES_BYTES_MAX, Describe, Document, Pretty, Problem, problem},
};
use crate::{AgentsStatus, CertificatesStatus, RefusalsStatus, WhoError, WhoRequest, WhoStatus};

/// How far ahead `GET /v1/certificates` looks.
const EXPIRES_WITHIN: Duration = Duration::from_secs(60 * 86_400);
/// How far ahead `GET /v1/certificates` looks for CAs: as far as the alarm `ca-expiring`.
const CA_EXPIRES_WITHIN: Duration = Duration::from_secs(90 * 86_400);

/// Agents seen since the proxy started; the one whose certificate expires first comes first.
#[utoipa::path(get, path = "/v1/agents", tag = "agents", responses((status = 200, body = AgentsStatus), Problem))]
pub(super) async fn agents(State(api): State<Api>) -> Pretty<AgentsStatus> {
    Pretty(StatusCode::OK, api.control.agents())
}

/// Clients refused since the proxy started, the latest refusal first.
#[utoipa::path(get, path = "/v1/refusals", tag = "agents", responses((status = 200, body = RefusalsStatus), Problem))]
pub(super) async fn refusals(State(api): State<Api>) -> Pretty<RefusalsStatus> {
    Pretty(StatusCode::OK, api.control.refusals())
}

/// Certificates that expire within 60 days: the proxy's own and those of agents seen. CAs that expire within 90 days.
#[utoipa::path(get, path = "/v1/certificates", tag = "agents",
    responses((status = 200, body = CertificatesStatus), Problem))]
pub(super) async fn certificates(State(api): State<Api>) -> Pretty<CertificatesStatus> {
    let now = SystemTime::now();
    let expires = |not_after: &crate::Timestamp, within| {
        not_after.instant().is_some_and(|at| at <= now + within)
    };
    let status = api.control.status();
    let (mut cas, mut proxy) = (status.trust.cas, status.certificates);
    cas.retain(|ca| !ca.is_superseded && expires(&ca.not_after, CA_EXPIRES_WITHIN));
    proxy.retain(|certificate| expires(&certificate.not_after, EXPIRES_WITHIN));
    let mut agents = api.control.agents().agents;
    agents.retain(|agent| expires(&agent.certificate.not_after, EXPIRES_WITHIN));
    Pretty(StatusCode::OK, CertificatesStatus { cas, proxy, agents })
}

/// What the proxy knows about an agent or a certificate, and how it would decide now.
#[utoipa::path(post, path = "/v1/who", tag = "agents", request_body = WhoRequest,
    responses((status = 200, body = WhoStatus), Problem))]
pub(super) async fn who(
    State(api): State<Api>,
    Document(request): Document<WhoRequest, CERTIFICATES_BYTES_MAX>,
) -> Result<Pretty<WhoStatus>, ApiError> {
    match api.control.who(request).await {
        Ok(status) => Ok(Pretty(StatusCode::OK, status)),
        Err(error) => {
            let status = match error {
                WhoError::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
                WhoError::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            };
            Err(problem(status, error.to_string()))
        }
    }
}

impl Describe for WhoRequest {
    const FORM: &str = "the body must be {\"certname\": NAME} | {\"serial\": HEX, \"issuer\": DN} | {\"certificate\": PEM}";
}
