//! The commands `block`, `unblock` and `blocks`: certificates that the proxy refuses even if no CRL revokes them.

use std::{
    path::Path,
    time::{Duration, SystemTime},
};

use admin::{
    BlockCertnamesRequest, BlockOutcome, BlockRequest, BlockStatus, BlockSubject, Timestamp,
};

use crate::{
    arguments::{Arguments, Block, Socket, Unblock, Whom},
    ask::{client, wait},
    columns::table_or_lines,
    failure::Failure,
    fleet, output,
};

/// Blocks a certificate or a certname, or all certnames of a file.
pub(crate) fn block(arguments: &Arguments, block: &Block) -> Result<(), Failure> {
    if let Some(file) = &block.file {
        return block_file(arguments, block, file);
    }
    let request = BlockRequest {
        blocked: blocked(&block.whom),
        why: block.why.clone(),
        until: block.until.as_deref().map(until).transpose()?,
    };
    let client = client(arguments, &block.socket)?;
    let outcome = wait(client.block(&request))?;
    if arguments.json {
        output::answer(arguments.json, &outcome, |_| String::new())?;
        return fleet::exit_code(outcome.fleet.as_ref());
    }
    if let Some(replaced) = &outcome.replaced {
        output::print(&format!("replaces: {}", line(replaced)))?;
    }
    print_outcome("blocked", &outcome)?;
    if let Some(name) = &block.whom.certname {
        output::print(&effect(name, &outcome))?;
    }
    if !outcome.separate_cas.is_empty() {
        output::print(&format!(
            "it applies to the certificates of this name of each CA: {}; to block only one, use --serial and --issuer",
            outcome.separate_cas.join("; ")
        ))?;
    }
    fleet::print_outcome(outcome.fleet.as_ref())
}

/// Blocks all certnames of a file, or none.
fn block_file(arguments: &Arguments, block: &Block, file: &Path) -> Result<(), Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::Usage(format!("--file {}: {error}", file.display())))?;
    let request = BlockCertnamesRequest {
        certnames: certnames(&text),
        why: block.why.clone(),
        until: block.until.as_deref().map(until).transpose()?,
    };
    let outcome = wait(client(arguments, &block.socket)?.block_certnames(&request))?;
    if arguments.json {
        output::answer(arguments.json, &outcome, |_| String::new())?;
        return fleet::exit_code(outcome.fleet.as_ref());
    }
    for block in &outcome.replaced {
        output::print(&format!("replaces: {}", line(block)))?;
    }
    for block in &outcome.blocks {
        output::print(&format!("blocked: {}", line(block)))?;
    }
    print_not_persisted(outcome.not_persisted.as_deref());
    fleet::print_outcome(outcome.fleet.as_ref())
}

/// The names in a file, one a line.
fn certnames(text: &str) -> Vec<String> {
    let names = text.lines().map(|line| {
        let name = line.split('#').next().unwrap_or_default();
        name.trim().to_owned()
    });
    names.filter(|name| !name.is_empty()).collect()
}

/// The effect of a block by certname on the agent.
fn effect(name: &str, outcome: &BlockOutcome) -> String {
    let Some(agent) = &outcome.agent else {
        return match &outcome.refusal {
            Some(refusal) => format!(
                "no connection of {name} was accepted since the start of the proxy; last refused {} from {}: {}",
                refusal.last_at, refusal.client, refusal.reason
            ),
            None => format!(
                "no agent {name} has connected since the start of the proxy: check the spelling"
            ),
        };
    };
    let connections = match agent.connections {
        0 => "it has no open connection".to_owned(),
        1 => "closing its open connection".to_owned(),
        count => format!("closing its {count} open connections"),
    };
    let issuer = if outcome.separate_cas.is_empty() {
        String::new()
    } else {
        format!(", with a certificate of {}", agent.issuer)
    };
    format!(
        "last seen {} from {}{issuer}; {connections}",
        agent.last_seen, agent.client
    )
}

pub(crate) fn unblock(arguments: &Arguments, unblock: &Unblock) -> Result<(), Failure> {
    let client = client(arguments, &unblock.socket)?;
    let outcome = wait(client.unblock(&blocked(&unblock.whom)))?;
    if arguments.json {
        output::answer(arguments.json, &outcome, |_| String::new())?;
        return fleet::exit_code(outcome.fleet.as_ref());
    }
    print_outcome("unblocked", &outcome)?;
    fleet::print_outcome(outcome.fleet.as_ref())
}

