//! Facts about a prepared configuration, as sentences for the operator: certificates, members from DNS, CRLs.

use std::{collections::BTreeSet, time::SystemTime};

use config::PoolConfig;
use routing::{AccessOpener, Class};
use rustls_pki_types::UnixTime;
use state::times::timestamp;

use crate::prepare::Prepared;

/// The names of the certificates, the members from DNS, and the CRLs that clients are verified against.
pub(crate) fn facts(prepared: &Prepared) -> Vec<String> {
    let mut facts = Vec::new();
    for listener in &prepared.config.listeners {
        facts.extend(shown_certificates(prepared, &listener.name));
    }
    for pool in &prepared.config.pools {
        facts.extend(client_certificate(prepared, pool));
        facts.extend(from_dns(prepared, pool));
    }
    // Most listeners have the same certificate.
    let mut seen = BTreeSet::new();
    facts.retain(|fact| seen.insert(fact.clone()));
    let status = prepared.generation.trust.status(UnixTime::now());
    for crl in &status.crls {
        facts.push(format!(
            "CRL of {} number {} with {} entries from {}{}",
            crl.issuer,
            crl.number,
            crl.entries,
            crl.source,
            if crl.expired { " HAS EXPIRED" } else { "" }
        ));
    }
    facts.extend(
        status
            .crl_missing
            .iter()
            .map(|issuer| format!("no CRL of {issuer}: its certificates are refused")),
    );
    facts.extend(
        status
            .unchecked
            .iter()
            .map(|issuer| format!("revocation is not checked for certificates of {issuer}")),
    );
    facts.extend(prepared.legacy_cas().into_iter().map(|(ca, side)| {
        format!("outdated signatures (SHA-1, RSA under 2048 bits) of {ca} are accepted in certificates {side}")
    }));
    // Access to the administration of the CA is a warning of its own. Other classes may be opened on purpose.
    let chosen = prepared.config.routes.opened_by_choice();
    let chosen = chosen
        .iter()
        .filter(|chosen| !chosen.classes.contains(&Class::CaAdministration));
    facts.extend(chosen.map(|chosen| {
        let kind = match chosen.opener {
            AccessOpener::Rule(_) => "access rule",
            AccessOpener::Route(_) => "route",
        };
        let classes: Vec<_> = chosen.classes.iter().map(|class| class.as_str()).collect();
        format!(
            "{kind} {:?} opens {} to clients with {}; agents choose this value in their certificate requests, so check it before the CA signs a request",
            chosen.name,
            classes.join(" and "),
            chosen.by
        )
    }));
    if let Some(written) = prepared.agents_copy {
        let age = SystemTime::now()
            .duration_since(written)
            .unwrap_or_default();
        let hours = age.as_secs() / 3600;
        facts.push(match prepared.config.trust.fetch {
            Some(fetch) => format!(
                "starting with the agent's CRL ({hours} h old); fetching a new one from the CA every {:?}",
                fetch.interval
            ),
            None => format!(
                "the active CRL is the agent's copy, {hours} h old, which only agent runs on this host refresh; set another in [trust] crl"
            ),
        });
    }
    facts
}

/// The members of a pool that DNS names.
fn from_dns(prepared: &Prepared, pool: &PoolConfig) -> Option<String> {
    let named = |address: &str| {
        pool.pool
            .members
            .iter()
            .any(|member| member.address == address)
    };
    let mut pools = prepared.generation.pools.iter();
    let runtime = pools.find(|runtime| **runtime.pool.name() == *pool.pool.name)?;
    let entries = runtime.pool.entries().iter();
    let found: Vec<_> = entries
        .filter(|entry| !named(entry.member.address()))
        .map(|entry| {
            let address = entry.member.address();
            format!(
                "{address} (priority {}, weight {})",
                entry.priority, entry.weight
            )
        })
        .collect();
    (!found.is_empty())
        .then(|| format!("pool {} has from DNS: {}", pool.pool.name, found.join(", ")))
}

/// The certificates of a listener: subject, kind of key, names and dates.
fn shown_certificates(prepared: &Prepared, listener: &str) -> Vec<String> {
    let config = &prepared.config;
    let own = match config.listener_certificates.contains_key(listener) {
        true => format!(" on listener {listener}"),
        false => String::new(),
    };
    let shown = config
        .certificates_of(listener)
        .filter_map(|(_, files)| Some((files, prepared.credentials.get(files)?)));
    let sentences = shown.map(|(files, credential)| {
        let names = match credential.names() {
            [] => "no name".to_owned(),
            names => names.join(", "),
        };
        format!(
            "certificate {} ({}, {}) is valid for {names}{own}, from {} until {}",
            files.chain.display(),
            credential.subject(),
            credential.key_kind(),
            timestamp(credential.not_before()),
            timestamp(credential.not_after()),
        )
    });
    sentences.collect()
}

/// The client certificate for the members of a pool.
fn client_certificate(prepared: &Prepared, pool: &PoolConfig) -> Option<String> {
    let tls = prepared.tls_of(pool)?;
    Some(format!(
        "client certificate {} ({}, {}) for members, valid from {} until {}",
        tls.settings.credential.chain.display(),
        tls.credential.subject(),
        tls.credential.key_kind(),
        timestamp(tls.credential.not_before()),
        timestamp(tls.credential.not_after()),
    ))
}
