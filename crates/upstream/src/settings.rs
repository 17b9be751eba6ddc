//! What a configuration says about connections to members.

use std::time::Duration;

use proxy_protocol::Version;

/// Protocol spoken to members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheme {
    /// TLS, with our own credential. The default.
    #[default]
    Https,
    /// Plain HTTP: loopback and Unix sockets, or `plaintext = "trusted-network"`.
    Http,
}

/// Version of HTTP spoken to members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.1. The default.
    #[default]
    Http11,
    /// HTTP/1.0: no chunks, no interim responses, and connections that last only where the member says so.
    Http10,
}

/// How far plain HTTP may reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plaintext {
    /// Loopback addresses and Unix sockets only. The default; held by address when dialling.
    #[default]
    Loopback,
    /// Any address: whoever is on that network can write identities.
    TrustedNetwork,
}

/// The header of the PROXY protocol that a member gets at the beginning of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendProxy {
    /// None. The default.
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

/// `[upstream]`, overridden by `[pools.NAME]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamSettings {
    /// Protocol spoken to members. Default `https`.
    pub scheme: Scheme,
    /// Version of HTTP spoken to members. Default 1.1.
    pub http_version: HttpVersion,
    /// How far plain HTTP may reach. Default loopback.
    pub plaintext: Plaintext,
    /// Time allowed for name, connect and handshake. Default 5 s.
    pub connect_timeout: Duration,
    /// Time from the request's last byte to the answer's first, for waiting and all attempts together. Default 9.5 min:
    /// an agent waits 10 min, and so sees our answer.
    pub first_byte_timeout: Duration,
    /// Time without a byte of a body in either direction. Default 60 s.
    pub idle_timeout: Duration,
    /// Time without a byte in either direction of a tunnel. Default 15 min.
    pub tunnel_idle_timeout: Duration,
    /// Time an unused connection is kept. Default 20 s: below Jetty's 30. Zero: each request has a connection of its own.
    pub keepalive: Duration,
    /// Most connections to one member over all workers. Default 128: Jetty has 200 threads.
    pub connections_max: u32,
    /// Most requests that wait for a member at once. Default 10,000.
    pub queue_max: u32,
    /// Time that a request may wait for a member. Default 8 min: an agent waits 10 min for its answer, and 90 s is a slow
    /// catalog.
    pub queue_wait_max: Duration,
    /// Requests of one client that hold a JRuby at once. Default 2: an agent sends one at a time, and may run twice.
    pub agent_max: u32,
    /// Requests of one client that wait beside those. Default 4.
    pub agent_queue_max: u32,
    /// Longest time after which an agent that the queue has sent away comes back. Default 30 min: the run interval.
    pub retry_after_max: Duration,
    /// The header that connections which are passed through begin with, and probes of the same port. Default none.
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
            tunnel_idle_timeout: Duration::from_secs(900),
            keepalive: Duration::from_secs(20),
            connections_max: 128,
            queue_max: 10_000,
            queue_wait_max: Duration::from_secs(480),
            agent_max: 2,
            agent_queue_max: 4,
            retry_after_max: Duration::from_secs(1800),
            send_proxy: SendProxy::Off,
        }
    }
}
