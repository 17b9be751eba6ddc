//! The copy of all records that a proxy owns.

use std::{cmp::Ordering, collections::BTreeMap};

use crate::{Record, RecordContent, RecordKey, Stamp};

/// Maximum number of records, lifted blocks included.
pub const RECORDS_MAX: usize = 25_000;

/// How long after its end a block is put back into a store that lacks it: 30 days, in milliseconds.
const PUT_BACK_FOR: u64 = 30 * DAY;
/// How long after its end a block is stored, in milliseconds. It is one day longer than `PUT_BACK_FOR`, so that proxies
/// whose clocks differ do not put back blocks that others delete.
const KEPT_FOR: u64 = 31 * DAY;
const DAY: u64 = 86_400_000;

/// All records that this proxy has seen or made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    records: BTreeMap<RecordKey, Record>,
    highest_stamp: u64,
}

/// The result of merging a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merged {
    /// It is new, or replaces a lower record. It must be applied and stored.
    Newer,
    /// It is already known.
    Same,
    /// This proxy has a higher record, which must be put back.
    Older,
    /// It ended so long ago that it is no longer stored.
    Over,
}

/// There are [`RECORDS_MAX`] records already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are {RECORDS_MAX} records, which is the maximum")]
pub struct TooManyRecords;

impl Records {
    /// Applies a record of another proxy, of the store or of this proxy, if it is the higher one. `now` is in
    /// milliseconds since the epoch.
    ///
    /// # Errors
    /// Its key is new, and there is no room for it.
    pub fn merge(&mut self, record: Record, now: u64) -> Result<Merged, TooManyRecords> {
        if let RecordContent::Member(member) = record.content() {
            self.highest_stamp = self.highest_stamp.max(member.stamp.ms);
        }
        let key = record.key();
        let merged = match self.records.get(&key).map(|own| record.order(own)) {
            Some(Ordering::Less) => return Ok(Merged::Older),
            Some(Ordering::Equal) => return Ok(Merged::Same),
            Some(Ordering::Greater) => Merged::Newer,
            None if Self::is_over(&record, now) => return Ok(Merged::Over),
            None if self.records.len() >= RECORDS_MAX && !self.make_room(now) => {
                return Err(TooManyRecords);
            }
            None => Merged::Newer,
        };
        self.records.insert(key, record);
        Ok(merged)
    }

    /// Whether there is room for this many new records at `now`, in milliseconds since the epoch.
    #[must_use]
    pub fn has_room(&self, count: usize, now: u64) -> bool {
        let free = RECORDS_MAX.saturating_sub(self.records.len());
        let mut ended = self.records.values();
        // Counting the blocks that have ended is necessary only near the maximum.
        free >= count
            || ended
                .by_ref()
                .filter(|record| ended_for(record, now).is_some())
                .count()
                + free
                >= count
    }

    /// Removes the block that ended first, because blocks that have ended must not displace active ones.
    fn make_room(&mut self, now: u64) -> bool {
        let ended = self
            .records
            .iter()
            .filter_map(|(key, record)| Some((ended_for(record, now)?, key)));
        let first = ended.max().map(|(_, key)| key.clone());
        first.is_some_and(|key| self.records.remove(&key).is_some())
    }

    /// The stamp of a change that the proxy `by` makes at `now`, in milliseconds since the epoch.
    #[must_use]
    pub fn next_stamp(&self, now: u64, by: &str) -> Stamp {
        Stamp::after(self.highest_stamp, now, by)
    }

    /// Whether the store must get this record, if it has `stored` or nothing at its key. `now` is in milliseconds since
    /// the epoch.
    #[must_use]
    pub fn is_missed(own: &Record, stored: Option<&Record>, now: u64) -> bool {
        match stored {
            Some(stored) => own.order(stored).is_gt(),
            None => ended_for(own, now) <= Some(PUT_BACK_FOR),
        }
    }

    /// Whether a block ended 31 days before `now` (milliseconds since the epoch), so that the store does not need it.
    #[must_use]
    pub fn is_over(record: &Record, now: u64) -> bool {
        ended_for(record, now) > Some(KEPT_FOR)
    }

    /// Removes the blocks that ended 31 days before `now` (milliseconds since the epoch). Returns their keys, which the
    /// store may delete too.
    pub fn forget_ended(&mut self, now: u64) -> Vec<RecordKey> {
        let over = self
            .records
            .extract_if(.., |_, record| Self::is_over(record, now));
        over.map(|(key, _)| key).collect()
    }

    /// Removes a record, for a member that this proxy no longer configures.
    pub fn forget(&mut self, key: &RecordKey) -> bool {
        self.records.remove(key).is_some()
    }

    /// The record at a key.
    #[must_use]
    pub fn get(&self, key: &RecordKey) -> Option<&Record> {
        self.records.get(key)
    }

    /// All records, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&RecordKey, &Record)> {
        self.records.iter()
    }

    /// How many records there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

/// How long ago a block ended, in milliseconds. `None` if it is active or the record is not a block. A lifted block has
/// ended, whatever the clock shows.
fn ended_for(record: &Record, now: u64) -> Option<u64> {
    match record.content() {
        RecordContent::Member(_) => None,
        RecordContent::Block(block) => block.end().and_then(|end| match block.lifted {
            Some(_) => Some(now.saturating_sub(end)),
            None => now.checked_sub(end),
        }),
    }
}

#[cfg(test)]
mod tests;
