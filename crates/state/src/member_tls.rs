//! Credentials of a generation: those of listeners, and the TLS towards members.

use std::{collections::BTreeMap, sync::Arc};

use config::{CredentialFiles, MemberTls, PoolConfig};
use pki::{Credential, Fingerprint, MemberNames, MemberTlsConfig, PkiProblem, TrustStore};

/// Credentials by the files that they were read from.
pub type Credentials = BTreeMap<CredentialFiles, Credential>;

/// TLS towards members. The next generation uses the same value as long as credential and trust store are the same.
#[derive(Clone)]
pub struct PreparedTls {
    /// The settings of the pool.
    pub settings: MemberTls,
    /// Whether the proxy sends a server name (SNI).
    pub indication: bool,
    /// The credential that the proxy presents to members.
    pub credential: Credential,
    /// The trust store that verifies members.
    pub trust: Arc<TrustStore>,
    config: Arc<MemberTlsConfig>,
}

impl PreparedTls {
    /// TLS with these settings.
    ///
    /// # Errors
    /// rustls refuses the certificate.
    pub fn new(
        settings: MemberTls,
        indication: bool,
        credential: Credential,
        trust: Arc<TrustStore>,
    ) -> Result<Self, PkiProblem> {
        let config = client_config(&settings, indication, &credential, &trust)?;
        Ok(Self {
            settings,
            indication,
            credential,
            trust,
            config,
        })
    }

    /// The fingerprint of the credential and the generation of the trust store that this value was built from.
    pub fn rests_on(&self) -> (Fingerprint, u64) {
        (self.credential.fingerprint(), self.trust.generation())
    }

    /// The TLS configuration of connections to members.
    pub fn config(&self) -> &Arc<MemberTlsConfig> {
        &self.config
    }

    /// The same TLS with another certificate that the proxy presents.
    ///
    /// # Errors
    /// rustls refuses the certificate.
    pub fn presenting(&self, credential: &Credential) -> Result<Arc<MemberTlsConfig>, PkiProblem> {
        client_config(&self.settings, self.indication, credential, &self.trust)
    }
}

fn client_config(
    settings: &MemberTls,
    indicated: bool,
    credential: &Credential,
    trust: &Arc<TrustStore>,
) -> Result<Arc<MemberTlsConfig>, PkiProblem> {
    let names = MemberNames {
        indicated,
        from_cn: settings.name_from_cn,
    };
    pki::client_config(trust, Some(credential), names)
}

/// The TLS that a pool uses towards its members.
pub fn tls_of<'a>(pool: &PoolConfig, member_tls: &'a [PreparedTls]) -> Option<&'a PreparedTls> {
    let (settings, indication) = (pool.tls.as_ref()?, indicates_name(pool));
    let fits = |known: &&PreparedTls| known.settings == *settings && known.indication == indication;
    member_tls.iter().find(fits)
}

/// Whether the proxy sends the name of a member in the handshake (SNI). It does so only if `Host` names the member too, because
/// Jetty responds 400 if the two differ (docs/decisions/host-towards-tls-members.md).
pub fn indicates_name(pool: &PoolConfig) -> bool {
    pool.rules.host == proxy::HostRule::Member
}
