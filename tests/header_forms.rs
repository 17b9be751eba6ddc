//! The client's identity in the form that each kind of server reads: the server's reader, ported, finds the verified name.

use testkit::{Attribute, TestCredential, name_der};

use crate::support::{
    Estate, assert_refused,
    header_forms::{CN, EMAIL, FILES, O, Server, UTF8, forwarded, identity_estate, utf8},
    paths::CA_CERTIFICATE,
    readers::{
        Reading, Ruby, escaped_certificate, mongrel, one_line_certificate, puppet_server,
        puppet_server_legacy, rack,
    },
};

/// The pairs of docs/operating/older-puppet.md, "Older servers".
const SERVERS: &[Server] = &[
    Server {
        name: "Puppet Server",
        identity: "",
        read: puppet_server,
        certificate: Some(escaped_certificate),
        reads_more: true,
    },
    Server {
        name: "Puppet Server, in OpenSSL's form",
        identity: "dn_format = \"openssl\"",
        read: puppet_server,
        certificate: Some(escaped_certificate),
        reads_more: true,
    },
    Server {
        name: "Puppet Server up to 6 with use-legacy-auth-conf and names of its own",
        identity: "dn_header = \"Site-Agent\"\nverify_header = \"Site-Verdict\"",
        read: |headers| puppet_server_legacy(headers, "HTTP_SITE_AGENT", "HTTP_SITE_VERDICT"),
        certificate: None,
        reads_more: true,
    },
    Server {
        name: "Rack (Passenger, Unicorn) of Puppet 3 to 5",
        identity: "cert_format = \"one-line\"",
        read: |headers| {
            rack(
                headers,
                "HTTP_X_CLIENT_DN",
                "HTTP_X_CLIENT_VERIFY",
                Ruby::New,
            )
        },
        certificate: Some(one_line_certificate),
        reads_more: true,
    },
    Server {
        name: "Rack of Puppet 3 on an old Ruby, in OpenSSL's form",
        identity: "dn_format = \"openssl\"\ncert_format = \"one-line\"",
        read: |headers| {
            rack(
                headers,
                "HTTP_X_CLIENT_DN",
                "HTTP_X_CLIENT_VERIFY",
                Ruby::Old,
            )
        },
        certificate: Some(one_line_certificate),
        reads_more: true,
    },
    Server {
        name: "Mongrel, or Rack of 2.6 and 2.7",
        identity: "dn_format = \"cn-last\"",
        read: |headers| Ok(mongrel(headers, "HTTP_X_CLIENT_DN", "HTTP_X_CLIENT_VERIFY")),
        certificate: None,
        reads_more: true,
    },
    Server {
        name: "Mongrel behind what was Pound",
        identity: "dn_format = \"cn-last\"\ndn_header = \"X-SSL-Subject\"",
        read: |headers| {
            Ok(mongrel(
                headers,
                "HTTP_X_SSL_SUBJECT",
                "HTTP_X_CLIENT_VERIFY",
            ))
        },
        certificate: None,
        reads_more: true,
    },
    Server {
        name: "Mongrel, by RFC 2253",
        identity: "",
        read: |headers| Ok(mongrel(headers, "HTTP_X_CLIENT_DN", "HTTP_X_CLIENT_VERIFY")),
        certificate: None,
        reads_more: false,
    },
];

const CERTNAMES: &[&str] = &[
    "web01",
    "a",
    "0.1",
    "_x",
    "cn",
    "success",
    "web-01.lab_test.example.com",
    "cn-last.example.com",
];

#[test]
fn each_server_reads_the_certname_and_the_certificate_of_puppets_own_agents() {
    let long = "a".repeat(255);
    for server in SERVERS {
        let estate = identity_estate(server.identity, "puppet").start();
        for certname in CERTNAMES.iter().copied().chain([&*long]) {
            let agent = estate.ca.leaf(certname).without_san().issue();
            assert_reads(&estate, server, &agent, certname);
        }
        estate.forget();
        assert_eq!(estate.anonymous().get(CA_CERTIFICATE).status, 200);
        let anonymous = (server.read)(&estate.only_request().headers);
        assert!(!anonymous.expect("served").authenticated, "{}", server.name);
    }
}

