//! The estate of one row: a CA, three servers that record their requests, and the proxy.

use std::{cell::Cell, fs, path::Path, time::Duration};

use anyhow::Result;
use testkit::{
    Ca, Client, Protocol, Proxy, Recorded, Servers, StandIn, TestConnection, TestCredential,
    plain_pools, wait_until,
};

/// The catalog request of `web01`, the agent in most rows.
pub(super) const CATALOG: &str = "/puppet/v3/catalog/web01?environment=production";
/// Timeout for each wait.
pub(super) const LIMIT: Duration = Duration::from_secs(20);
/// How long the proxy may take to apply a CRL after a reload.
const SWAP_LIMIT: Duration = Duration::from_secs(6);

/// Consecutive refusals after which the new CRL counts as active.
const REFUSALS: u32 = 5;

/// Where the proxy gets its CRLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// From files.
    Plain,
    /// From the CA.
    Fetching,
}

/// The estate of one row.
pub(super) struct Scene {
    proxy: Proxy,
    pub(super) servers: Servers,
    shape: Shape,
}

impl Scene {
    pub(super) fn new(binary: &Path, protocol: Protocol, shape: Shape) -> Result<Self> {
        let servers = Servers::plain(&Ca::new());
        let scene = Self {
            proxy: start(binary, &servers, protocol, shape)?,
            servers,
            shape,
        };
        // The requests of the startup check do not belong to the row.
        scene.forget();
        Ok(scene)
    }

    pub(super) fn client(&self, agent: &TestCredential) -> Client {
        self.proxy.client(Some(agent))
    }

    pub(super) fn anonymous(&self) -> Client {
        self.proxy.client(None)
    }

    /// The requests that arrived at any server, without probes and without the proxy's own CRL fetches. In these rows,
    /// no agent requests a CRL.
    pub(super) fn arrived(&self) -> Vec<Recorded> {
        let requests = self.servers.members().flat_map(StandIn::requests);
        requests
            .filter(|request| self.shape == Shape::Plain || !is_fetch(request))
            .collect()
    }

    pub(super) fn forget(&self) {
        self.servers.forget();
    }

    /// Revokes an agent and reloads the CRL. Returns when the proxy refuses the agent, or when the limit is reached.
    pub(super) fn revoke(&self, agent: &TestCredential) {
        self.servers.ca.revoke(agent);
        // A proxy that fetches CRLs gets the new one from the CA.
        if self.shape == Shape::Plain {
            self.write_crls(Some(&self.servers.ca.crl_pem()));
        }
        let refused = Cell::new(0);
        let is_refused = || {
            let client = self.client(agent).forgetful();
            let answer = client.try_request("GET", CATALOG, &[], b"");
            let is_accepted = answer.is_ok_and(|answer| answer.status == 200);
            refused.set(if is_accepted { 0 } else { refused.get() + 1 });
            // One refusal does not show that later requests are refused too.
            (refused.get() == REFUSALS).then_some(())
        };
        wait_until(SWAP_LIMIT, is_refused);
        self.forget();
    }

    /// Writes the CRL file and reloads the proxy, even if the CRLs are invalid.
    pub(super) fn write_crls(&self, text: Option<&str>) {
        let path = self.proxy.ssldir().join("crl.pem");
        let written = match text {
            Some(text) => fs::write(&path, text),
            None => fs::remove_file(&path),
        };
        written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        self.proxy.reload();
    }

    /// Blocks an agent. Returns false if the command fails.
    pub(super) fn block(&self, certname: &str) -> bool {
        let outcome = self.proxy.command(&["block"], &[certname, "--why", "row"]);
        outcome.code == Some(0)
    }

    /// Opens a connection, exchanges one request on it, and leaves it open.
    pub(super) fn live(&self, client: &Client) -> Option<TestConnection> {
        let mut connection = client.connect().ok()?;
        let answer = connection.try_request("GET", CATALOG, &[], b"").ok()?;
        self.forget();
        (answer.status == 200).then_some(connection)
    }
}

/// Starts the proxy in front of these servers.
fn start(binary: &Path, servers: &Servers, protocol: Protocol, shape: Shape) -> Result<Proxy> {
    let builder = Proxy::new(&servers.ca, binary)
        .speaking(protocol)
        .with(&plain_pools(&servers.ca_server, &servers.compilers));
    let builder = match shape {
        Shape::Fetching => builder.fetch("interval = \"1s\""),
        Shape::Plain => builder,
    };
    let proxy = builder.listener("idle_timeout = \"10m\"").try_start();
    let proxy = proxy.map_err(|outcome| anyhow::anyhow!("{}", outcome.stderr))?;
    proxy.wait_for_members(&["ca", "compilers"]);
    Ok(proxy)
}

fn is_fetch(request: &Recorded) -> bool {
    request
        .path()
        .starts_with("/puppet-ca/v1/certificate_revocation_list")
}
