//! `rollback`: the configurations that were applied last, and applying one of them again.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
};

use serde_json::Value;
use testkit::{CommandOutcome, Proxy, wait_until};

use crate::support::{Estate, LIMIT, assert_contains};

/// The kernel does not report changes; the proxy compares the files every 20 ms.
const OFTEN: &str = "watch = \"off\"\ninterval = \"20ms\"";
const PENDING: &str = "restart-pending:configuration";

fn with_grace(text: &str, minutes: u32) -> String {
    format!("drain_grace = \"{minutes}m\"\n{text}")
}

fn rollback(proxy: &Proxy, arguments: &[&str]) -> CommandOutcome {
    proxy.command(&["rollback"], arguments)
}

/// The stored configurations, the newest first.
#[track_caller]
fn listed(proxy: &Proxy) -> Vec<Value> {
    let outcome = rollback(proxy, &["--list", "--json"]);
    let list: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    list["configurations"].as_array().expect("a list").clone()
}

fn pending(status: &Value) -> Option<&str> {
    let alarms = status["alarms"].as_array()?;
    let found = alarms.iter().find(|alarm| alarm["key"] == PENDING)?;
    found["message"].as_str()
}

fn active(proxy: &Proxy) -> String {
    let shown = proxy.admin("GET", "/v1/configuration").json();
    shown["active"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn rollback_applies_the_previous_configuration_and_says_that_the_file_differs() {
    let estate = Estate::builder().materials(OFTEN).start();
    let proxy = &estate.proxy;
    let first = proxy.config_text();
    let second = with_grace(&first, 7);
    let stored = proxy.state_directory().join("configurations.json");
    wait_until(LIMIT, || stored.exists().then_some(())).expect("the text of the start is stored");
    let none = rollback(proxy, &["--yes"]);
    assert_eq!(none.code, Some(1), "{none:?}");
    assert_contains(&none.stderr, "no other configuration was applied before");
    proxy.write_config(&second);
    proxy.reload_applied();
    let list = listed(proxy);
    assert_eq!(list.len(), 2, "{list:?}");
    assert_eq!(
        (&list[0]["is_active"], &list[1]["is_active"]),
        (&true.into(), &false.into())
    );
    assert_eq!(fs::metadata(&stored).expect("a file").mode() & 0o777, 0o600);
    assert!(active(proxy).contains("drain_grace"));

    // Without a terminal and without --yes, nothing happens.
    let asked = rollback(proxy, &[]);
    assert_eq!(asked.code, Some(64), "{asked:?}");
    assert_eq!(proxy.generation(), 2);

    let applied = rollback(proxy, &["--yes"]);
    assert_eq!(applied.code, Some(0), "{applied:?}");
    assert_contains(&applied.stdout, "changed: drain_grace");
    assert_contains(&applied.stdout, "the configuration file was not changed");
    assert_eq!(proxy.generation(), 3);
    assert!(!active(proxy).contains("drain_grace"));
    assert_eq!(proxy.config_text(), second);
    let status = proxy.status();
    let message = pending(&status).expect("an alarm");
    let id = list[1]["id"].as_str().expect("an ID");
    assert_contains(message, id);
    assert_contains(message, "a reload or a restart would apply the file");
    let diff = proxy.command(&["config", "diff"], &[]);
    assert_eq!(diff.code, Some(1), "{diff:?}");
    assert_contains(&diff.stdout, "drain_grace");
    let audit = fs::read_to_string(proxy.state_directory().join("audit.log"));
    assert_contains(&audit.expect("the audit log"), "\"action\":\"rollback\"");

    // The text in the file ends the alarm, with the mode and the owner of the file.
    let file = proxy.config_path();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("it is ours");
    let written = rollback(proxy, &["--to", &id[..6], "--write", "--yes"]);
    assert_eq!(written.code, Some(0), "{written:?}");
    assert_contains(&written.stdout, "written to");
    assert_eq!(proxy.config_text(), first);
    assert_eq!(fs::metadata(&file).expect("a file").mode() & 0o7777, 0o640);
    proxy.wait_for_status("no alarm", |status| pending(status).is_none());
    let same = proxy.command(&["config", "diff"], &[]);
    assert_eq!(same.code, Some(0), "{same:?}");

    // The stored configurations outlast a restart.
    proxy.terminate();
    proxy.wait_for_exit(LIMIT);
    proxy.start_again();
    let list = listed(proxy);
    assert_eq!(list.len(), 2, "{list:?}");
    assert_eq!(list[0]["id"], *id);
}

#[test]
fn a_reload_after_a_rollback_applies_the_file_and_ends_the_alarm() {
    let estate = Estate::builder().materials(OFTEN).start();
    let proxy = &estate.proxy;
    proxy.write_config(&with_grace(&proxy.config_text(), 7));
    proxy.reload_applied();
    assert_eq!(rollback(proxy, &["--yes"]).code, Some(0));
    assert!(pending(&proxy.status()).is_some());
    proxy.reload_applied();
    assert!(active(proxy).contains("drain_grace"));
    assert_eq!(pending(&proxy.status()), None);
}

#[test]
fn a_configuration_that_is_no_longer_valid_is_not_applied() {
    let estate = Estate::builder().materials(OFTEN).start();
    let proxy = &estate.proxy;
    let first = proxy.config_text();
    let stored = proxy.state_directory().join("configurations.json");
    wait_until(LIMIT, || stored.exists().then_some(())).expect("it is stored");
    let invalid = with_grace(&first, 7).replace("drain_grace", "drain_graze");
    let text = fs::read_to_string(&stored).expect("a file");
    let mut list: Value = serde_json::from_str(&text).expect("JSON");
    let configurations = list["configurations"].as_array_mut().expect("a list");
    let mut other = configurations[0].clone();
    other["id"] = "0123456789abcdef".into();
    other["text"] = invalid.into();
    configurations.push(other);
    fs::write(&stored, list.to_string()).expect("it is ours");
    let refused = rollback(proxy, &["--yes"]);
    assert_eq!(refused.code, Some(78), "{refused:?}");
    assert_contains(&refused.stderr, "drain_graze");
    assert_contains(&refused.stderr, "generation 1 stays active");
    let unknown = rollback(proxy, &["--to", "ffff", "--yes"]);
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert_contains(&unknown.stderr, "rollback --list");
    assert_eq!(proxy.generation(), 1);
}
