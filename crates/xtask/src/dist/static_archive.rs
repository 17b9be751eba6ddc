//! `cargo xtask dist --static`: the program without a dependency on the machine's C library, with the files that a
//! package installs. They are an archive, and the context for `packaging/Containerfile`.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use super::{
    folder,
    tools::{output, require},
};
use crate::workspace;

const TARGET: &str = "x86_64-unknown-linux-musl";

/// The files beside the program: path in the repository, and path in the archive.
const FILES: &[(&str, &str)] = &[
    ("LICENSE", "LICENSE"),
    ("CHANGELOG.md", "CHANGELOG.md"),
    ("packaging/Containerfile", "Containerfile"),
    ("packaging/proscenium.toml", "proscenium.toml"),
    ("packaging/proscenium.service", "proscenium.service"),
    ("packaging/sysusers.conf", "sysusers.conf"),
    ("packaging/tmpfiles.conf", "tmpfiles.conf"),
    ("packaging/logrotate", "logrotate"),
    ("packaging/default", "default"),
    ("packaging/man", "man"),
    ("packaging/completions", "completions"),
    (
        "packaging/prometheus/proscenium.rules.yml",
        "prometheus/proscenium.rules.yml",
    ),
    (
        "packaging/prometheus/proscenium.dashboard.json",
        "prometheus/proscenium.dashboard.json",
    ),
];
/// An empty directory. The Containerfile copies it for the directories that the proxy writes to.
const EMPTY: &str = "empty";

/// Builds the program and the archive.
pub(super) fn build() -> Result<PathBuf> {
    require(&["musl-gcc", "readelf", "tar"])?;
    let program = compile()?;
    check_static(&program)?;
    let name = format!("proscenium-{}-x86_64-linux-musl", env!("CARGO_PKG_VERSION"));
    let tree = folder().join("static").join(&name);
    if tree.exists() {
        fs::remove_dir_all(&tree)?;
    }
    fs::create_dir_all(tree.join(EMPTY))?;
    copy(&program, &tree.join("proscenium"))?;
    for (from, to) in FILES {
        copy(&workspace::root().join(from), &tree.join(to))?;
    }
    let archive = folder().join(format!("{name}.tar.gz"));
    workspace::run(
        Command::new("tar")
            .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
            .args(["--mode=u=rwX,go=rX", "--gzip", "--create", "--file"])
            .arg(&archive)
            .arg("--directory")
            .arg(folder().join("static"))
            .arg(&name),
    )?;
    println!("  {}", archive.display());
    println!("  for an image: buildah build {}", tree.display());
    Ok(archive)
}

/// A release build without symbols; `PROSCENIUM` names a program that is already built.
fn compile() -> Result<PathBuf> {
    if let Some(built) = env::var_os("PROSCENIUM") {
        return Ok(built.into());
    }
    println!("Building proscenium for {TARGET} (some minutes)");
    workspace::run(
        workspace::cargo()
            .args(["build", "--release", "--locked", "--package", "proscenium"])
            .args(["--target", TARGET])
            .args(["--config", "profile.release.strip=\"symbols\""]),
    )
    .with_context(|| format!("if the target is missing, run `rustup target add {TARGET}`"))?;
    Ok(workspace::target().join(TARGET).join("release/proscenium"))
}

/// Fails if the kernel needs an interpreter for the program, or if the program needs a library.
fn check_static(program: &Path) -> Result<()> {
    let headers = output(
        Command::new("readelf")
            .args(["--wide", "--program-headers", "--dynamic"])
            .arg(program),
    )?;
    for (mark, meaning) in [
        ("INTERP", "has an interpreter"),
        ("(NEEDED)", "needs a library"),
    ] {
        if let Some(line) = headers.lines().find(|line| line.contains(mark)) {
            bail!(
                "{} is not static: it {meaning}: {}",
                program.display(),
                line.trim()
            );
        }
    }
    println!("  the program is static");
    Ok(())
}

/// Copies a file, or a directory of files.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let copied = || -> std::io::Result<()> {
        if !from.is_dir() {
            if let Some(parent) = to.parent() {
                fs::create_dir_all(parent)?;
            }
            return fs::copy(from, to).map(drop);
        }
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
        Ok(())
    };
    copied().with_context(|| format!("cannot copy {}", from.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_exist_and_have_what_the_containerfile_copies() {
        for (from, _) in FILES {
            assert!(workspace::root().join(from).exists(), "{from}");
        }
        let containerfile = fs::read_to_string(workspace::root().join("packaging/Containerfile"))
            .expect("it is one of the files");
        let copies = containerfile.lines().filter_map(|line| {
            let line = line.strip_prefix("COPY ")?;
            let mut words = line.split(' ').filter(|word| !word.starts_with("--"));
            words.next()
        });
        let copies: Vec<_> = copies.map(|from| from.trim_end_matches('/')).collect();
        assert!(copies.contains(&"proscenium"), "{copies:?}");
        for from in copies {
            let is_file = FILES.iter().any(|(_, to)| *to == from);
            assert!(is_file || from == "proscenium" || from == EMPTY, "{from}");
        }
        assert!(containerfile.lines().any(|line| line == "FROM scratch"));
    }

    #[test]
    fn a_program_with_an_interpreter_is_refused() {
        if testkit::Tool::Readelf.command().is_none() {
            return;
        }
        let this = env::current_exe().expect("this test is a program");
        let refused = check_static(&this).expect_err("it is linked to the C library");
        assert!(refused.to_string().contains("is not static"), "{refused}");
    }
}
