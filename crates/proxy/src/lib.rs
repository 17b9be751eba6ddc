//! proxy

pub mod settings;
