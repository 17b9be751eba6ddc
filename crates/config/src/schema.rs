//! What a configuration may say: tables, keys, the shape of their values, and their defaults, as data.
//!
//! One declaration serves all: the examination of a file, "did you mean", the values of keys that a file leaves out,
//! `config show` and the reference page. So none of them can say something else than the others.

use std::time::Duration;

use crate::forms::Form;

/// A table of the file.
pub(crate) struct Table {
    /// Where it stands, as `pools.NAME.check`; empty for the top level.
    pub(crate) path: &'static str,
    pub(crate) docs: &'static [&'static str],
    pub(crate) keys: &'static [Key],
}

/// One setting.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) docs: &'static [&'static str],
    pub(crate) shape: Shape,
    pub(crate) absent: Absent,
}

/// What becomes of a key that the file leaves out.
#[derive(Clone, Copy)]
pub(crate) enum Absent {
    /// The table is not complete without it.
    Refused,
    /// This value, as TOML.
    Value(&'static str),
    /// No value; these words say what happens then.
    Means(&'static str),
}

/// The shape of a value.
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
    /// A table of this kind.
    Table(&'static Table),
    /// A table of this kind with exactly one of its keys.
    OneOf(&'static Table),
    /// Tables of this kind, each under a name that the file chooses.
    Named(&'static Table),
    /// A list of tables of this kind.
    Tables(&'static Table),
    /// A list whose elements are texts or tables of this kind.
    TextsOrTables(&'static Form, &'static Table),
    /// A table of names and texts that the file chooses: the form of a name, then that of a text.
    Pairs(&'static Form, &'static Form),
}

impl Table {
    /// The declaration of a key.
    ///
    /// # Panics
    /// If no such key is declared: code that reads an undeclared key cannot have been run once.
    pub(crate) fn key(&self, name: &str) -> &'static Key {
        self.keys
            .iter()
            .find(|key| key.name == name)
            .unwrap_or_else(|| panic!("key {name} is not declared in table \"{}\"", self.path))
    }
}

impl Shape {
    /// What a right value is, for a report and for the reference page.
    pub(crate) fn expected(&self) -> String {
        match self {
            Self::Text(form) => form.what.into(),
            Self::Texts(form) => format!("a list, each element {}", form.what),
            Self::TextOrTexts(form) => format!("{}, or a list of such", form.what),
            Self::Word(words) => alternatives(words),
            Self::Words(words) => format!("a list of {}", alternatives(words)),
            Self::Switch => "true or false".into(),
            Self::Count { min, max } => format!("a whole number from {min} to {max}"),
            Self::Duration { min, max } => format!(
                "a duration from \"{}\" to \"{}\"",
                crate::quantity::show_duration(*min),
                crate::quantity::show_duration(*max)
            ),
            Self::Size { min, max } => format!(
                "a size from \"{}\" to \"{}\"",
                crate::quantity::show_size(*min),
                crate::quantity::show_size(*max)
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
            Self::TextsOrTables(form, _) => {
                format!("a list, each element {} or a table", form.what)
            }
            Self::Pairs(..) => "a table of names and texts".into(),
        }
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

/// Declares tables: each key with its documentation, its shape, and what happens without it.
macro_rules! settings {
    ($(
        $(#[doc = $table_doc:literal])*
        $table:ident at $path:literal {
            $(
                $(#[doc = $doc:literal])*
                $key:literal: $shape:expr, $absent:ident $(($value:expr))?;
            )*
        }
    )*) => {
        $(
            pub(crate) static $table: Table = Table {
                path: $path,
                docs: &[$($table_doc),*],
                keys: &[$(
                    Key {
                        name: $key,
                        docs: &[$($doc),*],
                        shape: $shape,
                        absent: Absent::$absent $(($value))?,
                    },
                )*],
            };
        )*
    };
}
pub(crate) use settings;
