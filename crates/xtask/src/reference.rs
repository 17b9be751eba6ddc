//! `cargo xtask reference`: everything that is generated from declarations in the code: the pages about settings,
//! metrics and versions, manual pages, and completions.

mod alarms;
mod completions;
mod man;
mod metrics;
mod versions;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use crate::workspace;

/// Directories that contain only generated files.
const GENERATED: [&str; 2] = ["packaging/man", "packaging/completions"];

/// Writes the generated files, or with `check` lists the outdated ones.
pub(crate) fn run(check: bool) -> Result<()> {
    let stale = stale(workspace::root(), &generated());
    if check && !stale.is_empty() {
        bail!(
            "generated files are stale; run `cargo xtask reference`: {}",
            stale.keys().cloned().collect::<Vec<_>>().join(", ")
        );
    }
    for (name, text) in stale {
        let path = workspace::root().join(&name);
        println!("{name}");
        match text {
            Some(text) => fs::create_dir_all(path.parent().unwrap_or(&path))
                .and_then(|()| fs::write(&path, text)),
            None => fs::remove_file(&path),
        }
        .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Each generated file, by its path from the root of the repository.
fn generated() -> BTreeMap<String, String> {
    let mut files = BTreeMap::from([
        ("docs/configuration.md".to_owned(), config::reference()),
        ("docs/metrics.md".to_owned(), metrics::page()),
        ("docs/operating/alarms.md".to_owned(), alarms::page()),
        (
            "packaging/prometheus/proscenium.alarms.test.yml".to_owned(),
            alarms::rule_tests(),
        ),
        ("docs/operating/versions.md".to_owned(), versions::page()),
    ]);
    let path = "docs/operating/limits-and-exit-codes.md";
    let page = fs::read_to_string(workspace::root().join(path)).unwrap_or_default();
    files.insert(path.to_owned(), with_exit_codes(&page));
    let path = "packaging/prometheus/proscenium.rules.yml";
    let rules = fs::read_to_string(workspace::root().join(path)).unwrap_or_default();
    files.insert(path.to_owned(), alarms::with_rules(&rules));
    let man = man::pages().into_iter();
    files.extend(man.map(|(name, text)| (format!("packaging/man/{name}"), text)));
    let completions = completions::scripts().into_iter();
    files.extend(completions.map(|(name, text)| (format!("packaging/completions/{name}"), text)));
    files
}

/// The page of the operator's guide with its generated table of exit codes.
fn with_exit_codes(page: &str) -> String {
    const HEADING: &str = "\n## Exit codes\n";
    let Some((before, section)) = page.split_once(HEADING) else {
        return format!("{page}{HEADING}");
    };
    let (words, _) = section.split_once("\n| ").unwrap_or((section, ""));
    let after = section.find("\n## ").map_or("", |at| &section[at..]);
    let mut table = String::from("| verb | exit code | meaning |\n| --- | --- | --- |\n");
    let verbs = proscenium::verbs_with_exit_codes().map(|verb| (format!("`{verb}`"), verb));
    for (shown, verb) in verbs.chain([("all others".to_owned(), "")]) {
        for (code, meaning) in proscenium::exit_codes(verb) {
            table.push_str(&format!("| {shown} | {code} | {meaning} |\n"));
        }
    }
    format!("{before}{HEADING}{words}\n{table}{after}")
}

/// The files below `root` that differ, with their expected content; `None` for a file that must not exist.
fn stale(root: &Path, generated: &BTreeMap<String, String>) -> BTreeMap<String, Option<String>> {
    let mut stale = BTreeMap::new();
    for (name, text) in generated {
        if fs::read_to_string(root.join(name)).ok().as_ref() != Some(text) {
            stale.insert(name.clone(), Some(text.clone()));
        }
    }
    for directory in GENERATED {
        let entries = fs::read_dir(root.join(directory)).into_iter().flatten();
        let names = entries
            .flatten()
            .map(|entry| PathBuf::from(entry.file_name()));
        let names = names.map(|name| format!("{directory}/{}", name.display()));
        stale.extend(
            names
                .filter(|name| !generated.contains_key(name))
                .map(|name| (name, None)),
        );
    }
    stale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generated_files_are_fresh() {
        let stale = stale(workspace::root(), &generated());
        assert!(
            stale.is_empty(),
            "stale; run `cargo xtask reference`: {:?}",
            stale.keys()
        );
    }

    #[test]
    fn a_file_that_is_missing_differs_or_should_not_exist_is_stale() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(root.path().join(name), text).unwrap();
        fs::create_dir_all(root.path().join(GENERATED[0])).unwrap();
        write("packaging/man/fresh.8", "same");
        write("packaging/man/changed.8", "old");
        write("packaging/man/removed-verb.8", "old");
        let wanted = [("fresh", "same"), ("changed", "new"), ("missing", "new")];
        let wanted =
            wanted.map(|(name, text)| (format!("packaging/man/{name}.8"), text.to_owned()));
        let stale = stale(root.path(), &BTreeMap::from(wanted));
        let named = stale.iter().map(|(name, text)| (&**name, text.as_deref()));
        assert_eq!(
            named.collect::<Vec<_>>(),
            [
                ("packaging/man/changed.8", Some("new")),
                ("packaging/man/missing.8", Some("new")),
                ("packaging/man/removed-verb.8", None),
            ]
        );
    }
}
