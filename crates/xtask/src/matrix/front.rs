//! The front ends under test: Proscenium and its peers. Each row starts its own.

use std::{
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;
use testkit::{Client, Protocol, Proxy, Servers, TestCredential, wait_until};

use super::{
    peers::{Peer, Places},
    scene::Shape,
};

/// Long enough for a machine under load.
const START_LIMIT: Duration = Duration::from_secs(20);

/// Starts front ends of one kind.
pub(super) enum Maker {
    /// Proscenium, with the path of its binary.
    Proscenium(PathBuf),
    Peer(&'static Peer),
}

/// A running front end.
pub(super) enum Front {
    Proscenium(Box<Proxy>),
    Peer(Box<Running>),
}

/// A running peer; stopped when dropped.
pub(super) struct Running {
    peer: &'static Peer,
    directory: TempDir,
    address: SocketAddr,
    bundle: String,
    child: Child,
}

impl Maker {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Proscenium(_) => "proscenium",
            Self::Peer(peer) => peer.name,
        }
    }

    pub(super) fn speaks_http2(&self) -> bool {
        match self {
            Self::Proscenium(_) => true,
            Self::Peer(peer) => peer.http2,
        }
    }

    /// Starts the front end in front of these servers.
    pub(super) fn start(
        &self,
        servers: &Servers,
        protocol: Protocol,
        shape: Shape,
    ) -> Result<Front> {
        match self {
            Self::Proscenium(binary) => {
                let ca_server = servers.ca_server.address();
                let compilers = [0, 1].map(|n| servers.compilers[n].address());
                let pools = format!(
                    "[pools.ca]\nscheme = \"http\"\nmembers = [\"{ca_server}\"]\n\
                     [pools.compilers]\nscheme = \"http\"\nmembers = [\"{}\", \"{}\"]\n",
                    compilers[0], compilers[1]
                );
                let builder = Proxy::new(&servers.ca, binary)
                    .speaking(protocol)
                    .with(&pools);
                let builder = match shape {
                    Shape::Fetching => builder.fetch("interval = \"1s\""),
                    Shape::Plain => builder,
                };
                let proxy = builder.listener("idle_timeout = \"10m\"").try_start();
                let proxy = proxy.map_err(|outcome| anyhow::anyhow!("{}", outcome.stderr))?;
                proxy.wait_for_members(&["ca", "compilers"]);
                Ok(Front::Proscenium(Box::new(proxy)))
            }
            Self::Peer(peer) => Ok(Front::Peer(Box::new(Running::start(peer, servers)?))),
        }
    }
}

impl Front {
    pub(super) fn client(&self, credential: Option<&TestCredential>, protocol: Protocol) -> Client {
        match self {
            Self::Proscenium(proxy) => proxy.client(credential),
            Self::Peer(running) => {
                Client::new(running.address, &running.bundle, credential).protocol(protocol)
            }
        }
    }

    /// Writes the CRL file and reloads the front end, even if the CRLs are invalid.
    pub(super) fn write_crls(&self, text: Option<&str>) {
        match self {
            Self::Proscenium(proxy) => {
                write(&proxy.ssldir().join("crl.pem"), text);
                proxy.reload();
            }
            Self::Peer(running) => {
                write(&running.directory.path().join("crl.pem"), text);
                running.reload();
            }
        }
    }

    /// Blocks an agent; false if the front end has no block list.
    pub(super) fn block(&self, certname: &str) -> bool {
        match self {
            Self::Proscenium(proxy) => {
                let outcome = proxy.command(&["block"], &[certname, "--why", "row"]);
                outcome.code == Some(0)
            }
            Self::Peer(_) => false,
        }
    }

    /// Whether this is Proscenium.
    pub(super) fn is_proscenium(&self) -> bool {
        matches!(self, Self::Proscenium(_))
    }
}

impl Running {
    fn start(peer: &'static Peer, servers: &Servers) -> Result<Self> {
        let ca = &servers.ca;
        let directory = tempfile::Builder::new().prefix("matrix-").tempdir()?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let server = ca.server("puppet");
        let place = directory.path();
        let bundle = ca.bundle_pem();
        write(&place.join("ca.pem"), Some(&bundle));
        write(&place.join("crl.pem"), Some(&ca.crl_pem()));
        write(&place.join("cert.pem"), Some(&server.chain_pem()));
        write(&place.join("key.pem"), Some(&server.key_pem));
        let both = format!("{}{}", server.chain_pem(), server.key_pem);
        write(&place.join("both.pem"), Some(&both));
        let config = (peer.config)(&Places {
            directory: place,
            port: address.port(),
            ca_server: servers.ca_server.address(),
            compilers: [0, 1].map(|n| servers.compilers[n].address()),
        });
        let path = place.join("config");
        write(&path, Some(&config));
        let child = Command::new(peer.program)
            .args((peer.arguments)(&path, place))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(place.join("stderr"))?)
            .spawn()
            .with_context(|| format!("{} does not start", peer.program))?;
        let running = Self {
            peer,
            directory,
            address,
            bundle,
            child,
        };
        // Wait for an answer, not only for the port: a signal during startup may be lost or stop the peer.
        let serves = || {
            TcpStream::connect(address).ok()?;
            let anonymous = Client::new(address, &running.bundle, None);
            anonymous.try_request("GET", "/", &[], b"").ok().map(drop)
        };
        match wait_until(START_LIMIT, serves) {
            Some(()) => Ok(running),
            None => bail!("{}", running.stderr()),
        }
    }

    fn stderr(&self) -> String {
        fs::read_to_string(self.directory.path().join("stderr")).unwrap_or_default()
    }

    fn reload(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, self.peer.reload);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let mut ended = || self.child.try_wait().ok().flatten().map(drop);
        if wait_until(START_LIMIT, &mut ended).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn write(path: &Path, text: Option<&str>) {
    let written = match text {
        Some(text) => fs::write(path, text),
        None => fs::remove_file(path),
    };
    written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
