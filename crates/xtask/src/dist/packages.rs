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
    tools::{Tools, output},
    tree,
};
use crate::workspace;

/// The revision of the published package.
pub(super) const FIRST: &str = "1";
/// The revision of a package with another build of the same program, for the upgrade test.
pub(super) const SECOND: &str = "2";

/// A .deb and an .rpm package of the same revision.
pub(super) struct Packages {
    pub(super) deb: PathBuf,
    pub(super) rpm: PathBuf,
}

impl Packages {
    /// Builds both packages. Only the published revision gets a package with debug information.
    pub(super) fn build(tools: &Tools, revision: &str) -> Result<Self> {
        let is_published = revision == FIRST;
        let folder = match is_published {
            true => folder(),
            false => folder().join("upgrade"),
        };
        fs::create_dir_all(&folder)?;
        let debug = match is_published {
            true => "--dbgsym",
            false => "--strip",
        };
        println!("Building packages of revision {revision}");
        let built = output(
            tools
                .command("cargo-deb")
                .args([
                    "--package",
                    "proscenium",
                    "--locked",
                    "--no-build",
                    "--quiet",
                ])
                .args(["--deb-revision", revision, debug, "--output"])
                .arg(&folder),
        )?;
        let mut built = built.lines().map(PathBuf::from);
        let deb = built.find(|path| path.extension().is_some_and(|ending| ending == "deb"));
        let deb = deb.context("cargo-deb names no .deb")?;
        if is_published {
            let debug = only(&folder, "ddeb")?;
            for package in [&deb, &debug] {
                workspace::run(Command::new("dpkg-deb").arg("-x").arg(package).arg(tree()))?;
            }
            generate_rpm(
                tools,
                revision,
                &folder.join("debuginfo"),
                &["--variant", "debuginfo"],
            )?;
            let debug = only(&folder.join("debuginfo"), "rpm")?;
            let name = debug.file_name().context("a file has a name")?;
            fs::rename(&debug, folder.join(name))?;
            fs::remove_dir(folder.join("debuginfo"))?;
        }
        if !is_published {
            // Other bytes: an upgrade to the same program is not a hand-over.
            let program = tree().join("usr/bin/proscenium");
            let mut bytes = fs::read(&program)?;
            bytes.push(0);
            fs::write(&program, bytes)?;
        }
        let rpm = folder.join("rpm");
        generate_rpm(tools, revision, &rpm, &[])?;
        let made = only(&rpm, "rpm")?;
        let rpm_path = folder.join(made.file_name().context("a file has a name")?);
        fs::rename(&made, &rpm_path)?;
        fs::remove_dir(&rpm)?;
        Ok(Self { deb, rpm: rpm_path })
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

fn generate_rpm(tools: &Tools, revision: &str, folder: &Path, options: &[&str]) -> Result<()> {
    fs::create_dir_all(folder)?;
    workspace::run(
        tools
            .command("cargo-generate-rpm")
            .args(["--package", "crates/proscenium", "--set-metadata"])
            .arg(format!("release = \"{revision}\""))
            .args(options)
            .arg("--output")
            .arg(folder),
    )
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
