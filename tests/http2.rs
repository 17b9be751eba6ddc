//! HTTP/2 between clients and the proxy: negotiation, the same promises as for HTTP/1.1, and attacks that only its
//! frames allow.

use testkit::{
    Protocol, Recorded, Reply, ReplyGate, StandIn, Tool,
    http2::{StreamOutcome, flag, kind, setting},
    wait_until,
};

use crate::support::{
    Estate, LIMIT, assert_identity, assert_refused, certificate_request, http2::*, paths::REPORT,
};

#[test]
fn http2_is_used_for_clients_that_offer_it_and_not_where_it_is_off() {
    let estate = Estate::builder().one_agent_for_many().start();
    let agent = estate.ca.agent("web01");
    let answer = estate.client(&agent).protocol(Protocol::Http2).get(CATALOG);
    assert_eq!((answer.status, answer.version.as_str()), (200, "HTTP/2"));
    let request = estate.only_request();
    assert_identity(&request, "SUCCESS", Some("CN=web01"));
    let host = request.only("host").to_owned();
    assert!(host.starts_with("puppet:"), "{host}");
    assert!(
        request
            .raw_text()
            .starts_with(&format!("GET {CATALOG} HTTP/1.1\r\n"))
    );
    let record = estate.wait_for_record(|record| record["status"] == 200);
    assert_eq!(record["http_version"], "HTTP/2");
    let plain = estate.client(&agent).protocol(Protocol::Http1).get(CATALOG);
    assert_eq!((plain.status, plain.version.as_str()), (200, "HTTP/1.1"));
}

#[test]
fn http2_is_a_setting_of_the_listener() {
    let estate = with_listener("http2 = false").start();
    let agent = estate.ca.agent("web01");
    let offered = estate.client(&agent).protocol(Protocol::Http2).connect();
    let alert = offered.err().and_then(|error| error.alert());
    assert_eq!(alert, Some(rustls::AlertDescription::NoApplicationProtocol));
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
}

#[test]
fn streams_beyond_streams_max_are_refused_and_may_be_retried() {
    let (estate, mut connection) = begin(with_listener("streams_max = 3"));
    connection.settle().expect("the limit is announced");
    estate.compilers.iter().for_each(StandIn::hold);
    let streams: Vec<_> = (0..4)
        .map(|_| connection.open(&get(FILE), true).expect("opens"))
        .collect();
    assert_eq!(
        connection.outcome(streams[3]),
        StreamOutcome::Reset(7),
        "REFUSED_STREAM"
    );
    estate.compilers.iter().for_each(StandIn::release);
    for stream in &streams[..3] {
        assert_eq!(connection.outcome(*stream), StreamOutcome::Answered(200));
    }
    assert_eq!(connection.get(FILE).status, 200);
    assert_eq!(estate.far_end().len(), 4);
}

#[test]
fn many_requests_share_a_connection_and_each_gets_its_own_response() {
    let (estate, mut connection) = begin(Estate::builder());
    for member in &estate.compilers {
        member.answer(|request| Some(Reply::status(200).body(request.target.as_bytes())));
    }
    let targets: Vec<_> = (0..50)
        .map(|n| format!("/puppet/v3/file_content/modules/m/{n}?environment=production"))
        .collect();
    for target in &targets {
        connection.send("GET", target, &[], b"").expect("sends");
    }
    for target in &targets {
        assert_eq!(
            connection.read_response().expect("an answer").text(),
            *target
        );
    }
}

