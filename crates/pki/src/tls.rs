//! The rustls configurations: towards clients and towards members.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{ProducesTickets, ServerSessionMemoryCache, StoresServerSessions};
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, ClientConfig, ServerConfig};

use crate::credential::Credential;
use crate::member::MemberVerifier;
use crate::problem::PkiProblem;
use crate::settings::MemberNames;
use crate::shown::ShownCredentials;
use crate::store::TrustStore;
use crate::verifier::{ClientVerifier, ListenerPolicy};

/// What [`client_config`] makes, for those that keep it and hand it on and know no TLS themselves.
pub use rustls::ClientConfig as MemberTlsConfig;

/// The keys of session tickets and the sessions of clients without tickets, one set for each listener and policy.
///
/// A session carries the client's chain past the verifier, so a session made on one listener must mean nothing on
/// another, nor under another policy of its own: that was CVE-2025-23419 (nginx) and CVE-2025-23048 (httpd). Keep one
/// value for the life of the process: sessions then survive reloads, and are judged anew when resumed.
#[derive(Default)]
pub struct TicketKeys {
    sets: Mutex<HashMap<(String, ListenerPolicy), SessionSet>>,
}

#[derive(Clone)]
struct SessionSet {
    ticketer: Arc<dyn ProducesTickets>,
    sessions: Arc<dyn StoresServerSessions>,
}

impl TicketKeys {
    /// Forgets the keys of listeners that are no more: one that is added later under such a name begins anew.
    pub fn retain(&self, is_named: impl Fn(&str) -> bool) {
        self.sets().retain(|(listener, _), _| is_named(listener));
    }

    /// Those of a listener; fresh ones where it has none yet. They are rotated every six hours.
    fn of(&self, listener: &str, policy: ListenerPolicy) -> Result<SessionSet, PkiProblem> {
        match self.sets().entry((listener.to_owned(), policy)) {
            Entry::Occupied(known) => Ok(known.get().clone()),
            Entry::Vacant(vacant) => Ok(vacant.insert(SessionSet::new()?).clone()),
        }
    }

    fn sets(&self) -> MutexGuard<'_, HashMap<(String, ListenerPolicy), SessionSet>> {
        self.sets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionSet {
    fn new() -> Result<Self, PkiProblem> {
        Ok(Self {
            ticketer: aws_lc_rs::Ticketer::new().map_err(problem)?,
            sessions: ServerSessionMemoryCache::new(SERVER_SESSIONS_MAX),
        })
    }
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKeys").finish_non_exhaustive()
    }
}

/// What a listener offers to speak above TLS (ALPN). Clients that ask for nothing are spoken to in HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocols {
    /// HTTP/1.1 alone.
    Http1,
    /// HTTP/2 before HTTP/1.1.
    Http2,
}

/// The configuration of a listener: TLS 1.2 and 1.3, our order of ciphers, tickets of its own.
///
/// # Errors
/// No randomness to be had, or a provider that rustls will not take.
pub fn server_config(
    listener: &str,
    verifier: Arc<ClientVerifier>,
    credentials: &Arc<ShownCredentials>,
    tickets: &TicketKeys,
    protocols: Protocols,
) -> Result<Arc<ServerConfig>, PkiProblem> {
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
    config.ticketer = sessions.ticketer;
    config.session_storage = sessions.sessions;
    // An agent opens its connections one after the other, and each brings a new ticket.
    config.send_tls13_tickets = 1;
    // Early data can be replayed, and a catalog request is no harmless thing to replay.
    config.max_early_data_size = 0;
    Ok(Arc::new(config))
}

/// The configuration for members: verified against bundle and CRLs of `trust`, by the name that is dialled.
///
/// A resumed session skips the verifier, and this side's sessions live in the configuration: make a new one for each
/// trust generation, and no session outlives the trust it was verified under.
///
/// # Errors
/// A credential that rustls will not take.
pub fn client_config(
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
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::in_memory_sessions(MEMBER_SESSIONS_MAX);
    config.enable_early_data = false;
    config.enable_sni = names.indicated;
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
