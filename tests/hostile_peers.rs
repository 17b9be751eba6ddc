//! Hostile or broken clients and members: whatever they do, another client's response is not affected.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use testkit::{BodyFraming, Client, ClientError, Reply, ReplyGate};

use crate::support::{
    Estate, EstateBuilder, LIMIT, assert_identity, assert_refused, connection, http1_alone,
    paths::{CATALOG, FILE, REPORT},
};

/// More than all buffers between client and member hold.
const BODY_BYTES: usize = 32 << 20;
/// The response of a well-behaved member.
const MINE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmine";
/// An unsolicited response.
const STRAY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray";

/// A raw member: for a known path it sends the given bytes unchanged, and then keeps reading the connection.
struct RawMember {
    address: String,
    ended: Arc<AtomicBool>,
}

impl RawMember {
    fn start(answer: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = socket.local_addr().expect("bound").to_string();
        let ended = Arc::new(AtomicBool::new(false));
        let answer = Arc::new(answer);
        let stop = Arc::clone(&ended);
        thread::spawn(move || {
            for stream in socket.incoming().map_while(Result::ok) {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let answer = Arc::clone(&answer);
                thread::spawn(move || converse(stream, &*answer));
            }
        });
        Self { address, ended }
    }

    /// An estate whose path `/raw` leads to this member.
    fn estate(&self, pool: &str) -> EstateBuilder {
        let tables = format!(
            "[pools.raw]\nscheme = \"http\"\nmembers = [\"{}\"]\ncheck = {{ type = \"none\" }}\n{pool}\n\
             [[routes]]\nname = \"raw\"\npath = {{ prefix = \"/raw\" }}\npool = \"raw\"",
            self.address
        );
        Estate::builder()
            .compilers(1)
            .top("workers = 1")
            .with(&tables)
    }
}

impl Drop for RawMember {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // One more connection wakes the accepting thread.
        drop(TcpStream::connect(&self.address));
    }
}

/// Reads heads and answers each.
fn converse(mut stream: TcpStream, answer: &dyn Fn(&str, &mut TcpStream)) {
    // Sent bytes arrive at once, without waiting for an acknowledgement.
    stream.set_nodelay(true).expect("a socket");
    let mut seen = Vec::new();
    let mut piece = [0; 4096];
    loop {
        while let Some(end) = seen.windows(4).position(|window| window == b"\r\n\r\n") {
            let head: Vec<u8> = seen.drain(..end + 4).collect();
            let head = String::from_utf8_lossy(&head).into_owned();
            let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
            answer(&target, &mut stream);
        }
        match stream.read(&mut piece) {
            Ok(read) if read > 0 => seen.extend_from_slice(&piece[..read]),
            _ => return,
        }
    }
}

#[test]
fn bytes_after_a_response_are_never_used_as_a_response() {
    let cases = [
        (
            "length",
            format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst{STRAY}"),
        ),
        (
            "chunks",
            format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n0\r\n\r\n{STRAY}"
            ),
        ),
        (
            "empty",
            format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n{STRAY}"),
        ),
        (
            "204",
            format!("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n{STRAY}"),
        ),
        (
            "304",
            format!("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n{STRAY}"),
        ),
        (
            "head",
            format!("HTTP/1.1 200 OK\r\nContent-Length: 44\r\n\r\n{STRAY}"),
        ),
        (
            "interim",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirstHTTP/1.1 100 Continue\r\n\r\n"
                .to_owned(),
        ),
        (
            "part",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirstHTTP/1.1 2".to_owned(),
        ),
    ];
    let member = RawMember::start(move |target, stream| {
        let bytes = cases
            .iter()
            .find(|(name, _)| target.ends_with(name))
            .map_or(MINE, |(_, bytes)| bytes.as_bytes());
        let _ = stream.write_all(bytes);
    });
    let estate = member.estate("").start();
    let (mut one, mut other) = (connection(&estate), connection(&estate));
    for case in [
        "length", "chunks", "empty", "204", "304", "head", "interim", "part",
    ] {
        let method = if case == "head" { "HEAD" } else { "GET" };
        for _ in 0..20 {
            let first = one.request(method, &format!("/raw/{case}"), &[], b"");
            assert_ne!(first.text(), "stray", "{case}");
            let second = other.get("/raw/well");
            assert_eq!(
                (second.status, second.text().as_str()),
                (200, "mine"),
                "after {case}"
            );
        }
    }
}

