//! The command `crl`: the active CRLs, their sources, and the CRLs that drop revocations.

use admin::{AdminClient, CrlAcceptRequest, CrlAccepted, CrlFetchResult};

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
        CrlVerb::Show(view) => show(arguments, &view.socket),
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
    if failed {
        Err(Failure::Found(FAILED))
    } else {
        Ok(())
    }
}

/// A request for each CRL to accept: as the arguments say, or as the proxy shows it now.
fn requests(client: &AdminClient, accept: &AcceptCrl) -> Result<Vec<CrlAcceptRequest>, Failure> {
    let request = |number, missing| CrlAcceptRequest {
        issuer: accept.issuer.clone(),
        number,
        missing,
        why: accept.why.clone(),
    };
    if accept.number.is_some() {
        return Ok(vec![request(accept.number.clone(), accept.missing)]);
    }
    let fetch = wait(client.status())?.trust.fetch;
    let shrunk = fetch.into_iter().flat_map(|fetch| fetch.shrunk);
    let shrunk = shrunk.filter(|shrunk| shrunk.issuer == accept.issuer);
    let shrunk = shrunk.map(|shrunk| request(Some(shrunk.number), Some(shrunk.missing)));
    let requests: Vec<_> = shrunk.collect();
    // The proxy's error names the CRLs that can be accepted.
    Ok(if requests.is_empty() {
        vec![request(None, None)]
    } else {
        requests
    })
}

fn accept_shrunk(arguments: &Arguments, accept: &AcceptCrl) -> Result<(), Failure> {
    let client = client(arguments, &accept.socket)?;
    let mut outcome = CrlAccepted::default();
    for request in requests(&client, accept)? {
        let one = wait(client.accept_crl(&request))?;
        outcome.accepted.extend(one.accepted);
        outcome.not_persisted = one.not_persisted.or(outcome.not_persisted);
    }
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
