//! Who a client is, in the form that each kind of server reads: its reader, ported, reads the verified name or none.

use testkit::{Attribute, Credential, Headers, Recorded, Reply, Seed, name_der};

use crate::support::{
    Estate, EstateBuilder, assert_refused,
    readers::{
        self, Broken, Reading, Ruby, escaped_certificate, is_for, is_possible, mongrel,
        one_line_certificate, puppet_server, puppet_server_legacy, rack,
    },
    sayable,
};

/// For any verified client.
const FILES: &str = "/puppet/v3/file_metadata/modules/a/b";
const CA_CERTIFICATE: &str = "/puppet-ca/v1/certificate/ca";
/// What every forged value contains, and nothing else does.
const MARK: &str = "forged";

const UTF8: u8 = 0x0c;
const CN: &str = "2.5.4.3";
const O: &str = "2.5.4.10";
const EMAIL: &str = "1.2.840.113549.1.9.1";

type CertificateReader = fn(&Headers) -> Result<Option<Vec<u8>>, Broken>;

/// A server of the table, with the settings of its `puppet.conf`.
struct Server {
    name: &'static str,
    /// What `[pools.compilers.identity]` says for it.
    identity: &'static str,
    read: fn(&Headers) -> Result<Reading, Broken>,
    certificate: Option<CertificateReader>,
    /// Whether it reads subjects of more than the CN.
    reads_more: bool,
}

