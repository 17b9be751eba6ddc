//! A stream of an HTTP/2 connection while the proxy handles its request.

use std::rc::Rc;

use http1::HeadFault;

use crate::{connection::Conn, streams::Streams, worker::Worker};

/// A stream whose request is being handled.
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
        this.streams().begin(number);
        this
    }

    fn streams(&self) -> &Streams {
        self.conn.http2_streams()
    }

    /// Removes and returns the fault of its head that h2 accepted.
    pub(crate) fn take_head_fault(&self) -> Option<HeadFault> {
        self.streams().take_head_fault(self.number)
    }

    pub(crate) fn is_malformed(&self) -> bool {
        self.streams().is_malformed(self.number)
    }

    /// Notes a change of trust that the connection's own task may not have seen yet. That task would find the connection idle,
    /// although it was busy when the trust changed.
    pub(crate) fn note_swap(&self, worker: &Worker) {
        let trust_generation = worker.current().trust.generation();
        if trust_generation != self.conn.trust_generation() {
            self.streams().note_swap(trust_generation);
        }
    }

    pub(crate) fn cancelled(&self) {
        self.streams().note_reset();
    }

    pub(crate) fn answered(&self) {
        self.streams().note_answered();
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let streams = self.streams();
        streams.end(self.number);
        if self.conn.closing.get() {
            streams.wake_driver();
        }
    }
}
