//! What `[trust]` and `[[trust.issuers]]` say of revocation: policies, and what an operator should know of the lax ones.

use std::{collections::HashMap, time::Duration};

use pki::settings::{CrlExpired, IssuerSettings, Revocation, TrustSettings};

use crate::{quantity, report::Problem, section::Section};

/// The policies of `[trust]`, and what is wrong with them.
pub(crate) fn trust(section: &Section<'_>, problems: &mut Vec<Problem>) -> TrustSettings {
    let issuers = section.tables("issuers");
    repeated_names(&issuers, problems);
    let settings = TrustSettings {
        depth: section
            .count("depth")
            .and_then(|depth| depth.try_into().ok())
            .unwrap_or_default(),
        crl_expired: crl_expired(section).unwrap_or_default(),
        unchecked: section.texts("unchecked"),
        revocation: revocation(section).unwrap_or_default(),
        issuers: issuers.iter().filter_map(issuer).collect(),
        legacy_signatures: section.texts("legacy_signatures"),
        remembered_max: section
            .count("remembered_max")
            .and_then(|max| max.try_into().ok())
            .unwrap_or_default(),
    };
    if !settings.unchecked.is_empty() {
        problems.push(section.warning("unchecked", UNCHECKED));
    }
    if settings.revocation == Revocation::Leaf {
        problems.push(section.warning("revocation", LEAF));
    }
    if !settings.legacy_signatures.is_empty() {
        let message = "signatures of these CAs are believed that others could forge (SHA-1, RSA keys under 2048 bits)";
        let problem = section.warning("legacy_signatures", message);
        problems.push(problem.help("make new certificates, then take the name out"));
    }
    for own in &issuers {
        if own.is_set("unchecked") && own.switch("unchecked") {
            problems.push(own.warning("unchecked", UNCHECKED));
        }
        if revocation(own) == Some(Revocation::Leaf) {
            problems.push(own.warning("revocation", LEAF));
        }
    }
    settings
}

/// Takes `"warn"`, `"reject"` or `"grace:DURATION"` apart.
pub(crate) fn read_crl_expired(text: &str) -> Option<CrlExpired> {
    match text.strip_prefix("grace:") {
        Some(grace) => quantity::duration(grace)
            .filter(|grace| (GRACE_MIN..=GRACE_MAX).contains(grace))
            .map(CrlExpired::Grace),
        None if text == "warn" => Some(CrlExpired::Warn),
        None => (text == "reject").then_some(CrlExpired::Reject),
    }
}

fn issuer(section: &Section<'_>) -> Option<IssuerSettings> {
    Some(IssuerSettings {
        name: section.text("name")?,
        crl_expired: crl_expired(section),
        unchecked: section
            .is_set("unchecked")
            .then(|| section.switch("unchecked")),
        revocation: revocation(section),
    })
}

fn crl_expired(section: &Section<'_>) -> Option<CrlExpired> {
    read_crl_expired(&section.text("crl_expired")?)
}

fn revocation(section: &Section<'_>) -> Option<Revocation> {
    match section.text("revocation")?.as_str() {
        "leaf" => Some(Revocation::Leaf),
        _ => Some(Revocation::Chain),
    }
}

fn repeated_names(issuers: &[Section<'_>], problems: &mut Vec<Problem>) {
    let mut seen = HashMap::new();
    for (index, section) in issuers.iter().enumerate() {
        let Some(name) = section.text("name") else {
            continue;
        };
        if let Some(other) = seen.insert(name, index) {
            let message = format!("`trust.issuers[{other}]` is about this issuer too");
            let problem = section.error("name", message);
            problems.push(problem.expected("each issuer once"));
        }
    }
}

const UNCHECKED: &str =
    "revoked certificates of these issuers are accepted while no list of theirs is there";

const LEAF: &str = "a CA certificate that has been revoked goes on issuing agents";

const GRACE_MIN: Duration = Duration::from_secs(1);
/// Puppet's lists are good for five years; a grace as long as that is a mistake of the unit.
pub(crate) const GRACE_MAX: Duration = Duration::from_secs(366 * 86_400);
