//! Replaces the file of a renewed certificate completely or not at all, even if the process is killed meanwhile.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::{Gid, Uid, fchown};

use state::accounts::user;

/// A chain file that can be replaced: an empty temporary file with the same mode is next to it. The functions block.
#[derive(Debug)]
pub(crate) struct ChainFile {
    /// The target of the configured path. If the path is a symbolic link, the link stays as it is.
    path: PathBuf,
    temporary: PathBuf,
    file: File,
    /// The bytes that are to be replaced.
    active: Vec<u8>,
}

/// Why a chain file is not replaced.
#[derive(Debug, thiserror::Error)]
pub enum ChainFileError {
    /// Another program has changed the file, perhaps to renew the certificate.
    #[error("{} differs from the active certificate", .0.display())]
    Changed(PathBuf),
    /// The operating system reports an error.
    #[error("cannot replace {}: {source}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
}

impl ChainFile {
    /// Prepares the replacement. A file that cannot be replaced makes this fail before the CA is asked for a certificate.
    ///
    /// # Errors
    /// The file does not contain the `active` bytes, or its directory is not writable.
    pub(crate) fn prepare(configured: &Path, active: Vec<u8>) -> Result<Self, ChainFileError> {
        let failed = |source| ChainFileError::System {
            path: configured.to_owned(),
            source,
        };
        let path = fs::canonicalize(configured).map_err(failed)?;
        require(&path, &active)?;
        let metadata = fs::metadata(&path).map_err(failed)?;
        let mut name = std::ffi::OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(".renewed");
        let temporary = path.with_file_name(name);
        let created = || -> io::Result<File> {
            // Remove a file that a killed process has left.
            match fs::remove_file(&temporary) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mode = metadata.mode() & 0o777;
            let mut options = OpenOptions::new();
            let file = options.write(true).create_new(true).mode(mode);
            let file = file.open(&temporary)?;
            file.set_permissions(Permissions::from_mode(mode))?;
            let owner = Uid::from_raw(metadata.uid());
            let group = Gid::from_raw(metadata.gid());
            // Only root may change the owner of a file. A certificate is public, so the account of the service may own it.
            if fchown(&file, Some(owner), Some(group)).is_err() {
                let _ = fchown(&file, None, Some(group));
            }
            Ok(file)
        };
        let file = created().map_err(failed)?;
        Ok(Self {
            path,
            temporary,
            file,
            active,
        })
    }

    /// Replaces the file. A reader finds the old or the new content, even after a crash.
    ///
    /// # Errors
    /// The file is unchanged.
    pub(crate) fn replace(mut self, bytes: &[u8]) -> Result<(), ChainFileError> {
        require(&self.path, &self.active)?;
        let replaced = self.write(bytes);
        replaced.map_err(|source| ChainFileError::System {
            path: self.path.clone(),
            source,
        })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.file.sync_all()?;
        fs::rename(&self.temporary, &self.path)?;
        let directory = self.path.parent().unwrap_or_else(|| Path::new("/"));
        File::open(directory)?.sync_all()
    }
}

impl Drop for ChainFile {
    fn drop(&mut self) {
        // After a replacement, the temporary file does not exist.
        let _ = fs::remove_file(&self.temporary);
    }
}

impl ChainFileError {
    /// What the operator can do.
    pub(crate) fn remedy(&self) -> String {
        match self {
            Self::Changed(_) => {
                "see the alarm materials-refused, or run `proscenium reload`".into()
            }
            Self::System { path, source } => {
                let directory = path.parent().unwrap_or(path).display();
                match source.kind() {
                    io::ErrorKind::PermissionDenied => format!(
                        "allow the account of the proxy to replace it: `setfacl -m u:{}:rwx {directory}`",
                        user()
                    ),
                    io::ErrorKind::ReadOnlyFilesystem => format!(
                        "add `ReadWritePaths={directory}` to [Service] with `systemctl edit proscenium`, and restart the proxy"
                    ),
                    _ => format!("make {directory} writable for the account of the proxy"),
                }
            }
        }
    }
}

