//! Administrative states of members in the state directory, and their forms in the admin API and in the registry.

use admin::{AdministrativeState, AdministrativeStatus, Timestamp};
use balancing::{Administrative, Instruction, MemberName};
use fleet::{Record, RecordKey, Records};
use serde::{Deserialize, Serialize};

use crate::{state_directory::StateDirectory, times::system_time};

/// Name of the file in the state directory.
pub const FILE: &str = "members.json";
/// What a restart loses if it cannot be written.
const LOST: &str = "after a restart, members have the administrative states that were stored last, so a drained member may get requests";
/// Maximum size of the file: 10,000 members with the longest reasons.
const FILE_BYTES_MAX: u64 = 32 << 20;

/// The version of the file that is written.
const VERSION: u32 = 2;

/// The file. Version 1 has no records.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    members: Vec<StoredMember>,
    #[serde(default)]
    records: Vec<serde_json::Value>,
}

/// The part of the file that has its version.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// The content of the file: the states in effect, and the records of the fleet. A record may be about a state that was withheld
/// or has ended.
#[derive(Debug, Default, PartialEq)]
pub struct StoredStates {
    /// The states in effect.
    pub instructions: Vec<(MemberName, Instruction)>,
    /// The records of the fleet.
    pub records: Vec<Record>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredMember {
    pool: String,
    member: String,
    state: AdministrativeState,
    since: Timestamp,
    by: String,
    why: Option<String>,
    until: Option<Timestamp>,
    absent_since: Option<Timestamp>,
}

/// Reads the stored states. There are none if there is no file.
///
/// # Errors
/// Why the file cannot be read.
pub fn read(directory: &StateDirectory) -> Result<StoredStates, String> {
    let bytes = match directory.read(FILE, FILE_BYTES_MAX) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(StoredStates::default()),
        // The directory is at fault, and has an alarm of its own.
        Err(_) if directory.is_absent(FILE) => return Ok(StoredStates::default()),
        Err(error) => return Err(error.to_string()),
    };
    let stored: Stored = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    if !(1..=VERSION).contains(&stored.version) {
        return Err(format!(
            "its format is version {}, of a newer proscenium, and this one reads up to {VERSION}",
            stored.version
        ));
    }
    let members = stored.members.into_iter();
    let instructions = members
        .map(StoredMember::instruction)
        .collect::<Result<_, _>>()?;
    let records = stored
        .records
        .iter()
        .map(record)
        .collect::<Result<_, _>>()?;
    Ok(StoredStates {
        instructions,
        records,
    })
}

fn record(stored: &serde_json::Value) -> Result<Record, String> {
    let text = |name: &str| stored[name].as_str().unwrap_or_default().to_owned();
    let key = RecordKey::Member {
        pool: text("pool"),
        member: text("member"),
    };
    let bytes = serde_json::to_vec(stored).map_err(|error| error.to_string())?;
    Record::parse(&key, &bytes).map_err(|fault| fault.to_string())
}

/// Writes the states, unless the file has a newer version, whose other content would be lost. It blocks.
///
/// # Errors
/// Why they are not stored.
pub fn write(
    directory: &StateDirectory,
    instructions: Vec<(MemberName, Instruction)>,
    records: &Records,
) -> Result<(), String> {
    let known = directory.read(FILE, FILE_BYTES_MAX).ok().flatten();
    let known = known.and_then(|bytes| serde_json::from_slice::<Version>(&bytes).ok());
    if let Some(Version { version }) = known
        && version > VERSION
    {
        return Err(format!(
            "{} has version {version}, of a newer proscenium, and is not overwritten: move it to another place",
            directory.path().join(FILE).display()
        ));
    }
    let records = records
        .iter()
        .filter(|(key, _)| matches!(key, RecordKey::Member { .. }));
    let records = records.map(|(_, record)| serde_json::from_slice(record.bytes()));
    let stored = Stored {
        version: VERSION,
        members: instructions.into_iter().map(StoredMember::new).collect(),
        records: records
            .collect::<Result<_, _>>()
            .map_err(|error| error.to_string())?,
    };
    let text = serde_json::to_vec_pretty(&stored).map_err(|error| error.to_string())?;
    let written = directory.write(FILE, &text, LOST);
    written.map_err(|error| error.to_string())
}

