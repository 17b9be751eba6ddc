//! Prints a status for operators.

mod alarms;
mod head;

use std::{collections::BTreeMap, fmt::Write};

use admin::{
    ActiveCrl, ActiveTrust, AdministrativeState, AgentCounts, FormerProcessStatus, HandOverStatus,
    LastReload, ListenerStatus, MaterialsStatus, MemberHealth, MemberStatus, NameStatus,
    PoolStatus, Status,
};
use lifecycle::CLOCK_OFFSET_MAX;

pub(crate) use alarms::most_severe;

use crate::{member_table, output};

/// The part of a status that operators look for first, as lines.
pub(crate) fn table(status: &Status) -> String {
    coloured_table(status, output::is_stdout_coloured())
}

fn coloured_table(status: &Status, colour: bool) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_table(&mut text, status, colour);
    text
}

fn write_table(text: &mut String, status: &Status, colour: bool) -> std::fmt::Result {
    head::write_head(text, status, colour)?;
    alarms::write_alarms(text, &status.alarms, colour)?;
    write_process(text, status)?;
    writeln!(text, "\nlisteners")?;
    rows(text, status.listeners.iter().map(listener).collect())?;
    for pool in &status.pools {
        write_pool(text, pool)?;
    }
    write_names(text, &status.dns)?;
    writeln!(text)?;
    write_crls(text, &status.trust)?;
    write_issuers(text, &status.agents)?;
    write_materials(text, &status.materials)
}

/// The generation, the last reload, and the processes before and after this one.
fn write_process(text: &mut String, status: &Status) -> std::fmt::Result {
    let generation = &status.generation;
    writeln!(
        text,
        "generation {} since {}, fingerprint {}",
        generation.number, generation.loaded_at, generation.fingerprint
    )?;
    if let Some(LastReload { at, outcome }) = &status.last_reload {
        writeln!(text, "last reload: {} at {at}", outcome.result)?;
        for line in outcome.report.trim_end().lines() {
            writeln!(text, "    {line}")?;
        }
    }
    if let Some(HandOverStatus {
        pid,
        since,
        version,
    }) = &status.hand_over
    {
        let version = version.iter().map(|version| format!(", version {version}"));
        let version: String = version.collect();
        writeln!(
            text,
            "hand-over: process {pid} prepares to take over since {since}{version}"
        )?;
    }
    for FormerProcessStatus {
        pid,
        connections,
        in_flight,
    } in &status.former_processes
    {
        writeln!(
            text,
            "former process {pid}: finishes {in_flight} requests on {connections} connections"
        )?;
    }
    match &status.handshake_priority {
        Some(why) => writeln!(
            text,
            "handshakes compete with requests for CPU time: the class SCHED_IDLE was refused ({why})"
        ),
        None => Ok(()),
    }
}

fn write_pool(text: &mut String, pool: &PoolStatus) -> std::fmt::Result {
    writeln!(
        text,
        "\npool {}, {}, {} of {} members available",
        pool.name,
        pool.algorithm,
        pool.available,
        pool.members.len()
    )?;
    if let (waiting @ 1.., Some(wait)) = (pool.waiting, pool.longest_wait_seconds) {
        writeln!(
            text,
            "  {waiting} requests wait for a member, the first for {wait} s"
        )?;
    }
    if !pool.queue_refusals.is_empty() {
        let refusals = pool.queue_refusals.iter();
        let refusals: Vec<_> = refusals
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        let refusals = refusals.join(", ");
        writeln!(text, "  refused by the queue since the start: {refusals}")?;
    }
    rows(text, pool.members.iter().map(member).collect())?;
    for member in pool.members.iter().filter(|m| m.health != MemberHealth::Up) {
        write_down(text, member)?;
    }
    for member in &pool.members {
        write_administrative(text, member)?;
        write_clock(text, member)?;
        write_guards(text, member)?;
    }
    write_jrubies(text, &pool.members)
}

