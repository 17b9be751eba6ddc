//! The store of a fleet fails in each way that etcd can: agents notice nothing, no block is lost, and all proxies agree
//! afterwards.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, SystemTime},
};

use rustls::crypto::{aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256, tls13::OkmBlock};
use serde_json::{Value, json};
use testkit::{
    DelayingRelay, HeldPort, TestCredential, Tool, has_own_namespaces, reconnect, wait_until,
};

use crate::{
    fleet::{Fleet, wait_for_status},
    fleet_command::wait_for_alarms,
    support::{Estate, LIMIT, done, materials::NOTIFY, paths::CATALOG},
};

/// The keys of the fleet of a test.
pub(crate) const PREFIX: &str = "/proscenium/test/";

/// Does something while an agent gets catalogs from each proxy, all of them with 200.
#[track_caller]
fn unnoticed<T>(proxies: &[&Estate], agent: &TestCredential, action: impl FnOnce() -> T) -> T {
    struct Ended<'a>(&'a AtomicBool);
    impl Drop for Ended<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let has_ended = AtomicBool::new(false);
    let path = CATALOG.replace("web01", &agent.certname);
    thread::scope(|scope| {
        // Set even if the action panics.
        let ended = Ended(&has_ended);
        let (path, has_ended) = (&path, &has_ended);
        let agents: Vec<_> = proxies
            .iter()
            .map(|proxy| proxy.client(agent))
            .map(|client| {
                scope.spawn(move || {
                    while !has_ended.load(Ordering::Relaxed) {
                        assert_eq!(client.get(path).status, 200, "an agent has noticed it");
                    }
                })
            })
            .collect();
        let result = action();
        drop(ended);
        for agent in agents {
            agent.join().expect("no request has failed");
        }
        result
    })
}

/// Blocks a certname. Exit code 5 means that the store was not reached in time, as during an election.
#[track_caller]
fn block(proxy: &Estate, name: &str) {
    let outcome = proxy.proxy.command(&["block"], &[name, "--why", "stolen"]);
    assert!(matches!(outcome.code, Some(0 | 5)), "{outcome:?}");
}

/// Blocks a certname while the store is unreachable, and asserts that the command says so.
#[track_caller]
fn block_alone(proxy: &Estate, name: &str) -> String {
    let outcome = proxy.proxy.command(&["block"], &[name, "--why", "stolen"]);
    assert_eq!(outcome.code, Some(5), "{outcome:?}");
    assert!(
        outcome.stderr.contains("not sent to the fleet"),
        "{outcome:?}"
    );
    outcome.stderr
}

/// The key and the value of the only record of a block.
fn only_block(fleet: &Fleet) -> (String, Vec<u8>) {
    let found = wait_until(LIMIT, || {
        let keys = fleet.store.keys(&format!("{PREFIX}blocks/"));
        keys.into_iter().next()
    });
    let key = found.expect("a block");
    let value = fleet.store.value(&key).expect("a value");
    (key, value)
}

/// Blocks one certname on each proxy, and waits until all refuse all.
#[track_caller]
fn assert_blocks_reach_all(fleet: &Fleet, proxies: &[&Estate], names: &[&str]) {
    for (proxy, name) in proxies.iter().zip(names) {
        block(proxy, name);
    }
    for name in names {
        let agent = fleet.ca.agent(name);
        for proxy in proxies {
            wait_for_status(proxy, &agent, 403);
        }
    }
}

#[test]
fn the_leader_of_etcd_is_killed() {
    let (Some(fleet), Some(_)) = (Fleet::start(3), Tool::Etcdctl.command()) else {
        return;
    };
    let (first, second) = (fleet.proxy("p1"), fleet.proxy("p2"));
    let proxies = [&first, &second];
    unnoticed(&proxies, &fleet.ca.agent("web09"), || {
        assert_blocks_reach_all(&fleet, &proxies, &["web01", "web02"]);
        fleet.store.kill(fleet.store.leader());
        assert_blocks_reach_all(&fleet, &proxies, &["web03", "web04"]);
    });
}

