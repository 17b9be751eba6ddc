//! `check` and `config show`: what a start would do, without listening.

use std::{collections::BTreeSet, sync::Arc};

use admin::Timestamp;
use config::{Config, PoolConfig, Report};
use discovery::DnsQuestion;
use routing::{AccessOpener, Class};
use rustls_pki_types::UnixTime;
use telemetry::Alarm;
use tokio::runtime;

use crate::{
    Options, certificates, dns,
    host_checks::{self, Running},
    lockout,
    materials::files,
    prepare::{Lasting, Prepared, prepare},
    state_directory::StateDirectory,
    trust::{blocks, stored_crls},
};

/// What `check` found.
#[derive(Debug)]
pub struct CheckResult {
    /// Errors and warnings.
    pub report: Report,
    /// What an operator would want to know of the configuration, a sentence each; none where it is refused.
    pub facts: Vec<String>,
    /// What a start would do.
    pub outcome: CheckOutcome,
}

/// What a start would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckOutcome {
    /// It would serve.
    Good,
    /// It would fail now, and may succeed later without any change: an address is in use or not there yet.
    Unavailable,
    /// It would fail until something is changed, or serve and lock agents out.
    Refused,
}

/// Does what a start does, without listening and without creating anything. With `files_only` the tests of the host
/// (addresses, log files, admin socket, state directory) are left out.
#[must_use]
pub fn check(options: &Options, files_only: bool) -> CheckResult {
    let mut prepared = match prepared(options) {
        Ok(prepared) => prepared,
        Err(report) => {
            return CheckResult {
                report,
                facts: Vec::new(),
                outcome: CheckOutcome::Refused,
            };
        }
    };
    as_kept(&mut prepared);
    alarms(&mut prepared);
    let facts = facts(&prepared);
    let locked_out = lockout::add(&mut prepared, UnixTime::now());
    let may_pass = match files_only {
        true => None,
        false => try_host(&prepared.config, &mut prepared.report),
    };
    CheckResult {
        report: prepared.report,
        facts,
        outcome: match may_pass {
            _ if locked_out => CheckOutcome::Refused,
            None => CheckOutcome::Good,
            Some(true) => CheckOutcome::Unavailable,
            Some(false) => CheckOutcome::Refused,
        },
    }
}

/// Tries what a start needs of the host. None: nothing is wrong; otherwise whether all of it may pass.
fn try_host(config: &Config, report: &mut Report) -> Option<bool> {
    let running = Running::ask(&config.admin.socket);
    let mut faults = host_checks::faults(config, &running);
    let state = StateDirectory::unopened(&config.state_directory);
    match blocks::kept(&state) {
        Ok(_) => {
            if let Some(warning) = host_checks::state_warning(&state) {
                report.warn("state.directory", &warning);
            }
        }
        Err(error) => faults.push(host_checks::unreadable_blocks(&error)),
    }
    host_checks::add(faults, report)
}

/// The configuration in effect as TOML.
///
/// # Errors
/// The report that a start would print.
pub fn effective(options: &Options, defaults: bool) -> Result<String, Report> {
    let read = files::load(options)?;
    let prepared = prepare(read, 1, &Lasting::default(), None)?;
    Ok(prepared.config.show(defaults))
}

pub(crate) fn prepared(options: &Options) -> Result<Prepared, Report> {
    let read = files::load(options)?;
    let lasting = Lasting::default();
    // A damaged file is no fault of the configuration; a start warns of it.
    let directory = StateDirectory::unopened(&read.loaded.config.state_directory);
    let _ = lasting.answers.restore(&directory);
    ask_for_services(&read.loaded.config, &lasting);
    let mut prepared = prepare(read, 1, &lasting, None)?;
    // DNS may be out of reach where a configuration is checked.
    for active in lasting.metrics.alarms.active() {
        if active.alarm == Alarm::DnsAnswer {
            let pool = active.about.split(':').next().unwrap_or_default();
            let key = format!("pools.{pool}.members");
            prepared.report.warn(&key, &active.message);
        }
    }
    Ok(prepared)
}

