//! The content of the store, as far as this proxy has seen it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::SystemTime,
};

use fleet::{
    EntryFault, HeardProxy, ProxyEntry, Record, RecordFault, RecordKey, Records, TURN_KEY,
    TurnFault, TurnRecord,
};
use fleet_store::{Change, KEYS_MAX, Listing, Revision, Stored};
use pki::FleetKeys;
use tokio::time::Instant;

/// The keys that the store has for a site.
#[derive(Debug)]
pub(crate) struct View {
    keys: Arc<FleetKeys>,
    /// Precedes each key in the data that a seal covers, so that a record of another site is ignored.
    site_prefix: String,
    stored: BTreeMap<String, Known>,
    /// Whether a watch shows what changes. Without one, a restored store may have other records with the same revisions.
    pub(crate) is_followed: bool,
    /// The time until which another proxy is assumed to have the same name as this one.
    pub(crate) same_name_until: Option<Instant>,
    /// The highest revision of a record that a list or a watch has shown.
    records_at: Revision,
    /// The revision at which the turn of this proxy has ended. A watch that lags behind may still show the turn.
    turn_ended_at: Revision,
    /// The highest revision of a record that this proxy has written.
    written_at: Revision,
    /// Keys whose records the store has lost since it had them.
    lost: BTreeSet<String>,
    /// Whether ignored records are counted: each is counted once.
    is_counting: bool,
    /// How many records were ignored since the last publication, by reason.
    rejected: BTreeMap<&'static str, u64>,
}

/// A key of the store, as this proxy knows it.
#[derive(Debug)]
struct Known {
    revision: Revision,
    content: Result<Content, RefusedBecause>,
}

