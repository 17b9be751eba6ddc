//! Attacks with frames of HTTP/2 on other servers, each with its number.

use testkit::{
    ClientError, Reply, StandIn, TestConnection,
    http2::{StreamOutcome, flag, frame, kind},
};

use crate::support::{Estate, http2::*, paths::REPORT};

// CVE-2023-44487: rapid reset.

/// Opens streams and resets each, with the frames of `after` in between, until the peer closes; returns the number of
/// streams.
fn take_back(
    connection: &mut TestConnection,
    after: impl Fn(&mut TestConnection) -> Result<(), ClientError>,
) -> usize {
    let taken_back = |_: &usize| {
        let opened = connection.open(&get(FILE), true);
        let ended = opened.and_then(|stream| {
            after(connection)?;
            connection.send_frame(kind::RST_STREAM, 0, stream, &CANCEL.to_be_bytes())
        });
        ended.is_ok() && !connection.is_last()
    };
    (0..10_000).take_while(taken_back).count()
}

#[test]
fn cve_2023_44487_requests_reset_at_once_end_the_connection() {
    let (estate, mut connection) = begin(Estate::builder());
    estate.compilers.iter().for_each(StandIn::hold);
    let sent = take_back(&mut connection, |_| Ok(()));
    assert_enhance_your_calm(&mut connection);
    estate.compilers.iter().for_each(StandIn::release);
    let asked = estate.far_end().len();
    assert!(asked < 200, "{asked} of {sent} reached a member");
    assert_others_go_on(&estate);
}

#[test]
fn cve_2023_44487_requests_reset_one_by_one_end_the_connection() {
    let (estate, mut connection) = begin(Estate::builder());
    estate.compilers.iter().for_each(StandIn::hold);
    let sent = take_back(&mut connection, TestConnection::settle);
    assert!((100..=150).contains(&sent), "{sent}");
    wait_for_limit(&estate, "resets", 1.0);
    wait_for_reason(&estate, "too-many-resets");
    estate.compilers.iter().for_each(StandIn::release);
    assert_others_go_on(&estate);
}

// CVE-2025-8671: the client makes the server reset its own streams, each by another kind of error.

#[test]
fn cve_2025_8671_streams_reset_because_of_client_errors_end_the_connection() {
    let (estate, mut connection) = begin(Estate::builder());
    estate.compilers.iter().for_each(StandIn::hold);
    let too_much = 0x7fff_ffff_u32.to_be_bytes();
    let mistaken = |_: &usize| {
        let opened = connection.open(&get(FILE), true);
        let ended = opened.and_then(|stream| {
            connection.settle()?;
            connection.send_frame(kind::WINDOW_UPDATE, 0, stream, &too_much)
        });
        ended.is_ok() && !connection.is_last()
    };
    let sent = (0..10_000).take_while(mistaken).count();
    assert!((100..=150).contains(&sent), "{sent}");
    assert_enhance_your_calm(&mut connection);
    estate.compilers.iter().for_each(StandIn::release);
    let asked = estate.far_end().len();
    assert!(asked < 200, "{asked} of {sent} reached a member");
    assert_others_go_on(&estate);
}

// CVE-2024-27316: an endless head.

#[test]
fn cve_2024_27316_a_flood_of_continuations_ends_the_connection() {
    let (estate, mut connection) = begin(Estate::builder());
    let stream = connection.reserve_stream();
    let before = estate.proxy.memory_peak_kib();
    let _ = connection.send_frame(kind::HEADERS, flag::END_STREAM, stream, b"");
    let mut field = vec![0, 1, b'x', 0x7f, 0x81, 0x7e];
    field.extend(vec![b'v'; 127 + 1 + 126 * 128]);
    let mut sent = 0;
    while sent < 2000
        && connection
            .send_frame(kind::CONTINUATION, 0, stream, &field[..16_000])
            .is_ok()
    {
        sent += 1;
        if sent % 50 == 0 && connection.settle().is_err() {
            break;
        }
        if connection.is_last() {
            break;
        }
    }
    let outcome = connection.outcome(stream);
    assert!(
        matches!(outcome, StreamOutcome::GoneAway(code) if code != NO_ERROR),
        "{outcome:?} after {sent}"
    );
    assert_grown_less(&estate, before, 4096);
    wait_for_reason(&estate, "bad-frames");
    assert_others_go_on(&estate);
}

