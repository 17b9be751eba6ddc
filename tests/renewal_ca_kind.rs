//! Renewals go only to a CA server that is known to renew the certificate that the proxy forwards. Another CA would
//! renew the proxy's own certificate, and might revoke its previous one.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use testkit::{
    Renewing, Reply, ReplyGate, Response, StandIn, TestCredential, http2::StreamOutcome, wait_until,
};

use crate::support::{
    Estate, EstateBuilder, LIMIT, assert_refused,
    http2::{connect, get},
    paths::CA_CERTIFICATE,
};

const RENEWAL: &str = "/puppet-ca/v1/certificate_renewal";
const OFF: &str = "proscenium_renewal_disabled";
const ALARM: &str = "renewal-off:";

/// An estate whose CA server is Puppet Server, with these additional lines in `[ca]`.
fn renewing(lines: &'static str) -> EstateBuilder {
    Estate::builder()
        .tls_members()
        .with(&format!("[ca]\nrenewal = true\n{lines}"))
}

/// Makes the CA server one that renews the certificate of the connection and does not name a version of Puppet.
fn become_another_ca(ca_server: &StandIn, bundle: String) {
    ca_server.renew(Renewing::Peer);
    ca_server.answer(move |request| {
        let is_certificate = request.method == "GET" && request.path() == CA_CERTIFICATE;
        is_certificate.then(|| Reply::ok(&bundle))
    });
}

fn renew(estate: &Estate, agent: &TestCredential) -> Response {
    let fields = [("Content-Type", "text/plain")];
    estate.client(agent).request("POST", RENEWAL, &fields, b"")
}

fn renewals(estate: &Estate) -> usize {
    let requests = estate.ca_server.requests();
    requests
        .iter()
        .filter(|request| request.path() == RENEWAL)
        .count()
}

fn alarm(status: &serde_json::Value) -> Option<String> {
    let mut alarms = status["alarms"].as_array().into_iter().flatten();
    let of_renewal = |alarm: &&serde_json::Value| {
        alarm["key"]
            .as_str()
            .is_some_and(|key| key.starts_with(ALARM))
    };
    let message = alarms.find(of_renewal)?["message"].as_str()?;
    Some(message.to_owned())
}

#[test]
fn an_unknown_ca_is_an_alarm_before_any_renewal_and_gets_none() {
    let estate = renewing("").start();
    become_another_ca(&estate.ca_server, estate.ca.bundle_pem());
    estate.proxy.reload();
    let status = estate.wait_for_status("alarm", |status| alarm(status).is_some());
    let message = alarm(&status).expect("an alarm");
    for words in [
        "x-puppet-version",
        "the proxy's",
        "`[ca] kind = \"puppet-server\"`",
        "`renewal = false`",
    ] {
        assert!(message.contains(words), "{words}: {message}");
    }
    estate.wait_for_event("gets no renewals");
    assert_eq!(estate.proxy.metrics().sum(OFF, &[]), 1.0);
    assert!(
        status["renewal"]["off"]["why"]
            .as_str()
            .is_some_and(|why| why == message),
        "{status:#}"
    );
    let agent = estate.ca.agent("web01");
    for _ in 0..2 {
        assert_refused(&renew(&estate, &agent), 404, &["off at this proxy"]);
    }
    assert_eq!(renewals(&estate), 0);
    // The CA is a Puppet Server again. No reload is necessary.
    estate.ca_server.answer(|_| None);
    estate.ca_server.renew(Renewing::Header);
    assert_eq!(renew(&estate, &agent).status, 200);
    assert_eq!(alarm(&estate.proxy.status()), None);
}

#[test]
fn a_ca_that_was_exchanged_since_the_last_renewal_gets_none() {
    let estate = renewing("").start();
    estate.ca_server.renew(Renewing::Header);
    let agent = estate.ca.agent("web01");
    assert_eq!(renew(&estate, &agent).status, 200);
    become_another_ca(&estate.ca_server, estate.ca.bundle_pem());
    assert_refused(&renew(&estate, &agent), 404, &["off at this proxy"]);
    assert_eq!(renewals(&estate), 1);
    assert!(alarm(&estate.proxy.status()).is_some());
}

/// Neither response shows the kind of the CA. The second one comes from Puppet Server's HTTP server while the CA
/// starts.
#[test]
fn a_ca_that_does_not_answer_or_starts_gets_no_renewal_and_raises_no_alarm() {
    let starting = Reply::status(404)
        .header("Content-Type", "text/html")
        .body(b"Not Found");
    for (reply, cause) in [
        (Reply::hang_up(), "before"),
        (starting, "it answered 404 Not Found"),
    ] {
        let estate = renewing("").start();
        estate.ca_server.renew(Renewing::Header);
        estate
            .ca_server
            .answer(move |request| (request.path() == CA_CERTIFICATE).then(|| reply.clone()));
        let agent = estate.ca.agent("web01");
        assert_refused(&renew(&estate, &agent), 503, &["nothing was sent"]);
        let record = estate.wait_for_record(|record| record["status"] == 503);
        let named = record["cause"].as_str().expect("a cause");
        assert!(named.contains(cause), "{record}");
        assert_eq!(renewals(&estate), 0);
        assert_eq!(alarm(&estate.proxy.status()), None);
    }
}

/// The setting is for a CA behind a front end that removes the header.
#[test]
fn a_ca_whose_kind_is_configured_gets_renewals_without_a_question() {
    let estate = renewing("kind = \"puppet-server\"").start();
    estate.ca_server.renew(Renewing::Header);
    estate.ca_server.answer(|request| {
        assert!(!request.is_kind_question());
        None
    });
    let agent = estate.ca.agent("web01");
    assert_eq!(renew(&estate, &agent).status, 200);
    assert_eq!(renewals(&estate), 1);
    assert_eq!(alarm(&estate.proxy.status()), None);
}

/// If the requests did not share the question, each would open a connection to the CA server, outside all limits of the
/// pool.
#[test]
fn renewals_that_arrive_together_share_one_question_to_the_ca() {
    let estate = renewing("").start();
    estate.ca_server.renew(Renewing::Header);
    let (gate, questions) = (ReplyGate::new(), Arc::new(AtomicUsize::new(0)));
    let (held, counted) = (gate.clone(), Arc::clone(&questions));
    let bundle = estate.ca.bundle_pem();
    estate.ca_server.answer(move |request| {
        let is_question = request.is_kind_question();
        is_question.then(|| {
            counted.fetch_add(1, Ordering::SeqCst);
            let named = Reply::ok(&bundle).header("X-Puppet-Version", "8.10.0");
            named.gate(&held)
        })
    });
    let mut connection = connect(&estate, &estate.ca.agent("web01"));
    let mut renewal = get(RENEWAL);
    renewal[0].1 = "POST".to_owned();
    let streams = [(); 20].map(|()| connection.open(&renewal, true).expect("sends"));
    // The proxy answers this request itself. By then the requests before it have begun.
    let last = connection.open(&get("/"), true).expect("sends");
    assert_eq!(connection.outcome(last), StreamOutcome::Answered(404));
    let asked = || (questions.load(Ordering::SeqCst) > 0).then_some(());
    wait_until(LIMIT, asked).expect("a question");
    gate.release();
    for stream in streams {
        assert_eq!(connection.outcome(stream), StreamOutcome::Answered(200));
    }
    assert_eq!(questions.load(Ordering::SeqCst), 1);
    assert_eq!(renewals(&estate), 20);
}
