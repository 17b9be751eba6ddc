//! What the proxy sends again after a failed attempt, and what it never sends twice.

use std::{cell::Cell, rc::Rc, time::Duration};

use balancing::Administrative;
use proxy::CaKind;
use tokio::{
    task::spawn_local,
    time::{Instant, sleep},
};

use crate::support::{
    ENROLMENT, FILE, InMemoryEstate, REPORT, Wire, assert_took, run, settle, trusted,
};

#[test]
fn a_request_whose_member_refuses_connections_goes_to_another() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.compilers = 2);
        estate.compilers[0].refuse();
        let mut client = estate.connect();
        client.get(FILE).await;
        let mut member = estate.compilers[1].accept().await;
        assert!(
            member
                .request()
                .await
                .starts_with("get /puppet/v3/file_metadata")
        );
        member.answer(200, "here").await;
        assert_eq!(client.response().await.body, "here");
        assert_eq!(estate.compilers[0].open(), 0);
        estate.assert_at_rest().await;
        let record = estate.record().await;
        assert_eq!(
            (&record["status"], &record["attempts"]),
            (&200.into(), &2.into())
        );
    });
}

#[test]
fn a_connection_that_its_member_has_closed_is_not_used_and_costs_no_retry() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.compilers = 1);
        let mut client = estate.connect();
        client.get(FILE).await;
        // More than the retry budget allows at once.
        for _ in 0..60 {
            let mut member = estate.compilers[0].accept().await;
            member.request().await;
            member.answer(200, "here").await;
            assert_eq!(client.response().await.status, 200);
            client.get(FILE).await;
            // The member closes the idle connection while the next request arrives.
            drop(member);
        }
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        member.answer(200, "here").await;
        assert_eq!(client.response().await.status, 200);
        drop(client);
        let records = estate.records().await;
        assert_eq!(records.len(), 61);
        assert!(records.iter().all(|record| record["attempts"] == 1));
    });
}

#[test]
fn a_reused_connection_that_breaks_off_under_a_safe_request_costs_no_retry_and_blames_no_member() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.compilers = 1);
        let mut client = estate.connect();
        client.get(FILE).await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        member.answer(200, "here").await;
        assert_eq!(client.response().await.status, 200);
        // More than the retry budget allows at once.
        for _ in 0..60 {
            client.get(FILE).await;
            member.request().await;
            drop(member);
            member = estate.compilers[0].accept().await;
            member.request().await;
            member.answer(200, "here").await;
            assert_eq!(client.response().await.status, 200);
        }
        // A report on such a connection is not sent again.
        client.put(REPORT, 6).await;
        client.send("report").await;
        member.request().await;
        member.text(6).await;
        drop(member);
        assert_eq!(client.response().await.status, 502);
        assert_eq!(estate.compilers[0].dials(), 61);
        drop(client);
        let records = estate.records().await;
        let attempts: Vec<_> = records
            .iter()
            .map(|record| record["attempts"].clone())
            .collect();
        assert_eq!(attempts[0], 1);
        assert!(
            attempts[1..=60].iter().all(|attempts| *attempts == 2),
            "{attempts:?}"
        );
        assert_eq!(attempts[61], 1);
    });
}

#[test]
fn a_safe_request_goes_to_another_member_when_the_answer_of_the_first_is_malformed() {
    for answer in [
        "HTTP/1.1 abc\r\n\r\n",
        "SSH-2.0-OpenSSH_9.2p1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n",
    ] {
        run(async move {
            let mut estate = InMemoryEstate::new(|setup| setup.compilers = 2);
            let (mut client, mut first) = estate.ask_first().await;
            first.send(answer).await;
            let mut second = estate.compilers[1].accept().await;
            second.request().await;
            second.answer(200, "second").await;
            assert_eq!(client.response().await.body, "second", "{answer:?}");
            estate.assert_at_rest().await;
            assert_eq!(estate.record().await["attempts"], 2, "{answer:?}");
        });
    }
}

