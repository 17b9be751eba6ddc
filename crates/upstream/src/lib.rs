//! upstream

pub mod settings;
