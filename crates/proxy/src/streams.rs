//! The requests of an HTTP/2 connection: how many are in flight, and how many the client cancelled.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    task::Waker,
};

use http1::HeadFault;
use listener::{ConnectionStage, ListenerSettings};
use tokio::time::Instant;

use crate::{exceeded_limit::ExceededLimit, frame_allowance::FrameAllowance};

/// How h2 refused a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusedHead {
    /// The head was malformed, and the stream was reset.
    Malformed,
    /// The head was too large, and the response was a 431.
    Large,
}

/// The requests of one connection that carries several at once.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(crate) head_bytes_max: usize,
    in_flight: Cell<u32>,
    /// Which streams became requests: all up to the last one, except the skipped ones.
    accepted: RefCell<AcceptedStreams>,
    /// Open streams whose trailers are malformed, though h2 accepts them.
    malformed: RefCell<Vec<u32>>,
    /// Streams whose path has a fragment, which h2 drops, until their requests are handled.
    fragments: RefCell<Vec<u32>>,
    /// Heads that h2 refused by itself and that have no record yet.
    refused: RefCell<Vec<RefusedHead>>,
    /// Cloned once for each answered stream whose body is still read and discarded.
    discards: Rc<()>,
    idle_since: Cell<Instant>,
    answered: Cell<u64>,
    resets: Cell<u64>,
    /// Frames without content that the client may still send.
    pub(crate) allowance: FrameAllowance,
    /// When the incomplete head started.
    pub(crate) head_since: Cell<Option<Instant>>,
    /// The limit that the client exceeded, so that the connection closes.
    excess: Cell<Option<ExceededLimit>>,
    /// Whether the client was accepted before and is now refused.
    pub(crate) turned_away: Cell<bool>,
    /// Generation of the trust store that became active while a stream was in flight.
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
            accepted: RefCell::default(),
            malformed: RefCell::default(),
            fragments: RefCell::default(),
            refused: RefCell::default(),
            discards: Rc::default(),
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

    pub(crate) fn driven_by(&self, driver: &Waker) {
        *self.driver.borrow_mut() = Some(driver.clone());
    }

    /// Heads that h2 refused by itself since the last call.
    pub(crate) fn take_refused(&self) -> Vec<RefusedHead> {
        std::mem::take(&mut *self.refused.borrow_mut())
    }

    /// Starts the idle time again.
    pub(crate) fn rest(&self) {
        self.idle_since.set(Instant::now());
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.get() == 0
    }

    /// Notes that h2 answered or reset a stream. Does nothing if the stream became a request.
    pub(crate) fn refuse(&self, stream: u32, refused: RefusedHead) {
        if self.accepted.borrow_mut().was_refused(stream) {
            self.refused.borrow_mut().push(refused);
        }
    }

    /// Returns a token for reading and discarding the rest of a stream's body after its response. `None`: too many streams of
    /// the connection hold a token. Until the token is dropped, the stream counts towards `streams_max`.
    pub(crate) fn begin_discard(&self) -> Option<Rc<()>> {
        (Rc::strong_count(&self.discards) <= DISCARDS_MAX).then(|| Rc::clone(&self.discards))
    }

    /// Notes a stream whose trailers are malformed. A client that sends too many of them is disconnected.
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

    /// Notes a stream whose path has a fragment. A client with too many such heads that never become requests is
    /// disconnected.
    pub(crate) fn note_fragment(&self, stream: u32) {
        let mut fragments = self.fragments.borrow_mut();
        fragments.push(stream);
        if fragments.len() > MALFORMED_STREAMS_MAX {
            self.overstep(ExceededLimit::Resets);
        }
    }

    /// Whether a stream was in flight when this trust store became active. If so, the next request gets the 403, even if the
    /// connection is idle now.
    pub(crate) fn was_busy_at(&self, trust_generation: u64) -> bool {
        self.busy_at_swap.get() == Some(trust_generation)
    }

    /// When the last stream ended, or the last bytes of a slowly read response were written.
    pub(crate) fn idle_since(&self) -> Instant {
        self.idle_since.get()
    }

    /// The current stage, and when it began. An incomplete head determines the stage even while other requests are answered,
    /// because the client can send nothing else.
    pub(crate) fn stage(&self) -> (ConnectionStage, Instant) {
        match self.head_since.get() {
            Some(since) if self.excess.get().is_none() => (ConnectionStage::Head, since),
            _ if self.is_idle() => (ConnectionStage::Idle, self.idle_since()),
            _ => (ConnectionStage::Busy, self.idle_since()),
        }
    }

    /// Notes that the client exceeded a limit. The connection closes when its task runs next.
    pub(crate) fn overstep(&self, excess: ExceededLimit) {
        if self.excess.get().is_none() {
            self.excess.set(Some(excess));
            self.wake_driver();
        }
    }

    pub(crate) fn excess(&self) -> Option<ExceededLimit> {
        self.excess.get()
    }

    /// Notes that a stream has become a request.
    pub(crate) fn begin(&self, stream: u32) {
        self.accepted.borrow_mut().note(stream);
        self.in_flight.set(self.in_flight.get() + 1);
    }

    /// Notes that a stream with a request has ended.
    pub(crate) fn end(&self, stream: u32) {
        self.malformed.borrow_mut().retain(|known| *known != stream);
        self.in_flight.set(self.in_flight.get() - 1);
        if self.is_idle() {
            self.rest();
        }
    }

    /// Removes and returns the fault of this stream's head, if the head has one. h2 accepts such heads, so the proxy itself
    /// must refuse them.
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

    pub(crate) fn note_reset(&self) {
        self.resets.set(self.resets.get() + 1);
        if self.resets.get() > self.answered.get() + RESETS_AHEAD_MAX {
            self.overstep(ExceededLimit::Resets);
        }
    }

    pub(crate) fn note_answered(&self) {
        self.answered.set(self.answered.get() + 1);
    }

    pub(crate) fn wake_driver(&self) {
        if let Some(driver) = self.driver.borrow().as_ref() {
            driver.wake_by_ref();
        }
    }
}