#[test]
fn each_server_reads_the_certname_of_an_external_cas_subject() {
    let subjects: &[(&str, &[(&str, &str)])] = &[
        ("web01", &[(O, "Example"), (CN, "web01")]),
        ("web01", &[(CN, "web01"), (O, "Example")]),
        (
            "WEB01.Example.COM",
            &[
                ("2.5.4.6", "DE"),
                (CN, "WEB01.Example.COM"),
                (EMAIL, "a@b.c"),
            ],
        ),
        ("Web 01", &[(O, "Acme, Inc."), (CN, "Web 01")]),
        ("web01", &[(O, "x/CN=victim"), (CN, "web01")]),
        ("web01", &[(CN, "web01"), (O, "x/CN=victim")]),
        ("web01", &[(O, "Acme, CN=victim"), (CN, "web01")]),
        ("web01", &[(CN, "web01"), (O, "CN = victim")]),
        ("web01", &[(O, "x\\"), (CN, "web01"), (O, "\"CN=victim")]),
        ("web01", &[(O, "M\u{fc}ller"), (CN, "web01")]),
        (
            "*.example.com",
            &[(O, "#0c06766963746d"), (CN, "*.example.com")],
        ),
    ];
    for server in SERVERS.iter().filter(|server| server.reads_more) {
        let estate = identity_estate(server.identity, "single-cn").start();
        for (certname, subject) in subjects {
            let rdns: Vec<_> = subject
                .iter()
                .map(|(kind, value)| vec![utf8(kind, value)])
                .collect();
            let agent = estate.ca.leaf("any").issue_as(&name_der(&rdns));
            assert_reads(&estate, server, &agent, certname);
        }
    }
}

#[test]
fn a_cn_that_the_format_cannot_express_is_refused_with_the_reason() {
    for (format, status) in [("rfc2253", 200), ("openssl", 403), ("cn-last", 403)] {
        let estate = identity_estate(&format!("dn_format = {format:?}"), "single-cn").start();
        let agent = estate
            .ca
            .leaf("any")
            .issue_as(&name_der(&[vec![utf8(CN, "a;b")]]));
        for target in [FILES, CA_CERTIFICATE] {
            let response = estate.client(&agent).get(target);
            assert_eq!(response.status, status, "{format} {target}: {response:?}");
            if status == 403 {
                assert_refused(&response, 403, &[format, "';'"]);
            }
        }
    }
}

#[test]
fn a_cn_that_is_not_ascii_is_refused_because_puppet_server_would_read_another() {
    let estate = identity_estate("", "single-cn").start();
    let agent = estate
        .ca
        .leaf("any")
        .issue_as(&name_der(&[vec![utf8(CN, "j\u{fc}rgen")]]));
    assert_refused(&estate.client(&agent).get(FILES), 403, &["subject"]);
    assert!(estate.far_end().is_empty());
}

#[test]
fn a_pools_form_overrides_the_general_one_for_that_pool_only() {
    let estate = Estate::builder()
        .compiler_pool("forward_cert = true")
        .with("[identity]\ndn_format = \"openssl\"\ndn_header = [\"X-Client-DN\", \"X-SSL-Subject\"]").with("[pools.compilers.identity]\nverify_header = \"Site-Verdict\"\ncert_header = \"Site-Cert\"")
        .start();
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(FILES).status, 200);
    let forwarded = estate.only_request();
    for name in ["x-client-dn", "x-ssl-subject"] {
        assert_eq!(forwarded.only(name), "/CN=web01");
    }
    assert_eq!(forwarded.only("site-verdict"), "SUCCESS");
    assert!(forwarded.only("site-cert").starts_with("-----BEGIN%20"));
    for name in ["x-client-verify", "x-client-cert"] {
        assert!(
            forwarded.headers.all(name).is_empty(),
            "{name} has another name here"
        );
    }
    estate.forget();
    assert_eq!(estate.client(&agent).get(CA_CERTIFICATE).status, 200);
    let forwarded = estate.only_request();
    assert_eq!(forwarded.only("x-client-verify"), "SUCCESS");
    assert_eq!(forwarded.only("x-ssl-subject"), "/CN=web01");
    assert!(forwarded.headers.all("site-verdict").is_empty());
}

