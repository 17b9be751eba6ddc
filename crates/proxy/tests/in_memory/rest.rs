//! Connections that have released their HTTP buffers: no request and no response may be lost.

use std::{sync::Arc, time::Duration};

use proxy::LifecyclePhase;
use tokio::time::{Instant, sleep};

use crate::support::{FILE, InMemoryEstate, REPORT, Wire, assert_took, pass, run, trusted};

#[test]
fn a_connection_continues_after_a_rest() {
    let get = format!("GET {FILE} HTTP/1.1\r\nHost: puppet\r\n\r\n");
    // The bytes that arrive together with the first request, and the bytes that arrive some seconds later.
    for (early, late) in [
        ("", get.as_str()),
        ("\r\n", &get),
        (&get[..1], &get[1..]),
        (&get[..30], &get[30..]),
        (&get[..get.len() - 1], "\n"),
    ] {
        run(async {
            let mut estate = InMemoryEstate::new(|_| {});
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
            // Requests are counted across rests. This is the fourth request, and the one with the fault.
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
fn a_connection_that_has_rested_is_closed_after_its_idle_timeout() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let (mut client, mut member) = estate.ask_first().await;
        member.answer(200, "").await;
        client.response().await;
        let began = Instant::now();
        assert!(client.is_ended().await);
        assert_took(began, 15);
    });
}

async fn exchange(client: &mut Wire, member: &mut Wire, text: &str) {
    client.get(FILE).await;
    answered(client, member, text).await;
}

async fn answered(client: &mut Wire, member: &mut Wire, text: &str) {
    member.request().await;
    member.answer(200, text).await;
    assert_eq!(client.response().await.body, text);
}

#[test]
fn a_request_that_comes_in_the_instant_of_a_rest_is_answered() {
    // The request arrives at a time from just before the rest to just after it, in steps of half a millisecond.
    for half in 1990..2012 {
        run(async {
            let mut estate = InMemoryEstate::new(|_| {});
            let (mut client, mut member) = estate.ask_first().await;
            member.answer(200, "first").await;
            client.response().await;
            sleep(Duration::from_micros(half * 500)).await;
            exchange(&mut client, &mut member, "second").await;
            // Two requests at once, in two pieces that divide the first request.
            sleep(Duration::from_micros(half * 500)).await;
            let get = format!("GET {FILE} HTTP/1.1\r\nHost: puppet\r\n\r\n");
            client.send(&get[..9]).await;
            client.send(&format!("{}{get}", &get[9..])).await;
            answered(&mut client, &mut member, "third").await;
            answered(&mut client, &mut member, "fourth").await;
        });
    }
}

#[test]
fn an_answer_that_its_client_takes_late_is_whole_and_the_connection_goes_on() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.client_buffer = 64);
        let (mut client, mut member) = estate.ask_first().await;
        let text = "0123456789".repeat(40);
        member.answer(200, &text).await;
        // The connection keeps its buffers while bytes still have to be written.
        pass(5).await;
        assert_eq!(client.response().await.body, text);
        pass(3).await;
        exchange(&mut client, &mut member, "second").await;
    });
}

#[test]
fn a_connection_rests_many_times_and_counts_its_requests() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let (mut client, mut member) = estate.ask_first().await;
        member.answer(200, "first").await;
        client.response().await;
        for _ in 0..50 {
            pass(2).await;
            exchange(&mut client, &mut member, "again").await;
        }
        pass(2).await;
        let bad = format!("GET {FILE}#a HTTP/1.1\r\nHost: puppet\r\n\r\n");
        client.send(&bad).await;
        assert_eq!(client.response().await.status, 400);
        assert!(client.is_ended().await);
    });
}

#[test]
fn a_body_that_is_still_to_come_keeps_a_connection_from_resting() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let mut client = estate.connect();
        // The request is answered before its body has arrived.
        client.put("/elsewhere", 5).await;
        assert_eq!(client.response().await.status, 404);
        pass(2).await;
        let get = format!("GET {FILE} HTTP/1.1\r\nHost: puppet\r\n\r\n");
        client.send(&format!("GET /{get}")).await;
        let mut member = estate.compilers[0].accept().await;
        answered(&mut client, &mut member, "second").await;
    });
}

