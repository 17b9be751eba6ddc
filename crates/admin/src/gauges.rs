//! The gauges of `GET /metrics`: the same facts as [`Status`], encoded for Prometheus.
//!
//! A gauge has no state of its own. To add one, add its fact to [`Status`], fill it where the server builds the status,
//! and encode it here.

use std::{collections::BTreeMap, time::SystemTime};

use telemetry::{Gauges, Labels};

use crate::{
    ActiveTrust, AdministrativeState, CrlFetchStatus, FleetStatus, MemberHealth, MemberStatus,
    ProcessStatus, ReloadResult, Status, Timestamp,
};

/// All gauges of a status, for [`telemetry::Metrics::encode`]. `now` is the time from which ages are counted.
pub fn gauges(status: &Status, now: SystemTime) -> [Gauges; 2] {
    let mut gauges = Gauges::of_proscenium();
    listeners(status, &mut gauges);
    pools(status, &mut gauges);
    members(status, &mut gauges);
    crls(&status.trust, now, &mut gauges);
    if let Some(fetch) = &status.trust.fetch {
        crl_fetch(fetch, &mut gauges);
    }
    trust(status, &mut gauges);
    materials(status, &mut gauges);
    agents(status, &mut gauges);
    reload(status, &mut gauges);
    if let Some(status) = &status.fleet {
        fleet(status, &mut gauges);
    }
    [gauges, process(&status.process)]
}

fn listeners(status: &Status, gauges: &mut Gauges) {
    let handshakes = status.listeners.iter().map(|listener| {
        let labels = vec![("listener", listener.name.clone())];
        (labels, listener.handshakes as f64)
    });
    gauges.series(
        "handshakes_in_flight",
        "TLS handshakes that wait for the client's next message",
        handshakes,
    );
    let help = "Bytes of request bodies in buffers";
    gauges.value(
        "body_buffer_bytes",
        help,
        Some(status.body_buffer_bytes as f64),
    );
}

fn pools(status: &Status, gauges: &mut Gauges) {
    let mut each = |name, help, value: fn(&crate::PoolStatus) -> f64| {
        let pools = status.pools.iter();
        gauges.series(
            name,
            help,
            pools.map(|pool| (vec![("pool", pool.name.clone())], value(pool))),
        );
    };
    let help = "Requests that wait for a member of a pool";
    each("pool_queue_length", help, |pool| pool.waiting as f64);
    let help = "How long the request that came first has waited for a member of a pool";
    each("pool_queue_longest_wait_seconds", help, |pool| {
        pool.longest_wait_milliseconds.unwrap_or(0) as f64 / 1000.0
    });
    let help = "Members of a pool that are up and ready";
    each("pool_members_available", help, |pool| pool.available as f64);
}

fn members(status: &Status, gauges: &mut Gauges) {
    let all = || {
        status.pools.iter().flat_map(|pool| {
            let labelled = move |member| (labels(&pool.name, member), member);
            pool.members.iter().map(labelled)
        })
    };
    let mut each = |name, help, value: fn(&MemberStatus) -> Option<f64>| {
        let series = all().filter_map(|(labels, member)| Some((labels, value(member)?)));
        gauges.series(name, help, series);
    };
    let help = "Whether a member is up (1) or down or not yet probed (0)";
    each("member_up", help, |member| {
        one_if(member.health == MemberHealth::Up)
    });
    let help = "Attempts in flight on a member";
    each("member_in_flight", help, |member| {
        Some(member.in_flight as f64)
    });
    let help = "Connections open to a member";
    each("member_connections", help, |member| {
        Some(member.connections as f64)
    });
    let help = "Whether a member is left out because attempts at it failed (1) or not (0)";
    each("member_ejected", help, |member| {
        one_if(member.ejected_seconds.is_some())
    });
    let help = "Whether a member has more requests than it can take (1) or not (0)";
    each("member_overloaded", help, |member| {
        one_if(member.overloaded.is_some())
    });
    let help = "Whether a member was restarted and is not warm yet (1) or not (0)";
    each("member_warming", help, |member| {
        one_if(member.warming.is_some())
    });
    let help = "JRubies of a member, as it shows them itself; no series while that is unknown";
    each("member_jrubies", help, |member| {
        Some(member.jrubies.as_ref()?.count?.into())
    });
    let help = "JRubies of a member that are idle, as it shows them itself";
    each("member_jrubies_free", help, |member| {
        Some(member.jrubies.as_ref()?.free?.into())
    });

    let states = all().flat_map(|(labels, member)| {
        AdministrativeState::ALL.map(|state| {
            let mut labels = labels.clone();
            labels.push(("state", state.to_string()));
            let is_current = state == effective_state(member);
            (labels, f64::from(u8::from(is_current)))
        })
    });
    let help = "Whether this is the administrative state of the member (1) or not (0); the stricter of the states that the operator and the agent check set applies";
    gauges.series("member_administrative_state", help, states);

    let ejections = all().map(|(labels, member)| (labels, member.ejections));
    let help = "Times that a member was left out because attempts at it failed";
    gauges.counters("member_ejections", help, ejections);
    let failures =
        all().filter_map(|(labels, member)| Some((labels, member.agent_check.as_ref()?.failures)));
    let help = "Agent checks of a member without a readable answer";
    gauges.counters("member_agent_check_failures", help, failures);
}

