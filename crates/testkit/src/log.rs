//! Text that a thread collects while a test reads it.

use std::{
    io::{BufRead, BufReader, Read},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
};

/// The text that a child process has written so far.
#[derive(Clone, Default)]
pub(crate) struct Log {
    text: Arc<Mutex<String>>,
}

impl Log {
    /// Collects `source` until its end; the thread of the returned handle then ends.
    pub(crate) fn collect(&self, source: impl Read + Send + 'static) -> JoinHandle<()> {
        let text = Arc::clone(&self.text);
        thread::spawn(move || {
            let mut lines = BufReader::new(source);
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                text.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push_str(&String::from_utf8_lossy(&line));
                line.clear();
            }
        })
    }

    pub(crate) fn text(&self) -> String {
        self.text
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
