//! When an event about forged identity headers may be logged: at most once a minute for each client, so that a client cannot
//! fill the log.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use balancing::counted_as;

/// The clients whose forged identity headers were logged in the last minute, for all workers.
#[derive(Debug, Default)]
pub(crate) struct ForgedHeaders(Mutex<HashMap<Forger, Duration>>);

/// A verified agent is identified by its certname, any other client by its address (IPv6: by its /64 network).
#[derive(Debug, PartialEq, Eq, Hash)]
enum Forger {
    Agent(Arc<str>),
    Address(IpAddr),
}

impl ForgedHeaders {
    /// Whether an event about this client is due at `now` (time since start). If so, the next one is due a minute
    /// later. While [`CLIENTS_MAX`] clients were logged in the last minute, no event is due for other clients.
    pub(crate) fn is_due(
        &self,
        certname: Option<&Arc<str>>,
        client: IpAddr,
        now: Duration,
    ) -> bool {
        let forger = match certname {
            Some(certname) => Forger::Agent(Arc::clone(certname)),
            None => Forger::Address(counted_as(client)),
        };
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.get(&forger).is_some_and(|at| now < *at + INTERVAL) {
            return false;
        }
        if logged.len() >= CLIENTS_MAX {
            logged.retain(|_, at| now < *at + INTERVAL);
        }
        if logged.len() >= CLIENTS_MAX {
            return false;
        }
        logged.insert(forger, now);
        true
    }
}

/// Header names for an event. The list is shortened, because a client may send many long names.
pub(crate) fn shown(names: &[String]) -> String {
    let shown = names
        .iter()
        .take(NAMES_MAX)
        .map(|name| name.get(..NAME_BYTES_MAX).unwrap_or(name));
    let mut shown = shown.collect::<Vec<_>>().join(", ");
    if names.len() > NAMES_MAX {
        shown.push_str(", ...");
    }
    shown
}

/// Minimum time between two events about one client.
const INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of clients in that time. The metric counts the headers of all clients.
const CLIENTS_MAX: usize = 1024;
const NAMES_MAX: usize = 8;
const NAME_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn one_event_is_due_for_each_client_and_minute() {
        let forged = ForgedHeaders::default();
        let (web01, web02) = (Arc::from("web01"), Arc::from("web02"));
        let [a, b, near_b] =
            ["10.0.0.1", "2001:db8::1", "2001:db8::2"].map(|ip| ip.parse().unwrap());
        for (certname, client, now, is_due) in [
            (Some(&web01), a, 0, true),
            (Some(&web01), a, 59, false),
            (Some(&web01), b, 59, false),
            (Some(&web02), a, 59, true),
            (None, a, 59, true),
            (None, b, 59, true),
            (None, near_b, 59, false),
            (Some(&web01), a, 60, true),
            (Some(&web01), a, 119, false),
        ] {
            assert_eq!(
                forged.is_due(certname, client, at(now)),
                is_due,
                "{certname:?} {client} {now}"
            );
        }
    }

    #[test]
    fn clients_are_bounded_and_forgotten_after_a_minute() {
        let forged = ForgedHeaders::default();
        let client = |n: usize| IpAddr::from(u32::try_from(n).unwrap().to_be_bytes());
        let due = |now| {
            (0..2 * CLIENTS_MAX)
                .filter(|n| forged.is_due(None, client(*n), at(now)))
                .count()
        };
        assert_eq!([due(0), due(59), due(60)], [CLIENTS_MAX, 0, CLIENTS_MAX]);
    }

    #[test]
    fn names_are_bounded_in_number_and_length() {
        let name = |text: &str| text.to_owned();
        assert_eq!(
            shown(&[name("x-client-dn"), name("x_client_cert")]),
            "x-client-dn, x_client_cert"
        );
        let text = shown(&vec![name(&"x".repeat(1000)); 1000]);
        assert_eq!(text.len(), NAMES_MAX * (NAME_BYTES_MAX + 2) + 3);
        assert!(text.ends_with(", ..."));
    }
}
