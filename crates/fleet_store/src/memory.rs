//! A store in memory for tests. It can be unreachable, emptied, or replaced by an older copy.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::watch;

use crate::{
    Call, Change, ChangeStream, EndpointStatus, KeyChange, LeaseId, Listing, Put, Revision,
    Session, Store, StoreError, Stored,
};

/// A store in memory. Its clones are the same store.
#[derive(Clone, Debug)]
pub struct Memory {
    shared: Arc<Shared>,
    endpoints: Vec<String>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Woken by each change.
    changed: watch::Sender<()>,
}

#[derive(Clone, Debug, Default)]
struct State {
    revision: Revision,
    keys: BTreeMap<String, (Revision, Vec<u8>, LeaseId)>,
    /// All changes since the start.
    changes: Vec<Change>,
    leases: Vec<LeaseId>,
    next_lease: LeaseId,
    is_cut: bool,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            shared: Arc::new(Shared {
                state: Mutex::default(),
                changed: watch::Sender::new(()),
            }),
            endpoints: vec!["memory".to_owned()],
        }
    }
}

impl Memory {
    /// Cuts all connections, or allows new ones.
    pub fn cut(&self, is_cut: bool) {
        self.lock().is_cut = is_cut;
        self.shared.changed.send_replace(());
    }

    /// All keys with their values.
    #[must_use]
    pub fn keys(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.lock();
        let keys = state.keys.iter();
        keys.map(|(key, (_, value, _))| (key.clone(), value.clone()))
            .collect()
    }

    /// Replaces all keys, as a restore from a backup does, without an event: sessions must be cut as well.
    pub fn restore(&self, keys: BTreeMap<String, Vec<u8>>) {
        let mut state = self.lock();
        let keys = keys.into_iter().zip(1..);
        state.keys = keys
            .map(|((key, value), revision)| (key, (revision, value, 0)))
            .collect();
        state.changes.clear();
        state.revision = state.keys.len() as Revision;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn reached(&self) -> Result<MutexGuard<'_, State>, StoreError> {
        let state = self.lock();
        if state.is_cut {
            Err(StoreError::Failed {
                endpoint: "memory".to_owned(),
                text: "cut off".to_owned(),
            })
        } else {
            Ok(state)
        }
    }
}

impl State {
    /// Changes a key at the present revision.
    fn apply(&mut self, key: &str, put: Put<'_>) {
        let (key, revision) = (key.to_owned(), self.revision);
        let (value, lease) = match put {
            Put::Value(value) => (value.to_vec(), 0),
            Put::Leased(value, lease) => (value.to_vec(), lease),
            Put::Delete => {
                self.keys.remove(&key);
                self.changes.push(Change::Deleted { key, revision });
                return;
            }
        };
        let stored = (revision, value.clone(), lease);
        self.keys.insert(key.clone(), stored);
        self.changes.push(Change::Put(Stored {
            key,
            value,
            revision,
        }));
    }
}

impl Store for Memory {
    fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    fn connect(&self, _endpoint: usize) -> Call<'_, Box<dyn Session>> {
        Box::pin(async {
            drop(self.reached()?);
            Ok(Box::new(self.clone()) as Box<dyn Session>)
        })
    }
}

impl Session for Memory {
    fn list(&self) -> Call<'_, Listing> {
        Box::pin(async {
            let state = self.reached()?;
            let keys = state.keys.iter().map(|(key, (revision, value, _))| Stored {
                key: key.clone(),
                value: value.clone(),
                revision: *revision,
            });
            Ok(Listing {
                revision: state.revision,
                keys: keys.collect(),
            })
        })
    }

    fn watch(&self, after: Revision) -> Call<'_, Box<dyn ChangeStream>> {
        Box::pin(async move {
            drop(self.reached()?);
            Ok(Box::new(MemoryWatch {
                store: self.clone(),
                seen: after,
                changed: self.shared.changed.subscribe(),
            }) as Box<dyn ChangeStream>)
        })
    }

    fn put_all_if<'a>(&'a self, changes: &'a [KeyChange<'a>]) -> Call<'a, Option<Revision>> {
        Box::pin(async move {
            let mut state = self.reached()?;
            let at = |key| state.keys.get(key).map_or(0, |(revision, ..)| *revision);
            if changes
                .iter()
                .any(|change| at(change.key) != change.expected)
            {
                return Ok(None);
            }
            state.revision += 1;
            for change in changes {
                state.apply(change.key, change.put);
            }
            self.shared.changed.send_replace(());
            Ok(Some(state.revision))
        })
    }

    fn grant(&self, _length: Duration) -> Call<'_, LeaseId> {
        Box::pin(async {
            let mut state = self.reached()?;
            state.next_lease += 1;
            let lease = state.next_lease;
            state.leases.push(lease);
            Ok(lease)
        })
    }

    fn keep_alive(&self, lease: LeaseId) -> Call<'_, bool> {
        Box::pin(async move { Ok(self.reached()?.leases.contains(&lease)) })
    }

    fn revoke(&self, lease: LeaseId) -> Call<'_, ()> {
        Box::pin(async move {
            let mut state = self.reached()?;
            state.leases.retain(|known| *known != lease);
            let held = state.keys.iter().filter(|(_, (.., of))| *of == lease);
            let held: Vec<_> = held.map(|(key, _)| key.clone()).collect();
            state.revision += 1;
            for key in held {
                state.apply(&key, Put::Delete);
            }
            self.shared.changed.send_replace(());
            Ok(())
        })
    }

    fn status(&self) -> Call<'_, EndpointStatus> {
        Box::pin(async {
            drop(self.reached()?);
            Ok(EndpointStatus {
                has_leader: true,
                ..EndpointStatus::default()
            })
        })
    }
}

struct MemoryWatch {
    store: Memory,
    seen: Revision,
    changed: watch::Receiver<()>,
}

impl ChangeStream for MemoryWatch {
    fn next(&mut self) -> Call<'_, Vec<Change>> {
        Box::pin(async move {
            loop {
                self.changed.borrow_and_update();
                let (changes, revision) = {
                    let state = self.store.reached()?;
                    let later = state.changes.iter().filter(|change| {
                        let (Change::Put(Stored { revision, .. })
                        | Change::Deleted { revision, .. }) = change;
                        *revision > self.seen
                    });
                    (later.cloned().collect::<Vec<_>>(), state.revision)
                };
                if !changes.is_empty() {
                    self.seen = revision;
                    return Ok(changes);
                }
                // The sender lives as long as the store, and this watch holds the store.
                let _ = self.changed.changed().await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn several_keys_are_changed_at_one_revision_or_not_at_all() {
        let store = Memory::default();
        let put = |key, expected| KeyChange {
            key,
            expected,
            put: Put::Value(key.as_bytes()),
        };
        let written = store.put_all_if(&[put("a", 0), put("b", 0)]).await;
        assert_eq!(written.expect("it is reached"), Some(1));
        let refused = store.put_all_if(&[put("c", 0), put("b", 9)]).await;
        assert_eq!(refused.expect("it is reached"), None);
        let listing = store.list().await.expect("it is reached");
        let keys: Vec<_> = listing
            .keys
            .iter()
            .map(|stored| (stored.key.as_str(), stored.revision))
            .collect();
        assert_eq!(keys, [("a", 1), ("b", 1)]);
        let mut watch = store.watch(0).await.expect("it is reached");
        let changes = watch.next().await.expect("it is reached");
        assert_eq!(changes.len(), 2, "they arrive together");
    }
}
