//! Taking members out of service without a failed request. They stay out until the operator returns them or the set
//! time ends.

use std::{
    fs,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{Ca, CommandOutcome, Proxy, Reply, StandIn, wait_until};

use crate::support::{
    self, Estate, LIMIT, QUICK_CHECK, account, done, http1_alone, paths::CATALOG, set_state,
    wait_for,
};

const FORCE: &str = "--force";

#[test]
fn a_rolling_restart_with_drained_members_fails_no_request() {
    let estate = Estate::builder().compilers(3).start();
    let agent = estate.ca.agent("web01");
    let (over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let loops: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let client = estate.client(&agent);
                    while !over.load(Ordering::SeqCst) {
                        // A catalog request is never sent twice, so a lost one fails the agent's run.
                        let answer = client.request("POST", CATALOG, &[], b"facts");
                        assert_eq!(answer.status, 200);
                        answered.fetch_add(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        let more = |n: usize| {
            let enough = answered.load(Ordering::SeqCst) + n;
            wait_until(LIMIT, || {
                (answered.load(Ordering::SeqCst) >= enough).then_some(())
            })
        };
        for compiler in &estate.compilers {
            let address = compiler.address();
            let drained = done(&estate.proxy, &["drain", &address, "--wait"], &[]);
            assert!(drained.ends_with("no request is left\n"), "{drained}");
            compiler.kill();
            let seen = compiler.requests().len();
            assert!(more(20).is_some(), "the others answer");
            compiler.restart();
            assert_eq!(compiler.requests().len(), seen, "it got no more");
            done(&estate.proxy, &["ready", &address], &[]);
            estate.wait_for_health("compilers", &address, "up");
        }
        assert!(more(20).is_some());
        over.store(true, Ordering::SeqCst);
        for one in loops {
            one.join().expect("no request fails");
        }
    });
    for compiler in &estate.compilers {
        assert!(!compiler.requests().is_empty(), "each was asked");
    }
}

#[test]
fn drain_wait_ends_with_the_last_request_and_shows_the_remaining_ones() {
    let (estate, held) = holding();
    let address = estate.compilers[held].address();
    let agent = estate.ca.agent("web01");
    thread::scope(|scope| {
        let client = estate.client(&agent);
        let running = scope.spawn(move || client.request("POST", CATALOG, &[], b"facts").status);
        estate.compilers[held].wait_for_request(1, LIMIT);
        let late = wait(&estate.proxy, &address, "1s");
        assert_eq!(late.code, Some(3), "{late:?}");
        let left = format!("{address} in compilers: 1 in flight (1 catalog)");
        assert!(late.stderr.contains(&left), "{}", late.stderr);
        assert_eq!(state(&estate.proxy, &address), "drain", "it stays out");
        // The message names the oldest request.
        let named = wait_until(LIMIT, || {
            let late = wait(&estate.proxy, &address, "1s");
            let words = "; the oldest: web01 since 2";
            let request = " (POST /puppet/v3/catalog/web01)";
            let text = &late.stderr;
            (text.contains(words) && text.contains(request)).then_some(())
        });
        assert!(named.is_some());
        let shown = member(&estate.proxy.status(), &address);
        assert_eq!(shown["oldest_requests"][0]["client"], "web01", "{shown}");
        let waiting = scope.spawn(|| wait(&estate.proxy, &address, "1m"));
        estate.compilers[held].release();
        let ended = waiting.join().expect("runs");
        assert_eq!(
            (ended.code, ended.stderr.as_str()),
            (Some(0), ""),
            "{ended:?}"
        );
        assert!(ended.stdout.ends_with("no request is left\n"), "{ended:?}");
        assert_eq!(running.join().expect("asks"), 200);
        let shown = member(&estate.proxy.status(), &address);
        assert_eq!(shown["oldest_requests"], Value::Array(Vec::new()));
    });
}

#[test]
fn drain_wait_for_a_member_that_is_made_ready_fails() {
    let (estate, held) = holding();
    let address = estate.compilers[held].address();
    let agent = estate.ca.agent("web01");
    thread::scope(|scope| {
        let client = estate.client(&agent);
        let running = scope.spawn(move || client.request("POST", CATALOG, &[], b"facts").status);
        estate.compilers[held].wait_for_request(1, LIMIT);
        let waiting = scope.spawn(|| wait(&estate.proxy, &address, "5m"));
        wait_for("drained", || state(&estate.proxy, &address) == "drain");
        done(&estate.proxy, &["ready", &address], &[]);
        let ended = waiting.join().expect("runs");
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains("ready again"), "{ended:?}");
        estate.compilers[held].release();
        assert_eq!(running.join().expect("asks"), 200);
    });
}

#[test]
fn drain_wait_counts_tunnels_and_names_their_clients() {
    http1_alone!("HTTP/2 has no Upgrade");
    let route = "[[routes]]\nname = \"chat\"\npath = { prefix = \"/chat\" }\npool = \"compilers\"\n\
                 upgrade = [\"websocket\"]\n";
    let estate = Estate::builder().compilers(1).with(route).start();
    let compiler = &estate.compilers[0];
    compiler.answer(|request| {
        let is_upgrade = request.headers.get("upgrade").is_some();
        is_upgrade.then(|| Reply::switching("websocket"))
    });
    let mut tunnel = estate.agent("web01").connect().expect("connects");
    let upgrade = [("Connection", "Upgrade"), ("Upgrade", "websocket")];
    tunnel
        .send("GET", "/chat/room", &upgrade, b"")
        .expect("sends");
    assert_eq!(tunnel.read_head().expect("an answer").status, 101);
    let address = compiler.address();
    let late = estate.proxy.command(
        &["drain", &address, "--wait", "--timeout", "1s", FORCE],
        &[],
    );
    assert_eq!(late.code, Some(3), "{late:?}");
    for words in [
        "1 in flight",
        "1 of these are tunnels, the oldest: web01 since 2",
    ] {
        assert!(late.stderr.contains(words), "{words}: {}", late.stderr);
    }
    let member = member(&estate.proxy.status(), &address);
    assert_eq!(member["oldest_tunnels"][0]["client"], "web01");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| wait(&estate.proxy, &address, "1m"));
        tunnel.half_close();
        assert_eq!(waiting.join().expect("runs").code, Some(0));
    });
}

