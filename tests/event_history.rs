//! The history of events: what it has, that it survives restarts and hand-overs, and the command that shows it.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use serde_json::Value;
use testkit::{Proxy, Reply};

use crate::support::{
    BINARY, Estate, LIMIT, account, assert_contains, done,
    pools::{answer_probes, probed, wait_for as wait_for_health},
    wait_for,
};

const WHY: &str = "new disk for the compiler";

/// The events that the running proxy shows.
fn events(proxy: &Proxy) -> Vec<Value> {
    let shown = done(proxy, &["events"], &["--since", "1h", "--json"]);
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    shown["events"].as_array().expect("a list").clone()
}

fn has(events: &[Value], kind: &str, subject: &str, words: &str) -> bool {
    events.iter().any(|event| {
        event["kind"] == kind
            && event["subject"] == subject
            && event["message"]
                .as_str()
                .is_some_and(|message| message.contains(words))
    })
}

#[track_caller]
fn assert_has(events: &[Value], expected: &[(&str, &str, &str)]) {
    for (kind, subject, words) in expected {
        assert!(
            has(events, kind, subject, words),
            "{kind} {subject}: {words} is not in {events:#?}"
        );
    }
}

/// An estate in which a member went down and came up again, an operator drained it, and a reload was refused.
fn eventful() -> Estate {
    let estate = probed("rise = 1, fall = 1");
    let (proxy, compiler) = (&estate.proxy, &estate.compilers[0]);
    // The log level does not apply to the history.
    done(proxy, &["log-level"], &["error"]);
    answer_probes(compiler, Reply::status(503));
    wait_for_health(&estate, "down");
    compiler.answer_as_puppet();
    wait_for_health(&estate, "up");
    let address = compiler.address();
    done(
        proxy,
        &["drain", "compilers", &address],
        &["--force", "--why", WHY],
    );
    done(proxy, &["ready", &address], &[]);
    let text = proxy.config_text();
    proxy.write_config(&format!("{text}\n[nonsense]\n"));
    assert_eq!(proxy.command(&["reload"], &[]).code, Some(78));
    proxy.write_config(&text);
    estate
}

#[test]
fn what_has_happened_is_shown_after_a_restart_and_after_a_hand_over() {
    let estate = eventful();
    let proxy = &estate.proxy;
    let member = format!("compilers/{}", estate.compilers[0].address());
    let alarm = "pool-unavailable:compilers";
    let health = "from=up to=down cause=probes-failed";
    let of_pid = format!("process {}", proxy.pid());
    let expected = [
        ("process", &*of_pid, "serving generation=1"),
        ("member", &member, health),
        ("alarm", alarm, "no member of pool compilers is available"),
        ("alarm-cleared", alarm, "no member of pool compilers"),
        ("operator", &member, WHY),
        (
            "member",
            &member,
            "administrative state changed state=drain",
        ),
        ("reload", "configuration", "reload refused"),
        ("operator", "", "reload ("),
        ("alarm", "reload-refused", "nonsense"),
    ];
    let before = events(proxy);
    assert_has(&before, &expected);
    let find = |kind: &str, words: &str| {
        let mut found = before.iter();
        let found = found.find(|event| event["kind"] == kind && event.to_string().contains(words));
        found.unwrap_or_else(|| panic!("{kind}")).clone()
    };
    assert_eq!(find("operator", WHY)["by"], account());
    assert_eq!(find("alarm", alarm)["severity"], "critical");
    assert_eq!(find("member", health)["severity"], "warning");

    let mut former = proxy.take_over().unwrap_or_else(|o| panic!("{o:?}"));
    assert_eq!(former.wait_for_end(LIMIT).code, Some(0));
    let after = events(proxy);
    assert_has(&after, &expected);
    let took_over = format!("took_over_from={}", of_pid.trim_start_matches("process "));
    let of_second = format!("process {}", proxy.pid());
    assert_has(
        &after,
        &[
            (
                "process",
                &of_pid,
                "another process is preparing to take over",
            ),
            ("process", &of_second, &took_over),
        ],
    );

    proxy.terminate();
    assert_eq!(proxy.wait_for_end(LIMIT).code, Some(0));
    // Without a running process, the file is read.
    let stopped = proxy.command(&["events"], &["--since", "1h"]);
    assert_eq!(stopped.code, Some(0), "{}", stopped.stderr);
    assert_contains(&stopped.stderr, "the proxy is not running");
    assert_contains(&stopped.stdout, WHY);
    assert_contains(&stopped.stdout, "drained finished=");

    proxy.start_again();
    let again = events(proxy);
    assert_has(&again, &expected);
    assert_has(&again, &[("process", &of_second, "drained")]);
    let times: Vec<_> = again.iter().map(|event| event["at"].to_string()).collect();
    assert!(times.is_sorted(), "{times:?}");
}

#[test]
fn a_broken_history_file_loses_only_its_broken_lines() {
    let estate = Estate::start();
    let proxy = &estate.proxy;
    let address = estate.compilers[0].address();
    done(proxy, &["drain", "compilers", &address], &["--why", WHY]);
    proxy.terminate();
    assert_eq!(proxy.wait_for_end(LIMIT).code, Some(0));
    let path = proxy.state_directory().join("history.jsonl");
    let mut stored = std::fs::read(&path).expect("a file");
    stored.extend_from_slice(b"\xff\0nonsense\n{\"at\":\"20");
    std::fs::write(&path, stored).expect("written");
    proxy.start_again();
    let member = format!("compilers/{address}");
    assert_has(&events(proxy), &[("operator", &member, WHY)]);
    let shown = done(proxy, &["events"], &[]);
    let line = shown.lines().find(|line| line.contains("operator"));
    let expected = format!("  operator       {member}  drain: {WHY} (by {})", account());
    assert!(
        line.is_some_and(|line| line.ends_with(&expected)),
        "{shown}"
    );
    // The file is complete again.
    let is_whole = || {
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        let mut lines = stored.lines();
        stored.ends_with('\n') && lines.all(|line| serde_json::from_str::<Value>(line).is_ok())
    };
    wait_for("the file is written again", is_whole);
}

/// A command that is killed when the test ends.
struct Follower(Child);

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn new_events_are_followed_until_the_command_is_interrupted() {
    let estate = Estate::start();
    let proxy = &estate.proxy;
    let follower = Command::new(BINARY)
        .args(["events", "--follow", "--json", "--socket"])
        .arg(proxy.admin_socket())
        .stdout(Stdio::piped())
        .spawn();
    let mut follower = Follower(follower.expect("it starts"));
    let mut lines = BufReader::new(follower.0.stdout.take().expect("a pipe")).lines();
    let address = estate.compilers[0].address();
    for why in ["first", "second"] {
        done(proxy, &["drain", &address], &["--why", why]);
        let expected = format!("drain: {why}");
        let is_found = lines.any(|line| {
            let event: Value = serde_json::from_str(&line.expect("text")).expect("an object");
            event["message"] == *expected
        });
        assert!(is_found, "{why}");
    }
}
