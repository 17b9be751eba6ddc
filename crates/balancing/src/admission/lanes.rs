//! The order in which requests leave a pool's queue.

use std::collections::BTreeSet;

use crate::work::Work;

use super::{Offer, Target};

/// Where a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Before all lanes: it has run already, and looks for another member.
    Front,
    /// In a lane, first come, first served.
    Lane(usize),
    /// Behind its client's limit.
    Blocked,
}

/// Requests that may run as soon as a member has room, by their numbers.
///
/// A lane holds requests that the same members can serve, so that only its first one need be tried. Lanes take turns by
/// the weight of their work (stride scheduling): each one served moves its lane back by the inverse of its weight.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    pub(super) front: BTreeSet<u64>,
    lanes: [Lane; LANES],
    /// The turn that was served last. A lane that was empty begins there, and gains nothing by having been empty.
    served: u64,
}

#[derive(Debug, Default)]
struct Lane {
    requests: BTreeSet<u64>,
    turn: u64,
}

/// A lane for each kind of work and each [`Target`].
const LANES: usize = 3 * Work::ALL.len();
/// Divisible by every weight.
const STRIDE: u64 = 840;

impl Lanes {
    /// The lane of a request.
    pub(super) fn lane_of(offer: &Offer) -> Place {
        let target = match offer.target {
            Target::Any => 0,
            Target::Write => 1,
            Target::WriterAlone => 2,
        };
        Place::Lane(offer.lead.task.work.index() + target * Work::ALL.len())
    }

    pub(super) fn insert(&mut self, place: Place, id: u64) {
        match place {
            Place::Front => _ = self.front.insert(id),
            Place::Lane(index) => {
                let lane = &mut self.lanes[index];
                if lane.requests.is_empty() {
                    lane.turn = lane.turn.max(self.served);
                }
                lane.requests.insert(id);
            }
            Place::Blocked => {}
        }
    }

    pub(super) fn remove(&mut self, place: Place, id: u64) {
        match place {
            Place::Front => _ = self.front.remove(&id),
            Place::Lane(index) => _ = self.lanes[index].requests.remove(&id),
            Place::Blocked => {}
        }
    }

    /// The first request of each lane, in the order of their turns.
    pub(super) fn heads(&self) -> impl Iterator<Item = (Place, u64)> + use<> {
        let mut heads: Vec<_> = self
            .lanes
            .iter()
            .enumerate()
            .filter_map(|(index, lane)| Some((lane.turn, index, *lane.requests.first()?)))
            .collect();
        heads.sort_unstable();
        heads
            .into_iter()
            .map(|(_, index, id)| (Place::Lane(index), id))
    }

    /// Notes that the first request of a lane has left it to run.
    pub(super) fn served(&mut self, place: Place) {
        if let Place::Lane(index) = place {
            let weight = Work::ALL[index % Work::ALL.len()].queue_weight();
            let lane = &mut self.lanes[index];
            self.served = self.served.max(lane.turn);
            lane.turn += STRIDE / weight;
        }
    }
}
