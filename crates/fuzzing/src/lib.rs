//! The checks of the fuzz targets, as plain functions over bytes. Each compares a part of the product with an
//! independent reading of the same input, and panics if the two disagree.
//!
//! `fuzz/` runs them under libFuzzer. `tests/corpus.rs` runs them on the stored corpus and on mutations of it in
//! every test run.

#![allow(
    clippy::disallowed_methods,
    reason = "a crate of tests: the clock of a CA made on the fly"
)]

mod answer;
mod bytes;
mod certificate;
mod crl;
mod csr;
mod der;
mod dn;
mod log;
mod path;
mod proxy_header;
mod reader;
mod request;
mod scrub;
mod watch;

/// A check and the words that a mutation of its input is made of.
#[derive(Clone, Copy, Debug)]
pub struct FuzzTarget {
    /// Name of the target, and of its folder below `fuzz/corpus`.
    pub name: &'static str,
    /// Panics where the product and the independent reading disagree.
    pub check: fn(&[u8]),
    /// Pieces of input that matter to it.
    pub words: &'static [&'static [u8]],
}

/// Runs the check of a target.
///
/// # Panics
/// Where the check fails, and where there is no such target.
pub fn check(name: &str, input: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    let target = target.expect("the name of a target");
    (target.check)(&input[..input.len().min(INPUT_BYTES_MAX)]);
}

/// Every target.
pub const TARGETS: &[FuzzTarget] = &[
    FuzzTarget {
        name: "dn",
        check: dn::check,
        words: dn::WORDS,
    },
    FuzzTarget {
        name: "path",
        check: path::check,
        words: path::WORDS,
    },
    FuzzTarget {
        name: "scrub",
        check: scrub::check,
        words: scrub::WORDS,
    },
    FuzzTarget {
        name: "certificate",
        check: certificate::check,
        words: certificate::WORDS,
    },
    FuzzTarget {
        name: "crl",
        check: crl::check,
        words: crl::WORDS,
    },
    FuzzTarget {
        name: "csr",
        check: csr::check,
        words: csr::WORDS,
    },
    FuzzTarget {
        name: "proxy_header",
        check: proxy_header::check,
        words: proxy_header::WORDS,
    },
    FuzzTarget {
        name: "answer",
        check: answer::check,
        words: answer::WORDS,
    },
    FuzzTarget {
        name: "request",
        check: request::check,
        words: request::WORDS,
    },
    FuzzTarget {
        name: "watch",
        check: watch::check,
        words: watch::WORDS,
    },
    FuzzTarget {
        name: "log",
        check: log::check,
        words: log::WORDS,
    },
];

/// Input over this is cut: more of the same shows nothing new.
pub const INPUT_BYTES_MAX: usize = 4096;
