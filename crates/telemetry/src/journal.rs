//! Formats records in the journal's native protocol. Each entry is a datagram of named fields.
//!
//! A value is always preceded by its length, so its content cannot end the value and start another field or entry.

use crate::printable;
use crate::syslog::{self, Severity};

/// Prefix of each field that the journal does not define, to avoid name collisions.
pub(crate) const PREFIX: &str = "PROSCENIUM_";

/// Starts an entry.
pub(crate) fn begin(entry: &mut Vec<u8>, severity: Severity) {
    let identifier = crate::IDENTIFIER;
    let head = format!(
        "PRIORITY={}\nSYSLOG_IDENTIFIER={identifier}\n",
        severity as u8
    );
    entry.extend_from_slice(head.as_bytes());
}

/// Adds a field. `write` appends its value. `name` is a constant of the program, never text from a peer.
pub(crate) fn push_field(
    entry: &mut Vec<u8>,
    prefix: &str,
    name: &str,
    write: impl FnOnce(&mut Vec<u8>),
) {
    entry.extend_from_slice(prefix.as_bytes());
    let room = NAME_BYTES_MAX - prefix.len();
    entry.extend(name.bytes().take(room).map(|byte| {
        if byte.is_ascii_alphanumeric() {
            byte.to_ascii_uppercase()
        } else {
            b'_'
        }
    }));
    entry.push(b'\n');
    let length_at = entry.len();
    entry.extend_from_slice(&[0; size_of::<u64>()]);
    let start = entry.len();
    write(entry);
    let length = (entry.len() - start) as u64;
    entry[length_at..start].copy_from_slice(&length.to_le_bytes());
    entry.push(b'\n');
}

/// An event as an entry.
pub(crate) fn push_event(
    entry: &mut Vec<u8>,
    severity: Severity,
    part: &str,
    message: &str,
    fields: &[(&str, String)],
) {
    begin(entry, severity);
    let text = syslog::text(message, fields);
    push_field(entry, "", "MESSAGE", |entry| {
        push_cut(entry, &text, MESSAGE_BYTES_MAX)
    });
    push_field(entry, PREFIX, "PART", |entry| {
        push_cut(entry, part, VALUE_BYTES_MAX)
    });
    for (name, value) in fields {
        let value = printable::lines(value);
        push_field(entry, PREFIX, name, |entry| {
            push_cut(entry, &value, VALUE_BYTES_MAX)
        });
    }
}

fn push_cut(entry: &mut Vec<u8>, text: &str, max: usize) {
    let end = text.floor_char_boundary(max);
    entry.extend_from_slice(&text.as_bytes()[..end]);
    if end < text.len() {
        entry.extend_from_slice(b"...");
    }
}

/// Maximum length of a name that journald accepts.
const NAME_BYTES_MAX: usize = 64;

/// Maximum bytes of an event's message. With at most 32 fields it stays under the 208 KiB that a socket sends at once by
/// default (`net.core.wmem_default`). An access record is much smaller.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// Maximum bytes of one field of an event.
const VALUE_BYTES_MAX: usize = 4 << 10;
