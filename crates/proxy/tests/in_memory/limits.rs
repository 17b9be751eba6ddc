//! Limits on sizes and numbers, for clients and for members.

use std::time::Duration;

use crate::support::{
    ENROLMENT, FILE, InMemoryEstate, REPORT, assert_took, field, pass, run, settle, trusted,
};

#[test]
fn a_head_larger_than_its_limit_gets_431_and_is_recorded() {
    run(async {
        let estate = InMemoryEstate::new(|setup| setup.listener.head_bytes_max = 8 << 10);
        let mut client = estate.connect();
        let filler = "x".repeat(10 << 10);
        client
            .send(&format!(
                "GET {FILE} HTTP/1.1\r\nHost: puppet\r\nX: {filler}\r\n\r\n"
            ))
            .await;
        assert_eq!(client.response().await.status, 431);
        assert!(client.is_ended().await);
        assert_eq!(estate.record().await["reason"], "head-too-large");
    });
}

#[test]
fn bytes_that_are_not_http_get_400_and_are_recorded() {
    run(async {
        let estate = InMemoryEstate::new(|_| {});
        let mut client = estate.connect();
        client.send("\u{1}\u{2}nonsense\r\n\r\n").await;
        assert_eq!(client.response().await.status, 400);
        assert!(client.is_ended().await);
        assert_eq!(estate.record().await["reason"], "bad-head");
    });
}

#[test]
fn a_body_whose_content_length_is_too_large_gets_413_and_reaches_no_member() {
    run(async {
        let estate = InMemoryEstate::new(|_| {});
        let (mut client, _) = estate.connect_as(None);
        client
            .put("/puppet-ca/v1/certificate_request/new", 17 << 10)
            .await;
        assert_eq!(client.response().await.status, 413);
        assert_eq!(estate.ca.dials(), 0);
        assert_eq!(estate.record().await["reason"], "body-too-large");
    });
}

#[test]
fn a_chunked_body_that_grows_too_large_gets_413_and_reaches_no_member() {
    run(async {
        let estate = InMemoryEstate::new(|_| {});
        let (mut client, _) = estate.connect_as(None);
        client
            .send("PUT /puppet-ca/v1/certificate_request/new HTTP/1.1\r\nHost: puppet\r\nTransfer-Encoding: chunked\r\n\r\n")
            .await;
        let chunk = format!("1000\r\n{}\r\n", "x".repeat(0x1000));
        for _ in 0..5 {
            let _ = client.try_send(&chunk).await;
        }
        assert_eq!(client.response().await.status, 413);
        assert_eq!(estate.ca.dials(), 0);
    });
}

#[test]
fn a_client_beyond_its_share_of_connections_waits_and_other_clients_do_not() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.upstream.connections_max = 4);
        let (mut first, mut member) = estate.ask_first().await;
        let mut second = estate.connect();
        second.get(FILE).await;
        pass(60).await;
        assert_eq!(estate.compilers[0].dials(), 1, "one of four is its share");
        let (mut other, _) = estate.connect_as(Some(&trusted().web02));
        other.get(FILE).await;
        let mut others = estate.compilers[0].accept().await;
        others.request().await;
        member.answer(200, "first").await;
        assert_eq!(first.response().await.body, "first");
        member.request().await;
        member.answer(200, "second").await;
        assert_eq!(second.response().await.body, "second");
    });
}

#[test]
fn a_client_that_waits_for_its_own_share_too_long_gets_503() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| {
            setup.upstream.connections_max = 4;
            setup.upstream.first_byte_timeout = Duration::from_secs(30);
        });
        let (mut first, mut member) = estate.ask_first().await;
        member
            .send("HTTP/1.1 200 OK\r\nX-Puppet-Version: 8\r\nContent-Length: 9\r\n\r\n1")
            .await;
        first.head().await;
        let began = tokio::time::Instant::now();
        let mut second = estate.connect();
        second.get(FILE).await;
        assert_eq!(second.response().await.status, 503);
        assert_took(began, 30);
        let records = estate.records().await;
        assert_eq!(records[0]["reason"], "client-share");
    });
}

#[test]
fn the_wait_for_the_share_counts_towards_the_first_byte_timeout_of_a_streamed_body() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| {
            setup.upstream.connections_max = 4;
            setup.upstream.first_byte_timeout = Duration::from_secs(30);
            setup.exchange.body_buffer_bytes_max = 1 << 10;
        });
        let (mut first, mut member) = estate.ask_first().await;
        let began = tokio::time::Instant::now();
        let mut second = estate.connect();
        second.put(REPORT, 600_000).await;
        second.send_beside("x".repeat(600_000));
        pass(20).await;
        member.answer(200, "first").await;
        first.response().await;
        member.request().await;
        member.text(600_000).await;
        assert_eq!(second.response().await.status, 504);
        assert_took(began, 30);
    });
}