#[test]
fn bodies_pass_in_both_directions_and_a_wrong_length_resets_the_stream() {
    let (estate, mut connection) = begin(Estate::builder());
    let body = vec![b'x'; 300_000];
    let answer = connection.request("PUT", REPORT, &[], &body);
    assert_eq!(answer.status, 200);
    assert_eq!(estate.only_request().body.length, 300_000);
    estate.forget();
    connection
        .send_chunked("PUT", REPORT, &[], &[b"ab", b"cd"])
        .expect("sends");
    assert_eq!(connection.read_response().expect("an answer").status, 200);
    let request = estate.only_request();
    assert_eq!(request.text(), "abcd");
    for (said, sent) in [("5", &b"abc"[..]), ("2", b"abc")] {
        estate.forget();
        let mut fields = put(REPORT);
        fields.push(("content-length".to_owned(), said.to_owned()));
        let stream = connection.open(&fields, false).expect("opens");
        connection
            .send_frame(kind::DATA, flag::END_STREAM, stream, sent)
            .expect("sends");
        assert_eq!(
            connection.outcome(stream),
            StreamOutcome::Reset(PROTOCOL_ERROR)
        );
    }
    let record = estate.wait_for_record(|record| record["reason"] == "body-broken");
    assert_eq!(record["http_version"], "HTTP/2");
    assert_eq!(connection.get(CATALOG).status, 200);
}

#[test]
fn requests_that_http2_calls_malformed_never_reach_a_member() {
    let estate = Estate::builder().one_agent_for_many().start();
    let agent = estate.ca.agent("web01");
    let with = |name: &str, value: &str| {
        let mut fields = get(FILE);
        fields.push((name.to_owned(), value.to_owned()));
        fields
    };
    let replaced = |index: usize, value: &str| {
        let mut fields = get(FILE);
        fields[index].1 = value.to_owned();
        fields
    };
    let without = |index: usize| {
        let mut fields = get(FILE);
        fields.remove(index);
        fields
    };
    let doubled = |index: usize| {
        let mut fields = get(FILE);
        fields.push(fields[index].clone());
        fields.rotate_right(1);
        fields
    };
    let late = {
        let mut fields = with("x-first", "1");
        fields.rotate_right(1);
        fields
    };
    for (what, fields) in [
        ("transfer-encoding", with("transfer-encoding", "chunked")),
        ("connection", with("connection", "close")),
        ("connection naming", with("connection", "x-client-verify")),
        ("keep-alive", with("keep-alive", "5")),
        ("proxy-connection", with("proxy-connection", "close")),
        ("upgrade", with("upgrade", "websocket")),
        ("te", with("te", "gzip")),
        ("upper case", with("X-Client-Verify", "SUCCESS")),
        (
            "a line's end in a value",
            with("x-a", "1\r\nx-client-verify: SUCCESS"),
        ),
        ("NUL in a value", with("x-a", "1\0")),
        ("a line's end in a name", with("x-a: 1\r\nx-b", "1")),
        ("space in a name", with("x a", "1")),
        ("white space before a value", with("x-a", " 1")),
        ("white space after a value", with("x-a", "1\t")),
        ("another host", with("host", "other")),
        ("user in the authority", replaced(2, "user@puppet")),
        ("empty authority", replaced(2, "")),
        (
            "space in the path",
            replaced(3, "/puppet/v3/x HTTP/1.1\r\nX: y"),
        ),
        ("line's end in the path", replaced(3, "/puppet/v3/x\r\n")),
        ("no path", without(3)),
        ("empty path", replaced(3, "")),
        ("a path without a slash", replaced(3, "puppet/v3/x")),
        (
            "an absolute URL as path",
            replaced(3, "https://puppet/puppet/v3/x"),
        ),
        ("no method", without(0)),
        ("no scheme", without(1)),
        ("no authority", without(2)),
        ("another scheme", replaced(1, "ftp")),
        ("method twice", doubled(0)),
        ("path twice", doubled(3)),
        ("a pseudo field that is none", with(":verify", "SUCCESS")),
        ("an answer's pseudo field", with(":status", "200")),
        ("a pseudo field after the others", late),
        (
            "two lengths",
            [
                with("content-length", "0"),
                vec![("content-length".to_owned(), "5".to_owned())],
            ]
            .concat(),
        ),
        ("a length that is none", with("content-length", "+0")),
        ("a method with a space", replaced(0, "GET /x")),
    ] {
        let mut connection = connect(&estate, &agent);
        let stream = connection.open(&fields, true).expect("opens");
        let outcome = connection.outcome(stream);
        assert!(
            matches!(
                outcome,
                StreamOutcome::Answered(400)
                    | StreamOutcome::Reset(PROTOCOL_ERROR)
                    | StreamOutcome::GoneAway(_)
            ),
            "{what}: {outcome:?}"
        );
    }
    assert_eq!(estate.far_end().len(), 0, "{:#?}", estate.far_end());
}

