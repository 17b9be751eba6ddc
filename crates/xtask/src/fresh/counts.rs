//! The counts in the output of `cargo xtask test`.

use std::fmt::{self, Display, Formatter};

/// The sums of all test binaries, and the last lines about skipped tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    passed: usize,
    failed: usize,
    pub(super) skipped: Vec<String>,
}

impl Counts {
    /// Reads the output of the command.
    pub(super) fn read(output: &str) -> Self {
        let mut counts = Self::default();
        for line in output.lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            if line.starts_with("test result: ") {
                counts.passed += number_before(&words, "passed;");
                counts.failed += number_before(&words, "failed;");
            } else if line.ends_with(" passed, 0 failed") {
                // The line of the lab.
                counts.passed += number_before(&words, "passed,");
            } else if line.starts_with("skipped tests: ") || line.starts_with("skipped: ") {
                counts.skipped.push(line.to_owned());
            }
        }
        counts
    }
}

fn number_before(words: &[&str], word: &str) -> usize {
    let at = words
        .iter()
        .position(|one| *one == word)
        .unwrap_or_default();
    let number = at.checked_sub(1).and_then(|at| words[at].parse().ok());
    number.unwrap_or_default()
}

impl Display for Counts {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let (passed, failed) = (self.passed, self.failed);
        if passed + failed > 0 {
            write!(formatter, ", {passed} tests passed, {failed} failed")?;
        }
        for line in &self.skipped {
            write!(formatter, "\n    {line}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binaries_and_the_lab_are_added_up() {
        let output = "test a ... ok\n\
            test result: ok. 11 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 2.00s\n\
            skipped a: it needs knotd (Debian: knot)\n\
            test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s\n    \
            12s  69 passed, 0 failed\n\
            skipped tests: 1 (Debian: knot)\n";
        let counts = Counts::read(output);
        let skipped = vec!["skipped tests: 1 (Debian: knot)".to_owned()];
        assert_eq!(
            counts,
            Counts {
                passed: 82,
                failed: 1,
                skipped
            }
        );
        assert_eq!(
            counts.to_string(),
            ", 82 tests passed, 1 failed\n    skipped tests: 1 (Debian: knot)"
        );
    }
}
