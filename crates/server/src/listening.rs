//! The listening sockets of one endpoint of a listener: of a TCP port one for each worker, of a Unix socket one that all
//! workers share.

use std::{io, net::SocketAddr, path::Path};

use listener::{BindError, ListenAddress, ListenEndpoint, ListenerSettings, ListeningSocket};

use crate::{materials::files, socket_file::SocketFile};

/// An endpoint that is bound.
pub(crate) struct Bound {
    /// As configured: what says whether a socket is kept.
    pub(crate) endpoint: ListenEndpoint,
    /// With the port that was really bound.
    pub(crate) address: ListenAddress,
    /// The file of a Unix socket, which is removed with this value.
    pub(crate) file: Option<SocketFile>,
}

/// Binds an endpoint, for so many workers. `kept`: its port is ours already.
///
/// # Errors
/// [`BindError`] names the address and what to do.
pub(crate) fn bind(
    settings: &ListenerSettings,
    endpoint: &ListenEndpoint,
    workers: usize,
    kept: bool,
) -> Result<(Bound, Vec<ListeningSocket>), BindError> {
    let bound = |address, file| Bound {
        endpoint: endpoint.clone(),
        address,
        file,
    };
    if let Some(path) = endpoint.address.path() {
        let (file, sockets) = bind_unix(settings, path, workers).map_err(|source| BindError {
            endpoint: endpoint.clone(),
            source,
        })?;
        return Ok((bound(endpoint.address.clone(), Some(file)), sockets));
    }
    let sockets = listener::bind(endpoint, workers, kept)?;
    let local = sockets.first().and_then(|socket| socket.local_addr().ok());
    let address = local.map_or_else(|| endpoint.address.clone(), SocketAddr::into);
    let sockets = sockets.into_iter().map(ListeningSocket::Tcp).collect();
    Ok((bound(address, None), sockets))
}

fn bind_unix(
    settings: &ListenerSettings,
    path: &Path,
    workers: usize,
) -> io::Result<(SocketFile, Vec<ListeningSocket>)> {
    let group = group(settings)?;
    let (file, socket) = SocketFile::bind(path)?;
    file.set_access(settings.socket_mode.0, group)?;
    socket.set_nonblocking(true)?;
    let sockets = (0..workers.max(1)).map(|_| socket.try_clone().map(ListeningSocket::Unix));
    Ok((file, sockets.collect::<io::Result<_>>()?))
}

/// The number of the group that owns the socket files of a listener.
///
/// # Errors
/// There is no such group.
pub(crate) fn group(settings: &ListenerSettings) -> io::Result<Option<u32>> {
    let Some(name) = &settings.socket_group else {
        return Ok(None);
    };
    let missing = || {
        let message = format!("socket_group: /etc/group has no group \"{name}\"");
        io::Error::new(io::ErrorKind::InvalidInput, message)
    };
    files::group_id(name).ok_or_else(missing).map(Some)
}
