//! `cargo xtask lab`: builds the program and runs tests/lab/lab with it.

use std::process::Command;

use anyhow::Result;

use crate::workspace;

/// Runs the lab's script with these arguments; `all` where there are none.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let proscenium = workspace::build_proscenium(false)?;
    let mut lab = Command::new(workspace::root().join("tests/lab/lab"));
    lab.env("PROSCENIUM", proscenium)
        .env("LAB_DIR", workspace::target().join("lab"));
    match arguments {
        [] => lab.arg("all"),
        _ => lab.args(arguments),
    };
    workspace::run(&mut lab)
}
