//! The identity that members receive is the verified one, for every kind of certificate and endpoint.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;
use rustls::AlertDescription;
use testkit::{Ca, Client, ClientError, TestCredential};

use crate::support::{
    Estate, LIMIT, assert_identity, assert_refused, certificate_request,
    fixtures::{self, Row, TrustFiles},
    paths::{CA_CERTIFICATE, CATALOG},
};

#[test]
fn an_agent_is_identified_by_its_certificate() {
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    let request = estate.only_request();
    assert_identity(&request, "SUCCESS", Some("CN=web01"));
    assert_eq!(
        request.target, CATALOG,
        "the bytes that were matched are the bytes that are sent"
    );
}

#[test]
fn t03_a_client_without_a_certificate_is_forwarded_as_none() {
    let estate = Estate::start();
    assert_eq!(
        estate.anonymous().get(CA_CERTIFICATE).text(),
        estate.ca.bundle_pem()
    );
    assert_identity(&estate.only_request(), "NONE", None);
}

#[test]
fn the_certificate_is_forwarded_to_compilers_and_never_to_the_ca() {
    // Once by default, once configured explicitly.
    for builder in [
        Estate::builder(),
        Estate::builder()
            .compiler_pool("forward_cert = true")
            .ca_pool("forward_cert = true"),
    ] {
        sees_the_certificate_unless_it_is_the_ca(&builder.start());
    }
}

#[test]
fn a_pool_can_be_configured_without_the_certificate() {
    let estate = Estate::builder()
        .compiler_pool("forward_cert = false")
        .start();
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    let request = estate.only_request();
    assert_identity(&request, "SUCCESS", Some("CN=web01"));
    assert!(request.headers.all("x-client-cert").is_empty());
}

fn sees_the_certificate_unless_it_is_the_ca(estate: &Estate) {
    let agent = estate.ca.agent("web01");
    let client = estate.client(&agent);
    assert_eq!(client.get(CATALOG).status, 200);
    let escaped = estate.only_request().only("x-client-cert").to_owned();
    assert!(
        !escaped.contains(['+', ' ', '\n']),
        "blanks and newlines are escaped: {escaped}"
    );
    let pem = percent_decode_str(&escaped)
        .decode_utf8()
        .expect("PEM is ASCII")
        .into_owned();
    assert_eq!(
        TestCredential::from_pem("web01", &pem, "").cert_der,
        agent.cert_der
    );
    estate.forget();
    assert_eq!(client.get(CA_CERTIFICATE).status, 200);
    assert!(
        estate
            .only_request()
            .headers
            .all("x-client-cert")
            .is_empty(),
        "class enrolment has none"
    );
}

#[test]
fn t04_only_enrolment_and_status_pass_without_a_certificate() {
    let estate = Estate::start();
    for case in CLASSES {
        let response = estate
            .anonymous()
            .request(case.method, case.target, &[], &case.body());
        assert_eq!(
            response.status, case.anonymous,
            "{} {}: {response:?}",
            case.method, case.target
        );
        let reached = usize::from(case.reaches_member);
        assert_eq!(
            estate.far_end().len(),
            reached,
            "{} {} at the far end",
            case.method,
            case.target
        );
        for request in estate.far_end() {
            assert_identity(&request, "NONE", None);
        }
        estate.forget();
    }
}

#[test]
fn every_request_with_a_refused_certificate_is_refused_with_the_reason() {
    let estate = Estate::start();
    let agent = estate.ca.leaf("web01").expired().issue();
    for case in CLASSES {
        let response = estate
            .client(&agent)
            .request(case.method, case.target, &[], &case.body());
        if case.is_nowhere() {
            assert!(
                [403, 404].contains(&response.status),
                "{}: {response:?}",
                case.target
            );
        } else {
            assert_refused(&response, 403, &["web01", "expired"]);
        }
        assert!(
            estate.far_end().is_empty(),
            "{} {} went on",
            case.method,
            case.target
        );
    }
    let server_wide = estate.client(&agent).request("OPTIONS", "*", &[], b"");
    assert_refused(&server_wide, 403, &["web01", "expired"]);
}

