//! Runs the installed program as its service would, in front of stand-in servers.

use std::{
    fs,
    net::SocketAddr,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            fs::PermissionsExt,
            net::{self, UnixDatagram},
        },
    },
    process::{self, Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use testkit::{Ca, Client, HeldPort, Servers, TestCredential, wait_until};

use super::{CONFIG, Root};
use crate::dist::tools::output;

const SSLDIR: &str = "/srv/ssl";
const LOG: &str = "/var/log/proscenium/access.log";
pub(super) const CATALOG: &str = "/puppet/v3/catalog/web01?environment=production";
/// A directory for programs that the test adds.
const PROGRAMS: &str = "/usr/local/sbin";
/// Stands for systemd, which does not run in the root directory of the test.
const SYSTEMCTL: &str = "#!/bin/sh\n\
    case \"$*\" in\n\
    '--quiet is-active proscenium.service') ;;\n\
    'kill --kill-who=main --signal=USR1 proscenium.service') kill -USR1 \"$(cat /tmp/pid)\" ;;\n\
    *) exit 1 ;;\n\
    esac\n";
/// Maximum time for a start, a stop or a log rotation.
const LIMIT: Duration = Duration::from_secs(60);

/// The service with its files and stand-in servers.
pub(super) struct Service<'a> {
    root: &'a Root,
    servers: &'a Servers,
    port: HeldPort,
    web01: TestCredential,
    revoked: TestCredential,
}

