//! A disk that fills up under the access log and the state directory: one alarm for each file, until it can be written
//! again.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
};

use serde_json::Value;
use testkit::{Proxy, has_own_namespaces, small_disk, wait_until};

use crate::support::{Estate, LIMIT, done, paths::CATALOG};

/// Writes until there is no room for a further byte.
fn fill(path: &Path) {
    let mut file = File::create(path).expect("a file");
    for piece in [vec![b'x'; 4096], vec![b'x'; 1]] {
        while file.write_all(&piece).is_ok() {}
    }
}

/// The message of an active alarm.
fn alarm(proxy: &Proxy, key: &str) -> Option<String> {
    let status = proxy.status();
    let mut alarms = status["alarms"].as_array()?.iter();
    let found = alarms.find(|alarm| alarm["key"] == key)?;
    Some(found["message"].as_str()?.to_owned())
}

#[track_caller]
fn assert_says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn a_full_disk_is_an_alarm_about_each_file_until_it_has_room() {
    if !has_own_namespaces("full_disks::a_full_disk_is_an_alarm_about_each_file_until_it_has_room")
    {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let disk = place.path().to_owned();
    small_disk(&disk);
    let log = disk.join("access.log");
    let lines = format!("path = {:?}", log.display().to_string());
    let state = format!("[state]\ndirectory = \"{}/state\"", disk.display());
    let estate = Estate::builder()
        .compilers(1)
        .access_log_alone(&lines)
        .with(&state)
        .start();
    let proxy = &estate.proxy;
    let client = estate.agent("web01");
    let read = || fs::read_to_string(&log).unwrap_or_default();
    assert_eq!(client.get(CATALOG).status, 200);
    let has_line = wait_until(LIMIT, || read().ends_with('\n').then_some(()));
    assert!(has_line.is_some(), "{}", read());
    assert_eq!(proxy.status()["alarms"], Value::Array(Vec::new()));

    let filler = disk.join("filler");
    fill(&filler);
    // The file of blocks is written as a new file, which needs room.
    let outcome = proxy.command(&["block"], &["web02", "--why", "stolen"]);
    let key = "state-directory:blocks.json";
    let raised = wait_until(LIMIT, || alarm(proxy, key));
    let message =
        raised.unwrap_or_else(|| panic!("no alarm: {} {}", outcome.stdout, outcome.stderr));
    let path = disk.join("state/blocks.json");
    assert_says(
        &message,
        &[
            &path.display().to_string(),
            "No space left",
            "after a restart, clients that were blocked",
            "df -h",
        ],
    );
    // A few lines still fit into the last page of the log.
    let name = format!("access-log:{}", log.display());
    let raised = wait_until(LIMIT, || {
        assert_eq!(client.get(CATALOG).status, 200);
        alarm(proxy, &name)
    });
    let message = raised.expect("an alarm");
    assert_says(
        &message,
        &[&log.display().to_string(), "No space left", "df -h"],
    );
    let metrics = proxy.metrics();
    let dropped = metrics.sum("proscenium_access_records_dropped_total", &[]);
    assert!(dropped > 0.0);
    let files = metrics.sum("proscenium_alarms", &[("alarm", "state-directory")]);
    assert!(files >= 1.0);

    // The history of events is lost, and nothing else. Its last page still has room for a few events.
    let key = "state-directory:history.jsonl";
    let raised = wait_until(LIMIT, || {
        proxy.command(&["block"], &["web04", "--why", "stolen"]);
        alarm(proxy, key)
    });
    assert_says(
        &raised.expect("an alarm"),
        &["No space left", "the history of events"],
    );
    assert_eq!(client.get(CATALOG).status, 200);

    // The change itself has no line either.
    let message = alarm(proxy, "audit-log").expect("an alarm");
    let audit = disk.join("state/audit.log");
    assert_says(&message, &[&audit.display().to_string(), "No space left"]);

    fs::remove_file(&filler).expect("room");
    done(proxy, &["block"], &["web03", "--why", "stolen"]);
    let cleared = wait_until(LIMIT, || {
        assert_eq!(client.get(CATALOG).status, 200);
        let active = proxy.status()["alarms"].clone();
        (active == Value::Array(Vec::new())).then_some(())
    });
    assert!(cleared.is_some(), "{}", proxy.status()["alarms"]);
    let stored = fs::read_to_string(&path).expect("it is stored");
    assert!(
        stored.contains("web02") && stored.contains("web03"),
        "{stored}"
    );
    let history = || fs::read_to_string(disk.join("state/history.jsonl")).unwrap_or_default();
    let is_stored = |words: &str| history().lines().any(|line| line.contains(words));
    let stored = wait_until(LIMIT, || is_stored("alarm-cleared").then_some(()));
    assert!(stored.is_some(), "{}", history());
    assert!(is_stored("access-log:"), "{}", history());
    // No line is two halves: each has one time.
    for line in read().lines() {
        assert!(line.matches("time=").count() <= 1, "{line}");
    }
    // The records that were lost are missing, so the estate's own comparison cannot hold.
    proxy.terminate();
    assert_eq!(proxy.wait_for_end(LIMIT).code, Some(0));
}
