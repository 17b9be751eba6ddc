//! One record for each exchange and each refused handshake: complete, on one line, whatever a client sends.

use std::{
    fs::{self, OpenOptions},
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    process::Command,
    time::Duration,
};

use rcgen::DnType;
use rustix::process::Signal;
use serde_json::Value;
use testkit::{Ca, Proxy, Reply, wait_until};

use crate::support::{
    Estate, LIMIT,
    paths::{CA_CERTIFICATE, CATALOG},
    version,
};

#[test]
fn a_record_describes_an_exchange_from_handshake_to_last_byte() {
    let estate = Estate::builder().compilers(1).start();
    let agent = estate.ca.agent("web01");
    let mut connection = estate.client(&agent).connect().expect("connects");
    let headers = [("User-Agent", "Puppet/8"), ("Referer", "elsewhere")];
    let body = br#"{"facts": 1}"#;
    let answer = connection.request("POST", CATALOG, &headers, body);
    let request = estate.only_request();
    let record = estate.wait_for_records(1).remove(0);
    for (field, expected) in [
        ("client", "127.0.0.1".into()),
        ("user", "web01".into()),
        ("certname", "web01".into()),
        ("verdict", "SUCCESS".into()),
        ("method", "POST".into()),
        ("target", CATALOG.into()),
        ("http_version", version().into()),
        ("status", 200.into()),
        ("bytes_in", body.len().into()),
        ("bytes_out", answer.body.length.into()),
        ("referer", "elsewhere".into()),
        ("user_agent", "Puppet/8".into()),
        ("id", request.only("x-request-id").into()),
        ("listener", "agents".into()),
        ("host", estate.client(&agent).host().into()),
        ("ended_by", "proxy".into()),
        ("class", "own-documents".into()),
        ("pool", "compilers".into()),
        ("member", estate.compilers[0].address().into()),
        ("attempts", 1.into()),
        ("tls", "TLSv1.3".into()),
        ("resumed", false.into()),
        ("sni", "puppet".into()),
        ("reason", Value::Null),
        ("observed", Value::Null),
        ("cause", Value::Null),
    ] {
        assert_eq!(record[field], expected, "{field} in {record:#}");
    }
    for field in ["route", "cipher", "time"] {
        assert!(
            record[field].as_str().is_some_and(|text| !text.is_empty()),
            "{field}"
        );
    }
    for field in [
        "handshake_us",
        "connect_us",
        "first_byte_us",
        "total_us",
        "port",
    ] {
        assert!(
            record[field].as_u64().is_some_and(|n| n > 0),
            "{field} in {record:#}"
        );
    }
    assert!(record["first_byte_us"].as_u64() <= record["total_us"].as_u64());
    // The second request uses the same connections, so it has no handshake and no connect.
    assert_eq!(connection.get(CATALOG).status, 200);
    let second = estate.wait_for_records(2).remove(1);
    assert!(second["handshake_us"].is_null());
    assert!(second["connect_us"].is_null());
    // Another client resumes its session, with the older TLS version.
    let client = estate.client(&agent).tls12();
    for _ in 0..2 {
        assert_eq!(client.get(CATALOG).status, 200);
    }
    estate.wait_for_record(|record| record["tls"] == "TLSv1.2" && record["resumed"] == true);
}

#[test]
fn a_refused_request_is_recorded_with_its_reason() {
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    let expired = estate.ca.leaf("old01").expired().issue();
    let client = estate.client(&agent);
    for (client, method, target, status, reason) in [
        (&client, "GET", "/nowhere", 404, "no-route"),
        (&client, "GET", "/puppet/v3/../x", 400, "bad-path"),
        (&client, "DELETE", CATALOG, 405, "method"),
        (&estate.anonymous(), "GET", CATALOG, 403, "no-certificate"),
        (
            &estate.client(&expired),
            "GET",
            CATALOG,
            403,
            "refused-certificate",
        ),
    ] {
        assert_eq!(
            client.request(method, target, &[], b"").status,
            status,
            "{target}"
        );
        let record = estate.wait_for_record(|record| record["reason"] == reason);
        assert_eq!(record["status"], status, "{record:#}");
        assert_eq!(record["attempts"], 0);
        assert!(record["member"].is_null());
        let refusals = estate
            .proxy
            .metrics()
            .sum("proscenium_refusals_total", &[("reason", reason)]);
        assert_eq!(refusals, 1.0, "{reason}");
    }
    let record = estate.wait_for_record(|record| record["verdict"] == "FAILED:expired");
    assert_eq!(record["user"], Value::Null, "nothing proves the name");
    assert_eq!(record["certname"], "old01", "who it says that it is");
}

