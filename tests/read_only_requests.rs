//! Requests that only read leave the running proxy as it is, and do not wait for a change that runs.

use std::{collections::BTreeMap, fs, net::TcpListener, thread};

use serde_json::{Value, json};
use testkit::{Proxy, wait_until};

use crate::support::{Estate, LIMIT, paths::CATALOG};

/// No server answers at this address, so the member of the pool has no address.
const DNS: &str = "[dns]\nservers = [\"127.0.0.1:1\"]\nttl_min = \"1h\"\nttl_max = \"1h\"\ntimeout = \"1s\"\n\
    [pools.named]\nmembers = [\"missing.example.com:8140\"]\n";

/// Tables that name what the active configuration does not have.
const OTHER: &str = r#"
[pools.other]
members = ["srv:_absent._tcp.example.com"]
server_names = ["*.example.com"]

[pools.another]
members = ["absent.example.com:8140", "127.0.0.1:1"]

[[access]]
name = "other"
action = "allow"
route = ["other"]
certname = ["web02"]

[[routes]]
name = "other"
path = { prefix = "/other" }
pool = "other"

[listeners.other]
address = "127.0.0.1:0"
"#;

/// Fields of the status that show a clock, probes, or a measurement of the process.
const MEASURED: [&str; 7] = [
    "process",
    "milliseconds",
    "window_milliseconds",
    "last_probe",
    "recent_probes",
    "next_lookup",
    "agent_copy_age_seconds",
];

/// Removes the measured fields from an object and all objects in it.
fn remove_measured(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !MEASURED.contains(&name.as_str()));
            fields.values_mut().for_each(remove_measured);
        }
        Value::Array(values) => values.iter_mut().for_each(remove_measured),
        _ => {}
    }
}

/// What a request could change: the status, the metrics, the log and the state directory.
#[derive(Debug, PartialEq)]
struct Seen {
    status: Value,
    series: Vec<String>,
    log: String,
    files: BTreeMap<String, Vec<u8>>,
}

impl Seen {
    fn of(proxy: &Proxy) -> Self {
        let mut status = proxy.status();
        remove_measured(&mut status);
        let text = proxy.admin("GET", "/metrics").text();
        let is_measured = |line: &&str| {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            name.starts_with("process_")
                || name.ends_with("_age_seconds")
                || name.contains("uptime")
        };
        let mut series: Vec<_> = text
            .lines()
            .filter(|line| !is_measured(line))
            .map(ToOwned::to_owned)
            .collect();
        series.sort();
        let files = fs::read_dir(proxy.state_directory()).expect("a directory");
        Self {
            status,
            series,
            log: proxy.stderr(),
            files: files
                .flatten()
                .filter(|file| file.path().is_file())
                .map(|file| {
                    let name = file.file_name().to_string_lossy().into_owned();
                    (name, fs::read(file.path()).expect("a file"))
                })
                .collect(),
        }
    }
}

#[test]
fn reading_a_configuration_changes_nothing_of_the_running_proxy() {
    let estate = Estate::builder().proxy(|proxy| proxy.with(DNS)).start();
    let proxy = &estate.proxy;
    proxy.wait_for_health("named", "missing.example.com:8140", "down");
    let stored = proxy.state_directory().join("configurations.json");
    wait_until(LIMIT, || stored.exists().then_some(())).expect("the state is stored");
    proxy.write_config(&format!("{}{OTHER}", proxy.config_text()));
    let before = Seen::of(proxy);
    let dry_run = proxy.admin("POST", "/v1/reload/dry-run").json();
    assert_eq!(dry_run["result"], "applied", "{dry_run}");
    let report = dry_run["report"].as_str().expect("a report");
    assert!(report.contains("pools.other"), "{report}");
    assert_eq!(proxy.admin("GET", "/v1/configuration").status, 200);
    for (words, arguments) in [
        (&["config", "diff"][..], &[][..]),
        (&["reload", "--dry-run"], &[]),
        (&["check"], &[]),
        (&["explain"], &[CATALOG, "--certname", "web01"]),
        (&["explain", "--live"], &[CATALOG, "--certname", "web01"]),
    ] {
        proxy.command(words, arguments);
    }
    assert_eq!(before, Seen::of(proxy));
}

#[test]
fn reading_the_configuration_does_not_wait_for_a_reload() {
    let estate = Estate::start();
    let proxy = &estate.proxy;
    // A member that accepts connections and answers no probe. A reload waits for it for some seconds.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address");
    let pool = format!("[pools.silent]\nscheme = \"http\"\nmembers = [\"{address}\"]\n");
    let text = proxy.config_text();
    proxy.write_config(&format!("{text}\n{pool}"));
    thread::scope(|scope| {
        let reload = scope.spawn(|| proxy.admin("POST", "/v1/reload").json());
        let probe = silent.accept().expect("the probe of the reload");
        let shown = proxy.admin("GET", "/v1/configuration").json();
        assert!(!reload.is_finished(), "it waits for the member");
        assert_eq!(shown["generation"], 1, "{shown}");
        assert_eq!(shown["reload"]["result"], "applied", "{shown}");
        assert!(
            !shown["active"]
                .as_str()
                .unwrap_or_default()
                .contains("silent")
        );
        drop(probe);
        assert_eq!(reload.join().expect("a reload")["result"], json!("applied"));
    });
    let shown = proxy.admin("GET", "/v1/configuration").json();
    assert_eq!(shown["reload"]["result"], "unchanged", "{shown}");
}
