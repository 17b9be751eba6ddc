//! Tests of the names that identity headers may have.

use super::*;

#[test]
fn a_header_name_with_another_purpose_is_refused() {
    use NameError::{Character, Forwarding, Length, Taken};
    let taken = |name: &str| Taken(name.to_owned());
    let forwarding = |name: &str| Forwarding(name.to_owned());
    let long = "a".repeat(65);
    for (name, expected) in [
        ("", Length),
        (&*long, Length),
        ("X_Client_DN", Character('_')),
        ("X.Client.DN", Character('.')),
        ("X Client", Character(' ')),
        ("X-Client\r\nHost", Character('\r')),
        ("\u{fc}", Character('\u{fc}')),
        ("-X", Character('-')),
        ("X-", Character('-')),
        ("Host", taken("Host")),
        ("HOST", taken("HOST")),
        ("Connection", taken("Connection")),
        ("Keep-Alive", taken("Keep-Alive")),
        ("Transfer-Encoding", taken("Transfer-Encoding")),
        ("Content-Length", taken("Content-Length")),
        ("Content-Type", taken("Content-Type")),
        ("Expect", taken("Expect")),
        ("TE", taken("TE")),
        ("Proxy", taken("Proxy")),
        ("Proxy-Connection", taken("Proxy-Connection")),
        ("Accept", taken("Accept")),
        ("If-None-Match", taken("If-None-Match")),
        ("Authorization", taken("Authorization")),
        ("X-Authentication", taken("X-Authentication")),
        ("X-Puppet-Version", taken("X-Puppet-Version")),
        ("X-Request-Id", taken("X-Request-Id")),
        ("HTTP-X-Client-DN", taken("HTTP-X-Client-DN")),
        ("Client-Cert", taken("Client-Cert")),
        ("Forwarded", forwarding("Forwarded")),
        ("X-Forwarded-For", forwarding("X-Forwarded-For")),
        (
            "X-Forwarded-Client-Cert",
            forwarding("X-Forwarded-Client-Cert"),
        ),
        ("X-Real-IP", forwarding("X-Real-IP")),
    ] {
        assert_eq!(IdentityName::parse(name), Err(expected), "{name:?}");
    }
}

#[test]
fn names_of_old_front_ends_are_accepted() {
    for (name, role) in [
        ("X-SSL-Subject", Some(HeaderRole::Dn)),
        ("x-ssl-client-cert", Some(HeaderRole::Cert)),
        ("X-CLIENT-VERIFY", Some(HeaderRole::Verify)),
        ("SSL-Client-S-DN", Some(HeaderRole::Dn)),
        ("Site-Agent", None),
        ("X-Our-Verdict", None),
    ] {
        let parsed = IdentityName::parse(name).expect(name);
        assert_eq!(parsed.as_str(), name.to_ascii_lowercase());
        assert_eq!(parsed.known_role(), role, "{name}");
    }
}

#[test]
fn a_name_of_the_maximum_length_is_accepted() {
    let longest = "a".repeat(IdentityName::BYTES_MAX);
    assert!(IdentityName::parse(&longest).is_ok());
}
