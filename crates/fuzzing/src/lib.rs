//! The checks of the fuzz targets, as plain functions over bytes. Each check compares a part of the product with an
//! independent implementation on the same input, and panics if the two disagree.
//!
//! `fuzz/` runs the checks under libFuzzer. In every test run, `tests/corpus.rs` runs them on the stored corpus and on
//! mutations of it.

mod answer;
mod bytes;
mod certificate;
mod crl;
mod csr;
mod der;
mod dn;
mod former_front;
mod log;
mod path;
mod proxy_header;
mod reader;
mod request;
mod requests;
mod scrub;
mod strict_chunks;

/// A check, and the dictionary for mutating its input.
#[derive(Clone, Copy, Debug)]
pub struct FuzzTarget {
    /// Name of the target, and of its directory in `fuzz/corpus`.
    pub name: &'static str,
    /// Panics if the product and the independent implementation disagree.
    pub check: fn(&[u8]),
    /// The dictionary: byte strings that are significant to the code under test.
    pub words: &'static [&'static [u8]],
}

/// Runs the check of a target.
///
/// # Panics
/// Panics if the check fails or if no target has this name.
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
        name: "requests",
        check: requests::check,
        words: requests::WORDS,
    },
    FuzzTarget {
        name: "log",
        check: log::check,
        words: log::WORDS,
    },
];

/// Longer input is truncated, because it would not exercise any more code.
pub const INPUT_BYTES_MAX: usize = 4096;
