//! Which alarms follow from which, and the order in which they are shown.

use std::{cmp::Reverse, collections::BTreeMap, time::SystemTime};

use super::{Alarm, Urgency};

/// One way in which an alarm follows from another one: it is not cleared before its cause is. Alarms that only occur together
/// have no link, so that none is hidden below another by mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CauseLink {
    /// The kind that follows.
    pub alarm: Alarm,
    /// The kind of its cause.
    pub cause: Alarm,
    /// Which alarms of these kinds are linked.
    pub condition: CauseCondition,
}

/// Which alarms of two linked kinds are linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CauseCondition {
    /// Each alarm of the kind that follows. The cause has this object, which may be empty.
    CauseIsAbout(&'static str),
    /// Those with the same object, such as a pool.
    SameObject,
    /// Those that the code that raises them marks, because it knows the cause ([`Alarms::note_cause`](super::Alarms::note_cause)).
    Noted,
}

impl CauseLink {
    const fn new(alarm: Alarm, cause: Alarm, condition: CauseCondition) -> Self {
        Self {
            alarm,
            cause,
            condition,
        }
    }

    /// Every link. If two causes of an alarm are active, the first link counts.
    pub const ALL: &'static [Self] = {
        use {
            Alarm::*,
            CauseCondition::{CauseIsAbout, Noted, SameObject},
        };
        &[
            Self::new(AgentsRefused, ClockOffset, Noted),
            Self::new(Trust, ClockOffset, Noted),
            Self::new(CaExpiring, ClockOffset, Noted),
            Self::new(CertificateInvalid, ClockOffset, Noted),
            Self::new(CertificateExpiring, ClockOffset, Noted),
            Self::new(AgentsExpiring, ClockOffset, Noted),
            Self::new(FleetClock, ClockOffset, CauseIsAbout("")),
            Self::new(PoolUnavailable, ClockOffset, Noted),
            Self::new(PoolUnavailable, DnsAnswer, Noted),
            Self::new(CertificateExpiring, CaExpiring, Noted),
            Self::new(AgentsExpiring, CaExpiring, Noted),
            Self::new(AuditLog, StateDirectory, Noted),
            Self::new(FleetDiffers, FleetUnreachable, Noted),
            Self::new(FleetDiffers, FleetNoSpace, Noted),
            Self::new(QueueFull, PoolUnavailable, SameObject),
            Self::new(CrlFetch, PoolUnavailable, CauseIsAbout("ca")),
            Self::new(CaCopy, PoolUnavailable, CauseIsAbout("ca")),
        ]
    };
}

/// The kind and the object of an alarm.
pub(super) type AlarmKey = (Alarm, String);

/// The facts about an active alarm that decide about its cause and its place.
pub(super) struct AlarmFacts<'a> {
    pub(super) urgency: Urgency,
    pub(super) since: SystemTime,
    /// The possible causes that the code that raises it has noted.
    pub(super) noted: &'a [AlarmKey],
}

/// An active alarm in the order in which alarms are shown.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OrderedAlarm {
    pub(super) key: AlarmKey,
    /// Its urgency, or that of the most urgent alarm that follows from it.
    pub(super) urgency: Urgency,
    pub(super) cause: Option<AlarmKey>,
}

/// The active alarm that is the cause of this one, if one is.
fn cause_of(
    active: &BTreeMap<&AlarmKey, AlarmFacts<'_>>,
    key: &AlarmKey,
    facts: &AlarmFacts<'_>,
) -> Option<AlarmKey> {
    let links = CauseLink::ALL.iter().filter(|link| link.alarm == key.0);
    let mut causes = links.filter_map(|link| match link.condition {
        CauseCondition::CauseIsAbout(about) => Some((link.cause, about.to_owned())),
        CauseCondition::SameObject => Some((link.cause, key.1.clone())),
        CauseCondition::Noted => {
            let mut noted = facts.noted.iter();
            let (_, begin) = noted.find(|(cause, _)| *cause == link.cause)?;
            let mut of_kind = active.keys().filter(|(of, _)| *of == link.cause);
            of_kind
                .find(|(_, about)| about.starts_with(begin))
                .map(|key| (*key).clone())
        }
    });
    causes.find(|cause| active.contains_key(cause))
}

