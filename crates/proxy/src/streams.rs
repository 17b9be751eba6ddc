//! The requests of a connection that carries several at once: how many are in flight, and how many were taken back.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    task::Waker,
};

use http1::HeadFault;
use listener::{ConnectionStage, ListenerSettings};
use tokio::time::Instant;

use crate::{exceeded_limit::ExceededLimit, frame_allowance::FrameAllowance};

/// How h2 refused a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusedHead {
    /// It was malformed: the stream was reset.
    Malformed,
    /// It was too large: the stream was answered with 431.
    Large,
}

/// The requests of one connection, where it carries several at once.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(crate) head_bytes_max: usize,
    in_flight: Cell<u32>,
    /// Which numbers became requests: all up to the last, but those passed over.
    taken: RefCell<Taken>,
    /// Open streams whose trailers are malformed, though h2 accepts them.
    malformed: RefCell<Vec<u32>>,
    /// Streams whose path has a fragment, which h2 drops, until their requests are looked at.
    fragments: RefCell<Vec<u32>>,
    /// Heads that h2 refused by itself, to be recorded.
    refused: RefCell<Vec<RefusedHead>>,
    idle_since: Cell<Instant>,
    answered: Cell<u64>,
    resets: Cell<u64>,
    /// Frames that carry nothing.
    pub(crate) allowance: FrameAllowance,
    /// Since when a head has been half-way.
    pub(crate) head_since: Cell<Option<Instant>>,
    /// Why the connection is to end at once.
    excess: Cell<Option<ExceededLimit>>,
    /// The client was accepted once and is no more.
    pub(crate) turned_away: Cell<bool>,
    /// Generation of the trust store that came while a stream was in flight, if one did.
    busy_at_swap: Cell<Option<u64>>,
    /// The task that drives the connection.
    driver: RefCell<Option<Waker>>,
}

impl Streams {
    pub(crate) fn new(settings: &ListenerSettings) -> Self {
        let now = Instant::now();
        Self {
            head_bytes_max: settings.head_bytes_max,
            in_flight: Cell::new(0),
            taken: RefCell::default(),
            malformed: RefCell::default(),
            fragments: RefCell::default(),
            refused: RefCell::default(),
            idle_since: Cell::new(now),
            answered: Cell::new(0),
            resets: Cell::new(0),
            allowance: FrameAllowance::new(now),
            head_since: Cell::new(None),
            excess: Cell::new(None),
            turned_away: Cell::new(false),
            busy_at_swap: Cell::new(None),
            driver: RefCell::new(None),
        }
    }

    /// Notes the task that drives the connection.
    pub(crate) fn driven_by(&self, driver: &Waker) {
        *self.driver.borrow_mut() = Some(driver.clone());
    }

    /// Heads that h2 refused by itself since the last call.
    pub(crate) fn take_refused(&self) -> Vec<RefusedHead> {
        std::mem::take(&mut *self.refused.borrow_mut())
    }

    /// Idle time counts from now.
    pub(crate) fn rest(&self) {
        self.idle_since.set(Instant::now());
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.get() == 0
    }

    /// Notes a frame that h2 sent, if no request of ours asked for it.
    pub(crate) fn refuse(&self, stream: u32, refused: RefusedHead) {
        if self.taken.borrow_mut().is_not(stream) {
            self.refused.borrow_mut().push(refused);
        }
    }

    /// Notes a stream whose trailers are malformed. A client that goes on so is disconnected.
    pub(crate) fn note_malformed(&self, stream: u32) {
        let mut malformed = self.malformed.borrow_mut();
        malformed.push(stream);
        if malformed.len() > MALFORMED_STREAMS_MAX {
            self.overstep(ExceededLimit::Resets);
        }
    }

    pub(crate) fn is_malformed(&self, stream: u32) -> bool {
        self.malformed.borrow().contains(&stream)
    }

    /// Notes a stream whose path has a fragment. A client that goes on so with heads that h2 refuses is disconnected.
    pub(crate) fn note_fragment(&self, stream: u32) {
        let mut fragments = self.fragments.borrow_mut();
        fragments.push(stream);
        if fragments.len() > MALFORMED_STREAMS_MAX {
            self.overstep(ExceededLimit::Resets);
        }
    }

