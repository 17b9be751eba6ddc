//! The operator's blocks in the state directory, and their forms in the admin API and in the trust store.

use std::path::PathBuf;

use admin::{BlockError, BlockStatus, BlockSubject, Timestamp};
use identity::Certname;
use pki::{Block, DenyList, SerialNumber};
use rustls_pki_types::UnixTime;
use serde::{Deserialize, Serialize};

use crate::{
    materials::files,
    state_directory::{StateDirectory, StateError},
    times::{timestamp, unix_time},
};

/// Name of the file in the state directory.
pub(crate) const FILE: &str = "blocks.json";
/// What a restart loses if it cannot be written.
const LOST: &str =
    "after a restart, clients that were blocked since the last successful write are accepted";
/// Maximum size of the file, with room above the longest deny list.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredBlocks {
    version: u32,
    blocks: Vec<BlockStatus>,
}

/// Why the stored blocks cannot be used. A start without them would accept the blocked clients.
#[derive(Debug, thiserror::Error)]
#[error(
    "the list of blocks {} {why}",
    path.display()
)]
pub(crate) struct StoredBlocksError {
    path: PathBuf,
    why: String,
}

/// Reads the stored deny list, which is empty if there is no file.
///
/// # Errors
/// The file exists, but it cannot be read or is invalid.
pub(crate) fn read(directory: &StateDirectory) -> Result<DenyList, StoredBlocksError> {
    let path = directory.path().join(FILE);
    let invalid = |why: String| StoredBlocksError {
        path: path.clone(),
        why: format!("is invalid: {why}; restore it, or remove it to start without blocks"),
    };
    // The message does not suggest to remove a file that this account only may not read.
    let unreadable = |error: &StateError| StoredBlocksError {
        path: path.clone(),
        why: format!(
            "cannot be read: {error}; give {} read access, or run the command as root",
            files::user()
        ),
    };
    let bytes = match directory.read(FILE, FILE_BYTES_MAX) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(DenyList::default()),
        // The fault is one of the directory, which has an alarm of its own.
        Err(_) if directory.is_absent(FILE) => return Ok(DenyList::default()),
        Err(error @ StateError::System { .. }) => return Err(unreadable(&error)),
        Err(error) => return Err(invalid(error.to_string())),
    };
    let stored: StoredBlocks =
        serde_json::from_slice(&bytes).map_err(|error| invalid(error.to_string()))?;
    if stored.version != 1 || stored.blocks.len() > DenyList::BLOCKS_MAX {
        return Err(invalid("its format is that of another version".to_owned()));
    }
    let blocks: Result<Vec<_>, _> = stored.blocks.iter().map(block_of).collect();
    let blocks = blocks.map_err(|error| invalid(error.to_string()))?;
    // Expired blocks are loaded too, because the clock of a machine that starts may be ahead.
    Ok(DenyList::new(blocks))
}

/// Writes the deny list. It blocks.
///
/// # Errors
/// Why the list is not stored.
pub(crate) fn write(directory: &StateDirectory, deny_list: &DenyList) -> Result<(), String> {
    let stored = StoredBlocks {
        version: 1,
        blocks: deny_list.blocks().iter().map(status_of).collect(),
    };
    let text = serde_json::to_vec_pretty(&stored).map_err(|error| error.to_string())?;
    let written = directory.write(FILE, &text, LOST);
    written.map_err(|error| error.to_string())
}

fn block_of(status: &BlockStatus) -> Result<Block, BlockError> {
    Ok(Block {
        blocked: blocked_of(&status.blocked)?,
        why: status.why.clone(),
        by: status.by.clone(),
        since: parse_time(&status.since)?,
        until: status.until.as_ref().map(parse_time).transpose()?,
    })
}

/// The blocked client as the trust store has it.
pub(crate) fn blocked_of(blocked: &BlockSubject) -> Result<pki::BlockTarget, BlockError> {
    let invalid = |error: String| BlockError::Senseless(error);
    match blocked {
        BlockSubject {
            certname: Some(name),
            serial: None,
            issuer: None,
            fingerprint: None,
        } => Certname::parse(&name.to_ascii_lowercase()) // Certnames are compared in lower case.
            .map(pki::BlockTarget::Certname)
            .map_err(|error| invalid(format!("\"{name}\" is not a certname: {error}"))),
        BlockSubject {
            certname: None,
            serial: Some(serial),
            issuer: Some(issuer),
            fingerprint: None,
        } => Ok(pki::BlockTarget::Serial {
            issuer: issuer.clone(),
            serial: SerialNumber::parse(serial).map_err(|error| invalid(error.to_string()))?,
        }),
        BlockSubject {
            certname: None,
            serial: None,
            issuer: None,
            fingerprint: Some(fingerprint),
        } => pki::BlockTarget::fingerprint(fingerprint).map_err(|error| invalid(error.to_string())),
        _ => Err(invalid(
            "specify exactly one of a certname, a fingerprint, or a serial number with its issuer"
                .to_owned(),
        )),
    }
}

/// A block as the admin API shows it.
pub(crate) fn status_of(block: &Block) -> BlockStatus {
    let blocked = match &block.blocked {
        pki::BlockTarget::Certname(name) => BlockSubject {
            certname: Some(name.to_string()),
            ..BlockSubject::default()
        },
        pki::BlockTarget::Serial { issuer, serial } => BlockSubject {
            serial: Some(serial.to_string()),
            issuer: Some(issuer.clone()),
            ..BlockSubject::default()
        },
        pki::BlockTarget::Fingerprint(bytes) => BlockSubject {
            fingerprint: Some(bytes.iter().map(|byte| format!("{byte:02X}")).collect()),
            ..BlockSubject::default()
        },
    };
    BlockStatus {
        blocked,
        why: block.why.clone(),
        by: block.by.clone(),
        since: timestamp(block.since),
        until: block.until.map(timestamp),
    }
}

/// A time of the admin API.
pub(crate) fn parse_time(time: &Timestamp) -> Result<UnixTime, BlockError> {
    unix_time(time).ok_or_else(|| BlockError::Senseless(format!("\"{time}\" is not a time")))
}
