//! telemetry

pub mod settings;
