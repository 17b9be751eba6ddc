//! The estate of one row: a CA, three servers that record their requests, and one front end.

use std::{cell::Cell, time::Duration};

use anyhow::Result;
use testkit::{
    Ca, Client, Protocol, Recorded, Servers, StandIn, TestConnection, TestCredential, wait_until,
};

use super::front::{Front, Maker};

/// The catalog request of `web01`, the agent in most rows.
pub(super) const CATALOG: &str = "/puppet/v3/catalog/web01?environment=production";
/// Timeout for each wait.
pub(super) const LIMIT: Duration = Duration::from_secs(20);
/// How long a front end may take to apply a CRL after a reload.
const SWAP_LIMIT: Duration = Duration::from_secs(6);

/// Consecutive refusals after which the new CRL counts as active.
const REFUSALS: u32 = 5;

/// Where the front end gets its CRLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// From files.
    Plain,
    /// From the CA.
    Fetching,
}

/// The estate of one row.
pub(super) struct Scene {
    pub(super) front: Front,
    pub(super) servers: Servers,
    protocol: Protocol,
    shape: Shape,
}

impl Scene {
    pub(super) fn new(maker: &Maker, protocol: Protocol, shape: Shape) -> Result<Self> {
        let servers = Servers::plain(&Ca::new());
        let scene = Self {
            front: maker.start(&servers, protocol, shape)?,
            servers,
            protocol,
            shape,
        };
        // The requests of the startup check do not belong to the row.
        scene.forget();
        Ok(scene)
    }

    pub(super) fn client(&self, agent: &TestCredential) -> Client {
        self.front.client(Some(agent), self.protocol)
    }

    pub(super) fn anonymous(&self) -> Client {
        self.front.client(None, self.protocol)
    }

    /// The requests that arrived at any server, without probes and without the front end's own CRL fetches. No agent in
    /// such a row requests a CRL.
    pub(super) fn arrived(&self) -> Vec<Recorded> {
        let requests = self.servers.members().flat_map(StandIn::requests);
        requests
            .filter(|request| self.shape == Shape::Plain || !is_fetch(request))
            .collect()
    }

    pub(super) fn forget(&self) {
        self.servers.forget();
    }

    /// Revokes an agent and reloads the CRL. Returns when the front end refuses the agent, or when the limit is
    /// reached.
    pub(super) fn revoke(&self, agent: &TestCredential) {
        self.servers.ca.revoke(agent);
        // A front end that fetches gets the new CRL from the CA.
        if self.shape == Shape::Plain {
            self.front.write_crls(Some(&self.servers.ca.crl_pem()));
        }
        let refused = Cell::new(0);
        let is_refused = || {
            let client = self.client(agent).forgetful();
            let answer = client.try_request("GET", CATALOG, &[], b"");
            let is_accepted = answer.is_ok_and(|answer| answer.status == 200);
            refused.set(if is_accepted { 0 } else { refused.get() + 1 });
            // A single refusal may come from an old process that is shutting down.
            (refused.get() == REFUSALS).then_some(())
        };
        wait_until(SWAP_LIMIT, is_refused);
        self.forget();
    }

    /// Opens a connection, has one request answered on it, and leaves it open.
    pub(super) fn live(&self, client: &Client) -> Option<TestConnection> {
        let mut connection = client.connect().ok()?;
        let answer = connection.try_request("GET", CATALOG, &[], b"").ok()?;
        self.forget();
        (answer.status == 200).then_some(connection)
    }
}

fn is_fetch(request: &Recorded) -> bool {
    request
        .path()
        .starts_with("/puppet-ca/v1/certificate_revocation_list")
}
