//! The proxies that are compared: how each is configured and started.

use std::{
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use super::members::Members;
use crate::workspace;

/// One proxy, ready to be started.
pub(super) struct Peer {
    name: &'static str,
    command: Vec<String>,
    address: SocketAddr,
    log: PathBuf,
}

impl Peer {
    /// Ours first, and nginx where it is installed.
    pub(super) fn all(folder: &Path, members: &Members) -> Result<Vec<Self>> {
        let proscenium = workspace::build_proscenium(true)?;
        let mut peers = vec![Self::proscenium(folder, members, &proscenium)?];
        if workspace::is_installed("nginx") {
            peers.push(Self::nginx(folder, members)?);
        } else {
            eprintln!("*** nginx is not installed: there is nothing to compare with ***");
        }
        Ok(peers)
    }

    fn proscenium(folder: &Path, members: &Members, binary: &Path) -> Result<Self> {
        let config = include_str!("../../../../bench/proscenium.toml");
        Self::new("proscenium", folder, members, config, |config| {
            vec![
                binary.display().to_string(),
                "run".into(),
                "--config".into(),
                config,
            ]
        })
    }

    fn nginx(folder: &Path, members: &Members) -> Result<Self> {
        let config = include_str!("../../../../bench/nginx.conf");
        Self::new("nginx", folder, members, config, |config| {
            vec!["nginx".into(), "-c".into(), config]
        })
    }

    fn new(
        name: &'static str,
        folder: &Path,
        members: &Members,
        template: &str,
        command: impl Fn(String) -> Vec<String>,
    ) -> Result<Self> {
        let address = free_address()?;
        let config = folder.join(format!("{name}.conf"));
        let [first, second] = members.compilers;
        let text = template
            .replace("@dir@", &folder.display().to_string())
            .replace("@server@", "puppet")
            .replace("@pki@", &folder.display().to_string())
            .replace("@port@", &address.port().to_string())
            .replace("@workers@", "1")
            .replace("127.0.0.1:9001", &members.ca.to_string())
            .replace("127.0.0.1:9002", &first.to_string())
            .replace("127.0.0.1:9003", &second.to_string());
        fs::write(&config, text).with_context(|| config.display().to_string())?;
        Ok(Self {
            name,
            command: command(config.display().to_string()),
            address,
            log: folder.join(format!("{name}.log")),
        })
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts it on that core and waits until its port answers.
    pub(super) fn start(&self, core: usize) -> Result<Running> {
        self.start_under(&[], core)
    }

    /// The same, run by a tool that counts.
    pub(super) fn start_under(&self, tool: &[&str], core: usize) -> Result<Running> {
        let log = fs::File::create(&self.log)?;
        let mut child = Command::new("taskset")
            .args(["-c", &core.to_string()])
            .args(tool)
            .args(&self.command)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("taskset does not start")?;
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(self.address).is_err() {
            if child.try_wait()?.is_some() || Instant::now() > deadline {
                let _ = child.kill();
                bail!(
                    "{} did not start: {}",
                    self.name,
                    fs::read_to_string(&self.log)?
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // The port opens before the first probe has brought the members up.
        std::thread::sleep(SETTLE);
        Ok(Running {
            is_traced: tool.first() == Some(&"strace"),
            child,
            address: self.address,
        })
    }
}

/// A proxy that runs; ended on drop.
pub(super) struct Running {
    is_traced: bool,
    child: Child,
    address: SocketAddr,
}

impl Running {
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Running {
    /// SIGTERM first, since nginx's workers outlive a parent that was killed.
    fn drop(&mut self) {
        // strace that writes to a file heeds no signal, and ends with the process that it runs.
        let id = self.child.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        let children = children.unwrap_or_default();
        let of_tool = children.split_whitespace().filter(|_| self.is_traced);
        let _ = Command::new("kill")
            .arg(id.to_string())
            .args(of_tool)
            .status();
        let deadline = Instant::now() + STOP_TIMEOUT;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Under valgrind everything takes fifty times as long.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
const SETTLE: Duration = Duration::from_millis(500);
