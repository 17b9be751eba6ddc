//! One agent: runs as Puppet's, with shorter pauses.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::Duration,
};

use testkit::{Client, Connection, Protocol, Response, Seed};

use super::{
    answer::Arrival,
    course::{Course, Working},
    estate::Estate,
    standing::{HEADERS, Standing, Trouble, beginning},
    tally::{Count, Tally},
};

/// An agent with its certificate.
pub(super) struct Agent {
    standing: Arc<Standing>,
    client: Client,
    protocol: Protocol,
    choices: Seed,
    requests: u64,
}

/// A request of a run.
struct Ask {
    method: &'static str,
    target: String,
    body: Vec<u8>,
    expected: Expected,
}

/// What must come back.
#[derive(Clone, Copy)]
enum Expected {
    /// What the compiler says to such a request of this agent.
    Echo,
    Bundle,
    Crl,
}

impl Agent {
    /// The agent of this number, with a certificate.
    pub(super) fn new(number: usize, estate: &Estate, patience: Duration) -> Self {
        let protocol = match number % 3 {
            2 => Protocol::Http2,
            _ => Protocol::Http1,
        };
        let standing = Standing::new(&format!("web{number:02}"), estate, protocol, patience);
        Self {
            client: standing.client(estate),
            standing: Arc::new(standing),
            protocol,
            choices: Seed::new(number as u64),
            requests: 0,
        }
    }

    /// How it stands, for whoever revokes.
    pub(super) fn standing(&self) -> Arc<Standing> {
        Arc::clone(&self.standing)
    }

    /// Runs until the end of the course.
    pub(super) fn live(mut self, estate: &Estate, course: &Course, tally: &Tally, _: Working<'_>) {
        while course.goes_on() {
            let run = AssertUnwindSafe(|| self.run(estate, course, tally));
            // The raw client panics where an answer brings what is meant for members alone.
            let outcome = catch_unwind(run)
                .unwrap_or_else(|_| Err(Trouble::Lost("the client panicked".to_owned())));
            if let Err(trouble) = outcome {
                self.standing.judge(&trouble, REFUSED, estate, tally);
                self.client = self.standing.client(estate);
                thread::sleep(self.pause(PAUSE));
            }
        }
    }

    /// Connects, asks what an agent asks in a run, keeps the connection for a while, and perhaps has another run on it.
    fn run(&mut self, estate: &Estate, course: &Course, tally: &Tally) -> Result<(), Trouble> {
        let mut connection = self.connect(tally)?;
        loop {
            for group in self.requests_of_a_run().chunks(at_once(self.protocol)) {
                if self.ask(&mut connection, group, estate, tally)? == Next::Reconnect {
                    return Ok(());
                }
                thread::sleep(self.pause(PAUSE));
            }
            if connection.is_closed_within(self.pause(IDLE)) {
                return Err(Trouble::Ended("while it was idle".to_owned()));
            }
            if !course.is_working() || self.choices.once_in(RUNS_A_CONNECTION) {
                return Ok(());
            }
        }
    }

    /// Agents make a full handshake each time; some clients resume.
    fn connect(&mut self, tally: &Tally) -> Result<Connection, Trouble> {
        if self.choices.once_in(2) {
            self.client = self.client.clone().forgetful();
        }
        let connection = self
            .client
            .connect()
            .map_err(|error| Trouble::of("connecting", &error))?;
        tally.count(Count::Connections);
        if connection.resumed() {
            tally.count(Count::Resumed);
        }
        Ok(connection)
    }

    /// Sends these at once, and reads every answer.
    fn ask(
        &self,
        connection: &mut Connection,
        group: &[Ask],
        estate: &Estate,
        tally: &Tally,
    ) -> Result<Next, Trouble> {
        for ask in group {
            tally.count(Count::Sent);
            connection
                .send(ask.method, &ask.target, HEADERS, &ask.body)
                .map_err(|error| Trouble::of(&ask.target, &error))?;
        }
        let mut next = Next::GoOn;
        for ask in group {
            let answer = connection
                .read_response_to(ask.method)
                .map_err(|error| Trouble::of(&ask.target, &error))?;
            self.check(ask, &answer, estate)?;
            tally.count(counted(self.protocol));
            if answer.says_close() || connection.is_last() {
                next = Next::Reconnect;
            }
        }
        Ok(next)
    }

