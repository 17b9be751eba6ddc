//! Which idle HTTP/1 connections of a worker keep their HTTP buffers.
//!
//! An agent that applies a catalog sends its next request within milliseconds and uses the same buffers again. Most connections
//! of an estate wait for the next run. Only a limited number of idle connections therefore keep their buffers. The buffers of
//! the others are reused for new requests. Without this limit, thousands of connections that become idle at once would hold
//! their buffers for a second, and the allocator would hold that memory for another second.

use std::{
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
    time::Duration,
};

use tokio::time::Instant;

/// Maximum number of idle connections of a worker that keep their buffers. The number of busy connections is not limited here.
const WARM_MAX: usize = 256;

/// How many connections are compared to find the one that releases its buffers.
const LOOKED_AT: usize = 8;

/// Minimum idle time before a connection must release its buffers. The agent of a connection that was busy more recently is
/// probably in the middle of a run.
const IDLE_MIN: Duration = Duration::from_millis(100);

/// A connection that can release its buffers.
pub(crate) trait Warm {
    /// Its slot among the warm connections.
    fn slot(&self) -> &Cell<Option<usize>>;

    /// Since when the connection has been between two requests. `None` if it is not.
    fn idle_since(&self) -> Option<Instant>;

    /// Requests that the connection soon releases its buffers, unless another request comes first.
    fn request_rest(&self);
}

#[derive(Debug)]
pub(crate) struct WarmConnections<T> {
    slots: RefCell<Vec<Weak<T>>>,
    next: Cell<usize>,
}

impl<T> Default for WarmConnections<T> {
    fn default() -> Self {
        Self {
            slots: RefCell::default(),
            next: Cell::new(0),
        }
    }
}

impl<T: Warm> WarmConnections<T> {
    /// Notes that a connection has buffers from now on. If all slots are taken, another connection is requested to release its
    /// buffers.
    pub(crate) fn enter(&self, connection: &Rc<T>) {
        let mut slots = self.slots.borrow_mut();
        let taken = if slots.len() < WARM_MAX {
            slots.push(Weak::new());
            Some(slots.len() - 1)
        } else {
            self.free(&slots)
        };
        connection.slot().set(taken);
        if let Some(slot) = taken {
            slots[slot] = Rc::downgrade(connection);
        }
    }

    pub(crate) fn count(&self) -> usize {
        let slots = self.slots.borrow();
        let placed = |(slot, known): (usize, &Weak<T>)| {
            let known = known.upgrade();
            known.is_some_and(|known| known.slot().get() == Some(slot))
        };
        slots
            .iter()
            .enumerate()
            .filter(|known| placed(*known))
            .count()
    }

    /// A slot that no warm connection has, or else the slot of the connection that has been idle longest among the few that are
    /// compared. `None` if all of these are busy or were busy until just now.
    fn free(&self, slots: &[Weak<T>]) -> Option<usize> {
        let first = self.next.get();
        self.next.set((first + LOOKED_AT) % slots.len());
        let mut oldest: Option<(Instant, Rc<T>, usize)> = None;
        for slot in (first..first + LOOKED_AT).map(|slot| slot % slots.len()) {
            let here = |known: &Rc<T>| known.slot().get() == Some(slot);
            let Some(known) = slots[slot].upgrade().filter(here) else {
                return Some(slot);
            };
            if let Some(since) = known
                .idle_since()
                .filter(|since| since.elapsed() >= IDLE_MIN)
                && oldest.as_ref().is_none_or(|(other, ..)| since < *other)
            {
                oldest = Some((since, known, slot));
            }
        }
        let (_, known, slot) = oldest?;
        known.slot().set(None);
        known.request_rest();
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Connection {
        slot: Cell<Option<usize>>,
        idle_since: Cell<Option<Instant>>,
        asked: Cell<bool>,
    }

    impl Warm for Connection {
        fn slot(&self) -> &Cell<Option<usize>> {
            &self.slot
        }

        fn idle_since(&self) -> Option<Instant> {
            self.idle_since.get()
        }

        fn request_rest(&self) {
            self.asked.set(true);
        }
    }

    #[test]
    fn no_more_idle_connections_are_warm_than_there_are_slots() {
        let (slots, now) = (WarmConnections::default(), Instant::now() - 2 * IDLE_MIN);
        let all: Vec<Rc<Connection>> = (0..4 * WARM_MAX)
            .map(|number| {
                let connection = Rc::new(Connection::default());
                slots.enter(&connection);
                let began = now + Duration::from_micros(number as u64);
                connection.idle_since.set(Some(began));
                connection
            })
            .collect();
        let warm = || all.iter().filter(|one| !one.asked.get()).count();
        assert_eq!(warm(), WARM_MAX);
        assert!(
            all[..WARM_MAX]
                .iter()
                .all(|one| one.asked.get() && one.slot.get().is_none())
        );
    }

    #[test]
    fn busy_connections_stay_warm_and_the_longest_idle_one_rests() {
        let (slots, now) = (WarmConnections::default(), Instant::now());
        let enter = || {
            let connection = Rc::new(Connection::default());
            slots.enter(&connection);
            connection
        };
        let all: Vec<_> = (0..WARM_MAX).map(|_| enter()).collect();
        let beyond = enter();
        assert_eq!(
            (
                beyond.slot.get(),
                all.iter().filter(|one| one.asked.get()).count()
            ),
            (None, 0)
        );
        for (index, one) in all.iter().enumerate() {
            let idle = IDLE_MIN + Duration::from_millis((index % LOOKED_AT) as u64);
            one.idle_since.set(Some(now - idle));
        }
        assert_eq!(slots.count(), WARM_MAX);
        let next = enter();
        assert!(next.slot.get().is_some());
        let asked: Vec<_> = all
            .iter()
            .enumerate()
            .filter(|(_, one)| one.asked.get())
            .collect();
        assert_eq!(asked.len(), 1);
        assert_eq!(
            asked[0].0 % LOOKED_AT,
            LOOKED_AT - 1,
            "the one that was idle for longest"
        );
    }

    #[test]
    fn a_connection_that_was_busy_until_just_now_stays_warm() {
        let slots = WarmConnections::default();
        let all: Vec<_> = (0..2 * WARM_MAX)
            .map(|_| {
                let connection = Rc::new(Connection::default());
                slots.enter(&connection);
                connection.idle_since.set(Some(Instant::now()));
                connection
            })
            .collect();
        assert!(all.iter().all(|one| !one.asked.get()));
    }

    #[test]
    fn slots_of_connections_that_have_ended_or_rest_are_free() {
        let slots = WarmConnections::default();
        let enter = || {
            let connection = Rc::new(Connection::default());
            slots.enter(&connection);
            connection
        };
        let mut all: Vec<_> = (0..WARM_MAX).map(|_| enter()).collect();
        drop(all.drain(..WARM_MAX / 2));
        all.iter().for_each(|rests| rests.slot.set(None));
        let others: Vec<_> = (0..WARM_MAX).map(|_| enter()).collect();
        let placed = others.iter().filter(|one| one.slot.get().is_some()).count();
        assert!(placed >= WARM_MAX / LOOKED_AT, "{placed}");
        assert!(all.iter().chain(&others).all(|one| !one.asked.get()));
        assert_eq!(slots.slots.borrow().len(), WARM_MAX);
    }
}
