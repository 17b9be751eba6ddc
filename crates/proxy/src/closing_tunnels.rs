//! Tunnels that must close. The oldest close first, at a limited rate, so that their clients do not all reconnect at once.

use std::{
    collections::BTreeMap,
    future::pending,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use balancing::{Health, settings::CheckKind};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use crate::{
    pool_runtime::{PoolLease, PoolRuntime},
    settings::OnDown,
    worker::Worker,
};

/// Time for the tunnels of all threads to join the queue before the first one closes, so that the oldest tunnel is the first.
const GATHERING: Duration = Duration::from_millis(100);

/// No tunnel is closed in the last part of the time until the process cuts off connections. The part is one in this many.
const SPARE_PART: u32 = 4;

/// The time between the closing of two tunnels of a pool, by the current configuration. `cut_at`: when the process cuts off the
/// remaining connections, if it is draining.
pub(crate) fn closing_gap(
    worker: &Worker,
    pool: &PoolRuntime,
    cut_at: Option<Instant>,
) -> Duration {
    let current = worker.current();
    let rules = current
        .pool(pool.pool.name())
        .map_or(&pool.rules, |current| &current.rules);
    let gap = Duration::from_secs(1) / rules.tunnels.close_rate.max(1);
    let Some(cut_at) = cut_at else {
        return gap;
    };
    // All tunnels must have had their turn by then, because clients that are cut off reconnect at once.
    let left = cut_at.saturating_duration_since(Instant::now());
    let open = u32::try_from(pool.metrics.tunnels_open()).unwrap_or(u32::MAX);
    gap.min((left - left / SPARE_PART) / open.saturating_add(1))
}

/// Whether the member of a tunnel is down according to its check, and the current configuration closes the tunnels of such a
/// member.
pub(crate) fn is_cut(worker: &Worker, lease: &PoolLease) -> bool {
    let is_cut = |pool: &Arc<PoolRuntime>| {
        // Without probes, one refused connection takes a member down until a client happens to try it again.
        let is_probed = pool.pool.check().kind != CheckKind::None;
        is_probed && pool.rules.tunnels.on_down == OnDown::Cut
    };
    lease.member().health() == Health::Down
        && worker
            .current()
            .pool(lease.member().pool())
            .is_some_and(is_cut)
}

/// The queues by pool. Each entry is an open tunnel, so the limits on connections bound the size.
#[derive(Debug, Default)]
pub(crate) struct ClosingTunnels(Mutex<BTreeMap<Arc<str>, PoolTurns>>);

#[derive(Debug, Default)]
struct PoolTurns {
    /// The turn of the next tunnel that joins.
    next: Option<Instant>,
    /// The waiting tunnels by number. Numbers increase, so the first tunnel is the oldest.
    waiting: BTreeMap<u64, WaitingTunnel>,
}

#[derive(Debug)]
struct WaitingTunnel {
    turn: Instant,
    /// Notified when the tunnel must close.
    now: Arc<Notify>,
}

/// A tunnel that waits for its turn to close. Dropping this value removes the tunnel from the queue.
#[derive(Debug)]
pub(crate) struct ClosingTurn<'a> {
    all: &'a ClosingTunnels,
    pool: Arc<str>,
    number: u64,
    turn: Instant,
    now: Arc<Notify>,
}

impl ClosingTunnels {
    /// Adds a tunnel of a pool. `gap`: the time between the closing of two tunnels.
    pub(crate) fn join(&self, pool: &Arc<str>, number: u64, gap: Duration) -> ClosingTurn<'_> {
        let mut pools = self.lock();
        let departures = pools.entry(Arc::clone(pool)).or_default();
        let now = Instant::now();
        let first = now + GATHERING.max(gap);
        let turn = departures.next.map_or(first, |next| next.max(now));
        departures.next = Some(turn + gap);
        let notify = Arc::new(Notify::new());
        let departure = WaitingTunnel {
            turn,
            now: Arc::clone(&notify),
        };
        departures.waiting.insert(number, departure);
        ClosingTurn {
            all: self,
            pool: Arc::clone(pool),
            number,
            turn,
            now: notify,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, PoolTurns>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A tunnel's turn to close, while there is a reason to close it.
#[derive(Default)]
pub(crate) struct PendingTurn<'a>(Option<Pin<Box<dyn Future<Output = ()> + 'a>>>);

impl<'a> PendingTurn<'a> {
    /// Joins the queue of tunnels that must close, or leaves it because the reason no longer exists.
    pub(crate) fn update(&mut self, is_to_close: bool, join: impl FnOnce() -> ClosingTurn<'a>) {
        if !is_to_close {
            self.0 = None;
        } else if self.0.is_none() {
            self.0 = Some(Box::pin(join().wait()));
        }
    }