#[test]
fn an_unsolicited_response_is_never_used() {
    let (done, closed) = mpsc::channel();
    let done = Mutex::new(done);
    let member = RawMember::start(move |target, stream| {
        let _ = stream.write_all(MINE);
        if target.ends_with("twice") {
            let (mut late, done) = (
                stream.try_clone().expect("a handle"),
                done.lock().expect("unpoisoned").clone(),
            );
            thread::spawn(move || {
                let _ = late.write_all(STRAY.as_bytes());
                let _ = done.send(());
            });
        }
    });
    let estate = member.estate("").start();
    let (mut one, mut other) = (connection(&estate), connection(&estate));
    for _ in 0..50 {
        assert_eq!(one.get("/raw/twice").text(), "mine");
        closed.recv_timeout(LIMIT).expect("sent");
        // A round trip through the proxy's only thread. After it, the proxy has read the earlier bytes.
        assert_eq!(one.get(FILE).status, 200);
        assert_eq!(other.get("/raw/well").text(), "mine");
    }
}

#[test]
fn a_response_with_two_lengths_is_passed_on_with_one_framing() {
    let member = RawMember::start(|target, stream| {
        let bytes: &[u8] = match target {
            "/raw/short" => b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n0\r\n\r\n",
            "/raw/long" => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n5\r\nfirst\r\n0\r\n\r\n",
            "/raw/equal" => b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nfirst",
            "/raw/list" => b"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nfirst",
            "/raw/head" => b"HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\nContent-Length: 7\r\n\r\n",
            "/raw/none" => b"HTTP/1.1 304 Not Modified\r\nContent-Length: \r\n\r\n",
            _ => MINE,
        };
        let _ = stream.write_all(bytes);
    });
    let estate = member.estate("").start();
    let mut connection = connection(&estate);
    for (case, framing) in [
        ("short", BodyFraming::Chunked),
        ("long", BodyFraming::Chunked),
        ("equal", BodyFraming::Length(5)),
        ("list", BodyFraming::Length(5)),
    ] {
        let answer = connection.get(&format!("/raw/{case}"));
        assert_eq!(
            (answer.text().as_str(), answer.framing),
            ("first", framing),
            "{case}"
        );
        assert_eq!(connection.get("/raw/well").text(), "mine", "after {case}");
    }
    for (method, case) in [("HEAD", "head"), ("GET", "none")] {
        let answer = connection.request(method, &format!("/raw/{case}"), &[], b"");
        assert_eq!(answer.headers.get("content-length"), None, "{answer:?}");
        assert_eq!(connection.get("/raw/well").text(), "mine", "after {case}");
    }
}

#[test]
fn a_member_that_answers_early_and_stops_reading_holds_no_slot() {
    let turn = Arc::new(Barrier::new(2));
    let members_turn = Arc::clone(&turn);
    let member = RawMember::start(move |target, stream| {
        let early = target.ends_with("early");
        if early {
            members_turn.wait();
        }
        let _ = stream.write_all(MINE);
        if early {
            // The member neither reads nor closes until the test ends.
            members_turn.wait();
        }
    });
    let estate = member.estate("connections_max = 1").start();
    let client = estate.agent("web01").timeout(Duration::from_millis(300));
    let mut stuck = client.connect().expect("connects");
    let head = stuck.head("PUT", "/raw/early", &[], Some(BODY_BYTES));
    let sent = stuck.send_raw(&[head, vec![b'x'; BODY_BYTES]].concat());
    assert!(sent.is_err(), "all buffers on the way are full");
    turn.wait();
    let record = estate.wait_for_record(|record| record["method"] == "PUT");
    assert_eq!(record["status"], 200, "{record}");
    assert_eq!(connection(&estate).get("/raw/well").text(), "mine");
    turn.wait();
}

