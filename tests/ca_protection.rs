//! Protection of the CA: which certificate requests reach it, and how much of its capacity strangers can use.

use std::{net::IpAddr, thread};

use testkit::{HeldPort, Protocol, Reply, ReplyGate, Response, TestConnection, wait_until};

use crate::support::{Estate, LIMIT, assert_refused, certificate_request, fixtures, http1_alone};

const BUNDLE: &str = "/puppet-ca/v1/certificate/ca";
const CRL: &str = "/puppet-ca/v1/certificate_revocation_list/ca";
const SLOW: &str = "/puppet-ca/v1/certificate/slow";
const REFUSALS: &str = "proscenium_refusals_total";
const OBSERVED: &str = "proscenium_certificate_requests_observed_total";

fn target(certname: &str) -> String {
    format!("/puppet-ca/v1/certificate_request/{certname}")
}

/// An estate whose proxy has these tables.
fn with(tables: &'static str) -> Estate {
    Estate::builder().with(tables).start()
}

/// The certname of a real agent, and the certificate request that it made.
fn of_an_agent(kind: &str) -> (String, Vec<u8>) {
    let pem = fixtures::text(&format!("request-{kind}.pem"));
    (format!("{kind}.lab.test"), pem.into_bytes())
}

fn put(estate: &Estate, certname: &str, body: &[u8]) -> Response {
    estate
        .anonymous()
        .request("PUT", &target(certname), &[], body)
}

#[track_caller]
fn refusals(estate: &Estate, reason: &str) -> f64 {
    estate.proxy.metrics().sum(REFUSALS, &[("reason", reason)])
}

// Requests that reach the CA.

#[test]
fn t11_no_request_to_administer_the_ca_reaches_it() {
    let estate = Estate::start();
    let agent = estate.agent("web01");
    for (method, path) in [
        ("DELETE", "/puppet-ca/v1/certificate_request/web01"),
        ("GET", "/puppet-ca/v1/certificate_status/web01"),
        ("PUT", "/puppet-ca/v1/certificate_status/web01"),
        ("DELETE", "/puppet-ca/v1/certificate_status/web01"),
        ("GET", "/puppet-ca/v1/certificate_statuses/all"),
        ("PUT", "/puppet-ca/v1/certificate_revocation_list"),
        ("PUT", "/puppet-ca/v1/clean"),
        ("POST", "/puppet-ca/v1/sign"),
        ("POST", "/puppet-ca/v1/sign/all"),
        ("PUT", "/puppet-ca/v1/certificate_request/web01/"),
        ("PUT", "/puppet-ca/v2/certificate_request/web01"),
        ("PUT", "/production/certificate_status/web01"),
        ("PUT", "/production/certificate_request/web01"),
        ("POST", "/RPC2"),
    ] {
        for client in [&agent, &estate.anonymous()] {
            let body = certificate_request("web01");
            let response = client.request(method, path, &[], &body);
            assert_refused(&response, 403, &["ca-administration"]);
        }
    }
    assert!(estate.far_end().is_empty(), "{:#?}", estate.far_end());
    assert_eq!(refusals(&estate, "class-closed"), 28.0);
}

#[test]
fn t11_a_certificate_request_for_rights_on_the_servers_never_reaches_the_ca() {
    let estate = Estate::start();
    let (name, body) = of_an_agent("cli-auth");
    let agent = estate.agent("web01");
    let words = [
        "pp_cli_auth",
        "1.3.6.1.4.1.34380.1.3.39",
        "csr_attributes.yaml",
    ];
    let pieces: Vec<_> = body.chunks(100).collect();
    for client in [&agent, &estate.anonymous()] {
        let whole = client.request("PUT", &target(&name), &[], &body);
        assert_refused(&whole, 403, &words);
        let mut connection = client.connect().expect("connects");
        connection
            .send_chunked("PUT", &target(&name), &[], &pieces)
            .expect("sends");
        let chunked = connection.read_response().expect("is answered");
        assert_refused(&chunked, 403, &words);
        // The connection stays open: the whole body was read.
        assert_eq!(connection.get(BUNDLE).status, 200);
    }
    assert!(
        estate
            .far_end()
            .iter()
            .all(|request| request.method == "GET")
    );
    assert_eq!(refusals(&estate, "csr-authorization"), 4.0);
    let record = estate.wait_for_record(|record| record["reason"] == "csr-authorization");
    assert_eq!(record["status"], 403);
    assert_eq!(record["class"], "enrolment");
    assert_eq!(record["attempts"], 0);
    let cause = record["cause"].as_str().unwrap_or_default();
    assert!(cause.contains("pp_cli_auth"), "{record}");
}

