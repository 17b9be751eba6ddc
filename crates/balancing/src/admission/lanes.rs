//! The order in which requests leave a pool's queue.

use std::{cmp::Reverse, collections::BTreeSet, time::Duration};

use crate::{
    offer::{EligibleMembers, Offer},
    work::Work,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueuePosition {
    /// Before all lanes: the request has run already and needs another member.
    Front,
    /// In this lane, at this position of its order.
    Lane(usize, Duration),
    /// Waits until its client runs fewer requests than its maximum.
    Blocked,
}

/// Requests that may run as soon as a member has room, by their numbers.
///
/// A lane holds requests that the same members can serve, so only its first request needs to be tried. Lanes take turns by the
/// cost of their work (stride scheduling): each served request moves the next turn of its lane back by the cost.
///
/// A report that arrived before all catalogs takes the turn of the catalogs. In a crowded queue, reports have the same low cost
/// as files, because they are short and each of them frees a slot. If no catalog waits, reports take turns like other work.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    pub(super) front: BTreeSet<u64>,
    lanes: [Lane; LANES],
    /// The turn that was served last. A lane that was empty starts there, so that it gains nothing by having been empty.
    served: u64,
    /// Whether more than half of the queue is occupied.
    pub(super) crowded: bool,
}

#[derive(Debug, Default)]
struct Lane {
    requests: BTreeSet<(Duration, u64)>,
    turn: u64,
}

/// A lane for each kind of work and each [`EligibleMembers`].
const LANES: usize = 3 * Work::ALL.len();
/// Cost of a report that takes the turn of the catalogs.
const SHORT: u64 = 1;
/// Maximum cost of a report while no catalog waits, so that files alone do not delay reports.
const ALONE: u64 = Work::Other.queue_cost(false);
/// The time of arrival of a catalog is the time at which its agent's run began, but at most this much earlier. The requests
/// before a catalog, and the agent's own work between them, take about that long.
const HEAD_START_MAX: Duration = Duration::from_secs(15);

#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    /// Time of arrival. For a catalog, the time at which the agent's run began.
    pub(super) time: Duration,
    /// Whether the request waits with the catalogs.
    pub(super) with_catalogs: bool,
}

impl Order {
    /// The order of a request that arrived at `came`.
    pub(super) fn new(work: Work, came: Duration, run_began: Duration) -> Self {
        let time = match work {
            Work::Catalog => run_began.clamp(came.saturating_sub(HEAD_START_MAX), came),
            Work::File | Work::Report | Work::Other => came,
        };
        Self {
            time,
            with_catalogs: false,
        }
    }
}

impl Lanes {
    /// The lane of a request, and its order in the lane.
    pub(super) fn place_of(offer: &Offer, order: Order) -> QueuePosition {
        let target = match offer.eligible {
            EligibleMembers::Any => 0,
            EligibleMembers::WriterOrBackup => 1,
            EligibleMembers::WriterOnly => 2,
        };
        let work = if order.with_catalogs {
            Work::Catalog
        } else {
            offer.criteria.task.work
        };
        QueuePosition::Lane(work.index() + target * Work::ALL.len(), order.time)
    }

    pub(super) fn catalogs(&self) -> u32 {
        let lanes = (0..LANES).filter(|index| work_of(*index) == Work::Catalog);
        lanes
            .map(|index| self.lanes[index].requests.len() as u32)
            .sum()
    }

    pub(super) fn insert(&mut self, place: QueuePosition, id: u64) {
        match place {
            QueuePosition::Front => _ = self.front.insert(id),
            QueuePosition::Lane(index, order) => {
                let lane = &mut self.lanes[index];
                if lane.requests.is_empty() {
                    lane.turn = lane.turn.max(self.served);
                }
                lane.requests.insert((order, id));
            }
            QueuePosition::Blocked => {}
        }
    }

    pub(super) fn remove(&mut self, place: QueuePosition, id: u64) {
        match place {
            QueuePosition::Front => _ = self.front.remove(&id),
            QueuePosition::Lane(index, order) => {
                self.lanes[index].requests.remove(&(order, id));
                self.forget_catalogs(index);
            }
            QueuePosition::Blocked => {}
        }
    }

    /// The first request of each lane, by turn. If lanes have the same turn, the catalogs come last.
    pub(super) fn heads(&self) -> impl Iterator<Item = (QueuePosition, u64)> + use<> {
        let mut heads: Vec<_> = (0..LANES)
            .filter_map(|index| {
                let (order, id) = *self.lanes[index].requests.first()?;
                Some((self.turn(index), Reverse(index), order, id))
            })
            .collect();
        heads.sort_unstable();
        heads
            .into_iter()
            .map(|(_, Reverse(index), order, id)| (QueuePosition::Lane(index, order), id))
    }

    /// Records that the first request of a lane has left the queue to run.
    pub(super) fn served(&mut self, place: QueuePosition) {
        if let QueuePosition::Lane(index, _) = place {
            let turn = self.turn(index);
            self.served = self.served.max(turn);
            let (lane, cost) = if self.has_turn_of_catalogs(index) {
                (catalogs_of(index), SHORT)
            } else {
                (index, self.cost(index))
            };
            self.lanes[lane].turn = turn + cost;
        }
    }

    fn cost(&self, index: usize) -> u64 {
        let cost = work_of(index).queue_cost(self.crowded);
        match work_of(index) {
            Work::Report if !self.has_catalogs(index) => cost.min(ALONE),
            _ => cost,
        }
    }

    /// When the last catalog has left, reports no longer pay for the time when catalogs waited.
    fn forget_catalogs(&mut self, index: usize) {
        let reports = catalogs_of(index) - Work::Catalog.index() + Work::Report.index();
        if work_of(index) == Work::Catalog && !self.has_catalogs(index) {
            let turn = &mut self.lanes[reports].turn;
            *turn = (*turn).min(self.served + ALONE);
        }
    }

    /// Whether catalogs wait that the members of this lane could serve.
    fn has_catalogs(&self, index: usize) -> bool {
        !self.lanes[catalogs_of(index)].requests.is_empty()
    }

    fn turn(&self, index: usize) -> u64 {
        let turn = self.lanes[index].turn;
        let catalogs = self.lanes[catalogs_of(index)].turn;
        // A crowded queue ignores the cost of earlier reports.
        let is_forgotten = work_of(index) == Work::Report
            && self.crowded
            && self.has_catalogs(index)
            && turn > catalogs + Work::Catalog.queue_cost(true);
        if is_forgotten || self.has_turn_of_catalogs(index) {
            catalogs
        } else {
            turn
        }
    }

    /// Whether the lane's first request is a report that arrived before all catalogs, and the turn of the catalogs is earlier
    /// than that of the reports.
    fn has_turn_of_catalogs(&self, index: usize) -> bool {
        let (lane, catalogs) = (&self.lanes[index], &self.lanes[catalogs_of(index)]);
        let came_before = match (lane.requests.first(), catalogs.requests.first()) {
            (Some(report), Some(catalog)) => report < catalog,
            _ => false,
        };
        work_of(index) == Work::Report && came_before && catalogs.turn < lane.turn
    }
}

/// The lane of the catalogs that the same members can serve.
fn catalogs_of(lane: usize) -> usize {
    lane - work_of(lane).index() + Work::Catalog.index()
}

fn work_of(lane: usize) -> Work {
    Work::ALL[lane % Work::ALL.len()]
}
