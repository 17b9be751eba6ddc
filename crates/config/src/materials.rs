//! Materials: the files that a configuration names. The `lifecycle` crate reads them and passes their bytes to this crate.

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
    /// A file of PEM certificates: the leaf, then the intermediates.
    Chain,
    /// A file with a PEM private key. Other accounts must not be able to read it.
    Key,
    /// PEM CA certificates: a file, or a directory of which every file is read.
    Ca,
    /// PEM CRLs: a file, or a directory of which every file is read.
    Crl,
    /// The keys that seal the records of a fleet. Other accounts must not be able to read it.
    FleetKeys,
}

/// The name of a material, and the setting that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaterialName {
    /// Absolute path.
    pub path: PathBuf,
    /// Its use.
    pub kind: MaterialKind,
    /// Key path of the setting that names it. For the agent's own files, of the setting that could name it.
    pub key_path: String,
    /// Whether it comes from the agent's ssldir by default.
    pub from_agent: bool,
    /// Whether the configuration is valid without it.
    pub optional: bool,
    /// Position of the name in the file.
    pub(crate) span: Option<Range<usize>>,
}

/// One material: the bytes of a file, or of each file in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedMaterial {
    /// Contents by name; the files of a directory are sorted by name.
    pub blobs: Vec<Blob>,
    /// Permission bits of the file or directory.
    pub mode: u32,
    /// User id of the owner.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Modification time; for a directory, that of its newest file.
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
    /// Kind of the failure. For a missing or unreadable file, the report has a command that helps.
    pub kind: io::ErrorKind,
    /// The error message of the system.
    pub message: String,
    /// The first directory above the file that this account may not search.
    pub closed: Option<PathBuf>,
}

/// All materials of a configuration by path.
pub type Materials = BTreeMap<PathBuf, Result<LoadedMaterial, MaterialReadError>>;

/// Reads files. The `lifecycle` crate implements it for the disk, and tests implement it in memory.
pub trait MaterialReader {
    /// Certnames in an agent's ssldir that have a certificate and, as far as this process can see, a key. The name `ca`
    /// is left out.
    fn certnames(&self, ssldir: &Path) -> Vec<String>;

    /// Whether `path` is a directory, as far as this process can see.
    fn is_directory(&self, _path: &Path) -> bool {
        true
    }

    /// Reads a material completely.
    ///
    /// # Errors
    /// The error of the system.
    fn read(&self, wanted: &MaterialName) -> Result<LoadedMaterial, MaterialReadError>;
}

/// A configuration with its materials.
#[derive(Clone, Debug)]
pub struct LoadedConfig {
    /// The configuration.
    pub config: Config,
    /// The contents of every material that it names.
    pub materials: Materials,
    /// The report, which has warnings only.
    pub report: ConfigReport,
}

impl From<&io::Error> for MaterialReadError {
    fn from(error: &io::Error) -> Self {
        Self {
            kind: error.kind(),
            message: error.to_string(),
            closed: None,
        }
    }
}

/// A reader without files, for configurations that are checked without their materials.
pub(crate) struct NoFiles;

impl MaterialReader for NoFiles {
    fn certnames(&self, _ssldir: &Path) -> Vec<String> {
        Vec::new()
    }

    fn read(&self, _wanted: &MaterialName) -> Result<LoadedMaterial, MaterialReadError> {
        Err(MaterialReadError {
            kind: io::ErrorKind::Unsupported,
            message: "no files here".into(),
            closed: None,
        })
    }
}
