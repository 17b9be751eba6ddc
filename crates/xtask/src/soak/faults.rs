//! Faults of members: which requests a member spoils, and how. The seed determines the choices.

use std::time::Duration;

use testkit::{Reply, Seed};

/// How a member spoils an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberFault {
    /// The member reads the request and closes the connection without an answer.
    HangUp,
    /// The member answers in full, then closes the kept-alive connection without announcing it.
    CloseKept,
    /// The member resets the connection in the middle of its answer.
    ResetInBody,
    /// The head of the answer is malformed.
    BadHead,
    /// The chunks of the answer are malformed from the middle on.
    BadChunk,
    /// The member answers 503 with `Retry-After`, as a Puppet server does when its own queue is full.
    Busy,
    /// The member waits, then sends its answer in small pieces.
    Slow,
}

impl MemberFault {
    pub(super) const ALL: [Self; 7] = [
        Self::HangUp,
        Self::CloseKept,
        Self::ResetInBody,
        Self::BadHead,
        Self::BadChunk,
        Self::Busy,
        Self::Slow,
    ];

    /// The name in reports.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::HangUp => "member hung up",
            Self::CloseKept => "member closed a kept connection",
            Self::ResetInBody => "member reset within its answer",
            Self::BadHead => "malformed head",
            Self::BadChunk => "malformed chunk",
            Self::Busy => "member busy",
            Self::Slow => "slow member",
        }
    }

    /// The spoilt reply, instead of a correct reply with this body.
    pub(super) fn spoil(self, body: &[u8], variant: u64) -> Reply {
        let half = body.len() / 2;
        let whole = || {
            Reply::status(200)
                .header("Content-Type", "application/octet-stream")
                .body(body)
        };
        match self {
            Self::HangUp => Reply::hang_up(),
            Self::CloseKept => whole().close_unannounced(),
            Self::ResetInBody => whole().reset_after(half as u64),
            Self::BadHead => Reply::raw(bad_head(body, variant)),
            Self::BadChunk => Reply::raw(bad_chunk(&body[..half])),
            Self::Busy => Reply::status(503)
                .header("X-Puppet-Version", "8.10.0")
                .header("Retry-After", RETRY_AFTER)
                .body(BUSY),
            Self::Slow => whole()
                .delay(Duration::from_millis(50 + variant % 400))
                .dribble(body.len() / 20 + 1, Duration::from_millis(10)),
        }
    }
}

/// A head with two lengths, a broken status line, or a field without a name. The complete body follows; no client may
/// see it.
fn bad_head(body: &[u8], variant: u64) -> Vec<u8> {
    let length = body.len();
    let head = match variant % 3 {
        0 => format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nContent-Length: {}\r\n\r\n",
            length + 1
        ),
        1 => format!("HTTP/1.1 2OO OK\r\nContent-Length: {length}\r\n\r\n"),
        _ => format!("HTTP/1.1 200 OK\r\n: nameless\r\nContent-Length: {length}\r\n\r\n"),
    };
    [head.as_bytes(), body].concat()
}

/// A chunk, then a chunk size that is not a number.
fn bad_chunk(piece: &[u8]) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let size = format!("{:x}\r\n", piece.len());
    [
        head.as_bytes(),
        size.as_bytes(),
        piece,
        b"\r\nnot-a-size\r\n",
    ]
    .concat()
}

/// Selects the requests that a member spoils: one after every gap. Every kind occurs once before any kind repeats.
pub(super) struct FaultPlan {
    choices: Seed,
    gap_mean: usize,
    left: usize,
    deck: Vec<MemberFault>,
}

impl FaultPlan {
    /// A plan with one fault per `gap_mean` requests on average, or without faults if that is 0.
    pub(super) fn new(seed: u64, gap_mean: usize) -> Self {
        let mut plan = Self {
            choices: Seed::new(seed),
            gap_mean,
            left: 0,
            deck: Vec::new(),
        };
        plan.left = plan.gap();
        plan
    }

    /// Counts a request. Returns the fault to inject into it, and a number that selects the fault's variant.
    pub(super) fn next(&mut self) -> Option<(MemberFault, u64)> {
        if self.gap_mean == 0 {
            return None;
        }
        self.left -= 1;
        if self.left > 0 {
            return None;
        }
        self.left = self.gap();
        if self.deck.is_empty() {
            self.deck = MemberFault::ALL.to_vec();
        }
        let drawn = self.choices.below(self.deck.len());
        Some((self.deck.swap_remove(drawn), self.choices.number()))
    }

    fn gap(&mut self) -> usize {
        1 + self.choices.below(2 * self.gap_mean)
    }
}

/// The answer of a busy member.
pub(super) const BUSY: &[u8] = b"The server is busy.\n";
pub(super) const RETRY_AFTER: &str = "1";

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(seed: u64, requests: usize) -> Vec<(usize, MemberFault)> {
        let mut plan = FaultPlan::new(seed, 10);
        let met = (0..requests).filter_map(|number| Some((number, plan.next()?.0)));
        met.collect()
    }

    #[test]
    fn a_seed_repeats_its_faults_and_every_kind_comes_in_turn() {
        let faults = drawn(7, 1_000);
        assert_eq!(faults, drawn(7, 1_000));
        assert_ne!(faults, drawn(8, 1_000));
        for round in faults.chunks_exact(MemberFault::ALL.len()) {
            assert!(
                MemberFault::ALL
                    .iter()
                    .all(|fault| round.iter().any(|(_, met)| met == fault)),
                "{round:?}"
            );
        }
        assert!(faults.windows(2).all(|pair| pair[1].0 - pair[0].0 <= 20));
    }

    #[test]
    fn a_plan_without_faults_spoils_nothing() {
        let mut plan = FaultPlan::new(7, 0);
        assert!((0..1_000).all(|_| plan.next().is_none()));
    }
}
