//! What a configuration may contain, as data: tables, keys, the type of each value and its default.
//!
//! `keys` declares them. The same declaration is used to check a file, to suggest names, to read values, for `config
//! show` and for the reference page, so these always agree.

use std::time::Duration;

use crate::{
    forms::Form,
    quantity::{show_duration, show_percent, show_size},
};

/// A table of the file.
pub(crate) struct Table {
    /// Its path, for example `pools.NAME.check`; empty for the top level.
    pub(crate) path: &'static str,
    pub(crate) docs: &'static [&'static str],
    pub(crate) keys: &'static [&'static Key],
}

/// One setting. `keys` declares each as a constant, so that a misspelled key does not compile.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) docs: &'static [&'static str],
    pub(crate) shape: Shape,
    pub(crate) absent: Absent,
}

/// What applies if the file leaves a key out.
#[derive(Clone, Copy)]
pub(crate) enum Absent {
    /// The table is invalid without the key.
    Required,
    /// The default of the field that the key sets, as TOML.
    Default(fn() -> Option<String>),
    /// A value that depends on another setting, described in words.
    Means(&'static str),
}

/// The type and limits of a value.
#[derive(Clone, Copy)]
pub(crate) enum Shape {
    Text(&'static Form),
    Texts(&'static Form),
    TextOrTexts(&'static Form),
    Word(&'static [&'static str]),
    Words(&'static [&'static str]),
    Switch,
    Count {
        min: u64,
        max: u64,
    },
    Duration {
        min: Duration,
        max: Duration,
    },
    Size {
        min: u64,
        max: u64,
    },
    Percent {
        min: u64,
        max: u64,
    },
    /// A table of this kind.
    Table(&'static Table),
    /// A table of this kind with exactly one of its keys.
    OneOf(&'static Table),
    /// Tables of this kind, each under a name that the file chooses.
    Named(&'static Table),
    /// A list of tables of this kind.
    Tables(&'static Table),
    /// A table of this kind, or a list of them.
    TableOrTables(&'static Table),
    /// A list whose elements are strings or tables of this kind.
    TextsOrTables(&'static Form, &'static Table),
    /// A table of names and strings that the file chooses: the format of a name, then that of a string.
    Pairs(&'static Form, &'static Form),
}

impl Table {
    /// The declared key of this name.
    pub(crate) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().copied().find(|key| key.name == name)
    }
}

impl Key {
    /// The default as TOML, if the key has one that does not depend on something else.
    pub(crate) fn default(&self) -> Option<String> {
        match self.absent {
            Absent::Default(show) => show(),
            Absent::Required | Absent::Means(_) => None,
        }
    }
}

impl Shape {
    /// The table that the value or its elements have.
    pub(crate) const fn table(&self) -> Option<&'static Table> {
        match self {
            Self::Table(table) | Self::Named(table) | Self::Tables(table) => Some(table),
            Self::OneOf(table) | Self::TextsOrTables(_, table) | Self::TableOrTables(table) => {
                Some(table)
            }
            _ => None,
        }
    }

    /// A description of valid values, for a report and for the reference page.
    pub(crate) fn expected(&self) -> String {
        match self {
            Self::Text(form) => form.what.into(),
            Self::Texts(form) => format!("a list, each element {}", form.what),
            Self::TextOrTexts(form) => format!("{}, or a list of these", form.what),
            Self::Word(words) => alternatives(words),
            Self::Words(words) => format!("a list of {}", alternatives(words)),
            Self::Switch => "a boolean: true or false".into(),
            Self::Count { min, max } => format!("an integer from {min} to {max}"),
            Self::Duration { min, max } => format!(
                "a duration from \"{}\" to \"{}\"",
                show_duration(*min),
                show_duration(*max)
            ),
            Self::Size { min, max } => {
                format!(
                    "a size from \"{}\" to \"{}\"",
                    show_size(*min),
                    show_size(*max)
                )
            }
            Self::Percent { min, max } => format!(
                "a share from \"{}\" to \"{}\"",
                show_percent(*min),
                show_percent(*max)
            ),
            Self::Table(_) | Self::Named(_) => "a table".into(),
            Self::OneOf(table) => {
                let forms: Vec<_> = table
                    .keys
                    .iter()
                    .map(|key| format!("{{ {} = … }}", key.name))
                    .collect();
                forms.join(" or ")
            }
            Self::Tables(_) => "a list of tables".into(),
            Self::TableOrTables(_) => "a table, or a list of tables".into(),
            Self::TextsOrTables(form, _) => {
                format!("a list, each element {} or a table", form.what)
            }
            Self::Pairs(..) => "a table of names and strings".into(),
        }
    }
}

/// The path of a key in a table; the key is quoted if it is not a bare key.
pub(crate) fn join(path: &str, key: &str) -> String {
    let bare = !key.is_empty()
        && key
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    let key = if bare { key.into() } else { format!("{key:?}") };
    match path {
        "" => key,
        path => format!("{path}.{key}"),
    }
}

fn alternatives(words: &[&str]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| format!("\"{word}\"")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, [first])) => format!("{first} or {last}"),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}