impl StoredMember {
    fn new(((pool, member), instruction): (MemberName, Instruction)) -> Self {
        Self {
            pool,
            member,
            state: state_status(instruction.state),
            since: instruction.since.into(),
            by: instruction.by,
            why: instruction.why,
            until: instruction.until.map(Timestamp::from),
            absent_since: instruction.absent_since.map(Timestamp::from),
        }
    }

    fn instruction(self) -> Result<(MemberName, Instruction), String> {
        let time =
            |time: &Timestamp| system_time(time).ok_or_else(|| format!("\"{time}\" is not a time"));
        let instruction = Instruction {
            state: administrative(self.state),
            by: self.by,
            why: self.why,
            since: time(&self.since)?,
            until: self.until.as_ref().map(time).transpose()?,
            absent_since: self.absent_since.as_ref().map(time).transpose()?,
        };
        match instruction.state {
            Administrative::Ready => Err(format!("{} is ready", self.member)),
            _ => Ok(((self.pool, self.member), instruction)),
        }
    }
}

/// The instruction on a member as the admin API shows it.
pub fn instruction_status(instruction: Instruction) -> AdministrativeStatus {
    AdministrativeStatus {
        since: instruction.since.into(),
        by: instruction.by,
        why: instruction.why,
        until: instruction.until.map(Timestamp::from),
    }
}

/// An administrative state as the admin API shows it.
pub fn state_status(state: Administrative) -> AdministrativeState {
    match state {
        Administrative::Ready => AdministrativeState::Ready,
        Administrative::Drain => AdministrativeState::Drain,
        Administrative::Maintenance => AdministrativeState::Maintenance,
    }
}

/// An administrative state of the admin API as the registry has it.
pub fn administrative(state: AdministrativeState) -> Administrative {
    match state {
        AdministrativeState::Ready => Administrative::Ready,
        AdministrativeState::Drain => Administrative::Drain,
        AdministrativeState::Maintenance => Administrative::Maintenance,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use telemetry::Alarms;

    use super::*;

    #[test]
    fn stored_states_are_read_back_and_a_damaged_file_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let directory = StateDirectory::open(place.path(), &Arc::new(Alarms::default()));
        let write_text = |text: &str| directory.write(FILE, text.as_bytes(), LOST).unwrap();
        assert!(
            read(&directory).unwrap() == StoredStates::default(),
            "a missing file is not a fault"
        );
        let one = r#"{"pool":"p","member":"c1:8140","state":"drain","since":"2026-01-01T00:00:00Z","by":"uid 0","why":"disk","until":null,"absent_since":null}"#;
        write_text(&format!("{{\"version\":1,\"members\":[{one}]}}"));
        let known = read(&directory).unwrap().instructions;
        assert_eq!(known[0].0, ("p".to_owned(), "c1:8140".to_owned()));
        assert_eq!(known[0].1.why.as_deref(), Some("disk"));
        let again = known.into_iter().map(StoredMember::new).next().unwrap();
        assert_eq!(serde_json::to_string(&again).unwrap(), one);
        for wrong in [
            "{".to_owned(),
            "{\"version\":3,\"members\":[]}".to_owned(),
            "{\"version\":2,\"members\":[],\"records\":[{\"pool\":\"p\"}]}".to_owned(),
            format!(
                "{{\"version\":1,\"members\":[{}]}}",
                one.replace("drain", "ready")
            ),
            format!(
                "{{\"version\":1,\"members\":[{}]}}",
                one.replace("2026", "then")
            ),
        ] {
            write_text(&wrong);
            assert!(read(&directory).is_err(), "{wrong}");
        }
        let newer = "{\"version\":3,\"things\":[]}";
        write_text(newer);
        let refused = write(&directory, Vec::new(), &Records::default()).unwrap_err();
        assert!(refused.contains("version 3"), "{refused}");
        let kept = directory.read(FILE, FILE_BYTES_MAX).unwrap();
        assert_eq!(kept.as_deref(), Some(newer.as_bytes()));
        write_text("{");
        write(&directory, Vec::new(), &Records::default()).unwrap();
        assert_eq!(read(&directory).unwrap(), StoredStates::default());
    }
}
