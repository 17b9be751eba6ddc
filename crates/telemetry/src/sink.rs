//! Where access records go: a sheet of lines for each thread that sends, and one thread that writes them out.
//!
//! Who sends formats at once, while what the record points to is at hand: a line is a third of what it is made of, and
//! nothing is freed by another thread than made it. It never waits for the writer, which takes a whole sheet by
//! swapping it for an empty one, and it seldom wakes that thread: lines gather for a moment (`GATHER`) and are written
//! in one call. Lines of one thread keep their order; those of different threads may be interleaved by that moment.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;

use crate::daemon::{Daemon, Unsent};
use crate::line::{Form, Framing, LineWriter};
use crate::metrics::Metrics;
use crate::record::AccessRecord;
use crate::settings::{AccessLogSettings, Format};

/// The access log of a process: owns the thread that writes.
#[derive(Debug)]
pub struct Sink {
    handle: SinkHandle,
    ended: Receiver<()>,
}

/// A thread's way into a [`Sink`], with a sheet of its own.
#[derive(Debug)]
pub struct SinkHandle {
    sheet: Arc<Mutex<Sheet>>,
    shared: Arc<Shared>,
}

/// Where records go.
pub enum SinkOutput {
    /// Each as a line, many in one write.
    Lines(Box<dyn Write + Send>),
    /// Each as a datagram. One that a daemon does not take within moments is dropped and counted.
    Daemon(Daemon),
}

/// Records that still waited when a sink's time to close had run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{records} access records could not be written before the deadline")]
pub struct Unwritten {
    /// How many.
    pub records: usize,
}

/// Lines that wait to be written.
#[derive(Debug)]
struct Sheet {
    bytes: Vec<u8>,
    records: usize,
    lines: LineWriter,
    /// The writer has taken the last.
    closed: bool,
    /// How many outputs there were before the one that these lines are for.
    turn: u64,
}

#[derive(Debug)]
struct Sheets {
    all: Vec<Arc<Mutex<Sheet>>>,
    form: Form,
    closed: bool,
    turn: u64,
}

/// An output to go on with.
struct Replacement {
    output: SinkOutput,
    form: Form,
    /// What is still for the one before: its lines, and how many records they are.
    before: Vec<u8>,
    records: usize,
}

struct Shared {
    sheets: Mutex<Sheets>,
    /// Records on all sheets.
    waiting: AtomicUsize,
    /// How many may be.
    waiting_max: usize,
    /// As many as these are worth waking the thread for.
    wake_at: usize,
    /// The thread sleeps until a record comes.
    asleep: AtomicBool,
    closing: AtomicBool,
    /// Outputs to go on with, one after the other; at most [`REPLACEMENTS_MAX`].
    replacements: Mutex<VecDeque<Replacement>>,
    thread: OnceLock<Thread>,
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
        output: SinkOutput,
        metrics: &Metrics,
    ) -> io::Result<Self> {
        let waiting_max = settings.queue_max.max(1);
        let (end, ended) = sync_channel(1);
        let shared = Arc::new(Shared {
            sheets: Mutex::new(Sheets {
                all: Vec::new(),
                form: output.form(settings.format.clone()),
                closed: false,
                turn: 0,
            }),
            waiting: AtomicUsize::new(0),
            waiting_max,
            wake_at: waiting_max.div_ceil(2),
            asleep: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            replacements: Mutex::default(),
            thread: OnceLock::new(),
            dropped: metrics.access_records_dropped.clone(),
            errors: metrics.access_log_errors.clone(),
        });
        let mut scribe = Scribe {
            shared: Arc::clone(&shared),
            output,
            batch: Vec::new(),
            turn: 0,
            failing: None,
        };
        let thread = thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || {
                scribe.run();
                // Nobody waiting is as good as somebody told.
                let _ = end.try_send(());
            })?;
        // Nobody else sets it.
        let _ = shared.thread.set(thread.thread().clone());
        Ok(Self {
            handle: SinkHandle::new(shared),
            ended,
        })
    }

    /// A way in for one thread.
    pub fn handle(&self) -> SinkHandle {
        self.handle.another()
    }

    /// Goes on with another output and form: what was sent before goes to the old one, which is dropped after that, and what
    /// is sent from now on to the new.
    pub fn reopen(&self, output: SinkOutput, format: Format) {
        self.handle.shared.replace(output, format);
        self.handle.shared.wake();
    }

    /// Writes what waits and ends, within `deadline`. Records sent later are dropped and counted.
    ///
    /// # Errors
    /// Says how many records were left when time ran out; they are counted as dropped.
    pub fn close(self, deadline: Duration) -> Result<(), Unwritten> {
        let shared = &self.handle.shared;
        shared.closing.store(true, Ordering::SeqCst);
        shared.wake();
        match self.ended.recv_timeout(deadline) {
            Ok(()) | Err(RecvTimeoutError::Disconnected) => Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                let records = shared.waiting.load(Ordering::SeqCst);
                shared.dropped.inc_by(records as u64);
                Err(Unwritten { records })
            }
        }
    }
}

