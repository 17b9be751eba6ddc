//! `[identity]` and `[pools.NAME.identity]`.

use std::{collections::HashMap, ops::Range};

use ::identity::{
    CertFormat, HeaderForm, HeaderPattern, HeaderRole, HeaderSet, IdentityName, OwnNames,
    is_removed,
};

use listener::settings::InvalidCertPolicy;
use proxy::settings::IdentityRule;
use routing::pool_names;
use upstream::settings::Scheme;

use crate::{
    binding::Bound,
    config::{Config, PoolConfig},
    keys::{Identity, Pool, PoolIdentity, Root, Route},
    report::Problem,
    schema::Key,
    section::Section,
    values::switch,
};

/// Completes the header format of `[identity]`, which applies to pools that do not override it.
pub(crate) fn complete(root: &Section<'_>, form: &mut HeaderForm) {
    follow_format(form, &[&root.table(Root::identity)]);
}

/// The header format of a pool; `[identity]` provides the settings that the pool leaves out.
pub(crate) fn pool_form(root: &Section<'_>, pool: &Section<'_>, above: &HeaderForm) -> HeaderForm {
    let section = pool.table(Pool::identity);
    let mut form = above.clone();
    PoolIdentity::read(&section, &mut form);
    follow_format(&mut form, &[&section, &root.table(Root::identity)]);
    form
}

/// If no table names the certificate's header, it gets the name that Puppet expects for its format.
fn follow_format(form: &mut HeaderForm, sections: &[&Section<'_>]) {
    if form.sets.is_empty() {
        form.sets = HeaderForm::default().sets;
    }
    if form.dn.is_empty() {
        form.dn = HeaderForm::default().dn;
    }
    let mut sections = sections.iter();
    if !sections.any(|section| section.text(Identity::cert_header).is_some()) {
        form.cert = form.cert_format.usual_name();
    }
}

/// The default of `identity_headers` for a pool. A CA server over TLS authenticates the proxy by its certificate. It
/// needs only the agent's certificate, and only for a renewal.
pub(crate) fn default_rule(config: &Config, pool: &PoolConfig) -> IdentityRule {
    let forwards_invalid = config
        .listeners
        .iter()
        .any(|listener| listener.on_invalid == InvalidCertPolicy::Forward);
    let is_plain_ca = pool.pool.name == pool_names::CA
        && pool.upstream.scheme == Scheme::Https
        && pool.rules.form == HeaderForm::default()
        && !config.routes.legacy_routes
        && !forwards_invalid;
    if is_plain_ca {
        IdentityRule::Renewal
    } else {
        IdentityRule::Always
    }
}

/// Completes `identity_headers` of the pools.
pub(crate) fn complete_rules(root: &Section<'_>, config: &mut Config) {
    let mut pools = std::mem::take(&mut config.pools);
    for ((_, section), pool) in root.named(Root::pools).iter().zip(&mut pools) {
        if !section.is_set(Pool::identity_headers) {
            pool.rules.identity = default_rule(config, pool);
        }
    }
    config.pools = pools;
}

/// Reports header names with two meanings, and header sets that no server can use. Stores the formats of the subject.
pub(crate) fn check(root: &Section<'_>, config: &mut Config, problems: &mut Vec<Problem>) {
    let pools = config.pools.iter().map(|pool| &pool.rules.form);
    let forms: Vec<_> = std::iter::once(&config.form)
        .chain(pools)
        .cloned()
        .collect();
    config.identity.dn_formats = forms.iter().map(|form| form.dn_format).collect();
    let mut roles = HashMap::new();
    for (section, form) in sections(root).iter().zip(&forms) {
        names_of_the_subject(section, problems);
        for (name, role, span, key) in names(section) {
            let known = name.known_role().unwrap_or(role);
            let first = *roles.entry(name.as_str().to_owned()).or_insert(known);
            if first != role {
                let problem = Problem::error(
                    section.key_path(key),
                    format!("{name} already carries {first}"),
                );
                let problem = problem.expected(format!(
                    "a name for {role} that carries nothing else in any pool"
                ));
                problems.push(section.place(problem, Some(span)));
            }
        }
        certificate(section, form, problems);
        sets(section, form, problems);
    }
    pools_sets(root, config, problems);
    let own = OwnNames::of(&forms);
    conditions(root, &own, problems);
    kept_headers(root, &own, config.routes.builtin_routes, problems);
}

/// Reports kept headers that only the proxy may write, and pools that keep headers for servers that trust them. Routes
/// check for themselves whether they may keep headers.
fn kept_headers(root: &Section<'_>, own: &OwnNames, builtin: bool, problems: &mut Vec<Problem>) {
    let routes = root.tables(Root::routes);
    let pools = root.named(Root::pools);
    let route_keys = routes.iter().map(|route| (route, Route::keep_headers));
    let pool_keys = pools.iter().map(|(_, pool)| (pool, Pool::keep_headers));
    for (section, key) in route_keys.chain(pool_keys) {
        for (text, span) in section.spanned_texts(key) {
            let pattern = HeaderPattern::parse(&text);
            if let Some(covered) = pattern.and_then(|pattern| own.written_by_proxy(&pattern)) {
                let message = format!("\"{text}\" {covered}, which only the proxy may write");
                let problem = Problem::error(section.key_path(key), message);
                problems.push(section.place(problem, Some(span)));
            }
        }
    }
    for (name, pool) in pools
        .iter()
        .filter(|(_, pool)| !pool.spanned_texts(Pool::keep_headers).is_empty())
    {
        let leads_here = |route: &&Section<'_>| route.text(Route::pool).as_ref() == Some(name);
        let guarded = |route: &&Section<'_>| route.value(Route::unguarded, &switch()) != Some(true);
        let guarded = routes.iter().filter(leads_here).find(guarded);
        let user = match guarded {
            Some(route) => {
                let name = route.text(Route::name).unwrap_or_default();
                format!("the route \"{name}\"")
            }
            None if builtin && pool_names::ALL.contains(&name.as_str()) => {
                "a built-in route".to_owned()
            }
            None => continue,
        };
        let message = format!(
            "{user} leads to this pool and is not unguarded: its servers trust identity headers"
        );
        let problem = pool.error(Pool::keep_headers, message);
        problems.push(problem.expected("a pool whose routes all have unguarded = true"));
    }
}

/// The section `[identity]`, then that of each pool, in the order of `Config::pools`.
fn sections<'d>(root: &Section<'d>) -> Vec<Section<'d>> {
    let pools = root.named(Root::pools).into_iter();
    std::iter::once(root.table(Root::identity))
        .chain(pools.map(|(_, pool)| pool.table(Pool::identity)))
        .collect()
}

