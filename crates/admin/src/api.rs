//! One admin request: from path and method to a response.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use telemetry::Exposition;
use tokio::time::timeout;

use crate::{
    BlockError, BlockOutcome, Caller, Control, CrlAcceptError, CrlAcceptRequest, CrlFetchResult,
    MemberSelection, MemberStateError, MemberStateRequest, ReloadResult,
};

/// Handles one request.
pub(crate) async fn answer(
    control: &dyn Control,
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    let Some(endpoint) = Endpoint::find(request.uri().path()) else {
        return problem(StatusCode::NOT_FOUND, NOT_FOUND);
    };
    if !endpoint.allows(request.method()) {
        return wrong_method(&endpoint, request.method());
    }
    match endpoint {
        Endpoint::Status => json(StatusCode::OK, &control.status()),
        Endpoint::Metrics => metrics(control, &request),
        Endpoint::Reload => {
            let outcome = control.reload().await;
            json(reload_status(outcome.result), &outcome)
        }
        Endpoint::ReopenLogs => match control.reopen_logs().await {
            Ok(reopened) => json(StatusCode::OK, &reopened),
            Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        },
        Endpoint::LogLevel if request.method() != Method::POST => {
            json(StatusCode::OK, &control.log_level())
        }
        Endpoint::LogLevel => set_log_level(control, request).await,
        Endpoint::Member { pool, member } if request.method() != Method::POST => {
            match control.member(&pool, &member) {
                Ok(member) => json(StatusCode::OK, &member),
                Err(error) => member_problem(&error),
            }
        }
        Endpoint::Member { pool, member } => set_state(control, pool, member, request).await,
        Endpoint::MemberStates => {
            let by = caller(&request);
            match body(request, STATES_WANTED, BODY_BYTES_MAX).await {
                Ok(request) => match control.set_member_states(request, by).await {
                    Ok(outcome) => json(StatusCode::OK, &outcome),
                    Err(error) => member_problem(&error),
                },
                Err(problem) => problem,
            }
        }
        Endpoint::Blocks if request.method() != Method::POST => {
            json(StatusCode::OK, &control.blocks())
        }
        Endpoint::Blocks => {
            let by = caller(&request);
            match body(request, BLOCK_WANTED, BODY_BYTES_MAX).await {
                Ok(request) => changed(control.block(request, by).await),
                Err(problem) => problem,
            }
        }
        Endpoint::Agents => json(StatusCode::OK, &control.agents()),
        Endpoint::Refusals => json(StatusCode::OK, &control.refusals()),
        Endpoint::Who => match body(request, WHO_WANTED, CERTIFICATES_BYTES_MAX).await {
            Ok(request) => match control.who(request).await {
                Ok(changed) => json(StatusCode::OK, &changed),
                Err(error) => problem(StatusCode::UNPROCESSABLE_ENTITY, &error.to_string()),
            },
            Err(problem) => problem,
        },
        Endpoint::FetchCrls => {
            let outcome = control.fetch_crls().await;
            json(fetch_status(outcome.result), &outcome)
        }
        Endpoint::AcceptCrl => {
            let by = caller(&request);
            match body(request, ACCEPT_WANTED, BODY_BYTES_MAX).await {
                Ok(request) => accepted(control, request, by).await,
                Err(problem) => problem,
            }
        }
        Endpoint::Lift => {
            let by = caller(&request);
            match body(request, BLOCKED_WANTED, BODY_BYTES_MAX).await {
                Ok(blocked) => changed(control.unblock(blocked, by).await),
                Err(problem) => problem,
            }
        }
    }
}

/// All metrics, in the format that the scraper prefers.
fn metrics(control: &dyn Control, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let accept = request.headers().get_all(header::ACCEPT).iter();
    let accept: Vec<_> = accept.filter_map(|value| value.to_str().ok()).collect();
    let format = Exposition::negotiated(Some(&accept.join(",")));
    respond(
        StatusCode::OK,
        format.content_type(),
        control.metrics(format),
    )
}

fn caller(request: &Request<Incoming>) -> Caller {
    let known = request.extensions().get::<Caller>();
    known.copied().unwrap_or(Caller { uid: None })
}

