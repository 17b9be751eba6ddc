//! One agent. Its runs are those of a Puppet agent with shorter pauses, and some of its connections are slow.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use testkit::{Client, ClientError, Protocol, Response, Seed, TestConnection};

use super::{
    course::{Course, Working},
    enrolled_client::{EnrolledClient, HEADERS, Trouble},
    estate::{BODY_BUFFER_BYTES, SoakEstate},
    faults::RETRY_AFTER,
    outcome::{Exchange, Received},
    request_plan::{PlannedRequest, RequestPlan},
    tally::{Count, Tally},
};

/// An agent with its certificate.
pub(super) struct Agent {
    enrolled: Arc<EnrolledClient>,
    client: Client,
    protocol: Protocol,
    choices: Seed,
    plan: RequestPlan,
    slow_one_in: usize,
    headers: &'static [(&'static str, &'static str)],
}

impl Agent {
    /// The agent of this number, with a certificate.
    pub(super) fn new(
        number: usize,
        estate: &SoakEstate,
        patience: Duration,
        slow_one_in: usize,
    ) -> Self {
        let protocol = match number % 3 {
            2 => Protocol::Http2,
            _ => Protocol::Http1,
        };
        let certname = format!("web{number:02}");
        let enrolled = EnrolledClient::new(&certname, estate, protocol, patience);
        let mut choices = Seed::new(estate.seed.wrapping_add(number as u64));
        Self {
            client: enrolled.client(estate),
            enrolled: Arc::new(enrolled),
            protocol,
            plan: RequestPlan::new(&certname, choices.number()),
            choices,
            slow_one_in,
            headers: match number % 4 {
                1 => OLD_HEADERS,
                _ => HEADERS,
            },
        }
    }

    /// The agent's certificate, for the task that revokes certificates.
    pub(super) fn enrolled_client(&self) -> Arc<EnrolledClient> {
        Arc::clone(&self.enrolled)
    }

    /// Runs until the end of the course.
    pub(super) fn live(
        mut self,
        estate: &SoakEstate,
        course: &Course,
        tally: &Tally,
        _: Working<'_>,
    ) {
        while course.goes_on() {
            let run = AssertUnwindSafe(|| self.run(estate, course, tally));
            // The raw client panics if an answer contains a header that is meant for members alone.
            let outcome = catch_unwind(run)
                .unwrap_or_else(|_| Err(Trouble::Lost("the client panicked".to_owned())));
            if let Err(trouble) = outcome {
                estate.ledger.forget(&self.enrolled.certname);
                self.enrolled
                    .handle_failure(&trouble, REFUSED, estate, tally);
                self.client = self.enrolled.client(estate);
                thread::sleep(self.pause(PAUSE));
            }
        }
    }

    /// Connects, sends the requests of a run, leaves the connection open for a while, and may start another run on it.
    fn run(&mut self, estate: &SoakEstate, course: &Course, tally: &Tally) -> Result<(), Trouble> {
        let mut connection = self.connect(tally)?;
        loop {
            for group in self.plan.of_a_run().chunks(at_once(self.protocol)) {
                if self.exchange_group(&mut connection, group, estate, tally)? == Next::Reconnect {
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

    /// Connects as agents do, with a full handshake each time, or resumes a session. Some connections are slow.
    fn connect(&mut self, tally: &Tally) -> Result<TestConnection, Trouble> {
        if self.choices.once_in(2) {
            self.client = self.client.clone().forgetful();
        }
        let mut client = self.client.clone();
        if self.slow_one_in > 0 && self.choices.once_in(self.slow_one_in) {
            client = self.slow(client);
            tally.count(Count::SlowConnections);
        }
        let connection = client
            .connect()
            .map_err(|error| Trouble::of("connecting", &error))?;
        tally.count(Count::Connections);
        if connection.resumed() {
            tally.count(Count::Resumed);
        }
        Ok(connection)
    }

    /// Makes the client slow: it moves few bytes at a time, but far more than the proxy's minimum rates of 1 KiB/s.
    fn slow(&mut self, client: Client) -> Client {
        let bytes = 64 + self.choices.below(1_500);
        let rest = Duration::from_micros(bytes as u64 * SLOW_MICROSECONDS_A_BYTE);
        client.trickle(bytes, rest).receive_buffer(4 << 10)
    }

    /// Sends these requests together, then reads every answer.
    fn exchange_group(
        &self,
        connection: &mut TestConnection,
        group: &[PlannedRequest],
        estate: &SoakEstate,
        tally: &Tally,
    ) -> Result<Next, Trouble> {
        let since = Instant::now();
        for request in group {
            tally.count(Count::Sent);
            send(connection, request, self.headers)
                .map_err(|error| Trouble::of(&request.target, &error))?;
            count_upload(request, tally);
        }
        let mut next = Next::GoOn;
        for request in group {
            let exchange = Exchange {
                request,
                certname: &self.enrolled.certname,
                since,
                estate,
                retry_after: (self.headers != OLD_HEADERS).then_some(RETRY_AFTER),
            };
            match exchange.receive(connection, tally)? {
                Received::Whole(answer) => {
                    tally.count(counted(self.protocol));
                    if is_last(&answer, connection) {
                        next = Next::Reconnect;
                    }
                }
                Received::Failed(answer) => {
                    if is_last(&answer, connection) {
                        next = Next::Reconnect;
                    }
                }
                // The other streams of the connection continue.
                Received::Cut if self.protocol == Protocol::Http2 => {
                    if connection.is_last() {
                        next = Next::Reconnect;
                    }
                }
                Received::Cut => next = Next::Reconnect,
            }
        }
        Ok(next)
    }

    fn pause(&mut self, range: (u64, u64)) -> Duration {
        let (least, most) = range;
        Duration::from_millis(least + self.choices.below((most - least) as usize) as u64)
    }
}

/// Whether to use the connection for the next request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    GoOn,
    Reconnect,
}

fn send(
    connection: &mut TestConnection,
    request: &PlannedRequest,
    headers: &[(&str, &str)],
) -> Result<(), ClientError> {
    if request.is_chunked {
        let pieces: Vec<_> = request.body.chunks(CHUNK_BYTES).collect();
        connection.send_chunked(request.method, &request.target, headers, &pieces)
    } else {
        connection.send(request.method, &request.target, headers, &request.body)
    }
}

fn count_upload(request: &PlannedRequest, tally: &Tally) {
    if request.body.is_empty() {
        return;
    }
    tally.count(Count::Uploads);
    if request.body.len() > BODY_BUFFER_BYTES[1] {
        tally.count(Count::LargeUploads);
    }
}

fn is_last(answer: &Response, connection: &TestConnection) -> bool {
    answer.says_close() || connection.is_last()
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

/// Headers of an agent that does not retry after a 503. For such an agent the proxy waits until a busy member is free.
const OLD_HEADERS: &[(&str, &str)] = &[HEADERS[0], ("X-Puppet-Version", "7.20.0")];
/// The event that a revoked agent expects.
pub(super) const REFUSED: &str = "a revoked agent was refused";
/// Milliseconds between an answer and the next request, and milliseconds for which a connection is idle after a run.
const PAUSE: (u64, u64) = (5, 60);
const IDLE: (u64, u64) = (100, 1_500);
/// The average number of runs on one connection.
const RUNS_A_CONNECTION: usize = 3;
const CHUNK_BYTES: usize = 6_000;
/// 200 KB/s: the largest answer takes a second.
const SLOW_MICROSECONDS_A_BYTE: u64 = 5;
