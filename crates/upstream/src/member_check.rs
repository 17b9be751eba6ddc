//! An additional check of a member's certificate, after TLS has verified it.

use std::{fmt, sync::Arc};

use rustls::pki_types::CertificateDer;

/// Checks a member's certificate after each handshake, because TLS runs no verifier for a resumed session. Idle connections are
/// checked again after the trust has changed.
#[derive(Clone)]
pub struct MemberCheck {
    generation: Arc<dyn Fn() -> u64 + Send + Sync>,
    verify: Arc<Verify>,
}

type Verify = dyn Fn(&CertificateDer<'_>) -> Result<(), rustls::Error> + Send + Sync;

impl MemberCheck {
    /// Creates a check. `verify` checks a certificate. When its result may have changed, `generation` must return another
    /// number.
    pub fn new(
        generation: impl Fn() -> u64 + Send + Sync + 'static,
        verify: impl Fn(&CertificateDer<'_>) -> Result<(), rustls::Error> + Send + Sync + 'static,
    ) -> Self {
        Self {
            generation: Arc::new(generation),
            verify: Arc::new(verify),
        }
    }

    pub(crate) fn generation(&self) -> u64 {
        (self.generation)()
    }

    pub(crate) fn verify(&self, shown: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        (self.verify)(shown)
    }
}

impl fmt::Debug for MemberCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemberCheck")
    }
}
