//! What a start needs from the host in addition to the files that it reads: addresses, log files, the admin socket and the
//! state directory. Nothing is created, and no connection is accepted.

use std::{
    fs, io,
    net::SocketAddr,
    os::unix::{ffi::OsStrExt, fs::FileTypeExt, net},
    path::{Path, PathBuf},
};

use admin::AdminClient;
use config::{AccessLogOutput, Config, ConfigReport};
use listener::{ListenAddress, ListenEndpoint, ListenerSettings};
use rustix::fs::Access;
use state::{
    StateDirectory,
    state_directory::{Exists, permitted},
    stored_blocks::StoredBlocksError,
};
use tokio::runtime;

use crate::{
    hand_over::TakenSockets, listening, running_socket::running_socket, socket_file::try_bind,
};

/// Why a start would fail on this host.
pub(crate) struct HostFault {
    key: String,
    message: String,
    help: Option<String>,
    /// Whether the same configuration may start later without any change.
    may_pass: bool,
}

/// A proxy that runs already, and what it has open.
#[derive(Debug, Default)]
pub(crate) struct RunningProxy {
    /// Whether a proxy answers on the admin socket.
    answers: bool,
    /// The addresses of its listeners.
    addresses: Vec<ListenAddress>,
}

impl RunningProxy {
    /// Asks the proxy on the admin socket for its addresses, if one runs. If none answers there, the running proxy may have been
    /// started before the file got another socket.
    pub(crate) fn query(socket: &Path, configuration: &Path) -> Self {
        let Ok(runtime) = runtime::Builder::new_current_thread().enable_all().build() else {
            return Self::default();
        };
        let addresses = |socket: &Path| {
            let answered = runtime.block_on(AdminClient::new(socket).listener_addresses());
            let parse = |addresses: Vec<String>| -> Vec<ListenAddress> {
                let parsed = addresses.iter().filter_map(|address| address.parse().ok());
                parsed.collect()
            };
            answered.ok().map(parse)
        };
        let configured = addresses(socket);
        Self {
            answers: configured.is_some(),
            addresses: configured
                .or_else(|| addresses(&running_socket(configuration)?))
                .unwrap_or_default(),
        }
    }

    /// The running process that has passed these sockets. Without sockets, no process is assumed to run.
    pub(crate) fn of_sockets(sockets: &TakenSockets) -> Self {
        Self {
            answers: sockets.has_admin(),
            addresses: sockets.addresses().collect(),
        }
    }

    /// Whether one of its listeners may prevent `address` from being bound, because one of the two is every address of the
    /// host.
    fn overlaps(&self, address: SocketAddr) -> bool {
        let mut held = self.addresses.iter().filter_map(ListenAddress::ip);
        held.any(|held| {
            let is_any = held.ip().is_unspecified() || address.ip().is_unspecified();
            held.port() == address.port() && is_any
        })
    }
}

/// Everything on this host that prevents a start of `config`. Addresses and the admin socket of the running proxy are not
/// faults.
pub(crate) fn faults(config: &Config, running: &RunningProxy) -> Vec<HostFault> {
    let mut faults = Vec::new();
    for listener in &config.listeners {
        faults.extend(
            listener
                .endpoints()
                .filter_map(|endpoint| match endpoint.address.path() {
                    Some(path) => unusable_socket(listener, path, running),
                    None => {
                        let table = format!("listeners.{}", listener.name);
                        unbindable(&table, &endpoint, running)
                    }
                }),
        );
    }
    faults.extend(config.metrics.address.and_then(|address| {
        let endpoint = ListenEndpoint {
            address: ListenAddress::Ip(address),
            only_v6: address.is_ipv6(),
            interface: None,
        };
        unbindable("metrics", &endpoint, running)
    }));
    for log in std::iter::once(&config.access_log).chain(&config.other_access_logs) {
        if let AccessLogOutput::File(path) = &log.output {
            faults.extend(try_log(path, &config.admin.socket).err());
        }
    }
    if !running.answers {
        faults.extend(try_socket(&config.admin.socket, "admin.socket", "admin socket").err());
    }
    faults
}

