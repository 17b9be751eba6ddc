//! `[upstream]` and `[pools.NAME]`.

use std::{collections::HashSet, time::Duration};

use balancing::settings::{
    Algorithm, CheckKind, CheckSettings, MemberSettings, PoolSettings, Role,
};
use proxy::settings::{HostRule, OverlongCert, PoolRules};
use upstream::settings::{Plaintext, Scheme, Settings};

use crate::{
    config::{MemberTls, PoolConfig},
    examination::{MemberEntry, closest},
    forms::Address,
    identity,
    report::Problem,
    section::Section,
    trust::Naming,
};

/// A member with where it stands in the file.
struct Entry<'d> {
    settings: MemberSettings,
    /// The pool's section, or the member's own.
    section: Section<'d>,
    key_path: String,
    span: Option<std::ops::Range<usize>>,
}

/// Jetty, in a Puppet server, closes a connection that is idle for so long.
const JETTY_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// `[upstream]`: the part that pools take over.
pub(crate) fn upstream(root: &Section<'_>, problems: &mut Vec<Problem>) -> Settings {
    let section = root.table("upstream");
    long_keepalive(&section, problems);
    overridden(&section, &Settings::default())
}

/// The part of `[upstream]` that belongs to the exchange.
pub(crate) fn exchange(root: &Section<'_>) -> proxy::settings::Settings {
    let section = root.table("upstream");
    let default = proxy::settings::Settings::default();
    proxy::settings::Settings {
        discard_bytes_max: section
            .size("discard_max")
            .unwrap_or(default.discard_bytes_max),
        discard_timeout: section
            .duration("discard_timeout")
            .unwrap_or(default.discard_timeout),
        attempts_max: section
            .count("attempts_max")
            .unwrap_or(default.attempts_max),
    }
}

pub(crate) fn build(
    root: &Section<'_>,
    upstream: &Settings,
    towards_clients: Option<&MemberTls>,
    naming: &mut Naming<'_>,
) -> Vec<PoolConfig> {
    let sections = root.named("pools");
    let default =
        towards_clients.map(|above| naming.member_tls(&root.table("upstream").table("tls"), above));
    let above = root.table("identity");
    let pools = sections
        .iter()
        .map(|(name, section)| {
            let form = identity::pool_form(&section.table("identity"), &above);
            pool(name, section, form, (upstream, default.as_ref()), naming)
        })
        .collect();
    builtin_pools(root, &sections, &mut naming.problems);
    pools
}

fn pool(
    name: &str,
    section: &Section<'_>,
    form: ::identity::HeaderForm,
    (upstream, default): (&Settings, Option<&MemberTls>),
    naming: &mut Naming<'_>,
) -> PoolConfig {
    let settings = Settings {
        scheme: match section.text("scheme").as_deref() {
            Some("http") => Scheme::Http,
            _ => Scheme::Https,
        },
        plaintext: match section.text("plaintext").as_deref() {
            Some("trusted-network") => Plaintext::TrustedNetwork,
            _ => Plaintext::Loopback,
        },
        ..overridden(section, upstream)
    };
    let members = members(section);
    let tls = match settings.scheme {
        Scheme::Https => default.map(|default| naming.member_tls(&section.table("tls"), default)),
        Scheme::Http => None,
    };
    if let Some(tls) = &tls {
        naming.seen_by_members(&tls.credential);
    }
    let problems = &mut naming.problems;
    long_keepalive(section, problems);
    count_members(section, &members, problems);
    match settings.scheme {
        Scheme::Https => names_for_tls(&members, section, problems),
        Scheme::Http => plain_members(&members, section, settings.plaintext, problems),
    }
    PoolConfig {
        pool: PoolSettings {
            name: name.into(),
            members: members.into_iter().map(|entry| entry.settings).collect(),
            algorithm: match section.text("algorithm").as_deref() {
                Some("round-robin") => Algorithm::RoundRobin,
                Some("random") => Algorithm::Random,
                Some("source-hash") => Algorithm::SourceHash,
                _ => Algorithm::LeastConnections,
            },
            check: check(&section.table("check"), problems),
        },
        upstream: settings,
        rules: PoolRules {
            forward_cert: section.switch("forward_cert"),
            forward_cert_bytes_max: section
                .size("forward_cert_max")
                .and_then(|bytes| bytes.try_into().ok())
                .unwrap_or_else(|| PoolRules::default().forward_cert_bytes_max),
            overlong_cert: match section.text("forward_cert_over").as_deref() {
                Some("omit") => OverlongCert::Omit,
                _ => OverlongCert::Refuse,
            },
            host: match section.text("host").as_deref() {
                Some("member") => HostRule::Member,
                _ => HostRule::Keep,
            },
            form,
        },
        tls,
    }
}

