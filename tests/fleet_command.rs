//! The output for operators of a fleet: the proxies and their differences, and where else a change applies.

use std::{
    os::unix::fs::PermissionsExt as _,
    sync::{Arc, RwLock},
    thread,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;
use testkit::{Proxy, wait_until};

use crate::{
    fleet::Fleet,
    support::{self, Estate, LIMIT, done, paths::CATALOG},
};

/// The fleet in the status of a proxy.
fn shown(proxy: &Proxy) -> Value {
    serde_json::from_str(&done(proxy, &["fleet"], &["--json"])).expect("JSON")
}

/// Waits until a proxy shows exactly these proxies as registered.
#[track_caller]
pub(crate) fn wait_for_proxies(proxy: &Proxy, expected: &[&str]) {
    let names = || -> Vec<String> {
        let fleet = shown(proxy);
        let proxies = fleet["proxies"].as_array().into_iter().flatten();
        let names = proxies.map(|one| one["name"].as_str().unwrap_or_default().to_owned());
        names.collect()
    };
    let found = wait_until(LIMIT, || (names() == expected).then_some(()));
    assert!(found.is_some(), "{:?}: {}", names(), proxy.stderr());
}

/// Waits until the output of a command contains a text.
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
    // Without the store, the proxy shows the fleet as it last read it.
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
    // The delay is a metric too.
    let delay = first
        .metrics()
        .sum("proscenium_fleet_apply_delay_seconds", &[]);
    assert!(delay > 0.0, "{delay}");
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
    // The block applies here at once, and on every proxy once the store returns.
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
fn a_block_names_its_proxy_on_the_others() {
    let Some(fleet) = Fleet::start(1) else { return };
    let servers = Estate::builder().ca(&fleet.ca).compilers(1).start();
    let [first, second] = ["p1", "p2"].map(|name| fleet.proxy_before(name, &servers));
    done(&first, &["block"], &["web01", "--why", "stolen"]);
    wait_for_text(&second, &["blocks"], " on p1");
    let own = done(&first, &["blocks"], &[]);
    assert!(own.contains("web01") && !own.contains(" on p"), "{own}");
}

#[test]
fn each_key_that_is_printed_is_another() {
    let estate = Estate::start();
    let keys = [(); 2].map(|()| done(&estate.proxy, &["fleet", "key"], &[]));
    assert_ne!(keys[0], keys[1]);
    assert_eq!(keys[0].trim().len(), 44, "32 bytes in base64");
}

#[test]
fn a_drain_waits_for_the_requests_of_all_proxies_and_of_their_former_processes() {
    let Some(fleet) = Fleet::start(1) else { return };
    let servers = Estate::builder().ca(&fleet.ca).compilers(1).start();
    let [first, second] = ["p1", "p2"].map(|name| fleet.proxy_before(name, &servers));
    wait_for_proxies(&first, &["p1", "p2"]);
    let compiler = &servers.compilers[0];
    let address = compiler.address();
    compiler.hold();
    thread::scope(|scope| {
        let client = second.client(Some(&fleet.ca.agent("web01")));
        let posting = scope.spawn(move || client.request("POST", CATALOG, &[], b"facts"));
        compiler.wait_for_request(1, LIMIT);
        let drain = |timeout: &str| {
            let arguments = [&address, "--force", "--wait", "--timeout", timeout];
            first.command(&["drain"], &arguments)
        };
        let is_left = |outcome: &testkit::CommandOutcome| {
            assert_eq!(outcome.code, Some(3), "{outcome:?}");
            let stderr = &outcome.stderr;
            assert!(stderr.contains("on p2: 1 in flight"), "{outcome:?}");
        };
        is_left(&drain("2s"));
        let mut former = second.take_over().unwrap_or_else(|o| panic!("{o:?}"));
        is_left(&drain("2s"));
        let waiting = scope.spawn(move || drain("60s"));
        compiler.release();
        assert_eq!(posting.join().expect("it asks").status, 200);
        let outcome = waiting.join().expect("it waits");
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert!(
            outcome.stdout.ends_with("no request is left\n"),
            "{outcome:?}"
        );
        assert_eq!(former.wait_for_end(LIMIT).code, Some(0));
    });
    wait_for_proxies(&first, &["p1", "p2"]);
}

#[test]
fn a_drain_names_a_proxy_whose_lease_ends_while_it_waits() {
    let Some(fleet) = Fleet::start(1) else { return };
    let servers = Estate::builder().ca(&fleet.ca).compilers(1).start();
    let table = fleet.store.fleet_table() + "lease = \"5s\"\n";
    let proxies = ["p1", "p2"].map(|name| fleet.proxy_to(name, &servers, 1, &table));
    let [first, second] = proxies;
    wait_for_proxies(&first, &["p1", "p2"]);
    let address = servers.compilers[0].address();
    second.signal(Signal::STOP);
    let outcome = first.command(&["drain"], &[&address, "--force", "--wait"]);
    assert_eq!(outcome.code, Some(4), "{outcome:?}");
    assert!(
        outcome.stdout.contains("p2: not applied yet"),
        "{outcome:?}"
    );
    assert!(
        outcome.stderr.contains("p2 is no longer part of the fleet"),
        "{outcome:?}"
    );
    second.signal(Signal::CONT);
    wait_for_proxies(&first, &["p1", "p2"]);
    // The command does not wait for a proxy that `--without` names.
    second.signal(Signal::STOP);
    let arguments = [&address, "--force", "--wait", "--without", "p2"];
    let outcome = first.command(&["drain"], &arguments);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    second.signal(Signal::CONT);
}

#[test]
fn a_drain_that_another_proxy_withholds_does_not_count_as_done() {
    let Some(fleet) = Fleet::start(1) else { return };
    let servers = Estate::builder().ca(&fleet.ca).compilers(2).start();
    let first = fleet.proxy_before("p1", &servers);
    // The second proxy has no other compiler than the first one.
    let address = servers.compilers[0].address();
    let table = fleet.store.fleet_table();
    let second = fleet.proxy_to("p2", &servers, 1, &table);
    wait_for_proxies(&first, &["p1", "p2"]);
    wait_for_text(
        &first,
        &["fleet"],
        "differs: configuration pools.compilers: ",
    );
    let outcome = first.command(&["drain"], &[&address, "--wait"]);
    assert_eq!(outcome.code, Some(4), "{outcome:?}");
    let expected = format!("p2: still uses compilers/{address}");
    assert!(outcome.stdout.contains(&expected), "{outcome:?}");
    let expected = format!("p2 still sends requests to {address} in compilers");
    assert!(outcome.stderr.contains(&expected), "{outcome:?}");
    let alarm = format!("fleet-last-member:compilers/{address}");
    wait_for_alarms(&second, &[&alarm]);
    let line = foreign_line(&second, "drain");
    let result = line["result"].as_str().unwrap_or_default();
    assert!(result.starts_with("withheld: "), "{line}");
    // The member is available again, but it is still the only one of its pool.
    servers.compilers[0].stop();
    second.wait_for_health("compilers", &address, "down");
    servers.compilers[0].restart();
    second.wait_for_members(&["compilers"]);
    wait_for_alarms(&second, &[&alarm]);
    // A new process also withholds the drain, until another member is available.
    let mut former = second.take_over().unwrap_or_else(|o| panic!("{o:?}"));
    former.wait_for_end(LIMIT);
    wait_for_alarms(&second, &[&alarm]);
    done(&first, &["ready"], &[&address]);
    wait_for_alarms(&second, &[]);
}

#[test]
fn a_drain_on_another_proxy_does_not_take_a_last_member_that_is_not_probed_yet() {
    let Some(fleet) = Fleet::start(1) else { return };
    let servers = Estate::builder().ca(&fleet.ca).compilers(2).start();
    let first = fleet.proxy_before("p1", &servers);
    let address = servers.compilers[0].address();
    done(&first, &["drain"], &[&address]);
    let probes = Arc::new(RwLock::new(()));
    let held = probes.write().expect("no panic");
    let of_server = Arc::clone(&probes);
    servers.compilers[0].answer(move |request| {
        if request.is_probe() {
            drop(of_server.read());
        }
        None
    });
    // The second proxy has no other compiler than the first one.
    let second = support::proxy(&fleet.ca)
        .certname("p2")
        .with(&format!(
            "[pools.ca]\nscheme = \"http\"\nmembers = [{:?}]\n\
             [pools.compilers]\nscheme = \"http\"\nmembers = [{address:?}]\n\
             [pools.compilers.check]\ninterval = \"60s\"\ntimeout = \"60s\"\n",
            servers.ca_server.address(),
        ))
        .with(&fleet.store.fleet_table())
        .start();
    second.wait_for_event("withheld");
    drop(held);
    second.wait_for_members(&["compilers"]);
}

/// Waits until exactly these alarms are active.
#[track_caller]
pub(crate) fn wait_for_alarms(proxy: &Proxy, expected: &[&str]) {
    let expected: Vec<Value> = expected.iter().map(|key| (*key).into()).collect();
    proxy.wait_for_status(&format!("{expected:?}"), |status| {
        let alarms = status["alarms"].as_array().into_iter().flatten();
        alarms
            .map(|alarm| alarm["key"].clone())
            .eq(expected.iter().cloned())
    });
}

/// The first line of the audit log about this action on another proxy.
#[track_caller]
fn foreign_line(proxy: &Proxy, action: &str) -> Value {
    let path = proxy.state_directory().join("audit.log");
    let find = || {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let mut lines = text
            .lines()
            .map(|line| -> Value { serde_json::from_str(line).expect("JSON") });
        lines.find(|line| line["action"] == *action && line["origin"].is_object())
    };
    let line = wait_until(LIMIT, find);
    line.unwrap_or_else(|| panic!("no {action}: {}", proxy.stderr()))
}

#[test]
fn a_change_of_another_proxy_is_in_the_audit_log() {
    let Some(fleet) = Fleet::start(1) else { return };
    let servers = Estate::builder().ca(&fleet.ca).compilers(2).start();
    let [first, second] = ["p1", "p2"].map(|name| fleet.proxy_before(name, &servers));
    let address = servers.compilers[0].address();
    done(&first, &["drain"], &[&address, "--why", "disk"]);
    let line = foreign_line(&second, "drain");
    assert_eq!(line["origin"]["proxy"], "p1", "{line}");
    let account = line["origin"]["account"].as_str().unwrap_or_default();
    assert_eq!(account, support::account(), "{line}");
    assert_eq!(line["account"], format!("{account} on p1"));
    assert_eq!(line["why"], "disk");
    assert_eq!(line["result"], "done");
    assert_eq!(line["before"][0]["administrative_state"], "ready");
    assert_eq!(line["after"][0]["administrative_state"], "drain");
    done(&first, &["block"], &["web01", "--why", "stolen"]);
    let line = foreign_line(&second, "block");
    assert_eq!(line["subject"]["certname"], "web01", "{line}");
    assert_eq!(line["why"], "stolen");
    assert!(line["before"].is_null());
    done(&first, &["unblock"], &["web01"]);
    let line = foreign_line(&second, "unblock");
    assert_eq!(line["before"]["why"], "stolen", "{line}");
    assert_eq!(line["after"], Value::Null);
}

#[test]
fn records_of_another_key_file_are_ignored_with_an_alarm_and_counted() {
    let Some(fleet) = Fleet::start(1) else { return };
    let servers = Estate::builder().ca(&fleet.ca).compilers(2).start();
    let first = fleet.proxy_before("p1", &servers);
    wait_for_proxies(&first, &["p1"]);
    let other_keys = fleet.store.key_file().with_extension("other");
    std::fs::write(&other_keys, done(&first, &["fleet", "key"], &[])).expect("a file");
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&other_keys, mode).expect("a mode");
    let table = fleet
        .store
        .fleet_table()
        .replace("fleet.key", "fleet.other");
    let stranger = fleet.proxy_to("p2", &servers, 2, &table);
    wait_for_alarms(&first, &["fleet-record:proxies/p2"]);
    assert!(done(&first, &["fleet"], &[]).contains("ignored: proxies/p2: "));
    let seal = [("reason", "seal")];
    first.wait_for_metric("proscenium_fleet_rejected_records_total", &seal, 1.0);
    let metrics = first.metrics();
    assert_eq!(metrics.sum("proscenium_fleet_connected", &[]), 1.0);
    assert_eq!(metrics.sum("proscenium_fleet_proxies", &[]), 1.0);
    assert_eq!(metrics.sum("proscenium_fleet_sync_age_seconds", &[]), 0.0);
    stranger.stop();
    wait_for_alarms(&first, &[]);
}

