//! Reading the configuration and the materials it names.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::SystemTime,
};

use config::{
    Blob, ConfigReport, ConfigSource, Draft, Environment, LoadedConfig, LoadedMaterial,
    MaterialKind, MaterialName, MaterialReadError, MaterialReader, Materials, Overrides,
    PuppetConf,
};
use state::stamps::{DIRECTORY_FILES_MAX, Stamps};

use crate::Options;

/// Maximum size of the configuration file.
const CONFIG_BYTES_MAX: u64 = 4 << 20;
/// Maximum size of a material. A CRL with a million entries has 40 MB.
const MATERIAL_BYTES_MAX: u64 = 512 << 20;
/// Maximum size of a puppet.conf.
const PUPPET_CONF_BYTES_MAX: u64 = 1 << 20;

/// A configuration with its materials, as read from disk.
pub(crate) struct ConfigFiles {
    pub(crate) loaded: LoadedConfig,
    /// The parsed text, from which the materials can be read again without reading the text.
    pub(crate) draft: Draft,
    /// The stamps of the materials just before they were read.
    pub(crate) stamps: Stamps,
}

/// Materials as they are on disk, valid or not.
pub(crate) struct FoundMaterials {
    pub(crate) draft: Draft,
    /// Their stamps just before they were read.
    pub(crate) stamps: Stamps,
    pub(crate) materials: Materials,
}

impl FoundMaterials {
    /// The configuration with `materials` in place of those on disk.
    ///
    /// # Errors
    /// Everything that is wrong with the configuration and these materials.
    pub(crate) fn with(&self, materials: Materials) -> Result<ConfigFiles, ConfigReport> {
        Ok(ConfigFiles {
            loaded: self.draft.clone().finish(materials)?,
            draft: self.draft.clone(),
            stamps: self.stamps.clone(),
        })
    }
}

/// Reads and validates the configuration and its materials, for start, reload and `check` alike.
///
/// # Errors
/// Everything that is wrong, including a configuration file that cannot be read.
pub(crate) fn load(options: &Options) -> Result<ConfigFiles, ConfigReport> {
    let text = read_limited(&options.config, CONFIG_BYTES_MAX)
        .and_then(|bytes| {
            String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8 text"))
        })
        .map_err(|error| ConfigReport::unreadable(&options.config.display().to_string(), &error))?;
    load_text(options, text)
}

/// As [`load`], with a text in place of the one in the configuration file.
///
/// # Errors
/// Everything that is wrong with the text and the materials that it names.
pub(crate) fn load_text(options: &Options, text: String) -> Result<ConfigFiles, ConfigReport> {
    let overrides = Overrides {
        ssldir: options.ssldir.clone(),
        certname: options.certname.clone(),
    };
    let source = ConfigSource {
        name: options.config.display().to_string(),
        text,
    };
    read_materials(Draft::read(&source, &overrides, &environment(), &Disk))
}

/// As [`load`], for a running process. A start may read the configuration from a pipe. Opening the pipe again would wait for
/// another writer, and blocks and fetched CRLs would wait for that reload.
///
/// # Errors
/// As for [`load`], and a configuration that is not a regular file.
pub(crate) fn load_again(options: &Options) -> Result<ConfigFiles, ConfigReport> {
    match fs::metadata(&options.config) {
        Ok(metadata) if !metadata.is_file() => Err(ConfigReport::unreadable(
            &options.config.display().to_string(),
            &io::Error::other("it is not a regular file, so it cannot be read again"),
        )),
        _ => load(options),
    }
}

/// Whether the configuration file has this text. A file of another size is not read.
pub(crate) fn has_text(options: &Options, text: &str) -> bool {
    let found = fs::metadata(&options.config);
    found.is_ok_and(|found| found.is_file() && found.len() == text.len() as u64)
        && read_limited(&options.config, CONFIG_BYTES_MAX)
            .is_ok_and(|bytes| bytes == text.as_bytes())
}

/// Reads the materials that a configuration names, without validating them. The configuration file is not read, because it
/// may have changed on disk.
pub(crate) fn found_materials(draft: &Draft) -> FoundMaterials {
    let draft = draft.at(SystemTime::now());
    let stamps = Stamps::of(&draft);
    let read = |wanted: &MaterialName| (wanted.path.clone(), Disk.read(wanted));
    let materials = draft.wanted().iter().map(read).collect();
    FoundMaterials {
        draft,
        stamps,
        materials,
    }
}

fn read_materials(draft: Draft) -> Result<ConfigFiles, ConfigReport> {
    let stamps = Stamps::of(&draft);
    let loaded = draft.clone().load(&Disk)?;
    Ok(ConfigFiles {
        loaded,
        draft,
        stamps,
    })
}

/// The file system.
struct Disk;

impl MaterialReader for Disk {
    fn certnames(&self, ssldir: &Path) -> Vec<String> {
        let Ok(entries) = fs::read_dir(ssldir.join("certs")) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .flatten()
            .take(DIRECTORY_FILES_MAX)
            .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".pem")?.to_owned()))
            .filter(|name| name != routing::pool_names::CA && has_key(ssldir, name))
            .collect();
        names.sort();
        names
    }

    fn is_directory(&self, path: &Path) -> bool {
        // A directory that this account may not see may exist.
        fs::metadata(path).map_or_else(
            |error| error.kind() != io::ErrorKind::NotFound,
            |found| found.is_dir(),
        )
    }

    fn read(&self, wanted: &MaterialName) -> Result<LoadedMaterial, MaterialReadError> {
        read(wanted).map_err(|error| MaterialReadError {
            closed: first_closed(&wanted.path),
            ..MaterialReadError::from(&error)
        })
    }
}