    /// Waits until the tunnel must close. Waits for ever while there is no reason to close it.
    pub(crate) async fn wait(&mut self) {
        match &mut self.0 {
            Some(turn) => turn.await,
            None => pending().await,
        }
    }
}

impl ClosingTurn<'_> {
    /// Waits until this tunnel must close.
    ///
    /// Tunnels join in any order. At its turn, each tunnel therefore gives the turn to the oldest waiting tunnel, and takes
    /// that tunnel's turn instead.
    pub(crate) async fn wait(mut self) {
        loop {
            tokio::select! {
                () = self.now.notified() => return,
                () = sleep_until(self.turn) => {
                    if self.is_oldest() {
                        return;
                    }
                }
            }
        }
    }

    /// Called when the turn of this tunnel comes. True: this tunnel must close. False: an older tunnel was notified instead.
    fn is_oldest(&mut self) -> bool {
        let mut pools = self.all.lock();
        let Some(departures) = pools.get_mut(&self.pool) else {
            return true;
        };
        // Another tunnel may have notified this one a moment ago.
        if !departures.waiting.contains_key(&self.number) {
            return true;
        }
        let Some((oldest, departure)) = departures.waiting.pop_first() else {
            return true;
        };
        if oldest == self.number {
            return true;
        }
        departure.now.notify_one();
        self.turn = departure.turn.max(self.turn);
        if let Some(own) = departures.waiting.get_mut(&self.number) {
            own.turn = self.turn;
        }
        false
    }
}

impl Drop for ClosingTurn<'_> {
    fn drop(&mut self) {
        let mut pools = self.all.lock();
        if let Some(departures) = pools.get_mut(&self.pool) {
            departures.waiting.remove(&self.number);
            if departures.waiting.is_empty() {
                pools.remove(&self.pool);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, pin::pin, rc::Rc};

    use tokio::task::{LocalSet, spawn_local, yield_now};

    use super::*;

    const GAP: Duration = Duration::from_millis(10);

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        LocalSet::new().block_on(&runtime, test);
    }

    #[test]
    fn the_oldest_tunnels_close_first_and_no_two_at_once() {
        run(async {
            let all: &'static ClosingTunnels = Box::leak(Box::default());
            let pool: Arc<str> = "pcp".into();
            let ended = Rc::new(RefCell::new(Vec::new()));
            let start = Instant::now();
            let joined = [3, 0, 4, 1, 2].map(|number| all.join(&pool, number, GAP));
            let tasks = joined.map(|leaving| {
                let (ended, number) = (Rc::clone(&ended), leaving.number);
                spawn_local(async move {
                    leaving.wait().await;
                    ended.borrow_mut().push((number, start.elapsed()));
                })
            });
            for task in tasks {
                task.await.expect("it ends");
            }
            let due = |turn: u64| GATHERING + GAP * turn as u32;
            let expected: Vec<_> = (0..5).map(|turn| (turn, due(turn))).collect();
            // The timer has a limited resolution.
            let ended = ended.borrow();
            for ((number, at), (turn, due)) in ended.iter().zip(&expected) {
                assert_eq!(number, turn, "{ended:?}");
                assert!(*at >= *due && *at <= *due + GAP / 2, "{ended:?}");
            }
            assert_eq!(ended.len(), 5);
            assert!(all.lock().is_empty());
        });
    }

    #[test]
    fn a_tunnel_that_closes_by_itself_leaves_its_turn_unused() {
        run(async {
            let all = ClosingTunnels::default();
            let pool: Arc<str> = "pcp".into();
            let [first, second] = [0, 1].map(|number| all.join(&pool, number, GAP));
            drop(first);
            let mut second = pin!(second.wait());
            let start = Instant::now();
            yield_now().await;
            second.as_mut().await;
            assert!(start.elapsed() >= GATHERING + GAP);
        });
    }
}
