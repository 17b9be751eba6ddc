//! Conditions that need an operator: each is raised once and cleared once, as an event, in the status and as a metric.

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

use crate::syslog::Severity;

/// What an alarm is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Alarm {
    /// No member of a pool is available.
    PoolUnavailable,
    /// The queue of a pool is full and refuses requests whose refusal makes an agent's run fail.
    QueueFull,
    /// A CA or a CRL has expired, is missing or does not fit the others.
    Trust,
    /// Every certificate of a CA is refused, because of its dates or those of its CRL, or because it has no CRL.
    AgentsRefused,
    /// No CRL can be fetched from the CA.
    CrlFetch,
    /// A CRL drops revocations, which stay active.
    CrlShrunk,
    /// A CRL or a decision about one, fetched or stored, cannot be used.
    CrlUnusable,
    /// No current copy of the CA's certificates can be fetched.
    CaCopy,
    /// Changed materials on disk are not active.
    MaterialsRefused,
    /// A reload was refused, so the files on disk are not the active configuration.
    ReloadRefused,
    /// Settings or a program on disk take effect only after a restart.
    RestartPending,
    /// The kernel does not report changes of materials.
    MaterialsWatch,
    /// The CA renewed a certificate other than the agent's.
    RenewalOff,
    /// Verified agents request renewals of their certificates and get none, or the CA refuses the requests.
    RenewalsRefused,
    /// Certificates of agents that were seen in the last day expire soon.
    AgentsExpiring,
    /// A CA of the bundle expires soon, and with it every certificate that it issued.
    CaExpiring,
    /// One of the proxy's own certificates expires soon.
    CertificateExpiring,
    /// One of the proxy's own certificates has expired, is not valid yet, or is revoked.
    CertificateInvalid,
    /// Changes do not survive a restart.
    StateDirectory,
    /// The administrative states that members had before the start cannot be read.
    MemberStates,
    /// The proxy's clock is wrong, according to the clocks of most members or to the dates of certificates and CRLs.
    ClockOffset,
    /// A member reports an impossible number of JRubies.
    JrubyCount,
    /// A DNS name in a pool's members has no valid answer.
    DnsAnswer,
    /// Certificates with the same certname, from CAs that do not sign each other, are used in turn.
    CertnameOfTwoCas,
    /// A member of a passthrough pool has the same address as a member of another pool that gets identity headers.
    PassthroughMember,
    /// File descriptors, socket memory or local ports are used up, or so many clients are connected that others wait.
    Descriptors,
    /// Access records cannot be written, or an access log cannot be reopened.
    AccessLog,
    /// An operator's change cannot be written to the audit log.
    AuditLog,
    /// The fleet's store has been unreachable for a minute.
    FleetUnreachable,
    /// A key in the fleet's store is ignored.
    FleetRecord,
    /// The fleet's store lost records, which the proxies put back.
    FleetStoreOlder,
    /// The fleet's store is full and accepts no change.
    FleetNoSpace,
    /// The proxy's clock differs from the clocks of most other proxies of the fleet.
    FleetClock,
    /// A drain by another proxy is withheld, because it would take the last available member out of a pool.
    FleetLastMember,
    /// The proxies of the fleet have differed from each other for a long time.
    FleetDiffers,
}

/// Every active alarm. The callers bound their number: there is one for each pool, CA and certificate of the configuration.
#[derive(Debug, Default)]
pub struct Alarms {
    active: Mutex<BTreeMap<(Alarm, String), Raised>>,
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
    /// The active alarm that is the cause of this one.
    pub caused_by: Option<Alarm>,
}

#[derive(Debug)]
struct Raised {
    since: SystemTime,
    message: String,
    /// Whether the alarm would not be active if the clock were right.
    follows_from_clock: bool,
    /// The message that was logged last, and when.
    logged: (String, SystemTime),
}

/// Minimum time between two events about an alarm whose message may change with each CRL.
const LOG_INTERVAL: Duration = Duration::from_secs(3600);

