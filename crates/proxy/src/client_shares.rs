//! What one client holds of what all share: requests that run in a pool, and memory for bodies.

use std::sync::Arc;

use balancing::{BodyBudget, BodyCharge, ClientKey, Holding, Holdings};
use listener::ClientVerdict;
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
    /// Requests that run and hold no JRuby, by pool and client.
    running: Arc<Holdings>,
    /// Requests that run and hold a JRuby, by pool and client.
    jrubies: Arc<Holdings>,
    /// Bytes of bodies, by client.
    bodies: Arc<Holdings>,
    budget: Arc<BodyBudget>,
}

/// Which limits hold for the requests that a client's account counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Account {
    /// Those of requests that hold a JRuby: `agent_max` and `agent_queue_max`.
    Jrubies,
    /// Those of the rest, and of all requests of clients that `agent_max_except` names: `client_share`.
    Share,
}

/// An account of a connection's client, as the connection knows it.
#[derive(Debug)]
pub(crate) struct KnownAccount {
    /// Of requests that hold a JRuby.
    jruby: bool,
    account: Account,
    holding: Arc<Holding>,
    /// The generation that said which account it is.
    generation: u64,
}

impl Shares {
    /// The account of this request's client for that pool. It is looked up once for each connection, pool and generation.
    pub(crate) fn of_pool(
        &self,
        context: &RequestContext,
        pool: &Arc<str>,
        jruby: bool,
    ) -> (Arc<Holding>, Account) {
        let generation = &context.generation;
        let mut known = context.conn.accounts.borrow_mut();
        if let Some(known) = known.iter().find(|known| {
            known.jruby == jruby
                && known.generation == generation.number
                && known.holding.resource() == &**pool
        }) {
            return (Arc::clone(&known.holding), known.account);
        }
        let (conn, verdict) = (&context.conn, &context.verdict);
        let except = |certname| {
            generation
                .agent_max_except
                .iter()
                .any(|p| p.matches(certname))
        };
        let is_excepted = verdict.certname.as_deref().is_some_and(except);
        let account = match jruby && !is_excepted {
            true => Account::Jrubies,
            false => Account::Share,
        };
        let holdings = match jruby {
            true => &self.jrubies,
            false => &self.running,
        };
        let holding = holdings.of(pool, key(conn, verdict));
        known.retain(|known| known.generation == generation.number);
        if known.len() == ACCOUNTS_KNOWN_MAX {
            known.clear();
        }
        known.push(KnownAccount {
            jruby,
            account,
            holding: Arc::clone(&holding),
            generation: generation.number,
        });
        (holding, account)
    }

    /// Bytes of request bodies that are buffered now.
    pub(crate) fn body_buffer_bytes(&self) -> u64 {
        self.budget.held()
    }

    /// A charge to this connection's client, which is looked up once for each connection.
    fn charge(&self, conn: &Conn, verdict: &ClientVerdict) -> BodyCharge {
        let client = conn.bodies.get_or_init(|| {
            let resource = Arc::from("bodies");
            self.bodies.of(&resource, key(conn, verdict))
        });
        BodyCharge::new(&self.budget, Arc::clone(client))
    }
}

fn key(conn: &Conn, verdict: &ClientVerdict) -> ClientKey {
    ClientKey::new(verdict.certname.as_ref(), conn.downstream.client.ip())
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
        shares.charge(&context.conn, &context.verdict)
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

/// Accounts that a connection keeps at hand, two of each pool. A connection that uses more looks them up again.
const ACCOUNTS_KNOWN_MAX: usize = 32;
