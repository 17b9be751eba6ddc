//! Compares lines with their expected text.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::*;
use crate::record::{EndedBy, Times, TlsFacts};
use crate::request_fields::{RequestFields, RequestFieldsCopy};

fn writer(format: Format, framing: Framing) -> LineWriter {
    LineWriter::new(Form { format, framing })
}

fn line(format: Format, record: &AccessRecord) -> String {
    let mut line = Vec::new();
    writer(format, Framing::Line).push(&mut line, record);
    String::from_utf8(line).expect("ASCII")
}

/// 2026-11-21 13:22:05.000123 UTC.
fn when() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::new(1_795_267_325, 123_000)
}

fn client() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)), 51_234)
}

fn catalog() -> AccessRecord {
    AccessRecord {
        certname: Some("web01.example.com".into()),
        verdict: Some("SUCCESS".into()),
        tls: Some(
            TlsFacts {
                version: "TLSv1.3",
                cipher: "TLS13_AES_128_GCM_SHA256",
                resumed: true,
                sni: Some("puppet".into()),
            }
            .into(),
        ),
        request_fields: RequestFieldsCopy::of(&RequestFields {
            method: Some(b"POST"),
            target: Some(b"/puppet/v3/catalog/web01.example.com?environment=production"),
            host: Some(b"puppet:8140"),
            referer: None,
            user_agent: Some(b"Puppet/8.10.0 Ruby/3.2.5-p208 (x86_64-linux)"),
            request_id: Some(b"0190f2"),
        }),
        http_version: Some("HTTP/1.1"),
        status: Some(200),
        bytes_in: 12_345,
        bytes_out: 678_901,
        route: Some("compile".into()),
        class: Some("catalog"),
        work: Some(Work::Catalog),
        pool: Some("compilers".into()),
        member: Some("c1.example.com:8140".into()),
        attempts: 1,
        times: Times {
            handshake: Some(Duration::from_micros(432)),
            queue: Some(Duration::from_micros(250)),
            connect: Some(Duration::from_micros(1_500)),
            first_byte: Some(Duration::from_millis(900)),
            total: Some(Duration::from_millis(950)),
        },
        ended_by: EndedBy::Proxy,
        ..AccessRecord::new(when(), "agents".into(), client())
    }
}

fn refused_handshake() -> AccessRecord {
    AccessRecord {
        certname: Some("web02.example.com".into()),
        verdict: Some("FAILED:revoked".into()),
        reason: Some("revoked"),
        cause: Some("handshake: certificate revoked".into()),
        ..AccessRecord::new(
            when(),
            "agents".into(),
            SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 9),
        )
    }
}

#[test]
fn a_catalog_as_a_combined_line() {
    assert_eq!(
        line(Format::Combined, &catalog()),
        concat!(
            r#"192.0.2.7 - web01.example.com [21/Nov/2026:13:22:05 +0000] "#,
            r#""POST /puppet/v3/catalog/web01.example.com?environment=production HTTP/1.1" 200 678901 "-" "#,
            r#""Puppet/8.10.0 Ruby/3.2.5-p208 (x86_64-linux)" id=0190f2 port=51234 peer=- listener=agents host=puppet:8140 "#,
            "certname=web01.example.com verdict=SUCCESS reason=- ended_by=proxy route=compile class=catalog work=catalog ",
            "pool=compilers member=c1.example.com:8140 attempts=1 bytes_in=12345 handshake_us=432 ",
            "queue_us=250 connect_us=1500 first_byte_us=900000 total_us=950000 tls=TLSv1.3 cipher=TLS13_AES_128_GCM_SHA256 ",
            "resumed=yes sni=puppet observed=- cause=-\n",
        )
    );
}

#[test]
fn a_refused_handshake_as_a_combined_line() {
    assert_eq!(
        line(Format::Combined, &refused_handshake()),
        concat!(
            r#"::1 - - [21/Nov/2026:13:22:05 +0000] "-" - - "-" "-" id=- port=9 peer=- listener=agents host=- "#,
            "certname=web02.example.com verdict=FAILED:revoked reason=revoked ended_by=proxy route=- class=- work=- pool=- ",
            "member=- attempts=0 bytes_in=- handshake_us=- queue_us=- connect_us=- first_byte_us=- total_us=- tls=- ",
            r#"cipher=- resumed=- sni=- observed=- cause="handshake: certificate revoked""#,
            "\n",
        )
    );
}

#[test]
fn a_catalog_as_a_json_line() {
    assert_eq!(
        line(Format::Json, &catalog()),
        concat!(
            r#"{"time":"2026-11-21T13:22:05.000123Z","client":"192.0.2.7","user":"web01.example.com","method":"POST","#,
            r#""target":"/puppet/v3/catalog/web01.example.com?environment=production","http_version":"HTTP/1.1","#,
            r#""status":200,"bytes_out":678901,"referer":null,"#,
            r#""user_agent":"Puppet/8.10.0 Ruby/3.2.5-p208 (x86_64-linux)","id":"0190f2","port":51234,"peer":null,"#,
            r#""listener":"agents","host":"puppet:8140","certname":"web01.example.com","verdict":"SUCCESS","#,
            r#""reason":null,"ended_by":"proxy","route":"compile","class":"catalog","work":"catalog","pool":"compilers","#,
            r#""member":"c1.example.com:8140","attempts":1,"bytes_in":12345,"handshake_us":432,"#,
            r#""queue_us":250,"connect_us":1500,"first_byte_us":900000,"total_us":950000,"tls":"TLSv1.3","#,
            r#""cipher":"TLS13_AES_128_GCM_SHA256","resumed":true,"sni":"puppet","observed":null,"cause":null}"#,
            "\n",
        )
    );
}

