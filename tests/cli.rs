//! The command line: exit codes, what is said on which stream, and the verbs that ask a running proxy.

#![allow(clippy::disallowed_methods, reason = "tests write files")]

use std::{fs, path::Path};

use tempfile::TempDir;
use testkit::{Ca, Outcome, command_line};

use crate::support;

const BINARY: &str = env!("CARGO_BIN_EXE_proscenium");

#[test]
fn help_shows_every_verb_and_the_exit_codes() {
    let help = proscenium(&["--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    for expected in [
        "run",
        "check",
        "explain",
        "config",
        "reload",
        "status",
        "ready",
        "drain",
        "maintenance",
        "block",
        "unblock",
        "who",
        "doctor",
        "blocks",
        "version",
        "64",
        "78",
    ] {
        assert!(
            help.stdout.contains(expected),
            "{expected} is not in {}",
            help.stdout
        );
    }
    let show = proscenium(&["config", "show", "--help"]);
    assert_eq!(show.code, Some(0));
    assert!(show.stdout.contains("--defaults"));
}

#[test]
fn version_is_a_verb_and_a_flag() {
    let expected = format!("proscenium {}\n", env!("CARGO_PKG_VERSION"));
    for arguments in ["version", "--version"] {
        let version = proscenium(&[arguments]);
        assert_eq!((version.code, version.stdout), (Some(0), expected.clone()));
    }
}

#[test]
fn a_command_line_that_makes_no_sense_exits_64() {
    for (arguments, expected) in [
        (&[][..], "Usage: proscenium"),
        (&["chek"], "a similar subcommand exists: 'check'"),
        (&["run", "--frob"], "--frob"),
        (&["run", "--log", "info=loud=very"], "--log"),
        (&["drain", "compilers"], "<MEMBER>"),
        (&["explain"], "<URL>"),
        (
            &["explain", "/x", "--cert", "a.pem", "--certname", "a"],
            "cannot be used with",
        ),
        (&["explain", "/x", "--header", "nonsense"], "NAME: VALUE"),
        (&["config"], "show"),
    ] {
        let outcome = proscenium(arguments);
        assert_eq!(
            (outcome.code, outcome.stdout.as_str()),
            (Some(64), ""),
            "{arguments:?}"
        );
        assert!(
            outcome.stderr.contains(expected),
            "{arguments:?}: {}",
            outcome.stderr
        );
    }
}

#[test]
fn an_unknown_key_is_refused_by_every_verb_that_reads_the_configuration() {
    let directory = TempDir::new().unwrap();
    let config = directory.path().join("proscenium.toml");
    fs::write(
        &config,
        "workers = 1\n[pools.compilers]\nmembrs = [\"c1:8140\"]\n",
    )
    .unwrap();
    let config = config.to_str().unwrap();
    for verb in [
        &["run", "--config", config][..],
        &["check", "--config", config],
        &["explain", "/puppet/v3/catalog/web01", "--config", config],
        &["config", "show", "--config", config],
    ] {
        let outcome = proscenium(verb);
        assert_eq!(
            (outcome.code, outcome.stdout.as_str()),
            (Some(78), ""),
            "{verb:?}"
        );
        for expected in [&format!("{config}:3:1"), "membrs", "members", "^^^^^^"] {
            assert!(
                outcome.stderr.contains(expected),
                "{expected} is not in {}",
                outcome.stderr
            );
        }
    }
}

#[test]
fn a_configuration_that_is_not_there_exits_78() {
    let outcome = proscenium(&["check", "--config", "/nonexistent/proscenium.toml"]);
    assert_eq!(outcome.code, Some(78));
    assert!(
        outcome.stderr.contains("/nonexistent/proscenium.toml"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn verbs_that_ask_say_what_to_do_where_no_proxy_runs() {
    let directory = TempDir::new().unwrap();
    let socket = directory.path().join("admin.sock");
    let config = directory.path().join("proscenium.toml");
    // Broken besides: the socket is found all the same.
    let text = format!("workers = oops\n[admin]\nsocket = {socket:?}\n");
    fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();
    let other = directory.path().join("other.sock");
    let other = other.to_str().unwrap();
    for (arguments, socket) in [
        (
            &["reload", "--config", config][..],
            socket.to_str().unwrap(),
        ),
        (&["status", "--config", config], socket.to_str().unwrap()),
        (
            &["drain", "p", "m", "--config", config],
            socket.to_str().unwrap(),
        ),
        (&["ready", "p", "m", "--socket", other], other),
        (&["maintenance", "p", "m", "--socket", other], other),
    ] {
        let outcome = proscenium(arguments);
        assert_eq!(
            (outcome.code, outcome.stdout.as_str()),
            (Some(1), ""),
            "{arguments:?}"
        );
        let expected = format!("no proscenium is listening on {socket}: is it running?");
        assert!(outcome.stderr.contains(&expected), "{}", outcome.stderr);
    }
}

#[test]
fn check_tells_the_certificate_names_and_the_crls_in_force() {
    let ca = Ca::new();
    let good = configured(&ca, "127.0.0.1:1").check();
    assert_eq!(good.code, Some(0), "{}", good.stderr);
    assert!(
        good.stdout.contains("puppet") && good.stdout.contains("CRL"),
        "{}",
        good.stdout
    );
    assert!(
        good.stdout.ends_with("proscenium.toml: good\n"),
        "{}",
        good.stdout
    );
}

#[test]
fn reload_waits_and_exits_by_the_outcome() {
    let ca = Ca::new();
    let proxy = configured(&ca, "127.0.0.1:1").start();

    proxy.edit_config(
        "[pools.ca]",
        "[pools.other]\nscheme = \"http\"\nmembers = [\"127.0.0.1:3\"]\n[pools.ca]",
    );
    let applied = proxy.command(&["reload"], &[]);
    assert_eq!(applied.code, Some(0), "{}", applied.stderr);
    assert!(
        applied
            .stdout
            .ends_with("applied: generation 2 is in force\n"),
        "{}",
        applied.stdout
    );

    let unchanged = proxy.command(&["reload"], &[]);
    assert_eq!(unchanged.code, Some(0), "{}", unchanged.stderr);

    proxy.edit_config("[pools.other]", "[pols.other]");
    let refused = proxy.command(&["reload"], &[]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(78), ""));
    for expected in ["pols", "pools", "serves on"] {
        assert!(
            refused.stderr.contains(expected),
            "{expected} is not in {}",
            refused.stderr
        );
    }
    let status = proxy.status();
    assert_eq!(status["phase"], "serving");
    assert_eq!(status["last_reload"]["result"], "refused");
}

#[test]
fn an_unknown_member_exits_1_and_names_those_there_are() {
    let ca = Ca::new();
    let proxy = configured(&ca, "127.0.0.1:1").start();
    for (pool, member, expected) in [
        ("compilers", "c9:8140", "127.0.0.1:1"),
        ("catalogs", "127.0.0.1:1", "compilers"),
    ] {
        let outcome = proxy.command(&["drain", pool, member], &[]);
        assert_eq!(outcome.code, Some(1));
        assert!(outcome.stderr.contains(expected), "{}", outcome.stderr);
    }
}

#[test]
fn explain_tells_pool_and_access_without_a_running_proxy() {
    let ca = Ca::new();
    let proxy = configured(&ca, "127.0.0.1:1").start();
    for (arguments, expected) in [
        (
            &["/puppet/v3/catalog/web01", "--certname", "web01"][..],
            "compilers",
        ),
        (&["/puppet/v3/catalog/web01"], "403"),
        (&["/puppet/v3/catalog/web01", "--certname", "web02"], "403"),
        (&["/puppet-ca/v1/certificate/ca"], "127.0.0.1:2"),
        (&["/puppet/v3/%2e%2e/x", "--certname", "web01"], "400"),
        (
            &["https://puppet:8140/nowhere", "--certname", "web01"],
            "404",
        ),
    ] {
        let outcome = proxy.command(&["explain"], arguments);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        assert!(
            outcome.stdout.contains(expected),
            "{arguments:?}: {}",
            outcome.stdout
        );
    }
}

#[test]
fn config_show_prints_what_the_parser_reads_back() {
    let ca = Ca::new();
    let proxy = configured(&ca, "127.0.0.1:1").start();
    for flags in [&[][..], &["--defaults"]] {
        let shown = proxy.command(&["config", "show"], flags);
        assert_eq!(shown.code, Some(0), "{}", shown.stderr);
        proxy.write_config(&shown.stdout);
        let again = proxy.command(&["config", "show"], flags);
        assert_eq!(again.stdout, shown.stdout);
    }
}

/// A CA and one compiler over plain HTTP.
fn configured(ca: &Ca, compiler: &str) -> testkit::ProxyBuilder {
    support::proxy(ca)
        .with("[pools.ca]\nscheme = \"http\"\nmembers = [\"127.0.0.1:2\"]")
        .with(&format!(
            "[pools.compilers]\nscheme = \"http\"\nmembers = [\"{compiler}\"]"
        ))
}

fn proscenium(arguments: &[&str]) -> Outcome {
    command_line(Path::new(BINARY), arguments)
}
