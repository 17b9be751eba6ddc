//! Configurations and their reports.

mod configuration;
mod machine;
mod reports;
