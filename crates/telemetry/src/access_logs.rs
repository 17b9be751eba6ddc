//! Several access logs at once: each has its own [`Sink`], and a record goes to all of them.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::metrics::Metrics;
use crate::record::AccessRecord;
use crate::settings::AccessLogSettings;
use crate::sink::{Sink, SinkHandle, SinkOutput, Unwritten};

/// The access logs of a process, at least one.
#[derive(Debug)]
pub struct AccessLogs {
    first: Sink,
    /// The logs after the first, with the number of records that may wait in each.
    others: Mutex<Vec<(usize, Sink)>>,
    shared: Arc<Others>,
    metrics: Arc<Metrics>,
}

/// A thread's handle for all access logs.
#[derive(Debug)]
pub struct AccessLogHandle {
    first: SinkHandle,
    shared: Arc<Others>,
    /// Handles for the logs after the first, and the version of the set that they belong to.
    others: Mutex<(u64, Vec<SinkHandle>)>,
}

/// Handles of the second and later logs. `version` counts the changes of this list. It is 0 until a second log is added, which
/// few configurations do.
#[derive(Debug, Default)]
struct Others {
    version: AtomicU64,
    handles: Mutex<Vec<SinkHandle>>,
}

impl AccessLogs {
    /// Starts a thread for each log.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(
        settings: &AccessLogSettings,
        output: SinkOutput,
        metrics: &Arc<Metrics>,
    ) -> io::Result<Self> {
        Ok(Self {
            first: Sink::start(settings, output, metrics)?,
            others: Mutex::default(),
            shared: Arc::default(),
            metrics: Arc::clone(metrics),
        })
    }

    /// A handle for one thread.
    pub fn handle(&self) -> AccessLogHandle {
        AccessLogHandle::new(self.first.handle(), Arc::clone(&self.shared))
    }

    /// Switches to other outputs and formats. Logs after the first are started and stopped as needed.
    ///
    /// # Errors
    /// The system cannot start a thread for a further log; the other logs continue.
    pub fn reopen(
        &self,
        (settings, output): (&AccessLogSettings, SinkOutput),
        others: Vec<(&AccessLogSettings, SinkOutput)>,
    ) -> io::Result<()> {
        self.first.reopen(output, settings.format.clone());
        self.set_others(others)
    }

    /// Sets the logs after the first.
    ///
    /// # Errors
    /// The system cannot start a thread; the logs before it in the list are active.
    pub fn set_others(&self, wanted: Vec<(&AccessLogSettings, SinkOutput)>) -> io::Result<()> {
        let mut logs = lock(&self.others);
        let mut before = std::mem::take(&mut *logs).into_iter();
        let mut ended = Vec::new();
        let mut failed = Ok(());
        for (settings, output) in wanted {
            match before.next() {
                Some((queue_max, sink)) if queue_max == settings.queue_max => {
                    sink.reopen(output, settings.format.clone());
                    logs.push((queue_max, sink));
                }
                other => {
                    ended.extend(other);
                    match Sink::start(settings, output, &self.metrics) {
                        Ok(sink) => logs.push((settings.queue_max, sink)),
                        Err(error) => failed = Err(error),
                    }
                }
            }
        }
        ended.extend(before);
        let version = self.shared.version.load(Ordering::Relaxed);
        if !(logs.is_empty() && version == 0) {
            *lock(&self.shared.handles) = logs.iter().map(|(_, sink)| sink.handle()).collect();
            self.shared.version.store(version + 1, Ordering::Release);
        }
        drop(logs);
        for (_, sink) in ended {
            // Records that are not written in time are counted.
            let _ = sink.close(END_GRACE);
        }
        failed
    }

    /// Writes the waiting records and stops, within `deadline`. Later records are dropped and counted.
    ///
    /// # Errors
    /// The deadline passed; the error says how many records were left, and they are counted as dropped.
    pub fn close(self, deadline: Duration) -> Result<(), Unwritten> {
        let ends = Instant::now() + deadline;
        let others = self
            .others
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let sinks = others.into_iter().map(|(_, sink)| sink);
        let mut unwritten = 0;
        for sink in std::iter::once(self.first).chain(sinks) {
            let left = ends.saturating_duration_since(Instant::now());
            if let Err(Unwritten { records }) = sink.close(left) {
                unwritten += records;
            }
        }
        match unwritten {
            0 => Ok(()),
            records => Err(Unwritten { records }),
        }
    }
}

impl AccessLogHandle {
    fn new(first: SinkHandle, shared: Arc<Others>) -> Self {
        Self {
            first,
            shared,
            others: Mutex::default(),
        }
    }

    /// A handle for another thread.
    pub fn another(&self) -> Self {
        Self::new(self.first.another(), Arc::clone(&self.shared))
    }

    /// Sends a record to every log. Never waits for a writer.
    pub fn send(&self, record: &AccessRecord) {
        self.first.send(record);
        let version = self.shared.version.load(Ordering::Acquire);
        if version == 0 {
            return;
        }
        let mut others = lock(&self.others);
        if others.0 != version {
            let handles = lock(&self.shared.handles);
            *others = (version, handles.iter().map(SinkHandle::another).collect());
        }
        for other in &others.1 {
            other.send(record);
        }
    }
}

/// A panic under one of these locks leaves a complete list behind.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long a log that a reload has removed may take to write its waiting records.
const END_GRACE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::SocketAddr;
    use std::time::SystemTime;

    use super::*;
    use crate::settings::Format;

    #[derive(Clone, Debug, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Lines {
        fn output(&self) -> SinkOutput {
            SinkOutput::Lines("page".to_owned(), Box::new(self.clone()))
        }

        fn text(&self) -> String {
            String::from_utf8(lock(&self.0).clone()).expect("text")
        }
    }

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            lock(&self.0).extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn settings(format: &str) -> AccessLogSettings {
        AccessLogSettings {
            format: Format::Apache(format.parse().expect("a format")),
            ..AccessLogSettings::default()
        }
    }

    #[test]
    fn a_record_goes_to_each_log_that_there_is_when_it_is_sent() {
        let metrics = Arc::new(Metrics::default());
        let [first, second, third] = [(); 3].map(|()| Lines::default());
        let formats = ["1 %h", "2 %h", "3 %h"].map(settings);
        let logs = AccessLogs::start(&formats[0], first.output(), &metrics).expect("threads");
        let handle = logs.handle();
        let client = SocketAddr::from(([10, 0, 0, 1], 1));
        let record = AccessRecord::new(SystemTime::UNIX_EPOCH, "agents".into(), client);
        handle.send(&record);
        logs.set_others(vec![
            (&formats[1], second.output()),
            (&formats[2], third.output()),
        ])
        .expect("threads");
        handle.send(&record);
        handle.another().send(&record);
        logs.reopen(
            (&formats[0], first.output()),
            vec![(&formats[2], second.output())],
        )
        .expect("threads");
        handle.send(&record);
        logs.close(Duration::from_secs(60)).expect("all written");
        assert_eq!(first.text(), "1 10.0.0.1\n".repeat(4));
        assert_eq!(second.text(), "2 10.0.0.1\n2 10.0.0.1\n3 10.0.0.1\n");
        assert_eq!(third.text(), "3 10.0.0.1\n".repeat(2));
        assert_eq!(metrics.access_records_dropped.get(), 0);
    }
}
