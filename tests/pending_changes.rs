//! Alarms about files on disk that the running process does not use: a refused reload, and changes that wait for a restart.

use std::fs;

use serde_json::Value;
use testkit::{Proxy, wait_until};

use crate::{
    hand_over::replace,
    support::{BINARY, Estate, EstateBuilder, LIMIT, paths::CATALOG},
};

/// The kernel does not report changes; the proxy compares the files every 20 ms.
const OFTEN: &str = "watch = \"off\"\ninterval = \"20ms\"";

fn estate() -> EstateBuilder {
    Estate::builder().materials(OFTEN)
}

/// The message of an active alarm.
fn alarm(status: &Value, key: &str) -> Option<String> {
    let alarms = status["alarms"].as_array().into_iter().flatten();
    let mut found = alarms.filter(|alarm| alarm["key"] == key);
    Some(found.next()?["message"].as_str()?.to_owned())
}

#[track_caller]
fn raised(proxy: &Proxy, key: &str) -> String {
    alarm(&proxy.status(), key).unwrap_or_else(|| panic!("no {key}: {}", proxy.stderr()))
}

#[track_caller]
fn wait_for(proxy: &Proxy, key: &str, met: impl Fn(Option<&str>) -> bool) {
    proxy.wait_for_status(key, |status| met(alarm(status, key).as_deref()));
}

const REFUSED: &str = "reload-refused";

#[test]
fn a_refused_reload_is_an_alarm_until_the_file_is_again_what_runs() {
    let estate = estate().start();
    let good = estate.proxy.config_text();
    let bad = good.replace("[pools.compilers]", "[pools.compilers]\ncolour = \"red\"");
    let line = 1 + bad
        .lines()
        .position(|line| line.starts_with("colour"))
        .expect("it is there");
    let place = format!("proscenium.toml:{line}:");
    // An edit that no reload has read is not an alarm.
    estate.write_config(&bad);
    assert_eq!(alarm(&estate.proxy.status(), REFUSED), None);
    for way in ["SIGHUP", "the command", "the API"] {
        estate.write_config(&bad);
        match way {
            "SIGHUP" => estate.proxy.hang_up(),
            "the command" => {
                let socket = estate.proxy.admin_socket();
                let socket = ["--socket", socket.to_str().expect("a path")];
                let outcome = estate.proxy.command(&["reload"], &socket);
                assert_eq!(outcome.code, Some(78), "{}", outcome.stderr);
                Value::Null
            }
            _ => estate.proxy.reload(),
        };
        let message = raised(&estate.proxy, REFUSED);
        for expected in [
            "colour",
            &place,
            "restart would fail",
            "exit code 78",
            "`proscenium check`",
        ] {
            assert!(
                message.contains(expected),
                "{expected:?} is not in {message}"
            );
        }
        let metrics = estate.proxy.metrics();
        let critical = [("alarm", REFUSED), ("severity", "critical")];
        assert_eq!(metrics.sum("proscenium_alarms", &critical), 1.0);
        // Fixing the file clears the alarm without a reload.
        estate.write_config(&good);
        wait_for(&estate.proxy, REFUSED, |alarm| alarm.is_none());
        estate.wait_for_event("cleared: the last reload was refused");
    }
    // A reload that succeeds clears it at once.
    estate.write_config(&bad);
    estate.proxy.hang_up();
    raised(&estate.proxy, REFUSED);
    estate.write_config(&good);
    assert_eq!(estate.proxy.reload()["result"], "unchanged");
    assert_eq!(alarm(&estate.proxy.status(), REFUSED), None);
}

#[test]
fn the_alarm_about_a_refused_reload_follows_the_file() {
    let estate = estate().start();
    let good = estate.proxy.config_text();
    estate.write_config("[pools");
    estate.proxy.hang_up();
    raised(&estate.proxy, REFUSED);
    // With another error in the file, the alarm names that error.
    estate.write_config(&good.replace("[pools.ca]", "[pools.ca]\nshape = 1"));
    wait_for(&estate.proxy, REFUSED, |alarm| {
        alarm.is_some_and(|message| message.contains("shape") && message.contains("would fail"))
    });
    // The file is missing.
    fs::remove_file(estate.proxy.config_path()).expect("it is there");
    wait_for(&estate.proxy, REFUSED, |alarm| {
        alarm.is_some_and(|message| {
            message.contains("cannot read") && message.contains("would fail")
        })
    });
    // A directory. A container runtime creates it in place of a file that it should mount and does not find.
    fs::create_dir(estate.proxy.config_path()).expect("a directory");
    wait_for(&estate.proxy, REFUSED, |alarm| {
        alarm.is_some_and(|message| message.contains("it is not a regular file"))
    });
    fs::remove_dir(estate.proxy.config_path()).expect("it is there");
    // The file is valid, but differs from the active configuration.
    estate.write_config(&good.replace("[pools.ca]", "[pools.ca]\nqueue_max = 7"));
    wait_for(&estate.proxy, REFUSED, |alarm| {
        alarm.is_some_and(|message| {
            message.contains("valid now") && message.contains("`proscenium reload`")
        })
    });
    assert_eq!(estate.proxy.generation(), 1, "nothing is loaded by itself");
    estate.proxy.reload_applied();
    assert_eq!(alarm(&estate.proxy.status(), REFUSED), None);
}

