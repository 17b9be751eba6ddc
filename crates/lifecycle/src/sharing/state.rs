//! What the process knows about its fleet: written by the task that shares records, read by all others.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::SystemTime,
};

use fleet::{HeardProxy, TurnRecord};
use fleet_store::{Revision, StoreError};
use tokio::sync::{Notify, watch};

use super::{
    turn::{TurnProgress, TurnRequests},
    view::{Refused, View},
};

/// Maximum number of ignored keys that are shown. All are counted.
const REFUSED_MAX: usize = 100;

/// What the tasks of the process share about the fleet.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    /// Notified when the entry of this proxy should be compared at once with its current state.
    pub(crate) entry_changed: Notify,
    is_successor: AtomicBool,
    /// Notified after each reload, because the configuration or a certificate may have changed.
    pub(super) reloaded: Notify,
    pub(crate) status: watch::Sender<SharingStatus>,
    /// The turn that an operator of this proxy has requested.
    pub(super) turn: TurnRequests,
}

/// What is known about the store.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharingStatus {
    /// When a list was first received.
    pub(crate) first_list: Option<SystemTime>,
    /// When the last watch ended, and why. `None` while a watch is open.
    pub(super) watch_failure: Option<(SystemTime, String)>,
    /// Since when writes fail, and why.
    pub(super) write_failure: Option<(SystemTime, String)>,
    /// Why the store accepts no change, although it can be reached.
    pub(crate) no_space: Option<String>,
    /// Keys of the store that are ignored.
    pub(crate) refused: Vec<Refused>,
    /// How many records were ignored since the start, by reason.
    pub(crate) rejected: BTreeMap<&'static str, u64>,
    /// The proxies that are registered.
    pub(crate) proxies: Vec<Arc<HeardProxy>>,
    /// The highest revision of a record that is applied.
    pub(crate) applied: Revision,
    /// The number of acts that were sent to the store, and the revision at which the store had them.
    pub(super) sent: (u64, Revision),
    /// The number of acts up to which sending failed at every endpoint, and why.
    pub(super) not_sent: (u64, String),
    /// After how many milliseconds all other proxies had applied the last act of this one.
    pub(super) apply_delay: Option<u64>,
    /// The turn, as the store has it.
    pub(super) turn: Option<TurnRecord>,
    /// The progress of this proxy's request for the turn.
    pub(super) turn_progress: TurnProgress,
}

impl SharingStatus {
    /// Since when there is no watch.
    pub(crate) fn unwatched_since(&self) -> Option<SystemTime> {
        self.watch_failure.as_ref().map(|(since, _)| *since)
    }

    /// Since when the store is not reached, and why.
    pub(crate) fn unreached(&self) -> Option<&(SystemTime, String)> {
        self.watch_failure.as_ref().or(self.write_failure.as_ref())
    }
}

impl Sharing {
    /// Notes that the configuration, a certificate or a CRL may have changed.
    pub(crate) fn reloaded(&self) {
        self.reloaded.notify_one();
        self.entry_changed.notify_one();
    }

    /// Notes that this process has taken over from another one and has its records.
    pub(crate) fn succeed(&self) {
        self.is_successor.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_successor(&self) -> bool {
        self.is_successor.load(Ordering::SeqCst)
    }

    pub(crate) fn status(&self) -> SharingStatus {
        self.status.borrow().clone()
    }

    /// Publishes the content of the store, all of which is applied.
    pub(super) fn publish(&self, view: &mut View) {
        let rejected = view.take_rejected();
        self.status.send_modify(|status| {
            for (reason, count) in rejected {
                *status.rejected.entry(reason).or_default() += count;
            }
            status.refused = view.refused().take(REFUSED_MAX).collect();
            status.proxies = view.proxies().cloned().collect();
            status.applied = view.records_at();
            status.turn = view.turn().cloned();
        });
    }

    pub(super) fn watch_failed(&self, why: &StoreError) {
        self.status
            .send_modify(|status| note(&mut status.watch_failure, why));
    }

    pub(super) fn write_failed(&self, why: &StoreError) {
        self.status.send_modify(|status| match why {
            StoreError::NoSpace { .. } => status.no_space = Some(why.to_string()),
            _ => note(&mut status.write_failure, why),
        });
    }

    /// Notes that these acts of operators were not sent. Acts that were made meanwhile are tried next.
    pub(super) fn not_sent(&self, acts: u64, why: &StoreError) {
        let failed = (acts, why.to_string());
        self.status.send_modify(|status| status.not_sent = failed);
    }

    pub(super) fn listed(&self) {
        self.status.send_modify(|status| {
            status.first_list.get_or_insert_with(SystemTime::now);
            status.watch_failure = None;
        });
    }

    /// Notes that the store has all records of this proxy.
    pub(super) fn sent(&self, acts: u64, revision: Revision) {
        self.status.send_modify(|status| {
            status.sent = (acts, revision);
        });
    }

    /// Notes that the store has accepted a change. An attempt without anything to send does not show that the store accepts
    /// changes.
    pub(super) fn written(&self) {
        self.status.send_if_modified(|status| {
            let had_failed = status.write_failure.take().is_some();
            status.no_space.take().is_some() || had_failed
        });
    }
}

fn note(failure: &mut Option<(SystemTime, String)>, why: &StoreError) {
    let why = why.to_string();
    match failure {
        Some((_, known)) => *known = why,
        None => {
            tracing::warn!("the fleet's store is not reached: {why}");
            *failure = Some((SystemTime::now(), why));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_to_write_lasts_until_a_change_is_accepted() {
        let sharing = Sharing::default();
        let endpoint = "etcd1:2379".to_owned();
        let denied = StoreError::Denied {
            endpoint: endpoint.clone(),
            text: "permission denied".to_owned(),
        };
        sharing.write_failed(&denied);
        sharing.write_failed(&StoreError::NoSpace { endpoint });
        let since = sharing.status().unreached().cloned();
        assert!(since.is_some());
        // There was nothing to send.
        sharing.sent(0, 7);
        assert_eq!(sharing.status().unreached().cloned(), since);
        assert!(sharing.status().no_space.is_some());
        sharing.written();
        assert_eq!(sharing.status().unreached(), None);
        assert_eq!(sharing.status().no_space, None);
    }
}