#[test]
fn an_agent_gets_only_its_own_documents() {
    let estate = Estate::start();
    let mut connection = estate.agent("web01").connect().expect("connects");
    for (method, target, expected) in [
        ("POST", "/puppet/v3/catalog/web01", 200),
        ("POST", "/puppet/v3/catalog/web02", 403),
        ("POST", "/puppet/v3/catalog/web01.example.com", 403),
        ("GET", "/puppet/v3/node/web02", 403),
        ("PUT", "/puppet/v3/facts/web02", 403),
        ("PUT", "/puppet/v3/report/web02", 403),
        ("PUT", "/puppet/v3/report/web01", 200),
        ("GET", "/puppet/v3/file_metadata/modules/a/b", 200),
        ("POST", "/puppet/v4/catalog", 403),
        ("PUT", "/puppet-ca/v1/certificate_status/web01", 403),
        ("DELETE", "/puppet-ca/v1/certificate_request/web02", 403),
        ("GET", "/metrics/v2/list", 403),
    ] {
        let response = connection.request(method, target, &[], b"x");
        assert_eq!(response.status, expected, "{method} {target}: {response:?}");
    }
}

#[test]
fn t06_real_certificates_get_the_verdict_of_their_table() {
    let mut groups: BTreeMap<TrustFiles, Vec<Row>> = BTreeMap::new();
    for row in fixtures::verdicts() {
        groups.entry(row.trust.clone()).or_default().push(row);
    }
    for (trust, rows) in groups {
        for subject in ["puppet", "single-cn"] {
            check_verdicts(&trust, &rows, subject);
        }
    }
}

#[test]
fn a_stolen_certificate_ends_the_handshake() {
    for on_invalid in ["explain", "abort", "forward"] {
        let estate = Estate::builder()
            .listener(&format!("on_invalid = \"{on_invalid}\""))
            .start();
        let thief = estate
            .ca
            .agent("web01")
            .with_key_of(&estate.ca.agent("thief"));
        for client in [estate.client(&thief).tls12(), estate.client(&thief).tls13()] {
            let error = client
                .try_request("GET", CA_CERTIFICATE, &[], b"")
                .expect_err("refused");
            assert!(error.alert().is_some(), "{on_invalid}: {error}");
        }
        assert!(estate.far_end().is_empty());
    }
}

#[test]
fn refused_certificates_are_handled_as_the_listener_configures() {
    for (on_invalid, enrolment, catalog) in [
        ("explain", Expected::Status(403), Expected::Status(403)),
        ("abort", Expected::Alert, Expected::Alert),
        ("forward", Expected::Status(200), Expected::Status(403)),
    ] {
        let estate = Estate::builder()
            .listener(&format!("on_invalid = \"{on_invalid}\""))
            .start();
        let revoked = estate.ca.agent("web01");
        estate.ca.revoke(&revoked);
        estate.proxy.swap_crl();
        for client in [
            estate.client(&revoked).tls12(),
            estate.client(&revoked).tls13(),
        ] {
            estate.forget();
            enrolment.check(
                client.try_request("GET", CA_CERTIFICATE, &[], b""),
                on_invalid,
            );
            for request in estate.far_end() {
                assert_identity(&request, "FAILED:revoked", None);
            }
            catalog.check(client.try_request("GET", CATALOG, &[], b""), on_invalid);
        }
    }
}

#[test]
fn a_listener_that_requires_a_certificate_ends_handshakes_without_one() {
    let estate = Estate::builder()
        .listener("client_cert = \"required\"")
        .start();
    for (client, alert) in [
        (
            estate.anonymous().tls13(),
            AlertDescription::CertificateRequired,
        ),
        (
            estate.anonymous().tls12(),
            AlertDescription::HandshakeFailure,
        ),
    ] {
        let error = client
            .try_request("GET", CA_CERTIFICATE, &[], b"")
            .expect_err("refused");
        let got = error
            .alert()
            .unwrap_or_else(|| panic!("an alert, not {error}"));
        assert!(
            [alert, AlertDescription::CertificateRequired].contains(&got),
            "{got:?}"
        );
    }
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
}

#[test]
fn a_revoked_agent_is_refused_on_a_connection_that_was_busy_at_the_crl_swap() {
    let estate = Estate::builder().compilers(1).start();
    for version in [Client::tls12, Client::tls13] {
        let agent = estate.ca.agent("web01");
        let mut connection = version(estate.client(&agent)).connect().expect("connects");
        estate.compilers[0].hold();
        estate.forget();
        connection
            .send("POST", "/puppet/v3/catalog/web01", &[], b"facts")
            .expect("sends");
        estate.compilers[0].wait_for_request(1, LIMIT);
        estate.ca.revoke(&agent);
        estate.proxy.swap_crl();
        estate.compilers[0].release();
        assert_eq!(
            connection
                .read_response()
                .expect("the answer it waited for")
                .status,
            200
        );
        estate.forget();
        let report = connection.request("PUT", "/puppet/v3/report/web01", &[], b"{}");
        assert_refused(&report, 403, &["web01", "revoked"]);
        assert!(report.says_close());
        assert!(connection.is_closed_within(LIMIT));
        assert!(estate.far_end().is_empty(), "no member saw the report");
    }
}

