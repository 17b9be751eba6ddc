//! Where events are logged: standard error, in a format for the journal or for a terminal, or the log daemon of the
//! machine.

use std::{env, fmt, fs, io, os::unix::fs::MetadataExt, process, sync::Arc, time};

use lifecycle::{EventDelivery, Events, HistoryEntry, HistoryKind, LogLevel, Severity};
use tracing::{Level, Subscriber, field::Field};
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    filter::{LevelFilter, filter_fn},
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::Writer,
        time::{FormatTime, SystemTime},
    },
    layer::Context,
    layer::SubscriberExt,
    registry::LookupSpan,
    reload,
    util::SubscriberInitExt,
};

use crate::{failure::Failure, output};

/// Starts logging events to standard error. The returned value can redirect them to a log daemon.
///
/// `level` is a level or a list of `component=level`. Components that the list leaves out log errors only.
pub(crate) fn start(level: &str) -> Result<Arc<Events>, Failure> {
    let filter = filter(level).map_err(|error| Failure::Usage(format!("error: --log {error}")))?;
    let (filter, handle) = reload::Layer::new(filter);
    let for_journal = journal_reads_stderr();
    let stderr = tracing_subscriber::fmt::layer()
        .with_ansi(!for_journal && output::colour() == config::Colour::Always)
        .with_writer(io::stderr)
        .event_format(OneLine { for_journal });
    let level = LogLevel::new(level, Box::new(Filter(handle)));
    let events = Arc::new(Events::new(level));
    let event_layer = EventLayer {
        events: Arc::clone(&events),
        stderr,
    };
    // The log level does not apply to the history.
    let history = HistoryLayer(Arc::clone(&events));
    let is_marked = filter_fn(|metadata| metadata.fields().field(HISTORY_KIND).is_some());
    tracing_subscriber::registry()
        .with(event_layer.with_filter(filter))
        .with(history.with_filter(is_marked.with_max_level_hint(LevelFilter::INFO)))
        .init();
    Ok(events)
}

/// Parses a level or a list of `component=level` into a filter.
fn filter(level: &str) -> Result<EnvFilter, String> {
    let wrong = |why: &str| {
        format!(
            "{level:?}: {why}; write error, warn, info, debug, trace, or levels by component, as in info,proxy=debug"
        )
    };
    // The filter library would read an unknown level as the name of a component that logs at level trace.
    for part in level.split(',').filter(|part| !part.contains('=')) {
        if part.is_empty() || part.parse::<LevelFilter>().is_err() {
            return Err(wrong(&format!("{part:?} is not a level")));
        }
    }
    let parts = level.split(',').flat_map(with_parts_of_server);
    let parts = parts.collect::<Vec<_>>().join(",");
    EnvFilter::try_new(parts).map_err(|error| wrong(&error.to_string()))
}

/// Units and scripts may still have the level of the component `server`, which is several components now.
fn with_parts_of_server(part: &str) -> Vec<String> {
    const PARTS: [&str; 5] = [
        "lifecycle",
        "membership",
        "operator",
        "state",
        "trust_keeper",
    ];
    match part.strip_prefix("server") {
        Some(rest) if rest.starts_with(['=', ':']) => {
            PARTS.map(|name| format!("{name}{rest}")).to_vec()
        }
        _ => vec![part.to_owned()],
    }
}

/// The filter of the running process, which `proscenium log-level` replaces.
#[derive(Debug)]
struct Filter(reload::Handle<EnvFilter, Registry>);

impl lifecycle::LevelFilter for Filter {
    fn apply(&self, level: &str) -> Result<(), String> {
        let filter = filter(level)?;
        self.0.reload(filter).map_err(|error| error.to_string())
    }
}

/// Sends each event to the log daemon, or to standard error if no daemon is configured. The program has no spans.
struct EventLayer<L> {
    events: Arc<Events>,
    stderr: L,
}

impl<S, L> Layer<S> for EventLayer<L>
where
    S: Subscriber + for<'l> LookupSpan<'l>,
    L: Layer<S>,
{
    fn on_event(&self, event: &tracing::Event<'_>, context: Context<'_, S>) {
        if self.events.go_to_daemon() {
            match tell(&self.events, event) {
                EventDelivery::Daemon => return,
                EventDelivery::StandardError(None) => {}
                EventDelivery::StandardError(Some(why)) => output::print_error(&why),
            }
        }
        self.stderr.on_event(event, context);
    }
}

/// Adds each event that has a kind of the history to the history.
struct HistoryLayer(Arc<Events>);