fn changed(outcome: Result<BlockOutcome, BlockError>) -> Response<Full<Bytes>> {
    match outcome {
        Ok(outcome) => json(StatusCode::OK, &outcome),
        Err(error) => {
            let status = match error {
                BlockError::Senseless(_) => StatusCode::UNPROCESSABLE_ENTITY,
                BlockError::NotBlocked(_) => StatusCode::NOT_FOUND,
                BlockError::Stopping => StatusCode::CONFLICT,
            };
            problem(status, &error.to_string())
        }
    }
}

/// A response that says in one sentence what is wrong.
pub(crate) fn problem(status: StatusCode, error: &str) -> Response<Full<Bytes>> {
    json(
        status,
        &Problem {
            error: error.to_owned(),
        },
    )
}

/// The status code that shows a reload's result without the body.
pub(crate) fn reload_status(result: ReloadResult) -> StatusCode {
    match result {
        ReloadResult::Applied | ReloadResult::Unchanged => StatusCode::OK,
        ReloadResult::Refused => StatusCode::UNPROCESSABLE_ENTITY,
        ReloadResult::Stopping => StatusCode::CONFLICT,
    }
}

/// The status code that shows a fetch's result without the body.
pub(crate) fn fetch_status(result: CrlFetchResult) -> StatusCode {
    match result {
        CrlFetchResult::Applied | CrlFetchResult::Unchanged => StatusCode::OK,
        CrlFetchResult::Refused => StatusCode::UNPROCESSABLE_ENTITY,
        CrlFetchResult::Failed => StatusCode::BAD_GATEWAY,
        CrlFetchResult::Off => StatusCode::CONFLICT,
    }
}

async fn accepted(
    control: &dyn Control,
    request: CrlAcceptRequest,
    by: Caller,
) -> Response<Full<Bytes>> {
    match control.accept_crl(request, by).await {
        Ok(accepted) => json(StatusCode::OK, &accepted),
        Err(error) => {
            let status = match error {
                CrlAcceptError::Senseless(_) => StatusCode::UNPROCESSABLE_ENTITY,
                CrlAcceptError::NotRefused { .. } => StatusCode::NOT_FOUND,
                CrlAcceptError::Changed(_) | CrlAcceptError::Stopping => StatusCode::CONFLICT,
            };
            problem(status, &error.to_string())
        }
    }
}

/// Body of `POST /v1/log-level`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogLevelRequest {
    pub(crate) level: String,
}

/// Body of every refusal, except for reloads.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Problem {
    pub(crate) error: String,
}

#[derive(Debug, PartialEq, Eq)]
enum Endpoint {
    Status,
    Metrics,
    Reload,
    ReopenLogs,
    LogLevel,
    Blocks,
    Lift,
    Agents,
    Refusals,
    Who,
    FetchCrls,
    AcceptCrl,
    MemberStates,
    Member { pool: String, member: String },
}

impl Endpoint {
    fn find(path: &str) -> Option<Self> {
        Some(match path {
            "/v1/status" => Self::Status,
            "/metrics" => Self::Metrics,
            "/v1/reload" => Self::Reload,
            "/v1/reopen-logs" => Self::ReopenLogs,
            "/v1/log-level" => Self::LogLevel,
            "/v1/blocks" => Self::Blocks,
            "/v1/blocks/lift" => Self::Lift,
            "/v1/agents" => Self::Agents,
            "/v1/refusals" => Self::Refusals,
            "/v1/who" => Self::Who,
            "/v1/crl/fetch" => Self::FetchCrls,
            "/v1/crl/accept" => Self::AcceptCrl,
            "/v1/members/state" => Self::MemberStates,
            _ => {
                let (pool, rest) = path.strip_prefix("/v1/pools/")?.split_once('/')?;
                let member = rest.strip_prefix("members/")?;
                if pool.is_empty() || member.is_empty() || member.contains('/') {
                    return None;
                }
                Self::Member {
                    pool: decoded(pool)?,
                    member: decoded(member)?,
                }
            }
        })
    }

