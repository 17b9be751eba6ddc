//! Builds of Proscenium that lack one protection of identities, made from a copy of the tree. The rows must detect
//! them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::workspace;

/// A crippled build: one text in one file is replaced with another.
pub(super) struct Crippled {
    /// The missing protection.
    pub(super) name: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
    /// Parts of the names of the rows that must detect this build.
    pub(super) shown_by: &'static [&'static str],
}

/// All crippled builds.
pub(super) const CRIPPLED: [Crippled; 2] = [
    Crippled {
        name: "the scrub",
        file: "crates/identity/src/scrub.rs",
        from: "        finding.is_some()",
        to: "        false && finding.is_some()",
        shown_by: &["sends"],
    },
    Crippled {
        name: "verification on open connections",
        file: "crates/proxy/src/connection.rs",
        from: "if !verdict.verification.is_current(trust.generation(), now) {",
        to: "if false && !verdict.verification.is_current(trust.generation(), now) {",
        shown_by: &["on an open connection"],
    },
];

impl Crippled {
    /// Copies the tree, replaces the text, and builds the program.
    pub(super) fn build(&self) -> Result<PathBuf> {
        let place = workspace::target().join("crippled");
        let tree = place.join("tree");
        copy(&tree)?;
        let path = tree.join(self.file);
        let text = fs::read_to_string(&path)?;
        if text.matches(self.from).count() != 1 {
            bail!(
                "{} does not contain {:?} exactly once: update crippled.rs",
                self.file,
                self.from
            );
        }
        fs::write(&path, text.replace(self.from, self.to))?;
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        let target = place.join("target");
        cargo
            .current_dir(&tree)
            .env("CARGO_TARGET_DIR", &target)
            .args(["build", "--locked", "--package", "proscenium"]);
        workspace::run(&mut cargo)?;
        let binary = place.join(self.name.replace(' ', "-"));
        fs::copy(target.join("debug/proscenium"), &binary)?;
        Ok(binary)
    }
}

/// Copies the files that git tracks, with their uncommitted changes.
fn copy(to: &Path) -> Result<()> {
    let listed = Command::new("git")
        .current_dir(workspace::root())
        .args([
            "ls-files",
            "-z",
            "--",
            "Cargo.toml",
            "Cargo.lock",
            "crates",
            "packaging",
            "tests",
            "rust-toolchain.toml",
        ])
        .output()
        .context("git does not start")?;
    for name in listed
        .stdout
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let name = Path::new(std::str::from_utf8(name)?);
        let (from, to) = (workspace::root().join(name), to.join(name));
        fs::create_dir_all(to.parent().context("a file has a directory")?)?;
        let text = fs::read(&from).with_context(|| from.display().to_string())?;
        // Unchanged files keep their modification time, so cargo does not build them again.
        if fs::read(&to).ok().as_deref() != Some(&*text) {
            fs::write(&to, text)?;
        }
    }
    Ok(())
}
