//! Trusted headers as they reach a member.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue};

use crate::test_certificate::puppet;
use crate::{
    Agent, ChainVerified, ClientIdentity, HeaderForm, IdentityHeaders, Reason, Refusal, Settings,
};

fn verified(der: &[u8]) -> ClientIdentity {
    let agent = Agent::from_leaf(der, &Settings::default(), ChainVerified::assertion());
    ClientIdentity::Verified(Arc::new(agent.expect("an agent")))
}

fn refused() -> ClientIdentity {
    ClientIdentity::Refused(Refusal {
        reason: Reason::Revoked,
        certificate: "c".to_owned(),
        help: String::new(),
    })
}

/// Headers of a client that forged all of ours, twice, after the stamp.
fn stamped(
    identity: &ClientIdentity,
    leaf: Option<&[u8]>,
    with_certificate: bool,
) -> Vec<(String, String)> {
    let mut headers = HeaderMap::new();
    for name in ["x-client-verify", "x-client-dn", "x-client-cert"] {
        for value in ["SUCCESS", "CN=victim"] {
            headers.append(name, HeaderValue::from_static(value));
        }
    }
    IdentityHeaders::new(identity, leaf).stamp(
        &HeaderForm::default(),
        &mut headers,
        with_certificate,
    );
    let pairs = headers
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_str().expect("text").to_owned()));
    let mut pairs: Vec<_> = pairs.collect();
    pairs.sort();
    pairs
}

#[test]
fn only_a_verified_client_is_told_as_success_and_each_header_once() {
    let der = puppet("web01");
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        stamped(&verified(&der), Some(&der), false),
        [
            pair("x-client-dn", "CN=web01"),
            pair("x-client-verify", "SUCCESS")
        ]
    );
    assert_eq!(
        stamped(&ClientIdentity::Anonymous, None, true),
        [pair("x-client-verify", "NONE")]
    );
    assert_eq!(
        stamped(&refused(), Some(&der), true),
        [pair("x-client-verify", "FAILED:revoked")]
    );
    assert_eq!(
        stamped(&ClientIdentity::Anonymous, Some(&der), true),
        [pair("x-client-verify", "NONE")]
    );
}

#[test]
fn the_certificate_is_escaped_as_puppet_servers_decode_it() {
    let der = puppet("web01");
    let found = stamped(&verified(&der), Some(&der), true);
    let (name, value) = &found[0];
    assert_eq!(name, "x-client-cert");
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%".contains(&byte);
    assert!(value.bytes().all(plain), "{value}");
    let pem = percent_encoding::percent_decode_str(value)
        .decode_utf8()
        .expect("text")
        .into_owned();
    let lines: Vec<_> = pem.lines().collect();
    assert_eq!(lines.first(), Some(&"-----BEGIN CERTIFICATE-----"));
    assert_eq!(lines.last(), Some(&"-----END CERTIFICATE-----"));
    let body = &lines[1..lines.len() - 1];
    assert!(body[..body.len() - 1].iter().all(|line| line.len() == 64));
    assert!(
        value.starts_with("-----BEGIN%20CERTIFICATE-----%0A"),
        "{value}"
    );
    let (rest, parsed) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).expect("PEM");
    assert_eq!((rest.len(), parsed.contents), (0, der));
}

#[test]
fn only_the_certificate_that_was_verified_goes_along() {
    let der = puppet("web01");
    for other in [Some(&puppet("admin")[..]), Some(&[][..]), None] {
        let found = stamped(&verified(&der), other, true);
        assert!(
            found.iter().all(|(name, _)| name != "x-client-cert"),
            "{found:?}"
        );
    }
}

#[test]
fn base64_is_right_for_every_rest() {
    let cases = [
        (&b"f"[..], "Zg=="),
        (b"fo", "Zm8="),
        (b"foo", "Zm9v"),
        (b"foobar", "Zm9vYmFy"),
        (b"\xff\xef\xbe", "/+++"),
    ];
    for (bytes, expected) in cases {
        assert_eq!(
            super::pem(bytes),
            format!("-----BEGIN CERTIFICATE-----\n{expected}\n-----END CERTIFICATE-----\n")
        );
    }
}
