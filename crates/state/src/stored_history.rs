//! The events of the last day in the state directory, one JSON object on each line. A file that cannot be written loses only
//! the history.

use std::sync::Arc;

use admin::PastEvent;
use telemetry::{
    EventHistory, HistoryEntry,
    history::{HISTORY_BYTES_MAX, HISTORY_ENTRIES_MAX},
};

use crate::{StateDirectory, state_directory::StateError};

/// Name of the file in the state directory.
pub const FILE: &str = "history.jsonl";
/// Maximum size of the file. A file that would become larger is replaced by one with the events in memory.
pub const FILE_BYTES_MAX: usize = 4 << 20;
/// Maximum bytes of a line in addition to its texts: names of fields, time, kind.
const LINE_BYTES_MAX: usize = 160;
// Texts have no control characters, so JSON at most doubles them.
const _: () =
    assert!(2 * HISTORY_BYTES_MAX + LINE_BYTES_MAX * HISTORY_ENTRIES_MAX < FILE_BYTES_MAX);
/// What a restart loses if the file cannot be written.
const LOST: &str =
    "the history of events since the last successful write is lost at the next restart";

/// Reads the stored events, the oldest first. A line that a crash or another version left and that cannot be read is skipped.
///
/// # Errors
/// The file exists, but it cannot be read.
pub fn read(directory: &StateDirectory) -> Result<Vec<HistoryEntry>, StateError> {
    let bytes = directory.read(FILE, FILE_BYTES_MAX as u64)?;
    let bytes = bytes.unwrap_or_default();
    let lines = bytes.split(|byte| *byte == b'\n');
    let events = lines.filter_map(|line| serde_json::from_slice::<PastEvent>(line).ok());
    Ok(events.filter_map(PastEvent::entry).collect())
}

/// The file of the process that owns the state directory.
#[derive(Debug)]
pub struct HistoryFile {
    directory: Arc<StateDirectory>,
    /// The number of the newest event in the file.
    written: u64,
    /// Size of the file. `None` if its content is not known: it is then replaced.
    bytes: Option<usize>,
}

impl HistoryFile {
    /// A file in this directory. The first write replaces it, so the stored events must be read before.
    pub fn new(directory: Arc<StateDirectory>) -> Self {
        Self {
            directory,
            written: 0,
            bytes: None,
        }
    }

    /// Makes the next write replace the file, because another process may have written to it.
    pub fn forget_content(&mut self) {
        self.bytes = None;
    }

    /// Writes the events that the file lacks. Blocks. Returns whether the file has all events. A failure is an alarm, and the
    /// next call tries again.
    pub fn write(&mut self, history: &EventHistory) -> bool {
        let (last, new) = history.newer_than(self.written);
        if last == self.written && self.bytes.is_some() {
            return true;
        }
        let lines = lines_of(&new);
        let size = self.bytes.map(|bytes| bytes + lines.len());
        let (outcome, size) = match size.filter(|size| *size <= FILE_BYTES_MAX) {
            Some(size) => (self.directory.append(FILE, &lines, LOST), size),
            None => {
                let all = lines_of(&history.newer_than(0).1);
                (self.directory.write(FILE, &all, LOST), all.len())
            }
        };
        self.bytes = outcome.is_ok().then_some(size);
        if outcome.is_ok() {
            self.written = last;
        }
        outcome.is_ok()
    }
}

fn lines_of(entries: &[HistoryEntry]) -> Vec<u8> {
    let mut lines = Vec::new();
    for entry in entries {
        let line = serde_json::to_vec(&PastEvent::from(entry)).unwrap_or_default();
        lines.extend_from_slice(&line);
        lines.push(b'\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::PermissionsExt,
        time::{Duration, SystemTime},
    };

    use telemetry::{Alarm, Alarms, HistoryKind, Urgency};

    use super::*;

    fn entry(message: &str) -> HistoryEntry {
        HistoryEntry {
            at: SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000),
            kind: HistoryKind::Member,
            subject: "p/c1:8140".to_owned(),
            message: message.to_owned(),
            urgency: Some(Urgency::Warning),
            by: Some("root".to_owned()),
        }
    }

    fn directory(place: &tempfile::TempDir) -> (Arc<StateDirectory>, Arc<Alarms>) {
        let alarms = Arc::new(Alarms::default());
        let directory = StateDirectory::open(&place.path().join("state"), &alarms);
        (Arc::new(directory), alarms)
    }

    #[test]
    fn stored_events_are_read_by_the_next_process_and_broken_lines_are_skipped() {
        let place = tempfile::tempdir().unwrap();
        let (directory, _) = directory(&place);
        let history = EventHistory::default();
        let mut file = HistoryFile::new(Arc::clone(&directory));
        for message in ["one", "two"] {
            history.note(entry(message));
            assert!(file.write(&history));
        }
        let expected = [entry("one"), entry("two")];
        assert_eq!(read(&directory).unwrap(), expected);
        let path = directory.path().join(FILE);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // A crash, and a kind of a later version.
        let mut text = fs::read(&path).unwrap();
        text.extend_from_slice(b"{\"at\":\"2023-11-14T22:13:20Z\",\"kind\":\"new\",\"subject\":\"\",\"message\":\"\"}\n");
        text.extend_from_slice(b"\xff\n{\"at\":\"2023-1");
        fs::write(&path, text).unwrap();
        assert_eq!(read(&directory).unwrap(), expected);

        let next = EventHistory::default();
        next.restore(expected.to_vec());
        next.note(entry("three"));
        assert!(HistoryFile::new(Arc::clone(&directory)).write(&next));
        let stored = read(&directory).unwrap().into_iter();
        let messages: Vec<_> = stored.map(|entry| entry.message).collect();
        assert_eq!(messages, ["one", "two", "three"]);
    }

    #[test]
    fn the_file_is_replaced_before_it_exceeds_its_limit() {
        let place = tempfile::tempdir().unwrap();
        let (directory, _) = directory(&place);
        let history = EventHistory::default();
        let mut file = HistoryFile::new(Arc::clone(&directory));
        let (mut sizes, long) = (Vec::new(), "\"".repeat(1_000));
        for _ in 0..12 {
            (0..500).for_each(|_| history.note(entry(&long)));
            assert!(file.write(&history));
            let size = fs::metadata(directory.path().join(FILE)).unwrap().len();
            assert!(size <= FILE_BYTES_MAX as u64);
            sizes.push(size);
        }
        assert!(sizes.windows(2).any(|two| two[1] < two[0]), "{sizes:?}");
        assert_eq!(read(&directory).unwrap(), history.newer_than(0).1);
    }

    #[test]
    fn a_file_that_cannot_be_written_loses_the_history_and_no_state() {
        let place = tempfile::tempdir().unwrap();
        let (directory, alarms) = directory(&place);
        let history = EventHistory::default();
        let mut file = HistoryFile::new(Arc::clone(&directory));
        history.note(entry("one"));
        let path = directory.path().join(FILE);
        fs::create_dir(&path).unwrap();
        assert!(!file.write(&history));
        assert!(alarms.get(Alarm::StateDirectory, FILE).is_some());
        assert_eq!(directory.trouble(), None, "a hand-over is possible");
        fs::remove_dir(&path).unwrap();
        history.note(entry("two"));
        assert!(file.write(&history));
        assert!(alarms.active().is_empty());
        assert_eq!(read(&directory).unwrap(), [entry("one"), entry("two")]);
    }
}
