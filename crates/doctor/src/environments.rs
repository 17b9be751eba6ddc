//! Whether a compiler keeps parsed environments between requests. With `environment_timeout` 0, Puppet's default, it parses
//! the manifests of an environment again for each request that needs it.

use std::collections::BTreeMap;

use http::StatusCode;
use serde::Deserialize;

use crate::{
    Check, DoctorReport, FindingSeverity,
    member::{ENVIRONMENTS, Member, describe, is_refusal},
    member_services::unclear,
};

/// Maximum number of environments that a finding names.
const NAMES_MAX: usize = 5;

/// The part of the answer to `GET /puppet/v3/environments` that doctor reads.
#[derive(Deserialize)]
struct Environments {
    environments: BTreeMap<String, Environment>,
}

#[derive(Deserialize)]
struct Environment {
    settings: Settings,
}

#[derive(Deserialize)]
struct Settings {
    /// Seconds, or `unlimited`.
    environment_timeout: serde_json::Value,
}

pub(crate) async fn examine(member: &Member, report: &mut DoctorReport) {
    let (false, Some(proxy_identity)) = (member.is_legacy(), &member.proxy_identity) else {
        return;
    };
    let about = &member.about;
    let fields = proxy_identity.fields(member.form(), member.rules.forward_cert);
    let answer = match member.query_as_proxy(ENVIRONMENTS, fields).await {
        Ok(answer) if answer.status == StatusCode::OK => answer,
        // The check `own-node` reports that agents are refused.
        Ok(answer) if is_refusal(answer.status) => return,
        Ok(answer) => {
            let found = format!("{ENVIRONMENTS} answered {}", answer.status);
            return unclear(Check::Environments, about, found, report);
        }
        Err(error) => return unclear(Check::Environments, about, describe(&error), report),
    };
    match parsed_each_time(&answer.body) {
        Ok(names) if names.is_empty() => report.passed(Check::Environments, about),
        Ok(names) => report.found(
            Check::Environments,
            FindingSeverity::Note,
            about,
            format!(
                "`environment_timeout` is 0 in {}: it parses their manifests again for each request, which takes JRuby time",
                shown(&names)
            ),
            "set `environment_timeout = unlimited` in [server] of its puppet.conf, and let each deployment of code flush the cache of every compiler (`postrun` of r10k); see docs/operating/compilers.md",
        ),
        Err(error) => {
            let found = format!("{ENVIRONMENTS} answered with something else: {error}");
            unclear(Check::Environments, about, found, report);
        }
    }
}

/// The environments that are parsed for each request.
fn parsed_each_time(body: &[u8]) -> Result<Vec<String>, serde_json::Error> {
    let answer: Environments = serde_json::from_slice(body)?;
    let uncached =
        |environment: &Environment| environment.settings.environment_timeout.as_f64() == Some(0.0);
    let names = answer.environments.into_iter();
    let names = names.filter(|(_, environment)| uncached(environment));
    Ok(names.map(|(name, _)| name).collect())
}

fn shown(names: &[String]) -> String {
    let (first, more) = names.split_at(names.len().min(NAMES_MAX));
    let first = first.join(", ");
    match more.len() {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environments_with_timeout_0_are_named() {
        let many: Vec<_> = (0..7).map(|n| (format!("e{n}"), "0".to_owned())).collect();
        let two = [("dev", "0"), ("production", "0")];
        let of = |all: &[(&str, &str)]| -> Vec<_> {
            let owned =
                |(name, timeout): &(&str, &str)| ((*name).to_owned(), (*timeout).to_owned());
            all.iter().map(owned).collect()
        };
        for (environments, expected) in [
            (of(&[]), ""),
            (of(&[("production", "\"unlimited\"")]), ""),
            (of(&[("production", "180")]), ""),
            (of(&[("production", "\"unlimited\""), ("dev", "0")]), "dev"),
            (of(&two), "dev, production"),
            (many, "e0, e1, e2, e3, e4 and 2 more"),
        ] {
            let environments: Vec<_> = environments
                .iter()
                .map(|(name, timeout)| {
                    format!("\"{name}\": {{\"settings\": {{\"environment_timeout\": {timeout}}}}}")
                })
                .collect();
            let body = format!("{{\"environments\": {{{}}}}}", environments.join(","));
            let names = parsed_each_time(body.as_bytes()).expect(&body);
            assert_eq!(shown(&names), expected);
        }
        assert!(parsed_each_time(b"<html>").is_err());
    }
}
