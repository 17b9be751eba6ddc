//! When a proxy of a fleet has a newer CRL, the others fetch from their CA at once. They share nothing else about CRLs.

use serde_json::{Value, json};
use testkit::{Reply, Tool, wait_until};

use crate::{
    fleet::{Fleet, wait_for_status},
    fleet_faults::{PREFIX, sealed},
    support::{
        Estate, LIMIT,
        crl_fetch::{
            ON_REQUEST, answer_crl_requests, crl_requests, fetch, fetch_unchanged, start_and_fetch,
        },
        done,
    },
};

/// A proxy with its own CA server. It fetches CRLs at its start, when an operator requests it, and when another proxy
/// has a newer one.
fn fetching(fleet: &Fleet, name: &str) -> Estate {
    let (name, table) = (name.to_owned(), fleet.store.fleet_table());

    start_and_fetch(
        Estate::builder()
            .ca(&fleet.ca)
            .certname(&name)
            .with(&table)
            .fetch(ON_REQUEST),
    )
}

/// The entry about the proxy `of` in the status of another one.
fn shown(at: &Estate, of: &str) -> Option<Value> {
    let fleet = done(&at.proxy, &["fleet"], &["--json"]);
    let fleet: Value = serde_json::from_str(&fleet).expect("JSON");
    let mut proxies = fleet["proxies"].as_array().into_iter().flatten();
    proxies.find(|proxy| proxy["name"] == of).cloned()
}

/// Waits until a proxy shows that another one has this CRL number.
#[track_caller]
fn wait_for_number(at: &Estate, of: &str, number: &str) {
    let crls = || Some(shown(at, of)?["crls"].clone());
    let has = |crls: &Value| {
        let mut numbers = crls.as_object().into_iter().flat_map(|crls| crls.values());
        numbers.any(|shown| shown == number)
    };
    let found = wait_until(LIMIT, || crls().filter(has));
    assert!(found.is_some(), "{number}: {:?}", crls());
}

fn count(estate: &Estate) -> usize {
    crl_requests(&estate.ca_server).len()
}

#[track_caller]
fn wait_for_count(estate: &Estate, expected: usize) {
    let found = wait_until(LIMIT, || (count(estate) >= expected).then_some(()));
    assert!(found.is_some(), "{}", estate.proxy.stderr());
    assert_eq!(count(estate), expected);
}

/// Makes `of` publish its entry again, and waits until the other proxy has read it.
#[track_caller]
fn say_again(of: &Estate, name: &str, at: &Estate) {
    let applied = || shown(at, name).map(|proxy| proxy["applied"].clone());
    for (words, arguments) in [
        (["block"], &["web99", "--why", "test"][..]),
        (["unblock"], &["web99"]),
    ] {
        let before = applied();
        done(&of.proxy, &words, arguments);
        let is_read = || applied().filter(|now| Some(now) != before.as_ref());
        assert!(wait_until(LIMIT, is_read).is_some(), "{before:?}");
    }
}

#[test]
fn a_revocation_that_one_proxy_fetches_reaches_all_without_a_command_there() {
    let Some(fleet) = Fleet::start(1) else { return };
    let [first, second] = ["p1", "p2"].map(|name| fetching(&fleet, name));
    let [one, two] = ["web01", "web02"].map(|name| fleet.ca.agent(name));
    wait_for_status(&second, &one, 200);
    wait_for_status(&second, &two, 200);
    fleet.ca.revoke(&one);
    fetch(&first.proxy);
    wait_for_status(&second, &one, 403);
    second
        .proxy
        .wait_for_event("another proxy of the fleet has a newer CRL");
    // The CRL came from the CA server of the second proxy. The next one is fetched too, in either direction.
    let number = fleet.ca.crl_number().to_string();
    wait_for_number(&first, "p2", &number);
    let asked = count(&second);
    fleet.ca.revoke(&two);
    fetch(&second.proxy);
    wait_for_status(&first, &two, 403);
    // The first proxy learned this number from the second one, which therefore does not fetch.
    wait_for_number(&second, "p1", &fleet.ca.crl_number().to_string());
    say_again(&first, "p1", &second);
    assert_eq!(count(&second), asked + 1, "only that of the operator");
}

