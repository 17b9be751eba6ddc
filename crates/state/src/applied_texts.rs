//! The configuration texts that were applied last, in the state directory, for `rollback`.

use std::time::SystemTime;

use admin::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    digest::digest,
    state_directory::{StateDirectory, StateError},
};

/// Name of the file in the state directory. A text may have secrets, so only the account of the proxy and root read the file.
pub const FILE: &str = "configurations.json";
/// How many texts are stored.
pub const TEXTS_MAX: usize = 10;
/// Maximum size of the file. The oldest texts are dropped first. A configuration file has at most 4 MiB.
const FILE_BYTES_MAX: usize = 16 << 20;
/// What is lost if it cannot be written.
const LOST: &str = "`proscenium rollback` does not know the configuration that was applied last";

/// A configuration text that was applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppliedText {
    /// A digest of the text, which identifies it over restarts.
    pub id: String,
    /// When it was applied last, after another text.
    pub applied_at: Timestamp,
    /// The text.
    pub text: String,
}

/// The file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    configurations: Vec<AppliedText>,
}

/// The digest that identifies a text.
pub fn id_of(text: &str) -> String {
    digest([text.as_bytes()])
}

/// Why the stored texts cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum AppliedTextsError {
    /// The file cannot be read.
    #[error(transparent)]
    State(#[from] StateError),
    /// Its content is damaged.
    #[error("{FILE} is damaged: {0}")]
    Damaged(#[from] serde_json::Error),
    /// A newer program has written it.
    #[error("the format of {FILE} is version {0}, of a newer proscenium")]
    Version(u32),
}

/// The stored texts, the newest first. There are none if there is no file.
///
/// # Errors
/// The file cannot be read.
pub fn read(directory: &StateDirectory) -> Result<Vec<AppliedText>, AppliedTextsError> {
    let bytes = match directory.read(FILE, FILE_BYTES_MAX as u64) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(Vec::new()),
        Err(_) if directory.is_absent(FILE) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let stored: Stored = serde_json::from_slice(&bytes)?;
    match stored.version {
        1 => Ok(stored.configurations),
        version => Err(AppliedTextsError::Version(version)),
    }
}

/// Stores a text that was applied at `now`, unless it is the newest one already. A file that cannot be read is replaced. It
/// blocks. A failure is an event and an alarm of the state directory.
pub fn add(directory: &StateDirectory, text: &str, now: SystemTime) {
    let mut texts = read(directory).unwrap_or_else(|error| {
        tracing::warn!(
            "the stored configurations are dropped, because they cannot be read: {error}"
        );
        Vec::new()
    });
    let id = id_of(text);
    if texts.first().is_some_and(|newest| newest.id == id) && !directory.lacks(FILE) {
        return;
    }
    texts.retain(|known| known.id != id);
    let newest = AppliedText {
        id,
        applied_at: now.into(),
        text: text.to_owned(),
    };
    texts.insert(0, newest);
    texts.truncate(TEXTS_MAX);
    let bytes = loop {
        let stored = Stored {
            version: 1,
            configurations: texts.clone(),
        };
        let bytes = serde_json::to_vec(&stored).unwrap_or_default();
        if bytes.len() <= FILE_BYTES_MAX {
            break bytes;
        }
        texts.pop();
    };
    let _ = directory.write(FILE, &bytes, LOST);
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use telemetry::Alarms;

    use super::*;

    #[test]
    fn the_newest_ten_texts_are_stored_each_once() {
        let temporary = tempfile::tempdir().expect("a directory");
        let alarms = Arc::<Alarms>::default();
        let directory = StateDirectory::open(&temporary.path().join("state"), &alarms);
        let ids = || -> Vec<String> {
            let texts = read(&directory).expect("it can be read");
            texts.into_iter().map(|known| known.text).collect()
        };
        assert!(ids().is_empty());
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        for n in 0..12 {
            add(&directory, &n.to_string(), at(n));
        }
        assert_eq!(ids().len(), TEXTS_MAX);
        assert_eq!(ids()[0], "11");
        assert_eq!(ids()[9], "2");
        // A text that is applied again is the newest one, with another time.
        add(&directory, "5", at(20));
        add(&directory, "5", at(30));
        assert_eq!(ids()[..2], ["5", "11"]);
        assert_eq!(ids().len(), TEXTS_MAX);
        let newest = read(&directory).expect("it can be read").remove(0);
        assert_eq!(newest.applied_at, at(20).into());
        assert_eq!(newest.id, id_of("5"));
        // Large texts take the place of older ones.
        let large = "x".repeat(FILE_BYTES_MAX / 2);
        add(&directory, &large, at(40));
        add(&directory, &format!("{large}y"), at(50));
        assert_eq!(ids().len(), 1);
        // A file that is damaged is replaced.
        directory.write(FILE, b"{", "").expect("it is written");
        assert!(read(&directory).is_err());
        add(&directory, "6", at(60));
        assert_eq!(ids(), ["6"]);
    }
}
