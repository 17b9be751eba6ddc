//! Weighted rendezvous hashing: each key ranks the members, and losing a member moves only the keys of that member.

use crate::hash::mix_nearly;
use crate::pool_entry::PoolEntry;

/// The member with the highest score for the key, among those that are `open`. `weight`: the maximum weight, and a function
/// that returns a member's weight.
///
/// The score is `weight / -ln(u)` with `u` uniform over (0, 1), so the probability that a member has the highest score is
/// proportional to its weight. Comparing hashes rules out most members, so few logarithms are computed. This is possible
/// because a larger `u` means a higher score for the same weight, and because `-ln(u)` lies between two close bounds:
/// `2 (1 - u) / (1 + u)` and `(1 - u) (1 + u) / 2u`.
pub(crate) fn most_wanted(
    entries: &[PoolEntry],
    key: u64,
    (weight_max, weight): (u64, impl Fn(&PoolEntry) -> u64),
    open: impl Fn(&PoolEntry) -> bool,
) -> Option<usize> {
    let mut best: Option<(usize, Score)> = None;
    let mut floor = 0;
    for (index, entry) in entries.iter().enumerate() {
        let mixed = mix_nearly(key ^ entry.address_hash);
        if mixed < floor {
            continue;
        }
        let score = Score::new(mixed ^ (mixed >> 31), weight(entry));
        let loses = best.as_ref().is_some_and(|(_, best)| !score.is_above(best));
        if !loses && open(entry) {
            floor = score.floor(weight_max);
            best = Some((index, score));
        }
    }
    best.map(|(index, _)| index)
}

/// The member that [`most_wanted`] returns if the weights are the members' shares. None: the best two scores are so close that
/// only [`most_wanted`] can decide, or no member is open. `inverse_min`: the smallest inverse of a share.
///
/// The winner has the smallest `-ln(u) / share`. This function compares `(1 - u) / share` instead, in integers.
#[inline]
pub(crate) fn surely_most_wanted(
    entries: &[PoolEntry],
    key: u64,
    inverse_min: u64,
    open: impl Fn(&PoolEntry) -> bool,
) -> Option<usize> {
    let (mut index, mut first, mut second) = (0, u64::MAX, u64::MAX);
    let mut rest = REST_MAX;
    for chunk in entries.chunks(CHUNK) {
        // A hash below this floor is not among the best two, even for the member with the largest share. The floor needs a
        // division, so it is computed once per chunk.
        let floor = match second / inverse_min {
            most if most < REST_MAX => !(most << REST_SHIFT | ((1 << REST_SHIFT) - 1)),
            _ => 0,
        };
        for entry in chunk {
            let mixed = mix_nearly(key ^ entry.address_hash);
            if mixed < floor {
                continue;
            }
            // 1 - u, rounded down.
            let scoreed = (!mixed >> REST_SHIFT) * entry.factors.inverse();
            if scoreed < second && open(entry) {
                second = scoreed.max(first);
                if scoreed < first {
                    (index, first, rest) = (entry.index, scoreed, !mixed >> REST_SHIFT);
                }
            }
        }
    }
    // With x for 1 - u, -ln(u) is at most x (2 - x) / (2 - 2x), which is at most x + 3/4 x² for x up to 1/3. The last term is a
    // margin for rounding.
    let is_small = (REST_ROUGH..REST_MAX / 3).contains(&rest);
    let most = || first + (first >> REST_BITS) * (rest - rest / 4) + (first >> 10);
    (is_small && most() < second).then_some(index as usize)
}

/// A member's score for a key.
#[derive(Clone, Copy)]
struct Score {
    drawn: u64,
    weight: f64,
    unit: f64,
}

impl Score {
    #[inline]
    fn new(hash: u64, weight: u64) -> Self {
        let drawn = hash >> (64 - DRAWN_BITS);
        Self {
            drawn,
            weight: weight as i64 as f64,
            unit: (drawn as i64 as f64 + 0.5) / (1_i64 << DRAWN_BITS) as f64,
        }
    }

