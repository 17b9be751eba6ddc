//! Time limits on connections and heads of HTTP/2, and the end of a connection.

use std::time::Duration;

use serde_json::Value;
use testkit::{
    ClientError, Protocol, Reply, StandIn, TestConnection,
    http2::{PREFACE, StreamOutcome, flag, frame, kind},
    wait_until,
};

use crate::support::{Estate, LIMIT, http2::*};

#[test]
fn streams_in_flight_at_a_crl_swap_are_answered_and_the_next_is_refused_with_the_reason() {
    let estate = Estate::builder().one_agent_for_many().start();
    let bad = estate.ca.agent("web01");
    let mut connection = connect(&estate, &bad);
    estate.compilers.iter().for_each(StandIn::hold);
    for _ in 0..3 {
        connection.send("GET", CATALOG, &[], b"").expect("sends");
    }
    let asked = wait_until(LIMIT, || (estate.far_end().len() == 3).then_some(()));
    assert!(asked.is_some());
    estate.ca.revoke(&bad);
    estate.proxy.swap_crl();
    estate.proxy.metrics();
    // A stream is in flight, so the connection detects the new CRL with the next stream.
    connection.send("GET", FILE, &[], b"").expect("sends");
    let refused = connection.outcome(7);
    assert_eq!(refused, StreamOutcome::Answered(403));
    estate.compilers.iter().for_each(StandIn::release);
    for _ in 0..3 {
        assert_eq!(connection.read_response().expect("an answer").status, 200);
    }
    assert!(connection.is_last());
    assert!(connection.is_closed_within(LIMIT));
    let record = estate.wait_for_record(|record| record["status"] == 403);
    assert_eq!(record["verdict"], "FAILED:revoked");
}

/// The client reads nothing, so it never acknowledges the ping that follows GOAWAY.
#[test]
fn a_client_that_ignores_goaway_can_start_no_stream_after_the_timeout() {
    let estate = Estate::builder().compilers(1).start();
    let bad = estate.ca.agent("web01");
    let mut deaf = connect(&estate, &bad);
    estate.compilers[0].hold();
    deaf.send("GET", CATALOG, &[], b"").expect("sends");
    estate.compilers[0].wait_for_request(1, LIMIT);
    estate.ca.revoke(&bad);
    estate.proxy.swap_crl();
    let refused = |record: &Value| record["status"] == 403;
    deaf.send("GET", FILE, &[], b"").expect("sends");
    estate.wait_for_record(refused);
    // The first request stays in flight. After GOAWAY, the client has one second for a round trip.
    for _ in 0..8 {
        std::thread::sleep(Duration::from_millis(250));
        deaf.send("GET", FILE, &[], b"").expect("sends");
    }
    let last = 2 * 10 - 1;
    assert_eq!(
        deaf.outcome(last),
        StreamOutcome::Reset(7),
        "REFUSED_STREAM"
    );
    estate.compilers[0].release();
    assert_eq!(deaf.outcome(1), StreamOutcome::Answered(200));
}

