//! Makes the text of events safe for a log: characters that control a terminal or the reading direction are escaped.
//!
//! Access records are stricter ([`crate::escape`]): in them, text from peers is only printable ASCII. Events are sentences from
//! the program that may quote text from peers.

use std::borrow::Cow;

/// Makes a text safe and puts it on one line.
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    spell(text, is_printable)
}

/// Makes a text safe, but keeps its line ends and tabs.
pub(crate) fn lines(text: &str) -> Cow<'_, str> {
    spell(text, |character| {
        character == '\n' || character == '\t' || is_printable(character)
    })
}

fn spell(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.chars().all(&stays) {
        return Cow::Borrowed(text);
    }
    let mut spelled = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            _ if stays(character) => spelled.push(character),
            '\0'..='\x7f' => spelled.push_str(&format!("\\x{:02x}", u32::from(character))),
            _ => spelled.extend(character.escape_unicode()),
        }
    }
    Cow::Owned(spelled)
}

/// Whether a character is safe. Unsafe are control characters, line separators, and characters that change the writing
/// direction or have no width.
fn is_printable(character: char) -> bool {
    !character.is_control()
        && !matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_is_spelled_and_the_rest_stays() {
        for (text, one, many) in [
            (
                "plain, \"quoted\" … ü",
                "plain, \"quoted\" … ü",
                "plain, \"quoted\" … ü",
            ),
            ("a\n\tb", r"a\x0a\x09b", "a\n\tb"),
            (
                "\x1b[31m\r\0\x7f",
                r"\x1b[31m\x0d\x00\x7f",
                r"\x1b[31m\x0d\x00\x7f",
            ),
            (
                "\u{85}\u{202e}\u{2028}",
                r"\u{85}\u{202e}\u{2028}",
                r"\u{85}\u{202e}\u{2028}",
            ),
            ("", "", ""),
        ] {
            assert_eq!(line(text), one);
            assert_eq!(lines(text), many);
        }
    }
}
