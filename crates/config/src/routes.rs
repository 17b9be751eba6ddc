//! `[[routes]]`, and the table that is made of them with `[[access]]`.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use routing::{
    Chosen, Class, ClientRule, Opener, PathPattern, RouteSettings, RouteTable, Settings,
};

use crate::{
    access,
    access::{names_within, within},
    examination::closest,
    report::Problem,
    section::Section,
};

pub(crate) fn build(root: &Section<'_>, problems: &mut Vec<Problem>) -> Settings {
    let sections = root.tables("routes");
    let builtin_routes = root.switch("builtin_routes");
    if sections.is_empty() && !builtin_routes {
        problems.push(
            root.error("builtin_routes", "no routes at all")
                .expected("true, or [[routes]] of your own"),
        );
    }
    let pools: Vec<_> = root
        .named("pools")
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    for section in &sections {
        known_pool(section, &pools, problems);
        guards(section, problems);
        empty_conditions(section, problems);
    }
    repeated_names("routes", &sections, problems);
    idle_pools(root, &sections, builtin_routes, problems);
    table(root, &sections, &pools, problems)
}

/// The settings, after the table that is made of them has been tried: what it refuses and nothing above has said yet.
fn table(
    root: &Section<'_>,
    sections: &[Section<'_>],
    pools: &[String],
    problems: &mut Vec<Problem>,
) -> Settings {
    let (sections, routes): (Vec<_>, Vec<_>) = sections
        .iter()
        .filter_map(|section| Some((section, route(section)?)))
        .unzip();
    if !access::has_errors(problems) {
        never_taken(&sections, &routes, problems);
    }
    let (rules, access) = access::build(root, problems);
    let settings = Settings {
        routes,
        builtin_routes: root.switch("builtin_routes"),
        access,
        access_observe: root.switch("access_observe"),
        extension_names: root.table("identity").pairs("extensions"),
        edge_answers: root.table("ca").switch("edge_answers"),
        renewal: root.table("ca").switch("renewal"),
    };
    for chosen in settings.opened_by_choice() {
        let section = match chosen.opener {
            Opener::Rule(index) => rules.get(index),
            Opener::Route(index) => sections.get(index).copied(),
        };
        problems.extend(section.and_then(|section| ca_by_choice(section, &chosen)));
    }
    let names: Vec<Arc<str>> = pools.iter().map(|name| name.as_str().into()).collect();
    for refused in RouteTable::new(&settings, &names).err().unwrap_or_default() {
        let section = match (refused.route, refused.rule) {
            (Some(index), _) => sections.get(index).copied(),
            (None, Some(index)) => rules.get(index),
            (None, None) => None,
        };
        let Some(section) = section else {
            // Pools of the built-in routes, and names of extensions: reported already.
            continue;
        };
        let key = section.key_path(refused.key);
        if !problems.iter().any(|problem| problem.key.starts_with(&key)) {
            problems.push(section.error(refused.key, refused.message));
        }
    }
    settings
}

/// The first route whose conditions hold takes the request: what one behind it would open, or guard by `allow`, it does not.
fn never_taken(sections: &[&Section<'_>], routes: &[RouteSettings], problems: &mut Vec<Problem>) {
    for (index, (section, route)) in sections.iter().zip(routes).enumerate() {
        let mut earlier = routes[..index].iter();
        if let Some(earlier) = earlier.find(|earlier| takes_whatever(earlier, route)) {
            let message = format!(
                "no request takes this route: \"{}\" before it takes whatever it would",
                earlier.name
            );
            let problem = section.warning("name", message);
            problems.push(problem.help("put it before that one, or take it out"));
        }
    }
}

/// Whether `earlier` takes every request that `later` would. Networks, names and expressions within others are not looked
/// for.
fn takes_whatever(earlier: &RouteSettings, later: &RouteSettings) -> bool {
    let all_of = |later: &[(String, String)], earlier: &[(String, String)]| {
        earlier.iter().all(|one| later.contains(one))
    };
    is_below(later.path.as_ref(), earlier.path.as_ref())
        && within(&later.host, &earlier.host)
        && within(&later.method, &earlier.method)
        && within(&later.source, &earlier.source)
        && within(&later.sni, &earlier.sni)
        && names_within(&later.certname, &earlier.certname)
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
        // Every path begins with a slash.
        Some(PathPattern::Regex(_)) | None => prefix.is_empty(),
    }
}

/// Who administers the CA has all rights there are. Whether whoever signs looks at a request before, is not known here.
fn ca_by_choice(section: &Section<'_>, chosen: &Chosen) -> Option<Problem> {
    if !chosen.classes.contains(&Class::CaAdministration) {
        return None;
    }
    let key = match chosen.opener {
        Opener::Rule(_) => "class",
        Opener::Route(_) => "classes",
    };
    let message = format!(
        "the administration of the CA is opened by {}, which agents write into their own certificate requests",
        chosen.by
    );
    let problem = section.warning(key, message);
    Some(problem.help(
        "where a CA signs by itself everybody could administer it so: go by pp_cli_auth or pp_auth_role, which [csr] keeps \
         from agents, by whole certnames, or by `source` besides",
    ))
}

fn route(section: &Section<'_>) -> Option<RouteSettings> {
    Some(RouteSettings {
        name: section.text("name")?,
        host: section.texts("host"),
        path: path(&section.table("path")),
        method: section.texts("method"),
        header: section.pairs("header"),
        query: section.pairs("query"),
        cookie: section.pairs("cookie"),
        source: section.texts("source"),
        sni: section.texts("sni"),
        certname: section.texts("certname"),
        pool: section.text("pool")?,
        client: match section.text("client")?.as_str() {
            "any" => ClientRule::Any,
            _ => ClientRule::Verified,
        },
        allow: section.texts("allow"),
        classes: section
            .texts("classes")
            .iter()
            .filter_map(|word| word.parse().ok())
            .collect(),
        unguarded: section.switch("unguarded"),
        upgrade: section.texts("upgrade"),
        body_bytes_max: section.size("body_max"),
    })
}

fn path(section: &Section<'_>) -> Option<PathPattern> {
    let prefix = || section.text("prefix").map(PathPattern::Prefix);
    let exact = || section.text("exact").map(PathPattern::Exact);
    let regex = || section.text("regex").map(PathPattern::Regex);
    prefix().or_else(exact).or_else(regex)
}

fn known_pool(section: &Section<'_>, pools: &[String], problems: &mut Vec<Problem>) {
    let Some(pool) = section.text("pool").filter(|pool| !pools.contains(pool)) else {
        return;
    };
    let known = || pools.iter().map(String::as_str);
    let problem = section
        .error("pool", format!("no pool `{pool}`"))
        .expected("the name of a pool");
    problems.push(match closest(&pool, known()) {
        Some(close) => problem.help(format!("did you mean \"{close}\"?")),
        None if pools.is_empty() => {
            problem.help(format!("write [pools.{pool}] with its `members`"))
        }
        None => problem.help(format!(
            "pools here: {}",
            known().collect::<Vec<_>>().join(", ")
        )),
    });
}

/// What a route leaves unguarded, or says without an effect.
fn guards(section: &Section<'_>, problems: &mut Vec<Problem>) {
    if section.switch("unguarded") {
        let problem = section.warning(
            "unguarded",
            "this route ignores what Puppet's endpoints demand of a client",
        );
        problems
            .push(problem.help("right for members that are no Puppet servers, and for no others"));
        if section.is_set("classes") {
            problems.push(section.warning("classes", "no effect beside unguarded = true"));
        }
    }
    for key in ["allow", "certname", "host", "method", "source", "sni"] {
        if section.is_empty_list(key) {
            let message = "an empty list, which reads as nobody and means anybody";
            problems.push(
                section
                    .error(key, message)
                    .expected("at least one element, or no such key"),
            );
        }
    }
}

/// Conditions without a word in them: they would hold for every request.
fn empty_conditions(section: &Section<'_>, problems: &mut Vec<Problem>) {
    for key in ["header", "query", "cookie"] {
        if section.is_empty_table(key) {
            let problem = section.error(key, "an empty table, which is no condition");
            problems.push(problem.expected("at least one name with its text, or no such key"));
        }
    }
}

pub(crate) fn repeated_names(key: &str, sections: &[Section<'_>], problems: &mut Vec<Problem>) {
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (index, section) in sections.iter().enumerate() {
        let Some(name) = section.text("name") else {
            continue;
        };
        if let Some(other) = seen.insert(name.clone(), index) {
            let problem =
                section.error("name", format!("`{key}[{other}]` is named \"{name}\" too"));
            problems.push(problem.expected("a name of its own"));
        }
    }
}

/// A pool that no route leads to is a slip more often than a plan.
fn idle_pools(
    root: &Section<'_>,
    sections: &[Section<'_>],
    builtin_routes: bool,
    problems: &mut Vec<Problem>,
) {
    let builtin = ["ca", "compilers", "filebucket"]
        .into_iter()
        .filter(|_| builtin_routes)
        .map(ToOwned::to_owned);
    let used: HashSet<_> = sections
        .iter()
        .filter_map(|section| section.text("pool"))
        .chain(builtin)
        .collect();
    for (name, section) in root
        .named("pools")
        .iter()
        .filter(|(name, _)| !used.contains(name))
    {
        let problem = Problem::warning(
            root.key_path("pools") + "." + name,
            "no route leads to this pool",
        );
        problems.push(section.place(problem, section.own_span()));
    }
}
