//! Puppet's name for an agent, and patterns for such names.

use std::fmt;

/// Puppet's name for an agent: the CN of its certificate.
///
/// The name is not empty and has at most [`Certname::BYTES_MAX`] bytes. It contains nothing that a reader of headers, paths or
/// logs could misread: only ASCII, no control characters, no spaces at its ends, no comma, slash, plus, quote or backslash.
/// backslash.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Certname(Box<str>);

/// Why a string is not a certname.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertnameError {
    /// The name is empty.
    #[error("the name is empty")]
    Empty,
    /// The name is too long for the file name under which Puppet stores its certificate.
    #[error("the name has {0} bytes, more than {max}", max = Certname::BYTES_MAX)]
    TooLong(usize),
    /// A character that servers read in different ways.
    #[error("the name contains {0:?}")]
    Character(char),
    /// A character that the Puppet CA does not sign in a name.
    #[error(
        "the name contains {0:?}, which is not in the Puppet CA's alphabet (a-z, 0-9, '.', '_', '-')"
    )]
    Alphabet(char),
    /// The name begins or ends with a hyphen or a dot, or has an empty part between dots.
    #[error("the name begins or ends with a hyphen or a dot, or has an empty part")]
    Shape,
}

impl Certname {
    /// Maximum bytes of a name. Puppet stores `<certname>.pem` in a directory.
    pub const BYTES_MAX: usize = 255;

    /// Parses a CN from a certificate that an external CA may have signed (`subject = "single-cn"`).
    ///
    /// # Errors
    /// The first problem of `text`.
    pub fn parse(text: &str) -> Result<Self, CertnameError> {
        if text.is_empty() {
            return Err(CertnameError::Empty);
        }
        if text.len() > Self::BYTES_MAX {
            return Err(CertnameError::TooLong(text.len()));
        }
        if let Some(bad) = text.chars().find(|c| is_ambiguous(*c)) {
            return Err(CertnameError::Character(bad));
        }
        if text.starts_with(' ') || text.ends_with(' ') {
            return Err(CertnameError::Character(' '));
        }
        Ok(Self(text.into()))
    }

    /// Parses a CN from a certificate that the Puppet CA may have signed (`subject = "puppet"`): lower-case ASCII letters,
    /// digits, `.`, `_`, `-`.
    ///
    /// # Errors
    /// The first problem of `text`.
    pub fn parse_puppet(text: &str) -> Result<Self, CertnameError> {
        let name = Self::parse(text)?;
        if let Some(bad) = text.chars().find(|c| !is_puppet(*c)) {
            return Err(CertnameError::Alphabet(bad));
        }
        let ends = ['-', '.'];
        if text.starts_with(ends) || text.ends_with(ends) || text.contains("..") {
            return Err(CertnameError::Shape);
        }
        Ok(name)
    }

    /// The name as the certificate spells it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `name`, from a request path, equals this certname in lower case. Agents send only lower case, and a server
    /// stores the documents of `WEB01` and `web01` in two files.
    pub fn is_path_name(&self, name: &str) -> bool {
        let lower = self.0.bytes().map(|byte| byte.to_ascii_lowercase());
        lower.eq(name.bytes())
    }
}

impl fmt::Display for Certname {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for Certname {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// A pattern for whole certnames. `*` matches any characters, and case does not matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertnamePattern(Box<str>);

/// Why a string is not a certname pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The pattern is empty.
    #[error("the certname pattern is empty")]
    Empty,
    /// The pattern is longer than any certname.
    #[error("the certname pattern has {0} bytes, more than {max}", max = Certname::BYTES_MAX)]
    TooLong(usize),
    /// A character that no certname contains.
    #[error("the certname pattern contains {0:?}, which no certname contains")]
    Character(char),
}

impl CertnamePattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// No certname could match, because of a character or the length of the pattern.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        if text.len() > Certname::BYTES_MAX {
            return Err(PatternError::TooLong(text.len()));
        }
        match text.chars().find(|c| is_ambiguous(*c)) {
            Some(bad) => Err(PatternError::Character(bad)),
            None => Ok(Self(text.into())),
        }
    }

    /// The pattern as the configuration spells it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the pattern matches the whole of `name`.
    pub fn matches(&self, name: &str) -> bool {
        run_matches(self.0.as_bytes(), name.as_bytes(), |one, other| {
            one.eq_ignore_ascii_case(&other)
        })
    }
}

