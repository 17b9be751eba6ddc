//! Tasks of the process are started where a panic is noticed (`state::supervise`).

use super::{is_test, sources};

/// The crates of the process.
const CRATES: [&str; 5] = [
    "state",
    "membership",
    "trust_keeper",
    "lifecycle",
    "operator",
];
/// The file that starts tasks, and the one that waits for the end of the task for hand-overs.
const STARTERS: [&str; 2] = [
    "crates/state/src/supervise.rs",
    "crates/lifecycle/src/app.rs",
];

#[test]
fn a_panic_of_every_task_is_noticed() {
    let mut unnoticed = Vec::new();
    for (path, text) in sources() {
        let of_process = CRATES.map(|name| path.starts_with(format!("crates/{name}/src")));
        let is_starter = STARTERS.iter().any(|file| path.ends_with(file));
        if !of_process.contains(&true) || is_starter || is_test(&path) {
            continue;
        }
        let program = text.split("#[cfg(test)]").next().unwrap_or_default();
        for call in ["tokio::spawn(", "spawn_blocking("] {
            if program.contains(call) {
                unnoticed.push(format!("{}: {call}", path.display()));
            }
        }
    }
    assert!(
        unnoticed.is_empty(),
        "use SupervisedTasks, outliving or blocking of state::supervise: {unnoticed:#?}"
    );
}
