//! Records and events reach the system's log daemon complete and unforged. A daemon that fails costs records, never
//! requests.

use std::{collections::BTreeMap, fs, os::unix::net::UnixDatagram, path::PathBuf};

use rcgen::DnType;
use serde_json::Value;
use tempfile::TempDir;
use testkit::{Proxy, ProxyBuilder, wait_until};

use crate::support::{
    Estate, LIMIT, assert_contains,
    paths::{CA_CERTIFICATE, CATALOG},
    version,
};

#[test]
fn records_go_to_syslog_one_datagram_each() {
    let syslog = Daemon::start();
    let lines = format!("path = \"syslog:{}\"\nfacility = \"local3\"", syslog.path());
    let estate = estate(move |proxy| proxy.access_log_alone(&lines));
    let client = estate.agent("web01");
    assert_eq!(client.get(CATALOG).status, 200);
    assert_eq!(client.get(CA_CERTIFICATE).status, 200);
    // local3 is 19 and info is 6. The record has no time, because RFC 3164 has no time zone.
    let head = format!(
        "<158>proscenium[{}]: 127.0.0.1 - web01 [",
        estate.proxy.pid()
    );
    let records = [syslog.text(), syslog.text()];
    for target in [CATALOG, CA_CERTIFICATE] {
        let request = format!("] \"GET {target} {}\" 200 ", version());
        let its = |record: &&String| record.starts_with(&head) && record.contains(&request);
        assert_eq!(records.iter().filter(its).count(), 1, "{records:#?}");
    }
    assert!(records.iter().all(|record| !record.contains('\n')));
    end(&estate.proxy);
}

#[test]
fn records_go_to_the_journal_with_their_fields() {
    let journal = Daemon::start();
    let lines = format!("path = \"journal:{}\"\nformat = \"json\"", journal.path());
    let estate = estate(move |proxy| proxy.access_log_alone(&lines));
    let agent = estate.ca.agent("web01");
    let headers = [("User-Agent", "Puppet/8 \"x\"")];
    let answer = estate.client(&agent).request("GET", CATALOG, &headers, b"");
    assert_eq!(answer.status, 200);
    let request = estate.only_request();
    let entry = journal.entry();
    for (field, expected) in [
        ("PRIORITY", "6"),
        ("SYSLOG_IDENTIFIER", "proscenium"),
        ("PROSCENIUM_CLIENT", "127.0.0.1"),
        ("PROSCENIUM_CERTNAME", "web01"),
        ("PROSCENIUM_USER", "web01"),
        ("PROSCENIUM_VERDICT", "SUCCESS"),
        ("PROSCENIUM_TARGET", CATALOG),
        ("PROSCENIUM_STATUS", "200"),
        ("PROSCENIUM_USER_AGENT", r"Puppet/8 \x22x\x22"),
        ("PROSCENIUM_POOL", "compilers"),
        ("PROSCENIUM_RESUMED", "no"),
        ("PROSCENIUM_ID", request.only("x-request-id")),
    ] {
        assert_eq!(entry[field], expected, "{field} in {entry:#?}");
    }
    assert!(!entry.contains_key("PROSCENIUM_REASON"), "it has none");
    let record: Value = serde_json::from_str(&entry["MESSAGE"]).expect("the line as it is");
    assert_eq!(record["certname"], "web01");
    end(&estate.proxy);
}

#[test]
fn events_go_to_syslog_by_their_severity() {
    let syslog = Daemon::start();
    let events = format!("[events]\npath = \"syslog:{}\"", syslog.path());
    let estate = estate(move |proxy| proxy.with(&events));
    let head = |severity| format!("<{}>proscenium[{}]: ", 3 * 8 + severity, estate.proxy.pid());
    let serving = syslog.wait_for_text("serving");
    assert!(serving.starts_with(&head(6)), "{serving}");
    assert!(serving.contains(" generation=1 "), "{serving}");
    estate.compilers[0].stop();
    let address = estate.compilers[0].address();
    let down = syslog.wait_for_text("probe failed");
    assert!(
        down.starts_with(&head(4)) && down.contains(&address),
        "{down}"
    );
    // A report of many lines becomes a single short record.
    estate.edit_config("[events]", "[evnts]");
    assert_eq!(estate.proxy.reload()["result"], "refused");
    let refused = syslog.wait_for_text("reload refused");
    assert!(refused.starts_with(&head(3)), "{refused}");
    assert!(
        refused.contains("evnts")
            && !refused.contains(r"\x0a")
            && !refused.contains(char::is_control),
        "{refused}"
    );
    assert!(!estate.proxy.stderr().contains("reload refused"));
}

