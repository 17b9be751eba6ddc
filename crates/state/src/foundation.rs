//! What remains of a committed generation for the next preparation.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::SystemTime,
};

use config::{Config, CredentialFiles, Draft, Materials};
use pki::{Credential, Fingerprint, MemberTlsConfig, TrustStore};

use crate::{
    digest::digest,
    member_tls::{Credentials, PreparedTls, tls_of},
    stamps::Stamps,
};

/// What remains of a committed generation for the next preparation.
#[derive(Clone)]
pub struct Foundation {
    /// The active configuration.
    pub config: Config,
    /// The fingerprint of the configuration and its materials.
    pub fingerprint: Fingerprint,
    /// The parsed configuration file.
    pub draft: Draft,
    /// The stamps of the active materials.
    pub stamps: Stamps,
    /// The active materials. If a changed material is refused, the active one is used in its place.
    pub materials: Arc<Materials>,
    /// When the agent's copy of the CRL was last written, if clients are verified against it.
    pub agents_copy: Option<SystemTime>,
    /// The credentials of listeners, each once.
    pub credentials: Credentials,
    /// TLS towards members, each kind once.
    pub member_tls: Vec<PreparedTls>,
    /// Empty until [`section_digests`](Self::section_digests) is called.
    pub digests: OnceLock<BTreeMap<String, String>>,
}

impl Foundation {
    /// A digest for each section of the configuration, by which the proxies of a fleet find their differences.
    pub fn section_digests(&self) -> &BTreeMap<String, String> {
        self.digests.get_or_init(|| {
            let sections = self.config.sections().into_iter();
            let digests = sections.map(|(name, text)| (name, digest([text.as_bytes()])));
            digests.collect()
        })
    }

    /// The bundles that verify the proxy's certificates and those of its peers: that of clients, then those of members.
    pub fn stores<'a>(&'a self, clients: &'a TrustStore) -> Vec<&'a TrustStore> {
        let of_members = self.member_tls.iter().map(|tls| &*tls.trust);
        [clients].into_iter().chain(of_members).collect()
    }

    /// TLS towards the store of the fleet. Pools with the same settings share it.
    pub fn fleet_tls(&self) -> Option<&PreparedTls> {
        let fleet = self.config.fleet.as_ref()?;
        self.member_tls.iter().find(|tls| tls.settings == fleet.tls)
    }

    /// The key file of the fleet.
    pub fn fleet_key_file(&self) -> Option<&[u8]> {
        let path = &self.config.fleet.as_ref()?.key_file;
        let material = self.materials.get(path)?.as_ref().ok()?;
        material.blobs.first().map(|blob| &*blob.bytes)
    }

    /// A credential of a listener or of a pool.
    pub fn credential(&self, files: &CredentialFiles) -> Option<&Credential> {
        let of_members = || {
            let mut tls = self.member_tls.iter();
            tls.find(|tls| tls.settings.credential == *files)
        };
        let of_listeners = self.credentials.get(files);
        of_listeners.or_else(|| of_members().map(|tls| &tls.credential))
    }

    /// The TLS of a pool, with another certificate that the proxy presents.
    ///
    /// # Errors
    /// The pool has no TLS, or rustls refuses the certificate.
    pub fn tls_presenting(
        &self,
        pool: &str,
        credential: &Credential,
    ) -> Result<Arc<MemberTlsConfig>, String> {
        let mut pools = self.config.pools.iter();
        let settings = pools.find(|settings| settings.pool.name == pool);
        let tls = settings.and_then(|settings| tls_of(settings, &self.member_tls));
        let tls = tls.ok_or_else(|| format!("pool `{pool}` has no TLS"))?;
        tls.presenting(credential)
            .map_err(|problem| problem.to_string())
    }
}
