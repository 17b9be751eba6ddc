//! What operators of a fleet see: the proxies and their differences, and where else a change applies.

use serde_json::Value;
use testkit::{Proxy, wait_until};

use crate::{
    fleet::Fleet,
    support::{Estate, LIMIT, done, paths::CATALOG},
};

/// The fleet as a proxy shows it.
fn shown(proxy: &Proxy) -> Value {
    serde_json::from_str(&done(proxy, &["fleet"], &["--json"])).expect("JSON")
}

/// Waits until a proxy shows exactly these as registered.
#[track_caller]
fn wait_for_proxies(proxy: &Proxy, expected: &[&str]) {
    let names = || -> Vec<String> {
        let fleet = shown(proxy);
        let proxies = fleet["proxies"].as_array().into_iter().flatten();
        let names = proxies.map(|one| one["name"].as_str().unwrap_or_default().to_owned());
        names.collect()
    };
    let found = wait_until(LIMIT, || (names() == expected).then_some(()));
    assert!(found.is_some(), "{:?}: {}", names(), proxy.stderr());
}

/// Waits until the output of a command has a text.
#[track_caller]
fn wait_for_text(proxy: &Proxy, words: &[&str], expected: &str) {
    let output = || proxy.command(words, &[]).stdout;
    let is_there = || output().contains(expected).then_some(());
    let found = wait_until(LIMIT, is_there);
    assert!(found.is_some(), "{expected}: {}", output());
}

#[test]
fn each_proxy_shows_all_and_their_differences() {
    let Some(fleet) = Fleet::start(1) else { return };
    let servers = Estate::builder().ca(&fleet.ca).compilers(2).start();
    let first = fleet.proxy_before("p1", &servers);
    let second = fleet.proxy_before("p2", &servers);
    wait_for_proxies(&first, &["p1", "p2"]);
    wait_for_proxies(&second, &["p1", "p2"]);
    wait_for_text(&second, &["fleet"], "no differences");
    let text = done(&second, &["fleet"], &[]);
    for expected in [
        "fleet test: the store is reached",
        "p1: ",
        ", serving, heard ",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    done(&first, &["drain"], &[&servers.compilers[0].address()]);
    let place = format!(
        "p1: {} in compilers gets nothing new",
        servers.compilers[0].address()
    );
    wait_for_text(&second, &["fleet"], &place);
    first.stop();
    wait_for_proxies(&second, &["p2"]);
    // The store is gone: the fleet is shown as it was last seen.
    fleet.store.kill(0);
    wait_for_text(&second, &["fleet"], "is not reached since ");
    wait_for_proxies(&second, &["p2"]);
}

#[test]
fn a_proxy_without_a_fleet_says_so() {
    let estate = Estate::start();
    let outcome = estate.proxy.command(&["fleet"], &[]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.contains("has no [fleet]"), "{outcome:?}");
    let drained = done(&estate.proxy, &["block"], &["web01", "--why", "stolen"]);
    assert!(!drained.contains("fleet"), "{drained}");
}

#[test]
fn a_change_shows_where_else_it_applies_and_what_it_replaces() {
    let Some(fleet) = Fleet::start(1) else { return };
    let servers = Estate::builder().ca(&fleet.ca).compilers(2).start();
    let first = fleet.proxy_before("p1", &servers);
    let second = fleet.proxy_before("p2", &servers);
    wait_for_proxies(&first, &["p1", "p2"]);
    wait_for_proxies(&second, &["p1", "p2"]);
    let c1 = servers.compilers[0].address();
    for arguments in [
        vec!["drain", &c1, "--why", "disk"],
        vec!["block", "web01", "--why", "stolen"],
    ] {
        let text = done(&first, &arguments[..1], &arguments[1..]);
        assert!(text.contains("p2: applied after "), "{text}");
    }
    let text = done(&second, &["maintenance"], &[&c1]);
    let expected = format!("{c1} in compilers was: drain since ");
    assert!(text.contains(&expected), "{text}");
    assert!(text.contains(" on p1: disk"), "{text}");
    assert!(text.contains("p1: applied after "), "{text}");
    let text = done(&second, &["block"], &["web01", "--why", "again"]);
    assert!(text.contains("replaces: certname web01, since "), "{text}");
    let text = done(&second, &["unblock"], &["web01", "--json"]);
    let outcome: Value = serde_json::from_str(&text).expect("JSON");
    let elsewhere = &outcome["fleet"]["proxies"][0];
    assert_eq!(elsewhere["name"], "p1");
    assert!(elsewhere["applied_after_milliseconds"].is_u64(), "{text}");
    fleet.store.kill(0);
    for arguments in [
        vec!["ready", &c1],
        vec!["block", "web01", "--why", "stolen"],
    ] {
        let outcome = first.command(&arguments[..1], &arguments[1..]);
        assert_eq!(outcome.code, Some(5), "{outcome:?}");
        let stderr = &outcome.stderr;
        assert!(stderr.starts_with("not sent to the fleet: "), "{stderr}");
        assert!(stderr.contains("; run it on p2 too"), "{stderr}");
    }
    // It applies here, and everywhere once the store returns.
    assert_eq!(
        first
            .client(Some(&fleet.ca.agent("web01")))
            .get(CATALOG)
            .status,
        403
    );
    fleet.store.restart(0);
    let refused = || {
        let status = second
            .client(Some(&fleet.ca.agent("web01")))
            .get(CATALOG)
            .status;
        (status == 403).then_some(())
    };
    assert!(wait_until(LIMIT, refused).is_some(), "{}", second.stderr());
}

#[test]
fn a_new_key_is_printed_and_accepted() {
    let estate = Estate::start();
    let keys = [(); 2].map(|()| done(&estate.proxy, &["fleet", "key"], &[]));
    assert_ne!(keys[0], keys[1]);
    assert_eq!(keys[0].trim().len(), 44, "32 bytes in base64");
}
