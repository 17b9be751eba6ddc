//! `[[routes]]`, and the route table that is built from them and from `[[access]]`.

use std::{collections::HashSet, net::IpAddr, sync::Arc};

use balancing::settings::MemberSettings;
use listener::{ClientCertPolicy, ListenerSettings};
use routing::{
    AccessOpener, AgentControlledAccess, Class, ClientRule, PathPattern, Persistence,
    RouteSettings, RouteTable,
};
use upstream::MemberAddress;

use crate::{
    access,
    access::{extensions_within, names_within, within},
    binding::{Base, Bound},
    closest::closest,
    config::Config,
    keys::{self, Access, Root, Route, RoutePath, RoutePersistence},
    known_pool, passthrough,
    report::Problem,
    schema::Key,
    section::{Section, repeated_names},
    values::{switch, word},
};

pub(crate) fn build(
    root: &Section<'_>,
    config: &mut Config,
    needs_routes: bool,
    problems: &mut Vec<Problem>,
) {
    let sections = root.tables(Root::routes);
    let builtin_routes = config.routes.builtin_routes;
    if sections.is_empty() && !builtin_routes && needs_routes {
        let problem = root.error(Root::builtin_routes, "no routes");
        let mut problem = problem.expected("true, or your own [[routes]]");
        if config
            .listeners
            .iter()
            .any(|one| !one.sni_passthrough.is_empty())
        {
            problem = problem.help(
                "if the proxy is to serve no request, set sni_strict = true: it then needs no certificate, and refuses the server names that are not passed through",
            );
        }
        problems.push(problem);
    }
    let pools: Vec<_> = root
        .named(Root::pools)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    for section in &sections {
        known_pool(section, &pools, problems);
        known_listeners(root, section, config, problems);
        guards(section, problems);
        empty_conditions(section, problems);
        let own = &config.routes.extension_names;
        access::known_extensions(section, Route::extension, own, problems);
    }
    repeated_names("routes", Route::name, &sections, problems);
    passthrough::check_routes(&sections, config, problems);
    unused_pools(root, &sections, config, problems);
    without_certificates(root, &sections, config, problems);
    nameless_members(&sections, config, problems);
    table(root, config, &sections, &pools, problems);
}

