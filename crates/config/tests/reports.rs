//! Compares reports with files: `reports/NAME.toml` is a configuration, and `NAME.txt` is its expected report.
//!
//! To add a case, add a file. `UPDATE=1 cargo test -p config --test config reports` writes the expected reports.

#![expect(
    clippy::disallowed_methods,
    reason = "cases are files, and a environment variable rewrites them"
)]

use std::{fs, path::Path};

use crate::machine::Machine;
use config::{Colour, Overrides};

#[test]
fn every_report_matches_its_expected_file() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reports");
    let mut names: Vec<_> = fs::read_dir(&directory)
        .expect("the directory of cases")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
        })
        .collect();
    names.sort();
    assert!(names.len() > 20, "cases are there");
    let different: Vec<_> = names.iter().filter_map(|path| difference(path)).collect();
    assert!(
        different.is_empty(),
        "reports that differ from their files (UPDATE=1 writes them):\n{}",
        different.join("\n")
    );
}

fn difference(case: &Path) -> Option<String> {
    let text = fs::read_to_string(case).expect("a case");
    let loaded = Machine::with_agent().load("proscenium.toml", &text, &Overrides::default());
    let report = loaded.map_or_else(|report| report, |loaded| loaded.report);
    let said = report.render(Colour::Never);
    let file = case.with_extension("txt");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&file, &said).expect("a writable directory");
    }
    let expected = fs::read_to_string(&file).unwrap_or_default();
    let name = case.display();
    (said != expected).then(|| format!("{name}\n--- expected\n{expected}\n+++ said\n{said}"))
}
