//! CRLs that the proxy fetches from the CA: when it fetches, and that a fetched CRL applies at once.

use std::{
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use testkit::{Ca, Reply, ReplyGate, StandIn, wait_until};

use crate::support::{
    Estate, LIMIT, QUICK_CHECK, assert_contains, assert_refused,
    crl_fetch::{
        CRL_PATH, FAILING, ON_REQUEST, answer_crl_requests, compiler_requests, crl_requests, fetch,
        fetch_unchanged, fetching, start_and_fetch, wait_for_answer,
    },
    paths::CATALOG,
    proxy, wait_for,
};

const EVERY_SECOND: &str = "interval = \"1s\"\njitter = \"0s\"";
const FETCHES: &str = "proscenium_crl_fetches_total";

#[test]
fn jitter_makes_the_next_fetch_earlier_and_never_immediate() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let times = Arc::clone(&asked);
    let estate = Estate::builder()
        .fetch("interval = \"2s\"\njitter = \"24h\"")
        .start();
    estate.ca_server.answer(move |request| {
        if request.path() == CRL_PATH {
            times.lock().expect("no panic").push(Instant::now());
        }
        None
    });
    let between_bounds = || {
        let times = asked.lock().expect("no panic").clone();
        let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
        let sooner = Duration::from_millis(900)..Duration::from_millis(1900);
        gaps.filter(|gap| sooner.contains(gap)).max().map(drop)
    };
    assert!(wait_until(LIMIT, between_bounds).is_some(), "{asked:?}");
}

#[test]
fn t08_a_fetched_crl_closes_what_a_revoked_agent_has_open_and_refuses_it_from_then_on() {
    let estate = start_and_fetch(
        Estate::builder()
            .fetch(ON_REQUEST)
            .listener("idle_timeout = \"10m\""),
    );
    let (good, bad) = (estate.ca.agent("web01"), estate.ca.agent("web01"));
    let client = estate.client(&bad);
    let mut innocent = estate.client(&good).connect().expect("connects");
    let mut idle = client.connect().expect("connects");
    assert_eq!(idle.get(CATALOG).status, 200);
    assert_eq!(innocent.get(CATALOG).status, 200);
    // A request is in flight when the CRL arrives, so its connection's next request is the first to be refused.
    estate.compilers.iter().for_each(StandIn::hold);
    estate.forget();
    let mut live = client.connect().expect("connects");
    live.send("GET", CATALOG, &[], b"").expect("is taken");
    wait_for("asked", || !compiler_requests(&estate).is_empty());

    estate.ca.revoke(&bad);
    let output = fetch(&estate.proxy);
    let number = estate.ca.crl_number();
    let expected = format!(
        "CN={}: number {number} with 1 entries is active",
        estate.ca.name()
    );
    assert!(output.contains(&expected), "{output}");
    assert!(idle.is_closed_within(LIMIT), "closed without an answer");
    estate.compilers.iter().for_each(StandIn::release);
    assert_eq!(live.read_response().expect("is answered").status, 200);
    let last = live.get(CATALOG);
    assert_refused(&last, 403, &["revoked", &format!("number {number}")]);
    assert!(last.says_close());
    let mut resumed = client.connect().expect("connects");
    assert!(resumed.resumed());
    assert_refused(&resumed.get(CATALOG), 403, &["revoked"]);
    assert_refused(&estate.client(&bad).get(CATALOG), 403, &["revoked"]);
    assert_eq!(innocent.get(CATALOG).status, 200);

    // Requests to the CA for CRLs carry no client identity.
    let request = estate.ca_server.last();
    assert_eq!(
        (request.method.as_str(), request.target.as_str()),
        ("GET", CRL_PATH)
    );
    assert_eq!(request.only("x-client-verify"), "NONE");
    assert!(
        request.headers.get("x-client-dn").is_none(),
        "{}",
        request.raw_text()
    );
    let source = ("source", "\"fetched from");
    let status = estate.proxy.status();
    let crls = status["trust"]["crls"].to_string();
    assert!(crls.contains(&source.1.replace('"', "\\\"")), "{crls}");
    let metrics = estate.proxy.metrics();
    assert!(metrics.sum("proscenium_crl_last_fetch_timestamp_seconds", &[]) > 0.0);
    assert!(metrics.sum(FETCHES, &[("result", "applied")]) >= 1.0);
    assert_eq!(metrics.sum(FAILING, &[]), 0.0);
}

