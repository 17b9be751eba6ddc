//! The headers of RFC 9440 and Envoy's X-Forwarded-Client-Cert.

use testkit::{Headers, Reply};

use crate::support::{
    Estate, allowed_fields, assert_refused,
    header_forms::{FILES, MARK, forwarded, identity_estate, spellings},
    paths::CA_CERTIFICATE,
    readers::{escaped_certificate, one_line_certificate},
};

const OTHERS: &str = "headers = [\"client-cert\", \"client-cert-chain\", \"xfcc\"]";
const OTHER_NAMES: [&str; 3] = [
    "client-cert",
    "client-cert-chain",
    "x-forwarded-client-cert",
];

#[test]
fn rfc_9440_and_envoys_header_identify_a_verified_client_without_puppets_headers() {
    let estate = identity_estate(OTHERS, "puppet").start();
    let agent = estate.ca.leaf("web01").without_san().issue();
    let headers = forwarded(&estate, &agent);
    let raw = estate.only_request().raw_text();
    assert_eq!(der_of(headers.only("client-cert")), agent.cert_der);
    let issuing = pem_body(&estate.ca.issuing_pem());
    assert_eq!(headers.only("client-cert-chain"), format!(":{issuing}:"));
    let xfcc = headers.only("x-forwarded-client-cert");
    let (hash, rest) = xfcc.split_once(";Cert=").expect("a digest first");
    assert!(hash.len() == 5 + 64 && hash.starts_with("Hash="), "{xfcc}");
    let (certificate, subject) = rest.split_once(";Subject=").expect("a certificate");
    let escaped = Headers(vec![(
        "X-Client-Cert".to_owned(),
        certificate.trim_matches('"').to_owned(),
    )]);
    assert_eq!(escaped_certificate(&escaped), Ok(Some(agent.cert_der)));
    assert_eq!(subject, "\"CN=web01\"");
    for line in raw.lines() {
        assert!(!line.to_ascii_lowercase().starts_with("x-client-"), "{raw}");
    }
    // The header has the alternative names of the certificate too.
    let named = estate.ca.leaf("web02").dns("web02.example.com").issue();
    let headers = forwarded(&estate, &named);
    let xfcc = headers.only("x-forwarded-client-cert");
    assert!(xfcc.contains(";Subject=\"CN=web02\";DNS="), "{xfcc}");
    assert!(xfcc.ends_with("DNS=web02.example.com"), "{xfcc}");
}

#[test]
fn forged_copies_of_rfc_9440s_and_envoys_headers_are_removed_whatever_the_form() {
    for identity in [
        OTHERS,
        "",
        "headers = [\"puppet\", \"client-cert\", \"xfcc\"]",
    ] {
        let estate = identity_estate(identity, "puppet").start();
        let agent = estate.ca.agent("web01");
        for name in OTHER_NAMES {
            for spelling in spellings(name) {
                for (client, target) in [
                    (Some(&agent), FILES),
                    (Some(&agent), CA_CERTIFICATE),
                    (None, CA_CERTIFICATE),
                ] {
                    let forgery = [
                        (spelling.as_str(), MARK),
                        ("Connection", spelling.as_str()),
                        (spelling.as_str(), "Hash=forged"),
                    ];
                    estate.forget();
                    let client_of = estate.proxy.client(client);
                    let response = client_of.request("GET", target, &allowed_fields(&forgery), b"");
                    assert_eq!(response.status, 200, "{forgery:?}: {response:?}");
                    let request = estate.only_request();
                    let raw = request.raw_text();
                    assert!(!raw.to_ascii_lowercase().contains(MARK), "{raw}");
                    let is_forwarded = client.is_some() && target == FILES;
                    for (name, set) in OTHER_NAMES.iter().zip(["\"client-cert\"", "chain", "xfcc"])
                    {
                        let expected = usize::from(is_forwarded && identity.contains(set));
                        assert_eq!(request.headers.all(name).len(), expected, "{name}: {raw}");
                    }
                }
            }
        }
    }
}