/// Only the CRLs.
pub(crate) fn crl_table(trust: &ActiveTrust) -> String {
    let mut text = String::new();
    let _ = write_crls(&mut text, trust);
    for alarm in &trust.alarms {
        let _ = writeln!(text, "  ALARM: {alarm}");
    }
    text
}

fn write_crls(text: &mut String, trust: &ActiveTrust) -> std::fmt::Result {
    writeln!(text, "CRLs, trust generation {}", trust.generation)?;
    rows(text, trust.crls.iter().map(crl).collect())?;
    for issuer in &trust.crl_missing {
        writeln!(text, "  {issuer}: no CRL, its certificates are refused")?;
    }
    for issuer in &trust.unchecked {
        writeln!(
            text,
            "  {issuer}: no CRL, its certificates are accepted unchecked"
        )?;
    }
    if let Some(fetch) = &trust.fetch {
        let answered = match (&fetch.member, &fetch.last_answer) {
            (Some(member), Some(at)) => format!("last answer {at} from {member}"),
            _ => "no answer yet".to_owned(),
        };
        writeln!(text, "  fetched from the pool ca: {answered}")?;
    }
    Ok(())
}

/// The DNS names that members are resolved from.
fn write_names(text: &mut String, names: &[NameStatus]) -> std::fmt::Result {
    if names.is_empty() {
        return Ok(());
    }
    writeln!(text, "\nnames in DNS")?;
    for name in names {
        write!(text, "  {}, pool {}: ", name.name, name.pools.join(", "))?;
        match (&name.answered_at, name.ttl_seconds) {
            (Some(at), Some(ttl)) => write!(text, "last answer {at}, TTL {ttl} s")?,
            _ => write!(text, "no answer yet")?,
        }
        if let Some(next) = &name.next_lookup {
            write!(text, ", next lookup {next}")?;
        }
        if name.servers.is_empty() {
            writeln!(text)?
        } else {
            writeln!(text, ", servers {}", name.servers.join(", "))?
        }
        if let Some(failure) = &name.failure {
            writeln!(text, "    last lookup: {failure}")?;
        }
        if name.is_stored {
            writeln!(text, "    its members were stored before the last start")?;
        }
    }
    Ok(())
}

/// The number of agents of each CA, if there are several: when the last agent has left the old one, a rotation is complete.
fn write_issuers(text: &mut String, agents: &AgentCounts) -> std::fmt::Result {
    if agents.by_issuer.len() < 2 {
        return Ok(());
    }
    writeln!(text, "\nagents by CA")?;
    let counts = agents.by_issuer.iter();
    let counts = counts.map(|(issuer, count)| vec![issuer.clone(), count.to_string()]);
    rows(text, counts.collect())
}

fn write_materials(text: &mut String, materials: &MaterialsStatus) -> std::fmt::Result {
    writeln!(text, "\nmaterials, watch = {}", materials.watch)?;
    let Some(refused) = &materials.refused else {
        return Ok(());
    };
    writeln!(
        text,
        "  refused since {}, and the previous ones stay active:",
        refused.since
    )?;
    let mut lines = refused.report.trim_end().lines();
    lines.try_for_each(|line| writeln!(text, "    {line}"))
}

/// Why a member is not up.
fn write_down(text: &mut String, member: &MemberStatus) -> std::fmt::Result {
    write!(text, "    {}: {}", member.address, member.health)?;
    if let Some(since) = &member.since {
        write!(text, " since {since}")?;
    }
    if let Some(why) = &member.why {
        write!(text, " ({why})")?;
    }
    match member.last_probe.as_ref() {
        None => writeln!(text, ", not probed yet"),
        Some(probe) => match &probe.failure {
            Some(failure) => writeln!(text, ", last probe {}: {failure}", probe.at),
            None => writeln!(text, ", last probe {}: succeeded", probe.at),
        },
    }
}

