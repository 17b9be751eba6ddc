//! Restarts of compilers: one at a time stops listening, with or without a reset of its connections, and listens again
//! later.

use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::{Seed, StandIn, wait_until};

use super::{
    course::{Course, Working},
    estate::SoakEstate,
    tally::{Count, Tally},
};

/// Restarts compilers in turn.
pub(super) struct Restarts {
    interval: Duration,
    choices: Seed,
    turn: usize,
}

impl Restarts {
    /// One restart per `interval`, which varies by up to one half.
    pub(super) fn new(interval: Duration, seed: u64) -> Self {
        Self {
            interval,
            choices: Seed::new(seed),
            turn: 0,
        }
    }

    /// Restarts compilers until the end of the course, except while agents pause.
    pub(super) fn live(
        mut self,
        estate: &SoakEstate,
        course: &Course,
        tally: &Tally,
        _: Working<'_>,
    ) {
        while course.goes_on() {
            let per_mille = 500 + self.choices.below(1_000) as u32;
            if course.works_for(self.interval * per_mille / 1_000) {
                self.restart(estate, course, tally);
            }
        }
    }

    fn restart(&mut self, estate: &SoakEstate, course: &Course, tally: &Tally) {
        let compiler = &estate.compilers[self.turn % estate.compilers.len()];
        let is_reset = self.turn % 4 < 2;
        self.turn += 1;
        let downtime = Duration::from_millis(200 + self.choices.below(1_300) as u64);
        let ledger = &estate.ledger;
        ledger.restarting(&compiler.address());
        if is_reset {
            ledger.killing();
            compiler.kill();
            ledger.killed();
        } else {
            compiler.stop();
        }
        course.works_for(downtime);
        compiler.restart();
        let back = Instant::now();
        if wait_until(USED_WITHIN, || is_used(estate, compiler).then_some(())).is_none() {
            tally.miss(format!("not within {USED_WITHIN:?}: {USED_AGAIN}"));
        }
        tally.took(USED_AGAIN, back.elapsed(), USED_WITHIN);
        ledger.restarted();
        tally.count(Count::Restarts);
    }
}

/// Whether the proxy sends requests to a compiler. False if the proxy has exited, which the soak notices elsewhere.
fn is_used(estate: &SoakEstate, compiler: &StandIn) -> bool {
    let Ok(answer) = estate.proxy.try_admin("GET", "/v1/status") else {
        return !estate.proxy.is_running();
    };
    let status: Value = serde_json::from_slice(&answer.body.kept).unwrap_or_default();
    let pools = status["pools"].as_array().into_iter().flatten();
    let mut members = pools
        .filter_map(|pool| pool["members"].as_array())
        .flatten();
    members.any(|member| {
        member["address"] == *compiler.address()
            && member["health"] == "up"
            && member["ejected_seconds"].is_null()
    })
}

/// The event that is awaited after a compiler listens again.
pub(super) const USED_AGAIN: &str = "a restarted compiler was used again";
/// Time for some probes on a machine under load.
const USED_WITHIN: Duration = Duration::from_secs(20);
