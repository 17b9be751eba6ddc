//! Conditions that need an operator: each is raised once and cleared once, as an event, in the status and as a metric.
//!
//! `kinds` declares every kind, and `causes` which alarms follow from which.

mod causes;
mod kinds;

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};

use causes::{AlarmFacts, AlarmKey, OrderedAlarm};
pub use causes::{CauseCondition, CauseLink};
pub use kinds::{Alarm, Urgency};

/// Every active alarm. The callers bound their number: there is one for each pool, CA and certificate of the configuration.
#[derive(Debug, Default)]
pub struct Alarms {
    active: Mutex<BTreeMap<AlarmKey, Raised>>,
}

/// A condition that was found, and that is to be an active alarm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundAlarm {
    /// Its kind.
    pub alarm: Alarm,
    /// Its object, as in [`ActiveAlarm::about`].
    pub about: String,
    /// A sentence for the operator.
    pub message: String,
    /// How urgent it is.
    pub urgency: Urgency,
}

/// One active alarm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveAlarm {
    /// Its kind.
    pub alarm: Alarm,
    /// The object of the alarm, such as the name of a pool. Empty if the kind has no object; the message if the object has no
    /// name.
    pub about: String,
    /// When it was raised.
    pub since: SystemTime,
    /// A sentence for the operator.
    pub message: String,
    /// How urgent it is. An alarm is at least as urgent as those that follow from it.
    pub urgency: Urgency,
    /// The key of the active alarm that is the cause of this one.
    pub caused_by: Option<String>,
}

#[derive(Debug)]
struct Raised {
    since: SystemTime,
    message: String,
    urgency: Urgency,
    /// Alarms that are the cause of this one while they are active, as kind and beginning of the object. There is at most one of
    /// each kind.
    causes: Vec<AlarmKey>,
    /// The message that was logged last, and when.
    logged: (String, SystemTime),
}

/// Minimum time between two events about an alarm whose message may change with each CRL.
const LOG_INTERVAL: Duration = Duration::from_secs(3600);

impl FoundAlarm {
    /// An alarm with the urgency of its kind.
    pub fn new(alarm: Alarm, about: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            alarm,
            about: about.into(),
            message: message.into(),
            urgency: alarm.urgency(),
        }
    }

    /// The same alarm as critical, if `is_critical`.
    #[must_use]
    pub fn critical_if(mut self, is_critical: bool) -> Self {
        if is_critical {
            self.urgency = Urgency::Critical;
        }
        self
    }
}

impl Alarms {
    /// Raises an alarm with the urgency of its kind, as [`raise_found`](Self::raise_found).
    pub fn raise(&self, alarm: Alarm, about: &str, message: String, now: SystemTime) {
        self.raise_found(FoundAlarm::new(alarm, about, message), now);
    }

    /// Raises an alarm. An active alarm with the same message stays as it is. With another message, it keeps its time and is
    /// logged again. The alarm about a CRL that drops revocations is logged at most once an hour, because a CA may drop entries
    /// with each CRL and the message has their number. An alarm that replaces a less severe one keeps the time of that alarm.
    pub fn raise_found(&self, found: FoundAlarm, now: SystemTime) {
        let mut active = self.active_map();
        let key = (found.alarm, found.about.clone());
        let Some(raised) = active.get_mut(&key) else {
            let milder = |raised: &(&AlarmKey, &Raised)| {
                raised.0.0.more_severe() == Some(found.alarm) && raised.0.1 == found.about
            };
            let milder = active.iter().find(milder);
            let since = milder.map_or(now, |(_, raised)| raised.since);
            active.insert(key, Raised::new(found, since, now));
            return;
        };
        if raised.is_event_due(found.alarm, &found.message, now) {
            found.log();
            raised.logged = (found.message.clone(), now);
        }
        raised.message = found.message;
        raised.urgency = found.urgency;
    }

    /// Clears an alarm; nothing happens if it is not active.
    pub fn clear(&self, alarm: Alarm, about: &str) {
        if let Some(raised) = self.active_map().remove(&(alarm, about.to_owned())) {
            alarm.log_cleared(about, &raised.message);
        }
    }

    /// Raises an alarm with the message that `find` returns, or clears it if there is none. `find` runs under the lock, so that
    /// the later result of two concurrent callers remains. `find` must not use alarms itself.
    pub fn assess(
        &self,
        alarm: Alarm,
        about: &str,
        now: SystemTime,
        find: impl FnOnce() -> Option<String>,
    ) {
        let mut active = self.active_map();
        let key = (alarm, about.to_owned());
        match (find(), active.get(&key).is_some()) {
            (Some(message), false) => {
                let found = FoundAlarm::new(alarm, about, message);
                active.insert(key, Raised::new(found, now, now));
            }
            (None, true) => {
                if let Some(raised) = active.remove(&key) {
                    alarm.log_cleared(about, &raised.message);
                }
            }
            _ => {}
        }
    }

