//! The end-to-end modules that are repeated with clients that use HTTP/2: `tests/over_http2.tsv`.

use std::{fs, process::Command};

use anyhow::{Context, Result};

use crate::workspace;

/// A command that runs the tests of the modules that are always repeated, or with `all` those of all modules that can
/// be repeated.
pub(super) fn tests(all: bool) -> Result<Command> {
    let path = workspace::root().join("tests/over_http2.tsv");
    let list = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut tests = super::tests()?;
    tests
        .args(["--test", "end_to_end", "--no-fail-fast", "--"])
        .args(filters(&list, all))
        .env("PROSCENIUM_TEST_PROTOCOL", "http2");
    Ok(tests)
}

/// Arguments of the test binary: the modules to run, and `--skip` for each module that cannot be repeated, because a
/// filter also matches the end of a longer name.
fn filters(list: &str, all: bool) -> Vec<String> {
    let mut filters = Vec::new();
    for line in list.lines() {
        let mut columns = line.split('\t');
        let (Some(module), Some(when)) = (columns.next(), columns.next()) else {
            continue;
        };
        match when {
            "always" => filters.push(format!("{module}::")),
            "acceptance" if all => filters.push(format!("{module}::")),
            "never" => filters.extend(["--skip".to_owned(), format!("{module}::")]),
            _ => {}
        }
    }
    filters
}

#[test]
fn only_listed_modules_are_repeated() {
    let list = "# module\twhen\treason\na\talways\tr\nb\tacceptance\tr\nc\tnever\tr\n";
    assert_eq!(filters(list, false), ["a::", "--skip", "c::"]);
    assert_eq!(filters(list, true), ["a::", "b::", "--skip", "c::"]);
}
