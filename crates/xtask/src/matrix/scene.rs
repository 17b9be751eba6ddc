//! One row's estate: a CA, three servers that record what arrives, and one front end.

use std::{cell::Cell, time::Duration};

use anyhow::Result;
use testkit::{
    Ca, Client, Connection, Credential, Protocol, Recorded, Servers, StandIn, wait_until,
};

use super::front::{Front, Maker};

/// The catalog of the agent that most rows are about.
pub(super) const CATALOG: &str = "/puppet/v3/catalog/web01?environment=production";
/// Longer than anything takes that is not stuck.
pub(super) const LIMIT: Duration = Duration::from_secs(20);
/// How long a front end may take to act on a list that it was told to read.
const SWAP_LIMIT: Duration = Duration::from_secs(6);

/// Refusals in a row that say that a new list is in force.
const REFUSALS: u32 = 5;

/// What is special about the front end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Lists come from files.
    Plain,
    /// Lists come from the CA.
    Fetching,
}

/// One row's estate.
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
        // What showed that it serves is no part of the row.
        scene.forget();
        Ok(scene)
    }

    pub(super) fn client(&self, agent: &Credential) -> Client {
        self.front.client(Some(agent), self.protocol)
    }

    pub(super) fn anonymous(&self) -> Client {
        self.front.client(None, self.protocol)
    }

    /// What arrived at any server, without probes and without the lists that a front end fetches for itself: no agent of
    /// such a row asks for one.
    pub(super) fn arrived(&self) -> Vec<Recorded> {
        let requests = self.servers.members().flat_map(StandIn::requests);
        requests
            .filter(|request| self.shape == Shape::Plain || !is_fetch(request))
            .collect()
    }

    pub(super) fn forget(&self) {
        self.servers.forget();
    }

    /// Revokes an agent and has the list read; returns when the front end acts on it, or has had the time to.
    pub(super) fn revoke(&self, agent: &Credential) {
        self.servers.ca.revoke(agent);
        // Where it fetches, the CA's own answer has changed with the CA.
        if self.shape == Shape::Plain {
            self.front.write_crls(Some(&self.servers.ca.crl_pem()));
        }
        let refused = Cell::new(0);
        let out = || {
            let client = self.client(agent).forgetful();
            let answer = client.try_request("GET", CATALOG, &[], b"");
            let is_in = answer.is_ok_and(|answer| answer.status == 200);
            refused.set(if is_in { 0 } else { refused.get() + 1 });
            // One may be the old process, on its entry out.
            (refused.get() == REFUSALS).then_some(())
        };
        wait_until(SWAP_LIMIT, out);
        self.forget();
    }

    /// A connection on which a request was answered, and which stays.
    pub(super) fn live(&self, client: &Client) -> Option<Connection> {
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