/// Lists the blocks.
pub(crate) fn blocks(arguments: &Arguments, socket: &Socket) -> Result<(), Failure> {
    let client = client(arguments, socket)?;
    output::answer(arguments.json, &wait(client.blocks())?, |blocks| {
        if blocks.is_empty() {
            "no blocks".to_owned()
        } else {
            table_or_lines(
                ["BLOCKED", "SINCE", "BY", "UNTIL", "REASON"],
                blocks,
                cells,
                line,
            )
        }
    })
}

fn print_outcome(what: &str, outcome: &BlockOutcome) -> Result<(), Failure> {
    output::print(&format!("{what}: {}", line(&outcome.block)))?;
    print_not_persisted(outcome.not_persisted.as_deref());
    Ok(())
}

fn print_not_persisted(why: Option<&str>) {
    if let Some(why) = why {
        output::print_error(&format!(
            "it is active, but a restart would undo it, because it could not be saved: {why}"
        ));
    }
}

/// Formats a block as a row of a table.
fn cells(block: &BlockStatus) -> [String; 5] {
    let until = block.until.as_ref();
    [
        whom(&block.blocked),
        block.since.to_string(),
        block.by.clone(),
        until.map_or_else(|| "-".to_owned(), ToString::to_string),
        block.why.clone(),
    ]
}

/// Formats a block as one line.
pub(crate) fn line(block: &BlockStatus) -> String {
    let until = match &block.until {
        Some(until) => format!("until {until}"),
        None => "until you remove it".to_owned(),
    };
    format!(
        "{}, since {} by {}, {until}: {}",
        whom(&block.blocked),
        block.since,
        block.by,
        block.why
    )
}

fn whom(blocked: &BlockSubject) -> String {
    match blocked {
        BlockSubject {
            certname: Some(name),
            ..
        } => format!("certname {name}"),
        BlockSubject {
            fingerprint: Some(fingerprint),
            ..
        } => format!("fingerprint {fingerprint}"),
        BlockSubject { serial, issuer, .. } => format!(
            "serial {} of {}",
            serial.as_deref().unwrap_or("-"),
            issuer.as_deref().unwrap_or("-")
        ),
    }
}

fn blocked(whom: &Whom) -> BlockSubject {
    BlockSubject {
        certname: whom.certname.clone(),
        serial: whom.serial.clone(),
        issuer: whom.issuer.clone(),
        fingerprint: whom.fingerprint.clone(),
    }
}

/// What [`time_or_duration`] reads.
pub(crate) const TIME_OR_DURATION: &str =
    "a time (2030-01-31T08:00:00Z, 2030-01-31) or a duration (12h, 7d)";

/// The time in the argument of `--until`.
///
/// # Errors
/// The string is neither a time nor a duration of at most a century.
pub(crate) fn until(text: &str) -> Result<Timestamp, Failure> {
    time_or_duration(text).ok_or_else(|| {
        Failure::Usage(format!(
            "--until \"{text}\" is not a time: write {TIME_OR_DURATION}"
        ))
    })
}

/// Parses a time, a date, or a duration from now of at most a century.
pub(crate) fn time_or_duration(text: &str) -> Option<Timestamp> {
    if let Some(instant) = Timestamp::parse(text) {
        return Some(instant);
    }
    // Timestamps end with the year 9999.
    let length = config::duration(text).filter(|length| *length <= UNTIL_MAX)?;
    // A timestamp has whole seconds: it is rounded up, so that a short duration does not end before it has begun.
    let end = SystemTime::now().checked_add(length + LAST_OF_A_SECOND);
    end.map(Timestamp::from)
}

/// The longest part of a second that a timestamp leaves out.
const LAST_OF_A_SECOND: Duration = Duration::from_nanos(999_999_999);

/// Maximum duration of `--until`: a century.
const UNTIL_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_not_shortened_to_whole_seconds() {
        let begun = SystemTime::now();
        let end = time_or_duration("1s").and_then(|time| time.instant());
        assert!(end.expect("a time") >= begun + Duration::from_secs(1));
    }
}