#[test]
fn t11_a_certificate_request_behind_expect_100_continue_is_checked_too() {
    let estate = Estate::start();
    for (kind, status) in [("cli-auth", 403), ("attributes", 200)] {
        let (name, body) = of_an_agent(kind);
        let expect = [("Expect", "100-continue")];
        let mut connection = estate.anonymous().connect().expect("connects");
        let head = connection.head("PUT", &target(&name), &expect, Some(body.len()));
        connection
            .send_raw(&[head, body.clone()].concat())
            .expect("sends");
        let response = connection.read_response().expect("is answered");
        assert_eq!(response.status, status, "{response:?}");
    }
    assert_eq!(estate.only_request().body.kept, of_an_agent("attributes").1);
}

#[test]
fn t11_no_encoding_of_a_certificate_request_for_rights_reaches_the_ca() {
    let estate = Estate::start();
    let (name, body) = of_an_agent("cli-auth");
    let path = target(&name);
    let absolute = format!("https://{}{path}", estate.anonymous().host());
    let query = format!("{path}?environment=production&x=/../certificate/ca");
    for (target, fields) in [
        (&query, &[][..]),
        (&path, &[("Content-Type", "application/json")]),
        (&path, &[("Content-Encoding", "gzip")]),
        (&path, &[("X-HTTP-Method-Override", "GET")]),
    ] {
        let client = estate.anonymous();
        let response = client.request("PUT", target, fields, &body);
        assert_eq!(response.status, 403, "{target} {fields:?}: {response:?}");
    }
    let mut connection = estate.anonymous().connect().expect("connects");
    let bytes: Vec<&[u8]> = body.chunks(1).collect();
    connection
        .send_chunked("PUT", &path, &[], &bytes)
        .expect("sends");
    assert_eq!(connection.read_response().expect("an answer").status, 403);
    if crate::protocol() == Protocol::Http1 {
        let response = estate.anonymous().request("PUT", &absolute, &[], &body);
        assert_eq!(response.status, 403, "{response:?}");
    }
    let (_, good) = of_an_agent("attributes");
    for both in [[&good[..], &body], [&body, &good]] {
        let response = put(&estate, &name, &both.concat());
        assert_eq!(response.status, 403, "two in one: {response:?}");
    }
    assert!(estate.ca_server.requests().is_empty());
}

#[test]
fn certificate_requests_of_agents_arrive_byte_for_byte() {
    let estate = Estate::start();
    for kind in ["plain", "attributes"] {
        let (name, body) = of_an_agent(kind);
        for chunked in [false, true] {
            estate.forget();
            let mut connection = estate.anonymous().connect().expect("connects");
            if chunked {
                let pieces: Vec<_> = body.chunks(7).collect();
                connection.send_chunked("PUT", &target(&name), &[], &pieces)
            } else {
                connection.send("PUT", &target(&name), &[], &body)
            }
            .expect("sends");
            let response = connection.read_response().expect("is answered");
            // Every round of `waitforcert` gets the second response.
            assert_eq!(response.status, if chunked { 400 } else { 200 });
            assert_eq!(estate.only_request().body.kept, body, "{kind}");
        }
    }
    assert_eq!(estate.proxy.metrics().sum(REFUSALS, &[]), 0.0);
}

