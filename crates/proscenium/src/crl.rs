//! The command `crl`: the active CRLs, their sources, and the CRLs that drop revocations.

use admin::{CrlAcceptRequest, CrlFetchResult};

use crate::{
    arguments::{AcceptCrl, Arguments, CrlVerb, Socket},
    ask::{client, wait},
    exit_codes::FAILED,
    failure::Failure,
    output,
    progress::with_progress,
    status::crl_table,
};

/// Runs the requested subcommand.
pub(crate) fn crl(arguments: &Arguments, verb: &CrlVerb) -> Result<(), Failure> {
    match verb {
        CrlVerb::Show(status) => show(arguments, status),
        CrlVerb::Fetch(socket) => fetch(arguments, socket),
        CrlVerb::Accept(accept) => accept_shrunk(arguments, accept),
    }
}

fn show(arguments: &Arguments, socket: &Socket) -> Result<(), Failure> {
    let client = client(arguments, socket)?;
    output::answer(arguments.json, &wait(client.status())?.trust, crl_table)
}

/// Fetches the CRLs, waits for the result, and sets the exit code.
fn fetch(arguments: &Arguments, socket: &Socket) -> Result<(), Failure> {
    let client = client(arguments, socket)?;
    let outcome = with_progress("fetching the CRLs from the CA", || {
        wait(client.fetch_crls())
    })?;
    let failed = match outcome.result {
        CrlFetchResult::Applied | CrlFetchResult::Unchanged => false,
        CrlFetchResult::Shrunk | CrlFetchResult::Failed | CrlFetchResult::Off => true,
    };
    if failed && !arguments.json {
        return Err(Failure::because(outcome.report));
    }
    output::answer(arguments.json, &outcome, |outcome| match outcome.result {
        CrlFetchResult::Unchanged => "unchanged: the CA has no newer CRL".to_owned(),
        _ => outcome.report.clone(),
    })?;
    match failed {
        true => Err(Failure::Found(FAILED)),
        false => Ok(()),
    }
}

fn accept_shrunk(arguments: &Arguments, accept: &AcceptCrl) -> Result<(), Failure> {
    let client = client(arguments, &accept.socket)?;
    let request = CrlAcceptRequest {
        issuer: accept.issuer.clone(),
        why: accept.why.clone(),
    };
    let outcome = wait(client.accept_crl(&request))?;
    if arguments.json {
        return output::answer(arguments.json, &outcome, |_| String::new());
    }
    for list in &outcome.accepted {
        output::print(&format!(
            "accepted: {}: number {} with {} entries is active; {}",
            list.issuer,
            list.number,
            list.entries,
            list.consequence()
        ))?;
    }
    if let Some(why) = &outcome.not_persisted {
        output::print_error(&format!(
            "it is active, but a restart would undo it, because it could not be saved: {why}"
        ));
    }
    Ok(())
}
