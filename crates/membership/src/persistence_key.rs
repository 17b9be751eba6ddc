//! The key of persistence cookies, stored so that clients stay with their members after a restart.

use pki::PersistenceKey;
use state::StateDirectory;

/// Name of the file in the state directory.
pub(crate) const FILE: &str = "persistence-key";
/// What a restart loses if it cannot be written.
const LOST: &str = "after a restart, clients with a persistence cookie may go to another member";

/// Reads the stored key. `None` if there is no file.
///
/// # Errors
/// Why the key cannot be read.
pub fn read(directory: &StateDirectory) -> Result<Option<PersistenceKey>, String> {
    let bytes = match directory.read(FILE, PersistenceKey::BYTES as u64) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(None),
        // The directory is at fault, and has an alarm of its own.
        Err(_) if directory.is_absent(FILE) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    <[u8; PersistenceKey::BYTES]>::try_from(bytes)
        .map(|bytes| Some(PersistenceKey::from_bytes(bytes)))
        .map_err(|_| "it has the wrong length".to_owned())
}

/// Stores the key. It blocks. A failure is an alarm of the state directory.
pub fn write(directory: &StateDirectory, key: &PersistenceKey) {
    let _ = directory.write(FILE, key.bytes(), LOST);
}