/// What keeps requests from a member that passes its health check.
pub(crate) fn write_guards(text: &mut String, member: &MemberStatus) -> std::fmt::Result {
    let address = &member.address;
    let slow = member.traffic.as_ref().and_then(|traffic| traffic.slow);
    if let Some(slow) = slow {
        writeln!(text, "    {address}: slow: {slow}")?;
    }
    if let Some(seconds) = member.ejected_seconds {
        let left = age(seconds);
        writeln!(
            text,
            "    {address}: ejected for another {left}, because attempts failed"
        )?;
    }
    if let Some(overloaded) = &member.overloaded {
        write!(text, "    {address}: overloaded ({})", overloaded.why)?;
        match overloaded.limit {
            Some(limit) => writeln!(text, ", at most {limit} in flight that hold a JRuby")?,
            None => writeln!(text)?,
        }
    }
    if let Some(warming) = &member.warming {
        let (done, weight) = (warming.progress_percent, warming.weight_percent);
        write!(text, "    {address}: warming after a restart, {done} %")?;
        match weight {
            100 => writeln!(text)?,
            weight => writeln!(text, ", weight {weight} %")?,
        }
    }
    let Some(agent) = &member.agent_check else {
        return Ok(());
    };
    let answer = agent.answer.as_deref().unwrap_or("nothing yet");
    let takes =
        agent.down || agent.weight_percent < 100 || agent.state != AdministrativeState::Ready;
    if takes {
        let weight = agent.weight_percent;
        writeln!(
            text,
            "    {address}: its agent check says `{answer}`: {}, weight {weight} %",
            if agent.down {
                "down".to_owned()
            } else {
                agent.state.to_string()
            }
        )?;
    }
    match &agent.failure {
        Some(why) => writeln!(text, "    {address}: its agent check failed: {why}"),
        None => Ok(()),
    }
}

/// How busy the JRubies of members are, or why that is unknown. The same problem of several members is shown once.
fn write_jrubies(text: &mut String, members: &[MemberStatus]) -> std::fmt::Result {
    let mut problems: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for member in members {
        let Some(jrubies) = &member.jrubies else {
            continue;
        };
        if let (Some(free), Some(wait)) = (jrubies.free, jrubies.wait_milliseconds)
            && free == 0
        {
            let waiting = jrubies.waiting.unwrap_or(0);
            writeln!(
                text,
                "    {}: no JRuby is idle, {waiting} requests wait inside it ({wait} ms on average)",
                member.address
            )?;
        }
        if let Some(problem) = &jrubies.problem {
            problems.entry(problem).or_default().push(&member.address);
        }
    }
    problems.iter().try_for_each(|(problem, members)| {
        writeln!(
            text,
            "    {}: JRuby counts unknown: {problem}",
            members.join(", ")
        )
    })
}

/// Why a member is out of service, and for how long.
fn write_administrative(text: &mut String, member: &MemberStatus) -> std::fmt::Result {
    let Some(set) = &member.administrative else {
        return Ok(());
    };
    let (address, state) = (&member.address, member.administrative_state);
    write!(
        text,
        "    {address}: {state} since {} by {}",
        set.since, set.by
    )?;
    if let Some(until) = &set.until {
        write!(text, ", until {until}")?;
    }
    match &set.why {
        Some(why) => writeln!(text, ": {why}"),
        None => writeln!(text),
    }
}

/// The clock of a member, if it differs from the proxy's clock.
fn write_clock(text: &mut String, member: &MemberStatus) -> std::fmt::Result {
    match member.clock_offset_seconds {
        Some(seconds) if seconds.unsigned_abs() > CLOCK_OFFSET_MAX => writeln!(
            text,
            "    {}: its clock is {} {} the proxy's",
            member.address,
            age(seconds.unsigned_abs()),
            if seconds > 0 { "ahead of" } else { "behind" }
        ),
        _ => Ok(()),
    }
}

fn listener(listener: &ListenerStatus) -> Vec<String> {
    vec![
        listener.name.clone(),
        listener.addresses.join(", "),
        format!(
            "{} of {} connections",
            listener.connections, listener.connections_max
        ),
        format!(
            "{} of {} handshakes",
            listener.handshakes, listener.handshakes_max
        ),
    ]
}

