//! The access record. There is one for each exchange and for each refused handshake.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use balancing::Work;

use crate::{line::KnownClient, request_fields::RequestFieldsCopy};

/// The facts of one exchange, or of one refused handshake.
///
/// It is cheap to fill: names are shared, the client's data is one bounded copy, and the record is formatted where it is
/// written.
#[derive(Clone, Debug)]
pub struct AccessRecord {
    /// When the request's head was complete, or the handshake was refused.
    pub when: SystemTime,
    /// The listener.
    pub listener: Arc<str>,
    /// The client's address, or the address in the PROXY header if the listener accepts one.
    pub client: SocketAddr,
    /// The address of the load balancer that sent the PROXY header.
    pub peer: Option<IpAddr>,
    /// The name in the client's certificate. It is proven only if the verdict is `SUCCESS`.
    pub certname: Option<Arc<str>>,
    /// `SUCCESS`, `NONE` or `FAILED:reason`; none before the verdict.
    pub verdict: Option<Arc<str>>,
    /// The TLS parameters of the connection.
    pub tls: Option<Arc<TlsFacts>>,
    /// Set for a passed-through connection: the server name that the client requested, if the proxy has read it.
    pub passthrough: Option<Passthrough>,
    /// What the client sent.
    pub request_fields: RequestFieldsCopy,
    /// `HTTP/2`, `HTTP/1.1` or `HTTP/1.0`; none for a handshake.
    pub http_version: Option<&'static str>,
    /// Status code sent, or 499 if the client closed the connection before; none for a handshake.
    pub status: Option<u16>,
    /// Bytes of the request's body; for a passed-through connection, bytes sent to the member.
    pub bytes_in: u64,
    /// Bytes of the response's body; for a passed-through connection, bytes sent to the client.
    pub bytes_out: u64,
    /// The route.
    pub route: Option<Arc<str>>,
    /// The class of the endpoint.
    pub class: Option<&'static str>,
    /// The kind of work for a Puppet Server.
    pub work: Option<Work>,
    /// The pool.
    pub pool: Option<Arc<str>>,
    /// The member of the last attempt.
    pub member: Option<Arc<str>>,
    /// The number of attempts.
    pub attempts: u32,
    /// Durations.
    pub times: Times,
    /// Why it was refused or failed, in kebab case: `revoked`, `route-not-found`, `connect-refused`.
    pub reason: Option<&'static str>,
    /// The access rule that would have refused the request if the rule did not only observe.
    pub observed: Option<Arc<str>>,
    /// The chain of causes of a failure, for human readers.
    pub cause: Option<Box<str>>,
    /// Which side ended the exchange or handshake.
    pub ended_by: EndedBy,
    /// The part of the record's line that it has in common with other records.
    pub known_client: Option<Arc<KnownClient>>,
}

/// A passed-through connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passthrough {
    /// The server name that the client requested; none where it was not read.
    pub server_name: Option<Box<str>>,
}

/// Durations. A step that did not happen has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Duration of the connection's handshake. Set only for the first exchange of a connection.
    pub handshake: Option<Duration>,
    /// Waiting in the queue of the pool, for all attempts together; none if the request did not wait.
    pub queue: Option<Duration>,
    /// Connecting to the member, TLS included; none on a reused connection.
    pub connect: Option<Duration>,
    /// From the request's head to the response's head.
    pub first_byte: Option<Duration>,
    /// From the request's head to the last byte.
    pub total: Option<Duration>,
}

/// The TLS parameters of a connection. They are determined once and shared by its records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFacts {
    /// `TLSv1.3` or `TLSv1.2`.
    pub version: &'static str,
    /// Cipher suite.
    pub cipher: &'static str,
    /// Whether a session was resumed.
    pub resumed: bool,
    /// Server name that the client requested.
    pub sni: Option<Box<str>>,
}

/// Which side ended an exchange or a handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndedBy {
    /// It completed, or the proxy ended it.
    #[default]
    Proxy,
    /// The client closed the connection.
    Client,
    /// The member closed the connection.
    Member,
}

impl AccessRecord {
    /// A record with address, listener and time only.
    pub fn new(when: SystemTime, listener: Arc<str>, client: SocketAddr) -> Self {
        Self {
            when,
            listener,
            client,
            peer: None,
            passthrough: None,
            certname: None,
            verdict: None,
            tls: None,
            request_fields: RequestFieldsCopy::default(),
            http_version: None,
            status: None,
            bytes_in: 0,
            bytes_out: 0,
            route: None,
            class: None,
            work: None,
            pool: None,
            member: None,
            attempts: 0,
            times: Times::default(),
            reason: None,
            observed: None,
            cause: None,
            ended_by: EndedBy::default(),
            known_client: None,
        }
    }

    /// Whether bytes were transferred. A refused handshake transfers none.
    pub(crate) fn has_bytes(&self) -> bool {
        self.status.is_some() || self.passthrough.is_some()
    }

    pub(crate) fn server_name(&self) -> Option<&str> {
        match (&self.tls, &self.passthrough) {
            (Some(tls), _) => tls.sni.as_deref(),
            (None, Some(passthrough)) => passthrough.server_name.as_deref(),
            (None, None) => None,
        }
    }

    /// The certname, if a verified chain proves it.
    pub fn proven_certname(&self) -> Option<&str> {
        match self.verdict.as_deref() {
            Some("SUCCESS") => self.certname.as_deref(),
            _ => None,
        }
    }
}

impl EndedBy {
    /// The word in records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Proxy => "proxy",
            Self::Client => "client",
            Self::Member => "member",
        }
    }
}