#[test]
fn a_quorum_is_lost_and_returns() {
    let Some(fleet) = Fleet::start(3) else { return };
    let (first, second) = (fleet.proxy("p1"), fleet.proxy("p2"));
    let proxies = [&first, &second];
    unnoticed(&proxies, &fleet.ca.agent("web09"), || {
        assert_blocks_reach_all(&fleet, &proxies, &["web01", "web02"]);
        fleet.store.kill(0);
        fleet.store.kill(1);
        block_alone(&first, "web03");
        block_alone(&second, "web04");
        // A proxy that starts now has no records from the others, and serves.
        let late = fleet.proxy("p3");
        wait_for_status(&late, &fleet.ca.agent("web09"), 200);
        fleet.store.restart(0);
        fleet.store.restart(1);
        for name in ["web01", "web02", "web03", "web04"] {
            for proxy in [&first, &second, &late] {
                wait_for_status(proxy, &fleet.ca.agent(name), 403);
            }
        }
    });
}

#[test]
fn a_frozen_member_delays_no_block_because_another_member_is_watched_too() {
    let (Some(fleet), Some(_)) = (Fleet::start(3), Tool::Etcdctl.command()) else {
        return;
    };
    let endpoint = |index| format!("\"https://{}\"", fleet.store.address(index));
    // Without its leader, etcd would accept no change until it has elected another one.
    let leader = fleet.store.leader();
    let follower = (leader + 1) % 3;
    let (frozen, other) = (endpoint(follower), endpoint(leader));
    // Without pings, the watch of the frozen member stays silent for longer than the test runs.
    let table = |endpoints: &str| {
        let table = fleet.store.fleet_table_of(endpoints);
        format!("{table}keepalive = \"1h\"\n")
    };
    let first = fleet.proxy_with("p1", &table(&format!("[{other}]")));
    let second = fleet.proxy_with("p2", &table(&format!("[{frozen}, {other}]")));
    let proxies = [&first, &second];
    unnoticed(&proxies, &fleet.ca.agent("web09"), || {
        assert_blocks_reach_all(&fleet, &proxies, &["web01", "web02"]);
        fleet.store.freeze(follower, true);
        block(&first, "web03");
        wait_for_status(&second, &fleet.ca.agent("web03"), 403);
        fleet.store.freeze(follower, false);
        assert_blocks_reach_all(&fleet, &proxies, &["web04", "web05"]);
    });
}

#[test]
fn a_block_is_sent_through_another_member_while_one_is_frozen() {
    let (Some(fleet), Some(_)) = (Fleet::start(3), Tool::Etcdctl.command()) else {
        return;
    };
    let endpoint = |index| format!("\"https://{}\"", fleet.store.address(index));
    let leader = fleet.store.leader();
    let followers = [(leader + 1) % 3, (leader + 2) % 3];
    let [one, two] = followers.map(endpoint);
    // With these limits, a call to a frozen member takes longer than an operator waits.
    let table = fleet.store.fleet_table_of(&format!("[{one}, {two}]"));
    let table = format!("{table}keepalive = \"1h\"\nrequest_timeout = \"60s\"\n");
    let first = fleet.proxy_with("p1", &table);
    let second = fleet.proxy_with(
        "p2",
        &fleet
            .store
            .fleet_table_of(&format!("[{}]", endpoint(leader))),
    );
    assert_blocks_reach_all(&fleet, &[&first, &second], &["web01", "web02"]);
    // The proxy has a connection for writes to one of the followers.
    for (follower, name) in followers.into_iter().zip(["web03", "web04"]) {
        fleet.store.freeze(follower, true);
        done(&first.proxy, &["block"], &[name, "--why", "stolen"]);
        wait_for_status(&second, &fleet.ca.agent(name), 403);
        fleet.store.freeze(follower, false);
    }
}