#[test]
fn requests_that_waited_in_vain_leave_no_connection_reserved() {
    let estate = Estate::builder()
        .compilers(1)
        .compiler_pool("connections_max = 1")
        .compiler_pool("queue_wait_max = \"100ms\"")
        .compiler_pool("check = { interval = \"1h\" }")
        .top("workers = 1")
        .start();
    let compiler = &estate.compilers[0];
    compiler.hold();
    let mut first = connection(&estate);
    first.send("GET", FILE, &[], b"").expect("sends");
    compiler.wait_for_head(1, LIMIT);
    for _ in 0..10 {
        assert_refused(&connection(&estate).get(FILE), 503, &["compilers"]);
    }
    compiler.release();
    assert_eq!(first.read_response().expect("an answer").status, 200);
    let before = compiler.connections_accepted();
    for _ in 0..10 {
        assert_eq!(first.get(FILE).status, 200);
    }
    assert_eq!(
        compiler.connections_accepted(),
        before,
        "the one connection serves them all"
    );
}

#[test]
fn the_rest_of_a_refused_body_does_not_make_a_busy_connection_idle() {
    let estate = Estate::builder()
        .compilers(1)
        .top("workers = 1")
        .listener("idle_timeout = \"5s\"")
        .start();
    let gate = ReplyGate::new();
    let reply = Reply::ok("slow").gate(&gate);
    estate.compilers[0].answer(move |_| Some(reply.clone()));
    let mut busy = connection(&estate);
    let body = vec![b'x'; 300_000];
    let refused = busy.head("PUT", "/puppet/v3/report/other", &[], Some(body.len()));
    let next = busy.head("GET", FILE, &[], None);
    busy.send_raw(&[refused, body, next].concat())
        .expect("sends");
    assert_eq!(busy.read_response().expect("a refusal").status, 403);
    estate.compilers[0].wait_for_head(1, LIMIT);
    // A later connection that becomes idle now shows when the timeout has passed.
    connection(&estate)
        .closed_after(LIMIT)
        .expect("an idle connection is closed");
    gate.release();
    assert_eq!(busy.read_response().expect("an answer").text(), "slow");
}

#[test]
fn connection_cannot_remove_fields_of_the_proxy() {
    http1_alone!("HTTP/2 has no Connection field");
    let estate = Estate::builder().compilers(1).start();
    let mut connection = connection(&estate);
    let ours = [
        "x-client-verify",
        "x-client-dn",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-port",
        "x-forwarded-proto",
        "x-real-ip",
        "x-request-id",
        "host",
        "accept",
    ];
    let nominated = [
        &ours[..9],
        &["content-length", "transfer-encoding", "close-not"],
    ]
    .concat()
    .join(", ");
    let fields = [
        ("Connection", nominated.as_str()),
        ("X-Request-Id", "mine"),
        ("X_Request_Id", "mine"),
    ];
    assert_eq!(
        connection.request("PUT", REPORT, &fields, b"report").status,
        200
    );
    connection
        .send_chunked("PUT", REPORT, &fields, &[b"re", b"port"])
        .expect("sends");
    assert_eq!(connection.read_response().expect("an answer").status, 200);
    for request in estate.far_end() {
        for name in ours {
            assert_ne!(request.only(name), "mine", "{name}");
        }
        assert_eq!(
            (request.text().as_str(), request.complete),
            ("report", true),
            "{}",
            request.raw_text()
        );
    }
}

#[test]
fn a_member_that_sends_interim_responses_forever_is_given_up() {
    for noise in [
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n",
    ] {
        let (gone, left) = mpsc::channel();
        let gone = Mutex::new(gone);
        let member = RawMember::start(move |_, stream| {
            while stream.write_all(noise.as_bytes()).is_ok() {}
            let _ = gone.lock().expect("unpoisoned").send(());
        });
        let estate = member.estate("").start();
        let mut waiting = connection(&estate);
        waiting.send("GET", "/raw/x", &[], b"").expect("sends");
        assert_eq!(
            connection(&estate).get(FILE).status,
            200,
            "the one thread serves others meanwhile"
        );
        assert_refused(
            &waiting.read_response().expect("an answer"),
            502,
            &[&member.address],
        );
        left.recv_timeout(LIMIT).expect("its connection is closed");
    }
}

