//! Trusted headers as they reach a member.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue};

use crate::test_certificate::puppet;
use crate::{
    Agent, CertFormat, Certname, ChainVerified, ClientIdentity, DnFormat, HeaderForm,
    IdentityHeaders, IdentitySettings, Reason, Refusal,
};

fn verified(der: &[u8]) -> ClientIdentity {
    let agent = Agent::from_leaf(
        der,
        &IdentitySettings::default(),
        ChainVerified::assertion(),
    );
    ClientIdentity::Verified(Arc::new(agent.expect("an agent")))
}

fn refused() -> ClientIdentity {
    ClientIdentity::Refused(Refusal {
        reason: Reason::Revoked,
        certificate: "c".to_owned(),
        help: String::new(),
        claimed: None,
        is_issued: true,
    })
}

/// The headers after stamping, for a client that has forged each identity header twice.
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
fn only_a_verified_client_gets_success_and_each_header_once() {
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
fn only_the_verified_certificate_is_sent() {
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
fn an_assumed_agent_gets_the_headers_of_an_anonymous_client() {
    let name = Certname::parse("web01").expect("a name");
    let agent = Agent::assumed(name);
    assert_eq!(
        (agent.dn(), agent.serial(), agent.leaf()),
        ("CN=web01", "", &[][..])
    );
    assert!(agent.extensions().is_empty() && !agent.has_authorization_extension());
    let found = stamped(&ClientIdentity::Verified(Arc::new(agent)), Some(&[]), true);
    assert_eq!(found, [("x-client-verify".to_owned(), "NONE".to_owned())]);
}

#[test]
fn a_subject_without_a_value_in_the_format_of_the_pool_fails() {
    let der = puppet("web01");
    let form = HeaderForm {
        dn_format: DnFormat::OpenSsl,
        ..HeaderForm::default()
    };
    let mut headers = HeaderMap::new();
    IdentityHeaders::new(&verified(&der), Some(&der)).stamp(&form, &mut headers, true);
    assert_eq!(headers.len(), 1, "{headers:?}");
    assert_eq!(headers["x-client-verify"], "FAILED:subject");
}

#[test]
fn the_one_line_certificate_is_its_pem_with_spaces() {
    let der = puppet("web01");
    let form = HeaderForm {
        cert: CertFormat::OneLine.usual_name(),
        cert_format: CertFormat::OneLine,
        ..HeaderForm::default()
    };
    let mut headers = HeaderMap::new();
    IdentityHeaders::new(&verified(&der), Some(&der)).stamp(&form, &mut headers, true);
    let value = headers["x-ssl-client-cert"].to_str().expect("text");
    let pem = value
        .replace(' ', "\n")
        .replace("BEGIN\n", "BEGIN ")
        .replace("END\n", "END ");
    let (rest, parsed) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).expect("PEM");
    assert_eq!((rest.len(), parsed.contents), (0, der));
    assert!(headers.get("x-client-cert").is_none());
}

#[test]
fn the_length_of_the_certificate_matches_its_header_value() {
    let der = puppet("web01");
    for form in [
        HeaderForm::default(),
        HeaderForm {
            cert_format: CertFormat::OneLine,
            ..HeaderForm::default()
        },
    ] {
        let trusted = IdentityHeaders::new(&verified(&der), Some(&der));
        let mut headers = HeaderMap::new();
        trusted.stamp(&form, &mut headers, true);
        assert_eq!(
            trusted.certificate_length(&form),
            headers["x-client-cert"].len()
        );
        let other = IdentityHeaders::new(&verified(&der), None);
        assert_eq!(other.certificate_length(&form), 0);
        let anonymous = IdentityHeaders::new(&ClientIdentity::Anonymous, None);
        assert_eq!(anonymous.certificate_length(&form), 0);
    }
}
