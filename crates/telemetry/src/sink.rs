//! The destination of access records: a sheet of lines for each sending thread, and one thread that writes them.
//!
//! The sending thread formats a record at once, while its data is in the processor's cache. The line is only a third of the
//! size of the record, and each thread frees the memory that it allocated. The sender never waits for the writer, because the
//! writer takes a whole sheet by swapping it for an empty one. The sender rarely wakes the writer: lines gather for a moment
//! (`GATHER`), and one call writes them all. Lines from one thread keep their order; lines from different threads may be
//! interleaved within that moment.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant, SystemTime};

use prometheus_client::metrics::counter::Counter;

use crate::alarms::{Alarm, Alarms};
use crate::daemon::{Daemon, Unsent};
use crate::line::{Form, Framing, LineWriter};
use crate::metrics::Metrics;
use crate::record::AccessRecord;
use crate::settings::{AccessLogSettings, Format};

/// The access log of a process. It owns the writing thread.
#[derive(Debug)]
pub struct Sink {
    handle: SinkHandle,
    ended: Receiver<()>,
}

/// A thread's handle for a [`Sink`], with a sheet of its own.
#[derive(Debug)]
pub struct SinkHandle {
    sheet: Arc<Mutex<Sheet>>,
    shared: Arc<Shared>,
}

/// The destination of records.
pub enum SinkOutput {
    /// Each record as a line, many lines in one write. The name, such as the path of a file, appears in messages.
    Lines(String, Box<dyn Write + Send>),
    /// Each record as a datagram. A datagram that a daemon does not accept within moments is dropped and counted.
    Daemon(Daemon),
}

/// Records that were still waiting at the deadline when the sink closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{records} access records could not be written before the deadline")]
pub struct Unwritten {
    /// The number of records.
    pub records: usize,
}

#[derive(Debug)]
struct Sheet {
    bytes: Vec<u8>,
    records: usize,
    /// How many further records fit. `waiting` counts them already.
    room: usize,
    lines: LineWriter,
    /// Whether the writer has taken the last lines.
    closed: bool,
    /// The number of the output that these lines are for.
    turn: u64,
}

#[derive(Debug)]
struct Sheets {
    all: Vec<Arc<Mutex<Sheet>>>,
    form: Form,
    closed: bool,
    turn: u64,
}

struct Replacement {
    output: SinkOutput,
    form: Form,
    /// The lines for the previous output, and the number of their records.
    before: Vec<u8>,
    records: usize,
}

struct Shared {
    sheets: Mutex<Sheets>,
    /// Number of waiting records, plus the room that sheets have for more.
    waiting: AtomicUsize,
    waiting_max: usize,
    /// For how many records a sheet gets room at a time, so that threads rarely write to the shared counter.
    room: usize,
    /// The number of waiting records at which the thread is woken.
    wake_at: usize,
    /// Whether the thread sleeps until a record arrives.
    asleep: AtomicBool,
    closing: AtomicBool,
    /// Outputs to switch to, in order; at most [`REPLACEMENTS_MAX`].
    replacements: Mutex<VecDeque<Replacement>>,
    thread: OnceLock<Thread>,
    dropped: Counter,
    errors: Counter,
    alarms: Arc<Alarms>,
    overflow: Mutex<Overflow>,
}

/// The alarm about records that are dropped because too many wait. It is raised and cleared under the lock around this value,
/// so that it is active exactly while `last` is set.
struct Overflow {
    output: String,
    /// When a record was last dropped. Set while the alarm is active.
    last: Option<Instant>,
}

