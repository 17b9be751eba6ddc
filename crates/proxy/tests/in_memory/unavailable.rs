//! Requests to a pool without an available member: which of them wait for a member to return, and what ends their wait.

use std::time::Duration;

use proxy::{CaKind, LifecyclePhase};
use routing::{
    Class,
    settings::{AccessRuleSettings, PathPattern, RouteSettings, RuleAction},
};
use tokio::time::Instant;

use crate::support::{
    ENROLMENT, FILE, InMemoryEstate, REPORT, Setup, Wire, assert_took, field, pass, run, settle,
    trusted,
};

fn waiting(estate: &InMemoryEstate) -> u32 {
    let generation = estate.shared.current.load();
    let state = generation.pools[0].admission.state();
    state.waiting.iter().sum()
}

/// A response after which the member closes the connection.
const DONE: &str =
    "HTTP/1.1 200 X\r\nX-Puppet-Version: 8\r\nConnection: close\r\nContent-Length: 4\r\n\r\ndone";

/// Sends a request, which waits because the connection to its member was refused.
async fn first_waits(estate: &InMemoryEstate) -> Wire {
    estate.compilers.iter().for_each(|member| member.refuse());
    let mut client = estate.connect();
    client.get(FILE).await;
    settle().await;
    assert_eq!(waiting(estate), 1);
    client
}

#[test]
fn requests_wait_while_the_only_member_restarts_and_go_out_in_order_by_its_slots() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.upstream.connections_max = 1);
        let began = Instant::now();
        let mut clients = vec![first_waits(&estate).await];
        for count in 2..=4 {
            pass(10).await;
            let (mut client, _) = estate.connect_as(Some(&trusted().web02));
            client.get(FILE).await;
            settle().await;
            assert_eq!(waiting(&estate), count);
            clients.push(client);
        }
        pass(30).await;
        estate.compilers[0].accept_again();
        let mut member = estate.compilers[0].accept().await;
        assert!(began.elapsed() <= Duration::from_secs(62), "soon after");
        for (number, client) in clients.iter_mut().enumerate() {
            let request = member.request().await;
            let certname = if number == 0 { "cn=web01" } else { "cn=web02" };
            assert!(request.contains(certname), "{request}");
            settle().await;
            assert_eq!(waiting(&estate) as usize, 3 - number);
            member.answer(200, &format!("answer {number}")).await;
            let answer = client.response().await;
            assert_eq!(
                (answer.status, answer.body),
                (200, format!("answer {number}"))
            );
        }
        drop(member);
        estate.assert_at_rest().await;
        for (record, least) in estate.records().await.iter().zip([60, 50, 40, 30]) {
            let queued = Duration::from_micros(record["queue_us"].as_u64().expect("a wait"));
            assert!(queued >= Duration::from_secs(least), "{record}");
            assert_eq!(record["status"], 200);
        }
    });
}

#[test]
fn a_catalog_with_a_body_waits_and_is_sent_once_and_whole() {
    const CATALOG: &str = "/puppet/v3/catalog/web01?environment=production";
    run(async {
        for arrives_first in [true, false] {
            let mut estate = InMemoryEstate::new(|_| {});
            let other = if arrives_first {
                None
            } else {
                Some(first_waits(&estate).await)
            };
            estate.compilers[0].refuse();
            let facts = "f".repeat(40_000);
            let mut client = estate.connect();
            let length = facts.len();
            client
                .send(&format!(
                    "POST {CATALOG} HTTP/1.1\r\nHost: puppet\r\nX-Puppet-Version: 7.23.0\r\nContent-Length: {length}\r\n\r\n{facts}"
                ))
                .await;
            pass(20).await;
            estate.compilers[0].accept_again();
            let mut requests = 0;
            for _ in 0..=u32::from(!arrives_first) {
                let mut member = estate.compilers[0].accept().await;
                let head = member.request().await;
                if head.starts_with("post") {
                    assert!(member.text(length).await == facts, "another body");
                    requests += 1;
                }
                member.send(DONE).await;
                settle().await;
            }
            assert_eq!(requests, 1);
            assert_eq!(client.response().await.body, "done");
            drop(other);
            estate.assert_at_rest().await;
        }
    });
}

