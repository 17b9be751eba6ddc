//! PEM documents that every parser reads in the same way: exactly one block, or several blocks with one label.
//!
//! Parsers skip text that they do not know, and they differ in what they skip. If there is a second block, or a line before the
//! first, a recipient of the same bytes might read another certificate than the one that the proxy checked.

use base64::{
    Engine as _,
    alphabet::STANDARD,
    engine::{GeneralPurpose, GeneralPurposeConfig},
};

/// The DER of the only block, which has this label.
///
/// # Errors
/// What is wrong with the document, as the second part of a sentence.
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
    let digits: Vec<u8> = inner
        .split(|byte| b"\r\n".contains(byte))
        .flatten()
        .copied()
        .collect();
    let decoded = BASE64.decode(digits);
    decoded.map_err(|_| "between its BEGIN and END lines is something other than base64".to_owned())
}

/// Whether every parser finds the same blocks, all with this label. Each block starts and ends on its own line, and no
/// other line contains the dashes of a block. The content of the blocks is not checked.
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

/// Like other PEM parsers, this ignores those bits of the last digit that encode nothing.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// The start and the end of a block contain these dashes. Some parsers search for them within lines.
const DASHES: &[u8] = b"-----";
