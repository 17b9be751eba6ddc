//! docs/metrics.md: every metric of an example exposition, with its type, unit, labels and meaning.

mod example;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use example::OPEN;

/// One metric family in the exposition.
#[derive(Debug, Default)]
struct MetricFamily {
    help: String,
    kind: String,
    unit: String,
    /// The values of each label, by its name.
    labels: BTreeMap<String, BTreeSet<String>>,
}

/// The page.
pub(super) fn page() -> String {
    let families = families(&example::exposition());
    let mut page = INTRODUCTION.to_owned();
    page.push_str("\n## All metrics\n\n| metric | type | unit | labels | meaning |\n| --- | --- | --- | --- | --- |\n");
    for (name, family) in &families {
        let labels = family.labels.keys().map(|label| format!("`{label}`"));
        let labels = labels.collect::<Vec<_>>().join(", ");
        let or_dash = |text: &str| if text.is_empty() { "-" } else { text }.to_owned();
        let (unit, labels) = (or_dash(&family.unit), or_dash(&labels));
        let MetricFamily { help, kind, .. } = family;
        let _ = writeln!(page, "| `{name}` | {kind} | {unit} | {labels} | {help} |");
    }
    page.push_str(LABELS);
    for (label, sets) in label_values(&families) {
        for (values, of) in &sets {
            let of: Vec<_> = of.iter().map(|name| format!("`{name}`")).collect();
            let of = match sets.len() {
                1 => "all".to_owned(),
                _ => of.join(", "),
            };
            let _ = writeln!(page, "| `{label}` | {of} | {values} |");
        }
    }
    page
}

/// The metric families of an exposition in OpenMetrics, by the names that Prometheus stores.
fn families(text: &str) -> BTreeMap<String, MetricFamily> {
    let mut families = BTreeMap::new();
    let (mut help, mut name) = (String::new(), String::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').unwrap_or_default().1.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (base, kind) = rest.split_once(' ').unwrap_or_default();
            let suffix = if kind == "counter" { "_total" } else { "" };
            name = format!("{base}{suffix}");
            let family: &mut MetricFamily = families.entry(name.clone()).or_default();
            family.help = std::mem::take(&mut help);
            family.kind = kind.to_owned();
        } else if let Some(family) = families.get_mut(&name) {
            if let Some(rest) = line.strip_prefix("# UNIT ") {
                family.unit = rest.split_once(' ').unwrap_or_default().1.to_owned();
            } else if let Some((labels, _)) = between_braces(line) {
                for (label, value) in labels {
                    family.labels.entry(label).or_default().insert(value);
                }
            }
        }
    }
    families
}

/// The labels of a sample, and the rest of its line. No value in the example has escaped characters.
fn between_braces(line: &str) -> Option<(Vec<(String, String)>, &str)> {
    let (labels, rest) = line.split_once('{')?.1.split_once('}')?;
    let labels = labels.split("\",").filter_map(|label| {
        let (name, value) = label.split_once("=\"")?;
        Some((name.to_owned(), value.trim_end_matches('"').to_owned()))
    });
    Some((labels.collect(), rest))
}

/// For each label, its possible values as text, and the metrics that have the label.
fn label_values(
    families: &BTreeMap<String, MetricFamily>,
) -> BTreeMap<&str, BTreeMap<String, Vec<&str>>> {
    let mut found: BTreeMap<&str, BTreeMap<String, Vec<&str>>> = BTreeMap::new();
    for (name, family) in families {
        for (label, values) in &family.labels {
            let values = if values.contains(OPEN) {
                open_values(label).unwrap_or("unknown").to_owned()
            } else {
                closed_values(values)
            };
            let of = found.entry(label).or_default().entry(values).or_default();
            of.push(name);
        }
    }
    found
}

fn closed_values(values: &BTreeSet<String>) -> String {
    let mut values: Vec<_> = values.iter().map(String::as_str).collect();
    // Bounds of buckets come first, in numeric order. Words follow in alphabetic order.
    values.sort_by(|one, other| {
        let number = |text: &str| text.parse::<f64>().unwrap_or(f64::INFINITY);
        number(one).total_cmp(&number(other)).then(one.cmp(other))
    });
    let values = values.iter().map(|value| format!("`{value}`"));
    values.collect::<Vec<_>>().join(", ")
}

/// A description of the values of a label that the configuration, certificates or the build determine.
fn open_values(label: &str) -> Option<&'static str> {
    let known = OPEN_LABELS.iter().find(|(known, _)| *known == label);
    known.map(|(_, values)| *values)
}

