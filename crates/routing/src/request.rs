//! The facts about a request that the route table uses.

use std::net::IpAddr;

use http::Method;
use http1::Fields;
use identity::ClientIdentity;

use crate::CanonicalPath;

/// A request as the route table sees it.
#[derive(Clone, Copy, Debug)]
pub struct RoutingRequest<'a> {
    /// Method of the request.
    pub method: &'a Method,
    /// Its path, checked by the path rule.
    pub path: CanonicalPath<'a>,
    /// Its query, without the question mark.
    pub query: Option<&'a str>,
    /// Name of the listener that accepted its connection. `None` in `explain` without the corresponding option.
    pub listener: Option<&'a str>,
    /// Its host, with or without a port.
    pub host: Option<&'a str>,
    /// Its fields, scrubbed.
    pub fields: &'a Fields,
    /// The client's address. `None` in `explain` without the corresponding option.
    pub source: Option<IpAddr>,
    /// The server name (SNI) in the client's handshake.
    pub sni: Option<&'a str>,
    /// The client's identity.
    pub identity: &'a ClientIdentity,
    /// Whether the listener has `on_invalid = "forward"`.
    pub failed_is_forwarded: bool,
}