#[test]
fn requests_beyond_a_clients_share_take_a_part_of_the_queue_and_no_more() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| {
            setup.upstream.connections_max = 4;
            setup.upstream.queue_max = 8;
        });
        let (mut first, mut member) = estate.ask_first().await;
        let mut second = estate.connect();
        second.get(FILE).await;
        settle().await;
        let began = tokio::time::Instant::now();
        let mut third = estate.connect();
        third.get(FILE).await;
        assert_eq!(third.response().await.status, 503, "an eighth waits");
        assert_took(began, 0);
        member.answer(200, "first").await;
        assert_eq!(first.response().await.body, "first");
        member.request().await;
        member.answer(200, "second").await;
        assert_eq!(second.response().await.body, "second");
    });
}

#[test]
fn the_share_of_a_client_that_leaves_is_free_at_once() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.upstream.connections_max = 4);
        let (first, _member) = estate.ask_first().await;
        drop(first);
        settle().await;
        let (mut second, mut member) = estate.ask_first().await;
        member.answer(200, "second").await;
        assert_eq!(second.response().await.body, "second");
    });
}

#[test]
fn clients_without_a_certificate_hold_no_more_of_the_ca_than_their_limit() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.ca.anonymous_in_flight_max = 1);
        let (mut first, _) = estate.connect_as(None);
        first.get(ENROLMENT).await;
        let mut ca = estate.ca.accept().await;
        ca.request().await;
        let (mut second, _) = estate.connect_as(None);
        second.get(ENROLMENT).await;
        assert_eq!(second.response().await.status, 503);
        ca.answer(200, "ca").await;
        assert_eq!(first.response().await.body, "ca");
        second.get(ENROLMENT).await;
        ca.request().await;
        ca.answer(200, "ca").await;
        assert_eq!(second.response().await.status, 200);
    });
}

#[test]
fn interim_answers_without_end_become_502() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let mut client = estate.connect();
        client.put(REPORT, 1).await;
        client.send("r").await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        member.send_beside("HTTP/1.1 102 Processing\r\n\r\n".repeat(100_000));
        assert_eq!(client.response().await.status, 502);
        estate.assert_at_rest().await;
        assert_eq!(estate.record().await["reason"], "member-malformed");
    });
}

#[test]
fn an_answer_whose_head_is_too_large_becomes_502() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let mut client = estate.connect();
        client.put(REPORT, 1).await;
        client.send("r").await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        member.text(1).await;
        member.send_beside(format!(
            "HTTP/1.1 200 OK\r\nX: {}\r\n\r\n",
            "x".repeat(2 << 20)
        ));
        assert_eq!(client.response().await.status, 502);
        assert!(member.is_ended().await);
        estate.assert_at_rest().await;
    });
}

#[test]
fn a_body_is_streamed_when_the_memory_for_buffers_is_used_up() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.exchange.body_buffers_bytes_max = 0);
        let mut client = estate.connect();
        client.put(REPORT, 6).await;
        client.send("rep").await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        assert_eq!(member.text(3).await, "rep");
        client.send("ort").await;
        assert_eq!(member.text(3).await, "ort");
        member.answer(200, "stored").await;
        assert_eq!(client.response().await.body, "stored");
    });
}

#[test]
fn a_body_that_arrives_at_once_is_charged_too() {
    run(async {
        // One client may use an eighth of this limit.
        let mut estate =
            InMemoryEstate::new(|setup| setup.exchange.body_buffers_bytes_max = 64 << 10);
        let mut client = estate.connect();
        let chunk = format!("1000\r\n{}\r\n", "x".repeat(0x1000));
        client
            .send(&format!(
                "PUT {REPORT} HTTP/1.1\r\nHost: puppet\r\nTransfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n",
                chunk.repeat(10)
            ))
            .await;
        let mut member = estate.compilers[0].accept().await;
        let head = member.request().await;
        assert_eq!(field(&head, "transfer-encoding"), Some("chunked"), "{head}");
    });
}

#[test]
fn a_client_that_sends_requests_ahead_is_read_no_further_than_a_buffer() {
    for answered in [false, true] {
        run(async {
            let mut estate = InMemoryEstate::new(|setup| setup.client_buffer = 1 << 10);
            let (mut client, mut member) = estate.ask_first().await;
            if answered {
                // The response has begun, and its last byte has not arrived.
                member
                    .send("HTTP/1.1 200 OK\r\nX-Puppet-Version: 8\r\nContent-Length: 9\r\n\r\n1")
                    .await;
                client.head().await;
            }
            let ahead = "GET /status/v1/simple HTTP/1.1\r\nHost: puppet\r\n\r\n".repeat(200);
            let mut pieces = 0;
            while pieces < 1 << 10 {
                let sent = tokio::time::timeout(Duration::from_secs(1), client.try_send(&ahead));
                if sent.await.is_err() {
                    break;
                }
                pieces += 1;
            }
            assert!(pieces * ahead.len() <= 512 << 10, "{pieces} pieces");
        });
    }
}
