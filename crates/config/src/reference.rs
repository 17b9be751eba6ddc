//! The generated reference of settings, from the declarations in `keys`.

use std::fmt::Write as _;

use crate::{
    keys,
    schema::{Absent, Key, Shape, Table},
};

/// The reference page, docs/configuration.md. `cargo xtask reference` writes it; a test holds it fresh.
#[must_use]
pub fn reference() -> String {
    let mut page = String::from(
        "# Configuration reference\n\n\
         <!-- Generated from crates/config/src/keys.rs by `cargo xtask reference`: edit there, not here. -->\n\n",
    );
    let _ = writeln!(page, "{}\n", paragraph(keys::ROOT.docs));
    page.push_str(
        "Durations are texts with one of the units `ms`, `s`, `m`, `h`, `d`; sizes have `B`, `KiB`, `MiB`, `GiB`.\n\
         Paths are absolute.\n\
         Reading is strict: an unknown key, a wrong type or a value out of range is an error, and all errors are \
         reported at once, with exit code 78.\n\
         `proscenium check` reads a file and its materials as a start does, and starts nothing.\n\n",
    );
    table(&mut page, &keys::ROOT);
    page
}

/// Every setting with its default, as a file in which all is commented out: `config show --defaults` without a file.
#[must_use]
pub fn defaults() -> String {
    let mut file = String::new();
    default_table(&mut file, &keys::ROOT, "");
    file
}

fn table(page: &mut String, schema: &Table) {
    match schema.path {
        "" => page.push_str("## Top level\n\n"),
        path => {
            let _ = writeln!(page, "## {}\n\n{}\n", header(path), paragraph(schema.docs));
        }
    }
    for declared in schema
        .keys
        .iter()
        .filter(|key| below(key).is_none() || !key.docs.is_empty())
    {
        key(page, declared);
    }
    for below in schema.keys.iter().filter_map(below) {
        // `[pools.NAME.tls]` is `[upstream.tls]` over again.
        if !(schema.path == "pools.NAME" && below.path == keys::MEMBER_TLS.path) {
            table(page, below);
        }
    }
}

fn key(page: &mut String, key: &Key) {
    let _ = writeln!(page, "### `{}`\n\n{}\n", key.name, paragraph(key.docs));
    let _ = writeln!(page, "- Value: {}.", key.shape.expected());
    let default = match key.absent {
        Absent::Refused => "none; it must be set".into(),
        Absent::Value(value) => format!("`{value}`"),
        Absent::Means(words) => words.to_owned(),
    };
    let _ = writeln!(page, "- Default: {default}.\n");
}

fn default_table(file: &mut String, schema: &Table, indent: &str) {
    if !schema.path.is_empty() {
        let _ = writeln!(file, "\n# {}", commented(schema.path));
    }
    for key in schema.keys.iter().filter(|key| below(key).is_none()) {
        let line = match key.absent {
            Absent::Value(value) => format!("{} = {value}", key.name),
            Absent::Refused => format!("{} = …  # must be set: {}", key.name, key.shape.expected()),
            Absent::Means(words) => format!("{} = …  # default: {words}", key.name),
        };
        let _ = writeln!(file, "{indent}# {line}");
    }
    for below in schema.keys.iter().filter_map(below) {
        default_table(file, below, indent);
    }
}

fn below(key: &Key) -> Option<&'static Table> {
    match key.shape {
        Shape::Table(schema) | Shape::Named(schema) | Shape::Tables(schema) => Some(schema),
        Shape::OneOf(schema) | Shape::TextsOrTables(_, schema) => Some(schema),
        _ => None,
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

/// Doc lines as Markdown, one sentence a line.
fn paragraph(docs: &[&str]) -> String {
    let words: Vec<_> = docs.iter().map(|line| line.trim()).collect();
    words.join(" ").replace(". ", ".\n")
}
