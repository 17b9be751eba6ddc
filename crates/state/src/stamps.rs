//! Stamps of materials: what the file system reports without opening them. Equal stamps mean that nothing has changed.

use std::{
    fs::{self, Metadata},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use config::Draft;

/// Maximum number of files of one directory that are read.
pub const DIRECTORY_FILES_MAX: usize = 4096;

/// The stamps of every material, and of each file in materials that are directories. Links are followed, so a link with
/// another target has another stamp.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamps(Vec<(PathBuf, Option<Stamp>)>);

/// The stamp of one file. Inode and change time differ if a file was replaced by one of the same size and age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamps {
    /// The current stamps of all materials that a configuration names.
    pub fn of(draft: &Draft) -> Self {
        let mut stamps = Vec::new();
        for wanted in draft.wanted() {
            let metadata = fs::metadata(&wanted.path).ok();
            if metadata.as_ref().is_some_and(Metadata::is_dir) {
                stamps.extend(files_of(&wanted.path).into_iter().map(stamped));
            }
            stamps.push((wanted.path.clone(), metadata.map(Stamp::from)));
        }
        Self(stamps)
    }

    /// Adds the current stamp of one more file.
    #[must_use]
    pub fn with(mut self, path: &Path) -> Self {
        self.0.push(stamped(path.to_owned()));
        self
    }

    /// Removes the stamps of these paths, whose materials are not active. The result then differs from the stamps on disk.
    #[must_use]
    pub fn without<'p>(mut self, paths: impl IntoIterator<Item = &'p PathBuf>) -> Self {
        for path in paths {
            self.0.retain(|(of, _)| of != path);
        }
        self
    }
}

impl From<Metadata> for Stamp {
    fn from(metadata: Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// The files of a directory, sorted. A directory with too many files is refused when it is read, so only some of its files are
/// returned.
fn files_of(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let entries = entries.take(DIRECTORY_FILES_MAX).map(|entry| entry.path());
    let mut files: Vec<_> = entries.collect();
    files.sort();
    files
}

fn stamped(path: PathBuf) -> (PathBuf, Option<Stamp>) {
    let stamp = fs::metadata(&path).ok().map(Stamp::from);
    (path, stamp)
}
