//! The Grafana dashboard: a real Prometheus answers every query of it, and its metrics and labels exist.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write,
    net::SocketAddr,
};

use regex::Regex;
use serde_json::{Value, json};
use testkit::{Ca, Prometheus, Reply, wait_until};

use crate::support::{
    Estate, LIMIT, QUICK_CHECK,
    layer4::{Broker, assert_echo, connect, listener_address},
    passthrough::pool,
    paths::{CA_CERTIFICATE, CATALOG, FILE, REPORT},
};

/// Panels that show nothing while there is no problem, and why.
const EMPTY_IN_HEALTH: &[(&str, &str)] = &[
    ("Alarms", "it lists active alarms"),
    (
        "Members that are down",
        "it lists members that fail their checks",
    ),
    (
        "Members out of service",
        "it lists members that an operator has taken out of service",
    ),
];

/// One query of a panel.
struct Query {
    panel: String,
    expression: String,
    /// Labels that the legend or the columns of the panel show.
    shown: BTreeSet<String>,
}

fn dashboard() -> Value {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/prometheus/proscenium.dashboard.json"
    );
    serde_json::from_str(&fs::read_to_string(path).expect("the dashboard")).expect("JSON")
}

/// The panels, without rows.
fn panels(dashboard: &Value) -> Vec<&Value> {
    let panels = list(&dashboard["panels"]);
    panels.filter(|panel| panel["type"] != "row").collect()
}

fn queries(dashboard: &Value) -> Vec<Query> {
    let mut queries = Vec::new();
    for panel in panels(dashboard) {
        let columns = list(&panel["transformations"]).flat_map(|transformation| {
            let columns = transformation["options"]["renameByName"].as_object();
            columns.into_iter().flat_map(|columns| columns.keys())
        });
        let columns: BTreeSet<_> = columns.filter(|name| *name != "Value").cloned().collect();
        for target in list(&panel["targets"]) {
            let legend = text(&target["legendFormat"]);
            let mut shown = columns.clone();
            shown.extend(captures(r"\{\{(\w+)\}\}", legend));
            queries.push(Query {
                panel: text(&panel["title"]).to_owned(),
                expression: text(&target["expr"]).to_owned(),
                shown,
            });
        }
    }
    queries
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[track_caller]
fn text(value: &Value) -> &str {
    value.as_str().expect("a string")
}

fn captures(pattern: &str, text: &str) -> Vec<String> {
    let pattern = Regex::new(pattern).expect("a pattern");
    let found = pattern.captures_iter(text);
    found.map(|found| found[1].to_owned()).collect()
}

/// The query with the variables of the dashboard as Grafana replaces them for "All".
fn with_variables(query: &str) -> String {
    let query = query.replace("$__rate_interval", "1m");
    let query = query.replace("$instance", ".*").replace("$pool", ".*");
    assert!(!query.contains('$'), "unknown variable: {query}");
    query
}

/// The labels of each metric, as docs/metrics.md documents them.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let page = fs::read_to_string(path).expect("the page of metrics");
    let rows = page
        .lines()
        .filter(|line| line.starts_with("| `p") && line.matches(" | ").count() == 4);
    rows.map(|row| {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").collect();
        let name = cells[0].trim().trim_matches('`').to_owned();
        (name, captures(r"`(\w+)`", cells[3]).into_iter().collect())
    })
    .collect()
}

#[test]
fn every_metric_and_label_of_the_dashboard_exists() {
    let documented = documented();
    assert!(documented.len() > 70, "{}", documented.len());
    let selector =
        Regex::new(r"\b((?:proscenium|process)_\w+)(?:\{([^}]*)\})?").expect("a pattern");
    for Query { expression, .. } in queries(&dashboard()) {
        for found in selector.captures_iter(&expression) {
            let name = &found[1];
            let base = ["_bucket", "_sum", "_count"].iter();
            let base = base.filter_map(|suffix| name.strip_suffix(suffix));
            let labels = base.chain([name]).find_map(|name| documented.get(name));
            let labels = labels.unwrap_or_else(|| panic!("docs/metrics.md has no {name}"));
            let wanted = found.get(2).map_or("", |wanted| wanted.as_str());
            for label in captures(r"(\w+)\s*[=!]", wanted) {
                let is_of_scrape = ["instance", "job"].contains(&label.as_str());
                assert!(
                    is_of_scrape || labels.contains(&label),
                    "{name} has no label {label}: {expression}"
                );
            }
        }
    }
}

