//! Endpoints of the process: status, metrics, reloads, logs, traffic, and how it would handle a request.

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use telemetry::Exposition;
use utoipa::ToSchema;

use super::{
    Api,
    conditions::{Condition, EntityTag, Tagged},
    messages::{ApiError, BODY_BYTES_MAX, Describe, Document, Pretty, Problem, problem},
};
use crate::{
    AuditEntry, ConfigurationStatus, Control, ExplainError, ExplainRequest, HistoryStatus,
    LogLevelStatus, LogsReopened, OperatorAccount, QueueStatus, ReloadOutcome, ReloadResult,
    RequestExplanation, RequestsStatus, Status, Timestamp, TrafficStatus,
};

/// Maximum length of a request to explain, which can have as many header fields as a real request.
const EXPLAIN_BYTES_MAX: usize = 64 << 10;

/// Everything that the proxy knows about itself.
#[utoipa::path(get, path = "/v1/status", tag = "process", responses((status = 200, body = Status), Problem))]
pub(super) async fn status(State(api): State<Api>) -> Pretty<Status> {
    let mut status = api.control.status();
    status.rates = api.history.rates(&api.control.traffic());
    Pretty(StatusCode::OK, status)
}

/// All metrics, in the format that the scraper prefers.
#[utoipa::path(get, path = "/metrics", tag = "process",
    responses(
        (status = 200, content(
            (String = "text/plain"),
            (String = "application/openmetrics-text"),
        )),
        Problem,
    ))]
pub(super) async fn metrics(State(api): State<Api>, headers: HeaderMap) -> Response {
    metrics_response(&*api.control, &headers)
}

/// The metrics in the format that `Accept` prefers.
pub(crate) fn metrics_response(control: &dyn Control, headers: &HeaderMap) -> Response {
    let accept = headers.get_all(header::ACCEPT).iter();
    let accept: Vec<_> = accept.filter_map(|value| value.to_str().ok()).collect();
    let format = Exposition::negotiated(Some(&accept.join(",")));
    let content_type = [(header::CONTENT_TYPE, format.content_type())];
    (content_type, control.metrics(format)).into_response()
}

/// Counts of requests, refusals and limits since the proxy started.
#[utoipa::path(get, path = "/v1/traffic", tag = "process", responses((status = 200, body = TrafficStatus), Problem))]
pub(super) async fn traffic(State(api): State<Api>) -> Pretty<TrafficStatus> {
    Pretty(StatusCode::OK, api.control.traffic())
}

/// Requests by kind of work in past periods: a quarter of an hour by 10 seconds, four hours by minutes.
#[utoipa::path(get, path = "/v1/history", tag = "process", responses((status = 200, body = HistoryStatus), Problem))]
pub(super) async fn history(State(api): State<Api>) -> Pretty<HistoryStatus> {
    Pretty(StatusCode::OK, api.history.status())
}

/// Requests in flight and in queues, and the slowest requests.
#[utoipa::path(get, path = "/v1/requests", tag = "process", responses((status = 200, body = RequestsStatus), Problem))]
pub(super) async fn requests(State(api): State<Api>) -> Pretty<RequestsStatus> {
    let mut requests = api.control.requests();
    let pools = api.control.status().pools.into_iter();
    requests.queues = pools
        .filter(|pool| pool.waiting > 0)
        .map(|pool| QueueStatus {
            pool: pool.name,
            waiting: pool.waiting,
            longest_wait_milliseconds: pool.longest_wait_milliseconds,
        })
        .collect();
    Pretty(StatusCode::OK, requests)
}

/// The active configuration, and whether the files differ from it.
#[utoipa::path(get, path = "/v1/configuration", tag = "process",
    responses((status = 200, body = ConfigurationStatus, headers(("ETag" = String))), Problem))]
pub(super) async fn configuration(State(api): State<Api>) -> Tagged<ConfigurationStatus> {
    let configuration = api.control.configuration().await;
    let tag = configuration_tag(configuration.generation, &configuration.loaded_at);
    Tagged(tag, configuration)
}

/// What a reload would change; changes nothing.
#[utoipa::path(post, path = "/v1/reload/dry-run", tag = "process",
    responses(
        (status = 200, body = ReloadOutcome),
        (status = 409, body = ReloadOutcome, description = "The proxy is stopping"),
        (status = 422, body = ReloadOutcome, description = "A reload would be refused"),
        Problem,
    ))]
pub(super) async fn dry_run(State(api): State<Api>) -> Pretty<ReloadOutcome> {
    let outcome = api.control.dry_run().await;
    Pretty(reload_status(outcome.result), outcome)
}

/// Read configuration, certificates and CRLs again and apply them, or say why not.
#[utoipa::path(post, path = "/v1/reload", tag = "process",
    params(("If-Match" = Option<String>, Header, description = "ETag of GET /v1/configuration")),
    responses(
        (status = 200, body = ReloadOutcome),
        (status = 409, body = ReloadOutcome, description = "The proxy is stopping"),
        (status = 422, body = ReloadOutcome, description = "The reload was refused, or the program on disk has not taken over"),
        Problem,
    ))]
