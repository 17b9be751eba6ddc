//! The CA's certificate and CRLs, served from verified copies: the CA's own bytes, also while it is down, for a limited
//! time.

use std::time::{Duration, SystemTime};

use testkit::{Ca, Client, CommandOutcome, Recorded, Reply, Response, StandIn, wait_until};

use crate::support::{
    Estate, EstateBuilder, LIMIT, NO_WAIT, assert_contains, assert_refused, crl_fetch::ON_REQUEST,
};

const CA: &str = "/puppet-ca/v1/certificate/ca";
const CRL: &str = "/puppet-ca/v1/certificate_revocation_list/ca";
const LEGACY_CA: &str = "/production/certificate/ca";
const LEGACY_CRL: &str = "/production/certificate_revocation_list/ca";
const MODIFIED: &str = "Sat, 21 Nov 2020 10:00:00 GMT";
const ANSWERS: &str = "proscenium_edge_answers_total";
const EVERY_SECOND: &str = "interval = \"1s\"\njitter = \"0s\"";

fn edge(fetch: &'static str, ca: &'static str) -> EstateBuilder {
    Estate::builder()
        .fetch(fetch)
        .with(&format!("[ca]\nedge_answers = true\n{ca}"))
}

/// Starts an estate, waits for both copies, and forgets the requests so far.
fn started(builder: EstateBuilder) -> Estate {
    let estate = builder.start();
    wait_for_copies(&estate);
    estate.forget();
    estate
}

#[track_caller]
fn wait_for_copies(estate: &Estate) {
    let copied = wait_until(LIMIT, || {
        let both = [CA, CRL].map(|path| is_copy(&estate.anonymous().get(path)));
        (both == [true; 2]).then_some(())
    });
    assert!(copied.is_some(), "{}", estate.proxy.stderr());
}

/// Only a copy has an `Age`.
fn is_copy(response: &Response) -> bool {
    response.headers.get("age").is_some()
}

/// The number of requests from clients that reached the CA. Requests by the proxy itself are not counted.
fn passed_on(estate: &Estate) -> usize {
    let requests = estate.far_end();
    let of_clients = |request: &&Recorded| request.headers.get("x-forwarded-for").is_some();
    requests.iter().filter(of_clients).count()
}

fn fetch(estate: &Estate) -> CommandOutcome {
    estate.proxy.command(&["crl", "fetch"], &[])
}

/// Makes the CA server answer this path with this reply from now on, and everything else as before.
fn answer(
    ca_server: &StandIn,
    path: &'static str,
    reply: impl Fn() -> Reply + Send + Sync + 'static,
) {
    ca_server.answer(move |request: &Recorded| (request.path() == path).then(&reply));
}

/// Makes the stand-in return fixed CRLs from now on. Otherwise it signs them again for each request.
fn fix_crls(estate: &Estate) -> String {
    estate.ca.renew_crl();
    let lists = estate.ca.crl_pem();
    let fixed = lists.clone();
    answer(&estate.ca_server, CRL, move || Reply::ok(&fixed));
    fetch(estate);
    estate.forget();
    lists
}

#[test]
fn both_documents_are_the_cas_own_bytes_for_every_client_and_layout() {
    let estate = started(edge(ON_REQUEST, ""));
    let agent = estate.agent("web01");
    let (bundle, lists) = (estate.ca.bundle_pem(), fix_crls(&estate));
    for client in [agent, estate.anonymous()] {
        for (path, expected) in [
            (CA, &bundle),
            (CRL, &lists),
            (LEGACY_CA, &bundle),
            (LEGACY_CRL, &lists),
            ("/a_1/certificate/ca?x=y", &bundle),
        ] {
            let response = client.get(path);
            assert_eq!(response.status, 200, "{path}: {response:?}");
            assert_eq!(&response.text(), expected, "{path}");
            assert!(is_copy(&response), "{path}: {response:?}");
            let head = client.request("HEAD", path, &[], b"");
            assert_eq!((head.status, head.text().as_str()), (200, ""), "{path}");
            for name in ["content-length", "etag", "content-type"] {
                assert_eq!(
                    head.headers.only(name),
                    response.headers.only(name),
                    "{path}"
                );
            }
        }
    }
    assert!(estate.far_end().is_empty(), "{:#?}", estate.far_end());
    let metrics = estate.proxy.metrics();
    assert!(metrics.sum(ANSWERS, &[("document", "ca"), ("result", "full")]) >= 12.0);
    assert!(metrics.has("proscenium_edge_copy_age_seconds", &[("document", "crl")]));
    let record = estate.wait_for_record(|record| record["member"] == "edge-copy");
    assert_eq!(
        (
            &record["status"],
            &record["attempts"],
            &record["pool"],
            &record["class"]
        ),
        (&200.into(), &0.into(), &"ca".into(), &"enrolment".into())
    );
}

