//! The new process's side of a hand-over.

use std::{
    collections::HashMap,
    io,
    net::{SocketAddr, TcpListener},
    os::{fd::OwnedFd, unix::net::UnixListener},
    path::{Path, PathBuf},
};

use listener::{ListenAddress, ListenEndpoint};
use proxy::Shared;
use telemetry::SeenAgent;

use super::{
    ANSWER_MAX, EndpointName, FormerProcesses, FormerReport, PassedSocket, SOCKET, SOCKETS_MAX,
    STORE_MAX, ToNew, ToServing, VERSION, channel::Channel,
};
use crate::{socket_activation, socket_file::SocketFile};

/// Why the process cannot take over.
#[derive(Debug, thiserror::Error)]
pub enum TakeOverError {
    /// The serving process refuses, and continues to serve.
    #[error("the serving process does not hand over: {0}")]
    Refused(String),
    /// The connection to the serving process.
    #[error("no valid message from the serving process: {0}")]
    Channel(#[from] io::Error),
}

/// A hand-over in progress.
#[derive(Debug)]
pub(crate) struct TakeOver {
    channel: Channel,
    /// The number of the serving process's generation.
    pub(crate) generation: u64,
}

/// The sockets of the serving process, or of the service manager, that are not in use yet.
#[derive(Debug, Default)]
pub(crate) struct TakenSockets {
    listeners: HashMap<EndpointName, Vec<OwnedFd>>,
    admin: Option<(PathBuf, UnixListener)>,
    metrics: Option<(SocketAddr, TcpListener)>,
    /// The sockets of the service manager.
    activated: Vec<(ListenAddress, TcpListener)>,
}

impl TakeOver {
    /// Connects to the process that serves with this state directory, and receives its sockets. `None` if no process serves.
    ///
    /// # Errors
    /// The serving process refuses, or is not one of this account.
    pub(crate) fn connect(
        directory: &Path,
        build: &str,
    ) -> Result<Option<(Self, TakenSockets)>, TakeOverError> {
        let path = directory.join(SOCKET);
        let channel = match Channel::connect(&path) {
            Ok(channel) => channel,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        channel.peer()?;
        channel.send(&ToServing::Hello {
            version: VERSION,
            build: build.to_owned(),
        })?;
        let (sockets, generation) = received_sockets(&channel)?;
        let take_over = Self {
            channel,
            generation,
        };
        Ok(Some((take_over, sockets)))
    }

    /// Reports that everything is prepared, and waits until the serving process has stored its state and unlocked the state
    /// directory.
    ///
    /// # Errors
    /// The serving process refuses, or has ended.
    pub(crate) fn prepared(&self) -> Result<(), TakeOverError> {
        self.channel.send(&ToServing::Prepared)?;
        match self.channel.receive(STORE_MAX + ANSWER_MAX)?.0 {
            ToNew::Unlocked => Ok(()),
            other => Err(refused(other)),
        }
    }

    /// Reports that this process accepts connections, and waits until the serving process drains. This process has locked the
    /// state directory, so it continues to serve if the other process does not answer.
    ///
    /// # Errors
    /// The serving process has given up the hand-over and continues to serve.
    pub(crate) fn serving(&self, former: &FormerProcesses) -> Result<(), TakeOverError> {
        let mut parts = FormerReport::default();
        let mut answered = self
            .channel
            .send(&ToServing::Serving)
            .and_then(|()| self.channel.receive(ANSWER_MAX));
        loop {
            match answered {
                Ok((ToNew::Former(part), _)) => former.receive(part, &mut parts),
                Ok((ToNew::Draining, _)) => {
                    former.begin(&self.channel);
                    return Ok(());
                }
                Ok((other, _)) => return Err(refused(other)),
                Err(error) => {
                    tracing::warn!(%error, "the former process has not confirmed that it drains");
                    return Ok(());
                }
            }
            answered = self.channel.receive(ANSWER_MAX);
        }
    }

    /// Notifies the serving process why this one ends.
    pub(crate) fn failed(&self, why: String) {
        let _ = self.channel.send(&ToServing::Failed { why });
    }

    /// Adds the agents that the former process has seen, and follows its requests. It blocks until that process ends.
    pub(crate) fn follow_former(&self, shared: &Shared, former: &FormerProcesses) {
        let mut parts = FormerReport::default();
        loop {
            match self.channel.receive(None) {
                Ok((ToNew::Agents(agents), _)) => {
                    for agent in agents {
                        shared.agents.restore(&SeenAgent::from(agent));
                    }
                }
                Ok((ToNew::Former(part), _)) => former.receive(part, &mut parts),
                Ok((other, _)) => {
                    tracing::warn!(error = %refused(other), "not all requests and agents of the former process are known");
                    break;
                }
                // The kernel closes the connection of a process that ends.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                Err(error) => {
                    tracing::warn!(%error, "not all requests and agents of the former process are known");
                    break;
                }
            }
        }
        former.end();
    }
}

impl TakenSockets {
    /// The sockets that the service manager has passed to this process.
    pub(crate) fn of_service_manager() -> Self {
        Self {
            activated: socket_activation::from_environment(),
            ..Self::default()
        }
    }

