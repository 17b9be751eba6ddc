//! `cargo xtask deny`: cargo-deny verifies licences with their texts, sources, bans and duplicates for every platform
//! in deny.toml. `tests/tidy/dependencies.rs` verifies the same rules for this platform in every test run.

use std::process::Command;

use anyhow::Result;

use crate::{pinned_programs, workspace};

/// The version that is installed.
const CARGO_DENY: &str = "0.20.2";

/// Runs cargo-deny.
pub(crate) fn run() -> Result<()> {
    // Without its default features, cargo-deny needs no C library and has no git implementation.
    let options = ["--debug", "--no-default-features"];
    let cargo_deny = pinned_programs::cargo("cargo-deny", CARGO_DENY, &options)?;
    workspace::run(
        Command::new(cargo_deny)
            .current_dir(workspace::root())
            .args(["--locked", "check", "bans", "licenses", "sources"]),
    )
}
