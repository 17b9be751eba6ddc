//! Reports, held against files: each `reports/NAME.toml` is a configuration, `NAME.txt` what is said about it.
//!
//! A case more is a file more; `UPDATE=1 cargo test -p config --test reports` writes what is said now.

mod machine;

use std::{fs, path::Path};

use config::{Colour, Overrides};
use machine::Machine;

#[test]
fn every_report_says_what_its_file_holds() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reports");
    let mut names: Vec<_> = fs::read_dir(&directory)
        .expect("the directory of cases")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    names.sort();
    assert!(names.len() > 20, "cases are there");
    let different: Vec<_> = names.iter().filter(|path| !agrees(path)).collect();
    assert!(different.is_empty(), "reports that differ from their files: {different:?}; UPDATE=1 writes them");
}

fn agrees(case: &Path) -> bool {
    let text = fs::read_to_string(case).expect("a case");
    let report = match Machine::with_agent().load("proscenium.toml", &text, &Overrides::default()) {
        Ok(loaded) => loaded.report,
        Err(report) => report,
    };
    let said = report.render(Colour::Never);
    let file = case.with_extension("txt");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&file, &said).expect("a writable directory");
    }
    let expected = fs::read_to_string(&file).unwrap_or_default();
    if said != expected {
        eprintln!("{}\n--- expected\n{expected}\n+++ said\n{said}", case.display());
    }
    said == expected
}
