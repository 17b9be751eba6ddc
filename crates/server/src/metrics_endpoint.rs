//! The listener for metrics: bound before a commit, started by it, and replaced if its address changes.

use std::{
    io,
    net::{SocketAddr, TcpListener},
};

use admin::settings::MetricsSettings;
use tokio::sync::watch;

/// The metrics listener that runs. Dropping it stops the listener.
pub(crate) struct MetricsEndpoint {
    pub(crate) address: SocketAddr,
    pub(crate) _stop: watch::Sender<bool>,
}

/// What a commit does with the metrics listener.
pub(crate) enum MetricsChange {
    /// It stays as it is.
    None,
    /// This one takes its place; `None`: no metrics listener is configured.
    Replace(Option<TcpListener>),
}

/// Why metrics cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("metrics.address: cannot listen on {address}: {source}")]
pub(crate) struct MetricsBindError {
    address: SocketAddr,
    source: io::Error,
}

/// Binds the configured address if it is not the one before.
///
/// # Errors
/// The address cannot be bound.
pub(crate) fn bind(
    settings: &MetricsSettings,
    previous: Option<&MetricsSettings>,
) -> Result<MetricsChange, MetricsBindError> {
    if previous == Some(settings) {
        return Ok(MetricsChange::None);
    }
    let Some(address) = settings.address else {
        return Ok(MetricsChange::Replace(None));
    };
    let bound = TcpListener::bind(address);
    bound
        .map(|listener| MetricsChange::Replace(Some(listener)))
        .map_err(|source| MetricsBindError { address, source })
}
