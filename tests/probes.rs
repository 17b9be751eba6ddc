//! Probes: what each type of check sends, which responses count, and when a member goes up or down.

use std::{
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use testkit::{Reply, StandIn, wait_until};

use crate::support::{
    Estate, EstateBuilder, LIMIT, NO_WAIT, assert_unavailable, connection,
    paths::FILE,
    pools::{UNPROBED, answer_probes, odd, probed, wait_for},
};

#[test]
fn an_http_check_expects_200_and_running() {
    let estate = probed("type = \"http\", rise = 1, fall = 1");
    for bad in [
        Reply::ok("starting"),
        Reply::status(503).body(b"running"),
        Reply::status(404),
        Reply::hang_up(),
        Reply::reset(),
        Reply::raw("nonsense"),
    ] {
        answer_probes(&estate.compilers[0], bad);
        wait_for(&estate, "down");
        assert_unavailable(&connection(&estate).get(FILE));
        estate.compilers[0].answer_as_puppet();
        wait_for(&estate, "up");
        assert_eq!(connection(&estate).get(FILE).status, 200);
    }
    let probe = estate.compilers[0].probes().remove(0);
    assert_eq!(
        (probe.method.as_str(), probe.target.as_str()),
        ("GET", "/status/v1/simple")
    );
    assert_eq!(
        probe.only("x-client-verify"),
        "NONE",
        "a probe carries no identity"
    );
}

#[test]
fn a_tcp_check_only_connects() {
    let estate = probed("type = \"tcp\", rise = 1, fall = 1");
    assert!(estate.compilers[0].probes().is_empty());
    estate.compilers[0].kill();
    wait_for(&estate, "down");
    estate.compilers[0].restart();
    wait_for(&estate, "up");
    assert!(estate.compilers[0].probes().is_empty());
}

/// An estate with one compiler whose check uses another port.
fn answered_for(agent: &StandIn, estate: EstateBuilder, check: &str) -> Estate {
    let port = agent.socket_address().port();
    estate
        .compilers(1)
        .compiler_pool(&format!(
            "check = {{ port = {port}, interval = \"20ms\", rise = 1, fall = 1, {check} }}\n{NO_WAIT}"
        ))
        .start()
}

#[test]
fn a_check_on_another_port_is_up_with_200_and_down_with_any_other_status() {
    for estate in [Estate::builder(), Estate::builder().tls_members()] {
        let agent = StandIn::start("agent");
        agent.answer(|_| Some(Reply::ok("whatever it says")));
        let estate = answered_for(&agent, estate, "type = \"http\"");
        for bad in [
            Reply::status(503).body(b"running"),
            Reply::status(404),
            Reply::status(302).header("Location", "/"),
            Reply::status(204),
            Reply::raw("HTTP/1.1 2000 OK\r\n\r\n"),
            Reply::raw("HTTP/2 200 OK\r\n\r\n"),
            Reply::raw("HTTP/1.1 200"),
            Reply::raw("200 OK\r\n\r\n"),
            Reply::raw(" ".repeat(1 << 20)),
            Reply::hang_up(),
            Reply::reset(),
        ] {
            agent.answer(move |_| Some(bad.clone()));
            wait_for(&estate, "down");
            assert_unavailable(&connection(&estate).get(FILE));
            agent.answer(|_| Some(Reply::raw("HTTP/1.0 200\n")));
            wait_for(&estate, "up");
            assert_eq!(connection(&estate).get(FILE).status, 200);
        }
        let probe = agent.last();
        assert_eq!((probe.method.as_str(), probe.target.as_str()), ("GET", "/"));
        assert_eq!(probe.only("host"), agent.address());
        assert!(
            estate.compilers[0].probes().is_empty(),
            "itself is not asked"
        );
        // Stopping the script takes its member down. The member still serves direct requests.
        agent.kill();
        wait_for(&estate, "down");
        agent.restart();
        wait_for(&estate, "up");
    }
}

#[test]
fn a_member_on_a_unix_socket_can_be_checked_on_a_port_of_this_machine() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("c1.sock");
    let (member, agent) = (
        StandIn::builder("unix").unix(&path).start(),
        StandIn::start("agent"),
    );
    let estate = odd(&format!(
        "scheme = \"http\"\nmembers = [\"{}\"]\ncheck = {{ port = {}, interval = \"20ms\", fall = 1 }}",
        member.address(),
        agent.socket_address().port()
    ))
    .start();
    let health = |health| {
        estate.wait_for_health("odd", &member.address(), health);
    };
    agent.answer(|_| Some(Reply::status(200)));
    health("up");
    agent.answer(|_| Some(Reply::status(503)));
    health("down");
}

