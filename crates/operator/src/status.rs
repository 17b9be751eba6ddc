//! The status of the process, assembled from what its parts know.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use admin::{GenerationStatus, MemberStatus, PoolStatus, Status};
use lifecycle::App;
use pki::TrustStore;
use proxy::{Generation, PoolRuntime};
use routing::Document;
use rustls_pki_types::UnixTime;
use state::{Foundation, times::timestamp};
use telemetry::SeenCertificate;
use trust_keeper::{
    active_about_trust,
    agent_certificates::{end_of, expiring_agents, is_out},
    certificates,
};

use crate::proc_status;

/// The status of the process, as `GET /v1/status` shows it.
pub(crate) fn status(app: &App) -> Status {
    let generation = app.active().generation();
    // These take time in a large estate, so they come before the lock that reloads wait for.
    let (agents, process) = (agent_counts(app, &generation), proc_status::read());
    let fleet = app.fleet_status();
    let (foundation, lifecycle) = (app.active().foundation(), app.status());
    Status {
        version: app.build_status().version.to_string(),
        phase: lifecycle.phase,
        generation: GenerationStatus {
            number: generation.number,
            loaded_at: app.active().loaded_at().into(),
            fingerprint: foundation.fingerprint.to_string(),
        },
        last_reload: lifecycle.last_reload,
        hand_over: lifecycle.hand_over,
        former_processes: lifecycle.former_processes,
        handshake_priority: lifecycle.handshake_priority,
        listeners: lifecycle.listeners,
        metrics_address: lifecycle.metrics_address,
        pools: generation
            .pools
            .iter()
            .map(|runtime| pool_status(app, runtime))
            .collect(),
        dns: app.members().answers().status(&foundation.config),
        trust: trust_status(app, &foundation),
        materials: lifecycle.materials,
        state: admin::StateStatus {
            directory: app.directory().path().display().to_string(),
            unusable: app.directory().trouble(),
        },
        renewal: renewal_status(app, &generation),
        alarms: alarms_status(app),
        limits: BTreeMap::from([
            (
                "discard_bytes_max".to_owned(),
                generation.settings.discard_bytes_max,
            ),
            (
                "attempts_max".to_owned(),
                generation.settings.attempts_max.into(),
            ),
            (
                "revoked_close_rate".to_owned(),
                generation.revoked_close_rate.into(),
            ),
            (
                "chain_cache_max".to_owned(),
                generation.trust.settings().chain_cache_max as u64,
            ),
            (
                "access_log_queue_max".to_owned(),
                foundation.config.access_log.settings.queue_max as u64,
            ),
            ("workers".to_owned(), foundation.config.workers as u64),
        ]),
        build: app.build_status().clone(),
        process,
        certificates: certificates_status(&foundation, &generation.trust),
        agents,
        blocks: app.trust().blocks().len() as u64,
        // The admin API adds them, because it has the history.
        rates: admin::RecentRates::default(),
        body_buffer_bytes: app.active().shared().body_buffer_bytes(),
        edge_copies: edge_copies(app),
        fleet,
    }
}

fn pool_status(app: &App, runtime: &PoolRuntime) -> PoolStatus {
    let queue = runtime.admission.state();
    let longest_wait = queue
        .oldest
        .map(|came| app.active().shared().now().saturating_sub(came));
    PoolStatus {
        name: runtime.pool.name().to_string(),
        algorithm: runtime.pool.algorithm().as_str().to_owned(),
        available: runtime.pool.available() as u64,
        waiting: queue.waiting.iter().map(|count| u64::from(*count)).sum(),
        longest_wait_seconds: longest_wait.map(|wait| wait.as_secs()),
        longest_wait_milliseconds: longest_wait.map(milliseconds),
        queue_refusals: runtime
            .metrics
            .queue_refusals()
            .filter(|(_, count)| *count > 0)
            .map(|(reason, count)| (reason.as_str().to_owned(), count))
            .collect(),
        members: members_status(app, runtime),
    }
}

