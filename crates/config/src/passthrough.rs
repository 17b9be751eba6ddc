//! TLS passthrough: which listeners pass connections through to which pools, and how other pools are protected from
//! them.

use std::time::Duration;

use balancing::settings::{Algorithm, CheckKind};
use listener::{ListenerSettings, SniPassthrough};
use routing::pool_names;
use upstream::{
    MemberAddress,
    settings::{Plaintext, Scheme},
};

use crate::{
    binding::{Base, Bound},
    config::{Config, PoolConfig},
    keys::{Check, Listener, Pool, Root, Route, SniPassthrough as Entry},
    known_pool,
    report::Problem,
    schema::Key,
    section::Section,
};

/// Clients of a message broker send data at least every 15 minutes.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3600);

/// Each connection that is passed through needs a connection to a member for its whole lifetime.
const CONNECTIONS_MAX: u32 = 100_000;

/// `[[listeners.NAME.sni_passthrough]]`.
pub(crate) fn by_name(listener: &Section<'_>) -> Vec<SniPassthrough> {
    let sections = listener.tables(Listener::sni_passthrough);
    let entries = sections.iter().map(|section| {
        let mut entry = SniPassthrough::base();
        Entry::read(section, &mut entry);
        entry
    });
    entries.collect()
}

/// Keys about TLS or HTTP. They have no effect on a listener that does not terminate TLS.
const WITHOUT_EFFECT: [&Key; 16] = [
    Listener::client_cert,
    Listener::on_invalid,
    Listener::sni_strict,
    Listener::certificates,
    Listener::handshakes_max,
    Listener::handshakes_max_per_address,
    Listener::head_timeout,
    Listener::idle_timeout,
    Listener::write_timeout,
    Listener::body_rate_min,
    Listener::read_rate_min,
    Listener::rate_grace,
    Listener::head_max,
    Listener::http2,
    Listener::streams_max,
    Listener::sni_passthrough,
];

/// Reports problems in the passthrough settings of a listener.
pub(crate) fn check_listener(
    root: &Section<'_>,
    settings: &ListenerSettings,
    section: &Section<'_>,
    problems: &mut Vec<Problem>,
) {
    if settings.redirect_to_https.is_some() && settings.passthrough.is_some() {
        let message =
            "a listener redirects its requests or passes its connections through, not both";
        let problem = section.error(Listener::redirect_to_https, message);
        problems.push(problem.expected("a listener of its own for each of both"));
    }
    let pools = root.named(Root::pools).into_iter();
    let pools: Vec<_> = pools.map(|(name, _)| name).collect();
    known_pool::check(section, Listener::passthrough, &pools, problems);
    let mut seen: Vec<String> = Vec::new();
    for entry in section.tables(Listener::sni_passthrough) {
        known_pool::check(&entry, Entry::pool, &pools, problems);
        if entry.is_empty_list(Entry::server_names) {
            let problem = entry.error(
                Entry::server_names,
                "an empty list, which matches no connection",
            );
            problems.push(problem.expected("at least one server name"));
        }
        for (name, span) in entry.spanned_texts(Entry::server_names) {
            let name = name.to_ascii_lowercase();
            if seen.contains(&name) {
                let message = format!("\"{name}\" is already passed through by this listener");
                let problem = Problem::error(entry.key_path(Entry::server_names), message);
                problems.push(entry.place(problem, Some(span)));
            }
            seen.push(name);
        }
    }
    let why = match (&settings.redirect_to_https, &settings.passthrough) {
        (Some(_), _) => "no effect: this listener redirects every request",
        (None, Some(_)) => "no effect: this listener passes every connection through",
        (None, None) => return,
    };
    let has_effect =
        |key: &&Key| settings.redirect_to_https.is_some() && key.name == Listener::head_max.name;
    let without_effect = WITHOUT_EFFECT.into_iter().filter(|key| !has_effect(key));
    for key in without_effect.filter(|key| section.is_set(key)) {
        problems.push(section.warning(key, why));
    }
}

