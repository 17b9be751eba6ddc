//! `cargo xtask fuzz`: runs every fuzz target for some minutes, one for each core at a time, with libFuzzer.

use std::{fs, path::PathBuf, process::Command, sync::Mutex, thread};

use anyhow::{Context, Result, ensure};

use crate::{pinned_programs, workspace};

/// The version that is installed.
const CARGO_FUZZ: &str = "0.13.2";
/// Maximum bytes of an input.
const INPUT_BYTES_MAX: &str = "-max_len=4096";

/// The options of `cargo xtask fuzz`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Minutes for each target
    #[arg(long, default_value_t = 10)]
    minutes: u32,
    /// Only these targets
    #[arg(value_name = "TARGET")]
    only: Vec<String>,
}

/// Fails if a target finds an input that breaks a promise. New inputs stay in target/fuzz, and findings in fuzz/artifacts.
pub(crate) fn run(options: &Options) -> Result<()> {
    let cargo_fuzz = pinned_programs::cargo("cargo-fuzz", CARGO_FUZZ, &[])?;
    let targets = if options.only.is_empty() {
        targets()?
    } else {
        options.only.clone()
    };
    let command = |verb: &str| {
        let mut command = Command::new(&cargo_fuzz);
        command.current_dir(workspace::root());
        // libFuzzer's instrumentation is an unstable feature, which the pinned stable compiler has only with this
        // variable.
        command.env("RUSTC_BOOTSTRAP", "1");
        command.args(["fuzz", verb, "--sanitizer", "none"]);
        command
    };
    workspace::run(&mut command("build"))?;
    let (waiting, failed) = (Mutex::new(targets), Mutex::new(Vec::new()));
    let next = || waiting.lock().ok()?.pop();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(target) = next() {
                    let outcome = fuzz(&target, options.minutes, command("run"));
                    match (outcome, failed.lock()) {
                        (Ok(summary), _) => println!("{target}: {summary}"),
                        (Err(error), Ok(mut failed)) => failed.push(format!("{target}: {error:#}")),
                        (Err(_), Err(_)) => {}
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_default();
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

/// Runs one target and returns libFuzzer's last line of statistics. The corpus of the repository is only read.
fn fuzz(target: &str, minutes: u32, mut command: Command) -> Result<String> {
    let found = workspace::target().join("fuzz").join(target);
    fs::create_dir_all(&found)?;
    let corpus = workspace::root().join("fuzz/corpus").join(target);
    command
        .arg(target)
        .args([&fs::canonicalize(found)?, &corpus])
        .args(["--", INPUT_BYTES_MAX])
        .arg(format!("-max_total_time={}", 60 * minutes));
    let output = command.output().context("cargo-fuzz does not start")?;
    let log = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}\n{log}", output.status);
    let last = log.lines().rfind(|line| line.contains("cov:"));
    Ok(last.context("libFuzzer printed no statistics")?.to_owned())
}

/// The names of all targets.
fn targets() -> Result<Vec<String>> {
    let entries = fs::read_dir(workspace::root().join("fuzz/fuzz_targets"))?;
    let paths: Vec<PathBuf> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    let names = paths.iter().filter_map(|path| path.file_stem());
    Ok(names
        .map(|name| name.to_string_lossy().into_owned())
        .collect())
}
