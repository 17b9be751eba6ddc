//! The commands `ready`, `drain` and `maintenance`: the administrative state of members, and waiting until they are
//! idle.

use std::time::{Duration, Instant};

use admin::{
    AdminClient, AdminClientError, AdministrativeState, MemberSelection, MemberStateChange,
    MemberStateOutcome, MemberStateRequest, MemberStatus, PoolMemberStatus, SetMemberState,
};
use tokio::time::sleep;

use crate::{
    arguments::{Arguments, Members, Withdrawal},
    ask::{client, wait},
    block::until,
    exit_codes::STILL_RUNNING,
    failure::Failure,
    fleet,
    fleet_wait::Elsewhere,
    output,
    progress::with_progress,
    status::{in_flight, write_guards},
};

/// Time between two requests for the state of a member that `--wait` waits for.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Puts members back into service.
pub(crate) fn ready(arguments: &Arguments, members: &Members) -> Result<(), Failure> {
    let client = client(arguments, &members.socket)?;
    let change = MemberStateChange::to(AdministrativeState::Ready);
    let outcome = set(arguments, &client, members, change)?;
    fleet::exit_code(outcome.fleet.as_ref())
}

/// Takes members out of service, and waits until they are idle if `--wait` is set.
pub(crate) fn withdraw(
    arguments: &Arguments,
    wanted: &Withdrawal,
    state: AdministrativeState,
) -> Result<(), Failure> {
    let client = client(arguments, &wanted.members.socket)?;
    let change = MemberStateChange {
        state,
        why: wanted.why.clone(),
        until: wanted.until.as_deref().map(until).transpose()?,
        force: wanted.force,
    };
    let outcome = set(arguments, &client, &wanted.members, change)?;
    let sent = fleet::exit_code(outcome.fleet.as_ref());
    if wanted.wait {
        with_progress("waiting for the requests of the members", || {
            let elsewhere = Elsewhere::new(&outcome, &wanted.without);
            wait_until_idle(
                &client,
                outcome.members,
                elsewhere,
                wanted.timeout,
                arguments.json,
            )
        })?;
    }
    sent
}

fn set(
    arguments: &Arguments,
    client: &AdminClient,
    members: &Members,
    change: MemberStateChange,
) -> Result<MemberStateOutcome, Failure> {
    let mut names = members.names.iter().rev().cloned();
    let members = MemberSelection {
        member: names.next(),
        pool: names.next(),
        host: members.host.clone(),
    };
    let request = MemberStateRequest::new(members, change);
    let outcome = wait(client.set_member_states(&request))?;
    if arguments.json {
        output::answer(arguments.json, &outcome, |_| String::new())?;
        return Ok(outcome);
    }
    outcome.members.iter().try_for_each(print_state)?;
    for replaced in &outcome.replaced {
        output::print(&replaced_line(replaced))?;
    }
    // A member that is ready may still get no requests because of its agent check or an ejection, so these are shown.
    for PoolMemberStatus { member, .. } in &outcome.members {
        let mut left = String::new();
        if member.administrative_state == AdministrativeState::Ready
            && write_guards(&mut left, member).is_ok()
            && !left.is_empty()
        {
            output::print(left.trim_end())?;
        }
    }
    if let Some(why) = &outcome.not_persisted {
        output::print_error(&format!(
            "it is active, but a restart would undo it, because it could not be saved: {why}"
        ));
    }
    // The caller determines the exit code.
    match fleet::print_outcome(outcome.fleet.as_ref()) {
        Ok(()) | Err(Failure::Found(_)) => Ok(outcome),
        Err(failure) => Err(failure),
    }
}

fn replaced_line(replaced: &SetMemberState) -> String {
    let SetMemberState {
        pool,
        member,
        administrative_state: state,
        administrative,
    } = replaced;
    let set = administrative.as_ref().map(|set| {
        let why = set.why.as_ref().map(|why| format!(": {why}"));
        let (since, by) = (&set.since, &set.by);
        format!(" since {since} by {by}{}", why.unwrap_or_default())
    });
    format!("{member} in {pool} was: {state}{}", set.unwrap_or_default())
}

fn print_state(member: &PoolMemberStatus) -> Result<(), Failure> {
    output::print(&state_line(member))
}

