//! The command `events`: what has happened in the last day, from the running proxy or from its state directory.

use std::{thread::sleep, time::Duration};

use admin::{AdminClientError, EventHistoryStatus, PastEvent, Timestamp};
use anyhow::Context;

use crate::{
    arguments::{Arguments, Events},
    ask::{client, wait},
    failure::Failure,
    output,
};

/// How many events are shown without `--since`.
const EVENTS_SHOWN: usize = 50;
/// How often `--follow` looks for new events.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);

/// Prints the events, and with `--follow` new ones until the command is interrupted.
pub(crate) fn events(arguments: &Arguments, wanted: &Events) -> Result<(), Failure> {
    let client = client(arguments, &wanted.socket)?;
    let limit = wanted.since.is_none().then_some(EVENTS_SHOWN);
    let answer = match wait(client.past_events(wanted.since.as_ref(), limit)) {
        Err(Failure::Failed(error)) if !wanted.follow && is_stopped(&error) => {
            stored(arguments, wanted, error)?
        }
        answer => answer?,
    };
    if !wanted.follow {
        return output::answer(arguments.json, &answer, |answer| {
            match answer.events.is_empty() {
                true => "no event".to_owned(),
                false => answer
                    .events
                    .iter()
                    .map(line)
                    .collect::<Vec<_>>()
                    .join("\n"),
            }
        });
    }
    let mut shown = Vec::new();
    let mut answer = Some(answer);
    loop {
        for event in new_events(&mut shown, answer.take()) {
            output::print(&match arguments.json {
                true => serde_json::to_string(&event).context("an event is JSON")?,
                false => line(&event),
            })?;
        }
        sleep(FOLLOW_INTERVAL);
        let since = shown.last().map(|event: &PastEvent| &event.at);
        let since = since.or(wanted.since.as_ref());
        // A proxy that restarts answers again later.
        answer = wait(client.past_events(since, None)).ok();
    }
}

/// The events that are not in `shown` yet. `shown` then has the events of the newest second.
fn new_events(shown: &mut Vec<PastEvent>, answer: Option<EventHistoryStatus>) -> Vec<PastEvent> {
    let events = answer.map_or_else(Vec::new, |answer| answer.events);
    let new = events.into_iter().filter(|event| !shown.contains(event));
    let new: Vec<_> = new.collect();
    shown.extend(new.iter().cloned());
    if let Some(last) = shown.last().map(|last| last.at.clone()) {
        shown.retain(|event| event.at == last);
    }
    new
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
    let since = wanted.since.as_ref().and_then(Timestamp::instant);
    match since {
        Some(_) => events.retain(|event| event.at.instant() >= since),
        None => drop(events.drain(..events.len().saturating_sub(EVENTS_SHOWN))),
    }
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
        let mut shown = Vec::new();
        let mut new = |events: &[(i64, &str)]| {
            let events = events
                .iter()
                .map(|(second, message)| event(*second, message));
            let answer = EventHistoryStatus {
                events: events.collect(),
            };
            let new = new_events(&mut shown, Some(answer)).into_iter();
            new.map(|event| event.message).collect::<Vec<_>>()
        };
        assert_eq!(new(&[(1, "a"), (2, "b")]), ["a", "b"]);
        assert_eq!(new(&[(2, "b")]), [""; 0]);
        assert_eq!(new(&[(2, "b"), (2, "c"), (3, "d")]), ["c", "d"]);
        assert_eq!(new(&[]), [""; 0]);
        assert_eq!(new(&[(3, "d"), (3, "e")]), ["e"]);
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
