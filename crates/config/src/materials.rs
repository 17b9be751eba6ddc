//! Materials: the files that a configuration names, as bytes handed in by the one crate that opens files.

use std::{
    collections::BTreeMap,
    io,
    ops::Range,
    path::{Path, PathBuf},
    time::SystemTime,
};

use crate::{config::Config, report::ConfigReport};

/// What a material is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MaterialKind {
    /// PEM certificates: leaf, then intermediates. A file.
    Chain,
    /// PEM private key. A file that others may not read.
    Key,
    /// PEM CA certificates. A file, or a directory of which every file counts.
    Ca,
    /// PEM revocation lists. A file, or a directory of which every file counts.
    Crl,
}

/// The name of a material, and who asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaterialName {
    /// Absolute path.
    pub path: PathBuf,
    /// What it is read for.
    pub kind: MaterialKind,
    /// Key path of the setting that names it; of the setting that would, where it is the agent's own.
    pub key_path: String,
    /// Whether it comes from the agent's ssldir by default.
    pub from_agent: bool,
    /// Whether the configuration holds without it.
    pub optional: bool,
    /// Where the file names it.
    pub(crate) span: Option<Range<usize>>,
}

/// One material: the bytes of a file, or of each file in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedMaterial {
    /// Contents by name, sorted by name where they come from a directory.
    pub blobs: Vec<Blob>,
    /// Permission bits of the file or directory.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Time of the last change, the newest one of a directory's files.
    pub modified: Option<SystemTime>,
}

/// The contents of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// Path as shown in errors.
    pub name: String,
    /// Contents.
    pub bytes: Vec<u8>,
}

/// Why a material could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaterialReadError {
    /// Which kind of failure: absent and denied have commands that help.
    pub kind: io::ErrorKind,
    /// The system's words.
    pub message: String,
}

/// All materials of a configuration by path.
pub type Materials = BTreeMap<PathBuf, Result<LoadedMaterial, MaterialReadError>>;

/// Reads files: implemented by `server`, and by a table in tests.
pub trait MaterialReader {
    /// Certnames that have a certificate, and as far as can be seen a key, in an agent's ssldir; `ca` is none.
    fn certnames(&self, ssldir: &Path) -> Vec<String>;

    /// Whether a directory is at `path`, as far as can be seen.
    fn is_directory(&self, _path: &Path) -> bool {
        true
    }

    /// Reads a material whole.
    ///
    /// # Errors
    /// What the system says.
    fn read(&self, wanted: &MaterialName) -> Result<LoadedMaterial, MaterialReadError>;
}

/// A configuration with its materials.
#[derive(Clone, Debug)]
pub struct LoadedConfig {
    /// The configuration.
    pub config: Config,
    /// The bytes of every material it names.
    pub materials: Materials,
    /// Warnings; no errors.
    pub report: ConfigReport,
}

impl From<&io::Error> for MaterialReadError {
    fn from(error: &io::Error) -> Self {
        Self {
            kind: error.kind(),
            message: error.to_string(),
        }
    }
}

/// For texts that are checked without their materials.
pub(crate) struct NoFiles;

impl MaterialReader for NoFiles {
    fn certnames(&self, _ssldir: &Path) -> Vec<String> {
        Vec::new()
    }

    fn read(&self, _wanted: &MaterialName) -> Result<LoadedMaterial, MaterialReadError> {
        Err(MaterialReadError {
            kind: io::ErrorKind::Unsupported,
            message: "no files here".into(),
        })
    }
}