#[test]
fn a_refused_handshake_is_recorded_with_its_reason_and_no_status() {
    let estate = |settings: &'static str| {
        Estate::builder()
            .listener(&format!(
                "client_cert = \"required\"\non_invalid = \"abort\"\n{settings}"
            ))
            .start()
    };
    let refusing = estate("");
    let stranger = Ca::other().agent("web01");
    // Different workers write records in any order, so the test waits for each record before the next client connects.
    for (earlier, client) in [refusing.anonymous(), refusing.client(&stranger)]
        .into_iter()
        .enumerate()
    {
        client
            .try_request("GET", CATALOG, &[], b"")
            .expect_err("is refused");
        refusing.proxy.wait_for_records(earlier + 1);
    }
    let mut plain = TcpStream::connect(refusing.proxy.address()).expect("connects");
    plain
        .write_all(b"\0 / HTTP/1.1\r\nHost: puppet\r\n\r\n")
        .expect("is taken");
    let _ = plain.read_to_end(&mut Vec::new());
    // Only this client gets the short timeout: on a busy machine, the refusals above could take longer.
    let impatient = estate("handshake_timeout = \"500ms\"");
    let mut silent = TcpStream::connect(impatient.proxy.address()).expect("connects");
    let _ = silent.read_to_end(&mut Vec::new());

    let mut records = refusing.proxy.wait_for_records(3);
    records.extend(impatient.proxy.wait_for_records(1));
    let reasons: Vec<_> = records
        .iter()
        .filter_map(|record| record["reason"].as_str())
        .collect();
    assert_eq!(
        reasons,
        [
            "no-certificate",
            "unknown-issuer",
            "not-tls",
            "handshake-timeout"
        ]
    );
    for record in &records {
        assert!(record["status"].is_null());
        assert!(record["method"].is_null());
        assert_eq!(record["client"], "127.0.0.1");
        assert!(
            record["cause"].is_string() && record["handshake_us"].is_u64(),
            "{record:#}"
        );
    }
}

#[test]
fn combined_is_apaches_format_with_the_certname_as_user() {
    let estate = Estate::builder()
        .compilers(1)
        .access_log_alone("path = \"{dir}/combined.log\"")
        .start();
    let agent = estate.ca.agent("web01");
    let headers = [("User-Agent", "Puppet/8 (Linux)"), ("Referer", "a \"b\"")];
    let answer = estate.client(&agent).request("GET", CATALOG, &headers, b"");
    let line = lines(&estate.proxy, "combined.log", 1).remove(0);
    assert!(line.starts_with("127.0.0.1 - web01 ["), "{line}");
    let version = version();
    let expected = format!(
        "] \"GET {CATALOG} {version}\" 200 {} \"a \\x22b\\x22\" \"Puppet/8 (Linux)\" id=",
        answer.body.length
    );
    assert!(line.contains(&expected), "{expected} is not in {line}");
    for field in [
        "listener=agents",
        "certname=web01",
        "verdict=SUCCESS",
        "reason=-",
        "pool=compilers",
        "attempts=1",
        "tls=TLSv1.3",
        "resumed=no",
        "sni=puppet",
    ] {
        assert!(
            line.split(' ').any(|found| found == field),
            "{field} is not in {line}"
        );
    }
    // The harness counts JSON records, and this log has none.
    estate.proxy.terminate();
    assert_eq!(estate.proxy.wait_for_end(LIMIT).code, Some(0));
}

