//! Vulnerabilities of other front ends, each with its number, tested against this proxy.

use testkit::{Ca, Client};

use crate::support::{
    self, Estate, assert_identity, assert_refused, http1_alone,
    paths::{CA_CERTIFICATE, CATALOG},
};

/// Caddy: names that a CGI-like server converts to `HTTP_X_CLIENT_DN` were not on the list of forbidden names.
#[test]
fn ghsa_f59h_q822_g45g_no_alias_of_a_trusted_header_reaches_a_member() {
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    for name in [
        "X_Client_DN",
        "x.client.dn",
        "X_Client-DN",
        "X.Client_Verify",
        "x_CLIENT.cert",
    ] {
        estate.forget();
        let forged = [(name, "CN=victim")];
        assert_eq!(
            estate
                .client(&agent)
                .request("GET", CATALOG, &forged, b"")
                .status,
            200
        );
        let request = estate.only_request();
        assert_identity(&request, "SUCCESS", Some("CN=web01"));
        assert!(
            !request.raw_text().contains("victim"),
            "{}",
            request.raw_text()
        );
    }
}

/// httpoxy: a CGI program uses the field `Proxy` as its own setting `HTTP_PROXY`.
#[test]
fn cve_2016_5385_no_client_chooses_a_members_proxy() {
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    let forged = [("Proxy", "http://192.0.2.1:3128")];
    assert_eq!(
        estate
            .client(&agent)
            .request("GET", CATALOG, &forged, b"")
            .status,
        200
    );
    assert!(estate.only_request().headers.all("proxy").is_empty());
}

/// N. Davison, "Abusing HTTP hop-by-hop request headers": the client's `Connection` named a field that the proxy itself
/// added, and the next proxy removed that field.
#[test]
fn davison_2019_no_client_removes_the_proxys_headers_by_connection() {
    http1_alone!("HTTP/2 has no Connection field");
    let estate = Estate::builder()
        .compiler_pool("forward_cert = true")
        .start();
    let agent = estate.ca.agent("web01");
    let ours = [
        "X-Client-Verify",
        "X-Client-DN",
        "X-Client-Cert",
        "X-Forwarded-For",
        "X-Forwarded-Proto",
        "X-Forwarded-Host",
        "X-Forwarded-Port",
        "X-Real-IP",
        "X-Request-Id",
        "Host",
    ];
    let nominations = ours.iter().map(|name| format!("close, {name}"));
    for nomination in nominations.chain([ours.join(", ")]) {
        estate.forget();
        let headers = [("Connection", nomination.as_str())];
        let answer = estate.client(&agent).request("GET", CATALOG, &headers, b"");
        assert_eq!(answer.status, 200, "{nomination}: {answer:?}");
        let request = estate.only_request();
        for name in ours {
            assert!(!request.only(name).is_empty(), "{nomination}: {name}");
        }
        // `Connection` is not forwarded, so it does not make the member remove them either.
        for line in request.headers.all("connection") {
            assert!(
                !line.to_ascii_lowercase().contains("x-"),
                "{nomination}: {line}"
            );
        }
    }
}

/// nginx and httpd: a session made where no certificate is required was resumed where one is required.
#[test]
fn cve_2025_23419_and_cve_2025_23048_no_session_opens_a_stricter_listener() {
    let ca = Ca::new();
    let strict = testkit::HeldPort::take();
    let proxy = support::proxy(&ca)
        .without_members()
        .with(&format!(
            "[listeners.strict]\naddress = \"127.0.0.1:{strict}\"\nclient_cert = \"required\"\non_invalid = \"abort\""
        ))
        .start();
    let (good, revoked) = (ca.agent("web01"), ca.agent("web02"));
    ca.revoke(&revoked);
    proxy.swap_crl();
    for version in [Client::tls12, Client::tls13] {
        for (credential, accepted) in [(None, false), (Some(&revoked), false), (Some(&good), true)]
        {
            let lax = version(proxy.client(credential));
            // Tickets arrive with the first response.
            let output = lax.get("/nowhere");
            assert!([403, 404].contains(&output.status), "{output:?}");
            assert!(
                lax.connect().expect("connects").resumed(),
                "sessions are resumed at all"
            );
            let there = lax.at(strict.address());
            let met = there.try_request("GET", "/nowhere", &[], b"");
            assert_eq!(met.is_ok(), accepted, "{credential:?}: {met:?}");
            let refused = met.err().is_none_or(|error| error.alert().is_some());
            assert!(refused, "by an alert");
            if accepted {
                let back = there.connect().expect("connects");
                assert!(back.resumed(), "its own sessions are resumed there");
            }
        }
    }
}

/// The same across a reload: a session made under the old policy is not resumed under a stricter one.
#[test]
fn cve_2025_23419_no_session_outlives_a_stricter_policy() {
    let estate = Estate::start();
    let client = estate.anonymous();
    assert_eq!(client.get(CA_CERTIFICATE).status, 200);
    assert!(client.connect().expect("connects").resumed());
    estate.edit_config(
        "[listeners.agents]",
        "[listeners.agents]\nclient_cert = \"required\"",
    );
    estate.proxy.reload_applied();
    let error = client
        .try_request("GET", CA_CERTIFICATE, &[], b"")
        .expect_err("a certificate is required now");
    assert!(error.alert().is_some(), "{error}");
}

/// OpenVox pull request 568 makes agents check that a catalog is their own, because front ends delivered catalogs of
/// other agents.
#[test]
fn openvox_568_no_response_goes_to_two_agents() {
    let estate = Estate::builder().compilers(1).start();
    estate.compilers[0].answer(|request| {
        (!request.is_probe()).then(|| {
            let own = request.only("x-client-dn").to_owned();
            testkit::Reply::ok(&own).header("Cache-Control", "public, max-age=3600")
        })
    });
    let target = "/puppet/v3/file_content/modules/a/b?environment=production";
    for name in ["web01", "web02", "web01"] {
        let agent = estate.ca.agent(name);
        assert_eq!(
            estate.client(&agent).get(target).text(),
            format!("CN={name}")
        );
        let others = format!("/puppet/v3/catalog/not-{name}");
        assert_refused(&estate.client(&agent).get(&others), 403, &[name]);
    }
}
