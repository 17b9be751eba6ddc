//! Merging of records, by table, and by random schedules of a fleet: proxies that are cut off, restarted, or have wrong
//! clocks, and a store that is wiped or restored from a backup.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::{BlockRecord, Lift, MemberRecord, MemberState};

const NOW: u64 = 1_800_000_000_000;

fn block(id: &str, until: Option<u64>, lifted_at: Option<u64>) -> Record {
    let (by, proxy) = (|| "uid 0".to_owned(), || "p1".to_owned());
    let record = Record::of_block(BlockRecord {
        id: id.to_owned(),
        blocked: serde_json::json!({ "certname": id }),
        by: by(),
        proxy: proxy(),
        why: "stolen".to_owned(),
        since: NOW - 90 * DAY,
        until,
        lifted: None,
    });
    match lifted_at {
        Some(at) => {
            let (by, proxy) = (by(), proxy());
            record
                .lifted(&Lift { by, proxy, at })
                .expect("an active block")
        }
        None => record,
    }
}

fn state(state: MemberState, stamp: Stamp) -> Record {
    Record::of_member(MemberRecord {
        pool: "compilers".to_owned(),
        member: "c1:8140".to_owned(),
        state,
        by: "uid 0".to_owned(),
        since: NOW,
        why: None,
        until: None,
        force: false,
        stamp,
    })
}

#[test]
fn the_higher_of_two_records_stays_in_any_order() {
    let stamp = |ms| Stamp {
        ms,
        by: "p1".to_owned(),
    };
    for (lower, higher) in [
        (
            state(MemberState::Drain, stamp(1)),
            state(MemberState::Ready, stamp(2)),
        ),
        (block("b", None, None), block("b", None, Some(NOW))),
    ] {
        let mut records = Records::default();
        assert_eq!(records.merge(lower.clone(), NOW), Ok(Merged::Newer));
        assert_eq!(records.merge(lower.clone(), NOW), Ok(Merged::Same));
        assert_eq!(records.merge(higher.clone(), NOW), Ok(Merged::Newer));
        assert_eq!(records.merge(lower.clone(), NOW), Ok(Merged::Older));
        assert_eq!(records.get(&higher.key()), Some(&higher));
        assert!(Records::is_missed(&higher, Some(&lower), NOW));
        assert!(!Records::is_missed(&lower, Some(&higher), NOW));
        assert!(!Records::is_missed(&higher, Some(&higher), NOW));
    }
}

#[test]
fn a_block_that_has_ended_is_put_back_for_30_days_and_kept_for_31() {
    for (until, lifted_at, ago, is_put_back, is_kept) in [
        (None, None, 0, true, true),
        (Some(NOW), None, 30 * DAY, true, true),
        (Some(NOW), None, 30 * DAY + 1, false, true),
        (Some(NOW), None, 31 * DAY + 1, false, false),
        (None, Some(NOW), 30 * DAY + 1, false, true),
        (None, Some(NOW), 31 * DAY + 1, false, false),
        // Lifted before its end.
        (Some(NOW + 9 * DAY), Some(NOW), 31 * DAY + 1, false, false),
        // A clock that was set back.
        (Some(NOW + 9 * DAY), None, 0, true, true),
    ] {
        let record = block("b", until, lifted_at);
        let now = NOW + ago;
        assert_eq!(
            Records::is_missed(&record, None, now),
            is_put_back,
            "{until:?} {lifted_at:?} {ago}"
        );
        let mut records = Records::default();
        let merged = records.merge(record.clone(), now);
        assert_eq!(merged == Ok(Merged::Newer), is_kept);
        let mut records = Records::default();
        records.merge(record, NOW).expect("room");
        assert_eq!(records.forget_ended(now).is_empty(), is_kept);
        assert_eq!(records.is_empty(), !is_kept);
    }
}

#[test]
fn a_record_beyond_the_maximum_is_refused_and_changes_of_known_ones_are_not() {
    let mut records = Records::default();
    for n in 0..RECORDS_MAX {
        records
            .merge(block(&format!("b{n}"), None, None), NOW)
            .expect("room");
    }
    assert_eq!(
        records.merge(block("one more", None, None), NOW),
        Err(TooManyRecords)
    );
    assert_eq!(
        records.merge(block("b7", None, Some(NOW)), NOW),
        Ok(Merged::Newer)
    );
    assert_eq!(
        records.merge(block("b9", None, Some(NOW - 1)), NOW),
        Ok(Merged::Newer)
    );
    assert_eq!(records.len(), RECORDS_MAX);
    // The block that ended first makes room for another.
    assert_eq!(
        records.merge(block("one more", None, None), NOW),
        Ok(Merged::Newer)
    );
    assert_eq!(records.len(), RECORDS_MAX);
    let is_known = |id: &str| records.get(&RecordKey::Block(id.to_owned())).is_some();
    assert!(is_known("b7") && !is_known("b9"));
    // A lifted block makes room at any time, because the clock is not trusted after a start.
    assert_eq!(
        records.merge(block("another", None, None), 0),
        Ok(Merged::Newer)
    );
}