impl fmt::Display for CertnamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether `pattern` matches the whole of `text`. `*` matches any bytes.
pub(crate) fn run_matches(pattern: &[u8], text: &[u8], same: impl Fn(u8, u8) -> bool) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to resume if the last star has to match more bytes: the pattern after the star, and the end of the bytes that it
    // matches. Earlier stars need no such position, because a later star never requires them to match more.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            star = Some((p + 1, t));
            p += 1;
        } else if p < pattern.len() && same(pattern[p], text[t]) {
            p += 1;
            t += 1;
        } else if let Some((after, taken)) = star {
            star = Some((after, taken + 1));
            (p, t) = (after, taken + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// Whether a server, a path or a log line could give the character another meaning. Puppet Server reads the escaped bytes of
/// UTF-8 as Latin-1, so it would see another agent's name.
fn is_ambiguous(c: char) -> bool {
    !c.is_ascii() || c.is_control() || matches!(c, ',' | '/' | '+' | '"' | '\'' | '\\')
}

fn is_puppet(c: char) -> bool {
    matches!(c, 'a'..='z' | '0'..='9' | '.' | '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_puppet_alphabet_is_lower_case_ascii_of_at_most_255_bytes() {
        for good in [
            "web01",
            "a",
            "web-01.lab_test.example.com",
            "0.1",
            "_x",
            &"a".repeat(255),
        ] {
            assert!(Certname::parse_puppet(good).is_ok(), "{good}");
        }
        let long = "a".repeat(256);
        for bad in [
            "", "Web01", "w*b", "a b", "-a", "a-", ".a", "a.", "a..b", "a/b", "a,b", "a+b",
            "\u{fc}", "a\0", "a\n", &long,
        ] {
            assert!(Certname::parse_puppet(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn names_of_external_cas_may_be_upper_case_but_never_ambiguous() {
        for good in ["WEB01.Example.COM", "Web 01", "a@b", "a;b", "a=b", "#a"] {
            assert!(Certname::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            " a",
            "a ",
            "j\u{fc}rgen",
            "a,b",
            "a/b",
            "a+b",
            "a\"b",
            "a'b",
            "a\\b",
            "a\0",
            "a\r",
            "\u{85}",
            "\u{7f}",
        ] {
            assert!(Certname::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn patterns_match_whole_names_without_case() {
        let cases = [
            ("web*", "web01", true),
            ("web*", "WEB01", true),
            ("web*", "web", true),
            ("web*", "aweb", false),
            ("*", "anything", true),
            ("*.example.com", "a.b.example.com", true),
            ("*.example.com", "example.com", false),
            ("web", "web01", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b", false),
            ("**x", "x", true),
            ("a*a", "a", false),
            ("web.01", "webx01", false),
        ];
        for (pattern, name, expected) in cases {
            let pattern = CertnamePattern::parse(pattern).expect("a pattern");
            assert_eq!(pattern.matches(name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_pattern_of_many_stars_costs_no_more_than_the_product_of_the_lengths() {
        let pattern = CertnamePattern::parse(&"*a".repeat(127)).expect("a pattern");
        assert!(!pattern.matches(&format!("{}b", "a".repeat(254))));
    }

    #[test]
    fn patterns_that_no_name_matches_are_refused() {
        for bad in ["", "a,b", "a\n", &"a".repeat(256)] {
            assert!(CertnamePattern::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn names_and_patterns_are_shown_as_they_were_written() {
        let name = Certname::parse("Web 01").expect("a name");
        assert_eq!(
            (name.to_string().as_str(), name.as_ref()),
            ("Web 01", "Web 01")
        );
        let pattern = CertnamePattern::parse("WEB*").expect("a pattern");
        assert_eq!(
            (pattern.to_string().as_str(), pattern.as_str()),
            ("WEB*", "WEB*")
        );
    }

    #[test]
    fn the_error_names_the_problem_of_a_name() {
        for (text, error) in [
            ("", CertnameError::Empty),
            ("a/b", CertnameError::Character('/')),
            ("a ", CertnameError::Character(' ')),
            ("A", CertnameError::Alphabet('A')),
            ("a.", CertnameError::Shape),
            (&"a".repeat(256), CertnameError::TooLong(256)),
        ] {
            assert_eq!(Certname::parse_puppet(text), Err(error), "{text:?}");
        }
        let longest = "a".repeat(255);
        assert!(CertnamePattern::parse(&longest).is_ok());
        assert_eq!(
            CertnamePattern::parse(&format!("{longest}a")),
            Err(PatternError::TooLong(256))
        );
        assert_eq!(
            CertnamePattern::parse("a,b"),
            Err(PatternError::Character(','))
        );
    }
}