#[test]
fn each_rule_refuses_with_its_reason() {
    let estate = Estate::start();
    let good = certificate_request("web01");
    let mut forged = good.clone();
    let signature = forged.len() - 60;
    forged[signature] = if forged[signature] == b'A' {
        b'B'
    } else {
        b'A'
    };
    let table: Vec<(&str, &str, Vec<u8>, &str)> = vec![
        ("csr-unreadable", "web01", Vec::new(), "does not begin"),
        ("csr-unreadable", "web01", b"CSR".to_vec(), "does not begin"),
        (
            "csr-unreadable",
            "web01",
            [&good[..], &good].concat(),
            "base64",
        ),
        (
            "csr-unreadable",
            "web01",
            good[..200].to_vec(),
            "does not end",
        ),
        (
            "csr-name",
            "web02",
            good.clone(),
            "its name is web01, but it was sent for web02",
        ),
        ("csr-name", "WEB01", good.clone(), "its name is web01"),
        ("csr-signature", "web01", forged, "its own key"),
        (
            "csr-altnames",
            "altnames.lab.test",
            of_an_agent("altnames").1,
            "the name puppet",
        ),
        (
            "csr-authorization",
            "cli-auth.lab.test",
            of_an_agent("cli-auth").1,
            "pp_cli_auth",
        ),
    ];
    for (reason, name, body, word) in &table {
        let before = refusals(&estate, reason);
        let response = put(&estate, name, body);
        assert_refused(
            &response,
            403,
            &["did not forward", word, "puppet ssl clean"],
        );
        assert_eq!(refusals(&estate, reason), before + 1.0, "{reason}");
    }
    assert!(estate.far_end().is_empty(), "{:#?}", estate.far_end());
    assert_eq!(put(&estate, "web01", &good).status, 200);
}

#[test]
fn other_types_and_sizes_of_keys_are_refused_where_configured() {
    let estate = with("[csr]\nkeys = [\"rsa\"]\nrsa_bits_min = 3072");
    let refused = put(&estate, "web01", &certificate_request("web01"));
    assert_refused(&refused, 403, &["ECDSA P-256", "not accepted"]);
    let (name, body) = of_an_agent("attributes");
    assert_refused(
        &put(&estate, &name, &body),
        403,
        &["2048 bits", "3072 to 8192"],
    );
    assert!(estate.far_end().is_empty());
    let (name, body) = of_an_agent("plain");
    assert_eq!(put(&estate, &name, &body).status, 200);
    assert_eq!(refusals(&estate, "csr-key"), 2.0);
}

#[test]
fn an_exception_lifts_one_rule_for_the_certnames_that_it_names() {
    let estate = with("[[csr.allow]]\ncertname = [\"altnames.*\"]\nskip_rules = [\"altnames\"]");
    let (altnames, wants_names) = of_an_agent("altnames");
    let (cli_auth, wants_rights) = of_an_agent("cli-auth");
    assert_eq!(put(&estate, &altnames, &wants_names).status, 200);
    assert_eq!(estate.only_request().body.kept, wants_names);
    assert_refused(
        &put(&estate, &cli_auth, &wants_rights),
        403,
        &["grants rights"],
    );
    // After a reload, the exception applies to the other certnames from the next request on.
    estate.edit_config("altnames.*", "cli-*");
    estate.edit_config("\"altnames\"]", "\"authorization\"]");
    estate.proxy.reload_applied();
    estate.forget();
    assert_refused(
        &put(&estate, &altnames, &wants_names),
        403,
        &["the name puppet"],
    );
    assert_eq!(put(&estate, &cli_auth, &wants_rights).status, 200);
    assert_eq!(estate.only_request().body.kept, wants_rights);
}

