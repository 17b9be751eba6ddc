//! The alert rules for Prometheus: they are valid, their tests pass, and their metrics, labels and pages exist.

use std::{fs, path::PathBuf};

use regex::Regex;
use testkit::Tool;

use crate::support::{Estate, paths::CATALOG};

fn directory() -> PathBuf {
    PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/prometheus"
    ))
}

fn rules() -> String {
    fs::read_to_string(directory().join("proscenium.rules.yml")).expect("the rules")
}

#[test]
fn the_rules_are_valid_and_their_tests_pass() {
    for arguments in [
        ["check", "rules", "proscenium.rules.yml"],
        ["test", "rules", "proscenium.rules.test.yml"],
    ] {
        let Some(mut promtool) = Tool::Promtool.command() else {
            return;
        };
        let output = promtool.args(arguments).current_dir(directory()).output();
        let output = output.expect("promtool starts");
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {text}{errors}");
    }
}

#[test]
fn every_rule_is_tested_and_its_metrics_labels_and_page_exist() {
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    let metrics =
        estate.wait_for_metric("proscenium_requests_total", &[("pool", "compilers")], 1.0);
    assert!(metrics >= 1.0);
    let text = estate.proxy.admin("GET", "/metrics").text();
    let rules = rules();
    let tests =
        fs::read_to_string(directory().join("proscenium.rules.test.yml")).expect("the tests");
    let found = |pattern: &str| {
        let pattern = Regex::new(pattern).expect("a pattern");
        let found = pattern.captures_iter(&rules);
        found.map(|found| found[1].to_owned()).collect::<Vec<_>>()
    };
    for name in found(r"\b(proscenium_[a-z_]+)") {
        assert!(
            text.contains(&format!("\n{name}")),
            "{name} is not a metric"
        );
    }
    for label in found(r"\$labels\.([a-z_]+)") {
        let is_known = label == "instance" || text.contains(&format!("{label}=\""));
        assert!(is_known, "{label} is not a label");
    }
    let alerts = found(r"alert: (\w+)");
    assert_eq!(alerts.len(), 17);
    for alert in alerts {
        let tested = tests.matches(&format!("alertname: {alert}")).count();
        assert_eq!(tested, 2, "{alert}: once quiet, once raised");
    }
    let root = directory().join("../..");
    let pages = found(r"runbook: /usr/share/doc/proscenium/(\S+)");
    assert_eq!(pages.len(), 17);
    for page in pages {
        assert!(
            root.join("docs").join(&page).is_file(),
            "{page} does not exist"
        );
    }
}
