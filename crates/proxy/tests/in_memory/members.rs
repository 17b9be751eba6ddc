//! Connections to members: their reuse, their limits and their number.

use std::{sync::Arc, time::Duration};

use rustls_pki_types::UnixTime;
use tokio::time::Instant;

use crate::support::{FILE, InMemoryEstate, Wire, assert_took, pass, run, settle, trusted};

async fn exchange(client: &mut Wire, member: &mut Wire) {
    client.get(FILE).await;
    member.request().await;
    member.answer(200, "x").await;
    assert_eq!(client.response().await.status, 200);
}

#[test]
fn requests_of_all_clients_reuse_an_idle_connection() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let (mut client, mut member) = estate.ask_first().await;
        member.answer(200, "x").await;
        client.response().await;
        exchange(&mut client, &mut member).await;
        let (mut other, _) = estate.connect_as(Some(&trusted().web02));
        exchange(&mut other, &mut member).await;
        assert_eq!(estate.compilers[0].dials(), 1);
        assert_eq!(estate.compilers[0].open(), 1);
    });
}

#[test]
fn a_request_on_a_reused_connection_carries_the_identity_of_its_own_client() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let mut client = estate.connect();
        client.get(FILE).await;
        let mut member = estate.compilers[0].accept().await;
        assert!(member.request().await.contains("x-client-dn: cn=web01"));
        member.answer(200, "x").await;
        client.response().await;
        let (mut other, _) = estate.connect_as(Some(&trusted().web02));
        other.get(FILE).await;
        let request = member.request().await;
        assert!(request.contains("x-client-dn: cn=web02"), "{request}");
        assert!(!request.contains("web01"), "{request}");
    });
}

#[test]
fn a_request_of_an_open_connection_keeps_the_ca_of_its_client_in_use() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let mut client = estate.connect();
        let seen = || trusted().unused.cas_seen(UnixTime::now());
        estate.apply(|generation| generation.trust = Arc::clone(&trusted().unused));
        assert_eq!(seen(), "");
        client.get(FILE).await;
        estate.compilers[0].accept().await.request().await;
        assert_ne!(seen(), "");
    });
}

#[test]
fn a_connection_that_its_member_has_closed_is_not_used_again() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let (mut client, mut member) = estate.ask_first().await;
        member.answer(200, "x").await;
        client.response().await;
        drop(member);
        settle().await;
        client.put(crate::support::REPORT, 1).await;
        client.send("r").await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        member.answer(200, "again").await;
        assert_eq!(client.response().await.body, "again");
        assert_eq!(estate.records().await.len(), 2);
    });
}

#[test]
fn a_connection_on_which_a_member_says_close_is_not_used_again() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let (mut client, mut member) = estate.ask_first().await;
        member
            .send("HTTP/1.1 200 OK\r\nX-Puppet-Version: 8\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx")
            .await;
        let answer = client.response().await;
        assert!(!answer.head.contains("close"), "{}", answer.head);
        assert!(member.is_ended().await);
        client.get(FILE).await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        member.answer(200, "y").await;
        assert_eq!(client.response().await.body, "y");
        assert_eq!(estate.compilers[0].dials(), 2);
    });
}

#[test]
fn bytes_that_a_member_sends_after_its_response_reach_no_client() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let (mut client, mut member) = estate.ask_first().await;
        member
            .send("HTTP/1.1 200 OK\r\nX-Puppet-Version: 8\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
            .await;
        assert_eq!(client.response().await.body, "x");
        settle().await;
        client.get(FILE).await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        member.answer(200, "mine").await;
        assert_eq!(client.response().await.body, "mine");
    });
}

#[test]
fn a_member_at_its_limit_of_connections_makes_a_request_wait_until_one_is_free() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.upstream.connections_max = 1);
        let (mut first, mut member) = estate.ask_first().await;
        let (mut second, _) = estate.connect_as(Some(&trusted().web02));
        second.get(FILE).await;
        pass(3).await;
        assert_eq!(estate.compilers[0].open(), 1, "it waits");
        member.answer(200, "first").await;
        assert_eq!(first.response().await.body, "first");
        member.request().await;
        assert_eq!(estate.compilers[0].dials(), 1, "on the same connection");
        member.answer(200, "second").await;
        assert_eq!(second.response().await.body, "second");
        estate.assert_at_rest().await;
    });
}

