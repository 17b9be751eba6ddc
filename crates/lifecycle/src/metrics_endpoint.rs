//! The listener for metrics: bound before a commit, started by it, and replaced if its address changes.

use std::{
    io,
    net::{SocketAddr, TcpListener},
};

use admin::settings::MetricsSettings;
use tokio::sync::watch;

use crate::hand_over::TakenSockets;

/// The metrics listener that runs. Dropping it stops the listener.
pub(crate) struct MetricsEndpoint {
    pub(crate) address: SocketAddr,
    /// A copy of the socket, for a hand-over.
    pub(crate) socket: TcpListener,
    pub(crate) _stop: watch::Sender<bool>,
}

/// What a commit does with the metrics listener.
pub(crate) enum MetricsChange {
    /// It stays as it is.
    None,
    /// This listener replaces the running one. `None` if no metrics listener is configured.
    Replace(Option<TcpListener>),
}

/// Why metrics cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("metrics.address: cannot listen on {address}: {source}")]
pub(crate) struct MetricsBindError {
    address: SocketAddr,
    source: io::Error,
}

/// Binds the configured address if it has changed, or takes the socket of the process that serves.
///
/// # Errors
/// The address cannot be bound.
pub(crate) fn bind(
    settings: &MetricsSettings,
    previous: Option<&MetricsSettings>,
    taken: &mut TakenSockets,
) -> Result<MetricsChange, MetricsBindError> {
    if previous == Some(settings) {
        return Ok(MetricsChange::None);
    }
    let Some(address) = settings.address else {
        return Ok(MetricsChange::Replace(None));
    };
    if let Some(taken) = taken.take_metrics(address) {
        return Ok(MetricsChange::Replace(Some(taken)));
    }
    let bound = TcpListener::bind(address);
    bound
        .map(|listener| MetricsChange::Replace(Some(listener)))
        .map_err(|source| MetricsBindError { address, source })
}
