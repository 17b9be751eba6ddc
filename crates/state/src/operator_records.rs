//! The records of operators' acts: states of members, and blocks, including lifted ones. What the proxy enforces is derived
//! from them.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher as _, RandomState},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use admin::{AdministrativeState, AdministrativeStatus, LastChange, SetMemberState, Timestamp};
use balancing::{Administrative, Instruction, MemberName};
use fleet::{
    BlockId, BlockRecord, Lift, MemberRecord, MemberState, Merged, Record, RecordContent,
    RecordKey, Records, Stamp, TooManyRecords,
};
use pki::{Block, BlockTarget, Fingerprint};
use rustls_pki_types::UnixTime;
use tokio::sync::Notify;

use crate::{
    stored_blocks::{blocked_of, status_of},
    times::timestamp,
};

/// The records of this process.
#[derive(Debug)]
pub struct OperatorRecords {
    /// The name of this proxy in its records.
    proxy: String,
    known: Mutex<KnownRecords>,
    /// Changes of the records by operators of this proxy.
    acts: AtomicU64,
    /// Notified after each of these changes.
    acted: Notify,
}

/// The records, and the blocks among them that are not lifted, in the form of the trust store. They are parsed once, because
/// each act reads all of them.
#[derive(Debug, Default)]
struct KnownRecords {
    /// The name of this proxy, which its own blocks do not show.
    proxy: String,
    records: Records,
    blocks: BTreeMap<BlockTarget, BTreeMap<BlockId, Block>>,
    /// The blocks that are not lifted and have a target of a kind that this version does not know: they are not enforced.
    unknown: BTreeSet<BlockId>,
    /// Raised with each change of a block.
    version: u64,
    /// The block that was set or lifted last.
    last_block: Option<BlockId>,
}

impl OperatorRecords {
    /// Creates the records of a process from those that were stored.
    pub fn new(proxy: String, records: Records) -> Self {
        Self {
            known: Mutex::new(KnownRecords::of(&proxy, records)),
            proxy,
            acts: AtomicU64::new(0),
            acted: Notify::new(),
        }
    }

    /// Counts a change of the records by an operator of this proxy, and wakes the task that sends it to the store of the fleet.
    pub fn act(&self) {
        self.acts.fetch_add(1, Ordering::SeqCst);
        self.acted.notify_one();
    }

    /// The number of changes by operators of this proxy.
    pub fn acts(&self) -> u64 {
        self.acts.load(Ordering::SeqCst)
    }

    /// Waits for the next change by an operator of this proxy.
    pub async fn acted(&self) {
        self.acted.notified().await;
    }

    /// The name of this proxy.
    pub fn proxy(&self) -> &str {
        &self.proxy
    }

    /// Records a new state of members, or that they are ready if there is no instruction. A state for which there is no room
    /// is not shared.
    pub fn set_states(
        &self,
        names: &[MemberName],
        instruction: Option<&Instruction>,
        by: &str,
        force: bool,
    ) {
        let mut known = self.lock();
        let now = milliseconds(UnixTime::now());
        for (pool, member) in names {
            let stamp = known.records.next_stamp(now, &self.proxy);
            let record = member_record((&**pool, &**member), instruction, by, force, (stamp, now));
            let _ = known.merge(record, now);
        }
    }

    /// Records the instructions that have no record: those of an older version, and those of members to which DNS has given
    /// another name.
    pub fn adopt(&self, instructions: &[(MemberName, Instruction)]) {
        let mut known = self.lock();
        let now = milliseconds(UnixTime::now());
        for ((pool, member), instruction) in instructions {
            let key = RecordKey::Member {
                pool: pool.clone(),
                member: member.clone(),
            };
            if known.records.get(&key).is_none() {
                let stamp = known.records.next_stamp(now, &self.proxy);
                let by = instruction.by.clone();
                let name = (&**pool, &**member);
                let record = member_record(name, Some(instruction), &by, false, (stamp, now));
                let _ = known.merge(record, now);
            }
        }
    }

    /// The record of a member.
    pub fn of_member(&self, pool: &str, member: &str) -> Option<MemberRecord> {
        let key = RecordKey::Member {
            pool: pool.to_owned(),
            member: member.to_owned(),
        };
        match self.lock().records.get(&key)?.content() {
            RecordContent::Member(record) => Some(record.clone()),
            RecordContent::Block(_) => None,
        }
    }

