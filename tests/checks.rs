//! Settings of a check: path, expectations, TLS on another port, and intervals.

use std::{
    io::Write,
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use testkit::{Ca, Reply, StandIn, wait_until};

use crate::support::{Estate, assert_contains};

/// Long enough for a slow machine. The tests wait this long only if they fail.
const LIMIT: Duration = Duration::from_secs(60);

fn checked(check: &str) -> Estate {
    let line = format!("check = {{ interval = \"20ms\", rise = 1, fall = 1, {check} }}");
    Estate::builder()
        .compilers(1)
        .compiler_pool(&line)
        .unready()
        .start()
}

#[track_caller]
fn wait_for(estate: &Estate, health: &str) {
    estate.wait_for_health("compilers", &estate.compilers[0].address(), health);
}

#[test]
fn an_http_check_requests_its_path_and_ignores_a_failed_service_elsewhere() {
    let estate = checked("path = \"/status/v1/simple/server\"");
    let answered = |text: &'static str| {
        estate.compilers[0].answer(move |request| match request.path() {
            "/status/v1/simple/server" => Some(Reply::ok(text)),
            "/status/v1/simple" => Some(Reply::status(503).body(b"error")),
            _ => None,
        });
    };
    answered("running");
    wait_for(&estate, "up");
    answered("starting");
    wait_for(&estate, "down");
    estate.wait_for_event(
        "/status/v1/simple/server answered 200 OK `starting`, wanted 200 `running`",
    );
    let targets = estate.compilers[0].probes();
    assert!(
        targets
            .iter()
            .all(|probe| probe.target == "/status/v1/simple/server"),
        "{targets:?}"
    );
}

#[test]
fn an_http_check_accepts_the_status_and_the_body_that_it_names() {
    for (check, good, bad) in [
        (
            "path = \"/health?full=1\", expect_status = [\"204\", \"300-399\"]",
            vec![Reply::status(204), Reply::status(302)],
            vec![Reply::ok("running"), Reply::status(404)],
        ),
        (
            "expect_status = [\"200\", \"404\"]",
            vec![Reply::ok("anything"), Reply::status(404)],
            vec![Reply::status(503).body(b"running")],
        ),
        (
            "path = \"/health\", expect_body = \"is fine\"",
            vec![Reply::ok("all is fine here")],
            vec![Reply::ok("running"), Reply::status(503).body(b"is fine")],
        ),
    ] {
        let estate = checked(check);
        let compiler = &estate.compilers[0];
        for (good, bad) in good
            .iter()
            .flat_map(|good| bad.iter().map(move |bad| (good, bad)))
        {
            let (good, bad) = (good.clone(), bad.clone());
            compiler.answer(move |_| Some(good.clone()));
            wait_for(&estate, "up");
            compiler.answer(move |_| Some(bad.clone()));
            wait_for(&estate, "down");
        }
    }
}

#[test]
fn a_check_on_a_plain_port_requests_its_path_and_expects_its_body() {
    let agent = StandIn::start("agent");
    let port = agent.socket_address().port();
    let estate = checked(&format!(
        "port = {port}, path = \"/puppet\", expect_body = \"is up\""
    ));
    agent.answer(|_| Some(Reply::raw("HTTP/1.0 200 OK\r\n\r\nserver is up\n")));
    wait_for(&estate, "up");
    agent.answer(|_| {
        Some(Reply::raw(
            "HTTP/1.0 200 OK\r\nX: is up\r\n\r\nit is down\n",
        ))
    });
    wait_for(&estate, "down");
    assert_eq!(agent.last().target, "/puppet");
}

#[test]
fn a_response_with_the_expected_body_passes_although_the_connection_stays_open() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    thread::spawn(move || {
        let mut open = Vec::new();
        for mut socket in listener.incoming().flatten() {
            let _ = socket.write_all(b"HTTP/1.1 200 OK\r\n\r\nserver is up\n");
            open.push(socket);
        }
    });
    let estate = checked(&format!("port = {port}, expect_body = \"is up\""));
    wait_for(&estate, "up");
}