#[test]
fn a_report_whose_answer_is_malformed_is_not_sent_again() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.compilers = 2);
        let mut client = estate.connect();
        client.put(REPORT, 6).await;
        client.send("report").await;
        let mut first = estate.compilers[0].accept().await;
        first.request().await;
        first.text(6).await;
        first.send("HTTP/1.1 abc\r\n\r\n").await;
        assert_eq!(client.response().await.status, 502);
        assert_eq!(estate.compilers[1].dials(), 0);
    });
}

#[test]
fn a_report_whose_member_refuses_connections_goes_to_another_with_its_body() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.compilers = 2);
        estate.compilers[0].refuse();
        let mut client = estate.connect();
        client.put(REPORT, 6).await;
        client.send("report").await;
        let mut member = estate.compilers[1].accept().await;
        member.request().await;
        assert_eq!(member.text(6).await, "report");
        member.answer(200, "").await;
        assert_eq!(client.response().await.status, 200);
    });
}

#[test]
fn a_request_gets_503_with_retry_after_when_every_member_refuses_connections() {
    run(async {
        let estate = InMemoryEstate::new(|setup| {
            setup.compilers = 2;
            setup.upstream.unavailable_wait_max = Duration::ZERO;
        });
        estate.compilers.iter().for_each(|member| member.refuse());
        let mut client = estate.connect();
        client.get(FILE).await;
        let answer = client.response().await;
        assert_eq!(answer.status, 503);
        assert!(answer.head.contains("retry-after: "), "{}", answer.head);
        estate.assert_at_rest().await;
        let record = estate.record().await;
        assert_eq!(record["reason"], "connect-refused");
        assert_eq!(record["attempts"], 2);
    });
}

/// On `Retry-After`, an agent of Puppet 8 sleeps and repeats a request up to a hundred times. Without it, the agent continues
/// with its copies of the CA's documents and with its certificate.
#[test]
fn agents_that_can_continue_without_the_ca_get_503_without_retry_after() {
    const CA: &str = "certificate/ca";
    const CRL: &str = "certificate_revocation_list/ca";
    const DATED: &str = "If-Modified-Since: Thu, 26 Nov 2026 12:00:00 GMT\r\n";
    run(async {
        for (method, path, fields, advised) in [
            ("GET", CA, "", false),
            ("GET", CA, DATED, false),
            ("GET", CRL, "", false),
            ("GET", CRL, DATED, false),
            ("POST", "certificate_renewal", "", false),
            // A new agent has no documents or certificate to continue with.
            ("GET", "certificate/web01", "", true),
            ("GET", "certificate/web01", DATED, true),
            ("GET", "certificate_request/web01", "", true),
        ] {
            let request = format!(
                "{method} /puppet-ca/v1/{path} HTTP/1.1\r\nHost: puppet\r\nContent-Length: 0\r\n{fields}X-Puppet-Version: 8.10.0\r\n\r\n"
            );
            for starts in [true, false] {
                let mut estate = InMemoryEstate::new(|setup| {
                    (setup.routes.renewal, setup.ca.renewal) = (true, true);
                    setup.ca.kind = Some(CaKind::PuppetServer);
                });
                let mut client = estate.connect();
                if !starts {
                    estate.ca.refuse();
                }
                client.send(&request).await;
                if starts {
                    let mut ca = estate.ca.accept().await;
                    ca.request().await;
                    ca.send(OVERLOADED).await;
                }
                let answer = client.response().await;
                assert_eq!(answer.status, 503, "{method} {path}");
                let found = answer.head.contains("retry-after: ");
                assert_eq!(found, advised, "{starts}: {method} {path}: {}", answer.head);
            }
        }
    });
}

#[test]
fn a_safe_request_goes_to_another_member_when_the_first_breaks_off_before_its_answer() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.compilers = 2);
        let (mut client, first) = estate.ask_first().await;
        drop(first);
        let mut second = estate.compilers[1].accept().await;
        second.request().await;
        second.answer(200, "second").await;
        assert_eq!(client.response().await.body, "second");
        estate.assert_at_rest().await;
        assert_eq!(estate.record().await["attempts"], 2);
    });
}

