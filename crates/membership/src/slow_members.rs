//! Which members of a pool are slow: those whose catalogs take much longer than their neighbours'.

use admin::SlowMember;

/// How often a member must have compiled a catalog in the window, so that it is compared.
pub(crate) const CATALOGS_MIN: u64 = 20;
/// The same for a member that counts as slow, and for its neighbours.
const CATALOGS_MIN_WHILE_SLOW: u64 = CATALOGS_MIN / 2;
/// A member is slow if its p95 is at least this many times the median of its neighbours.
const SLOW_FACTOR: u64 = 3;
/// It is slow no longer if its p95 is below this many times the median.
const SLOW_FACTOR_KEPT: u64 = 2;
/// A member whose p95 is below this is never slow. Operators do not notice such differences.
const SLOW_P95_MIN_MICROSECONDS: u64 = 500_000;

/// How long the catalogs of one member took in the window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CatalogTimes {
    pub(crate) catalogs: u64,
    pub(crate) p95_microseconds: u64,
    /// Whether the member counts as slow already.
    pub(crate) is_slow: bool,
}

/// For each member of a pool, in the same order, whether it is slow. Members without enough catalogs are not compared. The limits
/// for members that are slow already are lower, so that the result does not change back and forth.
pub(crate) fn slow_members(members: &[CatalogTimes]) -> Vec<Option<SlowMember>> {
    let sorted = |catalogs_min| {
        let compared = members
            .iter()
            .filter(|member| member.catalogs >= catalogs_min);
        let mut times: Vec<_> = compared.map(|member| member.p95_microseconds).collect();
        times.sort_unstable();
        times
    };
    let (all, all_while_slow) = (sorted(CATALOGS_MIN), sorted(CATALOGS_MIN_WHILE_SLOW));
    let slow = members.iter().map(|member| {
        let (catalogs_min, factor, times) = if member.is_slow {
            (CATALOGS_MIN_WHILE_SLOW, SLOW_FACTOR_KEPT, &all_while_slow)
        } else {
            (CATALOGS_MIN, SLOW_FACTOR, &all)
        };
        let p95 = member.p95_microseconds;
        if member.catalogs < catalogs_min || p95 < SLOW_P95_MIN_MICROSECONDS {
            return None;
        }
        let median = median_of_others(times, p95)?;
        (p95 >= median.saturating_mul(factor)).then_some(SlowMember {
            p95_milliseconds: p95 / 1_000,
            median_milliseconds: median / 1_000,
        })
    });
    slow.collect()
}

/// The median of sorted values without one occurrence of `own`. None: there are no other values.
fn median_of_others(sorted: &[u64], own: u64) -> Option<u64> {
    let at = sorted.partition_point(|value| *value < own);
    let other = |index: usize| {
        sorted
            .get(if index < at { index } else { index + 1 })
            .copied()
    };
    let others = sorted.len().checked_sub(1)?;
    let (low, high) = (other(others.checked_sub(1)? / 2)?, other(others / 2)?);
    Some(low.midpoint(high))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `members`: catalogs, p95 in milliseconds, and whether the member is slow already. `medians`: those of the slow members.
    #[track_caller]
    fn check(members: &[(u64, u64, bool)], medians: &[Option<u64>]) {
        let times = members.iter();
        let times: Vec<_> = times
            .map(|&(catalogs, milliseconds, is_slow)| CatalogTimes {
                catalogs,
                p95_microseconds: milliseconds * 1_000,
                is_slow,
            })
            .collect();
        let slow = slow_members(&times);
        let found = slow.iter().map(|slow| Some((*slow)?.median_milliseconds));
        assert_eq!(found.collect::<Vec<_>>(), medians, "{members:?}");
        for (slow, (_, milliseconds, _)) in slow.iter().zip(members) {
            assert!(slow.is_none_or(|slow| slow.p95_milliseconds == *milliseconds));
        }
    }

    #[test]
    fn a_member_is_slow_if_its_catalogs_take_three_times_as_long_as_its_neighbours() {
        check(
            &[(20, 12_000, false), (20, 3_000, false)],
            &[Some(3_000), None],
        );
        check(&[(20, 8_990, false), (20, 3_000, false)], &[None, None]);
        // Fast catalogs are never slow.
        check(&[(20, 490, false), (20, 5, false)], &[None, None]);
    }

    #[test]
    fn members_without_enough_catalogs_are_not_compared() {
        check(&[], &[]);
        check(&[(100, 12_000, false)], &[None]);
        check(&[(19, 12_000, false), (20, 3_000, false)], &[None, None]);
        check(&[(20, 12_000, false), (19, 3_000, false)], &[None, None]);
    }

    #[test]
    fn the_median_is_that_of_the_other_members() {
        let member = |milliseconds| (20, milliseconds, false);
        let three = [9_000, 1_000, 3_000, 8_000].map(member);
        check(&three, &[Some(3_000), None, None, None]);
        let four = [12_000, 2_000, 4_000, 13_000, 2_000].map(member);
        check(&four, &[Some(3_000), None, None, Some(3_000), None]);
    }

    #[test]
    fn a_slow_member_stays_slow_above_twice_the_median_and_with_half_as_many_catalogs() {
        check(
            &[(10, 6_000, true), (10, 3_000, false)],
            &[Some(3_000), None],
        );
        check(&[(20, 5_990, true), (20, 3_000, false)], &[None, None]);
        check(&[(9, 12_000, true), (20, 3_000, false)], &[None, None]);
    }
}
