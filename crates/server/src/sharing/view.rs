//! What the store has, as far as this proxy has seen it.

use std::{collections::BTreeMap, sync::Arc};

use fleet::{Record, RecordFault, RecordKey};
use fleet_store::{Change, Listing, Revision, Stored};
use pki::FleetKeys;

/// The keys of a site.
#[derive(Debug)]
pub(crate) struct View {
    keys: Arc<FleetKeys>,
    /// Before each key, and part of its seal: a record of another site is none of this one.
    site_prefix: String,
    stored: BTreeMap<String, Known>,
}

/// A key of the store.
#[derive(Debug)]
struct Known {
    revision: Revision,
    record: Result<Record, RefusedBecause>,
}

/// Why a record is ignored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RefusedBecause {
    #[error("no key of `key_file` has sealed it")]
    Seal,
    #[error("its kind is unknown to this version")]
    UnknownKind,
    #[error(transparent)]
    Record(#[from] RecordFault),
}

/// A key that is ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) key: String,
    pub(crate) why: RefusedBecause,
}

impl View {
    pub(crate) fn new(keys: Arc<FleetKeys>, site_prefix: String) -> Self {
        Self {
            keys,
            site_prefix,
            stored: BTreeMap::new(),
        }
    }

    /// Takes over a list, which has all keys. Returns the records that can be used.
    pub(crate) fn replace(&mut self, listing: Listing) -> Vec<Record> {
        self.stored.clear();
        listing
            .keys
            .into_iter()
            .filter_map(|stored| self.store(stored))
            .collect()
    }

    /// Takes over changes. Those older than what is known come from a member of the cluster that lags behind.
    pub(crate) fn change(&mut self, changes: Vec<Change>) -> Vec<Record> {
        let mut records = Vec::new();
        for change in changes {
            match change {
                Change::Put(stored) if stored.revision > self.revision(&stored.key) => {
                    records.extend(self.store(stored));
                }
                Change::Deleted { key, revision } if revision > self.revision(&key) => {
                    self.stored.remove(&key);
                }
                _ => {}
            }
        }
        records
    }

    /// Notes a record that this proxy has written.
    pub(crate) fn put(&mut self, key: &str, revision: Revision, record: Record) {
        let record = Ok(record);
        self.stored
            .insert(key.to_owned(), Known { revision, record });
    }

    /// The revision of the last change of a key; 0: it does not exist.
    pub(crate) fn revision(&self, key: &str) -> Revision {
        self.stored.get(key).map_or(0, |known| known.revision)
    }

    /// The record at a key. A key whose record is ignored counts as an empty one, so that a forged record is replaced.
    pub(crate) fn record(&self, key: &str) -> Option<&Record> {
        self.stored.get(key)?.record.as_ref().ok()
    }

    /// The bytes of a record with their seal.
    pub(crate) fn sealed(&self, key: &str, bytes: &[u8]) -> Vec<u8> {
        self.keys.seal(&format!("{}{key}", self.site_prefix), bytes)
    }

    /// The keys that are ignored.
    pub(crate) fn refused(&self) -> impl Iterator<Item = Refused> {
        self.stored.iter().filter_map(|(key, known)| {
            let why = known.record.as_ref().err()?.clone();
            let key = key.clone();
            Some(Refused { key, why })
        })
    }

    fn store(&mut self, stored: Stored) -> Option<Record> {
        let Stored {
            key,
            value,
            revision,
        } = stored;
        let record = self.read(&key, &value);
        let usable = record.as_ref().ok().cloned();
        self.stored.insert(key, Known { revision, record });
        usable
    }

    fn read(&self, key: &str, value: &[u8]) -> Result<Record, RefusedBecause> {
        let place = format!("{}{key}", self.site_prefix);
        let bytes = self.keys.open(&place, value).ok_or(RefusedBecause::Seal)?;
        let key = RecordKey::parse(key).ok_or(RefusedBecause::UnknownKind)?;
        Ok(Record::parse(&key, bytes)?)
    }
}