    /// A record of a member as the admin API shows it.
    pub fn state_of(&self, record: MemberRecord) -> SetMemberState {
        let by = self.account(&record.by, &record.stamp.by);
        let at = |ms| Timestamp::from(SystemTime::UNIX_EPOCH + Duration::from_millis(ms));
        SetMemberState {
            pool: record.pool,
            member: record.member,
            administrative_state: match record.state {
                MemberState::Ready => AdministrativeState::Ready,
                MemberState::Drain => AdministrativeState::Drain,
                MemberState::Maintenance => AdministrativeState::Maintenance,
            },
            administrative: Some(AdministrativeStatus {
                since: at(record.since),
                by,
                why: record.why,
                until: record.until.map(at),
            }),
        }
    }

    /// The last change of a member's state.
    pub fn last_member_change(&self, pool: &str, member: &str) -> Option<LastChange> {
        let record = self.of_member(pool, member)?;
        let Stamp { ms: at, by } = &record.stamp;
        let (at, version) = (*at, format!("{at}-{by}"));
        let SetMemberState {
            administrative_state: state,
            administrative: set,
            ..
        } = self.state_of(record);
        let AdministrativeStatus { by, since, why, .. } = set?;
        let why = reason(why.as_deref().unwrap_or_default());
        let text = format!("{by} set {member} in {pool} to {state} at {since}{why}");
        Some(LastChange { at, version, text })
    }

    /// The last change of the blocks that this proxy has made or seen.
    pub fn last_block_change(&self) -> Option<LastChange> {
        let known = self.lock();
        let key = RecordKey::Block(known.last_block.clone()?);
        let last = block_of(known.records.get(&key)?)?;
        let target = blocked_of_record(last).map(|target| target.to_string());
        let what = target.unwrap_or_else(|| last.blocked.to_string());
        let at = changed_at(last);
        let time = timestamp(UnixTime::since_unix_epoch(Duration::from_millis(at)));
        let text = match &last.lifted {
            Some(Lift { by, proxy, .. }) => {
                let by = self.account(by, proxy);
                format!("{by} lifted the block of {what} at {time}")
            }
            None => {
                let (by, why) = (self.account(&last.by, &last.proxy), reason(&last.why));
                format!("{by} blocked {what} at {time}{why}")
            }
        };
        let blocks = known.records.iter();
        let blocks = blocks.filter(|(key, _)| matches!(key, RecordKey::Block(_)));
        let bytes = blocks.map(|(_, record)| record.bytes());
        let version = Fingerprint::of(bytes).to_string();
        Some(LastChange { at, version, text })
    }

    /// The account of an operator, with the name of its proxy if that is another proxy.
    fn account(&self, by: &str, proxy: &str) -> String {
        account(&self.proxy, by, proxy)
    }

    /// Forgets the record of a member that has not been configured for long.
    pub fn forget_member(&self, pool: &str, member: &str) {
        let key = RecordKey::Member {
            pool: pool.to_owned(),
            member: member.to_owned(),
        };
        self.lock().records.forget(&key);
    }

    /// Records new blocks, all or none. Blocks with the same targets are lifted, so that a shorter time can replace a longer
    /// one.
    ///
    /// # Errors
    /// There is no room for them.
    pub fn block(&self, blocks: &[Block]) -> Result<(), TooManyRecords> {
        let mut known = self.lock();
        let mut number = 0;
        for block in blocks {
            if number == 0
                && !known
                    .records
                    .has_room(blocks.len(), milliseconds(block.since))
            {
                return Err(TooManyRecords);
            }
            let now = milliseconds(block.since);
            self.lift_all(&mut known, &block.blocked, &block.by, now)?;
            // Another process may have the name of this proxy, and its blocks must not get the same ids.
            number =
                (now << 16 | u64::from(RandomState::new().hash_one(()) as u16)).max(number + 1);
            let id = |number: u64| format!("{}-{number:x}", self.proxy);
            while known.records.get(&RecordKey::Block(id(number))).is_some() {
                number += 1;
            }
            known.merge(Record::of_block(self.record(block, id(number))), now)?;
        }
        Ok(())
    }