#[test]
fn a_client_that_has_the_current_copy_gets_304() {
    let estate = edge(ON_REQUEST, "").start();
    let bundle = estate.ca.bundle_pem();
    answer(&estate.ca_server, CA, move || {
        Reply::ok(&bundle).header("Last-Modified", MODIFIED)
    });
    estate.proxy.reload();
    wait_for_copies(&estate);
    let dated = wait_until(LIMIT, || {
        let got = estate.anonymous().get(CA);
        (got.headers.get("last-modified") == Some(MODIFIED)).then_some(got)
    });
    let got = dated.expect("the copy has the CA's date");
    estate.forget();
    let tag = got.headers.only("etag").to_owned();
    let client = estate.anonymous();
    let ask = |name: &str, value: &str| client.request("GET", CA, &[(name, value)], b"");
    for (name, value, status) in [
        ("If-None-Match", tag.as_str(), 304),
        ("If-None-Match", "\"another\"", 200),
        ("If-None-Match", "*", 304),
        ("If-Modified-Since", MODIFIED, 200),
        ("If-Modified-Since", "some day", 200),
    ] {
        let response = ask(name, value);
        assert_eq!(response.status, status, "{name}: {value}: {response:?}");
        assert_eq!(response.text().is_empty(), status == 304);
        assert_eq!(response.headers.only("etag"), tag);
        assert!(is_copy(&response));
    }
    assert_eq!(passed_on(&estate), 0);
    let output = estate
        .proxy
        .metrics()
        .sum(ANSWERS, &[("result", "not-modified")]);
    assert_eq!(output, 2.0);
}

#[test]
fn t08_an_agent_with_the_previous_crl_never_gets_304_for_the_next() {
    let estate = started(edge(ON_REQUEST, ""));
    // The proxy refreshes its copy now, and the client sends this date the next time. By then the CA has issued another
    // CRL, which no client has fetched.
    let client = estate.anonymous();
    let refreshed = httpdate::fmt_http_date(SystemTime::now());
    let before = client.get(CRL).text();
    estate.ca.revoke(&estate.ca.agent("web01"));
    let list = estate.ca.crl_pem();
    answer(&estate.ca_server, CRL, move || {
        Reply::ok(&list).header("Last-Modified", MODIFIED)
    });
    fetch(&estate);
    let asked = [("If-Modified-Since", refreshed.as_str())];
    let after = client.request("GET", CRL, &asked, b"");
    assert_eq!((after.status, is_copy(&after)), (200, true), "{after:?}");
    assert_ne!(after.text(), before);
}

#[test]
fn a_date_is_accepted_once_no_client_can_have_an_older_copy_of_that_date() {
    let estate = started(edge(EVERY_SECOND, "edge_answers_age_max = \"2s\""));
    let client = estate.anonymous();
    let began = SystemTime::now() - Duration::from_secs(1);
    for path in [CA, CRL] {
        if path == CRL {
            let lists = estate.ca.crl_pem();
            answer(&estate.ca_server, CRL, move || Reply::ok(&lists));
        }
        let at = |date| {
            let date = httpdate::fmt_http_date(date);
            client.request("GET", path, &[("If-Modified-Since", &date)], b"")
        };
        let output = wait_until(LIMIT, || {
            (at(SystemTime::now()).status == 304).then_some(())
        });
        assert!(output.is_some(), "{path}");
        assert_eq!(at(began).status, 200, "{path}");
        let to_come = SystemTime::now() + Duration::from_secs(3600);
        assert_eq!(at(to_come).status, 200, "{path}");
    }
}

