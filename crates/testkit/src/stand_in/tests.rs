//! The stand-in and the client, without a proxy between them.

use super::*;
use crate::{Client, ClientError};

const LIMIT: Duration = Duration::from_secs(10);

fn client(stand_in: &StandIn) -> Client {
    Client::plain(stand_in.socket_address()).timeout(LIMIT)
}

#[test]
fn raw_bytes_of_a_request_are_recorded() {
    let stand_in = StandIn::start("c1");
    let mut connection = client(&stand_in).connect().expect("connects");
    let raw = b"PUT /puppet/v3/report/web01 HTTP/1.1\r\nhOsT:  a\r\nX_Odd.Name: b\r\nContent-Length: 2\r\n\r\n{}";
    connection.send_raw(raw).expect("sends");
    assert_eq!(connection.read_response().expect("an answer").status, 200);
    assert_eq!(stand_in.last().raw, raw);
    assert_eq!(stand_in.raw_connections(), [raw.to_vec()]);
    assert_eq!(stand_in.last().only("host"), "a");
}

#[test]
fn a_connection_is_reused_and_pipelined() {
    let stand_in = StandIn::start("c1");
    let mut connection = client(&stand_in).connect().expect("connects");
    let one = connection.head("GET", "/puppet/v3/environments", &[], None);
    connection
        .send_raw(&[one.clone(), one].concat())
        .expect("sends");
    for _ in 0..2 {
        assert_eq!(connection.read_response().expect("an answer").status, 200);
    }
    assert_eq!(connection.get("/nowhere").status, 404);
    assert!(
        stand_in
            .requests()
            .iter()
            .all(|request| request.connection == 0)
    );
    assert_eq!(
        (stand_in.connections_open(), stand_in.connections_accepted()),
        (1, 1)
    );
}

#[test]
fn puppet_answers_enrolment_and_catalog() {
    let ca = Ca::new();
    let stand_in = StandIn::builder("ca").ca(&ca).start();
    let client = client(&stand_in);
    assert_eq!(
        client.get("/puppet-ca/v1/certificate/ca").text(),
        ca.bundle_pem()
    );
    let put = || {
        client
            .request(
                "PUT",
                "/puppet-ca/v1/certificate_request/web01",
                &[],
                b"CSR",
            )
            .status
    };
    assert_eq!(
        (put(), put()),
        (200, 400),
        "the second is answered as Puppet does"
    );
    assert_eq!(client.get("/puppet-ca/v1/certificate/web01").status, 404);
    let agent = ca.agent("web01");
    stand_in.publish(&agent);
    assert_eq!(
        client.get("/puppet-ca/v1/certificate/web01").text(),
        agent.cert_pem
    );
    let catalog = client.request("POST", "/puppet/v3/catalog/web01", &[], b"facts=1");
    assert_eq!(catalog.json()["name"], "web01");
    assert_eq!(client.get("/status/v1/simple").text(), "running");
    assert_eq!(stand_in.probes().len(), 1);
}

#[test]
fn a_bucket_keeps_what_was_put_and_heads_have_no_body() {
    let stand_in = StandIn::start("c1");
    let client = client(&stand_in);
    let path = "/puppet/v3/file_bucket_file/sha256/abc//etc/motd";
    assert_eq!(client.request("HEAD", path, &[], b"").status, 404);
    assert_eq!(client.request("PUT", path, &[], b"hello").status, 200);
    assert_eq!(client.get(path).text(), "hello");
    let head = client.request("HEAD", path, &[], b"");
    assert_eq!(
        (
            head.status,
            head.body.length,
            head.headers.only("content-length")
        ),
        (200, 0, "5")
    );
}