impl Alarms {
    /// Raises an alarm. An active alarm with the same message stays as it is. With another message, it keeps its time and is
    /// logged again. The alarm about a CRL that drops revocations is logged at most once an hour, because a CA may drop entries
    /// with each CRL and the message has their number. An alarm that replaces a less severe one keeps the time of that alarm.
    pub fn raise(&self, alarm: Alarm, about: &str, message: String, now: SystemTime) {
        let mut active = self.active_map();
        let key = (alarm, about.to_owned());
        let since = match active.get_mut(&key) {
            Some(raised) => {
                if raised.is_event_due(alarm, &message, now) {
                    alarm.log_raised(&message);
                    raised.logged = (message.clone(), now);
                }
                raised.message = message;
                return;
            }
            None => {
                let milder = |raised: &(&(Alarm, String), &Raised)| {
                    raised.0.0.more_severe() == Some(alarm) && raised.0.1 == about
                };
                let milder = active.iter().find(milder);
                milder.map_or(now, |(_, raised)| raised.since)
            }
        };
        alarm.log_raised(&message);
        let logged = (message.clone(), now);
        active.insert(
            key,
            Raised {
                since,
                message,
                follows_from_clock: false,
                logged,
            },
        );
    }

    /// Clears an alarm; nothing happens if it is not active.
    pub fn clear(&self, alarm: Alarm, about: &str) {
        if let Some(raised) = self.active_map().remove(&(alarm, about.to_owned())) {
            alarm.log_cleared(&raised.message);
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
                alarm.log_raised(&message);
                let logged = (message.clone(), now);
                active.insert(
                    key,
                    Raised {
                        since: now,
                        message,
                        follows_from_clock: false,
                        logged,
                    },
                );
            }
            (None, true) => {
                if let Some(raised) = active.remove(&key) {
                    alarm.log_cleared(&raised.message);
                }
            }
            _ => {}
        }
    }

    /// Makes these the active alarms of one kind; `wanted` has the object and the message of each. All other alarms of that
    /// kind are cleared. No event logs that if a more severe alarm has replaced the cleared one.
    pub fn replace(&self, alarm: Alarm, wanted: &[(String, String)], now: SystemTime) {
        let is_wanted = |about: &str| wanted.iter().any(|(wanted, _)| wanted == about);
        let gone = self
            .active_map()
            .extract_if(.., |(of, about), _| *of == alarm && !is_wanted(about))
            .collect::<Vec<_>>();
        for ((_, about), raised) in gone {
            let worse = alarm.more_severe();
            if worse.is_none_or(|worse| self.get(worse, &about).is_none()) {
                alarm.log_cleared(&raised.message);
            }
        }
        for (about, message) in wanted {
            self.raise(alarm, about, message.clone(), now);
        }
    }

    /// Notes which alarms of one kind would not be active if the clock were right; `follows` gets the object of each alarm.
    /// While the alarm about the clock is active, it is shown as their cause.
    pub fn note_clock(&self, alarm: Alarm, follows: impl Fn(&str) -> bool) {
        for ((of, about), raised) in self.active_map().iter_mut() {
            if *of == alarm {
                raised.follows_from_clock = follows(about);
            }
        }
    }

    /// The alarm, if it is active.
    pub fn get(&self, alarm: Alarm, about: &str) -> Option<ActiveAlarm> {
        let active = self.active_map();
        let raised = active.get(&(alarm, about.to_owned()))?;
        Some(raised.shown(alarm, about, is_clock_wrong(&active)))
    }

    /// All active alarms, by kind.
    pub fn active(&self) -> Vec<ActiveAlarm> {
        let active = self.active_map();
        let is_clock_wrong = is_clock_wrong(&active);
        let shown = active.iter();
        shown
            .map(|((alarm, about), raised)| raised.shown(*alarm, about, is_clock_wrong))
            .collect()
    }

    /// A gauge for each kind of alarm, active or not.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let counts = Family::<AlarmLabels, Gauge>::default();
        let active = self.active_map();
        for alarm in Alarm::ALL {
            let count = active.keys().filter(|(of, _)| *of == alarm).count();
            let labels = AlarmLabels {
                alarm: alarm.as_str(),
            };
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            counts.get_or_create(&labels).set(count);
        }
        let help = "Active alarms by kind; proscenium status shows their messages";
        registry.register("alarms", help, counts);
    }

    fn active_map(&self) -> MutexGuard<'_, BTreeMap<(Alarm, String), Raised>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Raised {
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

    fn shown(&self, alarm: Alarm, about: &str, is_clock_wrong: bool) -> ActiveAlarm {
        let follows = self.follows_from_clock && is_clock_wrong;
        ActiveAlarm {
            alarm,
            about: about.to_owned(),
            since: self.since,
            message: self.message.clone(),
            caused_by: follows.then_some(Alarm::ClockOffset),
        }
    }
}

