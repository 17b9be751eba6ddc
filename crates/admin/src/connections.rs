//! The connections of a control listener. At the limit, a connection that waits for its client is closed. A client that sends
//! nothing, reads events, or does not read its response therefore keeps no other client out.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    task::{AbortHandle, JoinError, JoinSet},
    time::Instant,
};
use tracing::warn;

/// Minimum time between two events about connections that were closed at the limit.
const EVENT_INTERVAL: Duration = Duration::from_secs(60);

/// The connections of a listener, each of a client `C`: an account or an address.
pub(crate) struct Connections<C> {
    /// Name of the listener in events.
    name: String,
    tasks: JoinSet<()>,
    max: usize,
    open: Arc<Mutex<BTreeMap<u64, Open<C>>>>,
    next: u64,
    closed: ClosedAtLimit,
}

struct Open<C> {
    client: C,
    task: AbortHandle,
    /// Whether its client has not sent a request yet, or still has to read the response, which may be an event stream.
    is_waiting: bool,
}

/// Connections that were closed at the limit and are in no event yet.
#[derive(Debug, Default)]
struct ClosedAtLimit {
    count: u64,
    /// When the last event was written.
    event_at: Option<Instant>,
}

impl ClosedAtLimit {
    /// Counts a connection. Returns the number for an event if one is due.
    fn note(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        let is_due = self.event_at.is_none_or(|at| now >= at + EVENT_INTERVAL);
        is_due.then(|| {
            self.event_at = Some(now);
            std::mem::take(&mut self.count)
        })
    }
}

/// A connection in the list of its listener.
pub(crate) struct OpenConnection<C> {
    open: Arc<Mutex<BTreeMap<u64, Open<C>>>>,
    number: u64,
}

