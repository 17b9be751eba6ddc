//! Whether the proxy's clock is wrong, which matters because the proxy verifies certificates and CRLs by it. The members'
//! clocks decide. If no member's clock is known, the dates of certificates and CRLs decide.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use telemetry::{Alarm, Alarms};

/// Maximum difference between a member's clock and the proxy's, in seconds. With a larger difference, a new certificate or CRL
/// of one host may not be valid yet on the other.
pub const CLOCK_OFFSET_MAX: u64 = 300;
/// A clock that differs counts as agreeing again when its offset is this many seconds below the maximum. `Date` has whole
/// seconds, so without this margin an offset at the maximum would raise and clear the alarm at every other probe.
const CLOCK_OFFSET_MARGIN: u64 = 10;
/// Maximum number of members that the alarm names. `proscenium status` shows all of them.
const NAMED_MAX: usize = 4;

/// The offset of a member's clock, from its last response with a `Date`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    /// The member's clock minus the proxy's.
    pub seconds: i64,
    /// Whether the clocks differ by more than [`CLOCK_OFFSET_MAX`].
    pub differs: bool,
}

/// The offset of a member's clock, and whether the last probe has measured it. The offset of a member that no longer answers
/// may be from before a change of the proxy's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemberClock {
    pub(crate) offset: ClockOffset,
    pub(crate) is_current: bool,
}

/// Evidence about the proxy's clock: how the dates of certificates and CRLs compare with it. The certificates are those of the
/// proxy, of CAs and of agents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DateEvidence {
    /// Objects that are valid only from a time in the future, with the seconds until then. All certificates of agents count as
    /// one, because one CA with a wrong clock may have issued them.
    pub future: BTreeMap<String, u64>,
    /// How many objects have expired.
    pub expired: usize,
    /// How many objects have not expired.
    pub unexpired: usize,
    /// Seconds since the most recent object was issued.
    pub last_issued_ago: u64,
}

/// Minimum number of dates in the future. With fewer, a CA's clock or the operator who replaced one object is a more likely
/// cause.
const FUTURE_MIN: usize = 2;
/// Minimum number of expired objects: a certificate, its CA and its CRL.
const EXPIRED_MIN: usize = 3;

impl DateEvidence {
    /// The error of the clock, if it would explain these dates: the seconds to add, and a sentence.
    fn explained(&self) -> Option<(i64, String)> {
        let future = self.future.iter();
        let future: Vec<_> = future
            .filter(|(_, seconds)| **seconds > CLOCK_OFFSET_MAX)
            .collect();
        let seconds = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX);
        if future.len() >= FUTURE_MIN {
            let named = future.iter().take(NAMED_MAX);
            let named: Vec<_> = named.map(|(name, _)| name.as_str()).collect();
            let behind = future.iter().map(|(_, seconds)| **seconds).max();
            let behind = behind.unwrap_or_default();
            return Some((
                seconds(behind),
                format!(
                    "the clock of this host is probably at least {behind} s behind, because several certificates or CRLs are not valid yet: {}{}; {CHECK_CLOCK}, then that of the CA server",
                    named.join(", "),
                    and_more(future.len())
                ),
            ));
        }
        (self.unexpired == 0 && self.expired >= EXPIRED_MIN).then(|| {
            (
                -seconds(self.last_issued_ago),
                format!(
                    "the clock of this host is probably ahead, because all {} certificates of this proxy, CAs and CRLs have expired; {CHECK_CLOCK}. If it is right, renew them",
                    self.expired
                ),
            )
        })
    }
}

/// The first advice when a clock is in doubt.
const CHECK_CLOCK: &str =
    "check the clock of the proxy's host first (`timedatectl`, `chronyc tracking`)";

/// The end of a list of `count` members, of which only [`NAMED_MAX`] are named.
fn and_more(count: usize) -> String {
    match count.saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(", and {more} more"),
    }
}

