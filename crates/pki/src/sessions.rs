//! TLS sessions that clients may resume: tickets under rotated keys, and a bounded store for TLS 1.2 clients that do
//! not use tickets.
//!
//! A resumed session carries the client's chain past the verifier. A session from one listener must therefore be invalid on
//! another, and under another policy of the same listener. The bugs CVE-2025-23419 (nginx) and CVE-2025-23048 (httpd) violated
//! that rule. Each listener and policy therefore has its own keys and store. However often a session is resumed, it ends one
//! lifetime after the handshake in which its client proved its key (RFC 8446, 4.6.1).

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::{ProducesTickets, StoresServerSessions};

use crate::client_verifier::ListenerPolicy;
use crate::problem::PkiProblem;

/// The keys of session tickets and the sessions of clients without tickets. There is one set for each listener and policy.
///
/// Keep one value for the life of the process, so that sessions survive reloads. The proxy verifies a session again when it is
/// resumed.
#[derive(Default)]
pub struct TicketKeys {
    sets: Mutex<HashMap<(String, ListenerPolicy), SessionSet>>,
}

/// Keys and store for one listener under one policy.
#[derive(Clone)]
pub(crate) struct SessionSet {
    keys: Arc<RotatedKeys>,
    store: Arc<Store>,
}

/// The TLS settings of one listener. Each connection gets its own configuration from them.
#[derive(Debug)]
pub struct ServerTls {
    config: ServerConfig,
    keys: Arc<RotatedKeys>,
    lifetime: Duration,
}

impl TicketKeys {
    /// Drops the keys of removed listeners. A listener that is added later with the same name starts with new keys.
    pub fn retain(&self, is_named: impl Fn(&str) -> bool) {
        lock(&self.sets).retain(|(listener, _), _| is_named(listener));
    }

    /// The set of a listener. A new set is created if the listener has none.
    pub(crate) fn of(
        &self,
        listener: &str,
        policy: ListenerPolicy,
    ) -> Result<SessionSet, PkiProblem> {
        match lock(&self.sets).entry((listener.to_owned(), policy)) {
            Entry::Occupied(known) => Ok(known.get().clone()),
            Entry::Vacant(vacant) => Ok(vacant.insert(SessionSet::new()?).clone()),
        }
    }
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKeys").finish_non_exhaustive()
    }
}

impl SessionSet {
    fn new() -> Result<Self, PkiProblem> {
        let unkeyed =
            |Unkeyed| PkiProblem::Tls("no random data for the keys of session tickets".into());
        Ok(Self {
            keys: Arc::new(RotatedKeys::new().map_err(unkeyed)?),
            store: Arc::default(),
        })
    }

    /// The TLS settings of a listener, with the sessions of this set.
    pub(crate) fn serve(&self, mut config: ServerConfig, lifetime: Duration) -> ServerTls {
        config.session_storage = Arc::new(TimedStore {
            store: Arc::clone(&self.store),
            lifetime,
        });
        ServerTls {
            config,
            keys: Arc::clone(&self.keys),
            lifetime,
        }
    }
}

impl ServerTls {
    /// The configuration of one connection. Each connection needs its own, because a new ticket must contain when the client
    /// proved its key. On a resumed connection, only the ticket that the client presented contains that time.
    pub fn for_connection(&self) -> Arc<ServerConfig> {
        let mut config = self.config.clone();
        let keys = Arc::clone(&self.keys);
        config.ticketer = Arc::new(ConnectionTickets::new(keys, self.lifetime));
        Arc::new(config)
    }
}

/// The tickets that one connection presents and receives.
#[derive(Debug)]
struct ConnectionTickets {
    keys: Arc<RotatedKeys>,
    lifetime: Duration,
    /// When the client proved its key, in milliseconds on the clock of the keys.
    proved: AtomicU64,
    /// Whether rustls has called `enabled`. It does so before it opens a ticket in TLS 1.3, and afterwards in TLS 1.2.
    was_queried: AtomicBool,
    /// Whether the opened ticket may be used again, so that no other ticket is needed.
    reusable: AtomicBool,
}