#[test]
fn a_member_that_is_cut_off_from_the_others_is_noticed_and_another_one_used() {
    if !has_own_namespaces(
        "fleet_faults::a_member_that_is_cut_off_from_the_others_is_noticed_and_another_one_used",
    ) {
        return;
    }
    let Some(fleet) = Fleet::start_separable() else {
        return;
    };
    let endpoint = |index| format!("\"https://{}\"", fleet.store.address(index));
    let (cut, other) = (endpoint(0), endpoint(1));
    let table = |endpoints: &str| fleet.store.fleet_table_of(endpoints);
    let first = fleet.proxy_with("p1", &table(&format!("[{other}]")));
    let second = fleet.proxy_with("p2", &table(&format!("[{cut}, {other}]")));
    // This proxy can use no other member of the store.
    let third = fleet.proxy_with("p3", &table(&format!("[{cut}]")));
    let proxies = [&first, &second, &third];
    let late = fleet.ca.agent("web04");
    unnoticed(&proxies, &fleet.ca.agent("web09"), || {
        assert_blocks_reach_all(&fleet, &proxies, &["web01", "web02", "web03"]);
        fleet.store.cut_off_first();
        // Without `hasleader`, the watch would stay open and silent, as the connection does.
        let is_unwatched = || {
            let status = third.proxy.admin("GET", "/v1/fleet").json();
            // A question may have had no answer before.
            let is_ended = status["unreached"]["why"].as_str()?.contains("no leader");
            (is_ended && status["sync_age_seconds"].as_u64()? > 0).then_some(())
        };
        wait_until(LIMIT, is_unwatched).expect("the watch ends");
        assert_blocks_reach_all(&fleet, &[&first, &second], &["web04", "web05"]);
        let path = CATALOG.replace("web01", "web04");
        assert_eq!(third.client(&late).get(&path).status, 200);
        block_alone(&third, "web06");
        reconnect();
        for name in ["web04", "web05", "web06"] {
            for proxy in proxies {
                wait_for_status(proxy, &fleet.ca.agent(name), 403);
            }
        }
    });
}

#[test]
fn the_first_endpoints_are_dead_at_the_start() {
    let Some(fleet) = Fleet::start(1) else { return };
    let dead = [HeldPort::take(), HeldPort::take()];
    let [one, two] = dead.each_ref().map(HeldPort::address);
    let endpoints = format!(
        "[\"https://{one}\", \"https://{two}\", \"https://{}\"]",
        fleet.store.address(0)
    );
    let table = fleet.store.fleet_table_of(&endpoints);
    let (first, second) = (
        fleet.proxy_with("p1", &table),
        fleet.proxy_with("p2", &table),
    );
    assert_blocks_reach_all(&fleet, &[&first, &second], &["web01", "web02"]);
}

#[test]
fn all_members_of_etcd_are_restarted() {
    let Some(fleet) = Fleet::start(3) else { return };
    let (first, second) = (fleet.proxy("p1"), fleet.proxy("p2"));
    let proxies = [&first, &second];
    unnoticed(&proxies, &fleet.ca.agent("web09"), || {
        assert_blocks_reach_all(&fleet, &proxies, &["web01", "web02"]);
        (0..3).for_each(|index| fleet.store.kill(index));
        thread::scope(|scope| {
            for index in 0..3 {
                let store = &fleet.store;
                scope.spawn(move || store.restart(index));
            }
        });
        assert_blocks_reach_all(&fleet, &proxies, &["web03", "web04"]);
    });
}

#[test]
fn t21_a_restored_store_loses_no_block_and_brings_no_lifted_one_back() {
    if Tool::Etcdctl.command().is_none() {
        return;
    }
    for token in ["etcd-cluster", "another"] {
        let Some(fleet) = Fleet::start(1) else { return };
        let (first, second) = (fleet.proxy("p1"), fleet.proxy("p2"));
        let [one, two] = ["web01", "web02"].map(|name| fleet.ca.agent(name));
        block(&first, "web01");
        wait_for_status(&second, &one, 403);
        let snapshot = fleet.store.file("snapshot");
        fleet.store.control(&["snapshot", "save", &snapshot], &[]);
        done(&second.proxy, &["unblock"], &["web01"]);
        block(&second, "web02");
        wait_for_status(&first, &one, 200);
        wait_for_status(&first, &two, 403);
        // The block does not return on any proxy that knows that it was lifted.
        unnoticed(&[&first, &second], &one, || {
            fleet.store.kill(0);
            fleet.store.restore_snapshot(&snapshot, token);
            fleet.store.restart(0);
            // A proxy that knows nothing gets what the other proxies put back.
            let new = fleet.proxy("p3");
            wait_for_status(&new, &two, 403);
            wait_for_status(&new, &one, 200);
            assert_blocks_reach_all(
                &fleet,
                &[&first, &second, &new],
                &["web03", "web04", "web05"],
            );
        });
    }
}

