//! What the proxy tells of itself: metric families, access records and the sink that writes them.
//!
//! Nothing here opens a file or asks the time: writers come already open, instants come as arguments.

pub mod latency;
pub mod metrics;
pub mod readings;
pub mod record;
pub mod settings;
pub mod sink;
pub mod spoken;

mod escape;
mod line;

pub use crate::metrics::{
    AttemptResult, HandshakeResult, Limit, ListenerMetrics, Metrics, OpenTunnel, PoolMetrics,
    ReloadResult, RequestMetrics,
};
pub use crate::readings::{CaReading, CrlReading, ListenerReading, MemberReading, Readings};
pub use crate::record::{AccessRecord, EndedBy, Times, TlsFacts};
pub use crate::settings::{AccessLogSettings, Format};
pub use crate::sink::{Sink, SinkHandle, Unwritten};
pub use crate::spoken::{Spoken, SpokenCopy};
