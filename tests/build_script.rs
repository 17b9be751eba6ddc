//! The tests of the build script, which cargo does not run by themselves.
#![expect(
    dead_code,
    clippy::print_stdout,
    reason = "cargo calls the script's `main`, which prints for it"
)]

#[path = "../crates/proscenium/build.rs"]
mod script;