    /// Lifts all blocks with this target that this proxy knows. Returns whether there was one.
    ///
    /// # Errors
    /// Never, because the records of known blocks need no more room.
    pub fn lift(
        &self,
        target: &BlockTarget,
        by: &str,
        now: UnixTime,
    ) -> Result<bool, TooManyRecords> {
        self.lift_all(&mut self.lock(), target, by, milliseconds(now))
    }

    fn lift_all(
        &self,
        known: &mut KnownRecords,
        target: &BlockTarget,
        by: &str,
        now: u64,
    ) -> Result<bool, TooManyRecords> {
        let lift = Lift {
            by: by.to_owned(),
            proxy: self.proxy.clone(),
            at: now,
        };
        let ids: Vec<_> = known.blocks.get(target).into_iter().flatten().collect();
        let same = ids.into_iter().map(|(id, _)| RecordKey::Block(id.clone()));
        let lifted = same.filter_map(|key| known.records.get(&key)?.lifted(&lift));
        let lifted: Vec<_> = lifted.collect();
        let is_any = !lifted.is_empty();
        for record in lifted {
            known.merge(record, now)?;
        }
        Ok(is_any)
    }

    /// The ids of the blocks that are not enforced, because this version does not know what they block.
    pub fn unknown_blocks(&self) -> BTreeSet<BlockId> {
        self.lock().unknown.clone()
    }

    /// Forgets the blocks that ended a month ago. Returns whether there was one.
    pub fn forget_ended(&self, now: UnixTime) -> bool {
        let mut known = self.lock();
        let is_any = !known.records.forget_ended(milliseconds(now)).is_empty();
        if is_any {
            *known = known.with(known.records.clone());
        }
        is_any
    }

    /// Merges records of other proxies. Returns the records that have changed something.
    pub fn take_over(&self, records: Vec<Record>, now: UnixTime) -> Vec<Record> {
        let mut known = self.lock();
        let now = milliseconds(now);
        // A record for which there is no room is counted by the alarm about the number of records.
        let is_newer = |record: &Record| known.merge(record.clone(), now) == Ok(Merged::Newer);
        records.into_iter().filter(is_newer).collect()
    }

    /// The records that the store lacks, or has in a lower version, in random order, with their keys.
    pub fn missed<'s>(&self, stored: impl Fn(&str) -> Option<&'s Record>) -> Vec<(String, Record)> {
        let known = self.lock();
        let now = milliseconds(UnixTime::now());
        let missed = known.records.iter().filter_map(|(key, record)| {
            let key = key.to_string();
            Records::is_missed(record, stored(&key), now).then(|| (key, record.clone()))
        });
        let mut missed: Vec<_> = missed.collect();
        // Otherwise, several proxies that put back the same records would all try the same record first.
        let order = RandomState::new();
        missed.sort_by_cached_key(|(key, _)| order.hash_one(key));
        missed
    }

    /// A copy of all records.
    pub fn all(&self) -> Records {
        self.read(Records::clone)
    }

    /// Calls a function with the records, and returns its result.
    pub fn read<T>(&self, of: impl FnOnce(&Records) -> T) -> T {
        of(&self.lock().records)
    }

    /// A number that each change of a block raises.
    pub fn version(&self) -> u64 {
        self.lock().version
    }

    /// Replaces all records of blocks by those that another process of this proxy has stored. Returns whether there was a
    /// difference.
    pub fn replace_blocks(&self, stored: &Records) -> bool {
        let mut known = self.lock();
        let mut next = stored.clone();
        for (_, record) in known.records.iter() {
            if matches!(record.content(), RecordContent::Member(_)) {
                // Both have at most the maximum number of records. A member's record for which there is no room is stored with
                // the members.
                let _ = next.merge(record.clone(), 0);
            }
        }
        let is_other = next != known.records;
        if is_other {
            *known = known.with(next);
        }
        is_other
    }

    /// The blocks in effect, one for each target, the oldest first.
    pub fn blocks_in_effect(&self, is_kept: impl Fn(&Block) -> bool) -> Vec<Block> {
        self.lock().blocks_in_effect(is_kept)
    }

    /// How many certificates have a block that `is_kept`.
    pub fn count_in_effect(&self, is_kept: impl Fn(&Block) -> bool) -> usize {
        let known = self.lock();
        let of_targets = known.blocks.values();
        of_targets
            .filter(|blocks| blocks.values().any(&is_kept))
            .count()
    }

    fn record(&self, block: &Block, id: String) -> BlockRecord {
        BlockRecord {
            id,
            blocked: serde_json::json!(status_of(block).blocked),
            by: block.by.clone(),
            proxy: self.proxy.clone(),
            why: block.why.clone(),
            since: milliseconds(block.since),
            // It is active to the end of its last second.
            until: block.until.map(|until| milliseconds(until) + 999),
            lifted: None,
        }
    }

    /// A panic cannot leave incomplete records, because a record is parsed before it is inserted.
    fn lock(&self) -> MutexGuard<'_, KnownRecords> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `now`: milliseconds since the epoch. A stamp may be years later if a clock of the fleet was ahead once.
