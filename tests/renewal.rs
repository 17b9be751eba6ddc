//! Renewal of agents' certificates: only where it is configured, and only with a certificate of the same agent in the
//! response, whatever the CA does.

use testkit::{
    Client, Recorded, Renewing, Reply, Response, StandIn, TestCredential, readers, wait_until,
};

use crate::support::{
    Estate, EstateBuilder, LIMIT, assert_contains, assert_identity, assert_refused,
    certificate_request, done,
};

const RENEWAL: &str = "/puppet-ca/v1/certificate_renewal";
const OFF: &str = "proscenium_renewal_disabled";
const REFUSALS: &str = "proscenium_refusals_total";
/// The proxy's own name, as in its certificate towards members.
const PROXY: &str = "puppet";

/// Renewal enabled, with the CA behind mutual TLS.
fn renewing() -> EstateBuilder {
    Estate::builder().tls_members().with("[ca]\nrenewal = true")
}

/// An estate whose CA finds the certificate to renew in this way.
fn with(how: Renewing) -> Estate {
    let estate = renewing().start();
    estate.ca_server.renew(how);
    estate
}

fn inventory() -> Renewing {
    Renewing::Inventory(vec![PROXY.to_owned()])
}

fn renew(client: &Client) -> Response {
    client.request("POST", RENEWAL, &[("Content-Type", "text/plain")], b"")
}

/// Whether the response is a later certificate of the agent, with the same name and the same key.
fn is_renewed(agent: &TestCredential, response: &Response) -> bool {
    let renewed = TestCredential::from_pem(&agent.certname, &response.text(), "");
    let parts = |der: &[u8]| {
        let (_, certificate) = x509_parser::parse_x509_certificate(der).expect("a certificate");
        let key = certificate.public_key().raw.to_vec();
        (certificate.subject().to_string(), key)
    };
    renewed.cert_der != agent.cert_der && parts(&renewed.cert_der) == parts(&agent.cert_der)
}

/// Asserts that the request has the agent's certificate, and no other identity header, which a CA over TLS would ignore
/// and log.
#[track_caller]
fn assert_forwarded_certificate(request: &Recorded, agent: &TestCredential) {
    for name in ["x-client-verify", "x-client-dn"] {
        assert_eq!(request.headers.all(name).len(), 0, "{name}");
    }
    assert_certificate(request, agent);
}

#[track_caller]
fn assert_certificate(request: &Recorded, agent: &TestCredential) {
    let output = readers::escaped_certificate(&request.headers).expect("single certificate");
    assert_eq!(output.as_deref(), Some(&agent.cert_der[..]));
}

#[track_caller]
fn assert_on(estate: &Estate) {
    assert_eq!(estate.proxy.metrics().sum(OFF, &[]), 0.0);
    assert_eq!(
        estate.proxy.status()["renewal"]["off"],
        serde_json::Value::Null
    );
}

/// Asserts that `who` predicts the result of an agent's renewal.
#[track_caller]
fn assert_who_may_renew(estate: &Estate, certname: &str, may: bool) {
    let output = done(&estate.proxy, &["who"], &[certname, "--json"]);
    let who: serde_json::Value = serde_json::from_str(&output).expect("JSON");
    let mut classes = who["access"].as_array().into_iter().flatten();
    let renewal = classes.find(|access| access["class"] == "renewal");
    let renewal = renewal.unwrap_or_else(|| panic!("{who:#}"));
    assert_eq!(renewal["allowed"], may, "{renewal:#}");
    let off = renewal["decided_by"].as_str().unwrap_or_default();
    assert_eq!(off.contains("proscenium reload"), !may, "{renewal:#}");
}

