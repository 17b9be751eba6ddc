//! Subjects in each format.

use crate::agent::SubjectError;
use crate::test_certificate::*;
use crate::{Agent, ChainVerified, DnFormat, Settings, SubjectRule};

const EMAIL: &str = "1.2.840.113549.1.9.1";
const STREET: &str = "2.5.4.9";

fn agent(rdns: &[&[Ava<'_>]], format: DnFormat) -> Result<Agent, SubjectError> {
    let settings = Settings {
        subject: SubjectRule::SingleCn,
        dn_formats: [format].into_iter().collect(),
    };
    Agent::from_leaf(&with_subject(rdns), &settings, ChainVerified::assertion())
}

#[track_caller]
fn check(rdns: &[&[Ava<'_>]], openssl: &str, cn_last: &str) {
    for (format, expected) in [(DnFormat::OpenSsl, openssl), (DnFormat::CnLast, cn_last)] {
        let agent = agent(rdns, format).expect("an agent");
        let told = agent.told(format).and_then(|value| value.to_str().ok());
        assert_eq!(told, Some(expected), "{format}");
    }
}

#[test]
fn the_cn_comes_last_or_where_the_certificate_has_it() {
    check(&[&[(CN, UTF8, b"web01")]], "/CN=web01", "CN=web01");
    check(
        &[&[(O, UTF8, b"Example")], &[(CN, UTF8, b"web01")]],
        "/O=Example/CN=web01",
        "O=Example,CN=web01",
    );
    check(
        &[&[(CN, UTF8, b"web01")], &[(O, UTF8, b"Example")]],
        "/CN=web01/O=Example",
        "O=Example,CN=web01",
    );
    check(
        &[
            &[(O, UTF8, b"a"), (STREET, UTF8, b"b")],
            &[(CN, UTF8, b"WEB 01")],
            &[(EMAIL, IA5, b"a@b.c")],
        ],
        "/O=a/street=b/CN=WEB 01/emailAddress=a@b.c",
        "O=a+STREET=b,1.2.840.113549.1.9.1=#16056140622E63,CN=WEB 01",
    );
}

#[test]
fn what_separates_is_escaped_where_no_reader_looks_for_the_name() {
    check(
        &[
            &[(O, UTF8, b"x/CN=victim, y\\z")],
            &[(O, UTF8, b" #")],
            &[(O, UTF8, b"# ")],
            &[(O, UTF8, "\u{fc}".as_bytes())],
            &[(CN, UTF8, b"web01")],
        ],
        r"/O=x\x2FCN\x3Dvictim\x2C y\x5Cz/O= \x23/O=\x23 /O=\xC3\xBC/CN=web01",
        r"O=x\2FCN\3Dvictim\2C y\5Cz,O=\20\23,O=\#\20,O=\C3\BC,CN=web01",
    );
}

/// Bouncy Castle, by which Puppet Server reads it, takes `\#  a` for `#a`.
#[test]
fn a_cn_of_a_number_sign_and_a_space_is_refused_by_rfc_2253() {
    for (cn, expected) in [
        ("# a", Err(SubjectError::Untellable('#', DnFormat::Rfc2253))),
        (
            "#   a",
            Err(SubjectError::Untellable('#', DnFormat::Rfc2253)),
        ),
        ("#a", Ok(())),
        ("a # b", Ok(())),
    ] {
        let told = agent(&[&[(CN, UTF8, cn.as_bytes())]], DnFormat::Rfc2253).map(|_| ());
        assert_eq!(told, expected, "{cn}");
    }
}

#[test]
fn a_cn_that_would_need_an_escape_is_refused_in_both() {
    for format in [DnFormat::OpenSsl, DnFormat::CnLast] {
        for (cn, odd) in [
            ("a;b", ';'),
            ("a=b", '='),
            ("#a", '#'),
            ("a<b", '<'),
            ("a>b", '>'),
        ] {
            let refused = agent(&[&[(CN, UTF8, cn.as_bytes())]], format).map(|_| ());
            assert_eq!(refused, Err(SubjectError::Untellable(odd, format)), "{cn}");
        }
    }
}

#[test]
fn a_format_that_was_not_asked_for_is_not_told() {
    let agent = agent(&[&[(CN, UTF8, b"a")]], DnFormat::OpenSsl).expect("an agent");
    assert!(agent.told(DnFormat::CnLast).is_none());
    assert!(agent.told(DnFormat::Rfc2253).is_some(), "records need it");
}

#[test]
fn a_value_that_is_no_text_is_told_by_its_encoding() {
    check(
        &[&[(O, T61, b"M\xfcller")], &[(CN, UTF8, b"web01")]],
        "/O=#14064DFC6C6C6572/CN=web01",
        "O=#14064DFC6C6C6572,CN=web01",
    );
}