#[test]
fn a_report_that_its_member_may_have_stored_is_not_sent_again() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.compilers = 2);
        let mut client = estate.connect();
        client.put(REPORT, 6).await;
        client.send("report").await;
        let mut first = estate.compilers[0].accept().await;
        first.request().await;
        first.text(6).await;
        drop(first);
        assert_eq!(client.response().await.status, 502);
        assert_eq!(estate.compilers[1].dials(), 0);
        estate.assert_at_rest().await;
        let record = estate.record().await;
        assert_eq!(record["reason"], "member-closed");
        assert_eq!(record["attempts"], 1);
    });
}

#[test]
fn a_safe_request_is_not_sent_again_once_a_byte_of_an_answer_has_come() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.compilers = 2);
        let (mut client, mut first) = estate.ask_first().await;
        first.send("HTTP/1.1 2").await;
        drop(first);
        assert_eq!(client.response().await.status, 502);
        assert_eq!(estate.compilers[1].dials(), 0);
    });
}

#[test]
fn a_request_is_sent_at_most_attempts_max_times() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| {
            setup.compilers = 4;
            setup.exchange.attempts_max = 3;
        });
        let mut client = estate.connect();
        client.get(FILE).await;
        for member in &mut estate.compilers[..3] {
            member.accept().await.request().await;
        }
        assert_eq!(client.response().await.status, 502);
        assert_eq!(estate.compilers[3].dials(), 0);
        estate.assert_at_rest().await;
        assert_eq!(estate.record().await["attempts"], 3);
    });
}

#[test]
fn a_safe_request_that_a_starting_member_answers_goes_to_another() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.compilers = 2);
        let (mut client, mut first) = estate.ask_first().await;
        first
            .send("HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n")
            .await;
        let mut second = estate.compilers[1].accept().await;
        second.request().await;
        second.answer(200, "second").await;
        assert_eq!(client.response().await.body, "second");
    });
}

#[test]
fn a_safe_request_moves_when_its_member_enters_maintenance_before_it_has_answered() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.compilers = 2);
        let (mut client, mut first) = estate.ask_first().await;
        let began = Instant::now();
        estate.compilers[0].administer(Administrative::Maintenance);
        let mut second = estate.compilers[1].accept().await;
        assert_took(began, 1);
        second.request().await;
        second.answer(200, "second").await;
        assert_eq!(client.response().await.body, "second");
        assert!(first.is_ended().await, "the first is let go");
        estate.assert_at_rest().await;
    });
}

#[test]
fn a_report_does_not_move_when_its_member_enters_maintenance() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.compilers = 2);
        let mut client = estate.connect();
        client.put(REPORT, 1).await;
        client.send("r").await;
        let mut first = estate.compilers[0].accept().await;
        first.request().await;
        estate.compilers[0].administer(Administrative::Maintenance);
        crate::support::pass(30).await;
        first.answer(200, "first").await;
        assert_eq!(client.response().await.body, "first");
        assert_eq!(estate.compilers[1].dials(), 0);
    });
}

#[test]
fn an_enrolment_request_goes_to_the_ca_and_never_to_a_compiler() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let (mut client, _) = estate.connect_as(None);
        client.get(ENROLMENT).await;
        let mut ca = estate.ca.accept().await;
        assert!(ca.request().await.contains("x-client-verify: none"));
        ca.answer(200, "ca").await;
        assert_eq!(client.response().await.body, "ca");
        assert_eq!(estate.compilers[0].dials(), 0);
    });
}

#[test]
fn a_ca_that_refuses_connections_is_not_replaced_by_a_compiler() {
    run(async {
        let estate = InMemoryEstate::new(|_| {});
        estate.ca.refuse();
        let (mut client, _) = estate.connect_as(None);
        client.get(ENROLMENT).await;
        assert_eq!(client.response().await.status, 503);
        assert_eq!(estate.compilers[0].dials(), 0);
    });
}

/// The response of a Puppet server whose own queue is full (`max-queued-requests`).
const OVERLOADED: &str = "HTTP/1.1 503 X\r\nX-Puppet-Version: 7.9.5\r\nRetry-After: 700\r\nContent-Length: 4\r\n\r\nfull";