impl Sink {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system cannot start a thread.
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
            room: (waiting_max / 1024).clamp(1, 16),
            wake_at: waiting_max.div_ceil(2),
            asleep: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            replacements: Mutex::default(),
            thread: OnceLock::new(),
            dropped: metrics.access_records_dropped.clone(),
            errors: metrics.access_log_errors.clone(),
            alarms: Arc::clone(&metrics.alarms),
            overflow: Mutex::new(Overflow {
                output: output.name(),
                last: None,
            }),
        });
        let mut scribe = Scribe {
            shared: Arc::clone(&shared),
            output,
            batch: Vec::new(),
            turn: 0,
            is_torn: false,
            failed: None,
        };
        let thread = thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || {
                scribe.run();
                // Without a receiver, there is nothing to notify.
                let _ = end.try_send(());
            })?;
        // Only this function sets it.
        let _ = shared.thread.set(thread.thread().clone());
        Ok(Self {
            handle: SinkHandle::new(shared),
            ended,
        })
    }

    /// A handle for one thread.
    pub fn handle(&self) -> SinkHandle {
        self.handle.another()
    }

    /// Switches to another output and form. Records sent before the call go to the old output, which is then dropped. Records
    /// sent after it go to the new output.
    pub fn reopen(&self, output: SinkOutput, format: Format) {
        self.handle.shared.replace(output, format);
        self.handle.shared.wake();
    }

    /// Writes the waiting records and stops, within `deadline`. Later records are dropped and counted.
    ///
    /// # Errors
    /// The deadline passed; the error says how many records were left, and they are counted as dropped.
    pub fn close(self, deadline: Duration) -> Result<(), Unwritten> {
        let shared = &self.handle.shared;
        shared.closing.store(true, Ordering::SeqCst);
        shared.wake();
        match self.ended.recv_timeout(deadline) {
            Ok(()) | Err(RecvTimeoutError::Disconnected) => Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                let records = shared.count();
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
            room: 0,
            lines: LineWriter::new(sheets.form.clone()),
            closed: sheets.closed,
            turn: sheets.turn,
        }));
        sheets.all.push(Arc::clone(&sheet));
        drop(sheets);
        Self { sheet, shared }
    }

    /// A handle for another thread.
    pub fn another(&self) -> Self {
        Self::new(Arc::clone(&self.shared))
    }

    /// Writes a record's line on the sheet. If too many records wait, it drops the record and counts it. It never waits for the
    /// writer.
    pub fn send(&self, record: &AccessRecord) {
        match self.note(record) {
            Some(false) => {}
            Some(true) => self.shared.unpark(),
            None => {
                self.shared.dropped.inc();
                self.shared.overflow();
            }
        }
    }

    /// Adds the record to the sheet. Returns whether the writer must be woken; `None` if there is no room.
    fn note(&self, record: &AccessRecord) -> Option<bool> {
        let mut sheet = lock(&self.sheet);
        let sheet = &mut *sheet;
        let before = sheet.bytes.len();
        if sheet.closed || before >= SHEET_BYTES_MAX {
            return None;
        }
        let mut wakes = false;
        if sheet.room == 0 {
            (sheet.room, wakes) = self.shared.make_room()?;
        }
        sheet.lines.push(&mut sheet.bytes, record);
        sheet.records += 1;
        sheet.room -= 1;
        Some(wakes || (before < BATCH_BYTES && sheet.bytes.len() >= BATCH_BYTES))
    }
}

impl Sheet {
    /// Resets the number of records and returns it, and gives back the unused room.
    fn take_records(&mut self, shared: &Shared) -> usize {
        shared.taken(std::mem::take(&mut self.room));
        std::mem::take(&mut self.records)
    }
}

impl Sheets {
    /// Takes all lines off the sheets, and returns them with the number of records. Later lines are for the output of the
    /// current turn, in this form.
    fn take(&mut self, form: &Form, shared: &Shared) -> (Vec<u8>, usize) {
        self.form = form.clone();
        let (mut lines, mut records) = (Vec::new(), 0);
        for sheet in &self.all {
            let mut sheet = lock(sheet);
            lines.append(&mut sheet.bytes);
            records += sheet.take_records(shared);
            sheet.lines = LineWriter::new(form.clone());
            sheet.turn = self.turn;
        }
        (lines, records)
    }
}

