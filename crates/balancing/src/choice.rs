//! The algorithms. Each picks one of several members.

use std::time::Duration;

use crate::hash::mix;
use crate::pool_entry::{MEMBERS_MAX, PoolEntry};
use crate::pool_factors::PoolFactors;
use crate::rendezvous::{most_wanted, surely_most_wanted};
use crate::rotation::{Credit, point};
use crate::slots::{Occupancy, Tally};
use crate::turns::Turns;
use crate::work::Task;

/// The members to pick from: those of the active priority that may get the request. A pick may visit them more than once, and
/// other workers may change the set in between.
#[derive(Clone, Copy)]
pub(crate) struct Candidates<'a> {
    pub(crate) entries: &'a [PoolEntry],
    pub(crate) factors: &'a PoolFactors,
    pub(crate) tally: &'a Tally,
    /// Whether all members have the same priority and no member was tried before.
    pub(crate) any: bool,
    pub(crate) tier: u32,
    pub(crate) tried: &'a [u64],
    pub(crate) task: Task,
    pub(crate) now: Duration,
}

impl<'a> Candidates<'a> {
    fn iter(&self) -> impl Iterator<Item = (usize, &'a PoolEntry)> {
        let entries = self.entries.iter().enumerate();
        entries.filter(move |(_, entry)| self.has(entry))
    }

    pub(crate) fn first(&self) -> Option<usize> {
        self.entries.iter().position(|entry| self.has(entry))
    }

    pub(crate) fn in_rotation(&self, turns: &Turns<'_>) -> Option<usize> {
        match turns {
            Turns::Shared(state) => {
                let _wheel = state.wheel.lock();
                self.rotate(|_, entry| &entry.member.credit)
            }
            Turns::Rehearsed(rehearsal) => self.rotate(|index, _| &rehearsal.credits[index]),
        }
    }