#[test]
fn the_watched_revisions_are_compacted() {
    let (Some(fleet), Some(_)) = (Fleet::start(1), Tool::Etcdctl.command()) else {
        return;
    };
    let (first, second) = (fleet.proxy("p1"), fleet.proxy("p2"));
    let proxies = [&first, &second];
    assert_blocks_reach_all(&fleet, &proxies, &["web01", "web02"]);
    let status = fleet
        .store
        .control(&["endpoint", "status", "-w", "json"], &[]);
    let status: Value = serde_json::from_slice(&status).expect("JSON");
    let revision = status[0]["Status"]["header"]["revision"].to_string();
    fleet
        .store
        .control(&["compact", &revision, "--physical"], &[]);
    assert_blocks_reach_all(&fleet, &proxies, &["web03", "web04"]);
    fleet.store.kill(0);
    fleet.store.restart(0);
    assert_blocks_reach_all(&fleet, &proxies, &["web05", "web06"]);
}

#[test]
fn a_full_database_of_etcd_delays_blocks_towards_other_proxies_only() {
    if Tool::Etcdctl.command().is_none() {
        return;
    }
    let quota = ["--quota-backend-bytes=4194304"];
    let Some(fleet) = Fleet::start_with(1, &quota) else {
        return;
    };
    let (first, second) = (fleet.proxy("p1"), fleet.proxy("p2"));
    let proxies = [&first, &second];
    unnoticed(&proxies, &fleet.ca.agent("web09"), || {
        assert_blocks_reach_all(&fleet, &proxies, &["web01", "web02"]);
        let megabyte = vec![b'x'; 1 << 20];
        let is_full = wait_until(LIMIT, || {
            let put = fleet.store.try_control(&[0], &["put", "/other"], &megabyte);
            (!put.status.success()).then_some(())
        });
        assert!(is_full.is_some(), "etcd has a quota");
        assert!(block_alone(&first, "web03").contains("NOSPACE"));
        assert!(block_alone(&second, "web04").contains("NOSPACE"));
        wait_for_status(&first, &fleet.ca.agent("web03"), 403);
        wait_for_status(&second, &fleet.ca.agent("web04"), 403);
        assert_eq!(
            first
                .client(&fleet.ca.agent("web04"))
                .get(&CATALOG.replace("web01", "web04"))
                .status,
            200
        );
        fleet.store.control(&["del", "/other"], &[]);
        let status = fleet
            .store
            .control(&["endpoint", "status", "-w", "json"], &[]);
        let status: Value = serde_json::from_slice(&status).expect("JSON");
        let revision = status[0]["Status"]["header"]["revision"].to_string();
        fleet
            .store
            .control(&["compact", &revision, "--physical"], &[]);
        fleet.store.control(&["defrag"], &[]);
        fleet.store.control(&["alarm", "disarm"], &[]);
        wait_for_status(&first, &fleet.ca.agent("web04"), 403);
        wait_for_status(&second, &fleet.ca.agent("web03"), 403);
    });
}

/// A proxy whose certificate towards etcd is `refused` shares nothing, says why, and uses the renewed one without a restart.
fn assert_renewed_certificate_is_used(fleet: &Fleet, refused: &TestCredential) {
    let table = fleet.store.fleet_table();
    let table = format!("{table}certificate = \"{{dir}}/etcd.pem\"\nkey = \"{{dir}}/etcd.key\"\n");
    let (cert, key) = (refused.cert_pem.clone(), refused.key_pem.clone());
    let first = fleet.proxy("p1");
    let second = Estate::builder()
        .ca(&fleet.ca)
        .certname("p2")
        .with(&table)
        .materials(NOTIFY)
        .file("etcd.pem", &cert, 0o644)
        .file("etcd.key", &key, 0o600)
        .start();
    let proxies = [&first, &second];
    unnoticed(&proxies, &fleet.ca.agent("web09"), || {
        second.proxy.wait_for_event("refuses this proxy");
        block(&first, "web01");
        block_alone(&second, "web02");
        wait_for_status(&first, &fleet.ca.agent("web01"), 403);
        wait_for_status(&second, &fleet.ca.agent("web02"), 403);
        let renewed = fleet.ca.agent("p2");
        second.proxy.write("etcd.key", &renewed.key_pem, 0o600);
        second.proxy.write("etcd.pem", &renewed.cert_pem, 0o644);
        wait_for_status(&first, &fleet.ca.agent("web02"), 403);
        wait_for_status(&second, &fleet.ca.agent("web01"), 403);
    });
}

