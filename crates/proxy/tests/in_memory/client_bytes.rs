//! What is wrong with a client's bytes and not to be seen in the request that hyper makes of them.

use std::future::poll_fn;

use bytes::Bytes;
use http::Request;

use tokio::time::Instant;

use crate::support::{Estate, FILE, REPORT, assert_took, pass, run, settle};

#[test]
fn a_head_that_is_read_in_two_ways_is_refused_and_its_connection_ends() {
    let get = format!("GET {FILE} HTTP/1.1\r\nHost: puppet\r\n\r\n");
    let put = format!("PUT {REPORT} HTTP/1.1\r\nHost: puppet\r\n");
    for (head, status, reason) in [
        (get.replace("puppet\r\n", "puppet\n"), 400, "bad-head"),
        (get.replace("HTTP/1.1\r\n", "HTTP/1.1\n"), 400, "bad-head"),
        (get.replace("\r\n\r\n", "\r\n\n"), 400, "bad-head"),
        (get.replace(" HTTP", "#part HTTP"), 400, "bad-target"),
        (
            get.replace("?environment", "#?environment"),
            400,
            "bad-target",
        ),
        (
            format!("{put}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            400,
            "bad-framing",
        ),
        (
            format!("{put}transfer-encoding:chunked\r\ncontent-length:0\r\n\r\n0\r\n\r\n"),
            400,
            "bad-framing",
        ),
    ] {
        // The second request of a connection, and in two pieces the same.
        for cut in [0, 1, 20, head.len() - 1] {
            run(async {
                let mut estate = Estate::new(|_| {});
                let (mut client, mut member) = estate.ask_first().await;
                member.answer(200, "").await;
                client.response().await;
                client.send(&head[..cut]).await;
                settle().await;
                client.send(&head[cut..]).await;
                let answer = client.response().await;
                assert_eq!(answer.status, status, "{head:?}: {answer:?}");
                assert!(answer.head.contains("connection: close"), "{answer:?}");
                assert!(client.is_ended().await);
                assert_eq!(estate.compilers[0].in_flight(), 0);
                let records = estate.records().await;
                assert_eq!(records.len(), 2);
                assert_eq!(records[1]["reason"], reason, "{head:?}");
            });
        }
    }
}

#[test]
fn a_request_before_one_that_is_refused_is_answered() {
    run(async {
        let mut estate = Estate::new(|_| {});
        let mut client = estate.connect();
        let get = format!("GET {FILE} HTTP/1.1\r\nHost: puppet\r\n\r\n");
        client
            .send(&format!("{get}{}", get.replace("puppet\r\n", "puppet\n")))
            .await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        member.answer(200, "first").await;
        assert_eq!(client.response().await.body, "first");
        assert_eq!(client.response().await.status, 400);
        assert!(client.is_ended().await);
    });
}

#[test]
fn chunks_that_break_the_grammar_end_a_request_before_a_member_has_all_of_it() {
    for chunks in [
        "3 \r\nrep\r\n0\r\n\r\n",
        "3;\r\nrep\r\n0\r\n\r\n",
        "3;a b\r\nrep\r\n0\r\n\r\n",
        "3\r\nrep\r\n0\r\nA: b\n\r\n",
        "3\nrep\r\n0\r\n\r\n",
    ] {
        run(async {
            let estate = Estate::new(|_| {});
            let mut client = estate.connect();
            let head = format!(
                "PUT {REPORT} HTTP/1.1\r\nHost: puppet\r\nTransfer-Encoding: chunked\r\n\r\n"
            );
            client.send(&format!("{head}{chunks}")).await;
            let answer = client.response().await;
            assert_eq!(answer.status, 400, "{chunks:?}");
            assert!(client.is_ended().await);
            assert_eq!(estate.compilers[0].dials(), 0, "{chunks:?}");
            assert_eq!(estate.record().await["reason"], "body-broken");
        });
    }
}

#[test]
fn trace_is_refused_wherever_it_asks() {
    run(async {
        let estate = Estate::new(|_| {});
        for path in [FILE, REPORT, "/", "/elsewhere", "/status/v1/simple"] {
            let mut client = estate.connect();
            client
                .send(&format!("TRACE {path} HTTP/1.1\r\nHost: puppet\r\n\r\n"))
                .await;
            let answer = client.response().await;
            assert_eq!(answer.status, 405, "{path}");
            assert!(answer.head.contains("allow: get"), "{answer:?}");
        }
        assert_eq!(estate.compilers[0].dials(), 0);
    });
}

#[test]
fn a_stream_with_more_data_than_it_says_is_never_complete_for_a_member() {
    run(async {
        let mut estate = Estate::new(|_| {});
        let (mut client, _connection) = estate.connect_http2(1 << 20).await;
        let request = |length: usize| {
            let uri = format!("https://puppet{REPORT}");
            let request = Request::put(uri).header("content-length", length);
            request.body(()).expect("a request")
        };
        // As many as it says, and then another frame.
        let (answer, mut body) = client.send_request(request(6), false).expect("sent");
        body.send_data(Bytes::from("report"), false).expect("sent");
        settle().await;
        assert_eq!(estate.compilers[0].dials(), 0, "the stream has not ended");
        body.send_data(Bytes::from("more"), true).expect("sent");
        assert!(answer.await.is_err(), "the stream is reset");
        settle().await;
        assert_eq!(estate.compilers[0].dials(), 0);
        // An empty frame that ends the stream is no more data.
        let (answer, mut body) = client.send_request(request(6), false).expect("sent");
        body.send_data(Bytes::from("report"), false).expect("sent");
        body.send_data(Bytes::new(), false).expect("sent");
        body.send_data(Bytes::new(), true).expect("sent");
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        assert_eq!(member.text(6).await, "report");
        member.answer(200, "").await;
        assert_eq!(answer.await.expect("an answer").status(), 200);
        poll_fn(|cx| client.poll_ready(cx)).await.expect("it stays");
    });
}

#[test]
fn a_connection_that_has_rested_goes_on_where_it_was() {
    let get = format!("GET {FILE} HTTP/1.1\r\nHost: puppet\r\n\r\n");
    // What comes with the first request's last byte, and what comes after some seconds.
    for (early, late) in [
        ("", get.as_str()),
        ("\r\n", &get),
        (&get[..1], &get[1..]),
        (&get[..30], &get[30..]),
        (&get[..get.len() - 1], "\n"),
    ] {
        run(async {
            let mut estate = Estate::new(|_| {});
            let mut client = estate.connect();
            client.send(&format!("{get}{early}")).await;
            let mut member = estate.compilers[0].accept().await;
            member.request().await;
            member.answer(200, "first").await;
            assert_eq!(client.response().await.body, "first");
            pass(4).await;
            client.send(late).await;
            member.request().await;
            member.answer(200, "second").await;
            assert_eq!(client.response().await.body, "second", "{early:?}");
            // Its requests are counted on: this one is the fourth, and the one with the fault.
            pass(4).await;
            client.send(&get).await;
            member.request().await;
            member.answer(200, "third").await;
            assert_eq!(client.response().await.body, "third");
            client.send(&get.replace("puppet\r\n", "puppet\n")).await;
            assert_eq!(client.response().await.status, 400);
            assert!(client.is_ended().await);
        });
    }
}

#[test]
fn a_connection_that_has_rested_is_closed_in_its_time() {
    run(async {
        let mut estate = Estate::new(|_| {});
        let (mut client, mut member) = estate.ask_first().await;
        member.answer(200, "").await;
        client.response().await;
        let began = Instant::now();
        assert!(client.is_ended().await);
        assert_took(began, 15);
    });
}