    /// Smooth weighted rotation, under the lock of the pool's wheel. The credit of each candidate grows by its share. The
    /// candidate with the highest credit is picked, and its credit drops by the sum of all shares.
    #[inline(never)]
    fn rotate<'c>(&self, account: impl Fn(usize, &'a PoolEntry) -> &'c Credit) -> Option<usize> {
        let (mut total, mut most, mut richest) = (0, i64::MIN, None);
        for (index, entry) in self.entries.iter().enumerate() {
            if !self.has(entry) {
                continue;
            }
            let share = entry.factors.share() as i64;
            let credit = account(index, entry).gain(share);
            total += share;
            if credit > most {
                (most, richest) = (credit, Some(index));
            }
        }
        let index = richest?;
        account(index, &self.entries[index]).gain(-total);
        Some(index)
    }

    #[inline]
    pub(crate) fn has(&self, entry: &PoolEntry) -> bool {
        self.has_at(entry, entry.member.slots.get())
    }

    #[inline]
    fn has_at(&self, entry: &PoolEntry, occupancy: Occupancy) -> bool {
        let is_open = entry.factors.admit(self.task, occupancy)
            || entry.is_open_now(occupancy, self.task, self.now);
        is_open && (self.any || (entry.tier == self.tier && !entry.is_among(self.tried)))
    }

    /// The candidate with the lowest cost. Candidates with equal cost take turns by their shares.
    #[inline(never)]
    fn cheapest(
        &self,
        cost: impl Fn(&PoolEntry, Occupancy) -> u64,
        turns: &mut Turns<'_>,
    ) -> Option<usize> {
        let mut least = u64::MAX;
        let mut ties = [0_u64; MEMBERS_MAX / BLOCK];
        let (mut first_block, mut tied) = (0, 0);
        let blocks = self.entries.chunks(BLOCK).zip(&mut ties).enumerate();
        for (number, (block, marks)) in blocks {
            let mut marked = 0_u64;
            for (bit, entry) in block.iter().enumerate() {
                let occupancy = entry.member.slots.get();
                let cost = cost(entry, occupancy);
                if cost > least || !self.has_at(entry, occupancy) {
                    continue;
                }
                if cost < least {
                    (least, marked, first_block, tied) = (cost, 0, number, 0);
                }
                marked |= 1 << bit;
                tied += entry.factors.share();
            }
            *marks = marked;
        }
        let first = first_block * BLOCK + ties[first_block].trailing_zeros() as usize;
        let entry = self.entries.get(first).filter(|_| tied > 0)?;
        if entry.factors.share() == tied {
            return Some(first);
        }
        let mut point = point(turns.break_tie(), tied);
        // The blocks before the first one have marks of members with a higher cost.
        for (number, marks) in ties.iter().enumerate().skip(first_block) {
            let mut marked = *marks;
            while marked != 0 {
                let index = number * BLOCK + marked.trailing_zeros() as usize;
                match point.checked_sub(self.entries[index].factors.share()) {
                    Some(rest) => point = rest,
                    None => return Some(index),
                }
                marked &= marked - 1;
            }
        }
        // If shares have changed between the two visits, the first candidate found is picked.
        Some(first)
    }

    /// A member drawn by its share, if it is idle and may get the request; no other member has a lower cost then. While many
    /// members are idle, this avoids visiting the others, and idle members get requests in proportion to their shares. If there
    /// are more requests than members, few members are idle, so the draw is skipped.
    fn idle(
        &self,
        is_idle: impl Fn(&PoolEntry, Occupancy) -> bool,
        turns: &mut Turns<'_>,
    ) -> Option<usize> {
        if self.tally.in_flight() as usize > self.entries.len() {
            return None;
        }
        let index = self.at(point(turns.draw(), self.factors.shares()))?;
        let entry = &self.entries[index];
        let occupancy = entry.member.slots.get();
        (is_idle(entry, occupancy) && self.has_at(entry, occupancy)).then_some(index)
    }

    /// The member at a point in the range of all shares.
    fn at(&self, point: u64) -> Option<usize> {
        let after = self
            .entries
            .partition_point(|entry| entry.factors.shares_before() <= point);
        after.checked_sub(1)
    }

    /// The candidate with the fewest requests in flight in proportion to its weight.
    pub(crate) fn least_connections(&self, turns: &mut Turns<'_>) -> Option<usize> {
        let is_idle = |_: &PoolEntry, occupancy: Occupancy| occupancy.in_flight() == 0;
        let cost = |entry: &PoolEntry, occupancy: Occupancy| {
            u64::from(occupancy.in_flight()) * entry.factors.unit_cost()
        };
        self.idle(is_idle, turns)
            .or_else(|| self.cheapest(cost, turns))
    }

    /// The candidate on which the request is expected to finish first: after the work in flight and its own time, spread over
    /// the JRubies.
    pub(crate) fn least_load(&self, own_ms: u64, turns: &mut Turns<'_>) -> Option<usize> {
        let work = |entry: &PoolEntry| entry.member.expected_ms() * entry.factors.unit_cost();
        if self.factors.is_uneven() {
            let cost = |entry: &PoolEntry, _| work(entry) + own_ms * entry.factors.own_cost();
            return self.cheapest(cost, turns);
        }
        // The request's own time is the same on every member.
        self.idle(|entry, _| entry.member.expected_ms() == 0, turns)
            .or_else(|| self.cheapest(|entry, _| work(entry), turns))
    }

    /// Draws two members by weight and picks the less loaded one.
    ///
    /// A single draw would give a slow member its full share. Two draws keep requests away from it. Proxies that do not know of
    /// each other also do not all pick the same member, as they would if each picked the least loaded member of all.
    pub(crate) fn drawn(&self, random: u64) -> Option<usize> {
        let mut random = random;
        let first = self.draw(&mut random, None)?;
        match self.draw(&mut random, Some(first)) {
            Some(second) if self.entries[second].is_less_loaded_than(&self.entries[first]) => {
                Some(second)
            }
            _ => Some(first),
        }
    }

    /// Draws one member by weight, other than `without`. If the drawn member is not a candidate, it draws again. After
    /// [`DRAWS_MAX`] draws, it visits the candidates instead.
    fn draw(&self, random: &mut u64, without: Option<usize>) -> Option<usize> {
        let is_drawn = |index: usize| Some(index) != without && self.has(&self.entries[index]);
        for _ in 0..DRAWS_MAX {
            let index = self.at(below(*random, self.factors.shares()))?;
            *random = mix(*random ^ DRAW_SALT);
            if is_drawn(index) {
                return Some(index);
            }
        }
        self.draw_walking(*random, without)
    }

    #[cold]
    fn draw_walking(&self, random: u64, without: Option<usize>) -> Option<usize> {
        let candidates = || self.iter().filter(|(index, _)| Some(*index) != without);
        let mut point = below(
            random,
            candidates().map(|(_, entry)| entry.factors.share()).sum(),
        );
        let mut last = None;
        for (index, entry) in candidates() {
            last = Some(index);
            match point.checked_sub(entry.factors.share()) {
                Some(rest) => point = rest,
                None => break,
            }
        }
        last
    }

    /// The candidate with the highest rendezvous score for the key.
    pub(crate) fn most_wanted(&self, key: u64, weight_max: u64) -> Option<usize> {
        if !self.factors.by_load(self.tier)
            && let Some(index) = self.surely_most_wanted(key, |_| true)
            && self.has(&self.entries[index])
        {
            return Some(index);
        }
        let weight = |entry: &PoolEntry| u64::from(entry.weight_now());
        let weight = (weight_max * 100, weight);
        most_wanted(self.entries, key, weight, |entry| self.has(entry))
    }

    /// The member with the highest score among the `open` members, weighted by share. None: not all members are candidates, or
    /// the scores are too close for the fast comparison.
    #[inline]
    fn surely_most_wanted(&self, key: u64, open: impl Fn(&PoolEntry) -> bool) -> Option<usize> {
        let inverse_min = self.factors.inverse_min();
        if !self.any || inverse_min == 0 {
            return None;
        }
        surely_most_wanted(self.entries, key, inverse_min, open)
    }

    /// The candidate that a client with this hash stays with.
    pub(crate) fn stays(&self, hash: u64, weight_max: u64) -> Option<usize> {
        let weight = (weight_max, PoolEntry::lasting_weight);
        most_wanted(self.entries, hash, weight, |entry| self.has(entry))
    }

    /// The candidate with the highest score for the key among those whose load is within [`LOAD_BOUND`] of the mean,
    /// relative to their JRubies and weights.
    ///
    /// The mean is over all members that may get requests. It includes work that is still in flight on other members, which
    /// widens the bound. If no member is within the bound, or not all members are candidates, the mean over the candidates is
    /// used.
    pub(crate) fn most_wanted_within_bound(&self, key: u64) -> Option<usize> {
        let by_load = self.factors.by_load(self.tier);
        let load = |occupancy: Occupancy| {
            if by_load {
                occupancy.working()
            } else {
                occupancy.in_flight()
            }
        };
        if self.any {
            let loads = if by_load {
                self.tally.working()
            } else {
                self.tally.in_flight()
            };
            let shares = self.factors.open_shares();
            let index = self.most_wanted_below(key, loads.into(), shares, load);
            if index.is_some() {
                return index;
            }
        }
        let sum = |(shares, loads): (u64, u64), (_, entry): (usize, &PoolEntry)| {
            let load = load(entry.member.slots.get());
            (shares + entry.factors.share(), loads + u64::from(load))
        };
        let (shares, loads) = self.iter().fold((0, 0), sum);
        self.most_wanted_below(key, loads, shares, load)
    }

    fn most_wanted_below(
        &self,
        key: u64,
        loads: u64,
        shares: u64,
        load: impl Fn(Occupancy) -> u32,
    ) -> Option<usize> {
        let (numerator, denominator) = LOAD_BOUND;
        let most = (loads + 1) * numerator;
        let open = |entry: &PoolEntry| {
            let occupancy = entry.member.slots.get();
            let ours = u64::from(load(occupancy)) * denominator;
            u128::from(ours) * u128::from(shares)
                < u128::from(most) * u128::from(entry.factors.share())
                && self.has_at(entry, occupancy)
        };
        // While members are idle, it is enough to check the load of the member that is found.
        let surely = if loads < self.entries.len() as u64 {
            self.surely_most_wanted(key, |_| true)
        } else {
            self.surely_most_wanted(key, open)
        };
        if let Some(index) = surely
            && open(&self.entries[index])
        {
            return Some(index);
        }
        let weight = (self.factors.share_max(), |entry: &PoolEntry| {
            entry.factors.share()
        });
        most_wanted(self.entries, key, weight, open)
    }
}

/// Maps a number that is uniform over `u64` to a number below `bound`, without a division.
fn below(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

/// Number of members whose marks fit into one word.
const BLOCK: usize = 64;
/// Number of draws before the candidates are visited.
const DRAWS_MAX: usize = 8;
/// Makes a draw differ from the previous one.
const DRAW_SALT: u64 = 0x9e37_79b9_7f4a_7c15;
/// How far above the mean a member's load may be: 1.25 times. Above that, a certname goes to its next choice.
const LOAD_BOUND: (u64, u64) = (5, 4);