    fn allows(&self, method: &Method) -> bool {
        match self {
            // hyper leaves the body out of responses to HEAD.
            Self::Status | Self::Metrics | Self::Agents | Self::Refusals => {
                method == Method::GET || method == Method::HEAD
            }
            Self::Blocks | Self::LogLevel | Self::Member { .. } => {
                [Method::GET, Method::HEAD, Method::POST].contains(method)
            }
            Self::Reload
            | Self::ReopenLogs
            | Self::Lift
            | Self::Who
            | Self::FetchCrls
            | Self::AcceptCrl
            | Self::MemberStates => method == Method::POST,
        }
    }

    fn allow(&self) -> &'static str {
        match self {
            Self::Status | Self::Metrics | Self::Agents | Self::Refusals => "GET, HEAD",
            Self::Blocks | Self::LogLevel | Self::Member { .. } => "GET, HEAD, POST",
            Self::Reload
            | Self::ReopenLogs
            | Self::Lift
            | Self::Who
            | Self::FetchCrls
            | Self::AcceptCrl
            | Self::MemberStates => "POST",
        }
    }
}

async fn set_log_level(control: &dyn Control, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let by = caller(&request);
    let LogLevelRequest { level } = match body(request, LEVEL_WANTED, BODY_BYTES_MAX).await {
        Ok(request) => request,
        Err(problem) => return problem,
    };
    match control.set_log_level(&level, by) {
        Ok(status) => json(StatusCode::OK, &status),
        Err(error) => problem(StatusCode::UNPROCESSABLE_ENTITY, &error.to_string()),
    }
}

async fn set_state(
    control: &dyn Control,
    pool: String,
    member: String,
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    let by = caller(&request);
    let change = match body(request, STATE_WANTED, BODY_BYTES_MAX).await {
        Ok(change) => change,
        Err(problem) => return problem,
    };
    let members = MemberSelection {
        pool: Some(pool),
        member: Some(member),
        host: None,
    };
    let request = MemberStateRequest { members, change };
    match control.set_member_states(request, by).await {
        Ok(outcome) => json(
            StatusCode::OK,
            &outcome.members.first().map(|one| &one.member),
        ),
        Err(error) => member_problem(&error),
    }
}

fn member_problem(error: &MemberStateError) -> Response<Full<Bytes>> {
    let status = match error {
        MemberStateError::UnknownPool { .. }
        | MemberStateError::UnknownMember { .. }
        | MemberStateError::UnknownAnywhere { .. }
        | MemberStateError::UnknownHost { .. } => StatusCode::NOT_FOUND,
        MemberStateError::LastAvailable { .. } => StatusCode::CONFLICT,
        MemberStateError::Ambiguous { .. } | MemberStateError::Invalid(_) => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
    };
    problem(status, &error.to_string())
}

/// The body of a request as JSON, or the answer that says what was `wanted`.
async fn body<T: DeserializeOwned>(
    request: Request<Incoming>,
    wanted: &str,
    bytes_max: usize,
) -> Result<T, Response<Full<Bytes>>> {
    let body = Limited::new(request.into_body(), bytes_max).collect();
    let body = match timeout(BODY_TIMEOUT, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            return Err(problem(StatusCode::PAYLOAD_TOO_LARGE, wanted));
        }
        Ok(Err(_)) => return Err(problem(StatusCode::BAD_REQUEST, wanted)),
        Err(_) => {
            let late = "the request body did not arrive in time";
            return Err(problem(StatusCode::REQUEST_TIMEOUT, late));
        }
    };
    serde_json::from_slice(&body)
        .map_err(|error| problem(StatusCode::BAD_REQUEST, &format!("{wanted}: {error}")))
}

fn wrong_method(endpoint: &Endpoint, method: &Method) -> Response<Full<Bytes>> {
    let allow = endpoint.allow();
    let sentence = format!("{method} is not supported here: use {allow}");
    let mut response = problem(StatusCode::METHOD_NOT_ALLOWED, &sentence);
    response
        .headers_mut()
        .insert(header::ALLOW, HeaderValue::from_static(allow));
    response
}

fn json(status: StatusCode, value: &impl Serialize) -> Response<Full<Bytes>> {
    // Pretty, because the reader at a socket is often a person with curl.
    match serde_json::to_string_pretty(value) {
        Ok(text) => respond(status, JSON, text + "\n"),
        Err(error) => respond(
            StatusCode::INTERNAL_SERVER_ERROR,
            "text/plain; charset=utf-8",
            error.to_string(),
        ),
    }
}