#[test]
fn two_proxies_with_one_certname_are_an_alarm_while_both_run() {
    let Some(fleet) = Fleet::start(1) else { return };
    let (first, second) = (fleet.proxy("p1"), fleet.proxy("p1"));
    for proxy in [&first, &second] {
        wait_for_alarms(&proxy.proxy, &["fleet-record:proxies/p1"]);
    }
    let why = first.proxy.status()["alarms"].to_string();
    assert!(why.contains("has the certname p1 too"), "{why}");
    drop(second);
    wait_for_alarms(&first.proxy, &[]);
}

#[test]
fn a_store_that_has_lost_records_is_an_alarm_until_they_are_back() {
    let Some(fleet) = Fleet::start(1) else { return };
    let servers = Estate::builder().ca(&fleet.ca).compilers(2).start();
    let [first, second] = ["p1", "p2"].map(|name| fleet.proxy_before(name, &servers));
    wait_for_proxies(&first, &["p1", "p2"]);
    done(&first, &["block"], &["web01", "--why", "stolen"]);
    let kinds = [("kind", "block")];
    second.wait_for_metric("proscenium_fleet_records", &kinds, 1.0);
    fleet.store.kill(0);
    fleet.store.wipe(0);
    fleet.store.restart(0);
    // The proxy that comes first puts back all records, so the other one may find none missing.
    let raised = "lost 1 records that it had";
    let cleared = "cleared: the fleet's store lost 1 records";
    let notices = || {
        [&first, &second]
            .into_iter()
            .find(|proxy| proxy.stderr().contains(raised))
    };
    let noticed = wait_until(LIMIT, notices);
    let noticed = noticed.unwrap_or_else(|| panic!("{}", first.stderr()));
    let is_cleared = || noticed.stderr().contains(cleared).then_some(());
    let is_cleared = wait_until(OLDER_LIMIT, is_cleared);
    assert!(is_cleared.is_some(), "{}", noticed.stderr());
    for proxy in [&first, &second] {
        let alarms = || proxy.status()["alarms"].clone();
        let has_none = || (alarms() == serde_json::json!([])).then_some(());
        let is_clear = wait_until(OLDER_LIMIT, has_none);
        assert!(is_clear.is_some(), "{}: {}", alarms(), proxy.stderr());
    }
    wait_for_proxies(&first, &["p1", "p2"]);
}