#[test]
fn faults_happen_where_they_were_asked_for() {
    let stand_in = StandIn::start("c1");
    let client = client(&stand_in);
    let ask = |reply: Reply| {
        stand_in.answer(move |_| Some(reply.clone()));
        client.try_request("GET", "/x", &[], b"")
    };
    assert!(ask(Reply::reset()).expect_err("a reset").is_closed());
    assert!(matches!(ask(Reply::hang_up()), Err(ClientError::Closed)));
    assert!(matches!(
        ask(Reply::ok("0123456789").close_after(4)),
        Err(ClientError::Broken(_))
    ));
    assert!(matches!(
        ask(Reply::ok("0123456789").reset_after(4)),
        Err(ClientError::Broken(_))
    ));
    assert!(matches!(
        ask(Reply::raw("HTTP/1.1 abc\r\n\r\n")),
        Err(ClientError::Broken(_))
    ));
    assert_eq!(
        ask(Reply::ok("").to_close(b"to the end"))
            .expect("an answer")
            .text(),
        "to the end"
    );
    let answer = ask(Reply::status(503)
        .header("Retry-After", "7")
        .interim(103, &[("Link", "x")]))
    .expect("an answer");
    assert_eq!(
        (answer.status, answer.headers.only("retry-after")),
        (503, "7")
    );
    assert_eq!(answer.interim[0].status, 103);
    let answer =
        ask(Reply::status(200).chunked(&[b"ab", b"c"]).trailer("T", "1")).expect("an answer");
    assert_eq!(
        (answer.text().as_str(), answer.body.trailers.only("t")),
        ("abc", "1")
    );
    let answer = ask(Reply::ok("slowly").dribble(1, Duration::from_millis(1))).expect("an answer");
    assert_eq!(answer.text(), "slowly");
    assert_eq!(
        ask(Reply::stream(3_000_000))
            .expect("an answer")
            .body
            .length,
        3_000_000
    );
    stand_in.answer_as_puppet();
    assert_eq!(client.get("/status/v1/simple").status, 200);
}

#[test]
fn an_early_answer_leaves_the_body_unread() {
    let stand_in = StandIn::start("c1");
    stand_in.answer_early(|request| (request.method == "PUT").then(|| Reply::status(413).close()));
    let mut connection = client(&stand_in).connect().expect("connects");
    let head = connection.head("PUT", "/x", &[], Some(1000));
    connection.send_raw(&head).expect("sends");
    assert_eq!(connection.read_response().expect("an answer").status, 413);
    assert!(!stand_in.last().complete);
}

#[test]
fn held_answers_wait_for_their_release() {
    let stand_in = StandIn::start("c1");
    stand_in.hold();
    let mut connection = client(&stand_in).connect().expect("connects");
    connection
        .send("GET", "/puppet/v3/environments", &[], b"")
        .expect("sends");
    stand_in.wait_for_request(1, LIMIT);
    assert!(
        !connection.is_closed_within(Duration::from_millis(20)),
        "nothing comes while it is held"
    );
    stand_in.release();
    assert_eq!(connection.read_response().expect("an answer").status, 200);
}

#[test]
fn a_killed_stand_in_refuses_and_comes_back_on_its_port() {
    let stand_in = StandIn::start("c1");
    let mut connection = client(&stand_in).connect().expect("connects");
    assert_eq!(connection.get("/status/v1/simple").status, 200);
    stand_in.kill();
    assert!(connection.is_closed_within(LIMIT));
    assert!(matches!(
        client(&stand_in).connect(),
        Err(ClientError::Connect(_))
    ));
    stand_in.restart();
    assert_eq!(client(&stand_in).get("/status/v1/simple").status, 200);
}

/// A child process has every descriptor of its parent between fork and exec, also listening sockets. Closing a socket
/// in the parent does not close the copy.
#[test]
fn a_killed_stand_in_refuses_though_other_tests_start_programs() {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    let ran = std::process::Command::new("true").status();
                    assert!(ran.is_ok(), "{ran:?}");
                }
            });
        }
        let refused = (0..200).all(|_| {
            let stand_in = StandIn::start("c1");
            stand_in.kill();
            let refused = client(&stand_in).connect();
            matches!(refused, Err(ClientError::Connect(_)))
        });
        done.store(true, Ordering::SeqCst);
        assert!(refused);
    });
}