#[test]
fn a_head_that_http2_refuses_leaves_a_record_too() {
    let (estate, mut connection) = begin(with_listener("head_max = \"16KiB\""));
    let mut malformed = get(FILE);
    malformed.push(("connection".to_owned(), "close".to_owned()));
    let stream = connection.open(&malformed, true).expect("opens");
    assert_eq!(
        connection.outcome(stream),
        StreamOutcome::Reset(PROTOCOL_ERROR)
    );
    let record = estate.wait_for_record(|record| record["reason"] == "bad-head");
    assert_eq!(record["status"], 400);
    assert_eq!(record["certname"], "web01");
    assert_eq!(record["http_version"], "HTTP/2");
    // Larger than head_max, and larger than a head that still gets a response.
    for (bytes, text) in [(17_000, true), (40_000, false)] {
        let large = "x".repeat(bytes);
        let answer = connection.request("GET", FILE, &[("x-large", &large)], b"");
        assert_eq!(answer.status, 431, "{bytes}");
        assert_eq!(
            answer.text().contains("head_max"),
            text,
            "{bytes}: {answer:?}"
        );
    }
    let many: Vec<_> = (0..101).map(|n| (format!("x-{n}"), "1")).collect();
    let many: Vec<_> = many
        .iter()
        .map(|(name, value)| (name.as_str(), *value))
        .collect();
    assert_refused(
        &connection.request("GET", FILE, &many, b""),
        431,
        &["100 headers"],
    );
    wait_for_limit(&estate, "head", 3.0);
    assert_eq!(estate.far_end().len(), 0);
    assert_eq!(connection.get(CATALOG).status, 200);
}

#[test]
fn cookies_are_joined_and_trailers_and_connection_fields_are_not_forwarded() {
    let estate = Estate::builder().one_agent_for_many().start();
    for member in &estate.compilers {
        member.answer(|_| {
            let reply = Reply::status(200)
                .header("Connection", "x-mine")
                .header("X-Mine", "1")
                .header("Keep-Alive", "timeout=5")
                .header("Upgrade", "h2c")
                .chunked(&[b"hello"])
                .trailer("X-Client-DN", "CN=x");
            Some(reply)
        });
    }
    let mut connection = connect(&estate, &estate.ca.agent("web01"));
    let mut fields = put(REPORT);
    for (name, value) in [
        ("cookie", "a=1"),
        ("cookie", "b=2"),
        ("te", "trailers"),
        ("cookie", "c=3"),
    ] {
        fields.push((name.to_owned(), value.to_owned()));
    }
    let stream = connection.open(&fields, false).expect("opens");
    connection
        .send_frame(kind::DATA, 0, stream, b"body")
        .expect("sends");
    let trailers = [0, 15]
        .iter()
        .chain(b"x-client-verify")
        .chain(&[7])
        .chain(b"SUCCESS");
    let trailers: Vec<u8> = trailers.copied().collect();
    let flags = flag::END_HEADERS | flag::END_STREAM;
    connection
        .send_frame(kind::HEADERS, flags, stream, &trailers)
        .expect("sends");
    let answer = connection.read_response().expect("an answer");
    assert_eq!((answer.status, answer.text().as_str()), (200, "hello"));
    assert!(answer.body.trailers.0.is_empty(), "{answer:?}");
    assert!(answer.headers.get("x-mine").is_none(), "{answer:?}");
    let request = estate.only_request();
    assert_eq!(request.only("cookie"), "a=1; b=2; c=3");
    assert_eq!(request.text(), "body");
    assert_identity(&request, "SUCCESS", Some("CN=web01"));
    assert!(request.headers.get("te").is_none() && request.body.trailers.0.is_empty());
}

