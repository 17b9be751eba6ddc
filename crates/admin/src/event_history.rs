//! `GET /v1/events/history`: what has happened in the last day. The state directory has the same entries, one on each line.

use serde::{Deserialize, Serialize};
use telemetry::{HistoryEntry, HistoryKind, Urgency};
use utoipa::ToSchema;

use crate::{AlarmSeverity, Timestamp};

/// Answer to `GET /v1/events/history`: the oldest event first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventHistoryStatus {
    /// The events.
    pub events: Vec<PastEvent>,
}

/// One event of the last day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PastEvent {
    /// When it happened.
    pub at: Timestamp,
    /// `alarm`, `alarm-cleared`, `member`, `reload`, `operator` or `process`. Later versions may have more kinds.
    pub kind: String,
    /// The key of the alarm, the pool and the member, or what an operator changed. Empty if the message has it.
    pub subject: String,
    /// One line.
    pub message: String,
    /// How urgent it is; absent for events that need no operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<AlarmSeverity>,
    /// The account of the operator; absent for events that no operator caused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl From<&HistoryEntry> for PastEvent {
    fn from(entry: &HistoryEntry) -> Self {
        Self {
            at: entry.at.into(),
            kind: entry.kind.as_str().to_owned(),
            subject: entry.subject.clone(),
            message: entry.message.clone(),
            severity: entry.urgency.map(Into::into),
            by: entry.by.clone(),
        }
    }
}

impl PastEvent {
    /// The event as the running proxy has it. `None` if another version wrote it and this one does not know its kind.
    pub fn entry(self) -> Option<HistoryEntry> {
        Some(HistoryEntry {
            at: self.at.instant()?,
            kind: HistoryKind::parse(&self.kind)?,
            subject: self.subject,
            message: self.message,
            urgency: self.severity.map(|severity| match severity {
                AlarmSeverity::Critical => Urgency::Critical,
                AlarmSeverity::Warning => Urgency::Warning,
            }),
            by: self.by,
        })
    }
}
