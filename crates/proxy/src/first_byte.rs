//! The wait for the head of a response.

use std::{
    cell::RefCell,
    pin::Pin,
    time::{Duration, Instant},
};

use tokio::time::{Sleep, sleep_until};

use crate::upload::Upload;

/// How long a member may be silent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// After the request's last byte, or the attempt's beginning where that came later.
    pub(crate) first_byte: Duration,
    /// After the last byte that it took, while there are more.
    pub(crate) idle: Duration,
}

/// What a member let pass.
pub(crate) enum Silence {
    /// The time for its answer.
    Late,
    /// The time for taking more of the body.
    Stalled,
}

/// A connection's timer, for one request after the other. One that is only ever put off costs the runtime next to
/// nothing; a new one for each request is entered into its wheel and taken out again.
#[derive(Debug, Default)]
pub(crate) struct Alarm(RefCell<Option<Pin<Box<Sleep>>>>);

impl Alarm {
    fn set(&self, at: tokio::time::Instant) -> Pin<Box<Sleep>> {
        match self.0.take() {
            Some(mut timer) => {
                timer.as_mut().reset(at);
                timer
            }
            // The first of its connection, or the other is with a request that runs at the same time.
            None => Box::pin(sleep_until(at)),
        }
    }
}

/// Waits for the head of a response. `first_byte` counts from the request's last byte, anew for each attempt: `began` is
/// when this one did. `idle` counts from the last byte that the member took; while the client sends nothing, its own silence is limited, not the member's.
pub(crate) async fn first_byte<T>(
    mut sent: Pin<&mut impl Future<Output = T>>,
    upload: &Upload,
    limits: Limits,
    alarm: &Alarm,
    began: Instant,
) -> Result<T, Silence> {
    let mut timer = alarm.set((began + limits.first_byte.min(limits.idle)).into());
    loop {
        tokio::select! {
            biased;
            answer = sent.as_mut() => {
                *alarm.0.borrow_mut() = Some(timer);
                return Ok(answer);
            }
            () = timer.as_mut() => {
                let (limit, waited, silence) = match upload.finished() {
                    Some(finished) => {
                        let waited = finished.max(began).elapsed();
                        (limits.first_byte, waited, Silence::Late)
                    }
                    None => (limits.idle, upload.untaken(), Silence::Stalled),
                };
                if waited >= limit {
                    return Err(silence);
                }
                timer.as_mut().reset(tokio::time::Instant::now() + (limit - waited));
            }
        }
    }
}
