//! Several proxies share the actions of operators through a real etcd.

use testkit::{Ca, EtcdCluster, Proxy, TestCredential, plain_pools, wait_until};

use crate::support::{self, Estate, LIMIT, done, paths::CATALOG};

/// The store of a fleet, and the CA of its proxies. Each proxy has servers of its own.
pub(crate) struct Fleet {
    pub(crate) store: EtcdCluster,
    pub(crate) ca: Ca,
}

impl Fleet {
    pub(crate) fn start(members: usize) -> Option<Self> {
        Self::start_with(members, &[])
    }

    /// Starts a fleet with further options for etcd.
    pub(crate) fn start_with(members: usize, options: &[&str]) -> Option<Self> {
        let ca = Ca::new();
        let store = EtcdCluster::start_with(&ca, members, options)?;
        Some(Self { store, ca })
    }

    /// A fleet whose store has three members, of which the first can be cut off from the others.
    pub(crate) fn start_separable() -> Option<Self> {
        let ca = Ca::new();
        let store = EtcdCluster::start_separable(&ca, 3)?;
        Some(Self { store, ca })
    }

    /// A proxy in front of the servers of an estate.
    pub(crate) fn proxy_before(&self, name: &str, servers: &Estate) -> Proxy {
        self.proxy_to(
            name,
            servers,
            servers.compilers.len(),
            &self.store.fleet_table(),
        )
    }

    /// A proxy in front of the CA server of an estate and its first compilers, with these tables.
    pub(crate) fn proxy_to(
        &self,
        name: &str,
        servers: &Estate,
        compilers: usize,
        tables: &str,
    ) -> Proxy {
        let proxy = support::proxy(&self.ca)
            .certname(name)
            .with(&plain_pools(
                &servers.ca_server,
                &servers.compilers[..compilers],
            ))
            .with(tables)
            .start();
        proxy.wait_for_members(&["ca", "compilers"]);
        proxy
    }

    /// A proxy with this certname.
    pub(crate) fn proxy(&self, name: &str) -> Estate {
        self.proxy_with(name, &self.store.fleet_table())
    }

    /// A proxy with this certname and this table.
    pub(crate) fn proxy_with(&self, name: &str, table: &str) -> Estate {
        Estate::builder()
            .ca(&self.ca)
            .certname(name)
            .with(table)
            .start()
    }
}

#[track_caller]
pub(crate) fn wait_for_status(estate: &Estate, agent: &TestCredential, expected: u16) {
    let path = CATALOG.replace("web01", &agent.certname);
    let answered = || (estate.client(agent).get(&path).status == expected).then_some(());
    let why = || estate.proxy.stderr();
    assert!(
        wait_until(LIMIT, answered).is_some(),
        "{expected}: {}",
        why()
    );
}

#[test]
fn a_block_on_one_proxy_applies_to_all_and_is_lifted_on_all() {
    let Some(fleet) = Fleet::start(1) else { return };
    let (first, second) = (fleet.proxy("p1"), fleet.proxy("p2"));
    let agent = fleet.ca.agent("web01");
    wait_for_status(&second, &agent, 200);
    done(&first.proxy, &["block"], &["web01", "--why", "stolen"]);
    wait_for_status(&first, &agent, 403);
    wait_for_status(&second, &agent, 403);
    done(&second.proxy, &["unblock"], &["web01"]);
    wait_for_status(&first, &agent, 200);
}

#[test]
fn a_proxy_starts_and_blocks_without_the_store_which_gets_all_records_when_it_returns_empty() {
    let Some(fleet) = Fleet::start(1) else { return };
    let [one, two, three] = ["web01", "web02", "web03"].map(|name| fleet.ca.agent(name));
    let first = fleet.proxy("p1");
    done(&first.proxy, &["block"], &["web01", "--why", "stolen"]);
    let second = fleet.proxy("p2");
    wait_for_status(&second, &one, 403);
    fleet.store.kill(0);
    fleet.store.wipe(0);
    for (estate, name) in [(&first, "web02"), (&second, "web03")] {
        let outcome = estate.proxy.command(&["block"], &[name, "--why", "stolen"]);
        assert_eq!(outcome.code, Some(5), "{outcome:?}");
    }
    let late = fleet.proxy("p3");
    assert_eq!(
        late.client(&one).get(CATALOG).status,
        200,
        "it knows no block yet"
    );
    fleet.store.restart(0);
    for proxy in [&first, &second, &late] {
        for agent in [&one, &two, &three] {
            wait_for_status(proxy, agent, 403);
        }
    }
}

fn state(proxy: &Proxy, address: &str) -> String {
    let status = proxy.status();
    let pools = status["pools"].as_array().into_iter().flatten();
    let members = pools.flat_map(|pool| pool["members"].as_array().into_iter().flatten().cloned());
    let mut found = members.filter(|member| member["address"] == *address);
    let member = found.next().expect("a member");
    member["administrative_state"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[track_caller]
fn wait_for_state(proxy: &Proxy, address: &str, expected: &str) {
    let is_there = || (state(proxy, address) == expected).then_some(());
    assert!(
        wait_until(LIMIT, is_there).is_some(),
        "{expected}: {}",
        proxy.stderr()
    );
}

#[test]
fn a_drain_on_one_proxy_applies_to_all_but_takes_no_last_member() {
    let Some(fleet) = Fleet::start(1) else { return };
    let servers = Estate::builder().ca(&fleet.ca).compilers(2).start();
    let [c1, c2] = [0, 1].map(|index| servers.compilers[index].address());
    let first = fleet.proxy_before("p1", &servers);
    let second = fleet.proxy_before("p2", &servers);
    done(&first, &["drain"], &[&c1, "--why", "disk"]);
    wait_for_state(&second, &c1, "drain");
    done(&second, &["ready"], &[&c1]);
    wait_for_state(&first, &c1, "ready");
    // Each proxy drains another member before it learns of the other drain: neither pool may become empty.
    fleet.store.kill(0);
    for (proxy, address) in [(&first, &c1), (&second, &c2)] {
        let outcome = proxy.command(&["drain"], &[address]);
        assert_eq!(outcome.code, Some(5), "{outcome:?}");
    }
    fleet.store.restart(0);
    first.wait_for_event("withheld");
    second.wait_for_event("withheld");
    assert_eq!(state(&first, &c2), "ready");
    assert_eq!(state(&second, &c1), "ready");
    // Once another member is available, the drain applies.
    done(&first, &["ready"], &[&c1]);
    wait_for_state(&first, &c2, "drain");
    wait_for_state(&second, &c1, "ready");
}
