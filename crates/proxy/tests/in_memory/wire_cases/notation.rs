//! The notation of bytes in the tables.

use std::fmt::Write;

/// The bytes of a line in a table, in pieces. Each piece comes with whether it is a repeated text.
pub(super) fn pieces(line: &str) -> impl Iterator<Item = (Vec<u8>, bool)> {
    line.split(['{', '}'])
        .enumerate()
        .map(|(index, piece)| match piece.rsplit_once('*') {
            Some((text, count)) if index % 2 == 1 => (
                unescaped(text).repeat(count.parse().expect("a count")),
                true,
            ),
            _ => (unescaped(piece), false),
        })
}

fn unescaped(text: &str) -> Vec<u8> {
    let (begin, escapes) = text
        .split_once('\\')
        .map_or((text, None), |(begin, rest)| (begin, Some(rest)));
    let mut bytes = begin.as_bytes().to_vec();
    for escape in escapes.into_iter().flat_map(|rest| rest.split('\\')) {
        let (byte, length) = match escape.as_bytes() {
            [b'r', ..] => (b'\r', 1),
            [b'n', ..] => (b'\n', 1),
            [b't', ..] => (b'\t', 1),
            _ => (
                u8::from_str_radix(&escape[1..3], 16).expect("two digits behind x"),
                3,
            ),
        };
        bytes.push(byte);
        bytes.extend_from_slice(&escape.as_bytes()[length..]);
    }
    bytes
}

/// Splits bytes after each LF and before each status line.
pub(super) fn lines_of(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut lines = Vec::new();
    while !bytes.is_empty() {
        let line = bytes
            .split_inclusive(|byte| *byte == b'\n')
            .next()
            .unwrap_or(bytes);
        let status = |nine: &[u8]| nine.starts_with(b"HTTP/1.") && nine[8] == b' ';
        let response = line.windows(9).skip(1).position(status);
        let (line, rest) = bytes.split_at(response.map_or(line.len(), |before| before + 1));
        lines.push(line);
        bytes = rest;
    }
    lines
}

/// A line of bytes in the notation of the tables.
pub(super) fn escaped(line: &[u8], ids: &mut Vec<String>) -> String {
    const RUN_MIN: usize = 40;
    let mut text = String::new();
    for same in line.chunk_by(|one, other| one == other) {
        let byte = match same[0] {
            byte @ (b'\\' | b'{' | b'}') => format!("\\x{byte:02x}"),
            byte @ (b'"' | b'\'') => char::from(byte).to_string(),
            byte => byte.escape_ascii().to_string(),
        };
        match same.len() {
            count @ RUN_MIN.. => _ = write!(text, "{{{byte}*{count}}}"),
            count => text.push_str(&byte.repeat(count)),
        }
    }
    let Some((name, value)) = text
        .strip_suffix("\\r\\n")
        .and_then(|field| field.split_once(": "))
    else {
        return text;
    };
    let value = match (name, value.len()) {
        ("date", 29) if value.contains(" 20") => "date".to_owned(),
        ("retry-after", _) if matches!(value.parse(), Ok(10..=30)) => "wait".to_owned(),
        ("x-client-cert", _) if value.starts_with("-----BEGIN") => "certificate".to_owned(),
        ("x-request-id", 32) => {
            let known = ids.iter().position(|id| id == value);
            let index = known.unwrap_or(ids.len());
            ids.extend(known.is_none().then(|| value.to_owned()));
            format!("id {}", index + 1)
        }
        _ => return text,
    };
    format!("{name}: {{{value}}}\\r\\n")
}

/// Replaces the texts in `texts.txt` with their names.
pub(super) fn with_names(mut transcript: String, ids: usize) -> String {
    let texts = include_str!("texts.txt").split("\n== ").skip(1);
    for (name, text) in texts.filter_map(|text| text.split_once('\n')) {
        for (label, id) in ["C", "M1", "M2"]
            .iter()
            .flat_map(|label| (1..=ids).map(move |id| (label, id)))
        {
            let lines = text
                .trim_end()
                .lines()
                .map(|line| format!("{label}< {line}\n"));
            let lines = lines
                .collect::<String>()
                .replace("{id}", &format!("{{id {id}}}"));
            transcript = transcript.replace(&lines, &format!("{label}< {{{name} {id}}}\n"));
        }
    }
    transcript
}