/// The members of a pool, each with its share of the requests to the pool.
pub(crate) fn members_status(app: &App, runtime: &PoolRuntime) -> Vec<MemberStatus> {
    let members = 0..runtime.members.len();
    let mut members: Vec<_> = members
        .map(|index| app.member_status(runtime, index))
        .collect();
    let traffic = members.iter().filter_map(|member| member.traffic.as_ref());
    let all: u64 = traffic.map(|traffic| traffic.requests).sum();
    for traffic in members
        .iter_mut()
        .filter_map(|member| member.traffic.as_mut())
    {
        traffic.share_percent = (traffic.requests * 100).checked_div(all).unwrap_or(0);
    }
    members
}

fn alarms_status(app: &App) -> Vec<admin::AlarmStatus> {
    let active = app.active().alarms().active().into_iter();
    active
        .map(|active| admin::AlarmStatus {
            key: active.key(),
            severity: active.urgency.into(),
            since: active.since.into(),
            message: active.message,
            effect: active.alarm.effect().to_owned(),
            first_step: active.alarm.first_step().to_owned(),
            runbook: active.alarm.runbook().to_owned(),
            caused_by: active.caused_by,
        })
        .collect()
}

fn edge_copies(app: &App) -> BTreeMap<String, u64> {
    let copies = Document::ALL.into_iter().filter_map(|document| {
        let copy = app.active().shared().edge.copy(document)?;
        let age = copy.confirmed.elapsed().as_secs();
        Some((document.as_str().to_owned(), age))
    });
    copies.collect()
}

fn certificates_status(
    foundation: &Foundation,
    trust: &TrustStore,
) -> Vec<admin::ProxyCertificateStatus> {
    let stores = foundation.stores(trust);
    let own = certificates::of(foundation).into_iter();
    own.map(|own| admin::ProxyCertificateStatus {
        role: own.role.as_str().to_owned(),
        name: own.used_by.clone(),
        file: own.file.display().to_string(),
        subject: own.subject.clone(),
        not_after: timestamp(own.path_end(&stores)),
    })
    .collect()
}

fn agent_counts(app: &App, generation: &Generation) -> admin::AgentCounts {
    let agents = &app.active().shared().agents;
    let trust = &generation.trust;
    let is_refused = |name: &str, certificate: &SeenCertificate| {
        is_out(trust, name, certificate, UnixTime::now()).is_some()
    };
    let end = |certificate: &SeenCertificate| end_of(trust, certificate);
    let tally = agents.tally(SystemTime::now(), end, is_refused);
    let by_expiry = telemetry::EXPIRY_WORDS.into_iter().zip(tally.by_expiry);
    let is_in_bundle = |issuer: &str| trust.knows_issuer(issuer);
    admin::AgentCounts {
        by_expiry: by_expiry
            .map(|(words, count)| (words.to_owned(), count))
            .collect(),
        expiring: expiring_agents(agents, trust, SystemTime::now()).0,
        by_issuer: by_issuer(trust.issuing_cas(), is_in_bundle, &tally.by_issuer),
        evicted: agents.forgotten(),
    }
}

/// The number of agents of each CA. A CA that issues certificates is included with 0, so that the end of a rotation is visible.
fn by_issuer<'a>(
    issuing: impl Iterator<Item = &'a str>,
    is_in_bundle: impl Fn(&str) -> bool,
    agents: &'a BTreeMap<Arc<str>, u64>,
) -> BTreeMap<String, u64> {
    let with_agents = agents.keys().map(|issuer| &**issuer);
    let with_agents = with_agents.filter(|issuer| is_in_bundle(issuer));
    let cas: BTreeSet<_> = issuing.chain(with_agents).collect();
    let cas = cas.into_iter().take(admin::AGENT_ISSUERS_MAX);
    let mut counts: BTreeMap<_, _> = cas.map(|ca| (ca.to_owned(), 0)).collect();
    for (issuer, count) in agents {
        match counts.get_mut(&**issuer) {
            Some(known) => *known += count,
            None => *counts.entry("other".to_owned()).or_default() += count,
        }
    }
    counts
}

