//! Credentials of a prepared generation: those of listeners, and the TLS towards members.

use std::{collections::BTreeMap, sync::Arc};

use config::{CredentialFiles, MemberTls};
use pki::{Fingerprint, TrustStore};

/// Credentials by the files that they were read from.
pub(crate) type Credentials = BTreeMap<CredentialFiles, pki::Credential>;

/// TLS towards members. The next generation uses the same value as long as credential and trust store are the same.
#[derive(Clone)]
pub struct PreparedTls {
    /// The settings of the pool.
    pub settings: MemberTls,
    /// Whether the proxy sends a server name (SNI).
    pub indication: bool,
    /// The credential and the trust store that it was made from.
    pub(super) rests_on: (Fingerprint, u64),
    /// The credential that the proxy presents to members.
    pub credential: pki::Credential,
    /// The trust store that verifies members.
    pub trust: Arc<TrustStore>,
    pub(super) config: Arc<pki::MemberTlsConfig>,
}

impl PreparedTls {
    /// The same TLS with another certificate that the proxy presents.
    pub(super) fn presenting(
        &self,
        credential: &pki::Credential,
    ) -> Result<Arc<pki::MemberTlsConfig>, pki::PkiProblem> {
        let names = pki::MemberNames {
            indicated: self.indication,
            from_cn: self.settings.name_from_cn,
        };
        pki::client_config(&self.trust, Some(credential), names)
    }
}
