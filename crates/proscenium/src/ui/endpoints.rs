//! The endpoints of the page: its files, the exchange of the token, and the parts of the admin API that it may use.

use std::sync::{Arc, PoisonError};

use admin::AdminClientError;
use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::{StatusCode, header},
    middleware::{from_fn, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;

use super::{
    Page, actions, agents, files,
    guard::{add_headers, check_actions, check_address, check_secret, problem},
};

/// What the page may read, with its path in the admin API. Nothing else is relayed.
const READS: &[(&str, &str)] = &[
    ("/api/status", "/v1/status"),
    ("/api/traffic", "/v1/traffic"),
    ("/api/history", "/v1/history"),
    ("/api/requests", "/v1/requests"),
    ("/api/refusals", "/v1/refusals"),
    ("/api/certificates", "/v1/certificates"),
    ("/api/blocks", "/v1/blocks"),
    ("/api/events", "/v1/events/history?limit=50"),
];

/// Maximum length of a request body.
const BODY_BYTES_MAX: usize = 8 << 10;

/// Everything that the page's address serves.
pub(super) fn router(page: &Arc<Page>) -> Router {
    let reads = READS.iter().fold(Router::new(), |router, (path, target)| {
        router.route(
            path,
            get(move |State(page): State<Arc<Page>>| async move { read(&page, target).await }),
        )
    });
    let reads = reads
        .route("/api/agents", post(agents::search))
        .route("/api/who", post(agents::who))
        .route("/api/runs", post(agents::runs));
    let changes = Router::new()
        .route("/api/member", post(actions::set_member))
        .route("/api/block", post(actions::block))
        .route("/api/unblock", post(actions::unblock))
        .route_layer(from_fn_with_state(Arc::clone(page), check_actions));
    let with_secret = reads
        .merge(changes)
        .route_layer(from_fn_with_state(Arc::clone(page), check_secret));
    files::router()
        .route("/session", post(session))
        .merge(with_secret)
        .fallback(|| async { problem(StatusCode::NOT_FOUND, "the page has no such path") })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn_with_state(Arc::clone(page), check_address))
        .layer(from_fn(add_headers))
        .with_state(Arc::clone(page))
}

/// Gives the page the secret for its token.
async fn session(State(page): State<Arc<Page>>, token: String) -> Response {
    let exchanged = {
        let mut session = page.session.lock().unwrap_or_else(PoisonError::into_inner);
        session.exchange(&token)
    };
    match exchanged {
        Ok(Some(secret)) => json_response(&json!({"secret": secret, "actions": page.actions})),
        Ok(None) => problem(
            StatusCode::UNAUTHORIZED,
            "this address was used already: press Enter in the terminal of `proscenium ui`, or run it again, and open \
             the new address",
        ),
        Err(_) => problem(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the system provides no random numbers",
        ),
    }
}

async fn read(page: &Page, target: &str) -> Response {
    match page.client.text(target).await {
        Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => failed(&error),
    }
}

/// The result of a request to the proxy.
pub(super) fn answer<T: Serialize>(answer: Result<T, AdminClientError>) -> Response {
    match answer {
        Ok(answer) => json_response(&answer),
        Err(error) => failed(&error),
    }
}

/// The refusal of the proxy, or 502 if it does not answer.
fn failed(error: &AdminClientError) -> Response {
    match error {
        AdminClientError::Refused { status, sentence } => problem(*status, sentence),
        _ => problem(StatusCode::BAD_GATEWAY, &error.to_string()),
    }
}

pub(super) fn json_response(value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// A request body in JSON.
pub(super) fn document<T: DeserializeOwned>(body: &Bytes) -> Result<T, Box<Response>> {
    serde_json::from_slice(body).map_err(|error| {
        let detail = format!("the request body is invalid: {error}");
        Box::new(problem(StatusCode::BAD_REQUEST, &detail))
    })
}