fn member_record(
    (pool, member): (&str, &str),
    instruction: Option<&Instruction>,
    by: &str,
    force: bool,
    (stamp, now): (Stamp, u64),
) -> Record {
    let at = |time: SystemTime| {
        let since = time
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    };
    Record::of_member(MemberRecord {
        pool: pool.to_owned(),
        member: member.to_owned(),
        state: match instruction.map(|instruction| instruction.state) {
            None | Some(Administrative::Ready) => MemberState::Ready,
            Some(Administrative::Drain) => MemberState::Drain,
            Some(Administrative::Maintenance) => MemberState::Maintenance,
        },
        by: by.to_owned(),
        since: instruction.map_or(now, |instruction| at(instruction.since)),
        why: instruction.and_then(|instruction| instruction.why.clone()),
        until: instruction
            .and_then(|instruction| instruction.until)
            .map(at),
        force,
        stamp,
    })
}

/// The instruction in a record of another proxy. `None` if the member is ready, or the time of the state has expired.
pub fn instruction_of(record: &MemberRecord, now: SystemTime) -> Option<Instruction> {
    let at = |ms| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms));
    let until = record.until.and_then(at);
    let state = match record.state {
        MemberState::Ready => return None,
        MemberState::Drain => Administrative::Drain,
        MemberState::Maintenance => Administrative::Maintenance,
    };
    until.is_none_or(|until| until > now).then(|| Instruction {
        state,
        by: format!("{} on {}", record.by, record.stamp.by),
        why: record.why.clone(),
        since: at(record.since).unwrap_or(now),
        until,
        absent_since: None,
    })
}

impl KnownRecords {
    fn of(proxy: &str, records: Records) -> Self {
        let mut known = Self {
            proxy: proxy.to_owned(),
            ..Self::default()
        };
        for (_, record) in records.iter() {
            known.index(record);
        }
        let blocks = records.iter().filter_map(|(_, record)| block_of(record));
        let last = blocks.max_by_key(|block| changed_at(block));
        Self {
            last_block: last.map(|block| block.id.clone()),
            records,
            ..known
        }
    }

    /// The same proxy with other records, and the next version.
    fn with(&self, records: Records) -> Self {
        Self {
            version: self.version + 1,
            ..Self::of(&self.proxy, records)
        }
    }

    fn merge(&mut self, record: Record, now: u64) -> Result<Merged, TooManyRecords> {
        let merged = self.records.merge(record.clone(), now)?;
        if merged == Merged::Newer {
            // If the record of an expired block made room for this one, that block stays in the index. It is not in effect.
            self.index(&record);
        }
        Ok(merged)
    }

