//! `cargo xtask reference`: the page that the settings' own words make.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::workspace;

/// Writes docs/configuration.md, or with `check` says whether it is fresh.
pub(crate) fn run(check: bool) -> Result<()> {
    let path = workspace::root().join("docs/configuration.md");
    let page = config::reference();
    if !check {
        return fs::write(&path, page)
            .with_context(|| format!("{} cannot be written", path.display()));
    }
    if fs::read_to_string(&path).unwrap_or_default() != page {
        bail!("docs/configuration.md is not fresh: cargo xtask reference");
    }
    Ok(())
}