#[test]
fn pseudo_fields_in_trailers_reset_the_stream_and_never_reach_a_member() {
    let estate = Estate::builder().one_agent_for_many().start();
    let mut connection = connect(&estate, &estate.ca.agent("web01"));
    let flags = flag::END_HEADERS | flag::END_STREAM;
    let trailers: [&[u8]; 4] = [
        // `:method: GET` from the static table, `:path` as a literal, then one field after another.
        &[0x82],
        b"\x00\x05:path\x01/",
        b"\x00\x01x\x01y\x82",
        // Inserted into the dynamic table of the connection, where the next block could refer to it.
        b"\x40\x05:path\x01/",
    ];
    for trailers in trailers.into_iter().chain([&[0xbe][..]]) {
        let stream = connection.open(&put(REPORT), false).expect("opens");
        connection
            .send_frame(kind::DATA, 0, stream, b"body")
            .expect("sends");
        connection
            .send_frame(kind::HEADERS, flags, stream, trailers)
            .expect("sends");
        let outcome = connection.outcome(stream);
        assert_eq!(
            outcome,
            StreamOutcome::Reset(PROTOCOL_ERROR),
            "{trailers:x?}"
        );
    }
    let record = estate.wait_for_record(|record| record["reason"] == "body-broken");
    assert_eq!(record["status"], 400, "{record}");
    assert_eq!(
        connection.get(CATALOG).status,
        200,
        "the connection goes on"
    );
    let mut puts = estate.far_end();
    puts.retain(|request| request.method == "PUT");
    assert!(puts.iter().all(|request| !request.complete), "{puts:#?}");
}

#[test]
fn an_early_response_ends_its_stream_and_the_connection_stays_open() {
    let (estate, mut connection) = begin(Estate::builder());
    let head = connection.head("PUT", "/puppet/v3/report/other", &[], Some(1 << 20));
    connection.send_raw(&head).expect("sends");
    let refused = connection.read_response().expect("an early answer");
    assert_eq!((refused.status, refused.says_close()), (403, false));
    connection
        .send_raw(&vec![b'x'; 1 << 20])
        .expect("what is sent is dropped");
    assert_eq!(connection.get(CATALOG).status, 200);
    assert_eq!(limit(&estate, "discard"), 0.0, "a reset ends the stream");
}

#[test]
fn a_raw_query_is_forwarded_encoded_and_other_streams_are_untouched() {
    let (estate, mut connection) = begin(Estate::builder().compilers(1));
    for (target, forwarded) in [
        (
            "/puppet/v3/environments?x=\"<a>\"&y=%22",
            Some("/puppet/v3/environments?x=%22%3Ca%3E%22&y=%22"),
        ),
        (
            "/puppet/v3/environments?x=y",
            Some("/puppet/v3/environments?x=y"),
        ),
        ("/puppet/v3/file_content/modules/<b>?x=y", None),
    ] {
        estate.forget();
        let fields = [
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "puppet"),
            (":path", target),
        ];
        let stream = connection.open(&fields, true).expect("opens");
        let expected = match forwarded {
            Some(_) => StreamOutcome::Answered(200),
            None => StreamOutcome::Reset(PROTOCOL_ERROR),
        };
        assert_eq!(connection.outcome(stream), expected, "{target}");
        let targets: Vec<_> = estate
            .far_end()
            .into_iter()
            .map(|asked| asked.target)
            .collect();
        assert_eq!(
            targets,
            forwarded.into_iter().collect::<Vec<_>>(),
            "{target}"
        );
    }
    // curl compresses its header blocks.
    let Some(mut curl) = Tool::Curl.command() else {
        return;
    };
    let agent = estate.ca.agent("web01");
    let directory = estate.proxy.directory();
    let (cert, key) = (directory.join("web01.pem"), directory.join("web01.key"));
    estate.proxy.write("web01.pem", &agent.chain_pem(), 0o644);
    estate.proxy.write("web01.key", &agent.key_pem, 0o600);
    estate.forget();
    let address = estate.proxy.address();
    let url = format!(
        "https://{address}/puppet/v3/environments?query=[\"=\",\"a\",\"<b>\"]&long={}",
        "\"".repeat(300)
    );
    let output = curl
        .args([
            "-sk",
            "-g",
            "--http2",
            "-w",
            "%{http_code} %{http_version}",
            "--cert",
        ])
        .arg(&cert)
        .arg("--key")
        .arg(&key)
        .arg(&url)
        .output()
        .expect("curl runs");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.ends_with("200 2"), "{printed}");
    let expected = format!(
        "/puppet/v3/environments?query=[%22=%22,%22a%22,%22%3Cb%3E%22]&long={}",
        "%22".repeat(300)
    );
    assert_eq!(estate.only_request().target, expected);
}

