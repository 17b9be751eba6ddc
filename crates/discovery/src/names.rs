//! Host names and the patterns that cover them.

/// Whether `pattern` covers a host name: the name itself, or `*.` and everything after the name's first label. Letters of
/// either case are equal.
pub fn is_covered(name: &str, pattern: &str) -> bool {
    match pattern.strip_prefix("*.") {
        Some(suffix) => name
            .split_once('.')
            .is_some_and(|(first, rest)| !first.is_empty() && rest.eq_ignore_ascii_case(suffix)),
        None => name.eq_ignore_ascii_case(pattern),
    }
}

/// Whether a target is a host name that a configuration could name too.
pub(crate) fn is_host_name(name: &str) -> bool {
    let label = |label: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=63).contains(&label.len()) && label.bytes().all(plain)
    };
    name.len() <= 253 && name.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_stands_for_one_label() {
        for (name, pattern, expected) in [
            ("c1.example.com", "c1.example.com", true),
            ("C1.example.com", "c1.Example.com", true),
            ("c1.example.com", "*.example.com", true),
            ("c1.site.example.com", "*.example.com", false),
            ("example.com", "*.example.com", false),
            (".example.com", "*.example.com", false),
            ("c1.example.com.evil.test", "*.example.com", false),
            ("c2.example.com", "c1.example.com", false),
        ] {
            assert_eq!(is_covered(name, pattern), expected, "{name} {pattern}");
        }
    }
}
