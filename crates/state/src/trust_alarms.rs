//! Alarms that depend on dates: those about the trust store, and how others are raised and cleared.

use std::time::{Duration, SystemTime};

use pki::TrustStore;
use rustls_pki_types::UnixTime;
use telemetry::{Alarm, Alarms, FoundAlarm};

/// The times with which dates are compared: the time of the host, and a corrected time if the clock of the host is in doubt.
#[derive(Clone, Copy, Debug)]
pub struct AlarmTimes {
    /// The time by the clock of the host.
    pub now: UnixTime,
    /// The corrected time, if the clock of the host is in doubt.
    pub corrected: Option<UnixTime>,
}

impl AlarmTimes {
    /// `correction`: seconds to add to the clock.
    pub fn now(correction: Option<i64>) -> Self {
        let now = UnixTime::now();
        let corrected = correction.map(|seconds| {
            let right = now.as_secs().saturating_add_signed(seconds);
            UnixTime::since_unix_epoch(Duration::from_secs(right))
        });
        Self { now, corrected }
    }
}

/// Raises and clears the alarms about the dates of CAs and CRLs.
pub fn update(alarms: &Alarms, trust: &TrustStore, times: AlarmTimes) {
    // The more severe kind comes first: if an alarm of this kind replaces one of the other kind, no event says that an alarm is
    // cleared.
    let kinds = [Alarm::AgentsRefused, Alarm::Trust];
    replace_at(alarms, kinds, times, |now| {
        let found = trust.status(now).alarms.into_iter();
        found
            .map(|found| {
                let alarm = match found.refuses {
                    true => Alarm::AgentsRefused,
                    false => Alarm::Trust,
                };
                FoundAlarm::new(alarm, found.about, found.message)
            })
            .collect()
    });
}

/// As [`replace`], with the alarms that `find` returns for the time of the host. Alarms that it does not return for the
/// corrected time are marked as caused by the wrong clock.
pub fn replace_at<const N: usize>(
    alarms: &Alarms,
    kinds: [Alarm; N],
    times: AlarmTimes,
    find: impl Fn(UnixTime) -> Vec<FoundAlarm>,
) {
    replace(alarms, kinds, &find(times.now));
    let right = times.corrected.map(find);
    for alarm in kinds {
        let is_found =
            |found: &FoundAlarm, about: &str| found.alarm == alarm && found.about == about;
        alarms.note_cause(alarm, (Alarm::ClockOffset, ""), |about| {
            let right = right.as_ref();
            right.is_some_and(|right| !right.iter().any(|found| is_found(found, about)))
        });
    }
}

/// Raises the alarms of these kinds that were found, and clears the others.
pub fn replace(alarms: &Alarms, kinds: impl IntoIterator<Item = Alarm>, found: &[FoundAlarm]) {
    for alarm in kinds {
        alarms.replace(alarm, found, SystemTime::now());
    }
}
