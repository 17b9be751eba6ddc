//! A record: all its fields, which the proxy preserves, and the content that this version reads.

use std::{cmp::Ordering, sync::Arc};

use serde::{Deserialize as _, Serialize};
use serde_json::Value;

use crate::{BlockRecord, Lift, MemberRecord, RecordKey};

/// Maximum length of a record. A longer one is ignored.
pub const RECORD_BYTES_MAX: usize = 16 << 10;

/// A record as it was read or made. Its bytes are canonical JSON with sorted keys, and may have fields of newer
/// versions. Clones share the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    bytes: Arc<[u8]>,
    content: Arc<RecordContent>,
}

/// The content of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordContent {
    /// The state of a member.
    Member(MemberRecord),
    /// A block.
    Block(BlockRecord),
}

/// Why a record is ignored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordFault {
    /// A newer version wrote it.
    #[error("its kind is unknown to this version")]
    UnknownKind,
    /// It is longer than [`RECORD_BYTES_MAX`].
    #[error("it has {0} bytes, and the maximum is {RECORD_BYTES_MAX}")]
    TooLong(usize),
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Malformed(String),
    /// It is stored at the key of another record.
    #[error("it is the record {0}")]
    OtherKey(String),
}

impl Record {
    /// Reads the record at a key.
    ///
    /// # Errors
    /// Why it is ignored.
    pub fn parse(key: &RecordKey, bytes: &[u8]) -> Result<Self, RecordFault> {
        if bytes.len() > RECORD_BYTES_MAX {
            return Err(RecordFault::TooLong(bytes.len()));
        }
        let malformed = |error: serde_json::Error| RecordFault::Malformed(error.to_string());
        let all: Value = serde_json::from_slice(bytes).map_err(malformed)?;
        let content = match key {
            RecordKey::Member { .. } => MemberRecord::deserialize(&all).map(RecordContent::Member),
            RecordKey::Block(_) => BlockRecord::deserialize(&all).map(RecordContent::Block),
        };
        let record = Self {
            bytes: bytes_of(&all),
            content: Arc::new(content.map_err(malformed)?),
        };
        match record.key() {
            own if own == *key => Ok(record),
            own => Err(RecordFault::OtherKey(own.to_string())),
        }
    }

    /// The record of a new state of a member.
    #[must_use]
    pub fn of_member(member: MemberRecord) -> Self {
        Self {
            bytes: bytes_of(&member),
            content: Arc::new(RecordContent::Member(member)),
        }
    }

    /// The record of a new block.
    #[must_use]
    pub fn of_block(block: BlockRecord) -> Self {
        Self {
            bytes: bytes_of(&block),
            content: Arc::new(RecordContent::Block(block)),
        }
    }

    /// The same block, lifted, with all its other fields. `None` for another kind of record, or if it is already
    /// lifted.
    #[must_use]
    pub fn lifted(&self, lift: &Lift) -> Option<Self> {
        let RecordContent::Block(block) = &*self.content else {
            return None;
        };
        if block.lifted.is_some() {
            return None;
        }
        let mut all: Value = serde_json::from_slice(&self.bytes).ok()?;
        all["lifted"] = serde_json::to_value(lift).ok()?;
        let block = BlockRecord {
            lifted: Some(lift.clone()),
            ..block.clone()
        };
        Some(Self {
            bytes: bytes_of(&all),
            content: Arc::new(RecordContent::Block(block)),
        })
    }

    /// Its key.
    #[must_use]
    pub fn key(&self) -> RecordKey {
        match &*self.content {
            RecordContent::Member(record) => RecordKey::Member {
                pool: record.pool.clone(),
                member: record.member.clone(),
            },
            RecordContent::Block(record) => RecordKey::Block(record.id.clone()),
        }
    }

    /// Its content.
    #[must_use]
    pub fn content(&self) -> &RecordContent {
        &self.content
    }

    /// Its bytes, for the store.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Which of two records with the same key replaces the other: a later state of a member, and a lifted block. Otherwise the
    /// bytes decide, so that all proxies decide in the same way.
    #[must_use]
    pub fn order(&self, other: &Self) -> Ordering {
        let by_content = match (&*self.content, &*other.content) {
            (RecordContent::Member(own), RecordContent::Member(other)) => {
                own.stamp.cmp(&other.stamp)
            }
            (RecordContent::Block(own), RecordContent::Block(other)) => {
                own.lifted.is_some().cmp(&other.lifted.is_some())
            }
            // The key determines the kind, so two records of one key have the same kind.
            _ => Ordering::Equal,
        };
        by_content.then_with(|| self.bytes.cmp(&other.bytes))
    }
}

