//! Tests that no header survives which a server could read as an identity header of the proxy.

use proptest::prelude::*;

use super::{ScrubReport, is_removed};
use crate::{HeaderForm, HeaderPattern, HeaderRules, IdentityName, OwnNames};

/// The names of a head's lines, in lower case, as they are after the head was read.
fn map(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.to_lowercase()).collect()
}

/// Removes the names that `scrubs` finds.
fn scrub(names: &mut Vec<String>, own: &OwnNames) -> ScrubReport {
    let mut report = ScrubReport::default();
    names.retain(|name| !report.scrubs(name, own));
    report
}

/// Names from each family, as published front ends send them (THREATS T1, T2).
const IDENTITY_HEADERS: &[&str] = &[
    "X-Client-Verify",
    "X-Client-DN",
    "X-Client-Cert",
    "X-Client-Anything",
    "X-SSL-Client-Cert",
    "X-SSL-Subject",
    "X-SSL-Client-DN",
    "SSL-Client-Cert",
    "SSL-Client-Verify",
    "Client-Cert",
    "Client-Cert-Chain",
    "X-Forwarded-For",
    "X-Forwarded-Proto",
    "X-Forwarded-Host",
    "X-Forwarded-Client-Cert",
    "X-Forwarded-Tls-Client-Cert",
    "X-Forwarded-Tls-Client-Cert-Info",
    "Forwarded",
    "X-Real-IP",
    "X-Authentication",
    "Proxy",
    // Certificates of clients.
    "X-ClientCert",
    "X-TLS-Client-Cert",
    "X-Tls-Client-DN",
    "X-mTLS-Client-Subject",
    "X-Cert-Subject",
    "X-Certificate-Sha256",
    "X-Amzn-Mtls-Clientcert",
    "X-Amzn-Mtls-Clientcert-Serial-Number",
    "X-ARR-ClientCert",
    "X-RHSM-SSL-Client-Cert",
    "SSLClientCertSubject",
    "TLS-Client-Cert",
    "SSL-ClientCert",
    "SSL-Client1-S-DN",
    "TLSClientCert",
    "X-TLSClient-Cert",
    "X-mTLSClientCert",
    "mTLSClient-Subject",
    "ClientCert",
    "Cert-Chain-0",
    "Cf-Client-Cert-Sha256",
    "CloudFront-Viewer-Cert-PEM",
    "Proxy-Client-Cert",
    "WL-Proxy-Client-Cert",
    "L5d-Client-Id",
    // Addresses of clients, and marks of a front end.
    "True-Client-IP",
    "CF-Connecting-IP",
    "Fastly-Client-IP",
    "X-Cluster-Client-IP",
    "X-Original-Forwarded-For",
    "X-Azure-ClientIP",
    "X-Azure-FDID",
    // Users.
    "Remote-User",
    "Remote-User-Groups",
    "Remote-Groups",
    "Remote-Email",
    "RemoteUser",
    "X-Remote-User",
    "X-Remote-Group",
    "X-Remote-Extra-Scopes",
    "X-Forwarded-User",
    "X-Forwarded-Email",
    "X-Forwarded-Groups",
    "X-Forwarded-Preferred-Username",
    "X-Auth-Request-User",
    "X-Auth-Request-Access-Token",
    "X-Auth-Username",
    "X-Auth-Email",
    "X-Auth-Id",
    "X-Auth-First-Name",
    "X-Auth-RSC-Role",
    "X-RStudio-Username",
    "X-SP-UserId",
    "X-SP-UserGroups",
    "X-Token-Subject",
    "X-Token-User-Name",
    "X-Oidc-Username",
    "X-Current-User",
    "X-User-Login",
    "X-Role",
    "X-Group",
    "X-Authenticated-User",
    "X-authentik-username",
    "X-authentik-meta-provider",
    "X-WebAuth-User",
    "X-User",
    "X-User-Id",
    "X-UserName",
    "X-Userinfo",
    "X-Consumer-Username",
    "X-Goog-Authenticated-User-Email",
    "X-Goog-IAP-JWT-Assertion",
    "X-MS-Client-Principal",
    "X-MS-Client-Principal-Name",
    "X-MS-Token-AAD-Id-Token",
    "X-Amzn-Oidc-Identity",
    "X-Vouch-User",
    "X-Vouch-IdP-Claims-Groups",
    "X-Pomerium-Claim-Email",
    "X-Proxy-User",
    "X-RH-Identity",
    "Cf-Access-Authenticated-User-Email",
    "Cf-Access-Jwt-Assertion",
    "Tailscale-User-Login",
    "OIDC-Claim-Email",
    "Mellon-NameID",
    "Shib-Session-ID",
    "eppn",
    "SM-User",
    "iv-user",
    "OAM-Remote-User",
    "Osso-User-DN",
    "Auth-User",
    "cp-user",
];

