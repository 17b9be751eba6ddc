//! Records as local syslog daemons read them: what syslog(3) sends, without the time.
//!
//! RFC 5424 is not spoken at this socket: neither journald nor rsyslog's input for it reads that header. The time is
//! left out because that of RFC 3164 is local and tells no zone; daemons put the moment of arrival in its place.

use std::fmt::Write as _;

use crate::printable;
use crate::settings::Facility;

/// How grave an event is: the number of RFC 5424, table 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Something does not work.
    Error = 3,
    /// Something will not work, or not as it should.
    Warning = 4,
    /// Something happened, as it should. Access records too.
    Info = 6,
    /// For those who look for a fault.
    Debug = 7,
}

/// Most bytes of one record; the rest is cut. rsyslog takes 8 KiB of a message where it is told nothing else.
pub(crate) const RECORD_BYTES_MAX: usize = 8 << 10;

/// What stands before the text: priority, tag and process.
pub(crate) fn head(facility: Facility, severity: Severity, pid: u32) -> Vec<u8> {
    let priority = facility.code() * 8 + severity as u8;
    format!("<{priority}>{}[{pid}]: ", crate::IDENTIFIER).into_bytes()
}

/// Cuts what stands from `start` on to what a daemon takes, and shows it.
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

/// An event as one line of text: its words, then its fields.
pub(crate) fn text(part: &str, message: &str, fields: &[(&str, String)]) -> String {
    let mut text = format!("{part}: {}", printable::line(message));
    for (name, value) in fields {
        write!(text, " {name}={}", printable::line(value))
            .expect("writing to a String cannot fail");
    }
    text
}

const CUT: &[u8] = b"...";
