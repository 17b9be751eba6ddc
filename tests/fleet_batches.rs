//! Changes of many records at once: they reach the other proxies together, with few writes to the store.

use std::{collections::BTreeSet, fmt::Write as _, time::Instant};

use serde_json::Value;
use testkit::{Proxy, Tool, wait_until};

use crate::{
    fleet::{Fleet, wait_for_status},
    fleet_command::wait_for_proxies,
    fleet_faults::PREFIX,
    support::{Estate, LIMIT, done},
};

/// The number of writes that set the keys of this kind: each write raises the revision of the store by one.
fn writes(fleet: &Fleet, kind: &str) -> usize {
    let prefix = format!("{PREFIX}{kind}/");
    let arguments = ["get", &prefix, "--prefix", "--keys-only", "-w", "json"];
    let keys: Value = serde_json::from_slice(&fleet.store.control(&arguments, &[])).expect("JSON");
    let keys = keys["kvs"].as_array().into_iter().flatten();
    let revisions: BTreeSet<_> = keys.map(|key| key["mod_revision"].as_u64()).collect();
    revisions.len()
}

/// How often the trust store of a proxy was replaced.
fn trust_generation(proxy: &Proxy) -> u64 {
    let generation = proxy.status()["trust"]["generation"].as_u64();
    generation.expect("a generation")
}

fn foreign_lines(proxy: &Proxy, action: &str) -> usize {
    let path = proxy.state_directory().join("audit.log");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines = text
        .lines()
        .map(|line| -> Value { serde_json::from_str(line).expect("JSON") });
    lines
        .filter(|line| line["action"] == *action && line["origin"].is_object())
        .count()
}

#[track_caller]
fn wait_for_lines(proxy: &Proxy, action: &str, expected: usize) {
    let lines = || foreign_lines(proxy, action);
    let found = wait_until(LIMIT, || (lines() == expected).then_some(()));
    assert!(found.is_some(), "{}", lines());
}

#[test]
fn a_thousand_blocks_of_a_file_are_few_changes_for_the_store_and_for_the_other_proxy() {
    const NAMES: usize = 1000;
    let (Some(fleet), Some(_)) = (Fleet::start(1), Tool::Etcdctl.command()) else {
        return;
    };
    let [first, second] = ["p1", "p2"].map(|name| fleet.proxy(name));
    wait_for_proxies(&first.proxy, &["p1", "p2"]);
    wait_for_proxies(&second.proxy, &["p1", "p2"]);
    let mut names = String::new();
    for number in 0..NAMES {
        let _ = writeln!(names, "web{number}");
    }
    first.proxy.write("stolen.txt", &names, 0o644);
    let file = first.proxy.directory().join("stolen.txt");
    let before = trust_generation(&second.proxy);
    let began = Instant::now();
    let file = file.display().to_string();
    let arguments = ["--file", &file, "--why", "rack 7"];
    done(&first.proxy, &["block"], &arguments);
    let commanded = began.elapsed();
    let all = |status: &Value| status["blocks"] == NAMES;
    second.proxy.wait_for_status("all are blocked", all);
    eprintln!(
        "{NAMES} blocks: the command took {commanded:?}, the other proxy had all after {:?} at most",
        began.elapsed()
    );
    let writes = writes(&fleet, "blocks");
    let replaced = trust_generation(&second.proxy) - before;
    eprintln!("{writes} writes to the store, {replaced} trust stores of the other proxy");
    // Ten writes are expected, and a few more if one has failed.
    assert!(writes <= 20, "{writes}");
    assert!(replaced <= 20, "{replaced}");
    wait_for_status(&second, &fleet.ca.agent("web999"), 403);
    wait_for_lines(&second.proxy, "block", NAMES);
    let path = second.proxy.state_directory().join("blocks.json");
    let stored = || {
        let text = std::fs::read(&path).ok()?;
        let stored: Value = serde_json::from_slice(&text).ok()?;
        (stored["blocks"].as_array()?.len() == NAMES).then_some(())
    };
    assert!(wait_until(LIMIT, stored).is_some());
}

#[test]
fn a_drain_of_all_members_on_a_host_is_one_change_for_the_store() {
    const MEMBERS: usize = 60;
    let (Some(fleet), Some(_)) = (Fleet::start(1), Tool::Etcdctl.command()) else {
        return;
    };
    let servers = Estate::builder().ca(&fleet.ca).compilers(1).start();
    let members: Vec<_> = (0..MEMBERS)
        .map(|number| format!("\"127.0.0.2:{}\"", 1 + number))
        .collect();
    let tables = format!(
        "{}[pools.others]\nscheme = \"http\"\nmembers = [{}]\n",
        fleet.store.fleet_table(),
        members.join(", ")
    );
    let [first, second] = ["p1", "p2"].map(|name| fleet.proxy_to(name, &servers, 1, &tables));
    wait_for_proxies(&first, &["p1", "p2"]);
    wait_for_proxies(&second, &["p1", "p2"]);
    let drained = |status: &Value| {
        let pools = status["pools"].as_array().into_iter().flatten();
        let others = pools.filter(|pool| pool["name"] == "others");
        let members = others.flat_map(|pool| pool["members"].as_array().into_iter().flatten());
        let drained = members.filter(|member| member["administrative_state"] == "drain");
        drained.count() == MEMBERS
    };
    let began = Instant::now();
    done(
        &first,
        &["drain"],
        &["--host", "127.0.0.2", "--why", "move"],
    );
    second.wait_for_status("all are drained", drained);
    eprintln!("{MEMBERS} members: {:?}", began.elapsed());
    assert_eq!(writes(&fleet, "members"), 1);
    wait_for_lines(&second, "drain", MEMBERS);
}
