//! One applied configuration with its materials, as requests see it: whole, and the same from start to end.

use std::{ops::Deref, rc::Rc, sync::Arc};

use identity::{CertnamePattern, OwnNames};
use listener::ActiveListener;
use pki::{CsrPolicy, TrustStore};
use routing::RouteTable;

use crate::{
    access_rules::RuleRuntime,
    pool_runtime::PoolRuntime,
    settings::{CaSettings, ProxySettings},
};

/// One applied configuration, numbered.
#[derive(Clone, Debug)]
pub struct Generation {
    /// Its number; rises by one with each that is applied.
    pub number: u64,
    /// Where requests go.
    pub routes: Arc<RouteTable>,
    /// What the rules of access have done, by their index.
    pub rules: Arc<[RuleRuntime]>,
    /// The pools, in the order that `routes` knows them by.
    pub pools: Arc<[Arc<PoolRuntime>]>,
    /// The pool whose availability the built-in status answer tells.
    pub status_pool: Option<usize>,
    /// The pool whose documents are answered from copies, where they are.
    pub ca_pool: Option<usize>,
    /// Names that some pool has for identity headers: removed from requests to all.
    pub own_names: OwnNames,
    /// Who is trusted.
    pub trust: Arc<TrustStore>,
    /// What each listener obeys.
    pub listeners: foldhash::HashMap<Arc<str>, Arc<ActiveListener>>,
    /// Limits of an exchange.
    pub settings: ProxySettings,
    /// Certnames that `agent_max` does not limit.
    pub agent_max_except: Arc<[CertnamePattern]>,
    /// Which certificate requests are passed on.
    pub csr: Arc<CsrPolicy>,
    /// What of the CA is for clients without a verified certificate.
    pub ca: CaSettings,
    /// Idle connections of clients no longer accepted that are closed a second.
    pub revoked_close_rate: u32,
}

impl Generation {
    /// The next one, which differs in who is trusted alone.
    pub fn with_trust(&self, trust: Arc<TrustStore>) -> Self {
        Self {
            number: self.number + 1,
            trust,
            ..self.clone()
        }
    }

    /// The same one with other members in some of its pools. Its number stays: nothing that an operator configured has
    /// changed.
    pub fn with_pools(
        &self,
        replaced: impl IntoIterator<Item = (usize, Arc<PoolRuntime>)>,
    ) -> Self {
        let mut pools = self.pools.to_vec();
        for (index, pool) in replaced {
            pools[index] = pool;
        }
        Self {
            pools: pools.into(),
            ..self.clone()
        }
    }

    /// The pool of this name.
    pub(crate) fn pool(&self, name: &str) -> Option<&Arc<PoolRuntime>> {
        let mut pools = self.pools.iter();
        pools.find(|pool| **pool.pool.name() == *name)
    }

    /// Whether a pool has a member of this address.
    pub fn names_member(&self, pool: &str, address: &str) -> bool {
        let mut pools = self.pools.iter();
        let pool = pools.find(|named| **named.pool.name() == *pool);
        pool.is_some_and(|pool| {
            let mut connectors = pool.connectors();
            connectors.any(|connector| *connector.address == *address)
        })
    }
}

/// A generation as the tasks of one thread share it: counted without locked instructions.
#[derive(Clone, Debug)]
pub(crate) struct LocalGeneration(Rc<HeldGeneration>);

/// The reference that a thread holds for all its tasks.
#[derive(Debug)]
struct HeldGeneration(Arc<Generation>);

impl LocalGeneration {
    pub(crate) fn new(generation: Arc<Generation>) -> Self {
        Self(Rc::new(HeldGeneration(generation)))
    }

    /// Whether it is this one.
    pub(crate) fn is(&self, generation: &Arc<Generation>) -> bool {
        Arc::ptr_eq(&self.0.0, generation)
    }
}

impl Deref for LocalGeneration {
    type Target = Generation;

    fn deref(&self) -> &Generation {
        &self.0.0
    }
}
