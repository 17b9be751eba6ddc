//! The skipped tests, counted for the last lines of the output.

use std::{collections::BTreeMap, fs, process::Command};

use anyhow::Result;
use tempfile::NamedTempFile;

/// The skipped tests of one run.
pub(super) struct Skipped {
    /// Each skipped test appends a line with the packages that it needs.
    file: NamedTempFile,
}

impl Skipped {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            file: NamedTempFile::new()?,
        })
    }

    /// Makes the tests of this command record what they skip.
    pub(super) fn record<'a>(&self, tests: &'a mut Command) -> &'a mut Command {
        tests.env("PROSCENIUM_SKIPPED", self.file.path())
    }

    /// A line for each set of packages that skipped tests need.
    pub(super) fn summary(&self) -> Result<String> {
        Ok(count(&fs::read_to_string(self.file.path())?))
    }
}

/// Counts skipped tests by their packages, and writes a line for each set of packages.
fn count(skipped: &str) -> String {
    let mut counts = BTreeMap::new();
    for packages in skipped.lines() {
        *counts.entry(packages).or_insert(0) += 1;
    }
    let lines = counts
        .iter()
        .map(|(packages, count)| format!("skipped tests: {count} (Debian: {packages})\n"));
    lines.collect()
}

#[test]
fn skipped_tests_are_counted_by_their_packages() {
    assert_eq!(count(""), "");
    assert_eq!(
        count("knot\nruby puma\nknot\n"),
        "skipped tests: 2 (Debian: knot)\nskipped tests: 1 (Debian: ruby puma)\n"
    );
}
