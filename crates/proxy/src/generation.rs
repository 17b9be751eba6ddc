//! One applied configuration with its materials. A request uses one generation from start to end.

use std::{ops::Deref, rc::Rc, sync::Arc};

use identity::OwnNames;
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
    /// Its number, which increases with each configuration that is applied.
    pub number: u64,
    /// The routes of requests.
    pub routes: Arc<RouteTable>,
    /// The access rules at run time, by their index.
    pub rules: Arc<[RuleRuntime]>,
    /// The pools, in the order of `routes`.
    pub pools: Arc<[Arc<PoolRuntime>]>,
    /// The pool whose availability the built-in status route reports.
    pub status_pool: Option<usize>,
    /// The pool whose documents may be answered from copies.
    pub ca_pool: Option<usize>,
    /// Names of identity headers in any pool. They are removed from all requests.
    pub own_names: OwnNames,
    /// The trust store.
    pub trust: Arc<TrustStore>,
    /// The active settings of each listener.
    pub listeners: foldhash::HashMap<Arc<str>, Arc<ActiveListener>>,
    /// Limits of an exchange.
    pub settings: ProxySettings,
    /// The rules for certificate requests.
    pub csr: Arc<CsrPolicy>,
    /// Limits and features of the CA's routes.
    pub ca: CaSettings,
    /// Maximum number of idle connections closed per second, of clients that are no longer accepted.
    pub revoked_close_rate: u32,
}

impl Generation {
    /// The next generation, which differs only in its trust store.
    pub fn with_trust(&self, trust: Arc<TrustStore>) -> Self {
        Self {
            number: self.number + 1,
            trust,
            ..self.clone()
        }
    }

    /// The same generation with other members in some of its pools. The number stays the same, because no configuration
    /// has changed.
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

    pub(crate) fn pool(&self, name: &str) -> Option<&Arc<PoolRuntime>> {
        let mut pools = self.pools.iter();
        pools.find(|pool| **pool.pool.name() == *name)
    }

    /// Whether a pool has a member with this address.
    pub fn names_member(&self, pool: &str, address: &str) -> bool {
        let mut pools = self.pools.iter();
        let pool = pools.find(|named| **named.pool.name() == *pool);
        pool.is_some_and(|pool| {
            let mut connectors = pool.connectors();
            connectors.any(|connector| *connector.address == *address)
        })
    }
}

/// A generation that the tasks of one thread share. Its references are counted without atomic instructions.
#[derive(Clone, Debug)]
pub(crate) struct LocalGeneration(Rc<HeldGeneration>);

/// The only atomic reference that a thread holds, for all its tasks.
#[derive(Debug)]
struct HeldGeneration(Arc<Generation>);

impl LocalGeneration {
    pub(crate) fn new(generation: Arc<Generation>) -> Self {
        Self(Rc::new(HeldGeneration(generation)))
    }

    /// Whether this value refers to the given generation.
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
