//! The service manager is notified when the proxy is ready, that it is alive, and that it stops.

use std::{
    fs,
    io::Read,
    os::{fd::OwnedFd, linux::net::SocketAddrExt, unix::net},
    process,
    time::Duration,
};

use tempfile::TempDir;
use testkit::{HeldPort, ProxyBuilder};

use crate::support::{Estate, LIMIT, paths::CATALOG};

/// Microseconds after which the service manager would kill a process that sends no pings.
const WATCHDOG: &str = "400000";

#[test]
fn the_service_manager_is_notified_of_start_watchdog_and_stop() {
    let manager = ServiceManager::start();
    let socket = manager.path();
    let estate = estate(move |proxy| {
        proxy
            .top("drain_grace = \"10m\"")
            .env("NOTIFY_SOCKET", &socket)
            .env("WATCHDOG_USEC", WATCHDOG)
    });
    assert_eq!(manager.next(), "READY=1");
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    assert_eq!(manager.next(), "WATCHDOG=1");
    assert_eq!(manager.next(), "WATCHDOG=1");

    // A process that finishes its requests still sends pings.
    estate.compilers[0].hold();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| estate.client(&agent).get(CATALOG));
        estate.compilers[0].wait_for_request(2, LIMIT);
        estate.proxy.terminate();
        while manager.next() != "STOPPING=1" {}
        for _ in 0..3 {
            assert_eq!(manager.next(), "WATCHDOG=1");
        }
        estate.compilers[0].release();
        assert_eq!(asking.join().expect("asks").status, 200);
    });
    assert_eq!(estate.proxy.wait_for_end(LIMIT).code, Some(0));
}

#[test]
fn the_service_manager_is_notified_of_the_process_that_has_taken_over() {
    let manager = ServiceManager::start();
    let socket = manager.path();
    let estate = estate(move |proxy| {
        proxy
            .env("NOTIFY_SOCKET", &socket)
            .env("WATCHDOG_USEC", WATCHDOG)
    });
    assert_eq!(manager.next(), "READY=1");
    let mut former = estate.proxy.take_over().unwrap_or_else(|o| panic!("{o:?}"));
    let main = format!("MAINPID={}", estate.proxy.pid());
    // Either process may send a ping at any time.
    let mut messages = Vec::new();
    while messages.len() < 2 {
        let message = manager.next();
        assert_ne!(message, "STOPPING=1", "the service does not stop");
        if message != "WATCHDOG=1" {
            messages.push(message);
        }
    }
    assert_eq!(messages, [main, "READY=1".to_owned()]);
    assert_eq!(former.wait_for_end(LIMIT).code, Some(0));
    assert_eq!(manager.next(), "WATCHDOG=1");
}

#[test]
fn a_program_that_the_proxy_has_started_is_a_child_of_the_service_manager() {
    let manager = ServiceManager::start();
    let socket = manager.path();
    let estate = estate(move |proxy| proxy.own_copy().env("NOTIFY_SOCKET", &socket));
    assert_eq!(manager.next(), "READY=1");
    let former = estate.proxy.pid();
    let program = estate.proxy.program();
    let mut bytes = fs::read(&program).expect("the program");
    bytes.push(0);
    let new = program.with_extension("new");
    fs::write(&new, bytes).expect("a file");
    let mode = fs::metadata(&program).expect("the program").permissions();
    fs::set_permissions(&new, mode).expect("its mode");
    fs::rename(&new, &program).expect("is replaced");
    assert_eq!(estate.proxy.reload()["result"], "handed-over");
    let message = manager.next();
    let pid = message
        .strip_prefix("MAINPID=")
        .expect("a new main process");
    let pid: u32 = pid.parse().expect("a number");
    estate.proxy.adopt(pid);
    // The parent is process 1, or the subreaper of the service.
    let parent = parent(pid);
    assert!(
        parent != former && ancestors(former).contains(&parent),
        "{parent}"
    );
    assert_eq!(manager.next(), "READY=1");
    assert_eq!(estate.proxy.wait_for_exit(LIMIT), Some(0));
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
}

fn parent(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    line.expect("a line").trim().parse().expect("a number")
}

fn ancestors(mut pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    while pid > 1 {
        pid = parent(pid);
        found.push(pid);
    }
    found
}

#[test]
fn a_socket_may_have_a_name_without_a_file_and_pings_may_be_off() {
    let name = format!("proscenium-test-{}", process::id());
    let address = net::SocketAddr::from_abstract_name(&name).expect("a name");
    let manager = ServiceManager::bind(&address);
    let socket = format!("@{name}");
    let estate = estate(move |proxy| {
        // The pings are for the main process only.
        proxy
            .env("NOTIFY_SOCKET", &socket)
            .env("WATCHDOG_USEC", "1000")
            .env("WATCHDOG_PID", "1")
    });
    assert_eq!(manager.next(), "READY=1");
    estate.proxy.terminate();
    assert_eq!(manager.next(), "STOPPING=1");
    assert_eq!(estate.proxy.wait_for_end(LIMIT).code, Some(0));
}

