//! Active alarms as text: each with what agents notice, the first step and the page to read.

use std::{
    collections::BTreeMap,
    fmt::{self, Write},
};

use admin::{AlarmSeverity, AlarmStatus, DOCUMENTATION};

/// The alarms in the order of the status. An alarm that follows from another one is one line below it.
pub(super) fn write_alarms(text: &mut String, alarms: &[AlarmStatus]) -> fmt::Result {
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
        let severity = severity_word(*severity).to_uppercase();
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

/// The number of alarms by severity: `alarms: 1 critical, 2 warning`.
pub(super) fn counts(alarms: &[AlarmStatus]) -> String {
    let count = |severity: AlarmSeverity| {
        let count = alarms
            .iter()
            .filter(|alarm| alarm.severity == severity)
            .count();
        (count > 0).then(|| format!("{count} {}", severity_word(severity)))
    };
    let counts: Vec<_> = [AlarmSeverity::Critical, AlarmSeverity::Warning]
        .into_iter()
        .filter_map(count)
        .collect();
    match counts.is_empty() {
        true => "no alarms".to_owned(),
        false => format!("alarms: {}", counts.join(", ")),
    }
}

/// The severity of the most severe alarm.
pub(crate) fn most_severe(alarms: &[AlarmStatus]) -> Option<AlarmSeverity> {
    let is_critical = |alarm: &AlarmStatus| alarm.severity == AlarmSeverity::Critical;
    if alarms.iter().any(is_critical) {
        return Some(AlarmSeverity::Critical);
    }
    (!alarms.is_empty()).then_some(AlarmSeverity::Warning)
}

fn severity_word(severity: AlarmSeverity) -> &'static str {
    match severity {
        AlarmSeverity::Critical => "critical",
        AlarmSeverity::Warning => "warning",
    }
}
