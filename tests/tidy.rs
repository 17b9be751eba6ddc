//! The rules of the source tree that a test can check: layers, names, module docs, and which code may vouch for a
//! client.
#![expect(clippy::disallowed_methods, reason = "the tree is read from its files")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

mod circles;
mod dependencies;
mod errors;
mod events;
mod pages;
mod programs;
mod tasks;
mod words;

/// From the bottom: a crate imports only crates of lower lines. testkit is for tests, and imports no other crate.
const LAYERS: &[&[&str]] = &[
    &["identity", "balancing", "proxy_protocol", "http1", "fleet"],
    &["routing"],
    &["pki", "telemetry", "discovery"],
    &["listener", "upstream"],
    &["proxy", "fleet_store"],
    &["admin"],
    &["config"],
    &["state"],
    &["membership", "trust_keeper"],
    &["lifecycle"],
    &["operator", "doctor"],
    &["proscenium", "fuzzing", "simulation"],
    &["xtask"],
];

#[test]
fn imports_go_down_only() {
    let metadata = metadata();
    let mut wrong = Vec::new();
    for package in metadata.workspace_packages() {
        for dependency in &package.dependencies {
            let (from, to) = (package.name.as_str(), dependency.name.as_str());
            if dependency.path.is_some() && !is_allowed(from, to, dependency.kind) {
                wrong.push(format!("{from} imports {to}"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "imports that do not go down: {}",
        wrong.join(", ")
    );
}

#[test]
fn every_crate_has_a_line_and_a_folder_of_its_name() {
    let metadata = metadata();
    for package in metadata.workspace_packages() {
        let folder = folder(package).file_name().map(|name| name.to_owned());
        assert_eq!(
            folder.as_deref(),
            Some(package.name.as_str().as_ref()),
            "folder of {}",
            package.name
        );
        assert!(
            package.name.as_str() == "testkit" || layer(&package.name).is_some(),
            "{} has no line in LAYERS",
            package.name
        );
    }
}

#[test]
fn every_file_says_first_what_it_is() {
    let silent: Vec<_> = sources()
        .into_iter()
        .filter(|(_, text)| !text.starts_with("//! "))
        .map(|(path, _)| path)
        .collect();
    assert!(
        silent.is_empty(),
        "files without `//!` on the first line: {silent:?}"
    );
}

#[test]
fn every_lint_that_is_allowed_or_expected_has_a_reason() {
    let attribute = regex::Regex::new(r"#!?\[(?:allow|expect)\(([^\]]*)\)\]").expect("a pattern");
    let mut without = Vec::new();
    for (path, text) in sources() {
        let attributes = attribute.captures_iter(&text);
        let silent = attributes.filter(|found| !found[1].contains("reason ="));
        without.extend(silent.map(|found| format!("{}: {}", path.display(), &found[0])));
    }
    assert!(
        without.is_empty(),
        "attributes without a reason: {without:#?}"
    );
}

#[test]
fn only_pki_vouches_for_a_chain() {
    // Tests are excepted, because they need agents without a chain.
    let vouching: Vec<_> = sources()
        .into_iter()
        .filter(|(path, _)| !is_test(path) && !path.starts_with("crates/pki/src"))
        .filter(|(_, text)| text.contains(concat!("ChainVerified::", "assertion")))
        .map(|(path, _)| path)
        .collect();
    assert!(
        vouching.is_empty(),
        "only a verified chain makes an agent, but: {vouching:?}"
    );
}

#[test]
fn files_and_environment_are_left_to_the_upper_crates() {
    // clippy.toml forbids std::fs and std::env. A crate root that allows them declares that its work is files.
    let allowed = [
        "state",
        "membership",
        "trust_keeper",
        "lifecycle",
        "operator",
        "doctor",
        "proscenium",
        "testkit",
        "xtask",
        "simulation",
    ];
    let lifted: Vec<_> = sources()
        .into_iter()
        .filter(|(path, text)| !is_test(path) && text.contains("clippy::disallowed_methods"))
        .map(|(path, _)| path)
        .filter(|path| {
            !allowed
                .iter()
                .any(|name| path.starts_with(format!("crates/{name}")))
        })
        .collect();
    assert!(
        lifted.is_empty(),
        "disallowed methods are allowed in: {lifted:?}"
    );
}

#[test]
fn layer_0_refuses_all_that_the_others_refuse_and_the_clock() {
    let refused = |path: &Path| -> Vec<String> {
        let text = read(path);
        text.lines()
            .filter(|line| line.contains("{ path ="))
            .map(str::to_owned)
            .collect()
    };
    let everywhere = refused(&root().join("clippy.toml"));
    for name in LAYERS[..2].concat() {
        let here = refused(&root().join("crates").join(name).join("clippy.toml"));
        assert!(
            everywhere.iter().all(|line| here.contains(line)),
            "crates/{name}/clippy.toml lacks lines of the root's"
        );
        assert!(
            here.iter().any(|line| line.contains("SystemTime::now")),
            "crates/{name} may read the clock"
        );
    }
}

#[test]
fn every_decision_and_document_starts_with_a_heading() {
    for path in files_below(&root().join("docs"), "md") {
        assert!(read(&path).starts_with("# "), "{}", path.display());
    }
}

#[test]
fn every_test_that_the_architecture_names_is_there() {
    let there = named_tests("ARCHITECTURE.md");
    assert!(there > 10, "the page names tests: {there}");
}

#[test]
fn every_test_that_the_source_documents_name_is_there() {
    let there = named_tests("docs/source-documents.md");
    assert!(there > 20, "the page names tests: {there}");
}

#[test]
fn every_example_is_started_by_a_test_and_every_source_document_has_one() {
    let tests: Vec<_> = files_below(&root().join("tests"), "rs")
        .into_iter()
        .map(|path| (path.clone(), read(&path)))
        .collect();
    let starts = |text: &str, example: &str| text.contains(&format!("{example:?}"));
    let examples = files_below(&root().join("conf"), "toml");
    assert!(examples.len() > 5);
    for example in examples {
        let name = example.file_name().unwrap_or_default().to_string_lossy();
        let mut others = tests.iter().filter(|(path, _)| !path.ends_with("tidy.rs"));
        assert!(
            others.any(|(_, text)| starts(text, &name)),
            "no test starts conf/{name}"
        );
    }
    let page = read(&root().join("docs/source-documents.md"));
    let rows: Vec<Vec<_>> = page
        .lines()
        .filter(|line| line.starts_with("| [") && line.contains("(../conf/"))
        .map(|line| line.split(" | ").collect())
        .collect();
    assert_eq!(rows.len(), 5, "a row for each document");
    for row in rows {
        let title = between(row[0], "[", "]");
        let (example, test) = (between(row[1], "(../conf/", ")"), between(row[2], "`", "`"));
        assert!(
            page.contains(&format!("\n## {title}\n")),
            "no section {title}"
        );
        assert!(
            root().join("conf").join(example).is_file(),
            "no conf/{example}"
        );
        assert!(
            starts(&read(&root().join(test)), example),
            "{test} does not start {example}"
        );
    }
}

/// The text between two marks.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let rest = text.split_once(from).map_or("", |(_, rest)| rest);
    rest.split_once(to).map_or("", |(inner, _)| inner)
}

#[test]
fn every_threat_has_an_answer_and_tests_that_are_there() {
    let there = named_tests("docs/threats.md");
    assert!(there > 30, "the page names tests: {there}");
    let page = read(&root().join("docs/threats.md"));
    for number in 1..=20 {
        assert!(
            page.contains(&format!("\n| T{number} | ")),
            "T{number} has no line"
        );
    }
}

/// `over_http2.tsv` lists for each module whether it is repeated over HTTP/2, and why.
#[test]
fn every_end_to_end_module_is_listed_as_repeated_over_http2_or_not() {
    let list = read(&root().join("tests/over_http2.tsv"));
    let mut listed = Vec::new();
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let Some((module, reason)) = line.split_once('\t') else {
            panic!("{line:?} has no reason");
        };
        let reason = reason.split_once('\t');
        let known = ["always", "acceptance", "never"];
        assert!(
            reason.is_some_and(|(when, why)| known.contains(&when) && !why.is_empty()),
            "{line:?} is not: module, when, reason"
        );
        listed.push(module);
    }
    let declared = read(&root().join("tests/main.rs"));
    let declared = declared
        .lines()
        .filter_map(|line| line.strip_prefix("mod "));
    let declared: Vec<_> = declared
        .map(|name| name.trim_end_matches(';'))
        .filter(|name| *name != "support")
        .collect();
    assert_eq!(listed, declared, "tests/over_http2.tsv and tests/main.rs");
    for (path, text) in sources() {
        assert!(
            path.parent() != Some(Path::new("tests"))
                || path.ends_with("tidy.rs")
                || !text.contains("Proxy::new("),
            "{}: use `support::proxy`, which chooses the protocol of the run",
            path.display()
        );
    }
}

/// The number of tests that a page names. Asserts that all of them exist.
fn named_tests(page: &str) -> usize {
    let text = read(&root().join(page));
    let claims = text.split('`').skip(1).step_by(2).filter(|word| {
        word.matches('_').count() > 3
            && word
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    });
    let sources: String = sources().into_values().collect();
    let (there, missing): (Vec<_>, Vec<_>) =
        claims.partition(|claim| sources.contains(&format!("fn {claim}(")));
    assert!(missing.is_empty(), "{page}: no such tests: {missing:?}");
    there.len()
}

fn is_allowed(from: &str, to: &str, kind: DependencyKind) -> bool {
    match (layer(from), layer(to)) {
        (Some(from), Some(to)) => to < from,
        // testkit is for the tests of every crate, for the automation, and for the fuzz targets, which are tests.
        (Some(_), None) => {
            kind == DependencyKind::Development || from == "xtask" || from == "fuzzing"
        }
        (None, _) => false,
    }
}

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|line| line.contains(&name))
}

