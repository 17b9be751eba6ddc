//! Identity headers that a client sends never reach a member, in any spelling.

use testkit::{Recorded, Seed, TestConnection};

use crate::support::{
    Estate, allowed_fields, assert_identity,
    paths::{CA_CERTIFICATE, CATALOG},
};

/// Every name with which a front end has ever sent a client's identity to a server.
const IDENTITY_HEADERS: &[&str] = &[
    "X-Client-Verify",
    "X-Client-DN",
    "X-Client-Cert",
    "X-Client-Anything",
    "X-SSL-Subject",
    "X-SSL-Client-Cert",
    "X-SSL-Client-DN",
    "X-SSL-Client-Verify",
    "SSL-Client-Cert",
    "SSL-Client-Verify",
    "SSL-Client-S-DN",
    "Client-Cert",
    "Client-Cert-Chain",
    "X-Forwarded-For",
    "X-Forwarded-Proto",
    "X-Forwarded-Host",
    "X-Forwarded-Port",
    "X-Forwarded-Client-Cert",
    "X-Forwarded-Tls-Client-Cert",
    "X-Forwarded-Tls-Client-Cert-Info",
    "Forwarded",
    "X-Real-IP",
    "X-Authentication",
    "Proxy",
    "Remote-User",
    "Remote-User-Groups",
    "X-Remote-User",
    "X-Forwarded-User",
    "X-Auth-Request-Email",
    "X-Tls-Client-Cert",
    "X-Amzn-Mtls-Clientcert",
    "X-ARR-ClientCert",
    "X-WebAuth-User",
    "X-authentik-username",
    "X-Goog-Authenticated-User-Email",
    "X-MS-Client-Principal-Name",
    "Tailscale-User-Login",
    "Cf-Access-Authenticated-User-Email",
    "X-Vouch-User",
    "X-User",
];

/// A mark that every forged value contains and no other value does.
const MARK: &str = "forged";

#[test]
fn forged_identity_headers_are_logged_once_a_minute_for_each_client() {
    let estate = Estate::start();
    let [web01, web02] = ["web01", "web02"].map(|name| estate.ca.agent(name));
    let forged = [("X-Client-DN", "CN=forged"), ("X-SSL-Subject", "forged")];
    for _ in 0..3 {
        let client = estate.client(&web01);
        assert_eq!(client.request("GET", CATALOG, &forged, b"").status, 200);
    }
    // The request of a second client, whose event follows any event about the first.
    let catalog = CATALOG.replace("web01", "web02");
    let client = estate.client(&web02);
    assert_eq!(
        client.request("GET", &catalog, &forged[..1], b"").status,
        200
    );
    let words = "removed identity headers that the client sent";
    estate.wait_for_event("certname=web02");
    let stderr = estate.proxy.stderr();
    let events: Vec<_> = stderr.lines().filter(|line| line.contains(words)).collect();
    let [first, second] = events[..] else {
        panic!("{events:#?}");
    };
    for (event, name, headers) in [
        (first, "web01", "headers=\"x-client-dn, x-ssl-subject\""),
        (second, "web02", "headers=x-client-dn"),
    ] {
        assert!(event.contains(" WARN "), "{event}");
        for part in [&format!("certname={name} address=127.0.0.1"), headers] {
            assert!(event.contains(part), "{part} is not in {event}");
        }
    }
}

#[test]
fn t01_identity_headers_of_a_client_never_reach_a_member() {
    let estate = with_a_burst();
    let agent = estate.ca.agent("web01");
    for (client, target, expected) in [
        (
            estate.client(&agent),
            CATALOG,
            ("SUCCESS", Some("CN=web01")),
        ),
        (estate.anonymous(), CA_CERTIFICATE, ("NONE", None)),
    ] {
        let mut connection = client.connect().expect("connects");
        for name in IDENTITY_HEADERS {
            for spelling in spellings(name) {
                for forgery in forgeries(&spelling) {
                    request_with(&estate, &mut connection, target, &forgery);
                    assert_nothing_forged(&estate.only_request(), expected, &forgery);
                }
            }
        }
    }
}

#[test]
fn a_thousand_generated_forgeries_change_nothing() {
    let mut seed = Seed::from_env_or_random();
    let estate = with_a_burst();
    let mut verified = estate.agent("web01").connect().expect("connects");
    let mut anonymous = estate.anonymous().connect().expect("connects");
    for _ in 0..1000 {
        let forgery = generated(&mut seed);
        let (connection, target, output) = if seed.once_in(2) {
            (&mut verified, CATALOG, ("SUCCESS", Some("CN=web01")))
        } else {
            (&mut anonymous, CA_CERTIFICATE, ("NONE", None))
        };
        request_with(&estate, connection, target, &forgery);
        assert_nothing_forged(&estate.only_request(), output, &forgery);
    }
}

