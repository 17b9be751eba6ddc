//! A real DNS server with the zone `example.com`: Knot DNS from Debian.

use std::{
    fs::{self, File},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::Mutex,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{port::HeldPort, tools::Tool, wait::wait_until};

/// Maximum time until the server listens or has loaded a zone.
const LIMIT: Duration = Duration::from_secs(20);

/// The server, which is killed on drop.
#[derive(Debug)]
pub struct NameServer {
    directory: TempDir,
    port: HeldPort,
    running: Mutex<Running>,
}

#[derive(Debug)]
struct Running {
    child: Option<Child>,
    /// How often the server has loaded the zone, according to its log.
    loads: usize,
}

impl NameServer {
    /// Starts a server with these records below `example.com`, one on each line. If Knot DNS is not installed, the test
    /// is skipped ([`Tool::command`]).
    ///
    /// # Panics
    /// The server does not start.
    #[track_caller]
    pub fn start(records: &str) -> Option<Self> {
        let knot = Tool::Knot.command()?;
        let server = Self {
            directory: tempfile::tempdir().expect("a directory"),
            port: HeldPort::take(),
            running: Mutex::new(Running {
                child: None,
                loads: 0,
            }),
        };
        server.write_zone(records);
        server.run(knot);
        Some(server)
    }

    /// The server's address, for UDP and TCP.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Replaces all records, and waits until the server answers with them.
    ///
    /// # Panics
    /// The server does not answer with them in time.
    #[track_caller]
    pub fn replace(&self, records: &str) {
        self.write_zone(records);
        let mut running = self.running();
        let child = running.child.as_ref().expect("it runs");
        let pid = Pid::from_child(child);
        kill_process(pid, Signal::HUP).expect("it runs");
        running.loads += 1;
        self.wait_for_load(running.loads);
    }

    /// Stops the server: queries are refused from now on.
    pub fn stop(&self) {
        if let Some(mut child) = self.running().child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts the server again at the same address.
    ///
    /// # Panics
    /// The server does not start.
    #[track_caller]
    pub fn restart(&self) {
        self.run(Tool::Knot.command().expect("it was installed at the start"));
    }

    #[track_caller]
    fn run(&self, mut knot: Command) {
        let directory = self.directory.path().display();
        let configuration = format!(
            "server:\n  rundir: {directory}\n  pidfile: {directory}/pid\n  listen: 127.0.0.1@{port}\n  \
             udp-workers: 1\n  tcp-workers: 1\n  background-workers: 1\n\
             log:\n  - target: stderr\n    any: info\n\
             database:\n  storage: {directory}\n\
             control:\n  listen: {directory}/control\n\
             template:\n  - id: default\n    storage: {directory}\n    file: zone\n    zonefile-sync: -1\n    \
             zonefile-load: whole\n    journal-content: none\n\
             zone:\n  - domain: example.com\n",
            port = self.port
        );
        let path = self.directory.path().join("knot.conf");
        fs::write(&path, configuration).expect("a file");
        let log = File::create(self.log()).expect("a log");
        let child = knot
            .arg("-c")
            .arg(&path)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("Knot DNS starts");
        let mut running = self.running();
        *running = Running {
            child: Some(child),
            loads: 1,
        };
        self.wait_for_load(1);
        let listens = || TcpStream::connect(self.address()).ok();
        wait_until(LIMIT, listens).expect("Knot DNS listens");
    }

    #[track_caller]
    fn wait_for_load(&self, times: usize) {
        let loaded = || {
            let log = fs::read_to_string(self.log()).unwrap_or_default();
            (log.matches("] loaded, serial").count() >= times).then_some(())
        };
        if wait_until(LIMIT, loaded).is_none() {
            let log = fs::read_to_string(self.log()).unwrap_or_default();
            panic!("Knot DNS did not load the zone:\n{log}");
        }
    }

    #[track_caller]
    fn write_zone(&self, records: &str) {
        let zone = format!(
            "$ORIGIN example.com.\n$TTL 0\n@ SOA ns hostmaster 1 3600 600 86400 0\n@ NS ns\nns A 127.0.0.1\n{records}\n"
        );
        // The file is replaced, because the server may read it at any time.
        let (new, path) = (
            self.directory.path().join("new"),
            self.directory.path().join("zone"),
        );
        let written = fs::write(&new, zone).and_then(|()| fs::rename(new, path));
        written.expect("a zone file");
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Running> {
        self.running
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The records of a service: priority, weight, port and name of each target.
pub fn srv_records(service: &str, targets: &[(u16, u16, u16, &str)]) -> String {
    let record = |(priority, weight, port, name): &(u16, u16, u16, &str)| {
        format!("{service} SRV {priority} {weight} {port} {name}\n")
    };
    targets.iter().map(record).collect::<String>()
}