#[test]
fn tls_demands_a_certificate_of_the_ca_and_records_it() {
    let ca = Ca::new();
    let stand_in = StandIn::builder("c1").tls(&ca, &ca.server("c1")).start();
    let proxy = ca.agent("proxy");
    for client in [
        Client::new(stand_in.socket_address(), &ca.bundle_pem(), Some(&proxy)).tls12(),
        Client::new(stand_in.socket_address(), &ca.bundle_pem(), Some(&proxy)).tls13(),
    ] {
        assert_eq!(client.get("/puppet/v3/environments").status, 200);
        assert_eq!(
            stand_in.last().peer_certificates,
            std::slice::from_ref(&proxy.cert_der)
        );
        assert!(client.connect().expect("connects again").resumed());
        assert!(
            !client
                .forgetful()
                .connect()
                .expect("connects afresh")
                .resumed()
        );
    }
    let alert = |credential: Option<&TestCredential>| {
        let client =
            Client::new(stand_in.socket_address(), &ca.bundle_pem(), credential).timeout(LIMIT);
        client
            .try_request("GET", "/", &[], b"")
            .expect_err("refused")
            .alert()
    };
    assert_eq!(
        alert(None),
        Some(rustls::AlertDescription::CertificateRequired)
    );
    assert_eq!(
        alert(Some(&Ca::other().agent("x"))),
        Some(rustls::AlertDescription::UnknownCA)
    );
    let thief = proxy.with_key_of(&ca.agent("thief"));
    assert_eq!(
        alert(Some(&thief)),
        Some(rustls::AlertDescription::DecryptError)
    );
}

#[test]
fn a_unix_socket_serves_as_a_port_does() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("c1.sock");
    let stand_in = StandIn::builder("c1").unix(&path).start();
    assert_eq!(Client::unix(&path).get("/status/v1/simple").status, 200);
    stand_in.kill();
    assert!(matches!(
        Client::unix(&path).connect(),
        Err(ClientError::Connect(_))
    ));
    stand_in.restart();
    assert_eq!(Client::unix(&path).get("/status/v1/simple").status, 200);
}

#[test]
fn an_unannounced_close_follows_a_whole_answer() {
    let stand_in = StandIn::start("c1");
    stand_in.answer(|_| Some(Reply::ok("whole").close_unannounced()));
    let mut connection = client(&stand_in).connect().expect("connects");
    let answer = connection.get("/puppet/v3/environments");
    assert_eq!(
        (answer.text().as_str(), answer.says_close()),
        ("whole", false)
    );
    assert!(connection.is_closed_within(LIMIT));
}

#[test]
fn a_body_that_breaks_off_leaves_the_bytes_that_came() {
    let stand_in = StandIn::start("c1");
    stand_in.answer(|_| Some(Reply::ok("0123456789").close_after(4)));
    let mut connection = client(&stand_in).connect().expect("connects");
    connection.send("GET", "/", &[], b"").expect("sends");
    let mut response = connection.read_head().expect("a head");
    assert!(connection.read_body_into(&mut response).is_err());
    assert_eq!(response.body.kept, b"0123");
}

#[test]
fn a_client_that_moves_few_bytes_at_a_time_gets_the_whole_answer() {
    let ca = Ca::new();
    let stand_in = StandIn::builder("c1")
        .tls(&ca, &ca.server("puppet"))
        .start();
    stand_in.answer(|request| Some(Reply::ok(&request.text())));
    let slow = Client::new(
        stand_in.socket_address(),
        &ca.bundle_pem(),
        Some(&ca.agent("web01")),
    )
    .trickle(100, Duration::from_micros(100));
    let text = "x".repeat(5_000);
    let answer = slow.request("PUT", "/puppet/v3/facts/web01", &[], text.as_bytes());
    assert_eq!(answer.text(), text);
}
