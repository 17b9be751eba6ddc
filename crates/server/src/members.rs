//! Members while the process runs: probes, administrative states, and rules about their hosts.

pub(crate) mod administrative;
pub(crate) mod agent_checks;
pub mod jrubies;
pub(crate) mod passthrough;
pub(crate) mod persistence_key;
pub(crate) mod probes;
