//! The program of this process, and whether the file on disk has become another build.

use std::{
    env,
    ffi::OsString,
    fs::{self, File},
    io::{self, Read},
    os::unix::{fs::MetadataExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
};

/// The running program: its file as it was at the start.
#[derive(Debug)]
pub(crate) struct RunningProgram {
    path: PathBuf,
    file: Option<FileIdentity>,
    /// The file that was compared last, and whether it is the same build.
    compared: Mutex<Option<(FileIdentity, bool)>>,
}

/// Another build at the path of the running program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ChangedProgram {
    path: PathBuf,
    file: FileIdentity,
}

/// What differs if a file is replaced or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl RunningProgram {
    /// The program of this process. Called at the start, before the file can be replaced.
    pub(crate) fn of_this_process() -> Self {
        // The file may have been replaced between the start and this line.
        let path = without_mark(&env::current_exe().unwrap_or_default());
        Self {
            file: identity(&path).ok(),
            path,
            compared: Mutex::default(),
        }
    }

    /// Another build that has replaced the file since the start. It reads both files the first time, so it blocks. A file that
    /// was replaced by the same bytes is the same build.
    pub(crate) fn changed(&self) -> Option<ChangedProgram> {
        let now = identity(&self.path).ok()?;
        if self.file == Some(now) {
            return None;
        }
        let mut compared = self.compared.lock().unwrap_or_else(PoisonError::into_inner);
        let known = compared.filter(|(file, _)| *file == now);
        let is_same = match known {
            Some((_, is_same)) => is_same,
            None => is_same(Path::new(RUNNING), &self.path).ok()?,
        };
        *compared = Some((now, is_same));
        if is_same {
            return None;
        }
        Some(ChangedProgram {
            path: self.path.clone(),
            file: now,
        })
    }
}

impl ChangedProgram {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file was neither replaced nor written since it was found.
    pub(super) fn is_unchanged(&self) -> bool {
        identity(&self.path).is_ok_and(|now| now == self.file)
    }

    /// The command of a launcher, which starts this program with the arguments of this process, to take over.
    pub(super) fn command(&self, launcher: &str) -> Command {
        let mut arguments = env::args_os();
        let name = arguments.next().unwrap_or_default();
        let mut arguments: Vec<OsString> = arguments.collect();
        if !arguments.iter().any(|argument| argument == HAND_OVER) {
            arguments.push(HAND_OVER.into());
        }
        let mut command = Command::new(RUNNING);
        command
            .arg0(name)
            .arg(launcher)
            .arg(&self.path)
            .args(arguments)
            // These are for this process alone.
            .env_remove("WATCHDOG_PID")
            .env_remove("LISTEN_PID")
            .env_remove("LISTEN_FDS")
            .env_remove("LISTEN_FDNAMES");
        command
    }
}

/// Whether a process runs the program that is on disk, at the path of `started` or else at the path from which it was started.
///
/// # Errors
/// The program of the process cannot be read.
pub(super) fn is_on_disk(pid: u32, started: Option<&ChangedProgram>) -> io::Result<bool> {
    let running = PathBuf::from(format!("/proc/{pid}/exe"));
    let path = match started {
        Some(program) if program.is_unchanged() => return Ok(true),
        Some(program) => program.path.clone(),
        None => without_mark(&fs::read_link(&running)?),
    };
    Ok(path.exists() && is_same(&running, &path)?)
}

/// A path as the kernel shows it, without the mark of a file that was replaced.
fn without_mark(path: &Path) -> PathBuf {
    let text = path.to_string_lossy();
    PathBuf::from(text.strip_suffix(" (deleted)").unwrap_or(&text))
}

/// The option of `run` that takes over from the serving process.
const HAND_OVER: &str = "--hand-over";
/// The program of this process, even if its file was removed.
const RUNNING: &str = "/proc/self/exe";
/// Bytes that are compared at once.
const CHUNK_BYTES: usize = 1 << 16;

fn identity(path: &Path) -> io::Result<FileIdentity> {
    let metadata = fs::metadata(path)?;
    Ok(FileIdentity {
        device: metadata.dev(),
        inode: metadata.ino(),
        bytes: metadata.len(),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    })
}

fn is_same(one: &Path, two: &Path) -> io::Result<bool> {
    let (mut one, mut two) = (File::open(one)?, File::open(two)?);
    let (left, right) = (one.metadata()?, two.metadata()?);
    if (left.dev(), left.ino()) == (right.dev(), right.ino()) {
        return Ok(true);
    }
    if left.len() != right.len() {
        return Ok(false);
    }
    let (mut left, mut right) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    loop {
        let read = one.read(&mut left)?;
        if read == 0 {
            return Ok(true);
        }
        two.read_exact(&mut right[..read])?;
        if left[..read] != right[..read] {
            return Ok(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_with_other_bytes_is_another_build() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program");
        let this = env::current_exe().unwrap();
        fs::copy(&this, &path).unwrap();
        let running = RunningProgram {
            file: identity(&path).ok(),
            path: path.clone(),
            compared: Mutex::default(),
        };
        assert!(running.changed().is_none());
        // A new file with the same bytes.
        fs::remove_file(&path).unwrap();
        assert!(running.changed().is_none(), "no file is not a build");
        fs::copy(&this, &path).unwrap();
        assert!(running.changed().is_none());
        // A file of the same length with another byte, and a shorter file.
        let mut bytes = fs::read(&this).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let changed = running.changed().unwrap();
        assert_eq!(changed.path(), path);
        let command = changed.command("--launcher");
        assert!(command.get_args().any(|one| one == HAND_OVER));
        assert!(changed.is_unchanged());
        fs::write(&path, &bytes[..last]).unwrap();
        assert!(!changed.is_unchanged());
        assert!(running.changed().is_some());
    }
}
