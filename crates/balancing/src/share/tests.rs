//! Shares by table, and what waits behind them.

use std::{
    pin::{Pin, pin},
    sync::atomic::AtomicUsize,
    task::{Context, Wake},
};

use super::*;

/// Counts how often it was called.
#[derive(Default)]
struct Calls(AtomicUsize);

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn agent(name: &str) -> ClientKey {
    ClientKey::new(Some(&name.into()), [192, 0, 2, 1].into())
}

fn holding(holdings: &Arc<Holdings>, name: &str) -> Arc<Holding> {
    holdings.of(&"compilers".into(), agent(name))
}

#[test]
fn a_share_is_rounded_down_and_at_least_one() {
    for (percent, connections, expected) in [
        (25, 128, 32),
        (25, 512, 128),
        (25, 7, 1),
        (25, 3, 1),
        (25, 0, 1),
        (1, 128, 1),
        (100, 128, 128),
        (400, 128, 128),
        (100, u32::MAX, u32::MAX),
    ] {
        assert_eq!(
            ClientShare { percent }.of(connections),
            expected,
            "{percent} % of {connections}"
        );
    }
    assert_eq!(ClientShare::default().of(128), 32);
}

#[test]
fn agents_behind_one_address_are_told_apart_and_addresses_of_one_network_are_not() {
    let address = |text: &str| ClientKey::new(None, text.parse().expect("an address"));
    assert_ne!(agent("web01"), agent("web02"));
    assert_ne!(agent("web01"), address("192.0.2.1"));
    assert_eq!(address("::ffff:192.0.2.1"), address("192.0.2.1"));
    assert_eq!(address("2001:db8::1"), address("2001:db8::ffff"));
    assert_ne!(address("2001:db8::1"), address("2001:db8:0:1::1"));
}

#[test]
fn a_client_holds_its_share_and_no_more_and_others_have_theirs() {
    let holdings = Arc::default();
    let web01 = holding(&holdings, "web01");
    let held: Vec<_> = (0..3).map_while(|_| web01.try_take(2)).collect();
    assert_eq!(held.len(), 2);
    assert!(holding(&holdings, "web01").try_take(2).is_none());
    assert!(holding(&holdings, "web02").try_take(2).is_some());
    assert!(
        holdings
            .of(&"ca".into(), agent("web01"))
            .try_take(2)
            .is_some()
    );
    drop(held);
    assert_eq!(web01.held(), 0);
}

#[test]
fn entries_go_with_the_last_connection_of_their_client() {
    let holdings = Arc::default();
    let connections = [holding(&holdings, "web01"), holding(&holdings, "web01")];
    assert_eq!(holdings.len(), 1);
    let held = connections[0].try_take(1);
    drop(connections);
    assert_eq!(holdings.len(), 1, "a request still runs");
    drop(held);
    assert!(holdings.is_empty());
}

#[test]
fn a_request_beyond_the_share_waits_for_the_clients_own() {
    let holdings = Arc::default();
    let web01 = holding(&holdings, "web01");
    let held = web01.try_take(1).expect("an empty share");
    let calls = [Arc::new(Calls::default()), Arc::new(Calls::default())];
    let wakers = calls.clone().map(Waker::from);
    let mut contexts = wakers.each_ref().map(Context::from_waker);
    let mut second = pin!(web01.take(|| 1));
    assert!(second.as_mut().poll(&mut contexts[1]).is_pending());
    {
        let mut first = Box::pin(web01.take(|| 1));
        assert!(first.as_mut().poll(&mut contexts[0]).is_pending());
    }
    let woken = || calls.each_ref().map(|calls| calls.0.load(Ordering::SeqCst));
    let before = woken();
    drop(held);
    assert!(woken()[1] > before[1], "the one that gave up is not called");
    assert_eq!(woken()[0], before[0]);
    let Poll::Ready(held) = second.as_mut().poll(&mut contexts[1]) else {
        panic!("what was given back is there");
    };
    assert_eq!(web01.held(), 1);
    drop(held);
}

