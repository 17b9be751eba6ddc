//! The state of the process: what is active and the right to replace it, what operators have recorded, and the directory in
//! which it is stored for the next start.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it opens files and reads the clock for the other crates"
)]

pub mod accounts;
mod active;
pub mod applied_texts;
mod audit_log;
mod digest;
pub mod foreign_changes;
mod foundation;
pub mod http_date;
mod member_tls;
pub mod operator_records;
pub mod passthrough;
mod random;
mod reader_threads;
pub mod stamps;
pub mod state_directory;
pub mod stored_blocks;
pub mod stored_history;
pub mod stored_states;
pub mod supervise;
pub mod times;
pub mod trust_alarms;

pub use active::{Active, ActiveSnapshot, GenerationWriter};
pub use audit_log::AuditLog;
pub use digest::digest;
pub use foundation::Foundation;
pub use member_tls::{Credentials, PreparedTls, indicates_name, tls_of};
pub use operator_records::OperatorRecords;
pub use random::random_part_of;
pub use reader_threads::ReaderThreads;
pub use state_directory::StateDirectory;
