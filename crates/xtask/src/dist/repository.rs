//! `cargo xtask dist --repository`: an APT and a YUM repository of the packages, signed with a key.
//!
//! Packages that are already in the directory stay, so that a new version can be added to a published repository.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use super::{
    folder,
    portable::{AARCH64, X86_64},
    tools::{output, require},
};
use crate::workspace;

/// The programs that write repositories.
pub(super) const PROGRAMS: [&str; 5] = ["apt-ftparchive", "createrepo_c", "gpg", "gzip", "rpmsign"];
/// The public key in the directory of the repositories.
pub(super) const KEY: &str = "proscenium.asc";
/// The release of the APT repository.
const SUITE: &str = "stable";

/// Adds the packages in `target/dist` to the repositories in this directory.
pub(super) fn write(to: &Path, key: &str) -> Result<()> {
    require(&PROGRAMS)?;
    let (debs, rpms) = (built("deb")?, built("rpm")?);
    ensure!(
        !debs.is_empty() && !rpms.is_empty(),
        "there are no packages in {}: run `cargo xtask dist`",
        folder().display()
    );
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    let public = output(gpg(key).args(["--armor", "--export", key]))?;
    ensure!(!public.is_empty(), "the keyring has no key {key:?}");
    fs::write(to.join(KEY), public)?;
    write_apt(&to.join("apt"), &debs, key)?;
    write_yum(&to.join("yum"), &rpms, key)?;
    println!("{}: apt, yum and {KEY}", to.display());
    Ok(())
}

/// The packages with this extension.
fn built(ending: &str) -> Result<Vec<PathBuf>> {
    let files = fs::read_dir(folder()).context("run `cargo xtask dist` before")?;
    Ok(files
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|its| its == ending))
        .collect())
}

fn write_apt(apt: &Path, debs: &[PathBuf], key: &str) -> Result<()> {
    copy(debs, &apt.join("pool"))?;
    let suite = apt.join("dists").join(SUITE);
    let processors = [X86_64, AARCH64].map(|processor| processor.debian);
    for processor in processors {
        let index = suite.join("main").join(format!("binary-{processor}"));
        fs::create_dir_all(&index)?;
        let mut list = Command::new("apt-ftparchive");
        list.args(["--arch", processor, "packages", "pool"]);
        let packages = index.join("Packages");
        fs::write(&packages, output(list.current_dir(apt))?)?;
        workspace::run(
            Command::new("gzip")
                .args(["--keep", "--force", "-9n"])
                .arg(packages),
        )?;
    }
    let mut release = Command::new("apt-ftparchive");
    for (field, value) in [
        ("Origin", "Proscenium"),
        ("Label", "Proscenium"),
        ("Suite", SUITE),
        ("Codename", SUITE),
        ("Components", "main"),
        ("Architectures", &processors.join(" ")),
    ] {
        release.args(["-o", &format!("APT::FTPArchive::Release::{field}={value}")]);
    }
    // The index would otherwise list its own previous version.
    for old in ["Release", "InRelease", "Release.gpg"] {
        let _ = fs::remove_file(suite.join(old));
    }
    let release = output(release.arg("release").arg(&suite))?;
    let file = suite.join("Release");
    fs::write(&file, release)?;
    for (how, signed) in [
        ("--clear-sign", "InRelease"),
        ("--detach-sign", "Release.gpg"),
    ] {
        sign(key, how, &file, &suite.join(signed))?;
    }
    Ok(())
}

fn write_yum(yum: &Path, rpms: &[PathBuf], key: &str) -> Result<()> {
    for rpm in copy(rpms, yum)? {
        output(
            Command::new("rpmsign")
                // Debian's rpm looks for gpg2, which Debian does not have.
                .args(["--define", "__gpg /usr/bin/gpg"])
                .args(["--define", &format!("_gpg_name {key}"), "--addsign"])
                .arg(rpm),
        )?;
    }
    // The libraries of RHEL 8 read gzip.
    output(
        Command::new("createrepo_c")
            .args(["--quiet", "--general-compress-type=gz"])
            .arg(yum),
    )?;
    let metadata = yum.join("repodata/repomd.xml");
    sign(
        key,
        "--detach-sign",
        &metadata,
        &metadata.with_extension("xml.asc"),
    )
}

/// Copies files into a directory, and returns the copies.
fn copy(files: &[PathBuf], to: &Path) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(to)?;
    let copies = files.iter().map(|file| {
        let copy = to.join(file.file_name().context("a file has a name")?);
        fs::copy(file, &copy)?;
        Ok(copy)
    });
    copies.collect()
}

fn sign(key: &str, how: &str, file: &Path, signed: &Path) -> Result<()> {
    let mut command = gpg(key);
    command
        .args(["--armor", how, "--output"])
        .arg(signed)
        .arg(file);
    output(&mut command).map(drop)
}

fn gpg(key: &str) -> Command {
    let mut command = Command::new("gpg");
    command.args(["--batch", "--yes", "--local-user", key]);
    command
}
