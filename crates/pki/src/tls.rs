//! The rustls configurations for clients and for members.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, ClientConfig, ServerConfig};

use crate::client_verifier::ClientVerifier;
use crate::credential::Credential;
use crate::listener_credentials::ListenerCredentials;
use crate::member_verifier::MemberVerifier;
use crate::problem::PkiProblem;
use crate::sessions::{ServerTls, TicketKeys};
use crate::settings::MemberNames;
use crate::store::TrustStore;

/// The result of [`client_config`], for crates that pass it on without depending on rustls.
pub use rustls::ClientConfig as MemberTlsConfig;

/// The ALPN protocols of a listener. A client that offers none gets HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocols {
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2, then HTTP/1.1.
    Http2,
}

/// The TLS configuration of a listener: versions 1.2 and 1.3, the proxy's order of ciphers, and sessions of the listener's own,
/// which clients may resume within `session_lifetime`.
///
/// # Errors
/// The system provides no random bytes, or rustls refuses the provider.
pub fn server_config(
    listener: &str,
    verifier: Arc<ClientVerifier>,
    credentials: &Arc<ListenerCredentials>,
    tickets: &TicketKeys,
    session_lifetime: Duration,
    protocols: Protocols,
) -> Result<Arc<ServerTls>, PkiProblem> {
    let sessions = tickets.of(listener, verifier.policy())?;
    let credentials = Arc::clone(credentials);
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(problem)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(credentials);
    config.ignore_client_order = true;
    config.alpn_protocols = match protocols {
        Protocols::Http1 => vec![b"http/1.1".to_vec()],
        Protocols::Http2 => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
    };
    // An agent opens its connections one after the other, and each connection gets a new ticket.
    config.send_tls13_tickets = 1;
    // Early data can be replayed, and replaying a catalog request has effects.
    config.max_early_data_size = 0;
    Ok(Arc::new(sessions.serve(config, session_lifetime)))
}

/// The TLS configuration for members. A member is verified with the bundle and CRLs of `trust`, for the name to which the proxy
/// connects.
///
/// A resumed session skips the verifier, and the configuration stores these sessions. Create a new configuration for each
/// generation of the trust store, so that no session outlives the trust store with which it was verified.
///
/// # Errors
/// A credential that rustls refuses.
pub fn client_config(
    trust: &Arc<TrustStore>,
    credential: Option<&Credential>,
    names: MemberNames,
) -> Result<Arc<ClientConfig>, PkiProblem> {
    client_config_for(b"http/1.1", trust, credential, names)
}

/// The same configuration for gRPC, which needs HTTP/2.
///
/// # Errors
/// A credential that rustls refuses.
pub fn grpc_client_config(
    trust: &Arc<TrustStore>,
    credential: &Credential,
) -> Result<Arc<ClientConfig>, PkiProblem> {
    let names = MemberNames {
        indicated: true,
        from_cn: false,
    };
    client_config_for(b"h2", trust, Some(credential), names)
}

fn client_config_for(
    protocol: &[u8],
    trust: &Arc<TrustStore>,
    credential: Option<&Credential>,
    names: MemberNames,
) -> Result<Arc<ClientConfig>, PkiProblem> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(problem)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(MemberVerifier::new(
            Arc::clone(trust),
            names.from_cn,
        )));
    let mut config = match credential {
        Some(credential) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(
            credential.certified_key(),
        ))),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    config.resumption = Resumption::in_memory_sessions(MEMBER_SESSIONS_MAX);
    config.enable_early_data = false;
    config.enable_sni = names.indicated;
    Ok(Arc::new(config))
}

/// The provider of aws-lc-rs, with AES-128 before AES-256. Both are secure, and AES-128 saves a sixth of the CPU time of a
/// resumed handshake.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    provider
        .cipher_suites
        .sort_by_key(|suite| match suite.suite() {
            CipherSuite::TLS13_AES_128_GCM_SHA256 => 0,
            CipherSuite::TLS13_AES_256_GCM_SHA384 => 1,
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => 2,
            CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => 3,
            _ => 4,
        });
    Arc::new(provider)
}

#[expect(clippy::needless_pass_by_value, reason = "the shape of map_err")]
fn problem(error: rustls::Error) -> PkiProblem {
    PkiProblem::Tls(error.to_string())
}

/// Maximum number of stored sessions with members, by name.
const MEMBER_SESSIONS_MAX: usize = 256;
