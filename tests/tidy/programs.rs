//! Tests start programs that a machine may lack only with `testkit::Tool`, which skips the test without them.

use super::{is_test, sources};

/// Programs of Debian's essential packages, which every machine has.
const ALWAYS_INSTALLED: &[&str] = &["bash", "grep", "mkfifo", "script", "sh", "tar", "true"];

#[test]
fn tests_start_optional_programs_through_testkit() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        for program in started(test_code(&path.to_string_lossy(), &text)) {
            if !ALWAYS_INSTALLED.contains(&program) {
                wrong.push(format!("    {}: {program}", path.display()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "start these programs with a `testkit::Tool`:\n{}",
        wrong.join("\n")
    );
}

/// The part of a file that only tests run.
fn test_code<'a>(path: &str, text: &'a str) -> &'a str {
    // Benchmarks and the automation are left out, because they are started by hand.
    let is_whole = path.starts_with("crates/testkit/") || is_test(path.as_ref());
    if is_whole && !path.contains("/benches/") {
        return text;
    }
    text.find("#[cfg(test)]\nmod tests {")
        .map_or("", |start| &text[start..])
}

/// The programs that a source text starts by name.
fn started(text: &str) -> impl Iterator<Item = &str> {
    text.split(concat!("Command::", "new("))
        .skip(1)
        .filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next())
}

#[test]
fn started_programs_are_found_in_tests_only() {
    let text = "Command::new(\"a\")\n#[cfg(test)]\nmod tests {\nprocess::Command::new(\n    \"/bin/b\",\n) Command::new(c)";
    for (path, expected) in [
        ("tests/x.rs", &["a", "/bin/b"][..]),
        ("crates/pki/tests/x.rs", &["a", "/bin/b"]),
        ("crates/testkit/src/x.rs", &["a", "/bin/b"]),
        ("crates/pki/src/x.rs", &["/bin/b"]),
        ("crates/pki/benches/x.rs", &["/bin/b"]),
    ] {
        let found: Vec<_> = started(test_code(path, text)).collect();
        assert_eq!(found, expected, "{path}");
    }
}
