//! How one of several members is chosen: each algorithm a function of the members and of what leads the choice.

use std::time::Duration;

use crate::pool::Entry;
use crate::rendezvous::{mix, most_wanted};
use crate::rotation::point;
use crate::work::Task;

/// What leads a choice beside the state of the members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lead {
    /// Hash of the key that a request is about, such as a file's checksum; it goes before every algorithm.
    pub key: Option<u64>,
    /// Hash of the client's address, which `source-hash` goes by; without it that is `least-connections`.
    pub source: Option<u64>,
    /// Hash of the verified certname, which `certname-hash` goes by; without it that is `least-load`.
    pub certname: Option<u64>,
    /// A number drawn anew for each request, even over all of `u64`, which `random` goes by.
    pub random: u64,
    /// What the request is for the member.
    pub task: Task,
    /// Which member the client stays with; it overrides all of the above.
    pub stay: Stay,
}

/// Which member a client stays with while that member is available and below its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stay {
    /// None: each request may go to another.
    #[default]
    No,
    /// The one that this hash leads to.
    Hash(u64),
    /// The one of this number ([`Member::id`](crate::Member::id)).
    Member(u64),
}

/// Most members of a pool that are chosen among.
pub const MEMBERS_MAX: usize = 1_024;

/// The members to choose from: those in turn that may be asked. They are walked more than once, and what other workers
/// do in between may change who is among them.
#[derive(Clone, Copy)]
pub(crate) struct Candidates<'a> {
    pub(crate) entries: &'a [Entry],
    pub(crate) tier: u32,
    pub(crate) tried: &'a [u64],
    pub(crate) task: Task,
    pub(crate) now: Duration,
}

impl<'a> Candidates<'a> {
    pub(crate) fn iter(self) -> impl Iterator<Item = (usize, &'a Entry)> {
        let entries = self.entries.iter().enumerate();
        entries.filter(move |(_, entry)| self.has(entry))
    }

    #[inline]
    pub(crate) fn has(self, entry: &Entry) -> bool {
        entry.tier == self.tier && entry.is_open(self.task, self.now) && !entry.is_among(self.tried)
    }

    /// The candidate that costs least; those that tie share by their parts in turn. `Err`: a cost is not known.
    fn cheapest(
        self,
        cost: impl Fn(&Entry) -> Cost,
        break_tie: impl FnOnce() -> u64,
    ) -> Result<Option<usize>, Unknown> {
        let mut best: Option<(usize, Cost)> = None;
        let mut ties = Marks::default();
        let mut tied = 0;
        for (index, entry) in self.iter() {
            let cost = cost(entry);
            if cost.part == 0 {
                return Err(Unknown);
            }
            if let Some((_, least)) = best {
                let (ours, least) = (cost.times(least.part), least.times(cost.part));
                if ours > least {
                    continue;
                }
                if ours == least {
                    ties.set(index);
                    tied += cost.part;
                    continue;
                }
            }
            best = Some((index, cost));
            tied = cost.part;
        }
        let Some((first, least)) = best else {
            return Ok(None);
        };
        if tied == least.part {
            return Ok(Some(first));
        }
        let mut point = point(break_tie(), tied);
        for index in ties.after(first, self.entries.len()) {
            let part = match index == first {
                true => least.part,
                false => cost(&self.entries[index]).part,
            };
            match point.checked_sub(part) {
                Some(rest) => point = rest,
                None => return Ok(Some(index)),
            }
        }
        // Where the parts have changed between the walks the first found is as good as any.
        Ok(Some(first))
    }

    /// The candidate with the fewest requests in flight for its weight.
    pub(crate) fn least_connections(self, break_tie: impl FnOnce() -> u64) -> Option<usize> {
        let cost = |entry: &Entry| Cost {
            work: entry.member.in_flight().into(),
            part: u64::from(entry.weight_now()).max(1),
        };
        self.cheapest(cost, break_tie).ok().flatten()
    }

    /// The candidate where the request is expected to be done first: its own time after the work in flight, spread over
    /// the JRubies. `Err`: one has no count of JRubies.
    pub(crate) fn least_load(
        self,
        own_ms: u64,
        break_tie: impl FnOnce() -> u64,
    ) -> Result<Option<usize>, Unknown> {
        let cost = |entry: &Entry| {
            let part = entry.capacity();
            Cost {
                work: entry.member.pace.slowness()
                    * (entry.member.expected_ms() * 100 + own_ms * part),
                part,
            }
        };
        self.cheapest(cost, break_tie)
    }

