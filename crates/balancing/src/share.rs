//! How much of a shared resource one client may hold: its share of a pool's connections, and the accounts of clients.
//!
//! A client is an agent with a verified certificate, or an address without one. Agents behind one address are counted
//! separately by their certificates.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::rate::counted_as;

/// The share of a pool's connections that one client may hold, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientShare {
    /// Percentage, at most 100. Default 25.
    pub percent: u32,
}

impl ClientShare {
    /// How many of `connections` one client may hold. At least 1.
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

/// The client for which a request is counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ClientKey {
    /// An agent with a verified certificate, by its certname.
    Agent(Arc<str>),
    /// A client without a verified certificate, by its address. An IPv6 address counts as its /64 network.
    Address(IpAddr),
}

impl ClientKey {
    /// The client at `address`. `certname`: the verified certname, if the client has one.
    pub fn new(certname: Option<&Arc<str>>, address: IpAddr) -> Self {
        match certname {
            Some(certname) => Self::Agent(Arc::clone(certname)),
            None => Self::Address(counted_as(address)),
        }
    }
}

type Key = (Arc<str>, ClientKey);

/// The accounts of clients by resource (the name of a pool), over all workers and generations. An account exists as long as a
/// connection of its client, so the `connections_max` of the listeners limits their number.
#[derive(Debug, Default)]
pub struct Holdings(Mutex<HashMap<Key, Weak<Holding>>>);

impl Holdings {
    /// The account of this client for this resource. Look it up once for each connection and resource, because it
    /// takes a lock.
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
            run_began_us: AtomicU64::new(0),
            has_catalog: AtomicBool::new(false),
        });
        entries.insert(key, Arc::downgrade(&holding));
        holding
    }

    /// The account of this client for this resource, if the client has one. Nothing is added.
    pub fn find(&self, resource: &Arc<str>, client: ClientKey) -> Option<Arc<Holding>> {
        let key = (Arc::clone(resource), client);
        self.entries().get(&key).and_then(Weak::upgrade)
    }

    /// The number of accounts.
    pub fn len(&self) -> usize {
        self.entries().len()
    }

    /// Whether no client is connected.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A panic elsewhere leaves the map consistent.
    fn entries(&self) -> MutexGuard<'_, HashMap<Key, Weak<Holding>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The account of one client for one resource.
#[derive(Debug)]
pub struct Holding {
    home: Arc<Holdings>,
    key: Key,
    held: AtomicU64,
    /// Microseconds since start at which the client's run began. 0: no run has begun.
    run_began_us: AtomicU64,
    /// Whether the client has requested a catalog.
    has_catalog: AtomicBool,
}

impl Holding {
    /// The resource.
    pub fn resource(&self) -> &str {
        &self.key.0
    }

    /// How much of the resource the client holds now.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Records a request that arrives at `now`, as time since start. Returns when the client's run began: with its first
    /// request since its last catalog, or since its first connection.
    pub(crate) fn run_began(&self, now: Duration, is_catalog: bool) -> Duration {
        let noted = self.run_began_us.load(Ordering::Relaxed);
        let now_us = u64::try_from(now.as_micros()).unwrap_or(u64::MAX).max(1);
        let began = if noted == 0 { now_us } else { noted };
        let next = if is_catalog { 0 } else { began };
        if next != noted {
            self.run_began_us.store(next, Ordering::Relaxed);
        }
        if is_catalog && !self.has_catalog() {
            self.has_catalog.store(true, Ordering::Relaxed);
        }
        Duration::from_micros(began)
    }

    /// Whether the client has requested a catalog since this account was created.
    pub(crate) fn has_catalog(&self) -> bool {
        self.has_catalog.load(Ordering::Relaxed)
    }

    /// Adds `amount`, unless the client would then hold more than `max`. Returns whether it was added.
    pub fn raise(&self, amount: u64, max: u64) -> bool {
        self.held
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |held| {
                held.checked_add(amount).filter(|held| *held <= max)
            })
            .is_ok()
    }

    /// Gives back `amount`.
    pub fn lower(&self, amount: u64) {
        self.held.fetch_sub(amount, Ordering::SeqCst);
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let mut entries = self.home.entries();
        // The client may have returned meanwhile, with a new account under the same key.
        if entries
            .get(&self.key)
            .is_some_and(|entry| entry.strong_count() == 0)
        {
            entries.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests;
