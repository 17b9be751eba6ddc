//! Tests how a daemon reads datagrams, and what happens if a daemon is absent, full or restarted.

#![expect(
    clippy::disallowed_methods,
    reason = "a restarted daemon removes the socket of the one before"
)]

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::SystemTime;

use super::*;
use crate::line::{Form, LineWriter};
use crate::record::{AccessRecord, TlsFacts};
use crate::request_fields::{RequestFields, RequestFieldsCopy};
use crate::settings::{Facility, Format};

const HOSTILE: &str = "a\nPRIORITY=0\n\n_PID=1\r\n<0>kernel: b\u{1b}[2J\0\u{202e}";

fn daemon(protocol: LogProtocol, socket: &Path) -> Daemon {
    let settings = DaemonSettings {
        protocol,
        socket: socket.to_owned(),
    };
    let own = UnixDatagram::unbound().expect("a socket");
    Daemon::new(own, &settings, 4321).expect("takes its options")
}

fn syslog() -> LogProtocol {
    LogProtocol::Syslog(Facility::parse("local3").expect("one of them"))
}

/// Hostile text in every field that a client controls, longer than the limits.
fn hostile_record() -> AccessRecord {
    let client = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let long = HOSTILE.repeat(200);
    let said = Some(long.as_bytes());
    AccessRecord {
        certname: Some(long.as_str().into()),
        verdict: Some(format!("FAILED:{long}").into()),
        tls: Some(
            TlsFacts {
                sni: Some(long.as_str().into()),
                ..TlsFacts::default()
            }
            .into(),
        ),
        request_fields: RequestFieldsCopy::of(&RequestFields {
            method: said,
            target: said,
            host: said,
            referer: said,
            user_agent: said,
            request_id: said,
        }),
        cause: Some(long.as_str().into()),
        ..AccessRecord::new(SystemTime::UNIX_EPOCH, "agents".into(), client)
    }
}

fn framed(daemon: &Daemon, format: Format, record: &AccessRecord) -> Vec<u8> {
    let mut batch = Vec::new();
    let framing = daemon.framing();
    LineWriter::new(Form { format, framing }).push(&mut batch, record);
    let mut datagrams = crate::line::datagrams(&batch);
    let datagram = datagrams.next().expect("one").to_vec();
    assert!(datagrams.next().is_none(), "and no more");
    datagram
}

/// Reads an entry as journald does. A name that appears twice is an error, and so is an empty line, because it would end the
/// entry.
fn entry(mut bytes: &[u8]) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    while !bytes.is_empty() {
        let end = bytes
            .iter()
            .position(|byte| *byte == b'\n')
            .expect("a line end");
        let line = std::str::from_utf8(&bytes[..end]).expect("UTF-8");
        bytes = &bytes[end + 1..];
        let (name, value) = match line.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => {
                let (length, rest) = bytes.split_first_chunk().expect("a length");
                let (value, rest) = rest.split_at(u64::from_le_bytes(*length) as usize);
                let rest = rest.strip_prefix(b"\n").expect("an end");
                bytes = rest;
                (line, String::from_utf8(value.to_vec()).expect("UTF-8"))
            }
        };
        let plain = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
        assert!(
            !name.is_empty() && name.len() <= 64 && name.bytes().all(plain),
            "{name:?}"
        );
        assert!(
            name.as_bytes()[0].is_ascii_uppercase(),
            "{name:?} is not for a client to set"
        );
        assert!(
            fields.insert(name.to_owned(), value).is_none(),
            "{name} stands twice"
        );
    }
    fields
}

#[test]
fn a_record_for_syslog_is_what_syslog_3_would_send() {
    let daemon = daemon(syslog(), Path::new("/nowhere"));
    let client = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let record = AccessRecord::new(SystemTime::UNIX_EPOCH, "agents".into(), client);
    let datagram = framed(&daemon, Format::Combined, &record);
    let text = String::from_utf8(datagram).expect("ASCII");
    // local3 is 19, info is 6.
    let head = "<158>proscenium[4321]: 127.0.0.1 - - [01/Jan/1970:00:00:00 +0000] \"-\" ";
    assert!(text.starts_with(head), "{text}");
    for (severity, priority) in [
        (Severity::Error, 155),
        (Severity::Warning, 156),
        (Severity::Info, 158),
        (Severity::Debug, 159),
    ] {
        let datagram = daemon.frame_event(severity, "server", "said", &[("n", "1".into())]);
        let expected = format!("<{priority}>proscenium[4321]: server: said n=1");
        assert_eq!(
            String::from_utf8(datagram).as_deref(),
            Ok(expected.as_str())
        );
    }
}

#[test]
fn no_text_of_a_client_ends_or_exceeds_a_syslog_record() {
    let daemon = daemon(syslog(), Path::new("/nowhere"));
    let long = HOSTILE.repeat(1_000);
    let fields = [("cause", long.clone())];
    for datagram in [
        framed(&daemon, Format::Combined, &hostile_record()),
        framed(&daemon, Format::Json, &hostile_record()),
        daemon.frame_event(Severity::Error, "server", &long, &fields),
    ] {
        assert!(datagram.len() <= syslog::RECORD_BYTES_MAX && datagram.ends_with(b"..."));
        let text = String::from_utf8(datagram).expect("cut between characters");
        assert!(
            text.starts_with("<15") && !text.contains(char::is_control),
            "{text}"
        );
    }
}

