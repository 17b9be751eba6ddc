//! A separate root file system for a package test: a copy-on-write view of this machine with its own processes. Changes
//! stay in memory.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

/// Maximum size of the changes in memory: enough to unpack two packages twice.
const SIZE_MAX: &str = "1g";

/// The root file system. All its processes end when it is dropped.
pub(super) struct Root {
    holder: Child,
    /// The process that holds the namespaces, by its process id outside them.
    pid: u32,
    directory: TempDir,
}

impl Root {
    pub(super) fn new() -> Result<Self> {
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
             mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work overlay root\n\
             rm -rf root/etc/proscenium root/var/lib/proscenium root/var/log/proscenium\n\
             mount -t proc proc root/proc\n\
             mount --rbind /dev root/dev\n\
             mount -t tmpfs -o mode=0755 run root/run\n\
             mount -t tmpfs -o mode=1777 tmp root/tmp\n\
             echo \"$pid\"\n\
             exec sleep infinity"
        );
        let mut holder = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "--pid", "--fork"])
            .args(["--kill-child", "sh", "-c", &script, "sh"])
            .arg(directory.path())
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
            directory,
        })
    }

    /// Prepares to run a program in this root.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args([
                "--target",
                &self.pid.to_string(),
                "--mount",
                "--pid",
                "chroot",
            ])
            .arg(self.directory.path().join("root"))
            .arg(program)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null());
        command
    }

    /// The path of one of this root's files, as seen from outside.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.outside("root").join(path.trim_start_matches('/'))
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
        let found = super::tools::output(
            Command::new("find")
                .current_dir(self.outside("upper"))
                .args([".", "-path", &format!("*{words}*"), "-not", "-type", "c"])
                .args(["-printf", "/%P\n"]),
        )?;
        let mut paths: Vec<_> = found.lines().map(str::to_owned).collect();
        paths.sort();
        Ok(paths)
    }

    fn outside(&self, name: &str) -> PathBuf {
        let directory = self.directory.path().join(name);
        let relative = directory.strip_prefix("/").unwrap_or(&directory);
        PathBuf::from(format!("/proc/{}/root", self.pid)).join(relative)
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        // When the first process of a process id namespace ends, the kernel ends the other processes.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