/// Why an address cannot be bound, unless the running proxy is the reason.
fn unbindable(table: &str, endpoint: &ListenEndpoint, running: &RunningProxy) -> Option<HostFault> {
    let is_held = running.addresses.contains(&endpoint.address);
    if is_held && endpoint.interface.is_none() {
        return None;
    }
    let error = listener::try_bind(endpoint).err()?;
    if is_held && !error.is_interface() {
        return None;
    }
    let source = &error.source;
    let address = endpoint.address.ip()?;
    if source.kind() == io::ErrorKind::AddrInUse && running.overlaps(address) {
        return None;
    }
    let key = if error.is_interface() {
        "interface"
    } else {
        "address"
    };
    Some(HostFault {
        help: error.help().map(str::to_owned),
        may_pass: may_pass(source),
        ..HostFault::new(
            format!("{table}.{key}"),
            format!("cannot listen on {endpoint}: {source}"),
        )
    })
}

/// Why the Unix socket of a listener cannot be created, unless the running proxy is the reason.
fn unusable_socket(
    settings: &ListenerSettings,
    path: &Path,
    running: &RunningProxy,
) -> Option<HostFault> {
    let key = format!("listeners.{}", settings.name);
    if let Err(error) = listening::group(settings) {
        return Some(HostFault::new(
            format!("{key}.socket_group"),
            error.to_string(),
        ));
    }
    if running
        .addresses
        .contains(&ListenAddress::Unix(path.to_owned()))
    {
        return None;
    }
    try_socket(path, &format!("{key}.address"), "socket").err()
}

/// The fault that another process owns the state directory, if so. Otherwise this process owns it from now on.
pub(crate) fn locked(directory: &StateDirectory) -> Option<HostFault> {
    let error = directory.lock().err()?;
    Some(HostFault {
        help: Some(
            "stop that process, or run `proscenium run --hand-over` to take over from it"
                .to_owned(),
        ),
        may_pass: true,
        ..HostFault::new("state.directory", error.to_string())
    })
}

/// The fault that the stored blocks cannot be read. A start without them would accept blocked clients.
pub(crate) fn unreadable_blocks(error: &StoredBlocksError) -> HostFault {
    HostFault::new("state.directory", error.to_string())
}

/// Why the state directory cannot be used, if so. A start continues without it and raises an alarm.
pub(crate) fn state_warning(directory: &StateDirectory) -> Option<String> {
    let why = match directory.usable() {
        Ok(Exists::Yes) => return None,
        Ok(Exists::No) => may_create_in(&parent_of(directory.path()))
            .err()?
            .to_string(),
        Err(error) => error.to_string(),
    };
    Some(format!(
        "the state directory {} cannot be used, so that changes made while the proxy runs are lost at a restart: {why}",
        directory.path().display()
    ))
}

/// Adds the faults to the report. `None` if there are none, else whether all of them may pass.
pub(crate) fn add(faults: Vec<HostFault>, report: &mut ConfigReport) -> Option<bool> {
    let may_pass = (!faults.is_empty()).then(|| faults.iter().all(|fault| fault.may_pass));
    for fault in faults {
        let help: Vec<_> = fault.help.into_iter().collect();
        report.fail(&fault.key, &fault.message, &help);
    }
    may_pass
}

impl HostFault {
    fn new(key: impl Into<String>, message: String) -> Self {
        Self {
            key: key.into(),
            message,
            help: None,
            may_pass: false,
        }
    }
}

/// Whether the error may disappear without a change. An address may become free, and an interface may come up after the
/// service. Permissions do not change by waiting.
fn may_pass(error: &io::Error) -> bool {
    !matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied
            | io::ErrorKind::NotFound
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::Unsupported
    )
}

