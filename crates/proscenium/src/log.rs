//! Where events go: standard error, as the journal or a person at a terminal likes them, or the machine's log daemon.

use std::{env, fmt, fs, io, os::unix::fs::MetadataExt, sync::Arc};

use server::{Events, Severity, Told};
use tracing::{Level, Subscriber, field::Field};
use tracing_subscriber::{
    EnvFilter, Layer, layer::Context, layer::SubscriberExt, registry::LookupSpan,
    util::SubscriberInitExt,
};

use crate::{failure::Failure, output};

/// Starts writing events to standard error; what is returned sends them elsewhere.
///
/// `level` is a level or a list of `part=level`; what it says nothing of is at `error`.
pub(crate) fn start(level: &str) -> Result<Arc<Events>, Failure> {
    let filter = EnvFilter::try_new(level).map_err(|error| {
        Failure::Usage(format!(
            "error: --log {level:?}: {error}; it takes error, warn, info, debug or trace, or a list like info,proxy=debug"
        ))
    })?;
    let stderr = tracing_subscriber::fmt::layer()
        .with_ansi(output::colour() == config::Colour::Always)
        .with_writer(io::stderr);
    // The journal has its own clock.
    let stderr = match journal_reads_stderr() {
        true => stderr.without_time().boxed(),
        false => stderr.boxed(),
    };
    let events = Arc::new(Events::default());
    let teller = Teller {
        events: Arc::clone(&events),
        stderr,
    };
    tracing_subscriber::registry()
        .with(filter)
        .with(teller)
        .init();
    Ok(events)
}

/// Tells each event to the daemon, or where there is none to standard error. The program has no spans.
struct Teller<L> {
    events: Arc<Events>,
    stderr: L,
}

impl<S, L> Layer<S> for Teller<L>
where
    S: Subscriber + for<'l> LookupSpan<'l>,
    L: Layer<S>,
{
    fn on_event(&self, event: &tracing::Event<'_>, context: Context<'_, S>) {
        if self.events.go_to_daemon() {
            match tell(&self.events, event) {
                Told::Daemon => return,
                Told::StandardError(None) => {}
                Told::StandardError(Some(why)) => output::complain(&why),
            }
        }
        self.stderr.on_event(event, context);
    }
}

fn tell(events: &Events, event: &tracing::Event<'_>) -> Told {
    let mut said = Said::default();
    event.record(&mut said);
    events.tell(&server::Event {
        severity: severity(*event.metadata().level()),
        part: event.metadata().target(),
        message: &said.message,
        fields: &said.fields,
    })
}

fn severity(level: Level) -> Severity {
    match level {
        Level::ERROR => Severity::Error,
        Level::WARN => Severity::Warning,
        Level::INFO => Severity::Info,
        Level::DEBUG | Level::TRACE => Severity::Debug,
    }
}

/// What an event says.
#[derive(Default)]
struct Said {
    message: String,
    fields: Vec<(&'static str, String)>,
}

impl tracing::field::Visit for Said {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.note(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.note(field, format!("{value:?}"));
    }
}

impl Said {
    fn note(&mut self, field: &Field, value: String) {
        match field.name() {
            "message" => self.message = value,
            name => self.fields.push((name, value)),
        }
    }
}

/// Whether standard error is the journal's: it names its socket in `JOURNAL_STREAM`, which children of a service
/// inherit even where their standard error goes elsewhere (systemd.exec(5)).
fn journal_reads_stderr() -> bool {
    let Ok(stream) = env::var("JOURNAL_STREAM") else {
        return false;
    };
    fs::metadata("/dev/stderr")
        .is_ok_and(|stderr| stream == format!("{}:{}", stderr.dev(), stderr.ino()))
}
