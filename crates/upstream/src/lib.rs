//! Connections to members: dialling, reuse, exchanges, probes and the proxy's own queries.
//!
//! This crate knows nothing of routes. Each worker owns its connections. Workers share only the count for each member.

mod cause;
mod connections;
mod connector;
mod conversation;
mod dial;
mod exchange;
mod fetch;
mod head;
mod host_limit;
mod http10;
mod io;
mod keep_alive;
mod member_check;
mod probe;
mod query;
mod query_connection;
pub mod settings;
mod slots;
mod wire;

pub use balancing::MemberAddress;
pub use cause::cause;
pub use connections::{Connections, Crew};
pub use connector::{Connector, ConnectorError, ConnectorSpec};
pub use conversation::WireError;
pub use dial::{DateFault, DialError, DialStage};
pub use exchange::{AttemptError, Exchange, MemberBody, MemberHead, SendOptions};
pub use fetch::{FetchError, FetchRequest, FetchedDocument, fetch};
pub use head::{
    OwnFields, OwnLines, OwnName, Scrubbed, Stamped, framing_fields, remove_hop_by_hop,
};
pub use host_limit::HostLimit;
pub use http10::NotHttp10;
pub use io::{MemberIo, MemberStream};
pub use keep_alive::is_unanswered;
pub use member_check::MemberCheck;
pub use probe::{
    HttpCheck, ProbeError, ProbeOutcome, agent_check, printable, probe, reads_jrubies,
};
pub use query::{MemberQuery, QueryError, QueryResponse, query};
pub use query_connection::QueryConnection;
pub use rustls::Error as TlsError;
pub use settings::{Plaintext, Scheme, SendProxy, UpstreamSettings};
pub use slots::Slots;
