//! Tests of subjects in each format.

use crate::subject_error::SubjectError;
use crate::test_certificate::*;
use crate::{Agent, ChainVerified, DnFormat, IdentitySettings, SubjectRule};

const EMAIL: &str = "1.2.840.113549.1.9.1";
const STREET: &str = "2.5.4.9";

fn agent(rdns: &[&[Ava<'_>]], format: DnFormat) -> Result<Agent, SubjectError> {
    let settings = IdentitySettings {
        subject: SubjectRule::SingleCn,
        dn_formats: [format].into_iter().collect(),
    };
    Agent::from_leaf(&with_subject(rdns), &settings, ChainVerified::assertion())
}

#[track_caller]
fn check(rdns: &[&[Ava<'_>]], openssl: &str, cn_last: &str) {
    for (format, expected) in [(DnFormat::OpenSsl, openssl), (DnFormat::CnLast, cn_last)] {
        let agent = agent(rdns, format).expect("an agent");
        let header = agent
            .dn_header(format)
            .and_then(|value| value.to_str().ok());
        assert_eq!(header, Some(expected), "{format}");
    }
}

#[test]
fn the_cn_comes_last_or_in_the_order_of_the_certificate() {
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
fn separators_are_escaped_outside_the_cn() {
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

/// Bouncy Castle reads `\#  a` as `#a`, and Puppet Server uses Bouncy Castle to read the subject.
#[test]
fn a_cn_that_begins_with_a_number_sign_and_a_space_is_refused_in_rfc_2253() {
    for (cn, expected) in [
        ("# a", Err(SubjectError::Ambiguous('#', DnFormat::Rfc2253))),
        (
            "#   a",
            Err(SubjectError::Ambiguous('#', DnFormat::Rfc2253)),
        ),
        ("#a", Ok(())),
        ("a # b", Ok(())),
    ] {
        let parsed = agent(&[&[(CN, UTF8, cn.as_bytes())]], DnFormat::Rfc2253).map(|_| ());
        assert_eq!(parsed, expected, "{cn}");
    }
}

/// Some version of Bouncy Castle from 1.70 to 1.85 throws an exception for each of these subjects. Puppet Server then splits
/// the string at slashes, and reads a name such as `web01,O=.example.com`.
#[test]
fn a_subject_that_makes_a_parser_throw_is_refused() {
    let refused = |beside: &[Ava<'_>]| {
        let rdns: Vec<_> = [(O, UTF8, &b".example.com"[..])]
            .into_iter()
            .chain(beside.iter().copied())
            .chain([(CN, UTF8, &b"web01"[..])])
            .map(|ava| vec![ava])
            .collect();
        let rdns: Vec<&[Ava<'_>]> = rdns.iter().map(Vec::as_slice).collect();
        agent(&rdns, DnFormat::Rfc2253).err()
    };
    for tag in [
        0x01, 0x02, 0x05, 0x06, 0x09, 0x0a, 0x0d, 0x15, 0x17, 0x18, 0x19, 0x1d, 0x1e, 0x24, 0x30,
        0x80,
    ] {
        let found = refused(&[(O, tag, b"abc")]);
        assert_eq!(found, Some(SubjectError::StringType), "{tag:02x}");
    }
    for bits in [&b""[..], b"\x01", b"\x08a"] {
        let found = refused(&[(O, 0x03, bits)]);
        assert_eq!(found, Some(SubjectError::StringType), "{bits:?}");
    }
    for bits in [&b"\0"[..], b"\0a", b"\x07a", &[0; 200]] {
        assert_eq!(refused(&[(O, 0x03, bits)]), None, "{bits:?}");
    }
    for tag in [0x04, 0x0c, 0x12, 0x13, 0x14, 0x16, 0x1a, 0x1b, 0x1c] {
        assert_eq!(refused(&[(O, tag, b"a\xff")]), None, "{tag:02x}");
    }
    let (long, fits) = ([b'a'; 65], [b'a'; 64]);
    for country in [&b""[..], b"D", b"GER", b"\\\\", b"D9"] {
        let found = refused(&[(C, PRINTABLE, country)]);
        assert_eq!(found, Some(SubjectError::Bounds), "{country:?}");
    }
    assert_eq!(refused(&[(C, PRINTABLE, b"DE")]), None);
    let named = |cn, beside: &[Ava<'_>]| {
        let rdns: [&[Ava<'_>]; 2] = [beside, &[(CN, UTF8, cn)]];
        let rdns = &rdns[usize::from(beside.is_empty())..];
        agent(rdns, DnFormat::Rfc2253).err()
    };
    let beside = &[(O, UTF8, &b"x"[..])][..];
    assert_eq!(named(&long, beside), Some(SubjectError::Bounds));
    assert_eq!(named(&fits, beside), None);
    assert_eq!(named(&[b'a'; 255], &[]), None);
    let escaped = [&b";"[..], &fits].concat();
    assert_eq!(named(&escaped, &[]), Some(SubjectError::Bounds));
    assert_eq!(named(&escaped[1..], &[]), None);
}

#[test]
fn a_type_that_only_some_readers_accept_as_an_oid_is_refused() {
    let name = |oid: &[u8]| {
        let ava = |oid: &[u8], value: &[u8]| {
            let ava = tlv(0x30, &[tlv(0x06, oid), tlv(UTF8, value)].concat());
            tlv(0x31, &ava)
        };
        tlv(
            0x30,
            &[ava(oid, b"x"), ava(&[0x55, 4, 3], b"web01")].concat(),
        )
    };
    let formatted = |oid: &[u8]| {
        let settings = IdentitySettings {
            subject: SubjectRule::SingleCn,
            ..IdentitySettings::default()
        };
        let agent = Agent::from_leaf(
            &with_name(&name(oid)),
            &settings,
            ChainVerified::assertion(),
        );
        agent.map(|agent| agent.dn().to_owned())
    };
    for oid in [
        &[][..],
        &[0x2b, 0x80, 0x01],
        &[0x2b, 0x86],
        // An arc that is too large for every reader.
        &[&[0x2b][..], &[0xff; 30], &[0x7f]].concat(),
    ] {
        assert_eq!(
            formatted(oid),
            Err(SubjectError::AttributeType),
            "{oid:02x?}"
        );
    }
    assert_eq!(
        formatted(&[0x88, 0x37, 1]).as_deref(),
        Ok("CN=web01,2.999.1=#0C0178")
    );
    // An attribute that some readers read as a second CN counts as a second CN.
    for padded in [&[0x55, 4, 0x80, 3][..], &[0x55, 4, 0x83]] {
        assert!(formatted(padded).is_err(), "{padded:02x?}");
    }
}

/// Another parser may read bytes that one parser skips.
#[test]
fn a_subject_with_unread_bytes_is_refused_under_both_rules() {
    let rdn = |value: &[u8]| {
        let kind = tlv(0x06, &[0x55, 4, 3]);
        tlv(0x31, &tlv(0x30, &[&kind, value].concat()))
    };
    let (first, victim) = (rdn(&tlv(UTF8, b"web01")), rdn(&tlv(UTF8, b"victim")));
    let read = |rdns: &[&[u8]], subject| {
        let settings = IdentitySettings {
            subject,
            ..IdentitySettings::default()
        };
        let leaf = with_name(&tlv(0x30, &rdns.concat()));
        Agent::from_leaf(&leaf, &settings, ChainVerified::assertion())
            .map(|agent| agent.dn().to_owned())
    };
    let tagged = rdn(&[&[0x1f, UTF8, 5][..], b"web01"].concat());
    for subject in [SubjectRule::Puppet, SubjectRule::SingleCn] {
        assert_eq!(read(&[&first], subject).as_deref(), Ok("CN=web01"));
        for rdns in [
            &[&first[..], &[0x31, 0], &victim][..],
            &[&first, &[5, 0]],
            &[&tagged],
        ] {
            assert!(read(rdns, subject).is_err(), "{subject:?}: {rdns:02x?}");
        }
        let with_more = read(&[&first, &[0x31, 0], &victim], subject);
        assert_eq!(with_more, Err(SubjectError::Partial));
    }
}

#[test]
fn an_extension_with_a_malformed_oid_is_refused() {
    // `pp_role`, correct and with a padded arc; `pp_cli_auth` with padding in front.
    const ROLE: &[u8] = &[0x2b, 6, 1, 4, 1, 0x82, 0x8c, 0x4c, 1, 1, 0x0d];
    let padded = [&ROLE[..10], &[0x80, 0x0d]].concat();
    let padded_first = [&[0x80], &ROLE[..9], &[3, 0x27]].concat();
    let read = |oid: &[u8]| {
        let extension = tlv(
            0x30,
            &[tlv(0x06, oid), tlv(0x04, &tlv(UTF8, b"x"))].concat(),
        );
        let leaf = with_extension(&extension);
        Agent::from_leaf(
            &leaf,
            &IdentitySettings::default(),
            ChainVerified::assertion(),
        )
        .map(|_| ())
    };
    assert_eq!(read(ROLE), Ok(()));
    for oid in [&padded[..], &padded_first, &[&ROLE[..10], &[0x8d]].concat()] {
        assert_eq!(read(oid), Err(SubjectError::ExtensionType), "{oid:02x?}");
    }
}

#[test]
fn a_cn_that_needs_an_escape_is_refused_in_both_formats() {
    for format in [DnFormat::OpenSsl, DnFormat::CnLast] {
        for (cn, odd) in [
            ("a;b", ';'),
            ("a=b", '='),
            ("#a", '#'),
            ("a<b", '<'),
            ("a>b", '>'),
        ] {
            let refused = agent(&[&[(CN, UTF8, cn.as_bytes())]], format).map(|_| ());
            assert_eq!(refused, Err(SubjectError::Ambiguous(odd, format)), "{cn}");
        }
    }
}

#[test]
fn only_the_formats_of_the_configuration_have_a_value() {
    let agent = agent(&[&[(CN, UTF8, b"a")]], DnFormat::OpenSsl).expect("an agent");
    assert!(agent.dn_header(DnFormat::CnLast).is_none());
    assert!(
        agent.dn_header(DnFormat::Rfc2253).is_some(),
        "records need it"
    );
}

#[test]
fn a_value_without_characters_is_spelled_by_its_encoding() {
    check(
        &[&[(O, T61, b"M\xfcller")], &[(CN, UTF8, b"web01")]],
        "/O=#14064DFC6C6C6572/CN=web01",
        "O=#14064DFC6C6C6572,CN=web01",
    );
}