const OPEN_LABELS: &[(&str, &str)] = &[
    (
        "commit",
        "commit of the sources, with `-dirty` if they differed from it",
    ),
    ("file", "path of the certificate chain"),
    (
        "issuer",
        "subject of the CA that signs the CRL or the certificates, as RFC 2253 spells it; `other` for CAs that are not counted",
    ),
    ("listener", "name of a listener"),
    (
        "member",
        "address of a member, as the configuration or DNS gives it",
    ),
    ("name", "name of the listener or of the pool"),
    ("pool", "name of a pool; `-` for requests without a pool"),
    ("route", "name of a route; `-` for requests without a route"),
    ("rule", "name of an access rule"),
    ("rustc", "version of the compiler"),
    (
        "subject",
        "subject of the certificate, as RFC 2253 spells it",
    ),
    (
        "tls",
        "names and versions of the TLS library and the cryptographic library",
    ),
    ("version", "version of the program"),
];

const INTRODUCTION: &str = "\
# Metrics reference

<!-- Generated from the metrics in the code by `cargo xtask reference`: edit there, not here. -->

The proxy exposes these metrics at `GET /metrics` on the admin socket and on the [metrics listener](operating/monitoring.md#read-metrics-and-status).
[Monitoring](operating/monitoring.md) describes which of them to alert on and to graph.

- The names are those of the Prometheus text format; OpenMetrics names a counter without `_total`.
- A histogram has the series `_bucket`, `_sum` and `_count`; the label `le` of a bucket is its upper bound.
- A gauge whose value is unknown, or whose function is not configured, is absent.
- No label has a certname, an environment, a path or another text that a client sends.
";

const LABELS: &str = "
## Labels

| label | metrics | values |
| --- | --- | --- |
";

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::workspace;

    #[test]
    fn every_metric_that_the_code_registers_is_on_the_page() {
        let families = families(&example::exposition());
        let is_shown = |name: &str| {
            let names = ["proscenium_", ""].into_iter();
            let mut names = names.flat_map(|prefix| {
                ["", "_total", "_seconds"].map(|suffix| format!("{prefix}{name}{suffix}"))
            });
            names.any(|name| families.contains_key(&name))
        };
        let mut count = 0;
        for path in [
            "crates/telemetry/src/metrics.rs",
            "crates/telemetry/src/alarms.rs",
            "crates/admin/src/gauges.rs",
        ] {
            let text = fs::read_to_string(workspace::root().join(path)).unwrap();
            for name in registered(&text) {
                count += 1;
                assert!(
                    is_shown(name),
                    "{path}: the example exposition has no {name}"
                );
            }
        }
        assert!(count > 60, "{count} names");
    }

    /// The names of metrics in a source file: the first argument of each call that registers a metric.
    fn registered(text: &str) -> impl Iterator<Item = &str> {
        const CALLS: [&str; 11] = [
            "register(",
            "register_with_unit(",
            "each(",
            "gauge(",
            "series(",
            "counters(",
            "count(",
            "value(",
            "integer(",
            "condition(",
            "seconds_counter(",
        ];
        text.match_indices('"').filter_map(|(at, _)| {
            let before = text[..at].trim_end();
            let is_call = CALLS.iter().any(|call| before.ends_with(call));
            let (name, _) = text[at + 1..].split_once('"')?;
            is_call.then_some(name)
        })
    }

    #[test]
    fn no_label_is_a_certname_or_an_environment() {
        let families = families(&example::exposition());
        let labels: BTreeSet<_> = families
            .values()
            .flat_map(|family| family.labels.keys())
            .map(String::as_str)
            .collect();
        assert!(labels.len() > 20);
        for label in [
            "agent",
            "certname",
            "client",
            "environment",
            "host",
            "node",
            "path",
            "serial",
            "url",
        ] {
            assert!(!labels.contains(label), "{label}");
        }
    }

    #[test]
    fn labels_are_closed_sets_or_have_a_description() {
        let families = families(&example::exposition());
        let mut open = BTreeSet::new();
        for (name, family) in &families {
            assert!(family.help.ends_with('.'), "{name} has no help text");
            for (label, values) in &family.labels {
                if values.contains(OPEN) {
                    open.insert(label.as_str());
                    assert!(open_values(label).is_some(), "{name}: describe {label}");
                }
            }
        }
        let described: BTreeSet<_> = OPEN_LABELS.iter().map(|(label, _)| *label).collect();
        assert_eq!(open, described);
    }
}
