//! Tests of a sink whose writers block, fail and are replaced.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::SyncSender;
use std::time::{Instant, SystemTime};

use super::*;

const LONG: Duration = Duration::from_secs(20);

#[derive(Clone, Debug, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Page {
    fn lines(&self) -> usize {
        lock(&self.0).iter().filter(|byte| **byte == b'\n').count()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&lock(&self.0)).into_owned()
    }

    fn contains(&self, text: &str) -> bool {
        self.text().contains(text)
    }
}

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reports each write, then waits for permission.
struct Gate {
    asked: SyncSender<()>,
    let_go: Receiver<()>,
    page: Page,
}

impl Write for Gate {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // No test waits for writes after the first, so this may fail.
        let _ = self.asked.send(());
        self.let_go.recv().map_err(io::Error::other)?;
        self.page.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Full;

impl Write for Full {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn record(listener: &str) -> AccessRecord {
    let client = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    AccessRecord::new(SystemTime::UNIX_EPOCH, listener.into(), client)
}

fn start(queue_max: usize, writer: impl Write + Send + 'static, metrics: &Metrics) -> Sink {
    let settings = AccessLogSettings {
        queue_max,
        ..AccessLogSettings::default()
    };
    Sink::start(
        &settings,
        SinkOutput::Lines("page".to_owned(), Box::new(writer)),
        metrics,
    )
    .expect("a thread")
}

/// A sink whose thread is writing its first record, that of the listener "first", to `page`. Every write waits for permission.
fn blocked(queue_max: usize, page: &Page, metrics: &Metrics) -> (Sink, SinkHandle, SyncSender<()>) {
    let (asked, was_asked) = sync_channel(100);
    let (open, let_go) = sync_channel(100);
    let page = page.clone();
    let gate = Gate {
        asked,
        let_go,
        page,
    };
    let sink = start(queue_max, gate, metrics);
    let handle = sink.handle();
    handle.send(&record("first"));
    was_asked
        .recv_timeout(LONG)
        .expect("the first batch is being written");
    (sink, handle, open)
}

/// Permits all further writes. The writer may be dropped before the last of them, because another writer replaces it.
fn let_go(open: &SyncSender<()>) {
    for _ in 0..10 {
        let _ = open.send(());
    }
}

#[test]
fn sent_records_are_written_before_the_sink_is_closed() {
    let (metrics, page) = (Metrics::default(), Page::default());
    let sink = start(10_000, page.clone(), &metrics);
    let senders: Vec<_> = (0..4)
        .map(|_| {
            let handle = sink.handle();
            thread::spawn(move || (0..1_000).for_each(|_| handle.send(&record("agents"))))
        })
        .collect();
    for sender in senders {
        sender.join().expect("sent");
    }
    assert_eq!(sink.close(LONG), Ok(()));
    assert_eq!(page.lines(), 4_000);
    assert_eq!(metrics.access_records_dropped.get(), 0);
}

#[test]
fn the_room_of_a_thread_counts_as_waiting_records() {
    let (metrics, page) = (Metrics::default(), Page::default());
    // Each thread gets room for two records at once.
    let (sink, handle, open) = blocked(2_048, &page, &metrics);
    let other = sink.handle();
    other.send(&record("other"));
    for _ in 0..2_048 {
        handle.send(&record("agents"));
    }
    assert_eq!(metrics.access_records_dropped.get(), 2);
    other.send(&record("other"));
    assert_eq!(metrics.access_records_dropped.get(), 2);
    other.send(&record("other"));
    assert_eq!(metrics.access_records_dropped.get(), 3);
    let_go(&open);
    assert_eq!(sink.close(LONG), Ok(()));
    assert_eq!(page.lines(), 1 + 2_048);
}

#[test]
fn a_blocked_writer_costs_counted_records_and_no_time() {
    let (metrics, page) = (Metrics::default(), Page::default());
    let (sink, handle, open) = blocked(8, &page, &metrics);
    for _ in 0..20 {
        handle.send(&record("agents"));
    }
    assert_eq!(
        metrics.access_records_dropped.get(),
        12,
        "8 wait, 12 of 20 are dropped"
    );
    let alarm = metrics.alarms.get(Alarm::AccessLog, "page, full");
    let message = alarm.expect("an alarm").message;
    assert!(message.contains("page does not take them"), "{message}");
    let_go(&open);
    // A switch to another output clears the alarm.
    sink.reopen(
        SinkOutput::Lines("next".to_owned(), Box::new(page.clone())),
        Format::Json,
    );
    wait_for(|| metrics.alarms.active().is_empty());
    assert_eq!(sink.close(LONG), Ok(()));
    assert_eq!(page.lines(), 9);
}

#[test]
fn the_alarm_about_dropped_records_ends_with_a_write_when_none_was_dropped_for_a_while() {
    let (metrics, page) = (Metrics::default(), Page::default());
    let (sink, handle, open) = blocked(1, &page, &metrics);
    (0..2).for_each(|_| handle.send(&record("agents")));
    let is_active = || {
        let alarm = metrics.alarms.get(Alarm::AccessLog, "page, full");
        alarm.is_some()
    };
    assert!(is_active());
    let_go(&open);
    wait_for(|| page.lines() == 2);
    assert!(is_active(), "a record was dropped a moment ago");
    lock(&sink.handle.shared.overflow).last = Instant::now().checked_sub(CLEAR_AFTER);
    handle.send(&record("agents"));
    wait_for(|| !is_active());
    assert_eq!(sink.close(LONG), Ok(()));
}

#[test]
fn closing_does_not_wait_for_a_blocked_writer_longer_than_asked() {
    let metrics = Metrics::default();
    let (sink, _handle, _open) = blocked(8, &Page::default(), &metrics);
    for _ in 0..3 {
        sink.handle().send(&record("agents"));
    }
    assert_eq!(
        sink.close(Duration::from_millis(1)),
        Err(Unwritten { records: 3 })
    );
    assert_eq!(metrics.access_records_dropped.get(), 3);
}

#[test]
fn a_reopened_sink_uses_the_new_writer_and_form() {
    let (metrics, old, new) = (Metrics::default(), Page::default(), Page::default());
    let sink = start(100, old.clone(), &metrics);
    sink.handle().send(&record("before"));
    sink.reopen(
        SinkOutput::Lines("page".to_owned(), Box::new(new.clone())),
        Format::Json,
    );
    sink.handle().send(&record("after"));
    assert_eq!(sink.close(LONG), Ok(()));
    assert!(old.contains("listener=before"));
    assert!(new.contains(r#""listener":"after""#));
    assert_eq!((old.lines(), new.lines()), (1, 1));
}

#[test]
fn records_after_a_reopening_go_to_the_new_writer_although_the_old_one_is_blocked() {
    let metrics = Metrics::default();
    let pages: Vec<Page> = (0..=REPLACEMENTS_MAX + 2)
        .map(|_| Page::default())
        .collect();
    let (sink, handle, open) = blocked(1_000, &pages[0], &metrics);
    for (index, page) in pages.iter().enumerate().skip(1) {
        handle.send(&record(&format!("before-{index}")));
        sink.reopen(
            SinkOutput::Lines("page".to_owned(), Box::new(page.clone())),
            Format::Combined,
        );
    }
    handle.send(&record("last"));
    let_go(&open);
    assert_eq!(sink.close(LONG), Ok(()));
    assert_eq!((pages[0].lines(), pages[1].lines()), (2, 1));
    assert!(pages[1].contains("listener=before-2 "));
    let last = pages.last().expect("some");
    // There are more outputs than may be queued. Records for the skipped outputs go to the last one.
    assert!(last.contains("listener=last ") && last.lines() == 3);
    let written: usize = pages.iter().map(Page::lines).sum();
    assert_eq!(written, 1 + pages.len());
    assert_eq!(metrics.access_records_dropped.get(), 0);
}

#[test]
fn lines_for_a_skipped_output_never_go_to_one_of_another_form() {
    use Format::{Combined, Json};
    // The forms of the last outputs, and the number of pages in which the record for the skipped output is found.
    for (forms, found) in [
        ([Json, Json, Json], 1),
        ([Combined, Json, Json], 1),
        ([Json, Json, Combined], 1),
        ([Combined, Json, Combined], 0),
    ] {
        let metrics = Metrics::default();
        let (first, page) = (Page::default(), Page::default);
        let (sink, handle, open) = blocked(1_000, &first, &metrics);
        let begin = |format: Format| {
            let page = page();
            sink.reopen(
                SinkOutput::Lines("page".to_owned(), Box::new(page.clone())),
                format.clone(),
            );
            (page, format)
        };
        let mut pages = vec![(first.clone(), Combined)];
        pages.extend((2..REPLACEMENTS_MAX).map(|_| begin(Combined)));
        for (n, format) in forms.clone().into_iter().enumerate() {
            pages.push(begin(format));
            handle.send(&record(&format!("output-{n}")));
        }
        let_go(&open);
        assert_eq!(sink.close(LONG), Ok(()));
        for (page, format) in &pages {
            let is_json = *format == Json;
            let of_the_other = if is_json {
                " listener="
            } else {
                "\"listener\":"
            };
            assert!(!page.contains(of_the_other), "{forms:?}: {page:?}");
        }
        let has = |name: &str| pages.iter().filter(|(page, _)| page.contains(name)).count();
        assert_eq!(
            [has("output-0"), has("output-1"), has("output-2")],
            [1, found, 1]
        );
        assert_eq!(metrics.access_records_dropped.get(), 1 - found as u64);
    }
}

#[test]
fn a_failing_writer_is_counted_and_an_alarm_until_a_new_one_replaces_it() {
    let (metrics, page) = (Metrics::default(), Page::default());
    let sink = start(100, Full, &metrics);
    sink.handle().send(&record("agents"));
    let alarm = || metrics.alarms.get(Alarm::AccessLog, "page");
    wait_for(|| alarm().is_some());
    let counts = [&metrics.access_log_errors, &metrics.access_records_dropped];
    assert_eq!(counts.map(Counter::get), [1, 1]);
    let message = alarm().expect("it stays").message;
    for expected in ["access log page: ", "df -h", "dropped_total"] {
        assert!(message.contains(expected), "{message}");
    }
    sink.reopen(
        SinkOutput::Lines("page".to_owned(), Box::new(page.clone())),
        Format::Combined,
    );
    sink.handle().send(&record("agents"));
    assert_eq!(sink.close(LONG), Ok(()));
    assert_eq!((page.lines(), metrics.alarms.active()), (1, Vec::new()));
}

#[test]
fn records_after_the_close_are_dropped_and_counted() {
    let metrics = Metrics::default();
    let sink = start(100, Page::default(), &metrics);
    let handle = sink.handle();
    assert_eq!(sink.close(LONG), Ok(()));
    wait_for(|| {
        handle.send(&record("agents"));
        metrics.access_records_dropped.get() > 0
    });
}

#[test]
fn a_sheet_has_a_limit_in_bytes() {
    let (metrics, page) = (Metrics::default(), Page::default());
    let (sink, handle, open) = blocked(usize::MAX, &page, &metrics);
    let mut long = record("agents");
    long.cause = Some("x".repeat(500).into());
    let mut line = Vec::new();
    let form = sink
        .handle
        .shared
        .sheets
        .lock()
        .expect("sound")
        .form
        .clone();
    LineWriter::new(form).push(&mut line, &long);
    let fit = SHEET_BYTES_MAX.div_ceil(line.len());
    for _ in 0..fit + 5 {
        handle.send(&long);
    }
    assert_eq!(metrics.access_records_dropped.get(), 5);
    let_go(&open);
    assert_eq!(sink.close(LONG), Ok(()));
    assert_eq!(page.lines(), 1 + fit);
}

#[test]
fn the_sheet_of_an_ended_thread_is_written_and_freed() {
    let (metrics, page) = (Metrics::default(), Page::default());
    let sink = start(100, page.clone(), &metrics);
    for sent in 1..=20 {
        sink.handle().send(&record("agents"));
        wait_for(|| page.lines() == sent);
    }
    // Only the sheet of the sink's own handle remains.
    wait_for(|| {
        sink.handle.send(&record("agents"));
        lock(&sink.handle.shared.sheets).all.len() == 1
    });
    assert_eq!(sink.close(LONG), Ok(()));
}

#[test]
fn a_queue_of_one_still_writes() {
    let (metrics, page) = (Metrics::default(), Page::default());
    let sink = start(1, page.clone(), &metrics);
    for written in 1..=5 {
        sink.handle().send(&record("agents"));
        wait_for(|| page.lines() == written);
    }
    assert_eq!(sink.close(LONG), Ok(()));
    assert_eq!(metrics.access_records_dropped.get(), 0);
}

#[track_caller]
fn wait_for(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + LONG;
    while !condition() {
        assert!(Instant::now() < deadline, "waited too long");
        thread::yield_now();
    }
}

/// A disk with room for this many bytes, until a test makes more room.
#[derive(Clone)]
struct Disk {
    page: Page,
    room: Arc<AtomicUsize>,
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = bytes.len().min(self.room.load(Ordering::SeqCst));
        if length == 0 {
            return Err(ErrorKind::StorageFull.into());
        }
        self.room.fetch_sub(length, Ordering::SeqCst);
        self.page.write(&bytes[..length])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_line_cut_by_a_full_disk_spoils_no_later_line_and_lost_lines_are_counted() {
    let lines = b"first\nsecond\nthird\n";
    // The room, what is written of the three lines, the lines that are lost, and the text with a later line.
    for (room, lost, expected) in [
        (0, 3, "later\n"),
        (3, 3, "fir\nlater\n"),
        (6, 2, "first\nlater\n"),
        (9, 2, "first\nsec\nlater\n"),
        (18, 1, "first\nsecond\nthird\nlater\n"),
        (19, 0, "first\nsecond\nthird\nlater\n"),
    ] {
        let mut disk = Disk {
            page: Page::default(),
            room: Arc::new(AtomicUsize::new(room)),
        };
        let mut is_torn = false;
        let mut write = |disk: &mut Disk, lines: &[u8]| {
            let written = write_lines(disk, lines, &mut is_torn);
            written.map_or_else(|unsent| unsent.records, |()| 0)
        };
        assert_eq!(write(&mut disk, lines), lost, "room for {room}");
        // The disk is still full. The truncated line is not truncated again.
        if lost > 0 {
            assert_eq!(write(&mut disk, b"lost\n"), 1, "room for {room}");
        }
        disk.room.store(100, Ordering::SeqCst);
        assert_eq!(write(&mut disk, b"later\n"), 0, "room for {room}");
        assert_eq!(disk.page.text(), expected, "room for {room}");
    }
}