/// What was tested, and the fault if there is one.
type CommandOutcome = (&'static str, Option<String>);

impl<'a> Service<'a> {
    /// Provides an ssldir of a CA that has revoked one of two agents.
    pub(super) fn new(root: &'a Root, servers: &'a Servers) -> Result<Self> {
        let ca = &servers.ca;
        let (web01, revoked) = (ca.agent("web01"), ca.agent("web02"));
        ca.revoke(&revoked);
        let service = Self {
            root,
            servers,
            port: HeldPort::take(),
            web01,
            revoked,
        };
        service.write_files(&ca.server("puppet"))?;
        Ok(service)
    }

    /// Writes the ssldir of the proxy with this credential, and with the CRL of now.
    pub(super) fn write_files(&self, credential: &TestCredential) -> Result<()> {
        let path = self.root.path(SSLDIR);
        fs::create_dir_all(&path)?;
        self.servers.ca.write_ssldir_with(&path, credential);
        self.give_files()
    }

    /// Adds a CA and its CRL to those of the ssldir.
    pub(super) fn trust_too(&self, ca: &Ca) -> Result<()> {
        for (name, more) in [("certs/ca.pem", ca.bundle_pem()), ("crl.pem", ca.crl_pem())] {
            let path = self.root.path(&format!("{SSLDIR}/{name}"));
            let text = fs::read_to_string(&path)? + &more;
            fs::write(path, text)?;
        }
        self.give_files()
    }

    fn give_files(&self) -> Result<()> {
        let mut chown = self.root.command("chown");
        output(chown.args(["-R", "proscenium:proscenium", SSLDIR])).map(drop)
    }

    /// Edits the installed configuration as its comments instruct. Returns the edited file.
    pub(super) fn fill_in(&self) -> Result<String> {
        let [first, second] = [0, 1].map(|n| &self.servers.compilers[n]);
        let ca = format!("members = [{:?}]", self.servers.ca_server.address());
        let compilers = format!("members = [{:?}, {:?}]", first.address(), second.address());
        let path = self.root.path(CONFIG);
        let text = fs::read_to_string(&path)?
            .replacen("members = []", &ca, 1)
            .replacen("members = []", &compilers, 1)
            .replacen("0.0.0.0:8140", &self.address().to_string(), 1)
            .replacen(
                "# ssldir = \"/etc/puppetlabs/puppet/ssl\"",
                &format!("ssldir = {SSLDIR:?}"),
                1,
            )
            .replacen(
                "# certname = \"puppet.example.com\"",
                "certname = \"puppet\"",
                1,
            );
        fs::write(path, &text)?;
        Ok(text)
    }

    /// Runs `proscenium check`, as the installation guide recommends.
    pub(super) fn check(&self) -> Result<Option<String>> {
        let mut check = self.root.command("proscenium");
        let checked = check.args(["check", "--user", "proscenium"]).output()?;
        let stderr = String::from_utf8_lossy(&checked.stderr).into_owned();
        Ok((!checked.status.success()).then_some(stderr))
    }

    /// Tests the service from start to stop.
    pub(super) fn serve(&self) -> Result<Vec<CommandOutcome>> {
        let mut running = self.start()?;
        let mut outcomes = vec![(
            "READY=1 is sent to the service manager",
            fault("READY=1", &running.ready),
        )];
        if running.ready == "READY=1" {
            outcomes.extend(self.requests());
            outcomes.push(self.rotation());
        }
        let pid = fs::read_to_string(self.root.path("/tmp/pid"))?;
        self.terminate(pid.trim())?;
        outcomes.push(("SIGTERM stops it with exit code 0", running.end()?));
        Ok(self.with_events(outcomes))
    }

    /// Starts the service, and waits until it is ready.
    pub(super) fn start(&self) -> Result<RunningService<'_>> {
        let name = format!("proscenium-dist-{}", process::id());
        let manager = UnixDatagram::bind_addr(&net::SocketAddr::from_abstract_name(&name)?)?;
        manager.set_read_timeout(Some(LIMIT))?;
        let process = self.start_command(&name)?.spawn()?;
        Ok(RunningService {
            service: self,
            process,
            ready: message(&manager),
            manager,
        })
    }

    fn with_events(&self, mut outcomes: Vec<CommandOutcome>) -> Vec<CommandOutcome> {
        for (_, fault) in &mut outcomes {
            if let Some(fault) = fault {
                fault.push_str(&format!("\n{}", self.events()));
            }
        }
        outcomes
    }

    /// Starts the service as systemd would, but without the sandbox.
    fn start_command(&self, manager: &str) -> Result<Command> {
        let events = fs::File::create(self.root.path("/tmp/events"))?;
        let mut command = self.root.command("sh");
        command
            .arg("-c")
            .arg(
                "echo $$ >/tmp/pid; . /etc/default/proscenium; exec setpriv --reuid=proscenium \
                  --regid=proscenium --init-groups --bounding-set=-all --no-new-privs \
                  /usr/bin/proscenium run $RUN_OPTIONS",
            )
            .env("NOTIFY_SOCKET", format!("@{manager}"))
            .env("WATCHDOG_USEC", "30000000")
            .env("STATE_DIRECTORY", "/var/lib/proscenium")
            .stdout(Stdio::null())
            .stderr(events);
        Ok(command)
    }

    /// Sends SIGTERM with the shell, because a minimal system has no program `kill`.
    fn terminate(&self, pid: &str) -> Result<()> {
        let mut shell = self.root.command("sh");
        output(shell.args(["-c", &format!("kill -TERM {pid}")])).map(drop)
    }

    /// Clients of the CA's agents, which never retry.
    pub(super) fn agents(&self, count: usize) -> Vec<Client> {
        let agent = |number| self.servers.ca.agent(&format!("web{number}"));
        (0..count)
            .map(|number| self.client(Some(&agent(number))))
            .collect()
    }

    /// Waits until a catalog request is answered.
    pub(super) fn answers(&self) -> Result<()> {
        let client = self.client(Some(&self.web01));
        let answered = || {
            let answer = client.try_request("GET", CATALOG, &[], b"").ok()?;
            (answer.status == 200).then_some(())
        };
        wait_until(LIMIT, answered).context("no catalog request is answered")
    }

    /// A client with the revoked certificate.
    pub(super) fn revoked_agent(&self) -> Client {
        self.client(Some(&self.revoked))
    }

    fn client(&self, agent: Option<&TestCredential>) -> Client {
        Client::new(self.address(), &self.servers.ca.bundle_pem(), agent)
    }

    fn requests(&self) -> Vec<CommandOutcome> {
        let answer = |agent: Option<&TestCredential>| {
            let client = self.client(agent);
            match client.try_request("GET", CATALOG, &[], b"") {
                Ok(answer) => answer.status.to_string(),
                Err(error) => error.to_string(),
            }
        };
        let up = wait_until(LIMIT, || (answer(Some(&self.web01)) == "200").then_some(()));
        vec![
            (
                "a verified agent's catalog request is answered with 200",
                up.is_none().then(|| "no 200".to_owned()),
            ),
            (
                "a revoked agent's is answered with 403",
                fault("403", &answer(Some(&self.revoked))),
            ),
            (
                "one without a certificate is answered with 403",
                fault("403", &answer(None)),
            ),
        ]
    }

    /// After logrotate has renamed the log with the installed rule, the proxy must write to a new file.
    fn rotation(&self) -> CommandOutcome {
        let claim = "logrotate rotates the access log, and the proxy writes to a new one (0640)";
        let rotated = self.rotate().err().map(|error| format!("{error:#}"));
        (claim, rotated)
    }

    fn rotate(&self) -> Result<()> {
        let _ = fs::remove_file(self.root.path(&format!("{LOG}.1")));
        let written = || fs::metadata(self.root.path(LOG)).is_ok_and(|log| log.len() > 0);
        wait_until(LIMIT, || written().then_some(())).context("no access record")?;
        let systemctl = self.root.path(&format!("{PROGRAMS}/systemctl"));
        fs::write(&systemctl, SYSTEMCTL)?;
        fs::set_permissions(&systemctl, fs::Permissions::from_mode(0o755))?;
        let path = format!("{PROGRAMS}:/usr/sbin:/usr/bin:/sbin:/bin");
        let mut logrotate = self.root.command("logrotate");
        output(logrotate.env("PATH", path).args([
            "--force",
            "--state",
            "/tmp/logrotate",
            "/etc/logrotate.d/proscenium",
        ]))?;
        let log = self.root.path(LOG);
        wait_until(LIMIT, || log.exists().then_some(())).context("no new log")?;
        let old = output(
            self.root
                .command("stat")
                .args(["--format", "%i", &format!("{LOG}.1")]),
        )?;
        let new = output(
            self.root
                .command("stat")
                .args(["--format", "%i %U:%G %a", LOG]),
        )?;
        if new.starts_with(old.trim()) || !new.trim().ends_with("proscenium:proscenium 640") {
            bail!("{old} {new}");
        }
        self.requests();
        wait_until(LIMIT, || written().then_some(())).context("no record in the new log")
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.port.address()
    }

    fn events(&self) -> String {
        fs::read_to_string(self.root.path("/tmp/events")).unwrap_or_default()
    }
}

