//! Time limits of an exchange, for the client and for the member.

use std::{
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use testkit::{Reply, ReplyGate};

use crate::support::{
    Estate, LIMIT, assert_refused, assert_unavailable, connection,
    exchanges::one_compiler,
    paths::{CATALOG, FILE, REPORT},
};

/// Runs the test twice, with this setting in `[upstream]`, and in the pool while `[upstream]` has a generous one.
fn with_setting(line: &'static str, generous: &'static str, test: impl Fn(&Estate)) {
    test(&one_compiler().with(&format!("[upstream]\n{line}")).start());
    test(
        &one_compiler()
            .compiler_pool(line)
            .with(&format!("[upstream]\n{generous}"))
            .start(),
    );
}

#[test]
fn a_member_that_does_not_answer_in_time_is_a_504() {
    with_setting(
        "first_byte_timeout = \"150ms\"",
        "first_byte_timeout = \"10m\"",
        |estate| {
            estate.compilers[0].hold();
            let response = connection(estate).request("POST", CATALOG, &[], b"facts");
            estate.compilers[0].release();
            assert_refused(
                &response,
                504,
                &[&estate.compilers[0].address(), "first_byte_timeout"],
            );
            let record = estate.wait_for_record(|record| record["status"] == 504);
            assert_eq!(record["reason"], "first-byte-timeout");
            assert_eq!(record["attempts"], 1);
        },
    );
}

/// Each attempt alone would be in time, but the two together are not.
#[test]
fn all_attempts_share_the_time_to_the_first_byte() {
    let estate = Estate::builder()
        .compiler_pool("first_byte_timeout = \"4s\"\nidle_timeout = \"200ms\"")
        .start();
    let failed = Arc::new(AtomicBool::new(false));
    for compiler in &estate.compilers {
        let failed = Arc::clone(&failed);
        compiler.answer(move |request| {
            (!request.is_probe()).then(|| {
                if failed.swap(true, Ordering::SeqCst) {
                    Reply::ok("second").delay(Duration::from_secs(3))
                } else {
                    Reply::reset().delay(Duration::from_secs(2))
                }
            })
        });
    }
    let answer = connection(&estate).get(FILE);
    assert_refused(&answer, 504, &["first_byte_timeout"]);
    let record = estate.wait_for_record(|record| record["status"] == 504);
    assert_eq!(record["attempts"], 2);
}

#[test]
fn a_member_that_stalls_within_its_response_is_given_up() {
    with_setting(
        "idle_timeout = \"150ms\"",
        "idle_timeout = \"10m\"",
        |estate| {
            let gate = ReplyGate::new();
            let reply = Reply::ok("0123456789").gate_after(4, &gate);
            estate.compilers[0].answer(move |_| Some(reply.clone()));
            let mut connection = connection(estate);
            assert!(
                connection.try_request("GET", FILE, &[], b"").is_err(),
                "never a whole answer"
            );
            gate.release();
            let record = estate.wait_for_record(|record| record["method"] == "GET");
            assert_eq!(record["reason"], "body-timeout", "{record}");
            assert_eq!(record["ended_by"], "member", "{record}");
            assert_eq!(record["bytes_out"], 4);
        },
    );
}

#[test]
fn a_client_that_stalls_within_its_body_is_given_up() {
    with_setting(
        "idle_timeout = \"150ms\"",
        "idle_timeout = \"10m\"",
        |estate| {
            let mut connection = connection(estate);
            let head = connection.head("PUT", REPORT, &[], Some(10));
            connection
                .send_raw(&[head, b"0123".to_vec()].concat())
                .expect("sends");
            let response = connection.read_response().expect("an answer");
            assert_refused(&response, 408, &["sent no data"]);
            assert!(connection.is_closed_within(LIMIT));
            let record = estate.wait_for_record(|record| record["status"] == 408);
            assert_eq!(record["reason"], "body-timeout", "{record}");
            assert_eq!(record["bytes_in"], 4, "{record}");
            estate.wait_for_health("compilers", &estate.compilers[0].address(), "up");
        },
    );
}

#[test]
fn an_enrolment_request_that_never_ends_takes_no_connection_to_the_ca() {
    let estate = Estate::builder().ca_pool("idle_timeout = \"1s\"").start();
    let mut connection = estate.anonymous().connect().expect("connects");
    let target = "/puppet-ca/v1/certificate_request/web01";
    let head = connection.head("PUT", target, &[], Some(100));
    connection
        .send_raw(&[head, b"-----BEGIN".to_vec()].concat())
        .expect("sends");
    let response = connection.read_response().expect("an answer");
    assert_refused(&response, 408, &["sent no data"]);
    assert!(estate.ca_server.requests().is_empty(), "the CA saw it");
    let record = estate.wait_for_record(|record| record["status"] == 408);
    assert_eq!(record["attempts"], 0, "no member was asked: {record}");
}

#[test]
fn a_member_that_reads_nothing_of_a_body_is_given_up() {
    with_setting(
        "idle_timeout = \"1s\"",
        "idle_timeout = \"10m\"",
        |estate| {
            let gate = ReplyGate::new();
            let reply = Reply::ok("late").gate(&gate).close();
            estate.compilers[0]
                .answer_early(move |request| (request.method == "PUT").then(|| reply.clone()));
            let mut connection = connection(estate);
            // More than all buffers between client and member hold.
            let body = vec![b'x'; 32 << 20];
            let head = connection.head("PUT", REPORT, &[], Some(body.len()));
            let _ = connection.send_raw(&[head, body].concat());
            let record = estate.wait_for_record(|record| record["method"] == "PUT");
            gate.release();
            assert_eq!(record["status"], 504, "{record}");
            assert_eq!(record["reason"], "body-timeout", "{record}");
        },
    );
}

#[test]
fn a_member_that_does_not_answer_the_handshake_in_time_is_given_up() {
    // The kernel accepts the connections, and no process handles them.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("bound").to_string();
    for (upstream, pool) in [
        ("connect_timeout = \"100ms\"", ""),
        ("connect_timeout = \"10m\"", "connect_timeout = \"100ms\""),
    ] {
        let tables = format!(
            "[upstream]\n{upstream}\n[pools.slow]\nmembers = [\"{address}\"]\ncheck = {{ type = \"none\" }}\n{pool}\n\
             [[routes]]\nname = \"slow\"\npath = {{ prefix = \"/slow\" }}\npool = \"slow\""
        );
        let estate = one_compiler().with(&tables).start();
        let response = connection(&estate).get("/slow");
        assert_unavailable(&response);
        let record = estate.wait_for_record(|record| record["route"] == "slow");
        assert_eq!(record["reason"], "connect-timeout", "{record}");
        assert_eq!(record["status"], 503, "{record}");
        assert!(
            record["cause"]
                .as_str()
                .is_some_and(|cause| cause.contains(&address) && cause.contains("100ms")),
            "{record}"
        );
    }
}
