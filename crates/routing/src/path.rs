//! The path rule: the proxy sends exactly the bytes that it matches, and rejects a path that two servers could interpret
//! differently.
//!
//! A Puppet server percent-decodes the path, removes `;parameters` and merges `//` before it selects the endpoint. The
//! proxy selects the class by the first segments, so these must not contain escapes, parameters or empty segments.

/// A request path that complies with the rule, exactly as received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CanonicalPath<'a>(&'a str);

/// A violation of the path rule. The client receives its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathProblem {
    /// The target is an asterisk or an authority, or it is empty.
    #[error("The path does not begin with a slash.")]
    NotAbsolute,
    /// A byte that is not allowed unescaped in a path.
    #[error("The path contains the byte 0x{0:02x}, which is not allowed in a path.")]
    Byte(u8),
    /// A byte that is not allowed unescaped in a query.
    #[error("The query contains the byte 0x{0:02x}, which is not allowed in a request target.")]
    QueryByte(u8),
    /// `.` or `..`, raw or escaped, with or without parameters.
    #[error("The path contains a dot segment (\".\" or \"..\").")]
    DotSegment,
    /// `%` without two hexadecimal digits.
    #[error("The path contains a percent sign that is not followed by two hexadecimal digits.")]
    BadEscape,
    /// `%2f`, `%5c` or `%00`.
    #[error("The path contains an escaped slash, backslash or NUL (%{0:02x}).")]
    ForbiddenEscape(u8),
    /// Escapes that do not decode to UTF-8.
    #[error("The escapes in the path do not decode to UTF-8.")]
    NotUtf8,
    /// `%` in a segment that names the endpoint or a certname.
    #[error("The first three segments of a path and a certname must not be percent-escaped.")]
    EscapedName,
    /// `;` in a segment that names the endpoint or a certname.
    #[error("The first three segments of a path and a certname must not have parameters (\";\").")]
    Parameters,
    /// `//` where a segment must name the endpoint or a certname.
    #[error(
        "The path has an empty segment (\"//\") in its first three segments or where a certname belongs."
    )]
    EmptySegment,
}

impl PathProblem {
    /// The name in records and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotAbsolute => "path-not-absolute",
            Self::Byte(_) => "path-byte",
            Self::QueryByte(_) => "query-byte",
            Self::DotSegment => "path-dot-segment",
            Self::BadEscape => "path-bad-escape",
            Self::ForbiddenEscape(_) => "path-forbidden-escape",
            Self::NotUtf8 => "path-not-utf8",
            Self::EscapedName => "path-escaped-name",
            Self::Parameters => "path-parameters",
            Self::EmptySegment => "path-empty-segment",
        }
    }
}

impl<'a> CanonicalPath<'a> {
    /// Checks a request target: its path, then its query.
    ///
    /// # Errors
    /// Returns the part of the rule that the target violates. The proxy responds with 400.
    pub fn of_target(path: &'a str, query: Option<&str>) -> Result<Self, PathProblem> {
        let path = Self::check(path)?;
        query.map_or(Ok(()), check_query)?;
        Ok(path)
    }

    /// Checks a path as written in the request line, without the query.
    ///
    /// # Errors
    /// Returns the part of the rule that the path violates. The proxy responds with 400.
    pub fn check(raw: &'a str) -> Result<Self, PathProblem> {
        if is_plain(raw.as_bytes()) {
            return Ok(Self(raw));
        }
        Self::check_thoroughly(raw)
    }

    /// Applies the complete rule.
    fn check_thoroughly(raw: &'a str) -> Result<Self, PathProblem> {
        let segments = raw.strip_prefix('/').ok_or(PathProblem::NotAbsolute)?;
        if let Some(byte) = raw.bytes().find(|byte| !is_path_byte(*byte)) {
            return Err(PathProblem::Byte(byte));
        }
        // Searches bytes from here on, because a string search costs more for strings this short.
        let segments = segments.as_bytes();
        let names = certname_index(segments);
        let mut parts = segments.split(is_slash).enumerate().peekable();
        while let Some((index, segment)) = parts.next() {
            if index < NAMING_SEGMENTS || Some(index) == names {
                check_naming(segment, parts.peek().is_none())?;
            }
            check_segment(segment)?;
        }
        Ok(Self(raw))
    }

    /// The path, byte for byte as received.
    pub const fn as_str(&self) -> &'a str {
        self.0
    }
}

/// Checks a query, without its question mark. The query does not name an endpoint, so this only rejects bytes that are
/// not allowed anywhere in a request target.
///
/// # Errors
/// [`PathProblem::QueryByte`] for a control byte, a space, `#`, or a byte above 0x7e.
pub fn check_query(raw: &str) -> Result<(), PathProblem> {
    let is_good = |byte: &u8| matches!(byte, 0x21..=0x7e) && *byte != b'#';
    // Check all bytes without an early exit, so that the compiler can vectorize the loop. Almost all queries are valid.
    let is_bad = raw.bytes().fold(false, |bad, byte| bad | !is_good(&byte));
    if !is_bad {
        return Ok(());
    }
    let bad = raw.bytes().find(|byte| !is_good(byte));
    bad.map_or(Ok(()), |byte| Err(PathProblem::QueryByte(byte)))
}