/// The service while it runs.
pub(super) struct RunningService<'a> {
    service: &'a Service<'a>,
    process: Child,
    manager: UnixDatagram,
    /// The first message of the process to the service manager.
    ready: String,
}

impl RunningService<'_> {
    /// Reloads, as the upgrade of a package does. The new program then serves, and is stopped at the end.
    pub(super) fn hand_over(mut self) -> Result<Vec<CommandOutcome>> {
        let service = self.service;
        let reloaded = output(service.root.command("proscenium").arg("reload"));
        let reloaded = reloaded.err().map(|error| format!("{error:#}"));
        let mut outcomes = vec![("reload hands over to the new program", reloaded)];
        let mut main = None;
        // Either process may send a ping at any time.
        let ready = loop {
            let message = message(&self.manager);
            if let Some(pid) = message.strip_prefix("MAINPID=") {
                main = Some(pid.to_owned());
            } else if message != "WATCHDOG=1" {
                break message;
            }
        };
        outcomes.push((
            "the service manager is notified of the new main process, and READY=1",
            match main {
                Some(_) => fault("READY=1", &ready),
                None => Some(format!("no MAINPID before {ready}")),
            },
        ));
        outcomes.push(("the former process ends with exit code 0", self.end()?));
        outcomes.extend(service.requests());
        if let Some(pid) = main {
            service.terminate(&pid)?;
            let socket = service.root.path("/run/proscenium/admin.sock");
            let stopped = wait_until(LIMIT, || (!socket.exists()).then_some(()));
            outcomes.push((
                "SIGTERM stops the new process",
                stopped.is_none().then(|| "it runs".to_owned()),
            ));
        }
        Ok(service.with_events(outcomes))
    }

    /// Waits for the end of the process. Returns the fault if there is one.
    fn end(&mut self) -> Result<Option<String>> {
        match wait_until(LIMIT, || self.process.try_wait().ok().flatten()) {
            Some(status) => Ok(fault("exit status: 0", &status.to_string())),
            None => {
                let _ = self.process.kill();
                bail!("the process does not end:\n{}", self.service.events());
            }
        }
    }
}

fn message(manager: &UnixDatagram) -> String {
    let mut bytes = [0; 64];
    match manager.recv(&mut bytes) {
        Ok(length) => String::from_utf8_lossy(&bytes[..length]).into_owned(),
        Err(error) => error.to_string(),
    }
}

fn fault(expected: &str, found: &str) -> Option<String> {
    (found != expected).then(|| found.to_owned())
}
