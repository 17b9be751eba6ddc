//! listener

pub mod settings;
