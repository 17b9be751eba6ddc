//! A second parser for chunked bodies, which reads line by line and has all bytes at once.

pub(crate) enum Chunks {
    Whole(usize),
    Part,
    /// Malformed after this many valid bytes.
    Malformed(usize),
}

/// Parses a chunked body line by line, following the grammar of RFC 9112, section 7.1.
pub(crate) fn strict_chunks(bytes: &[u8]) -> Chunks {
    let mut at = 0;
    loop {
        let (line, end) = line_at(bytes, at);
        match size_line(line, end) {
            Line::Good => {}
            Line::Part => return Chunks::Part,
            Line::Bad(good) => return Chunks::Malformed(at + good),
        }
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit());
        let text = std::str::from_utf8(&line[..digits.count()]).unwrap_or_default();
        let size = u64::from_str_radix(text, 16).unwrap_or(u64::MAX);
        at += line.len() + 2;
        if size == 0 {
            break;
        }
        if size > (bytes.len() - at) as u64 {
            return Chunks::Part;
        }
        at += size as usize;
        for expected in *b"\r\n" {
            match bytes.get(at) {
                None => return Chunks::Part,
                Some(byte) if *byte == expected => at += 1,
                Some(_) => return Chunks::Malformed(at),
            }
        }
    }
    loop {
        let (line, end) = line_at(bytes, at);
        match trailer_line(line, end) {
            Line::Good => {}
            Line::Part => return Chunks::Part,
            Line::Bad(good) => return Chunks::Malformed(at + good),
        }
        at += line.len() + 2;
        if line.is_empty() {
            return Chunks::Whole(at);
        }
    }
}

enum Line {
    Good,
    Part,
    /// Malformed after this many valid bytes.
    Bad(usize),
}

/// Splits the bytes from `at` on at the first CR or LF, or at the end.
fn line_at(bytes: &[u8], at: usize) -> (&[u8], &[u8]) {
    let rest = bytes.get(at..).unwrap_or_default();
    let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
    rest.split_at(end.unwrap_or(rest.len()))
}

/// Checks the line end after a line that is valid and complete.
fn line_end(line: &[u8], end: &[u8]) -> Line {
    match end {
        [] | [b'\r'] => Line::Part,
        [b'\r', b'\n', ..] => Line::Good,
        [b'\r', ..] => Line::Bad(line.len() + 1),
        _ => Line::Bad(line.len()),
    }
}

/// `1*HEXDIG *( ";" token [ "=" ( token / quoted-string ) ] )`
fn size_line(line: &[u8], end: &[u8]) -> Line {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit());
    let digits = digits.count();
    if digits > 16 {
        return Line::Bad(16);
    }
    let mut at = digits;
    if digits == 0 {
        return match (line, end) {
            ([], []) => Line::Part,
            _ => Line::Bad(0),
        };
    }
    while at < line.len() {
        if line[at] != b';' {
            return Line::Bad(at);
        }
        at += 1;
        let name = tokens(&line[at..]);
        if name == 0 {
            return incomplete(at, line, end);
        }
        at += name;
        if line.get(at) != Some(&b'=') {
            continue;
        }
        at += 1;
        if line.get(at) == Some(&b'"') {
            at += 1;
            loop {
                match line.get(at..).unwrap_or_default() {
                    [] => return incomplete(at, line, end),
                    [b'"', ..] => break,
                    [b'\\'] => return incomplete(at + 1, line, end),
                    [b'\\', escaped, ..] if is_text(*escaped) => at += 2,
                    [b'\\', ..] => return Line::Bad(at + 1),
                    [byte, ..] if is_text(*byte) => at += 1,
                    _ => return Line::Bad(at),
                }
            }
            at += 1;
        } else {
            let value = tokens(&line[at..]);
            if value == 0 {
                return incomplete(at, line, end);
            }
            at += value;
        }
    }
    line_end(line, end)
}

/// The line is incomplete at `at`. It is malformed unless the missing bytes have not arrived yet.
fn incomplete(at: usize, line: &[u8], end: &[u8]) -> Line {
    if at == line.len() && end.is_empty() {
        Line::Part
    } else {
        Line::Bad(at)
    }
}

/// `token ":" *text`, or an empty line.
fn trailer_line(line: &[u8], end: &[u8]) -> Line {
    if line.is_empty() {
        return line_end(line, end);
    }
    let name = tokens(line);
    if name == 0 || line.get(name) != Some(&b':') {
        return incomplete(name, line, end);
    }
    let value = &line[name + 1..];
    match value.iter().position(|byte| !is_text(*byte)) {
        Some(odd) => Line::Bad(name + 1 + odd),
        None => line_end(line, end),
    }
}

fn tokens(bytes: &[u8]) -> usize {
    let is_token =
        |byte: &&u8| byte.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(char::from(**byte));
    bytes.iter().take_while(is_token).count()
}

fn is_text(byte: u8) -> bool {
    byte == b'\t' || byte >= b' ' && byte != 0x7f
}
