//! Requests that wait in the queue of a pool: what ends their wait, and what they may still do afterwards.

use std::{sync::Arc, time::Duration};

use h2::Reason;
use http::Request;
use proxy::{LifecyclePhase, RuleRuntime};
use routing::{
    RouteTable,
    settings::{AccessRuleSettings, PathPattern, RouteSettings},
};
use tokio::time::Instant;

use crate::support::{FILE, InMemoryEstate, Wire, assert_took, field, pass, run, settle, trusted};

fn waiting(estate: &InMemoryEstate) -> u32 {
    let generation = estate.shared.current.load();
    let state = generation.pools[0].admission.state();
    state.waiting.iter().sum()
}

/// An estate with one compiler that works on one request at a time.
fn one_at_a_time() -> InMemoryEstate {
    InMemoryEstate::new(|setup| setup.upstream.connections_max = 1)
}

#[test]
fn a_client_that_is_revoked_while_its_request_waits_is_refused() {
    run(async {
        let mut estate = one_at_a_time();
        let (mut first, mut member) = estate.ask_first().await;
        let (mut second, _) = estate.connect_as(Some(&trusted().web02));
        second.get(FILE).await;
        let mut third = estate.connect();
        third.get(FILE).await;
        settle().await;
        assert_eq!(waiting(&estate), 2);
        estate.apply(|generation| generation.trust = Arc::clone(&trusted().without_web02));
        member.answer(200, "first").await;
        assert_eq!(first.response().await.body, "first");
        let refused = second.response().await;
        assert_eq!(refused.status, 403, "{}", refused.head);
        let next = member.request().await;
        assert!(next.contains("cn=web01"), "{next}");
        member.answer(200, "third").await;
        assert_eq!(third.response().await.body, "third");
        estate.assert_at_rest().await;
        let records = estate.records().await;
        let refused = records.iter().find(|record| record["status"] == 403);
        assert_eq!(refused.expect("a record")["attempts"], 0);
    });
}

/// A table with these routes in addition to the built-in ones, for the pools of an estate.
fn routes(settings: routing::RoutingSettings) -> Arc<RouteTable> {
    let table = RouteTable::new(&settings, &["compilers".into(), "ca".into()]);
    Arc::new(table.expect("routes"))
}

/// Sends requests as two agents. The second waits while a compiler works on the first.
async fn one_waits(estate: &mut InMemoryEstate) -> (Wire, Wire, Wire) {
    let mut first = estate.connect();
    first.get(FILE).await;
    let mut member = estate.compilers[0].accept().await;
    member.request().await;
    let (mut second, _) = estate.connect_as(Some(&trusted().web02));
    second.get(FILE).await;
    settle().await;
    assert_eq!(waiting(estate), 1);
    (first, member, second)
}

#[test]
fn a_request_that_waits_is_refused_by_a_rule_of_access_that_came_meanwhile() {
    run(async {
        let mut estate = one_at_a_time();
        let (mut first, mut member, mut second) = one_waits(&mut estate).await;
        let rule = AccessRuleSettings {
            name: "not-web02".to_owned(),
            certname: vec!["web02".to_owned()],
            ..AccessRuleSettings::default()
        };
        let table = routes(routing::RoutingSettings {
            access: vec![rule],
            ..routing::RoutingSettings::default()
        });
        let counted = estate.shared.metrics.access_rule("not-web02");
        estate.apply(|generation| {
            generation.routes = table;
            generation.rules = [RuleRuntime::new(counted.clone())].into();
        });
        member.answer(200, "first").await;
        assert_eq!(first.response().await.body, "first");
        assert_eq!(second.response().await.status, 403);
        assert_eq!(counted.refused.get(), 1);
        // Other requests can use the member, and the slot of the refused client.
        first.get(FILE).await;
        assert!(member.request().await.contains("cn=web01"));
        member.answer(200, "again").await;
        assert_eq!(first.response().await.body, "again");
        estate.assert_at_rest().await;
        let records = estate.records().await;
        let refused = records.iter().find(|record| record["status"] == 403);
        let refused = refused.expect("a record");
        assert_eq!(refused["cause"], "access rule not-web02", "{refused}");
        assert_eq!(refused["attempts"], 0);
    });
}

#[test]
fn a_request_that_waits_runs_in_its_pool_although_others_go_elsewhere_by_now() {
    run(async {
        let mut estate = one_at_a_time();
        let (mut first, mut member, mut second) = one_waits(&mut estate).await;
        let elsewhere = RouteSettings {
            name: "elsewhere".to_owned(),
            path: Some(PathPattern::Prefix("/puppet/v3".to_owned())),
            pool: "ca".to_owned(),
            ..RouteSettings::default()
        };
        let table = routes(routing::RoutingSettings {
            routes: vec![elsewhere],
            ..routing::RoutingSettings::default()
        });
        estate.apply(|generation| generation.routes = table);
        member.answer(200, "first").await;
        assert_eq!(first.response().await.body, "first");
        member.request().await;
        member.answer(200, "second").await;
        assert_eq!(second.response().await.body, "second");
        second.get(FILE).await;
        let mut other = estate.ca.accept().await;
        other.request().await;
        other.answer(200, "elsewhere").await;
        assert_eq!(second.response().await.body, "elsewhere");
    });
}

