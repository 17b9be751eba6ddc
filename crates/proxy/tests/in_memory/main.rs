//! The request path over in-memory transports and paused time: no socket, no TLS, and no test waits in real time.
//!
//! A client's connection begins where its handshake would have ended; a member's begins with the dial.

mod bodies;
mod buckets;
mod cancellation;
mod client_bytes;
mod drain;
mod limits;
mod members;
mod queue;
mod rest;
mod retries;
mod support;
mod timers;
mod upgrades;
