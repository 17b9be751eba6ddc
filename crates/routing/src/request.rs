//! What the route table needs to know of a request.

use std::net::IpAddr;

use http::{HeaderMap, Method};
use identity::ClientIdentity;

use crate::CanonicalPath;

/// What is asked of the table.
#[derive(Clone, Copy, Debug)]
pub struct RoutingRequest<'a> {
    /// Method of the request.
    pub method: &'a Method,
    /// Its path, judged by the path rule.
    pub path: CanonicalPath<'a>,
    /// Its query, without the question mark.
    pub query: Option<&'a str>,
    /// Its host, with or without a port.
    pub host: Option<&'a str>,
    /// Its headers, scrubbed.
    pub headers: &'a HeaderMap,
    /// The client's address; unknown to `explain` unless it is told.
    pub source: Option<IpAddr>,
    /// The server name that the client asked for in its handshake.
    pub sni: Option<&'a str>,
    /// Who sent it.
    pub identity: &'a ClientIdentity,
    /// Whether the listener says `on_invalid = "forward"`.
    pub failed_is_forwarded: bool,
}
