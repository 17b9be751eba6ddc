//! The checks of every request: the printed address in `Host` and `Origin`, and the secret. Also the headers of every response.

use std::sync::{Arc, PoisonError};

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde_json::json;
use tokio::time::Instant;

use super::Page;

/// The header that has the secret. A page of another origin cannot send it without permission, which is never given.
pub(super) const SECRET: HeaderName = HeaderName::from_static("x-proscenium-secret");

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// Headers of every response.
const HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::CACHE_CONTROL, "no-store"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// Adds the headers to a response, whatever its status.
pub(super) async fn add_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in HEADERS {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Refuses a request that a page of another origin caused, or whose host name was made to resolve to this address (DNS
/// rebinding).
pub(super) async fn check_address(
    State(page): State<Arc<Page>>,
    request: Request,
    next: Next,
) -> Response {
    let host = page.address.to_string();
    let origin = format!("http://{host}");
    let headers = request.headers();
    let is_addressed = only(headers, header::HOST) == Some(host.as_bytes())
        && (!headers.contains_key(header::ORIGIN)
            || only(headers, header::ORIGIN) == Some(origin.as_bytes()));
    if is_addressed {
        return next.run(request).await;
    }
    problem(
        StatusCode::FORBIDDEN,
        &format!(
            "this page has the address {origin}: use exactly that; through ssh, forward the same port with -L {}:{host}",
            page.address.port()
        ),
    )
}

/// The value of a field that occurs once.
fn only(headers: &HeaderMap, name: HeaderName) -> Option<&[u8]> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => Some(value.as_bytes()),
        _ => None,
    }
}

/// Refuses a request without the secret. A request with the secret extends the time until the idle page ends.
pub(super) async fn check_secret(
    State(page): State<Arc<Page>>,
    request: Request,
    next: Next,
) -> Response {
    let secret = request.headers().get(SECRET);
    let secret = secret.and_then(|secret| secret.to_str().ok());
    let is_valid = secret.is_some_and(|secret| {
        let session = page.session.lock().unwrap_or_else(PoisonError::into_inner);
        session.is_valid(secret)
    });
    if !is_valid {
        return problem(
            StatusCode::UNAUTHORIZED,
            "this page is not the one that was opened last: press Enter in the terminal of `proscenium ui`, or run it \
             again, and open the new address",
        );
    }
    page.used.send_replace(Instant::now());
    next.run(request).await
}

/// Refuses a change if the page may only show the proxy.
pub(super) async fn check_actions(
    State(page): State<Arc<Page>>,
    request: Request,
    next: Next,
) -> Response {
    if page.actions {
        next.run(request).await
    } else {
        problem(
            StatusCode::FORBIDDEN,
            "this page only shows: run `proscenium ui --actions` to change the proxy from it",
        )
    }
}

/// A refusal as problem details (RFC 9457), as the admin API gives them.
pub(super) fn problem(status: StatusCode, detail: &str) -> Response {
    let body = json!({
        "type": "about:blank",
        "title": status.canonical_reason().unwrap_or("Error"),
        "status": status.as_u16(),
        "detail": detail,
    });
    let content_type = [(header::CONTENT_TYPE, "application/problem+json")];
    (status, content_type, Body::from(body.to_string())).into_response()
}
