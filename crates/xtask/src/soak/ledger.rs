//! The ledger of injected faults. A failed request that no fault in the ledger explains is a lost request.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::faults::MemberFault;

/// Every injected fault that may still affect a request.
#[derive(Default)]
pub(super) struct FaultLedger {
    state: Mutex<LedgerState>,
}

#[derive(Default)]
struct LedgerState {
    /// The faults of each request, by the certname that the member received, then by the number of the request.
    arrivals: HashMap<String, HashMap<u64, RequestFaults>>,
    injected: [u64; MemberFault::ALL.len()],
    /// Members that closed a kept-alive connection, and times of busy answers.
    closings: Vec<(String, Instant)>,
    busy: Vec<Instant>,
    outages: Vec<Outage>,
}

/// The faults that members injected into a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestFaults {
    /// How often the request arrived, spoilt or not.
    pub(super) arrivals: u32,
    pub(super) faults: Vec<MemberFault>,
}

/// A restart of a member, from its start until the proxy uses the member again.
struct Outage {
    member: String,
    /// When the member's connections were reset, if they were.
    killed: Option<Kill>,
    to: Option<Instant>,
}

/// The reset of a member's connections. `to` is its end, or `None` while it lasts.
struct Kill {
    to: Option<Instant>,
}

impl FaultLedger {
    /// Records that a request arrived at a member, and the fault that the member injected.
    pub(super) fn arrived(
        &self,
        certname: &str,
        number: u64,
        member: &str,
        fault: Option<MemberFault>,
    ) {
        let mut state = self.state();
        let of_agent = state.arrivals.entry(certname.to_owned()).or_default();
        let request = of_agent.entry(number).or_default();
        request.arrivals += 1;
        request.faults.extend(fault);
        let Some(fault) = fault else {
            return;
        };
        state.injected[fault as usize] += 1;
        let now = Instant::now();
        match fault {
            MemberFault::CloseKept => {
                let is_recent = |at: Instant| now.duration_since(at) < CLOSING_LASTS;
                state.closings.retain(|(_, at)| is_recent(*at));
                state.closings.push((member.to_owned(), now));
            }
            MemberFault::Busy => {
                state
                    .busy
                    .retain(|at| now.duration_since(*at) < BUSY_LASTS * 10);
                state.busy.push(now);
            }
            _ => {}
        }
    }

    /// Removes and returns the faults of a finished request.
    pub(super) fn settle(&self, certname: &str, number: u64) -> RequestFaults {
        let mut state = self.state();
        let of_agent = state.arrivals.get_mut(certname);
        of_agent
            .and_then(|requests| requests.remove(&number))
            .unwrap_or_default()
    }

    /// Forgets the requests of an agent whose connection was closed.
    pub(super) fn forget(&self, certname: &str) {
        self.state().arrivals.remove(certname);
    }

    /// How often this fault was injected.
    pub(super) fn injected(&self, fault: MemberFault) -> u64 {
        self.state().injected[fault as usize]
    }

    /// Records that a member begins to restart.
    pub(super) fn restarting(&self, member: &str) {
        self.state().outages.push(Outage {
            member: member.to_owned(),
            killed: None,
            to: None,
        });
    }

    /// Records that the connections of the restarting member are reset from now on.
    pub(super) fn killing(&self) {
        if let Some(outage) = self.state().outages.last_mut() {
            outage.killed = Some(Kill { to: None });
        }
    }

    /// Records that the connections of the restarting member have been reset.
    pub(super) fn killed(&self) {
        if let Some(outage) = self.state().outages.last_mut() {
            let to = Some(Instant::now());
            outage.killed = Some(Kill { to });
        }
    }

    /// Records that the proxy uses the restarted member again.
    pub(super) fn restarted(&self) {
        if let Some(outage) = self.state().outages.last_mut() {
            outage.to = Some(Instant::now());
        }
    }

    /// Whether connections of the member were reset since this time. Without `member`, connections of any member count.
    pub(super) fn was_killed(&self, member: Option<&str>, since: Instant) -> bool {
        let state = self.state();
        let of_member = |outage: &&Outage| member.is_none_or(|name| name == outage.member);
        let mut outages = state.outages.iter().filter(of_member);
        let lasted = |kill: &Kill| kill.to.is_none_or(|to| to >= since);
        outages.any(|outage| outage.killed.as_ref().is_some_and(lasted))
    }

    /// How often connections of any member were reset since this time.
    pub(super) fn kills(&self, since: Instant) -> usize {
        let state = self.state();
        let kills = state.outages.iter().filter_map(|o| o.killed.as_ref());
        kills
            .filter(|kill| kill.to.is_none_or(|to| to >= since))
            .count()
    }

    /// Whether a member was unavailable at some time since `since`.
    pub(super) fn was_unavailable(&self, since: Instant) -> bool {
        let state = self.state();
        let mut outages = state.outages.iter();
        outages.any(|outage| outage.to.is_none_or(|to| to >= since))
    }

    /// Whether a member answered that it was busy, shortly before this time or later.
    pub(super) fn was_busy(&self, since: Instant) -> bool {
        let state = self.state();
        state.busy.iter().any(|at| *at + BUSY_LASTS >= since)
    }

    /// Whether the member closed a kept-alive connection, shortly before this time or later.
    pub(super) fn closed_kept(&self, member: &str, since: Instant) -> bool {
        let state = self.state();
        let mut closings = state.closings.iter();
        closings.any(|(name, at)| name == member && *at + CLOSING_LASTS >= since)
    }

    fn state(&self) -> MutexGuard<'_, LedgerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A closed connection is recorded before its last answer, which a slow client may read for seconds.
const CLOSING_LASTS: Duration = Duration::from_secs(10);
/// How long the proxy sends no request to a busy member, with a margin.
const BUSY_LASTS: Duration = Duration::from_secs(2);
