//! The revocation policies of `[trust]` and `[[trust.issuers]]`, with warnings about the permissive ones.

use std::collections::HashMap;

use pki::settings::{IssuerSettings, Revocation, TrustSettings};

use crate::{
    binding::{Base, Bound},
    keys::{Trust, TrustIssuer},
    report::Problem,
    section::Section,
};

/// The policies of issuers. Reports problems in the policies of `[trust]`.
pub(crate) fn trust(
    section: &Section<'_>,
    settings: &mut TrustSettings,
    problems: &mut Vec<Problem>,
) {
    let issuers = section.tables(Trust::issuers);
    repeated_names(&issuers, problems);
    if !settings.unchecked.is_empty() {
        problems.push(section.warning(Trust::unchecked, UNCHECKED));
    }
    if settings.revocation == Revocation::Leaf {
        problems.push(section.warning(Trust::revocation, LEAF));
    }
    if !settings.legacy_signatures.is_empty() {
        let message =
            "forgeable signatures of these CAs are accepted (SHA-1, RSA keys under 2048 bits)";
        let problem = section.warning(Trust::legacy_signatures, message);
        problems.push(problem.help("issue new certificates, then remove the name"));
    }
    for section in &issuers {
        let mut issuer = IssuerSettings::base();
        TrustIssuer::read(section, &mut issuer);
        if issuer.unchecked == Some(true) {
            problems.push(section.warning(TrustIssuer::unchecked, UNCHECKED));
        }
        if issuer.revocation == Some(Revocation::Leaf) {
            problems.push(section.warning(TrustIssuer::revocation, LEAF));
        }
        if section.text(TrustIssuer::name).is_some() {
            settings.issuers.push(issuer);
        }
    }
}

fn repeated_names(issuers: &[Section<'_>], problems: &mut Vec<Problem>) {
    let mut seen = HashMap::new();
    for (index, section) in issuers.iter().enumerate() {
        let Some(name) = section.text(TrustIssuer::name) else {
            continue;
        };
        if let Some(other) = seen.insert(name, index) {
            let message = format!("`trust.issuers[{other}]` has the same name");
            let problem = section.error(TrustIssuer::name, message);
            problems.push(problem.expected("one table per issuer"));
        }
    }
}

const UNCHECKED: &str =
    "revoked certificates of these issuers are accepted while no CRL of theirs is loaded";

const LEAF: &str = "certificates issued by a revoked CA certificate are accepted";
