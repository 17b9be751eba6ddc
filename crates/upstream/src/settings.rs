//! Settings of connections to members.

use std::time::Duration;

use proxy_protocol::Version;

/// The protocol towards members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheme {
    /// TLS with the proxy's credential. The default.
    #[default]
    Https,
    /// Plain HTTP: only to loopback addresses and Unix sockets, unless `plaintext = "trusted-network"` is set.
    Http,
}

/// The version of HTTP towards members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.1. The default.
    #[default]
    Http11,
    /// HTTP/1.0: no chunks and no interim responses. A connection is reused only if the member sends `keep-alive`.
    Http10,
}

/// Where plain HTTP is allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plaintext {
    /// Loopback addresses and Unix sockets only. Checked against the resolved address on every connect. The default.
    #[default]
    Loopback,
    /// Any address. Every host on that network can forge identities.
    TrustedNetwork,
}

/// The header of the PROXY protocol at the beginning of a connection to a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendProxy {
    /// No header. The default.
    #[default]
    Off,
    /// Version 1.
    V1,
    /// Version 2, with the server name and the id of the connection.
    V2,
}

impl SendProxy {
    /// The version, if there is a header.
    pub fn version(self) -> Option<Version> {
        match self {
            Self::Off => None,
            Self::V1 => Some(Version::V1),
            Self::V2 => Some(Version::V2),
        }
    }
}

/// `[upstream]`. `[pools.NAME]` overrides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamSettings {
    /// The protocol towards members. Default `https`.
    pub scheme: Scheme,
    /// The version of HTTP towards members. Default 1.1.
    pub http_version: HttpVersion,
    /// Where plain HTTP is allowed. Default loopback.
    pub plaintext: Plaintext,
    /// Maximum time for resolving, connecting and the handshake. Default 5 s.
    pub connect_timeout: Duration,
    /// Maximum time from the request's last byte to the response's first, including waits and all attempts. Default 9.5 min: an
    /// agent waits 10 min, so it receives the proxy's own response.
    pub first_byte_timeout: Duration,
    /// Maximum time without a byte of a body, in either direction. Default 60 s.
    pub idle_timeout: Duration,
    /// Maximum time that a member's host leaves TCP keep-alive unanswered. Default 60 s, at least 2 s; parts of a second are
    /// dropped.
    pub down_wait: Duration,
    /// Maximum time without a byte in a tunnel, in either direction. Default 15 min.
    pub tunnel_idle_timeout: Duration,
    /// How long an idle connection stays open. Default 20 s, less than Jetty's 30 s. Zero: each request gets a new connection.
    pub keepalive: Duration,
    /// Maximum connections to one member over all workers. Default 128: Jetty has 200 threads.
    pub connections_max: u32,
    /// Maximum number of header fields in a response. Default 256. A head may always have at most 64 KiB.
    pub response_fields_max: u32,
    /// Maximum number of requests that wait for a member. Default 10,000.
    pub queue_max: u32,
    /// Maximum time that a request may wait for a member. Default 8 min: an agent waits 10 min for its response, and a
    /// slow catalog takes 90 s.
    pub queue_wait_max: Duration,
    /// How long requests wait for a member after the pool's member went down, while no member is available. Zero: they do not
    /// wait. Default 90 s: a Puppet server restarts in 20 to 60 s.
    pub unavailable_wait_max: Duration,
    /// Maximum number of JRubies that the requests of one client hold. Default 2: an agent sends one request at a time, and two
    /// runs may overlap.
    pub agent_max: u32,
    /// Maximum number of further requests of one client that wait. Default 4.
    pub agent_queue_max: u32,
    /// Maximum `Retry-After` for an agent whose request the queue refuses. Default 30 min: the run interval.
    pub retry_after_max: Duration,
    /// The PROXY header at the beginning of passed-through connections, and of probes to the same port. Default none.
    pub send_proxy: SendProxy,
}

impl Default for UpstreamSettings {
    fn default() -> Self {
        Self {
            scheme: Scheme::Https,
            http_version: HttpVersion::Http11,
            plaintext: Plaintext::Loopback,
            connect_timeout: Duration::from_secs(5),
            first_byte_timeout: Duration::from_secs(570),
            idle_timeout: Duration::from_secs(60),
            down_wait: Duration::from_secs(60),
            tunnel_idle_timeout: Duration::from_secs(900),
            keepalive: Duration::from_secs(20),
            connections_max: 128,
            response_fields_max: 256,
            queue_max: 10_000,
            queue_wait_max: Duration::from_secs(480),
            unavailable_wait_max: Duration::from_secs(90),
            agent_max: 2,
            agent_queue_max: 4,
            retry_after_max: Duration::from_secs(1800),
            send_proxy: SendProxy::Off,
        }
    }
}
