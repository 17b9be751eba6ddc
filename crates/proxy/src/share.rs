//! What one client holds of what all share: its connections to the members of a pool, and memory for bodies.

use std::sync::Arc;

use balancing::{BodyBudget, BodyCharge, ClientKey, Held, Holding, Holdings};
use listener::Standing;
use telemetry::Limit;
use tokio::time::{Instant, timeout};

use crate::{
    connection::Conn,
    context::RequestContext,
    error::ProxyError,
    generation::PoolRuntime,
    upload::{Gathered, Upload},
};

/// What clients hold, over all workers and generations.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// Connections to members, by pool and client.
    connections: Arc<Holdings>,
    /// Bytes of bodies, by client.
    bodies: Arc<Holdings>,
    budget: Arc<BodyBudget>,
}

impl Shares {
    /// What this connection's client holds of that pool. Looked up once for each connection and pool.
    fn of_pool(&self, pool: &Arc<str>, conn: &Conn, standing: &Standing) -> Arc<Holding> {
        let mut known = conn.holdings.borrow_mut();
        if let Some(holding) = known.iter().find(|holding| holding.resource() == &**pool) {
            return Arc::clone(holding);
        }
        let holding = self.connections.of(pool, key(conn, standing));
        if known.len() == POOLS_KNOWN_MAX {
            known.clear();
        }
        known.push(Arc::clone(&holding));
        holding
    }

    /// Bytes of request bodies that are buffered now.
    pub(crate) fn body_buffer_bytes(&self) -> u64 {
        self.budget.held()
    }

    /// A charge to this connection's client, which is looked up once for each connection.
    fn charge(&self, conn: &Conn, standing: &Standing) -> BodyCharge {
        let client = conn.bodies.get_or_init(|| {
            let resource = Arc::from("bodies");
            self.bodies.of(&resource, key(conn, standing))
        });
        BodyCharge::new(&self.budget, Arc::clone(client))
    }
}

fn key(conn: &Conn, standing: &Standing) -> ClientKey {
    ClientKey::new(standing.certname.as_ref(), conn.downstream.client.ip())
}

/// Takes one of the connections to the pool that this client may hold at once. A request beyond the client's share waits
/// behind that client's own requests, and no other client waits for it: many agents fail on a 503.
///
/// # Errors
/// The client held its whole share for the pool's `first_byte_timeout`.
pub(crate) async fn take(
    context: &RequestContext,
    pool: &PoolRuntime,
    upload: &Upload,
) -> Result<Held, ProxyError> {
    let shares = &context.worker.shared.shares;
    let holding = shares.of_pool(pool.pool.name(), &context.conn, &context.standing);
    // A share is at least one: an agent, which sends one request at a time, is never asked for more than this.
    if let Some(held) = holding.try_take(1) {
        return Ok(held);
    }
    // Boxed: requests that need not wait have no room for it.
    let began = Instant::now();
    let held = Box::pin(take_more(context, pool, holding)).await;
    upload.queued(began.elapsed());
    held
}

async fn take_more(
    context: &RequestContext,
    pool: &PoolRuntime,
    holding: Arc<Holding>,
) -> Result<Held, ProxyError> {
    let share = context.generation.settings.client_share;
    let max = || {
        let each_max = pool.settings.connections_max;
        let all = pool.pool.connections(each_max, context.worker.shared.now());
        // The whole of a pool is not a share: its members' own limits say who waits.
        match share.of(all) {
            part if part < all => part,
            _ => u32::MAX,
        }
    };
    if let Some(held) = holding.try_take(max()) {
        return Ok(held);
    }
    context.conn.metrics.limit(Limit::ClientShare);
    let limit = pool.settings.first_byte_timeout;
    timeout(limit, holding.take(max))
        .await
        .map_err(|_| ProxyError::ShareTaken {
            pool: Arc::clone(pool.pool.name()),
        })
}

/// Waits until a body is complete or larger than the buffer, so that a client that sends slowly holds no member's
/// connection. Without room for it the request goes on at once, and its body is streamed.
pub(crate) async fn gather(context: &RequestContext, upload: &Upload) -> Result<(), ProxyError> {
    let settings = &context.generation.settings;
    let maxima = (
        settings.body_buffer_bytes_max,
        settings.body_buffers_bytes_max,
    );
    let charge = || {
        let shares = &context.worker.shared.shares;
        shares.charge(&context.conn, &context.standing)
    };
    match upload.gather(maxima, charge).await {
        Ok(Gathered::Enough) => Ok(()),
        Ok(Gathered::NoRoom) => {
            context.conn.metrics.limit(Limit::BodyBuffers);
            Ok(())
        }
        Err(fault) => Err(ProxyError::Body(fault)),
    }
}

/// Pools whose holdings a connection keeps at hand. A connection that uses more looks them up again.
const POOLS_KNOWN_MAX: usize = 16;
