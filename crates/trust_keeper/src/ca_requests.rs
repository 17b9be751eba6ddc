//! Requests for the CA's documents. They go to the members of the CA's pool, one after the other, until a response is usable.

use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

use balancing::{Administrative, settings::Role};
use config::Fetch;
use proxy::{Generation, PoolRuntime};
use upstream::{FetchRequest, FetchedDocument};

use crate::conditional_request::ConditionalRequest;

const POOL: &str = routing::pool_names::CA;

/// Whether a fetch may use the date of the document that was fetched last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FetchScope {
    /// The request is conditional: the CA sends the document only if it has changed.
    Changes,
    /// The request is for the whole document, whatever its date.
    Whole,
}

pub(crate) struct CaResponse {
    pub(crate) member: Arc<str>,
    /// The time of the request by the proxy's clock.
    pub(crate) requested: SystemTime,
    /// The time of the request on the monotonic clock.
    pub(crate) requested_at: Instant,
    pub(crate) document: FetchedDocument,
}

/// Which document is requested, and how.
#[derive(Clone, Copy)]
pub(crate) struct CaRequest {
    pub(crate) path: &'static str,
    pub(crate) bytes_max: u64,
    pub(crate) fetch: Fetch,
}

/// The members that have not been asked yet, in order.
pub(crate) struct CaMembers {
    generation: Arc<Generation>,
    pool: usize,
    indexes: std::vec::IntoIter<usize>,
}

impl CaMembers {
    /// The members of the CA's pool in this generation.
    ///
    /// # Errors
    /// There is no member to ask.
    pub(crate) fn of(generation: Arc<Generation>) -> Result<Self, String> {
        let mut pools = generation.pools.iter();
        let Some(pool) = pools.position(|pool| &**pool.pool.name() == POOL) else {
            return Err(format!("there is no pool `{POOL}` to fetch from"));
        };
        let indexes: Vec<_> = in_order(&generation.pools[pool]).collect();
        if generation.pools[pool].members.is_empty() {
            return Err(format!("pool `{POOL}` has no member now"));
        }
        if indexes.is_empty() {
            return Err(format!("all members of pool `{POOL}` are in maintenance"));
        }
        Ok(Self {
            generation,
            pool,
            indexes: indexes.into_iter(),
        })
    }

    /// Sends the request to the next member. `None` after the last one.
    pub(crate) async fn request_next(
        &mut self,
        request: CaRequest,
        condition: &ConditionalRequest,
    ) -> Option<Result<CaResponse, String>> {
        let index = self.indexes.next()?;
        let connector = &self.generation.pools[self.pool].members[index].connector;
        let member = &connector.address;
        let requested_at = Instant::now();
        let full_interval = request.fetch.full_interval;
        let request = FetchRequest {
            path: request.path,
            accept: "text/plain",
            if_modified_since: condition.if_modified_since(member, requested_at, full_interval),
            timeout: request.fetch.timeout,
            body_bytes_max: request.bytes_max,
        };
        let requested = SystemTime::now();
        let response = upstream::fetch(connector, &request).await;
        let response = response.map(|document| CaResponse {
            member: Arc::clone(member),
            requested,
            requested_at,
            document,
        });
        Some(response.map_err(|error| error.to_string()))
    }
}

/// Indexes of the members to ask, in order. Backups come last, because their documents may be older.
fn in_order(pool: &PoolRuntime) -> impl Iterator<Item = usize> {
    let with_role = |role: Role| {
        let entries = pool.pool.entries().iter().enumerate();
        entries
            .filter(move |(_, entry)| {
                entry.role == role && entry.member.operator_state() != Administrative::Maintenance
            })
            .map(|(index, _)| index)
    };
    with_role(Role::Ordinary).chain(with_role(Role::Backup))
}
