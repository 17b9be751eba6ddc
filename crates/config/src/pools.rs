//! `[upstream]` and `[pools.NAME]`.

use std::{collections::HashSet, time::Duration};

use balancing::{
    MEMBERS_MAX,
    settings::{AddressExpansion, CheckKind, MemberSettings, Role},
};
use proxy::settings::OnDown;
use routing::pool_names;
use upstream::settings::{Plaintext, Scheme, SendProxy};

use crate::{
    binding::Bound,
    closest::closest,
    config::{Config, MemberTls, PoolConfig},
    forms::Address,
    identity,
    keys::{self, AgentCheck, Check, Ejection, Member, Pool, Root, Route},
    passthrough,
    report::Problem,
    section::{Entry, Section},
    trust::Naming,
};

/// A member and its position in the file.
struct MemberWithPosition<'d> {
    settings: MemberSettings,
    /// The pool's section, or the member's own.
    section: Section<'d>,
    key_path: String,
    span: Option<std::ops::Range<usize>>,
}

/// Jetty, the HTTP server of Puppet Server, closes a connection after this idle time.
const JETTY_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Reports problems in `[upstream]`.
pub(crate) fn upstream(root: &Section<'_>, config: &Config, problems: &mut Vec<Problem>) {
    long_keepalive(
        &root.table(Root::upstream),
        config.upstream.keepalive,
        problems,
    );
}

pub(crate) fn build(
    root: &Section<'_>,
    config: &Config,
    towards_clients: Option<&MemberTls>,
    naming: &mut Naming<'_>,
) -> Vec<PoolConfig> {
    let sections = root.named(Root::pools);
    let above = root.table(Root::upstream).table(keys::Upstream::tls);
    let default = towards_clients.map(|towards| naming.member_tls(&above, towards));
    let pools: Vec<_> = sections
        .iter()
        .map(|(name, section)| {
            let mut pool = read(name, section, config);
            pool.rules.form = identity::pool_form(root, section, &config.form);
            fill(&mut pool, section, default.as_ref(), naming);
            pool
        })
        .collect();
    passthrough::check_pools(&sections, &pools, &mut naming.problems);
    tunnels(root, &sections, &pools, &mut naming.problems);
    builtin_pools(root, config, &sections, &mut naming.problems);
    pools
}

/// Reports settings of tunnels that have no effect, because the pool has no tunnels or never closes them.
fn tunnels(
    root: &Section<'_>,
    sections: &[(String, Section<'_>)],
    pools: &[PoolConfig],
    problems: &mut Vec<Problem>,
) {
    let routes = root.tables(Root::routes);
    let upgrades = |pool: &PoolConfig| {
        routes.iter().any(|route| {
            let is_target = route.text(Route::pool).as_deref() == Some(pool.pool.name.as_str());
            is_target && route.is_set(Route::upgrade) && !route.is_empty_list(Route::upgrade)
        })
    };
    for (pool, (_, section)) in pools.iter().zip(sections) {
        if pool.rules.passthrough.is_used {
            continue;
        }
        let has_tunnels = upgrades(pool);
        let is_kept = pool.rules.tunnels.on_down == OnDown::Keep;
        for (key, has_effect) in [
            (Pool::on_down, has_tunnels),
            (Pool::tunnel_close_rate, has_tunnels && !is_kept),
        ] {
            let message = if has_tunnels {
                "no effect: with `on_down = \"keep\"`, the proxy closes no upgraded connection"
            } else {
                "no effect: no listener passes connections through to this pool, and no route to it has `upgrade`"
            };
            if section.is_set(key) && !has_effect {
                problems.push(section.warning(key, message));
            }
        }
    }
}

/// The keys of a pool itself.
pub(crate) fn read(name: &str, section: &Section<'_>, config: &Config) -> PoolConfig {
    let mut pool = PoolConfig::new(name, config);
    let passing = config.listeners.iter();
    let mut passing = passing.flat_map(listener::ListenerSettings::passthrough_pools);
    pool.rules.passthrough.is_used = passing.any(|passed| passed == name);
    Pool::read(section, &mut pool);
    if pool.rules.passthrough.is_used {
        passthrough::complete(section, &mut pool);
    } else {
        pool.upstream.send_proxy = SendProxy::Off;
    }
    pool
}

fn fill(
    pool: &mut PoolConfig,
    section: &Section<'_>,
    default: Option<&MemberTls>,
    naming: &mut Naming<'_>,
) {
    pool.tls = match pool.upstream.scheme {
        Scheme::Https => {
            default.map(|default| naming.member_tls(&section.table(Pool::tls), default))
        }
        Scheme::Http => None,
    };
    if let Some(tls) = &pool.tls {
        naming.seen_by_members(&tls.credential);
    }
    let members = members(section);
    let problems = &mut naming.problems;
    long_keepalive(section, pool.upstream.keepalive, problems);
    count_members(section, &members, problems);
    services(&members, section, problems);
    match pool.upstream.scheme {
        Scheme::Https => names_for_tls(&members, section, &pool.server_names, problems),
        // The proxy itself sends only health checks to these members.
        Scheme::Http if pool.rules.passthrough.is_used => {}
        Scheme::Http => plain_members(&members, section, pool.upstream.plaintext, problems),
    }
    pool.pool.members = members.into_iter().map(|entry| entry.settings).collect();
    check(&section.table(Pool::check), pool, problems);
    if section.is_set(Pool::agent_check) {
        let agent = pool.rules.guards.agent_check.insert(Default::default());
        AgentCheck::read(&section.table(Pool::agent_check), agent);
    }
    Ejection::read(
        &section.table(Pool::ejection),
        &mut pool.rules.guards.ejection,
    );
}

fn check(section: &Section<'_>, pool: &mut PoolConfig, problems: &mut Vec<Problem>) {
    let settings = &mut pool.pool.check;
    Check::read(section, settings);
    if settings.port.is_some() && matches!(settings.kind, CheckKind::Legacy | CheckKind::None) {
        let problem = section.error(Check::port, "this type of check cannot use another port");
        problems.push(problem.expected("type = \"http\" or type = \"tcp\""));
    }
    if settings.kind != CheckKind::Http {
        for key in [Check::path, Check::expect_status, Check::expect_body] {
            if section.is_set(key) {
                let problem = section.error(key, "this type of check sends no such request");
                problems.push(problem.expected("type = \"http\""));
            }
        }
    }
    let no_http = matches!(settings.kind, CheckKind::Tcp | CheckKind::None);
    let other_service = settings.port.is_some() && !settings.tls;
    if settings.read_jrubies == Some(true) && (no_http || other_service) {
        let problem = section.error(
            Check::read_jrubies,
            "probes do not reach the status of a Puppet Server",
        );
        problems.push(problem.expected("type = \"http\", without `port` or with `tls`"));
    }
    if settings.tls && settings.port.is_none() {
        let problem = section.error(Check::tls, "this check uses the member's own port");
        problems.push(problem.expected("`port`, the port that probes go to"));
    } else if settings.tls && pool.upstream.scheme == Scheme::Http {
        let problem = section.error(Check::tls, "this pool has no TLS");
        problems.push(problem.expected("scheme = \"https\" for the pool"));
    }
}

fn members<'d>(pool: &Section<'d>) -> Vec<MemberWithPosition<'d>> {
    let entries = pool.entries(Pool::members).into_iter();
    entries.filter_map(|entry| member(pool, entry)).collect()
}

