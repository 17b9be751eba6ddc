//! The rustls configurations: towards clients and towards members.

use std::fmt;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{
    ClientHello, ProducesTickets, ResolvesServerCert, ServerSessionMemoryCache,
    StoresServerSessions,
};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, ClientConfig, ServerConfig};

use crate::credential::Credential;
use crate::member::MemberVerifier;
use crate::problem::PkiProblem;
use crate::store::TrustStore;
use crate::verifier::{ClientCert, ClientVerifier, ListenerPolicy, OnInvalid};

/// What [`client_config`] makes, for those that keep it and hand it on and know no TLS themselves.
pub use rustls::ClientConfig as MemberTlsConfig;

/// The keys of session tickets and the sessions of clients without tickets, one set for each listener policy.
///
/// A session carries the client's chain past the verifier, so a session made under one policy must mean nothing
/// under another: that was CVE-2025-23419 (nginx) and CVE-2025-23048 (httpd). Keep one value for the life of the
/// process: sessions then survive reloads, and are judged anew when resumed.
pub struct TicketKeys {
    sets: Vec<(ListenerPolicy, SessionSet)>,
}

struct SessionSet {
    ticketer: Arc<dyn ProducesTickets>,
    sessions: Arc<dyn StoresServerSessions>,
}

impl TicketKeys {
    /// Makes fresh keys; they are rotated every six hours.
    ///
    /// # Errors
    /// No randomness to be had.
    pub fn new() -> Result<Self, PkiProblem> {
        let mut sets = Vec::new();
        for client_cert in [ClientCert::Optional, ClientCert::Required] {
            for on_invalid in [OnInvalid::Defer, OnInvalid::Abort] {
                let policy = ListenerPolicy {
                    client_cert,
                    on_invalid,
                };
                let set = SessionSet {
                    ticketer: aws_lc_rs::Ticketer::new().map_err(problem)?,
                    sessions: ServerSessionMemoryCache::new(SERVER_SESSIONS_MAX),
                };
                sets.push((policy, set));
            }
        }
        Ok(Self { sets })
    }

    fn of(&self, policy: ListenerPolicy) -> Option<&SessionSet> {
        let mut sets = self.sets.iter();
        sets.find(|(known, _)| *known == policy).map(|(_, set)| set)
    }
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKeys").finish_non_exhaustive()
    }
}

/// The configuration of a listener: TLS 1.2 and 1.3, HTTP/1.1, our order of ciphers, tickets of its policy alone.
///
/// The first credential is shown whose signature the client can check.
///
/// # Errors
/// No credential, or one that rustls will not take.
pub fn server_config(
    verifier: Arc<ClientVerifier>,
    credentials: &[Credential],
    tickets: &TicketKeys,
) -> Result<Arc<ServerConfig>, PkiProblem> {
    if credentials.is_empty() {
        return Err(PkiProblem::Tls("no certificate to show to clients".into()));
    }
    let keys = credentials.iter().map(Credential::certified_key);
    let sessions = tickets
        .of(verifier.policy())
        .ok_or_else(|| PkiProblem::Tls("no ticket keys for this policy".into()))?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(problem)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(FirstThatFits(keys.map(Arc::new).collect())));
    config.ignore_client_order = true;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.ticketer = Arc::clone(&sessions.ticketer);
    config.session_storage = Arc::clone(&sessions.sessions);
    // An agent opens its connections one after the other, and each brings a new ticket.
    config.send_tls13_tickets = 1;
    // Early data can be replayed, and a catalog request is no harmless thing to replay.
    config.max_early_data_size = 0;
    Ok(Arc::new(config))
}

/// Shows the first certificate whose signature the client can check: with an ECDSA one before an RSA one, those that
/// know no elliptic curves are served too.
#[derive(Debug)]
struct FirstThatFits(Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for FirstThatFits {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let known = hello.signature_schemes();
        let fits = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(known).is_some();
        // Where none fits, the handshake ends with the alert that says so.
        self.0.iter().find(fits).or_else(|| self.0.first()).cloned()
    }
}

/// The configuration for members: verified against bundle and CRLs of `trust`, by the name that is dialled.
///
/// A resumed session skips the verifier, and this side's sessions live in the configuration: make a new one for each
/// trust generation, and no session outlives the trust it was verified under. `server_name_indication`: whether the
/// member is told which name is wanted of it before it shows its certificate; it is verified either way.
///
/// # Errors
/// A credential that rustls will not take.
pub fn client_config(
    trust: &Arc<TrustStore>,
    credential: Option<&Credential>,
    server_name_indication: bool,
) -> Result<Arc<ClientConfig>, PkiProblem> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(problem)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(MemberVerifier::new(Arc::clone(trust))));
    let mut config = match credential {
        Some(credential) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(
            credential.certified_key(),
        ))),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::in_memory_sessions(MEMBER_SESSIONS_MAX);
    config.enable_early_data = false;
    config.enable_sni = server_name_indication;
    Ok(Arc::new(config))
}

/// aws-lc-rs, AES-128 before AES-256: a sixth less CPU for a resumed handshake, and nobody breaks either.
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

/// Sessions of TLS 1.2 clients that take no tickets. Few do not, and each holds a chain.
const SERVER_SESSIONS_MAX: usize = 1024;

/// Sessions with members, by name.
const MEMBER_SESSIONS_MAX: usize = 256;
