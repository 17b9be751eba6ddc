//! The check of this name in `crates/fuzzing`, under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::check("requests", input));