#[test]
fn a_member_becomes_ready_again_at_its_time() {
    let estate = Estate::builder().compiler_pool(QUICK_CHECK).start();
    let address = estate.compilers[0].address();
    let proxy = &estate.proxy;
    let far = ["--until", "2100-01-01", "--why", "new disk"];
    done(proxy, &["maintenance", &address], &far);
    let shown = done(proxy, &["status"], &[]);
    for words in [
        format!("{address}: maintenance since 2"),
        format!(" by {}, until 2100-01-01T00:00:00Z: new disk\n", account()),
    ] {
        assert!(shown.contains(&words), "{words}: {shown}");
    }
    let since = member(&proxy.status(), &address)["administrative"]["since"].clone();
    done(proxy, &["maintenance", &address, "--until", "3s"], &[]);
    let event = "the time of an administrative state is over";
    proxy.wait_for_event(event);
    proxy.wait_for_health("compilers", &address, "up");
    let now = member(&proxy.status(), &address);
    assert_eq!(now["administrative_state"], "ready");
    assert!(now["administrative"].is_null(), "{now}, once {since}");
    let labels = [("member", &*address), ("state", "ready")];
    assert_eq!(
        proxy
            .metrics()
            .sum("proscenium_member_administrative_state", &labels),
        1.0
    );
    for (arguments, words) in [
        (&["drain", &address, "--until", "2020-01-01"][..], "past"),
        (&["drain", &address, "--why", ""], "1 to 500 bytes"),
    ] {
        let refused = proxy.command(arguments, &[]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains(words), "{}", refused.stderr);
    }
    // The date is later than any that can be represented.
    let refused = proxy.command(&["drain", &address, "--until", "99999999d"], &[]);
    assert_eq!(refused.code, Some(64), "{refused:?}");
    assert!(refused.stderr.contains("is not a time"), "{refused:?}");
}