fn member<'d>(pool: &Section<'d>, entry: Entry<'d>) -> Option<MemberWithPosition<'d>> {
    match entry {
        Entry::Text { text, span, path } => Some(MemberWithPosition {
            settings: MemberSettings::new(&text),
            section: pool.clone(),
            key_path: path,
            span: Some(span),
        }),
        Entry::Table(section) => {
            let mut settings = MemberSettings::new(&section.text(Member::address)?);
            Member::read(&section, &mut settings);
            Some(MemberWithPosition {
                settings,
                key_path: section.key_path(Member::address),
                span: section.span(Member::address),
                section,
            })
        }
    }
}

fn count_members(
    section: &Section<'_>,
    members: &[MemberWithPosition<'_>],
    problems: &mut Vec<Problem>,
) {
    if section.is_empty_list(Pool::members) {
        problems.push(
            section
                .error(Pool::members, "an empty pool")
                .expected("at least one member"),
        );
    }
    if members.len() > MEMBERS_MAX {
        let message = format!("{} members", members.len());
        let problem = section.error(Pool::members, message);
        problems.push(problem.expected(format!("at most {MEMBERS_MAX} in one pool")));
    }
    let mut roles = members.iter().map(|entry| entry.settings.role);
    if !members.is_empty() && roles.all(|role| role == Role::Backup) {
        let problem = section.error(Pool::members, "every member is a backup");
        problems.push(problem.expected("at least one member that is not a backup"));
    }
    let mut seen = HashSet::new();
    for entry in members
        .iter()
        .filter(|entry| !seen.insert(entry.settings.address.to_lowercase()))
    {
        let message = format!("\"{}\" is already in this pool", entry.settings.address);
        let problem = Problem::error(&entry.key_path, message)
            .help("to give it a larger share, set `weight`");
        problems.push(entry.section.place(problem, entry.span.clone()));
    }
}

fn long_keepalive(section: &Section<'_>, kept: Duration, problems: &mut Vec<Problem>) {
    if section.is_set(Pool::keepalive) && kept >= JETTY_IDLE_TIMEOUT {
        let problem = section.warning(
            Pool::keepalive,
            "a Puppet server closes an unused connection after 30 s",
        );
        problems.push(
            problem.help("set it below 30 s, or requests are lost on connections that are closing"),
        );
    }
}

/// A certificate is verified against a name, and a Unix socket has none.
fn names_for_tls(
    members: &[MemberWithPosition<'_>],
    pool: &Section<'_>,
    server_names: &[String],
    problems: &mut Vec<Problem>,
) {
    let nameless = |entry: &&MemberWithPosition<'_>| {
        entry.settings.server_name.is_none()
            && matches!(Address::parse(&entry.settings.address), Ok(Address::Unix))
    };
    for entry in members.iter().filter(nameless) {
        let problem = Problem::error(
            &entry.key_path,
            "a Unix socket has no name to verify a certificate against",
        )
        .expected("`server_name`, or scheme = \"http\" for the pool");
        problems.push(entry.section.place(problem, entry.span.clone()));
    }
    let unbound = |entry: &&MemberWithPosition<'_>| {
        let settings = &entry.settings;
        settings.service().is_some() && settings.server_name.is_none() && server_names.is_empty()
    };
    for entry in members.iter().filter(unbound) {
        let message = "without `server_names`, DNS would decide which host gets requests";
        let problem = Problem::error(&entry.key_path, message)
            .expected("`server_names` for the pool, as [\"*.compilers.example.com\"]")
            .help(
                "every certificate of the Puppet CA, also that of an agent, is valid for a server",
            );
        problems.push(entry.section.place(problem, entry.span.clone()));
    }
    if pool.text(Pool::plaintext).is_some() {
        problems.push(pool.warning(Pool::plaintext, "no effect with scheme = \"https\""));
    }
}

