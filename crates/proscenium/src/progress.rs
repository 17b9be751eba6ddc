//! A sign of life on the terminal while a command takes long.

use std::{
    io::{self, IsTerminal, Write},
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

/// How long a command may take before it shows that it works.
const QUIET: Duration = Duration::from_secs(2);
/// How often the line is updated.
const INTERVAL: Duration = Duration::from_secs(1);

/// Runs a command. If it takes longer than two seconds and standard error is a terminal, a line there shows for how long.
pub(crate) fn with_progress<T>(what: &str, run: impl FnOnce() -> T) -> T {
    if !io::stderr().is_terminal() {
        return run();
    }
    let (ended, end) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let begun = Instant::now();
            let mut pause = QUIET;
            while end.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let seconds = begun.elapsed().as_secs();
                let _ = write!(io::stderr(), "\r{what}: {seconds} s\x1b[K");
                pause = INTERVAL;
            }
            if begun.elapsed() >= QUIET {
                let _ = write!(io::stderr(), "\r\x1b[K");
            }
        });
        let result = run();
        drop(ended);
        result
    })
}
