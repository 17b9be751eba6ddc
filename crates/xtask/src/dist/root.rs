//! A separate root file system for a package test: a copy-on-write view of this machine or of another root, with its own
//! processes. Changes stay in memory.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rustix::{
    process::{Pid, Signal, kill_process},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use tempfile::TempDir;
use testkit::wait_until;

/// Maximum size of the changes in memory: enough to unpack two packages twice.
const SIZE_MAX: &str = "1g";

/// The root file system. All its processes end when it is dropped.
pub(super) struct Root {
    holder: Child,
    /// The first process of the namespaces, by its process id outside them.
    pid: i32,
    /// The root file system, as the first process sees it.
    inside: PathBuf,
    /// The directory with the layers of the root file system, as the first process sees it.
    layers: Option<TempDir>,
    /// The process with the network of a system that is started, and the directory of its root file system.
    machine: Option<(Child, TempDir)>,
}

/// Maximum time for the start of a system.
const BOOT_MAX: Duration = Duration::from_secs(120);

impl Root {
    /// A view of the root file system in `lower`.
    pub(super) fn new(lower: &Path) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("proscenium-").tempdir()?;
        // An overlay's upper layer must not be inside its lower layer, so it is on a separate file system. The
        // directories are removed, because a proxy that was run on this machine may have left files that do not belong
        // to a package.
        let script = format!(
            "set -e\n\
             read pid rest </proc/self/stat\n\
             mount -t tmpfs -o mode=0755,size={SIZE_MAX} proscenium \"$1\"\n\
             cd \"$1\"\n\
             mkdir upper work root\n\
             mount -t overlay -o lowerdir=\"$2\",upperdir=upper,workdir=work overlay root\n\
             rm -rf root/etc/proscenium root/var/lib/proscenium root/var/log/proscenium\n\
             mount -t proc proc root/proc\n\
             mount --rbind /dev root/dev\n\
             mount -t tmpfs -o mode=0755 run root/run\n\
             mount -t tmpfs -o mode=1777 tmp root/tmp\n\
             echo \"$pid\"\n\
             exec sleep infinity"
        );
        // An interrupt ends this process, but not the first process of another namespace.
        let mut holder = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "unshare"])
            .args(["--mount", "--propagation", "private", "--pid", "--fork"])
            .args(["--kill-child", "sh", "-c", &script, "sh"])
            .arg(directory.path())
            .arg(lower)
            .stdout(Stdio::piped())
            .spawn()
            .context("unshare does not start")?;
        let mut line = String::new();
        let stdout = holder.stdout.take().context("a pipe")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let Ok(pid) = line.trim().parse() else {
            let _ = holder.kill();
            bail!(
                "cannot make a root file system of its own: {}",
                holder.wait()?
            );
        };
        Ok(Self {
            holder,
            pid,
            inside: directory.path().join("root"),
            layers: Some(directory),
            machine: None,
        })
    }

    /// A copy of the root file system in `lower` in which systemd runs. It has its own network, which outlasts a
    /// restart of the system.
    pub(super) fn boot(lower: &Path) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("proscenium-").tempdir()?;
        let copy = directory.path().join(COPY);
        super::tools::output(Command::new("cp").arg("--archive").arg(lower).arg(&copy))?;
        let mut network = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "unshare", "--net", "sh", "-c"])
            .arg("ip link set lo up && echo ready && exec sleep infinity")
            .stdout(Stdio::piped())
            .spawn()
            .context("unshare does not start")?;
        let mut line = String::new();
        let stdout = network.stdout.take().context("a pipe")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let mut root = Self {
            holder: nspawn(&network, directory.path())?,
            pid: 0,
            inside: PathBuf::from("/"),
            layers: None,
            machine: Some((network, directory)),
        };
        root.wait_for_system()?;
        Ok(root)
    }

    /// Restarts the system, and waits until it runs again.
    pub(super) fn reboot(&mut self) -> Result<()> {
        // The command may be killed when the system stops.
        let _ = self.command("systemctl").arg("reboot").output();
        wait_until(BOOT_MAX, || self.holder.try_wait().ok().flatten())
            .context("the system does not stop")?;
        let (network, directory) = self.machine.as_ref().context("a system that runs")?;
        self.holder = nspawn(network, directory.path())?;
        self.wait_for_system()
    }

    /// Waits until the system runs.
    fn wait_for_system(&mut self) -> Result<()> {
        let children = format!("/proc/{0}/task/{0}/children", self.holder.id());
        let booted = wait_until(BOOT_MAX, || {
            let pid = fs::read_to_string(&children).ok()?.trim().parse().ok()?;
            // Before that, the child is another program, which creates the namespaces.
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
            (name.trim() == "systemd").then_some(pid)
        });
        self.pid = booted.context("`systemd-nspawn --boot` does not start systemd")?;
        wait_until(BOOT_MAX, || {
            let state = self.command("systemctl").arg("is-system-running").output();
            let state = String::from_utf8(state.ok()?.stdout).ok()?;
            ["running", "degraded"]
                .contains(&state.trim())
                .then_some(())
        })
        .context("the system does not start")
    }

    /// Moves this thread into the network of this root. Threads and programs that it starts use this network too.
    pub(super) fn join_network(&self) -> Result<()> {
        let network = fs::File::open(format!("/proc/{}/ns/net", self.pid))?;
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
            .context("cannot join a network namespace")
    }

    /// Prepares to run a program in this root.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.pid.to_string(), "--all", "chroot"])
            .arg(&self.inside)
            .arg(program)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null());
        command
    }

    /// The path of one of this root's files, as seen from outside.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.outside(&self.inside)
            .join(path.trim_start_matches('/'))
    }

    /// Copies a file into `/tmp` of this root, and returns its path there.
    pub(super) fn bring(&self, file: &Path) -> Result<String> {
        let name = file.file_name().context("a file has a name")?;
        let inside = format!("/tmp/{}", name.display());
        fs::copy(file, self.path(&inside))?;
        Ok(inside)
    }

    /// The paths that differ from this machine and contain `words`. Removed files are not listed.
    pub(super) fn changed(&self, words: &str) -> Result<Vec<String>> {
        let layers = self.layers.as_ref().context("a root in layers")?;
        let found = super::tools::output(
            Command::new("find")
                .current_dir(self.outside(&layers.path().join("upper")))
                .args([".", "-path", &format!("*{words}*"), "-not", "-type", "c"])
                .args(["-printf", "/%P\n"]),
        )?;
        let mut paths: Vec<_> = found.lines().map(str::to_owned).collect();
        paths.sort();
        Ok(paths)
    }

    fn outside(&self, directory: &Path) -> PathBuf {
        let relative = directory.strip_prefix("/").unwrap_or(directory);
        PathBuf::from(format!("/proc/{}/root", self.pid)).join(relative)
    }
}

/// The directory with the copy of a root file system in which a system is started.
const COPY: &str = "root";

/// Starts the system in the copy in `directory`, with the network of a process. The result exits when the system
/// restarts.
fn nspawn(network: &Child, directory: &Path) -> Result<Child> {
    Command::new("systemd-nspawn")
        .args(["--quiet", "--boot", "--register=no", "--keep-unit"])
        .arg(format!(
            "--network-namespace-path=/proc/{}/ns/net",
            network.id()
        ))
        .arg("--directory")
        .arg(directory.join(COPY))
        // On a host with control groups of version 1, systemd still uses version 2 here.
        .env("SYSTEMD_NSPAWN_UNIFIED_HIERARCHY", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("systemd-nspawn does not start")
}

impl Drop for Root {
    fn drop(&mut self) {
        // When the first process of a process id namespace ends, the kernel ends the other processes. `unshare` ends it.
        if let (Some(_), Some(pid)) = (&self.machine, Pid::from_raw(self.pid)) {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = self.holder.kill();
        let _ = self.holder.wait();
        if let Some((network, _)) = &mut self.machine {
            let _ = network.kill();
            let _ = network.wait();
        }
    }
}