#[test]
fn rules_that_observe_forward_everything_and_log_it() {
    let estate = with("[csr]\nobserve = true");
    let (name, body) = of_an_agent("cli-auth");
    assert_eq!(put(&estate, &name, &body).status, 200);
    assert_eq!(estate.only_request().body.kept, body);
    let labels = [("reason", "csr-authorization")];
    estate.wait_for_metric(OBSERVED, &labels, 1.0);
    let output = estate.wait_for_record(|record| record["status"] == 200);
    let cause = output["cause"].as_str().unwrap_or_default();
    assert!(
        cause.contains("observed only: csr-authorization"),
        "{output}"
    );
    assert!(cause.contains("pp_cli_auth"), "{output}");
    assert_eq!(put(&estate, "web01", b"CSR").status, 200, "whatever it is");
    assert_eq!(refusals(&estate, "csr-authorization"), 0.0);
}

#[test]
fn certificate_requests_on_legacy_paths_are_checked_too_where_a_route_opens_them() {
    let estate = with(
        "[[routes]]\nname = \"legacy\"\npool = \"ca\"\nallow = [\"admin.*\"]\nclasses = [\"ca-administration\"]\n\
         path = { regex = \"/[a-z]+/certificate_request/.*\" }",
    );
    let (name, body) = of_an_agent("cli-auth");
    let good = certificate_request("web01");
    let client = estate.agent("admin.example");
    for (path, body, status) in [
        (
            format!("/production/certificate_request/{name}"),
            &body,
            403,
        ),
        (
            "/production/certificate_request/web02".to_owned(),
            &good,
            403,
        ),
        (
            "/production/certificate_request/web01/x".to_owned(),
            &good,
            403,
        ),
        (
            "/production/certificate_request/web01".to_owned(),
            &good,
            200,
        ),
    ] {
        let response = client.request("PUT", &path, &[], body);
        assert_eq!(response.status, status, "{path}: {response:?}");
    }
    assert_eq!(estate.only_request().body.kept, good);
    let large = vec![b'x'; (16 << 10) + 1];
    let path = "/production/certificate_request/web01";
    assert_eq!(client.request("PUT", path, &[], &large).status, 413);
}

#[test]
fn explain_shows_that_a_certificate_request_is_checked() {
    let estate = Estate::start();
    let output = |method| {
        let arguments = [
            "/puppet-ca/v1/certificate_request/web01",
            "--method",
            method,
        ];
        estate.proxy.command(&["explain"], &arguments).stdout
    };
    let checked = "checked by [csr] before it is forwarded, as the certificate request of web01";
    assert!(output("PUT").contains(checked), "{}", output("PUT"));
    assert!(!output("GET").contains("[csr]"), "{}", output("GET"));
}

/// Sends requests until one is refused with Retry-After; returns the number of accepted ones.
#[track_caller]
fn until_refused(connection: &mut TestConnection) -> (usize, Response) {
    for n in 0..200 {
        let response = connection.get(BUNDLE);
        if response.status != 200 {
            return (n, response);
        }
    }
    panic!("two hundred requests at once were not too many");
}

#[track_caller]
fn assert_unavailable(response: &Response, status: u16) -> u64 {
    assert_eq!(response.status, status, "{response:?}");
    let seconds = response.headers.only("retry-after").parse();
    let seconds = seconds.expect("an agent waits whole seconds");
    assert!((1..=131).contains(&seconds), "{seconds}");
    seconds
}

