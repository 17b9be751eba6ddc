//! Which settings differ between two configurations.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use crate::{
    binding::Bound,
    config::Config,
    keys::{AccessLog, Admin, Root, State},
    schema::{Key, Table},
};

/// A setting that differs, as the report of a reload names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SettingChange {
    /// The key path, for example `upstream.keepalive`. For a list of tables, the path of the list. For a named table
    /// that was added or removed, the path of the table.
    pub key: String,
    /// What happened to it.
    pub kind: ChangeKind,
}

/// How a setting changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeKind {
    /// The value changed.
    Changed,
    /// The value changed, and the new value applies after a restart of the process.
    NeedsRestart,
    /// A listener or a pool was added.
    Added,
    /// A listener or a pool was removed.
    Removed,
}

/// Keys that a running process cannot apply.
const NEED_RESTART: [(&Table, &Key); 4] = [
    (Root::TABLE, Root::workers),
    (AccessLog::TABLE, AccessLog::queue_max),
    (Admin::TABLE, Admin::socket),
    (State::TABLE, State::directory),
];

impl Config {
    /// The settings whose values differ in `new`, by key path. Pools name only the settings that they set themselves.
    ///
    /// Both configurations are compared as `config show --defaults` prints them, so that no setting can be forgotten.
    #[must_use]
    pub fn changes(&self, new: &Self) -> Vec<SettingChange> {
        let (old_values, new_values) = (values(self, true), values(new, true));
        let written: BTreeSet<_> = [values(self, false), values(new, false)]
            .into_iter()
            .flat_map(BTreeMap::into_keys)
            .collect();
        let (old_tables, new_tables) = (named_tables(self), named_tables(new));
        let mut changes = BTreeSet::new();
        for (path, key) in written {
            let at = (path, key);
            if old_values.get(&at) == new_values.get(&at) {
                continue;
            }
            let (path, key) = at;
            let whole = |tables: &BTreeSet<String>| {
                let inside = |table: &&String| {
                    path.strip_prefix(table.as_str())
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
                };
                tables.iter().find(inside).cloned()
            };
            changes.insert(match (whole(&old_tables), whole(&new_tables)) {
                (None, Some(key)) => SettingChange {
                    key,
                    kind: ChangeKind::Added,
                },
                (Some(key), None) => SettingChange {
                    key,
                    kind: ChangeKind::Removed,
                },
                _ => changed(&path, key),
            });
        }
        changes.into_iter().collect()
    }

    /// The settings whose values in `new` apply after a restart of a process that started with this configuration.
    #[must_use]
    pub fn after_restart(&self, new: &Self) -> BTreeSet<String> {
        let changes = self.changes(new).into_iter();
        changes
            .filter(|change| change.kind == ChangeKind::NeedsRestart)
            .map(|change| change.key)
            .collect()
    }

    /// What a process uses that started with `started` and has applied this configuration since: the settings that apply after a
    /// restart have their values of the start.
    #[must_use]
    pub fn running_since(&self, started: &Self) -> Self {
        let mut running = self.clone();
        running.workers = started.workers;
        running.access_log.settings.queue_max = started.access_log.settings.queue_max;
        running.admin.socket.clone_from(&started.admin.socket);
        running.state_directory.clone_from(&started.state_directory);
        running
    }
}

impl fmt::Display for SettingChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        f.write_str(match self.kind {
            ChangeKind::Changed => "",
            ChangeKind::NeedsRestart => " (applies after a restart)",
            ChangeKind::Added => " (added)",
            ChangeKind::Removed => " (removed)",
        })
    }
}

/// Values by the path of the table and the key.
fn values(config: &Config, defaults: bool) -> BTreeMap<(String, &'static str), String> {
    let printed = config.printed(defaults).into_iter();
    printed
        .map(|setting| ((setting.path, setting.key), setting.value))
        .collect()
}

/// Paths of listeners and pools.
fn named_tables(config: &Config) -> BTreeSet<String> {
    let listeners = config.listeners.iter().map(|it| ("listeners", &it.name));
    let pools = config.pools.iter().map(|it| ("pools", &it.pool.name));
    listeners
        .chain(pools)
        .map(|(table, name)| crate::schema::join(table, name))
        .collect()
}

/// A change in a list of tables is reported for the whole list: the elements have no names, and inserting one renumbers
/// the others.
fn changed(path: &str, key: &'static str) -> SettingChange {
    if let Some((list, _)) = path.split_once('[') {
        return SettingChange {
            key: list.to_owned(),
            kind: ChangeKind::Changed,
        };
    }
    let mut need_restart = NEED_RESTART.iter();
    let needs = need_restart.any(|(table, needing)| table.path == path && needing.name == key);
    SettingChange {
        key: match path {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        },
        kind: if needs {
            ChangeKind::NeedsRestart
        } else {
            ChangeKind::Changed
        },
    }
}
