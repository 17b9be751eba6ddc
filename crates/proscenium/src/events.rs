//! The command `events`: what has happened in the last day, from the running proxy or from its state directory.

use std::{thread::sleep, time::Duration};

use admin::{AdminClient, AdminClientError, EventHistoryStatus, PastEvent, Timestamp};
use anyhow::Context;

use crate::{
    arguments::{Arguments, Events},
    ask::{client, wait},
    failure::Failure,
    output,
};

/// How many events are shown without `--since`.
const EVENTS_SHOWN: usize = 50;
/// How many of the newest events `--follow` looks at. More than this within a second are not followed.
const FOLLOWED_MAX: usize = 200;
/// How often `--follow` looks for new events.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);

/// Prints the events, and with `--follow` new ones until the command is interrupted.
pub(crate) fn events(arguments: &Arguments, wanted: &Events) -> Result<(), Failure> {
    let client = client(arguments, &wanted.socket)?;
    if wanted.follow {
        return follow(arguments, wanted, &client);
    }
    let limit = wanted.since.is_none().then_some(EVENTS_SHOWN);
    let answer = match wait(client.past_events(wanted.since.as_ref(), limit)) {
        Err(Failure::Failed(error)) if is_stopped(&error) => stored(arguments, wanted, error)?,
        answer => answer?,
    };
    output::answer(arguments.json, &answer, |answer| {
        match answer.events.is_empty() {
            true => "no event".to_owned(),
            false => answer
                .events
                .iter()
                .map(line)
                .collect::<Vec<_>>()
                .join("\n"),
        }
    })
}

/// Prints the events, and new ones until the command is interrupted. New events are recognised by their place and not by their
/// time, because the clock of the host may be corrected meanwhile.
fn follow(arguments: &Arguments, wanted: &Events, client: &AdminClient) -> Result<(), Failure> {
    let mut seen = wait(client.past_events(None, None))?.events;
    let mut new = seen.clone();
    select(&mut new, wanted);
    loop {
        for event in new {
            output::print(&match arguments.json {
                true => serde_json::to_string(&event).context("an event is JSON")?,
                false => line(&event),
            })?;
        }
        sleep(FOLLOW_INTERVAL);
        // A proxy that restarts answers again later.
        let answer = wait(client.past_events(None, Some(FOLLOWED_MAX))).unwrap_or_default();
        new = new_events(&mut seen, answer.events);
    }
}

/// The newest events that are not in `seen` yet. `seen` then has them.
fn new_events(seen: &mut Vec<PastEvent>, newest: Vec<PastEvent>) -> Vec<PastEvent> {
    let last = seen.last();
    let place = last.and_then(|last| newest.iter().rposition(|event| event == last));
    let new: Vec<_> = match place {
        Some(place) => newest[place + 1..].to_vec(),
        None => newest
            .iter()
            .filter(|event| !seen.contains(event))
            .cloned()
            .collect(),
    };
    if !newest.is_empty() {
        *seen = newest;
    }
    new
}

/// Leaves the events since a time, or the newest ones.
fn select(events: &mut Vec<PastEvent>, wanted: &Events) {
    match wanted.since.as_ref().and_then(Timestamp::instant) {
        since @ Some(_) => events.retain(|event| event.at.instant() >= since),
        None => drop(events.drain(..events.len().saturating_sub(EVENTS_SHOWN))),
    }
}

fn line(event: &PastEvent) -> String {
    let PastEvent {
        at,
        kind,
        subject,
        message,
        by,
        ..
    } = event;
    let by = by
        .as_ref()
        .map_or_else(String::new, |by| format!(" (by {by})"));
    let subject = match subject.as_str() {
        "" => "-",
        subject => subject,
    };
    format!("{at}  {kind:<13}  {subject}  {message}{by}")
}

fn is_stopped(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref();
    matches!(error, Some(AdminClientError::NotListening { .. }))
}

/// The events that the last process has stored. `stopped` is the error of the request to the running proxy.
fn stored(
    arguments: &Arguments,
    wanted: &Events,
    stopped: anyhow::Error,
) -> Result<EventHistoryStatus, Failure> {
    let Some((path, events)) = lifecycle::stored_events(&arguments.config) else {
        return Err(stopped.into());
    };
    let mut events = events
        .map_err(|error| stopped.context(format!("cannot read the stored events: {error}")))?;
    output::print_error(&format!(
        "the proxy is not running; these are the events that it has stored in {}",
        path.display()
    ));
    select(&mut events, wanted);
    Ok(EventHistoryStatus { events })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(second: i64, message: &str) -> PastEvent {
        PastEvent {
            at: Timestamp::from_unix_seconds(second),
            kind: "operator".to_owned(),
            subject: "compilers/c1:8140".to_owned(),
            message: message.to_owned(),
            severity: None,
            by: Some("root".to_owned()),
        }
    }

    #[test]
    fn each_event_is_followed_once() {
        let mut seen = Vec::new();
        let mut new = |events: &[(i64, &str)]| {
            let events = events
                .iter()
                .map(|(second, message)| event(*second, message));
            let new = new_events(&mut seen, events.collect()).into_iter();
            new.map(|event| event.message).collect::<Vec<_>>()
        };
        assert_eq!(new(&[(1, "a"), (2, "b")]), ["a", "b"]);
        assert_eq!(new(&[(1, "a"), (2, "b")]), [""; 0]);
        assert_eq!(new(&[(2, "b"), (2, "c"), (3, "d")]), ["c", "d"]);
        // The proxy does not answer.
        assert_eq!(new(&[]), [""; 0]);
        assert_eq!(new(&[(3, "d"), (3, "e")]), ["e"]);
        // The clock was three days ahead, and is corrected.
        assert_eq!(new(&[(3, "e"), (900, "ahead")]), ["ahead"]);
        assert_eq!(new(&[(3, "e"), (900, "ahead"), (4, "f")]), ["f"]);
        assert_eq!(new(&[(900, "ahead"), (4, "f"), (5, "g")]), ["g"]);
        // The last event is gone.
        assert_eq!(new(&[(900, "ahead"), (4, "f"), (6, "h")]), ["h"]);
    }

    #[test]
    fn an_event_is_one_line() {
        let mut event = event(0, "drain: new disk");
        let expected =
            "1970-01-01T00:00:00Z  operator       compilers/c1:8140  drain: new disk (by root)";
        assert_eq!(line(&event), expected);
        (event.by, event.subject) = (None, String::new());
        let expected = "1970-01-01T00:00:00Z  operator       -  drain: new disk";
        assert_eq!(line(&event), expected);
    }
}
