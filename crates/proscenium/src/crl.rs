//! The command `crl`: the active CRLs, their sources, and the CRLs that were refused.

use admin::{CrlAcceptRequest, CrlFetchResult};
use anyhow::Context;

use crate::{
    arguments::{AcceptCrl, Arguments, CrlVerb, Socket, Status},
    ask::{client, wait},
    failure::Failure,
    output,
    status::crl_table,
};

/// Runs the requested subcommand.
pub(crate) fn crl(arguments: &Arguments, verb: &CrlVerb) -> Result<(), Failure> {
    match verb {
        CrlVerb::Show(status) => show(arguments, status),
        CrlVerb::Fetch(socket) => fetch(arguments, socket),
        CrlVerb::Accept(accept) => accept_refused(arguments, accept),
    }
}

fn show(arguments: &Arguments, status: &Status) -> Result<(), Failure> {
    let client = client(arguments, &status.socket)?;
    let trust = wait(client.status())?.trust;
    if status.json {
        let text = serde_json::to_string_pretty(&trust).context("a status is JSON")?;
        return output::print(&text);
    }
    output::print(crl_table(&trust).trim_end())
}

/// Fetches the CRLs, waits for the result, and sets the exit code.
fn fetch(arguments: &Arguments, socket: &Socket) -> Result<(), Failure> {
    let client = client(arguments, socket)?;
    let outcome = wait(client.fetch_crls())?;
    match outcome.result {
        CrlFetchResult::Applied => output::print(&outcome.report),
        CrlFetchResult::Unchanged => output::print("unchanged: the CA has no newer CRL"),
        CrlFetchResult::Refused | CrlFetchResult::Failed | CrlFetchResult::Off => {
            Err(Failure::because(outcome.report))
        }
    }
}

fn accept_refused(arguments: &Arguments, accept: &AcceptCrl) -> Result<(), Failure> {
    let client = client(arguments, &accept.socket)?;
    let request = CrlAcceptRequest {
        issuer: accept.issuer.clone(),
        why: accept.why.clone(),
    };
    let outcome = wait(client.accept_crl(&request))?;
    for list in &outcome.accepted {
        output::print(&format!(
            "accepted: {}: number {} with {} entries is active",
            list.issuer, list.number, list.entries
        ))?;
    }
    if let Some(why) = &outcome.not_persisted {
        output::print_error(&format!(
            "it is active, but a restart would undo it, because it could not be saved: {why}"
        ));
    }
    Ok(())
}
