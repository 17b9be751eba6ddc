//! Headers of clients that a configuration removes. Also those that it keeps although [`crate::ScrubReport::scrubs`] would
//! remove them.

use std::fmt;

use crate::folding::{after, folded, without_cgi_prefix};

/// `remove_headers` and `keep_headers` of a route or pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderRules {
    /// Headers that are removed in every spelling, in addition to those of [`crate::ScrubReport::scrubs`]. Default none.
    pub remove: Vec<HeaderPattern>,
    /// Headers that members receive although [`crate::ScrubReport::scrubs`] would remove them. Default none.
    pub keep: Vec<HeaderPattern>,
}

/// The name of a header, or the beginning of names, which is written with a `*` at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderPattern {
    written: String,
    /// The pattern in lower case, without the `*`.
    stem: String,
    /// The stem as read by a server that folds characters, without the prefix of CGI.
    folded: String,
    is_prefix: bool,
}

/// A name that a pattern matches. It is displayed as the end of a sentence about the pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoveredName<'a> {
    /// The name, in lower case.
    pub name: &'a str,
    /// Whether the pattern matches only `HTTP_NAME` and not the name itself.
    is_cgi_only: bool,
}

impl fmt::Display for CoveredName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name;
        if self.is_cgi_only {
            let spelling = name.to_uppercase().replace('-', "_");
            write!(
                f,
                "also matches HTTP_{spelling}, another spelling of {name}"
            )
        } else {
            write!(f, "includes {name}")
        }
    }
}

impl HeaderRules {
    /// Whether some server reads `name` as a header that must be removed.
    pub fn removes(&self, name: &str) -> bool {
        self.remove.iter().any(|pattern| pattern.covers(name))
    }

    /// Whether the header with exactly this name, in lower case, is kept.
    pub fn keeps(&self, name: &str) -> bool {
        self.keep.iter().any(|pattern| pattern.is(name))
    }
}

impl HeaderPattern {
    /// Parses a pattern. `None` if no header can have such a name. A lone `*` matches every header.
    pub fn parse(text: &str) -> Option<Self> {
        let (stem, is_prefix) = match text.strip_suffix('*') {
            Some(stem) => (stem, true),
            None => (text, false),
        };
        // A `*` may be part of a name (RFC 9110, 5.6.2), but no application uses that.
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'+-.^_`|~".contains(&byte);
        if !stem.bytes().all(legal) || stem.is_empty() && !is_prefix {
            return None;
        }
        let folded: Vec<u8> = stem.bytes().map(folded).collect();
        // A pattern that is the beginning of `HTTP_` matches some spelling of every name.
        let folded = if is_prefix && b"http-".starts_with(&folded) {
            &[]
        } else {
            without_cgi_prefix(&folded)
        };
        Some(Self {
            written: text.to_owned(),
            stem: stem.to_ascii_lowercase(),
            folded: String::from_utf8_lossy(folded).into_owned(),
            is_prefix,
        })
    }

    /// Whether the pattern matches some spelling of `name`: it matches a header that some server reads as `name`.
    pub fn covers(&self, name: &str) -> bool {
        let rest = after(without_cgi_prefix(name.as_bytes()), self.folded.as_bytes());
        rest.is_some_and(|rest| self.is_prefix || rest.is_empty())
    }

    /// The first of `names` that the pattern matches, with a description for a message. A name that the pattern matches as
    /// written takes precedence over a name that it matches only with the prefix of CGI.
    pub fn first_covered<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
    ) -> Option<CoveredName<'n>> {
        let covered = names.filter(|name| self.covers(name)).map(|name| {
            let begins = after(name.as_bytes(), self.stem.as_bytes()).is_some();
            CoveredName {
                name,
                is_cgi_only: self.folded.is_empty() && !begins,
            }
        });
        covered.min_by_key(|covered| covered.is_cgi_only)
    }

    /// Whether `name` equals the pattern, or begins with its prefix and continues only with letters, digits and `-`. Look-alike
    /// spellings do not match.
    pub(crate) fn is(&self, name: &str) -> bool {
        let plain = |rest: &str| {
            rest.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        match name.strip_prefix(&*self.stem) {
            Some(rest) if self.is_prefix => plain(rest),
            Some(rest) => rest.is_empty(),
            None => false,
        }
    }
}

impl fmt::Display for HeaderPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> HeaderPattern {
        HeaderPattern::parse(text).expect(text)
    }

    #[test]
    fn a_name_is_removed_in_every_spelling() {
        for (text, name, is_removed) in [
            ("X-Site", "x-site", true),
            ("X-Site", "x_site", true),
            ("X-Site", "x.site", true),
            ("X-Site", "http_x_site", true),
            ("X_Site", "x-site", true),
            ("HTTP_X_SITE", "x-site", true),
            ("X-Site", "x-sites", false),
            ("X-Site", "y-x-site", false),
            ("X-Site-*", "x-site-a", true),
            ("X-Site-*", "x_site.a", true),
            ("X-Site-*", "x-site-", true),
            ("X-Site-*", "x-site", false),
            ("X-Site*", "x-sites", true),
            ("*", "anything", true),
            // HTTP_ANYTHING.
            ("ht*", "anything", true),
            ("http_x*", "x-site", true),
            ("http_x*", "y-site", false),
        ] {
            let rules = HeaderRules {
                remove: vec![pattern(text)],
                ..HeaderRules::default()
            };
            assert_eq!(rules.removes(name), is_removed, "{text} {name}");
        }
    }

    #[test]
    fn a_name_is_kept_in_its_own_spelling_only() {
        for (text, name, is_kept) in [
            ("X-Authentication", "x-authentication", true),
            ("X-Authentication", "x_authentication", false),
            ("X-Authentication", "http-x-authentication", false),
            ("X-Authentication", "x-authentication-2", false),
            ("Api_Key", "api_key", true),
            ("Api_Key", "api-key", false),
            ("X-User-*", "x-user-id", true),
            ("X-User-*", "x-user_id", false),
            ("X-User-*", "x_user-id", false),
            ("X-User-*", "x-user-a.b", false),
        ] {
            let rules = HeaderRules {
                keep: vec![pattern(text)],
                ..HeaderRules::default()
            };
            assert_eq!(rules.keeps(name), is_kept, "{text} {name}");
        }
    }

    #[test]
    fn only_names_of_headers_are_patterns() {
        for text in [
            "",
            "X Site",
            "X-Site:",
            "X-*-Site",
            "**",
            "X-S\u{fc}d",
            "X-Site\n",
        ] {
            assert_eq!(HeaderPattern::parse(text), None, "{text:?}");
        }
        assert_eq!(pattern("X-Site-*").to_string(), "X-Site-*");
    }
}
