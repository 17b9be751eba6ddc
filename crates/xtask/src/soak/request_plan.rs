//! The requests of an agent run, with uploads below and above the proxy's buffer limit.

use testkit::{Response, Seed};

use super::{answer::Arrival, estate::BODY_BUFFER_BYTES};

/// A request of a run.
pub(super) struct PlannedRequest {
    pub(super) method: &'static str,
    pub(super) target: String,
    pub(super) body: Vec<u8>,
    /// Whether the body is sent in chunks.
    pub(super) is_chunked: bool,
    /// Sequence number among the agent's requests; 0 if members ignore it.
    pub(super) number: u64,
    expected: Expected,
}

/// The expected answer.
#[derive(Clone, Copy)]
enum Expected {
    /// The computed answer of a compiler.
    Echo,
    Bundle,
    Crl,
}

/// The requests of one agent, in order.
pub(super) struct RequestPlan {
    certname: String,
    choices: Seed,
    requests: u64,
}

impl PlannedRequest {
    /// Whether the proxy may retry the request, which is a GET that compiles nothing.
    pub(super) fn is_safe(&self) -> bool {
        self.method == "GET"
    }

    /// Whether this is, byte for byte, the right answer to this request of this agent.
    pub(super) fn is_answered_by(&self, answer: &Response, certname: &str, bundle: &str) -> bool {
        match self.expected {
            Expected::Bundle => answer.text() == bundle,
            Expected::Crl => {
                let text = answer.text();
                text.starts_with("-----BEGIN X509 CRL") && text.ends_with("END X509 CRL-----\n")
            }
            Expected::Echo => answer.body.kept == self.expected_answer(certname),
        }
    }

    /// Whether the bytes of a truncated answer begin the right answer.
    pub(super) fn begins_with(&self, bytes: &[u8], certname: &str, bundle: &str) -> bool {
        match self.expected {
            Expected::Bundle => bundle.as_bytes().starts_with(bytes),
            Expected::Crl => true,
            Expected::Echo => self.expected_answer(certname).starts_with(bytes),
        }
    }

    fn expected_answer(&self, certname: &str) -> Vec<u8> {
        Arrival::of_agent(certname, self.method, &self.target, &self.body).answer()
    }
}

impl RequestPlan {
    pub(super) fn new(certname: &str, seed: u64) -> Self {
        Self {
            certname: certname.to_owned(),
            choices: Seed::new(seed),
            requests: 0,
        }
    }

    /// The requests of an agent run (puppet-agent 7), in the same order and with similar sizes.
    pub(super) fn of_a_run(&mut self) -> Vec<PlannedRequest> {
        let name = self.certname.clone();
        let file = if self.choices.once_in(10) {
            LARGE_FILE_BYTES
        } else {
            self.choices.below(4_000)
        };
        let facts = self.text("facts", 11_000);
        let report_bytes = self.report_bytes();
        let report = self.text("report", report_bytes);
        let mut requests = vec![
            self.echo("GET", &format!("node/{name}"), 600, Vec::new()),
            self.echo("GET", "file_metadatas/pluginfacts", 300, Vec::new()),
            self.echo("GET", "file_metadatas/plugins", 12_000, Vec::new()),
            self.echo("POST", &format!("catalog/{name}"), 60_000, facts),
            self.echo("GET", "file_metadata/modules/ntp/ntp.conf", 400, Vec::new()),
            self.echo("GET", "file_content/modules/ntp/ntp.conf", file, Vec::new()),
            self.echo("GET", "file_metadata/modules/motd/motd", 400, Vec::new()),
            self.echo("PUT", &format!("report/{name}"), 0, report),
        ];
        if self.choices.once_in(4) {
            requests.push(of_the_ca("certificate_revocation_list/ca", Expected::Crl));
            requests.push(of_the_ca("certificate/ca", Expected::Bundle));
        }
        requests
    }

    /// A size typical of an agent's report, or around and above the proxy's two body buffer limits.
    fn report_bytes(&mut self) -> usize {
        let [smaller, larger] = BODY_BUFFER_BYTES;
        let (least, most) = *self.choices.pick(&[
            (1_000, smaller),
            (1_000, smaller),
            (smaller - 1, smaller + 2),
            (smaller, larger),
            (larger, 3 * larger),
        ]);
        least + self.choices.below(most - least)
    }

    fn echo(
        &mut self,
        method: &'static str,
        path: &str,
        bytes: usize,
        body: Vec<u8>,
    ) -> PlannedRequest {
        self.requests += 1;
        let number = self.requests;
        PlannedRequest {
            method,
            target: format!("/puppet/v3/{path}?environment=production&n={number}&bytes={bytes}"),
            is_chunked: !body.is_empty() && self.choices.once_in(3),
            body,
            number,
            expected: Expected::Echo,
        }
    }

    /// A body that no other request has.
    fn text(&self, what: &str, length: usize) -> Vec<u8> {
        let line = format!("{what} of {} before {};", self.certname, self.requests);
        line.into_bytes().into_iter().cycle().take(length).collect()
    }
}

fn of_the_ca(path: &str, expected: Expected) -> PlannedRequest {
    PlannedRequest {
        method: "GET",
        target: format!("/puppet-ca/v1/{path}"),
        body: Vec::new(),
        is_chunked: false,
        number: 0,
        expected,
    }
}

const LARGE_FILE_BYTES: usize = 200_000;