fn labels(pool: &str, member: &MemberStatus) -> Labels {
    vec![
        ("pool", pool.to_owned()),
        ("member", member.address.clone()),
    ]
}

fn one_if(is_true: bool) -> Option<f64> {
    Some(f64::from(u8::from(is_true)))
}

/// The stricter of the operator's state and the agent check's.
fn effective_state(member: &MemberStatus) -> AdministrativeState {
    let check = member.agent_check.as_ref().map(|check| check.state);
    member
        .administrative_state
        .max(check.unwrap_or(AdministrativeState::Ready))
}

fn crls(trust: &ActiveTrust, now: SystemTime, gauges: &mut Gauges) {
    // After a renewal with another key two CAs have one name, and one series.
    let newest = trust.crls.iter().filter(|crl| crl.is_newest);
    let shown = newest.take(CRL_SERIES_MAX);
    let shown = first_to_expire(shown, |crl| &crl.issuer, |crl| crl.next_update.as_ref());
    let mut each = |name, help, value: &dyn Fn(&crate::ActiveCrl) -> Option<f64>| {
        let series = shown.iter();
        let series =
            series.filter_map(|crl| Some((vec![("issuer", crl.issuer.clone())], value(crl)?)));
        gauges.series(name, help, series);
    };
    let help = "Time since the CRL of an issuer was created";
    each("crl_age_seconds", help, &|crl| {
        let created = crl.this_update.as_ref()?.instant()?;
        Some(
            now.duration_since(created)
                .unwrap_or_default()
                .as_secs_f64(),
        )
    });
    let help = "Time by which the next CRL of an issuer is due, in Unix time";
    each("crl_next_update_timestamp_seconds", help, &|crl| {
        unix(crl.next_update.as_ref())
    });
    let help = "Revoked certificates in the newest CRL of an issuer";
    each("crl_entries", help, &|crl| Some(crl.entries as f64));
    let help = "CRL number of the CRL of an issuer";
    each("crl_number", help, &|crl| {
        crl.number.parse::<u64>().ok().map(|number| number as f64)
    });
    let help = "Whether the CRL of an issuer has expired (1) or not (0)";
    each("crl_expired", help, &|crl| one_if(crl.expired));
    let help =
        "Time until which an expired CRL is accepted, in Unix time, if the policy sets a limit";
    each("crl_accepted_until_timestamp_seconds", help, &|crl| {
        unix(crl.accepted_until.as_ref())
    });
    let help = "Age of the agent's copy of the CRL while the proxy uses that copy";
    let age = trust.agent_copy_age_seconds.map(|age| age as f64);
    gauges.value("crl_agent_copy_age_seconds", help, age);
}

fn crl_fetch(fetch: &CrlFetchStatus, gauges: &mut Gauges) {
    let help = "Time of the last successful CRL fetch from the CA, in Unix time";
    let answered = unix(fetch.last_answer.as_ref());
    gauges.value("crl_last_fetch_timestamp_seconds", help, answered);
    let help = "Whether the last CRL fetch failed (1) or succeeded (0)";
    gauges.condition("crl_fetch_failing", help, fetch.failing.is_some());
    let missing = fetch.shrunk.iter();
    let missing = missing.map(|crl| (vec![("issuer", crl.issuer.clone())], crl.missing as f64));
    let help = "Revocations that CRLs of an issuer no longer list and that stay active until an operator accepts the change";
    gauges.series("crl_missing_revocations", help, missing);
}

