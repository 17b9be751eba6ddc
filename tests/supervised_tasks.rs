//! A task of the process that panics is an alarm, starts again, and ends no other task.

use serde_json::Value;
use testkit::wait_until;

use crate::support::{Estate, LIMIT, done, paths::CATALOG};

/// Tasks that last as long as the process.
const TASKS: [&str; 12] = [
    "block-expiry",
    "ca-examination",
    "cas-seen",
    "changed-files",
    "crl-fetch",
    "dns",
    "fleet",
    "log-signal",
    "member-state-expiry",
    "own-renewal",
    "reload-signal",
    "state-retry",
];

#[test]
fn every_task_of_the_process_that_panics_is_an_alarm_and_starts_again() {
    if !cfg!(debug_assertions) {
        // A release build has no panics for tests.
        return;
    }
    let names = TASKS.join(",");
    let estate = Estate::builder()
        .proxy(move |proxy| proxy.env("PROSCENIUM_PANICKING_TASKS", &names))
        .start();
    let agent = estate.ca.agent("web01");
    let raised = wait_until(LIMIT, || {
        (ended(&estate.proxy.status()) == TASKS).then_some(())
    });
    assert!(raised.is_some(), "{}", estate.proxy.status()["alarms"]);
    let restarted = wait_until(LIMIT, || {
        let stderr = estate.proxy.stderr();
        let count = |task: &&str| {
            let field = format!("task={task} why=");
            let events = stderr.lines().filter(|line| line.contains(&field));
            events.filter(|line| line.contains("ERROR")).count()
        };
        TASKS.iter().all(|task| count(task) > 1).then_some(())
    });
    assert!(restarted.is_some(), "{}", estate.proxy.stderr());
    // Agents and operators are served.
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    done(&estate.proxy, &["block"], &["web02", "--why", "stolen"]);
}

/// The names of the tasks that have an alarm, in order.
fn ended(status: &Value) -> Vec<String> {
    let alarms = status["alarms"].as_array().expect("a list").iter();
    let keys = alarms.filter_map(|alarm| alarm["key"].as_str());
    let ended = keys.filter_map(|key| key.strip_prefix("task-ended:"));
    let mut ended: Vec<_> = ended.map(str::to_owned).collect();
    ended.sort();
    ended
}
