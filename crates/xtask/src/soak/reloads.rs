//! Reloads by SIGHUP, each with a changed configuration.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::wait_until;

use super::{
    estate::{BODY_BUFFER_BYTES, SoakEstate},
    tally::{Count, Tally},
};

/// When the next reload is due.
pub(super) struct Reloads<'a> {
    estate: &'a SoakEstate,
    interval: Duration,
    due: Instant,
    turn: usize,
}

impl<'a> Reloads<'a> {
    pub(super) fn new(estate: &'a SoakEstate, interval: Duration) -> Self {
        Self {
            estate,
            interval,
            due: Instant::now() + interval,
            turn: 0,
        }
    }

    /// Changes the configuration and reloads it when a reload is due.
    pub(super) fn reload_when_due(&mut self, tally: &Tally) {
        if self.due > Instant::now() {
            return;
        }
        self.due = Instant::now() + self.interval;
        let [old, new] = match self.turn % 2 {
            0 => BODY_BUFFER_BYTES,
            _ => [BODY_BUFFER_BYTES[1], BODY_BUFFER_BYTES[0]],
        };
        self.turn += 1;
        let proxy = &self.estate.proxy;
        let setting = |bytes| format!("body_buffer_max = \"{bytes}B\"");
        proxy.edit_config(&setting(old), &setting(new));
        let outcome = || proxy.status()["last_reload"].clone();
        let before = outcome();
        let begun = Instant::now();
        proxy.signal(Signal::HUP);
        let ended = wait_until(APPLIED_WITHIN, || Some(outcome()).filter(|o| *o != before));
        match ended {
            Some(outcome) if outcome["result"] == "applied" => {
                tally.took(APPLIED, begun.elapsed(), APPLIED_WITHIN);
                tally.count(Count::Reloads);
            }
            Some(outcome) => tally.miss(format!("a reload was not applied: {outcome}")),
            None => tally.miss(format!("not within {APPLIED_WITHIN:?}: {APPLIED}")),
        }
    }
}

/// The event that is awaited after SIGHUP.
pub(super) const APPLIED: &str = "a reload was applied";
/// Long enough for a machine under load.
const APPLIED_WITHIN: Duration = Duration::from_secs(20);
