//! Reading the configuration and the materials it names.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    time::SystemTime,
};

use config::{
    Blob, Draft, Environment, Files, Kind, Loaded, Material, Materials, Overrides, ReadError,
    Report, Source, Wanted,
};

use crate::{Options, materials::stamps::Stamps};

/// Largest configuration file.
const CONFIG_BYTES_MAX: u64 = 4 << 20;
/// Largest material: a CRL of a million entries has 40 MB.
const MATERIAL_BYTES_MAX: u64 = 512 << 20;
/// Most files of a directory that are looked at.
pub(crate) const DIRECTORY_FILES_MAX: usize = 4096;

/// A configuration with its materials, as they were found.
pub(crate) struct Read {
    pub(crate) loaded: Loaded,
    /// The text, for reading the materials again without it.
    pub(crate) draft: Draft,
    /// Of the materials, just before they were read.
    pub(crate) stamps: Stamps,
}

/// Materials as they are on disk, good or not.
pub(crate) struct Found {
    pub(crate) draft: Draft,
    /// Taken just before they were read.
    pub(crate) stamps: Stamps,
    pub(crate) materials: Materials,
}

impl Found {
    /// The configuration with these materials in place of those on disk, as far as the two are right.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub(crate) fn with(&self, materials: Materials) -> Result<Read, Report> {
        Ok(Read {
            loaded: self.draft.clone().finish(materials)?,
            draft: self.draft.clone(),
            stamps: self.stamps.clone(),
        })
    }
}

/// Reads text and materials and judges them: the same for start, reload and `check`.
///
/// # Errors
/// Everything that is wrong, a configuration file that cannot be read among it.
pub(crate) fn load(options: &Options) -> Result<Read, Report> {
    let name = options.config.display().to_string();
    let text = read_limited(&options.config, CONFIG_BYTES_MAX)
        .and_then(|bytes| {
            String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8 text"))
        })
        .map_err(|error| Report::unreadable(&name, &error))?;
    let overrides = Overrides {
        ssldir: options.ssldir.clone(),
        certname: options.certname.clone(),
    };
    let source = Source { name, text };
    read_materials(Draft::read(&source, &overrides, &environment(), &Disk))
}

/// As [`load`], for a process that has been started. A pipe, which a start may read, has been read; opening it would wait
/// for another writer, and blocks and fetched lists wait for a reload.
///
/// # Errors
/// As [`load`]'s, and a configuration that is no file.
pub(crate) fn load_again(options: &Options) -> Result<Read, Report> {
    match fs::metadata(&options.config) {
        Ok(metadata) if !metadata.is_file() => Err(Report::unreadable(
            &options.config.display().to_string(),
            &io::Error::other("it is not a regular file, so it cannot be read again"),
        )),
        _ => load(options),
    }
}

/// Reads the materials that a text names, without judging them: the text may have changed on disk, and is not read.
pub(crate) fn found_materials(draft: &Draft) -> Found {
    let draft = draft.at(SystemTime::now());
    let stamps = Stamps::of(&draft);
    let read = |wanted: &Wanted| (wanted.path.clone(), Disk.read(wanted));
    let materials = draft.wanted().iter().map(read).collect();
    Found {
        draft,
        stamps,
        materials,
    }
}

fn read_materials(draft: Draft) -> Result<Read, Report> {
    let stamps = Stamps::of(&draft);
    let loaded = draft.clone().load(&Disk)?;
    Ok(Read {
        loaded,
        draft,
        stamps,
    })
}

/// The file system as it is.
struct Disk;

impl Files for Disk {
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
        // One that this account may not look at may be there.
        fs::metadata(path).map_or_else(
            |error| error.kind() != io::ErrorKind::NotFound,
            |found| found.is_dir(),
        )
    }

    fn read(&self, wanted: &Wanted) -> Result<Material, ReadError> {
        read(wanted).map_err(|error| ReadError::from(&error))
    }
}

/// Revocation lists as they stand on disk now; what cannot be read is left out.
pub(crate) fn lists(draft: &Draft) -> Vec<pki::Named<Vec<u8>>> {
    let wanted = draft.wanted().iter();
    let wanted = wanted.filter(|wanted| wanted.kind == Kind::Crl);
    wanted
        .filter_map(|wanted| read(wanted).ok())
        .flat_map(|material| material.blobs)
        .map(|blob| pki::Named::new(blob.name, blob.bytes))
        .collect()
}

/// A key that cannot be seen may still be there: whoever may not look into the directory is told so later.
fn has_key(ssldir: &Path, name: &str) -> bool {
    let key = ssldir.join("private_keys").join(format!("{name}.pem"));
    !matches!(key.try_exists(), Ok(false))
}

fn read(wanted: &Wanted) -> io::Result<Material> {
    let metadata = fs::metadata(&wanted.path)?;
    let mut material = Material {
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
    // Opening a pipe waits for a writer, perhaps for ever; a device may have no end.
    if !metadata.is_dir() {
        return Err(io::Error::other("it is neither a file nor a directory"));
    }
    if matches!(wanted.kind, Kind::Chain | Kind::Key) {
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
        // Every PEM CRL counts whatever its name; a README beside them is no error.
        if wanted.kind == Kind::Ca || pki::holds_crl(&blob.bytes) {
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
            .filter(|path: &std::path::PathBuf| path.is_dir())
            .collect(),
        hostname: hostname(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        user: user(),
        state_directory: state_directory(),
        now: Some(SystemTime::now()),
    }
}

/// The machine's name, in full as far as `/etc/hosts` knows it: what `puppet config print certname` says.
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

/// What systemd makes for a unit with `StateDirectory=`; of several, the first.
fn state_directory() -> Option<std::path::PathBuf> {
    let made = std::env::var("STATE_DIRECTORY").ok()?;
    let first = made.split(':').next().unwrap_or_default();
    first.starts_with('/').then(|| first.into())
}

/// The number of a group that /etc/group names, or the number itself.
pub(crate) fn group_id(name: &str) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    let groups = fs::read_to_string("/etc/group").unwrap_or_default();
    let mut groups = groups
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>());
    let found = groups.find(|fields| fields[0] == name)?;
    found.get(2)?.parse().ok()
}

/// The account's name, for commands in reports.
pub(crate) fn user() -> String {
    let uid = rustix::process::geteuid().as_raw().to_string();
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut accounts = passwd
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>());
    accounts
        .find(|fields| fields.get(2) == Some(&uid.as_str()))
        .map_or_else(|| uid.clone(), |fields| fields[0].to_owned())
}