#[test]
fn a_stream_that_is_reset_while_its_request_waits_leaves_the_queue_at_once() {
    run(async {
        let mut estate = one_at_a_time();
        let (_first, mut member) = estate.ask_first().await;
        let (requests, _driven) = estate.connect_http2(1 << 16).await;
        let uri = format!("https://puppet{FILE}");
        let mut streams = Vec::new();
        for _ in 0..3 {
            let request = Request::get(&uri).body(()).expect("a request");
            let mut requests = requests.clone().ready().await.expect("a stream");
            streams.push(requests.send_request(request, true).expect("sent"));
        }
        settle().await;
        assert_eq!(waiting(&estate), 3);
        for (_, stream) in &mut streams[..2] {
            stream.send_reset(Reason::CANCEL);
        }
        settle().await;
        assert_eq!(waiting(&estate), 1);
        member.answer(200, "first").await;
        member.request().await;
        member.answer(200, "third").await;
        let (response, _) = streams.pop().expect("the third");
        assert_eq!(response.await.expect("an answer").status(), 200);
        estate.assert_at_rest().await;
    });
}

#[test]
fn a_drain_serves_waiting_requests_and_its_end_answers_the_rest_with_503() {
    run(async {
        let mut estate = one_at_a_time();
        let mut clients: Vec<_> = (0..4).map(|_| estate.connect()).collect();
        clients[0].get(FILE).await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        for client in &mut clients[1..] {
            client.get(FILE).await;
            settle().await;
        }
        let (requests, driven) = estate.connect_http2(1 << 16).await;
        let request = Request::get(format!("https://puppet{FILE}"));
        let mut requests = requests.ready().await.expect("a stream");
        let stream = requests.send_request(request.body(()).expect("a request"), true);
        settle().await;
        estate.enter(LifecyclePhase::Draining);
        pass(60).await;
        for client in &mut clients[..2] {
            member.answer(200, "drained").await;
            assert_eq!(client.response().await.body, "drained");
            member.request().await;
        }
        assert_eq!(waiting(&estate), 2);
        let began = Instant::now();
        estate.enter(LifecyclePhase::Cutting);
        assert!(clients[2].is_ended().await, "its member had it");
        let refused = clients[3].response().await;
        assert_eq!(refused.status, 503, "{}", refused.head);
        assert_eq!(field(&refused.head, "connection"), Some("close"));
        assert!(clients[3].is_ended().await);
        let (response, _) = stream.expect("sent");
        assert_eq!(response.await.expect("an answer").status(), 503);
        assert_took(began, 0);
        driven.await.expect("ends");
        assert_eq!(waiting(&estate), 0);
        estate.assert_at_rest().await;
        let records = estate.records().await;
        let ended = |status| {
            let mut records = records.iter();
            let record = records.find(|record| record["status"] == status);
            record.expect("a record")["reason"].clone()
        };
        assert_eq!(ended(503), "drain-grace");
    });
}

#[test]
fn after_a_reused_connection_broke_a_request_tries_its_member_again_and_all_waits_share_one_limit()
{
    run(async {
        let mut estate = InMemoryEstate::new(|setup| {
            setup.compilers = 2;
            setup.exchange.client_share.percent = 100;
            setup.upstream.connections_max = 1;
            setup.upstream.first_byte_timeout = Duration::from_secs(100);
            setup.upstream.idle_timeout = Duration::from_secs(3600);
        });
        let mut clients: Vec<_> = (0..2).map(|_| estate.connect()).collect();
        let mut members = Vec::new();
        for (client, member) in clients.iter_mut().zip(&mut estate.compilers) {
            client.get(FILE).await;
            let mut member = member.accept().await;
            member.request().await;
            members.push(member);
        }
        // The second member takes longer to respond than the third request may wait.
        let slow = "HTTP/1.1 200 OK\r\nX-Puppet-Version: 8\r\nContent-Length: 9\r\n\r\n1";
        members[1].send(slow).await;
        clients[1].head().await;
        let began = Instant::now();
        let (mut third, _) = estate.connect_as(Some(&trusted().web02));
        third.get(FILE).await;
        pass(60).await;
        assert_eq!(waiting(&estate), 1);
        // The first member is free and closes two connections. Closing a reused one does not count against it, closing a new
        // one does.
        members[0].answer(200, "first").await;
        clients[0].response().await;
        assert!(members[0].head().await.is_some(), "on the same connection");
        drop(members.remove(0));
        let mut again = estate.compilers[0].accept().await;
        assert!(again.head().await.is_some(), "on another connection");
        drop(again);
        settle().await;
        assert_eq!(waiting(&estate), 1);
        assert!(third.response().await.status >= 500);
        assert_took(began, 100);
    });
}

#[test]
fn requests_that_wait_when_a_drain_ends_at_once_get_503_with_connection_close() {
    run(async {
        let mut estate = one_at_a_time();
        let mut clients: Vec<_> = (0..2).map(|_| estate.connect()).collect();
        clients[0].get(FILE).await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        clients[1].get(FILE).await;
        settle().await;
        // No task runs between the two calls, so the connections see only the second phase.
        estate.enter(LifecyclePhase::Draining);
        estate.enter(LifecyclePhase::Cutting);
        let refused = clients[1].response().await;
        assert_eq!(refused.status, 503, "{}", refused.head);
        assert_eq!(field(&refused.head, "connection"), Some("close"));
        assert!(clients[1].is_ended().await);
    });
}