/// curl 7.88 shows a reset in place of the response that came before it.
#[test]
fn a_stream_that_was_refused_early_is_reset_only_if_the_rest_of_its_body_is_large_or_late() {
    const PIECES: usize = 12;
    let (_estate, mut connection) = begin(Estate::builder());
    let piece = [b'x'; 16 << 10];
    for (method, target, status) in [
        ("POST", "/nowhere", 404),
        ("PUT", "/puppet/v3/report/other", 403),
        ("POST", "/puppet/v3/file_content/modules/a/b", 405),
    ] {
        let fields = [
            (":method", method),
            (":scheme", "https"),
            (":authority", "puppet"),
            (":path", target),
        ];
        let stream = connection.open(&fields, false).expect("opens");
        let answered = StreamOutcome::Answered(status);
        assert_eq!(connection.outcome(stream), answered, "at once");
        for number in 1..=PIECES {
            // The acknowledged ping shows that the proxy has read the piece before, and that a reset would have arrived.
            connection.settle().expect("it is open");
            assert_eq!(connection.outcome(stream), answered, "{target}: {number}");
            let end = if number == PIECES {
                flag::END_STREAM
            } else {
                0
            };
            connection
                .send_frame(kind::DATA, end, stream, &piece)
                .expect("sends");
        }
        connection.settle().expect("it is open");
        assert_eq!(connection.outcome(stream), answered, "{target}");
    }
    // More than 256 KiB; after that the client sends nothing more.
    for pieces in [20, 1] {
        let fields = put("/puppet/v3/report/other");
        let stream = connection.open(&fields, false).expect("opens");
        assert_eq!(connection.outcome(stream), StreamOutcome::Answered(403));
        for _ in 0..pieces {
            connection.settle().expect("it is open");
            if connection.outcome(stream) == StreamOutcome::Answered(403) {
                connection
                    .send_frame(kind::DATA, 0, stream, &piece)
                    .expect("sends");
            }
        }
        let reset = wait_until(LIMIT, || {
            connection.settle().expect("it is open");
            (connection.outcome(stream) == StreamOutcome::Reset(0)).then_some(())
        });
        assert!(reset.is_some(), "{pieces} pieces");
    }
    assert_eq!(connection.get(CATALOG).status, 200);
}

/// The request bodies were not read, and all streams share the connection's window.
#[test]
fn discarded_bodies_do_not_use_up_the_window() {
    let (_estate, mut connection) = begin(Estate::builder());
    let fields = put("/puppet/v3/report/other");
    let piece = vec![b'x'; 16 << 10];
    for round in 0..200 {
        let stream = connection.open(&fields, false).expect("opens");
        for _ in 0..3 {
            connection
                .send_frame(kind::DATA, 0, stream, &piece)
                .expect("sends");
        }
        let outcome = connection.outcome(stream);
        assert_eq!(outcome, StreamOutcome::Answered(403), "round {round}");
    }
    assert_eq!(connection.get(CATALOG).status, 200);
}