impl<C: Copy + Eq + Hash + Send + 'static> Connections<C> {
    /// Accepts at most `max` connections at a time. `name` is the name of the listener in events.
    pub(crate) fn new(name: impl Into<String>, max: usize) -> Self {
        Self {
            name: name.into(),
            tasks: JoinSet::new(),
            max,
            open: Arc::default(),
            next: 0,
            closed: ClosedAtLimit::default(),
        }
    }

    /// Whether a further connection can be accepted: there is room, or one can make room.
    pub(crate) fn has_room(&self) -> bool {
        self.tasks.len() < self.max || lock(&self.open).values().any(|open| open.is_waiting)
    }

    /// Serves a connection. At the limit, a connection that waits for its client is closed: the oldest one of the client that
    /// has the most of them.
    pub(crate) fn spawn<F>(&mut self, client: C, serve: impl FnOnce(OpenConnection<C>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let number = self.next;
        self.next += 1;
        let serving = serve(OpenConnection {
            open: Arc::clone(&self.open),
            number,
        });
        let mut open = lock(&self.open);
        let mut makes_room = None;
        if self.tasks.len() >= self.max
            && let Some(oldest) = oldest_waiting(&open)
        {
            makes_room = open.remove(&oldest);
        }
        let task = self.tasks.spawn(serving);
        let is_waiting = true;
        open.insert(
            number,
            Open {
                client,
                task,
                is_waiting,
            },
        );
        drop(open);
        if let Some(makes_room) = makes_room {
            makes_room.task.abort();
            self.closed_one();
        }
    }

    /// Logs that a connection was closed at the limit: at once, and then once a minute with the number of closed connections.
    pub(crate) fn closed_one(&mut self) {
        if let Some(count) = self.closed.note(Instant::now()) {
            let (name, max) = (&self.name, self.max);
            warn!(
                closed = count,
                "closed connections of the {name}: it has {max}, the maximum; stop clients that keep event streams or \
                 other connections open"
            );
        }
    }

    /// Waits for a connection to end. Never ends while there is none.
    pub(crate) async fn ended(&mut self) {
        match self.tasks.join_next().await {
            Some(ended) => report(ended),
            None => std::future::pending().await,
        }
    }

    /// Waits for all to end.
    pub(crate) async fn finish(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

impl<C> OpenConnection<C> {
    /// Whether the connection waits for its client now.
    pub(crate) fn waits(&self, is_waiting: bool) {
        if let Some(open) = lock(&self.open).get_mut(&self.number) {
            open.is_waiting = is_waiting;
        }
    }
}

impl<C> Drop for OpenConnection<C> {
    fn drop(&mut self) {
        lock(&self.open).remove(&self.number);
    }
}

/// The oldest waiting connection of the client with the most waiting ones.
fn oldest_waiting<C: Copy + Eq + Hash>(open: &BTreeMap<u64, Open<C>>) -> Option<u64> {
    let waiting = || open.iter().filter(|(_, open)| open.is_waiting);
    let mut counts = HashMap::<C, usize>::new();
    for (_, open) in waiting() {
        *counts.entry(open.client).or_default() += 1;
    }
    let most = counts.values().max()?;
    let mut of_busiest = waiting().filter(|(_, open)| counts.get(&open.client) == Some(most));
    of_busiest.next().map(|(number, _)| *number)
}

fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && !error.is_cancelled()
    {
        warn!(%error, "an admin connection ended with an error");
    }
}

/// A panic elsewhere leaves the entries intact.
fn lock<T>(entries: &Mutex<T>) -> MutexGuard<'_, T> {
    entries.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts by account, so that one account cannot use up what all accounts share.
#[derive(Debug, Default)]
pub(crate) struct AccountLimits(Mutex<HashMap<Option<u32>, usize>>);

/// What one account holds of its limit, until it is dropped.
#[derive(Debug)]
pub(crate) struct AccountPermit {
    limits: Arc<AccountLimits>,
    uid: Option<u32>,
}

impl AccountLimits {
    /// A permit for this account. `None` if it holds `max` of them.
    pub(crate) fn acquire(self: &Arc<Self>, uid: Option<u32>, max: usize) -> Option<AccountPermit> {
        let mut taken = lock(&self.0);
        let of_account = taken.entry(uid).or_default();
        if *of_account >= max {
            return None;
        }
        *of_account += 1;
        Some(AccountPermit {
            limits: Arc::clone(self),
            uid,
        })
    }
}

impl Drop for AccountPermit {
    fn drop(&mut self) {
        let mut taken = lock(&self.limits.0);
        if let Some(of_account) = taken.get_mut(&self.uid) {
            *of_account -= 1;
            if *of_account == 0 {
                taken.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn the_oldest_waiting_connection_of_the_client_with_the_most_makes_room() {
        let mut connections = Connections::new("test", 4);
        let spawn = |connections: &mut Connections<char>, client| {
            connections.spawn(client, |open| async move {
                let _open = open;
                pending::<()>().await;
            });
        };
        for client in ['a', 'b', 'b', 'c'] {
            spawn(&mut connections, client);
        }
        lock(&connections.open)
            .get_mut(&1)
            .expect("it is open")
            .is_waiting = false;
        let clients = |connections: &Connections<char>| -> String {
            lock(&connections.open)
                .values()
                .map(|open| open.client)
                .collect()
        };
        // Each client has one that waits, so the oldest is closed. Then the client with two loses one.
        spawn(&mut connections, 'c');
        assert_eq!(clients(&connections), "bbcc");
        connections.ended().await;
        spawn(&mut connections, 'd');
        assert_eq!(clients(&connections), "bbcd");
        connections.ended().await;
        for open in lock(&connections.open).values_mut() {
            open.is_waiting = false;
        }
        assert!(!connections.has_room(), "all of them work");
    }

    #[test]
    fn closed_connections_are_one_event_a_minute() {
        let (mut closed, now) = (ClosedAtLimit::default(), Instant::now());
        assert_eq!(closed.note(now), Some(1));
        for _ in 0..9 {
            assert_eq!(closed.note(now + EVENT_INTERVAL / 2), None);
        }
        assert_eq!(closed.note(now + EVENT_INTERVAL), Some(10));
    }

    #[test]
    fn each_account_has_its_own_limit() {
        let limits = Arc::new(AccountLimits::default());
        let acquire = |uid| limits.acquire(Some(uid), 2);
        let held = [acquire(1), acquire(1)];
        assert!(held.iter().all(Option::is_some));
        assert!(acquire(1).is_none());
        assert!(acquire(2).is_some());
        drop(held);
        assert!(acquire(1).is_some());
        assert_eq!(lock(&limits.0).len(), 0);
    }
}
