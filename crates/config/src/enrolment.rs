//! `[csr]`, and what `[ca]` says of clients without a verified certificate.

use ::identity::CertnamePattern;
use balancing::{Rate, Rates};
use pki::{CsrAllow, CsrKey, CsrRule, CsrSettings};
use proxy::CaSettings;

use crate::{report::Problem, section::Section};

/// `[csr]`.
pub(crate) fn csr(root: &Section<'_>, problems: &mut Vec<Problem>) -> CsrSettings {
    let section = root.table("csr");
    no_keys(&section, problems);
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

/// The limits of `[ca]`.
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
    }
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
