//! Listening sockets: binding the endpoints of a listener, and the listeners that the process has open.
//!
//! A TCP port has one socket for each worker. A Unix socket has one that all workers share.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    os::{fd::OwnedFd, unix::net::UnixListener},
    path::Path,
    sync::Arc,
};

use listener::{
    BindError, ClientSlots, ListenAddress, ListenEndpoint, Listener, ListenerSettings,
    ListeningSocket,
};

use state::accounts::group_id;

use crate::socket_file::SocketFile;

/// A bound endpoint of a listener.
pub(crate) struct BoundEndpoint {
    /// The endpoint as configured. A reload keeps the sockets of an endpoint that is still configured.
    pub(crate) endpoint: ListenEndpoint,
    /// The address with the port that was really bound.
    pub(crate) address: ListenAddress,
    /// The file of a Unix socket, which is removed with this value.
    pub(crate) file: Option<SocketFile>,
}

/// A bound endpoint with its sockets, before the workers accept on them.
pub(crate) struct BoundSockets {
    /// The name of the listener.
    pub(crate) listener: String,
    pub(crate) endpoint: BoundEndpoint,
    pub(crate) sockets: Vec<ListeningSocket>,
}

/// A listener that the workers accept on.
pub(crate) struct OpenListener {
    pub(crate) listener: Arc<Listener>,
    pub(crate) endpoints: Vec<BoundEndpoint>,
}

/// An endpoint that a listener of this name has open.
#[derive(Clone)]
pub(crate) struct NamedEndpoint {
    pub(crate) endpoint: ListenEndpoint,
    pub(crate) listener: Arc<str>,
}

/// The listeners of the process.
#[derive(Default)]
pub(crate) struct Listeners {
    pub(crate) open: Vec<OpenListener>,
    /// Listeners that a reload has closed while connections were open on them.
    closed: Vec<Arc<Listener>>,
}

impl Listeners {
    pub(crate) fn endpoints(&self) -> Vec<NamedEndpoint> {
        let endpoints = self.open.iter().flat_map(|open| {
            open.endpoints.iter().map(|bound| NamedEndpoint {
                endpoint: bound.endpoint.clone(),
                listener: Arc::clone(&open.listener.name),
            })
        });
        endpoints.collect()
    }

    /// The number of open connections, including those on listeners that are closed.
    pub(crate) fn connections(&self) -> u32 {
        let listeners = self.open.iter().map(|open| &open.listener);
        listeners
            .chain(&self.closed)
            .map(|listener| listener.connections.inside())
            .sum()
    }

    /// Adds an endpoint to the listener of this name, which is created if it does not exist.
    pub(crate) fn add(
        &mut self,
        name: &str,
        endpoint: BoundEndpoint,
        clients: &Arc<ClientSlots>,
    ) -> Arc<Listener> {
        let mut known = self.open.iter_mut();
        if let Some(open) = known.find(|open| *open.listener.name == *name) {
            open.endpoints.push(endpoint);
            return Arc::clone(&open.listener);
        }
        let listener = Arc::new(Listener::new(name, Arc::clone(clients)));
        self.open.push(OpenListener {
            listener: Arc::clone(&listener),
            endpoints: vec![endpoint],
        });
        listener
    }

    /// Takes ownership of the files of Unix sockets that another process has passed to this one.
    pub(crate) fn own_socket_files(&mut self) {
        let endpoints = self.open.iter_mut().flat_map(|open| &mut open.endpoints);
        for bound in endpoints.filter(|bound| bound.file.is_none()) {
            bound.file = bound
                .address
                .path()
                .and_then(|path| SocketFile::of(path).ok());
        }
    }

    /// Leaves the files of Unix sockets to the process that has taken over.
    pub(crate) fn leave_socket_files(&mut self) {
        let endpoints = self.open.iter_mut().flat_map(|open| &mut open.endpoints);
        for file in endpoints.filter_map(|bound| bound.file.take()) {
            file.leave();
        }
    }