/// The valid names in the file. Invalid names are already reported.
fn names_of(
    section: &Section<'_>,
    key: &Key,
) -> impl Iterator<Item = (IdentityName, Range<usize>)> {
    let texts = section.spanned_texts(key).into_iter();
    texts.filter_map(|(text, span)| Some((IdentityName::parse(&text).ok()?, span)))
}

fn names(section: &Section<'_>) -> Vec<(IdentityName, HeaderRole, Range<usize>, &'static Key)> {
    let keys = [
        (Identity::verify_header, HeaderRole::Verify),
        (Identity::dn_header, HeaderRole::Dn),
        (Identity::cert_header, HeaderRole::Cert),
    ];
    keys.into_iter()
        .flat_map(|(key, role)| {
            names_of(section, key).map(move |(name, span)| (name, role, span, key))
        })
        .collect()
}

fn names_of_the_subject(section: &Section<'_>, problems: &mut Vec<Problem>) {
    let expected = format!(
        "a name, or a list of 1 to {} names",
        HeaderForm::DN_NAMES_MAX
    );
    let given = section.spanned_texts(Identity::dn_header);
    if section.is_empty_list(Identity::dn_header) || given.len() > HeaderForm::DN_NAMES_MAX {
        let message = format!("{} names", given.len());
        problems.push(
            section
                .error(Identity::dn_header, message)
                .expected(expected),
        );
    }
    for (index, (text, span)) in given.iter().enumerate() {
        if given[..index]
            .iter()
            .any(|(other, _)| other.eq_ignore_ascii_case(text))
        {
            let problem = Problem::error(
                section.key_path(Identity::dn_header),
                format!("\"{text}\" is listed twice"),
            );
            problems.push(section.place(problem, Some(span.clone())));
        }
    }
}

