//! What the proxy tells of itself: metric families, access records and the sink that writes them, events for log daemons.
//!
//! Nothing here opens a file or asks the time: writers come already open, instants come as arguments.

pub mod agents;
pub mod alarms;
pub mod daemon;
pub mod events;
pub mod exposition;
pub mod gauges;
pub mod latency;
pub mod metrics;
pub mod record;
pub mod refusals;
pub mod settings;
pub mod sink;
pub mod spoken;
pub mod syslog;

mod access_logs;
mod escape;
mod journal;
mod known_ways;
mod line;
mod log_format;
mod log_level;
mod printable;
mod written;

pub use crate::access_logs::{AccessLogHandle, AccessLogs};
pub use crate::agents::{Agents, EXPIRY_WORDS, SeenAgent, SeenCertificate, SeenRequest};
pub use crate::alarms::{ActiveAlarm, Alarm, Alarms};
pub use crate::daemon::Daemon;
pub use crate::events::{Event, Events, Told};
pub use crate::exposition::Exposition;
pub use crate::gauges::{Gauges, Labels};
pub use crate::line::KnownClient;
pub use crate::log_level::{LevelFilter, LogLevel};
pub use crate::metrics::{
    AttemptResult, HandshakeResult, KnownLabels, Limit, ListenerMetrics, MemberMetrics, Metrics,
    OpenPassthrough, OpenTunnel, PassthroughMetrics, PoolMetrics, QueueRefusal, ReloadResult,
    RequestMetrics, RuleMetrics,
};
pub use crate::record::{AccessRecord, EndedBy, Passthrough, Times, TlsFacts};
pub use crate::refusals::{RecentRefusals, RefusalEntry, RefusedClient};
pub use crate::settings::{
    AccessLogSettings, DaemonSettings, Facility, Format, LogFormat, LogFormatError, Protocol,
};
pub use crate::sink::{Output, Sink, SinkHandle, Unwritten};
pub use crate::spoken::{Spoken, SpokenCopy};
pub use crate::syslog::Severity;
pub use crate::written::{LogReceiver, written};

/// What log daemons know us by.
const IDENTIFIER: &str = "proscenium";
