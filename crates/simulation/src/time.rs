//! Virtual time in microseconds, and the schedule of events.

use std::{cmp::Reverse, collections::BinaryHeap};

/// Microseconds since the simulation began.
pub type Micros = u64;

/// One second.
pub const SECOND: Micros = 1_000_000;

/// Converts seconds to microseconds.
pub fn seconds(seconds: f64) -> Micros {
    (seconds * SECOND as f64) as Micros
}

/// Converts microseconds to seconds.
pub fn as_seconds(micros: Micros) -> f64 {
    micros as f64 / SECOND as f64
}

/// Events ordered by time. Events at the same time keep the order in which they were scheduled.
#[derive(Debug)]
pub struct Agenda<E> {
    heap: BinaryHeap<Reverse<Scheduled<E>>>,
    next: u64,
}

#[derive(Debug)]
struct Scheduled<E> {
    at: Micros,
    number: u64,
    event: E,
}

impl<E> Default for Agenda<E> {
    fn default() -> Self {
        Self {
            heap: BinaryHeap::new(),
            next: 0,
        }
    }
}

impl<E> Agenda<E> {
    /// Schedules an event.
    pub fn at(&mut self, at: Micros, event: E) {
        let number = self.next;
        self.next += 1;
        self.heap.push(Reverse(Scheduled { at, number, event }));
    }

    /// The time of the next event.
    pub fn peek(&self) -> Option<Micros> {
        self.heap.peek().map(|Reverse(next)| next.at)
    }

    /// Removes and returns the next event.
    pub fn pop(&mut self) -> Option<(Micros, E)> {
        self.heap.pop().map(|Reverse(next)| (next.at, next.event))
    }
}

impl<E> PartialEq for Scheduled<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<E> Eq for Scheduled<E> {}

impl<E> PartialOrd for Scheduled<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Scheduled<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}