/// An event in a fleet.
#[derive(Clone, Copy, Debug)]
enum Step {
    Block { proxy: usize },
    Unblock { proxy: usize, nth: usize },
    Set { proxy: usize, is_drain: bool },
    Cut { proxy: usize },
    Heal { proxy: usize },
    Restart { proxy: usize },
    Clock { proxy: usize, days: i64 },
    Wipe,
    Backup,
    Restore,
    Sync { proxy: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let proxy = 0..PROXIES;
    prop_oneof![
        3 => proxy.clone().prop_map(|proxy| Step::Block { proxy }),
        2 => (proxy.clone(), 0..4usize).prop_map(|(proxy, nth)| Step::Unblock { proxy, nth }),
        2 => (proxy.clone(), any::<bool>()).prop_map(|(proxy, is_drain)| Step::Set { proxy, is_drain }),
        1 => proxy.clone().prop_map(|proxy| Step::Cut { proxy }),
        1 => proxy.clone().prop_map(|proxy| Step::Heal { proxy }),
        1 => proxy.clone().prop_map(|proxy| Step::Restart { proxy }),
        1 => (proxy.clone(), -2000..2000i64).prop_map(|(proxy, days)| Step::Clock { proxy, days }),
        1 => Just(Step::Wipe),
        1 => Just(Step::Backup),
        1 => Just(Step::Restore),
        4 => proxy.prop_map(|proxy| Step::Sync { proxy }),
    ]
}

const PROXIES: usize = 4;

/// How a proxy treats the records of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// It merges them, and puts back records that the store lacks.
    Merge,
    /// The store is the truth: records that it lacks are deleted. Other proxies that use etcd do this.
    StoreIsTruth,
}

type Store = BTreeMap<RecordKey, Record>;

struct Fleet {
    rule: Rule,
    proxies: Vec<Member>,
    store: Store,
    backup: Store,
    /// Ids of blocks that a proxy has acknowledged to an operator, and ids of blocks that a proxy has lifted.
    set: BTreeSet<String>,
    lifted: BTreeSet<String>,
}

#[derive(Default)]
struct Member {
    records: Records,
    is_cut: bool,
    clock: i64,
    counter: u32,
}

impl Member {
    fn now(&self) -> u64 {
        NOW.saturating_add_signed(self.clock)
    }
}