#[test]
fn the_oldest_waiting_request_is_called_first_and_calls_the_next() {
    let holdings = Arc::default();
    let web01 = holding(&holdings, "web01");
    let held = web01.try_take(1).expect("an empty share");
    let calls = [Arc::new(Calls::default()), Arc::new(Calls::default())];
    let wakers = calls.clone().map(Waker::from);
    let mut contexts = wakers.each_ref().map(Context::from_waker);
    let mut waiting = [(); 2].map(|()| Box::pin(web01.take(|| 1)));
    for (future, context) in waiting.iter_mut().zip(&mut contexts) {
        assert!(future.as_mut().poll(context).is_pending());
    }
    let woken = || calls.each_ref().map(|calls| calls.0.load(Ordering::SeqCst));
    drop(held);
    assert_eq!(woken(), [1, 0]);
    let [first, second] = &mut waiting;
    let Poll::Ready(held) = first.as_mut().poll(&mut contexts[0]) else {
        panic!("what was given back is there");
    };
    let before = woken()[1];
    drop(held);
    assert!(woken()[1] > before);
    assert!(second.as_mut().poll(&mut contexts[1]).is_ready());
}

/// Requests of one client that wait.
struct Herd<'a> {
    waiting: Vec<Option<Pin<Box<dyn Future<Output = Held> + 'a>>>>,
    calls: Vec<Arc<Calls>>,
}

impl<'a> Herd<'a> {
    fn of(holding: &'a Arc<Holding>, size: usize, attempts: &'a AtomicUsize) -> Self {
        let take = || {
            holding.take(|| {
                attempts.fetch_add(1, Ordering::SeqCst);
                1
            })
        };
        let mut herd = Self {
            waiting: (0..size).map(|_| Some(Box::pin(take()) as _)).collect(),
            calls: (0..size).map(|_| Arc::default()).collect(),
        };
        let queued = (0..size).filter_map(|index| herd.poll(index)).count();
        assert_eq!(queued, 0, "the share is taken");
        herd
    }

    fn poll(&mut self, index: usize) -> Option<Held> {
        let waker = Waker::from(Arc::clone(&self.calls[index]));
        let waiting = self.waiting[index].as_mut()?;
        match waiting.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(held) => {
                self.waiting[index] = None;
                Some(held)
            }
            Poll::Pending => None,
        }
    }

    /// Polls those that were woken, until none is; what they took.
    fn poll_woken(&mut self) -> Vec<Held> {
        let mut taken = Vec::new();
        loop {
            let woken = |calls: &Arc<Calls>| calls.0.swap(0, Ordering::SeqCst) > 0;
            let woken: Vec<_> = self.calls.iter().map(woken).collect();
            if !woken.contains(&true) {
                return taken;
            }
            let woken = woken.iter().enumerate().filter(|(_, woken)| **woken);
            taken.extend(woken.filter_map(|(index, _)| self.poll(index)));
        }
    }
}

#[test]
fn one_given_back_is_tried_for_by_two_of_many_waiting_requests() {
    const WAITING: usize = 500;
    let holdings = Arc::default();
    let (web01, web02) = (holding(&holdings, "web01"), holding(&holdings, "web02"));
    let mut held: Vec<_> = web01.try_take(1).into_iter().collect();
    let _other_held = web02.try_take(1);
    let (attempts, other_attempts) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let mut herd = Herd::of(&web01, WAITING, &attempts);
    let mut other = Herd::of(&web02, WAITING, &other_attempts);
    let each = [&attempts, &other_attempts].map(|attempts| attempts.swap(0, Ordering::SeqCst));
    assert_eq!(each, [WAITING; 2]);
    for left in (0..WAITING).rev() {
        held.clear();
        held = herd.poll_woken();
        assert_eq!(held.len(), 1);
        // The oldest takes it and lets the next one try.
        let tried = attempts.swap(0, Ordering::SeqCst);
        assert_eq!(tried, if left > 0 { 2 } else { 1 }, "{left} wait");
    }
    assert!(other.poll_woken().is_empty());
    assert_eq!(other_attempts.load(Ordering::SeqCst), 0);
}

#[test]
fn threads_never_hold_more_than_the_share_together() {
    let holdings = Arc::default();
    let web01 = holding(&holdings, "web01");
    let most = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    if let Some(_held) = web01.try_take(3) {
                        most.fetch_max(web01.held(), Ordering::SeqCst);
                    }
                }
            });
        }
    });
    assert!(most.load(Ordering::SeqCst) <= 3);
    assert_eq!(web01.held(), 0);
}