#[test]
fn an_expired_certificate_of_a_proxy_is_renewed_without_a_restart() {
    let Some(fleet) = Fleet::start(1) else { return };
    let expired = fleet.ca.leaf("p2").expired().issue();
    assert_renewed_certificate_is_used(&fleet, &expired);
}

#[test]
fn a_revoked_certificate_of_a_proxy_is_renewed_without_a_restart() {
    let options = ["--client-crl-file={dir}/crl.pem"];
    let Some(fleet) = Fleet::start_with(1, &options) else {
        return;
    };
    let revoked = fleet.ca.agent("p2");
    fleet.ca.revoke(&revoked);
    fleet.store.write_crl(&fleet.ca);
    assert_renewed_certificate_is_used(&fleet, &revoked);
}

#[test]
fn an_agents_certificate_is_refused_by_the_store_and_the_proxy_says_so() {
    let (Some(fleet), Some(_)) = (Fleet::start(1), Tool::Etcdctl.command()) else {
        return;
    };
    let control = |words: &str| fleet.store.execute(words);
    control("user add root --no-password");
    control("user grant-role root root");
    control("role add proscenium");
    control("role grant-permission proscenium --prefix=true readwrite /proscenium/");
    control("user add p1 --no-password");
    control("user grant-role p1 proscenium");
    // A user without rights, and then no user.
    control("user add p2 --no-password");
    control("auth enable");
    let (first, second, third) = (fleet.proxy("p1"), fleet.proxy("p2"), fleet.proxy("p3"));
    block(&first, "web01");
    wait_for_status(&first, &fleet.ca.agent("web01"), 403);
    second.proxy.wait_for_event("refuses this proxy");
    third.proxy.wait_for_event("refuses this proxy");
    control("user grant-role p2 proscenium");
    control("user add p3 --no-password");
    control("user grant-role p3 proscenium");
    for proxy in [&second, &third] {
        wait_for_status(proxy, &fleet.ca.agent("web01"), 403);
    }
}

#[test]
fn a_proxy_that_may_not_write_says_so_once_and_still_follows_the_others() {
    let (Some(fleet), Some(_)) = (Fleet::start(1), Tool::Etcdctl.command()) else {
        return;
    };
    let control = |words: &str| fleet.store.execute(words);
    control("user add root --no-password");
    control("user grant-role root root");
    for (user, right) in [("p1", "readwrite"), ("p2", "read")] {
        control(&format!("role add {user}"));
        control(&format!(
            "role grant-permission {user} --prefix=true {right} /proscenium/"
        ));
        control(&format!("user add {user} --no-password"));
        control(&format!("user grant-role {user} {user}"));
    }
    control("auth enable");
    let (first, second) = (fleet.proxy("p1"), fleet.proxy("p2"));
    second.proxy.wait_for_event("permission denied");
    for number in 1..=9 {
        let name = format!("web0{number}");
        block(&first, &name);
        wait_for_status(&second, &fleet.ca.agent(&name), 403);
    }
    let events = second.proxy.stderr();
    let count = events.matches("the fleet's store is not reached").count();
    assert_eq!(count, 1, "{events}");
}

/// A value with the seal of the test's key file, 32 bytes 0.
pub(crate) fn sealed(key: &str, bytes: &[u8]) -> Vec<u8> {
    let rustls::SupportedCipherSuite::Tls13(suite) = TLS13_AES_128_GCM_SHA256 else {
        unreachable!("it is one of TLS 1.3")
    };
    let message = [b"proscenium fleet record 1\0", key.as_bytes(), b"\0", bytes].concat();
    let seal = suite
        .hkdf_provider
        .hmac_sign(&OkmBlock::new(&[0; 32]), &message);
    [seal.as_ref(), bytes].concat()
}

