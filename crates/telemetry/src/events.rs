//! Destinations of events: a log daemon or standard error, and the history.

use std::sync::{Mutex, MutexGuard, PoisonError};

use prometheus_client::metrics::counter::Counter;

use crate::daemon::{Daemon, is_full};
use crate::history::EventHistory;
use crate::log_level::LogLevel;
use crate::metrics::Metrics;
use crate::syslog::Severity;

/// Where events go (at first to standard error; a reload can change it), and which events are logged.
#[derive(Debug)]
pub struct Events {
    /// Which events are logged.
    pub level: LogLevel,
    /// The important events of the last day, whatever their level.
    pub history: EventHistory,
    target: Mutex<Option<Target>>,
}

/// One event.
#[derive(Debug)]
pub struct LogEvent<'a> {
    /// Its severity.
    pub severity: Severity,
    /// The part of the program that logs the event.
    pub part: &'a str,
    /// Its message.
    pub message: &'a str,
    /// Its fields by name.
    pub fields: &'a [(&'a str, String)],
}

impl LogEvent<'_> {
    /// The event as one line without a line end: the message and the fields. A value that is not a plain word is in double
    /// quotes.
    pub fn line(&self) -> String {
        crate::syslog::text(self.message, self.fields)
    }
}

/// Where an event went.
#[derive(Debug, PartialEq, Eq)]
pub enum EventDelivery {
    /// The daemon received the event, or was full, and then the event is dropped and counted. Standard error is not used then,
    /// because it may lead to the same daemon and block the caller.
    Daemon,
    /// The daemon is absent. Write the event to standard error, after this message if there is one.
    StandardError(Option<String>),
}

#[derive(Debug)]
struct Target {
    daemon: Daemon,
    dropped: Counter,
    /// Whether the absence of the daemon was logged.
    absent: bool,
}

impl Events {
    /// Creates a value that logs events of this level to standard error.
    pub fn new(level: LogLevel) -> Self {
        Self {
            level,
            history: EventHistory::default(),
            target: Mutex::default(),
        }
    }

    /// Sends later events to this daemon, or to standard error.
    pub fn redirect(&self, daemon: Option<Daemon>, metrics: &Metrics) {
        *self.target() = daemon.map(|daemon| Target {
            daemon,
            dropped: metrics.events_dropped.clone(),
            absent: false,
        });
    }

    /// Whether events go to a daemon.
    pub fn go_to_daemon(&self) -> bool {
        self.target().is_some()
    }

    /// Sends an event without waiting.
    pub fn tell(&self, event: &LogEvent<'_>) -> EventDelivery {
        let mut target = self.target();
        let Some(target) = &mut *target else {
            return EventDelivery::StandardError(None);
        };
        let LogEvent {
            severity,
            part,
            message,
            fields,
        } = *event;
        let datagram = target.daemon.frame_event(severity, part, message, fields);
        let sent = target.daemon.send(&datagram);
        if is_full(&sent) {
            target.dropped.inc();
            return EventDelivery::Daemon;
        }
        let was_absent = std::mem::replace(&mut target.absent, sent.is_err());
        match sent {
            Ok(()) => EventDelivery::Daemon,
            Err(_) if was_absent => EventDelivery::StandardError(None),
            Err(error) => {
                let error = target.daemon.named(&error);
                EventDelivery::StandardError(Some(format!("events go to standard error: {error}")))
            }
        }
    }

    fn target(&self) -> MutexGuard<'_, Option<Target>> {
        self.target.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