#[test]
fn a_crl_file_that_one_proxy_reloads_makes_the_others_fetch_and_it_fetches_nothing_itself() {
    let Some(fleet) = Fleet::start(1) else { return };
    // The first proxy has the agent's copy of the CRL, and does not fetch.
    let (first, second) = (fleet.proxy("p1"), fetching(&fleet, "p2"));
    let [one, two] = ["web01", "web02"].map(|name| fleet.ca.agent(name));
    wait_for_status(&second, &one, 200);
    fleet.ca.revoke(&one);
    first.proxy.write_crl();
    first.proxy.reload_applied();
    wait_for_status(&second, &one, 403);
    fleet.ca.revoke(&two);
    fetch(&second.proxy);
    wait_for_number(&first, "p2", &fleet.ca.crl_number().to_string());
    say_again(&second, "p2", &first);
    wait_for_status(&first, &two, 200);
    assert_eq!(count(&first), 0);
}

#[test]
fn a_number_that_is_not_higher_fetches_nothing_and_one_that_the_ca_lacks_fetches_once() {
    let Some(fleet) = Fleet::start(1) else { return };
    let [first, second] = ["p1", "p2"].map(|name| fetching(&fleet, name));
    let agent = fleet.ca.agent("web01");
    let older = fleet.ca.crl_pem();
    answer_crl_requests(&second.ca_server, Reply::ok(&older));
    fetch_unchanged(&second.proxy);
    // The first proxy has fetched the same number and publishes it.
    fetch_unchanged(&first.proxy);
    say_again(&first, "p1", &second);
    let before = count(&second);
    fleet.ca.revoke(&agent);
    fetch(&first.proxy);
    wait_for_count(&second, before + 1);
    let number = fleet.ca.crl_number().to_string();
    wait_for_number(&second, "p1", &number);
    say_again(&first, "p1", &second);
    say_again(&first, "p1", &second);
    assert_eq!(count(&second), before + 1, "a number is tried once");
    wait_for_status(&second, &agent, 200);
    // The first proxy does not follow the older number of the second one.
    let before = count(&first);
    answer_crl_requests(&second.ca_server, Reply::ok(&fleet.ca.crl_pem()));
    fetch(&second.proxy);
    wait_for_status(&second, &agent, 403);
    wait_for_number(&first, "p2", &number);
    say_again(&second, "p2", &first);
    assert_eq!(count(&first), before);
}

#[test]
fn t21_a_forged_hint_costs_one_fetch_and_changes_nothing() {
    let (Some(fleet), Some(_)) = (Fleet::start(1), Tool::Etcdctl.command()) else {
        return;
    };
    let first = fetching(&fleet, "p1");
    let agent = fleet.ca.agent("web01");
    wait_for_status(&first, &agent, 200);
    let key = format!("{PREFIX}proxies/p1");
    let entry = wait_until(LIMIT, || {
        let entry = fleet.store.value(&key)?.split_off(32);
        serde_json::from_slice::<Value>(&entry).ok()
    });
    let mut entry = entry.expect("an entry");
    let before = count(&first);
    let forged = format!("{PREFIX}proxies/p7");
    entry["name"] = json!("p7");
    let crls = entry["crls"].as_object_mut().expect("CRLs");
    let known = crls.values().next().expect("a CRL").clone();
    crls.values_mut()
        .for_each(|crl| crl["number"] = json!("99999"));
    // The entry also contains a CA that the proxy does not know.
    let mut strange = known;
    strange["number"] = json!("99999999");
    crls.insert("00".repeat(32), strange);
    let bytes = entry.to_string().into_bytes();
    let good = sealed(&forged, &bytes);
    let mut unsealed = good.clone();
    unsealed[0] ^= 1;
    let put = |value: &[u8]| drop(fleet.store.control(&["put", &forged], value));
    put(&unsealed);
    first.proxy.wait_for_status("it is ignored", |status| {
        status["alarms"].to_string().contains("proxies/p7")
    });
    assert_eq!(count(&first), before);
    put(&good);
    wait_for_count(&first, before + 1);
    // The entry is replayed: deleted, and written again.
    fleet.store.control(&["del", &forged], &[]);
    put(&good);
    wait_for_number(&first, "p7", "99999");
    wait_for_status(&first, &agent, 200);
    assert_eq!(count(&first), before + 1);
    let crls = first.proxy.status()["trust"]["crls"].clone();
    assert!(!crls.to_string().contains("99999"), "{crls}");
}