/// Completes the settings and builds the route table once, to report problems that the earlier checks did not find.
fn table(
    root: &Section<'_>,
    config: &mut Config,
    sections: &[Section<'_>],
    pools: &[String],
    problems: &mut Vec<Problem>,
) {
    let (sections, routes): (Vec<_>, Vec<_>) = sections
        .iter()
        .filter_map(|section| Some((section, route(section)?)))
        .unzip();
    if !access::has_errors(problems) {
        let own = &config.routes.extension_names;
        report_unreachable_routes(&sections, &routes, own, problems);
        shared_cookies(&sections, &routes, problems);
    }
    let (rules, access) = access::build(root, config, problems);
    let settings = &mut config.routes;
    settings.routes = routes;
    settings.access = access;
    settings.edge_answers = config.ca.edge_answers;
    settings.renewal = config.ca.renewal;
    for chosen in settings.opened_by_choice() {
        let section = match chosen.opener {
            AccessOpener::Rule(index) => rules.get(index),
            AccessOpener::Route(index) => sections.get(index).copied(),
        };
        problems.extend(section.and_then(|section| agent_controlled_ca_access(section, &chosen)));
    }
    let names: Vec<Arc<str>> = pools.iter().map(|name| name.as_str().into()).collect();
    for refused in RouteTable::new(settings, &names).err().unwrap_or_default() {
        let section = match (refused.route, refused.rule) {
            (Some(index), _) => sections.get(index).copied(),
            (None, Some(index)) => rules.get(index),
            (None, None) => None,
        };
        let Some(section) = section else {
            // Unknown pools of the built-in routes and unknown extension names are already reported.
            continue;
        };
        let Some(key) = section.key(refused.key) else {
            continue;
        };
        let path = section.key_path(key);
        if !problems
            .iter()
            .any(|problem| problem.key.starts_with(&path))
        {
            problems.push(section.error(key, refused.message));
        }
    }
}

/// The first route whose conditions match handles the request. An earlier route that matches the same requests hides a
/// later one, including its `allow` list.
fn report_unreachable_routes(
    sections: &[&Section<'_>],
    routes: &[RouteSettings],
    own: &[(String, String)],
    problems: &mut Vec<Problem>,
) {
    for (index, (section, route)) in sections.iter().zip(routes).enumerate() {
        let mut earlier = routes[..index].iter();
        if let Some(earlier) = earlier.find(|earlier| covers(earlier, route, own)) {
            let message = format!(
                "this route never applies: the earlier route \"{}\" matches every request that it would match",
                earlier.name
            );
            let problem = section.warning(Route::name, message);
            problems.push(problem.help("move it before that route, or remove it"));
        }
    }
}

/// The cookie is valid for the whole host. If two pools use the same cookie name, each pool's cookie replaces the
/// other's, and clients of both pools lose their member.
fn shared_cookies(
    sections: &[&Section<'_>],
    routes: &[RouteSettings],
    problems: &mut Vec<Problem>,
) {
    let conflicts = |one: &RouteSettings, other: &RouteSettings| {
        // A cookie is sent to every port of its host, so listeners make no difference.
        let same_host = one.host.is_empty()
            || other.host.is_empty()
            || one.host.iter().any(|host| other.host.contains(host));
        let cookie = matches!(one.persistence, Some(Persistence::Cookie(_)));
        cookie && one.persistence == other.persistence && one.pool != other.pool && same_host
    };
    for (index, (section, route)) in sections.iter().zip(routes).enumerate() {
        let mut earlier = routes[..index].iter();
        if let Some(earlier) = earlier.find(|earlier| conflicts(earlier, route)) {
            let message = format!(
                "the route \"{}\" uses the same cookie for the pool {}: each response replaces the cookie of the other pool, and a client of both pools loses its member",
                earlier.name, earlier.pool
            );
            let problem = section.warning(Route::persistence, message);
            problems.push(problem.help("give the cookies different names"));
        }
    }
}

/// Whether `earlier` matches every request that `later` matches. Networks, names and regular expressions that cover
/// others are not compared.
fn covers(earlier: &RouteSettings, later: &RouteSettings, own: &[(String, String)]) -> bool {
    let all_of = |later: &[(String, String)], earlier: &[(String, String)]| {
        earlier.iter().all(|one| later.contains(one))
    };
    is_below(later.path.as_ref(), earlier.path.as_ref())
        && within(&later.listener, &earlier.listener)
        && within(&later.host, &earlier.host)
        && within(&later.method, &earlier.method)
        && within(&later.source, &earlier.source)
        && within(&later.sni, &earlier.sni)
        && names_within(&later.certname, &earlier.certname)
        && within(&later.issuer, &earlier.issuer)
        && extensions_within(&later.extension, &earlier.extension, own)
        && earlier.share.unwrap_or(100) >= later.share.unwrap_or(100)
        && all_of(&later.header, &earlier.header)
        && all_of(&later.query, &earlier.query)
        && all_of(&later.cookie, &earlier.cookie)
}

fn is_below(later: Option<&PathPattern>, earlier: Option<&PathPattern>) -> bool {
    let Some(earlier) = earlier else { return true };
    let PathPattern::Prefix(prefix) = earlier else {
        return later == Some(earlier);
    };
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    match later {
        Some(PathPattern::Prefix(path) | PathPattern::Exact(path)) => path
            .strip_prefix(prefix)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
        // Every path starts with a slash.
        Some(PathPattern::Regex(_)) | None => prefix.is_empty(),
    }
}

/// A client that can administer the CA can gain every right. The proxy does not know whether certificate requests are
/// reviewed before they are signed.
fn agent_controlled_ca_access(
    section: &Section<'_>,
    chosen: &AgentControlledAccess,
) -> Option<Problem> {
    if !chosen.classes.contains(&Class::CaAdministration) {
        return None;
    }
    let key = match chosen.opener {
        AccessOpener::Rule(_) => Access::class,
        AccessOpener::Route(_) => Route::classes,
    };
    let message = format!(
        "the administration of the CA is opened by {}, which agents choose in their certificate requests",
        chosen.by
    );
    let problem = section.warning(key, message);
    Some(problem.help(
        "if the CA signs automatically, every client could administer it: use pp_cli_auth or pp_auth_role, which [csr] refuses \
         to agents, complete certnames, or an additional `source`",
    ))
}

fn route(section: &Section<'_>) -> Option<RouteSettings> {
    let mut route = RouteSettings::base();
    Route::read(section, &mut route);
    route.path = path(&section.table(Route::path));
    route.persistence = persistence(&section.table(Route::persistence));
    let is_complete = section.text(Route::name).is_some() && section.text(Route::pool).is_some();
    is_complete.then_some(route)
}

fn path(section: &Section<'_>) -> Option<PathPattern> {
    let prefix = || section.text(RoutePath::prefix).map(PathPattern::Prefix);
    let exact = || section.text(RoutePath::exact).map(PathPattern::Exact);
    let regex = || section.text(RoutePath::regex).map(PathPattern::Regex);
    prefix().or_else(exact).or_else(regex)
}

fn persistence(section: &Section<'_>) -> Option<Persistence> {
    let cookie = section.text(RoutePersistence::cookie);
    let header = || section.text(RoutePersistence::header);
    let source = || section.value(RoutePersistence::source, &switch()) == Some(true);
    cookie
        .map(Persistence::Cookie)
        .or_else(|| header().map(Persistence::Header))
        .or_else(|| source().then_some(Persistence::Source))
}

fn known_pool(section: &Section<'_>, pools: &[String], problems: &mut Vec<Problem>) {
    known_pool::check(section, Route::pool, pools, problems);
}

/// Reports routes of listeners that request no client certificate. Servers behind them would accept the requests of any client,
/// so each route must be for members that are not Puppet servers and for any client.
fn without_certificates(
    root: &Section<'_>,
    sections: &[Section<'_>],
    config: &Config,
    problems: &mut Vec<Problem>,
) {
    let is_without =
        |one: &&ListenerSettings| one.terminates_tls() && one.client_cert == ClientCertPolicy::None;
    for listener in config.listeners.iter().filter(is_without) {
        let name = &listener.name;
        let has_remainder = sections.iter().any(|section| {
            let of = section.spanned_texts(Route::listener);
            let applies = of.is_empty() || of.iter().any(|(known, _)| known == name);
            if !applies {
                return false;
            }
            if let Some((key, why)) = needs_certificates(section) {
                let message = format!(
                    "{why}, but listener `{name}` requests no certificate (client_cert = \"none\")"
                );
                let key = if section.is_set(key) { key } else { Route::name };
                let problem = section.error(key, message);
                problems.push(
                    problem
                        .expected("unguarded = true and client = \"any\", without conditions on certificates")
                        .help("or name other listeners in `listener` of this route"),
                );
            }
            CONDITIONS.into_iter().all(|key| !section.is_set(key))
        });
        if config.routes.builtin_routes && !has_remainder {
            let message = format!(
                "the built-in routes also apply to listener `{name}`, which requests no certificate (client_cert = \"none\")"
            );
            let mut listeners = root.named(Root::listeners).into_iter();
            let section = listeners.find(|(known, _)| known == name);
            problems.extend(section.map(|(_, section)| {
                section
                    .error(keys::Listener::client_cert, message)
                    .expected("an unguarded route for all other requests of this listener")
                    .help(format!(
                        "write a route with listener = [\"{name}\"], unguarded = true, client = \"any\" and no other condition, or set builtin_routes = false"
                    ))
            }));
        }
    }
}

/// The setting because of which a route needs clients' certificates, and the reason.
fn needs_certificates(section: &Section<'_>) -> Option<(&'static Key, &'static str)> {
    if section.value(Route::unguarded, &switch()) != Some(true) {
        return Some((
            Route::unguarded,
            "this route is guarded by the identity of the client",
        ));
    }
    for key in [
        Route::allow,
        Route::certname,
        Route::issuer,
        Route::extension,
    ] {
        if section.is_set(key) {
            return Some((key, "this route requires a certificate"));
        }
    }
    let client: Option<ClientRule> = section.value(Route::client, &word());
    (client != Some(ClientRule::Any))
        .then_some((Route::client, "this route is for verified clients only"))
}

/// The conditions of a route other than its listener.
const CONDITIONS: [&Key; 12] = [
    Route::path,
    Route::host,
    Route::method,
    Route::header,
    Route::query,
    Route::cookie,
    Route::source,
    Route::sni,
    Route::certname,
    Route::issuer,
    Route::extension,
    Route::share,
];

/// Reports conditions on listeners that do not exist, or from which no request comes.
fn known_listeners(
    root: &Section<'_>,
    section: &Section<'_>,
    config: &Config,
    problems: &mut Vec<Problem>,
) {
    let written = root.named(Root::listeners);
    for (name, span) in section.spanned_texts(Route::listener) {
        let mut listeners = config.listeners.iter();
        let message = match listeners.find(|listener| *listener.name == *name) {
            // A listener with an invalid address is reported already.
            None if written.iter().any(|(known, _)| *known == name) => continue,
            None => format!("no listener `{name}`"),
            Some(listener) if listener.passthrough.is_some() => {
                format!(
                    "listener `{name}` passes every connection through, so no request comes from it"
                )
            }
            Some(listener) if listener.redirect_to_https.is_some() => {
                format!("listener `{name}` redirects every request itself")
            }
            Some(_) => continue,
        };
        let mut problem = Problem::error(section.key_path(Route::listener), message)
            .expected("the name of a listener that terminates TLS");
        let known = config.listeners.iter().map(|listener| &*listener.name);
        if let Some(close) = closest(&name, known).filter(|close| *close != name) {
            problem = problem.help(format!("did you mean \"{close}\"?"));
        }
        problems.push(section.place(problem, Some(span)));
    }
}

/// Warns about routes that bypass Puppet's rules, and about settings without an effect.
fn guards(section: &Section<'_>, problems: &mut Vec<Problem>) {
    if section.value(Route::unguarded, &switch()) == Some(true) {
        let problem = section.warning(
            Route::unguarded,
            "this route ignores what Puppet's endpoints require of a client",
        );
        problems.push(problem.help("use it only for members that are not Puppet servers"));
        if section.is_set(Route::classes) {
            problems.push(section.warning(Route::classes, "no effect with unguarded = true"));
        }
    }
    for key in [
        Route::allow,
        Route::certname,
        Route::issuer,
        Route::listener,
        Route::host,
        Route::method,
        Route::source,
        Route::sni,
    ] {
        if section.is_empty_list(key) {
            let message = "an empty list, which would match every client";
            problems.push(
                section
                    .error(key, message)
                    .expected("at least one element, or leave the key out"),
            );
        }
    }
}

/// Reports empty condition tables, which would match every request.
fn empty_conditions(section: &Section<'_>, problems: &mut Vec<Problem>) {
    for key in [Route::header, Route::query, Route::cookie, Route::extension] {
        if section.is_empty_table(key) {
            let problem = section.error(key, "an empty table, which would match every request");
            problems
                .push(problem.expected("at least one name with its value, or leave the key out"));
        }
    }
}

/// A pool that no route uses is probably a mistake.
fn unused_pools(
    root: &Section<'_>,
    sections: &[Section<'_>],
    config: &Config,
    problems: &mut Vec<Problem>,
) {
    let builtin = routing::pool_names::ALL
        .into_iter()
        .filter(|_| config.routes.builtin_routes)
        .map(ToOwned::to_owned);
    let passing = config.listeners.iter();
    let passed = passing.flat_map(ListenerSettings::passthrough_pools);
    let used: HashSet<_> = sections
        .iter()
        .filter_map(|section| section.text(Route::pool))
        .chain(builtin)
        .chain(passed.map(ToOwned::to_owned))
        .collect();
    for (name, section) in root
        .named(Root::pools)
        .iter()
        .filter(|(name, _)| !used.contains(name))
    {
        let problem = Problem::warning(
            root.key_path(Root::pools) + "." + name,
            "no route uses this pool",
        );
        problems.push(section.place(problem, section.own_span()));
    }
}

/// Reports members without a host name in a route that rewrites member names. The proxy rewrites only names with a dot.
fn nameless_members(sections: &[Section<'_>], config: &Config, problems: &mut Vec<Problem>) {
    let is_name = |host: &str| host.contains('.') && host.parse::<IpAddr>().is_err();
    let is_nameless = |member: &MemberSettings| {
        let host = MemberAddress::parse(&member.address);
        let host = host.as_ref().map_or("", MemberAddress::host);
        let is_service = member.address.starts_with("srv:");
        !is_service && !is_name(host) && !member.server_name.as_deref().is_some_and(is_name)
    };
    for section in sections {
        if !section.is_set(Route::rewrite_member_names) {
            continue;
        }
        let name = section.text(Route::pool).unwrap_or_default();
        let mut pools = config.pools.iter().map(|pool| &pool.pool);
        let members = pools
            .find(|pool| pool.name == name)
            .map(|pool| &pool.members);
        if let Some(member) = members
            .into_iter()
            .flatten()
            .find(|member| is_nameless(member))
        {
            let message = format!(
                "no effect for the member {} of the pool {name}: it has no host name with a dot",
                member.address
            );
            let problem = section.warning(Route::rewrite_member_names, message);
            problems.push(
                problem.help("write the full name in `members`, or as `server_name` of the member"),
            );
        }
    }
}
