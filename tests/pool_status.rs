//! The members of a pool in the status service, in alarms and in `proscenium status`.

use std::{net::TcpListener, sync::atomic::Ordering, thread};

use serde_json::Value;
use testkit::{Ca, Client, HeldPort, Manner, Reply, StandIn, wait_until};

use crate::support::{
    self, Estate, LIMIT, QUICK_CHECK,
    pools::{answer_probes, odd, probed, tls, wait_for},
};

/// The status that a load balancer in front of the proxy gets.
#[test]
fn the_proxy_answers_status_by_the_availability_of_compilers() {
    let estate = Estate::builder()
        .compilers(1)
        .compiler_pool(QUICK_CHECK)
        .start();
    let paths = [
        "/status/v1/simple",
        "/status/v1/simple/server",
        "/status/v1/simple/master",
    ];
    let anyone: Client = estate.anonymous();
    for path in paths {
        let response = anyone.get(path);
        assert_eq!(
            (response.status, response.text().as_str()),
            (200, "running"),
            "{path}"
        );
    }
    answer_probes(&estate.compilers[0], Reply::status(503));
    wait_for(&estate, "down");
    for path in paths {
        let response = anyone.get(path);
        assert_eq!(
            (response.status, response.text().as_str()),
            (503, "error"),
            "{path}"
        );
    }
    assert!(estate.far_end().is_empty());
}

#[test]
fn a_member_in_maintenance_is_probed_and_comes_back_after_rise_good_probes() {
    let estate = probed("rise = 40, fall = 1");
    wait_for(&estate, "up");
    let compiler = &estate.compilers[0];
    let set = |verb: &str| {
        support::set_state(&estate.proxy, verb, "compilers", &compiler.address());
    };
    set("maintenance");
    let good = answer_probes(compiler, Reply::status(200).body(b"running"));
    let probed_on = wait_until(LIMIT, || (good.load(Ordering::SeqCst) > 2).then_some(()));
    assert!(probed_on.is_some(), "probes go on in maintenance");
    let before = good.load(Ordering::SeqCst);
    set("ready");
    wait_for(&estate, "up");
    let since = good.load(Ordering::SeqCst) - before;
    assert!(since >= 40, "up after {since} good probes, rise = 40");
}

#[test]
fn a_pool_without_an_available_member_is_an_alarm_until_one_is_available() {
    let estate = probed("rise = 1, fall = 1");
    wait_for(&estate, "up");
    let labels = [("alarm", "pool-unavailable")];
    let alarms = || estate.proxy.metrics().sum("proscenium_alarms", &labels);
    let available = || {
        let pool = [("pool", "compilers")];
        let metrics = estate.proxy.metrics();
        metrics.sum("proscenium_pool_members_available", &pool)
    };
    assert_eq!((alarms(), available()), (0.0, 1.0));
    let compiler = &estate.compilers[0];
    answer_probes(compiler, Reply::status(503));
    wait_for(&estate, "down");
    estate.wait_for_event("no member of pool compilers is available");
    estate.wait_for_event("alarm=pool-unavailable first_step=");
    assert_eq!((alarms(), available()), (1.0, 0.0));
    let status = estate.proxy.status();
    let alarm = &status["alarms"][0];
    assert_eq!(alarm["key"], "pool-unavailable:compilers", "{status:#}");
    assert!(alarm["since"].is_string(), "{status:#}");
    assert_eq!(alarm["severity"], "critical", "{status:#}");
    for (field, words) in [
        ("effect", "503"),
        ("first_step", "`proscenium status`"),
        ("runbook", "operating/health.md#"),
    ] {
        let text = alarm[field].as_str().unwrap_or_default();
        assert!(text.contains(words), "{field}: {status:#}");
    }
    let critical = [labels[0], ("severity", "critical")];
    let metrics = estate.proxy.metrics();
    assert_eq!(metrics.sum("proscenium_alarms", &critical), 1.0);
    let pools = status["pools"].as_array().expect("pools");
    let pool = pools.iter().find(|pool| pool["name"] == "compilers");
    let pool = pool.expect("the pool of compilers");
    assert_eq!(pool["available"], 0);
    let member = &pool["members"][0];
    assert_eq!(member["why"], "probes-failed", "{member:#}");
    assert!(member["since"].is_string(), "{member:#}");
    let failure = member["last_probe"]["failure"].as_str().unwrap_or_default();
    assert!(failure.contains("503"), "{member:#}");
    let output = estate.proxy.command(&["status"], &[]).stdout;
    assert!(
        output.contains("CRITICAL since") && output.contains("503"),
        "{output}"
    );
    answer_probes(compiler, Reply::status(200).body(b"running"));
    estate.wait_for_event("cleared: no member of pool compilers is available");
    assert_eq!((alarms(), available()), (0.0, 1.0));
    assert_eq!(estate.proxy.status()["alarms"], Value::Array(Vec::new()));
}

