//! The path of the admin socket, which the process leaves in its runtime directory. The command line reaches the running proxy
//! with it while the configuration file is being edited.

use std::{
    env,
    fs::{self, Metadata, OpenOptions, Permissions},
    io::{self, Read, Write},
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{self, Path, PathBuf},
};

use admin::settings::AdminSettings;
use rustix::{
    fs::OFlags,
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with},
};
use serde::{Deserialize, Serialize};

use crate::socket_file::SocketFile;

/// Name of the file in the runtime directory.
const FILE: &str = "admin-socket";
/// Maximum size of the file. It has two paths.
const FILE_BYTES_MAX: u64 = 16 << 10;
/// Write permission of the group and of all other accounts.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// The content of the file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RunningSocket {
    /// The admin socket.
    socket: PathBuf,
    /// The configuration file of the process. A command for another configuration must not reach this process.
    configuration: PathBuf,
}

/// The admin socket of the running process that was started with this configuration file. `None` if no process has left its path,
/// or if an account other than root and the account of the service could have written it.
#[must_use]
pub fn running_socket(configuration: &Path) -> Option<PathBuf> {
    read(&runtime_directory()?, configuration).ok().flatten()
}

/// Leaves the path of the admin socket, unless another process with another configuration has left the path of its own. The
/// file is removed when the result is dropped. `None` if there is no runtime directory that this account may write to.
pub(crate) fn leave(configuration: &Path, socket: &Path) -> Option<SocketFile> {
    let directory = runtime_directory()?;
    write(&directory, configuration, socket)
        .inspect_err(|error| {
            let directory = directory.display();
            tracing::debug!(%error, %directory, "cannot leave the path of the admin socket");
        })
        .ok()
        .flatten()
}

/// The directory that systemd creates for a unit with `RuntimeDirectory=`, or the first of several. Without it, the directory
/// of the default admin socket.
fn runtime_directory() -> Option<PathBuf> {
    match env::var("RUNTIME_DIRECTORY") {
        Ok(made) => {
            let first = made.split(':').next().unwrap_or_default();
            first.starts_with('/').then(|| first.into())
        }
        Err(_) => AdminSettings::default().socket.parent().map(Path::to_owned),
    }
}

fn write(directory: &Path, configuration: &Path, socket: &Path) -> io::Result<Option<SocketFile>> {
    let entry = RunningSocket {
        socket: socket.to_owned(),
        configuration: path::absolute(configuration)?,
    };
    if let Ok((other, _)) = entry_in(directory)
        && other.configuration != entry.configuration
        && is_listened_on(&other.socket)
    {
        return Ok(None);
    }
    let (new, path) = (directory.join(format!("{FILE}.new")), directory.join(FILE));
    let _ = fs::remove_file(&new);
    // A symbolic link of another account is not followed.
    let mut file = OpenOptions::new().write(true).create_new(true).open(&new)?;
    file.write_all(&serde_json::to_vec(&entry)?)?;
    // Accounts of `read_group` read it too.
    file.set_permissions(Permissions::from_mode(0o644))?;
    fs::rename(&new, &path)?;
    SocketFile::of(&path).map(Some)
}

/// Whether a process listens on a socket. One that accepts no connection now does, too.
fn is_listened_on(socket: &Path) -> bool {
    let connected = || -> rustix::io::Result<()> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&stream, &SocketAddrUnix::new(socket)?)
    };
    matches!(connected(), Ok(()) | Err(Errno::AGAIN))
}

fn read(directory: &Path, configuration: &Path) -> io::Result<Option<PathBuf>> {
    let (entry, owner) = entry_in(directory)?;
    // A process that crashed leaves the file, and another account may since have a socket at that path.
    let socket = fs::symlink_metadata(&entry.socket)?;
    let is_its_socket = socket.file_type().is_socket() && socket.uid() == owner;
    let is_meant = entry.configuration == path::absolute(configuration)?;
    Ok((is_its_socket && is_meant).then_some(entry.socket))
}

/// The content of the file, and its owner.
///
/// # Errors
/// There is no such file, or another account could have written it.
fn entry_in(directory: &Path) -> io::Result<(RunningSocket, u32)> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
        .open(directory.join(FILE))?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || !is_trusted(&fs::metadata(directory)?, &metadata) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut text = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut text)?;
    Ok((serde_json::from_slice(&text)?, metadata.uid()))
}

/// Whether only root and the owner of the directory, the account of the service, could have written a file.
fn is_trusted(directory: &Metadata, file: &Metadata) -> bool {
    let is_theirs = [0, directory.uid()].contains(&file.uid());
    let modes = directory.mode() | file.mode();
    is_theirs && modes & WRITABLE_BY_OTHERS == 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::{fs::symlink, net::UnixListener};

    use super::*;

    const CONFIGURATION: &str = "/etc/proscenium/proscenium.toml";

    /// A runtime directory of mode 0755, and the path of a socket in it.
    fn directory() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("other.sock");
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        (directory, socket)
    }

    fn found(directory: &Path) -> Option<PathBuf> {
        read(directory, Path::new(CONFIGURATION)).ok().flatten()
    }

    fn left(directory: &Path, configuration: &str, socket: &Path) -> Option<SocketFile> {
        write(directory, Path::new(configuration), socket).unwrap()
    }

    #[test]
    fn the_path_is_found_for_the_same_configuration_until_the_process_ends() {
        let (directory, socket) = directory();
        let at = directory.path();
        assert_eq!(found(at), None);
        let file = left(at, CONFIGURATION, &socket);
        assert_eq!(found(at), None, "no such socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        assert_eq!(found(at).as_ref(), Some(&socket));
        assert_eq!(read(at, Path::new("/etc/other.toml")).unwrap(), None);
        drop(file);
        assert_eq!(found(at), None);
    }

    #[test]
    fn a_process_with_another_configuration_replaces_the_path_of_an_ended_process_only() {
        let (directory, socket) = directory();
        let at = directory.path();
        let listener = UnixListener::bind(&socket).unwrap();
        let _first = left(at, CONFIGURATION, &socket);
        let other = "/etc/other.toml";
        assert!(left(at, other, &at.join("second.sock")).is_none());
        assert!(left(at, CONFIGURATION, &socket).is_some(), "a hand-over");
        drop(listener);
        assert!(left(at, other, &at.join("second.sock")).is_some());
    }

    #[test]
    fn a_path_that_another_account_could_have_written_is_not_used() {
        let (directory, socket) = directory();
        let at = directory.path();
        let _listener = UnixListener::bind(&socket).unwrap();
        let _file = left(at, CONFIGURATION, &socket);
        let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode));
        let path = at.join(FILE);
        for (directory_mode, file_mode, is_used) in [
            (0o755, 0o644, true),
            (0o700, 0o600, true),
            (0o775, 0o644, false),
            (0o757, 0o644, false),
            (0o755, 0o664, false),
            (0o755, 0o646, false),
        ] {
            set(at, directory_mode).unwrap();
            set(&path, file_mode).unwrap();
            let modes = (directory_mode, file_mode);
            assert_eq!(found(at).is_some(), is_used, "{modes:?}");
        }
        set(at, 0o755).unwrap();
        // A symbolic link, also to a file with the same content, and content that is not of the proxy.
        let elsewhere = at.join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        set(&elsewhere, 0o644).unwrap();
        symlink(&elsewhere, &path).unwrap();
        assert_eq!(found(at), None);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "/run/other.sock").unwrap();
        assert_eq!(found(at), None);
    }
}
