//! Whether what a CA gives out as its own certificates may be handed on in its place.

use rustls_pki_types::pem::{PemObject, SectionKind};

use crate::certificate::Certificate;
use crate::store::TrustStore;

/// Why it may not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOurCas {
    /// It is not PEM, or has something else than certificates.
    #[error("it is no PEM text of certificates alone")]
    Unreadable,
    /// It has none.
    #[error("it has no certificate")]
    Empty,
    /// It has one that is not trusted here.
    #[error("it has a certificate that is not in the CA bundle here: {0}")]
    Strange(String),
}

impl TrustStore {
    /// Holds certificates that a CA gives out against the bundle: each has to be in it, byte for byte.
    ///
    /// # Errors
    /// The first thing that is not so.
    pub fn check_cas(&self, pem: &[u8]) -> Result<(), NotOurCas> {
        let mut found = false;
        for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(pem) {
            let Ok((SectionKind::Certificate, der)) = section else {
                return Err(NotOurCas::Unreadable);
            };
            let mut cas = self.bundle.cas.iter();
            if !cas.any(|ca| *ca.der == *der) {
                let described = Certificate::read(&der).map(|ca| ca.describe());
                return Err(described.map_or(NotOurCas::Unreadable, NotOurCas::Strange));
            }
            found = true;
        }
        match found {
            true => Ok(()),
            false => Err(NotOurCas::Empty),
        }
    }
}
