//! Events have the words of the status and of the manual, so their fields are written with `Display`.

use std::sync::LazyLock;

use regex::Regex;

use super::{is_test, sources};

#[test]
fn no_event_shows_a_field_in_the_notation_of_rust() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        if is_test(&path) || path.starts_with("crates/xtask") || path.starts_with("crates/testkit")
        {
            continue;
        }
        let found = debug_fields(&text).into_iter();
        wrong.extend(found.map(|event| format!("    {}: {event}", path.display())));
    }
    assert!(
        wrong.is_empty(),
        "events with `?field` (implement `Display` and write `%field`):\n{}",
        wrong.join("\n")
    );
}

#[test]
fn fields_in_the_notation_of_rust_are_found_across_lines() {
    let text = r#"tracing::warn!(pool, ?from, "a (b"); info!(
        result = ?outcome.result,
        "reloaded?"
    ); debug!(count = parse(text)?, %error, "why, ?what"); error_span!("a", ?b); format!("{:?}", ?c)"#;
    let found = debug_fields(text);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[1].contains("?outcome.result"), "{found:?}");
}

/// The events and spans with a field that is written with `Debug`.
fn debug_fields(text: &str) -> Vec<String> {
    static EVENT: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\b(?:error|warn|info|debug|trace|event|(?:[a-z]+_)?span)!\(")
            .expect("a pattern")
    });
    static FIELD: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"[(,=]\s*\?[a-zA-Z_]").expect("a pattern"));
    let events = EVENT.find_iter(text);
    let events = events.map(|found| without_strings(&text[found.start()..]));
    events.filter(|event| FIELD.is_match(event)).collect()
}

/// The text to the parenthesis that closes its first one. Strings are empty in it.
fn without_strings(text: &str) -> String {
    static STRING: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r#"(?s)^"(?:[^"\\]|\\.)*""#).expect("a pattern"));
    let (mut depth, mut short) = (0, String::new());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        if let Some(string) = STRING.find(rest) {
            rest = &rest[string.end()..];
            continue;
        }
        rest = &rest[next.len_utf8()..];
        short.push(next);
        match next {
            '(' => depth += 1,
            ')' if depth == 1 => break,
            ')' => depth -= 1,
            _ => {}
        }
    }
    short
}
