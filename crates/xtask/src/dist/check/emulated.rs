//! Runs the arm64 program on this machine, with an emulator for the processor and Debian's libraries.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use testkit::{Ca, HeldPort};

use crate::{
    dist::{
        folder,
        packages::{Packages, unpack},
        tools::output,
    },
    workspace,
};

pub(super) const PROGRAM: &str = "qemu-aarch64-static";

/// The directory into which libc6-arm64-cross installs the C library.
pub(super) fn libraries() -> Result<PathBuf> {
    let directory = PathBuf::from("/usr/aarch64-linux-gnu");
    ensure!(
        directory.join("lib/libc.so.6").is_file(),
        "not installed: libc6-arm64-cross"
    );
    Ok(directory)
}

/// Runs `version`, `check` and the demonstration with the packaged program.
pub(super) fn check(packages: &Packages, libraries: &Path) -> Result<()> {
    let tree = folder().join("aarch64");
    unpack(&packages.deb, &tree)?;
    let program = fs::canonicalize(tree.join("usr/bin/proscenium"))?;
    let emulated = tree.join("proscenium");
    let script = format!(
        "#!/bin/sh\nexec {PROGRAM} -L '{}' '{}' \"$@\"\n",
        libraries.display(),
        program.display()
    );
    fs::write(&emulated, script)?;
    fs::set_permissions(&emulated, fs::Permissions::from_mode(0o755))?;
    let emulated = fs::canonicalize(emulated)?;

    let version = output(Command::new(&emulated).arg("version"))?;
    ensure!(
        version.contains(env!("CARGO_PKG_VERSION")),
        "version prints {version}"
    );
    println!(
        "  ✓ version: {}",
        version.lines().next().unwrap_or_default()
    );
    accepts_a_configuration(&emulated, &tree)?;
    let this = env::current_exe().context("no name of this program")?;
    workspace::run(Command::new(this).arg("demo").env("PROSCENIUM", &emulated))?;
    println!("  ✓ the demonstration's requests");
    Ok(())
}

fn accepts_a_configuration(program: &Path, folder: &Path) -> Result<()> {
    let ssldir = folder.join("ssl");
    Ca::named("emulated").write_ssldir(&ssldir, "puppet");
    let ports = [0, 1, 2].map(|_| HeldPort::take());
    let [listener, ca, compiler] = ports.each_ref().map(|port| port.address().to_string());
    let configuration = folder.join("proscenium.toml");
    fs::write(
        &configuration,
        format!(
            "ssldir = {ssldir:?}\ncertname = \"puppet\"\n[listeners.agents]\naddress = {listener:?}\n\
             [pools.ca]\nmembers = [{ca:?}]\n[pools.compilers]\nmembers = [{compiler:?}]\n"
        ),
    )?;
    output(
        Command::new(program)
            .args(["check", "--files-only", "--config"])
            .arg(&configuration),
    )?;
    println!("  ✓ check accepts a configuration");
    Ok(())
}
