//! A connection's timer for the responses of members.

use std::{cell::RefCell, pin::Pin};

use tokio::time::{Instant, Sleep, sleep_until};

/// A connection's timer, for one request after the other. One that is only ever put off costs the runtime next to
/// nothing; a new one for each request is entered into its wheel and taken out again.
#[derive(Debug, Default)]
pub(crate) struct ResponseTimer(RefCell<Option<Pin<Box<Sleep>>>>);

impl ResponseTimer {
    /// Takes the timer, set to this instant.
    pub(crate) fn set(&self, at: Instant) -> Pin<Box<Sleep>> {
        match self.0.take() {
            Some(mut timer) => {
                timer.as_mut().reset(at);
                timer
            }
            // The first of its connection, or the other is with a request that runs at the same time.
            None => Box::pin(sleep_until(at)),
        }
    }

    /// Gives the timer back for the next request.
    pub(crate) fn put_back(&self, timer: Pin<Box<Sleep>>) {
        *self.0.borrow_mut() = Some(timer);
    }
}
