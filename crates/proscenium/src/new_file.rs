//! New files, written completely or not at all.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::{self as unix_fs, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    process,
};

/// What to do with a file that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Existing {
    /// The write fails with `AlreadyExists`, and the file stays as it is.
    Keep,
    /// The new file replaces it.
    Replace,
}

/// Writes a file with this mode. Readers see the complete file or the previous one.
///
/// # Errors
/// The error of the system; `AlreadyExists` if the file exists and must not be replaced.
pub(crate) fn write(path: &Path, text: &str, mode: u32, existing: Existing) -> io::Result<()> {
    let temporary = beside(path);
    let written = write_temporary(&temporary, text, mode).and_then(|()| match existing {
        Existing::Replace => fs::rename(&temporary, path),
        // Unlike a rename, a link fails if the name exists.
        Existing::Keep => fs::hard_link(&temporary, path),
    });
    // After a rename, the temporary file no longer exists.
    let _ = fs::remove_file(&temporary);
    written
}

/// Replaces the text of a file, which keeps its mode and its owner. Readers see the complete text or the previous one. Of a link,
/// the file that it names is replaced.
///
/// # Errors
/// The error of the system. The file is as it was.
pub(crate) fn replace_text(path: &Path, text: &str) -> io::Result<()> {
    let path = fs::canonicalize(path)?;
    let existing = fs::metadata(&path)?;
    let temporary = beside(&path);
    let written = write_temporary(&temporary, text, existing.mode() & 0o7777)
        .and_then(|()| unix_fs::chown(&temporary, Some(existing.uid()), Some(existing.gid())))
        .and_then(|()| fs::rename(&temporary, &path));
    // After a rename, the temporary file no longer exists.
    let _ = fs::remove_file(&temporary);
    written
}

/// A name in the same directory, for content that is not complete.
pub(crate) fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.new", process::id()))
}

fn write_temporary(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    // The umask may have removed permissions.
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_only_where_that_is_wanted() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        write(&path, "first", 0o640, Existing::Keep).expect("it does not exist");
        let mode = |path: &Path| fs::metadata(path).expect("it exists").permissions().mode();
        assert_eq!(mode(&path) & 0o7777, 0o640);
        let refused = write(&path, "second", 0o644, Existing::Keep).expect_err("it exists");
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).expect("it exists"), "first");
        write(&path, "second", 0o644, Existing::Replace).expect("it is replaced");
        assert_eq!(fs::read_to_string(&path).expect("it exists"), "second");
        assert_eq!(mode(&path) & 0o7777, 0o644);
        let left = fs::read_dir(directory.path()).expect("a directory").count();
        assert_eq!(left, 1, "no temporary file is left");
    }
}