    /// Two drawn by weight, and of them the less loaded.
    ///
    /// One draw alone gives a slow member its full share. Two keep requests away from it, and proxies that do not know of
    /// each other do not all run to the same member, as they do to the least loaded of all.
    pub(crate) fn drawn(self, random: u64) -> Option<usize> {
        let mut marks = Marks::default();
        let mut total = 0;
        for (index, entry) in self.iter() {
            marks.set(index);
            total += u64::from(entry.weight_now());
        }
        let at = |mut point: u64, without: Option<usize>| {
            let mut marked = marks.after(0, self.entries.len());
            marked.find(|index| {
                let weight = u64::from(self.entries[*index].weight_now());
                match point.checked_sub(weight) {
                    _ if marks.lacks(*index) || without == Some(*index) => false,
                    Some(rest) => {
                        point = rest;
                        false
                    }
                    None => true,
                }
            })
        };
        let first = at(below(random, total), None)?;
        let entry = &self.entries[first];
        let left = total.saturating_sub(entry.weight_now().into());
        match at(below(mix(random), left), Some(first)) {
            Some(second) if self.entries[second].is_less_loaded_than(entry) => Some(second),
            _ => Some(first),
        }
    }

    /// The candidate that wants the key most.
    pub(crate) fn most_wanted(self, key: u64) -> Option<usize> {
        let weight = |entry: &Entry| u64::from(entry.weight_now());
        most_wanted(self.entries, key, weight, |entry| self.has(entry))
    }

    /// The candidate that a client with this hash stays with.
    pub(crate) fn stays(self, hash: u64) -> Option<usize> {
        most_wanted(self.entries, hash, Entry::lasting_weight, |entry| {
            self.has(entry)
        })
    }

    /// The candidate that wants the key most among those whose load is within [`LOAD_BOUND`] of the mean, both for their
    /// JRubies and weights.
    pub(crate) fn most_wanted_within_bound(self, key: u64) -> Option<usize> {
        let counted = self.iter().all(|(_, entry)| entry.jrubies().is_some());
        let part = |entry: &Entry| match counted {
            true => entry.capacity(),
            false => entry.weight_now().into(),
        };
        let load = |entry: &Entry| match counted {
            true => u64::from(entry.member.working()),
            false => u64::from(entry.member.in_flight()),
        };
        let (mut parts, mut loads) = (0, 1);
        for (_, entry) in self.iter() {
            parts += part(entry);
            loads += load(entry);
        }
        let (numerator, denominator) = LOAD_BOUND;
        let within = |entry: &Entry| {
            let ours = u128::from(load(entry) * denominator) * u128::from(parts);
            ours < u128::from(loads * numerator) * u128::from(part(entry))
        };
        most_wanted(self.entries, key, part, |entry| {
            self.has(entry) && within(entry)
        })
    }
}

/// A cost is not known: a member has no count of JRubies.
pub(crate) struct Unknown;

/// How much work a member has for its part of the pool's.
#[derive(Clone, Copy)]
struct Cost {
    work: u64,
    /// 0: not known.
    part: u64,
}

impl Cost {
    fn times(self, part: u64) -> u128 {
        u128::from(self.work) * u128::from(part)
    }
}

/// Members marked by their index.
#[derive(Default)]
struct Marks([u64; MEMBERS_MAX / 64]);

impl Marks {
    fn set(&mut self, index: usize) {
        if let Some(word) = self.0.get_mut(index / 64) {
            *word |= 1 << (index % 64);
        }
    }

    fn lacks(&self, index: usize) -> bool {
        let word = self.0.get(index / 64).copied().unwrap_or(0);
        word & (1 << (index % 64)) == 0
    }

    /// `first`, and the marked ones after it, of so many members. Marks before it are from members that cost more.
    fn after(&self, first: usize, members: usize) -> impl Iterator<Item = usize> {
        let rest = (first + 1..members.min(MEMBERS_MAX)).filter(|index| !self.lacks(*index));
        std::iter::once(first).chain(rest)
    }
}

/// Brings a number that is even over `u64` below `bound`, without a division.
fn below(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

/// How far over the mean a member's load may be before a certname goes to its next choice: 1.25 times.
const LOAD_BOUND: (u64, u64) = (5, 4);