/// Asks DNS for the members of services, which have no other; the addresses of hosts are looked up when they are needed.
fn ask_for_services(config: &Config, lasting: &Lasting) {
    let services = |question: &DnsQuestion| matches!(question, DnsQuestion::Service(_));
    if !dns::questions(config).iter().any(services) {
        return;
    }
    let ask = || {
        let Ok(runtime) = runtime::Builder::new_current_thread().enable_all().build() else {
            return;
        };
        let alarms = &lasting.metrics.alarms;
        runtime.block_on(lasting.answers.ask_new(config, services, alarms));
    };
    // A thread of its own: the caller may be in a runtime.
    std::thread::scope(|scope| {
        let _ = scope.spawn(ask).join();
    });
}

/// With the lists that a start would find in the state directory, where this account may look: they may be younger.
fn as_kept(prepared: &mut Prepared) {
    let Some(fetch) = prepared.config.trust.fetch else {
        return;
    };
    let directory = StateDirectory::unopened(&prepared.config.state_directory);
    let trust = &mut prepared.generation.trust;
    if let Some(kept) = stored_crls::restore(trust, &directory, fetch.body_bytes_max).trust {
        *trust = Arc::new(kept);
    }
}

/// What the dates of CAs and lists mean now: a start goes on with an alarm, and everybody may be refused.
fn alarms(prepared: &mut Prepared) {
    let now = UnixTime::now();
    let trust = &prepared.generation.trust;
    let clients = trust.status(now);
    let of_dates = |alarm: &String| !trust.warnings().contains(alarm);
    let mut alarms: BTreeSet<String> = clients
        .alarms
        .into_iter()
        .map(|alarm| alarm.message)
        .filter(of_dates)
        .collect();
    // Lists that were fetched judge members' own certificates too, so one of theirs that is over is told where it refuses.
    for tls in &prepared.member_tls {
        let members = tls.trust.status(now);
        let ended = members.cas.iter().filter(|ca| !ca.in_time);
        let ended = ended.filter(|ca| !clients.cas.contains(ca));
        alarms.extend(ended.map(|ca| {
            format!(
                "CA {} ({}), which verifies members, is expired or not valid yet: valid from {} to {}",
                ca.subject,
                ca.source,
                instant(ca.not_before),
                instant(ca.not_after)
            )
        }));
        let refusing = members.crls.iter().filter_map(|crl| {
            let end = crl.accepted_until.filter(|end| crl.expired && now > *end)?;
            Some((crl, end))
        });
        alarms.extend(refusing.map(|(crl, end)| {
            format!(
                "the CRL of {} ({}), used for members, has expired; certificates of this CA are refused since {}",
                crl.issuer,
                crl.source,
                instant(end)
            )
        }));
    }
    for alarm in alarms {
        prepared.report.warn("trust", &alarm);
    }
    for (_, _, message) in certificates::alarms(&prepared.own_certificates(), now) {
        prepared.report.warn("certificates", &message);
    }
}

pub(crate) fn instant(time: UnixTime) -> Timestamp {
    Timestamp::from_unix_seconds(i64::try_from(time.as_secs()).unwrap_or(i64::MAX))
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

/// The names the certificates are good for, and the CRLs that clients are judged by.
pub(crate) fn facts(prepared: &Prepared) -> Vec<String> {
    let mut facts = Vec::new();
    for listener in &prepared.config.listeners {
        facts.extend(shown_certificates(prepared, &listener.name));
    }
    for pool in &prepared.config.pools {
        facts.extend(client_certificate(prepared, pool));
        facts.extend(from_dns(prepared, pool));
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
    // Of the CA's administration it is a warning; the rest may be meant so.
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
        let age = std::time::SystemTime::now()
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

/// What a listener shows: who, by what kind of key, for which names.
fn shown_certificates(prepared: &Prepared, listener: &str) -> Vec<String> {
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
            [] => "no name".to_owned(),
            names => names.join(", "),
        };
        format!(
            "certificate {} ({}, {}) is valid for {names}{own}, from {} until {}",
            files.chain.display(),
            credential.subject(),
            credential.key_kind(),
            instant(credential.not_before()),
            instant(credential.not_after()),
        )
    });
    told.collect()
}

/// What the members of a pool see.
fn client_certificate(prepared: &Prepared, pool: &PoolConfig) -> Option<String> {
    let tls = prepared.tls_of(pool)?;
    Some(format!(
        "client certificate {} ({}, {}) for members, valid from {} until {}",
        tls.settings.credential.chain.display(),
        tls.credential.subject(),
        tls.credential.key_kind(),
        instant(tls.credential.not_before()),
        instant(tls.credential.not_after()),
    ))
}