    /// Makes those of `found` that have this kind the active alarms of the kind. All other alarms of the kind are cleared. No
    /// event logs that if a more severe alarm has replaced the cleared one.
    pub fn replace(&self, alarm: Alarm, found: &[FoundAlarm], now: SystemTime) {
        let of_kind = || found.iter().filter(|found| found.alarm == alarm);
        let is_wanted = |about: &str| of_kind().any(|wanted| wanted.about == about);
        let gone = self
            .active_map()
            .extract_if(.., |(of, about), _| *of == alarm && !is_wanted(about))
            .collect::<Vec<_>>();
        for ((_, about), raised) in gone {
            let worse = alarm.more_severe();
            if worse.is_none_or(|worse| self.get(worse, &about).is_none()) {
                alarm.log_cleared(&about, &raised.message);
            }
        }
        of_kind().for_each(|found| self.raise_found(found.clone(), now));
    }

    /// As [`note_cause`](Self::note_cause), for one alarm with its object.
    pub fn note_cause_of(&self, of: (Alarm, &str), cause: (Alarm, &str), follows: bool) {
        let (alarm, about) = of;
        if let Some(raised) = self.active_map().get_mut(&(alarm, about.to_owned())) {
            raised.note_cause(cause, follows);
        }
    }

    /// Notes which alarms of one kind have this cause, if the cause is active or becomes active; `follows` gets the object of
    /// each alarm. `cause` is a kind and the beginning of an object. [`CauseLink::ALL`] must link the kinds.
    pub fn note_cause(&self, alarm: Alarm, cause: (Alarm, &str), follows: impl Fn(&str) -> bool) {
        let mut active = self.active_map();
        let of_kind = active.iter_mut().filter(|((of, _), _)| *of == alarm);
        of_kind.for_each(|((_, about), raised)| raised.note_cause(cause, follows(about)));
    }

    /// The alarm, if it is active.
    pub fn get(&self, alarm: Alarm, about: &str) -> Option<ActiveAlarm> {
        let mut active = self.active().into_iter();
        active.find(|active| active.alarm == alarm && active.about == about)
    }

    /// All active alarms: each cause is followed by the alarms that follow from it. Otherwise critical alarms come before
    /// warnings, and older ones before newer ones.
    pub fn active(&self) -> Vec<ActiveAlarm> {
        let active = self.active_map();
        let facts = active.iter().map(|(key, raised)| {
            let facts = AlarmFacts {
                urgency: raised.urgency,
                since: raised.since,
                noted: &raised.causes,
            };
            (key, facts)
        });
        let ordered = causes::ordered(&facts.collect()).into_iter();
        let shown = ordered.map(
            |OrderedAlarm {
                 key,
                 urgency,
                 cause,
             }| {
                let raised = &active[&key];
                let caused_by =
                    cause.map(|cause| shown_key(cause.0, &cause.1, &active[&cause].message));
                ActiveAlarm {
                    alarm: key.0,
                    about: key.1,
                    since: raised.since,
                    message: raised.message.clone(),
                    urgency,
                    caused_by,
                }
            },
        );
        shown.collect()
    }

    /// A gauge for each kind of alarm and each severity, active or not, and others for alarms that follow from another kind.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let counts = Family::<AlarmLabels, Gauge>::default();
        let labels = |alarm: Alarm, urgency: Urgency, caused_by: &str| AlarmLabels {
            alarm: alarm.as_str(),
            severity: urgency.as_str(),
            caused_by: caused_by.to_owned(),
        };
        for alarm in Alarm::ALL {
            for urgency in Urgency::ALL {
                counts.get_or_create(&labels(*alarm, urgency, "")).set(0);
            }
        }
        for active in self.active() {
            let cause = active.caused_by.as_deref().unwrap_or_default();
            let (kind, _) = cause.split_once(':').unwrap_or((cause, ""));
            let labels = labels(active.alarm, active.urgency, kind);
            counts.get_or_create(&labels).inc();
        }
        let help = "Active alarms by kind and severity, and the kind of the alarm from which they follow, if any; proscenium status shows their messages";
        registry.register("alarms", help, counts);
    }

    fn active_map(&self) -> MutexGuard<'_, BTreeMap<AlarmKey, Raised>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Raised {
    /// Logs the alarm as raised.
    fn new(found: FoundAlarm, since: SystemTime, now: SystemTime) -> Self {
        found.log();
        let FoundAlarm {
            message, urgency, ..
        } = found;
        Self {
            since,
            logged: (message.clone(), now),
            message,
            urgency,
            causes: Vec::new(),
        }
    }

    fn note_cause(&mut self, (kind, about): (Alarm, &str), follows: bool) {
        self.causes.retain(|(of, _)| *of != kind);
        if follows {
            self.causes.push((kind, about.to_owned()));
        }
    }

    /// Whether the alarm is to be logged again with this new message.
    fn is_event_due(&self, alarm: Alarm, message: &str, now: SystemTime) -> bool {
        let (logged, at) = &self.logged;
        let interval = match alarm {
            Alarm::CrlShrunk | Alarm::AgentsExpiring => LOG_INTERVAL,
            _ => Duration::ZERO,
        };
        // A clock that was set back must not silence the alarm.
        let is_recent = now.duration_since(*at).is_ok_and(|age| age < interval);
        logged != message && !is_recent
    }
}

