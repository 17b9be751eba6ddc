//! Signals that the process handles, and those that it ignores.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that request an action.
pub(crate) struct Signals {
    /// Reload.
    pub(crate) hangup: Signal,
    /// Reopen the log files.
    pub(crate) reopen: Signal,
    /// Stop: SIGTERM, SIGINT and SIGQUIT.
    pub(crate) stop: Stop,
}

/// The signals that stop the process; a second one ends the grace period.
pub(crate) struct Stop {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
}

impl Stop {
    /// Waits for the next of these signals.
    pub(crate) async fn recv(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.quit.recv() => {}
        }
    }
}

/// Signals that are handled from the beginning, so that one sent during a start does not end the process.
pub(crate) struct EarlySignals {
    hangup: Signal,
    reopen: Signal,
}

impl EarlySignals {
    /// Handles SIGHUP and SIGUSR1, and ignores the signals in [`IGNORED`].
    ///
    /// # Errors
    /// The operating system accepts no handler.
    pub(crate) fn new() -> io::Result<Self> {
        for kind in IGNORED {
            // The handler stays when its receiver is dropped: the signal then does nothing.
            drop(signal(SignalKind::from_raw(kind.as_raw()))?);
        }
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            reopen: signal(SignalKind::user_defined1())?,
        })
    }

    /// All signals. Before this call SIGTERM, SIGINT and SIGQUIT end the process at once.
    ///
    /// # Errors
    /// The operating system accepts no handler.
    pub(crate) fn all(self) -> io::Result<Signals> {
        Ok(Signals {
            hangup: self.hangup,
            reopen: self.reopen,
            stop: Stop {
                terminate: signal(SignalKind::terminate())?,
                interrupt: signal(SignalKind::interrupt())?,
                quit: signal(SignalKind::quit())?,
            },
        })
    }
}

/// Signals whose default action ends the process, although that is not their purpose. SIGABRT, SIGTRAP, SIGSYS, SIGXCPU and
/// the signals of a crash keep their defaults.
const IGNORED: [rustix::process::Signal; 9] = {
    use rustix::process::Signal;
    [
        Signal::USR2,
        Signal::PIPE,
        Signal::ALARM,
        Signal::VTALARM,
        Signal::PROF,
        Signal::IO,
        Signal::POWER,
        Signal::STKFLT,
        Signal::XFSZ,
    ]
};
