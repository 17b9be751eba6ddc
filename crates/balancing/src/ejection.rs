//! Passive ejection: a member whose requests fail gets no requests for a while. Pure: time is an argument.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{settings::EjectionSettings, share::ClientKey};

/// Minimum number of attempts in a window before the error rate counts.
const ATTEMPTS_MIN: u32 = 20;

/// Results of the attempts on one member. A successful attempt takes no lock.
#[derive(Debug, Default)]
pub(crate) struct Ejection {
    /// Milliseconds since start until which the member is ejected. 0: it is not ejected.
    until_ms: AtomicU64,
    consecutive: AtomicU32,
    /// Attempts of the window that succeeded.
    succeeded: AtomicU32,
    history: Mutex<History>,
}

#[derive(Debug, Default)]
struct History {
    window_began: Duration,
    /// Attempts of the window that failed.
    failed: u32,
    /// Client of the last failed request, if the client could be the cause.
    client: Option<ClientKey>,
    /// Number of recent ejections. Each of them doubles the length of the next one.
    recent: u32,
    /// When the last ejection ends or ended.
    ends: Duration,
    total: u64,
}

impl Ejection {
    pub(crate) fn is_active(&self, now: Duration) -> bool {
        let until = self.until_ms.load(Ordering::Relaxed);
        until != 0 && u128::from(until) > now.as_millis()
    }

    /// Whether an ejection has begun and was not ended yet, although its time may have expired.
    pub(crate) fn is_noted(&self) -> bool {
        self.until_ms.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn remaining(&self, now: Duration) -> Option<Duration> {
        let until = Duration::from_millis(self.until_ms.load(Ordering::Relaxed));
        until.checked_sub(now).filter(|left| !left.is_zero())
    }

    /// Number of ejections since the member was created.
    pub(crate) fn total(&self) -> u64 {
        self.history().total
    }

    /// Records an attempt that got a response, whatever its status code.
    pub(crate) fn succeeded(&self) {
        if self.consecutive.load(Ordering::Relaxed) != 0 {
            self.consecutive.store(0, Ordering::Relaxed);
        }
        self.succeeded.fetch_add(1, Ordering::Relaxed);
    }

    /// Records a failed attempt. True: the member must be ejected.
    ///
    /// `client`: the client whose request the member did not answer. None: the attempt failed before the request was sent. A
    /// client can send a request that makes a member close the connection, so consecutive failures of one client count once,
    /// and no client can eject a member alone.
    pub(crate) fn failed(
        &self,
        client: Option<ClientKey>,
        settings: &EjectionSettings,
        now: Duration,
    ) -> bool {
        let mut history = self.history();
        if client.is_some() {
            if history.client == client {
                return false;
            }
            history.client = client;
        }
        let consecutive = self.consecutive.fetch_add(1, Ordering::Relaxed) + 1;
        if now.saturating_sub(history.window_began) > settings.window {
            history.window_began = now;
            history.failed = 0;
            self.succeeded.store(0, Ordering::Relaxed);
        }
        history.failed = history.failed.saturating_add(1);
        let failed = u64::from(history.failed);
        let attempts = failed + u64::from(self.succeeded.load(Ordering::Relaxed));
        let too_many = attempts >= ATTEMPTS_MIN.into()
            && failed * 100 >= attempts * u64::from(settings.error_rate);
        !self.is_active(now) && (consecutive >= settings.consecutive_failures || too_many)
    }

    /// Ejects the member at `now`. Returns the length of the ejection: twice that of the last one, up to the limit.
    pub(crate) fn eject(&self, settings: &EjectionSettings, now: Duration) -> Duration {
        let mut history = self.history();
        if now.saturating_sub(history.ends) > settings.eject_time_max {
            history.recent = 0;
        }
        let doubled = settings
            .eject_time
            .saturating_mul(1 << history.recent.min(16));
        let time = doubled.min(settings.eject_time_max.max(settings.eject_time));
        history.recent += 1;
        history.total += 1;
        history.ends = now + time;
        history.window_began = now;
        history.failed = 0;
        self.consecutive.store(0, Ordering::Relaxed);
        self.succeeded.store(0, Ordering::Relaxed);
        let until = u64::try_from((now + time).as_millis()).unwrap_or(u64::MAX);
        self.until_ms.store(until.max(1), Ordering::Relaxed);
        time
    }

    pub(crate) fn end(&self) {
        self.until_ms.store(0, Ordering::Relaxed);
    }

    /// A panic elsewhere leaves consistent numbers.
    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn settings() -> EjectionSettings {
        EjectionSettings::default()
    }

    #[test]
    fn failures_in_a_row_eject_and_one_answer_between_them_does_not() {
        let ejection = Ejection::default();
        for _ in 0..3 {
            for _ in 1..settings().consecutive_failures {
                assert!(!ejection.failed(None, &settings(), at(1)));
            }
            ejection.succeeded();
        }
        for _ in 1..settings().consecutive_failures {
            assert!(!ejection.failed(None, &settings(), at(1)));
        }
        assert!(ejection.failed(None, &settings(), at(1)));
    }

    #[test]
    fn requests_of_one_client_alone_eject_no_member() {
        let mut settings = settings();
        settings.error_rate = 1;
        let client = |n: u64| Some(ClientKey::Agent(format!("web{n}").into()));
        let ejection = Ejection::default();
        assert!((0..1000).all(|n| !ejection.failed(client(1), &settings, at(n))));
        let ejection = Ejection::default();
        let ejects = (0..1000).find(|n| ejection.failed(client(*n), &settings, at(1)));
        assert_eq!(ejects, Some(u64::from(settings.consecutive_failures) - 1));
    }

    #[test]
    fn a_rate_of_failures_within_the_window_ejects() {
        let mut settings = settings();
        settings.consecutive_failures = 1000;
        let alternate = |seconds_apart: u64| {
            let ejection = Ejection::default();
            (0..100).find(|n| {
                ejection.succeeded();
                ejection.failed(None, &settings, at(n * seconds_apart))
            })
        };
        assert_eq!(alternate(0), Some(9), "ten of twenty have failed");
        assert_eq!(alternate(10), None, "never twenty attempts in a window");
    }

    #[test]
    fn each_ejection_is_longer_up_to_the_limit_and_a_long_quiet_time_resets_it() {
        let settings = settings();
        let ejection = Ejection::default();
        let mut now = at(1);
        let mut times = Vec::new();
        for _ in 0..8 {
            let time = ejection.eject(&settings, now);
            assert!(ejection.is_active(now) && ejection.is_active(now + time - at(1)));
            assert!(!ejection.is_active(now + time));
            assert_eq!(ejection.remaining(now), Some(time));
            times.push(time.as_secs());
            now += time + at(1);
        }
        assert_eq!(times, [10, 20, 40, 80, 160, 300, 300, 300]);
        now += settings.eject_time_max;
        assert_eq!(ejection.eject(&settings, now), settings.eject_time);
        assert_eq!(ejection.total(), 9);
        ejection.end();
        assert!(!ejection.is_active(now) && ejection.remaining(now).is_none());
    }
}
