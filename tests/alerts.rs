//! The alert rules for Prometheus: they are valid, their tests pass, and their metrics, labels and pages exist.

use std::{fs, path::PathBuf};

use regex::Regex;
use testkit::Tool;

use crate::support::{Estate, paths::CATALOG};

/// The external label of Prometheus with the address of the pages.
const BASE_LABEL: &str = "proscenium_docs";

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
        ["test", "rules", "proscenium.alarms.test.yml"],
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
    let tests = ["proscenium.rules.test.yml", "proscenium.alarms.test.yml"]
        .map(|name| fs::read_to_string(directory().join(name)).expect("the tests"))
        .concat();
    let found = |pattern: &str| {
        let pattern = Regex::new(pattern).expect("a pattern");
        let found = pattern.captures_iter(&rules);
        found.map(|found| found[1].to_owned()).collect::<Vec<_>>()
    };
    for name in found(r"(?:^|[^.a-z_])(proscenium_[a-z_]+)") {
        if name == BASE_LABEL {
            continue;
        }
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
    let kinds = text.matches("\nproscenium_alarms{").count() / 2;
    assert!(kinds > 30, "{kinds}");
    assert_eq!(
        alerts.len(),
        kinds + 7,
        "one for each kind of alarm, and others"
    );
    for alert in &alerts {
        let tested = Regex::new(&format!(r"alertname: {alert}\b")).expect("a pattern");
        let tested = tested.find_iter(&tests).count();
        assert!(tested >= 2, "{alert}: once quiet, once raised");
    }
    let root = directory().join("../..");
    let pages = found(r"\{\{ else \}\}/usr/share/doc/proscenium\{\{ end \}\}/([^#'\s]+)");
    assert_eq!(pages.len(), alerts.len());
    for page in pages {
        assert!(
            root.join("docs").join(&page).is_file(),
            "{page} does not exist"
        );
    }
}