/// The pairs of docs/operating.md, "Older servers".
const SERVERS: &[Server] = &[
    Server {
        name: "Puppet Server",
        identity: "",
        read: puppet_server,
        certificate: Some(escaped_certificate),
        reads_more: true,
    },
    Server {
        name: "Puppet Server, told in OpenSSL's form",
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
        name: "Rack of Puppet 3 on an old Ruby, told in OpenSSL's form",
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
        name: "Mongrel, told by RFC 2253",
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
        let estate = told_as(server.identity, "puppet").start();
        for certname in CERTNAMES.iter().copied().chain([&*long]) {
            let agent = estate.ca.leaf(certname).without_san().issue();
            assert_reads(&estate, server, &agent, certname);
        }
        estate.forget();
        assert_eq!(estate.anonymous().get(CA_CERTIFICATE).status, 200);
        let nobody = (server.read)(&estate.only_request().headers);
        assert!(!nobody.expect("served").authenticated, "{}", server.name);
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
        let estate = told_as(server.identity, "single-cn").start();
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
fn a_thousand_generated_subjects_by_rfc_2253_are_read_as_nobody_else() {
    generated_subjects_are_read_as_nobody_else("rfc2253");
}

#[test]
fn a_thousand_generated_subjects_in_openssls_form_are_read_as_nobody_else() {
    generated_subjects_are_read_as_nobody_else("openssl");
}

#[test]
fn a_thousand_generated_subjects_with_the_cn_last_are_read_as_nobody_else() {
    generated_subjects_are_read_as_nobody_else("cn-last");
}

#[test]
fn a_cn_that_a_format_cannot_tell_is_refused_on_every_pool_and_told_why() {
    for (format, status) in [("rfc2253", 200), ("openssl", 403), ("cn-last", 403)] {
        let estate = told_as(&format!("dn_format = {format:?}"), "single-cn").start();
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
fn a_cn_that_is_not_ascii_is_refused_since_puppet_server_would_read_another() {
    let estate = told_as("", "single-cn").start();
    let agent = estate
        .ca
        .leaf("any")
        .issue_as(&name_der(&[vec![utf8(CN, "j\u{fc}rgen")]]));
    assert_refused(&estate.client(&agent).get(FILES), 403, &["subject"]);
    assert!(estate.far_end().is_empty());
}

#[test]
fn a_pools_form_goes_before_the_general_one_and_other_pools_keep_that() {
    let estate = Estate::builder()
        .compiler_pool("forward_cert = true")
        .proxy(|proxy| {
            proxy
                .with("[identity]\ndn_format = \"openssl\"\ndn_header = [\"X-Client-DN\", \"X-SSL-Subject\"]")
                .with("[pools.compilers.identity]\nverify_header = \"Site-Verdict\"\ncert_header = \"Site-Cert\"")
        })
        .start();
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(FILES).status, 200);
    let told = estate.only_request();
    for name in ["x-client-dn", "x-ssl-subject"] {
        assert_eq!(told.only(name), "/CN=web01");
    }
    assert_eq!(told.only("site-verdict"), "SUCCESS");
    assert!(told.only("site-cert").starts_with("-----BEGIN%20"));
    for name in ["x-client-verify", "x-client-cert"] {
        assert!(
            told.headers.all(name).is_empty(),
            "{name} has another name here"
        );
    }
    estate.forget();
    assert_eq!(estate.client(&agent).get(CA_CERTIFICATE).status, 200);
    let told = estate.only_request();
    assert_eq!(told.only("x-client-verify"), "SUCCESS");
    assert_eq!(told.only("x-ssl-subject"), "/CN=web01");
    assert!(told.headers.all("site-verdict").is_empty());
}

#[test]
fn names_of_one_pool_are_removed_from_requests_to_every_pool() {
    let estate = renamed().start();
    let agent = estate.ca.agent("web01");
    let names = [
        "Site-Agent",
        "Site-Verdict",
        "Site-Cert",
        "X-SSL-Subject",
        "X-Client-DN",
    ];
    for name in names {
        for spelling in spellings(name) {
            for forgery in [
                vec![(spelling.as_str(), MARK)],
                vec![(spelling.as_str(), MARK), (spelling.as_str(), "CN=forged")],
                vec![("Connection", spelling.as_str()), (spelling.as_str(), MARK)],
            ] {
                assert_nothing_forged(&estate, Some(&agent), FILES, &forgery);
                assert_nothing_forged(&estate, Some(&agent), CA_CERTIFICATE, &forgery);
                assert_nothing_forged(&estate, None, CA_CERTIFICATE, &forgery);
            }
        }
    }
}

#[test]
fn a_thousand_generated_forgeries_of_configured_names_change_nothing() {
    let mut seed = Seed::from_env_or_random();
    let estate = renamed().start();
    let agent = estate.ca.agent("web01");
    let mut connection = estate.client(&agent).connect().expect("connects");
    for _ in 0..1000 {
        let mut lines = Vec::new();
        for _ in 0..=seed.below(3) {
            let name = *seed.pick(&[
                "Site-Agent",
                "Site-Verdict",
                "Site-Cert",
                "X-SSL-Subject",
                "HTTP-Site-Agent",
            ]);
            let twisted: String = name.chars().map(|c| twist(&mut seed, c)).collect();
            if seed.once_in(3) {
                lines.push((
                    "Connection".to_owned(),
                    format!("{twisted}, x-client-verify"),
                ));
            }
            lines.push((twisted, format!("SUCCESS {MARK}")));
        }
        let lines: Vec<_> = lines
            .iter()
            .map(|(n, v)| (n.as_str(), v.as_str()))
            .collect();
        let lines = sayable(&lines);
        let target = *seed.pick(&[FILES, CA_CERTIFICATE]);
        estate.forget();
        assert_eq!(
            connection.request("GET", target, &lines, b"").status,
            200,
            "{lines:?}"
        );
        assert_ours_alone(&estate.only_request(), target, true, &lines);
    }
}

#[test]
fn what_is_said_upstream_under_any_name_is_not_said_downstream() {
    let estate = renamed().start();
    let agent = estate.ca.agent("web01");
    for compiler in &estate.compilers {
        compiler.answer(|_| {
            let names = ["Site-Agent", "Site-Verdict", "Site-Cert", "X-SSL-Subject"];
            let reply = names
                .iter()
                .fold(Reply::ok("x"), |reply, name| reply.header(name, MARK));
            Some(reply.header("Site-Other", "kept"))
        });
    }
    let response = estate.client(&agent).get(FILES);
    assert_eq!(response.headers.only("site-other"), "kept");
    let told = response.headers.0.iter().find(|(_, value)| value == MARK);
    assert_eq!(told, None);
}

/// What some Bouncy Castle throws at, Puppet Server reads in another form: `foo,O=.example.com` in place of `foo`, which
/// a rule for `*.example.com` lets in.
#[test]
fn a_subject_that_a_server_would_read_in_another_form_is_told_so_that_it_cannot_or_refused() {
    let estate = told_as("", "single-cn").start();
    let agent = |beside: Attribute, cn: &str| {
        let rdns = [
            vec![utf8(O, ".example.com/")],
            vec![beside],
            vec![utf8(CN, cn)],
        ];
        estate.ca.leaf("any").issue_as(&name_der(&rdns))
    };
    for (value, told) in [
        (" ", r"CN=foo,O=\20,O=.example.com/"),
        ("x ", r"CN=foo,O=x\20,O=.example.com/"),
        ("  x", r"CN=foo,O=\20 x,O=.example.com/"),
    ] {
        for tag in [UTF8, 0x13] {
            let beside = (O.to_owned(), tag, value.as_bytes().to_vec());
            let headers = self::told(&estate, &agent(beside, "foo"));
            assert_eq!(headers.only("x-client-dn"), told);
            let read = puppet_server(&headers).expect("served");
            assert_eq!(read.name.as_deref(), Some("foo"), "{told}");
        }
    }
    // At the end of the value too, where HTTP takes blanks off.
    let rdns = [vec![utf8(O, ".example.com/x ")], vec![utf8(CN, "foo")]];
    let headers = told(&estate, &estate.ca.leaf("any").issue_as(&name_der(&rdns)));
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
        told(&estate, &alone).only("x-client-dn"),
        format!("CN={long}")
    );
}

#[test]
fn a_reload_changes_the_form_on_a_live_connection() {
    let estate = told_as("dn_format = \"rfc2253\"", "single-cn").start();
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
    estate.proxy.edit_config(
        "dn_format = \"rfc2253\"",
        "dn_format = \"openssl\"\ndn_header = \"Site-Agent\"",
    );
    estate.proxy.reload_applied();
    estate.forget();
    assert_eq!(stays.get(FILES).status, 200);
    let told = estate.only_request();
    assert_eq!(told.only("site-agent"), "/CN=web01");
    assert!(told.headers.all("x-client-dn").is_empty());
    match turned.try_request("GET", FILES, &[], b"") {
        Ok(response) => assert_refused(&response, 403, &["openssl"]),
        Err(error) => assert!(error.is_closed(), "{error}"),
    }
}

#[test]
fn a_name_with_another_work_is_refused_at_start() {
    for name in [
        "Host",
        "Content-Length",
        "Connection",
        "X-Forwarded-For",
        "X-Real-IP",
        "X_Client_DN",
        "X-Client-Verify",
    ] {
        let outcome = told_as(&format!("dn_header = {name:?}"), "puppet").try_start();
        assert_eq!(outcome.code, Some(78), "{name}: {}", outcome.stderr);
        assert!(
            outcome
                .stderr
                .contains("pools.compilers.identity.dn_header"),
            "{name}: {}",
            outcome.stderr
        );
    }
}

#[test]
fn explain_names_the_headers_of_the_pool() {
    let estate = renamed().start();
    let told = |target: &str| {
        estate
            .proxy
            .command(&["explain", target], &["--certname", "web01"])
            .stdout
    };
    let compilers = told(FILES);
    assert!(compilers.contains("Site-Verdict: SUCCESS"), "{compilers}");
    assert!(
        compilers.contains("Site-Agent, X-SSL-Subject"),
        "{compilers}"
    );
    assert!(compilers.contains("with Site-Cert"), "{compilers}");
    let ca = told(CA_CERTIFICATE);
    assert!(ca.contains("X-Client-Verify: SUCCESS"), "{ca}");
}

const OTHERS: &str = "headers = [\"client-cert\", \"client-cert-chain\", \"xfcc\"]";
const OTHER_NAMES: [&str; 3] = [
    "client-cert",
    "client-cert-chain",
    "x-forwarded-client-cert",
];

#[test]
fn rfc_9440_and_envoys_header_tell_a_verified_client_and_puppets_headers_are_left_out() {
    let estate = told_as(OTHERS, "puppet").start();
    let agent = estate.ca.leaf("web01").without_san().issue();
    let headers = told(&estate, &agent);
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
    // With the names of the certificate.
    let named = estate.ca.leaf("web02").dns("web02.example.com").issue();
    let headers = told(&estate, &named);
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
        let estate = told_as(identity, "puppet").start();
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
                    let response = client_of.request("GET", target, &sayable(&forgery), b"");
                    assert_eq!(response.status, 200, "{forgery:?}: {response:?}");
                    let request = estate.only_request();
                    let raw = request.raw_text();
                    assert!(!raw.to_ascii_lowercase().contains(MARK), "{raw}");
                    let told = client.is_some() && target == FILES;
                    for (name, set) in OTHER_NAMES.iter().zip(["\"client-cert\"", "chain", "xfcc"])
                    {
                        let expected = usize::from(told && identity.contains(set));
                        assert_eq!(request.headers.all(name).len(), expected, "{name}: {raw}");
                    }
                }
            }
        }
    }
}