impl Shared {
    /// Makes senders write for the new output, in its form, from now on. The writer may switch to it later.
    fn replace(&self, output: SinkOutput, format: Format) {
        let form = output.form(format);
        let mut replacements = lock(&self.replacements);
        let mut sheets = lock(&self.sheets);
        let is_full = replacements.len() >= REPLACEMENTS_MAX;
        let last = replacements.back_mut().filter(|_| is_full);
        // The queue is full, so the writer will never switch to the last queued output. If both have the same form, the new
        // output gets the lines of that one.
        if let Some(last) = last
            && last.form == form
        {
            last.output = output;
            return;
        }
        sheets.turn += u64::from(!is_full);
        let (before, records) = sheets.take(&form, self);
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

    /// Removes the last output from the queue. Its lines go to the output before it, or are dropped if that output has another
    /// form, because a reader must not get lines in two forms.
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
            self.taken(records);
            self.dropped.inc_by(records as u64);
        }
    }

    /// Gives a sheet room for more records. Returns the number of records, and whether the writer must be woken; `None` if too
    /// many records wait.
    fn make_room(&self) -> Option<(usize, bool)> {
        // Counted first, so that the writer never takes more records than were counted.
        let before = self.waiting.fetch_add(self.room, Ordering::SeqCst);
        let room = self.room.min(self.waiting_max.saturating_sub(before));
        if room < self.room {
            self.taken(self.room - room);
        }
        if room == 0 {
            return None;
        }
        let first = self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst);
        let is_half = before < self.wake_at && before + room >= self.wake_at;
        Some((room, first || is_half))
    }

    fn taken(&self, records: usize) {
        self.waiting.fetch_sub(records, Ordering::SeqCst);
    }

    fn count(&self) -> usize {
        let replacements = lock(&self.replacements);
        let sheets = lock(&self.sheets);
        let before = replacements.iter().map(|one| one.records);
        let later = sheets.all.iter().map(|sheet| lock(sheet).records);
        before.chain(later).sum()
    }

    /// Raises the alarm that records are dropped. The writer cannot raise it, because the writer may be blocked in a write.
    fn overflow(&self) {
        if self.closing.load(Ordering::SeqCst) {
            return;
        }
        let mut overflow = lock(&self.overflow);
        if overflow.last.replace(Instant::now()).is_none() {
            let message = format!(
                "access records are dropped, because {} does not take them as fast as they come; \
                 proscenium_access_records_dropped_total counts them: see whether the reader of the pipe, the log daemon or \
                 the file system hangs",
                overflow.output
            );
            self.alarms.raise(
                Alarm::AccessLog,
                &overflow.about(),
                message,
                SystemTime::now(),
            );
        }
    }

    /// Clears the alarm about dropped records if none was dropped for a while.
    fn end_overflow(&self) {
        let mut overflow = lock(&self.overflow);
        if overflow.last.is_some_and(|at| at.elapsed() >= CLEAR_AFTER) {
            overflow.last = None;
            self.alarms.clear(Alarm::AccessLog, &overflow.about());
        }
    }

    /// Switches to the name of the new output. The alarm about records that were dropped for the old output is cleared.
    fn rename_overflow(&self, output: String) {
        let mut overflow = lock(&self.overflow);
        if overflow.last.take().is_some() {
            self.alarms.clear(Alarm::AccessLog, &overflow.about());
        }
        overflow.output = output;
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

    /// Whether there is work other than waiting for more records.
    fn is_hurried(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) >= self.wake_at
            || self.closing.load(Ordering::SeqCst)
            || !lock(&self.replacements).is_empty()
    }
}

struct Scribe {
    shared: Arc<Shared>,
    output: SinkOutput,
    batch: Vec<u8>,
    /// The number of the output that is written now.
    turn: u64,
    /// Whether the last write ended within a line, because a disk became full.
    is_torn: bool,
    /// When a write last failed. Set while the alarm is active.
    failed: Option<Instant>,
}

impl Scribe {
    fn run(&mut self) {
        loop {
            self.sleep();
            // Lets records gather, unless there are many already or a caller waits for the result.
            if !self.shared.is_hurried() {
                thread::park_timeout(GATHER);
            }
            self.replace_output();
            let closing = self.shared.closing.load(Ordering::SeqCst);
            if self.empty_sheets(closing) && closing {
                self.clear_alarm();
                return;
            }
        }
    }

    fn sleep(&self) {
        let idle = || self.shared.waiting.load(Ordering::SeqCst) == 0 && !self.shared.is_hurried();
        while idle() {
            self.shared.asleep.store(true, Ordering::SeqCst);
            // Checked again, because a record that arrived before the flag was set has not woken the thread.
            if idle() {
                thread::park();
            }
            self.shared.asleep.store(false, Ordering::SeqCst);
        }
    }