/// Reports settings that SRV records override.
fn services(members: &[MemberWithPosition<'_>], pool: &Section<'_>, problems: &mut Vec<Problem>) {
    let is_service = |entry: &&MemberWithPosition<'_>| entry.settings.service().is_some();
    if pool.is_set(Pool::server_names) && !members.iter().any(|entry| is_service(&entry)) {
        let message = "no effect: no member of this pool is `srv:`";
        problems.push(pool.warning(Pool::server_names, message));
    }
    for entry in members.iter().filter(is_service) {
        // A setting other than the default can only be in the member's own table.
        if entry.settings.weight != 1 {
            let message = "no effect: SRV records have a weight";
            problems.push(entry.section.warning(Member::weight, message));
        }
        if entry.settings.addresses != AddressExpansion::Auto {
            let message = "no effect: each target of a SRV record is one member";
            problems.push(entry.section.warning(Member::addresses, message));
        }
    }
}

fn plain_members(
    members: &[MemberWithPosition<'_>],
    pool: &Section<'_>,
    plaintext: Plaintext,
    problems: &mut Vec<Problem>,
) {
    if pool.is_set(Pool::tls) {
        problems.push(pool.warning(Pool::tls, "no effect with scheme = \"http\""));
    }
    let remote = |entry: &&MemberWithPosition<'_>| {
        Address::parse(&entry.settings.address).is_ok_and(|address| !address.is_local())
    };
    let remote: Vec<_> = members.iter().filter(remote).collect();
    if plaintext == Plaintext::TrustedNetwork {
        if !remote.is_empty() {
            problems.push(pool.warning(
                Pool::plaintext,
                "every host on the path to these members can send them any identity",
            ));
        }
        return;
    }
    for entry in remote {
        let address = &entry.settings.address;
        let problem = Problem::error(&entry.key_path, format!("plain HTTP to \"{address}\" would leave this machine"))
            .expected("a loopback address, `localhost` or a Unix socket")
            .help("a host on the path could send any identity: use scheme = \"https\"")
            .help("or, if no other host can send on that path, set plaintext = \"trusted-network\" in this pool");
        problems.push(entry.section.place(problem, entry.span.clone()));
    }
}

/// The built-in routes use the pools `ca` and `compilers`. Without such a pool, these requests get a 404, and agents
/// then assume that they only have to wait.
fn builtin_pools(
    root: &Section<'_>,
    config: &Config,
    sections: &[(String, Section<'_>)],
    problems: &mut Vec<Problem>,
) {
    if !config.routes.builtin_routes || root.is_not_a_table(Root::pools) {
        return;
    }
    let names = || sections.iter().map(|(name, _)| name.as_str());
    for (wanted, work) in [
        (pool_names::CA, "/puppet-ca"),
        (pool_names::COMPILERS, "everything else"),
    ] {
        if names().any(|name| name == wanted) {
            continue;
        }
        let problem = root
            .error(
                Root::pools,
                format!("no pool `{wanted}`, to which the built-in routes send {work}"),
            )
            .expected(format!("[pools.{wanted}] with its `members`"));
        let others = names().filter(|name| !pool_names::ALL.contains(name));
        let problem = match closest(wanted, others) {
            Some(close) => problem.help(format!(
                "if it is the pool `{close}`, rename that to `{wanted}`"
            )),
            None => problem,
        };
        problems.push(problem.help("or configure your own routes and set builtin_routes = false"));
    }
}