#[test]
fn what_members_say_by_rfc_9440s_and_envoys_headers_is_not_said_downstream() {
    let estate = told_as(OTHERS, "puppet").start();
    for compiler in &estate.compilers {
        compiler.answer(|_| {
            let names = OTHER_NAMES.iter();
            Some(names.fold(Reply::ok("x"), |reply, name| reply.header(name, MARK)))
        });
    }
    let response = estate.client(&estate.ca.agent("web01")).get(FILES);
    let told = response.headers.0.iter().find(|(_, value)| value == MARK);
    assert_eq!(told, None);
}

#[test]
fn a_certificate_that_is_too_large_in_all_headers_together_is_refused_or_left_out() {
    for (rule, names, status) in [
        ("refuse", 0, 200),
        ("refuse", 60, 431),
        ("omit", 60, 200),
        // Its names alone are too many.
        ("omit", 200, 431),
    ] {
        let pool = format!("forward_cert_max = \"7KiB\"\nforward_cert_too_large = {rule:?}");
        let estate = Estate::builder()
            .compilers(1)
            .compiler_pool(&pool)
            .proxy(|proxy| proxy.with(&format!("[pools.compilers.identity]\n{OTHERS}")))
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
        let told = estate.only_request().headers;
        assert_eq!(told.all("client-cert").len(), usize::from(names == 0));
        assert_eq!(told.all("client-cert-chain").len(), usize::from(names == 0));
        let xfcc = told.only("x-forwarded-client-cert");
        assert_eq!(xfcc.contains("Cert="), names == 0, "{xfcc}");
    }
}

