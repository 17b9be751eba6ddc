//! A test's own namespaces: a network, in which the test cuts off a server as if its host had lost power, and mounts,
//! with a disk that the test fills.

use std::{env, net::SocketAddr, path::Path, process::Stdio};

use crate::tools::{Tool, skip};

/// The variable that is set in the process with the namespaces.
const INNER: &str = "PROSCENIUM_TEST_NAMESPACES";

/// Whether this process has its own namespaces: a network with loopback only, and mounts. A test calls this function
/// first and returns if it is false. In that case the test has passed in a second process with such namespaces, or it
/// is skipped because this machine cannot create them. `test` is the path of the test, such as
/// `dead_members::a_post_ends`.
///
/// # Panics
/// The test fails in the second process.
pub fn has_own_namespaces(test: &str) -> bool {
    if env::var_os(INNER).is_some() {
        return true;
    }
    let (Some(_), Some(mut unshare)) = (Tool::Ip.command(), Tool::Unshare.command()) else {
        return false;
    };
    // An ordinary account may create namespaces only within a user namespace.
    let arguments: &[&str] = if rustix::process::geteuid().is_root() {
        &["--mount", "--net"]
    } else {
        &["--user", "--map-root-user", "--mount", "--net"]
    };
    let probe = Tool::Unshare.command().is_some_and(|mut unshare| {
        unshare.args(arguments).arg("true").stderr(Stdio::null());
        unshare.status().is_ok_and(|status| status.success())
    });
    if !probe {
        skip("this machine permits no namespaces", &[]);
        return false;
    }
    let program = env::current_exe().expect("this program");
    let output = unshare
        .args(arguments)
        .args(["sh", "-c", "ip link set lo up && exec \"$0\" \"$@\""])
        .arg(program)
        .args([test, "--exact", "--nocapture"])
        .env(INNER, "1")
        .output()
        .expect("unshare starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let passed = output.status.success() && printed.contains("1 passed");
    assert!(passed, "in its own namespaces:\n{printed}\n{errors}");
    false
}

/// Drops every packet to and from this loopback port from now on, without any answer. Only in the test's own
/// namespaces.
///
/// # Panics
/// This process does not have its own namespaces.
pub fn cut_off(server: SocketAddr) {
    for side in ["dport", "sport"] {
        drop_packets(&format!("ipproto tcp {side} {}", server.port()));
    }
}

/// Drops every packet that the programs of an account send to this loopback port. Only in the test's own namespaces.
///
/// # Panics
/// This process does not have its own namespaces.
pub(crate) fn cut_off_account(account: u32, server: SocketAddr) {
    let port = server.port();
    drop_packets(&format!(
        "uidrange {account}-{account} ipproto tcp dport {port}"
    ));
}

/// Drops no more packets.
///
/// # Panics
/// This process does not have its own namespaces.
pub fn reconnect() {
    assert_own();
    while ip("rule show").lines().any(|rule| rule.starts_with("5:")) {
        ip("rule del pref 5");
    }
}

fn drop_packets(selector: &str) {
    assert_own();
    // The rules must precede the table of local addresses, which the kernel puts first, so that table is moved.
    if !ip("rule show").contains("10:\tfrom all lookup local") {
        ip("rule add pref 10 lookup local");
        ip("rule del pref 0");
    }
    ip(&format!("rule add pref 5 {selector} blackhole"));
}

fn assert_own() {
    let is_own = env::var_os(INNER).is_some();
    assert!(is_own, "only in namespaces of its own");
}

/// Mounts an empty disk of 512 KiB at this directory, for the rest of this process.
///
/// # Panics
/// This process does not have its own namespaces.
pub fn small_disk(directory: &Path) {
    assert_own();
    let mut mount = Tool::Mount.command().expect("it comes with unshare");
    mount.args(["-t", "tmpfs", "-o", "size=512k,mode=0700", "tmpfs"]);
    let output = mount.arg(directory).output().expect("mount starts");
    assert!(output.status.success(), "{output:?}");
}

/// Shows one file at the path of another one, for the rest of this process and the programs that it starts.
///
/// # Panics
/// This process does not have its own namespaces.
pub fn mount_over(file: &Path, path: &Path) {
    assert_own();
    let mut mount = Tool::Mount.command().expect("it comes with unshare");
    let output = mount.arg("--bind").arg(file).arg(path).output();
    let output = output.expect("mount starts");
    assert!(output.status.success(), "{output:?}");
}

fn ip(arguments: &str) -> String {
    let mut ip = Tool::Ip.command().expect("it has made these namespaces");
    let output = ip.args(arguments.split(' ')).output().expect("ip starts");
    assert!(output.status.success(), "{arguments}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