fn overridden(section: &Section<'_>, above: &Settings) -> Settings {
    Settings {
        connect_timeout: section
            .duration("connect_timeout")
            .unwrap_or(above.connect_timeout),
        first_byte_timeout: section
            .duration("first_byte_timeout")
            .unwrap_or(above.first_byte_timeout),
        idle_timeout: section
            .duration("idle_timeout")
            .unwrap_or(above.idle_timeout),
        tunnel_idle_timeout: section
            .duration("tunnel_idle_timeout")
            .unwrap_or(above.tunnel_idle_timeout),
        keepalive: section.duration("keepalive").unwrap_or(above.keepalive),
        connections_max: section
            .count("connections_max")
            .unwrap_or(above.connections_max),
        ..*above
    }
}

fn check(section: &Section<'_>, problems: &mut Vec<Problem>) -> CheckSettings {
    let default = CheckSettings::default();
    let settings = CheckSettings {
        kind: match section.text("type").as_deref() {
            Some("tcp") => CheckKind::Tcp,
            Some("none") => CheckKind::None,
            Some("legacy") => CheckKind::Legacy,
            _ => CheckKind::Http,
        },
        port: section.count("port").and_then(|port| port.try_into().ok()),
        interval: section.duration("interval").unwrap_or(default.interval),
        timeout: section.duration("timeout").unwrap_or(default.timeout),
        rise: section.count("rise").unwrap_or(default.rise),
        fall: section.count("fall").unwrap_or(default.fall),
        assume_up: section.switch("assume_up"),
    };
    if settings.port.is_some() && matches!(settings.kind, CheckKind::Legacy | CheckKind::None) {
        let problem = section.error("port", "no check of this type goes to a port of its own");
        problems.push(problem.expected("type = \"http\" or type = \"tcp\" beside it"));
    }
    settings
}

fn members<'d>(pool: &Section<'d>) -> Vec<Entry<'d>> {
    let entries = pool.entries("members").into_iter();
    entries.filter_map(|entry| member(pool, entry)).collect()
}

fn member<'d>(pool: &Section<'d>, entry: MemberEntry<'d>) -> Option<Entry<'d>> {
    match entry {
        MemberEntry::Text { text, span, path } => Some(Entry {
            settings: MemberSettings {
                address: text,
                weight: 1,
                in_flight_max: None,
                server_name: None,
                role: Role::Ordinary,
            },
            section: pool.clone(),
            key_path: path,
            span: Some(span),
        }),
        MemberEntry::Table(section) => Some(Entry {
            settings: MemberSettings {
                address: section.text("address")?,
                weight: section.count("weight")?,
                in_flight_max: section.count("max"),
                server_name: section.text("server_name"),
                role: match section.switch("backup") {
                    true => Role::Backup,
                    false => Role::Ordinary,
                },
            },
            key_path: section.key_path("address"),
            span: section.span("address"),
            section,
        }),
    }
}

fn count_members(section: &Section<'_>, members: &[Entry<'_>], problems: &mut Vec<Problem>) {
    if section.is_empty_list("members") {
        problems.push(
            section
                .error("members", "an empty pool")
                .expected("at least one member"),
        );
    }
    let mut roles = members.iter().map(|entry| entry.settings.role);
    if !members.is_empty() && roles.all(|role| role == Role::Backup) {
        let problem = section.error("members", "every member is a backup");
        problems.push(problem.expected("at least one member that is none"));
    }
    let mut seen = HashSet::new();
    for entry in members
        .iter()
        .filter(|entry| !seen.insert(entry.settings.address.to_lowercase()))
    {
        let message = format!("\"{}\" is in this pool already", entry.settings.address);
        let problem = Problem::error(&entry.key_path, message)
            .help("for a larger share give one entry a `weight`");
        problems.push(entry.section.place(problem, entry.span.clone()));
    }
}

