//! The key of persistence cookies, stored so that a restart keeps the clients on their members.

use pki::PersistenceKey;

use crate::{app::App, state_directory::StateDirectory};

/// Name of the file in the state directory.
pub(crate) const FILE: &str = "persistence-key";

/// The stored key, for an account that only looks.
///
/// # Errors
/// Why there is none.
pub(crate) fn stored(directory: &StateDirectory) -> Result<PersistenceKey, String> {
    let stored = directory.read(FILE, PersistenceKey::BYTES as u64);
    let bytes = stored.map_err(|error| error.to_string())?;
    let bytes = bytes.ok_or("the proxy has not stored one")?;
    let bytes = <[u8; PersistenceKey::BYTES]>::try_from(bytes);
    bytes
        .map(PersistenceKey::from_bytes)
        .map_err(|_| "it has the wrong length".to_owned())
}

/// The stored key, or a new one. With a new key, clients get new cookies and may move.
pub(crate) fn restore(directory: &StateDirectory) -> PersistenceKey {
    let stored = match directory.read(FILE, PersistenceKey::BYTES as u64) {
        Ok(None) => None,
        Ok(Some(bytes)) => <[u8; PersistenceKey::BYTES]>::try_from(bytes)
            .ok()
            .or_else(|| {
                tracing::warn!(
                    "the stored key of persistence cookies has the wrong length; using a new key"
                );
                None
            }),
        Err(_) if directory.is_absent(FILE) => None,
        Err(error) => {
            tracing::warn!("cannot read the key of persistence cookies, using a new key: {error}");
            None
        }
    };
    match stored {
        Some(bytes) => PersistenceKey::from_bytes(bytes),
        None => {
            let key = PersistenceKey::random();
            // That it cannot be stored is an alarm of the state directory.
            let _ = directory.write(FILE, key.bytes());
            key
        }
    }
}

/// Stores the key. It blocks.
pub(crate) fn store(app: &App) {
    let _ = app
        .state_directory
        .write(FILE, app.shared.persistence.bytes());
}