#[test]
fn a_revoked_agents_idle_connection_is_closed_and_others_stay() {
    let estate = Estate::start();
    let (revoked, other) = (estate.ca.agent("web01"), estate.ca.agent("web02"));
    let mut idle = estate.client(&revoked).connect().expect("connects");
    let mut stays = estate.client(&other).connect().expect("connects");
    assert_eq!(idle.get(CATALOG).status, 200);
    assert_eq!(stays.get("/puppet/v3/catalog/web02").status, 200);
    estate.ca.revoke(&revoked);
    estate.proxy.swap_crl();
    assert!(idle.is_closed_within(LIMIT), "closed without an answer");
    assert_eq!(stays.get("/puppet/v3/catalog/web02").status, 200);
}

#[test]
fn a_revoked_agent_is_refused_on_a_resumed_session() {
    let estate = Estate::start();
    for version in [Client::tls12, Client::tls13] {
        let agent = estate.ca.agent("web01");
        let client = version(estate.client(&agent));
        assert_eq!(client.get(CATALOG).status, 200);
        let mut resumed = client.connect().expect("connects");
        assert!(resumed.resumed(), "sessions are resumed at all");
        assert_eq!(resumed.get(CATALOG).status, 200);
        estate.ca.revoke(&agent);
        estate.proxy.swap_crl();
        estate.forget();
        let response = client.get(CATALOG);
        assert_refused(&response, 403, &["web01", "revoked"]);
        assert!(estate.far_end().is_empty());
    }
}

#[test]
fn a_certificate_that_expires_on_a_live_connection_is_refused_from_then_on() {
    let estate = Estate::start();
    let agent = estate.ca.leaf("web01").valid_seconds(-60, 3).issue();
    let mut connection = estate.client(&agent).connect().expect("connects");
    assert_eq!(connection.get(CATALOG).status, 200);
    let refused = testkit::wait_until(LIMIT, || {
        Some(connection.try_request("GET", CATALOG, &[], b""))
            .filter(|r| !matches!(r, Ok(r) if r.status == 200))
    });
    match refused.expect("it ends") {
        Ok(response) => assert_refused(&response, 403, &["web01", "expired"]),
        Err(error) => assert!(error.is_closed(), "{error}"),
    }
}

#[test]
fn certificates_from_another_ca_of_the_same_name_are_refused() {
    let estate = Estate::start();
    for ca in [Ca::other(), Ca::named("test"), Ca::single("test")] {
        let response = estate.client(&ca.agent("web01")).get(CATALOG);
        assert_refused(&response, 403, &["web01"]);
    }
    assert!(estate.far_end().is_empty());
}

#[test]
fn agents_of_a_single_self_signed_ca_are_verified() {
    let ca = Ca::single("puppet.example.com");
    let estate = Estate::builder().ca(&ca).start();
    let agent = ca.leaf("web01").without_san().issue();
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    assert_identity(&estate.only_request(), "SUCCESS", Some("CN=web01"));
    ca.revoke(&agent);
    estate.proxy.swap_crl();
    assert_refused(&estate.client(&agent).get(CATALOG), 403, &["revoked"]);
}

#[test]
fn agents_below_a_revoked_intermediate_are_refused() {
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    estate.ca.revoke_intermediate();
    estate.proxy.swap_crl();
    assert_refused(&estate.client(&agent).get(CATALOG), 403, &["revoked"]);
}