#[test]
fn t12_a_flood_from_one_address_is_answered_with_retry_after() {
    let estate = with("[ca]\nanonymous_rate_per_address = 1\nanonymous_burst_per_address = 5");
    let mut flood = estate.anonymous().connect().expect("connects");
    let (passed, refused) = until_refused(&mut flood);
    assert!(passed >= 5, "{passed}");
    assert_unavailable(&refused, 429);
    assert_refused(&refused, 429, &["at this address", "Try again later"]);
    // The rate counts every request to the CA, and no request to other pools.
    let csr = certificate_request("web01");
    let response = flood.request("PUT", &target("web01"), &[], &csr);
    assert_unavailable(&response, 429);
    assert_eq!(flood.get("/status/v1/simple").status, 200);
    assert!(refusals(&estate, "ca-rate-address") >= 2.0);
    let record = estate.wait_for_record(|record| record["reason"] == "ca-rate-address");
    assert_eq!(record["status"], 429);
    assert_eq!(record["attempts"], 0);
    // Clients at another address, and an agent at this address, are not affected.
    let other: IpAddr = [127, 0, 0, 2].into();
    assert_eq!(estate.anonymous().source(other).get(BUNDLE).status, 200);
    let mut agent = estate
        .client(&estate.ca.agent("web02"))
        .connect()
        .expect("connects");
    for _ in 0..50 {
        assert_eq!(agent.get(BUNDLE).status, 200);
    }
}

#[test]
fn t12_clients_over_the_rate_are_spread_by_retry_after() {
    let estate = with("[ca]\nanonymous_rate_per_address = 1\nanonymous_burst_per_address = 1");
    let mut flood = estate.anonymous().connect().expect("connects");
    let (_, first) = until_refused(&mut flood);
    let mut output: Vec<_> = (0..40)
        .map(|_| flood.get(BUNDLE))
        .filter(|response| response.status == 429)
        .map(|response| assert_unavailable(&response, 429))
        .chain([assert_unavailable(&first, 429)])
        .collect();
    output.sort_unstable();
    output.dedup();
    assert!(output.len() > 15, "{output:?}");
    assert!(output.last() > Some(&30), "one after the other: {output:?}");
}

#[test]
fn t12_strangers_at_many_addresses_share_one_rate() {
    let estate = with("[ca]\nanonymous_rate = 1\nanonymous_burst = 3");
    let ask = |n: u8| {
        let source: IpAddr = [127, 0, 1, n].into();
        estate.anonymous().source(source).get(BUNDLE)
    };
    let refused: Vec<_> = (1..=60)
        .map(ask)
        .filter(|answer| answer.status != 200)
        .collect();
    assert!(
        !refused.is_empty() && refused.len() <= 57,
        "{}",
        refused.len()
    );
    for response in &refused {
        assert_unavailable(response, 429);
    }
    assert!(refusals(&estate, "ca-rate-total") >= refused.len() as f64);
    let agent = estate.agent("web01");
    assert_eq!(agent.get(BUNDLE).status, 200);
}

/// As many strangers as the CA has slots for, each at its own address, with requests that the CA never answers.
fn slow_strangers<T>(estate: &Estate, count: u8, meanwhile: impl FnOnce() -> T) -> T {
    let sources: Vec<_> = (1..=count).map(|n| [127, 0, 2, n].into()).collect();
    slow_strangers_at(estate, &sources, meanwhile)
}

fn slow_strangers_at<T>(estate: &Estate, sources: &[IpAddr], meanwhile: impl FnOnce() -> T) -> T {
    let gate = ReplyGate::new();
    gate.hold();
    let held = gate.clone();
    estate.ca_server.answer(move |request| {
        let slow = request.path() == SLOW;
        slow.then(|| Reply::stream(300_000).gate_after(100_000, &held))
    });
    thread::scope(|scope| {
        let ask = |source| estate.anonymous().source(source).get(SLOW);
        let slow: Vec<_> = sources
            .iter()
            .map(|source| scope.spawn(move || ask(*source)))
            .collect();
        estate.ca_server.wait_for_head(sources.len(), LIMIT);
        let result = meanwhile();
        gate.release();
        for stranger in slow {
            let response = stranger.join().expect("asks");
            assert_eq!((response.status, response.body.length), (200, 300_000));
        }
        result
    })
}