/// Completes a pool that receives connections and no requests. Its health check decides whether the proxy uses TLS.
pub(crate) fn complete(section: &Section<'_>, pool: &mut PoolConfig) {
    let check = section.table(Pool::check);
    let settings = &mut pool.pool.check;
    settings.kind = CheckKind::Tcp;
    Check::read(&check, settings);
    if settings.read_jrubies.is_none() {
        settings.read_jrubies = Some(false);
    }
    let http = matches!(settings.kind, CheckKind::Http | CheckKind::Legacy);
    let tls = settings.tls || (http && settings.port.is_none());
    if !section.is_set(Pool::scheme) {
        pool.upstream.scheme = if tls { Scheme::Https } else { Scheme::Http };
    }
    // The proxy itself sends only health checks, which carry no identity, in plain text.
    pool.upstream.plaintext = Plaintext::TrustedNetwork;
    if !section.is_set(Pool::tunnel_idle_timeout) {
        pool.upstream.tunnel_idle_timeout = IDLE_TIMEOUT;
    }
    if !section.is_set(Pool::connections_max) {
        pool.upstream.connections_max = CONNECTIONS_MAX;
    }
}

/// Reports problems of pools that receive passed-through connections.
pub(crate) fn check_pools(
    sections: &[(String, Section<'_>)],
    pools: &[PoolConfig],
    problems: &mut Vec<Problem>,
) {
    for (pool, (_, section)) in pools.iter().zip(sections) {
        if pool.rules.passthrough.is_used {
            algorithm(pool, section, problems);
            guarded_hosts(pool, section, pools, problems);
            continue;
        }
        for key in [Pool::send_proxy, Pool::trusted_headers_off] {
            if section.is_set(key) {
                let message = "no effect: no listener passes connections through to this pool";
                problems.push(section.warning(key, message));
            }
        }
    }
}

fn algorithm(pool: &PoolConfig, section: &Section<'_>, problems: &mut Vec<Problem>) {
    if pool.pool.algorithm == Algorithm::CertnameHash {
        let message = "the proxy does not know the certname of a connection that it passes through";
        let problem = section.error(Pool::algorithm, message);
        problems.push(problem.expected("another algorithm, as \"source-hash\""));
    }
}

/// A member that reads trusted headers trusts every client that can connect to it. The proxy detects names with the
/// same address when it resolves them.
fn guarded_hosts(
    pool: &PoolConfig,
    section: &Section<'_>,
    pools: &[PoolConfig],
    problems: &mut Vec<Problem>,
) {
    let off = pool.rules.passthrough.trusted_headers_off;
    let others = pools
        .iter()
        .filter(|other| !other.rules.passthrough.is_used);
    let others: Vec<_> = others.collect();
    for member in &pool.pool.members {
        let Ok(target) = MemberAddress::parse(&member.address) else {
            continue;
        };
        let guarded = others.iter().find_map(|other| {
            let mut members = other.pool.members.iter();
            let member = members.find(|member| {
                MemberAddress::parse(&member.address)
                    .is_ok_and(|known| proxy::is_guarded((&known, &[]), (&target, &[]), off))
            })?;
            Some((&other.pool.name, &member.address))
        });
        if let Some((other, guarded)) = guarded {
            let message = format!(
                "\"{}\" is on the host of \"{guarded}\", a member of pool `{other}` that gets identity headers",
                member.address
            );
            let problem = section.error(Pool::members, message);
            problems.push(
                problem
                    .expected("a host of its own")
                    .help("a client could send identity headers of its own through a connection that is passed through")
                    .help("if the service at another port of that host does not read them, set trusted_headers_off = true in this pool"),
            );
        }
    }
}

/// A pool receives either requests or passed-through connections, because the proxy knows who the client is only for a request.
pub(crate) fn check_routes(sections: &[Section<'_>], config: &Config, problems: &mut Vec<Problem>) {
    let is_passed = |name: &str| {
        let mut pools = config.pools.iter();
        pools.any(|pool| pool.pool.name == name && pool.rules.passthrough.is_used)
    };
    let message = |name: &str| {
        format!("a listener passes connections through to pool `{name}`, so no route may use it")
    };
    for section in sections {
        if let Some(name) = section.text(Route::pool).filter(|name| is_passed(name)) {
            let problem = section.error(Route::pool, message(&name));
            problems.push(problem.expected("a pool of its own for each of both"));
        }
    }
    if !config.routes.builtin_routes {
        return;
    }
    for name in pool_names::ALL.into_iter().filter(|name| is_passed(name)) {
        let problem = Problem::error(format!("pools.{name}"), message(name));
        problems.push(problem.expected("a pool of another name for the listener"));
    }
}
