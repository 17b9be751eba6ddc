//! How one of several members is chosen: each algorithm a function of the members and of what leads the choice.

use std::cmp::Ordering;

use crate::pool::Entry;
use crate::rendezvous::{mix, score};
use crate::rotation::point;
use crate::work::Task;

/// What leads a choice beside the state of the members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lead {
    /// Hash of the key that a request is about, such as a file's checksum; it goes before every algorithm.
    pub key: Option<u64>,
    /// Hash of the client's address, which `source-hash` goes by; without it that is `least-connections`.
    pub source: Option<u64>,
    /// A number drawn anew for each request, even over all of `u64`, which `random` goes by.
    pub random: u64,
    /// What the request is for the member.
    pub task: Task,
}

/// Members among whom is chosen, by their places in the pool. They are walked more than once, and what other workers
/// do in between may change who is among them.
pub(crate) trait Candidates<'a>: Iterator<Item = (usize, &'a Entry)> + Clone {}

impl<'a, I: Iterator<Item = (usize, &'a Entry)> + Clone> Candidates<'a> for I {}

/// Attempts in flight for a weight, compared as a fraction.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) in_flight: u32,
    pub(crate) weight: u32,
}

impl Load {
    fn compare(self, other: Self) -> Ordering {
        let ours = u64::from(self.in_flight) * u64::from(other.weight);
        let theirs = u64::from(other.in_flight) * u64::from(self.weight);
        ours.cmp(&theirs)
    }
}

/// The least loaded; those that tie share by weight in turn.
pub(crate) fn least_loaded<'a>(
    candidates: impl Candidates<'a>,
    break_tie: impl FnOnce() -> u64,
) -> Option<usize> {
    let mut best: Option<(usize, Load)> = None;
    let mut tied = 0;
    let mut tied_weight = 0;
    for (index, entry) in candidates.clone() {
        let load = entry.load();
        match best.map_or(Ordering::Less, |(_, least)| load.compare(least)) {
            Ordering::Less => {
                best = Some((index, load));
                tied = 1;
                tied_weight = u64::from(entry.weight_now());
            }
            Ordering::Equal => {
                tied += 1;
                tied_weight += u64::from(entry.weight_now());
            }
            Ordering::Greater => {}
        }
    }
    let (first, least) = best?;
    if tied == 1 {
        return Some(first);
    }
    let equals = candidates.filter(|(_, entry)| entry.load().compare(least).is_eq());
    // Where the counts have changed between the walks the first found is as good as any.
    Some(at(equals, point(break_tie(), tied_weight)).map_or(first, |(index, _)| index))
}

/// Two drawn by weight, and of them the less loaded.
///
/// One draw alone gives a slow member its full share. Two keep requests away from it, and proxies that do not know of
/// each other do not all run to the same member, as they do to the least loaded of all.
pub(crate) fn drawn<'a>(candidates: impl Candidates<'a>, random: u64) -> Option<usize> {
    let total = weight_of(candidates.clone());
    let (first, entry) = at(candidates.clone(), below(random, total))?;
    let others = candidates.filter(|(index, _)| *index != first);
    let left = weight_of(others.clone());
    match at(others, below(mix(random), left)) {
        Some((second, other)) if other.load().compare(entry.load()).is_lt() => Some(second),
        _ => Some(first),
    }
}

/// The member that wants the key most.
pub(crate) fn most_wanted<'a>(candidates: impl Candidates<'a>, key: u64) -> Option<usize> {
    let ranked = candidates
        .map(|(index, entry)| (index, score(key, entry.address_hash, entry.weight_now())));
    ranked
        .max_by(|(_, a), (_, b)| a.total_cmp(b))
        .map(|(index, _)| index)
}

fn weight_of<'a>(candidates: impl Candidates<'a>) -> u64 {
    candidates
        .map(|(_, entry)| u64::from(entry.weight_now()))
        .sum()
}

/// The candidate at a point of their weights laid end to end.
fn at<'a>(mut candidates: impl Candidates<'a>, mut point: u64) -> Option<(usize, &'a Entry)> {
    candidates.find(
        |(_, entry)| match point.checked_sub(entry.weight_now().into()) {
            Some(rest) => {
                point = rest;
                false
            }
            None => true,
        },
    )
}

/// Brings a number that is even over `u64` below `bound`, without a division.
fn below(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}
