//! One pool of a configuration at run time: its members, its admission, and the leases of its members.

use std::{
    cell::OnceCell,
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use balancing::{Admission, Lease, Member, Offer, PickError, Picker, Pool};
use identity::CertnamePattern;
use pki::PersistenceKey;
use telemetry::{MemberMetrics, PassthroughMetrics, PoolMetrics};
use tokio::time::Instant;
use upstream::Connector;

use crate::{
    long_requests::{LongRequest, LongRequestEntry, LongRequests},
    settings::PoolRules,
};

/// A pool, with everything that is needed to connect to its members.
#[derive(Debug)]
pub struct PoolRuntime {
    /// How members are picked.
    pub pool: Pool,
    /// Which requests run and which wait. It outlives generations.
    pub admission: Arc<PoolAdmission>,
    /// Its members, in the order of the pool's entries.
    pub members: Vec<MemberRuntime>,
    /// The rules for its requests.
    pub rules: PoolRules,
    /// Certnames that `agent_max` does not limit.
    pub agent_max_except: Arc<[CertnamePattern]>,
    /// Limits for connections to its members.
    pub settings: upstream::UpstreamSettings,
    /// Its counters.
    pub metrics: PoolMetrics,
    /// The subject (RFC 2253) of the certificate that the proxy presents to its members. `None` without TLS.
    pub presented: Option<String>,
}

/// One member of a pool, with everything that is needed to connect to it.
#[derive(Debug)]
pub struct MemberRuntime {
    /// How the proxy connects to it.
    pub connector: Arc<Connector>,
    /// Counters of requests.
    pub metrics: MemberMetrics,
    /// Counters of connections that are passed through, in pools that get such connections.
    pub passthrough_metrics: Option<PassthroughMetrics>,
    /// The value of its persistence cookie. Computed for the first request that needs it.
    cookie: OnceLock<String>,
}

impl MemberRuntime {
    /// A member that this connector connects to.
    pub fn new(
        connector: Arc<Connector>,
        metrics: MemberMetrics,
        passthrough_metrics: Option<PassthroughMetrics>,
    ) -> Self {
        Self {
            connector,
            metrics,
            passthrough_metrics,
            cookie: OnceLock::new(),
        }
    }

    /// The value of the cookie that keeps a client of this pool on the member.
    pub(crate) fn cookie(&self, pool: &str, key: &PersistenceKey) -> &str {
        self.cookie
            .get_or_init(|| key.value(pool, &self.connector.address))
    }
}

/// The admission of a pool, whose requests get a [`PoolLease`].
pub type PoolAdmission = Admission<PoolLease>;

/// A member that is leased for one attempt. Dropping the lease passes the slot to the next waiting request.
#[derive(Debug)]
pub struct PoolLease {
    // Fields are dropped in this order: the slot is released before the admission is notified.
    long: OnceCell<Box<LongRequestEntry>>,
    lease: Lease,
    freed: Freed,
}

#[derive(Debug)]
struct Freed(Arc<PoolRuntime>);

impl Drop for Freed {
    fn drop(&mut self) {
        self.0.admission.members_changed();
    }
}

impl PoolLease {
    pub(crate) fn new(pool: &Arc<PoolRuntime>, lease: Lease) -> Self {
        Self {
            long: OnceCell::new(),
            lease,
            freed: Freed(Arc::clone(pool)),
        }
    }

    /// The pool in the configuration under which the member was picked. For a request that has waited, this may be a newer
    /// configuration than its own.
    pub(crate) fn pool(&self) -> &Arc<PoolRuntime> {
        &self.freed.0
    }

    /// Adds the request to the list of long requests, at most once.
    pub(crate) fn note_long(&self, all: &Arc<LongRequests>, request: impl FnOnce() -> LongRequest) {
        let member = self.member().id();
        self.long
            .get_or_init(|| Box::new(all.note(member, request())));
    }

    pub(crate) fn member(&self) -> &Arc<Member> {
        self.lease.member()
    }

    /// Learns from a response how long such work takes on this member.
    pub(crate) fn learn(&self, took: Duration, doubtful: bool, now: Duration) {
        self.pool().pool.learn(&self.lease, took, doubtful, now);
    }

    pub(crate) fn connector(&self) -> &Arc<Connector> {
        &self.runtime().connector
    }

    pub(crate) fn runtime(&self) -> &MemberRuntime {
        &self.pool().members[self.lease.index()]
    }

    pub(crate) fn index(&self) -> usize {
        self.lease.index()
    }

    /// The pool, and the member's index in it.
    pub(crate) fn pool_and_index(&self) -> (Arc<PoolRuntime>, usize) {
        (Arc::clone(self.pool()), self.lease.index())
    }

    /// Another member, if this one has failed.
    pub(crate) fn elsewhere(&self, request: &Offer, now: Duration) -> Option<Self> {
        let pool = self.pool();
        let from = self.lease.index();
        let lease = pool
            .pool
            .pick_elsewhere(from, &request.tried, request.criteria, now)?;
        Some(Self::new(pool, lease))
    }
}

/// Picks members from one configuration's pool at one instant.
pub(crate) struct PickNow<'a> {
    pub(crate) pool: &'a Arc<PoolRuntime>,
    pub(crate) now: Duration,
}

impl Picker<PoolLease> for PickNow<'_> {
    fn pick(&self, request: &Offer) -> Result<PoolLease, PickError> {
        let lease = self.pool.pool.pick_for(request, self.now)?;
        Ok(PoolLease::new(self.pool, lease))
    }

    fn catalogs_in(&self, time: Duration) -> u32 {
        self.pool.pool.catalogs_in(time, self.now)
    }
}

/// Picks members for waiting requests, from the newest configuration.
struct PickLater {
    /// Weak, because the pool holds the admission, and the admission holds this value.
    pool: Weak<PoolRuntime>,
    started: Instant,
}

impl Picker<PoolLease> for PickLater {
    fn pick(&self, request: &Offer) -> Result<PoolLease, PickError> {
        let pool = self.pool.upgrade().ok_or(PickError::NoneAvailable)?;
        let now = self.started.elapsed();
        PickNow { pool: &pool, now }.pick(request)
    }
}

impl PoolRuntime {
    /// The connectors of its members, in their order.
    pub fn connectors(&self) -> impl ExactSizeIterator<Item = &Arc<Connector>> + Clone {
        self.members.iter().map(|member| &member.connector)
    }

    /// From now on waiting requests run under this configuration. `started` is the zero of the balancer's clock.
    pub fn adopt_queue(self: &Arc<Self>, started: Instant) {
        let pool = Arc::downgrade(self);
        self.admission.adopt(Arc::new(PickLater { pool, started }));
    }
}