impl ConnectionTickets {
    fn new(keys: Arc<RotatedKeys>, lifetime: Duration) -> Self {
        Self {
            keys,
            lifetime,
            proved: AtomicU64::new(UNPROVED),
            was_queried: AtomicBool::new(false),
            reusable: AtomicBool::new(false),
        }
    }

    fn seal(&self, plain: &[u8], now: u64) -> Option<Vec<u8>> {
        // If no ticket was resumed, the client has proved its key in this handshake.
        let proved = self.proved.load(Ordering::Relaxed).min(now);
        self.proved.store(proved, Ordering::Relaxed);
        if !self.is_live(proved, now) {
            return None;
        }
        let message = [&proved.to_be_bytes(), plain].concat();
        self.keys
            .keys_at(self.lifetime, now)?
            .current
            .ticketer
            .encrypt(&message)
    }

    fn open(&self, ticket: &[u8], now: u64) -> Option<Vec<u8>> {
        let keys = self.keys.keys_at(self.lifetime, now)?;
        let by = |key: &Key| key.ticketer.decrypt(ticket);
        let (mut message, is_current) = match by(&keys.current) {
            Some(message) => (message, true),
            None => (keys.previous.as_ref().and_then(by)?, false),
        };
        let proved = u64::from_be_bytes(*message.first_chunk()?);
        if !self.is_live(proved, now) {
            return None;
        }
        // If a client presents several tickets, the time in the oldest one applies, whichever ticket is resumed.
        self.proved.fetch_min(proved, Ordering::Relaxed);
        message.drain(..size_of::<u64>());
        // A ticket is not used twice in TLS 1.3 (RFC 8446, C.4). In TLS 1.2, a client reuses its ticket (RFC 5077, 3.3).
        let is_tls12 = !self.was_queried.load(Ordering::Relaxed);
        self.reusable
            .store(is_tls12 && is_current, Ordering::Relaxed);
        Some(message)
    }

    fn is_live(&self, proved: u64, now: u64) -> bool {
        Duration::from_millis(now.saturating_sub(proved)) < self.lifetime
    }

    fn left(&self, now: u64) -> u32 {
        let proved = self.proved.load(Ordering::Relaxed).min(now);
        let left = self
            .lifetime
            .saturating_sub(Duration::from_millis(now - proved));
        u32::try_from(left.as_secs()).unwrap_or(u32::MAX)
    }
}

impl ProducesTickets for ConnectionTickets {
    /// False for a connection that resumed a reusable ticket.
    fn enabled(&self) -> bool {
        self.was_queried.store(true, Ordering::Relaxed);
        !self.reusable.load(Ordering::Relaxed)
    }

    /// The lifetime hint for the client: the rest of the session in whole seconds.
    fn lifetime(&self) -> u32 {
        self.left(self.keys.now())
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.seal(plain, self.keys.now())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.open(ticket, self.keys.now())
    }
}

/// The keys for tickets: the current key encrypts new tickets, and the previous key decrypts tickets that are still valid.
///
/// They use a monotonic clock, because a step of the system clock would change the lifetime of keys.
struct RotatedKeys {
    began: Instant,
    keys: Mutex<Keys>,
}

#[derive(Clone)]
struct Keys {
    current: Key,
    previous: Option<Key>,
}

/// A key in the construction of RFC 5077 that rustls uses: AES-256-CBC with HMAC-SHA256.
#[derive(Clone)]
struct Key {
    /// When the key was created, in milliseconds on the clock of the keys.
    since: u64,
    ticketer: Arc<dyn ProducesTickets>,
}

/// The system provides no random bytes.
#[derive(Debug)]
struct Unkeyed;

