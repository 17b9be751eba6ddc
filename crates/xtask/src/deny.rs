//! `cargo xtask deny`: cargo-deny checks licences with their texts, sources, bans and duplicates on every platform of
//! deny.toml. `tests/tidy/dependencies.rs` checks the same rules on this platform with every test run.

use std::process::Command;

use anyhow::Result;

use crate::{pinned_programs, workspace};

/// The version that is installed.
const CARGO_DENY: &str = "0.20.2";

/// Runs cargo-deny.
pub(crate) fn run() -> Result<()> {
    // Without its default features it needs no C library and no git of its own.
    let options = ["--debug", "--no-default-features"];
    let cargo_deny = pinned_programs::cargo("cargo-deny", CARGO_DENY, &options)?;
    workspace::run(
        Command::new(cargo_deny)
            .current_dir(workspace::root())
            .args(["--locked", "check", "bans", "licenses", "sources"]),
    )
}
