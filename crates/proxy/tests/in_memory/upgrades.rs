//! Requests that switch protocols, and the tunnels that follow.

use std::{sync::Arc, time::Duration};

use proxy::LifecyclePhase;
use routing::settings::{PathPattern, RouteSettings};
use tokio::time::Instant;

use crate::support::{FILE, InMemoryEstate, Setup, Wire, assert_took, pass, run, settle, trusted};

/// Routes `/ws` to the compilers and allows it to become a web socket.
pub(crate) fn with_route(setup: &mut Setup) {
    setup.routes.routes.push(RouteSettings {
        name: "ws".to_owned(),
        path: Some(PathPattern::Prefix("/ws".to_owned())),
        pool: "compilers".to_owned(),
        unguarded: true,
        upgrade: vec!["websocket".to_owned()],
        ..RouteSettings::default()
    });
}

async fn ask(client: &mut Wire) {
    client
        .send(
            "GET /ws HTTP/1.1\r\nHost: puppet\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        )
        .await;
}

async fn switch(member: &mut Wire) -> String {
    let request = member.request().await;
    member
        .send(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        )
        .await;
    request
}

/// Opens a tunnel. Returns the client's side and the member's.
async fn tunnel(estate: &mut InMemoryEstate) -> (Wire, Wire) {
    let (mut client, _) = estate.connect_as(Some(&trusted().web02));
    ask(&mut client).await;
    let mut member = estate.compilers[0].accept().await;
    switch(&mut member).await;
    assert_eq!(client.response().await.status, 101);
    (client, member)
}

#[test]
fn a_tunnel_carries_bytes_both_ways_and_its_end_is_recorded() {
    run(async {
        let mut estate = InMemoryEstate::new(with_route);
        let (mut client, mut member) = tunnel(&mut estate).await;
        client.send("ping").await;
        assert_eq!(member.text(4).await, "ping");
        member.send("pong!").await;
        assert_eq!(client.text(5).await, "pong!");
        assert_eq!(estate.compilers[0].in_flight(), 1);
        drop(client);
        assert!(member.is_ended().await);
        drop(member);
        estate.assert_at_rest().await;
        assert_eq!((estate.compilers[0].open(), estate.gate.inside()), (0, 0));
        let record = estate.record().await;
        assert_eq!(record["status"], 101);
        assert_eq!(
            (&record["bytes_in"], &record["bytes_out"]),
            (&4.into(), &5.into())
        );
        assert_eq!(record["ended_by"], "client");
    });
}

#[test]
fn bytes_behind_the_head_of_an_upgrade_are_the_tunnels_whatever_they_look_like() {
    // Half a request, a request with a fault, and more bytes than a head may have. They arrive together with the head, on a new
    // connection or after a rest.
    let long = "x".repeat(100 << 10);
    for early in ["GET / HT", "GET /# HTTP/1.1\nA\n\n", "\r\n\n", &long] {
        for rests in [false, true] {
            run(async {
                let mut estate = InMemoryEstate::new(|setup| {
                    with_route(setup);
                    setup.client_buffer = 256 << 10;
                    setup.member_buffer = 256 << 10;
                });
                let mut client = estate.connect();
                if rests {
                    client.get(FILE).await;
                    let mut member = estate.compilers[0].accept().await;
                    member.request().await;
                    member.answer(200, "").await;
                    client.response().await;
                    pass(3).await;
                }
                let ask = "GET /ws HTTP/1.1\r\nHost: puppet\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
                client.send(&format!("{ask}{early}")).await;
                let mut member = estate.compilers[0].accept().await;
                switch(&mut member).await;
                assert_eq!(client.response().await.status, 101);
                client.send("late").await;
                let whole = format!("{early}late");
                assert_eq!(member.text(whole.len()).await, whole);
            });
        }
    }
}

#[test]
fn a_silent_tunnel_is_closed_after_its_own_idle_timeout() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| {
            with_route(setup);
            setup.upstream.tunnel_idle_timeout = Duration::from_secs(100);
        });
        let (mut client, mut member) = tunnel(&mut estate).await;
        pass(90).await;
        client.send("x").await;
        member.text(1).await;
        let began = Instant::now();
        assert!(client.is_ended().await);
        assert_took(began, 100);
        assert!(member.is_ended().await);
        drop((client, member));
        pass(2).await;
        estate.assert_at_rest().await;
        assert_eq!(estate.record().await["reason"], "tunnel-idle-timeout");
    });
}

#[test]
fn the_end_of_the_grace_period_cuts_a_tunnel_and_a_drain_does_not() {
    run(async {
        let mut estate = InMemoryEstate::new(with_route);
        let (mut client, mut member) = tunnel(&mut estate).await;
        estate.enter(LifecyclePhase::Draining);
        pass(30).await;
        client.send("still").await;
        assert_eq!(member.text(5).await, "still");
        estate.enter(LifecyclePhase::Cutting);
        assert!(client.is_ended().await && member.is_ended().await);
        estate.assert_at_rest().await;
        assert_eq!(estate.record().await["reason"], "drain-grace");
    });
}