#[test]
fn renewal_is_404_unless_configured() {
    let estate = Estate::builder().tls_members().start();
    estate.ca_server.renew(inventory());
    let agent = estate.ca.agent("web01");
    for client in [estate.client(&agent), estate.anonymous()] {
        assert_refused(&renew(&client), 404, &["not configured"]);
    }
    assert!(estate.far_end().is_empty());
    assert_eq!(estate.proxy.status()["renewal"]["configured"], false);
    estate.write_config(&format!(
        "{}\n[ca]\nrenewal = true\n",
        estate.proxy.config_text()
    ));
    estate.proxy.reload_applied();
    assert_eq!(renew(&estate.client(&agent)).status, 200);
    assert_eq!(estate.proxy.status()["renewal"]["configured"], true);
}

#[test]
fn an_agent_gets_its_next_certificate_from_a_ca_that_renews_by_inventory() {
    let estate = with(inventory());
    let agent = estate
        .ca
        .leaf("web01")
        .extension(&[1, 3, 6, 1, 4, 1, 34380, 1, 1, 13], "db")
        .issue();
    let client = estate.client(&agent);
    for _ in 0..2 {
        estate.forget();
        let response = renew(&client);
        assert_eq!(response.status, 200, "{response:?}");
        assert!(is_renewed(&agent, &response), "{}", response.text());
        let request = estate.only_request();
        assert_forwarded_certificate(&request, &agent);
        assert_eq!(request.headers.all("accept-encoding"), ["identity"]);
        assert_eq!(request.member, "ca");
        // Mutual TLS: the CA has seen the proxy's certificate.
        assert!(!request.peer_certificates.is_empty());
    }
    let record = estate.wait_for_record(|record| record["class"] == "renewal");
    assert_eq!(record["status"], 200);
    assert_eq!(record["attempts"], 1);
    assert_on(&estate);
}

#[test]
fn a_route_can_redirect_renewals_but_does_not_enable_them() {
    let other = StandIn::builder("other").ca(&testkit::Ca::new()).start();
    other.renew(Renewing::Header);
    let tables = format!(
        "[pools.other]\nscheme = \"http\"\nmembers = [{:?}]\n[[routes]]\nname = \"renewals\"\npool = \"other\"\n\
         path = {{ prefix = \"/puppet-ca\" }}\nclient = \"any\"\nclasses = [\"renewal\"]\n",
        other.address()
    );
    let alone = tables.clone();
    let refused = Estate::builder().with(&alone).try_start();
    assert_contains(&refused.stderr, "[ca] renewal");
    let estate = Estate::builder()
        .tls_members()
        .with(&format!("{tables}[ca]\nrenewal = true"))
        .start();
    let agent = estate.ca.agent("web01");
    assert_refused(&renew(&estate.anonymous()), 403, &["certificate"]);
    assert!(other.requests().is_empty());
    // The rules for renewals apply to the pool of this route too.
    assert!(is_renewed(&agent, &renew(&estate.client(&agent))));
    assert_identity(&other.last(), "SUCCESS", Some("CN=web01"));
    assert_certificate(&other.last(), &agent);
    other.answer(|request| (request.path() == RENEWAL).then(|| Reply::ok("north")));
    assert_refused(&renew(&estate.client(&agent)), 502, &["did not forward"]);
    assert_refused(&renew(&estate.client(&agent)), 404, &["off"]);
    assert!(estate.far_end().is_empty());
}

#[test]
fn a_renewed_certificate_is_accepted_as_the_agents() {
    let estate = with(inventory());
    let agent = estate.ca.agent("web01");
    let response = renew(&estate.client(&agent));
    let renewed = TestCredential::from_pem("web01", &response.text(), &agent.key_pem);
    assert_eq!(
        estate.client(&renewed).get("/puppet/v3/node/web01").status,
        200
    );
    // The renewed certificate can be renewed again, over another connection.
    assert!(is_renewed(&renewed, &renew(&estate.client(&renewed))));
}

#[test]
fn renewal_works_with_a_ca_that_trusts_headers() {
    let estate = with(Renewing::Header);
    let agent = estate.ca.agent("web01");
    assert!(is_renewed(&agent, &renew(&estate.client(&agent))));
    assert_on(&estate);
}

