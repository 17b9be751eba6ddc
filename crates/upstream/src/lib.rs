//! From a member to an exchange: dialling, reuse, sending, probes and other questions of our own.
//!
//! Knows nothing of routes. Each worker owns its connections; only the count per member is shared.

mod ask;
mod cause;
mod connections;
mod connector;
mod conversation;
mod dial;
mod exchange;
mod fetch;
mod head;
mod http10;
mod io;
mod kept;
mod probe;
pub mod settings;
mod wire;

pub use ask::{AskError, Question, Told, ask};
pub use cause::cause;
pub use connections::{Connections, Crew};
pub use connector::{Connector, ConnectorSpec, MemberCheck, Slots, Target, TargetError};
pub use conversation::WireError;
pub use dial::{DialError, DialStage};
pub use exchange::{AttemptError, Exchange, MemberBody, SendOptions};
pub use fetch::{Answer, FetchError, Wish, fetch};
pub use head::{
    OwnFields, OwnLines, OwnName, Scrubbed, Scrubbing, Stamped, hop_by_hop, is_hop_by_hop,
};
pub use http10::NotHttp10;
pub use io::{Counted as MemberIo, Transport};
pub use kept::KeptConnection;
pub use probe::{Inquiry, ProbeError, ProbeOutcome, ask_agent, printable, probe, reads_jrubies};
pub use rustls::Error as TlsError;
pub use settings::{Plaintext, Scheme, SendProxy, Settings};
