//! The request path over in-memory transports and paused time. There are no sockets and no TLS, and no test waits in real time.
//!
//! A client's connection starts where its handshake would have ended. A member's connection starts with the dial.

mod bodies;
mod buckets;
mod cancellation;
mod client_bytes;
mod drain;
mod http1_faults;
mod limits;
mod members;
mod queue;
mod random_pipelines;
mod rest;
mod retries;
mod support;
mod timers;
mod unavailable;
mod upgrades;
mod wire_cases;
