//! The generated reference of settings, from the declarations in `keys`.

use std::fmt::Write as _;

use crate::{
    binding::Bound,
    keys::{MemberTls, Root},
    schema::{Absent, Key, Table},
};

/// A table of the file with its settings, for documentation pages. Strings are Markdown.
pub struct SettingsTable {
    /// The header as written in a file, for example `[trust]`; `None` for the top level.
    pub header: Option<String>,
    /// What the table is for.
    pub docs: String,
    /// Its settings, in the order of their declaration, including nested tables that have their own documentation.
    pub settings: Vec<Setting>,
}

/// A setting, for documentation pages. Strings are Markdown.
pub struct Setting {
    /// The key.
    pub name: &'static str,
    /// Its description.
    pub docs: String,
    /// What a valid value is.
    pub value: String,
    /// The value that applies if the file leaves the key out.
    pub default: String,
}

/// How values are written, for every page about settings.
pub const NOTATION: &str = "A duration is a string of an integer and one of the units `ms`, `s`, `m`, `h`, `d`, as `\"60s\"`. \
    A size has one of the units `B`, `KiB`, `MiB`, `GiB`, as `\"64KiB\"`. A share is a string of an integer and `%`, as `\"25%\"`.\n\
    Paths are absolute.\n\
    An unknown key, a wrong type or a value out of range is an error. The proxy reports all errors at once and exits \
    with code 78.\n\
    `proscenium check` checks a file as a start does, with the files that it names, and starts nothing.";

/// Every table of the file, the top level first.
#[must_use]
pub fn settings() -> Vec<SettingsTable> {
    let mut tables = Vec::new();
    collect(&mut tables, Root::TABLE);
    tables
}

/// The reference page, docs/configuration.md. `cargo xtask reference` writes it; a test checks that it is up to date.
#[must_use]
pub fn reference() -> String {
    let mut page = String::from(
        "# Configuration reference\n\n\
         <!-- Generated from crates/config/src/keys.rs by `cargo xtask reference`: edit there, not here. -->\n\n",
    );
    for table in settings() {
        let _ = match table.header {
            None => writeln!(page, "{}\n\n{NOTATION}\n\n## Top level\n", table.docs),
            Some(header) => writeln!(page, "## {header}\n\n{}\n", table.docs),
        };
        for Setting {
            name,
            docs,
            value,
            default,
        } in table.settings
        {
            let _ = writeln!(
                page,
                "### `{name}`\n\n{docs}\n\n- Value: {value}.\n- Default: {default}.\n"
            );
        }
    }
    page
}

/// Every setting with its default, as a file in which every line is commented out. `config show --defaults` prints it
/// if there is no file.
#[must_use]
pub fn defaults() -> String {
    let mut file = String::new();
    default_table(&mut file, Root::TABLE, "");
    file
}

fn collect(tables: &mut Vec<SettingsTable>, schema: &Table) {
    let documented = |key: &&&Key| key.shape.table().is_none() || !key.docs.is_empty();
    tables.push(SettingsTable {
        header: (!schema.path.is_empty()).then(|| header(schema.path)),
        docs: paragraph(schema.docs),
        settings: schema
            .keys
            .iter()
            .filter(documented)
            .map(|key| setting(key))
            .collect(),
    });
    for below in schema.keys.iter().filter_map(|key| key.shape.table()) {
        // `[pools.NAME.tls]` has the same keys as `[upstream.tls]`.
        if !(schema.path == "pools.NAME" && below.path == MemberTls::TABLE.path) {
            collect(tables, below);
        }
    }
}

fn setting(key: &Key) -> Setting {
    Setting {
        name: key.name,
        docs: paragraph(key.docs),
        value: key.shape.expected(),
        default: match key.absent {
            Absent::Required => "none; this key is required".into(),
            Absent::Default(show) => format!("`{}`", show().unwrap_or_default()),
            Absent::Means(words) => words.to_owned(),
        },
    }
}

fn default_table(file: &mut String, schema: &Table, indent: &str) {
    if !schema.path.is_empty() {
        let _ = writeln!(file, "\n# {}", commented(schema.path));
    }
    for key in schema.keys.iter().filter(|key| key.shape.table().is_none()) {
        let line = match key.absent {
            Absent::Default(show) => format!("{} = {}", key.name, show().unwrap_or_default()),
            Absent::Required => {
                format!("{} = …  # must be set: {}", key.name, key.shape.expected())
            }
            Absent::Means(words) => format!("{} = …  # default: {words}", key.name),
        };
        let _ = writeln!(file, "{indent}# {line}");
    }
    for below in schema.keys.iter().filter_map(|key| key.shape.table()) {
        default_table(file, below, indent);
    }
}

fn header(path: &str) -> String {
    match path.strip_suffix("[]") {
        Some(list) => format!("`[[{list}]]`"),
        None if path.contains("[]") => format!("`{}`", path.replace("[]", "")),
        None => format!("`[{path}]`"),
    }
}

fn commented(path: &str) -> String {
    header(path).replace('`', "")
}

/// Converts doc lines to Markdown, one sentence per line.
fn paragraph(docs: &[&str]) -> String {
    let words: Vec<_> = docs.iter().map(|line| line.trim()).collect();
    words.join(" ").replace(". ", ".\n")
}
