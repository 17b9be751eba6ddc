//! The descriptors of the process: how many it may open, and how many clients may use them.

use config::Config;
use listener::ListenerSettings;
use proxy::{Generation, Shared};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for the admin socket and the metrics listener (64 connections each), files, DNS and fetches.
const OWN: u64 = 192;
/// Descriptors of a worker: event queue, wake-up and signals of its runtime, and the pipe of its thread for handshakes.
const OF_WORKER: u64 = 8;
/// Clients for which a listener needs descriptors if its `connections_max` is the default, which few sites reach.
const WANTED_BY_DEFAULT: u64 = 1000;
/// Descriptors of a member beside its requests: probe, agent check, JRuby count, and a connection that ends.
const OF_MEMBER: u64 = 4;

/// Raises the limit of open descriptors to the hard limit. Systems start programs with a soft limit of 1024, for programs
/// that use `select`; the proxy does not.
pub(crate) fn raise_limit() {
    let limits = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limits.maximum,
        maximum: limits.maximum,
    };
    if limits.current != limits.maximum
        && let Err(error) = setrlimit(Resource::Nofile, raised)
    {
        tracing::warn!(%error, "cannot raise the limit of open descriptors");
    }
}

/// Applies the limit of the process to a generation that is about to accept connections.
pub(crate) fn apply(shared: &Shared, config: &Config, generation: &Generation) {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let max = clients_max(limit, reserve(config, generation));
    shared.descriptors.set_limit(limit, max);
}

/// The warning that descriptors do not suffice for as many clients as the listeners allow, with the key of a setting.
pub(crate) fn warning(config: &Config, generation: &Generation) -> Option<(String, String)> {
    let limit = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let reserve = reserve(config, generation);
    let wanted_by = |listener: &ListenerSettings| match listener.connections_max {
        ListenerSettings::CONNECTIONS_MAX => WANTED_BY_DEFAULT,
        max => u64::from(max),
    };
    let wanted: u64 = config.listeners.iter().map(wanted_by).sum();
    let needed = wanted * 2 + reserve;
    if needed <= limit {
        return None;
    }
    let largest = config.listeners.iter().max_by_key(|l| wanted_by(l))?;
    let max = clients_max(limit, reserve);
    Some((
        format!("listeners.{}.connections_max", largest.name),
        format!(
            "the listeners are for {wanted} connections, which need {needed} descriptors (two for each, and {reserve} for the \
             proxy itself), but the process may open {limit}: from {max} connections on, agents wait; set \
             LimitNOFILE={needed} in the service unit (`ulimit -Hn` without one), or lower connections_max"
        ),
    ))
}

/// Descriptors that clients must leave to probes, operators and the proxy itself.
fn reserve(config: &Config, generation: &Generation) -> u64 {
    let endpoints: usize = config.listeners.iter().map(|l| l.endpoints().count()).sum();
    let members: usize = generation
        .pools
        .iter()
        .map(|pool| pool.pool.entries().len())
        .sum();
    // Each worker has a socket for each endpoint, and a copy of it for a hand-over.
    let of_workers = config.workers as u64 * (OF_WORKER + 2 * endpoints as u64);
    OWN + of_workers + OF_MEMBER * members as u64
}

/// How many clients may be connected, two descriptors for each. At least half of a small limit is for clients.
fn clients_max(limit: u64, reserve: u64) -> u32 {
    let for_clients = limit - reserve.min(limit / 2);
    u32::try_from(for_clients / 2).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_may_use_two_descriptors_beside_the_reserve() {
        for (limit, reserve, expected) in [
            (65_536, 300, 32_618),
            (1024, 300, 362),
            (256, 300, 64),
            (2, 300, 1),
            (0, 300, 1),
            (u64::MAX, 300, u32::MAX),
        ] {
            assert_eq!(clients_max(limit, reserve), expected, "{limit}");
        }
    }
}
