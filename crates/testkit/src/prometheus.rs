//! A real Prometheus that scrapes the proxy's metrics listener.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::{client::Client, tools::Tool};

/// Maximum time until it is ready.
const LIMIT: Duration = Duration::from_secs(30);

/// A running process, which is killed on drop.
pub struct Prometheus {
    process: Child,
    address: SocketAddr,
}

impl Prometheus {
    /// Scrapes `target` several times a second as the job `proscenium`, and evaluates the rules in a file, if there is one,
    /// every second. If Prometheus is not installed, the test is skipped ([`Tool::command`]).
    ///
    /// # Panics
    /// Prometheus does not start.
    #[track_caller]
    pub fn start(directory: &Path, target: SocketAddr, rules: Option<&Path>) -> Option<Self> {
        let mut prometheus = Tool::Prometheus.command()?;
        let settings = directory.join("prometheus.yml");
        let rules = rules.map(|rules| format!("rule_files: [{rules:?}]\n"));
        let rules = rules.unwrap_or_default();
        let scrape = format!(
            "global: {{scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 1s}}\n{rules}\
             scrape_configs: [{{job_name: proscenium, static_configs: [{{targets: [\"{target}\"]}}]}}]\n"
        );
        fs::write(&settings, scrape).expect("a writable directory");
        let path = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let mut process = prometheus
            .arg(path("config.file", &settings))
            .arg(path("storage.tsdb.path", &directory.join("tsdb")))
            .arg("--web.listen-address=127.0.0.1:0")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("Prometheus starts");
        let log = BufReader::new(process.stderr.take().expect("is piped"));
        let (sender, address) = mpsc::channel();
        thread::spawn(move || {
            let mut address = None;
            for line in log.lines().map_while(Result::ok) {
                if line.contains("msg=\"Listening on\"") {
                    let found = line.split_once("address=").map(|(_, rest)| rest.trim());
                    address = found.and_then(|address| address.parse::<SocketAddr>().ok());
                } else if line.contains("Server is ready") {
                    // If the test has ended, it does not receive the address.
                    let _ = address.map(|address| sender.send(address));
                }
            }
        });
        let address = address.recv_timeout(LIMIT).expect("Prometheus is ready");
        Some(Self { process, address })
    }

    /// The series that a query returns now.
    ///
    /// # Panics
    /// Prometheus does not accept the query.
    #[track_caller]
    pub fn query(&self, query: &str) -> Vec<Value> {
        let query = utf8_percent_encode(query, NON_ALPHANUMERIC);
        let answer = self.get(&format!("/api/v1/query?query={query}"));
        match answer["data"]["result"].clone() {
            Value::Array(series) => series,
            other => panic!("{other} from {query}"),
        }
    }

    /// The values of a label in the series of a selector.
    ///
    /// # Panics
    /// Prometheus does not accept the selector.
    #[track_caller]
    pub fn label_values(&self, selector: &str, label: &str) -> Vec<Value> {
        let selector = utf8_percent_encode(selector, NON_ALPHANUMERIC);
        let answer = self.get(&format!("/api/v1/label/{label}/values?match[]={selector}"));
        answer["data"].as_array().expect("a list").clone()
    }

    #[track_caller]
    fn get(&self, target: &str) -> Value {
        let response = Client::plain(self.address).get(target);
        assert_eq!(response.status, 200, "{target}: {}", response.text());
        serde_json::from_str(&response.text()).expect("JSON")
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