#[test]
fn the_exit_code_of_status_is_that_of_the_most_severe_alarm_if_requested() {
    let estate = Estate::builder()
        .compilers(2)
        .compiler_pool(QUICK_CHECK)
        .admin("audit_log = \"{dir}/audit/audit.log\"")
        .start();
    wait_for(&estate, "up");
    let status = |arguments: &[&str]| estate.proxy.command(&["status"], arguments);
    let outcome = status(&["--exit-code"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(
        outcome.stdout.starts_with("\u{25cf} proscenium "),
        "{outcome:?}"
    );
    assert!(outcome.stdout.contains(", no alarms\n"), "{outcome:?}");
    estate.compilers[1].kill();
    let warned = wait_until(LIMIT, || {
        let outcome = status(&["--exit-code"]);
        (outcome.code == Some(1)).then_some(outcome)
    });
    let outcome = warned.expect("a member that is down is a warning");
    assert!(
        outcome
            .stdout
            .contains(", no alarms, 1 member down or ejected\n"),
        "{outcome:?}"
    );
    estate.compilers[1].restart();
    wait_until(LIMIT, || {
        (status(&["--exit-code"]).code == Some(0)).then_some(())
    })
    .expect("it is well again");
    // The audit log cannot be written.
    support::set_state(&estate.proxy, "drain", "ca", &estate.ca_server.address());
    support::set_state(&estate.proxy, "ready", "ca", &estate.ca_server.address());
    let outcome = status(&["--exit-code"]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    answer_probes(&estate.compilers[0], Reply::status(503));
    wait_for(&estate, "down");
    answer_probes(&estate.compilers[1], Reply::status(503));
    estate.wait_for_event("no member of pool compilers is available");
    let outcome = status(&["--exit-code", "--json"]);
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert_eq!(status(&[]).code, Some(0));
    let outcome = status(&["--exit-code", "--socket", "/nonexistent/admin.sock"]);
    assert_eq!(
        (outcome.code, outcome.stdout.as_str()),
        (Some(3), ""),
        "{outcome:?}"
    );
    assert!(
        outcome.stderr.contains("/nonexistent/admin.sock"),
        "{outcome:?}"
    );
}

#[test]
fn a_clock_that_differs_from_most_members_is_an_alarm_until_they_agree() {
    let check = QUICK_CHECK;
    let estate = Estate::builder()
        .compilers(3)
        .compiler_pool(check)
        .ca_pool("check = { type = \"tcp\" }")
        .start();
    let alarms = || {
        let labels = [("alarm", "clock-offset")];
        estate.proxy.metrics().sum("proscenium_alarms", &labels)
    };
    let offsets = || {
        let status = estate.proxy.status();
        let pools = status["pools"].as_array().expect("pools").clone();
        let members = pools.into_iter().flat_map(|pool| {
            let members = pool["members"].as_array().expect("members").clone();
            members
                .into_iter()
                .map(|m| m["clock_offset_seconds"].clone())
        });
        members.map(|offset| offset.as_i64()).collect::<Vec<_>>()
    };
    let wait_for_offset = |member: usize, expected: i64| {
        let shown = wait_until(LIMIT, || {
            let offset = *offsets().iter().filter(|o| o.is_some()).nth(member)?;
            ((offset? - expected).abs() <= 5).then_some(())
        });
        assert!(shown.is_some(), "{member}: {expected}: {:?}", offsets());
    };
    let set = |member: usize, ahead: i64| {
        estate.compilers[member].behave(Manner::headers().clock_ahead(ahead));
    };
    [0, 0, -7200]
        .iter()
        .enumerate()
        .for_each(|(member, ahead)| set(member, *ahead));
    // One of three clocks differs: an event, and a line in the status.
    estate.wait_for_event("the member's clock differs from the proxy's by more than 300 s");
    wait_for_offset(2, -7200);
    assert_eq!(alarms(), 0.0);
    let shown = estate.proxy.command(&["status"], &[]).stdout;
    let line = format!(
        "{}: its clock is 2 h behind the proxy's",
        estate.compilers[2].address()
    );
    assert!(shown.contains(&line), "{shown}");
    // Two of three clocks differ: the proxy's own clock is in doubt.
    set(0, -3600);
    let first = estate.compilers[0].address();
    estate
        .wait_for_event("the clocks of 2 of 3 members differ from the proxy's by more than 300 s");
    assert_eq!(alarms(), 1.0);
    let status = estate.proxy.status();
    let alarm = &status["alarms"][0];
    assert_eq!(alarm["key"], "clock-offset", "{status:#}");
    let message = alarm["message"].as_str().unwrap_or_default();
    // The header `Date` has whole seconds, and takes time to arrive.
    let shows_offset =
        (3595..=3605).any(|seconds| message.contains(&format!("{first} is {seconds} s behind")));
    assert!(
        shows_offset && message.contains("check the clock of the proxy's host"),
        "{message}"
    );
    // A clock that was read before its member stopped answering is not used.
    estate.compilers[2].stop();
    estate.wait_for_health("compilers", &estate.compilers[2].address(), "down");
    assert_eq!(alarms(), 1.0);
    set(0, 0);
    estate.wait_for_event("cleared: the clocks of 2 of 3 members");
    assert_eq!(alarms(), 0.0);
    let events = estate.proxy.stderr();
    assert_eq!(
        events.matches("the clocks of 2 of 3 members").count(),
        2,
        "{events}"
    );
    assert!(
        offsets().contains(&None),
        "a check by tcp shows no clock: {:?}",
        offsets()
    );
}

/// Waits on each connection for some bytes, answers with these, and closes it.
fn answer_all(answer: &'static [u8]) -> String {
    use std::io::{Read, Write};
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let _ = socket.read(&mut [0; 4096]);
            let _ = socket.write_all(answer);
        }
    });
    address
}

