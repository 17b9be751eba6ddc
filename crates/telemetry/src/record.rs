//! The access record: one struct for each exchange and each refused handshake.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use balancing::Work;

use crate::{line::KnownClient, request_fields::RequestFieldsCopy};

/// What is told of one exchange, or of one handshake that was refused.
///
/// It is cheap to fill: names are shared, what the client said is one bounded copy, and all formatting happens where it
/// is written.
#[derive(Clone, Debug)]
pub struct AccessRecord {
    /// When the request's head was whole, or the handshake refused.
    pub when: SystemTime,
    /// Where it was accepted.
    pub listener: Arc<str>,
    /// The client's address, from the PROXY header where the listener accepts one.
    pub client: SocketAddr,
    /// The address of the load balancer that sent this header.
    pub peer: Option<IpAddr>,
    /// Name in the client's certificate; proven only beside the verdict `SUCCESS`.
    pub certname: Option<Arc<str>>,
    /// `SUCCESS`, `NONE` or `FAILED:reason`; none where there is none yet.
    pub verdict: Option<Arc<str>>,
    /// TLS of the connection.
    pub tls: Option<Arc<TlsFacts>>,
    /// Where the connection was passed through: the server name that the client requested, if the proxy has read it.
    pub passthrough: Option<Passthrough>,
    /// What the client said.
    pub request_fields: RequestFieldsCopy,
    /// `HTTP/2`, `HTTP/1.1` or `HTTP/1.0`; none for a handshake.
    pub http_version: Option<&'static str>,
    /// Status code sent, 499 when the client went away before; none for a handshake.
    pub status: Option<u16>,
    /// Bytes of the request's body; of a connection that was passed through, those that the member took.
    pub bytes_in: u64,
    /// Bytes of the response's body; of a connection that was passed through, those that the client took.
    pub bytes_out: u64,
    /// Route taken.
    pub route: Option<Arc<str>>,
    /// Endpoint class.
    pub class: Option<&'static str>,
    /// Kind of work that it is for a Puppet server.
    pub work: Option<Work>,
    /// Pool chosen.
    pub pool: Option<Arc<str>>,
    /// Member of the last attempt.
    pub member: Option<Arc<str>>,
    /// Attempts made.
    pub attempts: u32,
    /// What took how long.
    pub times: Times,
    /// Why it was refused or failed, in kebab case: `revoked`, `route-not-found`, `connect-refused`.
    pub reason: Option<&'static str>,
    /// The access rule that would have refused it, had it not only observed.
    pub observed: Option<Arc<str>>,
    /// The chain of causes behind a failure, for people.
    pub cause: Option<Box<str>>,
    /// Who ended it.
    pub ended_by: EndedBy,
    /// What its line has in common with others.
    pub known_client: Option<Arc<KnownClient>>,
}

/// A connection whose bytes were passed through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passthrough {
    /// The server name that the client requested; none where it was not read.
    pub server_name: Option<Box<str>>,
}

/// What took how long; none where it did not happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The connection's handshake; on its first exchange only.
    pub handshake: Option<Duration>,
    /// Waiting in the queue of the pool, for all attempts together; none if the request did not wait.
    pub queue: Option<Duration>,
    /// Connecting to the member, TLS and all; none on a kept connection.
    pub connect: Option<Duration>,
    /// From the request's head to the response's head.
    pub first_byte: Option<Duration>,
    /// From the request's head to the last byte.
    pub total: Option<Duration>,
}

/// TLS of a connection, made once and shared by its records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFacts {
    /// `TLSv1.3` or `TLSv1.2`.
    pub version: &'static str,
    /// Cipher suite.
    pub cipher: &'static str,
    /// Whether a session was resumed.
    pub resumed: bool,
    /// Name the client asked for.
    pub sni: Option<Box<str>>,
}

/// Who ended an exchange or a handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndedBy {
    /// It ran to its end, or we ended it.
    #[default]
    Proxy,
    /// The client went away.
    Client,
    /// The member went away.
    Member,
}

impl AccessRecord {
    /// A record of which no more is known than who, where and when.
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

    /// Whether bytes went anywhere: not in a handshake that was refused.
    pub(crate) fn has_bytes(&self) -> bool {
        self.status.is_some() || self.passthrough.is_some()
    }

    /// The server name that the client requested.
    pub(crate) fn server_name(&self) -> Option<&str> {
        match (&self.tls, &self.passthrough) {
            (Some(tls), _) => tls.sni.as_deref(),
            (None, Some(passthrough)) => passthrough.server_name.as_deref(),
            (None, None) => None,
        }
    }

    /// The certname, where a verified chain proves it.
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
