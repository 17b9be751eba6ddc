//! The generated reference of settings.

/// The reference page, docs/configuration.md.
#[must_use]
pub fn reference() -> String {
    String::new()
}

/// Every setting with its default, as a commented file: `config show --defaults`.
#[must_use]
pub fn defaults() -> String {
    String::new()
}