impl<S: Subscriber> Layer<S> for HistoryLayer {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let content = EventContent::of(event);
        let mark = |name| content.marks.iter().find(|(of, _)| *of == name);
        let kind = mark(HISTORY_KIND).and_then(|(_, kind)| HistoryKind::parse(kind));
        let Some(kind) = kind else {
            return;
        };
        let this_process = format!("process {}", process::id());
        let subject = match kind {
            HistoryKind::Process => Some(&this_process),
            _ => mark(HISTORY_SUBJECT).map(|(_, subject)| subject),
        };
        let subject = subject.map(String::as_str);
        let now = time::SystemTime::now();
        let entry = content.with(event, |event| {
            HistoryEntry::of_event(event, kind, subject, now)
        });
        self.0.history.note(entry);
    }
}

fn tell(events: &Events, event: &tracing::Event<'_>) -> EventDelivery {
    EventContent::of(event).with(event, |event| events.tell(event))
}

/// Writes each event to standard error as one line, even if its message or a value contains line breaks.
struct OneLine {
    /// Whether the journal reads standard error. The journal adds the time, and reads the priority from `<N>`
    /// (sd-daemon(3)).
    for_journal: bool,
}

impl<S, N> FormatEvent<S, N> for OneLine
where
    S: Subscriber + for<'l> LookupSpan<'l>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &tracing::Event<'_>,
    ) -> fmt::Result {
        let level = *event.metadata().level();
        if self.for_journal {
            write!(writer, "<{}>", severity(level) as u8)?;
        } else {
            SystemTime.format_time(&mut writer)?;
            writer.write_char(' ')?;
        }
        if writer.has_ansi_escapes() {
            write!(writer, "\x1b[{}m{level:>5}\x1b[0m ", colour(level))?
        } else {
            write!(writer, "{level:>5} ")?
        }
        let line = EventContent::of(event).with(event, |event| event.line());
        writeln!(writer, "{}: {line}", event.metadata().target())
    }
}

/// The ANSI colour of a level: red, yellow, green, blue.
fn colour(level: Level) -> u8 {
    match severity(level) {
        Severity::Error => 31,
        Severity::Warning => 33,
        Severity::Info => 32,
        Severity::Debug => 34,
    }
}

fn severity(level: Level) -> Severity {
    match level {
        Level::ERROR => Severity::Error,
        Level::WARN => Severity::Warning,
        Level::INFO => Severity::Info,
        Level::DEBUG | Level::TRACE => Severity::Debug,
    }
}

/// The message and fields of an event.
#[derive(Default)]
struct EventContent {
    message: String,
    fields: Vec<(&'static str, String)>,
    /// Fields for the history, which the log does not show.
    marks: Vec<(&'static str, String)>,
}

/// The field that marks an event as one of the history. Its value is the kind.
const HISTORY_KIND: &str = "history.kind";
/// The field that names the subject of an event of the history. Without it, the subject is the member, the pool or the process.
const HISTORY_SUBJECT: &str = "history.subject";

impl tracing::field::Visit for EventContent {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.note(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.note(field, format!("{value:?}"));
    }
}

impl EventContent {
    fn of(event: &tracing::Event<'_>) -> Self {
        let mut content = Self::default();
        event.record(&mut content);
        content
    }

    fn with<R>(
        &self,
        event: &tracing::Event<'_>,
        use_event: impl FnOnce(&lifecycle::LogEvent<'_>) -> R,
    ) -> R {
        use_event(&lifecycle::LogEvent {
            severity: severity(*event.metadata().level()),
            part: event.metadata().target(),
            message: &self.message,
            fields: &self.fields,
        })
    }

    fn note(&mut self, field: &Field, value: String) {
        match field.name() {
            "message" => self.message = value,
            name @ (HISTORY_KIND | HISTORY_SUBJECT) => self.marks.push((name, value)),
            name => self.fields.push((name, value)),
        }
    }
}

/// Whether the journal reads standard error. `JOURNAL_STREAM` identifies the journal's socket. Child processes of a
/// service inherit the variable even if their standard error is redirected (systemd.exec(5)), so it is compared.
pub(crate) fn journal_reads_stderr() -> bool {
    let Ok(stream) = env::var("JOURNAL_STREAM") else {
        return false;
    };
    fs::metadata("/dev/stderr")
        .is_ok_and(|stderr| stream == format!("{}:{}", stderr.dev(), stderr.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_of_the_former_component_server_applies_to_its_parts() {
        for (part, parts) in [
            (
                "server=debug",
                "lifecycle=debug,membership=debug,operator=debug,state=debug,trust_keeper=debug",
            ),
            (
                "server::reload=info",
                "lifecycle::reload=info,membership::reload=info,operator::reload=info,state::reload=info,trust_keeper::reload=info",
            ),
            ("servers=info", "servers=info"),
            ("info", "info"),
        ] {
            assert_eq!(with_parts_of_server(part).join(","), parts);
        }
        let filter = filter("error,server=debug").expect("levels").to_string();
        assert!(filter.contains("trust_keeper=debug"), "{filter}");
    }
}
