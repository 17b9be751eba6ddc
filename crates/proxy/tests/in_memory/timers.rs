//! Limits on time, at their defaults or at configured values.

use std::time::Duration;

use tokio::time::Instant;

use crate::support::{FILE, InMemoryEstate, REPORT, assert_took, pass, run, settle};

const MINUTES: Duration = Duration::from_secs(600);

#[test]
fn a_connection_without_a_request_is_closed_after_its_idle_timeout() {
    run(async {
        let estate =
            InMemoryEstate::new(|setup| setup.listener.idle_timeout = Duration::from_secs(7));
        let began = Instant::now();
        let mut client = estate.connect();
        assert!(client.is_ended().await);
        assert_took(began, 7);
        assert_eq!(estate.gate.inside(), 0, "its place is free");
    });
}

#[test]
fn the_idle_timeout_counts_from_the_end_of_an_answer_and_not_while_a_member_works() {
    run(async {
        let mut estate =
            InMemoryEstate::new(|setup| setup.listener.idle_timeout = Duration::from_secs(7));
        let (mut client, mut member) = estate.ask_first().await;
        pass(40).await;
        member.answer(200, "late").await;
        assert_eq!(client.response().await.body, "late");
        let answered = Instant::now();
        assert!(client.is_ended().await);
        assert_took(answered, 7);
    });
}

#[test]
fn a_head_that_is_not_complete_in_time_ends_the_connection_and_is_recorded() {
    run(async {
        let estate =
            InMemoryEstate::new(|setup| setup.listener.head_timeout = Duration::from_secs(9));
        let began = Instant::now();
        let mut client = estate.connect();
        client.send("GET / HTTP/1.1\r\n").await;
        assert!(client.is_ended().await);
        assert_took(began, 9);
        assert_eq!(estate.record().await["reason"], "head-timeout");
    });
}

#[test]
fn a_head_that_comes_byte_by_byte_does_not_put_off_its_limit() {
    run(async {
        let estate =
            InMemoryEstate::new(|setup| setup.listener.head_timeout = Duration::from_secs(9));
        let began = Instant::now();
        let mut client = estate.connect();
        client.send("GET / HTTP/1.1\r\nX: ").await;
        while client.try_send("x").await.is_ok() {
            pass(1).await;
        }
        assert!(began.elapsed() >= Duration::from_secs(9));
        assert!(began.elapsed() <= Duration::from_secs(12));
        assert_eq!(estate.record().await["reason"], "head-timeout");
    });
}

#[test]
fn a_silent_member_leads_to_504_after_the_first_byte_timeout() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| {
            setup.upstream.first_byte_timeout = Duration::from_secs(300)
        });
        let (mut client, mut member) = estate.ask_first().await;
        let began = Instant::now();
        assert_eq!(client.response().await.status, 504);
        assert_took(began, 300);
        assert!(member.is_ended().await, "the connection is closed");
        estate.assert_at_rest().await;
        let record = estate.record().await;
        assert_eq!(record["reason"], "first-byte-timeout");
        assert_eq!(record["attempts"], 1, "there is no time left for another");
    });
}

#[test]
fn a_dial_that_hangs_ends_with_503_after_the_connect_timeout() {
    run(async {
        let estate = InMemoryEstate::new(|setup| {
            setup.upstream.connect_timeout = Duration::from_secs(4);
            setup.exchange.attempts_max = 1;
        });
        estate.compilers[0].hang();
        let began = Instant::now();
        let mut client = estate.connect();
        client.get(FILE).await;
        assert_eq!(client.response().await.status, 503);
        assert_took(began, 4);
        estate.assert_at_rest().await;
        assert_eq!(estate.compilers[0].open(), 0);
        assert_eq!(estate.record().await["reason"], "connect-timeout");
    });
}

#[test]
fn a_connection_to_a_member_is_closed_once_it_was_unused_for_its_keepalive() {
    run(async {
        let mut estate =
            InMemoryEstate::new(|setup| setup.upstream.keepalive = Duration::from_secs(12));
        let (mut client, mut member) = estate.ask_first().await;
        member.answer(200, "x").await;
        client.response().await;
        let unused = Instant::now();
        assert!(member.is_ended().await);
        assert_took(unused, 12);
        settle().await;
        assert_eq!(estate.compilers[0].open(), 0);
    });
}

#[test]
fn a_client_that_stops_sending_its_body_gets_408_after_the_idle_timeout() {
    run(async {
        let estate = InMemoryEstate::new(|setup| {
            setup.listener.rate_grace = MINUTES;
            setup.upstream.idle_timeout = Duration::from_secs(20);
        });
        let mut client = estate.connect();
        client.put(REPORT, 10).await;
        client.send("12345").await;
        let began = Instant::now();
        assert_eq!(client.response().await.status, 408);
        assert_took(began, 20);
        assert_eq!(estate.compilers[0].dials(), 0, "no member was asked");
        assert_eq!(estate.record().await["reason"], "body-timeout");
    });
}

