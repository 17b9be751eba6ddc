//! A client that goes away: what is held for it is free at once, whatever was under way.

use crate::support::{Estate, FILE, REPORT, run, settle, trusted};

#[test]
fn a_client_that_leaves_while_a_member_works_frees_the_member_and_is_recorded() {
    run(async {
        let mut estate = Estate::new(|_| {});
        let mut client = estate.connect();
        client.get(FILE).await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        drop(client);
        assert!(member.is_ended().await, "the member is let go");
        estate.assert_at_rest().await;
        assert_eq!(estate.compilers[0].open(), 0);
        assert_eq!(estate.gate.inside(), 0);
        let record = estate.record().await;
        assert_eq!(record["status"], 499);
        assert_eq!(record["ended_by"], "client");
    });
}

#[test]
fn a_client_that_leaves_during_a_dial_leaves_nothing_behind() {
    run(async {
        let estate = Estate::new(|_| {});
        estate.compilers[0].hang();
        let mut client = estate.connect();
        client.get(FILE).await;
        settle().await;
        assert_eq!(estate.compilers[0].open(), 1, "it dials");
        drop(client);
        estate.assert_at_rest().await;
        assert_eq!(estate.compilers[0].open(), 0);
        assert_eq!(estate.record().await["status"], 499);
    });
}

#[test]
fn a_client_that_leaves_the_queue_for_a_connection_is_passed_over() {
    run(async {
        let mut estate = Estate::new(|setup| setup.upstream.connections_max = 1);
        let mut first = estate.connect();
        first.get(FILE).await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        let (mut second, _) = estate.connect_as(Some(&trusted().web02));
        second.get(FILE).await;
        settle().await;
        drop(second);
        settle().await;
        assert_eq!(estate.compilers[0].in_flight(), 1);
        member.answer(200, "first").await;
        assert_eq!(first.response().await.body, "first");
        first.get(FILE).await;
        member.request().await;
        assert_eq!(
            estate.compilers[0].dials(),
            1,
            "no other request took its place"
        );
    });
}

#[test]
fn a_client_that_leaves_in_the_middle_of_its_answer_frees_the_member() {
    run(async {
        let mut estate = Estate::new(|_| {});
        let mut client = estate.connect();
        client.get(FILE).await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        member
            .send("HTTP/1.1 200 OK\r\nX-Puppet-Version: 8\r\nContent-Length: 9\r\n\r\n1")
            .await;
        client.head().await;
        drop(client);
        settle().await;
        let _ = member.try_send("2").await;
        assert!(member.is_ended().await);
        estate.assert_at_rest().await;
        let record = estate.record().await;
        assert_eq!(record["ended_by"], "client");
        assert_eq!(record["reason"], "client-gone");
    });
}

#[test]
fn a_client_that_leaves_before_its_body_is_complete_never_reaches_a_member() {
    run(async {
        let estate = Estate::new(|_| {});
        let mut client = estate.connect();
        client.put(REPORT, 10).await;
        client.send("12345").await;
        settle().await;
        drop(client);
        settle().await;
        assert_eq!(estate.compilers[0].dials(), 0);
        let record = estate.record().await;
        assert_eq!(record["ended_by"], "client");
        assert_eq!(record["attempts"], 0);
    });
}

#[test]
fn a_member_never_sees_the_end_of_a_streamed_body_whose_client_has_left() {
    run(async {
        let mut estate = Estate::new(|setup| setup.exchange.body_buffer_bytes_max = 4);
        let mut client = estate.connect();
        client.put(REPORT, 100).await;
        client.send(&"x".repeat(50)).await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        member.text(50).await;
        drop(client);
        assert!(member.is_ended().await);
        estate.assert_at_rest().await;
        assert_eq!(estate.record().await["ended_by"], "client");
    });
}
