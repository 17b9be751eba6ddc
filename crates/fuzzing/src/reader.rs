//! Parses distinguished names strictly by their grammars: RFC 4514 §3 without the optional leniencies, and OpenSSL's
//! one-line format.

/// An attribute type and its value, as written in the text.
pub(crate) type Pair = (String, Value);

/// An attribute value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// The bytes of a string.
    Text(Vec<u8>),
    /// The bytes of a DER encoding, written as `#` and hexadecimal digits.
    Encoded(Vec<u8>),
}

/// The RDNs of a name, in the order of the text. `None` if the text is not a valid name or is ambiguous.
pub(crate) fn rfc4514(text: &str) -> Option<Vec<Vec<Pair>>> {
    let mut rest = text.as_bytes();
    let mut rdns = vec![Vec::new()];
    loop {
        let (pair, after) = pair(rest)?;
        rdns.last_mut()?.push(pair);
        match after.split_first() {
            None => return Some(rdns),
            Some((b'+', after)) => rest = after,
            Some((b',', after)) => {
                rdns.push(Vec::new());
                rest = after;
            }
            Some(_) => return None,
        }
    }
}

fn pair(bytes: &[u8]) -> Option<(Pair, &[u8])> {
    let at = bytes.iter().position(|byte| *byte == b'=')?;
    let (kind, rest) = (&bytes[..at], &bytes[at + 1..]);
    let kind = kind_of(kind)?;
    match rest.strip_prefix(b"#") {
        Some(rest) => {
            let digits = rest.iter().take_while(|byte| byte.is_ascii_hexdigit());
            let (digits, rest) = rest.split_at(digits.count());
            Some(((kind, Value::Encoded(decode_hex(digits)?)), rest))
        }
        None => {
            let (value, rest) = string(rest)?;
            Some(((kind, Value::Text(value)), rest))
        }
    }
}

fn kind_of(kind: &[u8]) -> Option<String> {
    let name = kind.first()?.is_ascii_alphabetic() && kind.iter().all(u8::is_ascii_alphabetic);
    let dotted = kind
        .split(|byte| *byte == b'.')
        .all(|arc| !arc.is_empty() && arc.iter().all(u8::is_ascii_digit));
    (name || dotted).then(|| String::from_utf8_lossy(kind).into_owned())
}

fn string(mut bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut value = Vec::new();
    let mut last_is_blank = false;
    while let Some((first, rest)) = bytes.split_first() {
        let blank = *first == b' ';
        (bytes, last_is_blank) = match first {
            b',' | b'+' => break,
            b'"' | b';' | b'<' | b'>' | b'=' | 0x7f.. | ..0x20 => return None,
            b' ' | b'#' if value.is_empty() => return None,
            b'\\' => match rest {
                [sign, rest @ ..] if b" \"#+,;<=>\\".contains(sign) => {
                    value.push(*sign);
                    (rest, false)
                }
                [high, low, rest @ ..] => {
                    value.extend(decode_hex(&[*high, *low])?);
                    (rest, false)
                }
                _ => return None,
            },
            raw => {
                value.push(*raw);
                (rest, blank)
            }
        };
    }
    (!last_is_blank).then_some((value, bytes))
}

/// The attributes in a text from `X509_NAME_oneline`. `None` if the text is malformed or ambiguous.
pub(crate) fn one_line(text: &str) -> Option<Vec<Pair>> {
    let attributes = text.strip_prefix('/')?.split('/');
    attributes
        .map(|attribute| {
            let (kind, value) = attribute.split_once('=')?;
            let kind = kind_of(kind.as_bytes())?;
            let value = match value.strip_prefix('#') {
                Some(digits) => Value::Encoded(decode_hex(digits.as_bytes())?),
                None => Value::Text(unescaped(value)?),
            };
            Some((kind, value))
        })
        .collect()
}

fn unescaped(value: &str) -> Option<Vec<u8>> {
    let mut parts = value.split("\\x");
    let mut out = parts.next()?.as_bytes().to_vec();
    for part in parts {
        out.extend(decode_hex(part.as_bytes().get(..2)?)?);
        out.extend_from_slice(&part.as_bytes()[2..]);
    }
    let raw = value.replace("\\x", "");
    let plain = |c: char| (' '..='~').contains(&c) && !",+\"'\\<>;=#".contains(c);
    raw.chars().all(plain).then_some(out)
}

fn decode_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(digits).ok()?;
    let pair = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(pair).collect()
}
