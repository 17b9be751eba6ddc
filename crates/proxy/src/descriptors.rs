//! The alarm about descriptors and other limits of this host that prevent connections from being opened or accepted.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use listener::ClientSlots;
use telemetry::{Alarm, Alarms};
use upstream::HostLimit;

/// The descriptors of the process: how many clients may use them, and which limits were hit.
#[derive(Debug, Default)]
pub struct Descriptors {
    /// Slots for the clients of all listeners.
    pub clients: Arc<ClientSlots>,
    /// The maximum number of open descriptors of the process.
    limit: AtomicU64,
    /// When each cause was last seen, as time since start. The number of causes bounds the size.
    seen: Mutex<BTreeMap<Cause, Duration>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    /// Clients wait, because the other descriptors are reserved for members, probes and operators.
    Clients,
    Host(HostLimit),
    /// Another error of a listening socket.
    Accept,
}

/// Time without a failure after which the alarm is cleared.
const QUIET: Duration = Duration::from_secs(60);

impl Descriptors {
    /// Sets the maximum number of open descriptors, and how many clients may be connected at the same time.
    pub fn set_limit(&self, limit: u64, clients_max: u32) {
        self.limit.store(limit, Ordering::Relaxed);
        self.clients.set_max(clients_max);
    }

    /// Notes that a client waits, because as many clients are connected as descriptors allow.
    pub(crate) fn clients_wait(&self, alarms: &Alarms, now: Duration) {
        let (max, limit) = (self.clients.max(), self.limit.load(Ordering::Relaxed));
        let message = format!(
            "{max} clients are connected, the maximum with {limit} descriptors, so others wait; raise LimitNOFILE= in \
             the service unit, or `ulimit -n`, and restart the proxy"
        );
        self.note(alarms, Cause::Clients, message, now);
    }

    /// Notes that a limit of this host prevented a connection from being opened or accepted.
    pub fn limit_hit(&self, alarms: &Alarms, limit: HostLimit, now: Duration) {
        let message = match limit {
            HostLimit::ProcessDescriptors => format!(
                "the process has as many open descriptors as its limit of {} allows (EMFILE), so connections fail; raise \
                 LimitNOFILE= in the service unit, or `ulimit -n`, and restart the proxy",
                self.limit.load(Ordering::Relaxed)
            ),
            HostLimit::SystemDescriptors => "this host has as many open files as the sysctl fs.file-max allows (ENFILE), \
                so connections fail; raise it, or stop the program that opens many files (`lsof` shows it)"
                .to_owned(),
            HostLimit::Memory => "the kernel has no memory for sockets (ENOBUFS or ENOMEM), so connections fail; add \
                memory to this host, or raise the sysctl net.ipv4.tcp_mem"
                .to_owned(),
            HostLimit::Ports => "this host has no free local port or no suitable address for a connection to a member \
                (EADDRNOTAVAIL); widen the sysctl net.ipv4.ip_local_port_range, or correct the member's address"
                .to_owned(),
        };
        self.note(alarms, Cause::Host(limit), message, now);
    }

    /// Notes that the system refused to accept a connection. Errors without an alarm are logged at most once a minute.
    pub(crate) fn accept_failed(
        &self,
        alarms: &Alarms,
        listener: &str,
        error: &io::Error,
        now: Duration,
    ) {
        if let Some(limit) = HostLimit::of(error) {
            return self.limit_hit(alarms, limit, now);
        }
        let is_logged = |last: &Duration| now.saturating_sub(*last) < QUIET;
        let mut seen = self.seen();
        if !seen.get(&Cause::Accept).is_some_and(is_logged) {
            seen.insert(Cause::Accept, now);
            tracing::warn!(listener, %error, "accept failed");
        }
    }

    /// Clears the alarm for each cause that has not been seen for a while.
    pub(crate) fn assess(&self, alarms: &Alarms, now: Duration) {
        let quiet = |_: &Cause, last: &mut Duration| now.saturating_sub(*last) >= QUIET;
        self.clear(alarms, quiet);
    }

    /// Clears the alarm about waiting clients once a quarter of the slots is free. Must be called when a connection has ended.
    pub(crate) fn connection_ended(&self, alarms: &Alarms) {
        let has_room = || {
            let max = self.clients.max();
            self.clients.inside() <= max - max.div_ceil(4)
        };
        if has_room() {
            self.clear(alarms, |cause, _| *cause == Cause::Clients && has_room());
        }
    }

    fn note(&self, alarms: &Alarms, cause: Cause, message: String, now: Duration) {
        let mut seen = self.seen();
        seen.insert(cause, now);
        alarms.raise(
            Alarm::Descriptors,
            cause.as_str(),
            message,
            SystemTime::now(),
        );
    }

    fn clear(&self, alarms: &Alarms, is_over: impl FnMut(&Cause, &mut Duration) -> bool) {
        // The lock is held meanwhile, so that a failure during this loop raises the alarm again.
        let mut seen = self.seen();
        for (cause, _) in seen.extract_if(.., is_over) {
            alarms.clear(Alarm::Descriptors, cause.as_str());
        }
    }

    /// A panic in another thread leaves a valid map.
    fn seen(&self) -> MutexGuard<'_, BTreeMap<Cause, Duration>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cause {
    fn as_str(self) -> &'static str {
        match self {
            Self::Clients => "clients",
            Self::Host(HostLimit::ProcessDescriptors) => "process",
            Self::Host(HostLimit::SystemDescriptors) => "system",
            Self::Host(HostLimit::Memory) => "memory",
            Self::Host(HostLimit::Ports) => "ports",
            Self::Accept => "accept",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(alarms: &Alarms) -> Vec<String> {
        alarms.active().iter().map(|alarm| alarm.key()).collect()
    }

    #[test]
    fn each_limit_of_the_host_is_one_alarm_until_a_minute_without_a_failure() {
        let (descriptors, alarms) = (Descriptors::default(), Alarms::default());
        let seconds = Duration::from_secs;
        descriptors.set_limit(1024, 100);
        // EMFILE, ENFILE, ENOMEM, ENOBUFS, and EPERM, which is not a limit.
        for (number, at) in [(24, 10), (23, 20), (12, 20), (105, 20), (1, 20), (24, 40)] {
            let error = io::Error::from_raw_os_error(number);
            descriptors.accept_failed(&alarms, "agents", &error, seconds(at));
        }
        descriptors.assess(&alarms, seconds(79));
        let all = [
            "descriptors:process",
            "descriptors:system",
            "descriptors:memory",
        ];
        assert_eq!(keys(&alarms), all);
        let message = &alarms.active()[0].message;
        assert!(message.contains("1024"), "{message}");
        descriptors.assess(&alarms, seconds(80));
        assert_eq!(keys(&alarms), ["descriptors:process"]);
        descriptors.assess(&alarms, seconds(100));
        assert!(alarms.active().is_empty());
    }
}