#[test]
fn sockets_of_the_service_manager_serve_clients_that_connected_before_the_start() {
    let estate = estate(|proxy| proxy.with("[metrics]\naddress = \"127.0.0.1:0\""));
    let agent = estate.ca.agent("web01");
    estate.proxy.terminate();
    assert_eq!(estate.proxy.wait_for_end(LIMIT).code, Some(0));
    // The service manager binds the port first, and starts the service later.
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = socket.local_addr().expect("an address");
    let unknown = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let other = unknown.local_addr().expect("an address");
    let port = estate.proxy.address().port();
    estate.edit_config(&format!(":{port}\""), &format!(":{}\"", address.port()));
    let early = std::net::TcpStream::connect(address).expect("waits in the queue");
    let script = "exec 3<&0 4>&1 </dev/null >/dev/null; export LISTEN_PID=$$ LISTEN_FDS=2; exec \"$0\" run --config \"$1\"";
    let mut service = process::Command::new("sh")
        .args(["-c", script])
        .arg(estate.proxy.program())
        .arg(estate.proxy.config_path())
        .env("STATE_DIRECTORY", estate.proxy.state_directory())
        .stdin(OwnedFd::from(socket))
        .stdout(OwnedFd::from(unknown))
        .stderr(process::Stdio::piped())
        .spawn()
        .expect("starts");
    let client = testkit::Client::new(address, &estate.ca.bundle_pem(), Some(&agent));
    assert_eq!(client.get(CATALOG).status, 200);
    assert!(std::net::TcpStream::connect(other).is_err(), "it is closed");
    drop(early);
    // The process that was started serves the admin socket, and listens on the socket of the service manager.
    let listed = estate.proxy.status()["listeners"][0]["address"].clone();
    assert_eq!(listed, address.to_string());
    let pid = rustix::process::Pid::from_child(&service);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("runs");
    let outcome = service.wait().expect("ends");
    let mut events = String::new();
    let stderr = service.stderr.as_mut().expect("a pipe");
    stderr.read_to_string(&mut events).expect("text");
    assert_eq!(outcome.code(), Some(0), "{events}");
    assert!(
        events.contains("no listener has the address of this socket")
            && events.contains(&other.to_string()),
        "{events}"
    );
}

#[test]
fn a_refused_start_never_reports_ready() {
    let manager = ServiceManager::start();
    let taken = HeldPort::take();
    let listening = std::net::TcpListener::bind((taken.address().ip(), 0)).expect("a port");
    let (socket, address) = (manager.path(), listening.local_addr().expect("it is bound"));
    let outcome = Estate::builder()
        .proxy(move |proxy| {
            proxy
                .with(&format!("[listeners.taken]\naddress = \"{address}\""))
                .env("NOTIFY_SOCKET", &socket)
        })
        .try_start();
    assert_eq!(outcome.code, Some(75), "{}", outcome.stderr);
    assert_eq!(manager.received(), None);
}

fn estate(change: impl FnOnce(ProxyBuilder) -> ProxyBuilder + 'static) -> Estate {
    Estate::builder().compilers(1).proxy(change).start()
}

/// A service manager's socket.
struct ServiceManager {
    socket: net::UnixDatagram,
    directory: TempDir,
}

impl ServiceManager {
    fn start() -> Self {
        let directory = TempDir::new().expect("a directory");
        let socket = net::UnixDatagram::bind(directory.path().join("notify"));
        Self::with(socket.expect("a socket"), directory)
    }

    fn bind(address: &net::SocketAddr) -> Self {
        let socket = net::UnixDatagram::bind_addr(address).expect("a socket");
        Self::with(socket, TempDir::new().expect("a directory"))
    }

    fn with(socket: net::UnixDatagram, directory: TempDir) -> Self {
        Self { socket, directory }
    }

    fn path(&self) -> String {
        self.directory.path().join("notify").display().to_string()
    }

    /// The next message.
    #[track_caller]
    fn next(&self) -> String {
        self.socket
            .set_read_timeout(Some(LIMIT))
            .expect("an option");
        self.read().expect("a message in time")
    }

    /// A message that has arrived.
    fn received(&self) -> Option<String> {
        let soon = Duration::from_millis(1);
        self.socket.set_read_timeout(Some(soon)).expect("an option");
        self.read()
    }

    fn read(&self) -> Option<String> {
        let mut bytes = [0; 64];
        let length = self.socket.recv(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }
}