#[test]
fn while_the_ca_is_down_a_new_agent_gets_the_copies_with_their_age() {
    let estate = started(edge(EVERY_SECOND, "").ca_pool(NO_WAIT));
    estate.ca_server.kill();
    let old = wait_until(LIMIT, || {
        let response = estate.anonymous().get(CRL);
        assert_eq!(response.status, 200, "{response:?}");
        let age: u64 = response.headers.only("age").parse().expect("seconds");
        (age >= 2).then_some(())
    });
    assert!(
        old.is_some(),
        "the age rises while the CA does not confirm the copy"
    );
    for path in [CA, CRL] {
        assert_eq!(estate.anonymous().get(path).status, 200);
    }
    // The proxy has no copies for other paths, and requests them from the CA as before.
    assert_eq!(
        estate
            .anonymous()
            .get("/puppet-ca/v1/certificate/web01")
            .status,
        503
    );
}

#[test]
fn a_copy_that_the_ca_does_not_confirm_is_served_for_a_limited_time() {
    let estate = started(edge(ON_REQUEST, "edge_answers_age_max = \"2s\""));
    estate.ca_server.kill();
    for path in [CA, CRL] {
        let ended = wait_until(LIMIT, || {
            (estate.anonymous().get(path).status == 503).then_some(())
        });
        assert!(ended.is_some(), "{path}");
    }
    // Copies are served again as soon as the CA is back.
    estate.ca_server.restart();
    let back = wait_until(LIMIT, || {
        fetch(&estate);
        is_copy(&estate.anonymous().get(CRL)).then_some(())
    });
    assert!(back.is_some());
}

#[test]
fn the_ca_gets_one_request_per_interval_however_many_clients_there_are() {
    let estate = started(edge(
        ON_REQUEST,
        "anonymous_rate_per_address = 1\nanonymous_burst_per_address = 1",
    ));
    for _ in 0..25 {
        for path in [CA, CRL] {
            // Limits on strangers' requests to the CA do not apply to requests that the proxy answers from a copy.
            assert_eq!(estate.anonymous().get(path).status, 200);
        }
    }
    assert!(estate.far_end().is_empty());
    fetch(&estate);
    let asked = estate.ca_server.requests();
    assert_eq!(asked.len(), 1, "{asked:#?}");
    assert_eq!(asked[0].path(), CRL);
}

#[test]
fn a_new_crl_is_served_as_soon_as_it_is_active() {
    let estate = started(edge(ON_REQUEST, ""));
    let client = estate.anonymous();
    let before = client.get(CRL);
    estate.ca.revoke(&estate.ca.agent("web01"));
    fetch(&estate);
    let tag = before.headers.only("etag");
    let after = client.request("GET", CRL, &[("If-None-Match", tag)], b"");
    assert_eq!(after.status, 200);
    assert!(is_copy(&after));
    assert_ne!(
        (after.text(), after.headers.only("etag")),
        (before.text(), tag)
    );
}

#[test]
fn while_the_ca_drops_revocations_agents_get_its_own_answer() {
    let ca = Ca::new();
    let bad = ca.agent("web01");
    let before = ca.crl_pem();
    ca.revoke(&bad);
    let estate = started(edge(ON_REQUEST, "").ca(&ca));
    let good = estate.anonymous().get(CRL);
    assert_ne!(good.text(), before);
    let dropped = before.clone();
    answer(&estate.ca_server, CRL, move || Reply::ok(&dropped));
    let output = fetch(&estate);
    assert!(output.stderr.contains("drops revocations"), "{output:?}");
    let passed = estate.anonymous().get(CRL);
    assert!(!is_copy(&passed));
    assert_eq!(passed.text(), before);
}

#[test]
fn t10_a_crl_that_only_agents_would_read_from_the_response_is_not_served() {
    let ca = Ca::new();
    let hidden = ca.crl_pem();
    ca.revoke(&ca.agent("web01"));
    let estate = started(edge(ON_REQUEST, "").ca(&ca));
    let good = estate.anonymous().get(CRL).text();
    let lists = ca.crl_pem();
    for strange in [
        format!("{lists} {hidden}"),
        format!("x{hidden}{lists}"),
        format!("{lists}-----BEGIN X509 CRL-----"),
        format!("{lists}{}", ca.bundle_pem()),
    ] {
        answer(&estate.ca_server, CRL, move || Reply::ok(&strange));
        fetch(&estate);
        let still = estate.anonymous().get(CRL);
        assert!(is_copy(&still));
        assert_eq!(still.text(), good);
    }
    answer(&estate.ca_server, CRL, move || {
        Reply::ok(&format!("\n{lists}\r\n"))
    });
    fetch(&estate);
    assert_ne!(estate.anonymous().get(CRL).text(), good);
}

