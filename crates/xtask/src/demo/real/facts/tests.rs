//! Parsing and comparison of lines as Puppet Server 7.9.5 and the proxy write them.

use super::*;

const CATALOG: &str = "/puppet/v3/catalog/web01.lab.test";
const PUPPET: &str = "Puppet/7.23.0 Ruby/3.1.2-p20 (x86_64-linux-gnu)";
const FETCH: &str = r#"127.0.78.10 [17:05:12.345] "GET /puppet-ca/v1/certificate_revocation_list/ca HTTP/1.1" 200 1912 12 by="-" verify=NONE dn=-"#;

fn arrival(member: &str, status: u16, identity: &str) -> Arrival {
    let line = format!(
        r#"127.0.78.10 [17:05:12.345] "POST {CATALOG}?environment=production HTTP/1.1" {status} 4211 312 by="{PUPPET}" {identity}"#
    );
    Arrival::parse(member, &line).expect("the form of the servers' logs")
}

fn record(member: &str, status: u16, reason: &str) -> Record {
    let line = format!(
        r#"127.0.0.1 - web01.lab.test [21/Nov/2026:17:05:12 +0000] "POST {CATALOG}?environment=production HTTP/1.1" {status} 4211 "-" "{PUPPET}" id=01 port=51234 listener=agents host=puppet.lab.test:8140 certname=web01.lab.test verdict=SUCCESS reason={reason} ended_by=proxy route=compile class=catalog pool=compilers member={member} attempts=1 cause=-"#
    );
    Record::parse(&line).expect("the combined form")
}

fn expected() -> Expected<'static> {
    Expected {
        method: "POST",
        path: CATALOG,
        status: 200,
        members: &["m1", "m2"],
        client: Some("web01.lab.test"),
    }
}

#[test]
fn a_request_with_the_expected_identity_is_seen() {
    let (line, seen) =
        expected().check(&[arrival("m1", 200, "verify=SUCCESS dn=CN=web01.lab.test")]);
    assert_eq!(seen, Ok(()));
    assert!(
        line.ends_with("200  m1 saw SUCCESS CN=web01.lab.test"),
        "{line}"
    );
}

#[test]
fn a_request_with_another_identity_fails_the_expectation() {
    for (member, identity) in [
        ("m1", "verify=SUCCESS dn=CN=web02.lab.test"),
        ("m1", "verify=NONE dn=-"),
        ("m1", "verify=- dn=-"),
        ("ca", "verify=SUCCESS dn=CN=web01.lab.test"),
    ] {
        let right = arrival("m2", 200, "verify=SUCCESS dn=CN=web01.lab.test");
        let wrong = arrival(member, 200, identity);
        assert!(
            expected().check(std::slice::from_ref(&wrong)).1.is_err(),
            "{wrong:?}"
        );
        assert!(
            expected().check(&[right, wrong.clone()]).1.is_err(),
            "together with a right one: {wrong:?}"
        );
    }
    assert!(expected().check(&[]).1.is_err(), "no arrival");
    assert!(
        expected()
            .check(&[arrival("m1", 500, "verify=SUCCESS dn=CN=web01.lab.test")])
            .1
            .is_err()
    );
}

#[test]
fn differences_between_logs_and_records_are_reported() {
    let arrivals = [
        arrival("m1", 200, "verify=SUCCESS dn=CN=web01.lab.test"),
        arrival("m1", 200, "verify=- dn=-"),
        // The proxy's own CRL fetch.
        Arrival::parse("ca", FETCH).expect("the form of the servers' logs"),
    ];
    let answered = record("m1.lab.test:8140", 200, "-");
    let lost = record("m2.lab.test:8140", 502, "member-closed");
    let own = record("-", 403, "refused-certificate");
    assert_eq!(
        differences(&arrivals, &[answered.clone(), lost, own]),
        Vec::<String>::new()
    );
    for records in [
        vec![],
        vec![answered.clone(), answered],
        vec![record("m2.lab.test:8140", 200, "-")],
    ] {
        assert!(!differences(&arrivals, &records).is_empty(), "{records:?}");
    }
}

#[test]
fn an_event_line_is_not_parsed_as_a_record() {
    assert_eq!(
        Record::parse(r#"2026-11-21T17:05:12.345678Z  INFO proscenium: serving generation=1"#),
        None
    );
}