#[test]
fn a_client_that_sends_its_body_too_slowly_gets_408_though_it_never_stops() {
    run(async {
        let estate = InMemoryEstate::new(|_| {});
        let mut client = estate.connect();
        client.put(REPORT, 100_000).await;
        let began = Instant::now();
        for _ in 0..40 {
            if client.try_send("x").await.is_err() {
                break;
            }
            pass(1).await;
        }
        assert_eq!(client.response().await.status, 408);
        assert!(began.elapsed() >= Duration::from_secs(30));
        assert_eq!(estate.record().await["reason"], "body-too-slow");
    });
}

#[test]
fn an_answer_whose_member_stops_sending_is_cut_off_after_the_idle_timeout() {
    run(async {
        let mut estate =
            InMemoryEstate::new(|setup| setup.upstream.idle_timeout = Duration::from_secs(20));
        let (mut client, mut member) = estate.ask_first().await;
        member
            .send("HTTP/1.1 200 OK\r\nX-Puppet-Version: 8\r\nContent-Length: 10\r\n\r\n12345")
            .await;
        let began = Instant::now();
        assert!(client.rest().await.ends_with("12345"));
        assert_took(began, 20);
        assert!(member.is_ended().await);
        estate.assert_at_rest().await;
        assert_eq!(estate.record().await["reason"], "body-timeout");
    });
}

#[test]
fn a_client_that_reads_nothing_of_its_answer_is_cut_off_after_the_write_timeout() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| {
            setup.client_buffer = 1 << 10;
            setup.listener.write_timeout = Duration::from_secs(25);
            setup.listener.rate_grace = MINUTES;
        });
        let (mut client, serving) = estate.connect_web01();
        client.get(FILE).await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        member.send_beside(large_answer());
        let began = Instant::now();
        serving.await.expect("no panic");
        assert_took(began, 25);
        estate.assert_at_rest().await;
        assert_eq!(estate.record().await["reason"], "write-timeout");
    });
}

#[test]
fn a_client_that_reads_its_answer_too_slowly_is_cut_off_though_it_never_stops() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| {
            setup.client_buffer = 64;
        });
        let (mut client, serving) = estate.connect_web01();
        client.get(FILE).await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        member.send_beside(large_answer());
        client.head().await;
        let began = Instant::now();
        while !serving.is_finished() {
            client.text(1).await;
            pass(1).await;
            assert!(began.elapsed() < Duration::from_secs(120), "it is cut off");
        }
        assert!(began.elapsed() >= Duration::from_secs(30));
        assert_eq!(estate.record().await["reason"], "read-too-slow");
    });
}

/// A member's response of two megabytes, as the proxy receives it.
fn large_answer() -> String {
    format!(
        "HTTP/1.1 200 OK\r\nX-Puppet-Version: 8\r\nContent-Length: {}\r\n\r\n{}",
        2 << 20,
        "x".repeat(2 << 20)
    )
}

#[test]
fn a_client_that_reads_its_answer_faster_than_the_minimum_rate_gets_all_of_it() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.client_buffer = 4 << 10);
        let (mut client, mut member) = estate.ask_first().await;
        member.send_beside(large_answer());
        client.head().await;
        // Half a megabyte waits in the proxy. At this rate, reading it takes longer than the grace period.
        for _ in 0..1 << 10 {
            client.text(2 << 10).await;
            pass(1).await;
        }
        estate.assert_at_rest().await;
        assert_eq!(estate.record().await["bytes_out"], 2 << 20);
    });
}

#[test]
fn a_client_that_opens_its_window_faster_than_the_minimum_rate_gets_all_of_it() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let (mut requests, _connection) = estate.connect_http2(160 << 10).await;
        let request = http::Request::get(format!("https://puppet{FILE}")).body(());
        let sent = requests.send_request(request.expect("a request"), true);
        let (response, _) = sent.expect("an open stream");
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        member.send_beside(large_answer());
        let mut body = response.await.expect("an answer").into_body();
        let (mut read, mut released) = (0, 0);
        while let Some(data) = body.data().await {
            read += data.expect("the stream goes on").len();
            // The client opens the window every 40 s, which is 2 KiB per second.
            if read - released >= 80 << 10 {
                tokio::time::sleep(Duration::from_secs(40)).await;
                let release = body.flow_control().release_capacity(read - released);
                release.expect("what was received");
                released = read;
            }
        }
        assert_eq!(read, 2 << 20);
    });
}

#[test]
fn a_member_that_stops_reading_a_body_leads_to_504_after_the_idle_timeout() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| {
            setup.member_buffer = 1 << 10;
            setup.upstream.idle_timeout = Duration::from_secs(20);
            setup.exchange.body_buffer_bytes_max = 1 << 10;
        });
        let mut client = estate.connect();
        client.put(REPORT, 2 << 20).await;
        client.send_beside("x".repeat(2 << 20));
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        let began = Instant::now();
        assert_eq!(client.response().await.status, 504);
        assert_took(began, 20);
        estate.assert_at_rest().await;
        assert_eq!(estate.record().await["reason"], "body-timeout");
    });
}
