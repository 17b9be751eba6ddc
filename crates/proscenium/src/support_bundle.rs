//! The command `support-bundle`: what a developer needs to see of a proxy, in one JSON file.
//!
//! It has no private key, no ticket key and no file of the ssldir. It has certnames and addresses of agents.

mod host;

use std::{fs::OpenOptions, io::Write, os::unix::fs::OpenOptionsExt};

use admin::{AdminClient, AdminClientError};
use anyhow::Context;
use serde_json::{Map, Value, json};

use crate::{
    arguments::{Arguments, Socket, SupportBundle},
    ask::{client, wait},
    exit_codes::NO_ANSWER,
    failure::Failure,
    output,
    progress::with_progress,
    version,
};

/// Parts of the bundle: key in the document, and the endpoint that provides it.
const PARTS: &[(&str, &str)] = &[
    ("status", "/v1/status"),
    (METRICS, "/metrics"),
    ("events", "/v1/events/history"),
    ("traffic", "/v1/traffic"),
    ("requests", "/v1/requests"),
    ("configuration", "/v1/configuration"),
    ("members", "/v1/members/state"),
    ("blocks", "/v1/blocks"),
    ("agents", "/v1/agents"),
    ("refusals", "/v1/refusals"),
    ("certificates", "/v1/certificates"),
];

/// The part that is text and not JSON.
const METRICS: &str = "metrics";

/// Writes the bundle. `errors` has the reason for each part that cannot be read. If the proxy does not answer, the parts are
/// those of this host.
pub(crate) fn write(arguments: &Arguments, wanted: &SupportBundle) -> Result<(), Failure> {
    let path = wanted.file.display();
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&wanted.file)
        .with_context(|| format!("cannot create {path}"))?;
    let (bundle, unanswered) = with_progress("collecting the status of the proxy", || {
        match answering(arguments, &wanted.socket) {
            Ok(client) => Ok((of_proxy(&client), None)),
            Err(why) => of_host(arguments, &wanted.socket, &why).map(|parts| (parts, Some(why))),
        }
    })?;
    let written = serde_json::to_vec_pretty(&bundle)
        .map_err(std::io::Error::from)
        .and_then(|text| file.write_all(&text));
    written.with_context(|| format!("cannot write {path}"))?;
    if let (None, Some(refused)) = (&unanswered, nothing_but_errors(&bundle)) {
        return Err(Failure::because(format!(
            "{path} has no part of the proxy, only the reasons: {refused}"
        )));
    }
    let names: Vec<_> = bundle.keys().map(String::as_str).collect();
    let answer = json!({ "file": wanted.file, "parts": names });
    output::answer(arguments.json, &answer, |_| {
        format!(
            "wrote {path}: {}\nit has certnames and addresses of agents, and no keys; read it before you send it",
            names.join(", ")
        )
    })?;
    match unanswered {
        None => Ok(()),
        Some(why) => {
            output::print_error(&format!(
                "the proxy did not answer, so the bundle has only what this host shows: {why}"
            ));
            Err(Failure::Found(NO_ANSWER))
        }
    }
}

/// A client of a proxy that answers, or why there is none. A refusal is an answer.
fn answering(arguments: &Arguments, socket: &Socket) -> Result<AdminClient, Failure> {
    let client = client(arguments, socket)?;
    match wait(async { Ok(client.listener_addresses().await) })? {
        Ok(_) | Err(AdminClientError::Refused { .. }) => Ok(client),
        Err(error) => Err(anyhow::Error::from(error).into()),
    }
}

/// The first error, if a proxy that answers has provided no part.
fn nothing_but_errors(bundle: &Map<String, Value>) -> Option<&str> {
    let errors = bundle["errors"].as_object()?;
    let first = errors.values().next()?.as_str()?;
    (errors.len() == PARTS.len()).then_some(first)
}

/// The parts of a proxy that answers.
fn of_proxy(client: &AdminClient) -> Map<String, Value> {
    let mut parts = Map::from_iter([("version".to_owned(), version::LINES.into())]);
    let mut errors = Map::new();
    for (name, endpoint) in PARTS {
        let read = match wait(client.text(endpoint)) {
            Ok(content) => part(name, &content),
            Err(Failure::Failed(error)) => Err(error),
            Err(_) => continue,
        };
        match read {
            Ok(content) => parts.insert((*name).to_owned(), content),
            Err(error) => errors.insert((*name).to_owned(), format!("{error:#}").into()),
        };
    }
    parts.insert("errors".to_owned(), errors.into());
    parts
}

/// The parts of this host, for a proxy that does not answer.
fn of_host(
    arguments: &Arguments,
    socket: &Socket,
    why: &Failure,
) -> Result<Map<String, Value>, Failure> {
    let mut parts = wait(async { Ok(host::parts(arguments, socket).await) })?;
    parts.insert("version".to_owned(), version::LINES.into());
    parts.insert("errors".to_owned(), json!({ "proxy": why.to_string() }));
    Ok(parts)
}

fn part(name: &str, content: &[u8]) -> anyhow::Result<Value> {
    match name {
        METRICS => Ok(String::from_utf8_lossy(content).into()),
        _ => Ok(serde_json::from_slice(content)?),
    }
}
