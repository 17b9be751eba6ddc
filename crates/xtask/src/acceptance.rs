//! `cargo xtask acceptance`: the checks that take too long for every change, one after the other, with a summary.

use std::time::Instant;

use anyhow::{Result, ensure};
use clap::Args;

use crate::workspace;

/// Which checks to run.
#[derive(Args)]
pub(crate) struct Options {
    /// Run only the checks with these names
    #[arg(value_name = "NAME")]
    only: Vec<String>,
}

/// A check: its name, the program and its arguments.
type Check = (&'static str, &'static [&'static str]);

/// The checks. Each is a separate command, so that it can be repeated alone.
const CHECKS: &[Check] = &[
    ("fresh", &["cargo", "xtask", "fresh"]),
    ("deny", &["cargo", "xtask", "deny"]),
    ("book", &["cargo", "xtask", "book"]),
    ("module", &["packaging/puppet/check"]),
    ("openapi", &["cargo", "xtask", "openapi"]),
    ("page", &["cargo", "xtask", "page"]),
    ("tests", &["cargo", "xtask", "test", "--all", "--no-lab"]),
    (
        "doc-test",
        &["cargo", "test", "--doc", "--package", "testkit"],
    ),
    ("gate", &["cargo", "xtask", "bench", "gate", "--always"]),
    ("matrix", &["cargo", "xtask", "matrix"]),
    ("herd", &["cargo", "xtask", "herd"]),
    ("fleet", &["cargo", "xtask", "fleet"]),
    ("simulate", &["cargo", "xtask", "simulate"]),
    ("static", &["cargo", "xtask", "dist", "--static"]),
    ("packages", &["cargo", "xtask", "dist", "--check"]),
    ("systemd", &["cargo", "xtask", "systemd"]),
    ("incidents", &["cargo", "xtask", "incidents"]),
    ("lab-7", &["env", "PUPPET=7", "cargo", "xtask", "lab"]),
    (
        "lab-fleet",
        &["env", "PUPPET=7", "cargo", "xtask", "lab", "fleet"],
    ),
    ("lab-8", &["env", "PUPPET=8", "cargo", "xtask", "lab"]),
    ("soak", &["cargo", "xtask", "soak", "--minutes", "60"]),
    ("fuzz", &["cargo", "xtask", "fuzz"]),
];

/// Runs the checks. A failed one does not stop the others.
pub(crate) fn run(options: &Options) -> Result<()> {
    let unknown = options
        .only
        .iter()
        .find(|name| CHECKS.iter().all(|(known, _)| known != name));
    if let Some(unknown) = unknown {
        let names: Vec<_> = CHECKS.iter().map(|(name, _)| *name).collect();
        anyhow::bail!(
            "there is no check {unknown:?}; choose from {}",
            names.join(", ")
        );
    }
    let wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|one| one == name);
    let mut summary = Vec::new();
    for (name, words) in CHECKS.iter().filter(|(name, _)| wanted(name)) {
        println!("== {name}: {}", words.join(" "));
        let begun = Instant::now();
        let mut command = std::process::Command::new(words[0]);
        command.args(&words[1..]).current_dir(workspace::root());
        // A skipped part has not passed.
        command.env("PROSCENIUM_TOOLS", "required");
        let outcome = workspace::run(&mut command);
        let took = begun.elapsed().as_secs();
        summary.push((*name, took, outcome.err().map(|error| format!("{error:#}"))));
    }
    println!("== summary");
    for (name, took, fault) in &summary {
        println!(
            "  {name}: {} ({took} s)",
            fault.as_deref().unwrap_or("passed")
        );
    }
    let failed = summary
        .iter()
        .filter(|(_, _, fault)| fault.is_some())
        .count();
    ensure!(failed == 0, "{failed} of {} checks failed", summary.len());
    Ok(())
}
