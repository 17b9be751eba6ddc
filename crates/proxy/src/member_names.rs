//! Replaces the names of members in the text of their responses with the configured name of the proxy (`rewrite_member_names`).

use std::mem;

use bytes::{Bytes, BytesMut};
use http::{
    HeaderName, HeaderValue, StatusCode,
    header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_TYPE, ETAG, LAST_MODIFIED},
};
use http1::Fields;
use upstream::{MemberAddress, MemberHead};

use crate::{location::URL_HEADERS, pool_runtime::PoolRuntime};

/// Maximum length of a host name (RFC 1035), and therefore the maximum number of bytes of a text that are held back.
const NAME_BYTES_MAX: usize = 253;
/// Bytes that are rewritten at once.
const STEP_BYTES: usize = 16 << 10;

/// Headers that describe the member's original text and are wrong once names in it were replaced.
const OF_THE_ORIGINAL: [HeaderName; 8] = [
    CONTENT_LENGTH,
    ETAG,
    LAST_MODIFIED,
    ACCEPT_RANGES,
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
];

/// A text in which the proxy cannot find names, because it is encoded or partial.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unreadable;

/// Replaces names in a text that arrives in pieces. Only a complete run of host name characters, without trailing dots, can be
/// a name.
#[derive(Debug)]
pub(crate) struct NameRewriter {
    names: Vec<Box<str>>,
    front: Box<str>,
    /// The unfinished run at the end of the last piece, unless it is too long for a name.
    run: Vec<u8>,
    is_long: bool,
    /// Bytes that have arrived and were not searched yet.
    unread: Bytes,
}

/// Rewrites the headers of a response. Returns the rewriter for its body, if the body is a text.
///
/// # Errors
/// The text cannot be rewritten.
pub(crate) fn rewrite(
    pool: &PoolRuntime,
    front: &str,
    head: &mut MemberHead,
) -> Result<Option<Box<NameRewriter>>, Unreadable> {
    let rewriter = NameRewriter::new(names_of(pool), front);
    for name in URL_HEADERS {
        let rewritten = head
            .fields
            .value(&name)
            .and_then(|url| HeaderValue::from_bytes(&rewriter.whole(url)).ok());
        if let Some(url) = rewritten {
            head.fields.insert(name, url);
        }
    }
    if !is_text(&head.fields) || head.status == StatusCode::NOT_MODIFIED {
        return Ok(None);
    }
    if is_encoded(&head.fields) || head.status == StatusCode::PARTIAL_CONTENT {
        return Err(Unreadable);
    }
    for name in OF_THE_ORIGINAL {
        head.fields.remove(&name);
    }
    Ok(Some(Box::new(rewriter)))
}

/// The names of a pool's members that are replaced. Only names with a dot count, because a name such as `puppet` is also a
/// word.
fn names_of(pool: &PoolRuntime) -> Vec<Box<str>> {
    let mut names = Vec::new();
    for (entry, connector) in pool.pool.entries().iter().zip(pool.connectors()) {
        let host = match &connector.target {
            MemberAddress::Unix(_) => None,
            target @ MemberAddress::Tcp { .. } => Some(target.host()),
        };
        names.extend(host.into_iter().chain(entry.server_name.as_deref()));
    }
    names.sort_unstable();
    names.dedup();
    let is_name = |name: &&str| name.contains('.') && name.parse::<std::net::IpAddr>().is_err();
    names.into_iter().filter(is_name).map(Into::into).collect()
}

fn is_text(fields: &Fields) -> bool {
    let kind = fields.value(&CONTENT_TYPE).and_then(|kind| kind.get(..5));
    kind.is_some_and(|kind| kind.eq_ignore_ascii_case(b"text/"))
}

fn is_encoded(fields: &Fields) -> bool {
    let mut codings = fields.all("content-encoding");
    codings.any(|coding| !coding.eq_ignore_ascii_case(b"identity"))
}

const fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_')
}

impl NameRewriter {
    fn new(names: Vec<Box<str>>, front: &str) -> Self {
        Self {
            names,
            front: front.into(),
            run: Vec::new(),
            is_long: false,
            unread: Bytes::new(),
        }
    }

    /// Rewrites a complete text.
    fn whole(&self, text: &[u8]) -> BytesMut {
        let mut rewriter = Self::new(self.names.clone(), &self.front);
        let mut out = BytesMut::with_capacity(text.len());
        rewriter.feed(text, &mut out);
        rewriter.end_run(&mut out);
        out
    }

    /// Takes the next piece, after the previous one was consumed.
    pub(crate) fn push(&mut self, piece: Bytes) {
        self.unread = piece;
    }

    /// The next part of the rewritten text, if there is one.
    pub(crate) fn next(&mut self) -> Option<Bytes> {
        while !self.unread.is_empty() {
            let step = self.unread.split_to(self.unread.len().min(STEP_BYTES));
            let mut out = BytesMut::with_capacity(step.len() + NAME_BYTES_MAX);
            self.feed(&step, &mut out);
            if !out.is_empty() {
                return Some(out.freeze());
            }
        }
        None
    }

