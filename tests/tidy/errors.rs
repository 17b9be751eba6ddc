//! Errors have types where code reads them. A `String` is for an error that is only shown.

use std::sync::LazyLock;

use regex::Regex;

use super::{is_test, sources};

/// The number of results in the program whose error is a `String`. This number may only fall.
const STRING_ERRORS_MAX: usize = 50;

#[test]
fn no_more_errors_are_plain_strings_than_before() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        if is_test(&path) || path.starts_with("crates/xtask") || path.starts_with("crates/testkit")
        {
            continue;
        }
        let count = string_errors(&text);
        if count > 0 {
            found.push(format!("    {}: {count}", path.display()));
        }
    }
    let count = found
        .iter()
        .filter_map(|line| line.rsplit(": ").next()?.parse::<usize>().ok());
    let count: usize = count.sum();
    assert!(
        count <= STRING_ERRORS_MAX,
        "{count} results with a `String` as their error, and at most {STRING_ERRORS_MAX} are allowed: use an error enum (thiserror)\n{}",
        found.join("\n")
    );
}

#[test]
fn errors_that_are_plain_strings_are_found_across_lines() {
    let text = "fn a() -> Result<(), String> {}\nb: Result<\n    Vec<Option<u8>>,\n    String,\n>,\nfn c() -> Result<(String, Vec<u8>), Error>; Option<String>";
    assert_eq!(string_errors(text), 2);
}

fn string_errors(text: &str) -> usize {
    static STRING_ERROR: LazyLock<Regex> = LazyLock::new(|| {
        // The first type may have parameters, and these may have parameters too.
        Regex::new(r"\bResult<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*,\s*String,?\s*>").expect("a pattern")
    });
    STRING_ERROR.find_iter(text).count()
}
