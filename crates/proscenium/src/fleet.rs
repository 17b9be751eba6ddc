//! The command `fleet`: the proxies that share drains and blocks, and the proxies on which a change applies.

use std::time::SystemTime;

use admin::{FleetOutcome, FleetProxyStatus, FleetStatus, FleetTurn};
use anyhow::Context as _;
use pki::FleetKeys;

use crate::{
    arguments::{Arguments, Fleet, FleetVerb},
    ask::{client, wait},
    columns::table_or_lines,
    exit_codes::NOT_SENT,
    failure::Failure,
    fleet_turn, output,
};

/// Shows the fleet, or prints a new key.
pub(crate) fn fleet(arguments: &Arguments, wanted: &Fleet) -> Result<(), Failure> {
    match &wanted.verb {
        Some(FleetVerb::Turn(turn)) => fleet_turn::turn(arguments, turn),
        Some(FleetVerb::Key) => {
            let key = FleetKeys::generate().context("the system has no random numbers")?;
            output::answer(arguments.json, &key, String::clone)
        }
        None => {
            let fleet = wait(client(arguments, &wanted.socket)?.fleet())?;
            output::answer(arguments.json, &fleet, text)
        }
    }
}

fn text(fleet: &FleetStatus) -> String {
    let mut lines = vec![store_line(fleet)];
    lines.extend(fleet.no_space.clone());
    lines.push(table_or_lines(HEADER, &fleet.proxies, cells, line));
    lines.extend(fleet.turn.as_ref().map(|turn| turn_line(fleet, turn)));
    for proxy in &fleet.proxies {
        let name = &proxy.name;
        let unready = proxy.unready.as_ref();
        lines.extend(unready.map(|why| format!("{name}: not ready: {why}")));
        lines.extend(proxy.withdrawn.iter().map(|member| {
            let (pool, address, in_flight) = (&member.pool, &member.member, member.in_flight);
            format!("{name}: {address} in {pool} gets nothing new, {in_flight} in flight")
        }));
        lines.extend(proxy.withheld.iter().map(|place| {
            format!("{name}: still uses {place}, which another proxy has drained: no other member of the pool is available there")
        }));
    }
    for difference in &fleet.differences {
        let values = difference.values.iter();
        let values = values.map(|(value, proxies)| format!("{value} ({})", proxies.join(", ")));
        let values: Vec<_> = values.collect();
        lines.push(format!(
            "differs: {}: {}",
            difference.what,
            values.join("; ")
        ));
    }
    if fleet.differences.is_empty() && fleet.proxies.len() > 1 {
        lines.push("no differences".to_owned());
    }
    lines.extend(fleet.refused.iter().map(|refused| {
        let (key, why) = (&refused.key, &refused.why);
        format!("ignored: {key}: {why}")
    }));
    lines.join("\n")
}

/// Which proxy has the turn.
fn turn_line(fleet: &FleetStatus, turn: &FleetTurn) -> String {
    let (proxy, command, by) = (&turn.proxy, &turn.command, &turn.by);
    let since = turn.since.as_ref().map(|since| format!(" since {since}"));
    let is_registered = fleet.proxies.iter().any(|known| known.name == *proxy);
    let missing = if is_registered {
        ""
    } else {
        ", and is not registered now"
    };
    format!(
        "{proxy} has the turn{}: {command} ({by}){missing}",
        since.unwrap_or_default()
    )
}

/// Whether the store is reached.
fn store_line(fleet: &FleetStatus) -> String {
    let (site, endpoints) = (&fleet.site, fleet.endpoints.join(", "));
    match (&fleet.unreached, fleet.connected) {
        (Some(unreached), _) => format!(
            "fleet {site}: the store ({endpoints}) is not reached since {}: {}; the proxies below are those of that time",
            unreached.since, unreached.why
        ),
        (None, true) => format!("fleet {site}: the store is reached ({endpoints})"),
        (None, false) => format!("fleet {site}: connecting to the store ({endpoints})"),
    }
}

const HEADER: [&str; 8] = [
    "PROXY",
    "VERSION",
    "PHASE",
    "HEARD",
    "CRL",
    "ALARMS",
    "WITHDRAWN",
    "WITHHELD",
];

/// Formats a proxy as a row of a table.
fn cells(proxy: &FleetProxyStatus) -> [String; 8] {
    let numbers: Vec<_> = proxy.crls.values().map(String::as_str).collect();
    [
        proxy.name.clone(),
        proxy.version.clone(),
        proxy.phase.clone(),
        heard(proxy),
        numbers.join(", "),
        proxy.alarms.len().to_string(),
        proxy.withdrawn.len().to_string(),
        proxy.withheld.len().to_string(),
    ]
}

/// Formats a proxy as one line.
fn line(proxy: &FleetProxyStatus) -> String {
    let [
        name,
        version,
        phase,
        heard,
        crls,
        alarms,
        withdrawn,
        withheld,
    ] = cells(proxy);
    format!(
        "{name}: {version}, {phase}, heard {heard}, CRL {crls}, {alarms} alarms, {withdrawn} members withdrawn, {withheld} withheld"
    )
}

/// How long ago the entry of a proxy was last changed.
fn heard(proxy: &FleetProxyStatus) -> String {
    let at = proxy.heard_at.as_ref();
    let at = at.and_then(admin::Timestamp::unix_seconds).unwrap_or(0);
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let age = now.as_secs().cast_signed().saturating_sub(at).max(0);
    format!("{age} s ago")
}

/// Prints on which other proxies a change applies.
pub(crate) fn print_outcome(outcome: Option<&FleetOutcome>) -> Result<(), Failure> {
    let Some(outcome) = outcome else {
        return Ok(());
    };
    if let Some(why) = &outcome.not_sent {
        let names = outcome.proxies.iter().map(|proxy| proxy.name.as_str());
        let names: Vec<_> = names.collect();
        let places = if names.is_empty() {
            "the other proxies".to_owned()
        } else {
            names.join(", ")
        };
        output::print_error(&format!(
            "not sent to the fleet: {why}; run it on {places} too"
        ));
        return exit_code(Some(outcome));
    }
    for proxy in &outcome.proxies {
        let name = &proxy.name;
        match proxy.applied_after_milliseconds {
            Some(_) if !proxy.withheld.is_empty() => {
                let members: Vec<_> = proxy.withheld.iter().map(String::as_str).collect();
                output::print(&format!(
                    "{name}: still uses {}, because no other member of the pool is available there; --force drains it anyway",
                    members.join(", ")
                ))?;
            }
            Some(took) => output::print(&format!("{name}: applied after {took} ms"))?,
            None => output::print(&format!("{name}: not applied yet"))?,
        }
    }
    Ok(())
}

/// The exit code of a change that was not sent.
pub(crate) fn exit_code(outcome: Option<&FleetOutcome>) -> Result<(), Failure> {
    if outcome.is_some_and(|outcome| outcome.not_sent.is_some()) {
        Err(Failure::Found(NOT_SENT))
    } else {
        Ok(())
    }
}