#[test]
fn the_client_gets_the_first_certificate_that_it_can_verify() {
    let ca = Ca::new();
    let ecdsa = ca.server("puppet");
    let rsa = TestCredential::from_pem(
        "puppet",
        &fixtures::text("server.pem"),
        &fixtures::text("server.key"),
    );
    let certificates = r#"
[tls]
certificates = [
  { chain = "{dir}/ecdsa.pem", key = "{dir}/ecdsa.key" },
  { chain = "{dir}/rsa.pem", key = "{dir}/rsa.key" },
]
"#;
    let files = [
        ("ecdsa.pem", ecdsa.chain_pem(), 0o644),
        ("ecdsa.key", ecdsa.key_pem.clone(), 0o640),
        ("rsa.pem", rsa.chain_pem(), 0o644),
        ("rsa.key", rsa.key_pem.clone(), 0o640),
    ];
    let builder = Estate::builder().ca(&ca).with(certificates);
    let builder = files.iter().fold(builder, |builder, (name, text, mode)| {
        builder.file(name, text, *mode)
    });
    let estate = builder.start();
    let bundle = estate.ca.bundle_pem() + &fixtures::text("ca-bundle.pem");
    let client = Client::new(estate.proxy.address(), &bundle, None).protocol(crate::protocol());
    for (client, shown) in [
        (client.clone(), &ecdsa),
        (client.clone().tls12(), &ecdsa),
        (client.rsa_alone(), &rsa),
    ] {
        let connection = client
            .connect()
            .expect("both certificates are good for puppet");
        assert_eq!(connection.peer_certificates()[0], shown.cert_der);
    }
}

#[test]
fn members_over_mutual_tls_get_the_proxys_certificate_and_the_agents_name() {
    let estate = Estate::builder().tls_members().start();
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    let request = estate.only_request();
    assert_identity(&request, "SUCCESS", Some("CN=web01"));
    assert_ne!(request.peer_certificates, [agent.cert_der]);
    assert_eq!(request.peer_certificates.len(), 1, "the proxy's leaf");
}

/// One request to each class of endpoint.
struct Case {
    method: &'static str,
    target: &'static str,
    /// Status of the response to a client without a certificate.
    anonymous: u16,
    /// Whether that client's request reaches a member.
    reaches_member: bool,
}

impl Case {
    /// The request body. Where the proxy checks the body, it is that of an agent.
    fn body(&self) -> Vec<u8> {
        match self.method {
            "PUT" if self.target.contains("certificate_request/") => certificate_request("web01"),
            "PUT" | "POST" => b"body".to_vec(),
            _ => Vec::new(),
        }
    }

    /// A path that is 404 for every client.
    fn is_nowhere(&self) -> bool {
        self.anonymous == 404 && !self.reaches_member
    }
}

const fn case(
    method: &'static str,
    target: &'static str,
    anonymous: u16,
    reaches_member: bool,
) -> Case {
    Case {
        method,
        target,
        anonymous,
        reaches_member,
    }
}

const CLASSES: &[Case] = &[
    // Enrolment
    case("GET", "/puppet-ca/v1/certificate/ca", 200, true),
    case("GET", "/puppet-ca/v1/certificate/web01", 404, true),
    case(
        "GET",
        "/puppet-ca/v1/certificate_revocation_list/ca",
        200,
        true,
    ),
    case("GET", "/puppet-ca/v1/certificate_request/web09", 404, true),
    case("PUT", "/puppet-ca/v1/certificate_request/web01", 200, true),
    // Renewal
    case("POST", "/puppet-ca/v1/certificate_renewal", 404, false),
    // CA administration
    case(
        "DELETE",
        "/puppet-ca/v1/certificate_request/web01",
        403,
        false,
    ),
    case("GET", "/puppet-ca/v1/certificate_status/web01", 403, false),
    case("PUT", "/puppet-ca/v1/certificate_status/web01", 403, false),
    case(
        "DELETE",
        "/puppet-ca/v1/certificate_status/web01",
        403,
        false,
    ),
    case("GET", "/puppet-ca/v1/certificate_statuses/all", 403, false),
    case(
        "PUT",
        "/puppet-ca/v1/certificate_revocation_list",
        403,
        false,
    ),
    case("PUT", "/puppet-ca/v1/clean", 403, false),
    case("POST", "/puppet-ca/v1/sign", 403, false),
    case("POST", "/puppet-ca/v1/sign/all", 403, false),
    case("GET", "/puppet-ca/v1/expirations", 403, false),
    case("GET", "/production/certificate_status/web01", 403, false),
    // Own documents
    case("POST", "/puppet/v3/catalog/web01", 403, false),
    case("GET", "/puppet/v3/catalog/web01", 403, false),
    case("GET", "/puppet/v3/node/web01", 403, false),
    case("PUT", "/puppet/v3/facts/web01", 403, false),
    case("PUT", "/puppet/v3/report/web01", 403, false),
    // Files and lists
    case("GET", "/puppet/v3/file_metadata/modules/a/b", 403, false),
    case("GET", "/puppet/v3/file_metadatas/plugins", 403, false),
    case("GET", "/puppet/v3/file_content/modules/a/b", 403, false),
    case(
        "GET",
        "/puppet/v3/static_file_content/modules/a/b?code_id=1",
        403,
        false,
    ),
    case("GET", "/puppet/v3/environments", 403, false),
    case("GET", "/puppet/v3/tasks", 403, false),
    // Filebucket
    case(
        "GET",
        "/puppet/v3/file_bucket_file/sha256/abc//etc/motd",
        403,
        false,
    ),
    case(
        "PUT",
        "/puppet/v3/file_bucket_file/sha256/abc//etc/motd",
        403,
        false,
    ),
    // Services
    case("POST", "/puppet/v4/catalog", 403, false),
    case("POST", "/puppet/v3/compile", 403, false),
    case("GET", "/puppet/v3/environment_classes", 403, false),
    case("GET", "/puppet/v3/plans", 403, false),
    // Status: answered here
    case("GET", "/status/v1/simple", 200, false),
    case("GET", "/status/v1/simple/server", 200, false),
    case("GET", "/status/v1/simple/master", 200, false),
    // Never
    case("GET", "/status/v1/services", 403, false),
    case("GET", "/metrics/v2/list", 403, false),
    case(
        "DELETE",
        "/puppet-admin-api/v1/environment-cache",
        403,
        false,
    ),
    case("GET", "/file-sync/v1/latest-commits", 403, false),
    // Unknown
    case("GET", "/", 404, false),
    case("GET", "/elsewhere", 404, false),
];

