//! The requests of a connection that carries several at once: how many are in flight, and how many were taken back.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    task::Waker,
};

use http1::HeadFault;
use listener::{ConnectionStage, ListenerSettings};
use tokio::time::Instant;

use crate::{
    connection::Conn, exceeded_limit::ExceededLimit, frame_allowance::FrameAllowance,
    http2_transport::RefusedHead, worker::Worker,
};

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

/// A stream whose request is being answered.
pub(crate) struct OpenStream {
    pub(crate) conn: Rc<Conn>,
    pub(crate) number: u32,
}

impl OpenStream {
    pub(crate) fn new(conn: &Rc<Conn>, number: u32) -> Self {
        let this = Self {
            conn: Rc::clone(conn),
            number,
        };
        let streams = this.streams();
        streams.taken.borrow_mut().note(number);
        streams.in_flight.set(streams.in_flight.get() + 1);
        this
    }

    fn streams(&self) -> &Streams {
        self.conn.http2_streams()
    }

    /// What is wrong with its head and was taken by h2.
    pub(crate) fn take_head_fault(&self) -> Option<HeadFault> {
        let mut fragments = self.streams().fragments.borrow_mut();
        let at = fragments.iter().position(|stream| *stream == self.number)?;
        fragments.swap_remove(at);
        Some(HeadFault::Fragment)
    }

    /// Whether the trailers of the request are malformed.
    pub(crate) fn is_malformed(&self) -> bool {
        self.streams().is_malformed(self.number)
    }

    /// Notes a change of trust that the connection's own task may not have heard of yet: it would find the connection
    /// idle, though it was busy then.
    pub(crate) fn note_swap(&self, worker: &Worker) {
        let trust_generation = worker.current().trust.generation();
        if trust_generation != self.conn.trust_generation() {
            self.streams().busy_at_swap.set(Some(trust_generation));
        }
    }

    /// Notes that the client took its request back.
    pub(crate) fn taken_back(&self) {
        let streams = self.streams();
        streams.resets.set(streams.resets.get() + 1);
        if streams.resets.get() > streams.answered.get() + RESETS_AHEAD_MAX {
            streams.overstep(ExceededLimit::Resets);
        }
    }

    pub(crate) fn answered(&self) {
        let streams = self.streams();
        streams.answered.set(streams.answered.get() + 1);
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let streams = self.streams();
        streams
            .malformed
            .borrow_mut()
            .retain(|stream| *stream != self.number);
        streams.in_flight.set(streams.in_flight.get() - 1);
        if streams.is_idle() {
            streams.idle_since.set(Instant::now());
        }
        if self.conn.closing.get() {
            streams.wake_driver();
        }
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