fn trust(status: &Status, gauges: &mut Gauges) {
    let trust = &status.trust;
    let active = trust.cas.iter().filter(|ca| !ca.is_superseded);
    let cas = first_to_expire(active, |ca| &ca.subject, |ca| Some(&ca.not_after));
    let cas = cas.into_iter().filter_map(|ca| {
        let labels = vec![("subject", ca.subject.clone())];
        Some((labels, unix(Some(&ca.not_after))?))
    });
    let help = "Time at which a CA certificate expires, in Unix time";
    gauges.series("ca_not_after_timestamp_seconds", help, cas);
    let help = "Active alarms about CAs and CRLs; proscenium status lists them";
    gauges.integer("trust_alarms", help, trust.alarms.len() as u64);
    let help = "Active blocks; proscenium blocks lists them";
    gauges.integer("blocks", help, status.blocks);
    let help = "Verified certificate chains in the cache";
    let entries = trust.chain_cache.entries as f64;
    gauges.value("chain_cache_entries", help, Some(entries));
    let cache = trust.chain_cache;
    let lookups = [("hit", cache.hits), ("miss", cache.misses)]
        .map(|(result, count)| (vec![("result", result.to_owned())], count));
    let help = "Lookups of certificate chains in the cache, by result";
    gauges.counters("chain_cache_lookups", help, lookups);
}

fn materials(status: &Status, gauges: &mut Gauges) {
    let own = status.certificates.iter().filter_map(|certificate| {
        let labels = vec![
            ("role", certificate.role.clone()),
            ("name", certificate.name.clone()),
            ("file", certificate.file.clone()),
            ("subject", certificate.subject.clone()),
        ];
        Some((labels, unix(Some(&certificate.not_after))?))
    });
    let help = "Time at which a certificate of the proxy expires, in Unix time";
    gauges.series("certificate_not_after_timestamp_seconds", help, own);
    let help = "Whether certificates, keys, CA bundles or CRLs on disk are refused and the previous ones stay active (1) or not (0)";
    let is_refused = status.materials.refused.is_some();
    gauges.condition("materials_refused", help, is_refused);
    let copies = status.edge_copies.iter();
    let copies = copies.map(|(document, age)| (vec![("document", document.clone())], *age as f64));
    let help = "Time since the CA last confirmed a copy of a document";
    gauges.series("edge_copy_age_seconds", help, copies);
    let help = "Whether the proxy refuses renewals until a reload because the CA renewed the wrong certificate (1) or not (0)";
    gauges.condition("renewal_disabled", help, status.renewal.off.is_some());
    let help = "Whether the state directory is unusable, so that changes are lost at a restart (1) or not (0)";
    let is_unusable = status.state.unusable.is_some();
    gauges.condition("state_directory_unusable", help, is_unusable);
}

fn agents(status: &Status, gauges: &mut Gauges) {
    let agents = status.agents.by_expiry.iter();
    let agents = agents.map(|(expires, count)| (vec![("expires", expires.clone())], *count as f64));
    let help = "Agents seen since the start, by the time until their certificates expire";
    gauges.series("agents", help, agents);
    let issuers = status.agents.by_issuer.iter();
    let issuers = issuers.map(|(issuer, count)| (vec![("issuer", issuer.clone())], *count as f64));
    let help = "Agents whose certificates are neither expired nor refused, by the CA of the bundle that issued them";
    gauges.series("agents_by_issuer", help, issuers);
    let help = "Agents seen in the last day whose certificates expire within 14 days";
    gauges.integer("agents_expiring", help, status.agents.expiring);
    let help = "Agents removed from memory to make room for other agents";
    gauges.count("agents_evicted", help, status.agents.evicted);
}

