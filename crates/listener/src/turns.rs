//! The turns in which a thread computes handshakes.
//!
//! A handshake computes for about a millisecond, thirty times as long as a request. A thread that computed all that are
//! ready, one after the other, would delay the requests of its connections, and the handshakes of other addresses.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
    future::poll_fn,
    net::IpAddr,
    pin::Pin,
    rc::{Rc, Weak},
    task::Poll,
};

use balancing::counted_as;
use tokio::task::yield_now;

/// How many handshakes of a listener a thread computes before its other tasks continue.
const COMPUTED_AT_ONCE_MAX: u32 = 16;

/// The turns of one thread and listener. Addresses take turns.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    queue: RefCell<Queue>,
    round: Cell<u64>,
}

#[derive(Debug, Default)]
struct Queue {
    /// How many turns of this round are taken.
    taken: u32,
    /// The addresses with waiting handshakes, in the order of their next turns.
    order: VecDeque<IpAddr>,
    /// The handshakes of each of them, first come first. The value becomes `true` with their turn.
    waiting: HashMap<IpAddr, VecDeque<Weak<Cell<bool>>>>,
}

impl Turns {
    /// Returns when a handshake of this address may compute. It then computes at once, without another wait.
    pub(crate) async fn take(&self, client: IpAddr) {
        let Some(turn) = self.queue.borrow_mut().request(counted_as(client)) else {
            return;
        };
        while !turn.get() {
            let round = self.round.get();
            // All tasks that are ready run before this one continues.
            yield_now().await;
            if self.round.get() == round {
                self.round.set(round + 1);
                self.queue.borrow_mut().start_round();
            }
        }
    }
}

impl Turns {
    /// Continues a handshake that was polled and waits for its client. What the client sends is computed in a turn of
    /// its address, because the proof of its key and its certificates are verified then.
    pub(crate) async fn resume<F: Future>(
        &self,
        client: IpAddr,
        mut handshake: Pin<&mut F>,
    ) -> F::Output {
        loop {
            woken().await;
            self.take(client).await;
            if let Poll::Ready(done) = poll_once(handshake.as_mut()).await {
                return done;
            }
        }
    }
}

/// Polls a future once.
pub(crate) async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

