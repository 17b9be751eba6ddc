//! The parts of one request that do not change.

use std::{rc::Rc, time::SystemTime};

use listener::ClientVerdict;
use tokio::time::Instant;

use crate::{
    client_shares::{ClientAccounts, ShareHolder},
    connection::Conn,
    generation::LocalGeneration,
    request_id::RequestId,
    worker::Worker,
};

/// One request's client, connection and configuration, for every step of the request path.
#[derive(Debug)]
pub(crate) struct RequestContext {
    pub(crate) worker: Rc<Worker>,
    pub(crate) conn: Rc<Conn>,
    /// The generation is loaded once, so that the request uses it from start to end.
    pub(crate) generation: LocalGeneration,
    /// The client's identity, verified against the trust store of `generation`.
    pub(crate) verdict: Rc<ClientVerdict>,
    pub(crate) request_id: RequestId,
    /// When the head arrived, on the monotonic clock.
    pub(crate) began: Instant,
    /// When the head arrived, on the wall clock.
    pub(crate) when: SystemTime,
}

impl RequestContext {
    /// The client's accounts that its connection stores, and the client.
    pub(crate) fn client_accounts(&self) -> (&ClientAccounts, ShareHolder<'_>) {
        let client = ShareHolder {
            certname: self.verdict.certname.as_ref(),
            address: self.conn.downstream.client.ip(),
        };
        (&self.conn.accounts, client)
    }

    pub(crate) fn new(worker: Rc<Worker>, conn: Rc<Conn>, began: Instant) -> Self {
        let generation = worker.current();
        let when = SystemTime::now();
        Self {
            verdict: conn.current_verdict(&generation.trust, when),
            request_id: worker.request_id(),
            worker,
            conn,
            generation,
            began,
            when,
        }
    }
}
