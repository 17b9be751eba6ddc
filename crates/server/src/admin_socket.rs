//! The file of the admin socket: made at the start, removed at the end if it is still the same one.

use std::{
    fs, io,
    os::unix::{
        fs::{FileTypeExt, MetadataExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

/// The socket's file. It is removed when this value is dropped, unless another process has put its own there.
#[derive(Debug)]
pub(crate) struct AdminSocket {
    path: PathBuf,
    /// Device and inode of the file that this process made.
    file: (u64, u64),
}

impl AdminSocket {
    /// Binds the socket with mode 0600. A socket on which no process accepts connections is left from a crash and is
    /// replaced.
    ///
    /// # Errors
    /// Another process accepts connections there, the path is not a socket, or the system refuses.
    pub(crate) fn bind(path: &Path) -> io::Result<(Self, UnixListener)> {
        if let Some(parent) = path.parent()
            && !parent.exists()
        {
            fs::create_dir_all(parent)?;
        }
        if may_bind(path)? == Found::Stale {
            fs::remove_file(path)?;
        }
        let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
        let bound = UnixListener::bind(path);
        rustix::process::umask(before);
        let listener = bound?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        let socket = Self {
            path: path.to_owned(),
            file: file_of(path)?,
        };
        Ok((socket, listener))
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        if file_of(&self.path).is_ok_and(|found| found == self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// What is at the path of a socket that is to be bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing.
    Nothing,
    /// A socket on which no process accepts connections.
    Stale,
}

/// Whether a socket can be bound at `path`, as far as its file says.
///
/// # Errors
/// Another process accepts connections there, or it is not a socket.
pub(crate) fn may_bind(path: &Path) -> io::Result<Found> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::Nothing),
        Err(error) => Err(error),
        Ok(found) if !found.file_type().is_socket() => Err(io::Error::other(
            "a file that is not a socket has this path",
        )),
        Ok(_) => match UnixStream::connect(path) {
            Ok(_) => Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "another proscenium accepts connections there",
            )),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(Found::Stale),
            Err(error) => Err(error),
        },
    }
}

fn file_of(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}