/// Longer than the alarm about an older store lasts. The alarm ends 15 s after the records are back. A proxy puts them
/// back within 2 s, or later if writing them fails and it waits before the next attempt.
const OLDER_LIMIT: Duration = Duration::from_secs(120);

#[test]
fn a_proxy_is_not_ready_before_it_has_the_records_of_the_fleet() {
    let Some(fleet) = Fleet::start(1) else { return };
    let servers = Estate::builder().ca(&fleet.ca).compilers(2).start();
    fleet.store.kill(0);
    let metrics = "[metrics]\naddress = \"127.0.0.1:0\"\n";
    let start = |name, ready_after: &str| {
        let table = fleet.store.fleet_table();
        let tables = format!("{table}ready_after = \"{ready_after}\"\n{metrics}");
        fleet.proxy_to(name, &servers, 2, &tables)
    };
    let patient = start("p1", "600s");
    let hasty = start("p2", "0s");
    let ready = |proxy: &Proxy| {
        let address = proxy.status()["metrics_address"].clone();
        let address = address.as_str().and_then(|text| text.parse().ok());
        let client = testkit::Client::plain(address.expect("an address"));
        let answer = client.get("/ready");
        (answer.status, answer.text())
    };
    let waiting = "waiting for the records of the fleet\n".to_owned();
    assert_eq!(ready(&patient), (503, waiting));
    assert_eq!(ready(&hasty).0, 200);
    fleet.store.restart(0);
    let is_ready = || (ready(&patient).0 == 200).then_some(());
    assert!(
        wait_until(LIMIT, is_ready).is_some(),
        "{}",
        patient.stderr()
    );
}
