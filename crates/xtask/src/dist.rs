//! `cargo xtask dist`: a .deb and an .rpm with the same content for each processor, separate debug information, a list of
//! components (SBOM) and checksums, in `target/dist`; with `--static` an archive with a static program; with `--repository`
//! repositories of these packages.

mod check;
mod debian;
mod docs;
mod packages;
mod portable;
mod repository;
mod root;
mod sbom;
mod static_archive;
mod tools;

pub(crate) use docs::INSTALLED;

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};

use self::{
    packages::Packages,
    portable::{AARCH64, Builder, Processor, X86_64},
};
use crate::{pgo, workspace};

/// The options of `cargo xtask dist`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Afterwards install, upgrade, remove and purge both packages in a separate root directory; needs root
    #[arg(long)]
    check: bool,
    /// Build without a profile (`cargo xtask pgo`), which makes the program slower by a seventh
    #[arg(long)]
    plain: bool,
    /// Build an archive with a static program in place of the packages, without a profile; needs musl-tools
    #[arg(long = "static", conflicts_with_all = ["check", "plain"])]
    static_archive: bool,
    /// Build nothing; write an APT and a YUM repository of the packages in target/dist to DIR
    #[arg(long, value_name = "DIR", requires = "key", conflicts_with_all = ["check", "plain", "static_archive"])]
    repository: Option<PathBuf>,
    /// The secret key in the GnuPG keyring (`GNUPGHOME`) that signs the repositories: its fingerprint or a name
    #[arg(long, requires = "repository")]
    key: Option<String>,
}

/// The options of `cargo xtask incidents`.
#[derive(clap::Args)]
pub(crate) struct IncidentOptions {
    #[command(flatten)]
    build: SystemdOptions,
    /// Play only the incidents with these names
    #[arg(value_name = "NAME")]
    only: Vec<String>,
}

/// The options of `cargo xtask systemd`.
#[derive(clap::Args)]
pub(crate) struct SystemdOptions {
    /// Use the debug build of `cargo test`
    #[arg(long)]
    debug: bool,
}

/// Tests the life of the packaged service in a system with a running systemd.
pub(crate) fn systemd(options: &SystemdOptions) -> Result<()> {
    let binary = workspace::build_proscenium(!options.debug)?;
    docs::stage(&folder().join("docs"))?;
    let (first, second) = packages::pair(&binary)?;
    check::run_booted(&first, &second)
}

/// Plays twelve incidents on the packaged service in a system with a running systemd.
pub(crate) fn incidents(options: &IncidentOptions) -> Result<()> {
    let binary = workspace::build_proscenium(!options.build.debug)?;
    docs::stage(&folder().join("docs"))?;
    check::play_incidents(&packages::pair(&binary)?.0, &options.only)
}

/// Maximum size of the packaged program, without debug information.
const BINARY_BYTES_MAX: u64 = 20 << 20;

/// Builds all packages, and checks them.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.static_archive {
        tools::require(&["sha256sum"])?;
        fs::create_dir_all(folder())?;
        static_archive::build()?;
        return write_checksums(&folder());
    }
    if let Some(repository) = &options.repository {
        let key = options.key.as_deref().context("clap requires it")?;
        return repository::write(repository, key);
    }
    tools::require(&["dpkg-deb", "lintian", "rpm", "sha256sum", "readelf"])?;
    if options.check {
        check::require_programs()?;
    }
    let dist = folder();
    let _ = fs::remove_dir_all(&dist);
    fs::create_dir_all(&dist).with_context(|| format!("cannot create {}", dist.display()))?;
    docs::stage(&dist.join("docs"))?;

    let aarch64 = packages_for(AARCH64, || Ok(None))?;
    // This processor is last, because the packages for the upgrade test are built from the same tree.
    let x86_64 = packages_for(X86_64, || {
        if options.plain {
            Ok(None)
        } else {
            pgo::profile(pgo::MINUTES).map(Some)
        }
    })?;
    ensure!(
        aarch64.is_some() || x86_64.is_some(),
        "no package was built"
    );
    sbom::write(&dist.join("proscenium.cdx.json"))?;
    write_checksums(&dist)?;
    if options.check {
        let first = x86_64.context("there are no packages for this machine")?;
        let second = first.upgrade()?;
        check::run(&first, &second, aarch64.as_ref())?;
    }
    Ok(())
}

/// Builds and checks the packages for a processor; `None` if the tools for it cannot be fetched. `PROSCENIUM` names a
/// program for x86_64 that is already built.
fn packages_for(
    processor: Processor,
    profile: impl FnOnce() -> Result<Option<PathBuf>>,
) -> Result<Option<Packages>> {
    let binary = match env::var_os("PROSCENIUM") {
        Some(built) if processor == X86_64 => PathBuf::from(built),
        _ => match Builder::fetch(processor) {
            Ok(builder) => builder.build(profile()?.as_deref())?,
            Err(why) => {
                tools::skip(&format!("the packages for {}", processor.name), &why);
                return Ok(None);
            }
        },
    };
    portable::place(&binary, processor)?;
    let packages = Packages::publish(processor)?;
    check_size()?;
    portable::check_needs(&tree().join("usr/bin/proscenium"))?;
    docs::check_links(&tree())?;
    packages.check_fields()?;
    packages.check_content()?;
    packages.check_by_lintian()?;
    Ok(Some(packages))
}

/// The directory of the results.
fn folder() -> PathBuf {
    workspace::root().join("target/dist")
}

/// The files of the .deb and of its debug information. The .rpm is built from them.
fn tree() -> PathBuf {
    folder().join("tree")
}

fn check_size() -> Result<()> {
    let binary = tree().join("usr/bin/proscenium");
    let bytes = fs::metadata(&binary)
        .with_context(|| format!("{} is missing", binary.display()))?
        .len();
    println!("  the program has {:.1} MB", bytes as f64 / 1e6);
    if bytes > BINARY_BYTES_MAX {
        bail!("the program has {bytes} bytes, more than {BINARY_BYTES_MAX}");
    }
    Ok(())
}

fn write_checksums(dist: &Path) -> Result<()> {
    let mut names: Vec<_> = fs::read_dir(dist)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_file())
        .filter_map(|path| Some(path.file_name()?.to_owned()))
        .filter(|name| name != "SHA256SUMS")
        .collect();
    names.sort();
    let sums = tools::output(
        std::process::Command::new("sha256sum")
            .args(&names)
            .current_dir(dist),
    )?;
    fs::write(dist.join("SHA256SUMS"), &sums)?;
    println!("{}:", dist.join("SHA256SUMS").display());
    print!("{sums}");
    Ok(())
}
