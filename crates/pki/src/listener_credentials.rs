//! The certificates of a listener. The requested server name decides which certificate a client gets, and then the signature
//! schemes that the client supports.
//!
//! As in clients, only names in the subjectAltName count. A certificate without subjectAltName is valid for no name, and a
//! client gets it only if no other certificate fits better.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{SignatureAlgorithm, SignatureScheme};

use crate::credential::Credential;
use crate::problem::PkiProblem;

/// The credentials of one listener, in the order of the configuration.
#[derive(Debug)]
pub struct ListenerCredentials {
    keys: Vec<Arc<CertifiedKey>>,
    /// Indexes of `keys` by lower-case name. A wildcard is stored without its `*`, for example `.example.com`.
    exact: HashMap<String, Vec<usize>>,
    wildcard: HashMap<String, Vec<usize>>,
    have_rsa: bool,
}

impl ListenerCredentials {
    /// Indexes credentials by the names for which they are valid.
    ///
    /// # Errors
    /// The list of credentials is empty.
    pub fn new<'c>(
        credentials: impl IntoIterator<Item = &'c Credential>,
    ) -> Result<Self, PkiProblem> {
        let mut shown = Self {
            keys: Vec::new(),
            exact: HashMap::new(),
            wildcard: HashMap::new(),
            have_rsa: false,
        };
        for credential in credentials {
            for name in credential.names() {
                let name = name.to_ascii_lowercase();
                let positions = match name.strip_prefix('*') {
                    Some(rest) => shown.wildcard.entry(rest.to_owned()),
                    None => shown.exact.entry(name),
                };
                positions.or_default().push(shown.keys.len());
            }
            let key = credential.certified_key();
            shown.have_rsa |= key.key.algorithm() == SignatureAlgorithm::RSA;
            shown.keys.push(Arc::new(key));
        }
        if shown.keys.is_empty() {
            Err(PkiProblem::Tls(
                "no certificate to present to clients".into(),
            ))
        } else {
            Ok(shown)
        }
    }

    /// Whether a certificate is valid for a requested server name.
    pub fn are_valid_for(&self, name: &str) -> bool {
        self.valid_for(&name.to_ascii_lowercase()).next().is_some()
    }

    /// Whether no certificate is valid for any name.
    pub fn have_no_names(&self) -> bool {
        self.exact.is_empty() && self.wildcard.is_empty()
    }

    /// Whether one of the keys is an RSA key. An RSA signature costs 50 to 100 times as much as one with ECDSA or Ed25519.
    pub fn have_rsa(&self) -> bool {
        self.have_rsa
    }

    /// The credentials that are valid for a lower-case name: exact names first, then wildcards. A `*` matches only the first
    /// label (RFC 6125, 6.4.3).
    fn valid_for(&self, name: &str) -> impl Iterator<Item = &Arc<CertifiedKey>> {
        let rest = name.find('.').map(|dot| &name[dot..]);
        let wildcard = rest.and_then(|rest| self.wildcard.get(rest));
        let positions = self.exact.get(name).into_iter().chain(wildcard).flatten();
        positions.filter_map(|position| self.keys.get(*position))
    }

    fn choose(&self, name: Option<&str>, known: &[SignatureScheme]) -> Option<&Arc<CertifiedKey>> {
        let fits = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(known).is_some();
        let name = name.map(str::to_ascii_lowercase).unwrap_or_default();
        let mut valid = self.valid_for(&name).peekable();
        // If no credential fits, the handshake fails with the appropriate alert. A certificate for another name would not help.
        match valid.peek().copied() {
            Some(first) => valid.find(fits).or(Some(first)),
            None => self.keys.iter().find(fits).or_else(|| self.keys.first()),
        }
    }
}

impl ResolvesServerCert for ListenerCredentials {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let chosen = self.choose(hello.server_name(), hello.signature_schemes());
        chosen.cloned()
    }
}
