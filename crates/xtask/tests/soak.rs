//! Runs a short soak: the command exits 0 if no request is lost, and 1 if one is.

use std::process::{Command, Stdio};

#[test]
fn a_short_soak_loses_no_request() {
    // Other tests share the machine, so the limits are generous. A debug build needs more memory.
    let (code, text) = soak(&[
        "--minutes=0.2",
        "--crl-every=2",
        "--certificate-every=3",
        "--patience=20",
        "--growth-kib-max=32768",
        "--fault-every=10",
        "--restart-every=3",
        "--reload-every=3",
        "--slow-one-in=3",
    ]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("No request was lost."), "{text}");
    assert!(text.starts_with("PROSCENIUM_SEED="), "{text}");
    for counted in [
        "requests over HTTP/1.1",
        "requests over HTTP/2",
        "messages in tunnels",
        "CRLs swapped",
        "agents enrolled again",
        "certificates replaced",
        "uploads",
        "reloads",
        "members restarted",
        "faults of members",
    ] {
        let line = text.lines().find(|line| line.starts_with(counted));
        let number = line.and_then(|line| line[counted.len()..].split_whitespace().next());
        let number: Option<u64> = number.and_then(|number| number.parse().ok());
        assert!(number.is_some_and(|number| number > 0), "{counted}: {text}");
    }
}

#[test]
fn an_answer_meant_for_another_agent_is_a_lost_request() {
    let (code, text) = soak(&["--minutes=0.05", "--plant=identity"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("not the answer to this agent's request"),
        "{text}"
    );
    assert!(text.contains("files of the run"), "{text}");
}

#[test]
fn a_failure_that_no_injected_fault_explains_is_a_lost_request() {
    let (code, text) = soak(&["--minutes=0.05", "--plant=failure"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("502 without a fault"), "{text}");
}

#[test]
fn a_revoked_agent_that_is_still_served_is_a_miss() {
    let (code, text) = soak(&[
        "--minutes=0.1",
        "--crl-every=0.5",
        "--patience=1",
        "--plant=revocation",
    ]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("is revoked, and was not refused"), "{text}");
}

#[test]
fn a_proxy_that_stops_is_a_miss() {
    let (code, text) = soak(&["--minutes=0.1", "--crl-every=0.5", "--plant=stop"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("files of the run"), "{text}");
}

fn soak(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    let small = ["soak", "--debug", "--agents=6", "--tunnels=2"];
    command.args(small).args(arguments);
    let output = command
        .stdin(Stdio::null())
        .output()
        .expect("the soak starts");
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}
