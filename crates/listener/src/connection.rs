//! What is known of a connection once its handshake is done.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use identity::{ClientIdentity, IdentityHeaders};
use pki::{ChainVerification, TrustStore};
use rustls::{ServerConnection, pki_types::CertificateDer, pki_types::UnixTime};
use tokio::net::TcpStream;

use crate::{
    activity::{Activity, TlsIo},
    gate::Permit,
    settings::InvalidCertPolicy,
};

/// What has become of an accepted connection.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are of the large variant, and a box would be an allocation for each"
)]
pub enum Accepted {
    /// TLS is terminated: requests follow.
    Http(Connection),
    /// Its bytes go to a member as they are.
    Passthrough(Box<RawConnection>),
}

/// A connection whose bytes are passed through. Nothing is known of the client but its address.
#[derive(Debug)]
pub struct RawConnection {
    /// The socket.
    pub stream: TcpStream,
    /// What was read of it already: the client's hello, where the server name decided.
    pub read: Vec<u8>,
    /// Name of the listener.
    pub listener: Arc<str>,
    /// Where it comes from.
    pub origin: Origin,
    /// The server name that the client requested, where that was read.
    pub server_name: Option<Box<str>>,
    /// Name of the pool that gets it.
    pub pool: Box<str>,
    /// Its place among the listener's connections.
    pub permit: Permit,
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The client's address.
    pub client: SocketAddr,
    /// The address of the load balancer in front, where its PROXY header named the client.
    pub peer: Option<SocketAddr>,
}

/// An authenticated connection, ready for requests.
#[derive(Debug)]
pub struct Connection {
    /// The transport, above TLS.
    pub io: TlsIo,
    /// Its times and stage.
    pub activity: Arc<Activity>,
    /// Who is at the other end.
    pub downstream: Downstream,
    /// Who the client was found to be at the handshake.
    pub verdict: ClientVerdict,
    /// Its place among the listener's connections.
    pub permit: Permit,
}

/// The facts of a connection that do not change while it lives.
#[derive(Debug)]
pub struct Downstream {
    /// Name of the listener.
    pub listener: Arc<str>,
    /// What becomes of a refused certificate.
    pub on_invalid: InvalidCertPolicy,
    /// The client's address.
    pub client: SocketAddr,
    /// The address of the load balancer in front, where its PROXY header named the client.
    pub peer: Option<SocketAddr>,
    /// Our port.
    pub port: u16,
    /// What was agreed; none without TLS.
    pub tls: Option<NegotiatedTls>,
}

/// What TLS agreed on.
#[derive(Clone, Debug)]
pub struct NegotiatedTls {
    /// `TLSv1.2` or `TLSv1.3`.
    pub version: &'static str,
    /// Cipher suite by its IANA name.
    pub cipher: &'static str,
    /// Server name asked for.
    pub server_name: Option<Arc<str>>,
    /// Whether a session was resumed.
    pub resumed: bool,
    /// How long the handshake took, waiting for a place included.
    pub took: Duration,
    /// Whether HTTP/2 was agreed on (ALPN `h2`); otherwise HTTP/1.1 is spoken.
    pub http2: bool,
}

impl NegotiatedTls {
    pub(crate) fn of(connection: &ServerConnection, took: Duration) -> Self {
        Self {
            version: match connection.protocol_version() {
                Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2",
                _ => "TLSv1.3",
            },
            cipher: connection
                .negotiated_cipher_suite()
                .and_then(|suite| suite.suite().as_str())
                .unwrap_or("-"),
            server_name: connection.server_name().map(Arc::from),
            resumed: connection.handshake_kind() == Some(rustls::HandshakeKind::Resumed),
            took,
            http2: connection.alpn_protocol() == Some(b"h2"),
        }
    }
}

/// Who the client is by the trust store that was last asked, ready for records and requests.
#[derive(Clone, Debug)]
pub struct ClientVerdict {
    /// What the trust store said.
    pub verification: ChainVerification,
    /// The same, ready to be stamped on requests.
    pub headers: Arc<IdentityHeaders>,
    /// `SUCCESS`, `NONE` or `FAILED:reason`.
    pub verdict: Arc<str>,
    /// Name of a verified agent.
    pub certname: Option<Arc<str>>,
}

impl ClientVerdict {
    /// Judges the certificates a client presented, its own first; none: anonymous.
    pub fn verify(trust: &TrustStore, presented: &[CertificateDer<'_>], now: UnixTime) -> Self {
        Self::of(trust.verify(presented, now))
    }

    /// Judges anew after a change of trust, or after something on the chain has run out.
    pub fn reverify(&self, trust: &TrustStore, now: UnixTime) -> Self {
        Self::of(trust.reverify(&self.verification, now))
    }

    /// The same by another trust store, where looking serials up is enough for it.
    pub fn confirmed(&self, trust: &TrustStore, now: UnixTime) -> Option<Self> {
        trust.confirmed(&self.verification, now).map(Self::of)
    }

    /// Who the client is.
    pub fn identity(&self) -> &ClientIdentity {
        &self.verification.identity
    }

    /// Whether the client's certificate is refused.
    pub fn is_refused(&self) -> bool {
        matches!(self.verification.identity, ClientIdentity::Refused(_))
    }

    /// The name that a refused certificate says, for records.
    pub fn claimed(&self) -> Option<Arc<str>> {
        let ClientIdentity::Refused(refusal) = &self.verification.identity else {
            return None;
        };
        let claimed = refusal.claimed.as_ref();
        claimed.map(|certname| certname.as_str().into())
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