#[test]
fn a_ca_on_loopback_in_plain_http_gets_the_identity_with_a_warning() {
    let estate = Estate::builder().with("[ca]\nrenewal = true").start();
    estate.ca_server.renew(Renewing::Header);
    let agent = estate.ca.agent("web01");
    assert!(is_renewed(&agent, &renew(&estate.client(&agent))));
    let request = estate.only_request();
    assert_identity(&request, "SUCCESS", Some("CN=web01"));
    assert_certificate(&request, &agent);
    estate.wait_for_event("plain HTTP");
}

#[test]
fn a_ca_that_does_not_allow_the_proxy_answers_for_itself() {
    let estate = with(Renewing::Inventory(vec!["other".to_owned()]));
    let agent = estate.ca.agent("web01");
    assert_refused(&renew(&estate.client(&agent)), 400, &["infra inventory"]);
    assert_eq!(estate.ca_server.requests().len(), 1);
    // The CA renewed nothing. The operator fixes the CA's list, and the next renewal succeeds.
    assert_on(&estate);
    estate.ca_server.renew(inventory());
    assert_eq!(renew(&estate.client(&agent)).status, 200);
}

#[test]
fn the_404_of_a_ca_without_renewal_is_passed_on() {
    let estate = with(Renewing::Unknown);
    let agent = estate.ca.agent("web01");
    assert_refused(&renew(&estate.client(&agent)), 404, &["Not Found"]);
    assert_on(&estate);
}

#[test]
fn t07_a_ca_that_renews_the_proxys_own_certificate_is_a_502_an_alarm_and_the_end_of_renewals() {
    let watching = "watch = \"notify\"\nsettle = \"10ms\"";
    let estate = renewing().materials(watching).start();
    estate.ca_server.renew(Renewing::Peer);
    let (one, two) = (estate.ca.agent("web01"), estate.ca.agent("web02"));
    let response = renew(&estate.client(&one));
    assert_refused(
        &response,
        502,
        &["CN=puppet", "infra_inventory.txt", "keeps its certificate"],
    );
    assert!(!response.text().contains("BEGIN"), "{}", response.text());
    let record = estate.wait_for_record(|record| record["reason"] == "not-renewed");
    assert_eq!(record["status"], 502);
    assert_eq!(record["attempts"], 1);
    // The metrics, the status, the events and the command `status` all show the alarm.
    let metrics = estate.proxy.metrics();
    assert_eq!(metrics.sum(OFF, &[]), 1.0);
    assert_eq!(metrics.sum(REFUSALS, &[("reason", "not-renewed")]), 1.0);
    let off = &estate.proxy.status()["renewal"]["off"];
    let why = off["why"].as_str().unwrap_or_default();
    assert!(why.contains("web01") && why.contains("CN=puppet"), "{off}");
    estate.wait_for_event("renewal is off");
    let output = estate.proxy.command(&["status"], &[]).stdout;
    assert!(
        output.contains("WARNING since") && output.contains("web01"),
        "{output}"
    );
    assert_who_may_renew(&estate, "web01", false);
    let proof = estate.proxy.command(&["doctor"], &[]).stdout;
    let found = "the proxy has forwarded no certificate renewals since";
    assert!(proof.contains(found) && proof.contains("web01"), "{proof}");
    // Renewal is off for every agent, even if the CA would now answer correctly.
    estate.ca_server.renew(inventory());
    estate.forget();
    for agent in [&one, &two] {
        assert_refused(
            &renew(&estate.client(agent)),
            404,
            &["off", "proscenium status"],
        );
    }
    assert!(estate.far_end().is_empty());
    assert_eq!(
        estate
            .proxy
            .metrics()
            .sum(REFUSALS, &[("reason", "renewal-off")]),
        2.0
    );
    // Materials that reload automatically do not confirm that an operator has looked.
    let before = estate.proxy.generation();
    estate.ca.renew_crl();
    estate.proxy.write_crl();
    estate.wait_for_status("the next list", |status| {
        status["generation"]["number"].as_u64() > Some(before)
    });
    assert_refused(&renew(&estate.client(&one)), 404, &["off"]);
    // A reload by the operator turns renewal on again, even if nothing has changed.
    assert_eq!(estate.proxy.reload()["result"], "unchanged");
    assert!(is_renewed(&one, &renew(&estate.client(&one))));
    assert_on(&estate);
    assert_who_may_renew(&estate, "web01", true);
    let proof = estate.proxy.command(&["doctor"], &[]).stdout;
    assert!(!proof.contains(found), "{proof}");
}