fn try_log(path: &Path, admin_socket: &Path) -> Result<(), HostFault> {
    let fault = |help: String, why: &dyn std::fmt::Display| HostFault {
        help: Some(help),
        ..HostFault::new(
            "access_log.path",
            format!("cannot write the access log {}: {why}", path.display()),
        )
    };
    let owned = || format!("give {} write access, or set another file", account());
    let in_directory = || "set a file in that directory".to_owned();
    if path == admin_socket {
        let why = "`admin.socket` has the same path";
        return Err(fault("set another file".to_owned(), &why));
    }
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(fault(in_directory(), &"it is a directory")),
        Ok(found) if found.file_type().is_socket() => {
            Err(fault("set another file".to_owned(), &"it is a socket"))
        }
        Ok(_) => permitted(path, Access::WRITE_OK).map_err(|error| fault(owned(), &error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if path.as_os_str().as_bytes().ends_with(b"/") {
                return Err(fault(in_directory(), &"the path ends in a slash"));
            }
            // Opening the file creates the target of a link, in the target's directory.
            let target = fs::read_link(path).ok();
            let target = target.map(|target| parent_of(path).join(target));
            let parent = parent_of(target.as_deref().unwrap_or(path));
            if parent.exists() {
                return may_create_in(&parent).map_err(|error| fault(owned(), &error));
            }
            Err(fault(
                format!(
                    "run `install -d -o {} -m 0750 {}`, or set `LogsDirectory=` in the service unit",
                    account(),
                    parent.display()
                ),
                &format!("the directory {} does not exist", parent.display()),
            ))
        }
        Err(error) => Err(fault(owned(), &error)),
    }
}

fn try_socket(path: &Path, key: &str, name: &str) -> Result<(), HostFault> {
    let fault = |error: io::Error| HostFault {
        help: Some(match error.kind() {
            io::ErrorKind::AddrInUse => "stop the other process, or set another socket".to_owned(),
            _ => format!(
                "give {} write access (`RuntimeDirectory=` in the service unit), or set another socket",
                account()
            ),
        }),
        may_pass: error.kind() == io::ErrorKind::AddrInUse,
        ..HostFault::new(
            key,
            format!("cannot create the {name} {}: {error}", path.display()),
        )
    };
    net::SocketAddr::from_pathname(path).map_err(fault)?;
    try_bind(path).map_err(fault)?;
    // A start creates missing directories above it.
    let mut directory = parent_of(path);
    while !directory.exists() && directory.parent().is_some() {
        if directory.is_symlink() {
            let why = format!("directory {}: the link leads nowhere", directory.display());
            return Err(fault(io::Error::new(io::ErrorKind::NotADirectory, why)));
        }
        directory = parent_of(&directory);
    }
    may_create_in(&directory).map_err(fault)
}

/// Whether this account may create files in a directory that exists.
fn may_create_in(directory: &Path) -> io::Result<()> {
    let fail = |why: &dyn std::fmt::Display, kind| {
        io::Error::new(kind, format!("directory {}: {why}", directory.display()))
    };
    match fs::metadata(directory) {
        Ok(found) if !found.is_dir() => {
            Err(fail(&"it is not a directory", io::ErrorKind::NotADirectory))
        }
        Ok(_) => permitted(directory, Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|error| fail(&error, error.kind())),
        Err(error) => Err(fail(&error, error.kind())),
    }
}

fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn account() -> String {
    state::accounts::user()
}

#[cfg(test)]
mod tests {
    use std::os::unix::{fs::symlink, net::UnixListener};

    use super::*;

    fn try_admin(path: &Path) -> Result<(), HostFault> {
        try_socket(path, "admin.socket", "admin socket")
    }

    fn message_of(outcome: Result<(), HostFault>) -> Option<(String, bool)> {
        outcome.err().map(|fault| (fault.message, fault.may_pass))
    }