fn fleet(status: &FleetStatus, gauges: &mut Gauges) {
    let help = "Whether the store of the fleet is reached (1) or not (0)";
    gauges.condition("fleet_connected", help, status.connected);
    let help = "Proxies of the fleet that are registered, this one included";
    gauges.integer("fleet_proxies", help, status.proxies.len() as u64);
    let records = status.records.iter();
    let records = records.map(|(kind, count)| (vec![("kind", kind.clone())], *count as f64));
    let help = "Records of operators' acts that the proxy shares with the fleet, by kind";
    gauges.series("fleet_records", help, records);
    let rejected = status.rejected_records.iter();
    let rejected = rejected.map(|(reason, count)| (vec![("reason", reason.clone())], *count));
    let help = "Records of the fleet's store that were ignored, by reason";
    gauges.counters("fleet_rejected_records", help, rejected);
    let help = "Time for which changes of other proxies do not arrive; 0 while they do";
    let age = status.sync_age_seconds.map(|age| age as f64);
    gauges.value("fleet_sync_age_seconds", help, age);
    let help =
        "Time after which all other proxies had applied the last change that was made on this one";
    let delay = status.apply_delay_milliseconds;
    let delay = delay.map(|delay| delay as f64 / 1000.0);
    gauges.value("fleet_apply_delay_seconds", help, delay);
}

fn reload(status: &Status, gauges: &mut Gauges) {
    if let Some(last) = &status.last_reload {
        let help = "Time of the last requested reload, in Unix time";
        let at = unix(Some(&last.at));
        gauges.value("last_reload_timestamp_seconds", help, at);
        let help = "Whether the last requested reload succeeded (1) or was refused (0)";
        let result = last.outcome.result;
        let succeeded = !matches!(result, ReloadResult::Refused | ReloadResult::Failed);
        gauges.condition("last_reload_success", help, succeeded);
    }
    let build = &status.build;
    let labels = [
        ("version", &build.version),
        ("commit", &build.commit),
        ("rustc", &build.rustc),
        ("tls", &build.tls),
    ];
    let labels = labels
        .map(|(name, value)| (name, value.to_string()))
        .to_vec();
    let help =
        "Version, commit, compiler and TLS library of the running program; the value is always 1";
    gauges.series("build_info", help, [(labels, 1.0)]);
}

/// These names are the same for every program that Prometheus scrapes.
fn process(process: &ProcessStatus) -> Gauges {
    let mut gauges = Gauges::of_process();
    let cpu = process.cpu_milliseconds.map(|cpu| cpu as f64 / 1000.0);
    let help = "User and system CPU time consumed";
    gauges.seconds_counter("process_cpu_seconds", help, cpu);
    let mut gauge = |name, help, value: Option<u64>| {
        gauges.value(name, help, value.map(|value| value as f64));
    };
    let resident = process.resident_bytes;
    gauge("process_resident_memory_bytes", "Resident memory", resident);
    let size = process.virtual_bytes;
    gauge("process_virtual_memory_bytes", "Virtual memory", size);
    gauge(
        "process_open_fds",
        "Open file descriptors",
        process.open_fds,
    );
    let help = "Maximum number of open file descriptors";
    gauge("process_max_fds", help, process.max_fds);
    let started = unix(process.started.as_ref());
    let help = "Start time of the process, in Unix time";
    gauges.value("process_start_time_seconds", help, started);
    gauges
}

/// For each name, the entry that expires first, so that an alert does not miss it because of an entry that expires later.
fn first_to_expire<'s, T>(
    entries: impl IntoIterator<Item = &'s T>,
    name: impl Fn(&'s T) -> &'s String,
    end: impl Fn(&T) -> Option<&Timestamp>,
) -> Vec<&'s T> {
    // An entry without an end sorts last.
    let order = |entry: &T| {
        let end = end(entry).and_then(Timestamp::unix_seconds);
        (end.is_none(), end)
    };
    let mut first: BTreeMap<&String, &T> = BTreeMap::new();
    for entry in entries {
        let of_name = first.entry(name(entry)).or_insert(entry);
        if order(entry) < order(of_name) {
            *of_name = entry;
        }
    }
    first.into_values().collect()
}

fn unix(at: Option<&Timestamp>) -> Option<f64> {
    at?.unix_seconds().map(|seconds| seconds as f64)
}

/// Maximum number of CRLs that have series. A bundle of more CAs is a mistake and must not flood the scraper.
const CRL_SERIES_MAX: usize = 256;

#[cfg(test)]
mod tests;