/// Checks that a file contains exactly these bytes.
fn require(path: &Path, bytes: &[u8]) -> Result<(), ChainFileError> {
    let read = || -> io::Result<Vec<u8>> {
        let mut found = Vec::new();
        // One byte more shows that the file is longer.
        let max = bytes.len() as u64 + 1;
        File::open(path)?.take(max).read_to_end(&mut found)?;
        Ok(found)
    };
    match read() {
        Ok(found) if found == bytes => Ok(()),
        Ok(_) => Err(ChainFileError::Changed(path.to_owned())),
        Err(source) => Err(ChainFileError::System {
            path: path.to_owned(),
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn the_file_is_replaced_with_its_mode_and_no_other_file_is_left() {
        let place = tempfile::tempdir().unwrap();
        let chain = place.path().join("puppet.pem");
        for mode in [0o600, 0o640, 0o644] {
            fs::write(&chain, "old").unwrap();
            fs::set_permissions(&chain, Permissions::from_mode(mode)).unwrap();
            let file = ChainFile::prepare(&chain, b"old".to_vec()).unwrap();
            file.replace(b"new").unwrap();
            assert_eq!(fs::read(&chain).unwrap(), b"new");
            assert_eq!(fs::metadata(&chain).unwrap().mode() & 0o777, mode);
            assert_eq!(names(place.path()), ["puppet.pem"]);
        }
    }

    /// If the process is killed, the disk has the state between two of these steps.
    #[test]
    fn after_each_step_the_file_is_complete_and_the_next_renewal_starts_again() {
        let place = tempfile::tempdir().unwrap();
        let chain = place.path().join("puppet.pem");
        fs::write(&chain, "old").unwrap();
        let prepared = ChainFile::prepare(&chain, b"old".to_vec()).unwrap();
        assert_eq!(fs::read(&chain).unwrap(), b"old");
        std::mem::forget(prepared);
        let mut written = ChainFile::prepare(&chain, b"old".to_vec()).unwrap();
        written.file.write_all(b"ha").unwrap();
        assert_eq!(fs::read(&chain).unwrap(), b"old");
        std::mem::forget(written);
        assert_eq!(
            names(place.path()).len(),
            2,
            "a killed process removes nothing"
        );
        let last = ChainFile::prepare(&chain, b"old".to_vec()).unwrap();
        last.replace(b"whole").unwrap();
        assert_eq!(fs::read(&chain).unwrap(), b"whole");
        assert_eq!(names(place.path()), ["puppet.pem"]);
    }

    #[test]
    fn a_file_that_another_program_changes_is_left_as_it_is() {
        let place = tempfile::tempdir().unwrap();
        let chain = place.path().join("puppet.pem");
        for other in ["", "ol", "older", "new"] {
            fs::write(&chain, "old").unwrap();
            let file = ChainFile::prepare(&chain, b"old".to_vec()).unwrap();
            fs::write(&chain, other).unwrap();
            let error = file.replace(b"mine").unwrap_err();
            assert!(matches!(error, ChainFileError::Changed(_)), "{error}");
            assert_eq!(fs::read(&chain).unwrap(), other.as_bytes());
            let error = ChainFile::prepare(&chain, b"old".to_vec()).unwrap_err();
            assert!(matches!(error, ChainFileError::Changed(_)), "{error}");
            assert_eq!(names(place.path()), ["puppet.pem"]);
        }
    }

    #[test]
    fn a_symbolic_link_is_followed_and_stays() {
        let place = tempfile::tempdir().unwrap();
        let (chain, link) = (place.path().join("real.pem"), place.path().join("link.pem"));
        fs::write(&chain, "old").unwrap();
        symlink("real.pem", &link).unwrap();
        let file = ChainFile::prepare(&link, b"old".to_vec()).unwrap();
        file.replace(b"new").unwrap();
        assert_eq!(fs::read(&chain).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn the_remedy_names_the_command_for_the_directory() {
        let error = |kind: io::ErrorKind| ChainFileError::System {
            path: "/etc/proscenium/ssl/certs/puppet.pem".into(),
            source: kind.into(),
        };
        let denied = error(io::ErrorKind::PermissionDenied).remedy();
        assert!(denied.contains("`setfacl -m u:"), "{denied}");
        assert!(
            denied.contains(":rwx /etc/proscenium/ssl/certs`"),
            "{denied}"
        );
        let read_only = error(io::ErrorKind::ReadOnlyFilesystem).remedy();
        let setting = "`ReadWritePaths=/etc/proscenium/ssl/certs`";
        assert!(read_only.contains(setting), "{read_only}");
    }
}
