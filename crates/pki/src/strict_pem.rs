//! A text that is one PEM block and nothing else, or several for every reader alike.
//!
//! Readers of PEM skip what they do not know, each something else: a second block, or lines before the first, would be
//! judged here and read otherwise by who gets the same bytes.

use rustls_pki_types::pem::{PemObject, SectionKind};

/// The DER of the one block of this label.
///
/// # Errors
/// What else the text is, as the end of a sentence.
pub(crate) fn only_block(text: &[u8], label: &str) -> Result<Vec<u8>, String> {
    let (begin, end) = (
        format!("-----BEGIN {label}-----"),
        format!("-----END {label}-----"),
    );
    let whole = text.trim_ascii();
    let inner = whole
        .strip_prefix(begin.as_bytes())
        .ok_or_else(|| format!("it does not begin with the line \"{begin}\""))?;
    let inner = inner
        .strip_suffix(end.as_bytes())
        .ok_or_else(|| format!("it does not end with the line \"{end}\""))?;
    if !inner.starts_with(b"\n") && !inner.starts_with(b"\r\n") || !inner.ends_with(b"\n") {
        return Err("its BEGIN and END are not on lines of their own".to_owned());
    }
    if !is_base64(inner) {
        return Err("between its BEGIN and END lines is something other than base64".to_owned());
    }
    match <(SectionKind, Vec<u8>)>::from_pem_slice(whole) {
        Ok((_, der)) => Ok(der),
        Err(_) => Err("its base64 is invalid".to_owned()),
    }
}

/// Whether every reader of PEM finds the same blocks in a text, all of this label: each begins and ends on a line of its
/// own, and what stands between them has not even the dashes of another. What is in them is not looked at.
pub(crate) fn has_only(text: &[u8], label: &str) -> bool {
    let (begin, end) = (
        format!("-----BEGIN {label}-----"),
        format!("-----END {label}-----"),
    );
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    let mut inside = false;
    for line in text.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        inside = match inside {
            false if !line.windows(DASHES.len()).any(|part| part == DASHES) => false,
            false if line == begin.as_bytes() => true,
            true if line == end.as_bytes() => false,
            true if line.iter().all(is_digit) => true,
            _ => return false,
        };
    }
    !inside
}

/// The alphabet in lines, padding at the end alone.
fn is_base64(text: &[u8]) -> bool {
    let mut digits = text.iter().filter(|byte| !matches!(byte, b'\r' | b'\n'));
    let is_digit = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let mut count = 0;
    let padding = loop {
        match digits.next() {
            Some(byte) if is_digit(&byte) => count += 1,
            Some(b'=') => break 1 + digits.clone().count(),
            Some(_) => return false,
            None => break 0,
        }
    };
    let only_padding = digits.all(|byte| *byte == b'=');
    only_padding && padding <= 2 && (count + padding) % 4 == 0
}

/// What a block begins and ends with, for whoever looks for it anywhere in a line.
const DASHES: &[u8] = b"-----";