#[test]
fn t02_a_header_with_an_underscore_is_dropped_whatever_its_name() {
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    let headers = [("X_Odd", MARK), ("X-Odd", "kept"), ("x.odd", "kept too")];
    assert_eq!(
        estate
            .client(&agent)
            .request("GET", CATALOG, &headers, b"")
            .status,
        200
    );
    let request = estate.only_request();
    assert!(!request.raw_text().contains(MARK), "{}", request.raw_text());
    assert_eq!(
        (request.only("x-odd"), request.only("x.odd")),
        ("kept", "kept too")
    );
}

#[test]
fn t19_forwarded_fields_have_one_value_set_by_the_proxy() {
    let estate = Estate::start();
    let client = estate.agent("web01");
    let forged = [
        ("X-Forwarded-For", "203.0.113.1"),
        ("X-Forwarded-For", "203.0.113.2"),
        ("X-Real-IP", "203.0.113.3"),
    ];
    assert_eq!(client.request("GET", CATALOG, &forged, b"").status, 200);
    let request = estate.only_request();
    let port = estate.proxy.address().port().to_string();
    for (name, expected) in [
        ("X-Forwarded-For", "127.0.0.1"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", client.host().as_str()),
        ("X-Forwarded-Port", port.as_str()),
        ("X-Real-IP", "127.0.0.1"),
        ("Host", client.host().as_str()),
    ] {
        assert_eq!(request.only(name), expected, "{name}");
    }
    assert!(!request.only("X-Request-Id").is_empty());
    assert!(request.headers.all("Forwarded").is_empty());
}

/// More than 500 requests may come from one client without a certificate, which is the default burst.
fn with_a_burst() -> Estate {
    Estate::builder()
        .with("[ca]\nanonymous_burst = 2000\nanonymous_burst_per_address = 2000")
        .start()
}

/// The five spellings that one server or another reads as the same name.
fn spellings(name: &str) -> [String; 5] {
    [
        name.to_owned(),
        name.to_ascii_lowercase(),
        name.to_ascii_uppercase(),
        name.replace('-', "_"),
        name.replacen('-', ".", 1).replace('-', "_"),
    ]
}

/// A name once, twice, and named by `Connection` before and after it.
fn forgeries(name: &str) -> Vec<Vec<(String, String)>> {
    let line = |value: &str| (name.to_owned(), format!("{value}-{MARK}"));
    let nomination = || {
        (
            "Connection".to_owned(),
            format!("{name}, X-Client-Verify, x-client-dn"),
        )
    };
    vec![
        vec![line("SUCCESS")],
        vec![line("CN=victim"), line("CN=attacker")],
        vec![nomination(), line("SUCCESS")],
        vec![line("SUCCESS"), nomination()],
    ]
}

/// A random forgery: up to four lines of any names in any case, with `_` and `.` for `-`, some of them named by
/// `Connection`.
fn generated(seed: &mut Seed) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    for _ in 0..=seed.below(3) {
        let name: String = seed
            .pick(IDENTITY_HEADERS)
            .chars()
            .map(|c| match c {
                '-' => *seed.pick(&['-', '-', '_', '.']),
                c if seed.once_in(2) => c.to_ascii_uppercase(),
                c => c.to_ascii_lowercase(),
            })
            .collect();
        let value = *seed.pick(&[
            "SUCCESS",
            "CN=victim",
            "/CN=victim",
            "0",
            "-----BEGIN CERTIFICATE-----",
            "",
        ]);
        for _ in 0..=seed.below(2) {
            lines.push((name.clone(), format!("{value} {MARK}").trim().to_owned()));
        }
        if seed.once_in(3) {
            let at = seed.below(lines.len() + 1);
            let more = *seed.pick(&[
                "close-not",
                "X-Client-Verify",
                "x-client-dn",
                "Host",
                "keep-alive",
            ]);
            lines.insert(at, ("Connection".to_owned(), format!("{name}, {more}")));
        }
    }
    lines
}

#[track_caller]
fn request_with(
    estate: &Estate,
    connection: &mut TestConnection,
    target: &str,
    forgery: &[(String, String)],
) {
    estate.forget();
    let headers: Vec<_> = forgery
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let headers = allowed_fields(&headers);
    let response = connection.request("GET", target, &headers, b"");
    assert_eq!(response.status, 200, "{forgery:?}: {response:?}");
}

/// Asserts that the member got only the proxy's headers: no forged byte, one verdict, at most one subject, and every
/// trusted name at most once.
#[track_caller]
fn assert_nothing_forged(
    request: &Recorded,
    output: (&str, Option<&str>),
    forgery: &[(String, String)],
) {
    let raw = request.raw_text();
    assert!(
        !raw.to_ascii_lowercase().contains(MARK),
        "{forgery:?} reached the member:\n{raw}"
    );
    assert_identity(request, output.0, output.1);
    let mut names: Vec<_> = request
        .headers
        .names()
        .iter()
        .map(|name| name.replace(['_', '.'], "-"))
        .collect();
    names.sort();
    for pair in names.windows(2) {
        assert_ne!(
            pair[0], pair[1],
            "{forgery:?}: a field twice at the member:\n{raw}"
        );
    }
}