impl SinkHandle {
    fn new(shared: Arc<Shared>) -> Self {
        let mut sheets = lock(&shared.sheets);
        let sheet = Arc::new(Mutex::new(Sheet {
            bytes: Vec::new(),
            records: 0,
            lines: LineWriter::new(sheets.form.clone()),
            closed: sheets.closed,
            turn: sheets.turn,
        }));
        sheets.all.push(Arc::clone(&sheet));
        drop(sheets);
        Self { sheet, shared }
    }

    /// A way in for another thread.
    pub fn another(&self) -> Self {
        Self::new(Arc::clone(&self.shared))
    }

    /// Writes a record's line on the sheet; where too many wait it is dropped and counted. Never waits for the writer.
    pub fn send(&self, record: &AccessRecord) {
        let shared = &*self.shared;
        // Counted first, so that the thread never takes out more than was counted in.
        let waiting = shared.waiting.fetch_add(1, Ordering::SeqCst) + 1;
        let place = (waiting <= shared.waiting_max).then(|| self.note(record));
        let Some(Some(full)) = place else {
            shared.waiting.fetch_sub(1, Ordering::SeqCst);
            shared.dropped.inc();
            return;
        };
        let first =
            shared.asleep.load(Ordering::SeqCst) && shared.asleep.swap(false, Ordering::SeqCst);
        if first || full || waiting == shared.wake_at {
            shared.unpark();
        }
    }

    /// Says whether the sheet has just become full enough to be written; none: there is no room on it.
    fn note(&self, record: &AccessRecord) -> Option<bool> {
        let mut sheet = lock(&self.sheet);
        let sheet = &mut *sheet;
        let before = sheet.bytes.len();
        if sheet.closed || before >= SHEET_BYTES_MAX {
            return None;
        }
        sheet.lines.push(&mut sheet.bytes, record);
        sheet.records += 1;
        Some(before < BATCH_BYTES && sheet.bytes.len() >= BATCH_BYTES)
    }
}

impl Sheets {
    /// Takes all lines off the sheets, and their number; what comes now is for the output of this turn, in this form.
    fn take(&mut self, form: &Form) -> (Vec<u8>, usize) {
        self.form = form.clone();
        let (mut lines, mut records) = (Vec::new(), 0);
        for sheet in &self.all {
            let mut sheet = lock(sheet);
            lines.append(&mut sheet.bytes);
            records += std::mem::take(&mut sheet.records);
            sheet.lines = LineWriter::new(form.clone());
            sheet.turn = self.turn;
        }
        (lines, records)
    }
}

impl Shared {
    /// Whoever sends from now on writes for the new output, in its form, whenever the thread comes to it.
    fn replace(&self, output: SinkOutput, format: Format) {
        let form = output.form(format);
        let mut replacements = lock(&self.replacements);
        let mut sheets = lock(&self.sheets);
        let is_full = replacements.len() >= REPLACEMENTS_MAX;
        let last = replacements.back_mut().filter(|_| is_full);
        // The last has not had its turn yet, and now it never will. In the same form, its lines are the new one's.
        if let Some(last) = last
            && last.form == form
        {
            last.output = output;
            return;
        }
        sheets.turn += u64::from(!is_full);
        let (before, records) = sheets.take(&form);
        drop(sheets);
        let mut next = Replacement {
            output,
            form,
            before,
            records,
        };
        if is_full {
            self.pass_over(&mut replacements, &mut next);
        }
        replacements.push_back(next);
    }

    /// Takes the last output out of the queue. Its lines go to the one before it, or are dropped where that has another
    /// form: a line is what its reader expects, or it is not there.
    fn pass_over(&self, replacements: &mut VecDeque<Replacement>, next: &mut Replacement) {
        let Some(last) = replacements.pop_back() else {
            return;
        };
        let (lines, records) = (std::mem::take(&mut next.before), next.records);
        (next.before, next.records) = (last.before, last.records);
        if replacements.back().is_some_and(|one| one.form == last.form) {
            next.before.extend(lines);
            next.records += records;
        } else {
            self.waiting.fetch_sub(records, Ordering::SeqCst);
            self.dropped.inc_by(records as u64);
        }
    }

    fn wake(&self) {
        self.asleep.store(false, Ordering::SeqCst);
        self.unpark();
    }

    fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Whether there is more to do than to wait for company.
    fn is_hurried(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) >= self.wake_at
            || self.closing.load(Ordering::SeqCst)
            || !lock(&self.replacements).is_empty()
    }
}