#[test]
fn a_member_whose_head_never_ends_is_given_up() {
    for (begin, noise) in [
        ("HTTP/1.1 200 OK\r\n", "X-Noise: 1\r\n"),
        ("HTTP/1.1 200 OK\r\nX-Noise: ", "nnnnnnnn"),
        ("HTTP/1.1 200 ", "OK "),
        ("", "\r\n"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;",
            "extension",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
            "X-Trailer: 1\r\n",
        ),
    ] {
        let (gone, left) = mpsc::channel();
        let gone = Mutex::new(gone);
        let member = RawMember::start(move |_, stream| {
            let _ = stream.write_all(begin.as_bytes());
            while stream.write_all(noise.as_bytes()).is_ok() {}
            let _ = gone.lock().expect("unpoisoned").send(());
        });
        let estate = member.estate("first_byte_timeout = \"2s\"").start();
        let answer = connection(&estate).try_request("GET", "/raw/x", &[], b"");
        assert!(
            answer.as_ref().map_or(true, |answer| answer.status >= 502),
            "{begin:?}: {answer:?}"
        );
        left.recv_timeout(LIMIT).expect("its connection is closed");
        assert_eq!(connection(&estate).get(FILE).status, 200);
    }
}

#[test]
fn a_lower_connections_max_leaves_no_request_waiting_while_connections_are_idle() {
    let estate = Estate::builder()
        .one_agent_for_many()
        .compilers(1)
        .compiler_pool("connections_max = 3")
        .compiler_pool("check = { interval = \"1h\" }")
        .top("workers = 1")
        .with("[upstream]\nclient_share = \"100%\"")
        .start();
    estate.compilers[0].hold();
    let mut three: Vec<_> = (0..3).map(|_| connection(&estate)).collect();
    for connection in &mut three {
        connection.send("GET", FILE, &[], b"").expect("sends");
    }
    estate.compilers[0].wait_for_request(3, LIMIT);
    estate.compilers[0].release();
    for connection in &mut three {
        assert_eq!(connection.read_response().expect("an answer").status, 200);
    }
    estate.edit_config("connections_max = 3", "connections_max = 1");
    estate.proxy.reload_applied();
    assert_eq!(three[0].get(FILE).status, 200);
}

#[test]
fn a_client_whose_request_never_ends_is_disconnected() {
    http1_alone!("a head without an end is bytes; of frames see http2.rs");
    let estate = Estate::builder()
        .compilers(1)
        .compiler_pool("idle_timeout = \"500ms\"")
        .top("workers = 1")
        .listener("head_timeout = \"500ms\"")
        .start();
    let chunked =
        format!("PUT {REPORT} HTTP/1.1\r\nHost: puppet\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (begin, noise) in [
        (String::new(), "\r\n"),
        (format!("GET {FILE}"), "a"),
        (
            format!("GET {FILE} HTTP/1.1\r\nHost: puppet\r\n"),
            "X-Noise: 1\r\n",
        ),
        (
            format!("GET {FILE} HTTP/1.1\r\nHost: puppet\r\nX-Noise:"),
            " ",
        ),
        (format!("{chunked}1;"), "extension"),
        (chunked.clone(), "0"),
        (format!("{chunked}0\r\n"), "X-Trailer: 1\r\n"),
    ] {
        let mut endless = connection(&estate);
        endless.send_raw(begin.as_bytes()).expect("sends");
        let noise = noise.repeat(1000);
        // Another client sends a request in between: the only thread has time for both clients.
        let mut other = connection(&estate);
        for _ in 0..100 {
            let _ = endless.send_raw(noise.as_bytes());
            assert_eq!(other.get(FILE).status, 200, "beside {begin:?}");
        }
        let closed = loop {
            match endless.read_some(&mut [0; 4096]) {
                Ok(1..) => {}
                Err(ClientError::Timeout) => break false,
                Ok(0) | Err(_) => break true,
            }
        };
        assert!(closed, "{begin:?}");
    }
    let whole: Vec<_> = estate
        .far_end()
        .into_iter()
        .filter(|request| request.complete)
        .collect();
    assert!(
        whole.iter().all(|request| request.method == "GET"),
        "{whole:#?}"
    );
}

