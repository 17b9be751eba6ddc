//! Rules for materials that change without a reload by an operator: certificates must keep their names and stay verifiable,
//! and bundles must keep the CAs in use.

use std::{path::PathBuf, sync::Arc, time::Duration};

use pki::{CA_SEEN_WITHIN, CertificatePurpose, TrustStore};
use proxy::{Generation, PoolRuntime};
use rustls_pki_types::UnixTime;
use state::{Foundation, PreparedTls};

use crate::prepare::Prepared;

/// The facts about one of the proxy's certificates that decide whether it may be replaced.
#[derive(Clone, Debug, Default)]
struct CertificateFacts {
    /// DNS names and addresses of its subjectAltName. The subject counts too if it has none, or if members see it.
    names: Vec<String>,
    is_expired: bool,
    /// Whether the CA bundle for clients verifies it. Only then must its replacement be verified too.
    is_verified: bool,
}

/// Why a changed certificate must not replace the active one.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CertificateFault {
    /// Clients use these names, and the new certificate lacks them.
    NamesLost(Vec<String>),
    /// The CA bundle does not verify it.
    NotVerified,
}

/// Why a certificate may not replace another one without a reload. `None` if it may.
fn certificate_fault(
    active: &CertificateFacts,
    changed: &CertificateFacts,
) -> Option<CertificateFault> {
    let is_kept = |name: &String| changed.names.iter().any(|other| covers(other, name));
    let lost: Vec<_> = active
        .names
        .iter()
        .filter(|name| !is_kept(name))
        .cloned()
        .collect();
    // A valid certificate with some of the names is better than an expired one.
    let is_better = active.is_expired && !changed.is_expired && lost.len() < active.names.len();
    if !lost.is_empty() && !is_better {
        return Some(CertificateFault::NamesLost(lost));
    }
    let is_lost = active.is_verified && !changed.is_verified;
    is_lost.then_some(CertificateFault::NotVerified)
}

/// Whether a name of a certificate covers another name: the same name, or a wildcard for its first label.
fn covers(name: &str, wanted: &str) -> bool {
    let below = |rest: &str| {
        let parent = wanted.split_once('.').map(|(_, parent)| parent);
        parent.is_some_and(|parent| parent.eq_ignore_ascii_case(rest))
    };
    name.eq_ignore_ascii_case(wanted) || name.strip_prefix("*.").is_some_and(below)
}

/// Why materials that have changed without a reload must not become active. `None` if they may.
pub(crate) fn fault(
    prepared: &Prepared,
    foundation: &Foundation,
    current: &Generation,
    now: UnixTime,
) -> Option<String> {
    let faults = [
        certificate_faults(prepared, foundation, current, now),
        bundle_faults(prepared, foundation, current, now),
    ]
    .concat();
    (!faults.is_empty()).then(|| {
        format!(
            "{}; restore the file, or run `proscenium reload` to accept the change",
            faults.join("; ")
        )
    })
}

fn certificate_faults(
    prepared: &Prepared,
    foundation: &Foundation,
    current: &Generation,
    now: UnixTime,
) -> Vec<String> {
    let (before, after) = (&current.trust, &prepared.generation.trust);
    let mut faults = Vec::new();
    let is_same = |a: &pki::Credential, b: &pki::Credential| a.fingerprint() == b.fingerprint();
    let for_clients = foundation.credentials.iter().filter_map(|(files, active)| {
        let changed = prepared.credentials.get(files)?;
        Some((files, active, changed, CertificatePurpose::Server))
    });
    let for_members = foundation.member_tls.iter().filter_map(|active| {
        let changed = of_same_kind(active, &prepared.member_tls)?;
        let files = &active.settings.credential;
        Some((
            files,
            &active.credential,
            &changed.credential,
            CertificatePurpose::Client,
        ))
    });
    for (files, active, changed, purpose) in for_clients.chain(for_members) {
        let chain = files.chain.display();
        if !is_same(active, changed) {
            let of = |credential, trust| facts(credential, trust, purpose, now);
            match certificate_fault(&of(active, before), &of(changed, after)) {
                Some(CertificateFault::NamesLost(names)) => faults.push(format!(
                    "the certificate in \"{chain}\" is not valid for {}, as the active one is",
                    names.join(", ")
                )),
                Some(CertificateFault::NotVerified) => faults.push(format!(
                    "the CA bundle verifies the active certificate of \"{chain}\", but not the one on disk"
                )),
                None => {}
            }
        } else if let Some(cas) = before.cas_above(active.chain(), purpose, now) {
            let lost = after.cas_lost(before, &cas);
            if !lost.is_empty() || after.cas_above(active.chain(), purpose, now).is_none() {
                faults.push(format!(
                    "the CA bundle {} no longer verifies the proxy's certificate in \"{chain}\"{}",
                    named(&prepared.config.trust.ca),
                    without(&lost)
                ));
            }
        }
    }
    faults.sort();
    faults.dedup();
    faults
}