#[test]
fn t07_a_forged_certificate_header_never_reaches_the_ca() {
    let estate = with(Renewing::Header);
    let (agent, victim) = (estate.ca.agent("web01"), estate.ca.agent("victim"));
    // The proxy removes the header without reading its value.
    let forged = victim.cert_pem.replace('\n', "%0A").replace(' ', "%20");
    let client = estate.client(&agent);
    for name in [
        "X-Client-Cert",
        "x_client_cert",
        "X.Client.Cert",
        "X-Client_Cert",
    ] {
        estate.forget();
        let response = client.request(
            "POST",
            RENEWAL,
            &[(name, &forged), ("X-Client-DN", "CN=victim")],
            b"",
        );
        assert!(is_renewed(&agent, &response), "{name}: {response:?}");
        let request = estate.only_request();
        assert_forwarded_certificate(&request, &agent);
        assert!(
            !request.raw_text().contains("victim"),
            "{}",
            request.raw_text()
        );
    }
    // The header does not reach any other endpoint of the CA either.
    for (method, path) in [
        ("GET", "/puppet-ca/v1/certificate/ca"),
        ("GET", "/puppet-ca/v1/certificate_revocation_list/ca"),
        ("GET", "/puppet-ca/v1/certificate_request/web09"),
    ] {
        estate.forget();
        client.request(method, path, &[("X-Client-Cert", &forged)], b"");
        assert!(
            estate
                .only_request()
                .headers
                .all("x-client-cert")
                .is_empty(),
            "{path}"
        );
    }
}

#[test]
fn t07_only_a_verified_agent_renews() {
    let estate = with(Renewing::Header);
    assert_refused(&renew(&estate.anonymous()), 403, &["certificate"]);
    let stranger = testkit::Ca::other().agent("web01");
    assert_refused(&renew(&estate.client(&stranger)), 403, &[]);
    let revoked = estate.ca.agent("web02");
    let client = estate.client(&revoked);
    assert_eq!(renew(&client).status, 200);
    estate.forget();
    estate.ca.revoke(&revoked);
    estate.proxy.swap_crl();
    assert_refused(&renew(&client), 403, &["revoked"]);
    let agent = estate.agent("web03");
    let got = agent.get(RENEWAL);
    assert_eq!((got.status, got.headers.all("allow")), (405, vec!["POST"]));
    for below in ["/", "/web03", "/ca"] {
        let response = agent.request("POST", &format!("{RENEWAL}{below}"), &[], b"");
        assert_refused(&response, 404, &["nothing below"]);
    }
    assert!(estate.far_end().is_empty(), "{:#?}", estate.far_end());
}

