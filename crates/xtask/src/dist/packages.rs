//! Builds the packages of one version from the release binary.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use super::{
    folder,
    portable::{Processor, X86_64, place},
    tools::{self, output},
    tree,
};
use crate::workspace;

/// The revision of the published package.
const FIRST: &str = "1";
/// The revision of a package with another build of the same program, for the upgrade test.
const SECOND: &str = "2";

/// `acl` has `setfacl`, which the guide uses; `logrotate` rotates the access log.
const RECOMMENDED: &str = "acl logrotate";

/// A .deb and an .rpm package of the same revision, for one processor.
pub(super) struct Packages {
    processor: Processor,
    pub(super) deb: PathBuf,
    pub(super) rpm: PathBuf,
}

impl Packages {
    /// Builds both packages of the published revision, and for x86_64 also those with the debug information.
    pub(super) fn publish(processor: Processor) -> Result<Self> {
        let folder = folder();
        let has_debug = processor == X86_64;
        let debug = if has_debug { "--dbgsym" } else { "--no-strip" };
        let deb = generate_deb(processor, FIRST, debug, &folder)?;
        if tree().exists() {
            fs::remove_dir_all(tree())?;
        }
        unpack(&deb, &tree())?;
        if has_debug {
            unpack(&only(&folder, "ddeb")?, &tree())?;
            generate_rpm(processor, FIRST, &["--variant", "debuginfo"])?;
        }
        let rpm = generate_rpm(processor, FIRST, &[])?;
        Ok(Self {
            processor,
            deb,
            rpm,
        })
    }

    /// Builds packages of the next revision, for the test of an upgrade from the published packages.
    pub(super) fn upgrade(&self) -> Result<Self> {
        let processor = self.processor;
        let deb = generate_deb(processor, SECOND, "--strip", &upgrades())?;
        // The upgrade needs a program with other bytes: an upgrade to the same program causes no hand-over.
        let program = tree().join("usr/bin/proscenium");
        let mut bytes = fs::read(&program)?;
        bytes.push(0);
        fs::write(&program, bytes)?;
        let rpm = generate_rpm(processor, SECOND, &[])?;
        Ok(Self {
            processor,
            deb,
            rpm,
        })
    }

    /// Checks that both packages are for the processor of the program, and recommend the same programs.
    pub(super) fn check_fields(&self) -> Result<()> {
        let mut query = Command::new("dpkg-deb");
        query.args(["--show", "--showformat=${Architecture}: ${Recommends}"]);
        let deb = output(query.arg(&self.deb))?.replace(',', "");
        let mut query = Command::new("rpm");
        query.args(["-qp", "--qf", "%{ARCH}: [%{RECOMMENDNAME} ]"]);
        let rpm = output(query.arg(&self.rpm))?;
        for (found, processor) in [(deb, self.processor.debian), (rpm, self.processor.name)] {
            if found.trim() != format!("{processor}: {RECOMMENDED}") {
                bail!("a package for {processor} has the fields {found}");
            }
        }
        Ok(())
    }

    /// Checks that both packages have the same files with the same owners, modes and links.
    pub(super) fn check_content(&self) -> Result<()> {
        let (deb, rpm) = (deb_content(&self.deb)?, rpm_content(&self.rpm)?);
        let only_deb: Vec<_> = deb.iter().filter(|file| !is_in(&rpm, file)).collect();
        let only_rpm: Vec<_> = rpm.iter().filter(|file| !is_in(&deb, file)).collect();
        if !only_deb.is_empty() || !only_rpm.is_empty() {
            bail!(
                "the packages differ; only the .deb has {only_deb:?}, only the .rpm {only_rpm:?}"
            );
        }
        println!("  the .deb and the .rpm have the same {} files", rpm.len());
        Ok(())
    }

    /// Checks that Lintian finds no errors in the .deb.
    pub(super) fn check_by_lintian(&self) -> Result<()> {
        let mut lintian = Command::new("lintian");
        lintian
            .args(["--fail-on", "error", "--allow-root"])
            .arg(&self.deb);
        workspace::run(&mut lintian)?;
        println!("  lintian finds no errors");
        Ok(())
    }
}

/// Builds two .deb packages with a program that was built for this machine. The programs of the two differ.
pub(super) fn pair(binary: &Path) -> Result<(PathBuf, PathBuf)> {
    let program = upgrades().join("proscenium");
    fs::create_dir_all(upgrades())?;
    workspace::run(Command::new("strip").arg("-o").arg(&program).arg(binary))?;
    place(&program, X86_64)?;
    let first = generate_deb(X86_64, FIRST, "--no-strip", &upgrades())?;
    let mut bytes = fs::read(&program)?;
    bytes.push(0);
    fs::write(&program, bytes)?;
    place(&program, X86_64)?;
    let second = generate_deb(X86_64, SECOND, "--no-strip", &upgrades())?;
    Ok((first, second))
}

