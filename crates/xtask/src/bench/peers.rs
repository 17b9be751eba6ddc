//! The proxies that are compared: how to configure and start each of them.

use std::{
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use super::{
    cores::Cores,
    members::Members,
    programs::{Program, Rival},
    shape::{Division, Shape},
};
use crate::workspace;

/// A proxy that can be started.
pub(super) struct Peer {
    name: String,
    command: Vec<String>,
    address: SocketAddr,
    passthrough: SocketAddr,
    log: PathBuf,
    division: Division,
}

impl Peer {
    /// Proscenium, and nginx if it is installed, in the plain shape.
    pub(super) fn all(folder: &Path, members: &Members) -> Result<Vec<Self>> {
        let nginx = Program::installed(Rival::Nginx)?;
        if nginx.is_none() {
            eprintln!("*** nginx is not installed: there is nothing to compare with ***");
        }
        let programs: Vec<_> = nginx.iter().collect();
        Self::compared(folder, members, &Shape::PLAIN, &programs)
    }

    /// Proscenium, and the proxies that it is compared with.
    pub(super) fn compared(
        folder: &Path,
        members: &Members,
        shape: &Shape,
        programs: &[&Program],
    ) -> Result<Vec<Self>> {
        let mut peers = vec![Self::proscenium(folder, members, shape, |config| config)?];
        for program in programs {
            let text = shape.fill(program.rival.template());
            let words = program.command.iter().map(String::as_str);
            let command: Vec<_> = words
                .chain(program.rival.arguments().iter().copied())
                .collect();
            peers.push(Self::new(
                &program.name,
                folder,
                members,
                shape,
                text,
                &command,
            )?);
        }
        Ok(peers)
    }

    /// Proscenium with an edited configuration.
    pub(super) fn proscenium(
        folder: &Path,
        members: &Members,
        shape: &Shape,
        edit: impl FnOnce(String) -> String,
    ) -> Result<Self> {
        let binary = workspace::build_proscenium(true)?.display().to_string();
        let config = edit(shape.fill(include_str!("../../../../bench/proscenium.toml")));
        let command = [&binary, "run", "--config"];
        Self::new("proscenium", folder, members, shape, config, &command)
    }

    /// Fills in a configuration template and writes it. The path is the last argument of the command.
    fn new(
        name: &str,
        folder: &Path,
        members: &Members,
        shape: &Shape,
        config: String,
        command: &[&str],
    ) -> Result<Self> {
        let (address, passthrough) = (free_address()?, free_address()?);
        let path = folder.join(format!("{name}.conf"));
        let text = config
            .replace("@dir@", &folder.display().to_string())
            .replace("@server@", "puppet")
            .replace("@pki@", &folder.display().to_string())
            .replace("@port@", &address.port().to_string())
            .replace("@l4@", &passthrough.port().to_string())
            .replace("127.0.0.1:9001", &members.ca.to_string())
            .replace("127.0.0.1:9002", &members.compilers[0].to_string())
            .replace("127.0.0.1:9003", &members.compilers[1].to_string())
            .replace("127.0.0.1:9004", &members.passthrough.to_string());
        fs::write(&path, text).with_context(|| path.display().to_string())?;
        let command = command.iter().map(|&word| word.to_owned());
        Ok(Self {
            name: name.to_owned(),
            command: command.chain([path.display().to_string()]).collect(),
            address,
            passthrough,
            log: folder.join(format!("{name}.log")),
            division: shape.cores,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address at which the proxy passes connections through, if its shape has one.
    pub(super) fn passthrough(&self) -> SocketAddr {
        self.passthrough
    }

    /// Starts the proxy on its cores and waits until its port answers.
    pub(super) fn start(&self, cores: &Cores) -> Result<Running> {
        self.start_under(&[], cores)
    }

    /// Starts the proxy under a tool such as callgrind or strace, which counts.
    pub(super) fn start_under(&self, tool: &[&str], cores: &Cores) -> Result<Running> {
        let log = fs::File::create(&self.log)?;
        let mut child = Command::new("taskset")
            .args(["-c", &cores.divide(self.division)?])
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
        // The port opens before the first probes have marked the members as up.
        std::thread::sleep(SETTLE);
        Ok(Running {
            is_traced: tool.first() == Some(&"strace"),
            child,
            address: self.address,
        })
    }
}

/// A running proxy, which is stopped on drop.
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
    /// Sends SIGTERM first, because nginx's workers survive a parent that is killed.
    fn drop(&mut self) {
        // strace ignores signals while it writes to a file. It ends when the process that it runs ends.
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

/// A start under valgrind takes about fifty times as long.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
const SETTLE: Duration = Duration::from_millis(500);
