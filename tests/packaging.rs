//! The files of `packaging/` match systemd, each other and the program.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
};

use tempfile::TempDir;
use testkit::Tool;

const UNIT: &str = include_str!("../packaging/proscenium.service");
const POSTINST: &str = include_str!("../packaging/scripts/postinst");
const LOGROTATE: &str = include_str!("../packaging/logrotate");
const DIRECTORIES: &str = include_str!("../packaging/tmpfiles.conf");
const BINARY: &str = env!("CARGO_BIN_EXE_proscenium");
/// The highest exposure level that `systemd-analyze security` may report for the service, in tenths.
const EXPOSURE_MAX: &str = "20";

#[test]
fn systemd_accepts_the_unit_and_rates_it_as_hardened() {
    if Tool::SystemdAnalyze.command().is_none() {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let unit = directory.path().join("proscenium.service");
    // systemd checks that the programs exist; the package installs this one.
    let installed = UNIT.replace("/usr/bin/proscenium", BINARY);
    assert_ne!(installed, UNIT);
    fs::write(&unit, installed).expect("a file of our own");
    // The manual pages are not installed on this machine.
    assert_analyzed(&["verify", "--man=no"], &unit);
    let threshold = format!("--threshold={EXPOSURE_MAX}");
    assert_analyzed(
        &["security", "--offline=yes", "--no-pager", &threshold],
        &unit,
    );
}

/// If they differed, systemd would change owner or mode of a directory with all its content at each start.
#[test]
fn the_package_creates_the_directories_of_the_service_with_their_modes() {
    let mode = |key: &str, default| setting(&format!("{key}DirectoryMode")).unwrap_or(default);
    for (path, mode) in [
        ("/run", mode("Runtime", "0755")),
        ("/var/lib", mode("State", "0755")),
        ("/var/log", mode("Logs", "0755")),
    ] {
        let line = format!("d {path}/proscenium {mode} proscenium proscenium -");
        assert!(DIRECTORIES.lines().any(|found| found == line), "{line}");
    }
    for key in ["RuntimeDirectory", "StateDirectory", "LogsDirectory"] {
        assert_eq!(setting(key), Some("proscenium"), "{key}");
    }
}

#[test]
fn the_unit_allows_the_drain_to_finish_and_does_not_restart_in_vain() {
    assert_eq!(setting("Type"), Some("notify"));
    assert_eq!(setting("RestartPreventExitStatus"), Some("78"));
    let stop: u64 = setting("TimeoutStopSec")
        .and_then(|seconds| seconds.parse().ok())
        .expect("a number of seconds");
    // 60 s is the default of `drain_grace`.
    assert!(stop > 60, "{stop}");
}

/// `check` of the new program, `systemctl reload`, and what the installation prints.
#[test]
fn an_upgrade_says_why_the_new_version_does_not_run() {
    for (check, reload, words) in [
        ("exit 0", "exit 0", ""),
        ("exit 0", "exit 1", "the new version has not taken over"),
        (
            "exit 78",
            "exit 0",
            "the new version refuses the configuration",
        ),
        (
            "exit 75",
            "exit 0",
            "the new version refuses the configuration",
        ),
        ("exit 1", "exit 0", "cannot check the configuration"),
        ("exit 101", "exit 0", "crashed with exit code 101"),
        ("exit 127", "exit 0", "crashed with exit code 127"),
        ("kill -SEGV $$", "exit 0", "crashed with exit code 139"),
    ] {
        let place = TempDir::new().expect("a directory");
        let program = |name: &str, line: &str| program(place.path(), name, line);
        program("proscenium", check);
        program("systemctl", &format!("test \"$1\" != reload || {reload}"));
        program("systemd-sysusers", "");
        program("systemd-tmpfiles", "");
        // A host on which systemd runs.
        let script = POSTINST.replace("/run/systemd/system", &place.path().display().to_string());
        assert_ne!(script, POSTINST);
        let outcome = run(place.path(), &script, &["postinst", "configure", "1.0"]);
        let printed = String::from_utf8_lossy(&outcome.stderr);
        assert!(outcome.status.success(), "{check}: {printed}");
        assert!(printed.contains(words), "{check}: {printed}");
        assert_eq!(printed.is_empty(), words.is_empty(), "{check}: {printed}");
    }
}

#[test]
fn a_rotation_signals_the_main_process_alone_and_fails_if_it_cannot() {
    let script = LOGROTATE.split_once("postrotate\n").expect("a script").1;
    let script = script.split_once("endscript").expect("its end").0;
    let kill = "kill --kill-who=main --signal=USR1 proscenium.service\n";
    for (is_active, kills, is_success, sent) in [
        ("exit 0", "exit 0", true, kill),
        ("exit 0", "exit 1", false, kill),
        ("exit 3", "exit 1", true, ""),
    ] {
        let place = TempDir::new().expect("a directory");
        let log = place.path().join("log");
        let systemctl = format!(
            "case \"$*\" in\n'--quiet is-active proscenium.service') {is_active} ;;\nesac\n\
             echo \"$*\" >>{}\n{kills}",
            log.display()
        );
        program(place.path(), "systemctl", &systemctl);
        let outcome = run(place.path(), script, &["postrotate"]);
        assert_eq!(outcome.status.success(), is_success, "{outcome:?}");
        assert_eq!(fs::read_to_string(log).unwrap_or_default(), sent);
    }
}

/// Writes a program of the shell.
fn program(directory: &Path, name: &str, lines: &str) {
    let path = directory.join(name);
    fs::write(&path, format!("#!/bin/sh\n{lines}\n")).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its mode");
}

/// Runs a script of the shell with the programs of a directory.
fn run(programs: &Path, script: &str, arguments: &[&str]) -> Output {
    Command::new("sh")
        .args(["-c", script])
        .args(arguments)
        .env("PATH", format!("{}:/usr/bin:/bin", programs.display()))
        .output()
        .expect("runs")
}

#[test]
fn the_debian_changelog_begins_with_this_version() {
    let changelog = include_str!("../packaging/deb/changelog");
    let first = concat!("proscenium (", env!("CARGO_PKG_VERSION"), "-1) ");
    assert!(changelog.starts_with(first), "{first}");
}

#[test]
fn both_packages_install_the_alert_rules_where_the_documents_say() {
    let manifest = include_str!("../crates/proscenium/Cargo.toml");
    let monitoring = include_str!("../docs/operating/monitoring.md");
    let directory = "usr/share/proscenium/prometheus/";
    for line in [
        format!("[\"../../packaging/prometheus/proscenium.rules.yml\", \"{directory}\", \"644\"],"),
        format!(
            "{{ source = \"packaging/prometheus/proscenium.rules.yml\", dest = \"/{directory}\", mode = \"644\" }},"
        ),
    ] {
        assert!(manifest.lines().any(|its| its.trim() == line), "{line}");
    }
    assert!(monitoring.contains(&format!("/{directory}proscenium.rules.yml")));
}

/// The value of a setting of the unit.
fn setting(key: &str) -> Option<&'static str> {
    UNIT.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
}

/// `systemd-analyze` accepts the unit and prints nothing about it.
fn assert_analyzed(arguments: &[&str], unit: &Path) {
    let mut analyze = Tool::SystemdAnalyze.command().expect("it is installed");
    let output = analyze
        .args(arguments)
        .arg(unit)
        .output()
        .expect("systemd-analyze starts");
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{stdout}{stderr}");
    // Messages about other units of the machine do not matter.
    let complaint = stderr.lines().find(|line| line.contains("proscenium"));
    assert_eq!(complaint, None);
}
