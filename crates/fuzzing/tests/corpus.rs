//! Runs every target on its stored corpus and on mutations of it. This needs no nightly compiler and no fuzzer.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a corpus is files, and what fails is shown"
)]

use std::{fs, path::Path};

use fuzzing::{FuzzTarget, INPUT_BYTES_MAX, TARGETS};
use testkit::Seed;

#[test]
fn dn_is_read_as_it_is_meant() {
    run("dn");
}

#[test]
fn path_is_read_by_a_server_as_it_was_classified() {
    run("path");
}

#[test]
fn scrub_leaves_nothing_that_a_reader_takes_for_ours() {
    run("scrub");
}

#[test]
fn certificate_facts_are_those_of_an_independent_reader() {
    run("certificate");
}

#[test]
fn crl_index_and_webpki_agree_on_every_list() {
    run("crl");
}

#[test]
fn csr_policy_passes_nothing_that_a_forgiving_reader_finds_a_right_in() {
    run("csr");
}

#[test]
fn proxy_headers_are_read_as_the_specification_says() {
    run("proxy_header");
}

#[test]
fn answers_of_members_are_those_that_hyper_reads() {
    run("answer");
}

#[test]
fn requests_reach_a_member_as_one_request_with_the_proxys_identity_fields() {
    run("request");
}

#[test]
fn connections_are_read_and_answered_as_the_former_front_did() {
    run("requests");
}

#[test]
fn log_records_are_one_line_each_and_are_read_back() {
    run("log");
}

#[test]
fn every_target_has_a_small_corpus_and_a_program() {
    for target in TARGETS {
        let count = corpus(target).len();
        assert!(
            (1..=CORPUS_FILES_MAX).contains(&count),
            "{}: {count}",
            target.name
        );
        let program = folder()
            .join("fuzz_targets")
            .join(format!("{}.rs", target.name));
        let text = fs::read_to_string(&program).expect("a program for each target");
        assert!(
            text.contains(&format!("\"{}\"", target.name)),
            "{}",
            program.display()
        );
    }
}

fn run(name: &str) {
    let target = TARGETS
        .iter()
        .find(|target| target.name == name)
        .expect("a target");
    let corpus = corpus(target);
    for input in &corpus {
        check(name, input);
    }
    let mut seed = Seed::from_env_or_random();
    for _ in 0..MUTATIONS {
        let input = mutated(&mut seed, &corpus, target.words);
        check(name, &input);
    }
}

/// Runs a check. If it fails, the whole input is printed, because the seed alone would be useless after a change of the
/// corpus.
fn check(name: &str, input: &[u8]) {
    let shown = Shown(input);
    fuzzing::check(name, input);
    drop(shown);
}

/// Prints the input if the check panics.
struct Shown<'a>(&'a [u8]);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("input: b\"{}\"", self.0.escape_ascii());
        }
    }
}

fn mutated(seed: &mut Seed, corpus: &[Vec<u8>], words: &[&[u8]]) -> Vec<u8> {
    let mut input = seed.pick(corpus).clone();
    for _ in 0..=seed.below(4) {
        let at = seed.below(input.len() + 1);
        let to = (at + seed.below(8)).min(input.len());
        match seed.below(6) {
            0 => input
                .splice(at..at, seed.pick(words).iter().copied())
                .count(),
            1 => input
                .splice(at..to, seed.pick(words).iter().copied())
                .count(),
            2 => input.drain(at..to).count(),
            3 => {
                let other = seed.pick(corpus);
                let from = seed.below(other.len() + 1);
                input.splice(at.., other[from..].iter().copied()).count()
            }
            4 => {
                let byte = seed.number() as u8;
                input.splice(at..at, [byte]).count()
            }
            _ => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << seed.below(8);
                }
                0
            }
        };
    }
    input.truncate(INPUT_BYTES_MAX);
    input
}

fn corpus(target: &FuzzTarget) -> Vec<Vec<u8>> {
    let folder = folder().join("corpus").join(target.name);
    let mut files: Vec<_> = fs::read_dir(&folder)
        .expect("a corpus for each target")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    // The files are sorted by name, so that a seed repeats a run.
    files.sort();
    files
        .iter()
        .map(|path| fs::read(path).expect("a file of the corpus"))
        .collect()
}

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz"))
}

/// Maximum number of stored files for a target, because people read the corpus and every test run uses it.
const CORPUS_FILES_MAX: usize = 200;

/// Mutations for each target, which take one or two seconds without optimization.
const MUTATIONS: usize = 500;