#[test]
fn events_go_to_the_journal_with_all_lines_and_fields() {
    let journal = Daemon::start();
    let events = format!("[events]\npath = \"journal:{}\"", journal.path());
    let estate = estate(move |proxy| proxy.with(&events));
    let serving = journal.wait_for_entry("serving");
    assert_eq!(serving["PRIORITY"], "6");
    assert_eq!(serving["PROSCENIUM_GENERATION"], "1");
    assert_eq!(serving["PROSCENIUM_PART"], "lifecycle::app");
    // The event is one line; the response to the reload shows the lines of the file.
    estate.edit_config("[events]", "_PID=1\nPRIORITY=0\n[events]");
    let outcome = estate.proxy.reload();
    assert_eq!(outcome["result"], "refused");
    assert!(
        outcome["report"]
            .as_str()
            .unwrap_or_default()
            .contains("PRIORITY=0")
    );
    let refused = journal.wait_for_entry("reload refused");
    assert_eq!(refused["PRIORITY"], "3");
    assert_eq!(refused["PROSCENIUM_ASKED_BY"], "admin");
    let message = &refused["MESSAGE"];
    assert!(
        !message.contains('\n') && message.contains("_PID"),
        "{message}"
    );
    assert!(
        message.contains("2 errors") && message.contains("`proscenium check`"),
        "{message}"
    );
    assert!(!estate.proxy.stderr().contains("serving"));
}

#[test]
fn events_on_standard_error_are_lines_with_a_priority_where_the_journal_reads_it() {
    for (to_journal, head) in [
        (true, ["<6> INFO ", "<3>ERROR "]),
        (false, ["Z  INFO ", "Z ERROR "]),
    ] {
        let estate = estate(move |proxy| {
            if to_journal {
                proxy.stderr_to_journal()
            } else {
                proxy.env("JOURNAL_STREAM", "1:1")
            }
        });
        estate.edit_config("[admin]", "[evnts]\n[events2]\n[admin]");
        assert_eq!(estate.proxy.reload()["result"], "refused");
        estate.wait_for_event("reload refused");
        let stderr = estate.proxy.stderr();
        for line in stderr.lines() {
            assert_eq!(line.starts_with('<'), to_journal, "{line}");
            assert!(line.contains(": "), "not the rest of a line before: {line}");
        }
        let line = |words: &str| stderr.lines().find(|line| line.contains(words));
        for (head, words) in head
            .into_iter()
            .zip(["serving generation=1 ", "reload refused"])
        {
            let line = line(words).unwrap_or_else(|| panic!("{words} is not in {stderr}"));
            assert!(line.contains(head), "{line}");
        }
    }
}

#[test]
fn the_log_level_changes_while_the_proxy_runs() {
    let estate = estate(|proxy| proxy);
    let ask = |arguments: &[&str]| estate.proxy.command(&["log-level"], arguments);
    let shown = |arguments: &[&str]| {
        let answer = ask(arguments);
        assert_eq!(answer.code, Some(0), "{}", answer.stderr);
        answer.stdout
    };
    assert_eq!(shown(&[]), "info\n");
    let refused = ask(&["verbose"]);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert_contains(&refused.stderr, "\"verbose\" is not a level");
    assert!(ask(&[""]).stderr.contains("\"\" is not a level"));
    assert_eq!(shown(&["error"]), "error (was info)\n");
    estate.wait_for_event("log level changed from=info to=error");
    // At this level the reload logs nothing.
    assert_eq!(estate.proxy.reload()["result"], "unchanged");
    assert_eq!(
        shown(&["info,proxy=debug"]),
        "info,proxy=debug (was error)\n"
    );
    assert_eq!(shown(&[]), "info,proxy=debug\n");
    estate.wait_for_event("log level changed from=error");
    assert!(!estate.proxy.stderr().contains("nothing has changed"));
    assert_eq!(estate.proxy.reload()["result"], "unchanged");
    estate.wait_for_event("nothing has changed");
}

