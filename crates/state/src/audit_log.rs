//! The audit log: what operators changed, with an alarm if it cannot be written.

use std::{
    fs::OpenOptions,
    io::{self, ErrorKind, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use admin::{AuditEntry, Timestamp, settings::AdminSettings};
use serde::Serialize;
use serde_json::Value;
use telemetry::{Alarm, Events, HistoryEntry, HistoryKind};

use crate::{Active, StateDirectory, supervise::blocking};

/// Name of the audit log in the state directory.
const AUDIT_LOG: &str = "audit.log";

/// The audit log of the process.
pub struct AuditLog {
    active: Arc<Active>,
    directory: Arc<StateDirectory>,
    events: Arc<Events>,
}

impl AuditLog {
    /// The audit log that the active configuration names. The history in `events` gets each change too.
    pub fn new(active: Arc<Active>, directory: Arc<StateDirectory>, events: Arc<Events>) -> Self {
        Self {
            active,
            directory,
            events,
        }
    }

    /// Writes lines. They are written even if the future is dropped, so that an operator who disconnects does not prevent them.
    pub fn write(&self, entries: Vec<AuditEntry>) -> impl Future<Output = ()> + use<> {
        let path = path_of(
            &self.active.foundation().config.admin,
            self.directory.path(),
        );
        let alarms = Arc::clone(self.active.alarms());
        for entry in &entries {
            self.events.history.note(past_event(entry));
        }
        let is_in_directory = path.starts_with(self.directory.path());
        let written = blocking("audit-log", move || {
            let appended = append(&path, &entries);
            alarms.assess(Alarm::AuditLog, "", SystemTime::now(), || {
                let error = appended.as_ref().err()?;
                Some(format!(
                    "cannot write to the audit log {}: {error}; changes of operators are in the events only: free space on its file system, make it writable for the account of the service, or set [admin] audit_log to another path",
                    path.display()
                ))
            });
            let Err(error) = appended else {
                return;
            };
            // A full or read-only file system, and not a wrong owner of one file.
            let is_shared = matches!(
                error.kind(),
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::ReadOnlyFilesystem
            );
            alarms.note_cause(Alarm::AuditLog, (Alarm::StateDirectory, ""), |_| {
                is_in_directory && is_shared
            });
            for entry in entries {
                let AuditEntry {
                    account,
                    action,
                    subject,
                    why,
                    result,
                    uid,
                    ..
                } = entry;
                let path = path.display();
                tracing::error!(
                    %error, %path, action, %subject, why, result, uid, account,
                    "cannot write to the audit log: this event is the only record of the change"
                );
            }
        });
        async move { written.await.unwrap_or_default() }
    }
}

fn path_of(settings: &AdminSettings, state_directory: &Path) -> PathBuf {
    let configured = settings.audit_log.clone();
    configured.unwrap_or_else(|| state_directory.join(AUDIT_LOG))
}

#[derive(Serialize)]
struct AuditLine<'a> {
    at: Timestamp,
    #[serde(flatten)]
    entry: &'a AuditEntry,
}

/// Appends lines. Blocks. The file is opened for each line, so that log rotation needs no signal.
///
/// # Errors
/// The file cannot be opened or written.
fn append(path: &Path, entries: &[AuditEntry]) -> io::Result<()> {
    let mut text = String::new();
    for entry in entries {
        let line = AuditLine {
            at: SystemTime::now().into(),
            entry,
        };
        text += &serde_json::to_string(&line)?;
        text.push('\n');
    }
    // Two changes of different kinds can end at the same time, and their lines must not be mixed.
    let _one_at_a_time = APPENDING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o640)
        .open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_data()
}

/// The change as an event of the history.
fn past_event(entry: &AuditEntry) -> HistoryEntry {
    let mut message = entry.action.clone();
    if !entry.is_done() {
        let result = entry.result.lines().next().unwrap_or_default();
        message += &format!(" ({result})");
    }
    if !entry.why.is_empty() {
        message += &format!(": {}", entry.why);
    }
    HistoryEntry {
        at: SystemTime::now(),
        kind: HistoryKind::Operator,
        subject: name_of(&entry.subject),
        message,
        urgency: None,
        by: Some(entry.account.clone()),
    }
}

/// The subject of a change in words: `compilers/c1:8140` for a member, `certname web01` for a blocked certname.
fn name_of(subject: &Value) -> String {
    match subject {
        Value::Null => String::new(),
        Value::String(name) => name.clone(),
        Value::Array(subjects) => {
            let names: Vec<_> = subjects.iter().map(name_of).collect();
            names.join(", ")
        }
        Value::Object(fields) => {
            if let (Some(Value::String(pool)), Some(Value::String(member))) =
                (fields.get("pool"), fields.get("member"))
            {
                return format!("{pool}/{member}");
            }
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            let fields = fields.map(|(name, value)| format!("{name} {}", name_of(value)));
            fields.collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

/// Locked while a line is written.
static APPENDING: Mutex<()> = Mutex::new(());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_appended_with_time_and_account() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = path_of(&AdminSettings::default(), directory.path());
        let entry = AuditEntry {
            account: "root".to_owned(),
            uid: Some(0),
            origin: None,
            action: "drain".to_owned(),
            subject: serde_json::json!({"member": "c1:8140"}),
            why: "upgrade".to_owned(),
            before: Value::Null,
            after: Value::Null,
            result: "done".to_owned(),
        };
        let entries = [entry];
        append(&path, &entries).unwrap();
        append(&path, &entries).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 2);
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["account"], "root");
            assert_eq!(line["subject"]["member"], "c1:8140");
            assert!(line["at"].as_str().unwrap().ends_with('Z'));
        }
        assert!(append(Path::new("/no/such/directory/audit.log"), &entries).is_err());
    }
}