#[test]
fn a_crl_that_the_operator_accepts_is_served_at_once() {
    let ca = Ca::new();
    let bad = ca.agent("web01");
    let before = ca.crl_pem();
    ca.revoke(&bad);
    let estate = started(edge(ON_REQUEST, "").ca(&ca));
    let old = before.clone();
    answer(&estate.ca_server, CRL, move || {
        Reply::ok(&old).header("Last-Modified", MODIFIED)
    });
    fetch(&estate);
    assert!(!is_copy(&estate.anonymous().get(CRL)));
    let issuer = format!("CN={}", ca.name());
    let accepted = estate
        .proxy
        .command(&["crl", "accept"], &[&issuer, "--why", "restored"]);
    assert_eq!(accepted.code, Some(0), "{accepted:?}");
    let answered = wait_until(LIMIT, || {
        let answer = estate.anonymous().get(CRL);
        (is_copy(&answer) && answer.text() == before).then_some(())
    });
    assert!(answered.is_some(), "{}", estate.proxy.stderr());
}

#[test]
fn the_documents_of_a_ca_that_leaves_the_bundle_are_no_longer_served() {
    let estate = started(edge(EVERY_SECOND, ""));
    // The next fetch waits, and so does a reload that needs the copies.
    let gate = testkit::ReplyGate::new();
    let (held, lists) = (gate.clone(), estate.ca.crl_pem());
    answer(&estate.ca_server, CRL, move || {
        Reply::ok(&lists).gate(&held)
    });
    estate.forget();
    let asked = wait_until(LIMIT, || {
        let requests = estate.ca_server.requests();
        let lists = requests.iter().filter(|request| request.path() == CRL);
        (lists.count() > 0).then_some(())
    });
    assert!(asked.is_some());
    assert!(is_copy(&estate.anonymous().get(CA)));
    let other = Ca::named("another");
    estate.proxy.write("ssl/crl.pem", &other.crl_pem(), 0o644);
    estate
        .proxy
        .write("ssl/certs/ca.pem", &other.bundle_pem(), 0o644);
    estate.proxy.reload_applied();
    assert!(!is_copy(&estate.anonymous().get(CA)));
    gate.release();
    assert!(!is_copy(&estate.anonymous().get(CRL)));
}

#[test]
fn untrusted_certificates_are_never_served() {
    let ca = Ca::new();
    let (own, other) = (ca.bundle_pem(), Ca::named("another").bundle_pem());
    for strange in [
        other.clone(),
        format!("{own}{other}"),
        format!("{own}{}", ca.crl_pem()),
        // A CRL that the proxy's PEM reader skips and agents read.
        format!("{own}{}", other.replace("-----BEGIN", " -----BEGIN")),
        format!("{}{own}", other.replace("-----BEGIN", "x-----BEGIN")),
        "not yet".to_owned(),
    ] {
        let estate = Estate::builder()
            .ca(&ca)
            .fetch(ON_REQUEST)
            .with("[ca]\nedge_answers = false")
            .start();
        let reply = strange.clone();
        answer(&estate.ca_server, CA, move || Reply::ok(&reply));
        estate.edit_config("edge_answers = false", "edge_answers = true");
        estate.proxy.reload_applied();
        estate.wait_for_event("cannot fetch a current copy of the CA");
        // Without a copy, the CA itself answers every client.
        let response = estate.anonymous().get(CA);
        assert_eq!((response.text(), is_copy(&response)), (strange, false));
        // The earlier trusted document is still served where there is a copy of it.
        estate.ca_server.answer_as_puppet();
        estate.proxy.reload();
        let copied = wait_until(LIMIT, || is_copy(&estate.anonymous().get(CA)).then_some(()));
        assert!(copied.is_some());
        answer(&estate.ca_server, CA, move || Reply::ok("not yet"));
        estate.proxy.reload();
        estate.wait_for_event("cleared: cannot fetch a current copy of the CA");
        assert_eq!(estate.anonymous().get(CA).text(), own);
    }
}

#[test]
fn no_alarm_about_copies_is_left_once_nothing_is_fetched() {
    let estate = edge(EVERY_SECOND, "").start();
    answer(&estate.ca_server, CA, || Reply::ok("not yet"));
    let config = estate.proxy.config_text();
    estate.wait_for_status("the alarm", |status| {
        status["alarms"].to_string().contains("ca-copy")
    });
    let config = config
        .replace("edge_answers = true", "edge_answers = false")
        .replace(EVERY_SECOND, "enabled = false");
    estate.write_config(&config);
    estate.proxy.reload_applied();
    estate.wait_for_status("no alarm", |status| {
        !status["alarms"].to_string().contains("ca-copy")
    });
}