/// Asserts that the CA answers the requests of an agent with a certificate.
#[track_caller]
fn assert_served(estate: &Estate) {
    let agent = estate.agent("web01");
    assert_eq!(agent.get(CRL).status, 200);
    assert_eq!(agent.get(BUNDLE).status, 200);
    let csr = certificate_request("web01");
    let answer = agent.request("PUT", &target("web01"), &[], &csr);
    assert!([200, 400].contains(&answer.status), "{answer:?}");
}

#[test]
fn t12_slow_strangers_leave_slots_for_agents() {
    let estate = with("[ca]\nanonymous_in_flight_max = 3");
    slow_strangers(&estate, 3, || {
        let csr = certificate_request("web09");
        assert_unavailable(&estate.anonymous().get(CRL), 503);
        let refused = put(&estate, "web09", &csr);
        assert_refused(&refused, 503, &["3 requests", "Try again later"]);
        assert_unavailable(&refused, 503);
        assert_eq!(refusals(&estate, "ca-busy"), 2.0);
        for _ in 0..10 {
            assert_served(&estate);
        }
    });
    // Each slot is free after the last byte of the response.
    assert_eq!(estate.anonymous().get(CRL).status, 200);
    let record = estate.wait_for_record(|record| record["reason"] == "ca-busy");
    assert_eq!(record["status"], 503);
    assert_eq!(record["attempts"], 0);
}

#[test]
fn t12_one_address_leaves_half_of_the_slots_to_strangers_at_other_addresses() {
    let estate = with("[ca]\nanonymous_in_flight_max = 4");
    let here: IpAddr = [127, 0, 0, 1].into();
    slow_strangers_at(&estate, &[here, here], || {
        let refused = estate.anonymous().get(CRL);
        assert_refused(
            &refused,
            503,
            &["2 requests", "at this address", "Try again later"],
        );
        assert_unavailable(&refused, 503);
        assert_eq!(refusals(&estate, "ca-busy-address"), 1.0);
        let elsewhere: IpAddr = [127, 0, 0, 2].into();
        assert_eq!(estate.anonymous().source(elsewhere).get(CRL).status, 200);
        assert_served(&estate);
    });
    assert_eq!(estate.anonymous().get(CRL).status, 200);
}

#[test]
fn t12_two_addresses_leave_a_slot_to_strangers_at_other_addresses() {
    let estate = with("[ca]\nanonymous_in_flight_max = 4");
    let [one, other, third] = [1, 2, 3].map(|n| IpAddr::from([127, 0, 0, n]));
    slow_strangers_at(&estate, &[one, one, other], || {
        let refused = estate.anonymous().source(other).get(CRL);
        assert_refused(&refused, 503, &["1 request", "at this address"]);
        assert_eq!(refusals(&estate, "ca-busy-address"), 1.0);
        assert_eq!(estate.anonymous().source(third).get(CRL).status, 200);
    });
}

#[test]
fn t12_a_quarter_of_the_cas_slots_is_for_agents_whatever_is_configured() {
    let estate = Estate::builder()
        .ca_pool("connections_max = 4")
        .with("[ca]\nanonymous_in_flight_max = 1000")
        .start();
    slow_strangers(&estate, 3, || {
        assert_unavailable(&estate.anonymous().get(CRL), 503);
        assert_served(&estate);
    });
    let address = estate.ca_server.address();
    estate.edit_config(
        &format!("members = [\"{address}\"]\nconnections_max = 4"),
        &format!("members = [{{ address = \"{address}\", max = 3 }}]"),
    );
    estate.proxy.reload_applied();
    estate.wait_for_members(&["ca"]);
    estate.ca_server.forget();
    slow_strangers(&estate, 2, || {
        assert_unavailable(&estate.anonymous().get(CRL), 503);
        assert_served(&estate);
    });
}

