//! pki

pub mod settings;