/// Ends when the task is woken, by what it waited for before.
async fn woken() {
    let mut is_woken = false;
    poll_fn(|_| match std::mem::replace(&mut is_woken, true) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

impl Queue {
    /// Takes a turn of this round. If none is left, returns the turn to wait for.
    fn request(&mut self, address: IpAddr) -> Option<Rc<Cell<bool>>> {
        if self.taken < COMPUTED_AT_ONCE_MAX && self.order.is_empty() {
            self.taken += 1;
            return None;
        }
        let turn = Rc::default();
        let waiting = self.waiting.entry(address).or_default();
        if waiting.is_empty() {
            self.order.push_back(address);
        }
        waiting.push_back(Rc::downgrade(&turn));
        Some(turn)
    }

    fn start_round(&mut self) {
        self.taken = 0;
        while self.taken < COMPUTED_AT_ONCE_MAX
            && let Some(turn) = self.next()
        {
            // A handshake that ended while it waited gets no turn.
            if let Some(turn) = turn.upgrade() {
                turn.set(true);
                self.taken += 1;
            }
        }
    }

    fn next(&mut self) -> Option<Weak<Cell<bool>>> {
        let address = self.order.pop_front()?;
        let waiting = self.waiting.get_mut(&address)?;
        let turn = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&address);
        } else {
            self.order.push_back(address);
        }
        turn
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::{
        sync::Semaphore,
        task::{LocalSet, spawn_local},
    };

    use super::*;

    const MAX: usize = COMPUTED_AT_ONCE_MAX as usize;

    /// Runs tasks that are all ready, each with a handshake of an address or without one. Returns the order in which
    /// they computed.
    fn order_of(tasks: Vec<Option<[u8; 4]>>) -> Vec<usize> {
        let order = Rc::new(RefCell::new(Vec::new()));
        let turns = Rc::new(Turns::default());
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        LocalSet::new().block_on(&runtime.expect("a runtime"), async {
            let tasks = tasks.into_iter().enumerate().map(|(number, client)| {
                let (turns, order) = (Rc::clone(&turns), Rc::clone(&order));
                spawn_local(async move {
                    if let Some(client) = client {
                        turns.take(client.into()).await;
                    }
                    order.borrow_mut().push(number);
                })
            });
            for task in tasks.collect::<Vec<_>>() {
                task.await.expect("it does not panic");
            }
        });
        let queue = turns.queue.borrow();
        assert!(queue.order.is_empty() && queue.waiting.is_empty());
        order.take()
    }

    #[test]
    fn other_tasks_and_other_addresses_do_not_wait_for_all_handshakes_of_one_address() {
        let flood = vec![Some([192, 0, 2, 1]); 400];
        let rest = [None, Some([192, 0, 2, 2])];
        let order = order_of(flood.into_iter().chain(rest).collect());
        let position = |task| order.iter().position(|of| *of == task);
        assert_eq!(order.len(), 402);
        // The request runs after the first turns, and the handshake of the other address in one of the next rounds.
        assert_eq!(position(400), Some(MAX), "{order:?}");
        assert!(position(401) < Some(4 * MAX), "{order:?}");
    }

    #[test]
    fn other_tasks_do_not_wait_for_the_second_flights_of_many_handshakes() {
        let order = Rc::new(RefCell::new(Vec::new()));
        let turns = Rc::new(Turns::default());
        let (answers, begun) = (Rc::new(Semaphore::new(0)), Rc::new(Cell::new(0)));
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        LocalSet::new().block_on(&runtime.expect("a runtime"), async {
            let handshakes = (0..400).map(|number| {
                let (turns, order) = (Rc::clone(&turns), Rc::clone(&order));
                let (answers, begun) = (Rc::clone(&answers), Rc::clone(&begun));
                spawn_local(async move {
                    let client = [192, 0, 2, 1].into();
                    let mut handshake = pin!(async {
                        _ = answers.acquire().await;
                        order.borrow_mut().push(number);
                    });
                    turns.take(client).await;
                    assert!(poll_once(handshake.as_mut()).await.is_pending());
                    begun.set(begun.get() + 1);
                    turns.resume(client, handshake).await;
                })
            });
            let mut tasks: Vec<_> = handshakes.collect();
            while begun.get() < 400 {
                yield_now().await;
            }
            answers.add_permits(400);
            let after = Rc::clone(&order);
            tasks.push(spawn_local(async move { after.borrow_mut().push(400) }));
            for task in tasks {
                task.await.expect("it does not panic");
            }
        });
        let order = order.take();
        assert_eq!(order.len(), 401);
        let position = order.iter().position(|of| *of == 400);
        assert!(position <= Some(2 * MAX), "{position:?}");
    }

    #[test]
    fn a_handshake_that_ends_while_it_waits_takes_no_turn() {
        let mut queue = Queue {
            taken: COMPUTED_AT_ONCE_MAX,
            ..Queue::default()
        };
        let [ended, waits] = [1, 2].map(|host| queue.request([192, 0, 2, host].into()));
        drop(ended);
        queue.start_round();
        assert!(waits.expect("no turn was left").get());
        assert_eq!(queue.taken, 1);
    }

    #[test]
    fn addresses_take_turns() {
        let mut queue = Queue {
            taken: COMPUTED_AT_ONCE_MAX,
            ..Queue::default()
        };
        let mut request = |host| queue.request([192, 0, 2, host].into()).expect("no turn");
        let flood: Vec<_> = (0..2 * MAX).map(|_| request(1)).collect();
        let others: Vec<_> = (2..6).map(request).collect();
        queue.start_round();
        assert!(others.iter().all(|turn| turn.get()));
        let served = flood.iter().take_while(|turn| turn.get()).count();
        assert_eq!(served, MAX - others.len());
        assert_eq!(flood.iter().filter(|turn| turn.get()).count(), served);
    }
}
