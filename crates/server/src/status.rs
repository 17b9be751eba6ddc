//! The status of the process, assembled from what its parts know.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use admin::{
    AgentCheckStatus, DistrustedStatus, GenerationStatus, HandOverStatus, JrubyStatus, LastReload,
    ListenerStatus, MaterialsStatus, MemberStatus, PoolStatus, ProbeStatus, ProcessPhase,
    RefusedMaterials, Status,
};
use balancing::{Health, Member, PoolEntry, WeightSource, Work, settings::Role};
use membership::jrubies;
use pki::TrustStore;
use proxy::{AgentFacts, Generation, JrubyAnswer, LifecyclePhase, PoolRuntime};
use routing::Document;
use rustls_pki_types::UnixTime;
use state::{
    Foundation,
    stored_states::{instruction_status, state_status},
    times::timestamp,
};
use telemetry::{SeenCertificate, Severity};
use trust_keeper::{
    active_about_trust,
    agent_certificates::{end_of, expiring_agents, is_out},
    certificates,
};

use crate::{
    listening::Listeners,
    proc_status,
    shared_state::{ActiveState, App},
};

/// The status of the process, as `GET /v1/status` shows it.
pub(crate) fn status(app: &App) -> Status {
    let generation = app.generation();
    // These take time in a large estate, so they come before the lock that reloads wait for.
    let (agents, process) = (agent_counts(app, &generation), proc_status::read());
    let fleet = app.fleet_status();
    let (foundation, state) = (app.foundation(), app.state());
    Status {
        version: app.options.build.version.to_string(),
        phase: app.phase(),
        generation: GenerationStatus {
            number: generation.number,
            loaded_at: app.active.loaded_at().into(),
            fingerprint: foundation.fingerprint.to_string(),
        },
        last_reload: state.last_reload.as_ref().map(|(at, outcome)| LastReload {
            at: (*at).into(),
            outcome: outcome.clone(),
        }),
        hand_over: app.hand_over.preparing().map(|process| HandOverStatus {
            pid: process.pid,
            since: process.since.into(),
            version: process.version,
        }),
        former_processes: app.hand_over.former.status(),
        handshake_priority: app.workers.handshakes.refused().map(ToOwned::to_owned),
        listeners: listener_status(&state.listeners, &generation),
        metrics_address: state
            .metrics
            .as_ref()
            .map(|metrics| metrics.address.to_string()),
        pools: generation
            .pools
            .iter()
            .map(|runtime| pool_status(app, runtime))
            .collect(),
        dns: app.lasting.members.answers().status(&foundation.config),
        trust: trust_status(app, &foundation),
        materials: materials_status(&state),
        state: admin::StateStatus {
            directory: app.state_directory.path().display().to_string(),
            unusable: app.state_directory.trouble(),
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
        build: app.options.build.clone(),
        process,
        certificates: certificates_status(&foundation, &generation.trust),
        agents,
        blocks: app.trust.blocks().len() as u64,
        body_buffer_bytes: app.shared.body_buffer_bytes(),
        edge_copies: edge_copies(app),
        fleet,
    }
}

impl App {
    /// The phase of the process.
    fn phase(&self) -> ProcessPhase {
        match self.shared.signals.borrow().phase {
            LifecyclePhase::Serving => ProcessPhase::Serving,
            LifecyclePhase::Draining | LifecyclePhase::Cutting => ProcessPhase::Draining,
        }
    }

    /// Why a load balancer should send agents to another proxy; none: it is ready.
    pub(crate) fn unready(&self) -> Option<&'static str> {
        let generation = self.generation();
        let pools = generation.pools.iter();
        let available = pools.map(|pool| (&**pool.pool.name(), pool.pool.available() as u64));
        admin::unready(self.phase(), available, self.waits_for_fleet())
    }
}

fn listener_status(listeners: &Listeners, generation: &Generation) -> Vec<ListenerStatus> {
    let open = listeners.open.iter().filter_map(|open| {
        let settings = &generation.listeners.get(&open.listener.name)?.settings;
        let addresses = open.endpoints.iter();
        let addresses: Vec<_> = addresses.map(|at| at.address.to_string()).collect();
        let rejection = open.listener.certificate_rejections.last();
        Some(ListenerStatus {
            name: settings.name.clone(),
            address: addresses.first().cloned().unwrap_or_default(),
            addresses,
            connections: open.listener.connections.inside().into(),
            connections_max: settings.connections_max.into(),
            handshakes: open.listener.waiting.count() as u64,
            handshakes_max: settings.handshakes_max.into(),
            certificate_rejected: rejection.map(|rejection| DistrustedStatus {
                count: rejection.times,
                client: rejection.client.to_string(),
                at: rejection.at.into(),
                alert: rejection.alert.to_owned(),
            }),
        })
    });
    open.collect()
}

