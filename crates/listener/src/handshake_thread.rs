//! A thread that computes handshakes for a worker, in CPU time that no other thread needs.
//!
//! The system may suspend a thread of class `SCHED_IDLE` for seconds, at any instruction. The worker therefore never waits for
//! it: an atomic value shows which of the two threads owns the only job, and no lock of the exchange is ever contended.

use std::{
    io::{self, PipeReader, PipeWriter, Write},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    thread,
};

use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, thread_schedule_policy,
};
use tokio::net::unix::pipe;

/// A job for the thread.
pub(crate) type Job<T> = Box<dyn FnOnce() -> T + Send>;

/// A job that panicked. Only its own handshake fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the proxy failed while it computed the handshake, which is a fault of the proxy")]
pub(crate) struct Panicked;

/// Executes a job, here or on the thread.
pub(crate) fn execute<T>(job: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(job)).map_err(|_| Panicked)
}

/// The priority with which the threads of the process compute handshakes.
#[derive(Debug, Default)]
pub struct HandshakePriority {
    refused: OnceLock<String>,
}

impl HandshakePriority {
    /// Why the system refused the class `SCHED_IDLE`, if it did. The threads then compete with the workers for CPU time.
    pub fn refused(&self) -> Option<&str> {
        self.refused.get().map(String::as_str)
    }

    /// Gives the calling thread the class `SCHED_IDLE`. The first refusal is logged.
    fn lower(&self) {
        let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
        let this = thread_priority::unix::thread_native_id();
        let lowered =
            thread_priority::set_thread_priority_and_policy(this, ThreadPriority::Min, idle);
        // The resulting class decides, not the return value: the library also sets a nice value, which has no meaning in this
        // class.
        if thread_schedule_policy().is_ok_and(|class| class == idle) {
            return;
        }
        let why = match lowered {
            Err(thread_priority::Error::OS(errno)) => {
                io::Error::from_raw_os_error(errno).to_string()
            }
            other => format!("{other:?}"),
        };
        if self.refused.set(why.clone()).is_ok() {
            tracing::warn!(
                "the system refused the class SCHED_IDLE ({why}), so handshakes compete with requests for CPU time: allow \
                 the system call sched_setscheduler (SystemCallFilter=sched_setscheduler in the unit of systemd)"
            );
        }
    }
}

/// Which thread may access the job and its outcome.
mod stage {
    /// The worker.
    pub(super) const FREE: u8 = 0;
    /// The first of the two threads that takes the job.
    pub(super) const OFFERED: u8 = 1;
    /// The thread.
    pub(super) const TAKEN: u8 = 2;
    /// The worker.
    pub(super) const DONE: u8 = 3;
}

struct Exchange<T> {
    stage: AtomicU8,
    job: Mutex<Option<Job<T>>>,
    outcome: Mutex<Option<Result<T, Panicked>>>,
    closed: AtomicBool,
}

impl<T> Exchange<T> {
    /// Takes the job. The stage changes at the same instant, so only one of two callers gets the job.
    fn take_job(&self, next: u8) -> Option<Job<T>> {
        let (offered, order) = (stage::OFFERED, Ordering::Acquire);
        self.stage
            .compare_exchange(offered, next, order, Ordering::Relaxed)
            .ok()?;
        uncontended(&self.job).take()
    }

    /// Computes jobs until the exchange is closed. Each byte in `finished` wakes the worker.
    fn run(&self, mut finished: PipeWriter) {
        while !self.closed.load(Ordering::Acquire) {
            let Some(job) = self.take_job(stage::TAKEN) else {
                thread::park();
                continue;
            };
            *uncontended(&self.outcome) = Some(execute(job));
            self.stage.store(stage::DONE, Ordering::Release);
            // The write fails only if the worker has ended.
            let _ = finished.write_all(&[0]);
        }
    }
}

/// Locks a value without waiting: at each stage only one thread may access it. After a panic of another thread the value is
/// still valid.
fn uncontended<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread with at most one job, for one worker. The thread ends when this value is dropped.
pub(crate) struct HandshakeThread<T> {
    exchange: Arc<Exchange<T>>,
    thread: thread::Thread,
    /// The pipe that wakes the worker. `None` once the thread is connected.
    finished: Option<PipeReader>,
}