#[test]
fn the_status_shows_why_a_probe_failed_in_plain_words() {
    let (ca, other) = (Ca::new(), Ca::other());
    let credential = ca.server("c1");
    let replying = |reply: Reply| {
        let member = tls(&ca, &credential);
        answer_probes(&member, reply);
        member
    };
    let hanging_up = replying(Reply::hang_up());
    let malformed = replying(Reply::raw("HTTP/1.1 ok\r\n\r\n"));
    let short = replying(Reply::raw(
        "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nrunning",
    ));
    let distrusting = StandIn::builder("distrusting")
        .tls_wanting(&other, &credential)
        .start();
    let foreign = tls(&other, &other.server("c1"));
    let nothing_listens = HeldPort::take();
    let refusing = nothing_listens.address().to_string();
    let cases = [
        (refusing, "cannot connect: connection refused"),
        (
            answer_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
            "TLS: the member does not speak TLS on this port; it may expect plain HTTP",
        ),
        (
            answer_all(b""),
            "TLS: the member closed the connection during the TLS handshake",
        ),
        (
            answer_all(b"\x15\x03\x03\x00\x02\x02\x46"),
            "TLS: the member sent the TLS alert protocol_version: it does not support the proxy's TLS versions, 1.2 and 1.3",
        ),
        (
            distrusting.address(),
            "the member sent the TLS alert unknown_ca: it does not trust the CA of the proxy's certificate",
        ),
        (foreign.address(), "unknown-issuer"),
        (
            hanging_up.address(),
            "the member closed the connection before the response was complete",
        ),
        (
            malformed.address(),
            "malformed response: its status line has no status code with three digits",
        ),
        (
            short.address(),
            "the member closed the connection before the response was complete",
        ),
    ];
    let members: Vec<_> = cases
        .iter()
        .map(|(address, _)| format!("{address:?}"))
        .collect();
    let estate = odd(&format!(
        "members = [{}]\ncheck = {{ interval = \"20ms\" }}",
        members.join(", ")
    ))
    .ca(&ca)
    .start();
    for (address, expected) in &cases {
        let failure = || {
            let status = estate.proxy.status();
            let pools = status["pools"].as_array()?.iter();
            let mut members = pools
                .filter_map(|pool| pool["members"].as_array())
                .flatten();
            let member = members.find(|member| member["address"] == **address)?;
            Some(member["last_probe"]["failure"].as_str()?.to_owned())
        };
        // A probe can time out on a loaded machine; the next one shows the cause.
        let is_shown = || failure().filter(|failure| failure.contains(expected));
        let failure = wait_until(LIMIT, is_shown)
            .unwrap_or_else(|| panic!("{expected:?} is not in {:?}", failure()));
        for foreign in ["://", "os error", "\n", "\\x"] {
            assert!(!failure.contains(foreign), "{foreign:?} is in {failure:?}");
        }
    }
}