#[test]
fn a_reload_refused_for_a_certificate_key_or_crl_is_the_same_alarm() {
    let estate = estate().start();
    let agent = estate.ca.agent("web01");
    let ssldir = estate.proxy.ssldir();
    let expired = estate.ca.leaf("puppet").expired().issue();
    let read = |name: &str| fs::read_to_string(ssldir.join(name)).expect("is there");
    let names = [
        "certs/puppet.pem",
        "private_keys/puppet.pem",
        "crl.pem",
        "certs/ca.pem",
    ];
    let good = names.map(|name| (name, read(name)));
    type Files<'a> = &'a [(&'a str, &'a str)];
    let expired_chain = expired.chain_pem();
    let cases: [(Files<'_>, &str, &str); 5] = [
        (
            &[("certs/puppet.pem", "garbage")],
            "puppet.pem",
            "would fail",
        ),
        (
            &[("private_keys/puppet.pem", "garbage")],
            "puppet.pem",
            "would fail",
        ),
        (&[("crl.pem", "no CRL at all")], "crl.pem", "would fail"),
        (&[("certs/ca.pem", "")], "ca.pem", "would fail"),
        // The proxy would start with an expired certificate. A running proxy still has a better one.
        (
            &[
                ("certs/puppet.pem", &expired_chain),
                ("private_keys/puppet.pem", &expired.key_pem),
            ],
            "expired",
            "a restart would use the files on disk",
        ),
    ];
    for (files, expected, outlook) in cases {
        for (name, text) in files {
            estate.proxy.write(&format!("ssl/{name}"), text, 0o640);
        }
        assert_eq!(estate.proxy.hang_up()["result"], "refused", "{files:?}");
        let message = raised(&estate.proxy, REFUSED);
        assert!(
            message.contains(expected),
            "{expected:?} is not in {message}"
        );
        assert!(message.contains(outlook), "{outlook:?} is not in {message}");
        assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
        for (name, text) in &good {
            estate.proxy.write(&format!("ssl/{name}"), text, 0o640);
        }
        wait_for(&estate.proxy, REFUSED, |alarm| alarm.is_none());
    }
}

const SETTINGS: &str = "restart-pending:settings";
const PROGRAM: &str = "restart-pending:program";

#[test]
fn settings_that_wait_for_a_restart_are_an_alarm_until_they_apply_or_the_file_returns() {
    let estate = estate().start();
    let good = estate.proxy.config_text();
    let changed = format!("workers = 3\n{good}");
    estate.write_config(&changed);
    assert_eq!(
        alarm(&estate.proxy.status(), SETTINGS),
        None,
        "not loaded yet"
    );
    estate.proxy.reload_applied();
    let message = raised(&estate.proxy, SETTINGS);
    for expected in ["workers", "systemctl restart proscenium"] {
        assert!(
            message.contains(expected),
            "{expected:?} is not in {message}"
        );
    }
    // An invalid edit does not change the accepted configuration.
    estate.write_config("[pools");
    estate.proxy.hang_up();
    raised(&estate.proxy, SETTINGS);
    // The former file returns, without a reload.
    estate.write_config(&good);
    wait_for(&estate.proxy, SETTINGS, |alarm| alarm.is_none());
    // Another reload does not raise the alarm again.
    estate.proxy.reload_applied();
    assert_eq!(alarm(&estate.proxy.status(), SETTINGS), None);
    // A new process applies the changed settings.
    estate.write_config(&changed);
    estate.proxy.reload_applied();
    raised(&estate.proxy, SETTINGS);
    let mut former = estate.proxy.take_over().unwrap_or_else(|o| panic!("{o:?}"));
    former.wait_for_end(LIMIT);
    assert_eq!(alarm(&estate.proxy.status(), SETTINGS), None);
}

#[test]
fn a_replaced_program_is_an_alarm_until_it_runs_or_the_former_one_is_back() {
    let estate = Estate::builder().materials(OFTEN).own_copy().start();
    let program = estate.proxy.program();
    let binary = fs::read(BINARY).expect("the program");
    // The same bytes in a new file are the same program.
    replace(&program, &binary);
    let other = [&binary[..], b"another build"].concat();
    replace(&program, &other);
    wait_for(&estate.proxy, PROGRAM, |alarm| {
        alarm.is_some_and(|message| {
            message.contains("another build") && message.contains("`systemctl reload proscenium`")
        })
    });
    replace(&program, &binary);
    wait_for(&estate.proxy, PROGRAM, |alarm| alarm.is_none());
    replace(&program, &other);
    wait_for(&estate.proxy, PROGRAM, |alarm| alarm.is_some());
    let outcome = estate.proxy.command(&["reload"], &[]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let successor = wait_until(LIMIT, || {
        let status = estate.proxy.try_admin("GET", "/v1/status").ok()?.json();
        let pid = status["process"]["pid"].as_u64();
        pid.filter(|pid| *pid != u64::from(estate.proxy.pid()))
    });
    let successor = successor.expect("another process");
    estate
        .proxy
        .adopt(u32::try_from(successor).expect("a process"));
    assert_eq!(alarm(&estate.proxy.status(), PROGRAM), None);
}

#[test]
fn a_new_program_that_refuses_the_configuration_is_an_alarm_until_the_former_one_is_back() {
    let estate = Estate::builder().materials(OFTEN).own_copy().start();
    let program = estate.proxy.program();
    let binary = fs::read(BINARY).expect("the program");
    for (script, outlook) in [
        ("exit 78", "restart would fail"),
        ("exit 3", "a restart would start that program"),
    ] {
        replace(&program, format!("#!/bin/sh\n{script}\n").as_bytes());
        let outcome = estate.proxy.command(&["reload"], &[]);
        assert_ne!(outcome.code, Some(0), "{}", outcome.stderr);
        let message = raised(&estate.proxy, REFUSED);
        for expected in ["did not take over", outlook] {
            assert!(
                message.contains(expected),
                "{expected:?} is not in {message}"
            );
        }
        replace(&program, &binary);
        wait_for(&estate.proxy, REFUSED, |alarm| alarm.is_none());
    }
}
