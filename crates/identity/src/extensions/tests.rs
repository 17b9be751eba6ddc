//! Tests of the values of extensions as rules read them, and of patterns for them.

use super::*;
use crate::settings::IdentitySettings;
use crate::test_certificate::{CN, UTF8, certificate, tlv};
use crate::{Agent, ChainVerified};

const ROLE: &str = "1.3.6.1.4.1.34380.1.1.13";
const OWN: &str = "1.3.6.1.4.1.99999.7";

fn agent(extensions: &[(&str, &[u8])]) -> Agent {
    let der = certificate(&[&[(CN, UTF8, b"web01")]], extensions);
    Agent::from_leaf(
        &der,
        &IdentitySettings::default(),
        ChainVerified::assertion(),
    )
    .expect("an agent")
}

#[test]
fn a_string_that_all_readers_decode_alike_is_a_value() {
    let long = "x".repeat(200);
    let longest = "x".repeat(1024);
    for (tag, text) in [
        (0x0c, "web"),
        (0x0c, "Zürich"),
        (0x0c, ""),
        (0x13, "web"),
        (0x16, "web@example"),
        (0x12, "17"),
        (0x1a, "web"),
        (0x0c, &longest),
    ] {
        let der = tlv(tag, text.as_bytes());
        let agent = agent(&[(ROLE, &der)]);
        assert_eq!(
            agent.extensions().value(ROLE),
            ExtensionValue::Text(text),
            "{tag:02x}"
        );
    }
    let short_form = [&[0x0c, 0x81, 200][..], long.as_bytes()].concat();
    assert_eq!(
        agent(&[(OWN, &short_form)]).extensions().value(OWN),
        ExtensionValue::Text(&long)
    );
}

#[test]
fn a_value_that_readers_decode_differently_is_not_a_string() {
    let too_long = tlv(0x0c, &[b'x'; 1025]);
    for value in [
        &b""[..],
        b"web",
        b"\x0c",
        b"\x0c\x04web",
        b"\x0c\x02web",
        b"\x0c\x81\x03web",
        b"\x0c\x82\x00\x03web",
        b"\x0c\x80web\x00\x00",
        b"\x0c\x03w\xffb",
        b"\x13\x04\xc3\xbcab",
        b"\x14\x03web",
        b"\x1e\x06\x00w\x00e\x00b",
        b"\x04\x03web",
        b"\x01\x01\xff",
        b"\x2c\x03web",
        b"\x0c\x04we\x00b",
        b"\x0c\x04we\nb",
        &too_long,
    ] {
        let agent = agent(&[(ROLE, value)]);
        assert_eq!(
            agent.extensions().value(ROLE),
            ExtensionValue::Unreadable,
            "{value:02x?}"
        );
    }
    let twice = agent(&[(ROLE, b"\x0c\x03web"), (ROLE, b"\x0c\x03web")]);
    assert_eq!(twice.extensions().value(ROLE), ExtensionValue::Unreadable);
}

#[test]
fn missing_extensions_are_absent_and_x509_extensions_are_left_out() {
    let agent = agent(&[("2.5.29.19", b"\x0c\x03web"), (OWN, b"\x0c\x03web")]);
    let found = agent.extensions();
    assert_eq!(found.value(ROLE), ExtensionValue::Absent);
    assert_eq!(found.value("2.5.29.19"), ExtensionValue::Absent);
    assert_eq!(found.value(OWN), ExtensionValue::Text("web"));
    // Puppet has no name for this OID.
    assert!(found.is_empty());
}

#[test]
fn every_name_in_puppets_table_has_its_oid() {
    // From lib/puppet/ssl/oids.rb.
    for (name, leaf) in [
        ("pp_uuid", "1.1"),
        ("pp_environment", "1.12"),
        ("pp_role", "1.13"),
        ("pp_owner", "1.26"),
        ("pp_authorization", "3.1"),
        ("pp_auth_auto_renew", "3.2"),
        ("pp_auth_role", "3.13"),
        ("pp_cli_auth", "3.39"),
    ] {
        let oid = format!("1.3.6.1.4.1.34380.1.{leaf}");
        assert_eq!(extension_oid(name).as_deref(), Some(oid.as_str()), "{name}");
    }
    assert_eq!(extension_names().count(), 30);
    for name in extension_names() {
        let oid = extension_oid(name).expect(name);
        assert_eq!(puppet_name(&oid), Some(name));
        let der = tlv(0x0c, b"x");
        assert_eq!(agent(&[(&oid, &der)]).extensions().get(name), Some("x"));
    }
    assert_eq!(extension_oid("pp_rolle"), None);
}

#[test]
fn only_oids_with_comparable_values_are_accepted() {
    for good in [OWN, ROLE, "1.2", "2.999.1", "0.9.2342"] {
        assert!(is_extension_oid(good), "{good}");
    }
    let many = vec!["1"; 65].join(".");
    for bad in [
        "",
        "1",
        "3.1",
        "1.",
        ".1",
        "1..2",
        "1.02",
        "1.-2",
        "1.+2",
        "0.40",
        "1.50.1",
        // 2 to the 128th.
        "1.3.340282366920938463463374607431768211456",
        "pp_role",
        "2.5.29.17",
        &many,
    ] {
        assert!(!is_extension_oid(bad), "{bad}");
    }
}

#[test]
fn value_patterns_match_whole_values_with_case() {
    for (pattern, value, matches) in [
        ("web", "web", true),
        ("web", "Web", false),
        ("web", "web01", false),
        ("web*", "web01", true),
        ("*", "", true),
        ("*", "anything", true),
        ("", "", true),
        ("", "x", false),
        ("*ü*", "Zürich", true),
    ] {
        let parsed = ValuePattern::parse(pattern).expect(pattern);
        assert_eq!(parsed.matches(value), matches, "{pattern} {value}");
    }
    assert_eq!(ValuePattern::parse("a\nb"), None);
    assert_eq!(ValuePattern::parse(&"a".repeat(1025)), None);
}

#[test]
fn an_agent_has_the_issuer_of_its_certificate() {
    assert_eq!(agent(&[]).issuer(), "CN=Puppet CA: test");
}