#[test]
fn the_wait_ends_for_all_at_once_with_the_answer_of_an_outage_and_later_requests_get_it_at_once() {
    run(async {
        let estate = InMemoryEstate::new(|_| {});
        let began = Instant::now();
        let mut first = first_waits(&estate).await;
        pass(80).await;
        let mut second = estate.connect();
        second.get(FILE).await;
        for client in [&mut first, &mut second] {
            let answer = client.response().await;
            assert_eq!(answer.status, 503, "{}", answer.head);
            let text = "No server of the pool `compilers` is available for this request; nothing was sent. Try again later.\n";
            assert_eq!(answer.body, text);
            assert!(field(&answer.head, "retry-after").is_some());
            assert_took(began, 90);
        }
        let began = Instant::now();
        let mut third = estate.connect();
        third.get(FILE).await;
        assert_eq!(third.response().await.status, 503);
        assert_took(began, 0);
        estate.assert_at_rest().await;
        let records = estate.records().await;
        let of = |reason: &str| {
            let mut records = records.iter();
            let found = records.find(|record| record["reason"] == reason);
            found.expect("a record")["queue_us"]
                .as_u64()
                .expect("a wait")
                / 1_000_000
        };
        // The first request has spent a moment of each second on trying its member again.
        assert!((88..=90).contains(&of("connect-refused")));
        assert!((9..=10).contains(&of("no-member-available")));
    });
}

/// The response to a request that is sent while the pools' members refuse connections, and how long it took.
async fn answer_of(change: impl FnOnce(&mut Setup), request: &str) -> (u16, Duration) {
    let estate = InMemoryEstate::new(|setup| {
        (setup.routes.renewal, setup.ca.renewal) = (true, true);
        setup.ca.kind = Some(CaKind::PuppetServer);
        change(setup);
    });
    estate.compilers[0].refuse();
    estate.ca.refuse();
    let mut client = estate.connect();
    let began = Instant::now();
    client
        .send(&format!(
            "{request} HTTP/1.1\r\nHost: puppet\r\nContent-Length: 0\r\n\r\n"
        ))
        .await;
    let answer = client.response().await;
    (answer.status, began.elapsed())
}

#[test]
fn requests_to_endpoints_of_puppet_wait_and_those_that_must_know_or_need_no_answer_do_not() {
    run(async {
        for (request, waits) in [
            (format!("GET {FILE}"), true),
            (format!("PUT {REPORT}"), true),
            ("POST /puppet/v3/catalog/web01?environment=production".to_owned(), true),
            ("GET /puppet/v3/node/web01?environment=production".to_owned(), true),
            ("GET /puppet/v3/file_bucket_file/md5/0123456789abcdef0123456789abcdef/x?environment=production".to_owned(), true),
            ("GET /puppet-ca/v1/certificate/web01".to_owned(), true),
            ("GET /puppet-ca/v1/certificate_request/web01".to_owned(), true),
            // Agents continue their run without the response.
            (format!("GET {ENROLMENT}"), false),
            ("GET /puppet-ca/v1/certificate_revocation_list/ca".to_owned(), false),
            ("POST /puppet-ca/v1/certificate_renewal".to_owned(), false),
            // The path is not an endpoint of Puppet.
            ("GET /app/page".to_owned(), false),
        ] {
            let route = |setup: &mut Setup| {
                setup.routes.routes.push(RouteSettings {
                    name: "app".to_owned(),
                    path: Some(PathPattern::Prefix("/app".to_owned())),
                    pool: "compilers".to_owned(),
                    unguarded: true,
                    ..RouteSettings::default()
                });
            };
            let (status, took) = answer_of(route, &request).await;
            assert_eq!(status, 503, "{request}");
            let expected = if waits { 89..91 } else { 0..1 };
            assert!(expected.contains(&took.as_secs()), "{request}: {took:?}");
        }
        // The limit on all waits is lower, or this wait is turned off.
        for (change, seconds) in [((20, 90), 20), ((480, 5), 5), ((480, 0), 0)] {
            let (queue, unavailable) = change;
            let change = |setup: &mut Setup| {
                setup.upstream.queue_wait_max = Duration::from_secs(queue);
                setup.upstream.unavailable_wait_max = Duration::from_secs(unavailable);
            };
            let (status, took) = answer_of(change, &format!("GET {FILE}")).await;
            assert_eq!((status, took.as_secs()), (503, seconds));
        }
    });
}