#[test]
fn after_a_failed_fetch_the_crl_is_fetched_as_soon_as_the_ca_is_available_again() {
    // The next fetch at an interval is a day away.
    let builder = Estate::builder().ca_pool(QUICK_CHECK).fetch(ON_REQUEST);
    let estate = start_and_fetch(builder);
    let agent = estate.ca.agent("web01");
    estate.ca_server.stop();
    estate.proxy.wait_for_status("no CA", |status| {
        status["alarms"].to_string().contains("pool-unavailable:ca")
    });
    let failed = estate.proxy.command(&["crl", "fetch"], &[]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    estate.ca.revoke(&agent);
    estate.ca_server.restart();
    wait_for("a fetch", || {
        estate.client(&agent).get(CATALOG).status == 403
    });
}

#[test]
fn without_configured_crls_one_is_fetched_at_the_start_and_each_interval() {
    let estate = Estate::builder().fetch(EVERY_SECOND).start();
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    estate.ca.revoke(&agent);
    wait_for("refused", || {
        estate.client(&agent).get(CATALOG).status == 403
    });
    // The proxy starts with the agent's copy, which is not old enough for an alarm.
    let copy = estate.proxy.ssldir().join("crl.pem").display().to_string();
    // A CRL that the CA signs again in the same second does not replace it.
    let replaced = |status: &Value| !status["trust"]["crls"].to_string().contains(&copy);
    estate.wait_for_status("the copy is replaced", replaced);
    assert!(!estate.proxy.stderr().contains("goes stale"));
}

#[test]
fn configured_crls_disable_fetching_unless_both_are_configured() {
    for (fetch, asks) in [
        ("", false),
        ("enabled = true\n", true),
        ("enabled = false\n", false),
    ] {
        let ca = Ca::new();
        let revoked = ca.agent("web01");
        let file = ca.crl_pem();
        ca.revoke(&revoked);
        let settings = match fetch {
            "" => String::new(),
            _ => format!("{fetch}{ON_REQUEST}"),
        };
        let estate = Estate::builder()
            .ca(&ca)
            .fetch(&settings)
            .file("crl.pem", &file, 0o644)
            .with("[trust]\ncrl = \"{dir}/crl.pem\"")
            .start();
        let status = estate.proxy.status();
        assert_eq!(status["trust"]["fetch"].is_null(), !asks, "{fetch}");
        if asks {
            wait_for_answer(&estate.proxy);
        } else {
            let outcome = estate.proxy.command(&["crl", "fetch"], &[]);
            assert_eq!(outcome.code, Some(1));
            assert_contains(&outcome.stderr, "[trust.fetch] is off");
            assert!(crl_requests(&estate.ca_server).is_empty());
        }
        let expected = if asks { 403 } else { 200 };
        assert_eq!(
            estate.client(&revoked).get(CATALOG).status,
            expected,
            "{fetch}"
        );
        // The newer CRL applies, whichever of the two sources provides it.
        let another = ca.agent("web01");
        ca.revoke(&another);
        estate.proxy.write("crl.pem", &ca.crl_pem(), 0o644);
        estate.proxy.reload_applied();
        for agent in [&revoked, &another] {
            assert_refused(&estate.client(agent).get(CATALOG), 403, &["revoked"]);
        }
    }
}

#[test]
fn a_configuration_without_a_ca_to_fetch_from_is_reported() {
    let outcome = proxy(&Ca::new())
        .top("builtin_routes = false")
        .fetch("enabled = true")
        .with("[pools.all]\nscheme = \"http\"\nmembers = [\"127.0.0.1:1\"]")
        .with("[[routes]]\nname = \"all\"\npath = { prefix = \"/\" }\npool = \"all\"")
        .check();
    assert_eq!(outcome.code, Some(78), "{}", outcome.stderr);
    assert!(
        outcome
            .stderr
            .contains("there is no pool `ca` to fetch from"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn a_fetch_sends_if_modified_since_only_while_it_can_hide_no_change() {
    const MODIFIED: &str = "Sat, 21 Nov 2026 10:00:00 GMT";
    const LATER: &str = "Sat, 21 Nov 2026 10:00:07 GMT";
    const AT_ONCE: &str = "Sat, 21 Nov 2026 10:00:03 GMT";
    for (date, settings, is_conditional) in [
        (LATER, "", true),
        (AT_ONCE, "", false),
        (LATER, "full_interval = \"1s\"", false),
    ] {
        let ca = Ca::new();
        let list = ca.crl_pem();
        let estate = Estate::builder()
            .ca(&ca)
            .fetch(&format!("{EVERY_SECOND}\n{settings}"))
            .unready()
            .start();
        estate.ca_server.answer(move |request| {
            (request.path() == CRL_PATH).then(|| {
                let reply = match request.headers.get("if-modified-since") {
                    Some(_) => Reply::status(304),
                    None => Reply::ok(&list).header("Last-Modified", MODIFIED),
                };
                reply.header("Date", date)
            })
        });
        // The proxy may have sent its first fetch before the stand-in had its answers.
        fetch_unchanged(&estate.proxy);
        estate.forget();
        let asked = wait_until(LIMIT, || {
            let asked = crl_requests(&estate.ca_server);
            (asked.len() >= 4).then_some(asked)
        });
        let sent: Vec<_> = asked
            .expect("is asked time and again")
            .iter()
            // The interval of this fetch began before the fetch that the operator requested.
            .skip(1)
            .map(|request| request.headers.get("if-modified-since").map(str::to_owned))
            .collect();
        let expected = is_conditional.then(|| MODIFIED.to_owned());
        assert!(
            sent.iter().all(|sent| *sent == expected),
            "{date} {settings}: {sent:?}"
        );
        // Nothing has changed, and nothing is wrong.
        let trust = estate.proxy.status()["trust"].clone();
        assert!(trust["fetch"]["failing"].is_null(), "{trust:#}");
        // A fetch that the operator requests is unconditional.
        estate.forget();
        fetch_unchanged(&estate.proxy);
        let whole = crl_requests(&estate.ca_server);
        assert!(
            whole
                .iter()
                .any(|request| request.headers.get("if-modified-since").is_none()),
            "{whole:?}"
        );
    }
}

#[test]
fn a_reload_during_a_fetch_loses_neither() {
    let ca = Ca::new();
    let agent = ca.agent("web01");
    let estate = start_and_fetch(fetching(&ca, ON_REQUEST));
    let older = ca.crl_pem();
    ca.revoke(&agent);
    let gate = ReplyGate::new();
    answer_crl_requests(&estate.ca_server, Reply::ok(&ca.crl_pem()).gate(&gate));
    estate.forget();
    thread::scope(|scope| {
        let fetched = scope.spawn(|| fetch(&estate.proxy));
        wait_for("asked", || !crl_requests(&estate.ca_server).is_empty());
        let text = estate.proxy.config_text();
        estate.write_config(&format!("drain_grace = \"7s\"\n{text}"));
        estate.proxy.write("ssl/crl.pem", &older, 0o644);
        estate.proxy.reload_applied();
        assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
        gate.release();
        let output = fetched.join().expect("is fetched");
        assert!(output.contains("is active"), "{output}");
    });
    assert_refused(&estate.client(&agent).get(CATALOG), 403, &["revoked"]);
    // The fetched CRL stays active after the next reload, whatever the file contains.
    let text = estate.proxy.config_text();
    estate.write_config(&text.replace("\"7s\"", "\"8s\""));
    estate.proxy.reload_applied();
    assert_refused(&estate.client(&agent).get(CATALOG), 403, &["revoked"]);
}

#[test]
fn the_operator_is_answered_while_many_wait_for_a_silent_ca() {
    let ca = Ca::new();
    let estate = start_and_fetch(fetching(&ca, ON_REQUEST));
    let gate = ReplyGate::new();
    answer_crl_requests(&estate.ca_server, Reply::ok(&ca.crl_pem()).gate(&gate));
    thread::scope(|scope| {
        let asked = || scope.spawn(|| estate.proxy.command(&["crl", "fetch"], &[]));
        let waiting: Vec<_> = (0..15).map(|_| asked()).collect();
        let output = wait_until(LIMIT, || {
            let over = waiting.iter().filter(|asked| asked.is_finished()).count();
            (over == 13).then_some(())
        });
        assert!(output.is_some(), "all but two get Retry-After");
        assert_eq!(estate.proxy.command(&["status"], &[]).code, Some(0));
        gate.release();
        let outcomes = waiting.into_iter().map(|asked| asked.join().expect("ends"));
        let (done, refused): (Vec<_>, Vec<_>) =
            outcomes.partition(|outcome| outcome.code == Some(0));
        assert_eq!((done.len(), refused.len()), (2, 13), "{refused:?}");
        for outcome in refused {
            assert!(
                outcome.stderr.contains("a fetch is in progress"),
                "{outcome:?}"
            );
        }
    });
}

#[test]
fn a_crl_is_fetched_over_mutual_tls_where_the_pool_uses_it() {
    let ca = Ca::new();
    let agent = ca.agent("web01");
    let estate = start_and_fetch(fetching(&ca, ON_REQUEST).tls_members());
    ca.revoke(&agent);
    fetch(&estate.proxy);
    assert_refused(&estate.client(&agent).get(CATALOG), 403, &["revoked"]);
    let asked = crl_requests(&estate.ca_server);
    let shown = asked
        .iter()
        .all(|request| !request.peer_certificates.is_empty());
    assert!(shown, "as ourselves");
}
