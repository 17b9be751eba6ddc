//! Which HTTP/1 connections of a worker hold the buffers of HTTP while they are idle.
//!
//! An agent that applies a catalog sends its next request within milliseconds and uses the same buffers again. Most
//! connections of an estate wait for the next run, so only a limited number of idle connections keep buffers, and the other
//! buffers serve the next requests. Without this limit, a process that once had thousands of idle connections would keep the
//! memory, because the allocator returns little to the system.

use std::{
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
    time::Duration,
};

use tokio::time::Instant;

/// Maximum number of idle connections of a worker that hold buffers. Busy connections may be more.
const WARM_MAX: usize = 256;

/// How many connections are compared to find the one that gives its buffers back.
const LOOKED_AT: usize = 8;

/// A connection that was idle for less time keeps its buffers: its agent is probably in the middle of a run.
const IDLE_MIN: Duration = Duration::from_millis(100);

/// A connection that can give its buffers back.
pub(crate) trait Warm {
    /// Its place among those that are warm.
    fn place(&self) -> &Cell<Option<usize>>;

    /// Since when it has been between two requests, if it is.
    fn idle_since(&self) -> Option<Instant>;

    /// Asks it to give its buffers back soon, unless a request comes first.
    fn ask_to_rest(&self);
}

/// The warm connections of a worker.
#[derive(Debug)]
pub(crate) struct WarmConnections<T> {
    places: RefCell<Vec<Weak<T>>>,
    next: Cell<usize>,
}

impl<T> Default for WarmConnections<T> {
    fn default() -> Self {
        Self {
            places: RefCell::default(),
            next: Cell::new(0),
        }
    }
}

impl<T: Warm> WarmConnections<T> {
    /// A connection has buffers from now on. If all places are taken, another connection is asked to rest.
    pub(crate) fn enter(&self, connection: &Rc<T>) {
        let mut places = self.places.borrow_mut();
        let taken = match places.len() < WARM_MAX {
            true => {
                places.push(Weak::new());
                Some(places.len() - 1)
            }
            false => self.free(&places),
        };
        connection.place().set(taken);
        if let Some(place) = taken {
            places[place] = Rc::downgrade(connection);
        }
    }

    /// How many connections have a place.
    pub(crate) fn count(&self) -> usize {
        let places = self.places.borrow();
        let placed = |(place, known): (usize, &Weak<T>)| {
            let known = known.upgrade();
            known.is_some_and(|known| known.place().get() == Some(place))
        };
        places
            .iter()
            .enumerate()
            .filter(|known| placed(*known))
            .count()
    }

    /// A place without a warm connection, or the place of the connection that has been idle longest among some of them.
    /// `None` if all of those are busy or were busy until just now.
    fn free(&self, places: &[Weak<T>]) -> Option<usize> {
        let first = self.next.get();
        self.next.set((first + LOOKED_AT) % places.len());
        let mut oldest: Option<(Instant, Rc<T>, usize)> = None;
        for place in (first..first + LOOKED_AT).map(|place| place % places.len()) {
            let here = |known: &Rc<T>| known.place().get() == Some(place);
            let Some(known) = places[place].upgrade().filter(here) else {
                return Some(place);
            };
            if let Some(since) = known
                .idle_since()
                .filter(|since| since.elapsed() >= IDLE_MIN)
                && oldest.as_ref().is_none_or(|(other, ..)| since < *other)
            {
                oldest = Some((since, known, place));
            }
        }
        let (_, known, place) = oldest?;
        known.place().set(None);
        known.ask_to_rest();
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Connection {
        place: Cell<Option<usize>>,
        idle_since: Cell<Option<Instant>>,
        asked: Cell<bool>,
    }

    impl Warm for Connection {
        fn place(&self) -> &Cell<Option<usize>> {
            &self.place
        }

        fn idle_since(&self) -> Option<Instant> {
            self.idle_since.get()
        }

        fn ask_to_rest(&self) {
            self.asked.set(true);
        }
    }

    #[test]
    fn no_more_idle_connections_are_warm_than_there_are_places() {
        let (places, now) = (WarmConnections::default(), Instant::now() - 2 * IDLE_MIN);
        let all: Vec<Rc<Connection>> = (0..4 * WARM_MAX)
            .map(|number| {
                let connection = Rc::new(Connection::default());
                places.enter(&connection);
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
                .all(|one| one.asked.get() && one.place.get().is_none())
        );
    }

    #[test]
    fn busy_connections_stay_warm_and_the_longest_idle_one_rests() {
        let (places, now) = (WarmConnections::default(), Instant::now());
        let enter = || {
            let connection = Rc::new(Connection::default());
            places.enter(&connection);
            connection
        };
        let all: Vec<_> = (0..WARM_MAX).map(|_| enter()).collect();
        let beyond = enter();
        assert_eq!(
            (
                beyond.place.get(),
                all.iter().filter(|one| one.asked.get()).count()
            ),
            (None, 0)
        );
        for (index, one) in all.iter().enumerate() {
            let idle = IDLE_MIN + Duration::from_millis((index % LOOKED_AT) as u64);
            one.idle_since.set(Some(now - idle));
        }
        assert_eq!(places.count(), WARM_MAX);
        let next = enter();
        assert!(next.place.get().is_some());
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
        let places = WarmConnections::default();
        let all: Vec<_> = (0..2 * WARM_MAX)
            .map(|_| {
                let connection = Rc::new(Connection::default());
                places.enter(&connection);
                connection.idle_since.set(Some(Instant::now()));
                connection
            })
            .collect();
        assert!(all.iter().all(|one| !one.asked.get()));
    }

    #[test]
    fn places_of_connections_that_have_ended_or_rest_are_free() {
        let places = WarmConnections::default();
        let enter = || {
            let connection = Rc::new(Connection::default());
            places.enter(&connection);
            connection
        };
        let mut all: Vec<_> = (0..WARM_MAX).map(|_| enter()).collect();
        drop(all.drain(..WARM_MAX / 2));
        all.iter().for_each(|rests| rests.place.set(None));
        let others: Vec<_> = (0..WARM_MAX).map(|_| enter()).collect();
        let placed = others
            .iter()
            .filter(|one| one.place.get().is_some())
            .count();
        assert!(placed >= WARM_MAX / LOOKED_AT, "{placed}");
        assert!(all.iter().chain(&others).all(|one| !one.asked.get()));
        assert_eq!(places.places.borrow().len(), WARM_MAX);
    }
}