// CVE-2019-9511, -9517: responses for which the client opens no window.

#[test]
fn cve_2019_9517_responses_without_a_window_take_no_memory_and_time_out() {
    let estate = with_listener("write_timeout = \"1s\"").start();
    for member in &estate.compilers {
        member.answer(|request| {
            let large = request.target.contains("large");
            large.then(|| Reply::stream(64 << 20))
        });
    }
    let mut connection = connect(&estate, &estate.ca.agent("web01"));
    assert_eq!(connection.get(CATALOG).status, 200);
    // No stream may send a byte (SETTINGS_INITIAL_WINDOW_SIZE = 0).
    connection
        .send_frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])
        .expect("sends");
    let before = estate.proxy.memory_peak_kib();
    let target = "/puppet/v3/file_content/modules/large?environment=production";
    let streams: Vec<_> = (0..50)
        .map(|_| connection.open(&get(target), true).expect("opens"))
        .collect();
    for stream in streams {
        assert_eq!(connection.outcome(stream), StreamOutcome::Reset(CANCEL));
    }
    assert_grown_less(&estate, before, 50 * 1024);
    wait_for_limit(&estate, "write_timeout", 50.0);
    let record = estate.wait_for_record(|record| record["reason"] == "write-timeout");
    assert_eq!(record["ended_by"], "proxy");
}

// CVE-2019-9512, -9513, -9515, -9518 and similar: frames that are cheap for the sender.

/// Sends the frames of `fill` and then a flood. Asserts that the flood uses no memory, ends its connection with this
/// reason in a record, and does not affect other clients.
#[track_caller]
fn assert_flood_ends(frame: &[u8], reason: &str, fill: impl Fn(&mut TestConnection)) {
    let (estate, mut connection) = begin(Estate::builder());
    let mut other = connect(&estate, &estate.ca.agent("web01"));
    assert_eq!(other.get(CATALOG).status, 200);
    fill(&mut connection);
    let before = estate.proxy.memory_peak_kib();
    let flood = frame.repeat((64 << 10) / frame.len());
    for _ in 0..20 {
        if connection.send_bytes(&flood).is_err() {
            break;
        }
        assert_eq!(other.get(CATALOG).status, 200);
    }
    assert_enhance_your_calm(&mut connection);
    wait_for_reason(&estate, reason);
    let ours = f64::from(u8::from(reason == "too-many-frames"));
    assert_eq!(limit(&estate, "frames"), ours);
    assert_grown_less(&estate, before, 8192);
    assert_eq!(other.get(CATALOG).status, 200);
}

#[track_caller]
fn assert_frames_end(frame: &[u8]) {
    assert_flood_ends(frame, "too-many-frames", |_| ());
}

#[test]
fn cve_2019_9512_a_flood_of_pings_ends_the_connection() {
    assert_frames_end(&frame(kind::PING, 0, 0, b"12345678"));
}

#[test]
fn cve_2019_9515_a_flood_of_settings_ends_the_connection() {
    assert_frames_end(&frame(kind::SETTINGS, 0, 0, &[]));
}

#[test]
fn cve_2019_9513_a_flood_of_priorities_ends_the_connection() {
    assert_frames_end(&frame(kind::PRIORITY, 0, 9, &[0, 0, 0, 3, 200]));
}

#[test]
fn cve_2019_9518_a_flood_of_empty_data_ends_the_connection() {
    let data = frame(kind::DATA, 0, 1, &[]);
    // The library h2 counts empty DATA frames.
    assert_flood_ends(&data, "bad-frames", |connection| {
        connection.open(&put(REPORT), false).expect("opens");
    });
}

