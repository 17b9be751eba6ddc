//! Tests of subjects: how they are spelled, and which are accepted or refused.

use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::certname::CertnameError;
use crate::subject_error::SubjectError;
use crate::test_certificate::*;
use crate::{Agent, ChainVerified, IdentitySettings, Subject, SubjectRule};

fn agent(rdns: &[&[Ava<'_>]], subject: SubjectRule) -> Result<Agent, SubjectError> {
    let settings = IdentitySettings {
        subject,
        ..IdentitySettings::default()
    };
    Agent::from_leaf(&with_subject(rdns), &settings, ChainVerified::assertion())
}

fn check(
    rdns: &[&[Ava<'_>]],
    puppet: Result<&str, SubjectError>,
    single_cn: Result<&str, SubjectError>,
) {
    for (rule, expected) in [
        (SubjectRule::Puppet, puppet),
        (SubjectRule::SingleCn, single_cn),
    ] {
        let dn = agent(rdns, rule).map(|agent| agent.dn().to_owned());
        assert_eq!(dn, expected.map(str::to_owned), "{rule:?} {rdns:?}");
    }
}

#[test]
fn subjects_of_the_puppet_ca_are_accepted_and_spelled_as_cn() {
    for tag in [UTF8, PRINTABLE, IA5] {
        check(
            &[&[(CN, tag, b"web01.example.com")]],
            Ok("CN=web01.example.com"),
            Ok("CN=web01.example.com"),
        );
    }
    check(&[&[(CN, BMP, b"\0w\0e\0b")]], Ok("CN=web"), Ok("CN=web"));
}

#[test]
fn subjects_that_parsers_read_differently_are_refused_under_both_rules() {
    let both =
        |rdns: &[&[Ava<'_>]], error: SubjectError| check(rdns, Err(error.clone()), Err(error));
    both(&[], SubjectError::NoCn);
    both(&[&[(O, UTF8, b"nocn")]], SubjectError::NoCn);
    both(
        &[&[(CN, UTF8, b"a")], &[(CN, UTF8, b"b")]],
        SubjectError::SeveralCns,
    );
    both(
        &[&[(CN, UTF8, b"a"), (CN, UTF8, b"b")]],
        SubjectError::SeveralCns,
    );
    both(
        &[&[(CN, UTF8, b"a"), (O, UTF8, b"x")]],
        SubjectError::MultiValued,
    );
    both(
        &[&[(O, UTF8, b"x"), (CN, UTF8, b"a")]],
        SubjectError::MultiValued,
    );
    both(&[&[(CN, T61, b"agent")]], SubjectError::StringType);
    both(&[&[(CN, UNIVERSAL, b"\0\0\0a")]], SubjectError::StringType);
    both(&[&[(CN, UTF8, b"\xff")]], SubjectError::StringType);
    both(
        &[&[(CN, PRINTABLE, b"j\xfcrgen")]],
        SubjectError::StringType,
    );
    both(&[&[(CN, BMP, b"\xd8\0\xdc\0")]], SubjectError::StringType);
    both(&[&[(CN, BMP, b"\0a\0")]], SubjectError::StringType);
    both(&[&[(CN, 0x04, b"octets")]], SubjectError::StringType);
    both(
        &[&[(CN, UTF8, "j\u{fc}rgen".as_bytes())]],
        SubjectError::Certname(CertnameError::Character('\u{fc}')),
    );
    both(
        &[&[(CN, UTF8, b"")]],
        SubjectError::Certname(CertnameError::Empty),
    );
    both(
        &[&[(CN, UTF8, &[b'a'; 256])]],
        SubjectError::Certname(CertnameError::TooLong(256)),
    );
    for bad in [
        '\0', '\r', '\n', '\t', '\u{7f}', '\u{9b}', ',', '/', '+', '"', '\'', '\\',
    ] {
        let name = format!("a{bad}CN=victim");
        both(
            &[&[(CN, UTF8, name.as_bytes())]],
            SubjectError::Certname(CertnameError::Character(bad)),
        );
    }
}

#[test]
fn other_rdns_upper_case_and_signs_are_accepted_from_external_cas_only() {
    let more = |count| Err(SubjectError::MoreThanCn(count));
    check(
        &[&[(O, UTF8, b"Org")], &[(CN, UTF8, b"a")]],
        more(2),
        Ok("CN=a,O=Org"),
    );
    check(
        &[&[(CN, UTF8, b"a")], &[(O, UTF8, b"Org")]],
        more(2),
        Ok("O=Org,CN=a"),
    );
    let alphabet = |bad| Err(SubjectError::Certname(CertnameError::Alphabet(bad)));
    check(&[&[(CN, UTF8, b"Web01")]], alphabet('W'), Ok("CN=Web01"));
    check(
        &[&[(CN, UTF8, b"a;b=<c>")]],
        alphabet(';'),
        Ok("CN=a\\;b\\=\\<c\\>"),
    );
    check(
        &[&[(CN, UTF8, b"#0c0561646d696e")]],
        alphabet('#'),
        Ok("CN=\\#0c0561646d696e"),
    );
    check(&[&[(CN, UTF8, b"a#b")]], alphabet('#'), Ok("CN=a#b"));
}

#[test]
fn values_beside_the_cn_cannot_end_the_name_or_begin_another() {
    let beside = |ava: Ava<'_>| {
        agent(&[&[ava], &[(CN, UTF8, b"a")]], SubjectRule::SingleCn).map(|a| a.dn().to_owned())
    };
    let cases: [(Ava<'_>, &str); 9] = [
        ((O, UTF8, b"x,CN=victim"), "CN=a,O=x\\,CN\\=victim"),
        ((O, UTF8, b"x+CN=victim"), "CN=a,O=x\\+CN\\=victim"),
        ((O, UTF8, b" \"x\\y\" "), "CN=a,O=\\20\\\"x\\\\y\\\"\\20"),
        ((O, UTF8, b" "), "CN=a,O=\\20"),
        ((O, UTF8, b""), "CN=a,O="),
        ((O, T61, b"M\xfcller"), "CN=a,O=#14064DFC6C6C6572"),
        (
            ("1.2.840.113549.1.9.1", IA5, b"a@b"),
            "CN=a,1.2.840.113549.1.9.1=#1603614062",
        ),
        (("0.9.2342.19200300.100.1.25", IA5, b"lab"), "CN=a,DC=lab"),
        (("2.5.4.5", PRINTABLE, b"7"), "CN=a,2.5.4.5=#130137"),
    ];
    for (ava, expected) in cases {
        assert_eq!(beside(ava).as_deref(), Ok(expected));
    }
    for control in [&b"x\0"[..], b"x\r\nX-Client-DN: CN=victim", b"\x1b[2J"] {
        assert_eq!(beside((O, UTF8, control)), Err(SubjectError::Control));
    }
}

#[test]
fn multi_valued_rdns_beside_the_cn_keep_their_plus() {
    let found = agent(
        &[
            &[(CN, UTF8, b"a")],
            &[(O, UTF8, b"x"), ("2.5.4.11", UTF8, b"y")],
        ],
        SubjectRule::SingleCn,
    );
    assert_eq!(
        found.map(|agent| agent.dn().to_owned()).as_deref(),
        Ok("O=x+OU=y,CN=a")
    );
}

#[test]
fn an_agent_has_its_certname_and_serial() {
    let agent = agent(&[&[(CN, UTF8, b"web01")]], SubjectRule::Puppet).expect("an agent");
    assert_eq!(
        (agent.certname().as_str(), agent.serial()),
        ("web01", "9A05")
    );
}

#[test]
fn a_path_matches_an_agent_by_its_certname_in_lower_case() {
    for (certname, name, expected) in [
        ("web01", "web01", true),
        ("web01", "WEB01", false),
        ("web01", "Web01", false),
        ("web01", "web0", false),
        ("web01", "web011", false),
        ("web01", "", false),
        ("Web01", "web01", true),
        ("Web01", "Web01", false),
    ] {
        let agent = agent(&[&[(CN, UTF8, certname.as_bytes())]], SubjectRule::SingleCn);
        let agent = agent.expect("an agent");
        assert_eq!(
            agent.certname().is_path_name(name),
            expected,
            "{certname} {name}"
        );
    }
}

#[test]
fn any_bytes_are_described_in_printable_ascii() {
    let odd = with_subject(&[
        &[(CN, UTF8, "a\r\n\u{fc}".as_bytes())],
        &[(O, T61, b"\xff")],
    ]);
    assert_eq!(
        Subject::describe(&odd),
        "\"O=#1401FF,CN=a\\0D\\0A\\C3\\BC\" (serial 0x9A05, issued by \"CN=Puppet CA: test\")"
    );
    assert_eq!(
        Subject::describe(b"\x30\x80nonsense"),
        "(unreadable certificate)"
    );
    for cut in 0..odd.len() {
        assert!(
            Subject::describe(&odd[..cut])
                .bytes()
                .all(|byte| (0x20..0x7f).contains(&byte))
        );
    }
}

#[test]
fn extensions_are_read_by_puppets_names() {
    let extensions: &[(&str, &[u8])] = &[
        ("2.5.29.19", &[0x30, 0x00]),
        ("1.3.6.1.4.1.34380.1.1.13", b"\x0c\x03web"),
        ("1.3.6.1.4.1.34380.1.1.26", b"raw"),
        ("1.3.6.1.4.1.34380.1.1.99", b"\x0c\x01x"),
        ("1.3.6.1.4.1.34380.1.2.7", b"\x0c\x01p"),
        ("1.3.6.1.4.1.34380.1.3.39", b"\x0c\x04true"),
        ("1.3.6.1.4.1.34380.1.3.77", b"\x0c\x01y"),
        ("1.3.6.1.4.1.34380.10.1", b"other"),
    ];
    let der = certificate(&[&[(CN, UTF8, b"a")]], extensions);
    let agent = Agent::from_leaf(
        &der,
        &IdentitySettings::default(),
        ChainVerified::assertion(),
    )
    .expect("an agent");
    let found: Vec<_> = agent.extensions().iter().collect();
    let expected = [
        ("pp_role", "web"),
        ("pp_owner", "raw"),
        ("1.3.6.1.4.1.34380.1.1.99", "x"),
        ("1.3.6.1.4.1.34380.1.2.7", "p"),
        ("pp_cli_auth", "true"),
        ("1.3.6.1.4.1.34380.1.3.77", "y"),
    ];
    assert_eq!(found, expected);
    assert!(agent.has_authorization_extension());
    assert_eq!(
        crate::authorization_extensions(&der),
        ["pp_cli_auth", "1.3.6.1.4.1.34380.1.3.77"]
    );
    assert_eq!(agent.extensions().get("pp_role"), Some("web"));
}

#[test]
fn an_ordinary_agent_has_no_authorization_extension() {
    let der = certificate(
        &[&[(CN, UTF8, b"a")]],
        &[("1.3.6.1.4.1.34380.1.1.13", b"\x0c\x03web")],
    );
    let agent = Agent::from_leaf(
        &der,
        &IdentitySettings::default(),
        ChainVerified::assertion(),
    )
    .expect("an agent");
    assert!(!agent.has_authorization_extension());
    assert!(crate::authorization_extensions(&der).is_empty());
    assert!(crate::authorization_extensions(b"none").is_empty());
}

#[test]
fn a_separate_name_is_spelled_as_in_its_certificate() {
    let certificate = with_subject(&[&[(O, UTF8, b"Example")], &[(CN, UTF8, b"web01")]]);
    let (_, read) = X509Certificate::from_der(&certificate).expect("a certificate");
    let name = read.subject().as_raw();
    assert_eq!(Subject::name_text(name), "CN=web01,O=Example");
    assert_eq!(Subject::only_cn(name).as_deref(), Some("web01"));
    assert_eq!(Subject::name_text(&[0x30, 0]), "(empty)");
    assert_eq!(Subject::name_text(b"none"), "(unreadable name)");
    assert_eq!(Subject::only_cn(&[0x30, 0]), None);
    assert_eq!(Subject::only_cn(b"none"), None);
}

#[test]
fn a_constructed_string_is_not_decoded() {
    // BER allows a string to be a list of strings, which readers decode differently.
    let parts = tlv(UTF8, b"web01");
    let cn = (CN, 0x20 | UTF8, &*parts);
    check(
        &[&[cn]],
        Err(SubjectError::StringType),
        Err(SubjectError::StringType),
    );
}

#[test]
fn names_are_equal_across_string_types_and_trailing_bytes_are_refused() {
    let of = |rdns: &[&[Ava<'_>]]| {
        let certificate = with_subject(rdns);
        let (_, read) = X509Certificate::from_der(&certificate).expect("a certificate");
        read.subject().as_raw().to_vec()
    };
    let utf8 = of(&[&[(O, UTF8, b"x")], &[(CN, UTF8, b"Puppet CA")]]);
    let printable = of(&[&[(O, IA5, b"x")], &[(CN, PRINTABLE, b"Puppet CA")]]);
    assert!(Subject::is_same(&utf8, &printable));
    assert_eq!(Subject::in_utf8(&printable).as_ref(), Some(&utf8));
    assert_eq!(Subject::in_utf8(&utf8).as_ref(), Some(&utf8));
    // 128 bytes and 256 bytes need longer forms of the length field.
    for count in [42, 43, 90, 200] {
        let (text, wide) = ("\u{20ac}".repeat(count), [0x20, 0xac].repeat(count));
        let (one, other) = (
            of(&[&[(CN, UTF8, text.as_bytes())]]),
            of(&[&[(CN, BMP, &wide)]]),
        );
        assert!(Subject::is_same(&one, &other), "{count}");
    }
    for (rdns, why) in [
        (&[&[(O, UTF8, &b"x"[..])][..]][..], "a part of it"),
        (&[&[(O, UTF8, b"x"), (CN, UTF8, b"Puppet CA")]], "one RDN"),
        (&[&[(CN, UTF8, b"Puppet CA")], &[(O, UTF8, b"x")]], "order"),
        (&[&[(O, UTF8, b"x")], &[(O, UTF8, b"Puppet CA")]], "types"),
        (&[&[(O, UTF8, b"x")], &[(CN, UTF8, b"Puppet CA\0")]], "NUL"),
        (&[&[(O, UTF8, b"x")], &[(CN, T61, b"Puppet CA")]], "T61"),
        (
            &[&[(O, UTF8, b"x")], &[(CN, 0x2c, b"Puppet CA")]],
            "constructed",
        ),
    ] {
        assert!(!Subject::is_same(&utf8, &of(rdns)), "{why}");
    }
    // Bytes that no reader understands, at the end of the name, of its last RDN or of its last attribute.
    let with_tail = |depth: usize| {
        let attribute = [b"\x06\x03\x55\x04\x03".to_vec(), tlv(UTF8, b"a")].concat();
        let mut der = attribute;
        for (level, tag) in [0x30, 0x31, 0x30].into_iter().enumerate() {
            if level == depth {
                der.extend(b"\x0c\x01b");
            }
            der = tlv(tag, &der);
        }
        der
    };
    let plain = with_tail(3);
    assert!(Subject::is_same(&plain, &of(&[&[(CN, PRINTABLE, b"a")]])));
    for depth in 0..3 {
        let tailed = with_tail(depth);
        assert!(!Subject::is_same(&plain, &tailed), "{depth}");
        assert!(Subject::is_same(&tailed, &tailed), "{depth}");
        assert_eq!(Subject::in_utf8(&tailed), None, "{depth}");
    }
    assert!(!Subject::is_same(b"\x30\x01a", b"\x30\x01b"));
    assert!(!Subject::is_same(b"", b"\x30\0"));
}

#[test]
fn serials_lose_only_the_sign_byte() {
    for (raw, shown) in [
        (&[0x00, 0x9a][..], "9A"),
        (&[0x00], "00"),
        (&[0x05, 0x00], "0500"),
        (&[0x00, 0x00, 0x01], "0001"),
        (&[], ""),
    ] {
        assert_eq!(crate::subject::serial(raw), shown);
    }
}

#[test]
fn values_of_extensions_are_read_with_every_form_of_length() {
    for length in [0_usize, 1, 0x7f, 0x80, 0xff, 0x100, 0x1234] {
        let text = "r".repeat(length);
        for tag in [0x0c, 0x13, 0x14, 0x16] {
            let digits = length.to_be_bytes();
            let encoded = match length {
                0..0x80 => vec![tag, length as u8],
                0x80..0x100 => vec![tag, 0x81, length as u8],
                _ => vec![tag, 0x82, digits[6], digits[7]],
            };
            let mut value = [encoded, text.clone().into_bytes()].concat();
            assert_eq!(role(&value), text, "{length} of tag {tag:#x}");
            // With a wrong length the value is malformed DER. Such values occur, because the values of old agents are not DER.
            value.push(b'x');
            assert_ne!(role(&value), text);
        }
    }
    assert_eq!(role(b"\x04\x01x"), "\x04\x01x");
    assert_eq!(
        role(b"\x0c\x02\xff\n"),
        r"\xEF\xBF\xBD\x0A",
        "a value without characters cannot end a line"
    );
}

/// Returns the value of `pp_role` that is read from these bytes.
fn role(value: &[u8]) -> String {
    let der = certificate(
        &[&[(CN, UTF8, b"a")]],
        &[("1.3.6.1.4.1.34380.1.1.13", value)],
    );
    let agent = Agent::from_leaf(
        &der,
        &IdentitySettings::default(),
        ChainVerified::assertion(),
    )
    .expect("an agent");
    assert!(!agent.extensions().is_empty());
    agent
        .extensions()
        .get("pp_role")
        .expect("it is there")
        .to_owned()
}
