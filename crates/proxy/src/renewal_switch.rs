//! Whether renewals are passed on. The first wrong response of the CA turns them off until an operator requests a reload. A CA
//! server of an unknown kind gets no renewals.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use telemetry::{ActiveAlarm, Alarm, Alarms};
use tokio::sync::Notify;

use crate::ca_kind::KindQuestions;

/// How long after the last request for a renewal the alarm about refused renewals stays active. An agent asks in each run, and
/// some run only once a day.
const REFUSED_ALARM_TIME: Duration = Duration::from_secs(26 * 3600);

/// Whether renewals are passed on, over all workers and generations.
#[derive(Debug)]
pub struct Renewal {
    alarms: Arc<Alarms>,
    permitted: Notify,
    /// When a verified agent last asked for a renewal that is not configured, in seconds since 1970.
    refused_at: AtomicU64,
    pub(crate) questions: KindQuestions,
}

/// Why renewals are not passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewalSuspension {
    /// Since when renewal is off.
    pub since: SystemTime,
    /// What is wrong with the CA server, and what turns renewal on again, as a sentence.
    pub why: String,
}

impl Renewal {
    /// Renewal is on unless its alarm is active.
    pub(crate) fn new(alarms: &Arc<Alarms>) -> Self {
        Self {
            alarms: Arc::clone(alarms),
            permitted: Notify::new(),
            refused_at: AtomicU64::new(0),
            questions: KindQuestions::default(),
        }
    }

    /// Why renewal is off, if it is off.
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
        let now = SystemTime::now();
        self.alarms.replace(Alarm::RenewalOff, &[], now);
        self.alarms.replace(Alarm::RenewalsRefused, &[], now);
        self.permitted.notify_one();
    }

    /// Waits until [`permit`](Self::permit) is called.
    pub async fn permitted(&self) {
        self.permitted.notified().await;
    }

    /// Notes that a verified agent asked for a renewal, and got a 404 because renewal is not configured.
    pub(crate) fn note_refused(&self, certname: &str, now: SystemTime) {
        self.refused_at.store(seconds(now), Ordering::Relaxed);
        // The message keeps the first certname, so that agents cannot fill the log.
        self.alarms.assess(Alarm::RenewalsRefused, "", now, || {
            Some(format!(
                "agents ask for the renewal of their certificates and get 404, because `[ca] renewal` is off; the first was {}. An agent that gets no renewal is refused when its certificate expires: add the certname of the proxy's certificate to infra_inventory.txt on the CA server, then set `renewal = true` in [ca] (operating/ca.md)",
                certname.escape_default()
            ))
        });
    }

    /// Clears the alarm about refused renewals if no agent has asked for a day, or if renewal is configured.
    pub fn assess_refused(&self, is_configured: bool, now: SystemTime) {
        let last = Duration::from_secs(self.refused_at.load(Ordering::Relaxed));
        let end = SystemTime::UNIX_EPOCH + last + REFUSED_ALARM_TIME;
        if is_configured || end < now {
            self.alarms.clear(Alarm::RenewalsRefused, "");
        }
    }

    /// Notes the first 400 of a CA server to a renewal. `presented`: the subject of the certificate that the proxy presents
    /// there.
    pub(crate) fn note_rejected(&self, member: &str, certname: &str, presented: Option<&str>) {
        let own = presented.map_or("the certname of the proxy's certificate", |subject| {
            subject.strip_prefix("CN=").unwrap_or(subject)
        });
        self.alarms.assess(Alarm::RenewalsRefused, member, SystemTime::now(), || {
            Some(format!(
                "the CA server {member} answered 400 to the renewal of {}: is {own} in infra_inventory.txt on the CA server (`infra-nodes-path` in ca.conf)? The CA reads the file with each request, so no restart is necessary. If it is, the log of the CA server shows the reason. Agents keep their certificates until these expire",
                certname.escape_default()
            ))
        });
    }

    /// Notes that a CA server renewed a certificate.
    pub(crate) fn note_renewed(&self, member: &str) {
        self.alarms.clear(Alarm::RenewalsRefused, member);
    }

    /// Whether a CA server has answered with a wrong certificate since renewal was last turned on.
    pub(crate) fn is_forbidden(&self) -> bool {
        self.alarms.get(Alarm::RenewalOff, "").is_some()
    }

    /// Notes whether the responses of a CA server name a version of Puppet.
    pub(crate) fn note_kind(&self, member: &str, names_puppet: bool) {
        if names_puppet {
            self.alarms.clear(Alarm::RenewalOff, member)
        } else {
            self.alarms.raise(
                Alarm::RenewalOff,
                member,
                format!(
                    "the CA server {member} gets no renewals, because it may renew, and revoke, the certificate of the connection, which is the proxy's: its answers lack the header {PUPPET_VERSION} of Puppet Server; if it is one, set `[ca] kind = \"puppet-server\"`, otherwise `renewal = false`, and run `proscenium reload`"
                ),
                SystemTime::now(),
            )
        }
    }

    /// Turns renewal off. The first cause is kept, because later ones come from requests that were already in flight then.
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

/// Whole seconds since 1970.
fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

/// Puppet Server adds this header to all responses of its CA, including errors.
pub(crate) const PUPPET_VERSION: &str = "x-puppet-version";