/// One stream fewer than the maximum. The members read nothing from these streams.
#[test]
fn stalled_uploads_leave_a_window_to_the_next_one() {
    let (estate, mut connection) = begin(with_listener("streams_max = 10"));
    let gate = ReplyGate::new();
    for member in &estate.compilers {
        let reply = Reply::ok("late").gate(&gate).close();
        member.answer_early(move |request| request.target.contains("stuck").then(|| reply.clone()));
    }
    connection.settle().expect("the windows are announced");
    let window = connection.announced(setting::INITIAL_WINDOW_SIZE);
    assert_eq!(window, Some(64 << 10));
    let fields = put("/puppet/v3/report/web01?environment=stuck");
    let stuck: Vec<_> = (0..9)
        .map(|_| connection.open(&fields, false).expect("opens"))
        .collect();
    let mut quiet = 0;
    let filled = wait_until(LIMIT, || {
        connection.settle().expect("it is open");
        let sent = stuck
            .iter()
            .map(|stream| connection.send_ahead(*stream).expect("sends"));
        quiet = match sent.sum() {
            0_usize => quiet + 1,
            _ => 0,
        };
        (quiet == 20).then_some(())
    });
    assert!(filled.is_some(), "all that is on the way is full");
    let body = vec![b'x'; 300_000];
    connection
        .send("PUT", REPORT, &[], &body)
        .expect("there is room");
    let last = 2 * 9 + 1;
    assert_eq!(connection.outcome(last), StreamOutcome::Answered(200));
    let whole = |request: &Recorded| request.body.length == body.len() as u64;
    assert!(estate.far_end().iter().any(whole));
    gate.release();
}

#[test]
fn connect_and_extended_connect_are_refused() {
    let (estate, mut connection) = begin(Estate::builder());
    let fields = [(":method", "CONNECT"), (":authority", "puppet:8140")];
    let stream = connection.open(&fields, false).expect("opens");
    assert_eq!(connection.outcome(stream), StreamOutcome::Answered(405));
    let records = estate.wait_for_records(1);
    assert_eq!(records[0]["method"], "CONNECT");
    // RFC 8441: a setting tells clients whether they may send an extended CONNECT for a WebSocket.
    let offered = connection.announced(setting::ENABLE_CONNECT_PROTOCOL);
    assert_eq!(offered, None);
    let mut extended = get("/chat");
    extended[0].1 = "CONNECT".to_owned();
    extended.insert(1, (":protocol".to_owned(), "websocket".to_owned()));
    let stream = connection.open(&extended, false).expect("opens");
    assert_eq!(
        connection.outcome(stream),
        StreamOutcome::Reset(PROTOCOL_ERROR)
    );
    let records = estate.wait_for_records(2);
    let output = (&records[1]["status"], &records[1]["reason"]);
    assert_eq!(output, (&400.into(), &"bad-head".into()), "{records:#?}");
    assert_eq!(estate.far_end().len(), 0);
    assert_eq!(connection.get(CATALOG).status, 200);
}

#[test]
fn a_certificate_request_in_padded_frames_is_checked_and_sent_as_one_body() {
    let estate = Estate::builder().one_agent_for_many().start();
    let mut connection = estate
        .anonymous()
        .protocol(Protocol::Http2)
        .connect()
        .expect("connects");
    let mut send = |certname: &str| {
        let path = format!("/puppet-ca/v1/certificate_request/{certname}");
        let stream = connection.open(&put(&path), false).expect("opens");
        let request = certificate_request("web01");
        for (n, byte) in request.iter().enumerate() {
            // Lines of text outside the block, as padding.
            let padding = b"\n-----BEGIN CERTIFICATE REQUEST-----\n";
            let length = u8::try_from(padding.len()).expect("short");
            let piece = [&[length, *byte][..], padding].concat();
            let last = n + 1 == request.len();
            let flags = PADDED | if last { flag::END_STREAM } else { 0 };
            connection
                .send_frame(kind::DATA, flags, stream, &piece)
                .expect("sends");
        }
        (connection.outcome(stream), request)
    };
    assert_eq!(send("web02").0, StreamOutcome::Answered(403));
    let (outcome, request) = send("web01");
    assert_eq!(outcome, StreamOutcome::Answered(200));
    assert_eq!(estate.only_request().body.kept, request);
}

