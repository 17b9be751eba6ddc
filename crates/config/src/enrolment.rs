//! `[csr]`, `[ca]` and `[tls] renew`: which CA requests are allowed, from agents, from clients without a verified certificate and
//! from the proxy itself.

use pki::{CsrAllow, CsrRule, CsrSettings};
use proxy::CaKind;
use routing::Class;
use upstream::settings::{Plaintext, Scheme};

use crate::{
    binding::{Base, Bound},
    config::{Config, PoolConfig},
    keys::{self, Ca, Csr, Identity, Pool, Root, Tls},
    report::Problem,
    section::Section,
};

/// The rules of `[csr]` that are lifted. Reports problems of that table.
pub(crate) fn lifted_rules(
    root: &Section<'_>,
    csr: &CsrSettings,
    problems: &mut Vec<Problem>,
) -> Vec<CsrAllow> {
    let section = root.table(Root::csr);
    no_keys(&section, problems);
    if csr.observe {
        let problem = section.warning(
            Csr::observe,
            "certificate requests that break a rule are forwarded to the CA",
        );
        problems.push(problem.help("access records and metrics show which requests break a rule; set it to false once they show only requests that you want to refuse"));
    }
    let tables = section.tables(Csr::allow);
    tables.iter().map(|allow| lifted(allow, problems)).collect()
}

/// Completes `edge_answers`. The proxy can answer CA requests from its copies only if it fetches them.
pub(crate) fn edge(root: &Section<'_>, config: &mut Config, problems: &mut Vec<Problem>) {
    let section = root.table(Root::ca);
    if !section.is_set(Ca::edge_answers) {
        config.ca.edge_answers = config.trust.fetch.is_some();
    }
    if !config.ca.edge_answers {
        if section.is_set(Ca::edge_answers_age_max) {
            let message = "no effect with edge_answers = false";
            problems.push(section.warning(Ca::edge_answers_age_max, message));
        }
        return;
    }
    if config.trust.fetch.is_none() {
        let message = "the proxy has no copies to serve: [trust.fetch] is off";
        let problem = section.error(Ca::edge_answers, message);
        problems.push(problem.expected("[trust.fetch] enabled = true, and a pool `ca`"));
    }
}

/// Reports `[tls] renew` without a pool `ca` over TLS. The CA renews the certificate that the proxy presents in the handshake.
pub(crate) fn check_own_renewal(root: &Section<'_>, config: &Config, problems: &mut Vec<Problem>) {
    let section = root.table(Root::tls);
    if !config.own_renewal.enabled {
        if section.is_set(Tls::renew_before) {
            let message = "no effect with renew = false";
            problems.push(section.warning(Tls::renew_before, message));
        }
        return;
    }
    let mut pools = config.pools.iter();
    let pool = pools.find(|pool| pool.pool.name == routing::pool_names::CA);
    let message = match pool {
        None => "there is no pool `ca` whose CA could renew the certificates",
        Some(pool) if pool.upstream.scheme == Scheme::Http => {
            "the pool `ca` has plain HTTP, but the CA knows from TLS which certificate it renews"
        }
        Some(_) => return,
    };
    let problem = section.error(Tls::renew, message);
    problems.push(problem.expected("a pool `ca` with scheme = \"https\""));
}

/// Checks every pool that receives certificate renewals.
pub(crate) fn check_renewal(root: &Section<'_>, config: &Config, problems: &mut Vec<Problem>) {
    if !config.ca.renewal {
        return;
    }
    if config.ca.kind == Some(CaKind::Other) {
        let message = "such a CA renews the certificate of the connection, which is the proxy's, in place of the agent's";
        let problem = root.table(Root::ca).error(Ca::kind, message);
        problems.push(problem.expected("`renewal = false`, or a Puppet Server"));
    }
    for (name, section) in root.named(Root::pools) {
        let of_name = |pool: &&PoolConfig| *pool.pool.name == *name;
        if !renews(config, &name) {
            continue;
        }
        if let Some(pool) = config.pools.iter().find(of_name) {
            plain_renewal(root, &section, pool, problems);
            unsupported_renewal(root, &section, pool, problems);
        }
    }
}

/// Whether this pool receives certificate renewals.
fn renews(config: &Config, pool: &str) -> bool {
    let opens = |route: &routing::RouteSettings| {
        route.pool == pool && route.classes.contains(&Class::Renewal) && !route.unguarded
    };
    config.routes.builtin_routes && pool == routing::pool_names::CA
        || config.routes.routes.iter().any(opens)
}

/// Without TLS the CA cannot authenticate the proxy. It renews only if it trusts the header from any client that
/// reaches its port, and it does not verify the signature of the certificate in that header.
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
            "renewals go to the pool `{name}` in plain HTTP: its CA would trust the certificate in a header that any host on \
             this network can send"
        );
        let problem = section.error(Pool::plaintext, message);
        problems.push(
            problem
                .expected("scheme = \"https\", or members on this machine alone")
                .help("a client that can connect to that CA gets a certificate with any name and any rights"),
        );
        return;
    }
    let message = format!(
        "renewals go to the pool `{name}` in plain HTTP, which works only if its CA trusts the certificate in a header"
    );
    let problem = root.table(Root::ca).warning(Ca::renewal, message);
    problems.push(problem.help(
        "every process on this machine can then get a certificate with any name from it: use scheme = \"https\" and \
         infra_inventory.txt",
    ));
}

/// If the CA cannot read the agent's certificate from a header, it uses the proxy's certificate instead.
fn unsupported_renewal(
    root: &Section<'_>,
    section: &Section<'_>,
    pool: &PoolConfig,
    problems: &mut Vec<Problem>,
) {
    if pool.rules.form.supports_renewal() {
        return;
    }
    let own = section.table(Pool::identity);
    let key = [Identity::cert_header, Identity::cert_format];
    let (table, key) = match key.into_iter().find(|key| own.is_set(key)) {
        Some(key) => (own, key),
        None => {
            let above = root.table(Root::identity);
            let key = key.into_iter().find(|key| above.is_set(key));
            (above, key.unwrap_or(Identity::cert_header))
        }
    };
    let message = format!(
        "renewals go to the pool `{}`, but its CA reads only X-Client-Cert with a percent-encoded certificate",
        pool.pool.name
    );
    problems.push(
        table
            .error(key, message)
            .expected("cert_header = \"X-Client-Cert\" and cert_format = \"escaped\" for this pool")
            .help("without the agent's certificate, the CA renews the certificate of the proxy"),
    );
}

fn lifted(section: &Section<'_>, problems: &mut Vec<Problem>) -> CsrAllow {
    for key in [keys::CsrAllow::certname, keys::CsrAllow::skip_rules] {
        if section.is_empty_list(key) {
            let problem = section.error(key, "an empty list, which exempts nothing");
            problems.push(problem.expected("at least one element"));
        }
    }
    let mut allow = CsrAllow::base();
    keys::CsrAllow::read(section, &mut allow);
    let every_name = allow.certname.iter().any(|pattern| pattern.as_str() == "*");
    if every_name && allow.skip_rules.contains(&CsrRule::Authorization) {
        let message = "every client may request rights on the servers from the CA, and a CA that signs automatically grants them";
        let problem = section.warning(keys::CsrAllow::skip_rules, message);
        problems.push(problem.help("list the names that need it in `certname`"));
    }
    allow
}

fn no_keys(section: &Section<'_>, problems: &mut Vec<Problem>) {
    if section.is_empty_list(Csr::keys) {
        let problem = section.error(Csr::keys, "an empty list: no agent could enroll");
        problems.push(problem.expected("at least one kind of key, or leave the key out"));
    }
}
