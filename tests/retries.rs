//! Requests after a failed attempt: which are sent to another member, and which are never sent twice.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use testkit::{Reply, StandIn, wait_until};

use crate::support::{
    Estate, LIMIT, assert_refused, assert_unavailable, certificate_request, connection,
    paths::{CATALOG, FILE, REPORT},
    pools::{CSR, UNPROBED, answered, one_worker, pending, shares},
};

#[test]
fn a_request_goes_to_the_other_member_when_one_refuses() {
    let estate = Estate::builder().compiler_pool(UNPROBED).start();
    estate.compilers[0].kill();
    for (method, target, body) in [
        ("POST", CATALOG, &b"facts"[..]),
        ("PUT", REPORT, b"{}"),
        ("GET", FILE, b""),
    ] {
        for _ in 0..3 {
            assert_eq!(
                connection(&estate)
                    .request(method, target, &[], body)
                    .status,
                200,
                "{method}"
            );
        }
    }
    assert_eq!(shares(&estate), [0, 9]);
    let retried = estate
        .wait_for_records(9)
        .iter()
        .filter(|record| record["attempts"] == 2)
        .count();
    assert!(retried >= 1, "one of them met the dead one first");
}

#[test]
fn no_request_has_more_attempts_than_attempts_max() {
    for most in [1, 2, 4] {
        let estate = Estate::builder()
            .compilers(5)
            .compiler_pool(UNPROBED)
            .with(&format!("[upstream]\nattempts_max = {most}"))
            .start();
        estate.compilers.iter().for_each(StandIn::kill);
        assert_unavailable(&connection(&estate).get(FILE));
        let record = estate.wait_for_record(|record| record["status"] == 503);
        assert_eq!(record["attempts"], most);
        assert_eq!(record["reason"], "connect-refused");
    }
}

#[test]
fn a_get_is_retried_after_a_reset_before_the_first_byte() {
    let estate = one_worker(Estate::builder()).start();
    let mut connection = connection(&estate);
    // After this, both members have an idle connection.
    estate.compilers.iter().for_each(StandIn::hold);
    let both = pending(&estate, 2);
    answered(&estate, both);
    let kept: Vec<_> = estate
        .compilers
        .iter()
        .map(|compiler| compiler.last().connection)
        .collect();
    estate.forget();
    let failed = Arc::new(AtomicBool::new(false));
    for compiler in &estate.compilers {
        let failed = Arc::clone(&failed);
        compiler.answer(move |request| {
            (!request.is_probe() && !failed.swap(true, Ordering::SeqCst)).then(Reply::reset)
        });
    }
    assert_eq!(connection.get(FILE).status, 200);
    let mut seen = shares(&estate);
    seen.sort_unstable();
    assert_eq!(seen, [1, 1], "the other member was asked");
    let reused = estate
        .compilers
        .iter()
        .zip(kept)
        .filter(|(compiler, kept)| compiler.last().connection == *kept);
    assert!(reused.count() >= 1, "the reset one had been used before");
}

#[test]
fn a_get_is_retried_on_the_only_member_where_a_reused_connection_broke() {
    let estate = one_worker(Estate::builder()).compilers(1).start();
    let mut connection = connection(&estate);
    assert_eq!(connection.get(FILE).status, 200);
    estate.forget();
    let failed = AtomicBool::new(false);
    estate.compilers[0].answer(move |request| {
        (!request.is_probe() && !failed.swap(true, Ordering::SeqCst)).then(Reply::reset)
    });
    assert_eq!(connection.get(FILE).status, 200);
    let seen = estate.far_end();
    assert_eq!(seen.len(), 2);
    assert_ne!(
        seen[0].connection, seen[1].connection,
        "on a new connection"
    );
    // An error on a new connection is the member's fault.
    estate.forget();
    estate.compilers[0].answer(|request| (!request.is_probe()).then(Reply::reset));
    assert_eq!(connection.get(FILE).status, 502);
    assert!(estate.far_end().len() <= 2, "{:?}", shares(&estate));
}

