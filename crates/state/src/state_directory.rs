//! The state directory: what the process learns and what operators change while it runs, stored for the next start.
//!
//! It contains small files that are written completely or not at all. If the directory cannot be used, the process continues
//! with its state in memory, and an alarm says that the state will be lost at a restart.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File, Metadata, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
    time::SystemTime,
};

use rustix::fs::{Access, AtFlags, CWD, FlockOperation, OFlags, accessat, flock};
use telemetry::{Alarm, Alarms};

use crate::stored_history;

/// The state directory, and whether it can be used. Its functions block, so a worker thread must not call them.
#[derive(Debug)]
pub struct StateDirectory {
    path: PathBuf,
    /// Why the last write of a file failed, by the name of the file.
    trouble: Mutex<BTreeMap<String, String>>,
    /// Locked by the writer, because two writers of the same name would write to the same temporary file.
    writing: Mutex<()>,
    /// The locked file [`LOCK`], while this process owns the directory.
    lock: Mutex<Option<Lock>>,
    /// [`Ownership`] as a number.
    ownership: AtomicU8,
    /// An account whose files are accepted, in addition to those of this account and of root.
    account: Option<u32>,
    alarms: Arc<Alarms>,
}

/// Which process writes to the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ownership {
    /// This process.
    Ours,
    /// Another process has taken over, and has the state. Writes of this process are skipped.
    HandedOver,
    /// A hand-over has failed, and the other process still has the lock. Writes fail until this process has the lock again.
    Lost,
}

/// Another process owns the state directory.
#[derive(Debug, thiserror::Error)]
#[error("another process{} uses the state directory {}", .pid.map_or_else(String::new, |pid| format!(" ({pid})")), directory.display())]
pub struct StateDirectoryInUse {
    directory: PathBuf,
    /// The process, if it can be read.
    pid: Option<u32>,
}

/// Whether the directory exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exists {
    /// It exists.
    Yes,
    /// A start would create it.
    No,
}

/// Why a file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The operating system reports an error.
    #[error("{}: {source}", path.display())]
    System {
        /// File or directory.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// Another account could have written it.
    #[error("{} {fault}, so another account could change the state of the proxy", path.display())]
    NotOurs {
        /// File or directory.
        path: PathBuf,
        /// What is wrong with owner or mode.
        fault: String,
    },
    /// It is larger than any file that the proxy writes.
    #[error("{} is larger than {max} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit.
        max: u64,
    },
}

impl StateError {
    /// What the operator does.
    fn help(&self) -> &'static str {
        match self {
            Self::System { source, .. }
                if matches!(
                    source.kind(),
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
                ) =>
            {
                "free space or inodes on its file system (df -h, df -i); the proxy tries again by itself"
            }
            _ => {
                "make it writable for the account of the service, or set another in [state] directory; the proxy tries again by itself"
            }
        }
    }
}

/// A locked file. It is unlocked explicitly, because a child process that is being started has a copy of the descriptor until
/// it runs its program. The lock would otherwise last as long as the copy.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

impl StateDirectory {
    /// Opens the directory at `path`, and creates it if it does not exist. If it cannot be used, an alarm is raised.
    pub fn open(path: &Path, alarms: &Arc<Alarms>) -> Self {
        let directory = Self::at(path, None, alarms);
        directory.test();
        directory
    }

    /// Locks the directory for this process until it ends or [`unlock`](Self::unlock) is called. A directory that cannot be used
    /// is not locked, because nothing is written to it.
    ///
    /// # Errors
    /// Another process has locked it.
    pub fn lock(&self) -> Result<(), StateDirectoryInUse> {
        self.take_lock()?;
        self.set_ownership(Ownership::Ours);
        Ok(())
    }

