//! No header survives that a server could read as an identity header of the proxy.

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

use super::{is_removed, scrub};
use crate::{HeaderForm, IdentityName, OwnNames};

fn map(names: &[&str]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for name in names {
        headers.append(
            HeaderName::from_bytes(name.as_bytes()).expect("a name"),
            HeaderValue::from_static("v"),
        );
    }
    headers
}

/// THREATS T1, T2: one name of each family.
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
];

/// Headers that agents and their tools send. All of them must arrive.
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
    "X-Authentication-Token-Not", // not one of the names, and not below one
    "X-Clientele",
    "Proxy-Authorization",
    "X.Custom.Name",
    "Sec-WebSocket-Key",
];

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
        super::ScrubReport::default()
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
    assert_eq!(
        scrub(&mut headers, &own(&names)),
        super::ScrubReport::default()
    );
}

/// A name as a server that folds every `-`, `_` and `.` reads it: in the spelling of CGI.
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
            headers.append(HeaderName::from_bytes(twisted.as_bytes()).expect("a name"), HeaderValue::from_static("v"));
            headers.append(HeaderName::from_bytes(longer.as_bytes()).expect("a name"), HeaderValue::from_static("v"));
        }
        let before = headers.len();
        let found = scrub(&mut headers, &OwnNames::default());
        prop_assert_eq!(before - headers.len(), (found.identity + found.underscore) as usize);
        prop_assert!(found.identity as usize >= count);
        for left in headers.keys() {
            let read = cgi(left.as_str());
            prop_assert!(IDENTITY_HEADERS.iter().all(|own| read != cgi(own)), "{} is read as {}", left, read);
            prop_assert!(!read.starts_with("HTTP_X_CLIENT_") && !read.starts_with("HTTP_X_SSL_"), "{}", left);
            prop_assert!(!left.as_str().contains('_'));
        }
    }

    #[test]
    fn scrubbing_twice_changes_nothing_more(names in proptest::collection::vec("[a-zA-Z0-9_.~-]{1,24}", 0..12)) {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut headers = map(&names);
        scrub(&mut headers, &OwnNames::default());
        prop_assert!(headers.keys().all(|name| !is_removed(name.as_str(), &OwnNames::default())));
        prop_assert_eq!(scrub(&mut headers, &OwnNames::default()), super::ScrubReport::default());
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
        assert!(is_removed(name, &own), "{name}");
    }
    for name in ["accept", "site-agents", "x-clientele", "http-accept"] {
        assert!(!is_removed(name, &own), "{name}");
    }
}
