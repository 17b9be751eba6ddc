//! End-to-end tests: the built binary, real TLS, raw bytes at the far end. One module a promise.

#![allow(clippy::disallowed_methods, reason = "tests work with files")]

mod admin;
mod cli;
mod explain;
mod identity;
mod support;
mod tidy;
