//! The command line reaches the running proxy while its configuration file is edited, broken or missing.

use std::{fs, os::unix::fs::PermissionsExt};

use testkit::{CommandOutcome, Proxy};

use crate::support::{Estate, assert_contains};

/// The file that has the path of the admin socket, in the runtime directory.
const FILE: &str = "admin-socket";

/// Asserts that a command reached the proxy, and that it shows why it did not use the configuration file.
#[track_caller]
fn assert_reached(proxy: &Proxy, outcome: &CommandOutcome, code: i32, fault: &str) {
    assert_eq!(outcome.code, Some(code), "{outcome:?}");
    let file = proxy.config_path();
    let begin = format!("the configuration file {} {fault}", file.display());
    assert_contains(&outcome.stderr, &begin);
    let socket = proxy.admin_socket();
    let end = format!(
        "; using the socket {} of the running proxy\n",
        socket.display()
    );
    assert_contains(&outcome.stderr, &end);
}

#[test]
fn commands_reach_the_running_proxy_whatever_the_configuration_file_contains() {
    let estate = Estate::start();
    let proxy = &estate.proxy;
    let status = proxy.command(&["status"], &[]);
    assert_eq!((status.code, status.stderr.as_str()), (Some(0), ""));

    // Another path, which applies after a restart.
    let text = proxy.config_text();
    proxy.edit_config("admin.sock\"", "later.sock\"");
    let later = proxy.directory().join("later.sock");
    let fault = format!("sets {}, where no proxy listens", later.display());
    for words in [&["status"][..], &["reload"], &["status"]] {
        assert_reached(proxy, &proxy.command(words, &[]), 0, &fault);
    }
    let check = proxy.command(&["check"], &[]);
    assert_eq!(check.code, Some(0), "its own addresses are free: {check:?}");
    assert!(proxy.status().to_string().contains("restart-pending"));

    // The socket stands after the error.
    let broken = text.replace("[admin]", "members = [\n[admin]");
    assert_ne!(broken, text);
    proxy.write_config(&broken);
    assert_reached(
        proxy,
        &proxy.command(&["status"], &[]),
        0,
        "cannot be parsed",
    );
    let reload = proxy.command(&["reload"], &[]);
    assert_reached(proxy, &reload, 78, "cannot be parsed");
    assert_contains(&reload.stderr, "refused: generation");

    fs::remove_file(proxy.config_path()).expect("the file goes");
    assert_reached(
        proxy,
        &proxy.command(&["status"], &[]),
        0,
        "cannot be read: ",
    );
    assert_reached(
        proxy,
        &proxy.command(&["reload"], &[]),
        78,
        "cannot be read: ",
    );
    fs::create_dir(proxy.config_path()).expect("a directory in its place");
    assert_reached(
        proxy,
        &proxy.command(&["status"], &[]),
        0,
        "cannot be read: ",
    );
    fs::remove_dir(proxy.config_path()).expect("the directory goes");

    // A path that every account could have written.
    let file = proxy.directory().join(FILE);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("a mode");
    proxy.write_config(&broken);
    let outcome = proxy.command(&["status"], &[]);
    assert!(!outcome.stderr.contains("using the socket"), "{outcome:?}");
    proxy.write_config(&text);
    assert_eq!(proxy.command(&["reload"], &[]).code, Some(0));
}

#[test]
fn the_path_of_the_socket_survives_a_hand_over_and_goes_with_the_process() {
    let estate = Estate::start();
    let proxy = &estate.proxy;
    let file = proxy.directory().join(FILE);
    let mut former = proxy.take_over().unwrap_or_else(|o| panic!("{o:?}"));
    assert_eq!(former.wait_for_end(super::support::LIMIT).code, Some(0));
    let text = proxy.config_text();
    proxy.write_config("members = [\n");
    assert_reached(
        proxy,
        &proxy.command(&["status"], &[]),
        0,
        "cannot be parsed",
    );
    proxy.write_config(&text);
    proxy.terminate();
    assert_eq!(proxy.wait_for_end(super::support::LIMIT).code, Some(0));
    assert!(!file.exists());
}
