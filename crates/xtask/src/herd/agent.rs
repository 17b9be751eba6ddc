//! A simulated agent run: six requests on one connection, none of which may fail.

use std::time::{Duration, Instant};

use testkit::Client;

/// The results of agent runs.
#[derive(Default)]
pub(super) struct Tally {
    to_catalog: Vec<Duration>,
    pub(super) errors: Vec<String>,
}

impl Tally {
    pub(super) fn add(&mut self, ended: Result<Duration, String>) {
        match ended {
            Ok(time) => self.to_catalog.push(time),
            Err(error) => self.errors.push(error),
        }
    }

    pub(super) fn runs(&self) -> usize {
        self.to_catalog.len() + self.errors.len()
    }

    pub(super) fn failed(&self) -> usize {
        self.errors.len()
    }

    pub(super) fn percentile(&self, part: f64) -> Duration {
        let mut times = self.to_catalog.clone();
        times.sort_unstable();
        let rank = (times.len() as f64 * part).ceil() as usize;
        times
            .get(rank.saturating_sub(1))
            .copied()
            .unwrap_or_default()
    }
}

/// Makes one run. Returns the time until the agent has its catalog.
pub(super) fn run(client: &Client, number: usize) -> Result<Duration, String> {
    let began = Instant::now();
    let mut connection = client
        .connect()
        .map_err(|error| format!("connect: {error}"))?;
    let mut ask = |method: &str, target: &str, body: &[u8]| {
        let headers = [
            ("X-Puppet-Version", "7.23.0"),
            ("Accept", "application/json"),
        ];
        let answer = connection
            .try_request(method, target, &headers, body)
            .map_err(|error| format!("{method} {target}: {error}"))?;
        match answer.status {
            200 => Ok(()),
            status => Err(format!("{method} {target}: {status}")),
        }
    };
    let name = format!("agent{number:03}");
    let environment = "?environment=production";
    ask("GET", &format!("/puppet/v3/node/{name}{environment}"), b"")?;
    for mount in ["pluginfacts", "plugins", "locales"] {
        ask(
            "GET",
            &format!("/puppet/v3/file_metadatas/{mount}{environment}"),
            b"",
        )?;
    }
    ask(
        "POST",
        &format!("/puppet/v3/catalog/{name}{environment}"),
        &[b'f'; 10_700],
    )?;
    let took = began.elapsed();
    ask(
        "PUT",
        &format!("/puppet/v3/report/{name}{environment}"),
        &[b'r'; 15_000],
    )?;
    Ok(took)
}

/// Time between two runs of one agent.
pub(super) const PAUSE: Duration = Duration::from_secs(4);
