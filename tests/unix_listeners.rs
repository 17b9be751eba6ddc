//! Listeners on Unix sockets.

use std::{
    fs,
    io::{self, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    thread,
};

use tempfile::TempDir;
use testkit::Client;

use crate::support::{Estate, LIMIT, assert_contains, assert_identity, paths::CATALOG};

/// A load balancer on this host that passes connections on to a Unix socket, each after this header.
fn balancer(to: &Path, header: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let to = to.to_owned();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(client), to) = (client, to.clone()) else {
                return;
            };
            thread::spawn(move || relay(client, &to, header));
        }
    });
    address
}

fn relay(mut client: TcpStream, to: &Path, header: &[u8]) -> io::Result<()> {
    let mut proxy = UnixStream::connect(to)?;
    proxy.write_all(header)?;
    let (mut back, mut answers) = (client.try_clone()?, proxy.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut answers, &mut back);
        let _ = back.shutdown(Shutdown::Both);
    });
    let _ = io::copy(&mut client, &mut proxy);
    proxy.shutdown(Shutdown::Write)
}

struct SocketDirectory {
    _directory: TempDir,
    path: PathBuf,
}

fn socket_directory() -> SocketDirectory {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("agents.sock");
    SocketDirectory {
        _directory: directory,
        path,
    }
}

fn tables(path: &Path, lines: &str) -> String {
    format!(
        "[listeners.local]\naddress = \"unix:{}\"\n{lines}\n",
        path.display()
    )
}

fn estate(path: &Path, lines: &str) -> Estate {
    let tables = tables(path, lines);
    Estate::builder().compilers(1).with(&tables).start()
}

fn mode(path: &Path) -> u32 {
    let metadata = fs::metadata(path).expect("the socket's file");
    metadata.permissions().mode() & 0o777
}

#[test]
fn tls_is_terminated_on_a_unix_socket_that_the_proxy_creates_and_removes() {
    let place = socket_directory();
    // A socket left over from a crash, on which no process listens.
    drop(UnixListener::bind(&place.path).expect("a socket of our own"));
    let estate = estate(&place.path, "");
    assert_eq!(mode(&place.path), 0o660);
    let agent = estate.ca.agent("web01");
    let front = balancer(&place.path, b"");
    let client = || -> Client { estate.client(&agent).at(front) };
    let mut open = client().connect().expect("connects");
    assert_eq!(open.get(CATALOG).status, 200);
    let asked = estate.only_request();
    assert_identity(&asked, "SUCCESS", Some("CN=web01"));
    assert_eq!(asked.only("x-forwarded-for"), "127.0.0.1");
    assert!(
        asked.headers.all("x-forwarded-port").is_empty(),
        "it has none"
    );
    let record = estate.wait_for_record(|record| record["listener"] == "local");
    assert_eq!(record["client"], "127.0.0.1", "{record}");
    let shown = format!("unix:{}", place.path.display());
    let status = estate.proxy.status().to_string();
    assert!(status.contains(&shown), "{status}");
    let checked = estate.proxy.command(&["check"], &[]);
    assert_eq!(
        checked.code,
        Some(0),
        "{}{}",
        checked.stdout,
        checked.stderr
    );

    // A reload keeps the socket, and sets its permissions.
    let file = fs::metadata(&place.path).expect("the socket's file").ino();
    let named = format!("{shown}\"\n");
    let changed = format!("{named}socket_mode = \"0600\"\nsocket_group = \"0\"\n");
    estate.edit_config(&named, &changed);
    estate.proxy.reload_applied();
    assert_eq!(fs::metadata(&place.path).expect("still there").ino(), file);
    assert_eq!(mode(&place.path), 0o600);
    assert_eq!(open.get(CATALOG).status, 200, "it stays open");
    assert_eq!(client().get(CATALOG).status, 200);

    drop(open);
    estate.proxy.terminate();
    let ended = estate.proxy.wait_for_end(LIMIT);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(!place.path.exists(), "removed at the stop");
}

#[test]
fn a_reload_adds_and_removes_a_unix_socket() {
    let place = socket_directory();
    let estate = estate(&place.path, "");
    let agent = estate.ca.agent("web01");
    let front = balancer(&place.path, b"");
    let mut open = estate.client(&agent).at(front).connect().expect("connects");
    assert_eq!(open.get(CATALOG).status, 200);
    let table = tables(&place.path, "");
    estate.edit_config(&table, "");
    estate.proxy.reload_applied();
    assert!(!place.path.exists());
    let config = estate.proxy.config_text();
    estate.write_config(&format!("{config}\n{table}"));
    estate.proxy.reload_applied();
    assert_eq!(estate.client(&agent).at(front).get(CATALOG).status, 200);
}

#[test]
fn a_proxy_header_on_a_unix_socket_names_the_client() {
    let place = socket_directory();
    let estate = estate(&place.path, "proxy_protocol = { from = [\"127.0.0.1\"] }");
    let agent = estate.ca.agent("web01");
    let front = balancer(
        &place.path,
        b"PROXY TCP4 192.0.2.77 198.51.100.1 40000 8140\r\n",
    );
    assert_eq!(estate.client(&agent).at(front).get(CATALOG).status, 200);
    assert_eq!(estate.only_request().only("x-forwarded-for"), "192.0.2.77");
    let record = estate.wait_for_record(|record| record["client"] == "192.0.2.77");
    assert_eq!(record["peer"], "127.0.0.1", "{record}");
    // Without the header the connection is refused.
    let bare = balancer(&place.path, b"");
    assert!(estate.client(&agent).at(bare).connect().is_err());
    estate.wait_for_record(|record| record["reason"] == "proxy-header");
}

#[test]
fn a_socket_on_which_another_process_listens_is_left_alone() {
    let place = socket_directory();
    let other = UnixListener::bind(&place.path).expect("a socket of our own");
    let table = tables(&place.path, "");
    let refused = Estate::builder().compilers(1).with(&table).try_start();
    let said = refused.stderr;
    assert!(said.contains("listeners.local.address"), "{said}");
    assert!(
        said.contains("another process accepts connections there"),
        "{said}"
    );
    assert!(UnixStream::connect(&place.path).is_ok());
    drop(other);
}

#[test]
fn check_reports_what_a_unix_listener_needs() {
    let place = socket_directory();
    let ca = testkit::Ca::new();
    let check = |tables: &str| {
        let outcome = crate::support::proxy(&ca).with(tables).check();
        format!("{}{}", outcome.stdout, outcome.stderr)
    };
    for (lines, expected) in [
        ("socket_mode = \"rw\"", "expected permissions in octal"),
        ("socket_group = \"\"", "is not the name of a group"),
        (
            "interface = \"lo\"",
            "no effect: connections to a Unix socket",
        ),
    ] {
        let said = check(&tables(&place.path, lines));
        assert!(said.contains(expected), "{lines}: {said}");
    }
    let said = check("[listeners.local]\naddress = \"127.0.0.1:0\"\nsocket_mode = \"0660\"\n");
    assert!(
        said.contains("no effect: no address of this listener"),
        "{said}"
    );
    let said = check("[listeners.local]\naddress = \"unix:agents.sock\"\n");
    assert!(said.contains("expected"), "{said}");
    let group = tables(&place.path, "socket_group = \"no-such-group\"");
    let refused = Estate::builder().compilers(1).with(&group).try_start();
    assert_contains(&refused.stderr, "there is no group");
}