    fn index(&mut self, record: &Record) {
        let Some(content) = block_of(record) else {
            return;
        };
        self.version += 1;
        self.last_block = Some(content.id.clone());
        let Some(mut block) = of_record(content) else {
            match &content.lifted {
                None => {
                    let (id, blocked) = (&content.id, &content.blocked);
                    tracing::error!(%id, %blocked, "a block is not enforced, because this version does not know what it blocks");
                    self.unknown.insert(id.clone());
                }
                Some(_) => {
                    self.unknown.remove(&content.id);
                }
            }
            return;
        };
        block.by = account(&self.proxy, &content.by, &content.proxy);
        match &content.lifted {
            None => {
                let of_target = self.blocks.entry(block.blocked.clone()).or_default();
                of_target.insert(content.id.clone(), block);
            }
            Some(_) => {
                if let Some(of_target) = self.blocks.get_mut(&block.blocked) {
                    of_target.remove(&content.id);
                    if of_target.is_empty() {
                        self.blocks.remove(&block.blocked);
                    }
                }
            }
        }
    }

    fn blocks_in_effect(&self, is_kept: impl Fn(&Block) -> bool) -> Vec<Block> {
        // A block without an end ranks highest.
        let rank = |block: &&Block| (block.until.is_none(), block.until, block.since);
        let of_targets = self.blocks.values();
        let last = of_targets.filter_map(|blocks| {
            let kept = blocks.values().filter(|block| is_kept(block));
            kept.max_by_key(rank).cloned()
        });
        let mut blocks: Vec<_> = last.collect();
        blocks.sort_by_key(|block| block.since);
        blocks
    }
}

/// The blocks that are not lifted and that `is_kept`, the oldest first. Of several blocks with the same target, only the one
/// that ends last is returned. `proxy` is the name of this proxy.
pub fn blocks_in_effect(
    proxy: &str,
    records: &Records,
    is_kept: impl Fn(&Block) -> bool,
) -> Vec<Block> {
    KnownRecords::of(proxy, records.clone()).blocks_in_effect(is_kept)
}

/// An account, with its proxy if that is not the one named `own`.
fn account(own: &str, by: &str, proxy: &str) -> String {
    match proxy == own {
        true => by.to_owned(),
        false => format!("{by} on {proxy}"),
    }
}

/// A block as the trust store has it. `None` if its target is of a kind that this version does not know.
fn of_record(record: &BlockRecord) -> Option<Block> {
    let at = |ms: u64| UnixTime::since_unix_epoch(Duration::from_millis(ms));
    Some(Block {
        blocked: blocked_of_record(record)?,
        why: record.why.clone(),
        by: record.by.clone(),
        since: at(record.since),
        until: record.until.map(at),
    })
}

fn block_of(record: &Record) -> Option<&BlockRecord> {
    match record.content() {
        RecordContent::Block(block) => Some(block),
        RecordContent::Member(_) => None,
    }
}

/// When a block was set, or lifted if it was.
fn changed_at(block: &BlockRecord) -> u64 {
    let lift = block.lifted.as_ref();
    lift.map_or(block.since, |lift| lift.at)
}

fn blocked_of_record(record: &BlockRecord) -> Option<BlockTarget> {
    let blocked = serde_json::from_value(record.blocked.clone()).ok()?;
    blocked_of(&blocked).ok()
}

/// A reason at the end of a sentence.
fn reason(why: &str) -> String {
    match why {
        "" => String::new(),
        why => format!(": {why}"),
    }
}

