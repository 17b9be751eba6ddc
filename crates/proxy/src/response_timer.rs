//! A connection's timer for the responses of members.

use std::{cell::RefCell, pin::Pin};

use tokio::time::{Instant, Sleep, sleep_until};

/// A connection's timer, which one request after the other uses. Postponing a timer costs the runtime next to nothing, whereas
/// a new timer for each request would be inserted into the runtime's timer wheel and removed again.
#[derive(Debug, Default)]
pub(crate) struct ResponseTimer(RefCell<Option<Pin<Box<Sleep>>>>);

impl ResponseTimer {
    pub(crate) fn set(&self, at: Instant) -> Pin<Box<Sleep>> {
        match self.0.take() {
            Some(mut timer) => {
                timer.as_mut().reset(at);
                timer
            }
            // This is the first use, or another request has the timer at the moment.
            None => Box::pin(sleep_until(at)),
        }
    }

    pub(crate) fn put_back(&self, timer: Pin<Box<Sleep>>) {
        *self.0.borrow_mut() = Some(timer);
    }
}