    fn check(&self, ask: &Ask, answer: &Response, estate: &Estate) -> Result<(), Trouble> {
        if let Some(refused) = Trouble::refusal(answer) {
            return Err(refused);
        }
        let told = |what: &str| Trouble::Lost(format!("{} {}: {what}", ask.method, ask.target));
        if answer.status != 200 {
            return Err(told(&format!("{} {}", answer.status, beginning(answer))));
        }
        let text = || answer.text();
        let is_right = match ask.expected {
            Expected::Bundle => text() == estate.ca.bundle_pem(),
            Expected::Crl => {
                let text = text();
                text.starts_with("-----BEGIN X509 CRL") && text.ends_with("END X509 CRL-----\n")
            }
            Expected::Echo => {
                let name = &self.standing.certname;
                let expected = Arrival::of_agent(name, ask.method, &ask.target, &ask.body);
                answer.body.kept == expected.answer()
            }
        };
        match is_right {
            true => Ok(()),
            false => Err(told(&format!(
                "another answer than to this agent's request, {} bytes: {}",
                answer.body.length,
                beginning(answer)
            ))),
        }
    }

    /// What an agent asks in a run (puppet-agent 7), in its order and about its sizes.
    fn requests_of_a_run(&mut self) -> Vec<Ask> {
        let name = self.standing.certname.clone();
        let file = match self.choices.once_in(10) {
            true => LARGE_FILE_BYTES,
            false => self.choices.below(4_000),
        };
        let facts = self.text("facts", 11_000);
        let report = self.text("report", 16_000);
        let mut asks = vec![
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
            asks.push(of_the_ca("certificate_revocation_list/ca", Expected::Crl));
            asks.push(of_the_ca("certificate/ca", Expected::Bundle));
        }
        asks
    }

    fn echo(&mut self, method: &'static str, path: &str, bytes: usize, body: Vec<u8>) -> Ask {
        self.requests += 1;
        let number = self.requests;
        Ask {
            method,
            target: format!("/puppet/v3/{path}?environment=production&n={number}&bytes={bytes}"),
            body,
            expected: Expected::Echo,
        }
    }

    /// A body that no other request has.
    fn text(&self, what: &str, length: usize) -> Vec<u8> {
        let line = format!(
            "{what} of {} before {};",
            self.standing.certname, self.requests
        );
        line.into_bytes().into_iter().cycle().take(length).collect()
    }

    fn pause(&mut self, range: (u64, u64)) -> Duration {
        let (least, most) = range;
        Duration::from_millis(least + self.choices.below((most - least) as usize) as u64)
    }
}

/// What comes after an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    GoOn,
    Reconnect,
}

/// Requests that are sent before an answer is read.
fn at_once(protocol: Protocol) -> usize {
    match protocol {
        Protocol::Http1 => 1,
        Protocol::Http2 => 3,
    }
}

fn counted(protocol: Protocol) -> Count {
    match protocol {
        Protocol::Http1 => Count::Http1,
        Protocol::Http2 => Count::Http2,
    }
}

fn of_the_ca(path: &str, expected: Expected) -> Ask {
    Ask {
        method: "GET",
        target: format!("/puppet-ca/v1/{path}"),
        body: Vec::new(),
        expected,
    }
}

/// What a revoked agent waits for.
pub(super) const REFUSED: &str = "a revoked agent was refused";
/// Milliseconds between an answer and the next request, and for which a connection is idle after a run.
const PAUSE: (u64, u64) = (5, 60);
const IDLE: (u64, u64) = (100, 1_500);
/// Runs on one connection, in the middle.
const RUNS_A_CONNECTION: usize = 3;
const LARGE_FILE_BYTES: usize = 200_000;