#[test]
fn nothing_a_client_sends_forges_a_record_or_field_for_a_log_daemon() {
    let (syslog, journal) = (Daemon::start(), Daemon::start());
    let outputs = [
        format!("syslog:{}", syslog.path()),
        format!("journal:{}", journal.path()),
    ];
    let lines = format!("path = \"{}\"", outputs[0]);
    let estate = estate(move |proxy| proxy.access_log_alone(&lines));
    let forged = "web01\n<0>kernel: forged\n\nPRIORITY=0\n_PID=1\nMESSAGE=forged\n";
    let name = [(DnType::CommonName, forged)];
    let forger = estate.ca.leaf("x").subject(&name).issue();
    let headers = [("User-Agent", "x\u{85}\tPRIORITY=0"), ("Referer", "\"\\")];
    let ask = || {
        let client = estate.client(&forger);
        assert_eq!(client.request("GET", CATALOG, &headers, b"").status, 403);
    };
    ask();
    let record = syslog.text();
    assert!(
        record.starts_with("<30>proscenium[") && !record.contains(char::is_control),
        "{record}"
    );
    assert!(
        record.contains(r#" "\x22\x5c" "x\xc2\x85\x09PRIORITY=0" id="#),
        "{record}"
    );
    estate.edit_config(&outputs[0], &outputs[1]);
    estate.proxy.reload_applied();
    ask();
    // The reader refuses a duplicate field, a field that only journald may set, and a second entry.
    let entry = journal.entry();
    assert_eq!(entry["PRIORITY"], "6");
    assert_eq!(entry["PROSCENIUM_REASON"], "refused-certificate");
    assert_eq!(entry["PROSCENIUM_USER_AGENT"], r"x\xc2\x85\x09PRIORITY=0");
    // A subject that is not a certname is not logged as a name.
    assert!(!entry.contains_key("PROSCENIUM_CERTNAME"));
    assert!(
        entry
            .values()
            .all(|value| !value.contains(char::is_control)),
        "{entry:#?}"
    );
    end(&estate.proxy);
    assert!(
        syslog.is_empty() && journal.is_empty(),
        "one record for one exchange"
    );
}

#[test]
fn a_record_too_long_for_syslog_is_truncated_and_marked() {
    let syslog = Daemon::start();
    let lines = format!("path = \"syslog:{}\"", syslog.path());
    let estate = estate(move |proxy| proxy.access_log_alone(&lines));
    let agent = estate.ca.agent("web01");
    // Each of these bytes takes four in the record.
    let long = "\u{ff}".repeat(2_000);
    let headers = [("User-Agent", long.as_str()), ("Referer", &long)];
    let target = format!("/puppet/v3/catalog/web01?{}", "ü".repeat(1_500));
    estate.client(&agent).request("GET", &target, &headers, b"");
    let record = syslog.text();
    assert_eq!(
        (record.len(), record.ends_with("...")),
        (8 << 10, true),
        "{record}"
    );
    end(&estate.proxy);
}

#[test]
fn records_for_an_absent_daemon_are_counted_and_delivery_resumes_when_it_starts() {
    for kind in ["syslog", "journal"] {
        let mut daemon = Daemon::start();
        daemon.stop();
        let lines = format!("path = \"{kind}:{}\"", daemon.path());
        let estate = estate(move |proxy| proxy.access_log_alone(&lines));
        let client = estate.agent("web01");
        let mut lost = 0.0;
        for _ in 0..3 {
            for _ in 0..2 {
                assert_eq!(client.get(CATALOG).status, 200);
                lost += 1.0;
                let dropped = "proscenium_access_records_dropped_total";
                assert_eq!(estate.wait_for_metric(dropped, &[], lost), lost);
            }
            // The daemon starts, and later restarts: no reload is needed.
            daemon.restart();
            assert_eq!(client.get(CA_CERTIFICATE).status, 200);
            let record = daemon.receive();
            assert!(String::from_utf8_lossy(&record).contains(CA_CERTIFICATE));
            daemon.stop();
        }
        let errors = "proscenium_access_log_errors_total";
        assert_eq!(estate.proxy.metrics().sum(errors, &[]), lost);
        let stderr = estate.proxy.stderr();
        let output = stderr
            .matches("access records could not be written")
            .count();
        assert_eq!(
            (output, stderr.contains(&daemon.path())),
            (1, true),
            "{stderr}"
        );
        end(&estate.proxy);
    }
}

#[test]
fn a_daemon_that_reads_nothing_delays_no_request_and_its_drops_are_counted() {
    let syslog = Daemon::start();
    let lines = format!("path = \"syslog:{}\"", syslog.path());
    let estate = estate(move |proxy| proxy.access_log_alone(&lines));
    let mut connection = estate.agent("web01").connect().expect("connects");
    let filler = "x".repeat(500);
    let mut asked = 0.0;
    let dropped = || {
        let metrics = estate.proxy.metrics();
        metrics.sum("proscenium_access_records_dropped_total", &[])
    };
    while dropped() < 5.0 {
        for _ in 0..20 {
            let answer = connection.request("GET", CATALOG, &[("Referer", &filler)], b"");
            assert_eq!(answer.status, 200);
            asked += 1.0;
        }
        // Neither a queue of datagrams nor the buffer behind it holds this many.
        assert!(asked < 5_000.0, "nothing is dropped");
    }
    drop(connection);
    // A stop ends the process although the daemon reads nothing.
    end(&estate.proxy);
    let mut arrived = 0.0;
    while !syslog.is_empty() {
        arrived += 1.0;
    }
    assert!(arrived > 0.0 && arrived < asked, "{arrived} of {asked}");
}

#[test]
fn a_reload_changes_where_records_and_events_go() {
    let (syslog, journal) = (Daemon::start(), Daemon::start());
    let estate = estate(|proxy| proxy.with("[events]\npath = \"stderr\""));
    let client = estate.agent("web01");
    assert_eq!(client.get(CATALOG).status, 200);
    estate.wait_for_records(1);
    let file = estate
        .proxy
        .directory()
        .join("access.json")
        .display()
        .to_string();
    let to_syslog = format!("syslog:{}", syslog.path());
    let to_journal = format!("journal:{}", journal.path());
    estate.edit_config(&format!("\"{file}\""), &format!("\"{to_syslog}\""));
    estate.edit_config("\"stderr\"", &format!("\"{to_journal}\""));
    let outcome = estate.proxy.reload_applied();
    assert!(
        outcome["report"]
            .as_str()
            .is_some_and(|text| text.contains("access_log.path, events.path")),
        "{outcome}"
    );
    assert_eq!(
        journal.wait_for_entry("reloaded")["PROSCENIUM_RESULT"],
        "applied"
    );
    assert_eq!(client.get(CATALOG).status, 200);
    assert!(syslog.text().contains("]: {\"time\":"), "the form stays");
    // Records and events exchange their outputs.
    estate.edit_config(&to_syslog, "X");
    estate.edit_config(&to_journal, &to_syslog);
    estate.edit_config("\"X\"", &format!("\"{to_journal}\""));
    estate.proxy.reload_applied();
    assert!(
        syslog
            .wait_for_text("reloaded")
            .contains("lifecycle::reload: reloaded: ")
    );
    assert_eq!(client.get(CA_CERTIFICATE).status, 200);
    assert_eq!(journal.entry()["PROSCENIUM_TARGET"], CA_CERTIFICATE);
    estate.edit_config(&to_syslog, "stderr");
    estate.edit_config(&to_journal, &file);
    estate.proxy.reload_applied();
    wait_for_stderr(&estate.proxy, "reloaded: ", 1);
    assert_eq!(client.get(CATALOG).status, 200);
    estate.wait_for_records(2);
    assert_eq!(
        fs::read_to_string(&file).expect("the file").lines().count(),
        2
    );
    end(&estate.proxy);
}

#[test]
fn events_that_no_daemon_receives_go_to_standard_error() {
    let mut journal = Daemon::start();
    let events = format!("[events]\npath = \"journal:{}\"", journal.path());
    let estate = estate(move |proxy| proxy.with(&events));
    journal.wait_for_entry("serving");
    journal.stop();
    for _ in 0..2 {
        assert_eq!(estate.proxy.reload()["result"], "unchanged");
    }
    let stderr = wait_for_stderr(&estate.proxy, "nothing has changed", 2);
    let output = stderr.matches("events go to standard error: ").count();
    assert_eq!(output, 1, "{stderr}");
    journal.restart();
    estate.proxy.reload();
    journal.wait_for_entry("nothing has changed");
    assert_eq!(estate.proxy.stderr(), stderr);
}

#[test]
fn events_for_a_daemon_that_is_full_are_dropped_and_counted() {
    let syslog = Daemon::start();
    let events = format!("[events]\npath = \"syslog:{}\"", syslog.path());
    let estate = estate(move |proxy| proxy.with(&events));
    let dropped = || {
        let metrics = estate.proxy.metrics();
        metrics.sum("proscenium_events_dropped_total", &[])
    };
    for expected in 0.. {
        assert!(expected < 2_000, "nothing is dropped");
        assert_eq!(estate.proxy.reload()["result"], "unchanged");
        if dropped() > 0.0 {
            break;
        }
    }
    assert!(!estate.proxy.stderr().contains("nothing has changed"));
    while !syslog.is_empty() {}
    estate.proxy.reload();
    syslog.wait_for_text("nothing has changed");
}

fn estate(change: impl FnOnce(ProxyBuilder) -> ProxyBuilder + 'static) -> Estate {
    Estate::builder().compilers(1).proxy(change).start()
}

/// Waits until standard error contains `part` `n` times, asserts that it is not there more often, and returns the text.
#[track_caller]
fn wait_for_stderr(proxy: &Proxy, part: &str, n: usize) -> String {
    let count = || proxy.stderr().matches(part).count();
    wait_until(LIMIT, || (count() >= n).then_some(()));
    assert_eq!(count(), n, "{part:?} in {}", proxy.stderr());
    proxy.stderr()
}

/// An estate without a file of records, which the harness would count.
#[track_caller]
fn end(proxy: &Proxy) {
    proxy.terminate();
    assert_eq!(proxy.wait_for_end(LIMIT).code, Some(0));
}

/// A log daemon's socket.
struct Daemon {
    directory: TempDir,
    socket: Option<UnixDatagram>,
}

impl Daemon {
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut daemon = Self {
            directory,
            socket: None,
        };
        daemon.restart();
        daemon
    }

    /// Restarts as a daemon does: removes the old socket and binds a new one.
    fn restart(&mut self) {
        let _ = fs::remove_file(self.place());
        let socket = UnixDatagram::bind(self.place()).expect("binds");
        socket.set_read_timeout(Some(LIMIT)).expect("takes a time");
        self.socket = Some(socket);
    }

    /// Stops as after a crash: the socket's file stays.
    fn stop(&mut self) {
        self.socket = None;
    }

    fn place(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    fn path(&self) -> String {
        self.place().display().to_string()
    }

    #[track_caller]
    fn receive(&self) -> Vec<u8> {
        let mut bytes = vec![0; 1 << 18];
        let socket = self.socket.as_ref().expect("it runs");
        let length = socket.recv(&mut bytes).expect("a datagram comes");
        bytes.truncate(length);
        bytes
    }

    /// Reads one datagram if there is one.
    fn is_empty(&self) -> bool {
        let socket = self.socket.as_ref().expect("it runs");
        socket.set_nonblocking(true).expect("takes the mode");
        let empty = socket.recv(&mut [0; 1]).is_err();
        socket.set_nonblocking(false).expect("takes the mode");
        empty
    }

    #[track_caller]
    fn text(&self) -> String {
        String::from_utf8(self.receive()).expect("UTF-8")
    }

    #[track_caller]
    fn entry(&self) -> BTreeMap<String, String> {
        entry(&self.receive())
    }

    #[track_caller]
    fn wait_for_text(&self, part: &str) -> String {
        loop {
            let text = self.text();
            if text.contains(part) {
                return text;
            }
        }
    }

    #[track_caller]
    fn wait_for_entry(&self, part: &str) -> BTreeMap<String, String> {
        loop {
            let entry = self.entry();
            if entry["MESSAGE"].contains(part) {
                return entry;
            }
        }
    }
}

/// Reads an entry of the journal's native protocol as journald does: `NAME=value`, or a name, a length and the value.
/// An empty line would end the entry. Names that begin with `_` are reserved for journald.
#[track_caller]
fn entry(mut bytes: &[u8]) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    while !bytes.is_empty() {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (line, rest) = bytes.split_at(end.expect("a line end"));
        let line = std::str::from_utf8(line).expect("UTF-8");
        bytes = &rest[1..];
        let (name, value) = line.split_once('=').unwrap_or_else(|| {
            let (length, rest) = bytes.split_first_chunk().expect("a length");
            let (value, rest) = rest.split_at(u64::from_le_bytes(*length) as usize);
            bytes = rest.strip_prefix(b"\n").expect("a line end");
            (line, std::str::from_utf8(value).expect("UTF-8"))
        });
        let plain = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
        assert!(
            name.starts_with(|first: char| first.is_ascii_uppercase()),
            "{name:?}"
        );
        assert!(name.len() <= 64 && name.bytes().all(plain), "{name:?}");
        let before = fields.insert(name.to_owned(), value.to_owned());
        assert_eq!(before, None, "{name} stands twice");
    }
    fields
}