fn respond(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn decoded(segment: &str) -> Option<String> {
    let text = percent_decode_str(segment).decode_utf8().ok()?;
    Some(text.into_owned())
}

/// Maximum length of a request body: a block with its reason and the longest name has under 2 KiB.
const BODY_BYTES_MAX: usize = 4 << 10;
/// Maximum length of a certificate in a request, with the CAs above it.
const CERTIFICATES_BYTES_MAX: usize = 64 << 10;
/// Time allowed for it.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

const JSON: &str = "application/json";
const STATE_WANTED: &str = "the body must be {\"state\": \"ready\" | \"drain\" | \"maintenance\"}, optionally with \
     \"why\": TEXT, \"until\": TIME, \"force\": true";
const STATES_WANTED: &str = "the body must be {\"members\": {\"pool\": NAME, \"member\": ADDRESS} | \
     {\"member\": ADDRESS} | {\"host\": NAME}, \"state\": \"ready\" | \"drain\" | \"maintenance\"}, optionally with \
     \"why\": TEXT, \"until\": TIME, \"force\": true";
const LEVEL_WANTED: &str = "the body must be {\"level\": LEVEL}";
const BLOCK_WANTED: &str = "the body must be {\"blocked\": {\"certname\": NAME} | {\"serial\": HEX, \"issuer\": DN} | \
     {\"fingerprint\": HEX}, \"why\": TEXT, \"until\": TIME or nothing}";
const WHO_WANTED: &str = "the body must be {\"certname\": NAME} | {\"serial\": HEX, \"issuer\": DN} | \
     {\"certificate\": PEM}";
const BLOCKED_WANTED: &str = "the body must be {\"certname\": NAME} | {\"serial\": HEX, \"issuer\": DN} | {\"fingerprint\": HEX}";
const ACCEPT_WANTED: &str = "the body must be {\"issuer\": DN, \"why\": TEXT}";
const NOT_FOUND: &str = "no such endpoint; the endpoints are GET /v1/status, GET /metrics, \
     POST /v1/reload, POST /v1/reopen-logs, GET and POST /v1/log-level, GET and POST /v1/blocks, POST /v1/blocks/lift, GET /v1/agents, GET /v1/refusals, POST /v1/who, POST /v1/crl/fetch, \
     POST /v1/crl/accept, POST /v1/members/state, GET and POST /v1/pools/{pool}/members/{member} (percent-encode / in names)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_endpoints_by_their_exact_spelling() {
        let member = |pool: &str, member: &str| {
            Some(Endpoint::Member {
                pool: pool.to_owned(),
                member: member.to_owned(),
            })
        };
        for (path, expected) in [
            ("/v1/status", Some(Endpoint::Status)),
            ("/metrics", Some(Endpoint::Metrics)),
            ("/v1/reload", Some(Endpoint::Reload)),
            ("/v1/reopen-logs", Some(Endpoint::ReopenLogs)),
            ("/v1/log-level", Some(Endpoint::LogLevel)),
            ("/v1/agents", Some(Endpoint::Agents)),
            ("/v1/refusals", Some(Endpoint::Refusals)),
            ("/v1/who", Some(Endpoint::Who)),
            ("/v1/blocks", Some(Endpoint::Blocks)),
            ("/v1/blocks/lift", Some(Endpoint::Lift)),
            ("/v1/crl/fetch", Some(Endpoint::FetchCrls)),
            ("/v1/crl/accept", Some(Endpoint::AcceptCrl)),
            ("/v1/crl", None),
            ("/v1/members/state", Some(Endpoint::MemberStates)),
            ("/v1/members", None),
            ("/v1/pools/ca/members/ca:8140", member("ca", "ca:8140")),
            (
                "/v1/pools/a%20b/members/unix:%2Frun%2Fc.sock",
                member("a b", "unix:/run/c.sock"),
            ),
            ("/v1/pools/ca/members/", None),
            ("/v1/pools//members/x", None),
            ("/v1/pools/ca/members/a/b", None),
            ("/v1/pools/ca/members/%FF", None),
            ("/v1/status/", None),
            ("/V1/status", None),
            ("/", None),
        ] {
            assert_eq!(Endpoint::find(path), expected, "{path}");
        }
    }
}