    fn take_lock(&self) -> Result<(), StateDirectoryInUse> {
        let path = self.path.join(LOCK);
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(&path);
        let Ok(mut file) = opened else {
            return Ok(());
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let text = fs::read_to_string(&path).unwrap_or_default();
                return Err(StateDirectoryInUse {
                    directory: self.path.clone(),
                    pid: text.trim().parse().ok(),
                });
            }
            // The file system has no locks.
            Err(_) => return Ok(()),
        }
        // The process ID is only information for operators. The lock alone decides.
        let _ = file
            .set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        *self.locked() = Some(Lock(file));
        Ok(())
    }

    /// Lets another process lock the directory. This process writes nothing to it from now on.
    pub fn unlock(&self) {
        // Waits until no write is half finished.
        let _one_at_a_time = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.set_ownership(Ownership::HandedOver);
        *self.locked() = None;
    }

    /// Raises the alarm that the lock could not be taken again after a failed hand-over. [`try_again`](Self::try_again) clears
    /// the alarm as soon as the lock is free.
    pub fn lost(&self) {
        self.set_ownership(Ownership::Lost);
        self.note(PROBE, &self.writable().map(drop), LOST);
    }

    fn set_ownership(&self, ownership: Ownership) {
        self.ownership.store(ownership as u8, Ordering::SeqCst);
    }

    /// Whether this process writes to the directory.
    ///
    /// # Errors
    /// Another process has the lock, although this one serves.
    fn writable(&self) -> Result<bool, StateError> {
        let ownership = self.ownership.load(Ordering::SeqCst);
        if ownership == Ownership::Lost as u8 {
            return Err(StateError::System {
                path: self.path.join(LOCK),
                source: io::Error::other("another process has locked it since a failed hand-over"),
            });
        }
        Ok(ownership == Ownership::Ours as u8)
    }

    fn locked(&self) -> MutexGuard<'_, Option<Lock>> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The directory at `path` for reading by the process that opens it later. Nothing is created.
    pub fn for_reading(path: &Path) -> Self {
        Self::at(path, None, &Arc::default())
    }

    /// The directory at `path` for commands that only read it. Nothing is created. Root, which runs a command in place of the
    /// service, accepts the files of the account that owns the directory, as the service does.
    pub fn unopened(path: &Path) -> Self {
        let of_service = || fs::metadata(path).ok().map(|metadata| metadata.uid());
        let us = rustix::process::geteuid();
        Self::at(
            path,
            us.is_root().then(of_service).flatten(),
            &Arc::default(),
        )
    }

    fn at(path: &Path, account: Option<u32>, alarms: &Arc<Alarms>) -> Self {
        Self {
            path: path.to_owned(),
            trouble: Mutex::default(),
            writing: Mutex::default(),
            lock: Mutex::default(),
            ownership: AtomicU8::new(Ownership::Ours as u8),
            account,
            alarms: Arc::clone(alarms),
        }
    }

    /// Whether the directory exists and this account may not use it.
    pub fn is_closed(&self) -> bool {
        match fs::metadata(&self.path) {
            Ok(found) if found.uid() != ROOT && !self.accepts(found.uid()) => true,
            Ok(found) if found.is_dir() => fs::read_dir(&self.path).is_err_and(is_denied),
            Ok(_) => false,
            Err(error) => is_denied(error),
        }
    }

    /// Whether files of an account are accepted.
    fn accepts(&self, account: u32) -> bool {
        account == rustix::process::geteuid().as_raw() || Some(account) == self.account
    }

    /// Whether this account could use the directory, checked without writing.
    ///
    /// # Errors
    /// Why it could not be used.
    pub fn usable(&self) -> Result<Exists, StateError> {
        let failed = |source| StateError::System {
            path: self.path.clone(),
            source,
        };
        match fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Exists::No),
            Err(error) => Err(failed(error)),
            Ok(found) if !found.is_dir() => Err(failed(io::Error::other("it is not a directory"))),
            Ok(found) => {
                self.is_ours(&self.path, &found)?;
                let access = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
                permitted(&self.path, access).map_err(failed)?;
                Ok(Exists::Yes)
            }
        }
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Why state would be lost at a restart. `None` if it would not. The history of events is not state.
    pub fn trouble(&self) -> Option<String> {
        let troubled = self.troubled();
        let mut state = troubled
            .iter()
            .filter(|(name, _)| *name != stored_history::FILE);
        state.next().map(|(_, why)| why.clone())
    }

    /// Whether the last write of `name` failed.
    pub fn lacks(&self, name: &str) -> bool {
        self.troubled().contains_key(name)
    }

    /// Tests the directory again, if that test is what failed before.
    pub fn try_again(&self) {
        if self.lacks(PROBE) && self.lock().is_ok() {
            self.test();
        }
    }

    /// Reads the file `name`. `None` if it does not exist.
    ///
    /// # Errors
    /// It cannot be read, is larger than `max`, or another account could have written it.
    pub fn read(&self, name: &str, max: u64) -> Result<Option<Vec<u8>>, StateError> {
        let path = self.path.join(name);
        let failed = |source| StateError::System {
            path: path.clone(),
            source,
        };
        match fs::metadata(&self.path) {
            Ok(metadata) => self.is_ours(&self.path, &metadata)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        }
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(OPEN_FLAGS.bits().cast_signed())
            .open(&path);
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(failed(io::Error::other("it is not a file")));
        }
        self.is_ours(&path, &metadata)?;
        let mut bytes = Vec::new();
        file.take(max + 1).read_to_end(&mut bytes).map_err(failed)?;
        match bytes.len() as u64 > max {
            true => Err(StateError::TooLarge { path, max }),
            false => Ok(Some(bytes)),
        }
    }

    /// Whether there is no file `name`. An error of [`read`](Self::read) is then a fault of the directory, which has an alarm of
    /// its own.
    pub fn is_absent(&self, name: &str) -> bool {
        let found = fs::symlink_metadata(self.path.join(name)).map_err(|error| error.kind());
        matches!(
            found,
            Err(io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        )
    }

    /// Writes the file `name` completely, or leaves it as it is. `lost` is a sentence that names what a restart loses without
    /// the file.
    ///
    /// # Errors
    /// It could not be written. The alarm about this name is raised, and is cleared by its next successful write. After
    /// [`unlock`](Self::unlock) nothing is written, because the other process has the state.
    pub fn write(&self, name: &str, bytes: &[u8], lost: &str) -> Result<(), StateError> {
        let outcome = self.prepare().and_then(|()| self.replace(name, bytes));
        self.note(name, &outcome, lost);
        outcome
    }

    /// Appends to the file `name`, which is created if it does not exist. `lost` is a sentence as in [`write`](Self::write).
    ///
    /// # Errors
    /// As [`write`](Self::write). The file is then as before, or ends with a part of `bytes`.
    pub fn append(&self, name: &str, bytes: &[u8], lost: &str) -> Result<(), StateError> {
        let outcome = self.prepare().and_then(|()| self.extend(name, bytes));
        self.note(name, &outcome, lost);
        outcome
    }

    /// Renames the file `name`.
    ///
    /// # Errors
    /// It still has that name.
    pub fn rename(&self, name: &str, new_name: &str) -> Result<(), StateError> {
        if !self.writable()? {
            return Ok(());
        }
        let path = self.path.join(name);
        let renamed = fs::rename(&path, self.path.join(new_name));
        renamed.map_err(|source| StateError::System { path, source })
    }

    /// Removes the file `name`.
    ///
    /// # Errors
    /// It still exists.
    pub fn remove(&self, name: &str) -> Result<(), StateError> {
        if !self.writable()? {
            return Ok(());
        }
        let path = self.path.join(name);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(StateError::System { path, source })
            }
            _ => Ok(()),
        }
    }

    /// Creates the directory if it does not exist, and checks that no other account can write to it.
    fn prepare(&self) -> Result<(), StateError> {
        let failed = |source| StateError::System {
            path: self.path.clone(),
            source,
        };
        let metadata = match fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let made = DirBuilder::new().mode(0o700).create(&self.path);
                made.map_err(failed)?;
                fs::metadata(&self.path).map_err(failed)?
            }
            found => found.map_err(failed)?,
        };
        match metadata.is_dir() {
            true => self.is_ours(&self.path, &metadata),
            false => Err(failed(io::Error::other("it is not a directory"))),
        }
    }

    /// Tests the directory by writing a file, which shows more than permissions do: a full disk or a read-only mount.
    fn test(&self) {
        let outcome = self.prepare().and_then(|()| self.probe());
        self.note(PROBE, &outcome, LOST);
    }

    fn probe(&self) -> Result<(), StateError> {
        // The file is not empty, because an empty file can be created on a full disk.
        self.replace(PROBE, b"\n")?;
        self.remove(PROBE)
    }

    /// Writes a temporary file and renames it, so that a reader finds the old or the new content, even after a crash.
    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), StateError> {
        let _one_at_a_time = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.writable()? {
            return Ok(());
        }
        let (path, temporary) = (self.path.join(name), self.path.join(format!("{name}.new")));
        let written = || -> io::Result<()> {
            // A temporary file that a crash has left is removed, because its mode and owner are unknown.
            match fs::remove_file(&temporary) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            after_step();
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&temporary)?;
            after_step();
            file.write_all(bytes)?;
            after_step();
            file.sync_all()?;
            after_step();
            fs::rename(&temporary, &path)?;
            after_step();
            File::open(&self.path)?.sync_all()?;
            after_step();
            Ok(())
        };
        written().map_err(|source| {
            // An incomplete file is useless, and the disk may be full.
            let _ = fs::remove_file(&temporary);
            StateError::System { path, source }
        })
    }

    fn extend(&self, name: &str, bytes: &[u8]) -> Result<(), StateError> {
        let _one_at_a_time = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.writable()? {
            return Ok(());
        }
        let path = self.path.join(name);
        let failed = |source| StateError::System {
            path: path.clone(),
            source,
        };
        let opened = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(OPEN_FLAGS.bits().cast_signed())
            .open(&path);
        let mut file = opened.map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        self.is_ours(&path, &metadata)?;
        let appended = file.write_all(bytes).and_then(|()| file.sync_data());
        appended.map_err(|error| {
            let _ = file.set_len(metadata.len());
            failed(error)
        })
    }

    /// Raises or clears the alarm about a file, or about the directory.
    fn note(&self, name: &str, outcome: &Result<(), StateError>, lost: &str) {
        let about = |name| match name {
            PROBE => "",
            name => name,
        };
        let mut trouble = self.troubled();
        match outcome {
            Ok(()) => {
                for name in [name, PROBE] {
                    trouble.remove(name);
                    self.alarms.clear(Alarm::StateDirectory, about(name));
                }
            }
            Err(error) => {
                trouble.insert(name.to_owned(), error.to_string());
                let message = match name {
                    PROBE => format!(
                        "the state directory is unusable: {error}; {lost}; {}",
                        error.help()
                    ),
                    name => format!(
                        "cannot write {name} to the state directory: {error}; {lost}; {}",
                        error.help()
                    ),
                };
                self.alarms.raise(
                    Alarm::StateDirectory,
                    about(name),
                    message,
                    SystemTime::now(),
                );
            }
        }
    }

    /// Checks that a file belongs to this account or to root, and that no other account can write to it.
    fn is_ours(&self, path: &Path, metadata: &Metadata) -> Result<(), StateError> {
        let not_ours = |fault: String| StateError::NotOurs {
            path: path.to_owned(),
            fault,
        };
        let owner = metadata.uid();
        if owner != ROOT && !self.accepts(owner) {
            return Err(not_ours(format!("belongs to uid {owner}")));
        }
        let mode = metadata.mode() & 0o7777;
        match mode & 0o022 {
            0 => Ok(()),
            _ => Err(not_ours(format!("has mode {mode:04o}"))),
        }
    }

    fn troubled(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether this account may access `path`, by the effective user id as opening the file would.
///
/// # Errors
/// It may not, or the path does not exist.
pub fn permitted(path: &Path, access: Access) -> io::Result<()> {
    Ok(accessat(CWD, path, access, AtFlags::EACCESS)?)
}

fn is_denied(error: io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// A link could lead to a file of another account, and opening a pipe would wait for its other end.
const OPEN_FLAGS: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK);
/// The user id of root.
const ROOT: u32 = 0;
/// The owner of the directory locks this file, which contains its process ID.
const LOCK: &str = "lock";
/// The file that tests whether the directory is writable.
const PROBE: &str = "probe";
/// What a restart loses if nothing can be written.
const LOST: &str = "changes made now are lost at the next restart";

/// A point at which a test may end the process.
#[cfg(not(test))]
fn after_step() {}
#[cfg(test)]
use tests::after_step;

#[cfg(test)]
mod tests {
    use std::{
        env,
        os::unix::{
            fs::{PermissionsExt, symlink},
            process::ExitStatusExt,
        },
        process::Command,
        sync::atomic::AtomicUsize,
    };

    use super::*;

    #[test]
    fn a_written_file_is_read_completely_and_only_its_owner_can_access_it() {
        let place = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(&place.path().join("state"), &Arc::default());
        assert_eq!(state.trouble(), None);
        assert_eq!(state.read("list", 10).unwrap(), None);
        state.write("list", b"first", LOST).unwrap();
        state.write("list", b"second", LOST).unwrap();
        assert_eq!(state.read("list", 10).unwrap().unwrap(), b"second");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(state.path()), 0o700);
        assert_eq!(mode(&state.path().join("list")), 0o600);
        let names = fs::read_dir(state.path()).unwrap().count();
        assert_eq!(names, 1, "no temporary file is left");
        state.remove("list").unwrap();
        state.remove("list").unwrap();
        assert_eq!(state.read("list", 10).unwrap(), None);
    }

    /// The step after which [`writes_until_killed`] ends by SIGKILL.
    const KILL_AFTER: &str = "PROSCENIUM_TEST_KILL_AFTER";
    const KILL_IN: &str = "PROSCENIUM_TEST_KILL_IN";
    /// Steps of a write.
    const STEPS: usize = 6;
    static STEPS_DONE: AtomicUsize = AtomicUsize::new(0);

    pub(super) fn after_step() {
        let done = STEPS_DONE.fetch_add(1, Ordering::SeqCst) + 1;
        if env::var(KILL_AFTER).is_ok_and(|step| step == done.to_string()) {
            let us = rustix::process::getpid();
            let _ = rustix::process::kill_process(us, rustix::process::Signal::KILL);
        }
    }

    /// Run by the next test in a process of its own.
    #[test]
    fn writes_until_killed() {
        let Some(path) = env::var_os(KILL_IN) else {
            return;
        };
        let state = StateDirectory::for_reading(Path::new(&path));
        state.lock().unwrap();
        state.write("list", &NEW, LOST).unwrap();
    }

    const OLD: [u8; 5000] = [b'o'; 5000];
    const NEW: [u8; 9000] = [b'n'; 9000];

    #[test]
    fn a_process_killed_at_any_step_of_a_write_leaves_the_old_or_the_new_content() {
        for step in 1..=STEPS + 1 {
            let place = tempfile::tempdir().unwrap();
            let state = StateDirectory::open(place.path(), &Arc::default());
            state.write("list", &OLD, LOST).unwrap();
            let ended = Command::new(env::current_exe().unwrap())
                .args(["--exact", "state_directory::tests::writes_until_killed"])
                .env(KILL_AFTER, step.to_string())
                .env(KILL_IN, place.path())
                .output()
                .unwrap();
            let is_killed = ended.status.signal() == Some(9);
            assert_eq!(is_killed, step <= STEPS, "step {step}: {ended:?}");
            // The next start is not hindered by what the killed process has left, and writes again.
            let state = StateDirectory::open(place.path(), &Arc::default());
            state.lock().unwrap();
            let found = state.read("list", 10_000).unwrap().unwrap();
            match step > 4 {
                true => assert_eq!(found, NEW, "step {step}"),
                false => assert_eq!(found, OLD, "step {step}"),
            }
            state.write("list", b"next", LOST).unwrap();
            assert_eq!(state.read("list", 10).unwrap().unwrap(), b"next");
            assert_eq!(state.trouble(), None);
        }
    }

    #[test]
    fn one_process_at_a_time_owns_the_directory() {
        let place = tempfile::tempdir().unwrap();
        let (first, second) = (
            StateDirectory::open(place.path(), &Arc::default()),
            StateDirectory::open(place.path(), &Arc::default()),
        );
        first.lock().unwrap();
        let us = std::process::id();
        let refused = second.lock().unwrap_err().to_string();
        assert!(
            refused.contains(&format!("another process ({us}) uses")),
            "{refused}"
        );
        first.write("list", b"first", LOST).unwrap();
        // A child process that is being started.
        let copy = first.locked().as_ref().unwrap().0.try_clone().unwrap();
        first.unlock();
        first.write("list", b"second", LOST).unwrap();
        assert_eq!(first.read("list", 10).unwrap().unwrap(), b"first");
        second.lock().unwrap();
        drop(copy);
        first.lock().unwrap_err();
        // A hand-over that has failed: nothing is reported as stored until the lock is free again.
        first.lost();
        first.write("list", b"third", LOST).unwrap_err();
        assert!(first.trouble().is_some());
        first.try_again();
        first.write("list", b"third", LOST).unwrap_err();
        drop(second);
        first.try_again();
        assert!(first.lacks("list"), "it is written again by the next round");
        first.write("list", b"third", LOST).unwrap();
        assert_eq!(first.trouble(), None);
    }

    #[test]
    fn a_file_that_is_too_large_or_that_another_account_could_write_is_not_read() {
        let place = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(place.path(), &Arc::default());
        state.write("list", b"0123456789", LOST).unwrap();
        assert_eq!(state.read("list", 10).unwrap().unwrap().len(), 10);
        let refused = state.read("list", 9).unwrap_err().to_string();
        assert!(refused.contains("larger than 9 bytes"), "{refused}");
        let list = place.path().join("list");
        fs::set_permissions(&list, fs::Permissions::from_mode(0o666)).unwrap();
        let refused = state.read("list", 10).unwrap_err().to_string();
        assert!(refused.contains("has mode 0666"), "{refused}");
        symlink(&list, place.path().join("link")).unwrap();
        assert!(state.read("link", 10).is_err());
        rustix::fs::mknodat(
            CWD,
            place.path().join("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let refused = state.read("pipe", 10).unwrap_err().to_string();
        assert!(refused.contains("it is not a file"), "{refused}");
    }

    #[test]
    fn an_unusable_directory_is_an_alarm_until_it_can_be_used() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("state");
        fs::write(&path, "a file").unwrap();
        let state = StateDirectory::open(&path, &Arc::default());
        assert!(state.trouble().unwrap().contains("it is not a directory"));
        assert!(state.write("list", b"", LOST).is_err());
        fs::remove_file(&path).unwrap();
        state.write("other", b"", LOST).unwrap();
        assert!(state.lacks("list") && !state.lacks("other"));
        assert!(state.trouble().unwrap().contains("it is not a directory"));
        state.write("list", b"", LOST).unwrap();
        assert_eq!(state.trouble(), None);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(state.write("list", b"", LOST).is_err());
        assert!(state.trouble().unwrap().contains("has mode 0777"));
        assert!(state.read("list", 10).is_err());
        let nowhere = StateDirectory::open(&place.path().join("a/b"), &Arc::default());
        assert!(nowhere.trouble().is_some());
        assert_eq!(nowhere.read("list", 10).unwrap(), None);
        nowhere.try_again();
        assert!(nowhere.trouble().is_some());
        fs::create_dir(place.path().join("a")).unwrap();
        nowhere.try_again();
        assert_eq!(nowhere.trouble(), None);
    }

    #[test]
    fn root_reads_files_of_the_service_for_a_command_but_not_for_a_start() {
        if !rustix::process::geteuid().is_root() {
            return; // Only root can create files of another account.
        }
        let place = tempfile::tempdir().unwrap();
        let service = Some(rustix::fs::Uid::from_raw(54_321));
        StateDirectory::open(place.path(), &Arc::default())
            .write("list", b"whole", LOST)
            .unwrap();
        for path in [place.path().to_owned(), place.path().join("list")] {
            rustix::fs::chown(&path, service, None).unwrap();
        }
        let looking = StateDirectory::unopened(place.path());
        assert_eq!(looking.read("list", 10).unwrap().unwrap(), b"whole");
        assert!(!looking.is_closed());
        // Files of a third account are still refused.
        let other = Some(rustix::fs::Uid::from_raw(54_322));
        rustix::fs::chown(place.path().join("list"), other, None).unwrap();
        assert!(looking.read("list", 10).is_err());
        // A proxy that runs as root does not accept files of another account.
        let running = StateDirectory::open(place.path(), &Arc::default());
        assert!(running.trouble().unwrap().contains("belongs to uid 54321"));
        assert!(running.is_closed());
    }

    #[test]
    fn a_temporary_file_that_a_crash_has_left_is_replaced() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("list.new"), "ha").unwrap();
        let state = StateDirectory::open(place.path(), &Arc::default());
        state.write("list", b"whole", LOST).unwrap();
        assert_eq!(state.read("list", 10).unwrap().unwrap(), b"whole");
    }
}