#[test]
fn the_head_and_idle_timeouts_apply_after_a_rest() {
    for (bytes, limit) in [("G", 30), ("\r\n", 30), ("", 15 - 3)] {
        run(async {
            let mut estate = InMemoryEstate::new(|setup| {
                setup.listener.head_timeout = Duration::from_secs(30);
                setup.listener.idle_timeout = Duration::from_secs(15);
            });
            let (mut client, mut member) = estate.ask_first().await;
            member.answer(200, "").await;
            client.response().await;
            pass(3).await;
            client.send(bytes).await;
            let began = Instant::now();
            client.rest().await;
            assert_took(began, limit);
        });
    }
}

#[test]
fn a_drain_ends_a_connection_that_rests_or_answers_its_last_request() {
    for asks in [false, true] {
        run(async {
            let mut estate = InMemoryEstate::new(|_| {});
            let (mut client, mut member) = estate.ask_first().await;
            member.answer(200, "").await;
            client.response().await;
            pass(3).await;
            estate.enter(LifecyclePhase::Draining);
            if !asks {
                let began = Instant::now();
                assert!(client.is_ended().await);
                assert_took(began, 2);
                return;
            }
            pass(1).await;
            client.get(FILE).await;
            member.request().await;
            member.answer(200, "last").await;
            let answer = client.response().await;
            assert!(answer.head.contains("connection: close"), "{answer:?}");
            assert_eq!(answer.body, "last");
            assert!(client.is_ended().await);
        });
    }
}

#[test]
fn a_client_that_is_revoked_while_its_connection_rests_is_closed_at_once() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let (mut client, _) = estate.connect_as(Some(&trusted().web02));
        client.get(FILE).await;
        let mut member = estate.compilers[0].accept().await;
        answered(&mut client, &mut member, "first").await;
        pass(3).await;
        let began = Instant::now();
        estate.apply(|generation| generation.trust = Arc::clone(&trusted().without_web02));
        assert!(client.is_ended().await);
        assert_took(began, 0);
    });
}

#[test]
fn a_resting_connection_ends_when_its_client_closes_it() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let (mut client, serving) = estate.connect_web01();
        client.get(FILE).await;
        let mut member = estate.compilers[0].accept().await;
        answered(&mut client, &mut member, "first").await;
        pass(3).await;
        drop(client);
        let began = Instant::now();
        serving.await.expect("it ends");
        assert_took(began, 0);
        assert_eq!(estate.gate.inside(), 0);
    });
}

#[test]
fn a_body_is_read_after_a_rest() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let (mut client, mut member) = estate.ask_first().await;
        member.answer(200, "").await;
        client.response().await;
        for round in 0..2 {
            pass(3).await;
            client.put(REPORT, 6).await;
            pass(2).await;
            client.send("report").await;
            let head = member.request().await;
            assert!(head.starts_with("put"), "{round}: {head}");
            assert_eq!(member.text(6).await, "report");
            member.answer(200, "").await;
            assert_eq!(client.response().await.status, 200);
        }
    });
}

#[test]
fn every_connection_continues_when_more_are_idle_than_may_hold_buffers() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let mut clients: Vec<_> = (0..600).map(|_| estate.connect()).collect();
        clients[0].get(FILE).await;
        let mut member = estate.compilers[0].accept().await;
        answered(&mut clients[0], &mut member, "first").await;
        for round in 0..3 {
            for (number, client) in clients.iter_mut().enumerate() {
                exchange(client, &mut member, &format!("{round} {number}")).await;
                // Time passes, because a connection that was busy a moment ago keeps its buffers: its agent may be in the
                // middle of a run.
                sleep(Duration::from_millis(1)).await;
            }
            assert!(estate.worker.warm_connections() <= 256);
        }
    });
}
