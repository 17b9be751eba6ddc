//! Whether the members' clocks agree with the proxy's. The proxy verifies certificates and CRLs by its own clock, which
//! may be wrong.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
    time::SystemTime,
};

use telemetry::{Alarm, Alarms};

/// Maximum difference between a member's clock and the proxy's, in seconds. Beyond it, a new certificate or CRL of one
/// host may not be valid yet on the other.
pub const CLOCK_OFFSET_MAX: u64 = 300;
/// A clock that differs counts as agreeing again when it is this many seconds below the maximum. `Date` has whole
/// seconds, so an offset at the maximum would raise and clear the alarm at every other probe.
const CLOCK_OFFSET_MARGIN: u64 = 10;
/// Maximum number of members that the alarm names. `proscenium status` shows all of them.
const NAMED_MAX: usize = 4;

/// A member's clock, by its last response with a `Date`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    /// The member's clock minus the proxy's.
    pub seconds: i64,
    /// Whether they differ by more than [`CLOCK_OFFSET_MAX`].
    pub differs: bool,
}

impl ClockOffset {
    pub(crate) fn measured(seconds: i64, before: Option<Self>) -> Self {
        let max = match before.is_some_and(|before| before.differs) {
            true => CLOCK_OFFSET_MAX - CLOCK_OFFSET_MARGIN,
            false => CLOCK_OFFSET_MAX,
        };
        Self {
            seconds,
            differs: seconds.unsigned_abs() > max,
        }
    }
}

/// Members whose clock differs and that were logged by name. The configured members bound its size.
#[derive(Debug, Default)]
pub(crate) struct LoggedClocks(Mutex<BTreeSet<String>>);

/// The result of comparing all members' clocks.
#[derive(Debug, PartialEq, Eq)]
enum Comparison {
    /// More than half of the clocks differ from the proxy's: the message of the alarm.
    ProxyInDoubt(String),
    /// The members whose clocks differ, with their offset in seconds; often none.
    MembersInDoubt(BTreeMap<String, i64>),
}

impl LoggedClocks {
    /// Raises or clears the alarm about the proxy's clock, and logs each member whose clock differs from the others.
    /// Nothing changes until each member has an offset.
    pub(crate) fn assess(
        &self,
        alarms: &Alarms,
        offsets: impl FnOnce() -> Option<BTreeMap<String, ClockOffset>>,
    ) {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(offsets) = offsets() else {
            return;
        };
        let (message, differing) = match compare(&offsets) {
            Comparison::ProxyInDoubt(message) => (Some(message), BTreeMap::new()),
            Comparison::MembersInDoubt(differing) => (None, differing),
        };
        alarms.assess(Alarm::ClockOffset, "", SystemTime::now(), || message);
        for (member, offset_seconds) in &differing {
            if logged.insert(member.clone()) {
                tracing::warn!(
                    %member,
                    offset_seconds,
                    "the member's clock differs from the proxy's by more than {CLOCK_OFFSET_MAX} s; check the member's clock"
                );
            }
        }
        logged.retain(|member| {
            let agrees = offsets.get(member).is_some_and(|offset| !offset.differs);
            if agrees {
                tracing::info!(%member, "the member's clock agrees with the proxy's again");
            }
            differing.contains_key(member)
        });
    }
}

fn compare(offsets: &BTreeMap<String, ClockOffset>) -> Comparison {
    let differing: BTreeMap<_, _> = offsets
        .iter()
        .filter(|(_, offset)| offset.differs)
        .map(|(member, offset)| (member.clone(), offset.seconds))
        .collect();
    if differing.len() * 2 <= offsets.len() {
        return Comparison::MembersInDoubt(differing);
    }
    let named = differing.iter().take(NAMED_MAX);
    let named: Vec<_> = named
        .map(|(member, seconds)| match *seconds > 0 {
            true => format!("{member} is {seconds} s ahead"),
            false => format!("{member} is {} s behind", seconds.unsigned_abs()),
        })
        .collect();
    let more = match differing.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    Comparison::ProxyInDoubt(format!(
        "the clocks of {} of {} members differ from the proxy's by more than {CLOCK_OFFSET_MAX} s: {}{more}; check the clock of \
         the proxy's host first (`timedatectl`, `chronyc tracking`), because the proxy verifies certificates and CRLs by it",
        differing.len(),
        offsets.len(),
        named.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(members: &[(&str, i64)]) -> BTreeMap<String, ClockOffset> {
        let members = members.iter();
        members
            .map(|(member, seconds)| (member.to_string(), ClockOffset::measured(*seconds, None)))
            .collect()
    }

    #[test]
    fn clocks_of_more_than_half_of_the_members_put_the_proxys_clock_in_doubt() {
        let doubtful = [
            (&[("a", -301)][..], "1 of 1", "a is 301 s behind"),
            (
                &[("a", 400), ("b", 0), ("c", 7200)],
                "2 of 3",
                "a is 400 s ahead, c is 7200 s ahead;",
            ),
            (
                &[("a", i64::MIN), ("b", i64::MAX)],
                "2 of 2",
                "a is 9223372036854775808 s behind",
            ),
            (
                &[
                    ("a", 900),
                    ("b", 900),
                    ("c", 900),
                    ("d", 900),
                    ("e", 900),
                    ("f", 900),
                ],
                "6 of 6",
                "d is 900 s ahead, and 2 more;",
            ),
        ];
        for (members, count, named) in doubtful {
            let Comparison::ProxyInDoubt(message) = compare(&offsets(members)) else {
                panic!("{members:?}");
            };
            assert!(
                message.contains(count) && message.contains(named),
                "{message}"
            );
        }
        let not_doubtful = [
            (&[][..], &[][..]),
            (&[("a", 300), ("b", -300)], &[]),
            (&[("a", 301), ("b", 0)], &[("a", 301)]),
            (&[("a", 0), ("b", -900), ("c", 12)], &[("b", -900)]),
        ];
        for (members, expected) in not_doubtful {
            let expected = expected.iter();
            let expected = expected.map(|(member, seconds)| (member.to_string(), *seconds));
            let comparison = compare(&offsets(members));
            assert_eq!(
                comparison,
                Comparison::MembersInDoubt(expected.collect()),
                "{members:?}"
            );
        }
    }

    #[test]
    fn an_offset_at_the_maximum_does_not_toggle_the_alarm() {
        let mut before = None;
        let seconds = [300, 301, 300, -291, 290, 291, 300, -301];
        let differs = seconds.map(|seconds| {
            let offset = ClockOffset::measured(seconds, before);
            before = Some(offset);
            offset.differs
        });
        assert_eq!(
            differs,
            [false, true, true, true, false, false, false, true]
        );
    }
}