impl<T: Send + 'static> HandshakeThread<T> {
    /// Starts the thread. It has the number of its worker in its name.
    ///
    /// # Errors
    /// The system provides no thread or no descriptor.
    pub(crate) fn start(worker: usize, priority: &Arc<HandshakePriority>) -> io::Result<Self> {
        let priority = Arc::clone(priority);
        Self::start_with(worker, move |exchange, finish| {
            priority.lower();
            exchange.run(finish);
        })
    }

    fn start_with(
        worker: usize,
        run: impl FnOnce(&Exchange<T>, PipeWriter) + Send + 'static,
    ) -> io::Result<Self> {
        let (finished, finish) = io::pipe()?;
        let exchange = Arc::new(Exchange {
            stage: AtomicU8::new(stage::FREE),
            job: Mutex::default(),
            outcome: Mutex::default(),
            closed: AtomicBool::new(false),
        });
        let its = Arc::clone(&exchange);
        let thread = thread::Builder::new()
            .name(format!("handshake-{worker}"))
            .spawn(move || run(&its, finish))?;
        Ok(Self {
            exchange,
            thread: thread.thread().clone(),
            finished: Some(finished),
        })
    }

    /// Connects the thread to the event loop of its worker. Call this on that event loop.
    ///
    /// # Errors
    /// The event loop cannot register the pipe.
    pub(crate) fn connect(mut self) -> io::Result<ConnectedThread<T>> {
        let finished = self.finished.take().ok_or(io::ErrorKind::NotConnected)?;
        let finished = pipe::Receiver::from_owned_fd(finished.into())?;
        Ok(ConnectedThread {
            thread: self,
            finished,
        })
    }
}

impl<T> Drop for HandshakeThread<T> {
    fn drop(&mut self) {
        self.exchange.closed.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// A [`HandshakeThread`] that wakes its worker.
pub(crate) struct ConnectedThread<T> {
    thread: HandshakeThread<T>,
    finished: pipe::Receiver,
}

impl<T> ConnectedThread<T> {
    /// Offers a job. The thread must have none.
    pub(crate) fn offer(&self, job: Job<T>) {
        let exchange = &self.thread.exchange;
        *uncontended(&exchange.job) = Some(job);
        exchange.stage.store(stage::OFFERED, Ordering::Release);
        self.thread.thread.unpark();
    }

    /// Takes back a job that the thread has not begun.
    pub(crate) fn take_back(&self) -> Option<Job<T>> {
        self.thread.exchange.take_job(stage::FREE)
    }

    /// The outcome of the job, if the thread has finished it.
    pub(crate) fn outcome(&self) -> Option<Result<T, Panicked>> {
        let exchange = &self.thread.exchange;
        let (done, order) = (stage::DONE, Ordering::Acquire);
        exchange
            .stage
            .compare_exchange(done, stage::FREE, order, Ordering::Relaxed)
            .ok()?;
        uncontended(&exchange.outcome).take()
    }

    /// Waits until the thread has finished a job. The wait may end early.
    pub(crate) async fn finished(&self) {
        let is_open = self.finished.readable().await.is_ok();
        // If the pipe is closed, the thread has ended. The worker then computes every job that waits too long.
        if !is_open || matches!(self.finished.try_read(&mut [0; 8]), Ok(0)) {
            std::future::pending().await
        }
    }
}

#[cfg(test)]
impl<T: Send + 'static> HandshakeThread<T> {
    /// A thread of normal class, because a thread of class `SCHED_IDLE` could get no CPU time during the whole test.
    pub(crate) fn with_cpu_time() -> io::Result<Self> {
        Self::start_with(0, Exchange::run)
    }

    /// A thread that has ended.
    pub(crate) fn ended() -> io::Result<Self> {
        Self::start_with(0, |_, _| {})
    }

    /// A thread that never gets CPU time.
    pub(crate) fn without_cpu_time() -> io::Result<Self> {
        Self::start_with(0, |exchange, _finish| {
            while !exchange.closed.load(Ordering::Acquire) {
                thread::park();
            }
        })
    }
}

#[cfg(test)]
impl<T> ConnectedThread<T> {
    /// Whether the thread has begun its job and not finished it.
    pub(crate) fn is_computing(&self) -> bool {
        self.thread.exchange.stage.load(Ordering::Acquire) == stage::TAKEN
    }
}
