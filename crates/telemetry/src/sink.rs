//! Where access records go: a bounded queue, and a thread that formats and writes them.
//!
//! The request path only puts a box into the queue. It neither formats nor waits, and it seldom wakes the thread: that
//! gathers what comes for a moment (`GATHER`) and writes it in one call.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;

use crate::line::LineWriter;
use crate::metrics::Metrics;
use crate::record::AccessRecord;
use crate::settings::{AccessLogSettings, Format};

/// The access log of a process: owns the thread that writes.
#[derive(Debug)]
pub struct Sink {
    handle: SinkHandle,
    ended: Receiver<()>,
}

/// A worker's way into a [`Sink`].
#[derive(Clone, Debug)]
pub struct SinkHandle {
    sender: SyncSender<Message>,
    shared: Arc<Shared>,
}

/// Records that were still queued when a sink's time to close had run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{records} access records could not be written before the deadline")]
pub struct Unwritten {
    /// How many.
    pub records: usize,
}

enum Message {
    Record(Box<AccessRecord>),
    /// Look at what else is asked: the queue's next message may be long in coming.
    Wake,
}

struct Shared {
    /// Records in the queue.
    queued: AtomicUsize,
    /// As many as these are worth waking the thread for.
    wake_at: usize,
    closing: AtomicBool,
    /// A writer and form to go on with.
    replacement: Mutex<Option<(Box<dyn Write + Send>, Format)>>,
    thread: Mutex<Option<Thread>>,
    dropped: Counter,
    errors: Counter,
}

impl Sink {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(
        settings: &AccessLogSettings,
        writer: Box<dyn Write + Send>,
        metrics: &Metrics,
    ) -> io::Result<Self> {
        let queue_max = settings.queue_max.max(1);
        let (sender, receiver) = sync_channel(queue_max);
        let (end, ended) = sync_channel(1);
        let shared = Arc::new(Shared {
            queued: AtomicUsize::new(0),
            wake_at: queue_max.div_ceil(2),
            closing: AtomicBool::new(false),
            replacement: Mutex::new(None),
            thread: Mutex::new(None),
            dropped: metrics.access_records_dropped.clone(),
            errors: metrics.access_log_errors.clone(),
        });
        let mut scribe = Scribe {
            receiver,
            shared: Arc::clone(&shared),
            writer,
            lines: LineWriter::new(settings.format),
            batch: Vec::new(),
            failing: false,
        };
        let thread = thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || {
                scribe.run();
                // Nobody waiting is as good as somebody told.
                let _ = end.try_send(());
            })?;
        *lock(&shared.thread) = Some(thread.thread().clone());
        Ok(Self {
            handle: SinkHandle { sender, shared },
            ended,
        })
    }

    /// A way in for a worker.
    pub fn handle(&self) -> SinkHandle {
        self.handle.clone()
    }

    /// Goes on with another writer and form. Each record goes whole to the old or to the new one; what was sent long before
    /// goes to the old, and after that the old is dropped.
    pub fn reopen(&self, writer: Box<dyn Write + Send>, format: Format) {
        *lock(&self.handle.shared.replacement) = Some((writer, format));
        self.handle.wake();
    }

    /// Writes what is queued and ends, within `deadline`. Records sent later are dropped and counted.
    ///
    /// # Errors
    /// Says how many records were left when time ran out; they are counted as dropped.
    pub fn close(self, deadline: Duration) -> Result<(), Unwritten> {
        self.handle.shared.closing.store(true, Ordering::Release);
        self.handle.wake();
        match self.ended.recv_timeout(deadline) {
            Ok(()) | Err(RecvTimeoutError::Disconnected) => Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                let records = self.handle.shared.queued.load(Ordering::Acquire);
                self.handle.shared.dropped.inc_by(records as u64);
                Err(Unwritten { records })
            }
        }
    }
}

impl SinkHandle {
    /// Queues a record; where the queue is full it is dropped and counted. Never blocks.
    pub fn send(&self, record: Box<AccessRecord>) {
        // Counted first, so that the thread never takes out more than was counted in.
        let queued = self.shared.queued.fetch_add(1, Ordering::AcqRel) + 1;
        if self.sender.try_send(Message::Record(record)).is_err() {
            self.shared.queued.fetch_sub(1, Ordering::AcqRel);
            self.shared.dropped.inc();
            return;
        }
        if queued == self.shared.wake_at {
            self.shared.unpark();
        }
    }

    fn wake(&self) {
        match self.sender.try_send(Message::Wake) {
            // A full queue keeps the thread awake, and one that is gone has nothing to do.
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.shared.unpark()
            }
        }
    }
}

impl Shared {
    fn unpark(&self) {
        if let Some(thread) = lock(&self.thread).as_ref() {
            thread.unpark();
        }
    }
}

/// The thread's side.
struct Scribe {
    receiver: Receiver<Message>,
    shared: Arc<Shared>,
    writer: Box<dyn Write + Send>,
    lines: LineWriter,
    batch: Vec<u8>,
    /// Whether the last write failed, so that a full disk is told once and not for each batch.
    failing: bool,
}

impl Scribe {
    fn run(&mut self) {
        while let Ok(message) = self.receiver.recv() {
            self.take(message);
            self.gather();
            let open = self.drain();
            self.write_batch();
            self.replace_writer();
            if !open || self.shared.closing.load(Ordering::Acquire) {
                break;
            }
        }
        self.drain();
        self.write_batch();
    }

    /// Lets records come together, unless there are many already or somebody waits for an answer.
    fn gather(&self) {
        let hurried = self.shared.queued.load(Ordering::Acquire) >= self.shared.wake_at
            || self.shared.closing.load(Ordering::Acquire)
            || lock(&self.shared.replacement).is_some();
        if !hurried {
            thread::park_timeout(GATHER);
        }
    }

    /// Takes all that is queued; says whether more can come.
    fn drain(&mut self) -> bool {
        loop {
            match self.receiver.try_recv() {
                Ok(message) => self.take(message),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
            if self.batch.len() >= BATCH_BYTES {
                self.write_batch();
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Record(record) => {
                self.shared.queued.fetch_sub(1, Ordering::AcqRel);
                self.lines.push(&mut self.batch, &record);
            }
            Message::Wake => {}
        }
    }

    fn write_batch(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let written = self
            .writer
            .write_all(&self.batch)
            .and_then(|()| self.writer.flush());
        self.batch.clear();
        match written {
            Ok(()) => self.failing = false,
            Err(error) => {
                self.shared.errors.inc();
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::error!(%error, "access records could not be written");
                }
            }
        }
    }

    fn replace_writer(&mut self) {
        let Some((writer, format)) = lock(&self.shared.replacement).take() else {
            return;
        };
        self.writer = writer;
        self.lines = LineWriter::new(format);
        self.failing = false;
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("queued", &self.queued)
            .field("closing", &self.closing)
            .finish_non_exhaustive()
    }
}

/// Every change under these locks is one store, whole after any panic.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long records may wait for company. Waking a thread for each costs the request path more than all else here.
const GATHER: Duration = Duration::from_millis(50);

/// Written at once when a batch has grown to this.
const BATCH_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests;
