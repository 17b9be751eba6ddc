//! Builds the program for both processors and for old versions of the C library, with zig as the linker.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use super::tools::{self, output};
use crate::{pgo, workspace};

/// The version of glibc in RHEL 8, which is the oldest distribution that the packages support.
const GLIBC: (u32, u32) = (2, 28);
/// The libraries of glibc. The program may need no other library.
const LIBRARIES: [&str; 7] = ["c", "m", "dl", "rt", "pthread", "util", "resolv"];

/// A processor that packages are built for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Processor {
    /// The name in Rust and rpm.
    pub(super) name: &'static str,
    /// The name in Debian.
    pub(super) debian: &'static str,
}

pub(super) const X86_64: Processor = Processor {
    name: "x86_64",
    debian: "amd64",
};
pub(super) const AARCH64: Processor = Processor {
    name: "aarch64",
    debian: "arm64",
};

impl Processor {
    pub(super) fn target(self) -> String {
        format!("{}-unknown-linux-gnu", self.name)
    }

    /// The file that cargo-deb packages.
    pub(super) fn packaged(self) -> PathBuf {
        workspace::target()
            .join(self.target())
            .join("release/proscenium")
    }
}

/// cargo-zigbuild and the standard library of a processor.
pub(super) struct Builder {
    processor: Processor,
    programs: PathBuf,
}

impl Builder {
    /// Fetches the tools that are missing.
    pub(super) fn fetch(processor: Processor) -> Result<Self> {
        let programs = tools::zig()?;
        let target = processor.target();
        let library =
            output(Command::new("rustc").args(["--print", "target-libdir", "--target", &target]))?;
        if !Path::new(library.trim()).is_dir() {
            output(Command::new("rustup").args(["target", "add", &target]))?;
        }
        Ok(Self {
            processor,
            programs,
        })
    }

    /// A release build, optimized with this profile if there is one.
    pub(super) fn build(&self, profile: Option<&Path>) -> Result<PathBuf> {
        let target = self.processor.target();
        println!("Building proscenium for {target} (some minutes)");
        let (folder, flags) = match profile {
            Some(profile) => ("profiled", pgo::profile_use(profile)),
            None => ("plain", String::new()),
        };
        let folder = workspace::target().join("portable").join(folder);
        let (major, minor) = GLIBC;
        let path = env::var_os("PATH").unwrap_or_default();
        let path = [self.programs.clone()]
            .into_iter()
            .chain(env::split_paths(&path));
        let mut command = Command::new(self.programs.join("cargo-zigbuild"));
        command
            .current_dir(workspace::root())
            .args(["zigbuild", "--release", "--locked"])
            .args(["--package", "proscenium"])
            .args(["--target", &format!("{target}.{major}.{minor}")])
            .arg("--target-dir")
            .arg(&folder)
            .env("PATH", env::join_paths(path)?)
            .env("RUSTFLAGS", flags + " -Clink-arg=-Wl,--build-id=sha1");
        if self.processor != X86_64 {
            // `strip` of this machine cannot read programs for other processors.
            command.args(["--config", "profile.release.strip=\"symbols\""]);
        }
        workspace::run(&mut command)?;
        Ok(folder.join(target).join("release/proscenium"))
    }
}

/// Fails if the program needs a later glibc than the packages require, or another library.
pub(super) fn check_needs(program: &Path) -> Result<()> {
    let read = output(
        Command::new("readelf")
            .args(["--wide", "--dynamic", "--version-info"])
            .arg(program),
    )?;
    let (version, foreign) = needs(&read);
    let (major, minor) = version.context("the program needs no version of glibc")?;
    if let Some(library) = foreign.first() {
        bail!("{} needs {library}", program.display());
    }
    if (major, minor) > GLIBC {
        bail!("{} needs glibc {major}.{minor}", program.display());
    }
    println!(
        "  the program needs no symbol above GLIBC_{major}.{minor}, and only libraries of glibc"
    );
    Ok(())
}

/// The highest version of glibc that a program needs, and the libraries that are not part of glibc, from the output of
/// `readelf`.
fn needs(read: &str) -> (Option<(u32, u32)>, Vec<&str>) {
    let versions = read.split("Name: GLIBC_").skip(1).filter_map(|rest| {
        let mut numbers = rest.split_whitespace().next()?.split('.');
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    });
    let libraries = read.lines().filter(|line| line.contains("(NEEDED)"));
    let libraries = libraries.filter_map(|line| line.split_once('[')?.1.strip_suffix(']'));
    let is_glibc = |name: &&str| {
        let part = |part: &&str| {
            name.strip_prefix("lib")
                .and_then(|rest| rest.strip_prefix(*part))
        };
        name.starts_with("ld-linux-")
            || LIBRARIES
                .iter()
                .any(|library| part(library).is_some_and(|rest| rest.starts_with(".so.")))
    };
    (
        versions.max(),
        libraries.filter(|name| !is_glibc(name)).collect(),
    )
}

/// Copies a program to where cargo-deb expects it.
pub(super) fn place(binary: &Path, processor: Processor) -> Result<()> {
    let packaged = processor.packaged();
    fs::create_dir_all(packaged.parent().unwrap_or(&packaged))?;
    // Cargo's own output is a hard link to this file, so the file is replaced and not written to.
    let _ = fs::remove_file(&packaged);
    fs::copy(binary, &packaged)
        .map(drop)
        .with_context(|| format!("cannot copy {}", binary.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_version_of_glibc_and_other_libraries_are_found() {
        let read = " 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]\n \
            0x0000000000000001 (NEEDED)             Shared library: [libgcc_s.so.1]\n \
            0x0000000000000001 (NEEDED)             Shared library: [ld-linux-x86-64.so.2]\n\
            Version needs section '.gnu.version_r' contains 2 entries:\n\
            \x20 000000: Version: 1  File: libc.so.6  Cnt: 3\n\
            \x20 0x0010:   Name: GLIBC_2.9  Flags: none  Version: 5\n\
            \x20 0x0020:   Name: GLIBC_2.34  Flags: none  Version: 4\n\
            \x20 0x0030:   Name: GLIBC_2.2.5  Flags: none  Version: 3\n\
            \x20 0x0040:   Name: GCC_3.0  Flags: none  Version: 2\n";
        assert_eq!(needs(read), (Some((2, 34)), vec!["libgcc_s.so.1"]));
        assert_eq!(needs(""), (None, Vec::new()));
    }
}