#[test]
fn the_status_is_answered_at_once_while_requests_wait() {
    run(async {
        let estate = InMemoryEstate::new(|_| {});
        let _waits = first_waits(&estate).await;
        let began = Instant::now();
        let mut probe = estate.connect();
        probe.get("/status/v1/simple").await;
        let answer = probe.response().await;
        assert_eq!((answer.status, &*answer.body), (503, "error"));
        assert_took(began, 0);
        assert_eq!(waiting(&estate), 1);
    });
}

#[test]
fn requests_to_members_that_were_taken_out_of_service_are_refused_at_once() {
    use balancing::Administrative::{Drain, Maintenance};
    run(async {
        for state in [Drain, Maintenance] {
            let estate = InMemoryEstate::new(|setup| setup.compilers = 2);
            let mut first = first_waits(&estate).await;
            let began = Instant::now();
            estate.compilers[0].administer(state);
            settle().await;
            pass(2).await;
            assert_eq!(waiting(&estate), 1, "the other may return");
            estate.compilers[1].administer(state);
            assert_eq!(first.response().await.status, 503);
            assert_took(began, 2);
            let mut second = estate.connect();
            second.get(FILE).await;
            let began = Instant::now();
            assert_eq!(second.response().await.status, 503);
            assert_took(began, 0);
        }
    });
}

#[test]
fn a_client_that_leaves_while_it_waits_leaves_the_queue_at_once() {
    run(async {
        let estate = InMemoryEstate::new(|_| {});
        let client = first_waits(&estate).await;
        drop(client);
        settle().await;
        assert_eq!(waiting(&estate), 0);
        estate.assert_at_rest().await;
        assert_eq!(estate.record().await["status"], 499);
    });
}

#[test]
fn a_request_waits_although_each_member_refused_it_and_the_retries_are_used_up() {
    run(async {
        // Either there are as many members as `attempts_max`, or more requests than the retry budget allows.
        for (members, requests) in [(3, 1), (1, 100)] {
            let mut estate = InMemoryEstate::new(|setup| setup.compilers = members);
            estate.compilers.iter().for_each(|member| member.refuse());
            let mut clients: Vec<_> = (0..requests).map(|_| estate.connect()).collect();
            for client in &mut clients {
                client.get(FILE).await;
            }
            settle().await;
            assert_eq!(waiting(&estate), requests);
            pass(30).await;
            estate.compilers[0].accept_again();
            for _ in 0..requests {
                let mut member = estate.compilers[0].accept().await;
                member.request().await;
                member.send(DONE).await;
            }
            for client in &mut clients {
                assert_eq!(client.response().await.status, 200);
            }
            estate.assert_at_rest().await;
        }
    });
}

#[test]
fn a_report_that_its_member_may_have_stored_is_not_sent_again_after_a_restart() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let mut client = estate.connect();
        client.put(REPORT, 6).await;
        client.send("report").await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        member.text(6).await;
        let _others = first_waits(&estate).await;
        drop(member);
        assert_eq!(client.response().await.status, 502);
        estate.compilers[0].accept_again();
        let mut member = estate.compilers[0].accept().await;
        assert!(member.request().await.starts_with("get "));
    });
}

#[test]
fn a_safe_request_that_a_stop_cut_off_waits_for_the_restart() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let (mut client, member) = estate.ask_first().await;
        let mut other = first_waits(&estate).await;
        drop(member);
        settle().await;
        assert_eq!(waiting(&estate), 2);
        estate.compilers[0].accept_again();
        for client in [&mut other, &mut client] {
            let mut member = estate.compilers[0].accept().await;
            member.request().await;
            member.answer(200, "again").await;
            assert_eq!(client.response().await.status, 200);
        }
    });
}