/// Responses of a faulty CA. Each must end in 502, and in an alarm if a certificate may have been issued.
#[test]
fn t07_only_the_agents_own_certificate_is_passed_on() {
    let estate = with(inventory());
    let agent = estate.ca.agent("web01");
    let client = estate.client(&agent);
    let renewed = estate.ca.renew(&agent.cert_der).expect("renews").cert_pem;
    let of_key = estate.ca.agent("web01").cert_pem;
    let of_name = estate.ca.agent("web02").cert_pem;
    let none = "";
    let cases: Vec<(&str, Reply, &str)> = vec![
        ("another key", Reply::ok(&of_key), "its key is not"),
        ("another name", Reply::ok(&of_name), "CN=web02"),
        (
            "two",
            Reply::ok(&format!("{renewed}{renewed}")),
            "single certificate",
        ),
        (
            "another behind it",
            Reply::ok(&format!("{renewed}{of_name}")),
            "single certificate",
        ),
        (
            "text before",
            Reply::ok(&format!("Certificate:\n{renewed}")),
            "single certificate",
        ),
        (
            "a JSON text",
            Reply::json(&serde_json::json!({ "pem": renewed })),
            "single certificate",
        ),
        ("nothing", Reply::ok(none), "single certificate"),
        ("no content", Reply::status(204), "single certificate"),
        (
            "an endless text",
            Reply::ok(&renewed.repeat(200)),
            "65536 bytes",
        ),
        (
            "the same in pieces",
            Reply::status(200).chunked(&vec![renewed.as_bytes(); 200]),
            "65536 bytes",
        ),
        (
            "in a content coding that was not requested",
            Reply::ok(&renewed).header("Content-Encoding", "deflate"),
            "Content-Encoding",
        ),
        (
            "garbage in base64",
            Reply::ok("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
            "single certificate",
        ),
    ];
    for (case, reply, word) in cases {
        answer_renewals(&estate.ca_server, reply);
        let response = renew(&client);
        assert_refused(&response, 502, &[word, "did not forward"]);
        assert_refused(&renew(&client), 404, &["off"]);
        assert_eq!(estate.proxy.metrics().sum(OFF, &[]), 1.0, "{case}");
        estate.proxy.reload();
    }
    // A valid response in pieces, and with CRLF line ends, is accepted.
    let lines = renewed.replace('\n', "\r\n");
    for reply in [
        Reply::status(200).chunked(&renewed.as_bytes().chunks(100).collect::<Vec<_>>()),
        Reply::ok(&lines),
        Reply::status(200).to_close(renewed.as_bytes()),
    ] {
        answer_renewals(&estate.ca_server, reply);
        let response = renew(&client);
        assert_eq!(response.status, 200, "{response:?}");
        assert!(is_renewed(&agent, &response));
    }
}

#[test]
fn a_renewal_is_never_sent_to_a_backup_or_sent_twice() {
    let backup = StandIn::builder("ca2").ca(&testkit::Ca::new()).start();
    backup.renew(Renewing::Header);
    let estate = Estate::builder()
        .ca_pool("check = { type = \"none\" }")
        .with("[upstream]\nattempts_max = 5\n[ca]\nrenewal = true")
        .start();
    let (first, second) = (estate.ca_server.address(), backup.address());
    estate.edit_config(
        &format!("members = [\"{first}\"]"),
        &format!("members = [{{ address = \"{second}\", backup = true }}, \"{first}\"]"),
    );
    estate.proxy.reload_applied();
    let client = estate.agent("web01");
    // An idle connection to the CA is not used for a renewal.
    assert_eq!(client.get("/puppet-ca/v1/certificate/ca").status, 200);
    estate.forget();
    for _ in 0..3 {
        answer_renewals(&estate.ca_server, Reply::hang_up());
        assert_refused(&renew(&client), 502, &["closed the connection"]);
    }
    let seen = estate.ca_server.requests();
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|request| request.connection > 0));
    // While the CA is down, the proxy sends the renewal nowhere. The backup receives other writes only.
    estate.ca_server.kill();
    for _ in 0..2 {
        assert_refused(&renew(&client), 503, &["nothing was sent"]);
    }
    let body = certificate_request("new01");
    let target = "/puppet-ca/v1/certificate_request/new01";
    let written = estate.anonymous().request("PUT", target, &[], &body);
    assert_eq!(written.status, 200, "{written:?}");
    let seen = backup.requests();
    assert!(
        seen.iter().all(|request| request.path() != RENEWAL),
        "{seen:#?}"
    );
    assert_on(&estate);
}