    /// Writes the lines of all sheets for the current output. With `closing`, the sheets accept no later lines. Returns whether
    /// no sheet is left out: a sheet with lines for the next output waits for that output.
    fn empty_sheets(&mut self, closing: bool) -> bool {
        let shared = Arc::clone(&self.shared);
        let mut sheets = lock(&shared.sheets);
        sheets.closed |= closing;
        let all = sheets.all.clone();
        // If only this thread holds a sheet, here and in the list, no sender can write on it any more. The sheet's last lines
        // are taken below, unless they are for the next output.
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
                let records = sheet.take_records(&shared);
                shared.taken(records);
            }
            self.write_batch();
        }
        is_all
    }

    /// Switches to the queued outputs one after the other. The lines for each output are written before the switch to the next.
    fn replace_output(&mut self) {
        let shared = Arc::clone(&self.shared);
        let next = || lock(&shared.replacements).pop_front();
        while let Some(mut replacement) = next() {
            self.batch.append(&mut replacement.before);
            shared.taken(replacement.records);
            self.write_batch();
            self.clear_alarm();
            self.shared.rename_overflow(replacement.output.name());
            self.output = replacement.output;
            self.turn += 1;
            self.is_torn = false;
        }
    }

    /// Writes the batch and leaves it empty, to become the next sheet.
    fn write_batch(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let written = match &mut self.output {
            SinkOutput::Lines(_, writer) => write_lines(writer, &self.batch, &mut self.is_torn),
            SinkOutput::Daemon(daemon) => daemon.send_batch(&self.batch),
        };
        self.batch.clear();
        self.batch.shrink_to(KEPT_BYTES_MAX);
        if written.is_ok() {
            self.shared.end_overflow();
        }
        match written {
            // A write that succeeds soon after a failure does not clear the alarm: a disk that is nearly full still accepts a
            // write now and then.
            Ok(()) if self.failed.is_some_and(|at| at.elapsed() < CLEAR_AFTER) => {}
            Ok(()) => self.clear_alarm(),
            Err(Unsent { records, error }) => {
                self.shared.dropped.inc_by(records);
                self.shared.errors.inc();
                self.raise_alarm(&error);
            }
        }
    }

    fn raise_alarm(&mut self, error: &io::Error) {
        self.failed = Some(Instant::now());
        let name = self.output.name();
        let (log, help) = match (&self.output, error.kind()) {
            (SinkOutput::Daemon(_), _) => (
                String::new(),
                "see whether the log daemon runs and reads its socket",
            ),
            (SinkOutput::Lines(..), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => (
                format!("access log {name}: "),
                "free space on its file system (df -h, df -i)",
            ),
            (SinkOutput::Lines(..), _) => (
                format!("access log {name}: "),
                "make it writable, and run proscenium reopen-logs",
            ),
        };
        let message = format!(
            "access records could not be written: {log}{error}; they are lost, and proscenium_access_records_dropped_total counts them: {help}"
        );
        self.shared
            .alarms
            .raise(Alarm::AccessLog, &name, message, SystemTime::now());
    }

    fn clear_alarm(&mut self) {
        if self.failed.take().is_some() {
            let name = self.output.name();
            self.shared.alarms.clear(Alarm::AccessLog, &name);
        }
    }
}

impl Overflow {
    /// The object of the alarm about dropped records. It differs from that of the alarm about failed writes.
    fn about(&self) -> String {
        format!("{}, full", self.output)
    }
}

/// Writes lines. If the previous write ended within a line, this write starts on a new line.
///
/// # Errors
/// The error, and the number of lines that were not written completely.
fn write_lines(writer: &mut impl Write, lines: &[u8], is_torn: &mut bool) -> Result<(), Unsent> {
    let mut left = lines;
    let written = loop {
        let next: &[u8] = if *is_torn { b"\n" } else { left };
        if next.is_empty() {
            break writer.flush();
        }
        match writer.write(next) {
            Ok(0) => break Err(ErrorKind::WriteZero.into()),
            Ok(_) if *is_torn => *is_torn = false,
            Ok(length) => left = &left[length..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => break Err(error),
        }
    };
    written.map_err(|error| {
        let done = lines.len() - left.len();
        *is_torn |= done > 0 && lines[done - 1] != b'\n';
        let lost = left.iter().filter(|byte| **byte == b'\n').count();
        Unsent {
            records: lost as u64,
            error,
        }
    })
}

impl SinkOutput {
    fn form(&self, format: Format) -> Form {
        let framing = match self {
            Self::Lines(..) => Framing::Line,
            Self::Daemon(daemon) => daemon.framing(),
        };
        Form { format, framing }
    }

    fn name(&self) -> String {
        match self {
            Self::Lines(name, _) => name.clone(),
            Self::Daemon(daemon) => daemon.socket().display().to_string(),
        }
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

/// A panic under one of these locks leaves at most half a line behind.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Maximum number of queued outputs while the current output accepts nothing.
const REPLACEMENTS_MAX: usize = 16;

/// How long records may gather. Waking a thread for each record costs the request path more than everything else here.
const GATHER: Duration = Duration::from_millis(50);

/// The size of a sheet at which the thread is woken. More bytes would not fit into the processor's cache.
const BATCH_BYTES: usize = 64 << 10;

/// Maximum bytes on one sheet. Further records are dropped and counted, as if too many records waited.
const SHEET_BYTES_MAX: usize = 16 << 20;

/// A successful write clears the alarm only if no write has failed for this time.
const CLEAR_AFTER: Duration = Duration::from_secs(5);

/// Maximum capacity that is retained between batches.
const KEPT_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests;