    #[test]
    fn a_log_is_writable_where_its_directory_exists_and_nothing_is_created() {
        let place = tempfile::tempdir().expect("a directory");
        let log = place.path().join("access.log");
        let socket = place.path().join("admin.sock");
        assert_eq!(message_of(try_log(&log, &socket)), None);
        assert!(!log.exists());
        fs::write(&log, "").expect("a file of the test");
        assert_eq!(message_of(try_log(&log, &socket)), None);
        for (path, why) in [
            (place.path().join("none/access.log"), "does not exist"),
            (place.path().to_owned(), "it is a directory"),
            (log.join("below"), "Not a directory"),
        ] {
            let (message, may_pass) = message_of(try_log(&path, &socket)).expect("a fault");
            assert!(message.contains(why) && !may_pass, "{message}");
        }
    }

    #[test]
    fn an_admin_socket_that_cannot_be_created_is_a_fault() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("a/b/admin.sock");
        assert_eq!(
            message_of(try_admin(&path)),
            None,
            "a start creates a and b"
        );
        assert!(!place.path().join("a").exists());
        fs::write(place.path().join("a"), "").expect("a file of the test");
        let (_, may_pass) = message_of(try_admin(&path)).expect("a fault");
        assert!(!may_pass);
        let long = place.path().join("x".repeat(120));
        let (message, may_pass) = message_of(try_admin(&long)).expect("a fault");
        assert!(message.contains("SUN_LEN") && !may_pass, "{message}");
        let other = place.path().join("other.sock");
        let listening = UnixListener::bind(&other).expect("a socket of the test");
        let (_, may_pass) = message_of(try_admin(&other)).expect("a fault");
        assert!(may_pass, "the other process may exit");
        drop(listening);
        assert_eq!(
            message_of(try_admin(&other)),
            None,
            "it is left from a crash"
        );
    }

    #[test]
    fn a_fault_may_pass_only_if_time_can_change_it() {
        for (kind, expected) in [
            (io::ErrorKind::AddrInUse, true),
            (io::ErrorKind::AddrNotAvailable, true),
            (io::ErrorKind::PermissionDenied, false),
            (io::ErrorKind::NotFound, false),
        ] {
            assert_eq!(may_pass(&kind.into()), expected, "{kind}");
        }
    }

    #[test]
    fn a_log_path_that_cannot_be_opened_as_a_file_is_a_fault() {
        let place = tempfile::tempdir().expect("a directory");
        let below = |name: &str| place.path().join(name);
        let socket = below("admin.sock");
        let _listening = UnixListener::bind(below("other.sock")).expect("a socket of the test");
        symlink("none/access.log", below("dangling")).expect("a link of the test");
        symlink("new.log", below("link")).expect("a link of the test");
        assert_eq!(message_of(try_log(&below("link"), &socket)), None);
        for (path, why) in [
            (below("dangling"), "does not exist"),
            (below("new/"), "ends in a slash"),
            (below("other.sock"), "it is a socket"),
            (socket.clone(), "has the same path"),
        ] {
            let (message, may_pass) = message_of(try_log(&path, &socket)).expect("a fault");
            assert!(message.contains(why) && !may_pass, "{message}");
        }
    }

    #[test]
    fn an_admin_socket_below_a_link_that_leads_nowhere_is_a_fault() {
        let place = tempfile::tempdir().expect("a directory");
        let link = place.path().join("run");
        symlink("none", &link).expect("a link of the test");
        let (message, may_pass) = message_of(try_admin(&link.join("admin.sock"))).expect("a fault");
        assert!(
            message.contains("the link leads nowhere") && !may_pass,
            "{message}"
        );
    }

    #[test]
    fn an_address_that_overlaps_one_of_the_running_proxy_is_accepted() {
        let running = |address: &str| RunningProxy {
            answers: true,
            addresses: vec![address.parse().expect("an address")],
        };
        for (held, wanted, expected) in [
            ("127.0.0.1:8140", "0.0.0.0:8140", true),
            ("127.0.0.1:8140", "[::]:8140", true),
            ("[::]:8140", "127.0.0.1:8140", true),
            ("127.0.0.1:8140", "0.0.0.0:8141", false),
            ("127.0.0.1:8140", "127.0.0.2:8140", false),
        ] {
            let wanted = wanted.parse().expect("an address");
            assert_eq!(running(held).overlaps(wanted), expected, "{held} {wanted}");
        }
    }
}
