//! Host names and the patterns that cover them.

/// Whether `pattern` covers a host name. It is the name itself, or `*.` and everything after the name's first label.
/// Case does not matter.
pub fn is_covered(name: &str, pattern: &str) -> bool {
    match pattern.strip_prefix("*.") {
        Some(suffix) => name
            .split_once('.')
            .is_some_and(|(first, rest)| !first.is_empty() && rest.eq_ignore_ascii_case(suffix)),
        None => name.eq_ignore_ascii_case(pattern),
    }
}

/// Whether a target is a host name that a configuration could contain too, and that a certificate can contain.
pub(crate) fn is_host_name(name: &str) -> bool {
    let label = |label: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let hyphen_at_end = label.starts_with('-') || label.ends_with('-');
        (1..=63).contains(&label.len()) && label.bytes().all(plain) && !hyphen_at_end
    };
    // A name whose last label is a number is an IP address, or a malformed one.
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit());
    name.len() <= 253 && name.split('.').all(label) && !is_number
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

    #[test]
    fn a_target_is_a_name_that_a_certificate_can_contain() {
        for name in [
            "c1.example.com",
            "c_1.example.com",
            "localhost",
            "3.example.com",
        ] {
            assert!(is_host_name(name), "{name}");
        }
        let long = "a".repeat(64);
        for name in [
            "",
            ".",
            "c1..example.com",
            "c1.example.com.",
            "-c1.example.com",
            "c1-.example.com",
            "c1.example.7",
            "192.0.2.1",
            "c 1.example.com",
            "c\u{e4}.example.com",
            &long,
        ] {
            assert!(!is_host_name(name), "{name}");
        }
    }
}