/// Milliseconds since the epoch.
pub fn milliseconds(time: UnixTime) -> u64 {
    time.as_secs().saturating_mul(1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin::BlockSubject;

    fn at(seconds: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    }

    fn block(name: &str, since: u64, until: Option<u64>) -> Block {
        let subject = BlockSubject {
            certname: Some(name.to_owned()),
            ..BlockSubject::default()
        };
        Block {
            blocked: blocked_of(&subject).expect("a certname"),
            why: "stolen".to_owned(),
            by: "uid 0".to_owned(),
            since: at(since),
            until: until.map(at),
        }
    }

    fn records() -> OperatorRecords {
        OperatorRecords::new("p1".to_owned(), Records::default())
    }

    #[test]
    fn blocks_are_recorded_and_derived_again() {
        let records = records();
        let blocks = [
            block("web01", 5, None),
            block("web02", 5, Some(90)),
            block("web03", 6, None),
        ];
        records.block(&blocks).expect("room");
        assert_eq!(records.blocks_in_effect(|_| true), blocks);
        let ids = |records: &OperatorRecords| -> Vec<String> {
            let all = records.all();
            all.iter().map(|(key, _)| key.to_string()).collect()
        };
        let before = ids(&records);
        let numbers = before.iter().map(|id| {
            let number = id.strip_prefix("blocks/p1-").expect("a block of p1");
            u64::from_str_radix(number, 16).expect("a number")
        });
        let numbers: Vec<_> = numbers.collect();
        // The time in milliseconds, and 16 random bits.
        assert_eq!((numbers[0] >> 16, numbers[2] >> 16), (5000, 6000));
        assert!(numbers[0] < numbers[1], "each act has an id of its own");
        assert!(
            records
                .lift(&blocks[0].blocked, "uid 0", at(9))
                .expect("room")
        );
        assert!(
            !records
                .lift(&blocks[0].blocked, "uid 0", at(9))
                .expect("room")
        );
        assert_eq!(records.blocks_in_effect(|_| true), blocks[1..]);
        assert_eq!(ids(&records), before, "what was lifted is remembered");
    }

    #[test]
    fn a_block_of_another_proxy_names_it() {
        let own = records();
        own.block(&[block("web01", 5, None)]).expect("room");
        for (proxy, by) in [("p1", "uid 0"), ("p2", "uid 0 on p1")] {
            let derived = blocks_in_effect(proxy, &own.all(), |_| true);
            assert_eq!(derived[0].by, by, "on {proxy}");
        }
    }

    #[test]
    fn a_clock_that_was_ahead_once_does_not_date_later_changes() {
        let own = records();
        let ahead = Stamp {
            ms: u64::from(u32::MAX) * 1000,
            by: "p2".to_owned(),
        };
        let name = ("compilers", "c1:8140");
        own.take_over(
            vec![member_record(name, None, "uid 0", false, (ahead, 7))],
            at(5),
        );
        let names = [(name.0.to_owned(), name.1.to_owned())];
        own.set_states(&names, None, "uid 0", false);
        let record = own.of_member(name.0, name.1).expect("a record");
        assert_eq!(record.stamp.ms, u64::from(u32::MAX) * 1000 + 1);
        assert!(record.since < record.stamp.ms, "{record:?}");
    }

    #[test]
    fn a_block_of_an_unknown_target_is_named_until_it_is_lifted() {
        let record = Record::of_block(BlockRecord {
            id: "p2-1".to_owned(),
            blocked: serde_json::json!({ "pattern": "web*" }),
            by: "uid 0".to_owned(),
            proxy: "p2".to_owned(),
            why: "stolen".to_owned(),
            since: 5000,
            until: None,
            lifted: None,
        });
        let lift = Lift {
            by: "uid 0".to_owned(),
            proxy: "p2".to_owned(),
            at: 6000,
        };
        let lifted = record.lifted(&lift).expect("active");
        let own = records();
        own.take_over(vec![record], at(5));
        assert_eq!(own.unknown_blocks(), ["p2-1".to_owned()].into());
        assert_eq!(own.blocks_in_effect(|_| true), []);
        own.take_over(vec![lifted], at(6));
        assert_eq!(own.unknown_blocks(), BTreeSet::new());
    }

    #[test]
    fn a_block_of_the_same_target_replaces_the_known_one_and_adds_to_foreign_ones() {
        let own = records();
        own.block(&[block("web01", 5, None)]).expect("room");
        own.block(&[block("web01", 7, Some(90))]).expect("room");
        assert_eq!(
            own.blocks_in_effect(|_| true),
            [block("web01", 7, Some(90))]
        );
        // Another proxy blocks the same name for a longer time, and has not seen this block.
        let other = OperatorRecords::new("p2".to_owned(), Records::default());
        other.block(&[block("web01", 6, Some(200))]).expect("room");
        let mut all = own.all();
        for (_, record) in other.all().iter() {
            all.merge(record.clone(), 7000).expect("room");
        }
        assert_eq!(
            blocks_in_effect("p1", &all, |_| true),
            [Block {
                by: "uid 0 on p2".to_owned(),
                ..block("web01", 6, Some(200))
            }]
        );
        let is_active = |block: &Block| block.until.is_some_and(|until| until < at(100));
        assert_eq!(
            blocks_in_effect("p1", &all, is_active),
            [block("web01", 7, Some(90))]
        );
    }
}
