//! Active alarms as text: each with what agents notice, the first step and the page to read.

use std::{
    collections::BTreeMap,
    fmt::{self, Write},
};

use admin::{
    AdministrativeState, AlarmSeverity, AlarmStatus, DOCUMENTATION, MemberHealth, MemberStatus,
    Status,
};

/// SGR sequences of ECMA-48.
pub(super) const YELLOW: &str = "\x1b[33m";
pub(super) const RED: &str = "\x1b[31m";
pub(super) const RESET: &str = "\x1b[0m";

/// The alarms in the order of the status. An alarm that follows from another one is one line below it.
pub(super) fn write_alarms(text: &mut String, alarms: &[AlarmStatus], colour: bool) -> fmt::Result {
    let mut depths = BTreeMap::<&str, usize>::new();
    for alarm in alarms {
        let AlarmStatus {
            key,
            severity,
            since,
            message,
            caused_by,
            ..
        } = alarm;
        // The answer of an older proxy may name a cause that is not in the list.
        let below = caused_by.as_deref().and_then(|cause| depths.get(cause));
        let depth = below.map_or(0, |depth| depth + 1);
        depths.insert(key, depth);
        let word = severity_word(*severity).to_uppercase();
        let severity = match (colour, severity) {
            (false, _) => word,
            (true, AlarmSeverity::Critical) => format!("{RED}{word}{RESET}"),
            (true, AlarmSeverity::Warning) => format!("{YELLOW}{word}{RESET}"),
        };
        if depth > 0 {
            let indent = "  ".repeat(depth);
            writeln!(
                text,
                "{indent}follows from it: {severity} since {since}: {message}"
            )?;
            continue;
        }
        writeln!(text, "{severity} since {since}: {message}")?;
        for (name, value) in [("agents", &alarm.effect), ("first step", &alarm.first_step)] {
            if !value.is_empty() {
                writeln!(text, "  {name}: {value}")?;
            }
        }
        if !alarm.runbook.is_empty() {
            writeln!(text, "  page: {DOCUMENTATION}/{}", alarm.runbook)?;
        }
    }
    Ok(())
}

/// The number of alarms by severity, and of members that fail: `alarms: 1 critical, 2 warning, 1 member down or ejected`.
pub(super) fn counts(status: &Status) -> String {
    let count = |severity: AlarmSeverity| {
        let count = status
            .alarms
            .iter()
            .filter(|alarm| alarm.severity == severity)
            .count();
        (count > 0).then(|| format!("{count} {}", severity_word(severity)))
    };
    let counts: Vec<_> = [AlarmSeverity::Critical, AlarmSeverity::Warning]
        .into_iter()
        .filter_map(count)
        .collect();
    let mut text = match counts.is_empty() {
        true => "no alarms".to_owned(),
        false => format!("alarms: {}", counts.join(", ")),
    };
    match failing_members(status) {
        0 => {}
        1 => text.push_str(", 1 member down or ejected"),
        more => text.push_str(&format!(", {more} members down or ejected")),
    }
    text
}

/// How many members that operators want in service are not.
fn failing_members(status: &Status) -> usize {
    let members = status.pools.iter().flat_map(|pool| &pool.members);
    let is_failing = |member: &&MemberStatus| {
        let is_wanted = member.administrative_state == AdministrativeState::Ready;
        is_wanted && (member.health == MemberHealth::Down || member.ejected_seconds.is_some())
    };
    members.filter(is_failing).count()
}

/// The severity of the most severe alarm. A member that fails is a warning.
pub(crate) fn most_severe(status: &Status) -> Option<AlarmSeverity> {
    let is_critical = |alarm: &AlarmStatus| alarm.severity == AlarmSeverity::Critical;
    if status.alarms.iter().any(is_critical) {
        return Some(AlarmSeverity::Critical);
    }
    let is_warning = !status.alarms.is_empty() || failing_members(status) > 0;
    is_warning.then_some(AlarmSeverity::Warning)
}

fn severity_word(severity: AlarmSeverity) -> &'static str {
    match severity {
        AlarmSeverity::Critical => "critical",
        AlarmSeverity::Warning => "warning",
    }
}