/// Which streams became requests. Stream numbers increase, so only few need to be stored.
#[derive(Debug, Default)]
struct AcceptedStreams {
    last: u32,
    /// Lower stream numbers that were skipped and whose outcome is unknown.
    skipped: VecDeque<u32>,
}

impl AcceptedStreams {
    fn note(&mut self, stream: u32) {
        let between = (self.last + 1..stream).filter(|number| number % 2 == 1);
        self.skipped.extend(between.take(SKIPPED_STREAMS_MAX));
        while self.skipped.len() > SKIPPED_STREAMS_MAX {
            self.skipped.pop_front();
        }
        self.last = stream;
    }

    /// Whether a stream did not become a request. Returns true only once for each stream.
    fn was_refused(&mut self, stream: u32) -> bool {
        if stream > self.last {
            return true;
        }
        let index = self.skipped.iter().position(|skipped| *skipped == stream);
        index.and_then(|index| self.skipped.remove(index)).is_some()
    }
}

/// How many more requests a client may cancel than it lets complete. Each cancelled request costs a connection to a member.
const RESETS_AHEAD_MAX: u64 = 100;

/// Maximum answered streams of one connection whose bodies are still read and discarded.
const DISCARDS_MAX: usize = 10;

/// Maximum number of skipped streams that are stored until their outcome is known: h2 has refused them but not yet written the
/// refusal. Beyond the maximum, a record may be missing.
const SKIPPED_STREAMS_MAX: usize = 100;

/// Maximum number of open or early closed streams with malformed trailers, and of streams with a fragment in their path
/// that have not become requests. Beyond either, the connection closes.
const MALFORMED_STREAMS_MAX: usize = 100;