fn state_line(PoolMemberStatus { pool, member }: &PoolMemberStatus) -> String {
    let (address, state) = (&member.address, member.administrative_state);
    format!("{address} in {pool}: {state}, {}", in_flight(member))
}

/// Waits until no request is left, on this proxy and on the others of the fleet, and prints each change of the number of
/// requests.
fn wait_until_idle(
    client: &AdminClient,
    mut members: Vec<PoolMemberStatus>,
    mut elsewhere: Elsewhere,
    timeout: Duration,
    json: bool,
) -> Result<(), Failure> {
    // With JSON, standard output has only the result.
    let print = |text: &str| {
        if json {
            output::print_error(text);
            Ok(())
        } else {
            output::print(text)
        }
    };
    let end = Instant::now() + timeout;
    loop {
        members.retain(|member| member.member.in_flight > 0);
        elsewhere.update(client, &print)?;
        if members.is_empty() && elsewhere.is_done() {
            return print("no request is left");
        }
        if Instant::now() >= end {
            return if members.is_empty() {
                Err(elsewhere.not_confirmed(timeout))
            } else {
                Err(still_running(&members, timeout))
            };
        }
        if members.is_empty() {
            wait(async {
                sleep(POLL_INTERVAL).await;
                Ok(())
            })?;
        }
        for member in &mut members {
            let now = wait(poll(client, member))?;
            let before = std::mem::replace(&mut member.member, now);
            if member.member.administrative_state == AdministrativeState::Ready {
                return Err(Failure::because(format!(
                    "{} in {} is ready again, so the wait has no end; {} in flight",
                    before.address, member.pool, member.member.in_flight
                )));
            }
            if member.member.in_flight != before.in_flight {
                print(&state_line(member))?;
            }
        }
    }
}

async fn poll(
    client: &AdminClient,
    member: &PoolMemberStatus,
) -> Result<MemberStatus, AdminClientError> {
    sleep(POLL_INTERVAL).await;
    client.member(&member.pool, &member.member.address).await
}

fn still_running(members: &[PoolMemberStatus], timeout: Duration) -> Failure {
    let seconds = timeout.as_secs();
    output::print_error(&format!(
        "still running after {seconds} s, and the members stay out of service:"
    ));
    for member in members {
        output::print_error(&format!("  {}", left(member)));
    }
    Failure::Found(STILL_RUNNING)
}

/// Describes the requests and tunnels that are left on a member.
fn left(PoolMemberStatus { pool, member }: &PoolMemberStatus) -> String {
    let named = member.oldest_tunnels.iter();
    let named: Vec<_> = named
        .map(|tunnel| format!("{} since {}", tunnel.client, tunnel.since))
        .collect();
    let requests = member.oldest_requests.iter();
    let requests: Vec<_> = requests
        .map(|request| {
            let (client, since) = (&request.client, &request.since);
            format!("{client} since {since} ({})", request.request)
        })
        .collect();
    let mut text = format!("{} in {pool}: {}", member.address, in_flight(member));
    if !requests.is_empty() {
        text += &format!("; the oldest: {}", requests.join(", "));
    }
    if !named.is_empty() {
        let (tunnels, named) = (member.tunnels, named.join(", "));
        text += &format!("; {tunnels} of these are tunnels, the oldest: {named}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_requests_list_the_clients_of_tunnels() {
        let member: PoolMemberStatus = serde_json::from_value(serde_json::json!({
            "pool": "pcp", "address": "c1:8142", "health": "up", "since": null, "why": null,
            "last_probe": null, "administrative_state": "drain", "in_flight": 3, "tunnels": 1,
            "oldest_tunnels": [{"client": "web01", "since": "2030-01-01T00:00:00Z"}],
            "oldest_requests": [{"client": "web02", "request": "POST /puppet/v3/catalog/web02", "since": "2030-01-01T00:00:01Z"}],
            "connections": 3, "weight": 1, "in_flight_by_work": {"catalog": 2, "other": 1}
        }))
        .unwrap();
        assert_eq!(
            left(&member),
            "c1:8142 in pcp: 3 in flight (2 catalog, 1 other); the oldest: web02 since 2030-01-01T00:00:01Z (POST /puppet/v3/catalog/web02); 1 of these are tunnels, the oldest: web01 since 2030-01-01T00:00:00Z"
        );
    }
}
