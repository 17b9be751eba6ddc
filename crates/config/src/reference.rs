//! The generated reference of settings, from the declarations in `keys`.

use std::fmt::Write as _;

use crate::{
    binding::Bound,
    keys::Root,
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

impl SettingsTable {
    fn title(&self) -> &str {
        self.header.as_deref().unwrap_or("Top level")
    }

    /// The heading of one of its settings. Keys such as `interval` are in several tables, so the heading names the
    /// table too.
    fn heading(&self, setting: &Setting) -> String {
        match &self.header {
            None => format!("`{}`", setting.name),
            Some(header) => format!("`{} {}`", header.trim_matches('`'), setting.name),
        }
    }
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
    let tables = settings();
    for table in &tables {
        let title = table.title();
        if let Some(header) = &table.header {
            let _ = writeln!(page, "## {header}\n\n{}\n", table.docs);
        } else {
            let _ = writeln!(page, "{}\n\n{NOTATION}\n", table.docs);
            contents(&mut page, &tables);
            let _ = writeln!(page, "## {title}\n");
        }
        overview(&mut page, table);
        for setting in &table.settings {
            let heading = table.heading(setting);
            let Setting {
                docs,
                value,
                default,
                ..
            } = setting;
            let _ = writeln!(
                page,
                "### {heading}\n\n{docs}\n\n- Value: {value}.\n- Default: {default}.\n"
            );
        }
    }
    page
}

/// The table of contents: each table of the file with what it is for.
fn contents(page: &mut String, tables: &[SettingsTable]) {
    page.push_str("## Contents\n\n| table | content |\n| --- | --- |\n");
    for table in tables {
        let words = match table.header {
            None => "Settings before the first table.",
            Some(_) => first_sentence(&table.docs),
        };
        let title = table.title();
        row(page, &[&link(title, title), words]);
    }
    page.push('\n');
}

/// The settings of a table, one line each.
fn overview(page: &mut String, table: &SettingsTable) {
    page.push_str("| key | default | meaning |\n| --- | --- | --- |\n");
    for setting in &table.settings {
        let key = link(&format!("`{}`", setting.name), &table.heading(setting));
        row(
            page,
            &[&key, &setting.default, first_sentence(&setting.docs)],
        );
    }
    page.push('\n');
}

fn row(page: &mut String, cells: &[&str]) {
    let cells: Vec<_> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    let _ = writeln!(page, "| {} |", cells.join(" | "));
}

fn link(text: &str, heading: &str) -> String {
    format!("[{text}](#{})", anchor(heading))
}

/// The anchor of a heading, as git hosts and mdBook generate it.
fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || " _-".contains(*c);
    let words: String = heading.to_lowercase().chars().filter(kept).collect();
    words.replace(' ', "-")
}

/// The text is Markdown with one sentence on each line.
fn first_sentence(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
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
        // `[pools.NAME.tls]` has the keys of `[upstream.tls]`, and that table documents them.
        if below.path.starts_with(schema.path) {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Two equal anchors would make links to the second heading lead to the first.
    #[test]
    fn every_heading_of_the_page_has_an_anchor_of_its_own_and_a_link() {
        let page = reference();
        let headings = page.lines().filter_map(|line| line.split_once("## "));
        let mut anchors: Vec<_> = headings.map(|(_, heading)| anchor(heading)).collect();
        anchors.sort_unstable();
        let count = anchors.len();
        anchors.dedup();
        assert_eq!((anchors.len(), count > 200), (count, true));
        for anchor in anchors.iter().filter(|anchor| *anchor != "contents") {
            assert!(page.contains(&format!("](#{anchor})")), "{anchor}");
        }
    }
}