#[test]
fn a_certificate_revoked_later_is_handled_on_resumption_as_the_listener_configures() {
    for (on_invalid, open, closes) in [
        ("explain", 403, false),
        ("abort", 403, true),
        ("forward", 200, false),
    ] {
        let estate = modes(on_invalid);
        for version in [Client::tls12, Client::tls13] {
            let agent = estate.ca.agent("web01");
            let client = version(estate.client(&agent));
            assert_eq!(client.get(CATALOG).status, 200);
            estate.ca.revoke(&agent);
            estate.proxy.swap_crl();
            for (path, status) in paths(open) {
                estate.forget();
                let mut resumed = client.connect().expect("connects");
                assert!(resumed.resumed(), "{on_invalid}");
                let answer = resumed.get(path);
                assert_eq!(
                    (answer.status, answer.says_close()),
                    (status, closes),
                    "{on_invalid} {path}"
                );
                assert_forwarded_refusal(&estate, status, path);
            }
        }
    }
}

#[test]
fn a_certificate_revoked_during_a_request_is_refused_at_the_next_one() {
    for on_invalid in ["explain", "abort", "forward"] {
        let estate = modes(on_invalid);
        for (path, _) in paths(200) {
            let agent = estate.ca.agent("web01");
            let mut live = estate.client(&agent).connect().expect("connects");
            estate.forget();
            estate.compilers[0].hold();
            live.send("GET", CATALOG, &[], b"").expect("sends");
            estate.compilers[0].wait_for_request(1, LIMIT);
            estate.ca.revoke(&agent);
            estate.proxy.swap_crl();
            estate.compilers[0].release();
            assert_eq!(
                live.read_response()
                    .expect("the answer it waited for")
                    .status,
                200
            );
            estate.forget();
            let answer = live.get(path);
            assert_refused(&answer, 403, &["revoked"]);
            assert!(
                answer.says_close() && live.is_closed_within(LIMIT),
                "{on_invalid} {path}"
            );
            assert!(estate.far_end().is_empty(), "{on_invalid} {path}");
        }
    }
}

/// One compiler behind two routes for any client: the classes guard one route and not the other.
fn modes(on_invalid: &str) -> Estate {
    let mode = format!("on_invalid = \"{on_invalid}\"");
    let routes = "[[routes]]\nname = \"bare\"\npath = { prefix = \"/bare\" }\npool = \"compilers\"\nclient = \"any\"\n\
                  unguarded = true\n[[routes]]\nname = \"rest\"\npool = \"compilers\"\nclient = \"any\"\n\
                  path = { regex = \"/(a|puppet/v3/file_content)/.*\" }\n";
    let estate = Estate::builder()
        .compilers(1)
        .listener(&mode)
        .with(routes)
        .start();
    estate.compilers[0].answer(|request| (!request.is_probe()).then(|| Reply::ok("fine")));
    estate
}

/// The paths, each with the status that a client with a refused certificate gets; `open` where any client is allowed.
fn paths(open: u16) -> [(&'static str, u16); 6] {
    [
        ("/puppet-ca/v1/certificate/ca", open),
        ("/bare/puppet/v3/x", open),
        ("/a/thing", open),
        (CATALOG, 403),
        (FILE, 403),
        ("/status/v1/simple", 403),
    ]
}

/// Asserts that a refused certificate is forwarded as refused, or that the request does not arrive.
#[track_caller]
fn assert_forwarded_refusal(estate: &Estate, status: u16, path: &str) {
    let output = estate.far_end();
    assert_eq!(output.len(), usize::from(status == 200), "{path}");
    for request in output {
        assert_identity(&request, "FAILED:revoked", None);
    }
}
