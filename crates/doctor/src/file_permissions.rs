//! The accounts that may write the files that decide about trust, and the accounts that may read the proxy's keys.

use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use config::{MaterialKind, MaterialName};

use crate::{Check, DoctorReport, FindingSeverity};
use lifecycle::PreparedStart;

const WRITE_BY_OTHERS: u32 = 0o002;
const WRITE_BY_GROUP: u32 = 0o020;
const STICKY: u32 = 0o1000;
const ROOT: u32 = 0;

pub(crate) fn examine(prepared: &PreparedStart, config: &Path, report: &mut DoctorReport) {
    let ours = rustix::process::geteuid().as_raw();
    file(
        config,
        "determines which clients the proxy trusts",
        ours,
        report,
    );
    for wanted in prepared.files() {
        if wanted.optional && !wanted.path.exists() {
            continue;
        }
        file(&wanted.path, worth(wanted), ours, report);
    }
    let state = &prepared.config().state_directory;
    if state.exists() {
        file(
            state,
            "contains blocks and CRLs that the proxy trusts",
            ours,
            report,
        );
    }
}

fn worth(wanted: &MaterialName) -> &'static str {
    match wanted.kind {
        MaterialKind::Key => "is a private key of the proxy",
        MaterialKind::Chain => "is a certificate of the proxy",
        MaterialKind::Ca => "determines which certificates the proxy accepts",
        MaterialKind::Crl => "determines which certificates the proxy refuses",
        MaterialKind::FleetKeys => "seals the records of the fleet",
    }
}

/// A file, and every directory in which another account could replace it.
fn file(path: &Path, worth: &str, ours: u32, report: &mut DoctorReport) {
    let about = path.display().to_string();
    let mut good = true;
    for place in places(path) {
        let found = match fs::metadata(&place) {
            Ok(metadata) => fault(&place, &metadata, ours),
            Err(error) => unseen(&place, &error),
        };
        if let Some((grade, fault, remedy)) = found {
            good = false;
            let found = match place {
                place if place == path => format!("it {worth}, and {fault}"),
                place if Some(&*place) == path.parent() => {
                    format!("it {worth}, and its directory {fault}")
                }
                place => format!("it {worth}, and {} on its path {fault}", place.display()),
            };
            report.found(Check::Files, grade, &about, found, remedy);
        }
    }
    if good {
        report.passed(Check::Files, &about);
    }
}

/// The file, all directories above it, and the same for the targets of symbolic links.
fn places(path: &Path) -> Vec<PathBuf> {
    let real = fs::canonicalize(path).ok();
    let all = path
        .ancestors()
        .chain(real.iter().flat_map(|real| real.ancestors()));
    let mut places: Vec<PathBuf> = Vec::new();
    for place in all.filter(|place| !place.as_os_str().is_empty()) {
        if !places.iter().any(|known| known == place) {
            places.push(place.to_owned());
        }
    }
    places
}

fn fault(
    place: &Path,
    metadata: &Metadata,
    ours: u32,
) -> Option<(FindingSeverity, String, String)> {
    let (mode, owner, path) = (metadata.mode(), metadata.uid(), place.display());
    let sticky = metadata.is_dir() && mode & STICKY != 0;
    if mode & WRITE_BY_OTHERS != 0 && !sticky {
        let fault = format!(
            "is writable by every user of this machine (mode {:04o})",
            mode & 0o7777
        );
        return Some((
            FindingSeverity::Failure,
            fault,
            format!("run `chmod o-w {path}`"),
        ));
    }
    // If root runs doctor, the owner may be the service's account, which doctor does not know.
    if owner != ROOT && owner != ours && ours != ROOT {
        let fault = format!("belongs to user {owner}, which is neither root nor this account");
        let remedy = format!("run `chown root {path}`, unless that account should own it");
        return Some((FindingSeverity::Note, fault, remedy));
    }
    if mode & WRITE_BY_GROUP != 0 && !sticky && !is_private(owner, metadata.gid()) {
        let gid = metadata.gid();
        let fault = format!("is writable by group {gid} (mode {:04o})", mode & 0o7777);
        return Some((
            FindingSeverity::Warning,
            fault,
            format!("run `chmod g-w {path}`"),
        ));
    }
    None
}

/// Whether a group is root's, or the owner's private group of the same name: the group `puppet` may write an agent's
/// ssldir.
fn is_private(owner: u32, group: u32) -> bool {
    let name = |file: &str, id: u32| {
        let text = fs::read_to_string(file).unwrap_or_default();
        let mut entries = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let entry = entries.find(|fields| fields.get(2) == Some(&id.to_string().as_str()))?;
        Some(entry[0].to_owned())
    };
    let name_of_group = name("/etc/group", group);
    group == ROOT || (name_of_group.is_some() && name_of_group == name("/etc/passwd", owner))
}

fn unseen(place: &Path, error: &io::Error) -> Option<(FindingSeverity, String, String)> {
    let fault = format!("cannot be examined: {error}");
    let remedy = format!(
        "run as root or as the account of the service, or fix the access to {}",
        place.display()
    );
    Some((FindingSeverity::Note, fault, remedy))
}
