//! The command `refusals`: clients that the running proxy refused recently.

use std::time::{Duration, SystemTime};

use admin::{RefusalStatus, RefusalsStatus};

use crate::{
    arguments::{Arguments, Refusals},
    ask::{client, wait},
    columns::table_or_lines,
    failure::Failure,
    output,
};

/// Lists refused clients, the most recent refusal first.
pub(crate) fn refusals(arguments: &Arguments, wanted: &Refusals) -> Result<(), Failure> {
    let client = client(arguments, &wanted.socket)?;
    let mut answer = wait(client.refusals())?;
    if let Some(length) = wanted.since {
        answer
            .refusals
            .retain(|refusal| is_within(refusal, length, SystemTime::now()));
    }
    output::answer(arguments.json, &answer, |answer| text(answer, wanted.since))
}

/// Whether the most recent refusal happened within the last `length`. Times in responses have whole seconds.
fn is_within(refusal: &RefusalStatus, length: Duration, now: SystemTime) -> bool {
    let at = refusal.last_at.unix_seconds();
    let at = at.and_then(|seconds| u64::try_from(seconds).ok());
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(at.unwrap_or(0));
    now.duration_since(at)
        .is_ok_and(|age| age <= length + Duration::from_secs(1))
        || at > now
}

fn text(answer: &RefusalsStatus, since: Option<Duration>) -> String {
    let mut lines = vec![match (answer.refusals.is_empty(), since) {
        (true, Some(_)) => "no client has been refused within this time".to_owned(),
        (true, None) => "no client has been refused since the start".to_owned(),
        (false, _) => table_or_lines(HEADER, &answer.refusals, cells, line),
    }];
    if answer.evicted > 0 {
        lines.push(format!(
            "{} older entries were removed to make room; the access log has every refusal",
            answer.evicted
        ));
    }
    lines.join("\n")
}

const HEADER: [&str; 7] = [
    "LAST", "CLIENT", "NAME", "LISTENER", "REASON", "COUNT", "FIRST",
];

/// Formats a refused client as a row of a table.
fn cells(refusal: &RefusalStatus) -> [String; 7] {
    [
        refusal.last_at.to_string(),
        refusal.client.clone(),
        name(refusal),
        refusal.listener.clone(),
        refusal.reason.clone(),
        refusal.count.to_string(),
        refusal.first_at.to_string(),
    ]
}

fn name(refusal: &RefusalStatus) -> String {
    match (&refusal.certname, refusal.verified) {
        (Some(name), true) => name.clone(),
        (Some(name), false) => format!("{name} (unverified)"),
        (None, _) => "no name".to_owned(),
    }
}

/// Formats a refused client as one line.
pub(crate) fn line(refusal: &RefusalStatus) -> String {
    let name = name(refusal);
    let times = match refusal.count {
        1 => String::new(),
        count => format!(", {count} times since {}", refusal.first_at),
    };
    format!(
        "{}  {}  {name}  on listener {}: {}{times}",
        refusal.last_at, refusal.client, refusal.listener, refusal.reason
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_from_the_most_recent_refusal() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let refusal = RefusalStatus {
            first_at: SystemTime::UNIX_EPOCH.into(),
            last_at: at.into(),
            count: 2,
            client: "10.0.0.1".to_owned(),
            listener: "agents".to_owned(),
            certname: Some("web01".to_owned()),
            verified: false,
            reason: "revoked".to_owned(),
        };
        let minute = Duration::from_secs(60);
        for (age, expected) in [(0, true), (59, true), (62, false)] {
            let now = at + Duration::from_secs(age);
            assert_eq!(is_within(&refusal, minute, now), expected, "{age} s");
        }
        // The clock was set back after the refusal.
        assert!(is_within(&refusal, minute, at - minute));
        let expected = "1970-01-01T00:16:40Z  10.0.0.1  web01 (unverified)  on listener agents: \
                        revoked, 2 times since 1970-01-01T00:00:00Z";
        assert_eq!(line(&refusal), expected);
    }
}