fn block_record(id: &str, certname: &str) -> Vec<u8> {
    let record = json!({
        "id": id, "blocked": { "certname": certname }, "by": "uid 0", "proxy": "p7", "why": "stolen", "since": 1000,
        "severity": { "newer": ["field"] },
    });
    record.to_string().into_bytes()
}

#[test]
fn the_store_keeps_blocks_for_31_days_after_they_were_lifted() {
    let (Some(fleet), Some(_)) = (Fleet::start(1), Tool::Etcdctl.command()) else {
        return;
    };
    let lifted = |id: &str, days: u64| {
        let mut record: Value =
            serde_json::from_slice(&block_record(id, "web01")).expect("a record");
        let at = SystemTime::now() - Duration::from_secs(days * 86_400);
        let at = at.duration_since(SystemTime::UNIX_EPOCH).expect("a time");
        record["lifted"] = json!({"by": "uid 0", "proxy": "p7", "at": at.as_millis() as u64});
        let key = format!("{PREFIX}blocks/{id}");
        let value = serde_json::to_vec(&record).expect("it is JSON");
        fleet.store.control(&["put", &key], &sealed(&key, &value));
        key
    };
    let (recent, old) = (lifted("p7-1", 29), lifted("p7-2", 32));
    let proxies = [fleet.proxy("p1"), fleet.proxy("p2")];
    let deleted = wait_until(LIMIT, || fleet.store.value(&old).is_none().then_some(()));
    assert!(deleted.is_some(), "{old}");
    assert!(fleet.store.value(&recent).is_some(), "{recent}");
    for proxy in &proxies {
        wait_for_alarms(&proxy.proxy, &[]);
    }
}