fn is_clock_wrong(active: &BTreeMap<(Alarm, String), Raised>) -> bool {
    active.contains_key(&(Alarm::ClockOffset, String::new()))
}

impl ActiveAlarm {
    /// The kind, followed by the object if it has a name: `pool-unavailable:compilers`.
    pub fn key(&self) -> String {
        if self.about.is_empty() || self.about == self.message {
            self.alarm.as_str().to_owned()
        } else {
            format!("{}:{}", self.alarm.as_str(), self.about)
        }
    }
}

impl Alarm {
    /// Every kind.
    pub const ALL: [Self; 35] = [
        Self::PoolUnavailable,
        Self::QueueFull,
        Self::Trust,
        Self::AgentsRefused,
        Self::CrlFetch,
        Self::CrlShrunk,
        Self::CrlUnusable,
        Self::CaCopy,
        Self::MaterialsRefused,
        Self::ReloadRefused,
        Self::RestartPending,
        Self::MaterialsWatch,
        Self::RenewalOff,
        Self::RenewalsRefused,
        Self::AgentsExpiring,
        Self::CaExpiring,
        Self::CertificateExpiring,
        Self::CertificateInvalid,
        Self::StateDirectory,
        Self::MemberStates,
        Self::ClockOffset,
        Self::JrubyCount,
        Self::DnsAnswer,
        Self::CertnameOfTwoCas,
        Self::PassthroughMember,
        Self::Descriptors,
        Self::AccessLog,
        Self::AuditLog,
        Self::FleetUnreachable,
        Self::FleetRecord,
        Self::FleetStoreOlder,
        Self::FleetNoSpace,
        Self::FleetClock,
        Self::FleetLastMember,
        Self::FleetDiffers,
    ];