#[test]
fn floods_of_meaningless_frames_end_the_connection() {
    let room = frame(kind::WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes());
    let unknown = frame(0xbe, 0, 0, &[]);
    for nothing in [room, unknown] {
        assert_frames_end(&nothing);
    }
    let reset = frame(kind::RST_STREAM, 0, 1, &CANCEL.to_be_bytes());
    assert_flood_ends(&reset, "too-many-frames", |connection| {
        assert_eq!(connection.get(FILE).status, 200);
    });
}

#[test]
fn pings_and_window_updates_for_large_responses_are_not_a_flood() {
    let (estate, mut connection) = begin(Estate::builder());
    for member in &estate.compilers {
        member.answer(|request| {
            let large = request.target.contains("file_content");
            large.then(|| Reply::stream(32 << 20))
        });
    }
    for _ in 0..500 {
        connection.settle().expect("a ping is answered");
    }
    // For this response the client sends two frames for each received one, which makes thousands.
    let answer = connection.get(FILE);
    assert_eq!((answer.status, answer.body.length), (200, 32 << 20));
    for _ in 0..500 {
        assert_eq!(connection.get(CATALOG).status, 200);
        connection.settle().expect("a ping is answered");
        connection.settle().expect("a ping is answered");
    }
    assert_eq!(limit(&estate, "frames"), 0.0);
}

// CVE-2019-9514: malformed requests, each of which is answered by a reset.

#[test]
fn cve_2019_9514_malformed_requests_end_the_connection() {
    let (estate, mut connection) = begin(Estate::builder());
    let mut fields = get(FILE);
    fields.push(("connection".to_owned(), "close".to_owned()));
    let mut sent = 0;
    while sent < 10_000 && connection.open(&fields, true).is_ok() {
        sent += 1;
    }
    assert_enhance_your_calm(&mut connection);
    assert_eq!(estate.far_end().len(), 0);
    assert_others_go_on(&estate);
}

// CVE-2019-9516: fields without a name.

#[test]
fn cve_2019_9516_fields_without_a_name_are_refused() {
    let (estate, mut connection) = begin(Estate::builder());
    let mut fields = get(FILE);
    fields.extend(vec![(String::new(), String::new()); 1000]);
    let stream = connection.open(&fields, true).expect("opens");
    let outcome = connection.outcome(stream);
    assert!(
        matches!(
            outcome,
            StreamOutcome::Reset(_) | StreamOutcome::GoneAway(_)
        ),
        "{outcome:?}"
    );
    assert_eq!(estate.far_end().len(), 0);
}

// CVE-2016-6581: a small block that refers to a large field again and again.

#[test]
fn cve_2016_6581_a_header_block_that_expands_greatly_takes_no_memory() {
    let (estate, mut connection) = begin(Estate::builder());
    let stream = connection.reserve_stream();
    // :method GET, :scheme https, :path /, a literal of 4,000 bytes that is added to the table, and 12,000 references
    // to it.
    let mut block = vec![0x82, 0x87, 0x84, 0x40, 1, b'x', 0x7f, 0xa1, 0x1e];
    block.extend(vec![b'v'; 127 + 0x21 + 0x1e * 128]);
    block.extend(vec![0xbe; 12_000]);
    let before = estate.proxy.memory_peak_kib();
    let flags = flag::END_HEADERS | flag::END_STREAM;
    connection
        .send_frame(kind::HEADERS, flags, stream, &block)
        .expect("sends");
    let outcome = connection.outcome(stream);
    assert!(
        matches!(
            outcome,
            StreamOutcome::Answered(431) | StreamOutcome::GoneAway(ENHANCE_YOUR_CALM)
        ),
        "{outcome:?}"
    );
    assert_grown_less(&estate, before, 4096);
    assert_others_go_on(&estate);
}
