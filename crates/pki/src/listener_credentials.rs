//! The certificates of a listener, and which of them a client is shown: by the name it asks for, then by the
//! signatures it can check.
//!
//! Names are read from the subjectAltName alone, as clients read them. A certificate without one is good for no name:
//! it is shown only to those for whom no other would be any better.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::credential::Credential;
use crate::problem::PkiProblem;

/// The credentials of one listener, in the order of the configuration.
#[derive(Debug)]
pub struct ListenerCredentials {
    keys: Vec<Arc<CertifiedKey>>,
    /// Places in `keys` by a name in lower case; those of wildcards by what follows the `*`: `.example.com`.
    exact: HashMap<String, Vec<usize>>,
    wildcard: HashMap<String, Vec<usize>>,
}

impl ListenerCredentials {
    /// Sorts credentials by the names that they are good for.
    ///
    /// # Errors
    /// No credential.
    pub fn new<'c>(
        credentials: impl IntoIterator<Item = &'c Credential>,
    ) -> Result<Self, PkiProblem> {
        let mut shown = Self {
            keys: Vec::new(),
            exact: HashMap::new(),
            wildcard: HashMap::new(),
        };
        for credential in credentials {
            for name in credential.names() {
                let name = name.to_ascii_lowercase();
                let places = match name.strip_prefix('*') {
                    Some(rest) => shown.wildcard.entry(rest.to_owned()),
                    None => shown.exact.entry(name),
                };
                places.or_default().push(shown.keys.len());
            }
            shown.keys.push(Arc::new(credential.certified_key()));
        }
        match shown.keys.is_empty() {
            true => Err(PkiProblem::Tls(
                "no certificate to present to clients".into(),
            )),
            false => Ok(shown),
        }
    }

    /// Whether a certificate is good for a name that a client asks for.
    pub fn are_valid_for(&self, name: &str) -> bool {
        self.good_for(&name.to_ascii_lowercase()).next().is_some()
    }

    /// Whether no certificate is good for any name: with nobody to be served by name.
    pub fn have_no_names(&self) -> bool {
        self.exact.is_empty() && self.wildcard.is_empty()
    }

    /// Those that are good for a name in lower case: under their own name first, then as wildcards. A `*` stands for
    /// one label, the first (RFC 6125, 6.4.3).
    fn good_for(&self, name: &str) -> impl Iterator<Item = &Arc<CertifiedKey>> {
        let rest = name.find('.').map(|dot| &name[dot..]);
        let wildcard = rest.and_then(|rest| self.wildcard.get(rest));
        let places = self.exact.get(name).into_iter().chain(wildcard).flatten();
        places.filter_map(|place| self.keys.get(*place))
    }

    fn choose(&self, name: Option<&str>, known: &[SignatureScheme]) -> Option<&Arc<CertifiedKey>> {
        let fits = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(known).is_some();
        let name = name.map(str::to_ascii_lowercase).unwrap_or_default();
        let mut good = self.good_for(&name).peekable();
        // Where none fits, the handshake ends with the alert that says so: one of another name would be no better.
        match good.peek().copied() {
            Some(first) => good.find(fits).or(Some(first)),
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