/// Headers that agents and their tools send. None of them may be removed.
const AGENTS: &[&str] = &[
    "Host",
    "Accept",
    "Accept-Encoding",
    "User-Agent",
    "X-Puppet-Version",
    "X-Request-Id",
    "Content-Type",
    "Content-Length",
    "If-Modified-Since",
    "If-None-Match",
    "Range",
    "Authorization",
    "Cookie",
    "X-Auth-Token",
    "X-Auth-Key",
    "X-User-Token",
    "X-User-Agent",
    "X-Vault-Token",
    "X-Api-Key",
    "X-Access-Token",
    "X-Amzn-Trace-Id",
    "X-MS-Client-Request-Id",
    "X-Requested-With",
    "X-CSRF-Token",
    "X-Scope-OrgID",
    "X-Site",
    "X-Authentication-Token-Not", // not one of the names, and not below one
    "X-Clientele",
    "Proxy-Authorization",
    "X.Custom.Name",
    "Sec-WebSocket-Key",
];

/// WebSphere reads these headers. They begin with a character that no other family of names has.
#[test]
fn headers_of_websphere_are_removed() {
    let mut headers = map(&["$WSCC", "$WSRU", "$wsra", "Accept"]);
    assert_eq!(scrub(&mut headers, &OwnNames::default()).identity, 3);
    assert_eq!(headers.len(), 1);
}

fn spellings(name: &str) -> [String; 8] {
    [
        name.to_owned(),
        name.to_uppercase(),
        name.replace('-', "_"),
        name.replace('-', "."),
        name.replacen('-', "_", 1),
        format!("HTTP_{}", name.replace('-', "_").to_uppercase()),
        format!("http-{name}"),
        name.replace('-', "~"),
    ]
}

#[test]
fn every_identity_header_is_removed_in_every_spelling() {
    for name in IDENTITY_HEADERS {
        for spelling in spellings(name) {
            let mut headers = map(&[&spelling, "Accept", &spelling]);
            let found = scrub(&mut headers, &OwnNames::default());
            assert_eq!(
                (found.identity, found.underscore, headers.len()),
                (2, 0, 1),
                "{spelling}"
            );
        }
    }
}

#[test]
fn other_names_with_an_underscore_are_removed_and_counted_separately() {
    let mut headers = map(&["Content_Length", "X_Custom", "_", "Accept"]);
    let found = scrub(&mut headers, &OwnNames::default());
    assert_eq!((found.identity, found.underscore), (0, 3));
    assert_eq!(headers.len(), 1);
}

#[test]
fn what_an_agent_sends_arrives() {
    let mut headers = map(AGENTS);
    assert_eq!(
        scrub(&mut headers, &OwnNames::default()),
        ScrubReport::default()
    );
    assert_eq!(headers.len(), AGENTS.len());
}

/// A configuration that gives identity headers these names.
fn own(names: &[&str]) -> OwnNames {
    let dn = names
        .iter()
        .map(|name| IdentityName::parse(name).expect("a name"));
    let form = HeaderForm {
        dn: dn.collect(),
        ..HeaderForm::default()
    };
    OwnNames::of([&form])
}

#[test]
fn configured_names_are_removed_in_every_spelling() {
    let names = ["Site-Agent", "X-SSL-Subject", "Nodename"];
    for name in names {
        for spelling in spellings(name) {
            let mut headers = map(&[&spelling, "Accept", &spelling]);
            let found = scrub(&mut headers, &own(&names));
            assert_eq!((found.identity, headers.len()), (2, 1), "{spelling}");
        }
    }
    let mut headers = map(&["Site-Agents", "Site-Agen", "X-Site-Agent", "Node-Name"]);
    assert_eq!(scrub(&mut headers, &own(&names)), ScrubReport::default());
}

/// The name as read by a server that folds every `-`, `_` and `.`, in the spelling of CGI.
fn cgi(name: &str) -> String {
    let folded = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_uppercase()
        } else {
            '_'
        }
    };
    format!("HTTP_{}", name.chars().map(folded).collect::<String>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    /// 1,000 forgeries of each kind. proptest prints and stores the seed of a forgery that survives.
    #[test]
    fn no_forgery_survives_for_any_server_that_folds_names(
        index in 0..IDENTITY_HEADERS.len(),
        bits in any::<u64>(),
        tail in "[a-z0-9_.-]{0,6}",
        count in 1_usize..4,
    ) {
        let name = IDENTITY_HEADERS[index];
        let twisted: String = name.chars().enumerate().map(|(at, c)| match (c, bits >> (at % 32) & 3) {
            ('-', 1) => '_',
            ('-', 2) => '.',
            (c, 3) => c.to_ascii_uppercase(),
            (c, _) => c.to_ascii_lowercase(),
        }).collect();
        let longer = format!("{twisted}-{tail}");
        let mut headers = map(&["Accept", "X-Puppet-Version"]);
        for _ in 0..count {
            headers.push(twisted.to_lowercase());
            headers.push(longer.to_lowercase());
        }
        let before = headers.len();
        let found = scrub(&mut headers, &OwnNames::default());
        prop_assert_eq!(before - headers.len(), (found.identity + found.underscore) as usize);
        prop_assert!(found.identity as usize >= count);
        for left in &headers {
            let read = cgi(left);
            prop_assert!(IDENTITY_HEADERS.iter().all(|own| read != cgi(own)), "{} is read as {}", left, read);
            for family in ["X_CLIENT_", "X_SSL_", "X_TLS_", "REMOTE_", "X_REMOTE_", "X_AUTH_REQUEST_", "X_AMZN_MTLS_"] {
                prop_assert!(!read.starts_with(&format!("HTTP_{family}")), "{}", left);
            }
            prop_assert!(!left.contains('_'));
        }
    }

    #[test]
    fn scrubbing_twice_changes_nothing_more(names in proptest::collection::vec("[a-zA-Z0-9_.~-]{1,24}", 0..12)) {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut headers = map(&names);
        scrub(&mut headers, &OwnNames::default());
        prop_assert!(headers.iter().all(|name| !is_removed(name.as_bytes(), &OwnNames::default())));
        prop_assert_eq!(scrub(&mut headers, &OwnNames::default()), ScrubReport::default());
    }
}