#[test]
fn a_draining_proxy_sends_goaway_and_finishes_the_open_streams() {
    let estate = Estate::builder()
        .one_agent_for_many()
        .top("drain_grace = \"20s\"")
        .start();
    let mut idle = connect(&estate, &estate.ca.agent("web02"));
    let mut busy = connect(&estate, &estate.ca.agent("web01"));
    idle.settle().expect("it is open");
    estate.compilers.iter().for_each(StandIn::hold);
    busy.send("GET", CATALOG, &[], b"").expect("sends");
    let asked = wait_until(LIMIT, || (estate.far_end().len() == 1).then_some(()));
    assert!(asked.is_some());
    estate.proxy.terminate();
    assert!(idle.is_closed_within(LIMIT) && idle.is_last());
    estate.compilers.iter().for_each(StandIn::release);
    let answer = busy.read_response().expect("an answer");
    assert_eq!((answer.status, answer.says_close()), (200, true));
    assert!(busy.is_closed_within(LIMIT));
    let ended = estate.proxy.wait_for_end(LIMIT);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

/// The client never acknowledges pings and never closes.
#[test]
fn pings_do_not_extend_the_idle_timeout() {
    let (estate, mut connection) = begin(with_listener("idle_timeout = \"5s\""));
    assert_eq!(connection.get(CATALOG).status, 200);
    let ended = wait_until(LIMIT, || {
        let pinged = connection.send_frame(kind::PING, 0, 0, b"12345678");
        (pinged.is_err() || connection.settle().is_err() || connection.is_last()).then_some(())
    });
    assert!(ended.is_some(), "pings are no requests");
    wait_for_limit(&estate, "idle_timeout", 1.0);
}

/// The client negotiates HTTP/2 and sends nothing.
#[test]
fn a_connection_on_which_http2_never_begins_is_closed_after_the_idle_timeout() {
    let estate = with_listener("idle_timeout = \"5s\"").start();
    let client = estate.agent("web01");
    let mut mute = client.protocol(Protocol::Http2).agree().expect("agrees");
    assert!(ends(&mut mute), "it stands still");
    wait_for_limit(&estate, "idle_timeout", 1.0);
}

const HALF_HEADS: &str = "head_timeout = \"1s\"\nidle_timeout = \"10m\"";

#[test]
fn the_time_limit_of_a_head_starts_at_its_first_byte() {
    let (estate, mut connection) = begin(with_listener(HALF_HEADS));
    assert_eq!(connection.get(CATALOG).status, 200);
    let stream = connection.reserve_stream();
    // The frame has no END_HEADERS, but no further frame follows.
    connection
        .send_frame(kind::HEADERS, flag::END_STREAM, stream, &[0x82])
        .expect("sends");
    let outcome = connection.outcome(stream);
    assert_eq!(outcome, StreamOutcome::GoneAway(ENHANCE_YOUR_CALM));
    wait_for_limit(&estate, "head_timeout", 1.0);
    wait_for_reason(&estate, "head-timeout");
    // Sending a single byte now and then does not extend the time limit.
    let mut slow = connect(&estate, &estate.ca.agent("web01"));
    slow.settle().expect("it has nothing else to say");
    let stream = slow.reserve_stream();
    let flags = flag::END_STREAM | flag::END_HEADERS;
    let frame = frame(kind::HEADERS, flags, stream, &[0; 1000]);
    let ended = frame.iter().any(|byte| {
        slow.send_bytes(&[*byte]).is_err() || slow.is_closed_within(Duration::from_millis(100))
    });
    assert!(ended && slow.is_last());
    wait_for_limit(&estate, "head_timeout", 2.0);
    let records = estate.wait_for_records(3);
    assert_eq!(records.len(), 3, "{records:#?}");
}

#[test]
fn the_http2_preface_has_the_time_limit_of_a_head() {
    let estate = with_listener(HALF_HEADS).start();
    let client = estate.agent("web01");
    let client = client.protocol(Protocol::Http2);
    for said in [&PREFACE[..PREFACE.len() / 2], PREFACE] {
        let mut connection = client.agree().expect("shakes hands");
        connection.send_bytes(said).expect("sends");
        assert!(ends(&mut connection), "it stands still");
    }
    wait_for_limit(&estate, "head_timeout", 2.0);
    wait_for_reason(&estate, "head-timeout");
    assert_eq!(estate.wait_for_records(2).len(), 2);
}

#[test]
fn a_head_has_its_time_limit_while_another_request_is_answered() {
    let (estate, mut connection) = begin(with_listener(HALF_HEADS));
    estate.compilers.iter().for_each(StandIn::hold);
    let busy = connection.open(&get(CATALOG), true).expect("opens");
    connection.settle().expect("it is open");
    let half = connection.reserve_stream();
    connection
        .send_frame(kind::HEADERS, flag::END_STREAM, half, &[0x82])
        .expect("sends");
    let outcome = connection.outcome(busy);
    assert_eq!(outcome, StreamOutcome::GoneAway(ENHANCE_YOUR_CALM));
    let records = estate.wait_for_records(2);
    let late = |record: &&Value| record["reason"] == "head-timeout";
    assert_eq!(records.iter().filter(late).count(), 2, "{records:#?}");
    assert_eq!(limit(&estate, "head_timeout"), 1.0);
    estate.compilers.iter().for_each(StandIn::release);
}

#[test]
fn an_answered_request_leaves_one_record_whatever_its_response() {
    let estate = Estate::builder().one_agent_for_many().start();
    for member in &estate.compilers {
        member.answer(|request| {
            if request.target.contains("none") {
                Some(Reply::status(204))
            } else {
                Some(Reply::status(200).body(b"short"))
            }
        });
    }
    let mut connection = connect(&estate, &estate.ca.agent("web01"));
    let none = "/puppet/v3/file_content/modules/none?environment=production";
    for _ in 0..20 {
        assert_eq!(connection.get(FILE).status, 200);
        assert_eq!(connection.get(none).status, 204);
        assert_eq!(connection.get("/nowhere").status, 404);
        assert_eq!(
            connection.request("HEAD", FILE, &[], b"").status,
            200,
            "HEAD"
        );
    }
    let records = estate.wait_for_records(80);
    let others: Vec<_> = records
        .iter()
        .filter(|record| !["200", "204", "404"].contains(&record["status"].to_string().as_str()))
        .collect();
    assert!(others.is_empty(), "{others:#?}");
    assert_eq!(records.len(), 80);
}

/// Each response is small enough for the member to finish at once. Together they exceed the socket buffers.
#[test]
fn responses_to_a_slow_client_have_the_full_time_when_the_proxy_stops() {
    let estate = Estate::builder()
        .one_agent_for_many()
        .listener("streams_max = 400")
        .top("drain_grace = \"60s\"")
        .start();
    for member in &estate.compilers {
        member.answer(|request| {
            let file = request.target.contains("file_content");
            file.then(|| Reply::status(200).body(&[b'x'; 60_000]))
        });
    }
    let client = estate
        .client(&estate.ca.agent("web01"))
        .protocol(Protocol::Http2);
    let mut slow = client.connect().expect("connects");
    slow.send_frame(kind::WINDOW_UPDATE, 0, 0, &(64_u32 << 20).to_be_bytes())
        .expect("sends");
    let streams: Vec<_> = (0..400)
        .map(|_| slow.open(&get(FILE), true).expect("opens"))
        .collect();
    estate.wait_for_records(400);
    let mut mute = client.agree().expect("shakes hands");
    estate.proxy.terminate();
    // The idle timeout of the waiting clients has passed.
    assert!(ends(&mut mute));
    for stream in streams {
        assert_eq!(
            slow.outcome(stream),
            StreamOutcome::Answered(200),
            "stream {stream}"
        );
    }
    drop(slow);
    assert_eq!(estate.proxy.wait_for_end(LIMIT).code, Some(0));
}

/// Whether the peer closes a connection, whatever it sends before.
fn ends(connection: &mut TestConnection) -> bool {
    let mut bytes = [0; 1024];
    loop {
        match connection.read_some(&mut bytes) {
            Ok(1..) => {}
            end => return !matches!(end, Err(ClientError::Timeout)),
        }
    }
}