#[test]
fn explain_names_rfc_9440s_and_envoys_headers() {
    let estate = told_as(OTHERS, "puppet").start();
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
fn check_refuses_headers_that_say_nothing_and_warns_of_a_puppet_pool_without_its_own() {
    for (identity, expected) in [
        ("headers = []", "an empty list"),
        (
            "headers = [\"client-cert-chain\", \"puppet\"]",
            "only beside Client-Cert",
        ),
        ("headers = [\"xfcc\", \"xfcc\"]", "listed twice"),
    ] {
        let outcome = told_as(identity, "puppet").try_start();
        assert_eq!(outcome.code, Some(78), "{identity}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(expected), "{}", outcome.stderr);
    }
    let estate = told_as(OTHERS, "puppet").start();
    let checked = estate.proxy.command(&["check"], &[]);
    let said = format!("{}{}", checked.stdout, checked.stderr);
    assert!(
        said.contains("no Puppet server reads these headers"),
        "{said}"
    );
}

/// What a byte sequence of RFC 8941 holds.
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

/// An estate whose compilers are told in this form, and its CA server in the usual one.
fn told_as(identity: &str, subject: &str) -> EstateBuilder {
    let (identity, subject) = (identity.to_owned(), subject.to_owned());
    Estate::builder()
        .compilers(1)
        .compiler_pool("forward_cert = true")
        .proxy(move |proxy| {
            proxy
                .with(&format!("[identity]\nsubject = {subject:?}"))
                .with(&format!("[pools.compilers.identity]\n{identity}"))
        })
}

/// Compilers with names of their own for everything.
fn renamed() -> EstateBuilder {
    let names = "dn_header = [\"Site-Agent\", \"X-SSL-Subject\"]\nverify_header = \"Site-Verdict\"\ncert_header = \"Site-Cert\"";
    told_as(names, "puppet")
}

fn utf8(kind: &str, value: &str) -> Attribute {
    (kind.to_owned(), UTF8, value.as_bytes().to_vec())
}

#[track_caller]
fn assert_reads(estate: &Estate, server: &Server, agent: &Credential, certname: &str) {
    let headers = told(estate, agent);
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

/// What a compiler is told of this agent.
#[track_caller]
fn told(estate: &Estate, agent: &Credential) -> Headers {
    estate.forget();
    let response = estate.client(agent).get(FILES);
    assert_eq!(response.status, 200, "{response:?}");
    estate.only_request().headers
}

/// 1,000 subjects that try to be read as another: each is refused, or every reader of any form reads the one CN that
/// was verified, or nobody, or, but for Puppet Server, what no accepted certificate can be called; the readers of this
/// form read plain subjects.
fn generated_subjects_are_read_as_nobody_else(format: &'static str) {
    let mut seed = Seed::from_env_or_random();
    let estate = told_as(&format!("dn_format = {format:?}"), "single-cn").start();
    let (mut accepted, mut exact) = (0, 0);
    for _ in 0..1000 {
        let subject = generated(&mut seed);
        let agent = estate.ca.leaf("any").issue_as(&name_der(&subject.rdns));
        estate.forget();
        let response = estate.client(&agent).get(FILES);
        if response.status == 403 {
            assert!(
                !subject.is_plain(),
                "{subject:?} is refused: {}",
                response.text()
            );
            assert!(estate.far_end().is_empty());
            continue;
        }
        assert_eq!(response.status, 200, "{subject:?}: {response:?}");
        let cn = subject.only_cn();
        let headers = estate.only_request().headers;
        accepted += 1;
        for (reader, read) in readers::all(&headers) {
            let Ok(Reading {
                name: Some(name), ..
            }) = read
            else {
                assert!(
                    !(subject.is_plain() && is_for(format, reader)),
                    "{reader} reads nobody: {headers:?}"
                );
                continue;
            };
            exact += usize::from(name == cn);
            assert!(
                name == cn || !is_possible(&name) && !reader.starts_with("Puppet Server"),
                "{reader} reads {name:?} where {cn:?} was verified: {headers:?} of {subject:?}"
            );
            assert!(
                name == cn || !subject.is_plain() || !is_for(format, reader),
                "{reader} reads {name:?}, not {cn:?}: {headers:?}"
            );
        }
    }
    assert!(
        accepted > 200 && exact > 2 * accepted,
        "the test tests: {accepted} accepted, {exact} read"
    );
}

#[derive(Debug)]
struct Subject {
    rdns: Vec<Vec<Attribute>>,
}

impl Subject {
    /// The CN of a subject that has one.
    fn only_cn(&self) -> String {
        let mut cns = self.rdns.iter().flatten().filter(|(kind, ..)| kind == CN);
        let (_, tag, value) = cns.next().expect("accepted with a CN");
        assert!(cns.next().is_none(), "accepted with several: {self:?}");
        match tag {
            0x1e => value
                .iter()
                .skip(1)
                .step_by(2)
                .map(|byte| char::from(*byte))
                .collect(),
            _ => String::from_utf8(value.clone()).expect("accepted as text"),
        }
    }

    /// Whether it is one that each reader of a format has to read.
    fn is_plain(&self) -> bool {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b".- ".contains(byte);
        let known = |kind: &str| [CN, O, "2.5.4.11", EMAIL].contains(&kind);
        let cns = self
            .rdns
            .iter()
            .flatten()
            .filter(|(kind, ..)| kind == CN)
            .count();
        cns == 1
            && self.rdns.iter().all(|rdn| rdn.len() == 1)
            && self.rdns.iter().flatten().all(|(kind, tag, value)| {
                *tag == UTF8
                    && known(kind)
                    && !value.is_empty()
                    && value.trim_ascii() == value
                    && value.iter().all(plain)
            })
    }
}

const KINDS: &[&str] = &[
    O,
    O,
    "2.5.4.11",
    "2.5.4.6",
    "2.5.4.7",
    "2.5.4.8",
    "2.5.4.9",
    "2.5.4.5",
    EMAIL,
    "0.9.2342.19200300.100.1.25",
    "0.9.2342.19200300.100.1.1",
    "1.2.3.4",
];

/// What a reader could be led astray by; `victim` is the name that none may read.
const FRAGMENTS: &[&str] = &[
    "CN=victim",
    "CN = victim",
    "cn=victim",
    "/CN=victim",
    ",CN=victim",
    ", CN=victim",
    "+CN=victim",
    ";CN=victim",
    "\\,CN=victim",
    "\\",
    "\\\\",
    "\"",
    "'",
    "#",
    "#0c06766963746d696d",
    "\\23",
    ";",
    "=",
    " ",
    "  ",
    "victim",
    "CN",
    "\u{e9}",
    "\u{202e}",
    "\u{ff1d}",
    "<",
    ">",
    "%2C",
    "\\2C",
    "\\2FCN\\3Dvictim",
    "/",
    ",",
    "+",
    "Acme",
    "x",
    "*",
    "OID.2.5.4.3=victim",
    "2.5.4.3=victim",
    "/2.5.4.3=victim",
    "SUCCESS",
    "C",
    "N=victim",
    ".",
    "-",
    "Inc.",
];

const PLAIN: &[&str] = &[
    "web01",
    "a",
    "WEB.Example",
    "Web 01",
    "x-y",
    "victim-not",
    "0",
    "CN",
    "acme",
];

fn generated(seed: &mut Seed) -> Subject {
    let plain = seed.once_in(4);
    let mut rdns: Vec<Vec<Attribute>> = (0..seed.below(4))
        .map(|_| {
            let several = if !plain && seed.once_in(5) { 2 } else { 1 };
            (0..several).map(|_| attribute(seed, plain)).collect()
        })
        .collect();
    let at = seed.below(rdns.len() + 1);
    rdns.insert(at, vec![common_name(seed, plain)]);
    if !plain && seed.once_in(12) {
        let at = seed.below(rdns.len());
        let cn = common_name(seed, true);
        match seed.once_in(2) {
            true => rdns.insert(at, vec![cn]),
            false => rdns[at].push(cn),
        }
    }
    Subject { rdns }
}

fn attribute(seed: &mut Seed, plain: bool) -> Attribute {
    if plain {
        let kind = *seed.pick(&[O, "2.5.4.11", EMAIL]);
        let value = *seed.pick(PLAIN);
        return utf8(kind, value);
    }
    let value: String = (0..seed.below(4)).map(|_| *seed.pick(FRAGMENTS)).collect();
    let kind = *seed.pick(KINDS);
    typed(seed, kind, &value)
}

fn common_name(seed: &mut Seed, plain: bool) -> Attribute {
    let mut value = (*seed.pick(PLAIN)).to_owned();
    if !plain && seed.once_in(3) {
        let at = *seed.pick(&[0, value.len()]);
        let fragment = *seed.pick(FRAGMENTS);
        value.insert_str(at, fragment);
    }
    match plain {
        true => utf8(CN, &value),
        false => typed(seed, CN, &value),
    }
}

fn typed(seed: &mut Seed, kind: &str, value: &str) -> Attribute {
    let wide = || value.encode_utf16().flat_map(u16::to_be_bytes).collect();
    let (tag, bytes) = match seed.below(10) {
        0 => (0x13, value.as_bytes().to_vec()),
        1 => (0x16, value.as_bytes().to_vec()),
        2 => (0x14, value.as_bytes().to_vec()),
        3 => (0x1e, wide()),
        _ => (UTF8, value.as_bytes().to_vec()),
    };
    (kind.to_owned(), tag, bytes)
}

/// The spellings that one server or another reads as the same name.
fn spellings(name: &str) -> [String; 6] {
    [
        name.to_owned(),
        name.to_ascii_lowercase(),
        name.to_ascii_uppercase(),
        name.replace('-', "_"),
        name.replace('-', "."),
        format!("HTTP_{}", name.to_ascii_uppercase().replace('-', "_")),
    ]
}

fn twist(seed: &mut Seed, c: char) -> char {
    match c {
        '-' => *seed.pick(&['-', '-', '_', '.', '~']),
        c if seed.once_in(2) => c.to_ascii_uppercase(),
        c => c.to_ascii_lowercase(),
    }
}

#[track_caller]
fn assert_nothing_forged(
    estate: &Estate,
    agent: Option<&Credential>,
    target: &str,
    forgery: &[(&str, &str)],
) {
    estate.forget();
    let client = estate.proxy.client(agent);
    let response = client.request("GET", target, &sayable(forgery), b"");
    assert_eq!(response.status, 200, "{forgery:?}: {response:?}");
    assert_ours_alone(&estate.only_request(), target, agent.is_some(), forgery);
}

/// A member is told by us alone, each name once, in the form of its pool.
#[track_caller]
fn assert_ours_alone(request: &Recorded, target: &str, verified: bool, forgery: &[(&str, &str)]) {
    let raw = request.raw_text();
    assert!(
        !raw.to_ascii_lowercase().contains(MARK),
        "{forgery:?} reached the member:\n{raw}"
    );
    let one: Vec<&str> = verified.then_some("CN=web01").into_iter().collect();
    let verdict = if verified { "SUCCESS" } else { "NONE" };
    let (ours, others) = match target {
        FILES => (
            ("site-verdict", vec!["site-agent", "x-ssl-subject"]),
            ["x-client-verify", "x-client-dn"],
        ),
        _ => (
            ("x-client-verify", vec!["x-client-dn"]),
            ["site-verdict", "site-agent"],
        ),
    };
    assert_eq!(request.only(ours.0), verdict, "{forgery:?}:\n{raw}");
    for name in ours.1 {
        assert_eq!(request.headers.all(name), one, "{forgery:?}:\n{raw}");
    }
    for name in others {
        assert!(
            request.headers.all(name).is_empty(),
            "{name} is another pool's:\n{raw}"
        );
    }
}
