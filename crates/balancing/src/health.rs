//! Whether a member answers: the state machine behind up and down.

use std::fmt;
use std::time::Duration;

use crate::settings::{CheckKind, CheckSettings};

/// What is known of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// Never probed: not picked before its first good probe.
    #[default]
    Unknown,
    /// Picked.
    Up,
    /// Not picked.
    Down,
}

/// Health that has just become another; worth an event and a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthChange {
    /// What it was.
    pub from: Health,
    /// What it is now.
    pub to: Health,
    /// Why.
    pub cause: HealthCause,
}

/// What made health change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthCause {
    /// Enough good probes, or the first.
    ProbesSucceeded,
    /// Enough bad probes.
    ProbesFailed,
    /// A request found nobody listening.
    ConnectRefused,
    /// An unprobed member that was down has answered a request.
    Answered,
    /// Nothing was asked: the check says that it counts as up.
    Assumed,
    /// The operator ended its maintenance: what was known before may no longer be true.
    MaintenanceEnded,
    /// A pool's check changed, and what the old one had found no longer counts.
    CheckChanged,
}

/// How long an unprobed member stays down after a refused connect before one request may try it again.
///
/// Long enough that a dead member costs one failed dial a second, short enough that a restarted one is not missed.
pub const REFUSED_RETRY: Duration = Duration::from_secs(1);

/// What probes and requests have shown about one member under one check.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence {
    check: Option<CheckSettings>,
    health: Health,
    /// Good probes in a row that end the present `Down` or `Unknown`.
    good_needed: u32,
    /// Good probes in a row while not up, bad ones in a row while up.
    streak: u32,
    /// Whether it is down because its maintenance ended.
    after_maintenance: bool,
}

impl Evidence {
    /// Puts a check in force if none is; what a check already in force has shown stays.
    pub(crate) fn begin(&mut self, check: &CheckSettings) -> Option<HealthChange> {
        if self.check.is_some() {
            return None;
        }
        self.check = Some(check.clone());
        self.good_needed = 1;
        match counts_as_up(check) {
            true => self.turn(Health::Up, HealthCause::Assumed),
            false => None,
        }
    }

    /// Replaces the check. A member that was up stays so on trust, since taking every member of a pool down until its
    /// next probe would refuse the requests of that time; one that was down needs but one good probe of the new kind. After
    /// maintenance a probed member still needs `rise` of them.
    pub(crate) fn replace(&mut self, check: &CheckSettings) -> Option<HealthChange> {
        if self.check.is_none() {
            return self.begin(check);
        }
        if self.check.as_ref() == Some(check) {
            return None;
        }
        self.check = Some(check.clone());
        self.streak = 0;
        if self.after_maintenance && check.kind != CheckKind::None {
            self.good_needed = check.rise.max(1);
            return None;
        }
        self.good_needed = 1;
        match self.health {
            Health::Up => None,
            Health::Down | Health::Unknown if counts_as_up(check) => {
                self.turn(Health::Up, HealthCause::Assumed)
            }
            Health::Down | Health::Unknown => self.turn(Health::Unknown, HealthCause::CheckChanged),
        }
    }

    /// A good probe made by `check`; ignored if another is in force by now.
    pub(crate) fn probe_succeeded(&mut self, check: &CheckSettings) -> Option<HealthChange> {
        if self.check.as_ref() != Some(check) {
            return None;
        }
        if self.health == Health::Up {
            self.streak = 0;
            return None;
        }
        self.streak += 1;
        match self.streak >= self.good_needed {
            true => self.turn(Health::Up, HealthCause::ProbesSucceeded),
            false => None,
        }
    }

    /// A bad probe made by `check`; ignored if another is in force by now.
    pub(crate) fn probe_failed(&mut self, check: &CheckSettings) -> Option<HealthChange> {
        if self.check.as_ref() != Some(check) {
            return None;
        }
        match self.health {
            Health::Up => {
                self.streak += 1;
                if self.streak < check.fall {
                    return None;
                }
                self.good_needed = check.rise.max(1);
                self.turn(Health::Down, HealthCause::ProbesFailed)
            }
            // Already unavailable; `good_needed` stays, so that one never seen up still comes up on its first good probe.
            Health::Unknown => self.turn(Health::Down, HealthCause::ProbesFailed),
            Health::Down => {
                self.streak = 0;
                None
            }
        }
    }

    /// Nobody listened: down until the next good probe.
    pub(crate) fn connect_refused(&mut self) -> Option<HealthChange> {
        match self.health {
            Health::Up => {
                self.good_needed = 1;
                self.turn(Health::Down, HealthCause::ConnectRefused)
            }
            // What it takes to come up stays: the end of a maintenance asks for more than one good probe.
            Health::Unknown | Health::Down => {
                self.streak = 0;
                None
            }
        }
    }

    /// Maintenance ended: a probed member is down until `rise` probes in a row were good, whatever was known before. Down
    /// and not unknown, so that a backup keeps its writes until then.
    pub(crate) fn end_maintenance(&mut self) -> Option<HealthChange> {
        let check = self.check.as_ref()?;
        if check.kind == CheckKind::None {
            return None;
        }
        self.good_needed = check.rise.max(1);
        self.after_maintenance = true;
        self.turn(Health::Down, HealthCause::MaintenanceEnded)
    }

    /// It answered a request; only where no probes are made does that bring a member up.
    pub(crate) fn answered(&mut self) -> Option<HealthChange> {
        match self.health != Health::Up && self.is_unprobed() {
            true => self.turn(Health::Up, HealthCause::Answered),
            false => None,
        }
    }

    /// Whether probes have begun to change health: some in a row disagree with it, fewer than it takes.
    pub(crate) fn is_changing(&self) -> bool {
        self.streak > 0
    }

    pub(crate) fn is_unprobed(&self) -> bool {
        self.check
            .as_ref()
            .is_some_and(|check| check.kind == CheckKind::None)
    }

    pub(crate) fn health(&self) -> Health {
        self.health
    }

    fn turn(&mut self, to: Health, cause: HealthCause) -> Option<HealthChange> {
        let from = std::mem::replace(&mut self.health, to);
        self.after_maintenance &= to == Health::Down;
        self.streak = 0;
        (from != to).then_some(HealthChange { from, to, cause })
    }
}

fn counts_as_up(check: &CheckSettings) -> bool {
    check.assume_up || check.kind == CheckKind::None
}

impl Health {
    /// The word in records, events and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl HealthCause {
    /// The word in events.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ProbesSucceeded => "probes-succeeded",
            Self::ProbesFailed => "probes-failed",
            Self::ConnectRefused => "connect-refused",
            Self::Answered => "answered",
            Self::Assumed => "assumed",
            Self::MaintenanceEnded => "maintenance-ended",
            Self::CheckChanged => "check-changed",
        }
    }
}

impl fmt::Display for HealthCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests;