    /// The word in events, in the status and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PoolUnavailable => "pool-unavailable",
            Self::QueueFull => "queue-full",
            Self::Trust => "trust",
            Self::AgentsRefused => "agents-refused",
            Self::CrlFetch => "crl-fetch",
            Self::CrlShrunk => "crl-shrunk",
            Self::CrlUnusable => "crl-unusable",
            Self::CaCopy => "ca-copy",
            Self::MaterialsRefused => "materials-refused",
            Self::ReloadRefused => "reload-refused",
            Self::RestartPending => "restart-pending",
            Self::MaterialsWatch => "materials-watch",
            Self::RenewalOff => "renewal-off",
            Self::RenewalsRefused => "renewals-refused",
            Self::AgentsExpiring => "agents-expiring",
            Self::CaExpiring => "ca-expiring",
            Self::CertificateExpiring => "certificate-expiring",
            Self::CertificateInvalid => "certificate-invalid",
            Self::StateDirectory => "state-directory",
            Self::MemberStates => "member-states",
            Self::ClockOffset => "clock-offset",
            Self::JrubyCount => "jruby-count",
            Self::DnsAnswer => "dns-answer",
            Self::CertnameOfTwoCas => "certname-of-two-cas",
            Self::PassthroughMember => "passthrough-member",
            Self::Descriptors => "descriptors",
            Self::AccessLog => "access-log",
            Self::AuditLog => "audit-log",
            Self::FleetUnreachable => "fleet-unreachable",
            Self::FleetRecord => "fleet-record",
            Self::FleetStoreOlder => "fleet-store-older",
            Self::FleetNoSpace => "fleet-no-space",
            Self::FleetClock => "fleet-clock",
            Self::FleetLastMember => "fleet-last-member",
            Self::FleetDiffers => "fleet-differs",
        }
    }

    /// Error if agents fail now or would fail after a restart, or if one host may use another host's name; otherwise warning.
    pub fn severity(self) -> Severity {
        match self {
            Self::PoolUnavailable
            | Self::QueueFull
            | Self::Descriptors
            | Self::AgentsRefused
            | Self::CrlShrunk
            | Self::MaterialsRefused
            | Self::ReloadRefused
            | Self::RenewalOff
            | Self::CertificateInvalid
            | Self::MemberStates
            | Self::CertnameOfTwoCas
            | Self::ClockOffset => Severity::Error,
            Self::Trust
            | Self::RenewalsRefused
            | Self::AgentsExpiring
            | Self::CaExpiring
            | Self::CertificateExpiring
            | Self::CrlFetch
            | Self::CrlUnusable
            | Self::CaCopy
            | Self::RestartPending
            | Self::MaterialsWatch
            | Self::StateDirectory
            | Self::AccessLog
            | Self::AuditLog
            | Self::DnsAnswer
            | Self::PassthroughMember
            | Self::JrubyCount
            | Self::FleetUnreachable
            | Self::FleetRecord
            | Self::FleetStoreOlder
            | Self::FleetNoSpace
            | Self::FleetClock
            | Self::FleetLastMember
            | Self::FleetDiffers => Severity::Warning,
        }
    }

    /// The alarm that this one turns into if the operator does not act. Callers raise that alarm before they replace this one.
    fn more_severe(self) -> Option<Self> {
        match self {
            Self::Trust | Self::CaExpiring => Some(Self::AgentsRefused),
            Self::CertificateExpiring => Some(Self::CertificateInvalid),
            _ => None,
        }
    }

    fn log_raised(self, message: &str) {
        let alarm = self.as_str();
        match self.severity() {
            Severity::Error => tracing::error!(alarm, "{message}"),
            _ => tracing::warn!(alarm, "{message}"),
        }
    }

    fn log_cleared(self, message: &str) {
        tracing::info!(alarm = self.as_str(), "cleared: {message}");
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AlarmLabels {
    alarm: &'static str,
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
        alarms.note_clock(Alarm::CertificateInvalid, |about| about == "a.pem");
        assert_eq!(caused(), none, "the clock is not in doubt");
        alarms.raise(Alarm::ClockOffset, "", "clock".into(), at(2));
        let a = ("a.pem".to_owned(), Some(Alarm::ClockOffset));
        assert_eq!(caused(), [a, none[1].clone(), (String::new(), None)]);
        alarms.note_clock(Alarm::CertificateInvalid, |_| false);
        assert_eq!(caused()[..2], none);
        alarms.note_clock(Alarm::CertificateInvalid, |_| true);
        alarms.clear(Alarm::ClockOffset, "");
        assert_eq!(caused(), none);
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
        let named = |names: &[&str]| -> Vec<(String, String)> {
            names
                .iter()
                .map(|name| (name.to_string(), name.to_string()))
                .collect()
        };
        alarms.replace(Alarm::Trust, &named(&["a", "b"]), at(2));
        alarms.replace(Alarm::Trust, &named(&["b", "c"]), at(3));
        let expected = [
            ("trust", 2, "b"),
            ("trust", 3, "c"),
            ("crl-fetch", 1, "no answer"),
        ];
        let expected =
            expected.map(|(key, since, message)| (key.to_owned(), since, message.to_owned()));
        assert_eq!(shown(&alarms), expected);
    }

    #[test]
    fn an_alarm_that_becomes_more_severe_keeps_its_time() {
        let alarms = Alarms::default();
        let of = |words: &str| [("CRL CN=a".to_owned(), words.to_owned())];
        alarms.replace(Alarm::Trust, &of("still used"), at(1));
        alarms.replace(Alarm::AgentsRefused, &of("refused"), at(2));
        alarms.replace(Alarm::Trust, &[], at(2));
        let key = "agents-refused:CRL CN=a".to_owned();
        assert_eq!(shown(&alarms), [(key, 1, "refused".to_owned())]);
        assert_eq!(Alarm::AgentsRefused.severity(), Severity::Error);
    }
}
