//! identity

pub mod settings;