#[test]
fn a_check_script_that_responds_without_reading_is_understood() {
    let script = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = script.local_addr().expect("bound").port();
    let well = Arc::new(AtomicBool::new(true));
    let output = Arc::clone(&well);
    thread::spawn(move || {
        use std::io::Write;
        for mut socket in script.incoming().flatten() {
            let status = if output.load(Ordering::SeqCst) {
                "200 OK"
            } else {
                "503 Service Unavailable"
            };
            let answer = format!(
                "HTTP/1.1 {status}\r\nContent-Type: Content-Type: text/plain\r\n\r\nPuppet\r\n"
            );
            let _ = socket.write_all(answer.as_bytes());
        }
    });
    let estate = probed(&format!("port = {port}, rise = 1, fall = 3"));
    wait_for(&estate, "up");
    well.store(false, Ordering::SeqCst);
    wait_for(&estate, "down");
    estate.wait_for_event("answered `HTTP/1.1 503 Service Unavailable`");
    well.store(true, Ordering::SeqCst);
    wait_for(&estate, "up");
    assert!(estate.compilers[0].probes().is_empty());
}

#[test]
fn a_tcp_check_on_another_port_only_connects_there() {
    let agent = StandIn::start("agent");
    let estate = answered_for(&agent, Estate::builder().tls_members(), "type = \"tcp\"");
    agent.kill();
    wait_for(&estate, "down");
    agent.restart();
    wait_for(&estate, "up");
    assert!(agent.requests().is_empty() && agent.probes().is_empty());
    assert!(estate.compilers[0].probes().is_empty());
}