#[test]
fn the_dashboard_uses_its_data_source_and_its_panels_do_not_overlap() {
    let dashboard = dashboard();
    let variables: Vec<_> = list(&dashboard["templating"]["list"])
        .map(|variable| text(&variable["name"]))
        .collect();
    assert_eq!(variables, ["datasource", "instance", "pool"]);
    let source = json!({ "type": "prometheus", "uid": "${datasource}" });
    let (mut ids, mut titles) = (BTreeSet::new(), BTreeSet::new());
    let mut cells = BTreeSet::new();
    for panel in list(&dashboard["panels"]) {
        let title = text(&panel["title"]);
        assert!(ids.insert(panel["id"].as_u64()), "{title}: its id");
        assert!(titles.insert(title), "{title}: its title");
        let edge = |name: &str| panel["gridPos"][name].as_u64().expect("a number");
        assert!(edge("x") + edge("w") <= 24, "{title} is too wide");
        for x in edge("x")..edge("x") + edge("w") {
            for y in edge("y")..edge("y") + edge("h") {
                assert!(cells.insert((x, y)), "{title} overlaps another panel");
            }
        }
        if panel["type"] != "row" {
            assert_eq!(panel["datasource"], source, "{title}");
        }
        for target in list(&panel["targets"]) {
            assert_eq!(target["datasource"], source, "{title}");
        }
    }
}

#[test]
fn both_packages_install_the_dashboard_where_the_guide_says() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let read = |path: &str| fs::read_to_string(format!("{root}/{path}")).expect("a file");
    let packages = read("crates/proscenium/Cargo.toml");
    let (file, to) = (
        "packaging/prometheus/proscenium.dashboard.json",
        "usr/share/proscenium/prometheus/",
    );
    assert!(packages.contains(&format!("[\"../../{file}\", \"{to}\", \"644\"],")));
    let rpm = format!("{{ source = \"{file}\", dest = \"/{to}\", mode = \"644\" }},");
    assert!(packages.contains(&rpm));
    let guide = read("docs/operating/monitoring.md");
    assert!(guide.contains(&format!("`/{to}proscenium.dashboard.json`")));
}

#[test]
fn prometheus_answers_every_query_and_only_the_lists_of_faults_are_empty_in_health() {
    let broker = Broker::echo();
    let estate = estate(&broker);
    let Some(prometheus) = prometheus(&estate) else {
        return;
    };
    // Prometheus must scrape a counter before it rises and after that.
    wait_for_series(&prometheus, "proscenium_refusals_total");
    // All catalogs of a load may be compiled by one member. Two of three loads have the same one, so that its durations rise.
    for loads in 1..=3 {
        load(&estate);
        let seen =
            format!("sum(proscenium_request_duration_seconds_count{{work=\"report\"}}) >= {loads}");
        wait_for_series(&prometheus, &seen);
    }

    let dashboard = dashboard();
    let is_listed = |query: &Query| {
        let mut listed = EMPTY_IN_HEALTH.iter();
        listed.any(|(panel, _)| *panel == query.panel)
    };
    let (listed, others): (Vec<_>, Vec<_>) = queries(&dashboard).into_iter().partition(is_listed);
    assert_eq!(listed.len(), EMPTY_IN_HEALTH.len(), "a panel is gone");
    others.iter().for_each(|query| check(&prometheus, query));
    for Query {
        panel, expression, ..
    } in &listed
    {
        let series = prometheus.query(&with_variables(expression));
        assert!(series.is_empty(), "{panel} in health: {series:?}");
    }
    check_variables(&prometheus, &dashboard);

    let drained = estate.compilers[0].address();
    let drain = ["drain", "compilers", &drained, "--force"];
    assert_eq!(estate.proxy.command(&drain, &[]).code, Some(0));
    estate.compilers.iter().for_each(testkit::StandIn::kill);
    listed.iter().for_each(|query| check(&prometheus, query));
}

/// Prometheus with the metrics of this estate as its target; `None` if it is not installed.
fn prometheus(estate: &Estate) -> Option<Prometheus> {
    let status = estate.proxy.status();
    let address = text(&status["metrics_address"]).parse();
    Prometheus::start(estate.proxy.directory(), address.expect("an address"), None)
}