/// The JSON of a record with sorted keys. Only a map whose keys are not strings could fail, and there is none.
fn bytes_of(record: &impl Serialize) -> Arc<[u8]> {
    let all = serde_json::to_value(record);
    let bytes = all.and_then(|all| serde_json::to_vec(&all));
    bytes.unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemberState, Stamp};

    fn member(state: MemberState, ms: u64, by: &str) -> Record {
        Record::of_member(MemberRecord {
            pool: "compilers".to_owned(),
            member: "c1:8140".to_owned(),
            state,
            by: "uid 0".to_owned(),
            since: 1000,
            why: None,
            until: None,
            force: false,
            stamp: Stamp {
                ms,
                by: by.to_owned(),
            },
        })
    }

    fn block(id: &str) -> Record {
        Record::of_block(BlockRecord {
            id: id.to_owned(),
            blocked: serde_json::json!({ "certname": "web01" }),
            by: "uid 0".to_owned(),
            proxy: "p1".to_owned(),
            why: "stolen".to_owned(),
            since: 1000,
            until: None,
            lifted: None,
        })
    }

    #[test]
    fn records_are_written_and_read() {
        for record in [member(MemberState::Drain, 7, "p1"), block("p1-1")] {
            let again = Record::parse(&record.key(), record.bytes());
            assert_eq!(again.as_ref(), Ok(&record));
            assert!(record.order(&again.expect("it is the same")).is_eq());
        }
    }

    #[test]
    fn a_record_that_cannot_be_used_says_why() {
        let key = member(MemberState::Drain, 1, "p1").key();
        let long = vec![b' '; RECORD_BYTES_MAX + 1];
        for (bytes, expected) in [
            (&b"{"[..], "it cannot be read"),
            (b"[]", "it cannot be read"),
            (&long, "it has 16385 bytes"),
            (
                member(MemberState::Ready, 1, "p1").bytes().split_at(20).0,
                "it cannot be read",
            ),
        ] {
            let fault = Record::parse(&key, bytes).expect_err("a fault").to_string();
            assert!(fault.contains(expected), "{expected}: {fault}");
        }
        let other = RecordKey::Block("p2-9".to_owned());
        let fault = Record::parse(&other, block("p1-1").bytes()).expect_err("a fault");
        assert_eq!(fault, RecordFault::OtherKey("blocks/p1-1".to_owned()));
    }

    #[test]
    fn the_later_state_and_the_lifted_block_replace_the_other() {
        let lift = |at| Lift {
            by: "uid 0".to_owned(),
            proxy: "p2".to_owned(),
            at,
        };
        let (active, lifted) = (
            block("p1-1"),
            block("p1-1").lifted(&lift(5)).expect("active"),
        );
        for (lower, higher) in [
            (
                member(MemberState::Drain, 7, "p1"),
                member(MemberState::Ready, 8, "p1"),
            ),
            (
                member(MemberState::Ready, 7, "p1"),
                member(MemberState::Drain, 7, "p2"),
            ),
            (active, lifted.clone()),
        ] {
            assert!(lower.order(&higher).is_lt());
            assert!(higher.order(&lower).is_gt());
        }
        assert_eq!(lifted.lifted(&lift(9)), None, "it is lifted once");
    }

    #[test]
    fn a_field_of_a_newer_version_survives_a_lift() {
        let record = block("p1-1");
        let mut all: Value = serde_json::from_slice(record.bytes()).expect("JSON");
        all["severity"] = Value::from("high");
        let newer = Record::parse(&record.key(), &serde_json::to_vec(&all).expect("JSON"));
        let lifted = newer.expect("a record").lifted(&Lift {
            by: "uid 0".to_owned(),
            proxy: "p2".to_owned(),
            at: 9,
        });
        let bytes = lifted.expect("active").bytes().to_vec();
        let all: Value = serde_json::from_slice(&bytes).expect("JSON");
        assert_eq!(
            (&all["severity"], &all["lifted"]["at"]),
            (&"high".into(), &9.into())
        );
    }
}