/// The index of the segment that contains a certname, if it is not among the naming segments. In paths of the CA and of an
/// agent's own documents it is the fourth segment.
fn certname_index(segments: &[u8]) -> Option<usize> {
    let mut segments = segments.split(is_slash);
    match [segments.next()?, segments.next()?, segments.next()?] {
        [b"puppet-ca", ..]
        | [
            b"puppet",
            b"v3",
            b"catalog" | b"node" | b"facts" | b"report",
        ] => Some(3),
        _ => None,
    }
}

const fn is_slash(byte: &u8) -> bool {
    *byte == b'/'
}

/// Checks a segment that names an endpoint or an agent.
fn check_naming(segment: &[u8], last: bool) -> Result<(), PathProblem> {
    if segment.is_empty() && !last {
        return Err(PathProblem::EmptySegment);
    }
    for byte in segment {
        match byte {
            b'%' => return Err(PathProblem::EscapedName),
            b';' => return Err(PathProblem::Parameters),
            _ => {}
        }
    }
    Ok(())
}

fn check_segment(segment: &[u8]) -> Result<(), PathProblem> {
    check_escapes(segment)?;
    (!is_dot_segment(segment))
        .then_some(())
        .ok_or(PathProblem::DotSegment)
}

/// Checks that every escape is well-formed, that no escape hides a byte that ends or splits a path, and that the decoded bytes
/// are UTF-8.
fn check_escapes(mut bytes: &[u8]) -> Result<(), PathProblem> {
    while let Some(at) = bytes.iter().position(|byte| *byte == b'%') {
        bytes = &bytes[at..];
        let first = escape(bytes).ok_or(PathProblem::BadEscape)?;
        if matches!(first, b'/' | b'\\' | 0) {
            return Err(PathProblem::ForbiddenEscape(first));
        }
        // Raw bytes are ASCII, so a multi-byte character consists of consecutive escapes.
        let length = utf8_length(first).ok_or(PathProblem::NotUtf8)?;
        let mut character = [0; 4];
        for place in &mut character[..length] {
            *place = match bytes.first() {
                Some(b'%') => escape(bytes).ok_or(PathProblem::BadEscape)?,
                _ => return Err(PathProblem::NotUtf8),
            };
            bytes = &bytes[3..];
        }
        if std::str::from_utf8(&character[..length]).is_err() {
            return Err(PathProblem::NotUtf8);
        }
    }
    Ok(())
}

/// Decodes the escape at the start of `bytes`.
fn escape(bytes: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    match bytes {
        [b'%', high, low, ..] => u8::try_from(digit(*high)? << 4 | digit(*low)?).ok(),
        _ => None,
    }
}

/// The length in bytes of the UTF-8 character that starts with `first`.
fn utf8_length(first: u8) -> Option<usize> {
    match first {
        0x00..=0x7f => Some(1),
        0xc2..=0xdf => Some(2),
        0xe0..=0xef => Some(3),
        0xf0..=0xf4 => Some(4),
        _ => None,
    }
}

/// Whether the segment is `.` or `..` once escapes are decoded and then parameters removed. A server does both in the same
/// order.
fn is_dot_segment(mut bytes: &[u8]) -> bool {
    let mut dots = 0;
    while let Some(first) = bytes.first() {
        let (byte, length) = match first {
            b'%' => (escape(bytes).unwrap_or(b'%'), 3),
            raw => (*raw, 1),
        };
        match byte {
            b'.' if dots < 2 => dots += 1,
            b';' => break,
            _ => return false,
        }
        bytes = bytes.get(length..).unwrap_or_default();
    }
    dots > 0
}

/// A fast check that almost all paths pass: no escapes, no parameters, no empty segments, and no segments that start with
/// a dot. A path that fails it may still comply with the rule. A path that passes it always complies.
fn is_plain(path: &[u8]) -> bool {
    let [b'/', rest @ ..] = path else {
        return false;
    };
    // Check all bytes without a branch, so that the compiler processes sixteen at a time.
    let odd = path.iter().fold(false, |odd, byte| {
        odd | !is_path_byte(*byte) | (*byte == b'%') | (*byte == b';')
    });
    let begins = path.iter().zip(rest).fold(false, |found, (before, byte)| {
        found | ((*before == b'/') & ((*byte == b'/') | (*byte == b'.')))
    });
    !odd && !begins
}

/// Whether the byte is visible ASCII, except the backslash and the characters that end a path.
const fn is_path_byte(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7e) & (byte != b'\\') & (byte != b'#') & (byte != b'?')
}

/// How many segments name the endpoint.
const NAMING_SEGMENTS: usize = 3;

#[cfg(test)]
mod tests;
