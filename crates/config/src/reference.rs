//! The generated reference of settings, from the declarations in `keys`.

use std::fmt::Write as _;

use crate::{
    binding::Bound,
    keys::{MemberTls, Root},
    schema::{Absent, Key, Table},
};

/// The reference page, docs/configuration.md. `cargo xtask reference` writes it; a test holds it fresh.
#[must_use]
pub fn reference() -> String {
    let mut page = String::from(
        "# Configuration reference\n\n\
         <!-- Generated from crates/config/src/keys.rs by `cargo xtask reference`: edit there, not here. -->\n\n",
    );
    let _ = writeln!(page, "{}\n", paragraph(Root::TABLE.docs));
    page.push_str(
        "A duration is a string of an integer and one of the units `ms`, `s`, `m`, `h`, `d`, as `\"60s\"`. A size has one of the \
         units `B`, `KiB`, `MiB`, `GiB`, as `\"64KiB\"`. A share is a string of an integer and `%`, as `\"25%\"`.\n\
         Paths are absolute.\n\
         An unknown key, a wrong type or a value out of range is an error. The proxy reports all errors at once and \
         exits with code 78.\n\
         `proscenium check` checks a file as a start does, with the files that it names, and starts nothing.\n\n",
    );
    table(&mut page, Root::TABLE);
    page
}

/// Every setting with its default, as a file in which all is commented out: `config show --defaults` without a file.
#[must_use]
pub fn defaults() -> String {
    let mut file = String::new();
    default_table(&mut file, Root::TABLE, "");
    file
}

fn table(page: &mut String, schema: &Table) {
    match schema.path {
        "" => page.push_str("## Top level\n\n"),
        path => {
            let _ = writeln!(page, "## {}\n\n{}\n", header(path), paragraph(schema.docs));
        }
    }
    let documented = |key: &&&Key| key.shape.table().is_none() || !key.docs.is_empty();
    for declared in schema.keys.iter().filter(documented) {
        key(page, declared);
    }
    for below in schema.keys.iter().filter_map(|key| key.shape.table()) {
        // `[pools.NAME.tls]` is `[upstream.tls]` over again.
        if !(schema.path == "pools.NAME" && below.path == MemberTls::TABLE.path) {
            table(page, below);
        }
    }
}

fn key(page: &mut String, key: &Key) {
    let _ = writeln!(page, "### `{}`\n\n{}\n", key.name, paragraph(key.docs));
    let _ = writeln!(page, "- Value: {}.", key.shape.expected());
    let default = match key.absent {
        Absent::Required => "none; this key is required".into(),
        Absent::Default(show) => format!("`{}`", show().unwrap_or_default()),
        Absent::Means(words) => words.to_owned(),
    };
    let _ = writeln!(page, "- Default: {default}.\n");
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

/// Doc lines as Markdown, one sentence a line.
fn paragraph(docs: &[&str]) -> String {
    let words: Vec<_> = docs.iter().map(|line| line.trim()).collect();
    words.join(" ").replace(". ", ".\n")
}