#[test]
fn records_go_to_standard_output_by_default() {
    let estate = Estate::builder().compilers(1).access_log_alone("").start();
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    let line = wait_until(LIMIT, || {
        estate.proxy.stdout().lines().next().map(str::to_owned)
    });
    let line = line.expect("a record");
    assert!(
        line.starts_with("127.0.0.1 - web01 [") && line.contains(CATALOG),
        "{line}"
    );
    estate.proxy.terminate();
    assert_eq!(estate.proxy.wait_for_end(LIMIT).code, Some(0));
}

#[test]
fn nothing_a_client_sends_forges_a_line_or_a_field() {
    let estate = Estate::start();
    let forger = estate
        .ca
        .leaf("x")
        .subject(&[(
            DnType::CommonName,
            "web01\n127.0.0.1 - root\",\"status\":999",
        )])
        .issue();
    let client = estate.agent("web01");
    let forged = "x\" 200 1 \"-\" \"-\"  verdict=FORGED\",\"verdict\":\"FORGED";
    assert_eq!(
        client
            .request("GET", CATALOG, &[("User-Agent", forged)], b"")
            .status,
        200
    );
    // Threads write in any order, so each request waits for the record of the one before.
    estate.wait_for_records(1);
    let target = "/puppet/v3/catalog/web01?x=\",\"verdict\":\"FORGED";
    // Over HTTP/2 such a head is malformed: the stream is reset, and the record has 400.
    let answered = client
        .try_request("GET", target, &[("Referer", forged)], b"")
        .map_or(400, |answer| answer.status);
    estate.wait_for_records(2);
    let refused = estate.client(&forger).get(CATALOG).status;
    assert_eq!(refused, 403);
    let records = estate.wait_for_records(3);
    assert_eq!(records.len(), 3, "as many lines as exchanges: {records:#?}");
    assert_eq!(records[0]["verdict"], "SUCCESS");
    assert_eq!(records[0]["status"], 200);
    assert_eq!(records[1]["status"], answered);
    assert_ne!(records[2]["verdict"], "SUCCESS");
    assert_eq!(records[2]["status"], 403);
    let raw = fs::read_to_string(estate.proxy.directory().join("access.json")).expect("a log");
    assert!(
        !raw.contains('\u{1b}') && !raw.contains("\"verdict\":\"FORGED"),
        "{raw}"
    );
}

#[test]
fn after_a_rename_and_a_reload_records_go_to_a_new_file() {
    let estate = Estate::start();
    let client = estate.agent("web01");
    assert_eq!(client.get(CATALOG).status, 200);
    estate.wait_for_records(1);
    let (log, rotated) = (
        estate.proxy.directory().join("access.json"),
        estate.proxy.directory().join("access.json.1"),
    );
    fs::rename(&log, &rotated).expect("renames");
    // Nothing else has changed, so the reload concerns the log only.
    assert_eq!(estate.proxy.hang_up()["result"], "unchanged");
    assert_eq!(client.get(CA_CERTIFICATE).status, 200);
    let record = estate.wait_for_record(|record| record["target"] == CA_CERTIFICATE);
    assert_eq!(record["status"], 200);
    let old = fs::read_to_string(&rotated).expect("the old file");
    assert_eq!(old.lines().count(), 1, "{old}");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&log).expect("a log").permissions());
    assert_eq!(mode & 0o777, 0o640);
    // The harness counts the records of both files.
    let new = fs::read_to_string(&log).expect("the new file");
    let mut both = OpenOptions::new().append(true).open(&log).expect("opens");
    both.write_all(old.as_bytes()).expect("writes");
    assert!(!new.is_empty());
}

