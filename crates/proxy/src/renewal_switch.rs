//! Whether renewals are passed on. The first wrong response of the CA turns them off until an operator requests a
//! reload.

use std::{sync::Arc, time::SystemTime};

use telemetry::{Alarm, Alarms};

/// Whether renewals are passed on, over all workers and generations.
#[derive(Debug)]
pub struct Renewal(Arc<Alarms>);

/// Why no renewal is passed on until an operator requests a reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewalSuspension {
    /// Since when.
    pub since: SystemTime,
    /// What the CA answered, as a sentence.
    pub why: String,
}

impl Renewal {
    /// Renewal is on unless its alarm is active.
    pub(crate) fn new(alarms: &Arc<Alarms>) -> Self {
        Self(Arc::clone(alarms))
    }

    /// Why it is off, if it is.
    pub fn off(&self) -> Option<RenewalSuspension> {
        let alarm = self.0.get(Alarm::RenewalOff, "")?;
        Some(RenewalSuspension {
            since: alarm.since,
            why: alarm.message,
        })
    }

    /// Turns renewal on again, because an operator requested a reload.
    pub fn permit(&self) {
        self.0.clear(Alarm::RenewalOff, "");
    }

    /// Keeps the first cause. Later causes come from requests that were in flight when renewal was turned off.
    pub(crate) fn forbid(&self, why: &str) {
        if self.off().is_none() {
            let message = format!(
                "{why}; the proxy did not forward the response, and renewal is off until the next `proscenium reload`"
            );
            self.0
                .raise(Alarm::RenewalOff, "", message, SystemTime::now());
        }
    }
}
