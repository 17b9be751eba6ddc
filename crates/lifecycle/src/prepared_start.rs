//! The configuration, prepared as a start would prepare it, for `doctor`, which examines it without starting the proxy.

use std::{collections::BTreeMap, sync::Arc};

use config::{Config, ConfigReport, MaterialName, PoolConfig};
use fleet_store::Store;
use pki::{PersistenceKey, TrustStore};
use proxy::{Generation, PoolRuntime};
use routing::RouteTable;
use state::{PreparedTls, StateDirectory};

use crate::{Options, check, prepare::Prepared, sharing, stored_state};

/// Everything that a start would build from the configuration. Nothing listens, and nothing is written.
pub struct PreparedStart(Prepared);

/// A document of the state directory that a start could not use. Each text says why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateProblem {
    /// This account may not read the state directory, so nothing in it was loaded.
    Unreadable,
    /// A stored CRL, or the record of accepted CRLs.
    Crl(String),
    /// The stored blocks. The proxy does not start without them.
    Blocks(String),
    /// The stored administrative states of members.
    MemberStates(String),
    /// The key of persistence cookies.
    PersistenceKey(String),
}

/// The generation that a start would make active, with the state that it would restore.
pub struct RestoredGeneration {
    /// The generation. Its members are not probed.
    pub generation: Generation,
    /// Why the stored blocks are not applied.
    pub without_blocks: Option<String>,
    /// The key of persistence cookies. `None` if no key is stored.
    pub persistence_key: Result<Option<PersistenceKey>, String>,
}

impl RestoredGeneration {
    /// Reads and prepares the configuration, and restores the state.
    ///
    /// # Errors
    /// The report that a start would print.
    pub fn new(options: &Options) -> Result<Self, ConfigReport> {
        let mut prepared = check::prepared(options)?;
        let directory = StateDirectory::unopened(&prepared.config.state_directory);
        let restored = stored_state::restore(&mut prepared, &directory);
        for unusable in restored.crls.unusable {
            tracing::warn!("{unusable}");
        }
        Ok(Self {
            generation: prepared.generation,
            without_blocks: restored.blocks.err().map(|error| error.to_string()),
            persistence_key: restored.persistence_key,
        })
    }
}

impl PreparedStart {
    /// Reads and prepares the configuration.
    ///
    /// # Errors
    /// The report that a start would print.
    pub fn new(options: &Options) -> Result<Self, ConfigReport> {
        check::prepared(options).map(Self)
    }

    /// Loads stored CRLs and blocks into the trust store, and reads the other documents that a start reads from the state
    /// directory. Returns those that cannot be used.
    pub fn restore_state(&mut self) -> Vec<StateProblem> {
        let prepared = &mut self.0;
        let directory = StateDirectory::unopened(&prepared.config.state_directory);
        if directory.is_closed() {
            return vec![StateProblem::Unreadable];
        }
        let restored = stored_state::restore(prepared, &directory);
        let crls = restored.crls.unusable.into_iter().map(StateProblem::Crl);
        let blocks = restored.blocks.err().map(|error| error.to_string());
        crls.chain(blocks.map(StateProblem::Blocks))
            .chain(restored.member_states.err().map(StateProblem::MemberStates))
            .chain(
                restored
                    .persistence_key
                    .err()
                    .map(StateProblem::PersistenceKey),
            )
            .collect()
    }

    /// The validated configuration.
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    /// Warnings of the configuration.
    pub fn report(&self) -> &ConfigReport {
        &self.0.report
    }

    /// The fingerprint of the configuration and its files, in the form in which the status shows it.
    pub fn fingerprint(&self) -> String {
        self.0.fingerprint.to_string()
    }

    /// The files that the configuration names.
    pub fn files(&self) -> impl Iterator<Item = &MaterialName> {
        self.0.draft.wanted().iter()
    }

    /// The trust store that verifies clients.
    pub fn trust(&self) -> &Arc<TrustStore> {
        &self.0.generation.trust
    }

    /// The routes.
    pub fn routes(&self) -> &RouteTable {
        &self.0.generation.routes
    }

    /// The pools, in the order of the configuration.
    pub fn pools(&self) -> &[Arc<PoolRuntime>] {
        &self.0.generation.pools
    }

    /// The certificates that listeners present to clients, by their files.
    pub fn listener_credentials(&self) -> &BTreeMap<config::CredentialFiles, pki::Credential> {
        &self.0.credentials
    }

    /// TLS towards members, once for each combination of settings.
    pub fn member_tls(&self) -> &[PreparedTls] {
        &self.0.member_tls
    }

    /// The store of the fleet, with this prefix of its keys. `None` if this proxy is not part of a fleet.
    pub fn fleet_store(&self, prefix: String) -> Option<Arc<dyn Store>> {
        let fleet = self.0.config.fleet.as_ref()?;
        let mut tls = self.0.member_tls.iter();
        let tls = tls.find(|tls| tls.settings == fleet.tls)?;
        let store: Arc<dyn Store> = Arc::new(sharing::etcd(fleet, tls, prefix)?);
        Some(store)
    }

    /// TLS towards the members of a pool; `None` for plain HTTP.
    pub fn tls_of(&self, pool: &PoolConfig) -> Option<&PreparedTls> {
        self.0.tls_of(pool)
    }
}