fn renewal_status(app: &App, generation: &Generation) -> admin::RenewalStatus {
    admin::RenewalStatus {
        configured: generation.ca.renewal,
        off: app
            .active()
            .shared()
            .renewal
            .off()
            .map(|off| admin::RenewalDisabled {
                since: off.since.into(),
                why: off.why,
            }),
    }
}

fn trust_status(app: &App, foundation: &Foundation) -> admin::ActiveTrust {
    let status = app.active().generation().trust.status(UnixTime::now());
    let fetches = foundation.config.trust.fetch.is_some();
    let copy = foundation.config.agents_copy();
    // A source starts with the file's name in quotes.
    let copy = copy.map(|copy| format!("\"{}\"", copy.display()));
    let is_of_copy = |source: &str| copy.as_ref().is_some_and(|copy| source.starts_with(copy));
    let age_of = |source: &str| {
        let written = foundation.agents_copy.filter(|_| is_of_copy(source))?;
        Some(age(written).as_secs())
    };
    // Without a fetch the agent's copy is the CRL that everything depends on, whatever other CRLs are loaded.
    let is_used = |_: &SystemTime| {
        let mut crls = status.crls.iter();
        !fetches || crls.any(|crl| is_of_copy(&crl.source))
    };
    let agent_copy_age_seconds = foundation
        .agents_copy
        .filter(is_used)
        .map(|at| age(at).as_secs());
    let chains = app.active().generation().trust.chain_memory();
    admin::ActiveTrust {
        generation: status.generation,
        cas: status
            .cas
            .into_iter()
            .map(|ca| admin::ActiveCa {
                subject: ca.subject,
                not_after: timestamp(ca.not_after),
                is_superseded: ca.is_superseded,
                source: ca.source,
            })
            .collect(),
        crls: status
            .crls
            .into_iter()
            .map(|crl| admin::ActiveCrl {
                issuer: crl.issuer,
                number: crl.number,
                this_update: Some(timestamp(crl.this_update)),
                entries: crl.entries as u64,
                next_update: crl.next_update.map(timestamp),
                expired: crl.expired,
                accepted_until: crl.accepted_until.map(timestamp),
                agent_copy_age_seconds: age_of(&crl.source),
                source: crl.source,
                is_newest: crl.is_newest,
            })
            .collect(),
        crl_missing: status.crl_missing,
        unchecked: status.unchecked,
        alarms: active_about_trust(app.active().alarms())
            .into_iter()
            .map(|active| active.message)
            .collect(),
        fetch: fetches.then(|| app.trust().fetch_status()),
        agent_copy_age_seconds,
        chain_cache: admin::ChainCacheStatus {
            entries: chains.chains as u64,
            hits: chains.hits,
            misses: chains.misses,
        },
    }
}

fn age(since: SystemTime) -> Duration {
    SystemTime::now().duration_since(since).unwrap_or_default()
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_counted_for_a_limited_number_of_cas() {
        let agents = [("CN=ca 000", 3), ("CN=ca 999", 5), ("CN=removed", 2)];
        let agents = agents
            .map(|(issuer, count)| (Arc::from(issuer), count))
            .into();
        let is_in_bundle = |issuer: &str| issuer != "CN=removed";
        let few = ["CN=ca 000", "CN=ca 001", "CN=ca 001"];
        let counts = by_issuer(few.into_iter(), is_in_bundle, &agents);
        let expected = [
            ("CN=ca 000", 3),
            ("CN=ca 001", 0),
            ("CN=ca 999", 5),
            ("other", 2),
        ];
        assert_eq!(
            counts,
            expected.map(|(ca, count)| (ca.to_owned(), count)).into()
        );
        let many: Vec<_> = (0..999).map(|n| format!("CN=ca {n:03}")).collect();
        let counts = by_issuer(many.iter().map(String::as_str), is_in_bundle, &agents);
        assert_eq!(counts.len(), admin::AGENT_ISSUERS_MAX + 1);
        assert_eq!((counts["CN=ca 000"], counts["other"]), (3, 7));
    }
}
