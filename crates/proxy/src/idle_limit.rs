//! A limit on silence.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Sleep, sleep_until};

/// A limit on silence that uses a timer only while waiting.
#[derive(Debug)]
pub(crate) struct IdleLimit {
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl IdleLimit {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, timer: None }
    }

    pub(crate) fn touch(&mut self) {
        self.timer = None;
    }

    /// Ready with the limit when no data has arrived for that time. The time counts from the first wait after the last frame,
    /// because data cannot be late while none is requested.
    pub(crate) fn poll_exceeded(&mut self, cx: &mut Context<'_>) -> Poll<Duration> {
        self.poll_exceeded_within(cx, Duration::MAX)
    }

    /// The same as `poll_exceeded`, but ready earlier if `within` is shorter than the limit.
    pub(crate) fn poll_exceeded_within(
        &mut self,
        cx: &mut Context<'_>,
        within: Duration,
    ) -> Poll<Duration> {
        let limit = self.limit;
        let timer = self.timer.get_or_insert_with(|| {
            Box::pin(sleep_until(tokio::time::Instant::now() + limit.min(within)))
        });
        timer.as_mut().poll(cx).map(|()| limit)
    }
}