    /// Sets the configured permissions on the file of an open Unix socket.
    pub(crate) fn set_access(&self, settings: &ListenerSettings, endpoint: &ListenEndpoint) {
        let endpoints = self.open.iter().flat_map(|open| &open.endpoints);
        let same = endpoints.filter(|bound| bound.endpoint == *endpoint);
        for file in same.filter_map(|bound| bound.file.as_ref()) {
            let set =
                group(settings).and_then(|group| file.set_access(settings.socket_mode.0, group));
            if let Err(error) = set {
                tracing::error!(%endpoint, %error, "cannot change the permissions of a socket");
            }
        }
    }

    /// Removes an endpoint, and its listener if it was the last one. The connections of a removed listener still count until
    /// they are closed, so that a stop waits for them.
    pub(crate) fn remove(&mut self, removed: &NamedEndpoint) {
        for open in &mut self.open {
            if open.listener.name == removed.listener {
                open.endpoints
                    .retain(|bound| bound.endpoint != removed.endpoint);
            }
        }
        let without_endpoint = self.open.extract_if(.., |open| open.endpoints.is_empty());
        self.closed
            .extend(without_endpoint.map(|open| open.listener));
        self.closed
            .retain(|listener| listener.connections.inside() > 0);
    }
}

/// Binds an endpoint for `workers` workers. `is_port_ours`: the process has the port open already.
///
/// # Errors
/// [`BindError`] names the address and the remedy.
pub(crate) fn bind(
    settings: &ListenerSettings,
    endpoint: &ListenEndpoint,
    workers: usize,
    is_port_ours: bool,
) -> Result<BoundSockets, BindError> {
    let bound = |address, file, sockets| BoundSockets {
        listener: settings.name.clone(),
        endpoint: BoundEndpoint {
            endpoint: endpoint.clone(),
            address,
            file,
        },
        sockets,
    };
    if let Some(path) = endpoint.address.path() {
        let (file, sockets) = bind_unix(settings, path, workers).map_err(|source| BindError {
            endpoint: endpoint.clone(),
            source,
        })?;
        return Ok(bound(endpoint.address.clone(), Some(file), sockets));
    }
    let sockets = listener::bind(endpoint, workers, is_port_ours)?;
    let local = sockets.first().and_then(|socket| socket.local_addr().ok());
    let address = local.map_or_else(|| endpoint.address.clone(), SocketAddr::into);
    let sockets = sockets.into_iter().map(ListeningSocket::Tcp).collect();
    Ok(bound(address, None, sockets))
}

/// Uses the sockets of an endpoint that another process has bound. Workers for which there is no socket share one. The file
/// of a Unix socket belongs to that process, with the permissions that it has set, until it has handed over.
///
/// # Errors
/// [`BindError`] names the address.
pub(crate) fn adopt(
    settings: &ListenerSettings,
    endpoint: &ListenEndpoint,
    descriptors: Vec<OwnedFd>,
    workers: usize,
) -> Result<BoundSockets, BindError> {
    let adopted = || -> io::Result<BoundSockets> {
        let mut address = endpoint.address.clone();
        let mut sockets = Vec::new();
        for descriptor in descriptors {
            sockets.push(match endpoint.address.path() {
                Some(_) => {
                    let socket = UnixListener::from(descriptor);
                    socket.set_nonblocking(true)?;
                    ListeningSocket::Unix(socket)
                }
                None => {
                    let socket = TcpListener::from(descriptor);
                    socket.set_nonblocking(true)?;
                    address = socket.local_addr()?.into();
                    ListeningSocket::Tcp(socket)
                }
            });
        }
        for index in sockets.len()..workers {
            let copy = sockets[index % sockets.len()].try_clone()?;
            sockets.push(copy);
        }
        Ok(BoundSockets {
            listener: settings.name.clone(),
            endpoint: BoundEndpoint {
                endpoint: endpoint.clone(),
                address,
                file: None,
            },
            sockets,
        })
    };
    adopted().map_err(|source| BindError {
        endpoint: endpoint.clone(),
        source,
    })
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
        let message = format!("socket_group: there is no group \"{name}\"");
        io::Error::new(io::ErrorKind::InvalidInput, message)
    };
    group_id(name).ok_or_else(missing).map(Some)
}