#[test]
fn no_text_of_a_client_makes_a_journal_field_or_a_second_entry() {
    let daemon = daemon(LogProtocol::Journal, Path::new("/nowhere"));
    for format in [Format::Combined, Format::Json] {
        let datagram = framed(&daemon, format, &hostile_record());
        assert!(datagram.len() < DATAGRAM_BYTES_MAX, "{}", datagram.len());
        let fields = entry(&datagram);
        assert_eq!(fields["PRIORITY"], "6");
        assert_eq!(fields["SYSLOG_IDENTIFIER"], "proscenium");
        assert_eq!(fields["PROSCENIUM_LISTENER"], "agents");
        assert!(fields["PROSCENIUM_CERTNAME"].starts_with(r"a\x0aPRIORITY=0\x0a"));
        assert!(!fields.contains_key("PROSCENIUM_STATUS"), "there is none");
        assert!(
            fields
                .values()
                .all(|value| !value.contains(char::is_control))
        );
    }
}

#[test]
fn an_event_for_the_journal_has_one_line_of_text_and_forges_nothing() {
    let daemon = daemon(LogProtocol::Journal, Path::new("/nowhere"));
    let fields = [
        ("cause", HOSTILE.to_owned()),
        ("asked.by", "SIGHUP".to_owned()),
    ];
    let datagram = daemon.frame_event(Severity::Warning, "server::reload", HOSTILE, &fields);
    let fields = entry(&datagram);
    assert_eq!(fields.len(), 6, "{fields:#?}");
    assert_eq!(fields["PRIORITY"], "4");
    assert!(fields["MESSAGE"].starts_with(
        r#"a\x0aPRIORITY=0\x0a\x0a_PID=1\x0d\x0a<0>kernel: b\x1b[2J\x00\u{202e} cause="a\x0a"#
    ));
    assert_eq!(fields["PROSCENIUM_PART"], "server::reload");
    assert_eq!(fields["PROSCENIUM_ASKED_BY"], "SIGHUP");
    assert!(fields["PROSCENIUM_CAUSE"].starts_with("a\nPRIORITY=0"));
}

#[test]
fn a_huge_event_is_cut_to_what_one_datagram_holds() {
    let daemon = daemon(LogProtocol::Journal, Path::new("/nowhere"));
    let names: Vec<_> = (0..31).map(|n| format!("field{n}")).collect();
    let long = "ü\n".repeat(1 << 17);
    let fields: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), long.clone()))
        .collect();
    let datagram = daemon.frame_event(Severity::Info, "server", &long, &fields);
    assert!(datagram.len() < DATAGRAM_BYTES_MAX, "{}", datagram.len());
    let fields = entry(&datagram);
    assert!(fields["MESSAGE"].ends_with("...") && fields["PROSCENIUM_FIELD30"].ends_with("..."));
}

#[test]
fn a_restarted_daemon_is_found_by_the_next_datagram() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let place = directory.path().join("log");
    let daemon = daemon(syslog(), &place);
    assert_eq!(
        daemon.send(b"one").map_err(|e| e.kind()),
        Err(ErrorKind::NotFound)
    );
    for _ in 0..2 {
        let listening = UnixDatagram::bind(&place).expect("binds");
        daemon.send(b"two").expect("is there");
        let mut bytes = [0; 8];
        assert_eq!(listening.recv(&mut bytes).expect("has come"), 3);
        drop(listening);
        let refused = daemon.send(b"three").map_err(|error| error.kind());
        assert_eq!(refused, Err(ErrorKind::ConnectionRefused));
        std::fs::remove_file(&place).expect("removes");
    }
}

#[test]
fn a_full_daemon_costs_a_bounded_wait_and_unsent_records_are_counted() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let place = directory.path().join("log");
    let listening = UnixDatagram::bind(&place).expect("binds");
    let daemon = daemon(LogProtocol::Journal, &place);
    let mut filled = 0;
    while daemon.send(b"filler").is_ok() {
        filled += 1;
    }
    let mut batch = Vec::new();
    for datagram in [&b"one"[..], b"two", b"three"] {
        batch.extend_from_slice(&(datagram.len() as u32).to_le_bytes());
        batch.extend_from_slice(datagram);
    }
    let unsent = daemon.send_batch(&batch).expect_err("there is no room");
    assert_eq!(
        (unsent.records, unsent.error.kind()),
        (3, ErrorKind::WouldBlock)
    );
    // While a daemon reads, nothing is lost.
    let reader = std::thread::spawn(move || {
        let mut bytes = [0; 16];
        (0..filled + 3)
            .map(|_| listening.recv(&mut bytes).expect("comes"))
            .last()
    });
    daemon.send_batch(&batch).expect("room is made");
    assert_eq!(reader.join().expect("reads"), Some("three".len()));
}

/// Well below the 208 KiB that a socket sends at once by default.
const DATAGRAM_BYTES_MAX: usize = 200 << 10;