#[test]
fn t21_forged_and_replayed_records_have_no_effect_and_are_not_deleted() {
    let (Some(fleet), Some(_)) = (Fleet::start(1), Tool::Etcdctl.command()) else {
        return;
    };
    let (first, second) = (fleet.proxy("p1"), fleet.proxy("p2"));
    let proxies = [&first, &second];
    let victim = fleet.ca.agent("web09");
    block(&first, "web01");
    let (key, value) = only_block(&fleet);
    let at = |name: &str| format!("{PREFIX}{name}");
    let put = |key: &str, value: &[u8]| {
        fleet.store.control(&["put", key], value);
    };
    let good = sealed(&at("blocks/p7-1"), &block_record("p7-1", "web09"));
    let mut wrong_seal = good.clone();
    wrong_seal[0] ^= 1;
    let ignored = [
        (at("blocks/p7-1"), wrong_seal),
        // A whole record, at another key.
        (at("blocks/p7-2"), good.clone()),
        (at("members/compilers/c1:8140"), good.clone()),
        // Sealed for another key than that of its id.
        (
            at("blocks/p7-3"),
            sealed(&at("blocks/p7-3"), &block_record("p7-1", "web09")),
        ),
        (at("blocks/p7-4"), good[..good.len() - 5].to_vec()),
        (at("blocks/p7-5"), good[..20].to_vec()),
        (at("blocks/p7-6"), sealed(&at("blocks/p7-6"), b"[]")),
        (at("novelties/1"), sealed(&at("novelties/1"), b"{}")),
        (
            at("blocks/p7-7"),
            sealed(&at("blocks/p7-7"), &vec![b' '; 20_000]),
        ),
        (at("plain"), b"text".to_vec()),
    ];
    // A newer version may add fields to a block. This version still applies that block.
    let newer = at("blocks/p7-9");
    unnoticed(&proxies, &victim, || {
        for (key, value) in &ignored {
            put(key, value);
        }
        put(&newer, &sealed(&newer, &block_record("p7-9", "web02")));
        for proxy in proxies {
            wait_for_status(proxy, &fleet.ca.agent("web02"), 403);
        }
        // The record of a known block is overwritten, and deleted: the proxies put it back.
        put(&key, &good);
        let is_back = || (fleet.store.value(&key).as_ref() == Some(&value)).then_some(());
        assert!(
            wait_until(LIMIT, is_back).is_some(),
            "{}",
            first.proxy.stderr()
        );
        fleet.store.control(&["del", &key], &[]);
        assert!(
            wait_until(LIMIT, is_back).is_some(),
            "{}",
            first.proxy.stderr()
        );
        // A replay of the active record has no effect after the block was lifted.
        done(&second.proxy, &["unblock"], &["web01"]);
        let is_lifted = || (fleet.store.value(&key).as_ref() != Some(&value)).then_some(());
        assert!(
            wait_until(LIMIT, is_lifted).is_some(),
            "{}",
            second.proxy.stderr()
        );
        wait_for_status(&first, &fleet.ca.agent("web01"), 200);
        put(&key, &value);
        assert!(
            wait_until(LIMIT, is_lifted).is_some(),
            "{}",
            second.proxy.stderr()
        );
        // A field of a newer version survives a lift by this one.
        done(&first.proxy, &["unblock"], &["web02"]);
        let lifted = wait_until(LIMIT, || {
            let record = fleet.store.value(&newer)?.split_off(32);
            let record: Value = serde_json::from_slice(&record).ok()?;
            record["lifted"].is_object().then_some(record)
        });
        assert_eq!(
            lifted.expect("it is lifted")["severity"],
            json!({ "newer": ["field"] })
        );
    });
    // A newer version may block by something that this version does not know.
    let unknown = String::from_utf8(block_record("p7-10", "web03")).expect("text");
    let unknown = unknown.replace("\"certname\"", "\"pattern\"");
    let place = at("blocks/p7-10");
    put(&place, &sealed(&place, unknown.as_bytes()));
    first.proxy.wait_for_status("an alarm", |status| {
        let mut alarms = status["alarms"].as_array().into_iter().flatten();
        alarms.any(|known| known["key"] == "fleet-record:blocks/p7-10")
    });
    for (key, value) in &ignored {
        assert_eq!(fleet.store.value(key).as_ref(), Some(value), "{key}");
    }
    wait_for_status(&first, &fleet.ca.agent("web01"), 200);
    wait_for_status(&second, &fleet.ca.agent("web01"), 200);
}

#[test]
fn long_values_of_another_client_keep_out_no_block() {
    let (Some(fleet), Some(_)) = (Fleet::start(1), Tool::Etcdctl.command()) else {
        return;
    };
    let first = fleet.proxy("p1");
    block(&first, "web01");
    // Together, they are longer than a message of gRPC may be.
    for number in 0..6 {
        let key = format!("{PREFIX}blocks/a-{number}");
        fleet.store.control(&["put", &key], &vec![b'x'; 1 << 20]);
    }
    let second = fleet.proxy("p2");
    wait_for_status(&second, &fleet.ca.agent("web01"), 403);
    let alarm = format!("fleet-record:blocks/a-{}", 5);
    second.proxy.wait_for_status(&alarm, |status| {
        let mut alarms = status["alarms"].as_array().into_iter().flatten();
        alarms.any(|known| known["key"] == *alarm)
    });
}

#[test]
fn a_slow_network_to_etcd_delays_no_agent_and_no_block_on_its_own_proxy() {
    let Some(fleet) = Fleet::start(1) else { return };
    let relay = DelayingRelay::start(fleet.store.address(0), Duration::from_secs(2));
    let endpoint = format!("[\"https://{}\"]", relay.address());
    let first = fleet.proxy("p1");
    let second = fleet.proxy_with("p2", &fleet.store.fleet_table_of(&endpoint));
    let proxies = [&first, &second];
    unnoticed(&proxies, &fleet.ca.agent("web09"), || {
        second.proxy.wait_for_event("is not reached");
        block(&first, "web01");
        block_alone(&second, "web02");
        wait_for_status(&second, &fleet.ca.agent("web02"), 403);
        relay.set_delay(Duration::ZERO);
        for proxy in proxies {
            for name in ["web01", "web02"] {
                wait_for_status(proxy, &fleet.ca.agent(name), 403);
            }
        }
    });
}
