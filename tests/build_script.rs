//! The tests of the build script, which cargo does not run by themselves.
#![allow(dead_code, reason = "the script's `main` is cargo's to call")]

#[path = "../crates/proscenium/build.rs"]
mod script;
