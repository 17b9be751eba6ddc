//! The health of a member: the state machine that decides whether it is up or down.

use std::fmt;
use std::time::Duration;

use crate::settings::{CheckKind, CheckSettings};

/// The health of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// Never probed. The member is not picked before its first successful probe.
    #[default]
    Unknown,
    /// The member can be picked.
    Up,
    /// The member is not picked.
    Down,
}

/// A change of a member's health, to be logged and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthChange {
    /// The health before the change.
    pub from: Health,
    /// The health after the change.
    pub to: Health,
    /// The cause of the change.
    pub cause: HealthCause,
}

/// The cause of a change of health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthCause {
    /// Enough probes succeeded, or the first one did.
    ProbesSucceeded,
    /// Enough probes failed.
    ProbesFailed,
    /// A connection for a request was refused.
    ConnectRefused,
    /// A member without probes that was down has answered a request.
    Answered,
    /// No probe was made, because the check says that the member counts as up.
    Assumed,
    /// The operator ended the maintenance. Earlier results may no longer be true.
    MaintenanceEnded,
    /// The pool's check changed, so the results of the old check no longer count.
    CheckChanged,
}

/// How long a member without probes stays down after it refused a connection, before one request may try it again.
///
/// The time is long enough that a dead member costs at most one failed connection per second, and short enough that a restarted
/// member is used soon.
pub const REFUSED_RETRY: Duration = Duration::from_secs(1);

/// What probes and requests have shown about one member under one check.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence {
    check: Option<CheckSettings>,
    health: Health,
    /// Consecutive successful probes that end the present `Down` or `Unknown`.
    good_needed: u32,
    /// Consecutive successful probes while the member is not up; consecutive failed probes while it is up.
    streak: u32,
    /// Whether the member is down because its maintenance ended.
    after_maintenance: bool,
    /// The number of the drain that ended last, if no probe has succeeded since.
    awaited: Option<u64>,
    drains_ended: u64,
}

impl Evidence {
    /// Applies a check if the member has none. Otherwise the present check and its results stay.
    pub(crate) fn begin(&mut self, check: &CheckSettings) -> Option<HealthChange> {
        if self.check.is_some() {
            return None;
        }
        self.check = Some(check.clone());
        self.good_needed = 1;
        if counts_as_up(check) {
            self.turn(Health::Up, HealthCause::Assumed)
        } else {
            None
        }
    }

    /// Replaces the check. A member that was up stays up, because taking every member of a pool down until its next probe would
    /// refuse all requests meanwhile. A member that was down needs one successful probe with the new check. After maintenance,
    /// a probed member still needs `rise` successful probes.
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

    /// Records a successful probe that used `check`. The result is ignored if the member has another check now.
    pub(crate) fn probe_succeeded(&mut self, check: &CheckSettings) -> Option<HealthChange> {
        if self.check.as_ref() != Some(check) {
            return None;
        }
        if self.health == Health::Up {
            self.streak = 0;
            return None;
        }
        self.streak += 1;
        if self.streak >= self.good_needed {
            self.turn(Health::Up, HealthCause::ProbesSucceeded)
        } else {
            None
        }
    }

    /// Records a failed probe that used `check`. The result is ignored if the member has another check now.
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
            // The member is already unavailable. `good_needed` stays the same, so a member that was never up still comes up
            // after its first successful probe.
            Health::Unknown => self.turn(Health::Down, HealthCause::ProbesFailed),
            Health::Down => {
                self.streak = 0;
                None
            }
        }
    }

    /// Records a refused connection: the member is down until the next successful probe.
    pub(crate) fn connect_refused(&mut self) -> Option<HealthChange> {
        match self.health {
            Health::Up => {
                self.good_needed = 1;
                self.turn(Health::Down, HealthCause::ConnectRefused)
            }
            // `good_needed` stays the same, because after maintenance more than one successful probe is needed.
            Health::Unknown | Health::Down => {
                self.streak = 0;
                None
            }
        }
    }

    /// Ends maintenance: a probed member is down until `rise` consecutive probes succeed, whatever its health was before. Its
    /// health is `Down` and not `Unknown`, so that a backup keeps getting its writes until then.
    pub(crate) fn end_maintenance(&mut self) -> Option<HealthChange> {
        let check = self.check.as_ref()?;
        if check.kind == CheckKind::None {
            return None;
        }
        self.good_needed = check.rise.max(1);
        self.after_maintenance = true;
        self.turn(Health::Down, HealthCause::MaintenanceEnded)
    }

    /// Ends a drain. The last probe's result may no longer be true, because operators drain a member to stop it.
    pub(crate) fn end_drain(&mut self) {
        if self.check.is_some() && !self.is_unprobed() {
            self.drains_ended += 1;
            self.awaited = Some(self.drains_ended);
        }
    }

    /// Begins a drain or maintenance. The member gets no requests, so no probe is awaited.
    pub(crate) fn withdraw(&mut self) {
        self.awaited = None;
    }

    /// The number of the probe that is awaited since a drain ended.
    pub(crate) fn awaited(&self) -> Option<u64> {
        self.awaited.filter(|_| !self.is_unprobed())
    }

    /// Records that a probe succeeded that started while `awaited` was awaited.
    pub(crate) fn confirm(&mut self, awaited: u64) {
        self.awaited.take_if(|now| *now == awaited);
    }

    /// Records that the member responded to a request. This brings a member up only if it has no probes.
    pub(crate) fn answered(&mut self) -> Option<HealthChange> {
        if self.health != Health::Up && self.is_unprobed() {
            self.turn(Health::Up, HealthCause::Answered)
        } else {
            None
        }
    }

    /// Whether the last probes disagree with the health, but were too few to change it.
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