    #[inline]
    fn is_above(&self, other: &Self) -> bool {
        if self.weight == other.weight {
            return self.drawn > other.drawn;
        }
        // Compares the bounds of both scores, multiplied by the same factor.
        let ours = self.weight * (1.0 - other.unit);
        let theirs = other.weight * (1.0 - self.unit);
        let bound = (1.0 + self.unit) * (1.0 + other.unit);
        if ours * bound <= 4.0 * other.unit * theirs {
            return false;
        }
        4.0 * self.unit * ours >= theirs * bound || self.strength() > other.strength()
    }

    /// The minimum hash, before the last mixing step, with which a member can still have the highest score. A member of at most
    /// `weight_max` with a smaller hash has a lower score. The last step leaves the 31 highest bits unchanged, and only these
    /// bits count here.
    #[inline]
    fn floor(&self, weight_max: u64) -> u64 {
        let criteria = 2.0 * self.weight * self.unit;
        let behind = weight_max as i64 as f64 * (1.0 - self.unit) * (1.0 + self.unit);
        if behind >= criteria {
            return 0;
        }
        // 31 bits, minus one for rounding.
        let highest = (1.0 - behind / criteria) * (1_i64 << 31) as f64;
        ((highest as i64 as u64) << 33).saturating_sub(1 << 33)
    }

    fn strength(&self) -> f64 {
        self.weight / -self.unit.ln()
    }
}

/// Number of members between two computations of the floor.
const CHUNK: usize = 16;
/// Number of the highest bits of a hash that the last mixing step does not change.
const REST_BITS: u32 = 31;
const REST_SHIFT: u32 = 64 - REST_BITS;
const REST_MAX: u64 = 1 << REST_BITS;
/// From this value on, the rounding error of `1 - u` is below the margin.
const REST_ROUGH: u64 = 1 << 12;
/// One bit fewer than an `f64` can store, so that adding one half is exact and `u` is never 0 or 1.
const DRAWN_BITS: u32 = f64::MANTISSA_DIGITS - 1;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::{key_hash, mix};
    use crate::pool::Pool;
    use crate::registry::Registry;
    use crate::settings::{Algorithm, MemberSettings, PoolSettings};

    /// Neither the fast comparison nor the floor leaves out the member that the definition selects.
    #[test]
    fn the_fast_comparison_agrees_with_the_definition_or_gives_no_result() {
        for (members, weight_max) in [(1, 1), (2, 3), (10, 3), (40, 1_000), (100, 2), (300, 7)] {
            let mut settings = PoolSettings::new("p");
            settings.algorithm = Algorithm::SourceHash;
            settings.check.kind = crate::settings::CheckKind::None;
            settings.members = (0..members)
                .map(|n| MemberSettings {
                    weight: 1 + mix(n) as u32 % weight_max,
                    ..MemberSettings::new(&format!("c{n}.example.com:8140"))
                })
                .collect();
            let pool = Pool::new(&settings, 128, &Registry::default());
            let criteria = |n: u64| crate::PickCriteria {
                source: Some(key_hash(&n.to_le_bytes())),
                ..crate::PickCriteria::default()
            };
            let inverse_min = pool.inverse_min();
            let mut sure = 0;
            for n in 0..5_000_u64 {
                let key = key_hash(&n.to_le_bytes());
                let strength = |entry: &PoolEntry| {
                    Score::new(mix(key ^ entry.address_hash), entry.weight.into()).strength()
                };
                let best = pool
                    .entries()
                    .iter()
                    .max_by(|a, b| strength(a).total_cmp(&strength(b)))
                    .map(|entry| entry.index as usize);
                let weight = (weight_max.into(), PoolEntry::lasting_weight);
                assert_eq!(most_wanted(pool.entries(), key, weight, |_| true), best);
                let quick = surely_most_wanted(pool.entries(), key, inverse_min, |_| true);
                assert!(
                    quick.is_none() || quick == best,
                    "{members} {weight_max} {n}"
                );
                sure += u32::from(quick.is_some());
                let picked = pool.pick(&[], criteria(n), std::time::Duration::ZERO);
                assert_eq!(picked.ok().map(|lease| lease.index()), best);
            }
            assert!(members < 10 || sure > 4_000, "{members}: {sure}");
        }
    }
}