impl ActiveAlarm {
    /// The kind, followed by the object if it has a name: `pool-unavailable:compilers`.
    pub fn key(&self) -> String {
        shown_key(self.alarm, &self.about, &self.message)
    }
}

/// The key of an alarm in the status.
fn shown_key(alarm: Alarm, about: &str, message: &str) -> String {
    let word = alarm.as_str();
    match about.is_empty() || about == message {
        true => word.to_owned(),
        false => format!("{word}:{about}"),
    }
}

impl FoundAlarm {
    fn log(&self) {
        let (alarm, first_step) = (self.alarm.as_str(), self.alarm.first_step());
        let key = shown_key(self.alarm, &self.about, &self.message);
        match self.urgency {
            Urgency::Critical => tracing::error!(
                history.kind = "alarm",
                history.subject = key,
                alarm,
                first_step,
                "{}",
                self.message
            ),
            Urgency::Warning => tracing::warn!(
                history.kind = "alarm",
                history.subject = key,
                alarm,
                first_step,
                "{}",
                self.message
            ),
        }
    }
}

impl Alarm {
    fn log_cleared(self, about: &str, message: &str) {
        tracing::info!(
            history.kind = "alarm-cleared",
            history.subject = shown_key(self, about, message),
            alarm = self.as_str(),
            "cleared: {message}"
        );
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AlarmLabels {
    alarm: &'static str,
    severity: &'static str,
    caused_by: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn shown(alarms: &Alarms) -> Vec<(String, u64, String)> {
        let active = alarms.active().into_iter();
        active
            .map(|active| {
                let since = active.since.duration_since(at(0)).unwrap().as_secs();
                (active.key(), since, active.message)
            })
            .collect()
    }

    const CLOCK: (Alarm, &str) = (Alarm::ClockOffset, "");

    #[test]
    fn alarms_that_a_right_clock_would_end_are_shown_under_the_alarm_about_the_clock() {
        let alarms = Alarms::default();
        for about in ["a.pem", "b.pem"] {
            alarms.raise(Alarm::CertificateInvalid, about, about.into(), at(1));
        }
        let caused = || {
            let active = alarms.active().into_iter();
            active
                .map(|active| (active.about, active.caused_by))
                .collect::<Vec<_>>()
        };
        let none = [("a.pem".to_owned(), None), ("b.pem".to_owned(), None)];
        alarms.note_cause(Alarm::CertificateInvalid, CLOCK, |about| about == "a.pem");
        assert_eq!(caused(), none, "the clock is not in doubt");
        alarms.raise(Alarm::ClockOffset, "", "clock".into(), at(2));
        let a = ("a.pem".to_owned(), Some("clock-offset".to_owned()));
        let clock = (String::new(), None);
        assert_eq!(caused(), [none[1].clone(), clock, a]);
        alarms.note_cause(Alarm::CertificateInvalid, CLOCK, |_| false);
        assert_eq!(caused()[..2], none);
        alarms.note_cause(Alarm::CertificateInvalid, CLOCK, |_| true);
        alarms.clear(Alarm::ClockOffset, "");
        assert_eq!(caused(), none);
    }

    #[test]
    fn a_noted_cause_is_the_active_alarm_whose_object_begins_so() {
        let alarms = Alarms::default();
        let pool = (Alarm::PoolUnavailable, "b");
        alarms.raise(pool.0, pool.1, "no member".into(), at(1));
        alarms.note_cause_of(pool, (Alarm::DnsAnswer, "b: "), true);
        let cause = || {
            alarms
                .get(pool.0, pool.1)
                .and_then(|active| active.caused_by)
        };
        alarms.raise(Alarm::DnsAnswer, "a: c1", "no answer".into(), at(2));
        assert_eq!(cause(), None);
        alarms.raise(Alarm::DnsAnswer, "b: c1", "no answer".into(), at(3));
        assert_eq!(cause().as_deref(), Some("dns-answer:b: c1"));
        let urgencies: Vec<_> = alarms
            .active()
            .iter()
            .map(|active| active.urgency)
            .collect();
        let (critical, warning) = (Urgency::Critical, Urgency::Warning);
        assert_eq!(urgencies, [critical, critical, warning]);
        alarms.note_cause_of(pool, (Alarm::DnsAnswer, "b: "), false);
        assert_eq!(cause(), None);
    }

    #[test]
    fn an_alarm_keeps_its_time_until_it_is_cleared() {
        let alarms = Alarms::default();
        let key = "pool-unavailable:ca".to_owned();
        alarms.raise(Alarm::PoolUnavailable, "ca", "first".into(), at(1));
        alarms.raise(Alarm::PoolUnavailable, "ca", "second".into(), at(2));
        assert_eq!(shown(&alarms), [(key.clone(), 1, "second".to_owned())]);
        alarms.clear(Alarm::PoolUnavailable, "compilers");
        assert_eq!(alarms.active().len(), 1);
        alarms.clear(Alarm::PoolUnavailable, "ca");
        assert_eq!(shown(&alarms), []);
        alarms.raise(Alarm::PoolUnavailable, "ca", "third".into(), at(3));
        assert_eq!(shown(&alarms), [(key, 3, "third".to_owned())]);
    }

    #[test]
    fn a_changed_message_is_logged_again_and_about_a_crl_at_most_once_an_hour() {
        let logged = |alarms: &Alarms| -> String {
            let active = alarms.active_map();
            let raised = active.values().next().expect("it is active");
            raised.logged.0.clone()
        };
        for (alarm, expected) in [
            (Alarm::CrlShrunk, ["one", "one", "one", "three", "three"]),
            (
                Alarm::MaterialsRefused,
                ["one", "one", "two", "three", "four"],
            ),
        ] {
            let alarms = Alarms::default();
            let raised = [
                (1, "one"),
                (2, "one"),
                (3, "two"),
                (3_601, "three"),
                (7_200, "four"),
            ];
            for ((second, message), expected) in raised.into_iter().zip(expected) {
                alarms.raise(alarm, "", message.to_owned(), at(second));
                assert_eq!(logged(&alarms), expected, "{alarm:?} at {second} s");
                assert_eq!(shown(&alarms)[0].2, message, "the status shows the newest");
            }
            // A message that was not logged yet is logged later, even if it does not change again.
            alarms.raise(alarm, "", "four".to_owned(), at(7_201));
            assert_eq!(logged(&alarms), "four");
        }
    }

    #[test]
    fn replacing_one_kind_clears_the_rest_of_it_and_nothing_else() {
        let alarms = Alarms::default();
        alarms.raise(Alarm::CrlFetch, "", "no answer".into(), at(1));
        let named = |names: &[&str]| -> Vec<FoundAlarm> {
            let found = names.iter();
            found
                .map(|name| FoundAlarm::new(Alarm::Trust, *name, *name))
                .collect()
        };
        alarms.replace(Alarm::Trust, &named(&["a", "b"]), at(2));
        alarms.replace(Alarm::Trust, &named(&["b", "c"]), at(3));
        let expected = [
            ("crl-fetch", 1, "no answer"),
            ("trust", 2, "b"),
            ("trust", 3, "c"),
        ];
        let expected =
            expected.map(|(key, since, message)| (key.to_owned(), since, message.to_owned()));
        assert_eq!(shown(&alarms), expected);
    }

    #[test]
    fn an_alarm_that_becomes_more_severe_keeps_its_time() {
        let alarms = Alarms::default();
        let of = |alarm, words: &str| [FoundAlarm::new(alarm, "CRL CN=a", words)];
        alarms.replace(Alarm::Trust, &of(Alarm::Trust, "still used"), at(1));
        alarms.replace(
            Alarm::AgentsRefused,
            &of(Alarm::AgentsRefused, "refused"),
            at(2),
        );
        alarms.replace(Alarm::Trust, &[], at(2));
        let key = "agents-refused:CRL CN=a".to_owned();
        assert_eq!(shown(&alarms), [(key, 1, "refused".to_owned())]);
    }

    #[test]
    fn the_gauge_of_an_alarm_names_the_kind_of_its_cause() {
        let alarms = Alarms::default();
        alarms.raise(Alarm::ClockOffset, "", "the clock".into(), at(1));
        for ca in ["CA a", "CA b"] {
            alarms.raise(Alarm::Trust, ca, "expired".into(), at(2));
        }
        alarms.note_cause_of((Alarm::Trust, "CA a"), (Alarm::ClockOffset, ""), true);
        let mut registry = Registry::default();
        alarms.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("a String");
        for (alarm, cause, count) in [
            ("clock-offset", "", 1),
            ("trust", "", 1),
            ("trust", "clock-offset", 1),
            ("ca-expiring", "", 0),
        ] {
            let series = format!(
                "\nalarms{{alarm=\"{alarm}\",severity=\"warning\",caused_by=\"{cause}\"}} {count}\n"
            );
            assert!(text.contains(&series), "{series} in {text}");
        }
    }
}