#[test]
fn a_request_that_was_cut_off_holds_no_slot_of_its_member_while_it_pauses() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.upstream.connections_max = 1);
        let (mut client, member) = estate.ask_first().await;
        let began = Instant::now();
        drop(member);
        settle().await;
        let (mut other, _) = estate.connect_as(Some(&trusted().web02));
        other.get(FILE).await;
        let mut member = estate.compilers[0].accept().await;
        assert!(member.request().await.contains("cn=web02"));
        assert!(began.elapsed() < Duration::from_secs(1), "it waited");
        member.send(DONE).await;
        assert_eq!(other.response().await.status, 200);
        estate.compilers[0].refuse();
        pass(2).await;
        assert_eq!(waiting(&estate), 1);
        estate.compilers[0].accept_again();
        let mut member = estate.compilers[0].accept().await;
        assert!(member.request().await.contains("cn=web01"));
        member.send(DONE).await;
        assert_eq!(client.response().await.status, 200);
    });
}

#[test]
fn a_safe_request_that_a_stopping_member_did_not_serve_waits_for_the_restart() {
    const STOPPING: &str =
        "HTTP/1.1 503 X\r\nConnection: close\r\nContent-Length: 8\r\n\r\nstopping";
    run(async {
        for (restarts, method) in [(true, "GET"), (false, "GET"), (false, "PUT")] {
            let mut estate = InMemoryEstate::new(|_| {});
            let path = if method == "GET" { FILE } else { REPORT };
            let mut client = estate.connect();
            client
                .send(&format!(
                    "{method} {path} HTTP/1.1\r\nHost: puppet\r\nContent-Length: 0\r\n\r\n"
                ))
                .await;
            let began = Instant::now();
            let mut member = estate.compilers[0].accept().await;
            member.request().await;
            member.send(STOPPING).await;
            if restarts {
                estate.compilers[0].refuse();
                pass(30).await;
                assert_eq!(waiting(&estate), 1);
                estate.compilers[0].accept_again();
                let mut member = estate.compilers[0].accept().await;
                member.request().await;
                member.send(DONE).await;
                assert_eq!(client.response().await.status, 200);
                continue;
            }
            // The member does not stop after all. A safe request is tried two more times, and then the member's response is
            // passed on.
            let tries = if method == "GET" { 2 } else { 0 };
            for _ in 0..tries {
                let mut member = estate.compilers[0].accept().await;
                member.request().await;
                member.send(STOPPING).await;
            }
            let answer = client.response().await;
            assert_eq!((answer.status, &*answer.body), (503, "stopping"));
            assert_took(began, tries);
        }
    });
}

#[test]
fn a_write_to_a_ca_without_a_backup_waits_for_it_if_nothing_was_sent() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| {
            setup.routes.access.push(AccessRuleSettings {
                name: "signs".to_owned(),
                action: RuleAction::Allow,
                class: vec![Class::CaAdministration],
                certname: vec!["web01".to_owned()],
                ..AccessRuleSettings::default()
            });
        });
        estate.ca.refuse();
        let mut client = estate.connect();
        client
            .send("PUT /puppet-ca/v1/certificate_status/web02 HTTP/1.1\r\nHost: puppet\r\nContent-Length: 4\r\n\r\nsign")
            .await;
        pass(20).await;
        estate.ca.accept_again();
        let mut ca = estate.ca.accept().await;
        assert!(ca.request().await.starts_with("put "));
        assert_eq!(ca.text(4).await, "sign");
        drop(ca);
        assert_eq!(
            client.response().await.status,
            502,
            "it may have been signed"
        );
        assert!(estate.ca.dials() <= 22, "{}", estate.ca.dials());
        estate.assert_at_rest().await;
    });
}

#[test]
fn the_end_of_a_drain_of_the_proxy_ends_the_wait() {
    run(async {
        let estate = InMemoryEstate::new(|_| {});
        let _first = first_waits(&estate).await;
        let mut client = estate.connect();
        client.get(FILE).await;
        settle().await;
        estate.enter(LifecyclePhase::Draining);
        pass(10).await;
        assert_eq!(waiting(&estate), 2);
        estate.enter(LifecyclePhase::Cutting);
        let refused = client.response().await;
        assert_eq!(refused.status, 503);
        assert!(
            refused.body.starts_with("The proxy is stopping"),
            "{}",
            refused.body
        );
        assert!(client.is_ended().await);
        estate.assert_at_rest().await;
        let records = estate.records().await;
        let mut reasons = records.iter().map(|record| &record["reason"]);
        assert!(reasons.any(|reason| reason == "drain-grace"));
    });
}