#[test]
fn the_scrubbed_headers_are_known_to_routes() {
    let own = own(&["Site-Agent"]);
    for name in [
        "x-client-dn",
        "HTTP_X_Client_Anything",
        "site.agent",
        "x_custom",
    ] {
        assert!(is_removed(name.as_bytes(), &own), "{name}");
    }
    for name in ["accept", "site-agents", "x-clientele", "http-accept"] {
        assert!(!is_removed(name.as_bytes(), &own), "{name}");
    }
}

fn patterns(names: &[&str]) -> Vec<HeaderPattern> {
    let parsed = names.iter().map(|name| HeaderPattern::parse(name));
    parsed.map(|pattern| pattern.expect("a name")).collect()
}

#[test]
fn kept_headers_are_set_aside_in_their_own_spelling_and_counted_if_the_route_does_not_keep_them() {
    let own = own(&["Site-Agent"]).keeping(&patterns(&["X-Authentication", "X-User-*", "api_key"]));
    let mut headers = map(&[
        "X-Authentication",
        "X-Authentication",
        "X_Authentication",
        "X-User-Id",
        "Api_Key",
        "Api_Keys",
        "Accept",
    ]);
    let aside: Vec<_> = headers.extract_if(.., |name| own.may_keep(name)).collect();
    assert_eq!(aside.len(), 4, "{aside:?}");
    let found = scrub(&mut headers, &own);
    assert_eq!((found.identity, found.underscore, headers.len()), (1, 1, 1));
    let none = HeaderRules::default();
    let route = HeaderRules {
        keep: patterns(&["X-Authentication"]),
        ..HeaderRules::default()
    };
    let unkept = |rules| {
        let report = ScrubReport::of_unkept(aside.iter().map(String::as_str), rules);
        (
            report.identity,
            report.underscore,
            report.identity_names.len(),
        )
    };
    assert_eq!(unkept([&none, &none]), (3, 1, 2));
    assert_eq!(unkept([&route, &none]), (1, 1, 1));
    assert_eq!(unkept([&none, &route]), (1, 1, 1));
}

/// The configuration refuses such patterns. A pattern that passed that check would keep no header.
#[test]
fn what_the_proxy_writes_is_never_set_aside() {
    let own = own(&["Site-Agent"]).keeping(&patterns(&["*", "Site_Agent", "x_client.dn"]));
    for name in [
        "X-Client-DN",
        "Site-Agent",
        "site_agent",
        "x_client.dn",
        "X-Forwarded-For",
    ] {
        let mut headers = map(&[name]);
        assert!(!own.may_keep(&headers[0]), "{name}");
        assert_eq!(scrub(&mut headers, &own).identity, 1, "{name}");
    }
}

#[test]
fn patterns_that_cover_a_header_of_the_proxy_are_found() {
    let own = own(&["Site-Agent", "X-SSL-Subject"]);
    for (text, name) in [
        ("X-Client-DN", Some("x-client-dn")),
        ("x_client_cert", Some("x-client-cert")),
        ("HTTP_X_CLIENT_VERIFY", Some("x-client-verify")),
        ("X-Client-*", Some("x-client-verify")),
        ("X-*", Some("x-client-verify")),
        ("*", Some("x-client-verify")),
        ("htt*", Some("x-client-verify")),
        ("Client-Cert", Some("client-cert")),
        ("X-Forwarded-Client-Cert", Some("x-forwarded-client-cert")),
        ("X-Forwarded-*", Some("x-forwarded-client-cert")),
        ("X.Real.IP", Some("x-real-ip")),
        ("site.agent", Some("site-agent")),
        ("X-SSL-Sub*", Some("x-ssl-subject")),
        ("X-SSL-Issuer", None),
        ("X-Forwarded-User", None),
        ("X-Authentication", None),
        ("Remote-*", None),
    ] {
        let pattern = HeaderPattern::parse(text).expect(text);
        let covered = own.written_by_proxy(&pattern);
        assert_eq!(covered.map(|covered| covered.name), name, "{text}");
    }
}