impl Fleet {
    fn new(rule: Rule) -> Self {
        Self {
            rule,
            proxies: (0..PROXIES).map(|_| Member::default()).collect(),
            store: Store::new(),
            backup: Store::new(),
            set: BTreeSet::new(),
            lifted: BTreeSet::new(),
        }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Block { proxy } => {
                let own = &mut self.proxies[proxy];
                own.counter += 1;
                let id = format!("p{proxy}-{}", own.counter);
                self.change(proxy, block(&id, None, None));
                self.set.insert(id);
            }
            Step::Unblock { proxy, nth } => {
                let own = &self.proxies[proxy];
                let lift = Lift {
                    by: "uid 0".to_owned(),
                    proxy: format!("p{proxy}"),
                    at: own.now(),
                };
                let active = own
                    .records
                    .iter()
                    .filter_map(|(_, record)| record.lifted(&lift));
                let Some(lifted) = active.take(nth + 1).last() else {
                    return;
                };
                if let RecordContent::Block(block) = lifted.content() {
                    self.lifted.insert(block.id.clone());
                }
                self.change(proxy, lifted);
            }
            Step::Set { proxy, is_drain } => {
                let own = &self.proxies[proxy];
                let stamp = own.records.next_stamp(own.now(), &format!("p{proxy}"));
                let to = if is_drain {
                    MemberState::Drain
                } else {
                    MemberState::Ready
                };
                self.change(proxy, state(to, stamp));
            }
            Step::Cut { proxy } => self.proxies[proxy].is_cut = true,
            Step::Heal { proxy } => {
                self.proxies[proxy].is_cut = false;
                self.sync(proxy);
            }
            // Its records are in its state directory.
            Step::Restart { proxy } => self.sync(proxy),
            Step::Clock { proxy, days } => {
                self.proxies[proxy].clock = days * i64::try_from(DAY).expect("it fits");
            }
            Step::Wipe => self.store.clear(),
            Step::Backup => self.backup = self.store.clone(),
            Step::Restore => self.store = self.backup.clone(),
            Step::Sync { proxy } => self.sync(proxy),
        }
    }

    /// An operator's change: applied on its proxy, and written to the store if the proxy reaches it.
    fn change(&mut self, proxy: usize, record: Record) {
        let own = &mut self.proxies[proxy];
        let now = own.now();
        assert_eq!(own.records.merge(record, now), Ok(Merged::Newer));
        if !own.is_cut {
            self.sync(proxy);
            let all = 0..PROXIES;
            all.for_each(|other| self.sync(other));
        }
    }

    fn sync(&mut self, proxy: usize) {
        let own = &mut self.proxies[proxy];
        if own.is_cut {
            return;
        }
        let now = own.now();
        for (key, own) in own.records.iter() {
            let stored = self.store.get(key);
            let is_put = match self.rule {
                Rule::Merge => Records::is_missed(own, stored, now),
                // A change is written only when it is made.
                Rule::StoreIsTruth => stored.is_some_and(|stored| own.order(stored).is_gt()),
            };
            if is_put {
                self.store.insert(key.clone(), own.clone());
            }
        }
        if self.rule == Rule::StoreIsTruth {
            own.records = Records::default();
        }
        for record in self.store.values() {
            own.records.merge(record.clone(), now).expect("room");
        }
    }

    /// The fault after all proxies were connected and have exchanged their records.
    fn faults(&mut self) -> Option<String> {
        self.proxies
            .iter_mut()
            .for_each(|proxy| proxy.is_cut = false);
        // Proxies watch the store, so they exchange records until none changes. A proxy may write in the second round,
        // because another one put an older record back in the first; the third round carries that to all.
        for _ in 0..3 {
            (0..PROXIES).for_each(|proxy| self.sync(proxy));
        }
        // A lifted block may be absent if it ended long ago by the clock.
        let in_effect = |key: &RecordKey, record: &Record| match record.content() {
            RecordContent::Block(block) if block.lifted.is_some() => None,
            _ => Some((key.clone(), record.clone())),
        };
        let first: Vec<_> = self.proxies[0].records.iter().collect();
        let first: Vec<_> = first
            .into_iter()
            .filter_map(|(k, r)| in_effect(k, r))
            .collect();
        for proxy in &self.proxies {
            let own: Vec<_> = proxy
                .records
                .iter()
                .filter_map(|(k, r)| in_effect(k, r))
                .collect();
            if own != first {
                return Some("the copies differ".to_owned());
            }
        }
        let stored: Vec<_> = self
            .store
            .iter()
            .filter_map(|(k, r)| in_effect(k, r))
            .collect();
        if stored != first {
            return Some("the store differs".to_owned());
        }
        let missing = self.set.difference(&self.lifted).find(|id| {
            let own = self.proxies[0]
                .records
                .get(&RecordKey::Block((*id).clone()));
            own.is_none_or(|record| match record.content() {
                RecordContent::Block(block) => block.lifted.is_some(),
                RecordContent::Member(_) => true,
            })
        });
        missing.map(|id| format!("the block {id} is lost"))
    }
}

fn after(rule: Rule, steps: &[Step]) -> Option<String> {
    let mut fleet = Fleet::new(rule);
    steps.iter().for_each(|step| fleet.run(*step));
    fleet.faults()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_block_is_lost_and_all_copies_become_equal(steps in proptest::collection::vec(step(), 1..60)) {
        prop_assert_eq!(after(Rule::Merge, &steps), None);
    }
}

/// By its clock, a proxy that alone knows a lift need not put it back. It does so nevertheless when another proxy puts the
/// block back.
#[test]
fn a_lift_of_long_ago_reaches_a_proxy_that_never_saw_the_block() {
    let steps = [
        Step::Cut { proxy: 0 },
        Step::Block { proxy: 1 },
        Step::Cut { proxy: 1 },
        Step::Unblock { proxy: 1, nth: 0 },
        Step::Clock { proxy: 1, days: 31 },
        Step::Wipe,
    ];
    assert_eq!(after(Rule::Merge, &steps), None);
}

/// These schedules find the fault of the rule that other proxies use, so they can find faults.
#[test]
fn the_rule_that_the_store_is_right_loses_blocks() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let result = runner.run(&proptest::collection::vec(step(), 1..60), |steps| {
        prop_assert_eq!(after(Rule::StoreIsTruth, &steps), None);
        Ok(())
    });
    let fault = result.expect_err("schedules that lose a block").to_string();
    assert!(fault.contains("is lost"), "{fault}");
}