#[test]
fn a_request_that_a_members_own_full_queue_refused_waits_and_is_sent_again_with_its_body() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.compilers = 1);
        let mut client = estate.connect();
        client.put(REPORT, 6).await;
        client.send("report").await;
        let began = Instant::now();
        for _ in 0..2 {
            let mut member = estate.compilers[0].accept().await;
            member.request().await;
            assert_eq!(member.text(6).await, "report");
            member.send(OVERLOADED).await;
        }
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        // Each wait takes one second, because no other request runs there that could end and make room.
        assert!(began.elapsed() >= Duration::from_secs(2));
        assert!(
            began.elapsed() <= Duration::from_secs(4),
            "{:?}",
            began.elapsed()
        );
        assert_eq!(member.text(6).await, "report");
        member.answer(200, "stored").await;
        assert_eq!(client.response().await.body, "stored");
        estate.assert_at_rest().await;
        let record = estate.record().await;
        assert_eq!(record["attempts"], 3);
        assert!(record["queue_us"].as_u64() >= Some(2_000_000), "{record}");
    });
}

#[test]
fn a_503_without_a_full_queue_does_not_pause_a_member() {
    const STOPPING: &str =
        "HTTP/1.1 503 X\r\nX-Puppet-Version: 7.9.5\r\nContent-Length: 8\r\n\r\nshutdown";
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.compilers = 1);
        let mut client = estate.connect();
        for (answers, seconds) in [
            (&[STOPPING][..], 0),
            (&[OVERLOADED, STOPPING], 1),
            (&[OVERLOADED, OVERLOADED, STOPPING], 2),
        ] {
            let began = Instant::now();
            client.put(REPORT, 6).await;
            client.send("report").await;
            for answer in answers {
                let mut member = estate.compilers[0].accept().await;
                member.request().await;
                member.text(6).await;
                member.send(answer).await;
            }
            let refused = client.response().await;
            assert_eq!((refused.status, &*refused.body), (503, "shutdown"));
            let took = began.elapsed();
            assert!(took >= Duration::from_secs(seconds), "{took:?}");
            assert!(took < Duration::from_secs(seconds + 1), "{took:?}");
        }
    });
}

#[test]
fn another_member_gets_requests_at_once_while_one_has_a_full_queue() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.compilers = 2);
        let (mut client, mut first) = estate.ask_first().await;
        first.send(OVERLOADED).await;
        let began = Instant::now();
        let mut second = estate.compilers[1].accept().await;
        second.request().await;
        second.answer(200, "second").await;
        assert_eq!(client.response().await.body, "second");
        // For now, the first member gets no requests.
        client.get(FILE).await;
        second.request().await;
        assert_took(began, 0);
        second.answer(200, "again").await;
        assert_eq!(client.response().await.body, "again");
    });
}

#[test]
fn a_request_that_a_stopping_member_did_not_serve_waits_for_a_busy_one() {
    const STOPPING: &str =
        "HTTP/1.1 503 X\r\nX-Puppet-Version: 7.9.5\r\nContent-Length: 8\r\n\r\nshutdown";
    run(async {
        let mut estate = InMemoryEstate::new(|setup| {
            setup.compilers = 2;
            setup.in_flight_max = Some(1);
        });
        let (mut client, mut first) = estate.ask_first().await;
        let (mut other, _) = estate.connect_as(Some(&trusted().web02));
        other.get(FILE).await;
        let mut second = estate.compilers[1].accept().await;
        second.request().await;
        first.send(STOPPING).await;
        settle().await;
        second.answer(200, "other").await;
        assert_eq!(other.response().await.body, "other");
        let mut again = estate.compilers[1].accept().await;
        again.request().await;
        again.answer(200, "second").await;
        assert_eq!(client.response().await.body, "second");
        estate.assert_at_rest().await;
    });
}