#[test]
fn a_legacy_check_requests_the_status_of_old_masters() {
    for members in [Estate::builder(), Estate::builder().tls_members()] {
        let estate = members
            .compilers(1)
            .compiler_pool("check = { type = \"legacy\", interval = \"20ms\", rise = 1, fall = 1 }")
            .compiler_pool(NO_WAIT)
            .start();
        let compiler = &estate.compilers[0];
        for bad in [
            Reply::ok("running"),
            Reply::ok("{\"is_alive\":false}"),
            Reply::ok(""),
            Reply::status(403).body(b"Forbidden request: \"is_alive\":true"),
            Reply::status(404).body(b"{\"is_alive\":true}"),
            Reply::hang_up(),
        ] {
            answer_probes(compiler, bad);
            wait_for(&estate, "down");
            assert_unavailable(&connection(&estate).get(FILE));
            answer_probes(
                compiler,
                Reply::ok("{\"is_alive\":true,\"version\":\"2.7.26\"}"),
            );
            wait_for(&estate, "up");
            assert_eq!(connection(&estate).get(FILE).status, 200);
        }
        let probe = compiler.probes().remove(0);
        assert_eq!(
            (probe.method.as_str(), probe.target.as_str()),
            ("GET", "/production/status/no_key")
        );
        assert_eq!(
            (probe.only("accept"), probe.only("x-client-verify")),
            ("pson", "NONE")
        );
        estate.wait_for_event(r#"wanted 200 `\"is_alive\":true`"#);
    }
}

#[test]
fn without_a_check_a_member_is_up_until_it_refuses_connections_and_up_again_when_it_answers() {
    let estate = Estate::builder()
        .compilers(1)
        .compiler_pool(UNPROBED)
        .compiler_pool(NO_WAIT)
        .start();
    estate.compilers[0].kill();
    wait_for(&estate, "up");
    assert_unavailable(&connection(&estate).get(FILE));
    wait_for(&estate, "down");
    estate.compilers[0].restart();
    let back = wait_until(LIMIT, || {
        (connection(&estate).get(FILE).status == 200).then_some(())
    });
    assert!(back.is_some(), "tried again without a probe");
    wait_for(&estate, "up");
    assert_eq!(estate.compilers[0].probes().len(), 0);
}

#[test]
fn a_member_goes_down_after_fall_failed_probes_and_up_after_rise_successful_ones() {
    for (rise, fall) in [(1, 1), (40, 30)] {
        let estate = probed(&format!("rise = {rise}, fall = {fall}"));
        let bad = answer_probes(&estate.compilers[0], Reply::status(503));
        wait_for(&estate, "down");
        let bad = bad.load(Ordering::SeqCst);
        assert!(bad >= fall, "down after {bad} bad probes, fall = {fall}");
        let good = answer_probes(&estate.compilers[0], Reply::ok("running"));
        wait_for(&estate, "up");
        let good = good.load(Ordering::SeqCst);
        assert!(good >= rise, "up after {good} good probes, rise = {rise}");
    }
}

#[test]
fn fewer_failed_probes_than_fall_change_nothing() {
    let estate = probed("rise = 1, fall = 5");
    let turn = Arc::new(AtomicUsize::new(0));
    let turns = Arc::clone(&turn);
    // Four failures and one success, repeated: never five failures in a row, but more than the default of three.
    estate.compilers[0].answer(move |request| {
        let is_check = request.is_probe() && !request.is_jruby_reading();
        is_check.then(|| match turns.fetch_add(1, Ordering::SeqCst) % 5 {
            4 => Reply::ok("running"),
            _ => Reply::status(503),
        })
    });
    wait_until(LIMIT, || (turn.load(Ordering::SeqCst) >= 20).then_some(())).expect("probed");
    wait_for(&estate, "up");
    assert!(
        !estate.proxy.stderr().contains("probes-failed"),
        "{}",
        estate.proxy.stderr()
    );
}

#[test]
fn a_probe_without_a_response_fails_after_its_timeout() {
    let estate = probed("timeout = \"50ms\", rise = 1, fall = 1");
    let gate = testkit::ReplyGate::new();
    answer_probes(&estate.compilers[0], Reply::ok("running").gate(&gate));
    wait_for(&estate, "down");
    estate.wait_for_event("within 50ms");
    estate.compilers[0].answer_as_puppet();
    gate.release();
    wait_for(&estate, "up");
}

#[test]
fn probes_are_sent_at_their_interval() {
    // With the default interval of 5 s there would be two probes in the first ten seconds. The second assertion shows
    // that the interval is not the default.
    let (often, never) = (
        probed("rise = 1"),
        Estate::builder()
            .compilers(1)
            .compiler_pool("check = { interval = \"1h\" }")
            .start(),
    );
    let seen = wait_until(LIMIT, || {
        (often.compilers[0].probes().len() >= 20).then_some(())
    });
    assert!(seen.is_some());
    assert_eq!(never.compilers[0].probes().len(), 1);
}

#[test]
fn a_member_that_was_never_probed_gets_no_requests_until_its_first_successful_probe() {
    let estate = Estate::builder()
        .compilers(1)
        .compiler_pool("check = { interval = \"20ms\", rise = 50, fall = 1 }")
        .unready()
        .start();
    wait_for(&estate, "up");
    assert!(
        estate.compilers[0].probes().len() < 50,
        "not after `rise` of them"
    );
    // A member that was up before needs all `rise` successes.
    answer_probes(&estate.compilers[0], Reply::status(503));
    wait_for(&estate, "down");
    let good = answer_probes(&estate.compilers[0], Reply::ok("running"));
    wait_for(&estate, "up");
    assert!(good.load(Ordering::SeqCst) >= 50);
}

#[test]
fn a_member_counts_as_up_before_its_first_probe_if_the_check_says_so() {
    for (assume_up, status) in [(true, 200), (false, 503)] {
        // A member that accepts a connection and does not answer: its first probe never ends.
        let gate = testkit::ReplyGate::new();
        let hanging = StandIn::start("hanging");
        let reply = Reply::ok("running").gate(&gate);
        hanging.answer(move |request| request.is_probe().then(|| reply.clone()));
        let tables = format!(
            "[pools.slow]\nscheme = \"http\"\nmembers = [\"{}\"]\ncheck = {{ timeout = \"1h\", assume_up = {assume_up} }}\n\
             [[routes]]\nname = \"slow\"\npath = {{ prefix = \"/puppet/v3/file_content\" }}\npool = \"slow\"",
            hanging.address()
        );
        let estate = Estate::builder().compilers(1).with(&tables).start();
        assert_eq!(connection(&estate).get(FILE).status, status);
        gate.release();
    }
}

#[test]
fn a_refused_connect_takes_a_member_down_until_its_next_good_probe() {
    let estate = Estate::builder()
        .compilers(1)
        .compiler_pool("check = { interval = \"1500ms\", rise = 9, fall = 9 }")
        .compiler_pool(NO_WAIT)
        .start();
    estate.compilers[0].kill();
    assert_unavailable(&connection(&estate).get(FILE));
    wait_for(&estate, "down");
    // The failed request took the member down, without nine failed probes.
    estate.wait_for_event("cause=connect-refused");
    estate.compilers[0].restart();
    let probes = estate.compilers[0].probes().len();
    wait_for(&estate, "up");
    let needed = estate.compilers[0].probes().len() - probes;
    assert!(
        needed < 9,
        "{needed} probes for one that had never failed one"
    );
}