fn member(member: &MemberStatus) -> Vec<String> {
    let mut cells = vec![
        member.address.clone(),
        member.health.to_string(),
        member.administrative_state.to_string(),
        in_flight(member),
    ];
    if member.traffic.is_some() {
        cells.push(format!("{} requests/s", member_table::requests(member)));
        cells.push(format!("{} failures/min", member_table::failures(member)));
    }
    cells.extend([
        format!("{} connections", member.connections),
        format!("weight {}", member.weight),
    ]);
    if let Some(count) = member.jrubies.as_ref().and_then(|jrubies| jrubies.count) {
        cells.push(format!("{count} JRubies"));
    }
    if member.priority > 0 {
        cells.push(format!("priority {}", member.priority));
    }
    if member.backup {
        cells.push("backup".to_owned());
    }
    if member.tunnels > 0 {
        cells.push(format!("{} tunnels", member.tunnels));
    }
    cells
}

/// Requests in flight, by kind of work if that is known.
pub(crate) fn in_flight(member: &MemberStatus) -> String {
    let by_work = member.in_flight_by_work.iter();
    let by_work: Vec<String> = by_work
        .map(|(work, count)| format!("{count} {work}"))
        .collect();
    if by_work.is_empty() {
        format!("{} in flight", member.in_flight)
    } else {
        format!("{} in flight ({})", member.in_flight, by_work.join(", "))
    }
}

fn crl(crl: &ActiveCrl) -> Vec<String> {
    let promise = match (&crl.next_update, crl.expired) {
        (Some(instant), false) => format!("next update {instant}"),
        (Some(instant), true) => match &crl.accepted_until {
            Some(end) => format!("EXPIRED {instant}, accepted until {end}"),
            None => format!("EXPIRED {instant}"),
        },
        (None, _) => "no next update".to_owned(),
    };
    let mut cells = vec![
        crl.issuer.clone(),
        format!("number {}", crl.number),
        format!("{} entries", crl.entries),
        promise,
        crl.source.clone(),
    ];
    if let Some(seconds) = crl.agent_copy_age_seconds {
        cells.push(format!("the agent's copy, {} old", age(seconds)));
    }
    cells
}