impl ClockOffset {
    pub(crate) fn measured(seconds: i64, before: Option<Self>) -> Self {
        let max = if before.is_some_and(|before| before.differs) {
            CLOCK_OFFSET_MAX - CLOCK_OFFSET_MARGIN
        } else {
            CLOCK_OFFSET_MAX
        };
        Self {
            seconds,
            differs: seconds.unsigned_abs() > max,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Clocks(Mutex<KnownClocks>);

#[derive(Debug, Default)]
struct KnownClocks {
    /// Members whose clock differs and was logged. The number of configured members bounds its size.
    logged: BTreeSet<String>,
    dates: DateEvidence,
    /// Seconds to add to the proxy's clock, if it is in doubt.
    correction: Option<i64>,
}

/// The result of comparing all members' clocks.
#[derive(Debug, PartialEq, Eq)]
enum Comparison {
    /// The proxy's clock is probably wrong: the message of the alarm, and how many seconds to add to the clock.
    ProxyInDoubt(String, i64),
    /// The members whose clocks differ, with their offsets in seconds. Often there are none.
    MembersInDoubt(BTreeMap<String, i64>),
}

impl Clocks {
    pub(crate) fn note_dates(&self, dates: DateEvidence) {
        self.known().dates = dates;
    }

    /// Seconds to add to the proxy's clock, if it is in doubt.
    pub(crate) fn correction(&self) -> Option<i64> {
        self.known().correction
    }

    fn known(&self) -> MutexGuard<'_, KnownClocks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Raises or clears the alarm about the proxy's clock, and logs each member whose clock differs from the others. Changes
    /// nothing until each member has been probed. Returns whether the correction has changed by more than [`CLOCK_OFFSET_MAX`].
    pub(crate) fn assess(
        &self,
        alarms: &Alarms,
        offsets: impl FnOnce() -> Option<BTreeMap<String, MemberClock>>,
    ) -> bool {
        let mut known = self.known();
        let Some(offsets) = offsets() else {
            return false;
        };
        let (message, correction, differing) = match compare(&offsets, &known.dates) {
            Comparison::ProxyInDoubt(message, correction) => {
                (Some(message), Some(correction), BTreeMap::new())
            }
            Comparison::MembersInDoubt(differing) => (None, None, differing),
        };
        let has_changed = match (known.correction, correction) {
            (None, None) => false,
            (Some(before), Some(now)) => before.abs_diff(now) > CLOCK_OFFSET_MAX,
            _ => true,
        };
        if has_changed {
            known.correction = correction;
        }
        let logged = &mut known.logged;
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
            let agrees = offsets
                .get(member)
                .is_some_and(|clock| !clock.offset.differs);
            if agrees {
                tracing::info!(%member, "the member's clock agrees with the proxy's again");
            }
            differing.contains_key(member)
        });
        has_changed
    }
}

/// Decides by the members' clocks. If too few differ and none currently agrees, the dates decide.
fn compare(clocks: &BTreeMap<String, MemberClock>, dates: &DateEvidence) -> Comparison {
    let differing: BTreeMap<_, _> = clocks
        .iter()
        .filter(|(_, clock)| clock.offset.differs)
        .map(|(member, clock)| (member.clone(), clock.offset.seconds))
        .collect();
    if differing.len() * 2 <= clocks.len() {
        let mut clocks = clocks.values();
        let is_confirmed = clocks.any(|clock| clock.is_current && !clock.offset.differs);
        return match dates.explained().filter(|_| !is_confirmed) {
            Some((correction, message)) => Comparison::ProxyInDoubt(message, correction),
            None => Comparison::MembersInDoubt(differing),
        };
    }
    let mut seconds: Vec<_> = differing.values().copied().collect();
    seconds.sort_unstable();
    let correction = seconds[seconds.len() / 2];
    let named = differing.iter().take(NAMED_MAX);
    let named: Vec<_> = named
        .map(|(member, seconds)| {
            if *seconds > 0 {
                format!("{member} is {seconds} s ahead")
            } else {
                format!("{member} is {} s behind", seconds.unsigned_abs())
            }
        })
        .collect();
    let message = format!(
        "the clocks of {} of {} members differ from the proxy's by more than {CLOCK_OFFSET_MAX} s: {}{}; {CHECK_CLOCK}, because \
         the proxy verifies certificates and CRLs by it",
        differing.len(),
        clocks.len(),
        named.join(", "),
        and_more(differing.len())
    );
    Comparison::ProxyInDoubt(message, correction)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clocks(members: &[(&str, i64)]) -> BTreeMap<String, MemberClock> {
        let clock = |seconds: i64| MemberClock {
            offset: ClockOffset::measured(seconds, None),
            is_current: true,
        };
        let members = members.iter();
        members
            .map(|(member, seconds)| (member.to_string(), clock(*seconds)))
            .collect()
    }

    fn future(names: &[(&str, u64)]) -> DateEvidence {
        let names = names.iter();
        DateEvidence {
            future: names.map(|(name, at)| (name.to_string(), *at)).collect(),
            unexpired: 3,
            ..DateEvidence::default()
        }
    }

    fn expired(expired: usize, unexpired: usize) -> DateEvidence {
        DateEvidence {
            expired,
            unexpired,
            last_issued_ago: 4 * YEAR,
            ..DateEvidence::default()
        }
    }

    const DAY: u64 = 86_400;
    const YEAR: u64 = 365 * DAY;

    #[test]
    fn dates_put_the_proxys_clock_in_doubt_if_no_clock_of_a_member_confirms_it() {
        let (own, ca, crl, agents) = (
            "certificate a.pem",
            "CA CN=x",
            "the CRL of CN=x",
            "5 agents",
        );
        let years = future(&[(own, YEAR), (ca, 2 * YEAR), (crl, 3 * YEAR)]);
        let check = |case: &str, dates: &DateEvidence, members: &[(&str, i64)], expected| {
            let correction = match compare(&clocks(members), dates) {
                Comparison::ProxyInDoubt(message, correction) => {
                    assert!(message.contains("timedatectl"), "{case}: {message}");
                    Some(correction)
                }
                Comparison::MembersInDoubt(_) => None,
            };
            assert_eq!(correction, expected, "{case}");
        };
        let alone = |case: &str, dates: &DateEvidence, expected| check(case, dates, &[], expected);
        alone("the clock is years behind", &years, Some(3 * YEAR as i64));
        alone(
            "a CRL and agents of last week",
            &future(&[(crl, 9 * DAY), (agents, 301)]),
            Some(9 * DAY as i64),
        );
        alone(
            "two certificates of the proxy",
            &future(&[(own, DAY), ("certificate b.pem", 2 * DAY)]),
            Some(2 * DAY as i64),
        );
        alone(
            "one certificate that begins later",
            &future(&[(own, 30 * DAY)]),
            None,
        );
        alone("one CA that begins later", &future(&[(ca, 30 * DAY)]), None);
        alone(
            "one CRL from a CA that is a day ahead",
            &future(&[(crl, DAY)]),
            None,
        );
        alone(
            "agents of a CA that is a day ahead",
            &future(&[(agents, DAY)]),
            None,
        );
        alone(
            "a CRL from a CA that is two minutes ahead",
            &future(&[(crl, 120)]),
            None,
        );
        alone(
            "all of them, two minutes ahead",
            &future(&[(crl, 120), (own, 120), (agents, 300)]),
            None,
        );
        alone(
            "one beyond the maximum",
            &future(&[(crl, 300), (own, 301)]),
            None,
        );
        alone(
            "the clock is years ahead",
            &expired(3, 0),
            Some(-4 * YEAR as i64),
        );
        alone("all has expired but the CRL", &expired(5, 1), None);
        alone("a certificate and its CRL", &expired(2, 0), None);
        alone("no dates", &expired(0, 0), None);
        check("members confirm it", &years, &[("a", 0), ("b", 20)], None);
        check("one confirms it", &years, &[("a", 0), ("b", 900)], None);
        check(
            "members confirm that all has expired",
            &expired(4, 0),
            &[("a", 2)],
            None,
        );
        check(
            "members know better",
            &expired(4, 0),
            &[("a", -7200), ("b", -7300), ("c", 0)],
            Some(-7200),
        );
    }

    #[test]
    fn offsets_from_before_a_jump_of_the_proxys_clock_do_not_confirm_it() {
        let years = future(&[("certificate a.pem", YEAR), ("CA CN=x", 2 * YEAR)]);
        let mut stale = clocks(&[("a", 0), ("b", 0)]);
        stale
            .values_mut()
            .for_each(|clock| clock.is_current = false);
        assert!(matches!(
            compare(&stale, &years),
            Comparison::ProxyInDoubt(..)
        ));
        assert!(matches!(
            compare(&stale, &expired(0, 3)),
            Comparison::MembersInDoubt(_)
        ));
    }

    #[test]
    fn a_correction_is_kept_while_the_clocks_differ_by_about_the_same() {
        let (known, alarms) = (Clocks::default(), Alarms::default());
        for (seconds, expected) in [
            (7200, true),
            (7201, false),
            (7600, true),
            (0, true),
            (1, false),
        ] {
            let changed = known.assess(&alarms, || Some(clocks(&[("a", seconds)])));
            assert_eq!(changed, expected, "{seconds}");
        }
        known.assess(&alarms, || Some(clocks(&[("a", -900)])));
        assert_eq!(known.correction(), Some(-900));
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
            let Comparison::ProxyInDoubt(message, _) =
                compare(&clocks(members), &DateEvidence::default())
            else {
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
            let comparison = compare(&clocks(members), &DateEvidence::default());
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
