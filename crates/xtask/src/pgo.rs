//! `cargo xtask pgo`: the program, optimised with a profile of its own work.
//!
//! The program is built with counters, runs for some minutes as in `soak`, and is built again with the counts. The
//! training load is that of the soak and not of the benchmark, so the benchmark measures work for which the build was
//! not trained.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::workspace;

/// How long the training lasts.
#[derive(Args)]
pub(crate) struct Options {
    /// Minutes of work while the counters run
    #[arg(long, default_value_t = MINUTES)]
    minutes: f64,
}

/// Default training time, in which every kind of work of the soak occurs several times.
pub(crate) const MINUTES: f64 = 3.0;

/// Builds, trains, builds again, and prints the path of the program.
pub(crate) fn run(options: &Options) -> Result<()> {
    println!("{}", build(options.minutes)?.display());
    Ok(())
}

/// Collects a profile, and builds the program with it.
fn build(minutes: f64) -> Result<PathBuf> {
    let profile = profile(minutes)?;
    println!("4 of 4: building by the profile");
    let built = workspace::target().join("pgo/built");
    compile(&built, &profile_use(&profile))
}

/// The compiler flag for a build with this profile.
pub(crate) fn profile_use(profile: &Path) -> String {
    format!("-Cprofile-use={}", profile.display())
}

/// Builds, trains, and returns the profile. The profile is valid for builds with `--target` for this processor, with
/// any linker.
pub(crate) fn profile(minutes: f64) -> Result<PathBuf> {
    let folder = workspace::target().join("pgo");
    let (raw, profile) = (folder.join("raw"), folder.join("proscenium.profdata"));
    let merge = profile_tool()?;
    if raw.exists() {
        fs::remove_dir_all(&raw).context("the profile of an earlier run stays")?;
    }
    println!("1 of 4: building with counters");
    let counted = compile(
        &folder.join("counted"),
        &format!("-Cprofile-generate={}", raw.display()),
    )?;
    println!("2 of 4: {minutes} minutes of work");
    train(&counted, minutes)?;
    println!("3 of 4: reading the counters");
    let mut command = Command::new(merge);
    command.arg("merge").arg("-o").arg(&profile).arg(&raw);
    workspace::run(&mut command)?;
    Ok(profile)
}

/// A release build of the program with these compiler flags, in a separate directory.
fn compile(target: &Path, flags: &str) -> Result<PathBuf> {
    let mut command = workspace::cargo();
    command
        .args([
            "build",
            "--release",
            "--locked",
            "--package",
            "proscenium",
            // Names of functions differ between builds with and without `--target`, and the profile has these names.
            "--target",
            "host-tuple",
            "--target-dir",
        ])
        .arg(target)
        .env("RUSTFLAGS", flags);
    workspace::run(&mut command)?;
    let tuple = format!("{}-unknown-linux-gnu", env::consts::ARCH);
    Ok(target.join(tuple).join("release/proscenium"))
}

/// Runs the soak with this program, which writes its counters when it ends.
fn train(program: &Path, minutes: f64) -> Result<()> {
    let ourselves = env::current_exe().context("no name of this program")?;
    let warm_up = (minutes * 60.0 / 4.0).to_string();
    let mut command = Command::new(ourselves);
    // With counters the program is slower and larger, so its memory has no limit here.
    command
        .args(["soak", "--growth-kib-max", "1000000", "--patience", "20"])
        .args(["--faults", "false"])
        .args(["--minutes", &minutes.to_string(), "--warm-up", &warm_up])
        .env("PROSCENIUM", program);
    workspace::run(&mut command)
}

/// `llvm-profdata` of the compiler's own LLVM, because another version may not read the counters.
fn profile_tool() -> Result<PathBuf> {
    let asked = Command::new("rustc")
        .args(["--print", "target-libdir"])
        .output();
    let asked = asked.context("rustc does not start")?;
    let library = String::from_utf8(asked.stdout).context("a path that is not UTF-8")?;
    let tool = Path::new(library.trim()).with_file_name("bin/llvm-profdata");
    ensure!(
        tool.is_file(),
        "no {}: install it with `rustup component add llvm-tools`",
        tool.display()
    );
    Ok(tool)
}
