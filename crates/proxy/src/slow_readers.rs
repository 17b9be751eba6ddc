//! Downloads whose clients read slowly. Such a download holds a connection to a member that does no work for it. While requests
//! wait for such a connection, the proxy ends downloads, the slowest first, of clients that hold more than their fair part.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Waker,
    time::Duration,
};

use balancing::Holding;
use tokio::time::Instant;

/// How long the proxy must have waited for a client before its download counts as slow.
pub(crate) const SLOW_AFTER: Duration = Duration::from_secs(1);

/// An agent with this many slow downloads or fewer keeps all of them.
const FAIR_MIN: usize = 2;

/// Slow downloads of all workers. The members' limits bound their number.
#[derive(Debug, Default)]
pub(crate) struct SlowReaders(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    next: u64,
    readers: BTreeMap<u64, Arc<Reader>>,
}

/// A download while the proxy waits for its client.
#[derive(Debug)]
struct Reader {
    account: Arc<Holding>,
    /// When the download counts as slow.
    slow_at: Instant,
    began: Instant,
    /// Bytes of the response that the client has accepted.
    accepted: AtomicU64,
    is_ended: AtomicBool,
    task: Waker,
}

impl Reader {
    /// Bytes per second that the client has read since the request began.
    fn rate(&self, now: Instant) -> u64 {
        let millis = now.saturating_duration_since(self.began).as_millis() as u64;
        self.accepted.load(Ordering::Relaxed).saturating_mul(1000) / millis.max(1)
    }
}

/// A response that the proxy may end, because the client may send the request again.
#[derive(Debug)]
pub(crate) struct Download {
    pub(crate) account: Arc<Holding>,
    pub(crate) began: Instant,
}

/// A download in the list of slow downloads. Dropping this value removes it.
#[derive(Debug)]
pub(crate) struct SlowReaderEntry {
    all: Arc<SlowReaders>,
    number: u64,
    reader: Arc<Reader>,
}

impl SlowReaderEntry {
    /// Notes how many bytes of the response the client has accepted.
    pub(crate) fn accepted(&self, bytes: u64) {
        self.reader.accepted.store(bytes, Ordering::Relaxed);
    }

    /// Whether the download must end, because a request waits for its connection.
    pub(crate) fn is_ended(&self) -> bool {
        self.reader.is_ended.load(Ordering::Relaxed)
    }
}

impl Drop for SlowReaderEntry {
    fn drop(&mut self) {
        self.all.known().readers.remove(&self.number);
    }
}

impl SlowReaders {
    /// Adds a download that counts as slow from `slow_at` on. `task` sends the response.
    pub(crate) fn note(
        self: &Arc<Self>,
        download: Download,
        slow_at: Instant,
        task: &Waker,
    ) -> SlowReaderEntry {
        let reader = Arc::new(Reader {
            account: download.account,
            slow_at,
            began: download.began,
            accepted: AtomicU64::new(0),
            is_ended: AtomicBool::new(false),
            task: task.clone(),
        });
        let mut known = self.known();
        let number = known.next;
        known.next += 1;
        known.readers.insert(number, Arc::clone(&reader));
        SlowReaderEntry {
            all: Arc::clone(self),
            number,
            reader,
        }
    }

    /// Ends the slowest download of the clients with more slow downloads than their fair part of the pool's `connections`. The
    /// client of the waiting request counts as one of the clients that share the connections. Returns whether a download was
    /// ended.
    pub(crate) fn end_slowest(&self, pool: &str, connections: u32, now: Instant) -> bool {
        let known = self.known();
        let slow = || {
            let readers = known.readers.values();
            readers.filter(|reader| {
                reader.slow_at <= now
                    && reader.account.resource() == pool
                    && !reader.is_ended.load(Ordering::Relaxed)
            })
        };
        let mut counts = HashMap::<_, usize>::new();
        for reader in slow() {
            *counts.entry(Arc::as_ptr(&reader.account)).or_default() += 1;
        }
        let fair = (connections as usize / (counts.len() + 1)).max(FAIR_MIN);
        let beyond = slow().filter(|reader| counts[&Arc::as_ptr(&reader.account)] > fair);
        let Some(slowest) = beyond.min_by_key(|reader| reader.rate(now)) else {
            return false;
        };
        slowest.is_ended.store(true, Ordering::Relaxed);
        slowest.task.wake_by_ref();
        true
    }

    /// A panic in another thread leaves valid entries.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use balancing::{ClientKey, Holdings};

    use super::*;

    /// Notes slow downloads, each with its client and the bytes that the client has read. Returns the positions of the
    /// downloads that end, one after the other.
    fn ended(connections: u32, downloads: &[(&str, u64)]) -> Vec<usize> {
        let (all, holdings) = (
            Arc::new(SlowReaders::default()),
            Arc::new(Holdings::default()),
        );
        let now = Instant::now();
        let pool = Arc::from("compilers");
        let account = |name: &str| holdings.of(&pool, ClientKey::Agent(name.into()));
        let accounts: Vec<_> = downloads.iter().map(|(name, _)| account(name)).collect();
        let entries: Vec<_> = downloads
            .iter()
            .zip(&accounts)
            .map(|((_, bytes), account)| {
                let download = Download {
                    account: Arc::clone(account),
                    began: now,
                };
                let entry = all.note(download, now, Waker::noop());
                entry.accepted(*bytes);
                entry
            })
            .collect();
        let now = now + Duration::from_secs(10);
        assert!(!all.end_slowest("ca", 1, now), "of another pool");
        let mut order = Vec::new();
        while all.end_slowest("compilers", connections, now) {
            let new = (0..entries.len()).find(|i| entries[*i].is_ended() && !order.contains(i));
            order.push(new.expect("one more has ended"));
        }
        drop(entries);
        assert!(all.known().readers.is_empty());
        order
    }

    #[test]
    fn downloads_beyond_the_fair_part_end_and_the_slowest_first() {
        let (a, b, c) = ("a", "b", "c");
        // Six connections for two clients with slow downloads and the client that waits: two connections for each.
        let mixed = [(a, 30), (a, 10), (b, 1), (a, 20), (b, 2), (a, 40)];
        assert_eq!(ended(6, &mixed), [1, 3]);
        // Nine connections: three for each client.
        assert_eq!(ended(9, &mixed), [1]);
        assert!(ended(12, &mixed).is_empty());
        // One or two slow downloads of an agent never end, however many agents there are.
        let two_each = [(a, 0), (a, 0), (b, 0), (b, 0), (c, 0), (c, 0)];
        assert!(ended(1, &two_each).is_empty());
    }

    #[test]
    fn a_download_that_has_only_begun_is_not_slow() {
        let (all, holdings) = (
            Arc::new(SlowReaders::default()),
            Arc::new(Holdings::default()),
        );
        let now = Instant::now();
        let account = holdings.of(&Arc::from("compilers"), ClientKey::Agent("a".into()));
        let note = || {
            let download = Download {
                account: Arc::clone(&account),
                began: now,
            };
            all.note(download, now + SLOW_AFTER, Waker::noop())
        };
        let _entries = [note(), note(), note()];
        assert!(!all.end_slowest("compilers", 1, now));
        assert!(all.end_slowest("compilers", 1, now + SLOW_AFTER));
        assert!(!all.end_slowest("compilers", 1, now + SLOW_AFTER));
    }
}
