//! `check` and `config show`: what a start would do, without listening.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use config::{Config, ConfigReport, Environment};
use discovery::DnsQuestion;
use pki::TrustStore;
use rustls_pki_types::UnixTime;
use state::{StateDirectory, times::timestamp};
use telemetry::Alarm;
use tokio::runtime;
use trust_keeper::{
    ShrunkCrl,
    certificates::{self, OwnCertificate, ca_options},
    dropped_message, empty_message, lockout,
};

use crate::{
    Options, descriptors,
    facts::facts,
    host_checks::{self, RunningProxy},
    materials::files,
    prepare::{Lasting, Prepared, prepare},
    stored_state::{self, RestoredState},
};

/// The result of `check`.
#[derive(Debug)]
pub struct CheckResult {
    /// Errors and warnings.
    pub report: ConfigReport,
    /// Facts about the configuration, as sentences. There are none if it is refused.
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

/// Does what a start does, without listening and without creating anything. With `files_only`, the checks of the host
/// (addresses of listeners and members, descriptors, log files, admin socket, state directory) are skipped.
#[must_use]
pub fn check(options: &Options, files_only: bool) -> CheckResult {
    // A machine that only checks files may not reach the DNS servers of the proxy.
    let looked_up = if files_only {
        is_service
    } else {
        |_: &DnsQuestion| true
    };
    let mut prepared = match prepared_with(options, looked_up) {
        Ok(prepared) => prepared,
        Err(report) => {
            return CheckResult {
                report,
                facts: Vec::new(),
                outcome: CheckOutcome::Refused,
            };
        }
    };
    let directory = StateDirectory::unopened(&prepared.config.state_directory);
    // Fetched CRLs in the state directory may be newer than those in files.
    let restored = stored_state::restore(&mut prepared, &directory);
    warn_of_dates(&mut prepared);
    warn_of_separate_cas(&mut prepared);
    let facts = facts(&prepared);
    let locked_out = lockout::add(
        &mut prepared.report,
        &prepared.config,
        (&prepared.credentials, &prepared.member_tls),
        &prepared.generation.trust,
        UnixTime::now(),
    );
    let may_pass = if files_only {
        None
    } else {
        check_host(options, &mut prepared, &directory, &restored)
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

/// Checks what a start needs from the host. `None` if nothing is wrong, else whether all faults may disappear without a change.
fn check_host(
    options: &Options,
    prepared: &mut Prepared,
    directory: &StateDirectory,
    restored: &RestoredState,
) -> Option<bool> {
    let (config, report) = (&prepared.config, &mut prepared.report);
    if let Some((key, warning)) = descriptors::warning(config, &prepared.generation) {
        report.warn(&key, &warning);
    }
    let running = RunningProxy::query(&config.admin.socket, &options.config);
    let mut faults = host_checks::faults(config, &running);
    match &restored.blocks {
        Ok(_) => {
            let warnings = match host_checks::state_warning(directory) {
                Some(warning) => vec![warning],
                None => restored.crls.unusable.clone(),
            };
            for warning in &warnings {
                report.warn("state.directory", warning);
            }
        }
        Err(error) => faults.push(host_checks::unreadable_blocks(error)),
    }
    host_checks::add(faults, report)
}

/// The configuration in effect.
///
/// # Errors
/// The report that a start would print.
pub fn effective(options: &Options) -> Result<Config, ConfigReport> {
    let read = files::load(options)?;
    let prepared = prepare(read, 1, &Lasting::default(), None)?;
    Ok(prepared.config)
}

/// Prepares a generation as a start would, for commands that do not serve.
///
/// # Errors
/// The report that a start would print.
pub(crate) fn prepared(options: &Options) -> Result<Prepared, ConfigReport> {
    prepared_with(options, is_service)
}

fn prepared_with(
    options: &Options,
    looked_up: fn(&DnsQuestion) -> bool,
) -> Result<Prepared, ConfigReport> {
    let read = files::load(options)?;
    let lasting = Lasting::default();
    // A damaged file is not a fault of the configuration. A start logs a warning about it.
    let directory = StateDirectory::unopened(&read.loaded.config.state_directory);
    let _ = lasting.members.restore_answers(&directory);
    look_up(&read.loaded.config, &lasting, looked_up);
    let mut prepared = prepare(read, 1, &lasting, None)?;
    // DNS may be unreachable where a configuration is checked, so its faults are warnings.
    for active in lasting.metrics.alarms.active() {
        if active.alarm == Alarm::DnsAnswer {
            let pool = active.about.split(':').next().unwrap_or_default();
            let key = format!("pools.{pool}.members");
            prepared.report.warn(&key, &active.message);
        }
    }
    let unusable = lasting
        .members
        .answers()
        .hosts_without_address(&prepared.config);
    for (pool, host, why) in unusable {
        let key = format!("pools.{pool}.members");
        let message = format!("pool {pool} has no usable address of {host}: {why}");
        prepared.report.warn(&key, &message);
    }
    Ok(prepared)
}

/// Whether a name is a service. The pools of services have no members without an answer.
fn is_service(question: &DnsQuestion) -> bool {
    matches!(question, DnsQuestion::Service(_))
}

/// Looks up the `wanted` names, as a start does with all names.
fn look_up(config: &Config, lasting: &Lasting, wanted: fn(&DnsQuestion) -> bool) {
    if !membership::questions(config).iter().any(wanted) {
        return;
    }
    let look_up = || {
        let Ok(runtime) = runtime::Builder::new_current_thread().enable_all().build() else {
            return;
        };
        let lookups = runtime.block_on(lasting.members.look_up_new(config, wanted));
        lasting.members.learn(config, &lookups);
    };
    // It runs on a thread of its own, because the caller may be in a runtime.
    std::thread::scope(|scope| {
        let _ = scope.spawn(look_up).join();
    });
}

/// Warns of CAs that do not sign each other, unless a rule or route names an issuer: each CA can issue a certificate for the
/// certname of an agent of the other CA. Only `check` warns, because a rotation of the CA looks the same for weeks.
fn warn_of_separate_cas(prepared: &mut Prepared) {
    let roots = prepared.generation.trust.separate_roots(UnixTime::now());
    let routes = &prepared.config.routes;
    let names_issuer = routes.access.iter().any(|rule| !rule.issuer.is_empty())
        || routes.routes.iter().any(|route| !route.issuer.is_empty());
    if roots.is_empty() || names_issuer {
        return;
    }
    let message = format!(
        "the bundle has CAs that do not sign each other: {}; a certificate of one is accepted for a certname that the other has issued. If they belong to separate estates, name the CA in `issuer` of [[access]] or [[routes]]; if one replaces the other, remove the old one when all agents have new certificates",
        roots.join("; ")
    );
    prepared.report.warn("trust.ca", &message);
}

/// Adds warnings about the dates of CAs, CRLs and certificates, and about revoked certificates of the proxy. A start would
/// serve with an alarm and could refuse every client.
fn warn_of_dates(prepared: &mut Prepared) {
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
    let numberless = clients.crls.iter().filter(|crl| crl.number == "none");
    alarms.extend(numberless.map(|crl| {
        format!(
            "the CRL of {} ({}) has no CRL number, so the date alone shows which of two CRLs is newer; let the CA number its CRLs if it can (openssl: crl_extensions with crlNumber)",
            crl.issuer, crl.source
        )
    }));
    let dropped = trust.dropped_revocations().into_iter().map(|dropped| {
        let forgotten = dropped.forgotten;
        dropped_message(&ShrunkCrl::from(dropped).status, forgotten)
    });
    alarms.extend(dropped);
    // The proxy's own certificates show how many certificates their CA has issued.
    let of_members = prepared.member_tls.iter().map(|tls| &*tls.trust);
    let stores: Vec<_> = [&**trust].into_iter().chain(of_members).collect();
    let own = prepared.own_certificates();
    let ca = ca_options(&prepared.generation);
    let mut messages: Vec<_> = certificates::alarms(&own, &stores, &BTreeMap::new(), &ca, now)
        .into_iter()
        .map(|found| found.message)
        .collect();
    alarms.extend(trust.empty_crls().iter().map(empty_message));
    // Fetched CRLs are used for members too. An expired CRL of a pool is therefore reported only where it refuses members.
    for tls in &prepared.member_tls {
        let members = tls.trust.status(now);
        let ended = members.cas.iter().filter(|ca| !ca.in_time);
        let ended = ended.filter(|ca| !clients.cas.contains(ca));
        alarms.extend(ended.map(|ca| {
            format!(
                "CA {} ({}), which verifies members, is expired or not valid yet: valid from {} to {}",
                ca.subject,
                ca.source,
                timestamp(ca.not_before),
                timestamp(ca.not_after)
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
                timestamp(end)
            )
        }));
    }
    let expiring = certificates::ca_alarms(&stores, now).into_iter();
    alarms.extend(expiring.map(|found| found.message));
    for alarm in alarms {
        prepared.report.warn("trust", &alarm);
    }
    messages.extend(not_renewed(&prepared.config, &own, trust, now));
    for message in messages {
        prepared.report.warn("certificates", &message);
    }
}

/// How long before its expiry a certificate must have a program that renews it. A CA with `allow-auto-renewal` issues
/// certificates with a shorter life than that.
const RENEWED_WITHIN: Duration = Duration::from_secs(120 * 86_400);

/// Warnings about certificates of the proxy that expire soon and that nothing renews, though their CA renews those of agents.
fn not_renewed(
    config: &Config,
    own: &[OwnCertificate],
    trust: &TrustStore,
    now: UnixTime,
) -> BTreeSet<String> {
    if !config.ca.renewal || config.own_renewal.enabled {
        return BTreeSet::new();
    }
    let ends_soon = |own: &&OwnCertificate| {
        let left = own.not_after.as_secs().saturating_sub(now.as_secs());
        left > 0 && left < RENEWED_WITHIN.as_secs()
    };
    // In its own ssldir, an agent of Puppet 8 renews its certificate itself.
    let is_agents = |own: &&OwnCertificate| {
        Environment::SSLDIRS
            .iter()
            .any(|ssldir| own.file.starts_with(ssldir))
    };
    own.iter()
        .filter(|own| ends_soon(own) && !is_agents(own) && own.is_issued_by(trust))
        .map(|own| {
            format!(
                "{own} expires on {}, and nothing renews it: set `renew = true` in [tls] (operating/proxy-certificates.md). A CA server with allow-auto-renewal gives each new certificate a short life, that of the proxy too",
                timestamp(own.not_after)
            )
        })
        .collect()
}
