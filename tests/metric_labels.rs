//! The labels of metrics: docs/metrics.md documents each of them, and no label contains a text that an agent chooses.

use std::{collections::BTreeSet, fs};

use regex::Regex;
use testkit::{Ca, Proxy};

use crate::{
    dashboard::estate,
    support::{
        layer4::Broker,
        paths::{CA_CERTIFICATE, CATALOG},
    },
};

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    fs::read_to_string(path).expect("the page of metrics")
}

fn exposition(proxy: &Proxy) -> String {
    proxy.admin("GET", "/metrics").text()
}

#[test]
fn every_exposed_metric_and_label_value_is_on_the_page() {
    let estate = estate(&Broker::echo());
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    estate.anonymous().get("/nowhere");
    estate.anonymous().get(CA_CERTIFICATE);
    let page = page();
    let text = exposition(&estate.proxy);
    let family = Regex::new(r"(?m)^# HELP (\S+) (.+)\n# TYPE \S+ (\S+)$").expect("a pattern");
    let mut count = 0;
    for family in family.captures_iter(&text) {
        let (name, help, kind) = (&family[1], &family[2], &family[3]);
        let mut rows = page.lines();
        let row = rows.find(|row| row.starts_with(&format!("| `{name}` | {kind} | ")));
        let row = row.unwrap_or_else(|| panic!("docs/metrics.md has no {kind} {name}"));
        assert!(row.ends_with(&format!(" | {help} |")), "{row}: {help}");
        count += 1;
    }
    assert!(count > 65, "{count} metrics");
    let sample = Regex::new(r"(?m)^(\w+)\{(.*)\} ").expect("a pattern");
    let label = Regex::new(r#"(\w+)="((?:[^"\\]|\\.)*)""#).expect("a pattern");
    let rows: Vec<_> = page.lines().filter(|row| row.starts_with("| `")).collect();
    for sample in sample.captures_iter(&text) {
        let name = &sample[1];
        let base = ["_bucket", "_sum", "_count"].iter();
        let base = base.filter_map(|suffix| name.strip_suffix(suffix));
        let names: Vec<_> = base.chain([name]).map(|name| format!("`{name}`")).collect();
        for label in label.captures_iter(&sample[2]) {
            let (label, value) = (&label[1], &label[2]);
            let begin = format!("| `{label}` | ");
            let row = rows.iter().find(|row| {
                let is_of = |name: &String| row.contains(name.as_str());
                let is_for_all = row.contains(" | all | ");
                row.starts_with(&begin) && (is_for_all || names.iter().any(is_of))
            });
            let row = row.unwrap_or_else(|| panic!("docs/metrics.md: {name} has no label {label}"));
            let values = row.rsplit(" | ").next().unwrap_or_default();
            // For a closed set of values, the page lists the words only.
            let is_closed = values.starts_with('`');
            assert!(
                !is_closed || values.contains(&format!("`{value}`")),
                "docs/metrics.md: {name} has the value {label}={value}"
            );
        }
    }
}

#[test]
fn no_certname_and_no_environment_of_an_agent_is_in_the_metrics() {
    let estate = estate(&Broker::echo());
    let words: BTreeSet<_> = (0..5).map(|number| format!("zebra{number}")).collect();
    for word in &words {
        let certname = format!("{word}.certname.example");
        let environment = format!("{word}_environment");
        let catalog = format!("/puppet/v3/catalog/{certname}?environment={environment}");
        let agent = estate.ca.agent(&certname);
        assert_eq!(estate.client(&agent).get(&catalog).status, 200);
        // Refused requests contain the same names. They are refused by verdict, by class, and by access rule.
        let stranger = Ca::other().agent(&certname);
        assert_eq!(estate.client(&stranger).get(&catalog).status, 403);
        assert_eq!(estate.anonymous().get(&catalog).status, 403);
        let closed = estate.ca.agent(&format!("db-{word}"));
        assert_eq!(estate.client(&closed).get(&catalog).status, 403);
        let request = format!("/puppet-ca/v1/certificate_request/{certname}");
        estate
            .anonymous()
            .request("PUT", &request, &[], b"no request");
        let block = ["block", &certname, "--why", "zebra"];
        assert_eq!(estate.proxy.command(&block, &[]).code, Some(0));
        assert_eq!(estate.client(&agent).get(&catalog).status, 403);
    }
    let reason = [("reason", "blocked")];
    let refused = "proscenium_certificate_refusals_total";
    estate.wait_for_metric(refused, &reason, 5.0);
    let text = exposition(&estate.proxy);
    let found: Vec<_> = text.lines().filter(|line| line.contains("zebra")).collect();
    assert!(found.is_empty(), "{found:#?}");
    for label in ["certname", "environment"] {
        assert!(!text.contains(&format!("{label}=\"")), "{label}");
        assert!(!page().contains(&format!("| `{label}` |")), "{label}");
    }
}
