//! The listener for metrics: plain HTTP on a TCP address, for Prometheus and load balancers.

use std::{io, net::TcpListener as StdListener, sync::Arc};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::sync::watch;

use crate::{Control, api::metrics_response, http_listener::serve_http};

/// Maximum number of connections. A scraper and a load balancer have a few.
const CONNECTIONS_MAX: usize = 64;

/// Serves `GET /metrics`, `GET /ready` and `GET /live` until `stop` becomes true or its sender is dropped.
///
/// Needs a tokio runtime with IO and time; one thread is enough.
///
/// # Errors
/// The socket cannot be registered with the runtime.
pub async fn serve_metrics(
    listener: StdListener,
    control: Arc<dyn Control>,
    stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let endpoints = Router::new()
        .route("/metrics", get(metrics))
        .route("/ready", get(ready))
        .route("/live", get(|| async { "live\n" }))
        .with_state(control);
    serve_http(listener, endpoints, CONNECTIONS_MAX, stop).await
}

async fn metrics(State(control): State<Arc<dyn Control>>, headers: HeaderMap) -> Response {
    metrics_response(&*control, &headers)
}

async fn ready(State(control): State<Arc<dyn Control>>) -> Response {
    match control.unready() {
        None => (StatusCode::OK, "ready\n").into_response(),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}