/// Puppet reads each encoding from a header of its own, and rejects the other encoding as an invalid certificate.
fn certificate(section: &Section<'_>, form: &HeaderForm, problems: &mut Vec<Problem>) {
    let Some(key) = [Identity::cert_header, Identity::cert_format]
        .into_iter()
        .find(|key| section.is_set(key))
    else {
        return;
    };
    let others = match form.cert_format {
        CertFormat::Escaped => CertFormat::OneLine,
        CertFormat::OneLine => CertFormat::Escaped,
    };
    if form.cert.as_str() == others.usual_name().as_str() {
        let message = format!("Puppet expects the other cert_format in {}", form.cert);
        let problem = section.error(key, message);
        problems
            .push(problem.expected(format!("{} for this format", form.cert_format.usual_name())));
    }
}

/// Reports sets of headers that are empty or incomplete.
fn sets(section: &Section<'_>, form: &HeaderForm, problems: &mut Vec<Problem>) {
    let key = Identity::headers;
    if section.is_empty_list(key) {
        let problem = section.error(key, "an empty list: no member would know its clients");
        problems.push(problem.expected("at least one set of headers, or leave the key out"));
    }
    let given = section.spanned_texts(key);
    for (index, (text, span)) in given.iter().enumerate() {
        if given[..index].iter().any(|(other, _)| other == text) {
            let message = format!("\"{text}\" is listed twice");
            let problem = Problem::error(section.key_path(key), message);
            problems.push(section.place(problem, Some(span.clone())));
        }
    }
    let is_chain_alone =
        form.sends(HeaderSet::ClientCertChain) && !form.sends(HeaderSet::ClientCert);
    if is_chain_alone && section.is_set(key) {
        let message = "RFC 9440 allows Client-Cert-Chain only beside Client-Cert";
        let problem = section.error(key, message);
        problems.push(problem.expected("`client-cert` too"));
    }
    if form.sends(HeaderSet::Puppet) {
        return;
    }
    for (_, _, span, own) in names(section) {
        let message = "it is the name of one of Puppet's headers, and none is sent";
        let problem = Problem::error(section.key_path(own), message);
        let problem = problem.expected("`puppet` in `headers`, or no name");
        problems.push(section.place(problem, Some(span)));
    }
}

/// Reports pools whose servers would not receive the identity that they need.
fn pools_sets(root: &Section<'_>, config: &Config, problems: &mut Vec<Problem>) {
    let sections = root.named(Root::pools);
    for ((name, section), pool) in sections.iter().zip(&config.pools) {
        let (rules, own) = (&pool.rules, section.table(Pool::identity));
        let is_set = own.is_set(Identity::headers);
        let place = if is_set {
            own
        } else {
            root.table(Root::identity)
        };
        if !rules.forward_cert && rules.form.sends(HeaderSet::ClientCert) {
            let message = "the certificate is not forwarded to this pool, and Client-Cert is that";
            let problem = section.error(Pool::forward_cert, message);
            problems.push(problem.expected("true, or no `client-cert` in `headers`"));
        }
        let is_plain_ca = name == pool_names::CA && pool.upstream.scheme == Scheme::Http;
        if is_plain_ca && rules.forward_cert && section.is_set(Pool::forward_cert) {
            let message = "no certificate is sent to a CA over plain HTTP, which would trust a forged one too, so it \
                           permits nothing by pp_cli_auth";
            let problem = section.warning(Pool::forward_cert, message);
            problems.push(problem.help(
                "for `puppetserver ca`, allow the certname of the CA's host in the CA's auth.conf (\"puppetlabs cert \
                 status\", \"puppetlabs cert statuses\", \"puppetlabs cert clean\") and in an [[access]] rule for the \
                 class `ca-administration`, and remove forward_cert",
            ));
        }
        let is_puppets = pool_names::ALL.contains(&name.as_str());
        if is_puppets && !rules.form.sends(HeaderSet::Puppet) {
            let message = format!(
                "no Puppet server reads these headers, and the pool `{name}` is one of Puppet's"
            );
            let problem = place.warning(Identity::headers, message);
            problems.push(problem.help("add \"puppet\" to the list"));
        }
    }
}

/// A condition on a header that is removed from every request would never hold.
fn conditions(root: &Section<'_>, own: &OwnNames, problems: &mut Vec<Problem>) {
    for route in root.tables(Root::routes) {
        for (name, _) in route.pairs(Route::header) {
            if is_removed(name.as_bytes(), own)
                && !is_removed(name.as_bytes(), &OwnNames::default())
            {
                let message = format!(
                    "{name} carries the identity, and the proxy removes it from every request"
                );
                problems.push(route.error(Route::header, message));
            }
        }
    }
}
