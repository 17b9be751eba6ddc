//! The file of a Unix socket that the proxy listens on. It is created when the socket is bound, and removed with the socket if
//! it is still the same file.

use std::{
    fs, io,
    os::unix::{
        fs::{FileTypeExt, MetadataExt, PermissionsExt, chown},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

/// The file of a socket. It is removed when this value is dropped, unless another process has replaced it.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode of the file that this process created.
    file: (u64, u64),
}

impl SocketFile {
    /// Binds the socket with mode 0600. A socket on which no process accepts connections is left from a crash and is
    /// replaced.
    ///
    /// # Errors
    /// Another process accepts connections there, the path is not a socket, or the system refuses.
    pub(crate) fn bind_private(path: &Path) -> io::Result<(Self, UnixListener)> {
        prepare_path(path)?;
        let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
        let bound = UnixListener::bind(path);
        rustix::process::umask(before);
        let listener = bound?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        Ok((Self::of(path)?, listener))
    }

    /// Binds a socket to which only the account of the proxy can connect until [`set_access`](Self::set_access), because
    /// the umask of the process denies write access to all others. A stale socket is replaced as by
    /// [`bind_private`](Self::bind_private).
    ///
    /// # Errors
    /// Another process accepts connections there, the path is not a socket, or the system refuses.
    pub(crate) fn bind(path: &Path) -> io::Result<(Self, UnixListener)> {
        prepare_path(path)?;
        let listener = UnixListener::bind(path)?;
        Ok((Self::of(path)?, listener))
    }

    /// Sets permissions and, if one is given, the group.
    ///
    /// # Errors
    /// The system refuses: the account may not give a file to that group.
    pub(crate) fn set_access(&self, mode: u32, group: Option<u32>) -> io::Result<()> {
        chown(&self.path, None, group)?;
        fs::set_permissions(&self.path, fs::Permissions::from_mode(mode))
    }

    /// Leaves the file to another process, which accepts connections on the same socket.
    pub(crate) fn leave(mut self) {
        self.file = NO_FILE;
    }

    /// The file of a socket that this process received from another one.
    ///
    /// # Errors
    /// There is no such file.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            file: file_of(path)?,
        })
    }
}

/// Creates the directory of a socket, and removes a stale socket.
fn prepare_path(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent()
        && !parent.exists()
    {
        fs::create_dir_all(parent)?;
    }
    match may_bind(path)? {
        Found::Stale => fs::remove_file(path),
        Found::Nothing => Ok(()),
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.file != NO_FILE && file_of(&self.path).is_ok_and(|found| found == self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// What exists at the path of a socket before it is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// Nothing.
    Nothing,
    /// A socket on which no process accepts connections.
    Stale,
}

/// Tests whether a socket can be bound at `path`, without binding it.
///
/// # Errors
/// Another process accepts connections there, or it is not a socket.
pub(crate) fn try_bind(path: &Path) -> io::Result<()> {
    may_bind(path).map(drop)
}

fn may_bind(path: &Path) -> io::Result<Found> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::Nothing),
        Err(error) => Err(error),
        Ok(found) if !found.file_type().is_socket() => Err(io::Error::other(
            "a file that is not a socket has this path",
        )),
        Ok(_) => match UnixStream::connect(path) {
            Ok(_) => Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "another process accepts connections there",
            )),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(Found::Stale),
            Err(error) => Err(error),
        },
    }
}

/// Stands for a file that is not removed.
const NO_FILE: (u64, u64) = (0, 0);

fn file_of(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}
