//! `check` and `config show`: what a start would do, short of binding.

use std::{collections::BTreeSet, sync::Arc};

use admin::Timestamp;
use config::Report;
use routing::{Class, Opener};
use rustls_pki_types::UnixTime;

use crate::{
    Options, files, lists,
    prepare::{Lasting, Prepared, prepare},
    state::StateDirectory,
};

/// A configuration that a start would take.
#[derive(Debug)]
pub struct Checked {
    /// Warnings.
    pub report: Report,
    /// What an operator would want to know of it, a sentence each.
    pub facts: Vec<String>,
}

/// Does what a start does, short of binding.
///
/// # Errors
/// The report that a start would print.
pub fn check(options: &Options) -> Result<Checked, Report> {
    let mut prepared = prepared(options)?;
    as_kept(&mut prepared);
    alarms(&mut prepared);
    let facts = facts(&prepared);
    Ok(Checked {
        report: prepared.report,
        facts,
    })
}

/// The configuration in effect as TOML.
///
/// # Errors
/// The report that a start would print.
pub fn effective(options: &Options, defaults: bool) -> Result<String, Report> {
    Ok(prepared(options)?.config.show(defaults))
}

pub(crate) fn prepared(options: &Options) -> Result<Prepared, Report> {
    let read = files::load(options)?;
    prepare(read, 1, &Lasting::default(), None)
}

/// With the lists that a start would find in the state directory, where this account may look: they may be younger.
fn as_kept(prepared: &mut Prepared) {
    let Some(fetch) = prepared.config.trust.fetch else {
        return;
    };
    let directory = StateDirectory::unopened(&prepared.config.state_directory);
    let trust = &mut prepared.generation.trust;
    if let Some(kept) = lists::restore(trust, &directory, fetch.body_bytes_max).trust {
        *trust = Arc::new(kept);
    }
}

/// What the dates of CAs and lists mean now: a start goes on with an alarm, and everybody may be refused.
fn alarms(prepared: &mut Prepared) {
    let now = UnixTime::now();
    let trust = &prepared.generation.trust;
    let clients = trust.status(now);
    let of_dates = |alarm: &String| !trust.warnings().contains(alarm);
    let mut alarms: BTreeSet<String> = clients.alarms.into_iter().filter(of_dates).collect();
    // Lists that were fetched judge members' own certificates too, so one of theirs that is over is told where it refuses.
    for tls in &prepared.member_tls {
        let members = tls.trust.status(now);
        let ended = members.cas.iter().filter(|ca| !ca.in_time);
        let ended = ended.filter(|ca| !clients.cas.contains(ca));
        alarms.extend(ended.map(|ca| {
            format!(
                "CA {} ({}), by which members are judged, is not in its time: {} to {}",
                ca.subject,
                ca.source,
                instant(ca.not_before),
                instant(ca.not_after)
            )
        }));
        let refusing = members.crls.iter().filter_map(|crl| {
            let end = crl
                .judged_by_until
                .filter(|end| crl.expired && now > *end)?;
            Some((crl, end))
        });
        alarms.extend(refusing.map(|(crl, end)| {
            format!(
                "the CRL of {} ({}), by which members are judged, is over, and what it is about is refused since {}",
                crl.issuer,
                crl.source,
                instant(end)
            )
        }));
    }
    for alarm in alarms {
        prepared.report.warn("trust", &alarm);
    }
}

fn instant(time: UnixTime) -> Timestamp {
    Timestamp::from_unix_seconds(i64::try_from(time.as_secs()).unwrap_or(i64::MAX))
}

/// The names the certificates are good for, and the CRLs that clients are judged by.
pub(crate) fn facts(prepared: &Prepared) -> Vec<String> {
    let mut facts = Vec::new();
    for listener in &prepared.config.listeners {
        facts.extend(certificates(prepared, &listener.name));
    }
    // Most listeners show the same.
    let mut told = BTreeSet::new();
    facts.retain(|fact| told.insert(fact.clone()));
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
        status.crl_missing.iter().map(|issuer| {
            format!("no CRL of {issuer}: certificates that it has issued are refused")
        }),
    );
    facts.extend(
        status
            .unchecked
            .iter()
            .map(|issuer| format!("revocation is not checked for certificates of {issuer}")),
    );
    facts.extend(prepared.legacy_cas().into_iter().map(|(ca, side)| {
        format!(
            "signatures of another time (SHA-1, RSA under 2048 bits) of {ca} are admitted {side}"
        )
    }));
    // Of the CA's administration it is a warning; the rest may be meant so.
    let chosen = prepared.config.routes.opened_by_choice();
    let chosen = chosen
        .iter()
        .filter(|chosen| !chosen.classes.contains(&Class::CaAdministration));
    facts.extend(chosen.map(|chosen| {
        let kind = match chosen.opener {
            Opener::Rule(_) => "access rule",
            Opener::Route(_) => "route",
        };
        let classes: Vec<_> = chosen.classes.iter().map(|class| class.as_str()).collect();
        format!(
            "{kind} {:?} opens {} by {}, which agents write into their own certificate requests: as good as whoever signs these",
            chosen.name,
            classes.join(" and "),
            chosen.by
        )
    }));
    if let Some(written) = prepared.agents_copy {
        let age = std::time::SystemTime::now()
            .duration_since(written)
            .unwrap_or_default();
        let hours = age.as_secs() / 3600;
        facts.push(match prepared.config.trust.fetch {
            Some(fetch) => format!(
                "the agent's own copy of the CRL, {hours} h old, is what is begun with: the CA is asked every {:?}",
                fetch.interval
            ),
            None => format!(
                "the CRL is the agent's own copy, {hours} h old: only agent runs on this host refresh it; name another in [trust] crl"
            ),
        });
    }
    facts
}

/// What a listener shows: who, by what kind of key, for which names.
fn certificates(prepared: &Prepared, listener: &str) -> Vec<String> {
    let config = &prepared.config;
    let own = match config.listener_certificates.contains_key(listener) {
        true => format!(" on listener {listener}"),
        false => String::new(),
    };
    let shown = config
        .certificates_of(listener)
        .filter_map(|(_, files)| Some((files, prepared.credentials.get(files)?)));
    let told = shown.map(|(files, credential)| {
        let names = match credential.names() {
            [] => "no name at all".to_owned(),
            names => names.join(", "),
        };
        format!(
            "certificate {} ({}, {}) is good for {names}{own}",
            files.chain.display(),
            credential.subject(),
            credential.key_kind(),
        )
    });
    told.collect()
}
