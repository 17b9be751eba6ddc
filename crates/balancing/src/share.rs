//! How much of a shared resource one client may hold: the share of a pool's connections, and what is counted for it.
//!
//! A client is an agent with a verified certificate, or an address without one. Many agents behind one address are
//! told apart by their certificates.

use std::{
    collections::{BTreeMap, HashMap},
    future::poll_fn,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    task::{Poll, Waker},
};

use crate::rate::counted_as;

/// The share of a pool's connections that one client may hold, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientShare {
    /// Percent, at most 100. Default 25.
    pub percent: u32,
}

impl ClientShare {
    /// How many of `connections` one client may hold: at least one.
    pub fn of(self, connections: u32) -> u32 {
        let share = u64::from(connections) * u64::from(self.percent.min(100)) / 100;
        u32::try_from(share).unwrap_or(u32::MAX).max(1)
    }
}

impl Default for ClientShare {
    /// A quarter.
    fn default() -> Self {
        Self { percent: 25 }
    }
}

/// To which client a request is counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ClientKey {
    /// An agent with a verified certificate, by its certname.
    Agent(Arc<str>),
    /// A client without a verified certificate, by its address; an IPv6 address by its /64 network.
    Address(IpAddr),
}

impl ClientKey {
    /// The client at `address`, with the certname that was verified, if there is one.
    pub fn new(certname: Option<&Arc<str>>, address: IpAddr) -> Self {
        match certname {
            Some(certname) => Self::Agent(Arc::clone(certname)),
            None => Self::Address(counted_as(address)),
        }
    }
}

type Key = (Arc<str>, ClientKey);

/// What clients hold, by resource (a pool's name) and client, over all workers and generations. An entry exists as long
/// as a connection of its client does, so the listeners' `connections_max` limits their number.
#[derive(Debug, Default)]
pub struct Holdings(Mutex<HashMap<Key, Weak<Holding>>>);

impl Holdings {
    /// The count of this client for this resource. Look it up once for each connection and resource: this takes a lock.
    pub fn of(self: &Arc<Self>, resource: &Arc<str>, client: ClientKey) -> Arc<Holding> {
        let key = (Arc::clone(resource), client);
        let mut entries = self.entries();
        if let Some(known) = entries.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        let holding = Arc::new(Holding {
            home: Arc::clone(self),
            key: key.clone(),
            held: AtomicU64::new(0),
            waiting: AtomicU32::new(0),
            queue: Mutex::default(),
        });
        entries.insert(key, Arc::downgrade(&holding));
        holding
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries().len()
    }

    /// Whether no client is connected.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A panic elsewhere leaves a whole map behind.
    fn entries(&self) -> MutexGuard<'_, HashMap<Key, Weak<Holding>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How much of one resource one client holds, and which of its requests wait for more.
#[derive(Debug)]
pub struct Holding {
    home: Arc<Holdings>,
    key: Key,
    held: AtomicU64,
    /// Length of the queue, to be read without its lock.
    waiting: AtomicU32,
    queue: Mutex<Queue>,
}

/// Requests of one client that wait behind its own share, oldest first. The client's streams and connections limit their
/// number. A request that stops waiting leaves from any position, so this is a map: a client that drops all of its
/// requests at once must not have the queue searched for each.
#[derive(Debug, Default)]
struct Queue {
    next: u64,
    wakers: BTreeMap<u64, Waker>,
}

impl Holding {
    /// The resource that it counts.
    pub fn resource(&self) -> &str {
        &self.key.0
    }

    /// How much the client holds now.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Adds `amount`, unless the client would hold more than `max` then.
    pub fn raise(&self, amount: u64, max: u64) -> bool {
        self.held
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |held| {
                held.checked_add(amount).filter(|held| *held <= max)
            })
            .is_ok()
    }

    /// Gives back `amount`, which was added before.
    pub fn lower(&self, amount: u64) {
        self.held.fetch_sub(amount, Ordering::SeqCst);
        // Ordered after the count: a request that queues after this look finds what was given back.
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.queue().wake_first();
        }
    }

    /// Takes one, unless the client holds `max` already.
    pub fn try_take(self: &Arc<Self>, max: u32) -> Option<Held> {
        self.raise(1, u64::from(max))
            .then(|| Held(Arc::clone(self)))
    }

    /// Takes one, and waits behind the client's own requests while it holds all it may. `max` is asked again each time
    /// one is given back.
    pub async fn take(self: &Arc<Self>, max: impl Fn() -> u32) -> Held {
        let mut ticket = Ticket {
            holding: self,
            number: None,
        };
        poll_fn(|cx| {
            // Queued first: what is given back in between is not missed.
            ticket.queue(cx.waker());
            match self.try_take(max()) {
                Some(held) => Poll::Ready(held),
                None => Poll::Pending,
            }
        })
        .await
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let mut entries = self.home.entries();
        // The client may have come back meanwhile, with a new entry under the same key.
        if entries
            .get(&self.key)
            .is_some_and(|entry| entry.strong_count() == 0)
        {
            entries.remove(&self.key);
        }
    }
}

impl Queue {
    fn wake_first(&self) {
        if let Some((_, first)) = self.wakers.first_key_value() {
            first.wake_by_ref();
        }
    }
}

/// A place in a client's queue; dropping it gives it up.
struct Ticket<'a> {
    holding: &'a Arc<Holding>,
    number: Option<u64>,
}

impl Ticket<'_> {
    fn queue(&mut self, waker: &Waker) {
        let mut queue = self.holding.queue();
        if let Some(number) = self.number {
            queue.wakers.insert(number, waker.clone());
            return;
        }
        let number = queue.next;
        queue.next += 1;
        queue.wakers.insert(number, waker.clone());
        self.number = Some(number);
        self.holding.waiting.fetch_add(1, Ordering::SeqCst);
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut queue = self.holding.queue();
        queue.wakers.remove(&number);
        self.holding.waiting.fetch_sub(1, Ordering::SeqCst);
        // There may be more to take, or this request was woken and gave up.
        queue.wake_first();
    }
}

/// One of what a client holds; dropping it gives it back.
#[derive(Debug)]
pub struct Held(Arc<Holding>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.lower(1);
    }
}

#[cfg(test)]
mod tests;
