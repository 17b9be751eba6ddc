//! Query parameters and cookies of a request, for conditions. A value that two servers could read differently never
//! matches.

use http1::Fields;

/// Whether the query has the parameter `name` exactly once, with this value.
///
/// Names and values are compared in decoded form, as a server sees them: `+` is a space, and `%xx` is a byte. Older servers
/// split a query at a raw `;` and newer ones do not, so a query that contains a raw `;` never matches.
pub(crate) fn parameter_is(query: &str, name: &str, value: &str) -> bool {
    if query.contains(';') {
        return false;
    }
    let pairs = query.as_bytes().split(|byte| *byte == b'&');
    let named = pairs
        .map(parted)
        .filter(|(raw, _)| decodes_to(raw, name.as_bytes()));
    only(named).is_some_and(|(_, raw)| decodes_to(raw, value.as_bytes()))
}

/// Whether the request has the cookie `name` exactly once in all its Cookie fields, with this value. The value is compared byte
/// for byte: quotes and escapes are part of it (RFC 6265, 4.1.1).
pub(crate) fn cookie_is(fields: &Fields, name: &str, value: &str) -> bool {
    cookie_value(fields, name) == Some(value.as_bytes())
}

/// The value of the cookie `name`, byte for byte, if the request has it exactly once in all its Cookie fields.
pub fn cookie_value<'h>(fields: &'h Fields, name: &str) -> Option<&'h [u8]> {
    let pairs = fields
        .all("cookie")
        .flat_map(|field| field.split(|byte| *byte == b';'));
    let named = pairs
        .map(parted)
        .filter(|(raw, _)| raw.trim_ascii() == name.as_bytes());
    only(named).map(|(_, raw)| raw.trim_ascii())
}

/// Splits a pair into name and value. Without `=` the value is empty.
fn parted(pair: &[u8]) -> (&[u8], &[u8]) {
    match pair.iter().position(|byte| *byte == b'=') {
        Some(at) => (&pair[..at], &pair[at + 1..]),
        None => (pair, b""),
    }
}

/// Returns the only element. `None` if there are two, because servers would use the first, the last or both.
fn only<T>(mut found: impl Iterator<Item = T>) -> Option<T> {
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

/// Whether `raw` decodes to these bytes. A text with an invalid escape does not match.
fn decodes_to(mut raw: &[u8], wanted: &[u8]) -> bool {
    for expected in wanted {
        let (byte, length) = match raw {
            [b'%', high, low, ..] => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, 3),
                _ => return false,
            },
            [b'%', ..] | [] => return false,
            [b'+', ..] => (b' ', 1),
            [plain, ..] => (*plain, 1),
        };
        if byte != *expected {
            return false;
        }
        raw = &raw[length..];
    }
    raw.is_empty()
}

/// The decoded bytes of `raw`. An invalid escape stays as it is.
pub(crate) fn decoded(raw: &str) -> Vec<u8> {
    let (mut raw, mut bytes) = (raw.as_bytes(), Vec::new());
    while let Some(first) = raw.first() {
        let escape = match raw {
            [b'%', high, low, ..] => digit(*high).zip(digit(*low)),
            _ => None,
        };
        let (byte, length) = match (escape, first) {
            (Some((high, low)), _) => (high << 4 | low, 3),
            (None, b'+') => (b' ', 1),
            (None, plain) => (*plain, 1),
        };
        bytes.push(byte);
        raw = &raw[length..];
    }
    bytes
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte)
        .to_digit(16)
        .and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn a_parameter_is_compared_as_a_server_reads_it() {
        for (query, holds) in [
            ("site=a b", false),
            ("site=a+b%2b", true),
            ("site=a%20b%2B", true),
            ("%73ite=a+b%2B&x", true),
            ("x=1&site=a+b%2B", true),
            ("x=site=a+b%2B", false),
            ("Site=a+b%2B", false),
            ("site=a+b%2", false),
            ("site=a+b%2B%", false),
            ("site=a+b%2Bc", false),
            ("site", false),
            ("", false),
        ] {
            assert_eq!(parameter_is(query, "site", "a b+"), holds, "{query}");
        }
        for query in ["site", "site=", "x&site&y"] {
            assert!(parameter_is(query, "site", ""), "{query}");
        }
        assert!(parameter_is("site=%C3%BC", "site", "ü"));
    }

    #[test]
    fn a_parameter_that_servers_read_differently_does_not_match() {
        for query in [
            "site=north&site=north",
            "site=north&site=south",
            "site=north&%73ite=south",
            "site=north&site",
            "site=north&site=%zz",
            "site=north;x=y",
            "x=1;site=south&site=north",
        ] {
            assert!(!parameter_is(query, "site", "north"), "{query}");
        }
    }

    #[test]
    fn a_cookie_is_compared_byte_for_byte_and_counted_over_all_fields() {
        for (fields, holds) in [
            (&["site=north"][..], true),
            (&["a=b; site=north; c=d"], true),
            (&["a=b;site=north"], true),
            (&["a=b", "site=north"], true),
            (&["site = north "], true),
            (&["Site=north"], false),
            (&["site=North"], false),
            (&["site=\"north\""], false),
            (&["site=n%6frth"], false),
            (&["xsite=north"], false),
            (&["a=site=north"], false),
            (&["site=north; site=north"], false),
            (&["site=north; site=south"], false),
            (&["site=north", "site=south"], false),
            (&["site=north; site"], false),
            (&["site"], false),
            (&[], false),
        ] {
            let lines = fields.iter();
            let sent: Fields = lines
                .map(|value| (&b"cookie"[..], value.as_bytes()))
                .collect();
            assert_eq!(cookie_is(&sent, "site", "north"), holds, "{fields:?}");
        }
    }
}
