//! A simple, tolerant DER reader and writer. It shares no code with the product's parsers.

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// Encodes a tag, a length and a value.
pub(crate) fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let length = content.len().to_be_bytes();
    let digits = length.iter().copied().skip_while(|byte| *byte == 0);
    match content.len() {
        short @ ..0x80 => out.push(short as u8),
        _ => {
            let digits: Vec<u8> = digits.collect();
            out.push(0x80 | digits.len() as u8);
            out.extend(digits);
        }
    }
    out.extend_from_slice(content);
    out
}

/// Encodes the concatenated parts under one tag.
pub(crate) fn all(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    tlv(tag, &parts.concat())
}

/// The tag and value of the first element, and the remaining bytes.
pub(crate) fn split(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        short @ ..0x80 => (usize::from(*short), rest),
        long => {
            let (digits, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            let number = digits.iter().try_fold(0_usize, |n, byte| {
                n.checked_mul(256)?.checked_add(usize::from(*byte))
            })?;
            (number, rest)
        }
    };
    let (value, rest) = rest.split_at_checked(length)?;
    Some((*tag, value, rest))
}

/// The tag and value of each element of `bytes`, up to the first element that cannot be parsed.
pub(crate) fn elements(mut bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let mut found = Vec::new();
    while let Some((tag, value, rest)) = split(bytes) {
        found.push((tag, value));
        bytes = rest;
    }
    found
}

/// Encodes the arcs of an OID, without tag and length.
pub(crate) fn oid(arcs: &[u32]) -> Vec<u8> {
    let mut out = Vec::new();
    let first = arcs[0] * 40 + arcs[1];
    for arc in std::iter::once(&first).chain(&arcs[2..]) {
        let groups = (1..=4).rev().filter(|group| arc >> (7 * group) != 0);
        out.extend(groups.map(|group| 0x80 | (arc >> (7 * group) & 0x7f) as u8));
        out.push((arc & 0x7f) as u8);
    }
    out
}

/// The content of an INTEGER without redundant leading bytes.
pub(crate) fn shortest(mut integer: &[u8]) -> &[u8] {
    while integer.len() > 1
        && (integer[0] == 0 && integer[1] < 0x80 || integer[0] == 0xff && integer[1] >= 0x80)
    {
        integer = &integer[1..];
    }
    integer
}

/// Encodes one PEM block.
pub(crate) fn pem(label: &str, content: &[u8]) -> Vec<u8> {
    let digits = STANDARD.encode(content).into_bytes();
    let lines = digits.chunks(64).collect::<Vec<_>>().join(&b'\n');
    let begin = format!("-----BEGIN {label}-----\n");
    let end = format!("\n-----END {label}-----\n");
    [begin.as_bytes(), &lines, end.as_bytes()].concat()
}