/// An age in the largest unit that gives at least two.
fn age(seconds: u64) -> String {
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Rows of cells, aligned by column and indented.
fn rows(text: &mut String, rows: Vec<Vec<String>>) -> std::fmt::Result {
    if rows.is_empty() {
        return writeln!(text, "  none");
    }
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            rows.iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    for row in &rows {
        let line: String = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("  {cell:width$}"))
            .collect();
        writeln!(text, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;
    use crate::member_table::tests::busy_status;

    #[test]
    fn a_status_is_printed_as_a_table() {
        let expected = "\
● proscenium 0.1.0: serving, alarms: 1 critical, 1 warning
CRITICAL since 1970-01-01T00:05:00Z: no member of pool ca is available
  agents: Requests get 503.
  first step: Run `proscenium status`.
  page: /usr/share/doc/proscenium/operating/health.md#when-no-member-is-available
  follows from it: WARNING since 1970-01-01T00:06:00Z: no CRL could be fetched
generation 3 since 1970-01-01T00:00:00Z, fingerprint c0ffee
last reload: refused at 1970-01-01T00:01:00Z
    proscenium.toml: 1 error
    and its help
hand-over: process 4711 prepares to take over since 1970-01-01T00:01:30Z, version 1.2.4
former process 4242: finishes 2 requests on 3 connections
handshakes compete with requests for CPU time: the class SCHED_IDLE was refused (Operation not permitted)

listeners
  agents  0.0.0.0:8140  12 of 20000 connections  1 of 512 handshakes

pool compilers, least-connections, 1 of 2 members available
  c1:8140              up    ready  3 in flight  4 connections  weight 1  4 JRubies  1 tunnels
  c2.example.com:8140  down  drain  0 in flight  0 connections  weight 2  backup
    c2.example.com:8140: down since 1970-01-01T00:00:00Z (probes-failed), last probe 1970-01-01T00:00:01Z: connection refused
    c1:8140: overloaded (queue-full), at most 14 in flight that hold a JRuby
    c2.example.com:8140: drain since 1970-01-01T00:00:30Z by uid 0, until 1970-01-01T00:01:30Z: new disk
    c2.example.com:8140: its clock is 2 h behind the proxy's
    c2.example.com:8140: ejected for another 40 s, because attempts failed
    c2.example.com:8140: warming after a restart, 20 %, weight 28 %
    c1:8140: no JRuby is idle, 9 requests wait inside it (250 ms on average)
    c2.example.com:8140: JRuby counts unknown: answered 404 Not Found

names in DNS
  srv:_x-puppet._tcp.example.com, pool compilers, second: last answer 1970-01-01T00:01:00Z, TTL 300 s, next lookup 1970-01-01T00:06:00Z, servers 192.0.2.53:53
    last lookup: DNS has no such name (NXDOMAIN)
    its members were stored before the last start

CRLs, trust generation 2
  CN=Puppet CA  number 12    3 entries  next update 1970-01-01T00:02:00Z                                   /ssl/crl.pem  the agent's copy, 3 days old
  CN=Other      number none  0 entries  EXPIRED 1970-01-01T00:00:00Z, accepted until 1970-01-01T00:01:00Z  other.pem
  CN=Third: no CRL, its certificates are refused
  fetched from the pool ca: last answer 1970-01-01T00:04:00Z from ca:8140

agents by CA
  CN=Other      0
  CN=Puppet CA  1234

materials, watch = notify
  refused since 1970-01-01T00:03:00Z, and the previous ones stay active:
    crl.pem: not a CRL
";
        assert_eq!(coloured_table(&status(), false), expected);
    }

    #[test]
    fn a_member_has_its_rates_and_why_it_counts_as_slow() {
        let text = table(&busy_status());
        for line in [
            "  c1:8140              up    ready  3 in flight  12.5 requests/s  0 failures/min                    4 connections  weight 1  4 JRubies  1 tunnels\n",
            "  c2.example.com:8140  down  drain  0 in flight  0.2 requests/s   15.0 (connect, 5xx) failures/min  0 connections  weight 2  backup\n",
            "    c1:8140: slow: catalogs take 12 s at p95, its neighbours 3.0 s\n",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn an_age_is_printed_in_a_unit_of_suitable_size() {
        for (seconds, expected) in [
            (0, "0 s"),
            (119, "119 s"),
            (120, "2 min"),
            (7_199, "119 min"),
            (7_200, "2 h"),
            (172_799, "47 h"),
            (172_800, "2 days"),
        ] {
            assert_eq!(age(seconds), expected);
        }
    }

    /// A status as the proxy answers it.
    pub(crate) fn status() -> Status {
        let at = |seconds: u64| format!("1970-01-01T00:{:02}:{:02}Z", seconds / 60, seconds % 60);
        let up = json!({
            "address": "c1:8140", "health": "up", "since": at(0), "why": "probes-succeeded",
            "recent_probes": [], "clock_offset_seconds": 300,
            "jrubies": {"count": 4, "free": 0, "waiting": 9, "wait_milliseconds": 250},
            "overloaded": {"why": "queue-full", "limit": 14}, "ejections": 0,
            "administrative_state": "ready", "in_flight": 3, "in_flight_by_work": {},
            "tunnels": 1, "oldest_tunnels": [], "oldest_requests": [], "connections": 4,
            "weight": 1, "priority": 0, "backup": false,
        });
        let down = json!({
            "address": "c2.example.com:8140", "health": "down", "since": at(0), "why": "probes-failed",
            "last_probe": {"at": at(1), "failure": "connection refused"},
            "recent_probes": [], "clock_offset_seconds": -7200,
            "jrubies": {"problem": "answered 404 Not Found"},
            "warming": {"progress_percent": 20, "weight_percent": 28},
            "ejected_seconds": 40, "ejections": 0, "administrative_state": "drain",
            "administrative": {"since": at(30), "by": "uid 0", "why": "new disk", "until": at(90)},
            "in_flight": 0, "in_flight_by_work": {}, "tunnels": 0, "oldest_tunnels": [],
            "oldest_requests": [], "connections": 0, "weight": 2, "priority": 0, "backup": true,
        });
        let trust = json!({
            "generation": 2, "cas": [], "crl_missing": ["CN=Third"], "unchecked": [],
            "crls": [
                {"issuer": "CN=Puppet CA", "number": "12", "entries": 3, "next_update": at(120),
                    "expired": false, "source": "/ssl/crl.pem", "agent_copy_age_seconds": 259_200},
                {"issuer": "CN=Other", "number": "none", "entries": 0, "next_update": at(0),
                    "expired": true, "accepted_until": at(60), "source": "other.pem"},
            ],
            "alarms": ["the CRL of CN=Other has expired"],
            "fetch": {"last_answer": at(240), "member": "ca:8140", "shrunk": []},
            "chain_cache": {"entries": 0, "hits": 0, "misses": 0},
        });
        let status = json!({
            "version": "0.1.0", "phase": "serving",
            "generation": {"number": 3, "loaded_at": at(0), "fingerprint": "c0ffee"},
            "last_reload": {"at": at(60), "result": "refused", "generation": 3,
                "report": "proscenium.toml: 1 error\nand its help\n"},
            "hand_over": {"pid": 4711, "since": at(90), "version": "1.2.4"},
            "former_processes": [{"pid": 4242, "connections": 3, "in_flight": 2}],
            "handshake_priority": "Operation not permitted",
            "listeners": [{"name": "agents", "address": "0.0.0.0:8140",
                "addresses": ["0.0.0.0:8140"], "connections": 12, "connections_max": 20_000,
                "handshakes": 1, "handshakes_max": 512}],
            "pools": [{"name": "compilers", "algorithm": "least-connections", "available": 1,
                "waiting": 0, "queue_refusals": {}, "members": [up, down]}],
            "dns": [{"name": "srv:_x-puppet._tcp.example.com", "pools": ["compilers", "second"],
                "servers": ["192.0.2.53:53"], "answered_at": at(60), "ttl_seconds": 300,
                "next_lookup": at(360), "failure": "DNS has no such name (NXDOMAIN)",
                "is_stored": true}],
            "trust": trust,
            "materials": {"watch": "notify",
                "refused": {"since": at(180), "report": "crl.pem: not a CRL\n"}},
            "state": {"directory": "/var/lib/p", "unusable": "it is not a directory"},
            "renewal": {"configured": true,
                "off": {"since": at(240), "why": "the CA answered with a certificate of CN=proxy"}},
            "alarms": [
                {"key": "pool-unavailable:ca", "severity": "critical", "since": at(300),
                    "message": "no member of pool ca is available", "effect": "Requests get 503.",
                    "first_step": "Run `proscenium status`.",
                    "runbook": "operating/health.md#when-no-member-is-available"},
                {"key": "crl-fetch", "severity": "warning", "since": at(360),
                    "message": "no CRL could be fetched", "caused_by": "pool-unavailable:ca"},
            ],
            "limits": {}, "build": {"version": "", "commit": "", "rustc": "", "tls": ""},
            "process": {"pid": 0}, "certificates": [],
            "agents": {"by_expiry": {}, "expiring": 0, "evicted": 0,
                "by_issuer": {"CN=Other": 0, "CN=Puppet CA": 1234}}, "blocks": 0,
            "body_buffer_bytes": 0, "edge_copies": {},
        });
        serde_json::from_value(status).expect("a status")
    }
}