/// The expected result for a client.
#[derive(Clone, Copy, Debug)]
enum Expected {
    Status(u16),
    Alert,
}

impl Expected {
    #[track_caller]
    fn check(self, met: Result<testkit::Response, ClientError>, context: &str) {
        match (self, met) {
            (Self::Status(expected), Ok(response)) => {
                assert_eq!(response.status, expected, "{context}: {response:?}")
            }
            (Self::Alert, Err(error)) => assert!(error.alert().is_some(), "{context}: {error}"),
            (expected, met) => panic!("{context}: expected {expected:?}, met {met:?}"),
        }
    }
}

/// Tests the rows that share a trust store and a rule for subjects. The CA server receives the verdict on enrolment.
fn check_verdicts(files: &TrustFiles, rows: &[Row], subject: &'static str) {
    let expected = |row: &Row| {
        if subject == "puppet" {
            row.puppet.clone()
        } else {
            row.single_cn.clone()
        }
    };
    let trust = format!(
        "[trust]\nca = {:?}\ncrl = {:?}\ncrl_expired = {:?}\n[identity]\nsubject = \"{subject}\"",
        fixtures::path(&files.ca),
        fixtures::path(&files.crl),
        files.crl_expired
    );
    let change =
        move |proxy: testkit::ProxyBuilder| proxy.listener("on_invalid = \"forward\"").with(&trust);
    let estate = Estate::builder().proxy(change).start();
    for row in rows {
        estate.forget();
        let context = format!("{} by {files:?}, subject {subject}", row.certificate);
        let output = forwarded_verdict(&estate, row).unwrap_or_else(|error| match error.alert() {
            Some(_) => "alert".to_owned(),
            None => panic!("{context}: {error}"),
        });
        assert_eq!(output, expected(row), "{context}");
    }
}

/// The verdict that the CA server receives when a client with this certificate requests the CA's certificate.
fn forwarded_verdict(estate: &Estate, row: &Row) -> Result<String, ClientError> {
    // The client's TLS library does not accept RSA 1024 either, so there is no handshake.
    let client = match estate.proxy.try_client(Some(&row.credential())) {
        Ok(client) => client,
        Err(_) => return Ok("alert".to_owned()),
    };
    let response = client.try_request("GET", CA_CERTIFICATE, &[], b"")?;
    assert_eq!(response.status, 200, "{}: {response:?}", row.certificate);
    let request = estate.only_request();
    let verify = request.only("x-client-verify").to_owned();
    assert_eq!(
        request.headers.all("x-client-dn").len(),
        usize::from(verify == "SUCCESS"),
        "{}",
        request.raw_text()
    );
    Ok(verify)
}