fn long_keepalive(section: &Section<'_>, problems: &mut Vec<Problem>) {
    if section.is_set("keepalive")
        && section
            .duration("keepalive")
            .is_some_and(|kept| kept >= JETTY_IDLE_TIMEOUT)
    {
        let problem = section.warning(
            "keepalive",
            "a Puppet server closes an unused connection after 30 s",
        );
        problems
            .push(problem.help(
                "requests are lost on connections that are just closing: keep them for less",
            ));
    }
}

/// A certificate is held against a name, and a Unix socket has none.
fn names_for_tls(members: &[Entry<'_>], pool: &Section<'_>, problems: &mut Vec<Problem>) {
    let nameless = |entry: &&Entry<'_>| {
        entry.settings.server_name.is_none()
            && matches!(Address::parse(&entry.settings.address), Ok(Address::Unix))
    };
    for entry in members.iter().filter(nameless) {
        let problem = Problem::error(
            &entry.key_path,
            "a Unix socket has no name to hold a certificate against",
        )
        .expected("`server_name`, or scheme = \"http\" for the pool");
        problems.push(entry.section.place(problem, entry.span.clone()));
    }
    if pool.text("plaintext").is_some() {
        problems.push(pool.warning("plaintext", "no effect beside scheme = \"https\""));
    }
}

fn plain_members(
    members: &[Entry<'_>],
    pool: &Section<'_>,
    plaintext: Plaintext,
    problems: &mut Vec<Problem>,
) {
    if pool.is_set("tls") {
        problems.push(pool.warning("tls", "no effect beside scheme = \"http\""));
    }
    let remote = |entry: &&Entry<'_>| {
        Address::parse(&entry.settings.address).is_ok_and(|address| !address.is_local())
    };
    let remote: Vec<_> = members.iter().filter(remote).collect();
    if plaintext == Plaintext::TrustedNetwork {
        if !remote.is_empty() {
            problems.push(pool.warning(
                "plaintext",
                "whoever is on the way to these members can write any identity",
            ));
        }
        return;
    }
    for entry in remote {
        let address = &entry.settings.address;
        let problem = Problem::error(&entry.key_path, format!("plain HTTP to \"{address}\" would leave this machine"))
            .expected("a loopback address, `localhost` or a Unix socket")
            .help("whoever is on the way could write any identity: use scheme = \"https\"")
            .help("or, if nobody else can be on the way, say plaintext = \"trusted-network\" in this pool");
        problems.push(entry.section.place(problem, entry.span.clone()));
    }
}

/// The built-in routes lead to `ca` and to `compilers`: without either they are a 404 that agents read as "not yet".
fn builtin_pools(
    root: &Section<'_>,
    sections: &[(String, Section<'_>)],
    problems: &mut Vec<Problem>,
) {
    if !root.switch("builtin_routes") || root.is_no_table("pools") {
        return;
    }
    let names = || sections.iter().map(|(name, _)| name.as_str());
    for (wanted, work) in [("ca", "/puppet-ca"), ("compilers", "everything else")] {
        if names().any(|name| name == wanted) {
            continue;
        }
        let problem = root
            .error(
                "pools",
                format!("no pool `{wanted}`, where the built-in routes send {work}"),
            )
            .expected(format!("[pools.{wanted}] with its `members`"));
        let others = names().filter(|name| !["ca", "compilers", "filebucket"].contains(name));
        let problem = match closest(wanted, others) {
            Some(close) => problem.help(format!(
                "is it the pool `{close}`? Then it has to be named `{wanted}`"
            )),
            None => problem,
        };
        problems.push(problem.help("or write routes of your own and say builtin_routes = false"));
    }
}