fn metadata() -> Metadata {
    MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .other_options(["--offline".to_owned()])
        .exec()
        .expect("cargo metadata of this workspace")
}

fn folder(package: &Package) -> PathBuf {
    let manifest = package.manifest_path.as_std_path();
    manifest
        .parent()
        .expect("a manifest lies in a folder")
        .to_owned()
}

fn is_test(path: &Path) -> bool {
    let text = path.to_string_lossy();
    text.starts_with("tests/")
        || text.starts_with("crates/fuzzing/")
        || text.contains("/tests/")
        // Benchmarks are not part of the program either.
        || text.contains("/benches/")
        || text.ends_with("/tests.rs")
}

/// Every Rust file of the tree by its path from the root.
fn sources() -> BTreeMap<PathBuf, String> {
    let root = root();
    let files = ["crates", "tests"]
        .iter()
        .flat_map(|folder| files_below(&root.join(folder), "rs"));
    files
        .map(|path| {
            let text = read(&path);
            let name = path.strip_prefix(&root).expect("below the root").to_owned();
            (name, text)
        })
        .filter(|(_, text)| !text.starts_with("// This file is @generated"))
        .collect()
}

fn files_below(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of the tree") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files_below(&path, extension));
        } else if path.extension().is_some_and(|end| end == extension) {
            found.push(path);
        }
    }
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn root() -> PathBuf {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = crate_folder.ancestors().nth(2);
    root.expect("crates/proscenium lies two below the root")
        .to_owned()
}
