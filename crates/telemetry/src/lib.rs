//! What the proxy reports about itself: metric families, access records, the sink that writes them, and events for log daemons.
//!
//! This crate opens no file and reads no clock: callers pass open writers and instants.

pub mod agents;
pub mod alarms;
pub mod daemon;
pub mod events;
pub mod exposition;
pub mod gauges;
pub mod history;
pub mod latency;
pub mod metrics;
pub mod record;
pub mod refusals;
pub mod request_fields;
pub mod settings;
pub mod sink;
pub mod slowest;
pub mod syslog;

mod access_logs;
mod escape;
mod journal;
mod line;
mod line_cache;
mod log_format;
mod log_level;
mod printable;
mod written;

pub use crate::access_logs::{AccessLogHandle, AccessLogs};
pub use crate::agents::{
    AgentTally, Agents, EXPIRY_WORDS, SeenAgent, SeenCertificate, SeenRequest,
};
pub use crate::alarms::{
    ActiveAlarm, Alarm, Alarms, CauseCondition, CauseLink, FoundAlarm, Urgency,
};
pub use crate::daemon::Daemon;
pub use crate::events::{EventDelivery, Events, LogEvent};
pub use crate::exposition::Exposition;
pub use crate::gauges::{Gauges, Labels};
pub use crate::history::{EventHistory, HistoryEntry, HistoryKind};
pub use crate::latency::{LatencyCounts, percentile_us};
pub use crate::line::KnownClient;
pub use crate::log_level::{LevelFilter, LogLevel};
pub use crate::metrics::{
    ATTEMPT_DURATION_MEMBERS_MAX, AttemptResult, CountedConnection, CountedReload, FailureKind,
    HandshakeResult, KnownLabels, Limit, ListenerMetrics, MemberCounts, MemberMetrics,
    MemberWindow, Metrics, OpenPassthrough, OpenTunnel, PassthroughMetrics, PoolMetrics,
    QueueRefusal, RequestMetrics, ResponseFailure, RuleMetrics, TrafficCounts,
};
pub use crate::record::{AccessRecord, EndedBy, Passthrough, Times, TlsFacts};
pub use crate::refusals::{RecentRefusals, RefusalEntry, RefusedClient};
pub use crate::request_fields::{RequestFields, RequestFieldsCopy};
pub use crate::settings::{
    AccessLogSettings, DaemonSettings, Facility, Format, LogFormat, LogFormatError, LogProtocol,
};
pub use crate::sink::{Sink, SinkHandle, SinkOutput, Unwritten};
pub use crate::slowest::{SlowRequest, SlowestRequests};
pub use crate::syslog::Severity;
pub use crate::written::{LogReceiver, written};

/// The identifier of the proxy in log daemons.
const IDENTIFIER: &str = "proscenium";