#[test]
fn a_request_waits_while_the_member_is_at_its_limit_of_requests() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.in_flight_max = Some(1));
        let (mut first, mut member) = estate.ask_first().await;
        let (mut second, _) = estate.connect_as(Some(&trusted().web02));
        second.get(FILE).await;
        settle().await;
        assert_eq!(estate.compilers[0].in_flight(), 1);
        assert_eq!(estate.compilers[0].dials(), 1);
        member.answer(200, "first").await;
        assert_eq!(first.response().await.body, "first");
        member.request().await;
        member.answer(200, "second").await;
        assert_eq!(second.response().await.body, "second");
        estate.assert_at_rest().await;
    });
}

#[test]
fn a_request_beyond_the_queue_gets_503_at_once() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| {
            setup.in_flight_max = Some(1);
            setup.upstream.queue_max = 1;
        });
        let (mut first, mut member) = estate.ask_first().await;
        let (mut second, _) = estate.connect_as(Some(&trusted().web02));
        second.get(FILE).await;
        settle().await;
        let began = Instant::now();
        let (mut third, _) = estate.connect_as(None);
        third.get(FILE).await;
        let refused = third.response().await;
        assert_took(began, 0);
        assert_eq!(
            refused.status, 403,
            "a client without a certificate has no place to take"
        );
        let (mut third, _) = estate.connect_as(Some(&trusted().web02));
        third.get(FILE).await;
        assert_eq!(third.response().await.status, 503);
        assert_took(began, 0);
        member.answer(200, "first").await;
        assert_eq!(first.response().await.body, "first");
        member.request().await;
        member.answer(200, "second").await;
        assert_eq!(second.response().await.body, "second");
        estate.assert_at_rest().await;
        let records = estate.records().await;
        assert!(
            records
                .iter()
                .any(|record| record["reason"] == "queue-full")
        );
    });
}

#[test]
fn a_request_that_has_waited_as_long_as_it_may_gets_503() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| {
            setup.in_flight_max = Some(1);
            setup.upstream.queue_wait_max = Duration::from_secs(20);
        });
        let (mut first, mut member) = estate.ask_first().await;
        let began = Instant::now();
        let (mut second, _) = estate.connect_as(Some(&trusted().web02));
        second.get(FILE).await;
        assert_eq!(second.response().await.status, 503);
        assert_took(began, 20);
        member.answer(200, "first").await;
        assert_eq!(first.response().await.body, "first");
        estate.assert_at_rest().await;
        let records = estate.records().await;
        assert_eq!(records[0]["reason"], "queue-timeout");
    });
}

#[test]
fn a_client_that_leaves_the_queue_is_passed_over() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.in_flight_max = Some(1));
        let (mut first, mut member) = estate.ask_first().await;
        let (mut second, _) = estate.connect_as(Some(&trusted().web02));
        second.get(FILE).await;
        settle().await;
        let (mut third, _) = estate.connect_as(Some(&trusted().web02));
        third.get(FILE).await;
        settle().await;
        drop(second);
        settle().await;
        member.answer(200, "first").await;
        assert_eq!(first.response().await.body, "first");
        member.request().await;
        member.answer(200, "third").await;
        assert_eq!(third.response().await.body, "third");
        estate.assert_at_rest().await;
    });
}

#[test]
fn a_member_is_in_flight_until_the_last_byte_of_its_answer_has_gone() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let (mut client, mut member) = estate.ask_first().await;
        member
            .send("HTTP/1.1 200 OK\r\nX-Puppet-Version: 8\r\nContent-Length: 2\r\n\r\n1")
            .await;
        client.head().await;
        settle().await;
        assert_eq!(estate.compilers[0].in_flight(), 1);
        member.send("2").await;
        assert_eq!(client.text(2).await, "12");
        estate.assert_at_rest().await;
    });
}

#[test]
fn requests_at_once_take_turns_among_the_members_of_a_pool() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.compilers = 3);
        let mut clients: Vec<_> = (0..3).map(|_| estate.connect()).collect();
        for client in &mut clients {
            client.get(FILE).await;
        }
        for member in &mut estate.compilers {
            member.accept().await.request().await;
            assert_eq!(member.dials(), 1);
        }
    });
}