const PADDED: u8 = 8;

#[test]
fn t12_slow_streams_of_strangers_take_no_slot_at_the_ca() {
    let estate = Estate::builder()
        .one_agent_for_many()
        .with("[ca]\nanonymous_in_flight_max = 1")
        .start();
    let stranger = || estate.anonymous().protocol(Protocol::Http2).connect();
    let mut slow = stranger().expect("connects");
    let request = certificate_request("web01");
    let streams: Vec<_> = (0..5)
        .map(|_| {
            let path = "/puppet-ca/v1/certificate_request/web01";
            let stream = slow.open(&put(path), false).expect("opens");
            slow.send_frame(kind::DATA, 0, stream, &request[..100])
                .expect("sends");
            stream
        })
        .collect();
    slow.settle().expect("is heard");
    let crl = "/puppet-ca/v1/certificate_revocation_list/ca";
    assert_eq!(stranger().expect("connects").get(crl).status, 200);
    // The client cancels four of the requests half-way, which leave nothing behind, and sends the last one completely.
    let (last, others) = streams.split_last().expect("five");
    for stream in others {
        slow.send_frame(kind::RST_STREAM, 0, *stream, &CANCEL.to_be_bytes())
            .expect("sends");
    }
    slow.send_frame(kind::DATA, flag::END_STREAM, *last, &request[100..])
        .expect("sends");
    assert_eq!(slow.outcome(*last), StreamOutcome::Answered(200));
    let sent = estate.ca_server.requests();
    let puts = sent.iter().filter(|request| request.method == "PUT");
    assert_eq!(puts.count(), 1, "{sent:#?}");
}

/// Nothing goes to the client of a stream without a window, although the CA has long finished its response.
#[test]
fn t12_responses_that_a_stranger_does_not_read_hold_no_slot_at_the_ca() {
    let estate = Estate::builder()
        .one_agent_for_many()
        .with("[ca]\nanonymous_in_flight_max = 1")
        .start();
    let stranger = || estate.anonymous().protocol(Protocol::Http2).connect();
    let (bundle, crl) = (
        "/puppet-ca/v1/certificate/ca",
        "/puppet-ca/v1/certificate_revocation_list/ca",
    );
    let mut mute = stranger().expect("connects");
    // SETTINGS_INITIAL_WINDOW_SIZE: zero.
    mute.send_frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])
        .expect("sends");
    mute.settle().expect("is heard");
    let stream = mute.open(&get(bundle), true).expect("opens");
    estate.ca_server.wait_for_request(1, LIMIT);
    let served = || {
        let answer = stranger().expect("connects").get(crl);
        (answer.status == 200).then_some(())
    };
    wait_until(LIMIT, served).expect("others are served");
    mute.send_frame(kind::WINDOW_UPDATE, 0, stream, &(1_u32 << 20).to_be_bytes())
        .expect("sends");
    assert_eq!(mute.outcome(stream), StreamOutcome::Answered(200));
}

#[test]
fn a_hundred_downloads_in_small_windows_are_not_a_flood() {
    let (estate, mut connection) = begin(Estate::builder());
    for member in &estate.compilers {
        member.answer(|request| {
            let large = request.target.contains("file_content");
            large.then(|| Reply::stream(64 << 10))
        });
    }
    // SETTINGS_INITIAL_WINDOW_SIZE: 512 bytes, so that each stream needs 128 window updates, and so does the
    // connection.
    connection
        .send_frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 2, 0])
        .expect("sends");
    connection.settle().expect("is heard");
    let streams: Vec<_> = (0..100)
        .map(|_| connection.open(&get(FILE), true).expect("opens"))
        .collect();
    for stream in streams {
        assert_eq!(connection.outcome(stream), StreamOutcome::Answered(200));
    }
    assert_eq!(limit(&estate, "frames"), 0.0);
}
