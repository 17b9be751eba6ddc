//! Counts and limits the open connections to one member.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use tokio::sync::Notify;

/// Counts the open connections to one member, over all workers and generations.
///
/// The pool's admission allows no more requests at a member than connections. A request that cannot open a connection therefore
/// waits only until another worker has closed an idle one, and never for another request.
#[derive(Debug, Default)]
pub struct Slots {
    open: AtomicU32,
    waiting: AtomicU32,
    closed: Notify,
}

impl Slots {
    /// Number of connections that are open now.
    pub fn open(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }

    pub(crate) fn try_open(self: &Arc<Self>, max: u32) -> Option<OpenSlot> {
        let below = |open| (open < max).then_some(open + 1);
        self.open
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, below)
            .ok()?;
        Some(OpenSlot(Arc::clone(self)))
    }

    /// Waits until a connection may be opened. `close_idle` wakes all workers so that they close idle connections.
    pub(crate) async fn wait(self: &Arc<Self>, max: u32, close_idle: impl Fn()) -> OpenSlot {
        let _waiting = Waiting::new(self);
        loop {
            let mut closed = pin!(self.closed.notified());
            // Enabled before the attempt, so that a connection that is closed after the attempt wakes this request.
            closed.as_mut().enable();
            if let Some(slot) = self.try_open(max) {
                return slot;
            }
            close_idle();
            closed.await;
        }
    }

    pub(crate) fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::SeqCst)
    }
}

/// Counts a waiting request until it is dropped.
struct Waiting<'a>(&'a Slots);

impl<'a> Waiting<'a> {
    fn new(slots: &'a Slots) -> Self {
        slots.waiting.fetch_add(1, Ordering::SeqCst);
        Self(slots)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// One open connection, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenSlot(Arc<Slots>);

impl Drop for OpenSlot {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
        self.0.closed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        cell::RefCell,
        pin::Pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    fn poll_once<T>(mut future: impl Future<Output = T> + Unpin) -> Option<T> {
        let mut context = Context::from_waker(Waker::noop());
        match Pin::new(&mut future).poll(&mut context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_member_never_has_more_connections_than_its_limit() {
        let slots = Arc::new(Slots::default());
        let first = slots.try_open(1);
        assert!(first.is_some() && slots.try_open(1).is_none());
        drop(first);
        assert_eq!(slots.open(), 0);
    }

    #[tokio::test]
    async fn a_request_at_the_limit_waits_until_enough_idle_connections_are_closed() {
        let slots = Arc::new(Slots::default());
        let mut open: Vec<_> = (0..3).map_while(|_| slots.try_open(3)).collect();
        let open = RefCell::new(&mut open);
        // The limit was lowered meanwhile. Three connections must be closed, and each call closes one.
        let slot = slots.wait(1, || {
            assert_eq!(slots.waiting(), 1);
            drop(open.borrow_mut().pop());
        });
        let _slot = slot.await;
        assert_eq!((slots.open(), slots.waiting()), (1, 0));
    }

    #[tokio::test]
    async fn each_closed_connection_wakes_a_waiting_request() {
        let slots = Arc::new(Slots::default());
        let held = (slots.try_open(2), slots.try_open(2));
        let mut first = pin!(slots.wait(2, || ()));
        let mut second = pin!(slots.wait(2, || ()));
        assert!(poll_once(&mut first).is_none() && poll_once(&mut second).is_none());
        drop(held);
        let opened = (first.await, second.await);
        assert_eq!(slots.open(), 2);
        drop(opened);
    }

    #[tokio::test]
    async fn a_cancelled_request_wakes_the_next_one() {
        let slots = Arc::new(Slots::default());
        let held = slots.try_open(1);
        let mut first = Box::pin(slots.wait(1, || ()));
        let mut second = pin!(slots.wait(1, || ()));
        assert!(poll_once(&mut first).is_none() && poll_once(&mut second).is_none());
        drop(held);
        drop(first);
        assert_eq!(slots.waiting(), 1);
        second.await;
    }
}