/// Asserts that each variable of the dashboard has values.
fn check_variables(prometheus: &Prometheus, dashboard: &Value) {
    for variable in list(&dashboard["templating"]["list"]) {
        let query = variable["query"]["query"].as_str().unwrap_or_default();
        let query = query
            .strip_prefix("label_values(")
            .and_then(|rest| rest.strip_suffix(')'));
        let Some((selector, label)) = query.and_then(|query| query.rsplit_once(", ")) else {
            continue;
        };
        let values = prometheus.label_values(&with_variables(selector), label);
        assert!(!values.is_empty(), "{selector} has no {label}");
    }
}

/// An estate in which every function that a panel shows is configured.
pub(crate) fn estate(broker: &Broker) -> Estate {
    let tables = format!(
        "[metrics]\naddress = \"127.0.0.1:0\"\n\
         [ca]\nedge_answers = true\n\
         [[access]]\nname = \"closed\"\naction = \"refuse\"\ncertname = [\"db*\"]\n\
         [listeners.pcp]\naddress = \"127.0.0.1:0\"\npassthrough = \"brokers\"\n{}",
        pool(&[broker.address()], "")
    );
    let estate = Estate::builder()
        .compiler_pool(QUICK_CHECK)
        .fetch("interval = \"1s\"\njitter = \"0s\"")
        .with(&tables)
        .start();
    let jrubies = Reply::jrubies(&json!({
        "num-jrubies": 4, "num-free-jrubies": 1, "borrow-count": 1, "average-borrow-time": 1, "average-wait-time": 1,
        "requested-instances": [],
    }));
    for compiler in &estate.compilers {
        let jrubies = jrubies.clone();
        compiler.answer(move |request| request.is_jruby_reading().then(|| jrubies.clone()));
    }
    estate.wait_for_members(&["brokers"]);
    estate.proxy.reload();
    estate
}

/// Sends requests of every kind of work and refused ones, and opens a connection that is passed through.
fn load(estate: &Estate) {
    let client = estate.agent("web01");
    for target in [CATALOG, FILE].repeat(8) {
        assert_eq!(client.get(target).status, 200, "{target}");
    }
    assert_eq!(client.request("PUT", REPORT, &[], b"{}").status, 200);
    assert_eq!(estate.anonymous().get(CA_CERTIFICATE).status, 200);
    assert_eq!(estate.anonymous().get(CATALOG).status, 403);
    let stranger = Ca::other().agent("web01");
    assert_eq!(estate.client(&stranger).get(CATALOG).status, 403);
    let large = vec![b'x'; 20 << 10];
    let request = "/puppet-ca/v1/certificate_request/web02";
    let refused = estate.anonymous().request("PUT", request, &[], &large);
    assert_eq!(refused.status, 413);
    let pcp: SocketAddr = listener_address(&estate.proxy, "pcp");
    let mut passed = connect(pcp);
    assert_echo(&mut passed, b"hello");
    passed.flush().expect("a socket");
}

#[track_caller]
fn wait_for_series(prometheus: &Prometheus, query: &str) {
    let found = wait_until(LIMIT, || {
        (!prometheus.query(query).is_empty()).then_some(())
    });
    assert!(found.is_some(), "{query}");
}

/// Asserts that a query returns series with a finite value and with the labels that its panel shows.
#[track_caller]
fn check(prometheus: &Prometheus, query: &Query) {
    let Query {
        panel,
        expression,
        shown,
    } = query;
    let expression = with_variables(expression);
    let is_finite = |series: &Value| {
        let value = series["value"][1]
            .as_str()
            .and_then(|value| value.parse::<f64>().ok());
        value.is_some_and(f64::is_finite)
    };
    let series = wait_until(LIMIT, || {
        let series = prometheus.query(&expression);
        series.iter().any(is_finite).then_some(series)
    });
    let series = series.unwrap_or_else(|| panic!("{panel}: no value of {expression}"));
    for label in shown {
        let has_label = |series: &Value| series["metric"][label].is_string();
        assert!(
            series.iter().all(has_label),
            "{panel}: no label {label}: {series:?}"
        );
    }
}
