//! The command `who`: one agent or certificate, or the list of agents that the proxy has seen.

use std::{fs, path::Path};

use admin::{
    AGENTS_SHOWN_MAX, AgentStatus, AgentsStatus, RequestStatus, RevocationStatus, WhoRequest,
    WhoStatus,
};
use anyhow::Context;

use crate::{
    arguments::{Arguments, Who},
    ask::{client, wait},
    block,
    columns::table_or_lines,
    exit_codes::UNKNOWN_NAME,
    failure::Failure,
    output, refusals,
};

/// Shows one agent or certificate; without an argument, lists the agents.
pub(crate) fn who(arguments: &Arguments, who: &Who) -> Result<(), Failure> {
    let client = client(arguments, &who.socket)?;
    let Some(request) = request(who)? else {
        let mut answer = wait(client.agents())?;
        if let Some(issuer) = &who.issuer {
            let listed = &mut answer.agents;
            listed.retain(|agent| agent.certificate.issuer == *issuer);
        }
        return output::answer(arguments.json, &answer, |answer| {
            agents(answer, who.issuer.as_deref())
        });
    };
    let answer = wait(client.who(&request))?;
    output::answer(arguments.json, &answer, one)?;
    match request.certname.is_some() && is_unknown(&answer) {
        true => Err(Failure::Found(UNKNOWN_NAME)),
        false => Ok(()),
    }
}

/// Whether the proxy knows no agent, no block and no refusal of this name.
fn is_unknown(who: &WhoStatus) -> bool {
    who.certificate.is_none() && who.blocks.is_empty() && who.refusals.is_empty()
}

/// The request for one agent or certificate; `None` requests the agents.
fn request(who: &Who) -> Result<Option<WhoRequest>, Failure> {
    let mut request = WhoRequest {
        serial: who.serial.clone(),
        issuer: who.issuer.clone().filter(|_| who.serial.is_some()),
        ..WhoRequest::default()
    };
    match &who.whom {
        // A certname contains no slash, and rarely matches the name of a file in the working directory.
        Some(name) if name.contains('/') || Path::new(name).is_file() => {
            let text = fs::read_to_string(name).with_context(|| format!("cannot read {name}"))?;
            request.certificate = Some(text);
        }
        name => request.certname.clone_from(name),
    }
    Ok((request != WhoRequest::default()).then_some(request))
}

fn one(who: &WhoStatus) -> String {
    let mut lines = vec![who.about.clone()];
    let mut say = |name: &str, text: String| lines.push(format!("  {name:<12}{text}"));
    match &who.certificate {
        Some(certificate) => say(
            "certificate",
            format!(
                "serial {} of {}, valid {} to {}",
                certificate.serial,
                certificate.issuer,
                certificate.not_before,
                certificate.not_after
            ),
        ),
        None if is_unknown(who) => say(
            "unknown",
            "no agent of this name has connected or was refused since the start, and no block names it; \
             `proscenium who` lists the agents"
                .to_owned(),
        ),
        None if who.refusals.is_empty() => say(
            "certificate",
            "the agent has not connected since the start".to_owned(),
        ),
        None => say(
            "certificate",
            "no accepted one is known; the refusals are below".to_owned(),
        ),
    }
    if !who.separate_cas.is_empty() {
        say(
            "ambiguous",
            format!(
                "each of these CAs can issue this name, and they do not sign each other: {}",
                who.separate_cas.join("; ")
            ),
        );
    }
    match (&who.verdict, &who.certificate) {
        (Some(verdict), _) => say("verdict now", verdict.clone()),
        (None, Some(_)) => say("verdict now", UNKNOWN.to_owned()),
        (None, None) => {}
    }
    if let Some(refusal) = &who.refusal {
        say("refusal", refusal.clone());
    }
    for entry in &who.crls {
        say("CRL", list(entry));
    }
    for block in &who.blocks {
        say("blocked", block::line(block));
    }
    for access in &who.access {
        let may = if access.allowed { "allowed" } else { "refused" };
        say(
            may,
            format!(
                "{} ({}): {}",
                access.class, access.request, access.decided_by
            ),
        );
    }
    if let Some(seen) = &who.seen {
        say("last seen", format!("{} from {}", seen.at, seen.client));
        for entry in &seen.requests {
            say("request", request_line(entry));
        }
    }
    for refusal in &who.refusals {
        say("refusal", refusals::line(refusal));
    }
    lines.join("\n")
}

/// Printed if the verdict on a certificate is unknown.
const UNKNOWN: &str = "unknown until the agent connects again, because its certificate chain is not cached; to verify it now, run `proscenium who FILE` with its certificate";

fn list(list: &RevocationStatus) -> String {
    let Some(number) = &list.number else {
        return format!("no CRL of {}", list.issuer);
    };
    let source = list.source.as_deref().unwrap_or("-");
    let said = match (list.revoked, &list.revoked_at) {
        (false, _) => "not revoked".to_owned(),
        (true, None) => "revoked".to_owned(),
        (true, Some(at)) => match &list.reason {
            Some(reason) => format!("revoked on {at}, {reason}"),
            None => format!("revoked on {at}"),
        },
    };
    format!("CRL {number} of {} ({source}): {said}", list.issuer)
}

fn request_line(request: &RequestStatus) -> String {
    let status = request
        .status
        .map_or_else(|| "-".to_owned(), |status| status.to_string());
    let reason = request
        .reason
        .as_deref()
        .map_or_else(String::new, |reason| format!(" ({reason})"));
    format!("{} {status} {}{reason}", request.at, request.line)
}

const HEADER: [&str; 6] = [
    "EXPIRES",
    "AGENT",
    "SERIAL",
    "LAST SEEN",
    "CLIENT",
    "REFUSED",
];

/// Formats an agent as a row of a table.
fn cells(agent: &AgentStatus) -> [String; 6] {
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    [
        agent.certificate.not_after.to_string(),
        or_dash(&agent.certificate.certname),
        agent.certificate.serial.clone(),
        agent.at.to_string(),
        agent.client.clone(),
        or_dash(&agent.refused),
    ]
}

/// Formats an agent as one line.
fn agent_line(agent: &AgentStatus) -> String {
    let refused = agent.refused.as_ref();
    let refused = refused.map_or_else(String::new, |reason| format!(", {reason}"));
    format!(
        "{}  {}  serial {}, last seen {} from {}{refused}",
        agent.certificate.not_after,
        agent.certificate.certname.as_deref().unwrap_or("-"),
        agent.certificate.serial,
        agent.at,
        agent.client
    )
}

/// The list of agents, or of the agents of one issuer.
fn agents(agents: &AgentsStatus, issuer: Option<&str>) -> String {
    let shown = agents.agents.len();
    let mut lines = Vec::new();
    if shown > 0 {
        lines.push(table_or_lines(HEADER, &agents.agents, cells, agent_line));
    }
    if let Some(issuer) = issuer {
        let seen = agents.seen.min(AGENTS_SHOWN_MAX);
        lines.push(format!(
            "{shown} of {seen} agents have certificates of {issuer}"
        ));
        return lines.join("\n");
    }
    lines.push(match agents.seen {
        0 => "no agent has connected since the start".to_owned(),
        1 => "1 agent has connected since the start".to_owned(),
        seen if seen > shown => format!(
            "{seen} agents have connected since the start; the list has the {shown} whose certificates expire first"
        ),
        seen => format!(
            "{seen} agents have connected since the start, sorted by the expiry of their certificates"
        ),
    });
    lines.join("\n")
}
