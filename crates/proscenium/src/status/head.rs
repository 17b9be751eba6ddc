//! The first line of a status, as that of `systemctl status`: the state, since when, the rates, and the alarms.

use std::fmt::{self, Write};

use admin::{AlarmSeverity, ProcessPhase, RecentRates, Status};

use super::alarms::{RED, RESET, YELLOW, counts, most_severe};
use crate::member_table::per_second;

/// SGR sequence of ECMA-48.
const GREEN: &str = "\x1b[32m";

/// Writes the first line. With `colour`, its dot has the colour of the most severe alarm.
pub(super) fn write_head(text: &mut String, status: &Status, colour: bool) -> fmt::Result {
    let code = match (status.phase, most_severe(status)) {
        (_, Some(AlarmSeverity::Critical)) => RED,
        (ProcessPhase::Serving, None) => GREEN,
        _ => YELLOW,
    };
    let (begin, end) = if colour { (code, RESET) } else { ("", "") };
    write!(
        text,
        "{begin}●{end} proscenium {}: {}",
        status.version, status.phase
    )?;
    if let Some(started) = &status.process.started {
        write!(text, " since {started}")?;
    }
    let RecentRates {
        milliseconds,
        requests,
        failures,
    } = status.rates;
    if milliseconds > 0 {
        let rate = |count: u64| per_second(count as f64 * 1e3 / milliseconds as f64);
        let (requests, failures) = (rate(requests), rate(failures));
        write!(text, ", {requests} requests/s, {failures} failures/s")?;
    }
    writeln!(text, ", {}", counts(status))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::status;

    #[test]
    fn the_dot_has_the_colour_of_the_state_on_a_terminal_only() {
        let head = |status: &Status, colour| {
            let mut text = String::new();
            write_head(&mut text, status, colour).expect("a String");
            text
        };
        let mut status = status();
        status.rates = RecentRates {
            milliseconds: 60_000,
            requests: 750,
            failures: 12,
        };
        status.process.started = Some(admin::Timestamp::from_unix_seconds(7));
        let words = "● proscenium 0.1.0: serving since 1970-01-01T00:00:07Z, 12.5 requests/s, 0.2 failures/s, ";
        let expected = format!("{words}alarms: 1 critical, 1 warning\n");
        assert_eq!(head(&status, false), expected);
        assert!(head(&status, true).starts_with("\x1b[31m●\x1b[0m proscenium"));
        status
            .alarms
            .retain(|alarm| alarm.severity == AlarmSeverity::Warning);
        assert!(head(&status, true).starts_with(YELLOW));
        status.rates.failures = 2;
        assert!(head(&status, false).contains(", <0.1 failures/s, "));
        status.rates.failures = 12;
        status.alarms.clear();
        assert_eq!(head(&status, false), format!("{words}no alarms\n"));
        let member = &mut status.pools[0].members[1];
        member.administrative_state = admin::AdministrativeState::Ready;
        assert_eq!(
            head(&status, false),
            format!("{words}no alarms, 1 member down or ejected\n")
        );
        assert!(head(&status, true).starts_with(YELLOW));
        status.pools[0].members[1].administrative_state = admin::AdministrativeState::Drain;
        assert!(head(&status, true).starts_with(GREEN));
        status.phase = ProcessPhase::Draining;
        assert!(head(&status, true).starts_with(YELLOW));
    }
}