/// The retry budget is 0. A request that fails because the member resets a reused connection is sent again all the
/// same.
#[test]
fn a_member_that_resets_kept_connections_costs_no_get() {
    let estate = one_worker(Estate::builder())
        .compilers(1)
        .compiler_pool("retry_budget = \"0%\"")
        .start();
    let mut connection = connection(&estate);
    assert_eq!(connection.get(FILE).status, 200);
    let used: Mutex<HashSet<u64>> = Mutex::default();
    let kept = AtomicU64::new(estate.compilers[0].last().connection);
    estate.compilers[0].answer(move |request| {
        if request.is_probe() {
            return None;
        }
        let is_first = kept.load(Ordering::SeqCst) != request.connection
            && used.lock().expect("no panic").insert(request.connection);
        (!is_first).then(Reply::reset)
    });
    for n in 0..60 {
        assert_eq!(connection.get(FILE).status, 200, "GET {n}");
    }
    let report = connection.request("PUT", REPORT, &[], b"{}");
    assert_eq!(report.status, 502, "{report:?}");
    let reports = estate.far_end();
    let reports = reports.iter().filter(|request| request.method == "PUT");
    assert_eq!(reports.count(), 1);
    let status = &estate.proxy.status();
    assert_eq!(
        status["pools"][1]["members"][0]["ejected"],
        serde_json::Value::Null,
        "{status:#}"
    );
}

#[test]
fn a_get_whose_answer_is_malformed_is_sent_to_the_other_member_and_a_report_is_not() {
    let estate = one_worker(Estate::builder()).start();
    estate.compilers[0]
        .answer(|request| (!request.is_probe()).then(|| Reply::raw("HTTP/1.1 abc\r\n\r\n")));
    let mut connection = connection(&estate);
    for _ in 0..4 {
        assert_eq!(connection.get(FILE).status, 200);
    }
    let reports = (0..4).map(|_| connection.request("PUT", REPORT, &[], b"{}").status);
    let reports: Vec<_> = reports.collect();
    assert!(reports.contains(&502), "{reports:?}");
    let seen = estate.far_end();
    let seen = seen.iter().filter(|request| request.method == "PUT");
    assert_eq!(seen.count(), 4, "each once");
}

#[test]
fn a_closing_connection_loses_no_get_and_doubles_no_post() {
    let estate = one_worker(Estate::builder()).compilers(1).start();
    let mut connection = connection(&estate);
    let mut answered = 0;
    for n in 0..150 {
        assert_eq!(connection.get(FILE).status, 200);
        estate.compilers[0].close_connections();
        assert_eq!(connection.get(FILE).status, 200, "GET {n}");
        estate.compilers[0].close_connections();
        let target = format!("{CATALOG}&n={n}");
        let response = connection.request("POST", &target, &[], b"facts");
        assert!([200, 502].contains(&response.status), "{response:?}");
        answered += usize::from(response.status == 200);
        let seen = estate
            .far_end()
            .iter()
            .filter(|request| request.target == target)
            .count();
        assert!(seen <= 1, "{n}");
    }
    assert!(answered > 0);
}

#[test]
fn a_get_is_not_retried_once_a_byte_of_the_response_has_arrived() {
    for answer in ["HTTP/1.1 200 OK\r\nContent-", "H"] {
        let estate = Estate::start();
        for compiler in &estate.compilers {
            compiler.answer(move |request| (!request.is_probe()).then(|| Reply::raw(answer)));
        }
        assert_refused(
            &connection(&estate).get(FILE),
            502,
            &["closed the connection"],
        );
        assert_eq!(estate.far_end().len(), 1, "{answer:?}");
    }
}