/// The first directory above a path that this account may not search, if there is one.
fn first_closed(path: &Path) -> Option<PathBuf> {
    let is_closed = |below: &&Path| {
        let found = fs::symlink_metadata(below);
        found.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    };
    // `symlink_metadata` of a path searches the directories above it.
    let hidden = path.ancestors().filter(is_closed).last()?;
    hidden.parent().map(Path::to_owned)
}

/// The configured CRLs as they are on disk now. Files that cannot be read are skipped.
pub fn crls(draft: &Draft) -> Vec<pki::Named<Vec<u8>>> {
    let wanted = draft.wanted().iter();
    let wanted = wanted.filter(|wanted| wanted.kind == MaterialKind::Crl);
    wanted
        .filter_map(|wanted| read(wanted).ok())
        .flat_map(|material| material.blobs)
        .map(|blob| pki::Named::new(blob.name, blob.bytes))
        .collect()
}

/// Whether a key may exist. An account that may not read the directory gets an error when the key is read.
fn has_key(ssldir: &Path, name: &str) -> bool {
    let key = ssldir.join("private_keys").join(format!("{name}.pem"));
    !matches!(key.try_exists(), Ok(false))
}

fn read(wanted: &MaterialName) -> io::Result<LoadedMaterial> {
    let metadata = fs::metadata(&wanted.path)?;
    let mut material = LoadedMaterial {
        blobs: Vec::new(),
        mode: metadata.permissions().mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        modified: metadata.modified().ok(),
    };
    if metadata.is_file() {
        material.blobs.push(blob(&wanted.path)?);
        return Ok(material);
    }
    // Opening a pipe waits for a writer, and a device may never end.
    if !metadata.is_dir() {
        return Err(io::Error::other("it is neither a file nor a directory"));
    }
    if matches!(wanted.kind, MaterialKind::Chain | MaterialKind::Key) {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let mut paths: Vec<_> = fs::read_dir(&wanted.path)?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    if paths.len() > DIRECTORY_FILES_MAX {
        return Err(io::Error::other(format!(
            "more than {DIRECTORY_FILES_MAX} files"
        )));
    }
    paths.sort();
    for path in paths.iter().filter(|path| path.is_file()) {
        let blob = blob(path)?;
        // Every file with a PEM CRL is read, whatever its name. Another file in the directory, like a README, is not an error.
        if wanted.kind == MaterialKind::Ca || pki::holds_crl(&blob.bytes) {
            material.modified = material.modified.max(fs::metadata(path)?.modified().ok());
            material.blobs.push(blob);
        }
    }
    Ok(material)
}

fn blob(path: &Path) -> io::Result<Blob> {
    Ok(Blob {
        name: path.display().to_string(),
        bytes: read_limited(path, MATERIAL_BYTES_MAX)?,
    })
}

fn read_limited(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    use io::Read;
    let mut bytes = Vec::new();
    fs::File::open(path)?
        .take(max + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        Err(io::Error::other(format!("larger than {max} bytes")))
    } else {
        Ok(bytes)
    }
}

fn environment() -> Environment {
    Environment {
        ssldirs: Environment::SSLDIRS
            .iter()
            .map(Into::into)
            .filter(|path: &PathBuf| Disk.is_directory(path))
            .collect(),
        agents_server: agents_server(),
        hostname: hostname(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        user: state::accounts::user(),
        lacks_setfacl: !["/usr/bin/setfacl", "/bin/setfacl"]
            .iter()
            .any(|program| Path::new(program).exists()),
        state_directory: state_directory(),
        now: Some(SystemTime::now()),
    }
}

/// `server` of the first puppet.conf that exists. A value that refers to another setting is not resolved.
fn agents_server() -> Option<String> {
    let files = Environment::CONFDIRS.iter();
    let files = files.map(|directory| Path::new(directory).join("puppet.conf"));
    let text = files.filter_map(|file| read_limited(&file, PUPPET_CONF_BYTES_MAX).ok());
    let text = text
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .next()?;
    let server = PuppetConf::parse(&text)
        .get(PuppetConf::AGENT, "server")?
        .to_owned();
    (!server.contains('$')).then_some(server)
}

/// The name of the host, with its domain if `/etc/hosts` has it, as `puppet config print certname` prints it.
fn hostname() -> Option<String> {
    let uname = rustix::system::uname();
    let short = uname.nodename().to_str().ok()?.to_lowercase();
    if short.contains('.') {
        return Some(short);
    }
    let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
    let full = hosts
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default())
        .flat_map(|line| line.split_whitespace().skip(1))
        .find(|name| {
            name.strip_prefix(short.as_str())
                .is_some_and(|rest| rest.starts_with('.'))
        });
    Some(full.map_or(short, str::to_lowercase))
}

/// The state directory of a proxy that runs with this configuration file, even if the file has errors or cannot be read.
pub(crate) fn configured_state_directory(file: &Path) -> PathBuf {
    let text = fs::read_to_string(file).unwrap_or_default();
    config::state_directory(&text)
        .or_else(state_directory)
        .unwrap_or_else(|| Environment::STATE_DIRECTORY.into())
}

/// The directory that systemd creates for a unit with `StateDirectory=`, or the first of several.
fn state_directory() -> Option<PathBuf> {
    let made = std::env::var("STATE_DIRECTORY").ok()?;
    let first = made.split(':').next().unwrap_or_default();
    first.starts_with('/').then(|| first.into())
}