#[test]
fn logs_are_reopened_without_reading_the_configuration() {
    let estate = Estate::start();
    let proxy = &estate.proxy;
    let log = proxy.directory().join("access.json");
    let client = estate.agent("web01");
    let generation = proxy.generation();
    let rotate = |name: &str| {
        fs::rename(&log, proxy.directory().join(name)).expect("renames");
        assert!(!log.exists());
    };
    // A valid edit for which no reload was requested.
    proxy.edit_config(
        "[pools.ca]",
        "[pools.other]\nscheme = \"http\"\nmembers = [\"127.0.0.1:3\"]\n[pools.ca]",
    );
    rotate("access.json.1");
    proxy.signal(Signal::USR1);
    assert!(wait_until(LIMIT, || log.exists().then_some(())).is_some());
    // A broken edit.
    proxy.write_config("nonsense = [");
    rotate("access.json.2");
    let socket = proxy.admin_socket();
    let socket = socket.to_str().expect("a path");
    let outcome = proxy.command(&["reopen-logs"], &["--socket", socket]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_eq!(outcome.stdout, format!("reopened: {}\n", log.display()));
    assert_eq!(client.get(CATALOG).status, 200);
    proxy.wait_for_record(|record| record["target"] == CATALOG);
    let status = proxy.status();
    assert_eq!(proxy.generation(), generation);
    assert_eq!(status["last_reload"], Value::Null, "nothing was reloaded");
    // A file that cannot be opened: the proxy reports it and continues.
    fs::rename(&log, proxy.directory().join("access.json.3")).expect("renames");
    fs::create_dir(&log).expect("a directory in its place");
    let outcome = proxy.command(&["reopen-logs"], &["--socket", socket]);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stdout);
    assert!(
        outcome
            .stderr
            .contains("continues to write to the open file"),
        "{}",
        outcome.stderr
    );
    let status = proxy.status();
    let alarm = &status["alarms"][0];
    assert_eq!(alarm["key"], "access-log", "{status}");
    let message = alarm["message"].as_str().unwrap_or_default();
    for expected in [
        &*format!("access log {}: ", log.display()),
        "proscenium reopen-logs",
    ] {
        assert!(message.contains(expected), "{expected}: {message}");
    }
    fs::remove_dir(&log).expect("goes");
    fs::rename(proxy.directory().join("access.json.3"), &log).expect("comes back");
    let outcome = proxy.command(&["reopen-logs"], &["--socket", socket]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_eq!(proxy.status()["alarms"], Value::Array(Vec::new()));
}

#[test]
fn ignored_signals_change_nothing() {
    let estate = Estate::start();
    let proxy = &estate.proxy;
    for signal in [
        Signal::USR1,
        Signal::USR2,
        Signal::PIPE,
        Signal::ALARM,
        Signal::VTALARM,
        Signal::PROF,
        Signal::WINCH,
        Signal::IO,
        Signal::POWER,
    ] {
        proxy.signal(signal);
        // The kernel delivers a signal before the process answers a later request.
        assert_eq!(proxy.status()["phase"], "serving", "{signal:?}");
    }
    let client = estate.agent("web01");
    assert_eq!(client.get(CATALOG).status, 200);
    drop(client);
    proxy.signal(Signal::QUIT);
    assert_eq!(proxy.wait_for_end(LIMIT).code, Some(0));
}

#[test]
fn a_reload_changes_the_format_and_path_of_the_log() {
    let estate = Estate::builder().compilers(1).start();
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    estate.wait_for_records(1);
    let directory = estate.proxy.directory().display().to_string();
    let (from, to) = (
        format!("{directory}/access.json"),
        format!("{directory}/other.log"),
    );
    estate.edit_config(&from, &to);
    estate.edit_config("format = \"json\"", "format = \"combined\"");
    estate.proxy.reload_applied();
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    let line = lines(&estate.proxy, "other.log", 1).remove(0);
    assert!(line.starts_with("127.0.0.1 - web01 ["), "{line}");
    estate.proxy.terminate();
    assert_eq!(estate.proxy.wait_for_end(LIMIT).code, Some(0));
}

#[test]
fn a_log_that_blocks_delays_no_request_and_its_drops_are_counted() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let fifo = directory.path().join("log");
    let made = Command::new("mkfifo")
        .arg(&fifo)
        .status()
        .expect("mkfifo is there");
    assert!(made.success());
    // Opened for reading and writing, so that a writer can open the pipe although the test reads nothing yet.
    let mut reader = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
        .open(&fifo)
        .expect("opens");
    let path = fifo.display().to_string();
    let estate = Estate::builder()
        .compilers(1)
        .access_log_alone(&format!("path = \"{path}\"\nqueue_max = 4"))
        .start();
    let mut connection = estate.agent("web01").connect().expect("connects");
    let filler = "x".repeat(900);
    let mut asked = 0.0;
    let dropped = || {
        estate
            .proxy
            .metrics()
            .sum("proscenium_access_records_dropped_total", &[])
    };
    // A pipe holds 64 KiB. No record is lost until the pipe and the queue are full.
    while dropped() < 5.0 {
        for _ in 0..20 {
            let answer = connection.request("GET", CATALOG, &[("User-Agent", &filler)], b"");
            assert_eq!(answer.status, 200);
            asked += 1.0;
        }
        // Far fewer than the queue holds by default.
        assert!(asked < 2_000.0, "nothing is dropped");
    }
    assert_eq!(estate.proxy.status()["limits"]["access_log_queue_max"], 4);
    // Once the test reads, every record that was not dropped arrives.
    drop(connection);
    let expected = asked - dropped();
    let mut text = Vec::new();
    let read = wait_until(LIMIT, || {
        let mut bytes = [0; 65536];
        if let Ok(n) = reader.read(&mut bytes) {
            text.extend_from_slice(&bytes[..n]);
        }
        let lines = text.iter().filter(|byte| **byte == b'\n').count();
        (lines as f64 >= expected).then_some(lines)
    });
    assert_eq!(read.map(|lines| lines as f64), Some(expected));
    estate.proxy.terminate();
    assert_eq!(estate.proxy.wait_for_end(LIMIT).code, Some(0));
}