/// The content of a key.
#[derive(Debug)]
enum Content {
    Record(Box<Record>),
    Proxy(Arc<HeardProxy>),
    Turn(Box<TurnRecord>),
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
    #[error(transparent)]
    Entry(#[from] EntryFault),
    #[error(transparent)]
    Turn(#[from] TurnFault),
}

impl RefusedBecause {
    /// All reasons of metrics.
    pub(crate) const REASONS: [&str; 5] =
        ["seal", "unknown-kind", "too-long", "malformed", "other-key"];

    /// The reason in metrics.
    fn reason(&self) -> &'static str {
        match self {
            Self::Seal => "seal",
            Self::UnknownKind | Self::Record(RecordFault::UnknownKind) => "unknown-kind",
            Self::Record(RecordFault::TooLong(_))
            | Self::Entry(EntryFault::TooLong)
            | Self::Turn(TurnFault::TooLong) => "too-long",
            Self::Record(RecordFault::Malformed(_))
            | Self::Entry(EntryFault::Form(_))
            | Self::Turn(TurnFault::Form(_)) => "malformed",
            Self::Record(RecordFault::OtherKey(_)) | Self::Entry(EntryFault::Name(_)) => {
                "other-key"
            }
        }
    }
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
            is_followed: true,
            same_name_until: None,
            records_at: 0,
            turn_ended_at: 0,
            written_at: 0,
            lost: BTreeSet::new(),
            is_counting: true,
            rejected: BTreeMap::new(),
        }
    }

    /// Replaces all keys by those of a list. Returns the records that can be used.
    pub(crate) fn replace(&mut self, listing: Listing) -> Vec<Record> {
        let before = std::mem::take(&mut self.stored);
        (self.records_at, self.written_at, self.turn_ended_at) = (0, 0, 0);
        let mut records = Vec::new();
        for stored in listing.keys {
            let known = before.get(&stored.key);
            let is_known = known.is_some_and(|known| known.revision == stored.revision);
            self.is_counting = !is_known;
            let known = known.and_then(Known::proxy);
            records.extend(self.store(stored, |entry| match known {
                Some(known) if known.entry == *entry => known.heard_at,
                _ => entry.clock,
            }));
        }
        self.is_counting = true;
        for (key, known) in before {
            self.note_lost(&key, &known);
        }
        records
    }

    /// Applies changes. A change older than the known state of its key comes from a lagging member of the cluster, and is
    /// ignored.
    pub(crate) fn change(&mut self, changes: Vec<Change>) -> Vec<Record> {
        let mut records = Vec::new();
        for change in changes {
            match change {
                Change::Put(stored)
                    if stored.key == TURN_KEY && stored.revision <= self.turn_ended_at => {}
                Change::Put(stored) if stored.revision > self.revision(&stored.key) => {
                    let now = milliseconds_now();
                    records.extend(self.store(stored, |_| now));
                }
                // This proxy wrote this change before, so all earlier changes have arrived too.
                Change::Put(stored) if self.is_written(&stored) => {
                    self.records_at = self.records_at.max(stored.revision);
                }
                Change::Deleted { key, revision } if revision > self.revision(&key) => {
                    if let Some(known) = self.stored.remove(&key) {
                        self.note_lost(&key, &known);
                    }
                }
                _ => {}
            }
        }
        records
    }

    /// Notes a record that this proxy has written. Changes of other proxies before it may not have arrived yet.
    pub(crate) fn put(&mut self, key: &str, revision: Revision, record: Record) {
        self.written_at = self.written_at.max(revision);
        self.lost.remove(key);
        let content = Ok(Content::Record(Box::new(record)));
        self.stored
            .insert(key.to_owned(), Known { revision, content });
    }

    /// Notes the entry that this proxy has written.
    pub(crate) fn put_entry(&mut self, key: &str, revision: Revision, entry: ProxyEntry) {
        let heard_at = entry.clock;
        let content = Ok(Content::Proxy(Arc::new(HeardProxy { entry, heard_at })));
        self.stored
            .insert(key.to_owned(), Known { revision, content });
    }

    /// Notes the turn that this proxy has written.
    pub(crate) fn put_turn(&mut self, revision: Revision, turn: TurnRecord) {
        let content = Ok(Content::Turn(Box::new(turn)));
        self.stored
            .insert(TURN_KEY.to_owned(), Known { revision, content });
    }

    /// Notes that the turn has ended at this revision, or at an unknown one (0).
    pub(crate) fn end_turn(&mut self, revision: Revision) {
        self.stored.remove(TURN_KEY);
        self.turn_ended_at = self.turn_ended_at.max(revision);
    }

    /// The turn. `None` if no proxy has it, or if it cannot be read.
    pub(crate) fn turn(&self) -> Option<&TurnRecord> {
        match self.stored.get(TURN_KEY)?.content.as_ref().ok()? {
            Content::Turn(turn) => Some(turn),
            Content::Record(_) | Content::Proxy(_) => None,
        }
    }

    /// Replaces one key, which has no record, by its content in a list.
    pub(crate) fn take_over_key(&mut self, listing: Listing, key: &str) {
        self.stored.remove(key);
        let found = listing.keys.into_iter().find(|stored| stored.key == key);
        if let Some(stored) = found {
            self.store(stored, |entry| entry.clock);
        }
    }

    /// The highest revision of a record. All records up to it are known.
    pub(crate) fn records_at(&self) -> Revision {
        if self.is_followed { self.records_at } else { 0 }
    }

    /// The revision from which the store has everything that this proxy has written.
    pub(crate) fn written_at(&self) -> Revision {
        self.written_at.max(self.records_at)
    }

    /// Whether a change is the known version of a record.
    fn is_written(&self, stored: &Stored) -> bool {
        stored.revision == self.revision(&stored.key) && self.record(&stored.key).is_some()
    }

    /// The keys whose records the store has lost, or replaced by older records.
    pub(crate) fn lost(&self) -> &BTreeSet<String> {
        &self.lost
    }

    /// How many records were ignored since the last call, by reason.
    pub(crate) fn take_rejected(&mut self) -> BTreeMap<&'static str, u64> {
        std::mem::take(&mut self.rejected)
    }

    /// Notes whether the store has lost a record. A record that ended long ago is not lost, because proxies delete such
    /// records.
    fn note_lost(&mut self, key: &str, known: &Known) {
        let Ok(Content::Record(before)) = &known.content else {
            return;
        };
        if Records::is_missed(before, self.record(key), milliseconds_now()) {
            self.lost.insert(key.to_owned());
        }
    }

    /// The proxies of the fleet, by name.
    pub(crate) fn proxies(&self) -> impl Iterator<Item = &Arc<HeardProxy>> {
        self.stored.values().filter_map(Known::proxy)
    }

    /// The revision of the last change of a key, or 0 if the key does not exist.
    pub(crate) fn revision(&self, key: &str) -> Revision {
        self.stored.get(key).map_or(0, |known| known.revision)
    }

    /// The record at a key. A key whose record is ignored counts as empty, so that a forged record is replaced.
    pub(crate) fn record(&self, key: &str) -> Option<&Record> {
        match self.stored.get(key)?.content.as_ref().ok()? {
            Content::Record(record) => Some(record),
            Content::Proxy(_) | Content::Turn(_) => None,
        }
    }

    /// Whether a key is ignored.
    pub(crate) fn is_refused(&self, key: &str) -> bool {
        let known = self.stored.get(key);
        known.is_some_and(|known| known.content.is_err())
    }

    /// All records that can be used.
    pub(crate) fn records(&self) -> Vec<Record> {
        let keys = self.stored.keys();
        keys.filter_map(|key| self.record(key).cloned()).collect()
    }

    /// The keys of blocks that ended so long ago that no proxy puts them back, with their revisions. `now`: milliseconds since
    /// the epoch.
    pub(crate) fn over(&self, now: u64) -> Vec<(String, Revision)> {
        let stored = self.stored.iter();
        let over = stored.filter(|(_, known)| match &known.content {
            Ok(Content::Record(record)) => Records::is_over(record, now),
            _ => false,
        });
        over.map(|(key, known)| (key.clone(), known.revision))
            .collect()
    }

    /// The bytes of a record with their seal.
    pub(crate) fn sealed(&self, key: &str, bytes: &[u8]) -> Vec<u8> {
        self.keys.seal(&format!("{}{key}", self.site_prefix), bytes)
    }

    /// The keys that are ignored.
    pub(crate) fn refused(&self) -> impl Iterator<Item = Refused> {
        self.stored.iter().filter_map(|(key, known)| {
            let why = known.content.as_ref().err()?.clone();
            // The key is printed in terminals, and another client of the store may have written it.
            let key = key.escape_debug().to_string();
            Some(Refused { key, why })
        })
    }

    fn store(
        &mut self,
        stored: Stored,
        heard_at: impl FnOnce(&ProxyEntry) -> u64,
    ) -> Option<Record> {
        let Stored {
            key,
            value,
            revision,
        } = stored;
        let mut content = self.read(&key, &value);
        let record = match &mut content {
            Ok(Content::Record(record)) => {
                self.records_at = self.records_at.max(revision);
                self.lost.remove(&key);
                Some((**record).clone())
            }
            Ok(Content::Proxy(proxy)) => {
                let heard_at = heard_at(&proxy.entry);
                Arc::make_mut(proxy).heard_at = heard_at;
                None
            }
            Ok(Content::Turn(_)) => None,
            Err(why) => {
                if self.is_counting {
                    *self.rejected.entry(why.reason()).or_default() += 1;
                }
                None
            }
        };
        // Keeps at most as many keys as a list may have, so that another client of the store cannot fill the memory. The record
        // of a key that is not kept still applies.
        if self.stored.len() < KEYS_MAX || self.stored.contains_key(&key) {
            self.stored.insert(key, Known { revision, content });
        }
        record
    }

    fn read(&self, key: &str, value: &[u8]) -> Result<Content, RefusedBecause> {
        let place = format!("{}{key}", self.site_prefix);
        let bytes = self.keys.open(&place, value).ok_or(RefusedBecause::Seal)?;
        if let Some(name) = ProxyEntry::name_in(key) {
            let entry = ProxyEntry::parse(name, bytes)?;
            let proxy = HeardProxy { entry, heard_at: 0 };
            return Ok(Content::Proxy(Arc::new(proxy)));
        }
        if key == TURN_KEY {
            return Ok(Content::Turn(Box::new(TurnRecord::parse(bytes)?)));
        }
        let key = RecordKey::parse(key).ok_or(RefusedBecause::UnknownKind)?;
        Ok(Content::Record(Box::new(Record::parse(&key, bytes)?)))
    }
}

