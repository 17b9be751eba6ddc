//! The operator's blocks in the state directory, and their forms in the admin API and in the trust store.

use std::path::PathBuf;

use admin::{BlockError, BlockStatus, BlockSubject, Timestamp};
use fleet::{Record, RecordKey, Records};
use identity::Certname;
use pki::{Block, DenyList, SerialNumber};
use rustls_pki_types::UnixTime;
use serde::Deserialize;

use crate::{
    accounts,
    operator_records::OperatorRecords,
    state_directory::{StateDirectory, StateError},
    times::{timestamp, unix_time},
};

/// Name of the file in the state directory.
pub const FILE: &str = "blocks.json";
/// What a restart loses if it cannot be written.
const LOST: &str =
    "after a restart, clients that were blocked since the last successful write are accepted";
/// Maximum size of the file, with room above the longest deny list.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The version of the file that is written.
const VERSION: u32 = 2;

/// The file in every version.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredBlocks<B> {
    #[serde(rename = "version")]
    _version: u32,
    blocks: Vec<B>,
}

/// The part of the file that has its version.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// Why the stored blocks cannot be used. A start without them would accept the blocked clients.
#[derive(Debug, thiserror::Error)]
#[error(
    "the list of blocks {} {why}",
    path.display()
)]
pub struct StoredBlocksError {
    path: PathBuf,
    why: String,
}

/// Reads the records of blocks. There are none if there is no file. `proxy`: the name of this proxy, for blocks of version 1,
/// which had no records.
///
/// # Errors
/// The file exists, but it cannot be read or is invalid.
pub fn read(directory: &StateDirectory, proxy: &str) -> Result<Records, StoredBlocksError> {
    let path = directory.path().join(FILE);
    let invalid = |why: String| StoredBlocksError {
        path: path.clone(),
        why: format!("is invalid: {why}; restore it, or remove it to start without blocks"),
    };
    // The file may be valid and only be unreadable for this account, so the message does not suggest its removal.
    let unreadable = |error: &StateError| StoredBlocksError {
        path: path.clone(),
        why: format!(
            "cannot be read: {error}; give {} read access, or run the command as root",
            accounts::user()
        ),
    };
    let bytes = match directory.read(FILE, FILE_BYTES_MAX) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(Records::default()),
        // The directory is at fault, and has an alarm of its own.
        Err(_) if directory.is_absent(FILE) => return Ok(Records::default()),
        Err(error @ StateError::System { .. }) => return Err(unreadable(&error)),
        Err(error) => return Err(invalid(error.to_string())),
    };
    records_of(&bytes, proxy).map_err(invalid)
}

fn records_of(bytes: &[u8], proxy: &str) -> Result<Records, String> {
    let text = |error: serde_json::Error| error.to_string();
    let version: Version = serde_json::from_slice(bytes).map_err(text)?;
    match version.version {
        1 => {
            let stored: StoredBlocks<BlockStatus> = serde_json::from_slice(bytes).map_err(text)?;
            if stored.blocks.len() > DenyList::BLOCKS_MAX {
                return Err(format!("it has more than {} blocks", DenyList::BLOCKS_MAX));
            }
            // Expired blocks are loaded too, because the clock of a machine that starts may be ahead.
            let blocks: Result<Vec<_>, _> = stored.blocks.iter().map(block_of).collect();
            let blocks = blocks.map_err(|error| error.to_string())?;
            let records = OperatorRecords::new(proxy.to_owned(), Records::default());
            records.block(&blocks).map_err(|error| error.to_string())?;
            Ok(records.all())
        }
        VERSION => {
            let stored: StoredBlocks<serde_json::Value> =
                serde_json::from_slice(bytes).map_err(text)?;
            let mut records = Records::default();
            for block in stored.blocks {
                let id = block["id"].as_str().unwrap_or_default().to_owned();
                let bytes = serde_json::to_vec(&block).map_err(text)?;
                let record = Record::parse(&RecordKey::Block(id), &bytes);
                // At the time 0 no record has ended, so all records are merged.
                let merged = records.merge(record.map_err(|error| error.to_string())?, 0);
                merged.map_err(|error| error.to_string())?;
            }
            Ok(records)
        }
        newer => Err(format!(
            "its format is version {newer}, of a newer proscenium, and this one reads up to {VERSION}"
        )),
    }
}

/// Writes the records of blocks. It blocks.
///
/// # Errors
/// Why they are not stored.
pub fn write(directory: &StateDirectory, records: &Records) -> Result<(), String> {
    let blocks = records
        .iter()
        .filter(|(key, _)| matches!(key, RecordKey::Block(_)));
    // A record is JSON already, with the fields of newer versions.
    let blocks: Vec<_> = blocks.map(|(_, record)| record.bytes()).collect();
    let head = format!("{{\"version\":{VERSION},\"blocks\":[\n");
    let text = [head.as_bytes(), &blocks.join(&b",\n"[..]), b"\n]}\n"].concat();
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
pub fn blocked_of(blocked: &BlockSubject) -> Result<pki::BlockTarget, BlockError> {
    let invalid = |error: String| BlockError::Invalid(error);
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
pub fn status_of(block: &Block) -> BlockStatus {
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
pub fn parse_time(time: &Timestamp) -> Result<UnixTime, BlockError> {
    unix_time(time).ok_or_else(|| BlockError::Invalid(format!("\"{time}\" is not a time")))
}