fn pool_status(app: &App, runtime: &PoolRuntime) -> PoolStatus {
    let queue = runtime.admission.state();
    let longest_wait = queue
        .oldest
        .map(|came| app.shared.now().saturating_sub(came));
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
        members: (0..runtime.members.len())
            .map(|index| member_status(app, runtime, index))
            .collect(),
    }
}

/// The status of one member of a pool, with the requests of former processes.
pub(crate) fn member_status(app: &App, runtime: &PoolRuntime, index: usize) -> MemberStatus {
    let mut status = own_member_status(app, runtime, index);
    app.hand_over
        .former
        .add_to(runtime.pool.name(), &mut status);
    status
}

/// The cause of `unknown` for a member that is ready again and that no probe has shown to be up since.
const DRAIN_ENDED: &str = "drain-ended";

/// The status of one member of a pool, with the requests of this process alone.
pub(crate) fn own_member_status(app: &App, runtime: &PoolRuntime, index: usize) -> MemberStatus {
    let entry = &runtime.pool.entries()[index];
    let address = &runtime.members[index].connector.address;
    let pool = runtime.pool.name();
    let facts = app.shared.members.of(pool, address);
    let (tunnels, oldest) = app.shared.tunnels.to(pool, address, TUNNELS_NAMED_MAX);
    let instruction = app.lasting.members.instruction(pool, address);
    // Scripts wait for `up` before they drain another member.
    let health = match entry.member.awaited_probe() {
        Some(_) if entry.member.health() == Health::Up => Health::Unknown,
        _ => entry.member.health(),
    };
    let (since, why) = match facts.changed {
        Some(_) if health != entry.member.health() => (None, Some(DRAIN_ENDED.to_owned())),
        Some((at, cause)) => (Some(at.into()), Some(cause.to_string())),
        None => (None, None),
    };
    MemberStatus {
        since,
        why,
        clock_offset_seconds: facts
            .clock_offset
            .filter(|_| runtime.pool.check().shows_clock())
            .map(|offset| offset.seconds),
        last_probe: facts.probed.map(probe_status),
        recent_probes: facts.recent_probes.into_iter().map(probe_status).collect(),
        address: address.to_string(),
        health: match health {
            Health::Unknown => admin::MemberHealth::Unknown,
            Health::Up => admin::MemberHealth::Up,
            Health::Down => admin::MemberHealth::Down,
        },
        jrubies: facts
            .jrubies
            .filter(|_| jrubies::is_read(&runtime.pool))
            .map(jruby_status),
        agent_check: facts
            .agent
            .filter(|_| runtime.rules.guards.agent_check.is_some())
            .map(|facts| agent_status(&entry.member, facts)),
        warming: warming_status(&entry.member, app.shared.now()),
        overloaded: overload_status(entry, app.shared.now()),
        ejected_seconds: entry
            .member
            .ejected_for(app.shared.now())
            .map(|left| left.as_secs()),
        ejections: entry.member.ejections(),
        administrative_state: state_status(entry.member.operator_state()),
        administrative: instruction.map(instruction_status),
        in_flight: entry.member.in_flight().into(),
        in_flight_by_work: in_flight_by_work(&entry.member),
        tunnels: tunnels as u64,
        oldest_tunnels: oldest
            .into_iter()
            .map(|tunnel| admin::TunnelStatus {
                client: tunnel.client.to_string(),
                since: tunnel.since.into(),
            })
            .collect(),
        oldest_requests: oldest_requests(app, &entry.member),
        connections: app.lasting.members.connections(pool, address).into(),
        weight: entry.weight,
        priority: entry.priority,
        backup: entry.role == Role::Backup,
    }
}

fn oldest_requests(app: &App, member: &Member) -> Vec<admin::RunningRequestStatus> {
    let requests = app.shared.long_requests.at(member.id(), REQUESTS_NAMED_MAX);
    let shown = requests
        .into_iter()
        .map(|request| admin::RunningRequestStatus {
            client: request.client.to_string(),
            request: request.request,
            since: request.since.into(),
        });
    shown.collect()
}

fn in_flight_by_work(member: &Member) -> BTreeMap<String, u64> {
    let counts = Work::ALL.into_iter().zip(member.in_flight_by_work());
    counts
        .filter(|(_, count)| *count > 0)
        .map(|(work, count)| (work.as_str().to_owned(), count.into()))
        .collect()
}

fn overload_status(entry: &PoolEntry, now: Duration) -> Option<admin::OverloadStatus> {
    let cause = entry.member.overload_cause(now)?;
    Some(admin::OverloadStatus {
        why: cause.to_string(),
        limit: entry.member.learned_limit(),
    })
}

fn warming_status(member: &Member, now: Duration) -> Option<admin::WarmingStatus> {
    let progress_percent = member.warm_up(now)?;
    Some(admin::WarmingStatus {
        progress_percent,
        weight_percent: member.source_percent(WeightSource::SlowStart),
    })
}

