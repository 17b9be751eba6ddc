//! `explain`: how the proxy would handle a request.

use std::fmt::{Display, Write as _};

use admin::{
    ExplainRequest, ExplainedClient, ExplainedForward, ExplainedMember, ExplainedOutcome,
    ExplainedQueue, RequestExplanation,
};
use lifecycle::Options;

use crate::{
    arguments::{Arguments, Explain},
    ask::{client, wait},
    exit_codes::REFUSED,
    failure::Failure,
    output,
    version::BUILD,
};

/// Shows how the proxy would handle a request, with the functions that handle real requests.
pub(crate) fn explain(arguments: &Arguments, explain: &Explain) -> Result<(), Failure> {
    let request = request(explain);
    let explanation = if explain.live {
        wait(client(arguments, &explain.socket)?.explain(&request))?
    } else {
        let explainer = operator::prepare_for_explain(&Options {
            config: arguments.config.clone(),
            ssldir: explain.ssldir.clone(),
            certname: None,
            build: BUILD,
            hand_over: false,
        })?;
        let explained = explainer.explain(&request, explain.cert.as_deref());
        explained.map_err(|error| Failure::Usage(format!("error: {error}")))?
    };
    output::answer(arguments.json, &explanation, text)?;
    if explanation.is_refused {
        Err(Failure::Found(REFUSED))
    } else {
        Ok(())
    }
}

fn request(explain: &Explain) -> ExplainRequest {
    ExplainRequest {
        method: explain.method.clone(),
        url: explain.url.clone(),
        headers: explain.header.clone(),
        certname: explain.certname.clone(),
        issuer: explain.issuer.clone(),
        extensions: explain.extension.clone(),
        source: explain.source.map(|address| address.to_string()),
        sni: explain.sni.clone(),
        listener: explain.listener.clone(),
    }
}

/// Lines with a label in the first column. The steps of the decision are indented below the path.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, label: &str, value: impl Display) {
        let _ = writeln!(self.0, "{label:<8} {value}");
    }
}

fn text(explanation: &RequestExplanation) -> String {
    let mut lines = Lines::default();
    if let Some(why) = &explanation.blocks_not_applied {
        lines.add("blocks", format_args!("not applied: {why}"));
    }
    client_lines(&mut lines, &explanation.client);
    for differing in &explanation.listeners {
        let (name, difference) = (&differing.listener, &differing.difference);
        lines.add("listener", format_args!("{name}: {difference}"));
    }
    if explanation.headers_removed > 0 {
        let removed = explanation.headers_removed;
        lines.add("headers", format_args!("{removed} removed before routing"));
    }
    if !explanation.steps.is_empty() {
        let path = &explanation.path;
        lines.add("path", format_args!("{path} passes the path rule"));
    }
    for step in &explanation.steps {
        let _ = match &step.missing_option {
            Some(option) => writeln!(lines.0, "  {} ({option} is not set)", step.text),
            None => writeln!(lines.0, "  {}", step.text),
        };
    }
    if let Some(rule) = &explanation.observed_rule {
        let words = "would refuse this, but it only observes";
        lines.add("observed", format_args!("rule {rule} {words}"));
    }
    match &explanation.outcome {
        ExplainedOutcome::Status => lines.add(
            "answer",
            "by the proxy: 200 `running` while a compiler is available, else 503 `error`",
        ),
        ExplainedOutcome::Refused(refusal) => {
            let (status, reason, text) = (refusal.status, &refusal.reason, &refusal.text);
            lines.add("answer", format_args!("{status} ({reason}): {text}"));
            if refusal.needs_legacy_routes {
                lines.add(
                    "legacy",
                    "a path of Puppet 0.25 to 3: with legacy_routes = true, its modern equivalent decides",
                );
            }
        }
        ExplainedOutcome::Forwarded(forward) => forward_lines(&mut lines, forward),
    }
    lines.0
}

fn client_lines(lines: &mut Lines, client: &ExplainedClient) {
    match (&client.certname, &client.refusal) {
        (Some(certname), _) => lines.add("client", format_args!("verified agent {certname}")),
        (None, Some(refusal)) => lines.add("client", format_args!("refused: {refusal}")),
        (None, None) => lines.add("client", "no certificate"),
    }
    let issuer = client.issuer.as_deref();
    match &client.possible_issuers[..] {
        [] => issuer.iter().for_each(|issuer| lines.add("issuer", issuer)),
        possible => lines.add(
            "issuer",
            format_args!(
                "{}; each of these CAs can issue this name, and they do not sign each other: {}",
                issuer.unwrap_or("unknown (--issuer is not set)"),
                possible.join("; ")
            ),
        ),
    }
    for extension in &client.extensions {
        let name = &extension.name;
        match &extension.value {
            Some(value) => lines.add("with", format_args!("{name} = {value:?}")),
            None => lines.add(
                "with",
                format_args!(
                    "{name}, whose value is ambiguous: it matches no route and no rule that allows, and every rule that refuses"
                ),
            ),
        }
    }
}

fn forward_lines(lines: &mut Lines, forward: &ExplainedForward) {
    if let Some(copy) = &forward.copy {
        let (document, age_max) = (&copy.document, copy.age_seconds_max);
        lines.add(
            "answer",
            format_args!(
                "by the proxy, from a copy of the CA document ({document}) that the CA confirmed within the last {age_max}s; without such a copy:"
            ),
        );
    }
    lines.add("pool", &forward.pool);
    for name in &forward.headers_kept {
        lines.add("headers", format_args!("{name} is kept by keep_headers"));
    }
    for name in &forward.headers_removed {
        lines.add(
            "headers",
            format_args!("{name} is removed by remove_headers"),
        );
    }
    lines.add("identity", &forward.identity);
    if !forward.upgrade.is_empty() {
        lines.add("upgrade", forward.upgrade.join(", "));
    }
    if let Some(name) = &forward.member_name {
        let words = "in texts and redirects";
        lines.add(
            "response",
            format_args!("names of members become {name} {words}"),
        );
    }
    if let Some(certname) = &forward.certificate_request {
        let words = "checked by [csr] before it is forwarded, as the certificate request of";
        lines.add("body", format_args!("{words} {certname}"));
    }
    if let Some(persistence) = &forward.persistence {
        lines.add("persist", persistence);
    }
    if let Some(lacks) = &forward.order_lacks {
        lines.add("members", lacks);
    }
    for member in &forward.members {
        lines.add("member", member_line(member));
    }
    if forward.members.is_empty() {
        lines.add("member", "none: the pool has no member now");
    }
    if forward.members_assumed_up {
        lines.add(
            "health",
            "every member is assumed up and idle; `proscenium status` shows their health",
        );
    }
    match &forward.queue {
        ExplainedQueue::DoesNotWait => lines.add("queue", "a member has room, so it does not wait"),
        ExplainedQueue::Waits { seconds_max, why } => {
            lines.add(
                "queue",
                format_args!("waits for at most {seconds_max}s: {why}"),
            );
        }
        ExplainedQueue::Refused { reason, why } => {
            lines.add("queue", format_args!("503 ({reason}): {why}"));
        }
    }
}

fn member_line(member: &ExplainedMember) -> String {
    let backup = if member.is_backup { " (backup)" } else { "" };
    let priority = match member.priority {
        0 => String::new(),
        priority => format!(" (priority {priority})"),
    };
    format!("{}{backup}{priority}: {}", member.address, member.why)
}
