//! Tests of RFC 9440's and Envoy's headers for one certificate.

use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use proptest::prelude::*;

use crate::test_certificate::{C, CN, O, UTF8, certificate, puppet, tlv, with_subject};
use crate::{
    Agent, ChainVerified, ClientIdentity, HeaderForm, HeaderSet, IdentityHeaders, IdentitySettings,
    SubjectRule,
};

const SANS: &str = "2.5.29.17";

fn agent(der: &[u8], intermediates: &[&[u8]]) -> ClientIdentity {
    let settings = IdentitySettings {
        subject: SubjectRule::SingleCn,
        ..IdentitySettings::default()
    };
    let agent = Agent::from_leaf(der, &settings, ChainVerified::assertion()).expect("an agent");
    let chain = intermediates.iter().map(|der| Arc::from(*der)).collect();
    ClientIdentity::Verified(Arc::new(agent.with_path([0xab; 32], chain)))
}

fn form(sets: &[HeaderSet]) -> HeaderForm {
    HeaderForm {
        sets: sets.to_vec(),
        ..HeaderForm::default()
    }
}

const OTHERS: &[HeaderSet] = &[
    HeaderSet::ClientCert,
    HeaderSet::ClientCertChain,
    HeaderSet::Xfcc,
];

/// The headers that a member receives for this client, which has forged each of the three headers twice.
fn stamped(
    identity: &ClientIdentity,
    leaf: Option<&[u8]>,
    with_certificate: bool,
) -> Vec<(String, String)> {
    let mut headers = HeaderMap::new();
    for name in OTHERS.iter().filter_map(|set| set.name()) {
        let name = HeaderName::from_bytes(name.as_str().as_bytes()).expect("a name");
        headers.append(name.clone(), "forged".parse().expect("a value"));
        headers.append(name, "forged".parse().expect("a value"));
    }
    IdentityHeaders::new(identity, leaf).stamp(&form(OTHERS), &mut headers, with_certificate);
    let pairs = headers
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_str().expect("text").to_owned()));
    let mut pairs: Vec<_> = pairs.collect();
    pairs.sort();
    pairs
}

fn xfcc(der: &[u8]) -> Option<String> {
    let headers = stamped(&agent(der, &[]), Some(der), false);
    headers
        .into_iter()
        .find(|(name, _)| name == "x-forwarded-client-cert")
        .map(|(_, value)| value)
}

fn with_sans(names: &[(u8, &str)]) -> Vec<u8> {
    let names = names
        .iter()
        .flat_map(|(tag, text)| tlv(*tag, text.as_bytes()));
    let names = tlv(0x30, &names.collect::<Vec<u8>>());
    certificate(&[&[(CN, UTF8, b"web01")]], &[(SANS, &names)])
}

fn decoded(item: &str) -> Vec<u8> {
    let inner = item
        .strip_prefix(':')
        .and_then(|rest| rest.strip_suffix(':'));
    let pem = format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        inner.expect("between colons")
    );
    let (_, parsed) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).expect("base64");
    parsed.contents
}

#[test]
fn a_verified_client_gets_each_header_once_and_other_clients_get_none() {
    let (der, one, two) = (puppet("web01"), puppet("issuing"), puppet("above"));
    let found = stamped(&agent(&der, &[&one, &two]), Some(&der), true);
    let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "client-cert",
            "client-cert-chain",
            "x-forwarded-client-cert"
        ]
    );
    assert_eq!(decoded(&found[0].1), der);
    let chain: Vec<_> = found[1].1.split(", ").map(decoded).collect();
    assert_eq!(chain, [one, two]);
    let digest = "ab".repeat(32);
    let begin = format!("Hash={digest};Cert=\"-----BEGIN%20CERTIFICATE-----%0A");
    assert!(found[2].1.starts_with(&begin), "{}", found[2].1);
    assert!(
        found[2]
            .1
            .ends_with("-----END%20CERTIFICATE-----%0A\";Subject=\"CN=web01\""),
        "{}",
        found[2].1
    );

    let without = stamped(&agent(&der, &[]), Some(&der), false);
    let only = format!("Hash={digest};Subject=\"CN=web01\"");
    assert_eq!(without, [("x-forwarded-client-cert".to_owned(), only)]);
    for (identity, leaf) in [
        (ClientIdentity::Anonymous, None),
        (ClientIdentity::Anonymous, Some(&der)),
        (agent(&der, &[]), None),
        (agent(&der, &[]), Some(&puppet("admin"))),
    ] {
        assert_eq!(stamped(&identity, leaf.map(|der| &der[..]), true), []);
    }
}

#[test]
fn without_intermediates_no_chain_header_is_sent() {
    let der = puppet("web01");
    let found = stamped(&agent(&der, &[]), Some(&der), true);
    assert!(found.iter().all(|(name, _)| name != "client-cert-chain"));
}

#[test]
fn the_subject_in_envoys_header_ends_only_at_its_quote() {
    type Case = (
        &'static [(&'static str, &'static str)],
        Option<&'static str>,
    );
    let subjects: &[Case] = &[
        (&[(O, "Example"), (CN, "web01")], Some("CN=web01,O=Example")),
        (
            &[(O, "a\";URI=spiffe://victim"), (CN, "web01")],
            Some(r"CN=web01,O=a\22\3BURI\3Dspiffe:\2F\2Fvictim"),
        ),
        (
            &[(O, "x\\"), (CN, "web01"), (C, "DE")],
            Some(r"C=DE,CN=web01,O=x\5C"),
        ),
        (
            &[(O, "##, "), (CN, "web01")],
            Some(r"CN=web01,O=\23\23\2C\20"),
        ),
        (
            &[(O, "M\u{fc}ller"), (CN, "web01")],
            Some(r"CN=web01,O=M\C3\BCller"),
        ),
        // The header is left out, because readers undo escapes differently.
        (&[(CN, "a;b")], None),
        (&[(CN, "a=b")], None),
    ];
    for (subject, expected) in subjects {
        let rdns: Vec<_> = subject
            .iter()
            .map(|(kind, value)| [(*kind, UTF8, value.as_bytes())])
            .collect();
        let rdns: Vec<_> = rdns.iter().map(|rdn| &rdn[..]).collect();
        let value = xfcc(&with_subject(&rdns));
        let wanted = expected.map(|dn| format!("Hash={};Subject=\"{dn}\"", "ab".repeat(32)));
        assert_eq!(value, wanted, "{subject:?}");
    }
}