#[test]
fn a_tunnel_of_a_client_that_is_revoked_is_cut_within_a_second() {
    run(async {
        let mut estate = InMemoryEstate::new(with_route);
        let (mut client, mut member) = tunnel(&mut estate).await;
        let began = Instant::now();
        estate.apply(|generation| generation.trust = Arc::clone(&trusted().without_web02));
        assert!(client.is_ended().await && member.is_ended().await);
        assert_took(began, 0);
        estate.assert_at_rest().await;
        assert_eq!(estate.record().await["reason"], "refused-certificate");
    });
}

#[test]
fn a_tunnel_that_its_member_closes_is_recorded_as_ended_by_the_member() {
    run(async {
        let mut estate = InMemoryEstate::new(with_route);
        let (mut client, mut member) = tunnel(&mut estate).await;
        member.send("bye").await;
        drop(member);
        assert_eq!(client.rest().await, "bye");
        drop(client);
        estate.assert_at_rest().await;
        assert_eq!(estate.record().await["ended_by"], "member");
    });
}

#[test]
fn bytes_that_a_member_sends_right_behind_its_101_reach_the_client() {
    run(async {
        let mut estate = InMemoryEstate::new(with_route);
        let mut client = estate.connect();
        ask(&mut client).await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        member
            .send("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nearly")
            .await;
        assert_eq!(client.response().await.status, 101);
        assert_eq!(client.text(5).await, "early");
    });
}

#[test]
fn a_member_that_does_not_switch_answers_as_on_any_request() {
    run(async {
        let mut estate = InMemoryEstate::new(with_route);
        let mut client = estate.connect();
        ask(&mut client).await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        member.answer(404, "no socket").await;
        let answer = client.response().await;
        assert_eq!((answer.status, &*answer.body), (404, "no socket"));
        estate.assert_at_rest().await;
    });
}

#[test]
fn an_upgrade_that_no_route_allows_is_not_sent_to_a_member() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| {
            with_route(setup);
            setup.routes.routes[0].upgrade.clear();
        });
        let mut client = estate.connect();
        ask(&mut client).await;
        let mut member = estate.compilers[0].accept().await;
        let request = member.request().await;
        assert!(!request.contains("upgrade"), "{request}");
        member.answer(200, "plain").await;
        assert_eq!(client.response().await.body, "plain");
    });
}

#[test]
fn a_101_that_was_not_requested_becomes_502() {
    run(async {
        let mut estate = InMemoryEstate::new(with_route);
        let mut client = estate.connect();
        client.get("/ws").await;
        let mut member = estate.compilers[0].accept().await;
        switch(&mut member).await;
        assert_eq!(client.response().await.status, 502);
        assert!(member.is_ended().await);
        estate.assert_at_rest().await;
        assert_eq!(estate.record().await["reason"], "unsolicited-upgrade");
    });
}

#[test]
fn a_request_for_an_upgrade_is_sent_once_though_its_member_breaks_off() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| {
            with_route(setup);
            setup.compilers = 2;
        });
        let mut client = estate.connect();
        ask(&mut client).await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        drop(member);
        assert_eq!(client.response().await.status, 502);
        settle().await;
        assert_eq!(estate.compilers[1].dials(), 0);
    });
}

#[test]
fn an_upgrade_that_finds_the_queue_full_displaces_no_request() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| {
            with_route(setup);
            setup.upstream.connections_max = 1;
            setup.upstream.queue_max = 1;
        });
        let (mut first, mut member) = estate.ask_first().await;
        let mut waiting = estate.connect();
        // After a 503, the agent of the upgrade sends its request again. Its slot therefore goes to another request, whose
        // agent would fail its run.
        waiting
            .send(&format!(
                "GET {FILE} HTTP/1.1\r\nHost: puppet\r\nX-Puppet-Version: 8.10.0\r\n\r\n"
            ))
            .await;
        settle().await;
        let (mut other, _) = estate.connect_as(Some(&trusted().web02));
        ask(&mut other).await;
        assert_eq!(other.response().await.status, 503);
        member.answer(200, "first").await;
        assert_eq!(first.response().await.body, "first");
        member.request().await;
        member.answer(200, "second").await;
        assert_eq!(waiting.response().await.body, "second");
    });
}

#[test]
fn a_tunnel_does_not_count_among_the_requests_of_a_member_with_a_full_queue() {
    run(async {
        let mut estate = InMemoryEstate::new(with_route);
        let (tunnel_client, tunnel_member) = tunnel(&mut estate).await;
        let mut client = estate.connect();
        client.get(FILE).await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        member
            .send(
                "HTTP/1.1 503 Service Unavailable\r\nX-Puppet-Version: 8.10.0\r\nRetry-After: 1\r\n\
                 Content-Length: 0\r\n\r\n",
            )
            .await;
        // If the tunnel counted, the request would wait until the tunnel ends.
        let began = Instant::now();
        let mut again = estate.compilers[0].accept().await;
        again.request().await;
        assert_took(began, 1);
        again.answer(200, "now").await;
        assert_eq!(client.response().await.body, "now");
        drop((client, tunnel_client, tunnel_member));
        settle().await;
        estate.assert_at_rest().await;
    });
}