/// The thread's side.
struct Scribe {
    shared: Arc<Shared>,
    output: SinkOutput,
    batch: Vec<u8>,
    /// How many outputs there were before this one.
    turn: u64,
    /// Since when writes fail, so that a full disk is told once and not for each batch.
    failing: Option<Instant>,
}

impl Scribe {
    fn run(&mut self) {
        loop {
            self.sleep();
            // Lets records come together, unless there are many already or somebody waits for an answer.
            if !self.shared.is_hurried() {
                thread::park_timeout(GATHER);
            }
            self.replace_output();
            let closing = self.shared.closing.load(Ordering::SeqCst);
            if self.empty_sheets(closing) && closing {
                return;
            }
        }
    }

    /// Until there is something to do.
    fn sleep(&self) {
        let idle = || self.shared.waiting.load(Ordering::SeqCst) == 0 && !self.shared.is_hurried();
        while idle() {
            self.shared.asleep.store(true, Ordering::SeqCst);
            // Looked at again: what came before the flag stood has woken nobody.
            if idle() {
                thread::park();
            }
            self.shared.asleep.store(false, Ordering::SeqCst);
        }
    }

    /// Writes what stands on all sheets; when closing, nothing is taken down after that. Says whether that was all: lines
    /// for the next output wait until it is there.
    fn empty_sheets(&mut self, closing: bool) -> bool {
        let shared = Arc::clone(&self.shared);
        let mut sheets = lock(&shared.sheets);
        sheets.closed |= closing;
        let all = sheets.all.clone();
        // Nobody writes any more on a sheet that only we hold, here and in the list; its last lines are taken below, unless
        // they are for the next output.
        sheets
            .all
            .retain(|sheet| Arc::strong_count(sheet) > 2 || lock(sheet).turn != self.turn);
        drop(sheets);
        let mut is_all = true;
        for sheet in all {
            {
                let mut sheet = lock(&sheet);
                if sheet.turn != self.turn {
                    is_all = false;
                    continue;
                }
                std::mem::swap(&mut sheet.bytes, &mut self.batch);
                sheet.closed |= closing;
                self.taken(std::mem::take(&mut sheet.records));
            }
            self.write_batch();
        }
        is_all
    }

    /// Goes on with the outputs that were asked for, each once what is for the one before is written.
    fn replace_output(&mut self) {
        let shared = Arc::clone(&self.shared);
        let next = || lock(&shared.replacements).pop_front();
        while let Some(mut replacement) = next() {
            self.batch.append(&mut replacement.before);
            self.taken(replacement.records);
            self.write_batch();
            self.output = replacement.output;
            self.turn += 1;
            self.failing = None;
        }
    }

    fn taken(&self, records: usize) {
        self.shared.waiting.fetch_sub(records, Ordering::SeqCst);
    }

    /// Writes the batch and leaves it empty, to be some sheet's next.
    fn write_batch(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let written = match &mut self.output {
            SinkOutput::Lines(writer) => {
                writer.write_all(&self.batch).and_then(|()| writer.flush())
            }
            SinkOutput::Daemon(daemon) => daemon.send_batch(&self.batch).map_err(|unsent| {
                let Unsent { records, error } = unsent;
                self.shared.dropped.inc_by(records);
                error
            }),
        };
        self.batch.clear();
        self.batch.shrink_to(KEPT_BYTES_MAX);
        match written {
            Ok(()) => {
                self.failing
                    .take_if(|since| since.elapsed() >= TELL_INTERVAL);
            }
            Err(error) => {
                self.shared.errors.inc();
                if self.failing.is_none() {
                    self.failing = Some(Instant::now());
                    tracing::error!(%error, "access records could not be written");
                }
            }
        }
    }
}

impl SinkOutput {
    fn form(&self, format: Format) -> Form {
        let framing = match self {
            Self::Lines(_) => Framing::Line,
            Self::Daemon(daemon) => daemon.framing(),
        };
        Form { format, framing }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("waiting", &self.waiting)
            .field("closing", &self.closing)
            .finish_non_exhaustive()
    }
}

/// A panic under one of these locks leaves at worst half a line behind.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Outputs that may wait for their turn while the one in use takes nothing.
const REPLACEMENTS_MAX: usize = 16;

/// How long records may wait for company. Waking a thread for each costs the request path more than all else here.
const GATHER: Duration = Duration::from_millis(50);

/// A sheet that has grown to this is worth waking the thread for: more would only leave the processor's cache.
const BATCH_BYTES: usize = 64 << 10;

/// Most bytes on one sheet; more are dropped like records over the limit.
const SHEET_BYTES_MAX: usize = 16 << 20;

/// What fails now and then is told at most this often; the counters have the rest.
const TELL_INTERVAL: Duration = Duration::from_secs(60);

/// Most room that is kept between batches.
const KEPT_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests;
