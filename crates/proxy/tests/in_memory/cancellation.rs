//! Clients that go away: whatever was in progress, everything that they hold is released at once.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use h2::client::SendRequest;
use http::Request;
use tokio::{task::spawn_local, time::timeout};

use crate::support::{FILE, InMemoryEstate, REPORT, TestMember, Wire, pass, run, settle, trusted};

#[test]
fn a_client_that_leaves_while_a_member_works_frees_the_member_and_is_recorded() {
    run(async {
        let mut estate = InMemoryEstate::new(|_| {});
        let (client, mut member) = estate.ask_first().await;
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
        let estate = InMemoryEstate::new(|_| {});
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
        let mut estate = InMemoryEstate::new(|setup| setup.upstream.connections_max = 1);
        let (mut first, mut member) = estate.ask_first().await;
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
        let mut estate = InMemoryEstate::new(|_| {});
        let (mut client, mut member) = estate.ask_first().await;
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
        let estate = InMemoryEstate::new(|_| {});
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
        let mut estate = InMemoryEstate::new(|setup| setup.exchange.body_buffer_bytes_max = 4);
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

/// A file for which the compiler takes five seconds.
const SLOW: &str = "/puppet/v3/file_content/modules/m/slow";

/// A compiler whose own queue is full when it gets the first report. It sends every other response in two pieces.
async fn serve(mut compiler: TestMember) {
    const OVERLOADED: &str =
        "HTTP/1.1 503 X\r\nX-Puppet-Version: 8\r\nRetry-After: 9\r\nContent-Length: 4\r\n\r\nfull";
    const BEGUN: &str = "HTTP/1.1 200 OK\r\nX-Puppet-Version: 8\r\nContent-Length: 6\r\n\r\nans";
    let mut reports = 0;
    loop {
        let mut wire = compiler.accept().await;
        // Connections are served one at a time, each until its other end has gone.
        while let Some(head) = wire.head().await {
            let is_report = head.starts_with("put");
            if is_report && wire.try_text(6).await.is_none() {
                break;
            }
            reports += u32::from(is_report);
            if head.contains("slow") {
                pass(5).await;
            }
            let sent = if is_report && reports == 1 {
                wire.try_send(OVERLOADED).await
            } else {
                let begun = wire.try_send(BEGUN).await;
                pass(1).await;
                begun.and(wire.try_send("wer").await)
            };
            if sent.is_err() {
                break;
            }
        }
    }
}

/// Sends a report in two pieces and reads the response. `None`: the other side closed before.
async fn report(client: &mut Wire) -> Option<String> {
    let head = format!("PUT {REPORT} HTTP/1.1\r\nHost: puppet\r\nContent-Length: 6\r\n\r\n");
    for piece in [&*head, "rep", "ort"] {
        client.try_send(piece).await.ok()?;
        pass(1).await;
    }
    client.head().await?;
    client.try_text(6).await
}

/// Sends a report in two pieces on an HTTP/2 stream and reads the response. `None`: the stream ended before.
async fn report_on(mut requests: SendRequest<Bytes>) -> Option<String> {
    let request = Request::put(format!("https://puppet{REPORT}"));
    let request = request.body(()).expect("a request");
    let (response, mut body) = requests.send_request(request, false).ok()?;
    for (piece, last) in [("rep", false), ("ort", true)] {
        pass(1).await;
        body.send_data(Bytes::from_static(piece.as_bytes()), last)
            .ok()?;
    }
    let mut body = response.await.ok()?.into_body();
    let mut text = Vec::new();
    while let Some(piece) = body.data().await {
        text.extend_from_slice(&piece.ok()?);
    }
    String::from_utf8(text).ok()
}

/// An estate whose compiler works for another client. The client of the report also has a second connection, which keeps its
/// account in the pool alive.
async fn busy_estate() -> (InMemoryEstate, [Wire; 2]) {
    let mut estate = InMemoryEstate::new(|setup| setup.upstream.connections_max = 1);
    spawn_local(serve(estate.compilers.remove(0)));
    let mut same = estate.connect();
    same.get(FILE).await;
    assert_eq!(same.response().await.body, "answer");
    let (mut other, _) = estate.connect_as(Some(&trusted().web02));
    other.get(SLOW).await;
    settle().await;
    (estate, [same, other])
}

/// Asserts that nothing is held for a client whose report was dropped after this many turns or was answered.
async fn assert_nothing_held(
    estate: InMemoryEstate,
    [mut same, mut other]: [Wire; 2],
    turns: u32,
    answer: Option<&str>,
) {
    other.response().await;
    settle().await;
    let pool = Arc::clone(&estate.shared.current.load().pools[0]);
    let member = &pool.pool.entries()[0].member;
    for _ in 0..2 {
        assert_eq!(member.in_flight(), 0, "turn {turns}");
        assert_eq!((member.working(), member.expected_ms()), (0, 0));
        assert_eq!(pool.admission.state().waiting, [0; 4]);
        assert_eq!(estate.shared.body_buffer_bytes(), 0);
        // Neither the client's account nor the compiler still counts the report.
        same.get(FILE).await;
        assert_eq!(same.response().await.body, "answer", "turn {turns}");
        settle().await;
    }
    let records = estate.records().await;
    let mut reports = records.iter().filter(|record| record["method"] == "PUT");
    if let Some(answer) = answer {
        assert_eq!(answer, "answer");
        assert_eq!(reports.next().expect("a record")["attempts"], 2);
    }
}

// Each report waits for its body, for the only compiler, for the end of its pause and for its response.

#[test]
fn a_connection_that_is_dropped_at_any_point_holds_nothing_any_more() {
    let dropped_after = |turns| async move {
        let (mut estate, clients) = busy_estate().await;
        let left = estate.drop_after(turns);
        let answer = report(&mut estate.connect()).await;
        estate.drop_after(u32::MAX);
        let dropped = left.get() == 0;
        let whole = answer.as_deref().filter(|_| !dropped);
        assert!(dropped || whole.is_some());
        assert_nothing_held(estate, clients, turns, whole).await;
        dropped
    };
    let turns = (0..).take_while(|turns| run(dropped_after(*turns))).count();
    assert!(turns > 12, "{turns}");
}

#[test]
fn a_stream_that_is_reset_at_any_point_holds_nothing_any_more() {
    const TURN: Duration = Duration::from_millis(250);
    let reset_after = |turns| async move {
        let (estate, clients) = busy_estate().await;
        let (requests, _driven) = estate.connect_http2(1 << 16).await;
        let ended = timeout(TURN * turns, report_on(requests)).await;
        let answer = ended.as_ref().ok().map(|answer| answer.as_deref());
        let answer = answer.map(|answer| answer.expect("an answer"));
        assert_nothing_held(estate, clients, turns, answer).await;
        ended.is_err()
    };
    let turns = (0..).take_while(|turns| run(reset_after(*turns))).count();
    assert!(turns > 20, "{turns}");
}