/// Makes the CA answer renewals like this from now on, and everything else as before.
fn answer_renewals(ca: &StandIn, reply: Reply) {
    ca.answer(move |request| (request.path() == RENEWAL).then(|| reply.clone()));
}

#[test]
fn a_ca_that_disconnects_or_redirects_is_a_502_without_an_alarm() {
    let estate = with(inventory());
    let agent = estate.ca.agent("web01");
    let client = estate.client(&agent);
    let renewed = estate.ca.renew(&agent.cert_der).expect("renews").cert_pem;
    for reply in [
        Reply::reset(),
        Reply::hang_up(),
        Reply::ok(&renewed).close_after(300),
        Reply::ok(&renewed).reset_after(300),
        Reply::status(302).header("Location", "https://elsewhere.example/"),
        Reply::status(307).header("Location", RENEWAL),
    ] {
        estate.forget();
        answer_renewals(&estate.ca_server, reply);
        let response = renew(&client);
        assert_eq!(response.status, 502, "{response:?}");
        assert!(!response.text().contains("BEGIN"));
        assert_eq!(estate.far_end().len(), 1, "never sent again");
    }
    assert_on(&estate);
}

#[test]
fn t07_a_wrong_renewal_is_detected_although_the_agent_disconnected() {
    let estate = with(inventory());
    let agent = estate.ca.agent("web01");
    let other = estate.ca.agent("web02").cert_pem;
    let gate = testkit::ReplyGate::new();
    answer_renewals(&estate.ca_server, Reply::ok(&other).gate(&gate));
    let mut connection = estate.client(&agent).connect().expect("connects");
    let field = [("Content-Type", "text/plain")];
    connection
        .send("POST", RENEWAL, &field, b"")
        .expect("is taken");
    let asked = wait_until(LIMIT, || (!estate.far_end().is_empty()).then_some(()));
    assert!(asked.is_some());
    drop(connection);
    // The answer to another request shows that the proxy has read that the client closed; the CA is still working.
    assert_eq!(
        estate.client(&agent).get("/puppet/v3/node/web01").status,
        200
    );
    gate.release();
    let off = wait_until(LIMIT, || {
        (estate.proxy.metrics().sum(OFF, &[]) == 1.0).then_some(())
    });
    assert!(off.is_some(), "{}", estate.proxy.stderr());
    let record = estate.wait_for_record(|record| record["class"] == "renewal");
    assert_eq!(record["reason"], "not-renewed", "{record}");
    assert_eq!(record["ended_by"], "client", "{record}");
}

#[test]
fn a_ca_that_stalls_within_its_response_is_given_up() {
    let estate = renewing().ca_pool("idle_timeout = \"300ms\"").start();
    let agent = estate.ca.agent("web01");
    let renewed = estate.ca.renew(&agent.cert_der).expect("renews").cert_pem;
    let gate = testkit::ReplyGate::new();
    answer_renewals(
        &estate.ca_server,
        Reply::ok(&renewed).gate_after(100, &gate),
    );
    assert_refused(&renew(&estate.client(&agent)), 502, &["body-timeout"]);
    gate.release();
    assert_on(&estate);
}

#[test]
fn explain_shows_that_a_renewal_forwards_the_certificate() {
    let estate = Estate::builder()
        .ca_pool("forward_cert = false")
        .with("[ca]\nrenewal = true")
        .start();
    estate.ca_server.renew(Renewing::Header);
    let agent = estate.ca.agent("web01");
    let explain = |method| {
        let arguments = [RENEWAL, "--method", method, "--certname", "web01"];
        estate.proxy.command(&["explain"], &arguments).stdout
    };
    assert!(
        explain("POST").contains("with X-Client-Cert"),
        "{}",
        explain("POST")
    );
    assert!(is_renewed(&agent, &renew(&estate.client(&agent))));
    let request = estate.only_request();
    assert_identity(&request, "SUCCESS", Some("CN=web01"));
    assert_certificate(&request, &agent);
}
