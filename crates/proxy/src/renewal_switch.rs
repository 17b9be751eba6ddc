//! Whether renewals are passed on. The first wrong response of the CA turns them off until an operator requests a
//! reload. A CA server of an unknown kind gets none.

use std::{sync::Arc, time::SystemTime};

use telemetry::{ActiveAlarm, Alarm, Alarms};
use tokio::sync::Notify;

use crate::ca_kind::KindQuestions;

/// Whether renewals are passed on, over all workers and generations.
#[derive(Debug)]
pub struct Renewal {
    alarms: Arc<Alarms>,
    permitted: Notify,
    pub(crate) questions: KindQuestions,
}

/// Why no renewal is passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewalSuspension {
    /// Since when.
    pub since: SystemTime,
    /// What is wrong with the CA server and what ends it, as a sentence.
    pub why: String,
}

impl Renewal {
    /// Renewal is on unless its alarm is active.
    pub(crate) fn new(alarms: &Arc<Alarms>) -> Self {
        Self {
            alarms: Arc::clone(alarms),
            permitted: Notify::new(),
            questions: KindQuestions::default(),
        }
    }

    /// Why it is off, if it is.
    pub fn off(&self) -> Option<RenewalSuspension> {
        let mut active = self.alarms.active().into_iter();
        let alarm = active.find(|active| active.alarm == Alarm::RenewalOff)?;
        let ActiveAlarm { since, message, .. } = alarm;
        Some(RenewalSuspension {
            since,
            why: message,
        })
    }

    /// Turns renewal on again, because an operator requested a reload.
    pub fn permit(&self) {
        self.alarms
            .replace(Alarm::RenewalOff, &[], SystemTime::now());
        self.permitted.notify_one();
    }

    /// Waits until [`permit`](Self::permit) is called.
    pub async fn permitted(&self) {
        self.permitted.notified().await;
    }

    /// Whether a CA server has answered with a wrong certificate since then.
    pub(crate) fn is_forbidden(&self) -> bool {
        self.alarms.get(Alarm::RenewalOff, "").is_some()
    }

    /// Notes whether the answers of a CA server name a version of Puppet.
    pub(crate) fn note_kind(&self, member: &str, names_puppet: bool) {
        match names_puppet {
            true => self.alarms.clear(Alarm::RenewalOff, member),
            false => self.alarms.raise(
                Alarm::RenewalOff,
                member,
                format!(
                    "the CA server {member} gets no renewals, because it may renew, and revoke, the certificate of the connection, which is the proxy's: its answers lack the header {PUPPET_VERSION} of Puppet Server; if it is one, set `[ca] kind = \"puppet-server\"`, otherwise `renewal = false`, and run `proscenium reload`"
                ),
                SystemTime::now(),
            ),
        }
    }

    /// Keeps the first cause. Later causes come from requests that were in flight when renewal was turned off.
    pub(crate) fn forbid(&self, why: &str) {
        if !self.is_forbidden() {
            let message = format!(
                "{why}; the proxy did not forward the response, and renewal is off until the next `proscenium reload`"
            );
            self.alarms
                .raise(Alarm::RenewalOff, "", message, SystemTime::now());
        }
    }
}

/// Puppet Server adds this header to all answers of its CA, errors included.
pub(crate) const PUPPET_VERSION: &str = "x-puppet-version";