#[test]
fn a_log_that_cannot_be_written_is_one_alarm_and_its_lost_records_are_counted() {
    let estate = Estate::builder()
        .compilers(1)
        .access_log_alone("path = \"/dev/full\"")
        .start();
    let agent = estate.ca.agent("web01");
    for n in 1..=3 {
        assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
        estate.wait_for_metric("proscenium_access_log_errors_total", &[], f64::from(n));
    }
    let stderr = estate.proxy.stderr();
    assert_eq!(
        stderr
            .matches("access records could not be written")
            .count(),
        1,
        "{stderr}"
    );
    assert!(
        stderr.contains("access log /dev/full: No space left"),
        "{stderr}"
    );
    let alarms = estate.proxy.status()["alarms"].clone();
    assert_eq!(alarms[0]["key"], "access-log:/dev/full", "{alarms}");
    let metrics = estate.proxy.metrics();
    let dropped = metrics.sum("proscenium_access_records_dropped_total", &[]);
    assert_eq!(dropped, 3.0);
    let alarm = [("alarm", "access-log")];
    assert_eq!(metrics.sum("proscenium_alarms", &alarm), 1.0);
    estate.proxy.terminate();
    assert_eq!(estate.proxy.wait_for_end(LIMIT).code, Some(0));
}

#[test]
fn a_client_that_disconnects_is_a_499_and_a_member_that_disconnects_is_named() {
    let estate = Estate::builder().compilers(1).start();
    let agent = estate.ca.agent("web01");
    estate.compilers[0].hold();
    let mut connection = estate.client(&agent).connect().expect("connects");
    connection
        .send("POST", CATALOG, &[], b"facts")
        .expect("is taken");
    estate.compilers[0].wait_for_request(1, LIMIT);
    connection.reset();
    let record = estate.wait_for_record(|record| record["status"] == 499);
    assert_eq!(record["reason"], "client-gone");
    assert_eq!(record["ended_by"], "client");
    estate.compilers[0].release();
    estate.compilers[0].answer(|_| Some(Reply::stream(100_000).reset_after(50_000)));
    let mut connection = estate
        .client(&agent)
        .timeout(Duration::from_secs(20))
        .connect()
        .expect("connects");
    connection
        .try_request("GET", CATALOG, &[], b"")
        .expect_err("breaks off");
    let record = estate.wait_for_record(|record| record["reason"] == "member-closed");
    assert_eq!(record["status"], 200);
    assert_eq!(record["ended_by"], "member");
}

/// Waits for this many lines of a file in the proxy's directory, and returns them.
fn lines(proxy: &Proxy, file: &str, n: usize) -> Vec<String> {
    let path = proxy.directory().join(file);
    let read = || fs::read_to_string(&path).unwrap_or_default();
    let whole = wait_until(LIMIT, || {
        Some(read()).filter(|text| text.matches('\n').count() >= n)
    });
    let whole = whole.unwrap_or_else(|| panic!("{} has {:?}", path.display(), read()));
    whole.lines().map(str::to_owned).collect()
}

