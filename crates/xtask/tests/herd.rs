//! Runs a small herd: the command exits 0 if no agent run fails, and 1 if one does.

use std::process::{Command, Stdio};

#[test]
fn no_run_fails_in_a_small_herd_and_a_rolling_restart() {
    let (code, text) = herd(&["--agents=20", "--herd=100"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("No run failed."), "{text}");
    assert_eq!(
        text.matches("restarted and at work after").count(),
        4,
        "{text}"
    );
}

#[test]
fn runs_that_fail_on_a_full_queue_are_noticed() {
    let (code, text) = herd(&["--agents=20", "--herd=200", "--plant=small-queue"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(": 503"), "{text}");
}

fn herd(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    let output = command
        .args(["herd", "--debug"])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("the herd starts");
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}