    /// Whether a stream was in flight when this trust store came: the next is told, whatever the connection does now.
    pub(crate) fn was_busy_at(&self, trust_generation: u64) -> bool {
        self.busy_at_swap.get() == Some(trust_generation)
    }

    /// When the last stream ended, or an answer that the client took slowly had gone.
    pub(crate) fn idle_since(&self) -> Instant {
        self.idle_since.get()
    }

    /// What the connection is doing, and since when. A head that is half-way keeps the client from saying anything else,
    /// whatever is being answered.
    pub(crate) fn stage(&self) -> (ConnectionStage, Instant) {
        match self.head_since.get() {
            Some(since) if self.excess.get().is_none() => (ConnectionStage::Head, since),
            _ if self.is_idle() => (ConnectionStage::Idle, self.idle_since()),
            _ => (ConnectionStage::Busy, self.idle_since()),
        }
    }

    /// Notes that the client went beyond a limit: the connection ends when its task has a turn.
    pub(crate) fn overstep(&self, excess: ExceededLimit) {
        if self.excess.get().is_none() {
            self.excess.set(Some(excess));
            self.wake_driver();
        }
    }

    pub(crate) fn excess(&self) -> Option<ExceededLimit> {
        self.excess.get()
    }

    /// A stream has become a request.
    pub(crate) fn begin(&self, stream: u32) {
        self.taken.borrow_mut().note(stream);
        self.in_flight.set(self.in_flight.get() + 1);
    }

    /// A stream that was a request has ended.
    pub(crate) fn end(&self, stream: u32) {
        self.malformed.borrow_mut().retain(|known| *known != stream);
        self.in_flight.set(self.in_flight.get() - 1);
        if self.is_idle() {
            self.rest();
        }
    }

    /// The fault of this stream's head that h2 accepted. It is returned once.
    pub(crate) fn take_head_fault(&self, stream: u32) -> Option<HeadFault> {
        let mut fragments = self.fragments.borrow_mut();
        let at = fragments.iter().position(|known| *known == stream)?;
        fragments.swap_remove(at);
        Some(HeadFault::Fragment)
    }

    /// Notes that a stream was in flight when this generation of the trust store became active.
    pub(crate) fn note_swap(&self, trust_generation: u64) {
        self.busy_at_swap.set(Some(trust_generation));
    }

    /// Notes that the client cancelled a request.
    pub(crate) fn note_reset(&self) {
        self.resets.set(self.resets.get() + 1);
        if self.resets.get() > self.answered.get() + RESETS_AHEAD_MAX {
            self.overstep(ExceededLimit::Resets);
        }
    }

    /// Notes that the client let a request be answered.
    pub(crate) fn note_answered(&self) {
        self.answered.set(self.answered.get() + 1);
    }

    pub(crate) fn wake_driver(&self) {
        if let Some(driver) = self.driver.borrow().as_ref() {
            driver.wake_by_ref();
        }
    }
}

/// Which streams became requests. They do so in the order of their numbers, so that few need be remembered.
#[derive(Debug, Default)]
struct Taken {
    last: u32,
    /// Numbers below that were passed over, and not heard of since.
    passed: VecDeque<u32>,
}

impl Taken {
    fn note(&mut self, stream: u32) {
        let between = (self.last + 1..stream).filter(|number| number % 2 == 1);
        self.passed.extend(between.take(PASSED_STREAMS_MAX));
        while self.passed.len() > PASSED_STREAMS_MAX {
            self.passed.pop_front();
        }
        self.last = stream;
    }

    /// Whether it did not, told once.
    fn is_not(&mut self, stream: u32) -> bool {
        if stream > self.last {
            return true;
        }
        let place = self.passed.iter().position(|passed| *passed == stream);
        place.and_then(|place| self.passed.remove(place)).is_some()
    }
}

/// Requests that a client may take back beyond those that it let be answered: each costs a member a connection.
const RESETS_AHEAD_MAX: u64 = 100;

/// Streams that were passed over and are remembered until something is heard of them: those refused by h2 whose refusal
/// waits for the socket. More, and a record may be missing.
const PASSED_STREAMS_MAX: usize = 100;

/// Streams with malformed trailers that are open at once, or were closed before their trailers came; and streams whose path
/// has a fragment that have not become requests. More of either, and the connection ends.
const MALFORMED_STREAMS_MAX: usize = 100;