impl RotatedKeys {
    fn new() -> Result<Self, Unkeyed> {
        let keys = Keys {
            current: Key::new(0)?,
            previous: None,
        };
        Ok(Self {
            began: Instant::now(),
            keys: Mutex::new(keys),
        })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The keys at a given time, rotated if due. None if a new key is due and cannot be created.
    fn keys_at(&self, lifetime: Duration, now: u64) -> Option<Keys> {
        let mut keys = lock(&self.keys);
        keys.rotate(lifetime, now).ok()?;
        Some(keys.clone())
    }
}

impl fmt::Debug for RotatedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RotatedKeys").finish_non_exhaustive()
    }
}

impl Keys {
    /// A key encrypts for one lifetime and then decrypts for another, so that the last ticket of a key stays valid for as long
    /// as its first.
    fn rotate(&mut self, lifetime: Duration, now: u64) -> Result<(), Unkeyed> {
        if self.current.is_older_than(lifetime, now) {
            let next = Key::new(now)?;
            self.previous = Some(std::mem::replace(&mut self.current, next));
        }
        if let Some(previous) = &self.previous
            && previous.is_older_than(lifetime * 2, now)
        {
            self.previous = None;
        }
        Ok(())
    }
}

impl Key {
    fn new(since: u64) -> Result<Self, Unkeyed> {
        let ticketer = Ticketer::new().map_err(|_| Unkeyed)?;
        Ok(Self { since, ticketer })
    }

    fn is_older_than(&self, age: Duration, now: u64) -> bool {
        Duration::from_millis(now.saturating_sub(self.since)) >= age
    }
}

/// The sessions of TLS 1.2 clients without tickets. The oldest session is dropped first.
#[derive(Default)]
struct Store {
    stored: Mutex<Stored>,
}

#[derive(Default)]
struct Stored {
    by_id: HashMap<Vec<u8>, Session>,
    in_order: VecDeque<Vec<u8>>,
}

struct Session {
    made: Instant,
    value: Vec<u8>,
}

impl Stored {
    fn put(&mut self, id: Vec<u8>, session: Session) {
        self.in_order.push_back(id.clone());
        self.by_id.insert(id, session);
        while self.in_order.len() > SESSIONS_MAX
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.by_id.remove(&oldest);
        }
    }

    fn get(&mut self, id: &[u8], lifetime: Duration, now: Instant) -> Option<Vec<u8>> {
        let session = self.by_id.get(id)?;
        if now.saturating_duration_since(session.made) < lifetime {
            return Some(session.value.clone());
        }
        self.by_id.remove(id);
        None
    }
}

/// The store with the lifetime of one generation.
struct TimedStore {
    store: Arc<Store>,
    lifetime: Duration,
}

impl StoresServerSessions for TimedStore {
    fn put(&self, id: Vec<u8>, value: Vec<u8>) -> bool {
        let fits = value.len() <= SESSION_BYTES_MAX;
        if fits {
            let made = Instant::now();
            lock(&self.store.stored).put(id, Session { made, value });
        }
        fits
    }

    fn get(&self, id: &[u8]) -> Option<Vec<u8>> {
        lock(&self.store.stored).get(id, self.lifetime, Instant::now())
    }

    fn take(&self, id: &[u8]) -> Option<Vec<u8>> {
        let found = self.get(id);
        lock(&self.store.stored).by_id.remove(id);
        found
    }

    fn can_cache(&self) -> bool {
        true
    }
}

impl fmt::Debug for TimedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimedStore").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// No ticket has been opened yet.
const UNPROVED: u64 = u64::MAX;

/// Maximum number of stored sessions for each listener. Only the few clients that do not use tickets need them, and each
/// session contains a certificate chain.
const SESSIONS_MAX: usize = 1024;

/// Maximum size of one session with its chain, in bytes. 1024 sessions of this size need 16 MiB for each listener. The session
/// of an agent has 2 KiB.
const SESSION_BYTES_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests;