#[test]
fn a_host_is_drained_in_all_its_pools_or_in_none_of_them() {
    let (one, two) = (StandIn::start("c1"), StandIn::start("c2"));
    let port = |member: &StandIn| member.socket_address().port();
    let pool = |name: &str| {
        format!(
            "[pools.{name}]\nscheme = \"http\"\nmembers = [\"{}\", \"localhost:{}\"]\ncheck = {{ type = \"none\" }}",
            one.address(),
            port(&two)
        )
    };
    let proxy = support::proxy(&Ca::new())
        .with(&pool("ca"))
        .with(&pool("compilers"))
        .start();
    let states = || {
        let status = proxy.status();
        let pools = status["pools"].as_array().expect("pools").iter();
        let members = pools.flat_map(|pool| pool["members"].as_array().expect("members"));
        members
            .map(|member| member["administrative_state"].as_str().map(str::to_owned))
            .collect::<Option<Vec<_>>>()
            .expect("words")
    };
    let drained = done(&proxy, &["drain", "--host", "LOCALHOST"], &[]);
    assert_eq!(drained.lines().count(), 2, "{drained}");
    assert_eq!(states(), ["ready", "drain", "ready", "drain"]);
    done(
        &proxy,
        &["ready", "ca", &format!("localhost:{}", port(&two))],
        &[],
    );
    // The other member of the pool `compilers` is drained, so the command refuses.
    let refused = proxy.command(&["maintenance", "--host", "127.0.0.1"], &[]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    for words in ["is available in: compilers;", FORCE] {
        assert!(refused.stderr.contains(words), "{}", refused.stderr);
    }
    assert_eq!(states(), ["ready", "ready", "ready", "drain"], "none");
    done(&proxy, &["maintenance", "--host", "127.0.0.1", FORCE], &[]);
    assert_eq!(states(), ["maintenance", "ready", "maintenance", "drain"]);
    done(&proxy, &["ready", "--host", "127.0.0.1"], &[]);
    let several = proxy.command(&["drain", &one.address()], &[]);
    assert_eq!(several.code, Some(1), "{several:?}");
    let first = one.address();
    let listed = format!("{first} in ca, {first} in compilers;");
    assert!(several.stderr.contains(&listed), "{several:?}");
    let unknown = proxy.command(&["drain", "--host", "c9.example.com"], &[]);
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert!(unknown.stderr.contains(&one.address()), "{unknown:?}");
    let unknown = proxy.command(&["drain", "c9:8140"], &[]);
    assert!(unknown.stderr.contains(&one.address()), "{unknown:?}");
    assert!(!unknown.stderr.contains("404 Not Found"), "{unknown:?}");
}

#[test]
fn a_host_names_a_member_if_no_other_member_is_on_it() {
    let members = [StandIn::start("c1"), StandIn::start("c2")];
    let port = |index: usize| members[index].socket_address().port();
    let (local, loopback) = (
        format!("localhost:{}", port(1)),
        format!("127.0.0.1:{}", port(0)),
    );
    let pool = |name: &str, members: &[&String]| {
        format!(
            "[pools.{name}]\nscheme = \"http\"\nmembers = {members:?}\ncheck = {{ type = \"none\" }}"
        )
    };
    let proxy = support::proxy(&Ca::new())
        .with(&pool("ca", &[&loopback]))
        .with(&pool("compilers", &[&loopback, &local]))
        .start();
    let drained = done(&proxy, &["drain", "Localhost"], &[]);
    assert!(
        drained.contains(&format!("{local} in compilers: drain")),
        "{drained}"
    );
    done(&proxy, &["ready", "localhost"], &[]);
    done(&proxy, &["maintenance", "compilers", "localhost"], &[]);
    assert_eq!(state(&proxy, &local), "maintenance");
    done(&proxy, &["ready", "localhost"], &[]);
    let several = proxy.command(&["drain", "127.0.0.1", FORCE], &[]);
    assert_eq!(several.code, Some(1), "{several:?}");
    let listed = format!("{loopback} in ca, {loopback} in compilers;");
    assert!(several.stderr.contains(&listed), "{several:?}");
    assert_eq!(state(&proxy, &loopback), "ready", "nothing is done");
    let unknown = proxy.command(&["drain", "compilers", "c9.example.com"], &[]);
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert!(unknown.stderr.contains(&local), "{unknown:?}");
}

#[test]
fn of_two_drains_at_once_the_last_available_member_stays() {
    let estate = Estate::builder().compiler_pool(QUICK_CHECK).start();
    let addresses: Vec<_> = estate.compilers.iter().map(StandIn::address).collect();
    for _ in 0..5 {
        let drains = thread::scope(|scope| {
            let drains: Vec<_> = addresses
                .iter()
                .map(|address| scope.spawn(|| estate.proxy.command(&["drain", address], &[])))
                .collect();
            let drains = drains.into_iter();
            drains
                .map(|drain| drain.join().expect("runs"))
                .collect::<Vec<_>>()
        });
        let mut codes: Vec<_> = drains.iter().map(|drain| drain.code).collect();
        codes.sort_unstable();
        assert_eq!(codes, [Some(0), Some(1)], "{drains:?}");
        for address in &addresses {
            done(&estate.proxy, &["ready", address], &[]);
        }
    }
    let alarms = estate.proxy.metrics();
    let labels = [("alarm", "pool-unavailable")];
    assert_eq!(alarms.sum("proscenium_alarms", &labels), 0.0);
    // A member that gets no requests can be drained, because this does not empty the pool.
    estate.compilers[0].kill();
    let proxy = &estate.proxy;
    proxy.wait_for_health("compilers", &addresses[0], "down");
    done(proxy, &["drain", &addresses[0]], &[]);
    set_state(proxy, "drain", "compilers", &addresses[1]);
    proxy.wait_for_metric("proscenium_alarms", &labels, 1.0);
    done(proxy, &["maintenance", &addresses[1]], &[]);
}

/// No probe is due within the hour, except after a failed one.
const RARE_CHECK: &str =
    "check = { interval = \"1h\", fast_interval = \"200ms\", rise = 1, fall = 100 }";

#[test]
fn a_member_that_is_ready_again_is_probed_before_it_counts_for_another_drain() {
    let estate = Estate::builder().compiler_pool(RARE_CHECK).start();
    let proxy = &estate.proxy;
    let (first, second) = (estate.compilers[0].address(), estate.compilers[1].address());
    proxy.wait_for_health("compilers", &first, "up");
    proxy.wait_for_health("compilers", &second, "up");
    let health = |address: &str| member(&proxy.status(), address)["health"].clone();
    // The member runs, so its probe succeeds at once.
    done(proxy, &["drain", &first, "--wait"], &[]);
    done(proxy, &["ready", &first], &[]);
    proxy.wait_for_health("compilers", &first, "up");
    done(proxy, &["drain", &second], &[]);
    done(proxy, &["ready", &second], &[]);
    proxy.wait_for_health("compilers", &second, "up");
    // The member stops while it is drained, and no probe notices.
    done(proxy, &["drain", &first, "--wait"], &[]);
    estate.compilers[0].kill();
    done(proxy, &["ready", &first], &[]);
    for verb in ["drain", "maintenance"] {
        let refused = proxy.command(&[verb, &second, "--wait"], &[]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        for words in ["no other member", &first, "no probe has succeeded", FORCE] {
            assert!(refused.stderr.contains(words), "{words}: {refused:?}");
        }
    }
    assert_eq!(health(&first), "unknown");
    let shown = done(proxy, &["status"], &[]);
    assert!(
        shown.contains(&format!("{first}: unknown (drain-ended)")),
        "{shown}"
    );
    assert_eq!(state(proxy, &second), "ready");
    // The member whose probe is outstanding may be drained again.
    done(proxy, &["drain", &first], &[]);
    done(proxy, &["ready", &first], &[]);
    estate.compilers[0].restart();
    proxy.wait_for_health("compilers", &first, "up");
    done(proxy, &["drain", &second, "--wait"], &[]);
    assert_eq!(state(proxy, &second), "drain");
}

#[test]
fn an_administrative_state_survives_a_restart_and_the_removal_of_its_member() {
    let state_directory = TempDir::new().expect("a directory");
    let table = format!("[state]\ndirectory = {:?}", state_directory.path());
    let (ca, one, two) = (Ca::new(), StandIn::start("c1"), StandIn::start("c2"));
    let (first, second) = (one.address(), two.address());
    let members = format!("members = [\"{first}\", \"{second}\"]");
    let started = || {
        let builder = support::proxy(&ca).with(&table);
        let pool = |name: &str| format!("[pools.{name}]\nscheme = \"http\"\n{members}");
        builder.with(&pool("ca")).with(&pool("compilers")).start()
    };
    let proxy = started();
    let why = ["--why", "new disk"];
    done(&proxy, &["drain", "compilers", &first], &why);
    let before = shown(&proxy, &first);
    assert_eq!(before["administrative"]["why"], "new disk");
    // The edit concerns the members of the second pool only.
    let text = proxy.config_text();
    let at = text.rfind(&members).expect("a pool");
    let mut without = text.clone();
    without.replace_range(at..at + members.len(), &format!("members = [\"{second}\"]"));
    proxy.write_config(&without);
    proxy.reload_applied();
    proxy.write_config(&text);
    proxy.reload_applied();
    assert_eq!(
        shown(&proxy, &first)["administrative"],
        before["administrative"]
    );
    drop(proxy);

    let proxy = started();
    proxy.wait_for_event("restored an administrative state");
    assert_eq!(
        shown(&proxy, &first)["administrative"],
        before["administrative"]
    );
    let agent = ca.agent("web01");
    proxy.wait_for_members(&["ca", "compilers"]);
    for _ in 0..4 {
        assert_eq!(proxy.client(Some(&agent)).get(CATALOG).status, 200);
    }
    assert!(one.requests().is_empty(), "it is drained");
    done(&proxy, &["ready", "compilers", &first], &[]);
    drop(proxy);

    let file = state_directory.path().join("members.json");
    let stored = fs::read_to_string(&file).expect("is stored");
    let stored: Value = serde_json::from_str(&stored).expect("JSON");
    assert_eq!(stored["members"], json!([]), "{stored}");
    assert_eq!(stored["records"][0]["state"], "ready", "{stored}");
    fs::write(&file, "{").expect("is written");
    let proxy = started();
    let raised = |proxy: &Proxy| {
        let alarms = proxy.status()["alarms"].clone();
        alarms.to_string().contains("member-states")
    };
    assert!(raised(&proxy), "{}", proxy.status()["alarms"]);
    assert_eq!(shown(&proxy, &first)["administrative_state"], "ready");
    done(&proxy, &["drain", "compilers", &first], &why);
    assert!(!raised(&proxy), "the operator knows");
    let stored = fs::read_to_string(&file).expect("is stored");
    assert!(stored.contains(&first), "{stored}");
}

#[test]
fn an_administrative_state_that_cannot_be_stored_is_active_with_a_warning() {
    let estate = Estate::builder()
        .file("occupied", "a file", 0o600)
        .with("[state]\ndirectory = \"{dir}/occupied\"")
        .start();
    let address = estate.compilers[0].address();
    let outcome = estate.proxy.command(&["drain", &address], &[]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let words = "a restart would undo it, because it could not be saved";
    assert!(outcome.stderr.contains(words), "{}", outcome.stderr);
    assert_eq!(state(&estate.proxy, &address), "drain");
}

/// Two compilers that hold their requests, and the index of the one that gets the next request.
fn holding() -> (Estate, usize) {
    let estate = Estate::start();
    estate.compilers[0].hold();
    set_state(
        &estate.proxy,
        "drain",
        "compilers",
        &estate.compilers[1].address(),
    );
    (estate, 0)
}

/// Drains and waits, whatever remains in the pool.
fn wait(proxy: &Proxy, address: &str, timeout: &str) -> CommandOutcome {
    let words = ["drain", address, "--wait", "--timeout", timeout, FORCE];
    proxy.command(&words, &[])
}

fn state(proxy: &Proxy, address: &str) -> String {
    let member = member(&proxy.status(), address);
    member["administrative_state"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn shown(proxy: &Proxy, address: &str) -> Value {
    let target = format!("/v1/pools/compilers/members/{address}");
    proxy.admin("GET", &target).json()
}

/// The member in the pool `compilers`, or in the last pool that has it.
fn member(status: &Value, address: &str) -> Value {
    let pools = status["pools"].as_array().expect("pools").iter();
    let mut members = pools.flat_map(|pool| pool["members"].as_array().expect("members"));
    let found = members.rfind(|member| member["address"] == address);
    found.expect("a member").clone()
}
