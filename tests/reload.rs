//! A reload applies a change of the configuration as a whole while requests run, or not at all.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

use serde_json::Value;
use testkit::{HeldPort, Proxy, Reply, StandIn, TestConnection, wait_until};

use crate::support::{
    Estate, LIMIT, QUICK_CHECK,
    paths::{CA_CERTIFICATE, CATALOG, FILE},
    reload::{Stopping, crl_numbers, renew_certificate, send_until, served_certificate},
};

/// Connections of the load test. Half of them have a POST in flight across each swap.
const CONNECTIONS: usize = 32;
const RELOADS: usize = 20;
/// The reload with invalid input.
const BROKEN: usize = 13;

#[test]
fn twenty_reloads_under_load_lose_no_request() {
    let estate = Estate::builder().one_agent_for_many().start();
    let client = estate.agent("web01");
    let mut posting: Vec<TestConnection> = (0..CONNECTIONS / 2)
        .map(|_| client.connect().expect("connects"))
        .collect();
    let (stop, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut seen = Vec::new();
    thread::scope(|scope| {
        // Set even if an assertion below fails, so that the scope ends.
        let _stopping = Stopping(&stop);
        for _ in 0..CONNECTIONS / 2 {
            scope.spawn(|| send_until(&stop, &asked, &client, CA_CERTIFICATE));
        }
        let mut members = vec![estate.compilers[0].address()];
        set_members(&estate, &all_members(&estate), &members);
        estate.proxy.reload_applied();
        for turn in 0..RELOADS {
            estate.wait_for_members(&["compilers"]);
            carry_across(&estate, &mut posting, || {
                seen.push(one_reload(&estate, turn, &mut members));
            });
        }
        let enough = asked.load(Ordering::SeqCst) + CONNECTIONS;
        wait_until(LIMIT, || {
            (asked.load(Ordering::SeqCst) >= enough).then_some(())
        });
    });
    assert_eq!(
        seen.iter().filter(|result| *result == "applied").count(),
        RELOADS - 1
    );
    assert_eq!(seen[BROKEN], "refused");
    let metrics = estate.proxy.metrics();
    let counted = |result| metrics.sum("proscenium_reloads_total", &[("result", result)]);
    // One reload was applied before these twenty.
    assert_eq!(
        (counted("applied"), counted("refused")),
        (RELOADS as f64, 1.0)
    );
    assert_eq!(estate.proxy.generation(), RELOADS as u64 + 1);
    let posts = estate.compilers.iter().flat_map(|c| c.requests());
    let posts = posts.filter(|request| request.method == "POST");
    assert_eq!(
        posts.filter(|post| post.complete).count(),
        RELOADS * CONNECTIONS / 2,
        "each POST was seen once"
    );
}

/// Sends a POST on each connection, runs `swap` while the members hold all of them, and reads the responses.
fn carry_across(estate: &Estate, posting: &mut [TestConnection], swap: impl FnOnce()) {
    let heads = || {
        estate
            .compilers
            .iter()
            .map(|c| c.requests().len())
            .sum::<usize>()
    };
    let before = heads();
    estate.compilers.iter().for_each(StandIn::hold);
    for connection in &mut *posting {
        connection
            .send("POST", CATALOG, &[], b"facts of web01")
            .expect("is taken");
    }
    let held = wait_until(LIMIT, || (heads() == before + posting.len()).then_some(()));
    assert!(held.is_some(), "the members hold every POST");
    swap();
    estate.compilers.iter().for_each(StandIn::release);
    for connection in posting {
        let answer = connection.read_response_to("POST").expect("is answered");
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

/// Changes something, reloads, and verifies from outside whether it has changed.
fn one_reload(estate: &Estate, turn: usize, members: &mut Vec<String>) -> String {
    if turn == BROKEN {
        let text = estate.proxy.config_text();
        estate.edit_config("[pools.compilers]", "[pools.compilers]\ncolour = \"red\"");
        let result = request_reload(estate, turn);
        estate.write_config(&text);
        return result;
    }
    match turn % 3 {
        0 => {
            let number = estate.ca.renew_crl();
            estate.proxy.write_crl();
            let result = request_reload(estate, turn);
            assert!(crl_numbers(&estate.proxy).contains(&number.to_string()));
            result
        }
        1 => {
            let certificate = renew_certificate(estate);
            let result = request_reload(estate, turn);
            assert_eq!(served_certificate(&estate.anonymous()), certificate);
            result
        }
        _ => {
            // The reload removes the member that holds the POSTs.
            let other = estate.compilers.iter().map(StandIn::address);
            let other: Vec<_> = other.filter(|address| !members.contains(address)).collect();
            set_members(estate, members, &other);
            *members = other;
            let result = request_reload(estate, turn);
            assert_eq!(member_addresses(&estate.proxy), *members);
            result
        }
    }
}

/// Uses each way of requesting a reload in turn.
fn request_reload(estate: &Estate, turn: usize) -> String {
    let output = match turn % 3 {
        0 => estate.proxy.hang_up(),
        1 => {
            let outcome = estate.proxy.command(&["reload"], &[]);
            let refused = turn == BROKEN;
            assert_eq!(outcome.code == Some(0), !refused, "{}", outcome.stderr);
            estate.proxy.status()["last_reload"].clone()
        }
        _ => estate.proxy.reload(),
    };
    output["result"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_refused_reload_leaves_the_old_configuration_active_and_is_reported_everywhere() {
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    let taking = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let taken = taking.local_addr().expect("is bound");
    let key =
        fs::read_to_string(estate.proxy.ssldir().join("private_keys/puppet.pem")).expect("a key");
    let chain =
        fs::read_to_string(estate.proxy.ssldir().join("certs/puppet.pem")).expect("a certificate");
    let crl = fs::read_to_string(estate.proxy.ssldir().join("crl.pem")).expect("a CRL");
    let ca = estate.ca.bundle_pem();
    let config = estate.proxy.config_text();
    let stranger = estate.ca.server("puppet");
    let broken: &[(&str, &str, u32, &str)] = &[
        ("proscenium.toml", "[pools", 0o644, "proscenium.toml"),
        ("ssl/crl.pem", "no CRL at all", 0o644, "crl.pem"),
        ("ssl/crl.pem", &crl[..crl.len() - 60], 0o644, "crl.pem"),
        ("ssl/certs/ca.pem", "", 0o644, "ca.pem"),
        ("ssl/certs/puppet.pem", "garbage", 0o644, "puppet.pem"),
        (
            "ssl/certs/puppet.pem",
            &stranger.cert_pem,
            0o644,
            "puppet.pem",
        ),
        ("ssl/private_keys/puppet.pem", &key, 0o644, "puppet.pem"),
    ];
    let add = format!("{config}\n[listeners.second]\naddress = \"{taken}\"\n");
    let address_in_use = [("proscenium.toml", add.as_str(), 0o644, "in use")];
    for (n, (file, text, mode, expected)) in broken.iter().chain(&address_in_use).enumerate() {
        estate.proxy.write(file, text, *mode);
        let outcome = estate.proxy.hang_up();
        assert_eq!(outcome["result"], "refused", "{file}: {outcome}");
        let report = outcome["report"].as_str().unwrap_or_default();
        assert!(report.contains(expected), "{expected:?} is not in {report}");
        assert_eq!(
            estate.proxy.status()["last_reload"]["report"],
            outcome["report"]
        );
        estate.wait_for_event("reload refused");
        let metrics = estate.proxy.metrics();
        let refused = metrics.sum("proscenium_reloads_total", &[("result", "refused")]);
        // The `reload` command below is refused too, and counted.
        assert_eq!(refused, (2 * n + 1) as f64);
        // The socket is named, because it cannot be read from an invalid file.
        let socket = estate.proxy.admin_socket();
        let socket = ["--socket", socket.to_str().expect("a path of ours")];
        let command = estate.proxy.command(&["reload"], &socket);
        assert_ne!(command.code, Some(0));
        assert!(command.stderr.contains(expected), "{}", command.stderr);
        assert_eq!(estate.client(&agent).get(CATALOG).status, 200, "{file}");
        for (file, text, mode) in [
            ("proscenium.toml", &config, 0o644),
            ("ssl/crl.pem", &crl, 0o644),
            ("ssl/certs/ca.pem", &ca, 0o644),
            ("ssl/certs/puppet.pem", &chain, 0o644),
            ("ssl/private_keys/puppet.pem", &key, 0o640),
        ] {
            estate.proxy.write(file, text, mode);
        }
        assert_eq!(estate.proxy.reload()["result"], "unchanged");
    }
    assert_eq!(estate.proxy.generation(), 1);
}

#[test]
fn a_reload_without_changes_is_recorded_as_such() {
    let estate = Estate::start();
    let before = estate.proxy.status()["generation"].clone();
    let outcome = estate.proxy.reload();
    assert_eq!(outcome["result"], "unchanged");
    // Comments are not a change.
    estate.edit_config("[pools.ca]", "# the CA server\n[pools.ca]");
    assert_eq!(estate.proxy.hang_up()["result"], "unchanged");
    let status = estate.proxy.status();
    assert_eq!(status["generation"], before);
    assert_eq!(status["last_reload"]["result"], "unchanged");
    let metrics = estate.proxy.metrics();
    assert_eq!(
        metrics.sum("proscenium_reloads_total", &[("result", "unchanged")]),
        2.0
    );
    assert_eq!(metrics.sum("proscenium_generation", &[]), 1.0);
}

#[test]
fn a_pool_whose_members_are_all_replaced_answers_every_request() {
    let estate = Estate::start();
    let client = estate.agent("web01");
    let (first, second) = (
        vec![estate.compilers[0].address()],
        vec![estate.compilers[1].address()],
    );
    set_members(&estate, &all_members(&estate), &first);
    estate.proxy.reload_applied();
    let (stop, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let _stopping = Stopping(&stop);
        for _ in 0..4 {
            scope.spawn(|| send_until(&stop, &asked, &client, CATALOG));
        }
        for turn in 0..10 {
            let (from, to) = if turn % 2 == 0 {
                (&first, &second)
            } else {
                (&second, &first)
            };
            set_members(&estate, from, to);
            estate.proxy.reload_applied();
            let enough = asked.load(Ordering::SeqCst) + 10;
            wait_until(LIMIT, || {
                (asked.load(Ordering::SeqCst) >= enough).then_some(())
            });
        }
    });
    for compiler in &estate.compilers {
        assert!(!compiler.requests().is_empty(), "{}", compiler.name());
    }
    // A new check discards the old results; the proxy runs its own first probe before the check applies.
    estate.edit_config(
        "[pools.compilers]",
        "[pools.compilers]\ncheck = { type = \"tcp\" }",
    );
    estate.proxy.reload_applied();
    assert_eq!(client.get(CATALOG).status, 200);
}

/// Two agents' requests to a compiler with one slot: the compiler holds the first and does not answer it, the second
/// waits.
fn one_runs_and_one_waits(estate: &Estate, fields: &[(&str, &str)]) -> [TestConnection; 2] {
    estate.compilers[0].hold();
    let send = |certname| {
        let agent = estate.ca.agent(certname);
        let mut connection = estate.client(&agent).connect().expect("connects");
        connection.send("GET", FILE, fields, b"").expect("sends");
        connection
    };
    let first = send("web01");
    estate.compilers[0].wait_for_request(1, LIMIT);
    let second = send("web02");
    estate.wait_for_status("one waits", |status| {
        status["pools"].to_string().contains("\"waiting\":1")
    });
    [first, second]
}

/// Makes the compiler that received both requests answer them.
fn both_are_answered(estate: &Estate, requests: [TestConnection; 2]) {
    estate.compilers[0].release();
    for mut request in requests {
        assert_eq!(request.read_response().expect("an answer").status, 200);
    }
    assert_eq!(estate.compilers[0].requests().len(), 2);
}

#[test]
fn a_queued_request_never_goes_to_a_server_that_reads_other_identity_headers() {
    let estate = Estate::builder()
        .compilers(2)
        .compiler_pool("connections_max = 1")
        .start();
    let (first, second) = (
        vec![estate.compilers[0].address()],
        vec![estate.compilers[1].address()],
    );
    set_members(&estate, &all_members(&estate), &first);
    estate.proxy.reload_applied();
    // The headers of the future servers are not yet removed from requests.
    let forged = [("Site-Agent", "CN=admin"), ("Site-Verdict", "SUCCESS")];
    let requests = one_runs_and_one_waits(&estate, &forged);
    set_members(&estate, &first, &second);
    estate.edit_config(
        "connections_max = 1",
        "connections_max = 1\nidentity = { dn_header = \"Site-Agent\", verify_header = \"Site-Verdict\" }",
    );
    estate.proxy.reload_applied();
    both_are_answered(&estate, requests);
    let agent = estate.ca.agent("web03");
    assert_eq!(estate.client(&agent).get(FILE).status, 200);
    let [asked] = &estate.compilers[1].requests()[..] else {
        panic!("only what came after the reload");
    };
    assert_eq!(asked.headers.only("site-agent"), "CN=web03");
}

#[test]
fn a_queued_request_is_served_after_its_pool_was_removed() {
    let estate = Estate::builder().compilers(1).start();
    let odd = StandIn::start("odd");
    odd.answer(|request| request.path().starts_with("/odd").then(|| Reply::ok("odd")));
    let tables = format!(
        "[pools.odd]\nscheme = \"http\"\nmembers = [\"{}\"]\nqueue_max = 7\nconnections_max = 1\n\
         [[routes]]\nname = \"odd\"\npath = {{ prefix = \"/odd\" }}\npool = \"odd\"\nunguarded = true\n",
        odd.address()
    );
    let before = estate.proxy.config_text();
    estate.write_config(&format!("{before}\n{tables}"));
    estate.proxy.reload_applied();
    estate.wait_for_members(&["odd"]);
    odd.hold();
    let agent = estate.ca.agent("web01");
    let mut requests = [0, 1].map(|_| estate.client(&agent).connect().expect("connects"));
    for (n, request) in requests.iter_mut().enumerate() {
        request.send("GET", "/odd/x", &[], b"").expect("sends");
        match n {
            0 => drop(odd.wait_for_request(1, LIMIT)),
            _ => drop(estate.wait_for_status("one waits", |status| {
                status["pools"].to_string().contains("\"waiting\":1")
            })),
        }
    }
    // The first change makes another configuration serve the waiting request; the second removes the pool.
    let other = tables.replace("queue_max = 7", "queue_max = 8");
    estate.write_config(&format!("{before}\n{other}"));
    estate.proxy.reload_applied();
    estate.write_config(&before);
    estate.proxy.reload_applied();
    odd.release();
    for request in &mut requests {
        assert_eq!(request.read_response().expect("an answer").status, 200);
    }
    assert_eq!(odd.requests().len(), 2);
}

#[test]
fn concurrent_reloads_run_one_after_another() {
    let estate = Estate::start();
    estate.ca.renew_crl();
    estate.proxy.write_crl();
    let results: Vec<String> = thread::scope(|scope| {
        let asking: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| estate.proxy.reload()))
            .collect();
        let output = asking
            .into_iter()
            .map(|asking| asking.join().expect("asks"));
        output
            .filter_map(|output| output["result"].as_str().map(str::to_owned))
            .collect()
    });
    let count = |result: &str| results.iter().filter(|found| *found == result).count();
    assert_eq!(
        (count("applied"), count("unchanged")),
        (1, 7),
        "{results:?}"
    );
    assert_eq!(estate.proxy.generation(), 2);
}

#[test]
fn a_listener_is_added_moved_and_removed_and_then_its_address_is_free() {
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    let config = estate.proxy.config_text();
    let (first, second) = (HeldPort::take(), HeldPort::take());
    let listener =
        |at: &HeldPort| format!("{config}\n[listeners.second]\naddress = \"127.0.0.1:{at}\"\n");
    let client = |at: &HeldPort| estate.client(&agent).at(at.address());

    estate.write_config(&listener(&first));
    estate.proxy.reload_applied();
    assert_eq!(client(&first).get(CATALOG).status, 200);
    let mut open = client(&first).connect().expect("connects");
    assert_eq!(open.get(CATALOG).status, 200);

    estate.write_config(&listener(&second));
    estate.proxy.reload_applied();
    assert!(!first.is_listened_on(), "the old address is free");
    let answer = open.get(CATALOG);
    assert_eq!(
        (answer.status, answer.says_close()),
        (200, false),
        "moved, not removed"
    );
    assert_eq!(client(&second).get(CATALOG).status, 200);

    estate.write_config(&config);
    estate.proxy.reload_applied();
    assert!(!second.is_listened_on(), "the address is free");
    let last = open.get(CATALOG);
    assert_eq!(
        (last.status, last.says_close()),
        (200, true),
        "its listener is gone"
    );
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    let status = estate.proxy.status();
    assert_eq!(status["listeners"].as_array().map(Vec::len), Some(1));

    // The listener returns to the first address.
    estate.write_config(&listener(&second));
    estate.proxy.reload_applied();
    assert_eq!(client(&second).get(CATALOG).status, 200);
}

#[test]
fn a_listener_changes_between_one_address_and_all_on_the_same_port() {
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    let narrow = estate.proxy.address().to_string();
    let wide = format!("0.0.0.0:{}", estate.proxy.address().port());
    let mut open = estate.client(&agent).connect().expect("connects");
    assert_eq!(open.get(CATALOG).status, 200);
    for (from, to) in [(&narrow, &wide), (&wide, &narrow)] {
        estate.edit_config(from, to);
        estate.proxy.reload_applied();
        assert_eq!(estate.proxy.status()["listeners"][0]["address"], **to);
        assert_eq!(estate.client(&agent).get(CATALOG).status, 200, "{to}");
        assert_eq!(open.get(CATALOG).status, 200, "{to}");
    }
}

#[test]
fn a_stop_waits_for_an_exchange_of_a_removed_listener() {
    let estate = Estate::builder().top("drain_grace = \"10m\"").start();
    let agent = estate.ca.agent("web01");
    let config = estate.proxy.config_text();
    let second = HeldPort::take();
    estate.write_config(&format!(
        "{config}\n[listeners.second]\naddress = \"127.0.0.1:{second}\"\n"
    ));
    estate.proxy.reload_applied();
    estate.compilers.iter().for_each(StandIn::hold);
    let client = estate.client(&agent).at(second.address());
    thread::scope(|scope| {
        let asking = scope.spawn(|| client.try_request("POST", CATALOG, &[], b"facts"));
        one_of_two_has_a_head(&estate);
        estate.write_config(&config);
        estate.proxy.reload_applied();
        estate.proxy.terminate();
        estate.wait_for_status("draining", |status| status["phase"] == "draining");
        let refused = wait_until(LIMIT, || TcpStream::connect(estate.proxy.address()).err());
        assert!(refused.is_some(), "no listener is left");
        estate.compilers.iter().for_each(StandIn::release);
        assert_eq!(
            asking.join().expect("asks").expect("is answered").status,
            200
        );
    });
    assert_eq!(estate.proxy.wait_for_end(LIMIT).code, Some(0));
}

#[test]
fn limits_of_a_listener_change_with_a_reload() {
    let estate = Estate::builder()
        .listener("connections_max = 1\nhead_max = \"8KiB\"")
        .start();
    let client = estate.agent("web01");
    let long = "x".repeat(12 << 10);
    let ask = || {
        client
            .request("GET", CATALOG, &[("X-Long", &long)], b"")
            .status
    };
    assert_eq!(ask(), 431);
    estate.compilers.iter().for_each(StandIn::hold);
    thread::scope(|scope| {
        let holding = scope.spawn(|| client.get(CATALOG).status);
        one_of_two_has_a_head(&estate);
        // The first slot stays occupied until the end of this test, so only the reload can create another one.
        let waiting = scope.spawn(|| client.get(CA_CERTIFICATE).status);
        estate.wait_for_metric(LIMITS_HIT, &[("limit", "connections_max")], 1.0);
        estate.edit_config("connections_max = 1", "connections_max = 5");
        estate.edit_config("8KiB", "32KiB");
        estate.proxy.reload_applied();
        assert_eq!(waiting.join().expect("asks"), 200);
        estate.compilers.iter().for_each(StandIn::release);
        assert_eq!(holding.join().expect("asks"), 200);
    });
    assert_eq!(ask(), 200);
    assert_eq!(estate.proxy.status()["listeners"][0]["connections_max"], 5);
}

#[test]
fn health_and_state_of_members_survive_a_reload() {
    let estate = Estate::builder()
        .compilers(3)
        .compiler_pool(QUICK_CHECK)
        .start();
    let agent = estate.ca.agent("web01");
    let [drained, dead, alive] = &estate.compilers[..] else {
        unreachable!("three compilers")
    };
    let drained_address = drained.address();
    let command = estate
        .proxy
        .command(&["drain", "compilers", &drained_address], &[]);
    assert_eq!(command.code, Some(0), "{}", command.stderr);
    dead.kill();
    estate.wait_for_health("compilers", &dead.address(), "down");
    estate.ca.renew_crl();
    estate.proxy.swap_crl();
    // The results also survive another spelling of the pool, and one more member.
    estate.edit_config(
        "[pools.compilers]",
        "[pools.compilers]\nalgorithm = \"round-robin\"",
    );
    estate.proxy.reload_applied();
    let status = estate.proxy.status();
    let output: Vec<_> = members(&status)
        .iter()
        .map(|m| (m["health"].clone(), m["administrative_state"].clone()))
        .collect();
    let expected = [("up", "drain"), ("down", "ready"), ("up", "ready")];
    assert_eq!(
        output,
        expected.map(|(h, s)| (Value::from(h), Value::from(s)))
    );
    for _ in 0..6 {
        assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    }
    assert_eq!((drained.requests().len(), alive.requests().len()), (0, 6));
}

fn members(status: &Value) -> Vec<Value> {
    let pools = status["pools"].as_array().into_iter().flatten();
    let compilers = pools.filter(|pool| pool["name"] == "compilers");
    compilers
        .flat_map(|pool| pool["members"].as_array().cloned().unwrap_or_default())
        .collect()
}

fn member_addresses(proxy: &Proxy) -> Vec<String> {
    let members = members(&proxy.status());
    members
        .iter()
        .filter_map(|member| member["address"].as_str().map(str::to_owned))
        .collect()
}

fn all_members(estate: &Estate) -> Vec<String> {
    estate.compilers.iter().map(StandIn::address).collect()
}

fn set_members(estate: &Estate, from: &[String], to: &[String]) {
    estate.edit_config(&format!("members = {from:?}"), &format!("members = {to:?}"));
}

fn one_of_two_has_a_head(estate: &Estate) {
    let head = wait_until(LIMIT, || {
        estate
            .compilers
            .iter()
            .any(|c| !c.requests().is_empty())
            .then_some(())
    });
    assert!(head.is_some(), "no compiler has seen a head");
}

#[test]
fn a_reload_names_each_setting_that_changed() {
    let estate = Estate::builder()
        .with("[csr]\nobserve = false\n[tls]\nsession_lifetime = \"2h\"")
        .start();
    for (from, to, key) in [
        ("observe = false", "observe = true", "csr.observe"),
        ("\"2h\"", "\"3h\"", "tls.session_lifetime"),
    ] {
        estate.edit_config(from, to);
        let outcome = estate.proxy.reload();
        assert_eq!(outcome["result"], "applied", "{outcome:#}");
        let report = outcome["report"].as_str().unwrap_or_default();
        let first = report.lines().next().unwrap_or_default();
        assert_eq!(first, format!("changed: {key}"), "{report}");
    }
}

const LIMITS_HIT: &str = "proscenium_limits_hit_total";
