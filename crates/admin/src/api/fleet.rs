//! The endpoint of the fleet.

use axum::{extract::State, http::StatusCode};

use super::{
    Api,
    messages::{ApiError, Pretty, Problem, problem},
};
use crate::FleetStatus;

/// The proxies that share drains and blocks with this one, and in what they differ. 404 without `[fleet]`.
#[utoipa::path(get, path = "/v1/fleet", tag = "fleet", responses((status = 200, body = FleetStatus), Problem))]
pub(super) async fn fleet(State(api): State<Api>) -> Result<Pretty<FleetStatus>, ApiError> {
    match api.control.status().fleet {
        Some(fleet) => Ok(Pretty(StatusCode::OK, fleet)),
        None => Err(problem(
            StatusCode::NOT_FOUND,
            "this proxy is not part of a fleet: its configuration has no [fleet]",
        )),
    }
}
