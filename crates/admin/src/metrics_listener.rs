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

use crate::{Control, ProcessPhase, Status, api::metrics_response, http_listener::serve_http};

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
    match unready(&control.status()) {
        None => (StatusCode::OK, "ready\n").into_response(),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, why).into_response(),
    }
}

/// Why a load balancer should send agents to another proxy.
fn unready(status: &Status) -> Option<&'static str> {
    let is_down = |name: &str| {
        let mut pools = status.pools.iter();
        pools.any(|pool| pool.name == name && pool.available == 0)
    };
    match status.phase {
        ProcessPhase::Starting => Some("starting\n"),
        ProcessPhase::Draining => Some("draining\n"),
        // Without compilers an agent's run fails. Without a CA server only enrolment fails, here as at another proxy.
        ProcessPhase::Serving if is_down("compilers") => Some("no compiler is available\n"),
        ProcessPhase::Serving => {
            let mut fleet = status.fleet.iter();
            fleet
                .any(|fleet| fleet.is_starting)
                .then_some("waiting for the records of the fleet\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FleetStatus, tests::samples::status};

    #[test]
    fn a_proxy_is_ready_while_it_serves_and_a_compiler_is_available() {
        let mut status = status();
        assert_eq!(unready(&status), None);
        status.pools[0].available = 0;
        assert_eq!(unready(&status), Some("no compiler is available\n"));
        status.pools[0].name = "files".to_owned();
        assert_eq!(unready(&status), None);
        status.fleet = Some(FleetStatus {
            is_starting: true,
            ..FleetStatus::default()
        });
        let waiting = Some("waiting for the records of the fleet\n");
        assert_eq!(unready(&status), waiting);
        status.fleet = Some(FleetStatus::default());
        assert_eq!(unready(&status), None);
        status.phase = ProcessPhase::Draining;
        assert_eq!(unready(&status), Some("draining\n"));
        status.phase = ProcessPhase::Starting;
        assert_eq!(unready(&status), Some("starting\n"));
    }
}
