//! One tunnel: after a WebSocket upgrade, messages must come back unchanged.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use testkit::{ClientError, Protocol, Seed, TestConnection};

use super::{
    course::Course,
    enrolled_client::{EnrolledClient, Trouble, beginning},
    estate::{CHAT, SoakEstate},
    explanation::RequestFailure,
    outcome::is_recognisable,
    tally::{Count, Tally},
};

/// A client that holds a tunnel open.
pub(super) struct Chat {
    enrolled: Arc<EnrolledClient>,
    choices: Seed,
    messages: u64,
    /// When the tunnel last worked, or when its opening began.
    seen: Instant,
}

impl Chat {
    /// The client of this number, with a certificate.
    pub(super) fn new(number: usize, estate: &SoakEstate, patience: Duration) -> Self {
        let certname = format!("chat{number:02}");
        Self {
            // HTTP/2 has no upgrade.
            enrolled: Arc::new(EnrolledClient::new(
                &certname,
                estate,
                Protocol::Http1,
                patience,
            )),
            choices: Seed::new(estate.seed.wrapping_add(!(number as u64))),
            messages: 0,
            seen: Instant::now(),
        }
    }

    /// The client's certificate, for the task that revokes certificates.
    pub(super) fn enrolled_client(&self) -> Arc<EnrolledClient> {
        Arc::clone(&self.enrolled)
    }

    /// Holds a tunnel open until the end of the course, also while agents hold still.
    pub(super) fn live(mut self, estate: &SoakEstate, course: &Course, tally: &Tally) {
        while !course.is_over() {
            let talk = AssertUnwindSafe(|| self.talk(estate, course, tally));
            // The raw client panics if an answer contains a header that is meant for members alone.
            let outcome = catch_unwind(talk)
                .unwrap_or_else(|_| Err(Trouble::Lost("the client panicked".to_owned())));
            match outcome {
                // A member will soon be free, or the outage will end.
                Ok(()) => drop(course.works_for(REOPEN_PAUSE)),
                Err(Trouble::Ended(_)) if estate.ledger.was_killed(None, self.seen) => {
                    tally.failed(RequestFailure::Cut, TUNNEL_KILLED);
                }
                Err(trouble) => self.enrolled.handle_failure(&trouble, CUT, estate, tally),
            }
        }
    }

    fn talk(&mut self, estate: &SoakEstate, course: &Course, tally: &Tally) -> Result<(), Trouble> {
        self.seen = Instant::now();
        let Some(mut tunnel) = self.open(estate, tally)? else {
            return Ok(());
        };
        while !course.is_over() {
            let message = self.message();
            let begun = Instant::now();
            let ended = |error: ClientError| {
                if is_recognisable(&error) {
                    Trouble::Ended(format!("in a tunnel: {error}"))
                } else {
                    Trouble::of("in a tunnel", &error)
                }
            };
            tunnel.send_raw(&message).map_err(ended)?;
            let echo = tunnel.read_bytes(message.len()).map_err(ended)?;
            if echo.len() < message.len() && message.starts_with(&echo) {
                return Err(Trouble::Ended("in a tunnel".to_owned()));
            }
            if echo != message {
                return Err(Trouble::Lost("another message came back".to_owned()));
            }
            tally.count(Count::Messages);
            // The echo shows that the tunnel worked when the message was sent, but not that it still works.
            self.seen = begun;
            let pause = Duration::from_millis(50 + self.choices.below(400) as u64);
            if tunnel.is_closed_within(pause) {
                return Err(Trouble::Ended("between two messages".to_owned()));
            }
        }
        Ok(())
    }

    /// Opens a tunnel. Returns `None` if an injected fault explains that it was not opened.
    fn open(&self, estate: &SoakEstate, tally: &Tally) -> Result<Option<TestConnection>, Trouble> {
        let ended = |error| Trouble::of("opening a tunnel", &error);
        let mut tunnel = self.enrolled.client(estate).connect().map_err(ended)?;
        tally.count(Count::Sent);
        tunnel.send("GET", CHAT, UPGRADE, b"").map_err(ended)?;
        let head = tunnel.read_head().map_err(ended)?;
        tally.count(Count::Answered);
        if head.status == 101 {
            tally.count(Count::Tunnels);
            return Ok(Some(tunnel));
        }
        let answer = tunnel.read_body_of(head).map_err(ended)?;
        if let Some((failure, cause)) = self.explained(answer.status, estate) {
            tally.failed(failure, cause);
            return Ok(None);
        }
        let message = format!("no tunnel: {} {}", answer.status, beginning(&answer));
        Err(Trouble::refusal(&answer).unwrap_or(Trouble::Lost(message)))
    }

    /// The fault that explains a refused upgrade. The proxy sends an upgrade request only once, and does not wait for a
    /// busy member.
    fn explained(
        &self,
        status: u16,
        estate: &SoakEstate,
    ) -> Option<(RequestFailure, &'static str)> {
        let ledger = &estate.ledger;
        match status {
            502 if ledger.was_killed(None, self.seen) => {
                Some((RequestFailure::BadGateway, TUNNEL_KILLED))
            }
            503 if ledger.was_unavailable(self.seen) || ledger.was_busy(self.seen) => {
                Some((RequestFailure::Unavailable, NO_MEMBER))
            }
            _ => None,
        }
    }

    /// A message that differs from every other message.
    fn message(&mut self) -> Vec<u8> {
        self.messages += 1;
        let line = format!("{} says {}\r\n\0", self.enrolled.certname, self.messages);
        let length = line.len() + self.choices.below(MESSAGE_BYTES_MAX);
        line.into_bytes().into_iter().cycle().take(length).collect()
    }
}

/// The event that a revoked client with a tunnel expects.
pub(super) const CUT: &str = "a revoked client's tunnel was cut";
/// Pause after an upgrade that no member could accept.
const REOPEN_PAUSE: Duration = Duration::from_millis(200);
/// Why a tunnel was cut or not opened.
const TUNNEL_KILLED: &str = "member restarted under a tunnel";
const NO_MEMBER: &str = "no member free for a tunnel";
const UPGRADE: &[(&str, &str)] = &[
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "MDEyMzQ1Njc4OWFiY2RlZg=="),
];
const MESSAGE_BYTES_MAX: usize = 16 << 10;
