//! Computes the handshakes of one worker without delaying its requests.
//!
//! A handshake with an RSA key of 4,096 bits takes two milliseconds of CPU time, sixty times as long as a request. Its jobs go
//! to a thread of class `SCHED_IDLE`, which delays no other thread. On a machine without idle CPU time the system suspends such
//! a thread. The worker therefore computes a job itself when the job has waited too long, one in each turn of its event loop.

use std::{
    cell::{Cell, RefCell},
    future::pending,
    net::IpAddr,
    rc::Rc,
    time::Duration,
};

use tokio::{
    sync::{Notify, oneshot},
    task::yield_now,
    time::{Instant, sleep_until},
};

use crate::{
    fair_queue::FairQueue,
    handshake_thread::{ConnectedThread, HandshakeThread, Job, Panicked, execute},
};

/// How long a job waits for the thread before the worker computes it.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long the thread gets no job after it got no CPU time.
const STARVED_FOR: Duration = Duration::from_secs(1);

/// How long a worker believes no hint after a false one. False hints therefore cost it at most one signature in that time.
const DISBELIEF: Duration = Duration::from_secs(1);

/// Maximum number of cheap jobs that a worker computes before its other tasks continue.
const CHEAP_AT_ONCE_MAX: u32 = 16;

/// A waiting job, and the channel for its outcome.
struct Entry<T> {
    job: Job<T>,
    reply: oneshot::Sender<Result<T, Panicked>>,
}

struct Given<T> {
    since: Instant,
    reply: oneshot::Sender<Result<T, Panicked>>,
}

/// Computes the jobs of one worker. `T` is the outcome of a job.
pub(crate) struct Executor<T> {
    queue: RefCell<FairQueue<Entry<T>>>,
    /// Cheap jobs that wait for a turn of the worker.
    cheap: RefCell<FairQueue<Entry<T>>>,
    /// How many cheap jobs the worker has computed since its other tasks had their turn.
    cheap_computed: Cell<u32>,
    thread: Option<ConnectedThread<T>>,
    given: RefCell<Option<Given<T>>>,
    /// Until when the thread gets no job, after it got no CPU time. From then on the thread gets one job at a time, and the
    /// worker computes all other jobs at once. `None` again when the thread has finished a job in time.
    starved_until: Cell<Option<Instant>>,
    /// Until when the worker believes no hint.
    disbelief_until: Cell<Option<Instant>>,
    changed: Notify,
}

