//! Records what the program is built from: the commit, the compiler and the TLS library. It records neither the time
//! nor the machine, so that the same sources give the same program.
#![expect(
    clippy::disallowed_methods,
    reason = "a build script reads files and the environment"
)]

use std::{env, fs, path::Path, process::Command};

/// The sources of the program, by their path from the root. An uncommitted change in them marks the commit as dirty.
const SOURCES: &[&str] = &[
    "Cargo.toml",
    "Cargo.lock",
    ".cargo",
    "rust-toolchain.toml",
    "crates",
];

const UNKNOWN: &str = "unknown";

fn main() {
    let root = Path::new("../..");
    let lock = root.join("Cargo.lock");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", lock.display());
    println!("cargo::rerun-if-env-changed=PROSCENIUM_COMMIT");
    let commit = env::var("PROSCENIUM_COMMIT").ok().or_else(|| {
        // Only a release build asks git. Otherwise every commit would rebuild the program and its tests.
        let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
        is_release.then(|| watched_commit(root)).flatten()
    });
    let lock = fs::read_to_string(lock).unwrap_or_default();
    record("PROSCENIUM_COMMIT", commit);
    record("PROSCENIUM_RUSTC", rustc());
    record("PROSCENIUM_TLS", tls(&lock));
    record("PROSCENIUM_PROFILE", env::var("PROFILE").ok());
}

fn record(name: &str, value: Option<String>) {
    let value = value.unwrap_or_else(|| UNKNOWN.to_owned());
    println!("cargo::rustc-env={name}={value}");
}

/// The commit. Cargo runs this script again after a change of the sources or of the checked-out commit.
fn watched_commit(root: &Path) -> Option<String> {
    let sources = SOURCES.iter().map(|source| root.join(source));
    let head = ["HEAD", "logs/HEAD"].map(|name| git(root, &["rev-parse", "--git-path", name]));
    let head = head.into_iter().flatten().map(|path| root.join(path));
    // Cargo treats a watched file that does not exist as changed in every build.
    for path in sources.chain(head).filter(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    commit(root)
}

/// The commit of the sources, marked if they differ from it; `None` outside a repository of this project.
fn commit(root: &Path) -> Option<String> {
    // Sources that are unpacked inside another repository do not belong to its commit.
    if !git(root, &["rev-parse", "--show-cdup"])?.is_empty() {
        return None;
    }
    let head = git(root, &["rev-parse", "HEAD"])?;
    let status = ["--no-optional-locks", "status", "--porcelain", "--"];
    match git(root, &[&status, SOURCES].concat())?.is_empty() {
        true => Some(head),
        false => Some(format!("{head}-dirty")),
    }
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    output(git.arg("-C").arg(root).args(arguments))
}

/// The version of the compiler, for example `1.95.0 (59807616e 2026-04-14)`.
fn rustc() -> Option<String> {
    let version = output(Command::new(env::var_os("RUSTC")?).arg("--version"))?;
    Some(version.trim_start_matches("rustc ").to_owned())
}

/// The TLS library and its cryptography library, in the versions of `Cargo.lock`.
fn tls(lock: &str) -> Option<String> {
    let locked = |name: &str| {
        let (_, rest) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
        Some(format!("{name} {}", rest.split('"').next()?))
    };
    Some(format!("{}, {}", locked("rustls")?, locked("aws-lc-rs")?))
}

fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commit_is_marked_if_the_sources_differ_from_it() {
        if testkit::Tool::Git.command().is_none() {
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path();
        assert_eq!(commit(root), None, "no repository");
        let run = |arguments: &[&str]| {
            let identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"];
            git(root, &[&identity, arguments].concat()).expect("git succeeds")
        };
        run(&["init", "--quiet"]);
        assert_eq!(commit(root), None, "no commit");
        fs::create_dir(root.join("crates")).expect("a directory");
        fs::write(root.join("crates/main.rs"), "fn main() {}").expect("a file");
        run(&["add", "."]);
        run(&["commit", "--quiet", "--no-gpg-sign", "--message", "First"]);
        let head = run(&["rev-parse", "HEAD"]);
        assert_eq!(commit(root).as_ref(), Some(&head));

        fs::write(root.join("notes"), "").expect("a file");
        assert_eq!(commit(root).as_ref(), Some(&head), "no source");
        assert_eq!(commit(&root.join("crates")), None, "not the root");
        fs::write(root.join("crates/main.rs"), "fn main() { }").expect("a file");
        assert_eq!(commit(root), Some(format!("{head}-dirty")));
    }

    #[test]
    fn the_tls_library_is_the_locked_one() {
        let lock = "[[package]]\nname = \"aws-lc-rs\"\nversion = \"1.14.0\"\n\n\
                    [[package]]\nname = \"rustls\"\nversion = \"0.23.46\"\nsource = \"\"\n";
        let expected = "rustls 0.23.46, aws-lc-rs 1.14.0";
        assert_eq!(tls(lock).as_deref(), Some(expected));
        assert_eq!(tls(""), None);
    }
}
