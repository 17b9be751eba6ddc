//! Records as local syslog daemons read them: the format of syslog(3), without the time.
//!
//! RFC 5424 is not used, because neither journald nor rsyslog's input for this socket parses its header. The time is left out,
//! because RFC 3164 has local time without a zone. Daemons use the time of arrival.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::printable;
use crate::settings::Facility;

/// The severity of an event, with its number from RFC 5424, table 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Something does not work.
    Error = 3,
    /// Something will fail, or does not work as it should.
    Warning = 4,
    /// Normal operation. Access records have this severity too.
    Info = 6,
    /// Details for troubleshooting.
    Debug = 7,
}

/// Maximum bytes of one record; the rest is truncated. rsyslog accepts 8 KiB per message by default.
pub(crate) const RECORD_BYTES_MAX: usize = 8 << 10;

/// The bytes that precede the text: priority, tag and process ID.
pub(crate) fn head(facility: Facility, severity: Severity, pid: u32) -> Vec<u8> {
    let priority = facility.code() * 8 + severity as u8;
    format!("<{priority}>{}[{pid}]: ", crate::IDENTIFIER).into_bytes()
}

/// Truncates the record that starts at `start` to the maximum length, and marks it as truncated.
pub(crate) fn cut(record: &mut Vec<u8>, start: usize) {
    if record.len() - start > RECORD_BYTES_MAX {
        let kept = &record[start..start + RECORD_BYTES_MAX - CUT.len()];
        let whole = kept
            .utf8_chunks()
            .next()
            .map_or(0, |first| first.valid().len());
        record.truncate(start + whole);
        record.extend_from_slice(CUT);
    }
}

/// An event as one line of text: its message, then its fields.
pub(crate) fn text(message: &str, fields: &[(&str, String)]) -> String {
    let mut text = printable::line(message).into_owned();
    for (name, value) in fields {
        write!(text, " {name}={}", quoted(value)).expect("writing to a String cannot fail");
    }
    text
}

/// Formats a field's value, which follows `name=`. It is in double quotes unless it is a plain word, so that a value cannot
/// look like another field.
fn quoted(value: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '=');
    if !value.is_empty() && value.chars().all(is_plain) {
        return Cow::Borrowed(value);
    }
    let escaped = value.replace('\\', r"\\").replace('"', "\\\"");
    Cow::Owned(format!("\"{}\"", printable::line(&escaped)))
}

const CUT: &[u8] = b"...";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_with_values_in_quotes_unless_they_are_plain_words() {
        for (value, shown) in [
            ("10.0.0.1:8140", "10.0.0.1:8140"),
            ("connection refused", r#""connection refused""#),
            ("", r#""""#),
            ("a member=b", r#""a member=b""#),
            (r#"say "hi" \"#, r#""say \"hi\" \\""#),
            ("two\nlines", r#""two\x0alines""#),
            ("CN=Puppet CA", r#""CN=Puppet CA""#),
        ] {
            let text = text("first\nsecond", &[("value", value.to_owned())]);
            assert_eq!(text, format!(r"first\x0asecond value={shown}"));
        }
    }
}
