//! `[csr]` and `[ca]`: what agents, and clients without a verified certificate, may ask of the CA.

use ::identity::CertnamePattern;
use balancing::{Rate, Rates};
use pki::{CsrAllow, CsrKey, CsrRule, CsrSettings};
use proxy::CaSettings;
use routing::Class;
use upstream::settings::{Plaintext, Scheme};

use crate::{
    config::{Config, PoolConfig},
    report::Problem,
    section::Section,
};

/// `[csr]`.
pub(crate) fn csr(root: &Section<'_>, problems: &mut Vec<Problem>) -> CsrSettings {
    let section = root.table("csr");
    no_keys(&section, problems);
    if section.switch("observe") {
        let problem = section.warning(
            "observe",
            "no certificate request is refused for what it asks",
        );
        problems.push(problem.help("records and metrics tell which would be; take it out once they tell of none that should pass"));
    }
    let words = section.texts("keys");
    let named = |key: &CsrKey| !section.is_set("keys") || words.iter().any(|w| w == key.as_str());
    let default = CsrSettings::default();
    CsrSettings {
        observe: section.switch("observe"),
        keys: CsrKey::ALL.into_iter().filter(named).collect(),
        rsa_bits_min: section
            .count("rsa_bits_min")
            .map_or(default.rsa_bits_min, |bits| bits as usize),
        allow: section
            .tables("allow")
            .iter()
            .map(|allow| lifted(allow, problems))
            .collect(),
    }
}

/// `[ca]`.
pub(crate) fn ca(root: &Section<'_>) -> CaSettings {
    let section = root.table("ca");
    let default = CaSettings::default();
    let count = |key, default| section.count(key).unwrap_or(default);
    let (address, total) = (default.rates.address, default.rates.total);
    CaSettings {
        rates: Rates {
            address: Rate {
                per_second: count("anonymous_rate_per_address", address.per_second),
                burst: count("anonymous_burst_per_address", address.burst),
            },
            total: Rate {
                per_second: count("anonymous_rate", total.per_second),
                burst: count("anonymous_burst", total.burst),
            },
        },
        anonymous_in_flight_max: count("anonymous_in_flight_max", default.anonymous_in_flight_max),
        edge_answers: section
            .switch("edge_answers")
            .then(|| section.duration("edge_answers_age_max").unwrap_or_default()),
        renewal: section.switch("renewal"),
    }
}

/// What is answered with has to come from somewhere.
pub(crate) fn check_edge(root: &Section<'_>, config: &Config, problems: &mut Vec<Problem>) {
    let section = root.table("ca");
    if config.ca.edge_answers.is_none() {
        if section.is_set("edge_answers_age_max") {
            let message = "no effect beside edge_answers = false";
            problems.push(section.warning("edge_answers_age_max", message));
        }
        return;
    }
    if config.trust.fetch.is_none() {
        let message = "nothing fetches what would be answered: [trust.fetch] is off";
        let problem = section.error("edge_answers", message);
        problems.push(problem.expected("[trust.fetch] enabled = true beside it, and a pool `ca`"));
    }
}

/// What has to hold of every pool that renewals go to.
pub(crate) fn check_renewal(root: &Section<'_>, config: &Config, problems: &mut Vec<Problem>) {
    if !config.ca.renewal {
        return;
    }
    for (name, section) in root.named("pools") {
        let of_name = |pool: &&PoolConfig| *pool.pool.name == *name;
        if !renews(config, &name) {
            continue;
        }
        if let Some(pool) = config.pools.iter().find(of_name) {
            plain_renewal(root, &section, pool, problems);
            told_renewal(root, &section, pool, problems);
        }
    }
}

/// Whether renewals go to a pool of this name.
fn renews(config: &Config, pool: &str) -> bool {
    let opens = |route: &routing::RouteSettings| {
        route.pool == pool && route.classes.contains(&Class::Renewal) && !route.unguarded
    };
    config.routes.builtin_routes && pool == "ca" || config.routes.routes.iter().any(opens)
}

/// Without TLS the CA has nothing to know us by. It renews only if it believes the header of whoever reaches its port,
/// and looks at no signature on the certificate in it.
fn plain_renewal(
    root: &Section<'_>,
    section: &Section<'_>,
    pool: &PoolConfig,
    problems: &mut Vec<Problem>,
) {
    if pool.upstream.scheme != Scheme::Http {
        return;
    }
    let name = &pool.pool.name;
    if pool.upstream.plaintext == Plaintext::TrustedNetwork {
        let message = format!(
            "renewals go to the pool `{name}`, whose CA would have to believe the certificate in a header that anybody \
             on this network can write"
        );
        let problem = section.error("plaintext", message);
        problems.push(
            problem
                .expected("scheme = \"https\", or members on this machine alone")
                .help("whoever reaches that CA gets a certificate of any name, with any right"),
        );
        return;
    }
    let message = format!(
        "renewals go to the pool `{name}` in plain HTTP, which a CA answers only if it believes the certificate in a header"
    );
    let problem = root.table("ca").warning("renewal", message);
    problems.push(problem.help(
        "then everybody on this machine who reaches its port gets a certificate of any name: use scheme = \"https\" and \
         infra_inventory.txt",
    ));
}

/// A certificate that the CA does not read would leave it with ours.
fn told_renewal(
    root: &Section<'_>,
    section: &Section<'_>,
    pool: &PoolConfig,
    problems: &mut Vec<Problem>,
) {
    if pool.rules.form.tells_a_ca() {
        return;
    }
    let own = section.table("identity");
    let key = ["cert_header", "cert_format"];
    let (table, key) = match key.into_iter().find(|key| own.is_set(key)) {
        Some(key) => (own, key),
        None => {
            let above = root.table("identity");
            let key = key.into_iter().find(|key| above.is_set(key));
            (above, key.unwrap_or("cert_header"))
        }
    };
    let message = format!(
        "renewals go to the pool `{}`, whose CA reads the certificate in X-Client-Cert, percent-escaped, alone",
        pool.pool.name
    );
    problems.push(
        table
            .error(key, message)
            .expected("cert_header = \"X-Client-Cert\" and cert_format = \"escaped\" for this pool")
            .help("a CA that reads no certificate renews the one it sees, which is the proxy's"),
    );
}

fn lifted(section: &Section<'_>, problems: &mut Vec<Problem>) -> CsrAllow {
    for key in ["certname", "lifts"] {
        if section.is_empty_list(key) {
            let problem = section.error(key, "an empty list, which lifts nothing for anybody");
            problems.push(problem.expected("at least one element"));
        }
    }
    let patterns = section.texts("certname");
    let words = section.texts("lifts");
    let lifts: Vec<_> = CsrRule::LIFTABLE
        .into_iter()
        .filter(|rule| words.iter().any(|word| word == rule.as_str()))
        .collect();
    let anybody = patterns.iter().any(|pattern| pattern == "*");
    if anybody && lifts.contains(&CsrRule::Authorization) {
        let message = "anybody may ask the CA for rights on the servers, and a CA that signs by itself grants them";
        let problem = section.warning("lifts", message);
        problems.push(problem.help("name those few who need it in `certname`"));
    }
    CsrAllow {
        certname: patterns
            .iter()
            .filter_map(|pattern| CertnamePattern::parse(pattern).ok())
            .collect(),
        lifts,
    }
}

fn no_keys(section: &Section<'_>, problems: &mut Vec<Problem>) {
    if section.is_empty_list("keys") {
        let problem = section.error("keys", "an empty list: nobody could enrol");
        problems.push(problem.expected("at least one kind of key, or no such key"));
    }
}
