//! Signals of the process to its connections, and one subscription to them for all connections of a worker.
//!
//! A waiting `watch::Receiver` locks a mutex of the whole process each time its task is polled, and the task of a connection
//! is polled several times for each request. Instead, one task of each worker waits and wakes the worker's connections.

use std::{
    cell::RefCell,
    rc::{Rc, Weak},
    task::{Context, Poll, Waker},
};

use slab::Slab;
use tokio::{sync::watch, time::Instant};

/// The life-cycle stage of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LifecyclePhase {
    /// The process accepts connections and requests.
    #[default]
    Serving,
    /// The process finishes running requests and accepts no new ones.
    Draining,
    /// The process cuts off the remaining connections.
    Cutting,
}

/// Changes that connections must react to at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signals {
    /// The life-cycle stage of the process.
    pub phase: LifecyclePhase,
    /// Generation of the active trust store.
    pub trust_generation: u64,
    /// When the process cuts off the remaining connections, while it is draining.
    pub cut_at: Option<Instant>,
}

#[derive(Debug)]
pub(crate) struct WorkerSignals {
    signals: watch::Receiver<Signals>,
    /// The waiting tasks, one entry for each [`ConnectionSignals`].
    waiting: RefCell<Slab<Option<Waker>>>,
}

#[derive(Debug)]
pub(crate) struct ConnectionSignals {
    signals: watch::Receiver<Signals>,
    worker: Rc<WorkerSignals>,
    key: usize,
}

impl WorkerSignals {
    pub(crate) fn new(signals: &watch::Sender<Signals>) -> Rc<Self> {
        Rc::new(Self {
            signals: signals.subscribe(),
            waiting: RefCell::default(),
        })
    }

    pub(crate) fn subscribe(self: &Rc<Self>) -> ConnectionSignals {
        ConnectionSignals {
            signals: self.signals.clone(),
            key: self.waiting.borrow_mut().insert(None),
            worker: Rc::clone(self),
        }
    }

    /// Calls `changed` and wakes the connections after each change, until the worker or the process ends.
    pub(crate) fn pass_on<F: Fn()>(
        self: &Rc<Self>,
        changed: F,
    ) -> impl Future<Output = ()> + use<F> {
        let (mut signals, worker) = (self.signals.clone(), Rc::downgrade(self));
        async move {
            while signals.changed().await.is_ok() {
                let Some(worker) = Weak::upgrade(&worker) else {
                    return;
                };
                changed();
                let mut waiting = worker.waiting.borrow_mut();
                let woken: Vec<_> = waiting
                    .iter_mut()
                    .filter_map(|(_, waker)| waker.take())
                    .collect();
                drop(waiting);
                woken.into_iter().for_each(Waker::wake);
            }
        }
    }
}

impl ConnectionSignals {
    pub(crate) fn current(&mut self) -> Signals {
        *self.signals.borrow_and_update()
    }

    /// Waits until the signals have changed since they were last read. A change is visible even before the worker's task has
    /// passed it on.
    pub(crate) fn poll_changed(&mut self, cx: &Context<'_>) -> Poll<Signals> {
        if self.signals.has_changed().unwrap_or_default() {
            return Poll::Ready(self.current());
        }
        let mut waiting = self.worker.waiting.borrow_mut();
        match &mut waiting[self.key] {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

impl Drop for ConnectionSignals {
    fn drop(&mut self) {
        self.worker.waiting.borrow_mut().remove(self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::task::{LocalSet, spawn_local, yield_now};

    use super::*;

    #[tokio::test]
    async fn every_connection_of_a_worker_receives_each_change_once() {
        let sender = watch::Sender::new(Signals::default());
        let worker = WorkerSignals::new(&sender);
        let set = LocalSet::new();
        set.run_until(async {
            spawn_local(worker.pass_on(|| ()));
            let received = Rc::new(RefCell::new(Vec::new()));
            for _ in 0..3 {
                let (mut signals, received) = (worker.subscribe(), Rc::clone(&received));
                spawn_local(async move {
                    loop {
                        let signals = poll_fn(|cx| signals.poll_changed(cx)).await;
                        received.borrow_mut().push(signals.trust_generation);
                    }
                });
            }
            for change in 1..=2 {
                yield_now().await;
                sender.send_modify(|signals| signals.trust_generation = change);
                while received.borrow().len() < 3 * change as usize {
                    yield_now().await;
                }
            }
            assert_eq!(*received.borrow(), [1, 1, 1, 2, 2, 2]);
        })
        .await;
    }

    #[tokio::test]
    async fn a_change_is_seen_before_it_is_passed_on_and_an_ended_connection_leaves_nothing() {
        let sender = watch::Sender::new(Signals::default());
        let worker = WorkerSignals::new(&sender);
        let mut signals = worker.subscribe();
        poll_fn(|cx| {
            assert!(signals.poll_changed(cx).is_pending());
            sender.send_modify(|signals| signals.phase = LifecyclePhase::Draining);
            let changed = signals.poll_changed(cx).map(|signals| signals.phase);
            assert_eq!(changed, Poll::Ready(LifecyclePhase::Draining));
            assert!(signals.poll_changed(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        drop(signals);
        assert!(worker.waiting.borrow().is_empty());
    }
}
