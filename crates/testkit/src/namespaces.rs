//! Namespaces of a test's own: a network in which it cuts a server off as a host that has lost its power, and mounts, with a
//! disk that it fills.

use std::{env, net::SocketAddr, path::Path, process::Stdio};

use crate::tools::{Tool, skip};

/// Set in the process that has the namespace.
const INNER: &str = "PROSCENIUM_TEST_NAMESPACES";

/// Whether this process has namespaces of its own: a network with loopback alone, and mounts. A test calls it first and
/// returns if it is false: the test has then passed in a second process with such namespaces, or this machine cannot make
/// them, and it is skipped. `test` is its path, such as `dead_members::a_post_ends`.
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
    // An ordinary account may make namespaces in a user namespace only.
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

/// Drops every packet to and from this port of loopback from now on, without any answer. Only in namespaces of the
/// test's own.
///
/// # Panics
/// This process has no such namespaces.
pub fn cut_off(server: SocketAddr) {
    for side in ["dport", "sport"] {
        drop_packets(&format!("ipproto tcp {side} {}", server.port()));
    }
}

/// Drops every packet that the programs of an account send to this port of loopback. Only in namespaces of the test's own.
///
/// # Panics
/// This process has no such namespaces.
pub(crate) fn cut_off_account(account: u32, server: SocketAddr) {
    let port = server.port();
    drop_packets(&format!(
        "uidrange {account}-{account} ipproto tcp dport {port}"
    ));
}

/// Drops no packet any more.
///
/// # Panics
/// This process has no namespaces of its own.
pub fn reconnect() {
    assert_own();
    while ip("rule show").lines().any(|rule| rule.starts_with("5:")) {
        ip("rule del pref 5");
    }
}

fn drop_packets(selector: &str) {
    assert_own();
    // The rules come before the table of local addresses, which the kernel has at the first place.
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
/// This process has no namespaces of its own.
pub fn small_disk(directory: &Path) {
    assert_own();
    let mut mount = Tool::Mount.command().expect("it comes with unshare");
    mount.args(["-t", "tmpfs", "-o", "size=512k,mode=0700", "tmpfs"]);
    let output = mount.arg(directory).output().expect("mount starts");
    assert!(output.status.success(), "{output:?}");
}

fn ip(arguments: &str) -> String {
    let mut ip = Tool::Ip.command().expect("it has made these namespaces");
    let output = ip.args(arguments.split(' ')).output().expect("ip starts");
    assert!(output.status.success(), "{arguments}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