    /// The bytes that were held back at the end of the text.
    pub(crate) fn finish(&mut self) -> Option<Bytes> {
        let mut out = BytesMut::new();
        self.end_run(&mut out);
        (!out.is_empty()).then(|| out.freeze())
    }

    /// Whether no bytes are held back.
    pub(crate) fn is_empty(&self) -> bool {
        self.unread.is_empty() && self.run.is_empty()
    }

    fn feed(&mut self, text: &[u8], out: &mut BytesMut) {
        for &byte in text {
            if !is_name_byte(byte) {
                self.end_run(out);
                out.extend_from_slice(&[byte]);
            } else if self.is_long {
                out.extend_from_slice(&[byte]);
            } else if self.run.len() == NAME_BYTES_MAX {
                self.is_long = true;
                out.extend_from_slice(&mem::take(&mut self.run));
                out.extend_from_slice(&[byte]);
            } else {
                self.run.push(byte);
            }
        }
    }

    fn end_run(&mut self, out: &mut BytesMut) {
        self.is_long = false;
        let dots = self.run.iter().rev().take_while(|byte| **byte == b'.');
        let (name, dots) = self.run.split_at(self.run.len() - dots.count());
        let is_member = |member: &str| name.eq_ignore_ascii_case(member.as_bytes());
        if self.names.iter().any(|member| is_member(member)) {
            out.extend_from_slice(self.front.as_bytes());
        } else {
            out.extend_from_slice(name);
        }
        out.extend_from_slice(dots);
        self.run.clear();
    }
}

#[cfg(test)]
mod tests {
    use testkit::Seed;

    use super::*;

    fn rewriter() -> NameRewriter {
        let names = ["c1.example.com", "c-2.example.com"].map(Into::into);
        NameRewriter::new(names.to_vec(), "puppet.example.net")
    }

    fn rewritten(text: &str) -> String {
        String::from_utf8(rewriter().whole(text.as_bytes()).to_vec()).expect("was text")
    }

    #[test]
    fn a_name_is_replaced_as_a_whole_only() {
        for (text, expected) in [
            ("c1.example.com", "puppet.example.net"),
            (
                "https://C1.Example.com:8140/packages",
                "https://puppet.example.net:8140/packages",
            ),
            (
                "server='c1.example.com' or c-2.example.com.",
                "server='puppet.example.net' or puppet.example.net.",
            ),
            ("c1.example.com..\n", "puppet.example.net..\n"),
            ("myc1.example.com", "myc1.example.com"),
            ("c1.example.com.evil", "c1.example.com.evil"),
            ("my.c1.example.com", "my.c1.example.com"),
            ("c1.example.com-old", "c1.example.com-old"),
            (
                "c1_example.com c1.example.comx",
                "c1_example.com c1.example.comx",
            ),
            (".c1.example.com", ".c1.example.com"),
            ("", ""),
            ("\u{e9} c1.example.com", "\u{e9} puppet.example.net"),
        ] {
            assert_eq!(rewritten(text), expected, "{text}");
        }
        let long = format!("{}c1.example.com", "a.".repeat(200));
        assert_eq!(rewritten(&long), long);
        let other = format!("{long} c1.example.com");
        assert_eq!(rewritten(&other), format!("{long} puppet.example.net"));
    }

    #[test]
    fn a_text_in_pieces_is_rewritten_like_the_whole() {
        let mut seed = Seed::from_env_or_random();
        let words = [
            "c1.example.com",
            "C-2.EXAMPLE.com",
            "c1.example",
            ".com",
            "my",
            ".",
            "-",
            "\n",
            " ",
            "/",
            "\u{e9}",
        ];
        for _ in 0..2_000 {
            let mut text = String::new();
            for _ in 0..seed.below(30) {
                text.push_str(seed.pick::<&str>(&words));
            }
            if seed.once_in(20) {
                text.insert_str(0, &"a".repeat(seed.below(600)));
            }
            let mut pieces = rewriter();
            let (mut out, mut left) = (Vec::new(), text.as_bytes());
            while !left.is_empty() {
                let (piece, rest) = left.split_at(1 + seed.below(left.len().min(40)));
                left = rest;
                pieces.push(Bytes::copy_from_slice(piece));
                while let Some(part) = pieces.next() {
                    out.extend_from_slice(&part);
                }
                assert!(pieces.run.len() <= NAME_BYTES_MAX);
            }
            out.extend(pieces.finish().unwrap_or_default());
            assert!(pieces.is_empty());
            assert_eq!(String::from_utf8_lossy(&out), by_words(&text), "{text:?}");
        }
    }

    /// Replaces names with another algorithm, for comparison: it splits the text at each byte that a name cannot have.
    fn by_words(text: &str) -> String {
        let is_name = |c: char| c.is_ascii() && is_name_byte(c as u8);
        text.split_inclusive(|c| !is_name(c))
            .map(|part| {
                let run = part.trim_end_matches(|c| !is_name(c));
                let name = run.trim_end_matches('.');
                let names = ["c1.example.com", "c-2.example.com"];
                if names.contains(&&*name.to_ascii_lowercase()) && run.len() <= NAME_BYTES_MAX {
                    format!("puppet.example.net{}", &part[name.len()..])
                } else {
                    part.to_owned()
                }
            })
            .collect()
    }
}
