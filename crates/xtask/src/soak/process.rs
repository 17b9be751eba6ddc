//! Resources of the proxy's process, as reported by the kernel.

use std::fs;

use anyhow::{Context, Result};
use testkit::Proxy;

/// Memory, descriptors and threads at one time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Resident memory (`VmRSS`).
    pub(super) memory_kib: u64,
    pub(super) descriptors: u64,
    pub(super) threads: u64,
}

impl Sample {
    /// Measures the process now.
    pub(super) fn of(proxy: &Proxy) -> Result<Self> {
        let directory = format!("/proc/{}", proxy.pid());
        let status = fs::read_to_string(format!("{directory}/status"))?;
        let descriptors = fs::read_dir(format!("{directory}/fd"))?.count();
        Ok(Self {
            memory_kib: field(&status, "VmRSS:")?,
            descriptors: descriptors as u64,
            threads: field(&status, "Threads:")?,
        })
    }

    /// The minimum of each value.
    pub(super) fn least(&self, other: &Self) -> Self {
        Self {
            memory_kib: self.memory_kib.min(other.memory_kib),
            descriptors: self.descriptors.min(other.descriptors),
            threads: self.threads.min(other.threads),
        }
    }
}

fn field(status: &str, name: &str) -> Result<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.with_context(|| format!("no {name} of the process"))
}