/// Puppet Server reads a subject in another form if Bouncy Castle fails on it: `foo,O=.example.com` in place of `foo`,
/// which a rule for `*.example.com` would allow.
#[test]
fn a_subject_that_a_server_could_read_in_another_form_is_escaped_or_refused() {
    let estate = identity_estate("", "single-cn").start();
    let agent = |beside: Attribute, cn: &str| {
        let rdns = [
            vec![utf8(O, ".example.com/")],
            vec![beside],
            vec![utf8(CN, cn)],
        ];
        estate.ca.leaf("any").issue_as(&name_der(&rdns))
    };
    for (value, forwarded) in [
        (" ", r"CN=foo,O=\20,O=.example.com/"),
        ("x ", r"CN=foo,O=x\20,O=.example.com/"),
        ("  x", r"CN=foo,O=\20 x,O=.example.com/"),
    ] {
        for tag in [UTF8, 0x13] {
            let beside = (O.to_owned(), tag, value.as_bytes().to_vec());
            let headers = self::forwarded(&estate, &agent(beside, "foo"));
            assert_eq!(headers.only("x-client-dn"), forwarded);
            let read = puppet_server(&headers).expect("served");
            assert_eq!(read.name.as_deref(), Some("foo"), "{forwarded}");
        }
    }
    // At the end of the value the space is escaped too, because HTTP trims whitespace there.
    let rdns = [vec![utf8(O, ".example.com/x ")], vec![utf8(CN, "foo")]];
    let headers = forwarded(&estate, &estate.ca.leaf("any").issue_as(&name_der(&rdns)));
    assert_eq!(headers.only("x-client-dn"), r"CN=foo,O=.example.com/x\20");
    let read = puppet_server(&headers).expect("served");
    assert_eq!(read.name.as_deref(), Some("foo"));

    let (of_two, long) = ("the C is not two letters", "a".repeat(65));
    for (beside, cn, why) in [
        (
            (O.to_owned(), 0x1e, b"abc".to_vec()),
            "foo",
            "in a type that servers decode differently",
        ),
        (
            ("1.2.3.4".to_owned(), 0x01, b"\0\0".to_vec()),
            "foo",
            "in a type that servers decode differently",
        ),
        (utf8("2.5.4.6", "GER"), "foo", of_two),
        (utf8(O, "x"), &long, "the CN has more than 64 characters"),
    ] {
        estate.forget();
        let response = estate.client(&agent(beside, cn)).get(FILES);
        assert_refused(&response, 403, &[why]);
        assert!(estate.far_end().is_empty());
    }
    // Some parsers stop at an RDN without an attribute, and others read on.
    let hidden = name_der(&[vec![utf8(CN, "foo")], vec![], vec![utf8(CN, "victim")]]);
    let hidden = estate.ca.leaf("any").issue_as(&hidden);
    estate.forget();
    let response = estate.client(&hidden).get(FILES);
    assert_refused(&response, 403, &["cannot be read to its end"]);
    assert!(estate.far_end().is_empty());
    let alone = estate
        .ca
        .leaf("any")
        .issue_as(&name_der(&[vec![utf8(CN, &long)]]));
    assert_eq!(
        forwarded(&estate, &alone).only("x-client-dn"),
        format!("CN={long}")
    );
}

#[test]
fn a_reload_changes_the_form_on_a_live_connection() {
    let estate = identity_estate("dn_format = \"rfc2253\"", "single-cn").start();
    let plain = estate.ca.agent("web01");
    let odd = estate
        .ca
        .leaf("any")
        .issue_as(&name_der(&[vec![utf8(CN, "a;b")]]));
    let mut stays = estate.client(&plain).connect().expect("connects");
    let mut turned = estate.client(&odd).connect().expect("connects");
    assert_eq!(
        (stays.get(FILES).status, turned.get(FILES).status),
        (200, 200)
    );
    estate.edit_config(
        "dn_format = \"rfc2253\"",
        "dn_format = \"openssl\"\ndn_header = \"Site-Agent\"",
    );
    estate.proxy.reload_applied();
    estate.forget();
    assert_eq!(stays.get(FILES).status, 200);
    let forwarded = estate.only_request();
    assert_eq!(forwarded.only("site-agent"), "/CN=web01");
    assert!(forwarded.headers.all("x-client-dn").is_empty());
    match turned.try_request("GET", FILES, &[], b"") {
        Ok(response) => assert_refused(&response, 403, &["openssl"]),
        Err(error) => assert!(error.is_closed(), "{error}"),
    }
}

#[track_caller]
fn assert_reads(estate: &Estate, server: &Server, agent: &TestCredential, certname: &str) {
    let headers = forwarded(estate, agent);
    let context = format!("{} of {certname}: {headers:?}", server.name);
    let read = (server.read)(&headers).expect(&context);
    let expected = Reading {
        name: Some(certname.to_owned()),
        authenticated: true,
    };
    assert_eq!(read, expected, "{context}");
    if let Some(certificate) = server.certificate {
        assert_eq!(
            certificate(&headers),
            Ok(Some(agent.cert_der.clone())),
            "{context}"
        );
    }
}
