//! The shared resources that each client holds: running requests in a pool, and memory for bodies.

use std::{
    cell::{OnceCell, RefCell},
    net::IpAddr,
    sync::Arc,
};

use balancing::{BodyBudget, BodyCharge, ClientKey, Holding, Holdings};

use crate::{pool_runtime::PoolRuntime, reason::LogReason};

/// What clients hold, for all workers and generations.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// Running requests that hold no JRuby, by pool and client.
    running: Arc<Holdings>,
    /// Running requests that hold a JRuby, by pool and client.
    jrubies: Arc<Holdings>,
    /// Bytes of bodies, by client.
    bodies: Arc<Holdings>,
    budget: Arc<BodyBudget>,
}

/// Which limits apply to the requests that a client's account counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Account {
    /// The limits for requests that hold a JRuby: `agent_max` and `agent_queue_max`.
    Jrubies,
    /// The limit for other requests, and for all requests of clients in `agent_max_except`: `client_share`.
    Share,
}

impl Account {
    /// The account that counts the requests of a client in a pool. `jruby`: whether they hold a JRuby.
    pub(crate) fn of(pool: &PoolRuntime, certname: Option<&str>, jruby: bool) -> Self {
        let except = |certname: &str| {
            let mut patterns = pool.agent_max_except.iter();
            patterns.any(|pattern| pattern.matches(certname))
        };
        if jruby && !certname.is_some_and(except) {
            Self::Jrubies
        } else {
            Self::Share
        }
    }

    /// The reason for a refusal that the client's own requests cause.
    pub(crate) fn reason(self) -> LogReason {
        match self {
            Self::Jrubies => LogReason::AgentMax,
            Self::Share => LogReason::ClientShare,
        }
    }
}

/// One account of a connection's client.
#[derive(Debug)]
struct KnownAccount {
    jruby: bool,
    account: Account,
    holding: Arc<Holding>,
    /// The generation under which the account was chosen.
    generation: u64,
}

/// The accounts of a connection's client, stored so that each is looked up only once.
#[derive(Debug, Default)]
pub(crate) struct ClientAccounts {
    /// The accounts in the pools that the client has used.
    pools: RefCell<Vec<KnownAccount>>,
    /// The client's account for the memory for request bodies.
    bodies: OnceCell<Arc<Holding>>,
}

/// A client, identified by its certname if it has one, otherwise by its address.
#[derive(Clone, Copy, Debug)]
pub struct ShareHolder<'a> {
    /// Its verified certname.
    pub certname: Option<&'a Arc<str>>,
    /// Its address.
    pub address: IpAddr,
}

impl ShareHolder<'_> {
    fn key(self) -> ClientKey {
        ClientKey::new(self.certname, self.address)
    }
}

impl Shares {
    /// The client's account for this pool. It is looked up once for each connection, pool and generation.
    pub(crate) fn of_pool(
        &self,
        (accounts, client): (&ClientAccounts, ShareHolder<'_>),
        generation: u64,
        pool: &PoolRuntime,
        jruby: bool,
    ) -> (Arc<Holding>, Account) {
        let mut known = accounts.pools.borrow_mut();
        if let Some(known) = known.iter().find(|known| {
            known.jruby == jruby
                && known.generation == generation
                && known.holding.resource() == &**pool.pool.name()
        }) {
            return (Arc::clone(&known.holding), known.account);
        }
        let account = Account::of(pool, client.certname.map(|certname| &**certname), jruby);
        let holding = self.holdings(jruby).of(pool.pool.name(), client.key());
        known.retain(|known| known.generation == generation);
        if known.len() == ACCOUNTS_KNOWN_MAX {
            known.clear();
        }
        known.push(KnownAccount {
            jruby,
            account,
            holding: Arc::clone(&holding),
            generation,
        });
        (holding, account)
    }

    /// The requests that a client has in a pool now. `None` if the client has no connection that has used the pool.
    pub(crate) fn find(
        &self,
        client: ShareHolder<'_>,
        pool: &PoolRuntime,
        jruby: bool,
    ) -> Option<Arc<Holding>> {
        self.holdings(jruby).find(pool.pool.name(), client.key())
    }

    fn holdings(&self, jruby: bool) -> &Arc<Holdings> {
        if jruby { &self.jrubies } else { &self.running }
    }

    /// Bytes of request bodies that are buffered now.
    pub(crate) fn body_buffer_bytes(&self) -> u64 {
        self.budget.held()
    }

    /// A charge to the client's account. The account is looked up once for each connection.
    pub(crate) fn charge(
        &self,
        (accounts, client): (&ClientAccounts, ShareHolder<'_>),
    ) -> BodyCharge {
        let holding = accounts.bodies.get_or_init(|| {
            let resource = Arc::from("bodies");
            self.bodies.of(&resource, client.key())
        });
        BodyCharge::new(&self.budget, Arc::clone(holding))
    }
}

/// Maximum number of accounts that a connection stores, two for each pool. A connection that uses more looks them up again.
const ACCOUNTS_KNOWN_MAX: usize = 32;