fn agent_status(member: &Member, facts: AgentFacts) -> AgentCheckStatus {
    let state = member.agent_state();
    AgentCheckStatus {
        state: state_status(state.administrative),
        down: state.is_down,
        weight_percent: state.weight_percent,
        at: facts.at.into(),
        answer: facts.answer,
        failure: facts.failure,
        failures: facts.failures,
    }
}

fn jruby_status(answer: JrubyAnswer) -> JrubyStatus {
    let problem = match answer {
        JrubyAnswer::Known(reading) => {
            return JrubyStatus {
                count: Some(reading.count),
                free: Some(reading.free),
                waiting: Some(reading.waiting),
                borrow_milliseconds: Some(milliseconds(reading.borrow_time)),
                wait_milliseconds: Some(milliseconds(reading.wait_time)),
                at: Some(reading.at.into()),
                problem: None,
            };
        }
        JrubyAnswer::Forbidden => format!(
            "its auth.conf does not allow {}: add {}",
            jrubies::PATH,
            jrubies::AUTH_RULE
        ),
        JrubyAnswer::Unknown(why) => why,
    };
    JrubyStatus {
        problem: Some(problem),
        ..JrubyStatus::default()
    }
}

fn probe_status((at, failure): (SystemTime, Option<String>)) -> ProbeStatus {
    ProbeStatus {
        at: at.into(),
        failure,
    }
}

fn alarms_status(app: &App) -> Vec<admin::AlarmStatus> {
    let active = app.lasting.metrics.alarms.active().into_iter();
    active
        .map(|active| admin::AlarmStatus {
            key: active.key(),
            severity: match active.alarm.severity() {
                Severity::Error => admin::AlarmSeverity::Error,
                _ => admin::AlarmSeverity::Warning,
            },
            since: active.since.into(),
            message: active.message,
            caused_by: active.caused_by.map(|alarm| alarm.as_str().to_owned()),
        })
        .collect()
}

fn materials_status(state: &ActiveState) -> MaterialsStatus {
    let refused = state.refused_materials.as_ref();
    MaterialsStatus {
        watch: match state.watched_by {
            config::ChangeDetection::Notify => admin::MaterialsWatch::Notify,
            config::ChangeDetection::Poll => admin::MaterialsWatch::Poll,
            config::ChangeDetection::Off => admin::MaterialsWatch::Off,
        },
        refused: refused.map(|(since, report)| RefusedMaterials {
            since: (*since).into(),
            report: report.clone(),
        }),
    }
}

fn edge_copies(app: &App) -> BTreeMap<String, u64> {
    let copies = Document::ALL.into_iter().filter_map(|document| {
        let copy = app.shared.edge.copy(document)?;
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
    let agents = &app.shared.agents;
    let trust = &generation.trust;
    let is_refused = |name: &str, certificate: &SeenCertificate| {
        is_out(trust, name, certificate, UnixTime::now()).is_some()
    };
    let end = |certificate: &SeenCertificate| end_of(trust, certificate);
    let counts = agents.by_expiry(SystemTime::now(), end, is_refused);
    let by_expiry = telemetry::EXPIRY_WORDS.into_iter().zip(counts);
    admin::AgentCounts {
        by_expiry: by_expiry
            .map(|(words, count)| (words.to_owned(), count))
            .collect(),
        expiring: expiring_agents(agents, trust, SystemTime::now()).0,
        evicted: agents.forgotten(),
    }
}

fn renewal_status(app: &App, generation: &Generation) -> admin::RenewalStatus {
    admin::RenewalStatus {
        configured: generation.ca.renewal,
        off: app.shared.renewal.off().map(|off| admin::RenewalDisabled {
            since: off.since.into(),
            why: off.why,
        }),
    }
}

fn trust_status(app: &App, foundation: &Foundation) -> admin::ActiveTrust {
    let status = app.generation().trust.status(UnixTime::now());
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
    let chains = app.generation().trust.chain_memory();
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
        alarms: active_about_trust(&app.lasting.metrics.alarms)
            .into_iter()
            .map(|active| active.message)
            .collect(),
        fetch: fetches.then(|| app.trust.fetch_status()),
        agent_copy_age_seconds,
        chain_cache: admin::ChainCacheStatus {
            entries: chains.chains as u64,
            hits: chains.hits,
            misses: chains.misses,
        },
    }
}

/// Maximum number of requests of one member that the status names, the oldest first.
pub(crate) const REQUESTS_NAMED_MAX: usize = 10;
/// Maximum number of tunnels of one member that the status names, the oldest first.
pub(crate) const TUNNELS_NAMED_MAX: usize = 5;

fn age(since: SystemTime) -> Duration {
    SystemTime::now().duration_since(since).unwrap_or_default()
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