#[test]
fn rfc_9440s_and_envoys_headers_in_responses_are_removed() {
    let estate = identity_estate(OTHERS, "puppet").start();
    for compiler in &estate.compilers {
        compiler.answer(|_| {
            let names = OTHER_NAMES.iter();
            Some(names.fold(Reply::ok("x"), |reply, name| reply.header(name, MARK)))
        });
    }
    let response = estate.agent("web01").get(FILES);
    let output = response.headers.0.iter().find(|(_, value)| value == MARK);
    assert_eq!(output, None);
}

#[test]
fn a_certificate_too_large_for_all_headers_together_is_refused_or_left_out() {
    for (rule, names, status) in [
        ("refuse", 0, 200),
        ("refuse", 60, 431),
        ("omit", 60, 200),
        // The names of this certificate alone are too large.
        ("omit", 200, 431),
    ] {
        let pool = format!("forward_cert_max = \"7KiB\"\nforward_cert_too_large = {rule:?}");
        let estate = Estate::builder()
            .compilers(1)
            .compiler_pool(&pool)
            .with(&format!("[pools.compilers.identity]\n{OTHERS}"))
            .start();
        let leaf = (0..names).fold(estate.ca.leaf("web01"), |leaf, number| {
            leaf.dns(&format!("{number}.a-rather-long-name.example.com"))
        });
        let response = estate.client(&leaf.issue()).get(FILES);
        assert_eq!(response.status, status, "{rule} {names}: {response:?}");
        if status == 431 {
            assert_refused(&response, 431, &["7168"]);
            assert!(estate.far_end().is_empty());
            continue;
        }
        let output = estate.only_request().headers;
        assert_eq!(output.all("client-cert").len(), usize::from(names == 0));
        assert_eq!(
            output.all("client-cert-chain").len(),
            usize::from(names == 0)
        );
        let xfcc = output.only("x-forwarded-client-cert");
        assert_eq!(xfcc.contains("Cert="), names == 0, "{xfcc}");
    }
}

#[test]
fn explain_names_rfc_9440s_and_envoys_headers() {
    let estate = identity_estate(OTHERS, "puppet").start();
    let explained = |target: &str| {
        let command = ["explain", target];
        estate
            .proxy
            .command(&command, &["--certname", "web01"])
            .stdout
    };
    let compilers = explained(FILES);
    assert!(
        compilers.contains("with Client-Cert, Client-Cert-Chain, X-Forwarded-Client-Cert of up to"),
        "{compilers}"
    );
    assert!(
        compilers.contains("without Puppet's headers"),
        "{compilers}"
    );
    assert!(explained(CA_CERTIFICATE).contains("X-Client-Verify: SUCCESS"));
}

#[test]
fn check_refuses_headers_without_an_identity_and_warns_about_a_puppet_pool_without_puppets_headers()
{
    for (identity, expected) in [
        ("headers = []", "an empty list"),
        (
            "headers = [\"client-cert-chain\", \"puppet\"]",
            "only beside Client-Cert",
        ),
        ("headers = [\"xfcc\", \"xfcc\"]", "listed twice"),
    ] {
        let outcome = identity_estate(identity, "puppet").try_start();
        assert_eq!(outcome.code, Some(78), "{identity}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(expected), "{}", outcome.stderr);
    }
    let estate = identity_estate(OTHERS, "puppet").start();
    let checked = estate.proxy.command(&["check"], &[]);
    let said = format!("{}{}", checked.stdout, checked.stderr);
    assert!(
        said.contains("no Puppet server reads these headers"),
        "{said}"
    );
}

/// The content of a byte sequence (RFC 8941).
fn der_of(item: &str) -> Vec<u8> {
    let inner = item
        .strip_prefix(':')
        .and_then(|rest| rest.strip_suffix(':'));
    let inner = inner.expect("between colons");
    let pem = format!("-----BEGIN CERTIFICATE----- {inner} -----END CERTIFICATE-----");
    let headers = Headers(vec![("X-SSL-Client-Cert".to_owned(), pem)]);
    let der = one_line_certificate(&headers).expect("a certificate");
    der.expect("one")
}

/// The base64 of the first block.
fn pem_body(pem: &str) -> String {
    let lines = pem
        .lines()
        .skip_while(|line| !line.starts_with("-----BEGIN"));
    lines
        .skip(1)
        .take_while(|line| !line.starts_with('-'))
        .collect()
}
