//! Several proxies share operators' acts through a real etcd.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use tempfile::TempDir;
use testkit::{Ca, EtcdCluster, TestCredential, fleet_table, wait_until};

use crate::support::{Estate, LIMIT, done, paths::CATALOG};

/// A fleet of proxies, each with servers of its own, and their store.
struct Fleet {
    store: EtcdCluster,
    keys: TempDir,
    ca: Ca,
}

impl Fleet {
    fn start(members: usize) -> Option<Self> {
        let ca = Ca::new();
        let keys = TempDir::new().expect("a directory");
        let fleet = Self {
            store: EtcdCluster::start(&ca, members)?,
            keys,
            ca,
        };
        // 32 bytes in base64.
        fs::write(fleet.key_file(), format!("{}=", "A".repeat(43))).expect("a file");
        let mode = fs::Permissions::from_mode(0o600);
        fs::set_permissions(fleet.key_file(), mode).expect("a mode");
        Some(fleet)
    }

    fn key_file(&self) -> PathBuf {
        self.keys.path().join("fleet.key")
    }

    /// A proxy with this certname.
    fn proxy(&self, name: &str) -> Estate {
        let table = fleet_table(&self.store, &self.key_file());
        let name = name.to_owned();
        Estate::builder()
            .ca(&self.ca)
            .proxy(move |proxy| proxy.certname(&name).with(&table))
            .start()
    }
}

fn wait_for_status(estate: &Estate, agent: &TestCredential, expected: u16) {
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
    done(&first.proxy, &["block"], &["web02", "--why", "stolen"]);
    done(&second.proxy, &["block"], &["web03", "--why", "stolen"]);
    let late = fleet.proxy("p3");
    assert_eq!(late.client(&one).get(CATALOG).status, 200, "it knows no block yet");
    fleet.store.restart(0);
    for proxy in [&first, &second, &late] {
        for agent in [&one, &two, &three] {
            wait_for_status(proxy, agent, 403);
        }
    }
}