/// The order in which active alarms are shown: each cause is followed by the alarms that follow from it. Otherwise critical
/// alarms come before warnings, and older ones before newer ones.
pub(super) fn ordered(active: &BTreeMap<&AlarmKey, AlarmFacts<'_>>) -> Vec<OrderedAlarm> {
    let mut followers = BTreeMap::<Option<AlarmKey>, Vec<&AlarmKey>>::new();
    for (key, facts) in active {
        let cause = cause_of(active, key, facts);
        followers.entry(cause).or_default().push(key);
    }
    let mut ordered = Vec::with_capacity(active.len());
    append(active, &mut followers, None, &mut ordered);
    ordered
}

/// Appends the alarms that follow from `cause`, each with those that follow from it. Returns the most urgent of them. Links
/// have no circle, which a test checks, so the depth is at most the number of kinds.
fn append(
    active: &BTreeMap<&AlarmKey, AlarmFacts<'_>>,
    followers: &mut BTreeMap<Option<AlarmKey>, Vec<&AlarmKey>>,
    cause: Option<&AlarmKey>,
    ordered: &mut Vec<OrderedAlarm>,
) -> Option<Urgency> {
    let cause = cause.cloned();
    let direct = followers.remove(&cause).unwrap_or_default();
    let mut groups: Vec<_> = direct
        .into_iter()
        .map(|key| {
            let facts = &active[key];
            let mut below = Vec::new();
            let urgency = append(active, followers, Some(key), &mut below);
            let urgency = urgency.map_or(facts.urgency, |below| below.max(facts.urgency));
            (urgency, facts.since, key, below)
        })
        .collect();
    groups.sort_by_key(|(urgency, since, ..)| (Reverse(*urgency), *since));
    let most = groups.first().map(|(urgency, ..)| *urgency);
    for (urgency, _, key, below) in groups {
        ordered.push(OrderedAlarm {
            key: key.clone(),
            urgency,
            cause: cause.clone(),
        });
        ordered.extend(below);
    }
    most
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use super::*;

    #[test]
    fn no_kind_follows_from_itself() {
        for alarm in Alarm::ALL {
            let mut reached = BTreeSet::new();
            let mut next = vec![*alarm];
            while let Some(from) = next.pop() {
                let links = CauseLink::ALL.iter().filter(|link| link.alarm == from);
                next.extend(
                    links
                        .map(|link| link.cause)
                        .filter(|cause| reached.insert(*cause)),
                );
            }
            assert!(!reached.contains(alarm), "{alarm:?}");
        }
    }

    #[test]
    fn causes_come_before_what_follows_then_critical_alarms_then_older_ones() {
        let clock = [(Alarm::ClockOffset, String::new())];
        let alarms: [(Alarm, &str, Urgency, u64, &[AlarmKey]); 8] = [
            (Alarm::AccessLog, "", Urgency::Warning, 1, &[]),
            (Alarm::DnsAnswer, "a", Urgency::Warning, 3, &[]),
            (Alarm::Descriptors, "process", Urgency::Critical, 2, &[]),
            (Alarm::PoolUnavailable, "ca", Urgency::Critical, 9, &[]),
            (Alarm::CrlFetch, "", Urgency::Warning, 4, &[]),
            (Alarm::ClockOffset, "", Urgency::Warning, 8, &[]),
            (Alarm::Trust, "CA a", Urgency::Warning, 5, &clock),
            (
                Alarm::CertificateInvalid,
                "a.pem",
                Urgency::Critical,
                7,
                &clock,
            ),
        ];
        let keys = alarms.map(|(alarm, about, ..)| (alarm, about.to_owned()));
        let facts = alarms.map(|(_, _, urgency, since, noted)| AlarmFacts {
            urgency,
            since: SystemTime::UNIX_EPOCH + Duration::from_secs(since),
            noted,
        });
        let shown: Vec<_> = ordered(&keys.iter().zip(facts).collect())
            .into_iter()
            .map(|alarm| {
                (
                    alarm.key.0,
                    alarm.urgency,
                    alarm.cause.map(|(cause, _)| cause),
                )
            })
            .collect();
        let (critical, warning) = (Urgency::Critical, Urgency::Warning);
        let clock = Some(Alarm::ClockOffset);
        let expected = [
            (Alarm::Descriptors, critical, None),
            // A critical alarm follows from it.
            (Alarm::ClockOffset, critical, None),
            (Alarm::CertificateInvalid, critical, clock),
            (Alarm::Trust, warning, clock),
            (Alarm::PoolUnavailable, critical, None),
            (Alarm::CrlFetch, warning, Some(Alarm::PoolUnavailable)),
            (Alarm::AccessLog, warning, None),
            (Alarm::DnsAnswer, warning, None),
        ];
        assert_eq!(shown, expected);
    }
}
