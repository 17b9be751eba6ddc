//! After a hand-over, the old process still has connections, and blocks, CRLs and states of members apply to them too. It reads
//! those that the new process stores.

use std::{os::unix::fs::MetadataExt, path::Path, sync::Arc, time::Duration};

use state::{stored_blocks, stored_states, supervise::blocking};
use tokio::time::sleep;
use trust_keeper::stored_crls;

use crate::shared_state::App;

/// How long a stored block, CRL or state of a member may not be active yet in this process.
const INTERVAL: Duration = Duration::from_millis(250);

/// Applies stored blocks, CRLs and states of members when they change, until this future is dropped.
pub(crate) async fn follow_state(app: Arc<App>) {
    let mut applied = None;
    loop {
        let directory = Arc::clone(&app.state_directory);
        let found = blocking("read-stored-state", move || stamps(directory.path())).await;
        let found = found.unwrap_or_default();
        if applied.as_ref() != Some(&found) {
            let states = state_stamp(&found);
            let are_followed = app.membership.apply_stored_states().await;
            *app.hand_over.followed_states() = are_followed.then_some(states);
            let is_trusted = app.trust.apply_stored().await;
            applied = (is_trusted && are_followed).then_some(found);
        }
        sleep(INTERVAL).await;
    }
}

/// What differs if the stored states of members have changed.
pub(super) fn stamp_of_states(directory: &Path) -> String {
    state_stamp(&stamps(directory))
}

fn state_stamp(stamps: &[FileStamp]) -> String {
    let states = stamps.iter().find(|(name, ..)| name == stored_states::FILE);
    states.map_or_else(String::new, |(_, inode, seconds, nanoseconds)| {
        format!("{inode} {seconds}.{nanoseconds}")
    })
}

/// What changes when a file is replaced: name, inode and time of change.
type FileStamp = (std::ffi::OsString, u64, i64, i64);

/// The stamps of the files with blocks, CRLs and states of members.
fn stamps(directory: &Path) -> Vec<FileStamp> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let stamp = |entry: std::fs::DirEntry| {
        let name = entry.file_name();
        let text = name.to_str()?;
        let is_followed = [stored_blocks::FILE, stored_states::FILE].contains(&text)
            || text.starts_with(stored_crls::FILE_PREFIX) && !text.ends_with(".new");
        let metadata = is_followed.then(|| entry.metadata().ok()).flatten()?;
        Some((
            name,
            metadata.ino(),
            metadata.ctime(),
            metadata.ctime_nsec(),
        ))
    };
    let mut stamps: Vec<_> = entries.flatten().filter_map(stamp).collect();
    stamps.sort();
    stamps
}
