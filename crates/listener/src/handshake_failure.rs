//! Why a connection did not complete its TLS handshake.

use std::io;

use identity::Reason;
use rustls::PeerIncompatible;

use crate::{
    handshake_thread::Panicked,
    hello::{LongHello, UnknownName},
    plain_http::PlainHttp,
    preface::{NoBytes, PrefaceError},
    redirect::NotHttp,
    waiting::Displaced,
};

/// Why a handshake failed. A `match` on it names every variant, so that a new variant is not counted as another one by
/// accident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeFailure {
    /// The client closed the connection before it sent a byte. Load balancers and agents probe ports in this way.
    NoBytes,
    /// The client closed the connection, or the connection broke, during the handshake.
    ConnectionLost,
    /// The client did not complete the handshake within `handshake_timeout`.
    Timeout,
    /// The client kept its handshake waiting, and the proxy closed it at a limit to make room for another one.
    Displaced,
    /// The client ended the handshake with a TLS alert.
    ClientAlert,
    /// The client sent plain HTTP, and the proxy answered with status 400.
    PlainHttp,
    /// The client sent bytes that are neither a TLS handshake nor HTTP.
    NotTls,
    /// The client offered no TLS version from 1.2 on, like agents with Ruby before 2.0.
    OldTls,
    /// The client and the proxy have no cipher suite or other parameter in common.
    NoCommonTlsParameters,
    /// Any other error of the TLS protocol.
    Protocol,
    /// The client sent no certificate, and the listener requires one.
    NoCertificate,
    /// The proxy refused the client's certificate.
    Certificate(Reason),
    /// The client requested a server name that no certificate of the listener covers (`sni_strict`).
    UnrecognizedName,
    /// The client requested no server name (`sni_strict`).
    NoServerName,
    /// The connection does not come from a load balancer whose PROXY headers the listener accepts.
    ProxyPeer,
    /// The connection does not begin with a valid PROXY header.
    ProxyHeader,
    /// The ClientHello is longer than the proxy reads.
    LongHello,
    /// The client sent something other than HTTP to a listener that redirects plain HTTP.
    NotHttp,
    /// The proxy itself failed while it computed the handshake.
    Internal,
}

impl HandshakeFailure {
    /// The label in access records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoBytes => "no-data",
            Self::ConnectionLost => "connection-lost",
            Self::Timeout => "handshake-timeout",
            Self::Displaced => "handshake-displaced",
            Self::ClientAlert => "client-alert",
            Self::PlainHttp => "plain-http",
            Self::NotTls => "not-tls",
            Self::OldTls => "old-tls-version",
            Self::NoCommonTlsParameters => "no-common-tls-parameters",
            Self::Protocol => "handshake-failed",
            Self::NoCertificate => "no-certificate",
            Self::Certificate(reason) => reason.as_str(),
            Self::UnrecognizedName => "unrecognized-name",
            Self::NoServerName => "no-server-name",
            Self::ProxyPeer => "proxy-peer",
            Self::ProxyHeader => "proxy-header",
            Self::LongHello => "long-client-hello",
            Self::NotHttp => "not-http",
            Self::Internal => "internal-error",
        }
    }

    /// The failure that caused an error of the handshake.
    pub(crate) fn of(error: &io::Error) -> Self {
        let Some(source) = error.get_ref() else {
            return Self::ConnectionLost;
        };
        if source.is::<NoBytes>() {
            return Self::NoBytes;
        }
        if source.is::<PlainHttp>() {
            return Self::PlainHttp;
        }
        if source.is::<NotHttp>() {
            return Self::NotHttp;
        }
        if source.is::<Displaced>() {
            return Self::Displaced;
        }
        if source.is::<Panicked>() {
            return Self::Internal;
        }
        match source.downcast_ref::<PrefaceError>() {
            Some(PrefaceError::Peer) => return Self::ProxyPeer,
            Some(PrefaceError::Header(_)) => return Self::ProxyHeader,
            None => {}
        }
        if source.is::<LongHello>() {
            return Self::LongHello;
        }
        match source.downcast_ref::<UnknownName>() {
            Some(UnknownName::Unrecognized(_) | UnknownName::NotPassed(_)) => {
                return Self::UnrecognizedName;
            }
            Some(UnknownName::Missing) => return Self::NoServerName,
            None => {}
        }
        match source.downcast_ref::<rustls::Error>() {
            None => Self::ConnectionLost,
            Some(rustls::Error::NoCertificatesPresented) => Self::NoCertificate,
            Some(error @ rustls::Error::InvalidCertificate(_)) => {
                Self::Certificate(pki::handshake_reason(error).unwrap_or(Reason::Malformed))
            }
            Some(rustls::Error::AlertReceived(_)) => Self::ClientAlert,
            // A client that sends no signature algorithms is older than TLS 1.2, which introduced them.
            Some(rustls::Error::PeerIncompatible(
                PeerIncompatible::Tls12NotOffered
                | PeerIncompatible::Tls12NotOfferedOrEnabled
                | PeerIncompatible::SignatureAlgorithmsExtensionRequired,
            )) => Self::OldTls,
            Some(rustls::Error::PeerIncompatible(_)) => Self::NoCommonTlsParameters,
            Some(rustls::Error::InvalidMessage(_) | rustls::Error::InappropriateMessage { .. }) => {
                Self::NotTls
            }
            Some(_) => Self::Protocol,
        }
    }
}