#[test]
fn a_claimed_certname_is_never_the_user() {
    for verdict in [Some("FAILED:expired"), Some("NONE"), None] {
        let record = AccessRecord {
            verdict: verdict.map(Into::into),
            ..catalog()
        };
        assert!(
            line(Format::Combined, &record).starts_with("192.0.2.7 - - ["),
            "{verdict:?}"
        );
        assert!(
            line(Format::Json, &record).contains(r#""user":null"#),
            "{verdict:?}"
        );
    }
}

/// THREATS T20: each text that a peer controls is set to a value that would forge a line or a field.
#[test]
fn no_client_can_forge_a_line_or_a_field() {
    let evil = "x\" 200 5\r\n\u{1b}[2J{\"verdict\":\"SUCCESS\"} verdict=SUCCESS \\\u{0}\u{202e}";
    let bytes = Some(evil.as_bytes());
    let record = AccessRecord {
        certname: Some(evil.into()),
        verdict: Some("FAILED:unknown-ca".into()),
        request_fields: RequestFieldsCopy::of(&RequestFields {
            method: bytes,
            target: bytes,
            host: bytes,
            referer: bytes,
            user_agent: bytes,
            request_id: bytes,
        }),
        tls: Some(
            TlsFacts {
                sni: Some(evil.into()),
                ..TlsFacts::default()
            }
            .into(),
        ),
        cause: Some(evil.into()),
        ..catalog()
    };
    let combined = line(Format::Combined, &record);
    assert_eq!(combined.matches('\n').count(), 1);
    assert_eq!(
        combined.matches('"').count(),
        8,
        "request, referer, user agent and cause: {combined}"
    );
    assert_eq!(
        combined.matches(" verdict=").count(),
        4,
        "its own, and three within quotes: {combined}"
    );
    let outside: String = combined.split('"').step_by(2).collect();
    assert_eq!(outside.matches(" verdict=").count(), 1, "{combined}");
    let request = combined.split('"').nth(1).expect("quoted");
    assert_eq!(request.split(' ').count(), 3, "{request}");

    let json = line(Format::Json, &record);
    assert_eq!(json.matches('\n').count(), 1);
    let parsed: serde_json::Value = serde_json::from_str(&json).expect("one object");
    assert_eq!(parsed["verdict"], "FAILED:unknown-ca");
    assert_eq!(parsed.as_object().expect("object").len(), 37);
    for line in [combined, json] {
        assert!(
            line.trim_end()
                .bytes()
                .all(|byte| (b' '..=b'~').contains(&byte)),
            "{line}"
        );
    }
}

#[test]
fn text_that_is_too_long_is_truncated_and_marked() {
    let long = "a".repeat(10_000);
    let record = AccessRecord {
        certname: Some(long.as_str().into()),
        request_fields: RequestFieldsCopy::of(&RequestFields {
            target: Some(long.as_bytes()),
            user_agent: Some(long.as_bytes()),
            ..RequestFields::default()
        }),
        ..catalog()
    };
    let line = line(Format::Combined, &record);
    assert!(line.len() < 5_000);
    assert!(line.contains(&format!("- {}... HTTP/1.1", "a".repeat(2_048))));
}

#[test]
fn each_record_has_its_own_second() {
    let mut writer = writer(Format::Json, Framing::Line);
    let mut line = Vec::new();
    for second in [0, 0, 1, 0] {
        let record = AccessRecord::new(
            when() + Duration::from_secs(second),
            "agents".into(),
            client(),
        );
        writer.push(&mut line, &record);
    }
    let text = String::from_utf8(line).expect("ASCII");
    let seconds: Vec<&str> = text.lines().map(|line| &line[26..28]).collect();
    assert_eq!(seconds, ["05", "05", "06", "05"]);
}

#[test]
fn cached_text_of_a_combination_does_not_change_lines() {
    let base = catalog();
    let named = |name: &str| Some(Arc::<str>::from(name));
    // There are more combinations than the cache holds. Some differ in one name only, and some names are equal without being
    // the same object.
    let mut records = vec![base.clone()];
    for n in 0..200 {
        let mut record = base.clone();
        match n % 6 {
            0 => record.route = named("other"),
            1 => record.class = Some("report"),
            2 => record.work = Some(Work::File),
            3 => record.pool = named("other"),
            4 => record.member = named(&format!("c{n}.example.com:8140")),
            _ => record.member = None,
        }
        records.push(record);
    }
    let mut writer = writer(Format::Combined, Framing::Line);
    let mut written = Vec::new();
    let mut expected = String::new();
    for record in records.iter().chain(&records).chain(records.iter().rev()) {
        writer.push(&mut written, record);
        expected += &line(Format::Combined, record);
    }
    assert_eq!(String::from_utf8(written).expect("ASCII"), expected);
}

#[test]
fn cached_text_of_a_connection_does_not_change_lines() {
    let known = Arc::new(KnownClient::default());
    let passed_on = |status, cause: Option<&str>| AccessRecord {
        status: Some(status),
        cause: cause.map(Into::into),
        ..catalog()
    };
    for record in [passed_on(200, None), passed_on(502, Some("a \"b\""))] {
        for format in [Format::Combined, Format::Json] {
            let shared = AccessRecord {
                known_client: Some(Arc::clone(&known)),
                ..record.clone()
            };
            assert_eq!(line(format.clone(), &shared), line(format, &record));
        }
    }
    let refused = AccessRecord {
        known_client: Some(Arc::default()),
        ..refused_handshake()
    };
    assert_eq!(
        line(Format::Combined, &refused),
        line(Format::Combined, &refused_handshake())
    );
}
