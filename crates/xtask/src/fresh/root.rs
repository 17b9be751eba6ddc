//! A minimal root of a Debian release with a C compiler, `make`, this machine's Rust toolchain, and a clone.

use std::{
    env,
    ffi::OsStr,
    fs::{self, File},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use rustix::io::{FdFlags, fcntl_setfd};

use crate::{
    debian,
    workspace::{self, output},
};

/// The packages that the README requires.
const PACKAGES: &str = "gcc,libc6-dev,make";

/// Runs the command in its other arguments in a root, with this machine's network and the toolchain. The mounts and all
/// processes end with the namespace.
const ENTER: &str = r#"
    set -e
    root=$1 toolchain=$2
    shift 2
    # A mount point, because a mount namespace cannot be made below another root.
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    for tree in /dev /sys; do mount --rbind "$tree" "$root$tree"; done
    mkdir -p "$root/opt/rust"
    mount --bind -o ro "$toolchain" "$root/opt/rust"
    exec chroot "$root" "$@""#;

/// A minimal root of a Debian release.
pub(super) struct FreshRoot {
    release: String,
    directory: PathBuf,
    toolchain: String,
    /// Removes the directory when this process has ended, even if it was killed.
    remover: Child,
}

impl FreshRoot {
    /// Creates the root from the mirror in this machine's own package sources.
    pub(super) fn make(release: &str) -> Result<Self> {
        let parent = workspace::target().join("fresh");
        fs::create_dir_all(&parent)?;
        let directory = fs::canonicalize(parent)?.join(release);
        ensure!(
            !directory.exists(),
            "{} exists: remove it if no other run uses it",
            directory.display()
        );
        let root = Self {
            release: release.to_owned(),
            toolchain: output(Command::new("rustc").args(["--print", "sysroot"]))?
                .trim()
                .to_owned(),
            remover: remover(&directory)?,
            directory,
        };
        let made = debian::bootstrap(release, PACKAGES, &root.directory)?;
        root.logged(isolated(made.get_program()).args(made.get_args()))?;
        // An installed machine has both of these files.
        root.copy_from_machine("/etc/hosts", "etc/hosts")?;
        root.copy_from_machine("/etc/resolv.conf", "etc/resolv.conf")?;
        let certificates = env::var("SSL_CERT_FILE").unwrap_or_else(|_| CERTIFICATES.to_owned());
        root.copy_from_machine(&certificates, CARGO_CERTIFICATES)?;
        let mut clone = Command::new("git");
        clone.args(["clone", "--quiet"]).arg(workspace::root());
        workspace::run(clone.arg(root.directory.join("root/proscenium")))?;
        Ok(root)
    }

    /// The name of the release.
    pub(super) fn release(&self) -> &str {
        &self.release
    }

    /// The root directory.
    pub(super) fn path(&self) -> &Path {
        &self.directory
    }

    /// Runs a command in the clone as a new user of the machine would. Returns the result and the output.
    pub(super) fn run(&self, command: &str) -> Result<(Result<()>, String)> {
        let mut inside = isolated("sh");
        inside
            .args(["-c", ENTER, "sh"])
            .arg(&self.directory)
            .arg(&self.toolchain)
            .args(["env", "--ignore-environment", "HOME=/root"])
            .arg("PATH=/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .arg(format!("CARGO_HTTP_CAINFO={CARGO_CERTIFICATES}"))
            .args(proxies())
            .args([
                "sh",
                "-c",
                &format!("cd /root/proscenium && {command} 2>&1"),
            ]);
        let outcome = self.logged(&mut inside);
        Ok((outcome, fs::read_to_string(self.log())?))
    }

    /// Runs a command, with its output in the log, and waits for it.
    fn logged(&self, command: &mut Command) -> Result<()> {
        let log = File::create(self.log())?;
        let outcome = workspace::run(command.stdout(log.try_clone()?).stderr(log));
        outcome.with_context(|| self.log().display().to_string())
    }

    fn log(&self) -> PathBuf {
        self.directory.with_extension("log")
    }

    fn copy_from_machine(&self, from: &str, to: &str) -> Result<()> {
        let to = self.directory.join(to.trim_start_matches('/'));
        fs::copy(from, to).with_context(|| format!("cannot copy {from}"))?;
        Ok(())
    }
}

impl Drop for FreshRoot {
    fn drop(&mut self) {
        self.remover.stdin.take();
        let _ = self.remover.wait();
    }
}

/// A process that waits until this process, and the commands that it started, have ended. An interrupt from the
/// terminal does not reach it.
fn remover(directory: &Path) -> Result<Child> {
    let script = "read -r line; rm -rf --one-file-system \"$1\"";
    let mut remover = Command::new("sh");
    remover.args(["-c", script, "sh"]).arg(directory);
    let remover = remover.stdin(Stdio::piped()).process_group(0);
    let remover = remover.spawn().context("sh does not start")?;
    // Each command inherits the writing end of the pipe. The script reads the end of input when the last command has exited.
    let pipe = remover.stdin.as_ref().context("a pipe")?;
    fcntl_setfd(pipe, FdFlags::empty())?;
    Ok(remover)
}

/// The CA certificates of this machine, and their copy for cargo. The package ca-certificates would also install
/// openssl.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";
const CARGO_CERTIFICATES: &str = "/etc/machine-certificates.pem";

/// A command in separate mount and process namespaces. It is killed when this process exits, and its namespaces end
/// with it.
fn isolated(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "unshare"])
        .args(["--mount", "--propagation", "private", "--pid", "--fork"])
        .arg("--kill-child")
        .arg(program)
        .stdin(Stdio::null());
    command
}

/// The environment variables with which this machine reaches its network.
fn proxies() -> impl Iterator<Item = String> {
    let names = ["http_proxy", "https_proxy", "no_proxy"];
    names
        .into_iter()
        .filter_map(|name| Some(format!("{name}={}", env::var(name).ok()?)))
}