#[test]
fn copies_are_served_by_default_if_crls_are_fetched() {
    let estate = started(Estate::builder().fetch(ON_REQUEST));
    let client = estate.anonymous();
    assert!(is_copy(&client.get(LEGACY_CA)));
    assert_eq!(passed_on(&estate), 0);
    let config = estate.proxy.config_text();
    let off = format!("{config}\n[ca]\nedge_answers = false\n");
    for fetching in [off, config.replace(ON_REQUEST, "enabled = false")] {
        estate.write_config(&fetching);
        estate.proxy.reload_applied();
        for path in [CA, CRL] {
            estate.forget();
            assert!(!is_copy(&client.get(path)));
            assert_eq!(passed_on(&estate), 1);
        }
        for path in [LEGACY_CA, LEGACY_CRL] {
            assert_refused(&client.get(path), 403, &["ca-administration"]);
        }
        estate.write_config(&config);
        estate.proxy.reload_applied();
        wait_for_copies(&estate);
    }
}

#[test]
fn serving_copies_without_fetching_is_an_error() {
    let refused = Estate::builder()
        .fetch("enabled = false")
        .with("[ca]\nedge_answers = true")
        .try_start();
    assert_contains(&refused.stderr, "[trust.fetch] is off");
}

#[test]
fn explain_shows_requests_that_are_answered_from_a_copy() {
    let estate = started(edge(ON_REQUEST, "edge_answers_age_max = \"2h\""));
    let explained = |path: &str| {
        let output = estate.proxy.command(&["explain"], &[path]);
        assert_eq!(output.code, Some(0), "{output:?}");
        output.stdout
    };
    for (path, document) in [(CA, "(ca)"), (LEGACY_CRL, "(crl)")] {
        let output = explained(path);
        let line = output
            .lines()
            .find(|line| line.starts_with("answer   by the proxy"));
        let line = line.unwrap_or_else(|| panic!("{output}"));
        assert!(line.contains(document) && line.contains("7200s"), "{line}");
        assert!(output.contains("pool     ca"), "{output}");
    }
    let output = explained("/puppet-ca/v1/certificate/web01");
    assert!(!output.contains("answer   by the proxy"), "{output}");
}

#[test]
fn only_reading_the_two_documents_is_open_to_any_client() {
    let estate = started(edge(ON_REQUEST, ""));
    let client = estate.anonymous();
    for (method, path, status) in [
        ("POST", CA, 405),
        ("PUT", CA, 405),
        ("PUT", CRL, 403),
        ("DELETE", CRL, 403),
        ("PUT", LEGACY_CA, 403),
        ("DELETE", LEGACY_CRL, 403),
        ("GET", "/production/certificate/web01", 403),
        ("GET", "/production/certificates/ca", 403),
        ("GET", "/production/certificate/ca/x", 403),
        ("GET", "/production/certificate/ca/", 403),
        ("GET", "/pro-duction/certificate/ca", 403),
        ("GET", "/puppet-ca/v1/certificate/ca/", 403),
        ("GET", "/puppet-ca/v2/certificate/ca", 403),
        ("GET", "/production/certificate_status/ca", 403),
    ] {
        let response = client.request(method, path, &[], b"");
        assert_eq!(response.status, status, "{method} {path}: {response:?}");
        assert!(!is_copy(&response), "{method} {path}");
    }
    assert!(estate.far_end().is_empty(), "{:#?}", estate.far_end());
}

#[test]
fn another_ca_behind_its_own_route_serves_its_own_documents() {
    let other = StandIn::builder("other").ca(&Ca::named("another")).start();
    let route = format!(
        "[pools.other]\nscheme = \"http\"\nmembers = [{:?}]\n[[routes]]\nname = \"other\"\npool = \"other\"\n\
         header = {{ X-Site = \"other\" }}\nclient = \"any\"\n",
        other.address()
    );
    let estate = edge(ON_REQUEST, "").with(&route).start();
    wait_for_copies(&estate);
    let client: Client = estate.anonymous();
    let response = client.request("GET", CA, &[("X-Site", "other")], b"");
    assert_eq!((response.status, is_copy(&response)), (200, false));
    assert_ne!(response.text(), estate.ca.bundle_pem());
    assert_eq!(other.requests().len(), 1);
}