#[test]
fn a_refusal_of_a_request_that_needs_no_jruby_is_passed_on() {
    const STATIC: &str = "/puppet/v3/static_file_content/modules/m/files/a?code_id=1";
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.compilers = 1);
        let mut client = estate.connect();
        client.get(STATIC).await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        // Two other requests that hold JRubies run there. A request that needs no JRuby does not depend on the room that they
        // leave.
        let mut others = Vec::new();
        for _ in 0..2 {
            let mut other = estate.connect();
            other.get(FILE).await;
            let mut at = estate.compilers[0].accept().await;
            at.request().await;
            others.push((other, at));
        }
        member.send(OVERLOADED).await;
        let answer = tokio::time::timeout(Duration::from_secs(5), client.response()).await;
        let answer = answer.expect("it is not sent again at once");
        assert_eq!((answer.status, &*answer.body), (503, "full"));
    });
}

#[test]
fn an_agent_that_supports_retry_after_gets_the_members_own_503() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| setup.compilers = 1);
        let mut client = estate.connect();
        client
            .send(&format!(
                "GET {FILE} HTTP/1.1\r\nHost: puppet\r\nX-Puppet-Version: 8.10.0\r\n\r\n"
            ))
            .await;
        let mut member = estate.compilers[0].accept().await;
        member.request().await;
        member.send(OVERLOADED).await;
        let answer = client.response().await;
        assert_eq!((answer.status, &*answer.body), (503, "full"));
        assert!(answer.head.contains("retry-after: 700"), "{}", answer.head);
    });
}

/// Serves one connection of a member that takes one second for a request and accepts a limited number at once.
async fn serve(mut member: Wire, inside: Rc<Cell<u32>>, inside_max: u32, refused: Rc<Cell<u32>>) {
    while member.head().await.is_some() {
        if inside.get() >= inside_max {
            refused.set(refused.get() + 1);
            member.send(OVERLOADED).await;
            continue;
        }
        inside.set(inside.get() + 1);
        sleep(Duration::from_secs(1)).await;
        inside.set(inside.get() - 1);
        member.answer(200, "done").await;
    }
}

#[test]
fn a_burst_through_a_member_of_unknown_size_takes_no_longer_than_its_requests() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| {
            setup.exchange.client_share.percent = 100;
        });
        let began = Instant::now();
        let clients: Vec<_> = (0..200)
            .map(|_| {
                let mut client = estate.connect();
                spawn_local(async move {
                    client.get(FILE).await;
                    client.response().await.status
                })
            })
            .collect();
        let (inside, refused) = (Rc::<Cell<u32>>::default(), Rc::<Cell<u32>>::default());
        let mut member = estate.compilers.remove(0);
        let (count, refusals) = (Rc::clone(&inside), Rc::clone(&refused));
        let accepting = spawn_local(async move {
            loop {
                let wire = member.accept().await;
                spawn_local(serve(wire, Rc::clone(&count), 8, Rc::clone(&refusals)));
            }
        });
        for client in clients {
            assert_eq!(client.await.expect("no panic"), 200);
        }
        // 200 requests, 8 at once, take 25 s. A pause after each burst would double that.
        let took = began.elapsed().as_secs();
        assert!((25..=27).contains(&took), "{took}");
        // The refusals of the first burst, and one for each time that the limit was raised.
        assert!(refused.get() <= 128 + 10, "{}", refused.get());
        accepting.abort();
    });
}

#[test]
fn a_full_queue_of_a_member_is_waited_out_for_queue_wait_max_and_no_longer() {
    run(async {
        let mut estate = InMemoryEstate::new(|setup| {
            setup.compilers = 1;
            setup.upstream.queue_wait_max = Duration::from_secs(20);
        });
        let mut client = estate.connect();
        client.put(REPORT, 6).await;
        client.send("report").await;
        let began = Instant::now();
        let mut asked = 0;
        let answer = loop {
            tokio::select! {
                mut member = estate.compilers[0].accept() => {
                    asked += 1;
                    member.request().await;
                    member.text(6).await;
                    member.send(OVERLOADED).await;
                }
                answer = client.response() => break answer,
            }
        };
        assert_eq!(answer.status, 503);
        assert_took(began, 20);
        assert!((10..=20).contains(&asked), "{asked}");
        estate.assert_at_rest().await;
        assert_eq!(estate.record().await["reason"], "queue-timeout");
    });
}
