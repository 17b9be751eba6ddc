//! What one client holds of what all share: requests that run in a pool, and memory for bodies.

use std::sync::Arc;

use balancing::{BodyBudget, BodyCharge, ClientKey, Holding, Holdings};
use listener::Standing;
use telemetry::Limit;

use crate::{
    connection::Conn,
    context::RequestContext,
    error::ProxyError,
    upload::{Gathered, Upload},
};

/// What clients hold, over all workers and generations.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// Requests that run, by pool and client.
    running: Arc<Holdings>,
    /// Bytes of bodies, by client.
    bodies: Arc<Holdings>,
    budget: Arc<BodyBudget>,
}

impl Shares {
    /// What this connection's client holds of that pool. Looked up once for each connection and pool.
    pub(crate) fn of_pool(
        &self,
        pool: &Arc<str>,
        conn: &Conn,
        standing: &Standing,
    ) -> Arc<Holding> {
        let mut known = conn.holdings.borrow_mut();
        if let Some(holding) = known.iter().find(|holding| holding.resource() == &**pool) {
            return Arc::clone(holding);
        }
        let holding = self.running.of(pool, key(conn, standing));
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
