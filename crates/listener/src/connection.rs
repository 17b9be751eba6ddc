//! What the proxy knows of a connection after its handshake.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use identity::{ClientIdentity, IdentityHeaders};
use pki::{ChainVerification, TrustStore};
use rustls::{CommonState, pki_types::CertificateDer, pki_types::UnixTime};
use tokio::net::TcpStream;

use crate::{
    activity::{Activity, TlsIo},
    gate::Permit,
    settings::InvalidCertPolicy,
};

/// An accepted connection.
#[derive(Debug)]
pub enum Accepted {
    /// TLS is terminated, and requests follow.
    Http(Box<Connection>),
    /// The bytes go to a member unchanged.
    Passthrough(Box<RawConnection>),
}

/// A connection that is passed through. The proxy knows only the client's address.
#[derive(Debug)]
pub struct RawConnection {
    /// The socket.
    pub stream: TcpStream,
    /// The bytes that were already read: the ClientHello, if the server name decided about the connection.
    pub read: Vec<u8>,
    /// Name of the listener.
    pub listener: Arc<str>,
    /// Where the connection comes from.
    pub origin: Origin,
    /// The server name that the client requested, if the proxy read it.
    pub server_name: Option<Box<str>>,
    /// Name of the pool that gets the connection.
    pub pool: Box<str>,
    /// Its slot among the listener's connections.
    pub permit: Permit,
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The client's address.
    pub client: SocketAddr,
    /// The address of the load balancer, if its PROXY header named the client.
    pub peer: Option<SocketAddr>,
}

/// An authenticated connection, ready for requests.
#[derive(Debug)]
pub struct Connection {
    /// The transport, above TLS.
    pub io: TlsIo,
    /// Its times and stage.
    pub activity: Arc<Activity>,
    /// Facts about client and listener.
    pub downstream: Downstream,
    /// The verdict on the client at the handshake.
    pub verdict: ClientVerdict,
    /// Its slot among the listener's connections.
    pub permit: Permit,
}

/// The facts of a connection that do not change while it lives.
#[derive(Debug)]
pub struct Downstream {
    /// Name of the listener.
    pub listener: Arc<str>,
    /// How the listener treats clients with a refused certificate.
    pub on_invalid: InvalidCertPolicy,
    /// The client's address.
    pub client: SocketAddr,
    /// The address of the load balancer, if its PROXY header named the client.
    pub peer: Option<SocketAddr>,
    /// The listener's port.
    pub port: u16,
    /// The negotiated TLS parameters. `None` without TLS.
    pub tls: Option<NegotiatedTls>,
}

/// Negotiated TLS parameters.
#[derive(Clone, Debug)]
pub struct NegotiatedTls {
    /// `TLSv1.2` or `TLSv1.3`.
    pub version: &'static str,
    /// Cipher suite by its IANA name.
    pub cipher: &'static str,
    /// The server name that the client requested.
    pub server_name: Option<Arc<str>>,
    /// Whether a session was resumed.
    pub resumed: bool,
    /// How long the handshake took, including the wait for its turn.
    pub took: Duration,
    /// Whether HTTP/2 was negotiated (ALPN `h2`). Otherwise the connection uses HTTP/1.1.
    pub http2: bool,
}

impl NegotiatedTls {
    pub(crate) fn of(
        connection: &CommonState,
        server_name: Option<String>,
        took: Duration,
    ) -> Self {
        Self {
            version: match connection.protocol_version() {
                Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2",
                _ => "TLSv1.3",
            },
            cipher: connection
                .negotiated_cipher_suite()
                .and_then(|suite| suite.suite().as_str())
                .unwrap_or("-"),
            server_name: server_name.map(Arc::from),
            resumed: connection.handshake_kind() == Some(rustls::HandshakeKind::Resumed),
            took,
            http2: connection.alpn_protocol() == Some(b"h2"),
        }
    }
}

/// The last verdict of a trust store on a client, with the values that records and requests need.
#[derive(Clone, Debug)]
pub struct ClientVerdict {
    /// The verification by the trust store.
    pub verification: ChainVerification,
    /// The identity headers, ready to be stamped on requests.
    pub headers: Arc<IdentityHeaders>,
    /// `SUCCESS`, `NONE` or `FAILED:reason`.
    pub verdict: Arc<str>,
    /// The certname of a verified agent.
    pub certname: Option<Arc<str>>,
}

impl ClientVerdict {
    /// Verifies the certificates that a client presented. The first is the client's own. A client without certificates is
    /// anonymous.
    pub fn verify(trust: &TrustStore, presented: &[CertificateDer<'_>], now: UnixTime) -> Self {
        Self::of(trust.verify(presented, now))
    }

    /// Verifies the client again, after the trust store has changed or a part of the chain has expired.
    pub fn reverify(&self, trust: &TrustStore, now: UnixTime) -> Self {
        Self::of(trust.reverify(&self.verification, now))
    }

    /// The verdict by another trust store, if looking up serials is enough to confirm it.
    pub fn confirmed(&self, trust: &TrustStore, now: UnixTime) -> Option<Self> {
        trust.confirmed(&self.verification, now).map(Self::of)
    }

    /// The client's identity.
    pub fn identity(&self) -> &ClientIdentity {
        &self.verification.identity
    }

    /// Whether the client's certificate is refused.
    pub fn is_refused(&self) -> bool {
        matches!(self.verification.identity, ClientIdentity::Refused(_))
    }

    /// The unverified certname in a refused certificate, for records.
    pub fn claimed(&self) -> Option<Arc<str>> {
        let ClientIdentity::Refused(refusal) = &self.verification.identity else {
            return None;
        };
        let claimed = refusal.claimed.as_ref();
        claimed.map(|certname| certname.as_str().into())
    }

    /// Whether a trusted CA proves the name of the client, although its certificate may be refused.
    pub fn has_proven_name(&self) -> bool {
        match &self.verification.identity {
            ClientIdentity::Verified(_) => true,
            ClientIdentity::Refused(refusal) => refusal.is_issued,
            ClientIdentity::Anonymous => false,
        }
    }

    fn of(verification: ChainVerification) -> Self {
        let identity = &verification.identity;
        Self {
            headers: Arc::new(IdentityHeaders::new(
                identity,
                verification.presented.first().map(AsRef::as_ref),
            )),
            verdict: identity.verdict().to_string().into(),
            certname: identity
                .agent()
                .map(|agent| agent.certname().as_str().into()),
            verification,
        }
    }
}
