//! balancing

pub mod settings;