impl Known {
    fn proxy(&self) -> Option<&Arc<HeardProxy>> {
        match self.content.as_ref().ok()? {
            Content::Proxy(proxy) => Some(proxy),
            Content::Record(_) | Content::Turn(_) => None,
        }
    }
}

/// The clock, in milliseconds since the epoch.
pub(crate) fn milliseconds_now() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fleet::{BlockRecord, Lift};
    use rustls_pki_types::UnixTime;
    use serde_json::json;

    use super::*;
    use ::state::OperatorRecords;

    const DAY: u64 = 86_400_000;

    fn view() -> View {
        let key = format!("{}=\n", "A".repeat(43));
        let keys = FleetKeys::parse(&key).unwrap();
        View::new(Arc::new(keys), "/proscenium/test/".to_owned())
    }

    /// A block, and how many days ago it was lifted.
    fn block(id: &str, lifted: Option<u64>) -> Record {
        Record::of_block(BlockRecord {
            id: id.to_owned(),
            blocked: json!({ "certname": "web01" }),
            by: "uid 0".to_owned(),
            proxy: "p1".to_owned(),
            why: "stolen".to_owned(),
            since: 0,
            until: None,
            lifted: lifted.map(|days| Lift {
                by: "uid 0".to_owned(),
                proxy: "p1".to_owned(),
                at: milliseconds_now() - days * DAY,
            }),
        })
    }

    fn stored(view: &View, record: &Record, revision: Revision) -> Stored {
        let key = record.key().to_string();
        let value = view.sealed(&key, record.bytes());
        Stored {
            key,
            value,
            revision,
        }
    }

    fn listing(revision: Revision, keys: Vec<Stored>) -> Listing {
        Listing { revision, keys }
    }

    #[test]
    fn another_client_of_the_store_cannot_fill_the_memory_nor_keep_out_a_record() {
        let mut view = view();
        let forged = (0..KEYS_MAX + 9).map(|number| {
            Change::Put(Stored {
                key: format!("blocks/{number}"),
                value: b"{}".to_vec(),
                revision: 7,
            })
        });
        view.change(forged.collect());
        assert_eq!(view.refused().count(), KEYS_MAX);
        let record = block("p1-1", None);
        let put = Change::Put(stored(&view, &record, 8));
        assert_eq!(view.change(vec![put]), [record]);
    }

    #[test]
    fn a_key_of_another_client_is_shown_without_its_control_characters() {
        let mut view = view();
        let key = "blocks/\u{1b}[2J\n".to_owned();
        let (value, revision) = (Vec::new(), 7);
        view.change(vec![Change::Put(Stored {
            key,
            value,
            revision,
        })]);
        let refused = view.refused().next().unwrap();
        assert_eq!(refused.key, "blocks/\\u{1b}[2J\\n");
    }

    #[test]
    fn a_list_without_a_record_or_with_an_older_one_has_lost_it_unless_it_ended_long_ago() {
        for (before, after, is_lost) in [
            (block("p1-1", None), None, true),
            (block("p1-1", Some(1)), Some(block("p1-1", None)), true),
            (block("p1-1", Some(1)), Some(block("p1-1", Some(1))), false),
            (block("p1-1", None), Some(block("p1-1", Some(1))), false),
            (block("p1-1", Some(29)), None, true),
            (block("p1-1", Some(32)), None, false),
        ] {
            let mut view = view();
            let first = stored(&view, &before, 5);
            assert_eq!(view.replace(listing(5, vec![first])).len(), 1);
            let after: Vec<_> = after.iter().map(|one| stored(&view, one, 3)).collect();
            view.replace(listing(3, after.clone()));
            assert_eq!(!view.lost().is_empty(), is_lost, "{before:?} {after:?}");
        }
    }

    #[test]
    fn a_member_of_the_cluster_that_lags_behind_changes_nothing() {
        let mut view = view();
        let (active, lifted) = (block("p1-1", None), block("p1-1", Some(1)));
        let key = active.key().to_string();
        let newest = stored(&view, &lifted, 7);
        assert_eq!(view.change(vec![Change::Put(newest)]).len(), 1);
        let older = stored(&view, &active, 6);
        let deleted = Change::Deleted {
            key: key.clone(),
            revision: 7,
        };
        assert!(view.change(vec![Change::Put(older), deleted]).is_empty());
        assert_eq!(view.record(&key), Some(&lifted));
        assert_eq!(view.records_at(), 7);
    }

    #[test]
    fn only_blocks_that_ended_31_days_ago_are_over() {
        let mut view = view();
        let now = milliseconds_now();
        let blocks = [
            block("p1-1", None),
            block("p1-2", Some(30)),
            block("p1-3", Some(32)),
        ];
        let keys = blocks
            .iter()
            .zip(1..)
            .map(|(one, at)| stored(&view, one, at));
        let keys = keys.collect();
        view.replace(listing(3, keys));
        assert_eq!(view.over(now), [("blocks/p1-3".to_owned(), 3)]);
    }

    fn turn(view: &View, revision: Revision) -> Vec<Change> {
        let turn = TurnRecord {
            proxy: "p1".to_owned(),
            ..TurnRecord::default()
        };
        vec![Change::Put(Stored {
            key: TURN_KEY.to_owned(),
            value: view.sealed(TURN_KEY, &turn.to_bytes()),
            revision,
        })]
    }

    #[test]
    fn a_watch_that_lags_behind_does_not_bring_an_ended_turn_back() {
        let mut view = view();
        let (first, next, restored) = (turn(&view, 5), turn(&view, 7), turn(&view, 4));
        view.change(first.clone());
        assert!(view.turn().is_some());
        view.end_turn(6);
        view.change(first);
        assert_eq!(view.turn(), None);
        view.change(next);
        assert!(view.turn().is_some());
        // A store that was restored from a backup has lower revisions.
        view.end_turn(8);
        view.replace(Listing::default());
        view.change(restored);
        assert!(view.turn().is_some());
    }

    #[test]
    fn a_record_that_this_proxy_writes_does_not_confirm_earlier_ones_of_other_proxies() {
        let mut view = view();
        let (own, foreign) = (block("p1-1", None), block("p2-1", None));
        view.put(&own.key().to_string(), 8, own.clone());
        assert_eq!((view.records_at(), view.written_at()), (0, 8));
        let change = vec![Change::Put(stored(&view, &foreign, 7))];
        assert_eq!(view.change(change), [foreign]);
        assert_eq!(view.records_at(), 7);
        let change = vec![Change::Put(stored(&view, &own, 8))];
        assert_eq!(view.change(change), [], "it is known");
        assert_eq!((view.records_at(), view.written_at()), (8, 8));
        // Without a watch, it is unknown whether the store was restored.
        view.is_followed = false;
        assert_eq!(view.records_at(), 0);
        view.is_followed = true;
        // A restored store begins with lower numbers.
        view.replace(listing(3, Vec::new()));
        assert_eq!((view.records_at(), view.written_at()), (0, 0));
    }

    #[test]
    fn a_record_that_a_wrong_clock_refused_is_there_for_another_attempt() {
        let mut view = view();
        let over = stored(&view, &block("p1-1", Some(32)), 1);
        let records = OperatorRecords::new("p2".to_owned(), Records::default());
        let now = UnixTime::now();
        let listed = view.replace(listing(1, vec![over]));
        assert_eq!(records.take_over(listed, now), []);
        let earlier = now.as_secs() - 10 * DAY / 1000;
        let earlier = UnixTime::since_unix_epoch(Duration::from_secs(earlier));
        assert_eq!(records.take_over(view.records(), earlier).len(), 1);
    }
}