#[test]
fn t12_a_stranger_that_sends_slowly_takes_no_slot_at_the_ca() {
    http1_alone!("the body is held back by its connection; of streams see http2.rs");
    let estate = with("[ca]\nanonymous_in_flight_max = 1");
    let csr = certificate_request("web01");
    let mut slow: Vec<_> = (0..5)
        .map(|_| estate.anonymous().connect().expect("connects"))
        .collect();
    for connection in &mut slow {
        let head = connection.head("PUT", &target("web01"), &[], Some(csr.len()));
        connection
            .send_raw(&[&head[..], &csr[..100]].concat())
            .expect("sends");
    }
    assert_eq!(estate.anonymous().get(CRL).status, 200);
    for connection in &mut slow {
        connection.send_raw(&csr[100..]).expect("sends");
        let answer = connection.read_response().expect("is answered");
        assert!([200, 400].contains(&answer.status), "{answer:?}");
    }
}

#[test]
fn t12_a_stranger_that_waits_for_100_continue_takes_no_slot_at_the_ca() {
    let estate = with("[ca]\nanonymous_in_flight_max = 1");
    let expect = [("Expect", "100-continue")];
    let mut waiting = estate.anonymous().connect().expect("connects");
    let head = waiting.head("GET", CRL, &expect, Some(5));
    waiting.send_raw(&head).expect("sends");
    let output = waiting.read_head().expect("gets 100");
    assert_eq!(output.status, 100);
    assert_eq!(estate.anonymous().get(CRL).status, 200);
    assert_eq!(refusals(&estate, "ca-busy"), 0.0);
    waiting.send_raw(b"12345").expect("sends");
    assert_eq!(waiting.read_response().expect("an answer").status, 200);
}

/// Waits until the CA has a free slot for a stranger.
#[track_caller]
fn wait_for_a_place(estate: &Estate) {
    let has_room = || (estate.anonymous().get(CRL).status == 200).then_some(());
    wait_until(LIMIT, has_room).expect("strangers are served again");
}

#[test]
fn t12_strangers_that_disconnect_free_their_slots() {
    let estate = with("[ca]\nanonymous_in_flight_max = 4");
    estate.ca_server.answer(move |request| {
        let slow = request.path() == SLOW;
        slow.then(|| Reply::stream(64 << 20))
    });
    for _ in 0..5 {
        let gone: Vec<_> = (0..2)
            .map(|_| {
                let mut connection = estate.anonymous().connect().expect("connects");
                connection.send("GET", SLOW, &[], b"").expect("sends");
                assert_eq!(connection.read_head().expect("a head").status, 200);
                connection
            })
            .collect();
        assert_unavailable(&estate.anonymous().get(CRL), 503);
        gone.into_iter().for_each(TestConnection::reset);
        wait_for_a_place(&estate);
    }
}

#[test]
fn t12_a_share_of_a_backup_is_for_agents_while_it_is_used() {
    let estate = Estate::start();
    let address = estate.ca_server.address();
    let gone = HeldPort::take();
    estate.edit_config(
        &format!("members = [\"{address}\"]"),
        &format!(
            "members = [\"{}\", {{ address = \"{address}\", backup = true, max = 4 }}]",
            gone.address()
        ),
    );
    estate.proxy.reload_applied();
    estate.wait_for_health("ca", &gone.address().to_string(), "down");
    slow_strangers(&estate, 3, || {
        assert_unavailable(&estate.anonymous().get(CRL), 503);
        assert_served(&estate);
    });
}

#[test]
fn t12_a_reload_applies_a_raised_rate_at_once() {
    let estate = with("[ca]\nanonymous_rate_per_address = 1\nanonymous_burst_per_address = 100");
    let mut client = estate.anonymous().connect().expect("connects");
    let (_, refused) = until_refused(&mut client);
    assert_unavailable(&refused, 429);
    estate.edit_config(
        "anonymous_rate_per_address = 1\nanonymous_burst_per_address = 100",
        "anonymous_rate_per_address = 100\nanonymous_burst_per_address = 100",
    );
    estate.proxy.reload_applied();
    wait_for_a_place(&estate);
}