fn bundle_faults(
    prepared: &Prepared,
    foundation: &Foundation,
    current: &Generation,
    now: UnixTime,
) -> Vec<String> {
    let since = now.as_secs().saturating_sub(CA_SEEN_WITHIN.as_secs());
    let since = UnixTime::since_unix_epoch(Duration::from_secs(since));
    let mut faults = Vec::new();
    let lost = prepared
        .generation
        .trust
        .seen_cas_lost(&current.trust, since, now);
    if !lost.is_empty() {
        faults.push(format!(
            "the CA bundle {} lacks a valid certificate of {} without further constraints, but agents of this CA connected \
             within the last day",
            named(&prepared.config.trust.ca),
            lost.join(", ")
        ));
    }
    let connectors = |pool: &Arc<PoolRuntime>| pool.connectors().cloned().collect::<Vec<_>>();
    let members: Vec<_> = prepared
        .generation
        .pools
        .iter()
        .flat_map(connectors)
        .collect();
    let is_member = |name: &str| members.iter().any(|member| member.has_name(name));
    for active in &foundation.member_tls {
        let Some(changed) = of_same_kind(active, &prepared.member_tls) else {
            continue;
        };
        let lost = changed.trust.members_lost(&active.trust, is_member, now);
        if !lost.is_empty() {
            faults.push(format!(
                "the CA bundle {} no longer verifies the certificates of the members {}",
                named(&changed.settings.ca),
                lost.join(", ")
            ));
        }
    }
    faults.dedup();
    faults
}

fn facts(
    credential: &pki::Credential,
    trust: &TrustStore,
    purpose: CertificatePurpose,
    now: UnixTime,
) -> CertificateFacts {
    let mut names = credential.names().to_vec();
    // Members identify a client by its subject.
    if purpose == CertificatePurpose::Client || names.is_empty() {
        names.push(credential.subject().to_owned());
    }
    CertificateFacts {
        names,
        is_expired: credential.not_after() < now,
        is_verified: trust.cas_above(credential.chain(), purpose, now).is_some(),
    }
}

fn of_same_kind<'t>(active: &PreparedTls, among: &'t [PreparedTls]) -> Option<&'t PreparedTls> {
    let is_same = |other: &&PreparedTls| {
        other.settings == active.settings && other.indication == active.indication
    };
    among.iter().find(is_same)
}

fn named(files: &[PathBuf]) -> String {
    let quoted: Vec<_> = files
        .iter()
        .map(|file| format!("\"{}\"", file.display()))
        .collect();
    quoted.join(", ")
}

fn without(lost: &[String]) -> String {
    match lost.is_empty() {
        true => String::new(),
        false => format!(": it lacks {}", lost.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_replaced_without_a_reload_only_by_one_that_is_as_good() {
        let facts = |names: &str, expired: bool, verified: bool| CertificateFacts {
            names: names.split_whitespace().map(str::to_owned).collect(),
            is_expired: expired,
            is_verified: verified,
        };
        let lost = |names: &str| {
            let names = names.split_whitespace().map(str::to_owned);
            Some(CertificateFault::NamesLost(names.collect()))
        };
        for (active, changed, fault) in [
            (facts("a b", false, true), facts("b a", false, true), None),
            (facts("a b", false, true), facts("A B c", false, true), None),
            (
                facts("a b", false, true),
                facts("a", false, true),
                lost("b"),
            ),
            (facts("a", false, true), facts("b", false, true), lost("a")),
            // A wildcard counts for one label.
            (facts("a.x", false, true), facts("*.x", false, true), None),
            (
                facts("a.b.x", false, true),
                facts("*.x", false, true),
                lost("a.b.x"),
            ),
            (
                facts("*.x", false, true),
                facts("a.x", false, true),
                lost("*.x"),
            ),
            // A certificate with another name is never better. A certificate with fewer names is better than an expired one.
            (facts("a b", true, false), facts("a", false, true), None),
            (
                facts("a b", true, false),
                facts("c", false, true),
                lost("a b"),
            ),
            (
                facts("a b", true, false),
                facts("a", true, false),
                lost("b"),
            ),
            (
                facts("a", false, true),
                facts("a", false, false),
                Some(CertificateFault::NotVerified),
            ),
            // A certificate of a public CA, which was never in the bundle.
            (facts("a", false, false), facts("a", false, false), None),
        ] {
            let found = certificate_fault(&active, &changed);
            assert_eq!(found, fault, "{active:?} by {changed:?}");
        }
    }
}