impl<T: Send + 'static> Executor<T> {
    /// An executor with a thread. Without a thread, or if the event loop cannot register it, the worker computes all jobs in
    /// turns.
    pub(crate) fn new(thread: Option<HandshakeThread<T>>) -> Rc<Self> {
        let connected = thread.map(HandshakeThread::connect).transpose();
        let thread = connected.unwrap_or_else(|error| {
            tracing::warn!(%error, "a worker computes its handshakes itself");
            None
        });
        Rc::new(Self {
            queue: RefCell::default(),
            cheap: RefCell::default(),
            cheap_computed: Cell::default(),
            thread,
            given: RefCell::default(),
            starved_until: Cell::default(),
            disbelief_until: Cell::default(),
            changed: Notify::new(),
        })
    }

    /// Returns the outcome of a job for this client. If the caller stops waiting, the job is not computed.
    pub(crate) async fn compute(
        &self,
        client: IpAddr,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Panicked> {
        self.wait_in(&self.queue, client, job).await
    }

    /// Returns the outcome of a job that costs less than handing it to the thread. The worker computes it at once. If it has
    /// computed many jobs in this turn, the job waits, and addresses take turns.
    pub(crate) async fn compute_cheap(
        &self,
        client: IpAddr,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Panicked> {
        if self.may_compute_at_once() {
            execute(job)
        } else {
            self.wait_in(&self.cheap, client, job).await
        }
    }

    async fn wait_in(
        &self,
        queue: &RefCell<FairQueue<Entry<T>>>,
        client: IpAddr,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Panicked> {
        let (reply, outcome) = oneshot::channel();
        let entry = Entry {
            job: Box::new(job),
            reply,
        };
        let number = queue.borrow_mut().push(client, Instant::now(), entry);
        let _queued = Queued { queue, number };
        self.give_next(Instant::now());
        self.changed.notify_one();
        outcome.await.unwrap_or(Err(Panicked))
    }

    /// Returns the outcome of a job that costs little compared with a signature. While the thread is not trusted, the job
    /// counts as cheap, because in the other queue it would take the turn of a signature.
    pub(crate) async fn compute_light(
        &self,
        client: IpAddr,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Panicked> {
        if self.is_thread_trusted() {
            self.compute(client, job).await
        } else {
            self.compute_cheap(client, job).await
        }
    }

    /// Returns the outcome of a job that is cheap according to a hint in the ClientHello. If the worker believes the hint, it
    /// computes the job at once. If the hint was false, the worker believes no hint for a while.
    pub(crate) async fn compute_hinted(
        &self,
        client: IpAddr,
        job: impl FnOnce() -> T + Send + 'static,
        was_cheap: impl FnOnce(&T) -> bool,
    ) -> Result<T, Panicked> {
        let disbelief_until = self.disbelief_until.get();
        let is_disbelieved = disbelief_until.is_some_and(|until| Instant::now() < until);
        // Such a job does not join the queue for cheap jobs, because all hints could be false.
        if is_disbelieved || !self.may_compute_at_once() {
            return self.compute(client, job).await;
        }
        let outcome = execute(job);
        let was_true = outcome.as_ref().is_ok_and(was_cheap);
        let until = Instant::now() + DISBELIEF;
        self.disbelief_until.set((!was_true).then_some(until));
        outcome
    }

    /// Distributes the jobs until the worker ends.
    pub(crate) async fn run(&self) {
        loop {
            let now = Instant::now();
            self.deliver(now);
            let is_rescued = self.rescue(now);
            self.give_next(now);
            let is_signed = is_rescued || self.compute_late(now);
            if self.compute_cheap_waiting() || is_signed {
                // All tasks that are ready run before the next job.
                yield_now().await;
                continue;
            }
            let check = self.next_check(now);
            tokio::select! {
                biased;
                () = self.thread_finished() => {}
                () = self.changed.notified() => {}
                () = until(check) => {}
            }
        }
    }

    fn deliver(&self, now: Instant) {
        let outcome = self.thread.as_ref().and_then(ConnectedThread::outcome);
        if let Some(outcome) = outcome
            && let Some(given) = self.given.take()
        {
            if now < given.since + PATIENCE {
                self.starved_until.set(None);
            }
            // The handshake may have ended meanwhile.
            let _ = given.reply.send(outcome);
        }
    }

    /// Notices that the thread gets no CPU time. Computes the job here if the thread has not begun it, and then returns `true`.
    fn rescue(&self, now: Instant) -> bool {
        let is_late = |given: &Given<T>| given.since + PATIENCE <= now;
        if !self.given.borrow().as_ref().is_some_and(is_late) || self.is_starved(now) {
            return false;
        }
        self.starved_until.set(Some(now + STARVED_FOR));
        let thread = self.thread.as_ref();
        let Some(job) = thread.and_then(ConnectedThread::take_back) else {
            return false;
        };
        let given = self.given.take();
        given.is_some_and(|given| answer(given.reply, job))
    }

    fn give_next(&self, now: Instant) {
        let Some(thread) = &self.thread else { return };
        if self.given.borrow().is_some() || self.is_starved(now) {
            return;
        }
        if let Some(Entry { job, reply }) = self.queue.borrow_mut().next() {
            *self.given.borrow_mut() = Some(Given { since: now, reply });
            thread.offer(job);
        }
    }

    /// Computes one job if one has waited too long.
    fn compute_late(&self, now: Instant) -> bool {
        if self.due(now).is_none_or(|due| due > now) {
            return false;
        }
        let next = self.queue.borrow_mut().next();
        next.is_some_and(|Entry { job, reply }| answer(reply, job))
    }

    /// Computes waiting cheap jobs. Returns whether there were any.
    fn compute_cheap_waiting(&self) -> bool {
        let mut computed = 0;
        while computed < CHEAP_AT_ONCE_MAX {
            let next = self.cheap.borrow_mut().next();
            let Some(Entry { job, reply }) = next else {
                break;
            };
            computed += u32::from(answer(reply, job));
        }
        self.cheap_computed.set(computed);
        computed > 0
    }

    /// Whether the worker may compute another cheap job before its other tasks continue. If so, the job is counted.
    fn may_compute_at_once(&self) -> bool {
        let computed = self.cheap_computed.get();
        let may = computed < CHEAP_AT_ONCE_MAX && self.cheap.borrow().oldest().is_none();
        if may {
            self.cheap_computed.set(computed + 1);
            // The next turn begins when all tasks that are ready have run.
            self.changed.notify_one();
        }
        may
    }

    /// When the worker must compute a waiting job itself.
    fn due(&self, now: Instant) -> Option<Instant> {
        let oldest = self.queue.borrow().oldest()?;
        Some(if self.is_thread_trusted() {
            oldest + PATIENCE
        } else {
            now
        })
    }

    /// Whether there is a thread, and it got CPU time for its last job.
    fn is_thread_trusted(&self) -> bool {
        self.thread.is_some() && self.starved_until.get().is_none()
    }

    fn is_starved(&self, now: Instant) -> bool {
        self.starved_until.get().is_some_and(|until| now < until)
    }

    /// When to look again without being notified.
    fn next_check(&self, now: Instant) -> Option<Instant> {
        let starved_until = self.starved_until.get().filter(|until| now < *until);
        let given = self.given.borrow();
        let of_thread = given.as_ref().map(|given| given.since + PATIENCE);
        let of_thread = of_thread.map(|late| starved_until.map_or(late, |until| until.max(late)));
        of_thread.into_iter().chain(self.due(now)).min()
    }

    async fn thread_finished(&self) {
        match &self.thread {
            Some(thread) => thread.finished().await,
            None => pending().await,
        }
    }
}

/// Computes a job here, unless its handshake has ended.
fn answer<T>(reply: oneshot::Sender<Result<T, Panicked>>, job: Job<T>) -> bool {
    let is_awaited = !reply.is_closed();
    if is_awaited {
        let _ = reply.send(execute(job));
    }
    is_awaited
}

async fn until(check: Option<Instant>) {
    match check {
        Some(check) => sleep_until(check).await,
        None => pending().await,
    }
}

/// Removes a job from the queue when its handshake has ended.
struct Queued<'a, T> {
    queue: &'a RefCell<FairQueue<Entry<T>>>,
    number: u64,
}

impl<T> Drop for Queued<'_, T> {
    fn drop(&mut self) {
        self.queue.borrow_mut().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, pin::pin, sync::mpsc, task::Poll, thread};

    use tokio::{
        runtime,
        task::{JoinHandle, LocalSet, spawn_local},
        time::timeout,
    };

    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    const MILLISECOND: Duration = Duration::from_millis(1);

    type TestExecutor = Executor<thread::ThreadId>;

    /// Runs a test on a worker. Its time passes only while it has nothing to do.
    fn on_worker<F: Future<Output = ()>>(
        thread: Option<HandshakeThread<thread::ThreadId>>,
        test: impl FnOnce(Rc<TestExecutor>) -> F,
    ) {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build();
        LocalSet::new().block_on(&runtime.expect("a runtime"), async {
            let executor = Executor::new(thread);
            let running = Rc::clone(&executor);
            spawn_local(async move { running.run().await });
            test(executor).await;
        });
    }

    fn a_thread() -> Option<HandshakeThread<thread::ThreadId>> {
        Some(HandshakeThread::with_cpu_time().expect("a thread"))
    }

    fn here() -> thread::ThreadId {
        thread::current().id()
    }

    /// Keeps the thread in a job until the sender is dropped.
    async fn keep_busy(
        executor: &Rc<TestExecutor>,
    ) -> (
        mpsc::SyncSender<()>,
        JoinHandle<Result<thread::ThreadId, Panicked>>,
    ) {
        let (end, ended) = mpsc::sync_channel::<()>(0);
        let busy = Rc::clone(executor);
        let job = move || {
            let _ = ended.recv();
            here()
        };
        let mut computing = Box::pin(async move { busy.compute(CLIENT, job).await });
        // Polled once here, so that the thread has the job. The event loop does not run meanwhile, so no time passes.
        let begun = poll_fn(|cx| Poll::Ready(computing.as_mut().poll(cx).is_pending()));
        assert!(begun.await);
        let computing = spawn_local(computing);
        let limit = std::time::Instant::now() + Duration::from_secs(60);
        while !executor
            .thread
            .as_ref()
            .is_some_and(ConnectedThread::is_computing)
        {
            assert!(std::time::Instant::now() < limit, "the thread has no job");
            thread::yield_now();
        }
        (end, computing)
    }

    #[test]
    fn the_thread_computes_what_the_worker_need_not() {
        on_worker(a_thread(), |executor| async move {
            let (end, computing) = keep_busy(&executor).await;
            drop(end);
            assert_ne!(computing.await.expect("no panic"), Ok(here()));
        });
    }

    #[test]
    fn a_light_job_goes_to_a_thread_that_is_trusted() {
        on_worker(a_thread(), |executor| async move {
            let (end, busy) = keep_busy(&executor).await;
            let light = executor.compute_light(CLIENT, here);
            assert!(timeout(PATIENCE / 2, light).await.is_err());
            drop(end);
            assert_ne!(busy.await.expect("no panic"), Ok(here()));
        });
    }

    #[test]
    fn after_a_false_hint_the_worker_believes_none_for_a_while() {
        on_worker(None, |executor| async move {
            // Whether the worker computes the job at once instead of queueing it.
            let is_at_once = async |is_cheap| {
                let mut computing = pin!(executor.compute_hinted(CLIENT, here, |_| is_cheap));
                let first = poll_fn(|cx| Poll::Ready(computing.as_mut().poll(cx))).await;
                if first.is_pending() {
                    assert!(computing.await.is_ok());
                }
                first.is_ready()
            };
            for _ in 0..3 {
                assert!(is_at_once(true).await);
            }
            for _ in 0..3 {
                let begun = Instant::now();
                assert!(is_at_once(false).await);
                // Further false hints do not prolong the time.
                for passed in [Duration::ZERO, DISBELIEF / 2, DISBELIEF - MILLISECOND] {
                    sleep_until(begun + passed).await;
                    assert!(!is_at_once(true).await);
                    assert!(!is_at_once(false).await);
                }
                sleep_until(begun + DISBELIEF).await;
            }
            assert!(is_at_once(true).await);
            // A job that panics does not prove that its hint was true.
            let panics = || panic!("a fault of the proxy (part of the test)");
            let outcome = executor.compute_hinted(CLIENT, panics, |_| true).await;
            assert_eq!(outcome, Err(Panicked));
            assert!(!is_at_once(true).await);
        });
    }

    #[test]
    fn a_panic_costs_its_own_handshake_and_nothing_else() {
        for thread in [a_thread(), None] {
            on_worker(thread, |executor| async move {
                let panics = || panic!("a fault of the proxy (part of the test)");
                assert_eq!(executor.compute(CLIENT, panics).await, Err(Panicked));
                assert!(executor.compute(CLIENT, here).await.is_ok());
            });
        }
    }

    #[test]
    fn the_worker_computes_what_waits_behind_a_thread_that_stands_still() {
        on_worker(a_thread(), |executor| async move {
            let (end, busy) = keep_busy(&executor).await;
            let begun = Instant::now();
            assert_eq!(executor.compute(CLIENT, here).await, Ok(here()));
            assert!(begun.elapsed() >= PATIENCE);
            // From now on jobs do not wait, and never run on the thread.
            let begun = Instant::now();
            assert_eq!(executor.compute(CLIENT, here).await, Ok(here()));
            assert_eq!(begun.elapsed(), Duration::ZERO);
            // The thread continues, and gets jobs again after a while.
            drop(end);
            assert_ne!(busy.await.expect("no panic"), Ok(here()));
            sleep_until(Instant::now() + STARVED_FOR).await;
            keep_busy(&executor).await;
        });
    }

    #[test]
    fn only_the_job_that_a_starved_thread_is_offered_waits_for_it() {
        let starved = HandshakeThread::without_cpu_time().expect("a pipe");
        on_worker(Some(starved), |executor| async move {
            let compute = || {
                let executor = Rc::clone(&executor);
                spawn_local(async move {
                    let begun = Instant::now();
                    assert_eq!(executor.compute(CLIENT, here).await, Ok(here()));
                    begun.elapsed()
                })
            };
            let is_light_at_once = async || {
                let mut computing = pin!(executor.compute_light(CLIENT, here));
                let first = poll_fn(|cx| Poll::Ready(computing.as_mut().poll(cx))).await;
                first.is_ready()
            };
            assert!(!is_light_at_once().await);
            for _ in 0..3 {
                let offered = compute();
                sleep_until(Instant::now() + PATIENCE / 2).await;
                // Other jobs wait with the first one only until it is known that the thread gets no CPU time.
                let is_known = executor.starved_until.get().is_some();
                let waited = compute().await.expect("no panic");
                assert_eq!(
                    waited,
                    if is_known {
                        Duration::ZERO
                    } else {
                        PATIENCE / 2
                    }
                );
                let waited = offered.await.expect("no panic");
                assert!(
                    PATIENCE <= waited && waited <= PATIENCE + MILLISECOND,
                    "{waited:?}"
                );
                for _ in 0..3 {
                    assert_eq!(compute().await.expect("no panic"), Duration::ZERO);
                    assert!(is_light_at_once().await);
                }
                sleep_until(Instant::now() + STARVED_FOR).await;
            }
        });
    }

    #[test]
    fn a_thread_that_finishes_a_job_in_time_is_trusted_again() {
        on_worker(a_thread(), |executor| async move {
            let (end, busy) = keep_busy(&executor).await;
            assert_eq!(executor.compute(CLIENT, here).await, Ok(here()));
            sleep_until(Instant::now() + STARVED_FOR).await;
            // The thread finishes the job too late, so it stays on probation.
            drop(end);
            assert_ne!(busy.await.expect("no panic"), Ok(here()));
            assert!(executor.starved_until.get().is_some());
            sleep_until(Instant::now() + 2 * STARVED_FOR).await;
            let (end, busy) = keep_busy(&executor).await;
            assert!(executor.starved_until.get().is_some());
            drop(end);
            // No time passes while this thread waits.
            let limit = std::time::Instant::now() + Duration::from_secs(60);
            while executor
                .thread
                .as_ref()
                .is_some_and(ConnectedThread::is_computing)
            {
                assert!(std::time::Instant::now() < limit, "the thread ends no job");
                thread::yield_now();
            }
            executor.deliver(Instant::now());
            assert_eq!(executor.starved_until.get(), None);
            assert_ne!(busy.await.expect("no panic"), Ok(here()));
            // Other tasks wait for the thread again.
            let (_end, _busy) = keep_busy(&executor).await;
            let begun = Instant::now();
            assert_eq!(executor.compute(CLIENT, here).await, Ok(here()));
            assert!(begun.elapsed() >= PATIENCE);
        });
    }

    #[test]
    fn a_job_that_the_thread_has_not_begun_is_taken_back() {
        let starved = HandshakeThread::without_cpu_time().expect("a pipe");
        on_worker(Some(starved), |executor| async move {
            assert_eq!(executor.compute(CLIENT, here).await, Ok(here()));
        });
    }

    #[test]
    fn a_worker_whose_thread_has_ended_goes_on() {
        let ended = HandshakeThread::ended().expect("a pipe");
        on_worker(Some(ended), |executor| async move {
            for _ in 0..3 {
                assert_eq!(executor.compute(CLIENT, here).await, Ok(here()));
            }
        });
    }

    /// 400 jobs of one address, one job of another address, and a task without a job wait at the same time. Returns the
    /// position at which the other address is served, and the position of the task.
    async fn served_behind_400<F>(compute: impl Fn(IpAddr) -> F) -> (usize, usize)
    where
        F: Future<Output = Result<thread::ThreadId, Panicked>> + 'static,
    {
        let order = Rc::new(RefCell::new(Vec::new()));
        let job = |client: [u8; 4], number: usize| {
            let (computing, order) = (compute(client.into()), Rc::clone(&order));
            spawn_local(async move {
                assert_eq!(computing.await, Ok(here()));
                order.borrow_mut().push(number);
            })
        };
        let mut tasks: Vec<_> = (0..400).map(|number| job([192, 0, 2, 1], number)).collect();
        tasks.push(job([192, 0, 2, 2], 400));
        let after = Rc::clone(&order);
        tasks.push(spawn_local(async move { after.borrow_mut().push(401) }));
        for task in tasks {
            task.await.expect("no panic");
        }
        let order = order.take();
        assert_eq!(order.len(), 402);
        let position = |task| order.iter().position(|of| *of == task).expect("it ran");
        (position(400), position(401))
    }

    #[test]
    fn many_handshakes_of_one_address_delay_neither_another_address_nor_other_tasks() {
        on_worker(None, |executor| async move {
            let (address, task) = served_behind_400(move |client| {
                let executor = Rc::clone(&executor);
                async move { executor.compute(client, here).await }
            })
            .await;
            assert!(task <= 1 && address <= 3, "{address} {task}");
        });
    }

    /// Clients can hold back the last messages of thousands of handshakes, and send them at once.
    #[test]
    fn many_cheap_jobs_of_one_address_delay_neither_another_address_nor_other_tasks() {
        on_worker(None, |executor| async move {
            let (address, task) = served_behind_400(move |client| {
                let executor = Rc::clone(&executor);
                async move { executor.compute_light(client, here).await }
            })
            .await;
            let once = CHEAP_AT_ONCE_MAX as usize;
            assert!(task <= once && address <= 2 * once, "{address} {task}");
        });
    }

    #[test]
    fn a_handshake_that_ends_while_it_waits_is_not_computed() {
        on_worker(a_thread(), |executor| async move {
            let (_end, _busy) = keep_busy(&executor).await;
            let waits = executor.compute(CLIENT, || panic!("it is computed"));
            let ended = timeout(PATIENCE / 2, waits).await;
            assert!(ended.is_err(), "{ended:?}");
            assert_eq!(executor.queue.borrow().oldest(), None);
        });
    }
}