#[test]
fn a_check_over_tls_on_another_port_verifies_the_members_name() {
    let ca = Ca::new();
    let name = |name: &str| ca.leaf(name).dns(name).issue();
    // The broker has no status service; the server on the same host has one.
    let broker = StandIn::builder("broker")
        .tls(&ca, &name("c1.example.com"))
        .start();
    for (kind, shown, expected) in [
        ("http", "c1.example.com", "up"),
        ("http", "c2.example.com", "down"),
        ("tcp", "c1.example.com", "up"),
        ("tcp", "c2.example.com", "down"),
    ] {
        let status = StandIn::builder("status").tls(&ca, &name(shown)).start();
        let port = status.socket_address().port();
        let pool = format!(
            "[pools.pcp]\nmembers = [{{ address = \"{}\", server_name = \"c1.example.com\" }}]\n\
             check = {{ type = \"{kind}\", port = {port}, tls = true, interval = \"20ms\", fall = 1 }}\n",
            broker.address(),
        );
        let estate = Estate::builder().ca(&ca).with(&pool).start();
        estate.wait_for_health("pcp", &broker.address(), expected);
        let probes = status.probes();
        match (kind, expected) {
            ("http", "up") => {
                assert_eq!(probes[0].target, "/status/v1/simple");
                assert_eq!(probes[0].only("host"), format!("c1.example.com:{port}"));
                assert!(
                    !probes[0].peer_certificates.is_empty(),
                    "as the pool's TLS does"
                );
            }
            _ => assert!(probes.is_empty(), "{probes:?}"),
        }
    }
    assert!(broker.requests().is_empty() && broker.probes().is_empty());
}

#[test]
fn probes_come_at_the_fast_interval_while_health_changes() {
    let estate = Estate::builder()
        .compilers(1)
        .compiler_pool(
            "check = { interval = \"500ms\", fast_interval = \"10ms\", fall = 100, rise = 100 }",
        )
        .start();
    let bad = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&bad);
    estate.compilers[0].answer(move |request| {
        let is_check = request.is_probe() && !request.is_jruby_reading();
        is_check.then(|| {
            counted.fetch_add(1, Ordering::SeqCst);
            Reply::status(503)
        })
    });
    let began = Instant::now();
    // At the ordinary interval a hundred failures would take 50 s.
    wait_for(&estate, "down");
    assert!(
        began.elapsed() < Duration::from_secs(40),
        "{:?}",
        began.elapsed()
    );
    assert!(bad.load(Ordering::SeqCst) >= 100);
    // The member is down and still fails. Nothing changes, so the ordinary interval applies.
    let before = bad.load(Ordering::SeqCst);
    let began = Instant::now();
    wait_until(LIMIT, || {
        (bad.load(Ordering::SeqCst) >= before + 4).then_some(())
    })
    .expect("probed");
    assert!(
        began.elapsed() > Duration::from_millis(1000),
        "{:?}",
        began.elapsed()
    );
    estate.compilers[0].answer_as_puppet();
    wait_for(&estate, "up");
}

#[test]
fn a_contradictory_check_is_refused_with_the_key() {
    for (check, words) in [
        ("type = \"tcp\", path = \"/x\"", "path"),
        ("type = \"legacy\", expect_body = \"x\"", "expect_body"),
        (
            "type = \"none\", expect_status = [\"200\"]",
            "expect_status",
        ),
        ("expect_status = [\"2xx\"]", "is not a status code"),
        ("path = \"status\"", "is not a path"),
        ("tls = true", "the member's own port"),
        ("tls = true, port = 8140", "this pool has no TLS"),
    ] {
        let outcome = Estate::builder()
            .compiler_pool(&format!("check = {{ {check} }}"))
            .try_start();
        assert_eq!(outcome.code, Some(78), "{check}: {}", outcome.stderr);
        assert_contains(&outcome.stderr, words);
    }
}
