//! Which accounts may use the admin socket, and the audit log of what they changed.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::SystemTime,
};

use admin::{AuditEntry, Caller, Permission, Timestamp, settings::AdminSettings};
use serde::Serialize;

use crate::accounts::{account_name, group_id, is_in_group};

/// Name of the audit log in the state directory.
const AUDIT_LOG: &str = "audit.log";
/// Permissions of the admin socket if only root and the account of the proxy may use it.
const PRIVATE: u32 = 0o600;
/// Permissions if groups may use it: every account can connect, and the proxy checks the account of each connection.
const CHECKED: u32 = 0o666;

/// Permissions of the admin socket.
pub(crate) fn socket_mode(settings: &AdminSettings) -> u32 {
    match settings.read_group.is_some() || settings.operate_group.is_some() {
        true => CHECKED,
        false => PRIVATE,
    }
}

/// What an account may do whose groups need not be looked up.
pub(crate) fn known_permission(settings: &AdminSettings, caller: Caller) -> Option<Permission> {
    let Some(uid) = caller.uid else {
        return Some(Permission::None);
    };
    if uid == 0 || uid == rustix::process::geteuid().as_raw() {
        return Some(Permission::Operate);
    }
    let has_groups = settings.operate_group.is_some() || settings.read_group.is_some();
    (!has_groups).then_some(Permission::None)
}

/// What the account of a caller may do. Blocks while name services answer.
pub(crate) fn permission(settings: &AdminSettings, caller: Caller) -> Permission {
    if let Some(known) = known_permission(settings, caller) {
        return known;
    }
    let Some(uid) = caller.uid else {
        return Permission::None;
    };
    let belongs = |group: &Option<String>| {
        let group = group.as_deref().and_then(group_id);
        group.is_some_and(|group| is_in_group(uid, caller.gid, group))
    };
    if belongs(&settings.operate_group) {
        Permission::Operate
    } else if belongs(&settings.read_group) {
        Permission::Read
    } else {
        Permission::None
    }
}

/// The path of the audit log.
pub(crate) fn audit_log(settings: &AdminSettings, state_directory: &Path) -> PathBuf {
    let configured = settings.audit_log.clone();
    configured.unwrap_or_else(|| state_directory.join(AUDIT_LOG))
}

/// One line of the audit log.
#[derive(Serialize)]
struct AuditLine<'a> {
    at: Timestamp,
    /// Name of the account, or its number.
    account: String,
    #[serde(flatten)]
    entry: &'a AuditEntry,
}

/// Appends lines. Blocks. The file is opened for each line, so that log rotation needs no signal.
///
/// # Errors
/// The file cannot be opened or written.
pub(crate) fn append(path: &Path, entries: &[AuditEntry]) -> io::Result<()> {
    let mut text = String::new();
    for entry in entries {
        let line = AuditLine {
            at: SystemTime::now().into(),
            account: account(entry),
            entry,
        };
        text += &serde_json::to_string(&line)?;
        text.push('\n');
    }
    // Two changes of different kinds can end at the same time.
    let _one_at_a_time = APPENDING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o640)
        .open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_data()
}

/// The name of the account, as its host knows it.
pub(crate) fn account(entry: &AuditEntry) -> String {
    match (&entry.origin, entry.uid) {
        (Some(origin), _) => format!("{} on {}", origin.account, origin.proxy),
        (None, Some(uid)) => account_name(uid),
        (None, None) => "unknown".to_owned(),
    }
}

/// Locked while a line is written.
static APPENDING: Mutex<()> = Mutex::new(());

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(read: Option<&str>, operate: Option<&str>) -> AdminSettings {
        AdminSettings {
            read_group: read.map(str::to_owned),
            operate_group: operate.map(str::to_owned),
            ..AdminSettings::default()
        }
    }

    #[test]
    fn root_and_the_account_of_the_proxy_operate_and_groups_do_what_they_may() {
        let other = |gid| Caller {
            uid: Some(4_000_000),
            gid: Some(gid),
        };
        let root = Caller {
            uid: Some(0),
            gid: Some(0),
        };
        let nothing = settings(None, None);
        let both = settings(Some("4711"), Some("4712"));
        for (settings, caller, expected) in [
            (&nothing, root, Permission::Operate),
            (&nothing, other(0), Permission::None),
            (&both, other(4711), Permission::Read),
            (&both, other(4712), Permission::Operate),
            (&both, other(4713), Permission::None),
            (
                &settings(Some("no-such-group"), None),
                other(4711),
                Permission::None,
            ),
            (
                &both,
                Caller {
                    uid: None,
                    gid: Some(4712),
                },
                Permission::None,
            ),
        ] {
            assert_eq!(
                permission(settings, caller),
                expected,
                "{settings:?} {caller:?}"
            );
        }
        assert_eq!(socket_mode(&nothing), 0o600);
        assert_eq!(socket_mode(&both), 0o666);
    }

    #[test]
    fn lines_are_appended_with_time_and_account() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = audit_log(&settings(None, None), directory.path());
        let entry = AuditEntry {
            uid: Some(0),
            origin: None,
            action: "drain".to_owned(),
            subject: serde_json::json!({"member": "c1:8140"}),
            why: "upgrade".to_owned(),
            before: serde_json::Value::Null,
            after: serde_json::Value::Null,
            result: "done".to_owned(),
        };
        let entries = [entry];
        append(&path, &entries).unwrap();
        append(&path, &entries).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 2);
        for line in text.lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["account"], "root");
            assert_eq!(line["subject"]["member"], "c1:8140");
            assert!(line["at"].as_str().unwrap().ends_with('Z'));
        }
        assert!(append(Path::new("/no/such/directory/audit.log"), &entries).is_err());
    }
}
