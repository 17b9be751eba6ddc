//! The files of `packaging/` match systemd, each other and the program.

use std::{fs, path::Path};

use tempfile::TempDir;
use testkit::Tool;

const UNIT: &str = include_str!("../packaging/proscenium.service");
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