#[test]
fn alternative_names_are_sent_if_all_readers_read_them_alike() {
    let (uri, dns) = (0x86, 0x82);
    for (names, expected) in [
        (vec![], ""),
        (
            vec![
                (dns, "web01"),
                (uri, "spiffe://a/b"),
                (dns, "*.example.com"),
            ],
            ";URI=spiffe://a/b;DNS=web01;DNS=*.example.com",
        ),
        (vec![(uri, "urn:a,b;c=d")], ";URI=\"urn:a,b;c=d\""),
        (
            vec![(uri, "urn:a\";Hash=b"), (dns, "a b"), (dns, "a\\")],
            "",
        ),
        (
            vec![(uri, ""), (dns, "a\u{7f}"), (dns, "a\r\nb"), (dns, "web01")],
            ";DNS=web01",
        ),
        (vec![(0x81, "a@b.c")], ""),
    ] {
        let value = xfcc(&with_sans(&names)).expect("a header");
        let begin = format!("Hash={};Subject=\"CN=web01\"", "ab".repeat(32));
        assert_eq!(value.strip_prefix(&begin), Some(expected), "{names:?}");
    }
}

#[test]
fn lengths_match_the_header_values() {
    let der = puppet("web01");
    let headers = IdentityHeaders::new(&agent(&der, &[&der]), Some(&der));
    for (with_certificate, length) in [
        (true, headers.certificate_length(&form(OTHERS))),
        (false, headers.digest_length(&form(OTHERS))),
    ] {
        let headers = stamped(&agent(&der, &[&der]), Some(&der), with_certificate);
        let lengths = headers.iter().map(|(_, value)| value.len());
        assert_eq!(lengths.sum::<usize>(), length);
    }
    assert_eq!(headers.digest_length(&HeaderForm::default()), 0);
}

#[test]
fn puppets_headers_are_not_stamped_in_a_form_without_them() {
    let der = puppet("web01");
    let headers = IdentityHeaders::new(&agent(&der, &[]), Some(&der));
    assert!(!headers.has_certificate(&form(OTHERS)));
    assert!(!form(OTHERS).supports_renewal() && HeaderForm::default().supports_renewal());
    let headers = stamped(&agent(&der, &[]), Some(&der), true);
    assert!(
        headers
            .iter()
            .all(|(name, _)| !name.starts_with("x-client-"))
    );
}

/// Keys and values as a careful reader finds them: no key within quotes, and no quote within a value.
fn elements(text: &str) -> Vec<(String, String)> {
    let (mut pairs, mut rest) = (Vec::new(), text);
    loop {
        let (key, value) = rest.split_once('=').expect("a key");
        let (value, after) = match value.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').expect("an end"),
            None => value.split_at(value.find([',', ';', '"']).unwrap_or(value.len())),
        };
        pairs.push((key.to_owned(), value.to_owned()));
        match after.strip_prefix(';') {
            Some(more) => rest = more,
            None => {
                assert_eq!(after, "", "one element");
                return pairs;
            }
        }
    }
}

proptest! {
    #[test]
    fn no_subject_and_no_alternative_name_adds_a_key(
        o in "[ -~]{1,24}|(\"|;|,|=|\\\\|URI=|DNS=|By=|a){1,8}",
        names in prop::collection::vec((prop::bool::ANY, "[ -~]{0,20}|(\"|;|,|=|\\\\|URI=|Hash=|a){1,8}"), 0..4),
    ) {
        let sans: Vec<_> = names.iter().map(|(uri, text)| (if *uri { 0x86 } else { 0x82 }, text.as_str())).collect();
        let listed = sans.iter().flat_map(|(tag, text)| tlv(*tag, text.as_bytes())).collect::<Vec<u8>>();
        let der = certificate(&[&[(O, UTF8, o.as_bytes())], &[(CN, UTF8, b"web01")]], &[(SANS, &tlv(0x30, &listed))]);
        let value = xfcc(&der).expect("a header");
        let pairs = elements(&value);
        let (uris, hosts): (Vec<_>, Vec<_>) = names.iter().partition(|(uri, _)| *uri);
        let expected_names = |key: &str, given: Vec<&(bool, String)>| {
            let plain = |text: &&String| !text.is_empty() && !text.contains([' ', '"', '\\']);
            let given = given.into_iter().map(|(_, text)| text).filter(plain);
            given.map(|text| (key.to_owned(), text.clone())).collect::<Vec<_>>()
        };
        let names = [expected_names("URI", uris), expected_names("DNS", hosts)].concat();
        prop_assert_eq!(&pairs[2..], &names[..]);
        prop_assert_eq!((pairs[0].0.as_str(), pairs[1].0.as_str()), ("Hash", "Subject"));
        prop_assert!(pairs[1].1.starts_with("CN=web01,O=") && pairs[1].1.matches('=').count() == 2);
    }
}