pub(super) async fn reload(
    State(api): State<Api>,
    by: OperatorAccount,
    condition: Condition,
) -> Result<Pretty<ReloadOutcome>, ApiError> {
    let _one_at_a_time = match condition.is_given() {
        true => Some(api.control.locks().generation.lock().await),
        // Reloads wait for each other anyway.
        false => None,
    };
    condition.check(&generation_tag(&api))?;
    let before = api.control.status().generation;
    let outcome = api.control.reload().await;
    let after = api.control.status().generation;
    let mut entry = AuditEntry::new(&by, "reload", json!(null)).change(&before, &after);
    entry.result = outcome.audit_result();
    api.control.audit(entry).await;
    Ok(Pretty(reload_status(outcome.result), outcome))
}

/// Open the log files again, after log rotation has renamed them.
#[utoipa::path(post, path = "/v1/reopen-logs", tag = "process", responses((status = 200, body = LogsReopened), Problem))]
pub(super) async fn reopen_logs(
    State(api): State<Api>,
    by: OperatorAccount,
    condition: Condition,
) -> Result<Pretty<LogsReopened>, ApiError> {
    condition.check_without_tag()?;
    let outcome = api.control.reopen_logs().await;
    let entry = AuditEntry::new(&by, "reopen-logs", json!(null)).result(&outcome);
    api.control.audit(entry).await;
    match outcome {
        Ok(reopened) => Ok(Pretty(StatusCode::OK, reopened)),
        Err(error) => Err(problem(
            StatusCode::INTERNAL_SERVER_ERROR,
            error.to_string(),
        )),
    }
}

/// Which events are logged.
#[utoipa::path(get, path = "/v1/log-level", tag = "process",
    responses((status = 200, body = LogLevelStatus, headers(("ETag" = String))), Problem))]
pub(super) async fn log_level(State(api): State<Api>) -> Tagged<LogLevelStatus> {
    let level = api.control.log_level();
    Tagged(EntityTag::of(&level.level), level)
}

/// Change which events are logged, until the proxy stops.
#[utoipa::path(post, path = "/v1/log-level", tag = "process", request_body = LogLevelRequest,
    params(("If-Match" = Option<String>, Header, description = "ETag of the same path")),
    responses((status = 200, body = LogLevelStatus), Problem))]
pub(super) async fn set_log_level(
    State(api): State<Api>,
    by: OperatorAccount,
    condition: Condition,
    Document(request): Document<LogLevelRequest, BODY_BYTES_MAX>,
) -> Result<Pretty<LogLevelStatus>, ApiError> {
    let _one_at_a_time = api.control.locks().log_level.lock().await;
    let before = api.control.log_level().level;
    condition.check(&EntityTag::of(&before))?;
    let outcome = api.control.set_log_level(&request.level, by.clone());
    let after = api.control.log_level().level;
    let entry = AuditEntry::new(&by, "log-level", json!(request.level)).change(&before, &after);
    api.control.audit(entry.result(&outcome)).await;
    match outcome {
        Ok(status) => Ok(Pretty(StatusCode::OK, status)),
        Err(error) => Err(problem(StatusCode::UNPROCESSABLE_ENTITY, error.to_string())),
    }
}

/// How the running proxy would handle a request, with its members' health and queues now.
#[utoipa::path(post, path = "/v1/explain", tag = "process", request_body = ExplainRequest,
    responses((status = 200, body = RequestExplanation), Problem))]
pub(super) async fn explain(
    State(api): State<Api>,
    Document(request): Document<ExplainRequest, EXPLAIN_BYTES_MAX>,
) -> Result<Pretty<RequestExplanation>, ApiError> {
    let explained = api.control.explain(request).await.map_err(|error| {
        let status = match error {
            ExplainError::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        };
        problem(status, error.to_string())
    })?;
    Ok(Pretty(StatusCode::OK, explained))
}

/// Body of `POST /v1/log-level`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogLevelRequest {
    /// `error`, `warn`, `info`, `debug` or `trace`, or a list by part (`info,proxy=debug`).
    pub(crate) level: String,
}

fn generation_tag(api: &Api) -> EntityTag {
    let generation = api.control.status().generation;
    configuration_tag(generation.number, &generation.loaded_at)
}

fn configuration_tag(generation: u64, loaded_at: &Timestamp) -> EntityTag {
    EntityTag::of(&(generation, loaded_at))
}

/// The status code that shows a reload's result without the body.
pub(super) fn reload_status(result: ReloadResult) -> StatusCode {
    match result {
        ReloadResult::Applied | ReloadResult::Unchanged | ReloadResult::HandedOver => {
            StatusCode::OK
        }
        ReloadResult::Refused | ReloadResult::Failed => StatusCode::UNPROCESSABLE_ENTITY,
        ReloadResult::Stopping => StatusCode::CONFLICT,
    }
}

impl Describe for LogLevelRequest {
    const FORM: &str = "the body must be {\"level\": LEVEL}";
}

impl Describe for ExplainRequest {
    const FORM: &str = "the body must be {\"method\": METHOD, \"url\": URL}, optionally with \"headers\": [{\"name\": NAME, \"value\": VALUE}], \
        \"certname\": NAME, \"issuer\": DN, \"extensions\": [the same], \"source\": ADDRESS, \"sni\": NAME";
}