#[test]
fn a_request_that_a_member_may_have_processed_is_never_sent_twice() {
    for fault in [Reply::reset, Reply::hang_up] {
        let estate = Estate::builder().start();
        for compiler in estate.members() {
            compiler.answer(move |request| (!request.is_probe()).then(fault));
        }
        let csr = certificate_request("web02");
        for (method, target, body) in [
            ("POST", CATALOG, &b"facts"[..]),
            ("GET", CATALOG, b""),
            ("PUT", REPORT, b"{}"),
            ("PUT", "/puppet/v3/facts/web01", b"{}"),
            ("POST", "/puppet/v3/file_metadatas/plugins", b"x"),
            ("PUT", "/puppet/v3/file_bucket_file/md5/abc/x", b"x"),
            ("PUT", CSR, &csr),
        ] {
            estate.forget();
            let response = connection(&estate).request(method, target, &[], body);
            assert_refused(
                &response,
                502,
                &["may have acted on this request", "not sent to another"],
            );
            assert_eq!(estate.far_end().len(), 1, "{method} {target}");
        }
    }
}

#[test]
fn a_safe_request_is_retried_when_a_compiler_answers_that_it_is_stopping() {
    let estate = Estate::start();
    let stopping = |reply: fn() -> Reply| {
        estate.compilers[0].answer(move |request| (!request.is_probe()).then(reply));
    };
    stopping(|| Reply::status(503).body(b"during a shutdown"));
    let mut connection = connection(&estate);
    for _ in 0..6 {
        assert_eq!(connection.get(FILE).status, 200);
    }
    let asked = estate.compilers[0].requests().len();
    assert!(asked > 0, "the stopping one was never asked");
    estate.wait_for_record(|record| record["attempts"] == 2 && record["status"] == 200);

    // A catalog is never sent twice, whatever its compiler answers.
    estate.forget();
    let statuses: Vec<_> = (0..6)
        .map(|_| connection.request("POST", CATALOG, &[], b"facts").status)
        .collect();
    assert!(statuses.contains(&503), "{statuses:?}");
    assert_eq!(estate.far_end().len(), statuses.len());

    // A compiler whose queue is full sends Retry-After. Trying another would only move the load there.
    stopping(|| Reply::status(503).header("Retry-After", "7"));
    estate.forget();
    let statuses: Vec<_> = (0..6).map(|_| connection.get(FILE).status).collect();
    assert!(statuses.contains(&503), "{statuses:?}");
    assert_eq!(estate.far_end().len(), statuses.len());
}

#[test]
fn a_compiler_killed_during_a_catalog_is_a_502_and_the_catalog_is_not_retried() {
    let estate = Estate::start();
    estate.compilers.iter().for_each(StandIn::hold);
    let mut waiting = connection(&estate);
    waiting.send("POST", CATALOG, &[], b"facts").expect("sends");
    let seen = wait_until(LIMIT, || {
        estate
            .compilers
            .iter()
            .position(|c| c.requests().iter().any(|r| r.complete))
    });
    let busy = seen.expect("one of them has it");
    estate.compilers[busy].kill();
    let response = waiting.read_response().expect("an answer");
    assert_refused(
        &response,
        502,
        &[&estate.compilers[busy].address(), "closed the connection"],
    );
    assert!(estate.compilers[1 - busy].requests().is_empty());
    estate.compilers[1 - busy].release();
    assert_eq!(
        connection(&estate)
            .request("POST", CATALOG, &[], b"facts")
            .status,
        200,
        "the next run"
    );
    let record = estate.wait_for_record(|record| record["status"] == 502);
    assert_eq!(record["reason"], "member-closed");
    assert_eq!(record["attempts"], 1);
}

#[test]
fn a_request_not_yet_sent_on_a_closed_connection_is_sent_on_a_new_one() {
    let estate = one_worker(Estate::builder()).compilers(1).start();
    let mut connection = connection(&estate);
    for _ in 0..40 {
        assert_eq!(
            connection.request("POST", CATALOG, &[], b"facts").status,
            200
        );
        // The member closes the idle connection, as Jetty does. The proxy notices this before it sends the next
        // request.
        estate.compilers[0].close_connections();
        let noticed = || estate.compilers[0].connections_open() == 0;
        wait_until(LIMIT, || noticed().then_some(())).expect("it ends");
    }
    assert_eq!(shares(&estate), [40]);
}