/// Unpacks a .deb.
pub(super) fn unpack(deb: &Path, to: &Path) -> Result<()> {
    workspace::run(Command::new("dpkg-deb").arg("-x").arg(deb).arg(to))
}

/// The directory of the packages that are not published.
fn upgrades() -> PathBuf {
    folder().join("upgrade")
}

fn generate_deb(
    processor: Processor,
    revision: &str,
    debug: &str,
    folder: &Path,
) -> Result<PathBuf> {
    println!(
        "Building packages of revision {revision} for {}",
        processor.name
    );
    fs::create_dir_all(folder)?;
    let built = output(
        tools::cargo("cargo-deb")?
            .args([
                "--package",
                "proscenium",
                "--locked",
                "--no-build",
                "--quiet",
            ])
            .args(["--target", &processor.target()])
            .args(["--deb-revision", revision, debug, "--output"])
            .arg(folder),
    )?;
    let mut built = built.lines().map(PathBuf::from);
    let deb = built.find(|path| path.extension().is_some_and(|ending| ending == "deb"));
    deb.context("cargo-deb names no .deb")
}

/// Builds an .rpm from the unpacked .deb.
fn generate_rpm(processor: Processor, revision: &str, options: &[&str]) -> Result<PathBuf> {
    // The program does not print the path of its result, so each result has its own directory.
    let (made, folder) = match revision {
        FIRST => (folder().join("rpm"), folder()),
        _ => (upgrades().join("rpm"), upgrades()),
    };
    fs::create_dir_all(&made)?;
    workspace::run(
        tools::cargo("cargo-generate-rpm")?
            .args(["--package", "crates/proscenium", "--set-metadata"])
            .arg(format!("release = \"{revision}\""))
            // Every rpm reads gzip; not every version in RHEL 8 reads zstd, and xz takes minutes.
            .args(["--arch", processor.name, "--payload-compress", "gzip"])
            .args(options)
            .arg("--output")
            .arg(&made),
    )?;
    let file = only(&made, "rpm")?;
    let rpm = folder.join(file.file_name().context("a file has a name")?);
    fs::rename(&file, &rpm)?;
    fs::remove_dir(&made)?;
    Ok(rpm)
}

/// The only file in a folder with this extension.
fn only(folder: &Path, ending: &str) -> Result<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(folder)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|its| its == ending))
        .collect();
    match (found.pop(), found.is_empty()) {
        (Some(path), true) => Ok(path),
        _ => bail!("{} does not have one .{ending}", folder.display()),
    }
}

/// The mode and owner of each file, by path. Directories are left out.
type Content = BTreeMap<String, String>;

fn is_in(content: &Content, (path, rights): &(&String, &String)) -> bool {
    content.get(*path) == Some(*rights)
}

/// Parses lines such as `-rwxr-xr-x 0/0 15133568 2026-11-23 14:02 ./usr/bin/proscenium`. Files that only Debian
/// requires are left out.
fn deb_content(package: &Path) -> Result<Content> {
    let listed = output(Command::new("dpkg-deb").arg("-c").arg(package))?;
    let files = listed.lines().filter_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let [mode, owner, .., path] = words.as_slice() else {
            return None;
        };
        // On Debian, zsh reads its completions from another directory.
        let path = path.trim_start_matches('.');
        Some((
            path.replace("/zsh/vendor-completions/", "/zsh/site-functions/"),
            format!("{mode} {}", owner.replace("0/0", "root:root")),
        ))
    });
    let is_debians = |path: &str| DEBIANS_OWN.iter().any(|own| path.ends_with(own));
    let files = files.filter(|(path, mode)| !mode.starts_with('d') && !is_debians(path));
    Ok(files.collect())
}

const DEBIANS_OWN: [&str; 2] = [
    "/doc/proscenium/copyright",
    "/doc/proscenium/changelog.Debian.gz",
];

fn rpm_content(package: &Path) -> Result<Content> {
    let format = "[%{FILENAMES}\t%{FILEMODES:perms} %{FILEUSERNAME}:%{FILEGROUPNAME}\n]";
    let listed = output(
        Command::new("rpm")
            .args(["-qp", "--qf", format])
            .arg(package),
    )?;
    let files = listed.lines().filter_map(|line| line.split_once('\t'));
    Ok(files
        .map(|(path, rights)| (path.to_owned(), rights.to_owned()))
        .filter(|(_, rights)| !rights.starts_with('d'))
        .collect())
}