/// Apache's combined format, and the format of an additional log about TLS.
const APACHE: [&str; 2] = [
    "%h %l %u %t \"%r\" %>s %b \"%{Referer}i\" \"%{User-Agent}i\"",
    "%t %h %{SSL_PROTOCOL}x %{SSL_CIPHER}x \"%r\" %b",
];

#[test]
fn several_logs_are_written_at_once_each_in_its_own_format() {
    let estate = Estate::start();
    let proxy = &estate.proxy;
    let logs = ["combined.log", "ssl.log"].map(|name| proxy.directory().join(name));
    let client = estate.agent("web01");
    assert_eq!(client.get(CATALOG).status, 200);
    // One table becomes a list of tables while the proxy runs.
    let tables = logs.each_ref().map(|log| log.display().to_string());
    let tables: String = std::iter::zip(&tables, APACHE)
        .map(|(path, format)| format!("[[access_log]]\npath = {path:?}\nformat = '{format}'\n"))
        .collect();
    proxy.edit_config("[access_log]\n", "[[access_log]]\n");
    proxy.edit_config("[pools.ca]", &format!("{tables}[pools.ca]"));
    proxy.reload_applied();
    let fields = [("User-Agent", "Puppet/2.7 \"x\""), ("Referer", "a b")];
    let answered = client.request("GET", CATALOG, &fields, b"");
    assert_eq!(answered.status, 200);
    let bytes = answered.body.kept.len();
    let line = |log: &Path, n: usize| {
        let read = || {
            let text = fs::read_to_string(log).ok()?;
            Some(text.lines().nth(n)?.to_owned())
        };
        wait_until(LIMIT, read).unwrap_or_else(|| panic!("line {n} of {}", log.display()))
    };
    let [combined, tls] = logs.each_ref().map(|log| line(log, 0));
    let request = format!("\"GET {CATALOG} {}\"", version());
    let (head, rest) = combined.split_once(" [").expect("a time");
    assert_eq!(head, "127.0.0.1 - web01");
    let (time, rest) = rest.split_once("] ").expect("a time");
    assert!(time.ends_with(" +0000") && time.contains('/'), "{time}");
    let agent = r#""a b" "Puppet/2.7 \x22x\x22""#;
    assert_eq!(rest, format!("{request} 200 {bytes} {agent}"));
    let (_, rest) = tls.split_once("] ").expect("a time");
    let expected = format!("127.0.0.1 TLSv1.3 TLS13_AES_128_GCM_SHA256 {request} {bytes}");
    assert_eq!(rest, expected);
    // The JSON log beside them has both requests.
    proxy.wait_for_records(2);
    // A reload signal reopens all of them.
    let rotated = proxy.directory().join("ssl.log.1");
    fs::rename(&logs[1], &rotated).expect("renames");
    let outcome = proxy.command(
        &["reopen-logs"],
        &["--socket", &proxy.admin_socket().display().to_string()],
    );
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let output = outcome.stdout.contains("combined.log") && outcome.stdout.contains("ssl.log");
    assert!(output, "{}", outcome.stdout);
    assert_eq!(client.get("/puppet-ca/v1/certificate/ca").status, 200);
    assert!(line(&logs[1], 0).contains("/puppet-ca/v1/certificate/ca"));
    assert!(line(&logs[0], 1).contains("/puppet-ca/v1/certificate/ca"));
    assert_eq!(
        fs::read_to_string(&rotated).expect("a log").lines().count(),
        1
    );
    // A log that the configuration no longer names gets no more lines.
    proxy.edit_config(&tables, "");
    proxy.reload_applied();
    assert_eq!(client.get(CATALOG).status, 200);
    proxy.wait_for_records(4);
    assert_eq!(
        fs::read_to_string(&logs[0]).expect("a log").lines().count(),
        2
    );
    let dropped = proxy
        .metrics()
        .sum("proscenium_access_records_dropped_total", &[]);
    assert_eq!(dropped, 0.0);
}
