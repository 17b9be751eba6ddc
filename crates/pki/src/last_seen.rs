//! When a certificate of a CA was last verified, and how many certificates the CA has issued.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustls_pki_types::UnixTime;

/// When a verified certificate of a CA was last seen, in seconds of Unix time. 0: never.
#[derive(Debug, Default)]
pub(crate) struct LastSeen(AtomicU64);

impl LastSeen {
    /// Records that a certificate was seen. The time is rounded up to the hour, so that most certificates change nothing.
    pub(crate) fn note(&self, now: UnixTime) {
        let hour = (now.as_secs() / HOUR + 1) * HOUR;
        if self.0.load(Ordering::Relaxed) < hour {
            self.0.store(hour, Ordering::Relaxed);
        }
    }

    /// Limits the time to the present hour. Otherwise, a time from a fast clock or a damaged file would mark a CA as used until
    /// then.
    pub(crate) fn clamp(&self, now: UnixTime) {
        let latest = now.as_secs().saturating_add(HOUR);
        self.0.fetch_min(latest, Ordering::Relaxed);
    }

    /// Seconds of Unix time, rounded up to the hour; 0: never.
    pub(crate) fn seconds(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Restores a stored time.
    pub(crate) fn restore(&self, seconds: u64) {
        self.inherit(&Self(AtomicU64::new(seconds)));
    }

    pub(crate) fn inherit(&self, other: &Self) {
        self.0
            .fetch_max(other.0.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// The highest serial number among the verified certificates of a CA. If the CA counts its serials, as Puppet's CA does, it
/// shows how many certificates the CA has issued. Longer serials are random and show nothing.
#[derive(Debug, Default)]
pub(crate) struct HighestSerial(AtomicU32);

impl HighestSerial {
    /// Records a serial in its shortest form.
    pub(crate) fn note(&self, serial: &[u8]) {
        if serial.len() <= size_of::<u32>() {
            let number = serial.iter().fold(0, |n, byte| n << 8 | u32::from(*byte));
            if self.number() < number {
                self.0.fetch_max(number, Ordering::Relaxed);
            }
        }
    }

    /// The highest serial number. 0: none was seen.
    pub(crate) fn number(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn inherit(&self, other: &Self) {
        self.0.fetch_max(other.number(), Ordering::Relaxed);
    }
}

const HOUR: u64 = 3600;