    /// The sockets of an endpoint.
    pub(crate) fn take(&mut self, endpoint: &ListenEndpoint) -> Option<Vec<OwnedFd>> {
        let activated = &mut self.activated;
        let taken = activated.extract_if(.., |(address, _)| *address == endpoint.address);
        let taken: Vec<_> = taken.map(|(_, socket)| OwnedFd::from(socket)).collect();
        match taken.is_empty() {
            true => self.listeners.remove(&EndpointName::of(endpoint)),
            false => Some(taken),
        }
    }

    /// Logs the sockets of the service manager whose address no listener has.
    pub(crate) fn log_unused(&self) {
        for (address, _) in &self.activated {
            tracing::warn!(
                %address,
                "no listener has the address of this socket of the service manager, so it is closed"
            );
        }
    }

    /// Whether a listener has this port.
    pub(crate) fn has_port(&self, port: Option<u16>) -> bool {
        let mut addresses = self.addresses();
        addresses.any(|address| address.ip().map(|at| at.port()) == port)
    }

    /// The addresses of listeners and of the metrics listener.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = ListenAddress> {
        let listeners = self.listeners.keys();
        let listeners = listeners.filter_map(|name| name.address.parse().ok());
        let metrics = self.metrics.iter();
        let activated = self.activated.iter();
        let activated = activated.map(|(address, _)| address.clone());
        listeners
            .chain(activated)
            .chain(metrics.map(|(address, _)| ListenAddress::Ip(*address)))
    }

    /// Whether an admin socket is among them.
    pub(crate) fn has_admin(&self) -> bool {
        self.admin.is_some()
    }

    /// The admin socket, if it has this path.
    pub(crate) fn take_admin(&mut self, path: &Path) -> Option<UnixListener> {
        let taken = self.admin.take_if(|(taken, _)| taken == path)?;
        Some(taken.1)
    }

    /// The metrics listener, if it has this address.
    pub(crate) fn take_metrics(&mut self, address: SocketAddr) -> Option<TcpListener> {
        let taken = self.metrics.take_if(|(taken, _)| *taken == address)?;
        Some(taken.1)
    }

    /// Removes the files of Unix sockets that are no longer used, because the other process leaves them.
    pub(crate) fn remove_unused_files(&self) {
        let listeners = self.addresses();
        let paths = listeners.filter_map(|address| Some(address.path()?.to_owned()));
        let admin = self.admin.iter().map(|(path, _)| path.clone());
        for path in paths.chain(admin) {
            drop(SocketFile::of(&path));
        }
    }

    fn add(&mut self, socket: PassedSocket, descriptor: OwnedFd) {
        match socket {
            PassedSocket::Listener(name) => {
                self.listeners.entry(name).or_default().push(descriptor);
            }
            PassedSocket::Admin(path) => self.admin = Some((path, descriptor.into())),
            PassedSocket::Metrics(address) => self.metrics = Some((address, descriptor.into())),
        }
    }
}

fn received_sockets(channel: &Channel) -> Result<(TakenSockets, u64), TakeOverError> {
    let mut taken = TakenSockets::default();
    let mut count = 0;
    loop {
        let (message, descriptors) = channel.receive(ANSWER_MAX)?;
        let ToNew::Sockets {
            sockets,
            is_last,
            generation,
        } = message
        else {
            return Err(refused(message));
        };
        count += sockets.len();
        if sockets.len() != descriptors.len() || count > SOCKETS_MAX {
            return Err(io::Error::from(io::ErrorKind::InvalidData).into());
        }
        for (socket, descriptor) in sockets.into_iter().zip(descriptors) {
            taken.add(socket, descriptor);
        }
        if is_last {
            return Ok((taken, generation));
        }
    }
}

fn refused(message: ToNew) -> TakeOverError {
    TakeOverError::Refused(match message {
        ToNew::Refused { why } => why,
        other => format!("it sent {other:?} out of turn"),
    })
}

/// Whether no process accepts hand-overs.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}
