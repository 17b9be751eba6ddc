//! Runs the demonstration: it exits 0 if every expectation is seen and 1 if one is missed, and its printed commands
//! work.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Output, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use testkit::Tool;

#[test]
fn every_expectation_is_seen() {
    let output = demo(&[]).output().expect("the demonstration starts");
    let (code, text) = outcome(&output);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("every one seen"), "{text}");
    assert!(!text.contains('✗'), "{text}");
    assert!(!text.contains('\x1b'), "colours are for terminals: {text}");
}

#[test]
fn a_missed_expectation_exits_1_and_is_named() {
    for (plant, missed) in [
        ("enrolment", "GET  /puppet-ca/v1/certificate/web01"),
        ("runs", "one compiler did all the work"),
        ("forgery", "raw bytes that arrived contain \"admin\""),
        ("revocation", "PUT  /puppet/v3/report/web02"),
        ("death", "GET  /puppet/v3/node/web01"),
    ] {
        let output = demo(&["--plant", plant]).output();
        let (code, text) = outcome(&output.expect("the demonstration starts"));
        assert_eq!(code, Some(1), "{plant}: {text}");
        let listed = text.split("expectations not seen:").nth(1);
        assert!(
            listed.is_some_and(|listed| listed.contains(missed)),
            "{plant}: {text}"
        );
    }
}

#[test]
fn the_printed_commands_work() {
    if Tool::Curl.command().is_none() || Tool::Openssl.command().is_none() {
        return;
    }
    let mut running = RunningDemo(
        demo(&["--keep"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the demonstration starts"),
    );
    let mut reader = BufReader::new(running.0.stdout.take().expect("stdout is a pipe"));
    let lines = lines_to_try(&mut reader);
    let (cd, lines) = lines.split_first().expect("cd comes first");
    assert_eq!(lines.len(), ANSWERS.len(), "{lines:#?}");
    for (line, answer) in lines.iter().zip(ANSWERS) {
        let printed = shell(cd, line);
        assert!(printed.contains(answer), "{line}: {printed}");
    }
    let subject = shell(cd, "openssl x509 -in web03.pem -noout -subject");
    assert!(subject.contains("web03"), "{subject}");

    interrupt(&running.0);
    let mut rest = String::new();
    reader.read_to_string(&mut rest).expect("text");
    assert!(
        rest.contains("/puppet-ca/v1/certificate/web03  no identity header"),
        "{rest}"
    );
    assert!(
        rest.contains("/puppet/v3/catalog/web01  SUCCESS CN=web01"),
        "{rest}"
    );
    assert!(!rest.contains("admin"), "{rest}");
    assert_eq!(
        running.0.wait().expect("the demonstration exits").code(),
        Some(0)
    );
}

/// Text that the output of each printed command must contain, in order.
const ANSWERS: &[&str] = &[
    r#""name":"web01""#,
    r#""name":"web01""#,
    "requires a certificate",
    "revoked",
    "",
    "",
    "",
    "\"serving\"",
    "proscenium_",
];

/// Stops the demonstration when the test ends.
struct RunningDemo(Child);

impl Drop for RunningDemo {
    fn drop(&mut self) {
        // The process may already have exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn demo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.arg("demo").args(arguments).stdin(Stdio::null());
    command
}

fn outcome(output: &Output) -> (Option<i32>, String) {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

/// The printed commands: indented lines that start a program, up to the last heading.
fn lines_to_try(reader: &mut impl BufRead) -> Vec<String> {
    let mut lines = Vec::new();
    for line in reader.lines() {
        let line = line.expect("text");
        let program = line.split_whitespace().next().unwrap_or_default();
        if ["cd", "curl", "openssl"].contains(&program) {
            lines.push(line.trim().to_owned());
        }
        if line.starts_with("What arrives") {
            return lines;
        }
    }
    panic!("the demonstration ended before it printed all commands: {lines:?}")
}

/// Runs a command, which must succeed, and returns its standard output.
fn shell(cd: &str, line: &str) -> String {
    let script = format!("{cd} && {line}");
    let output = Command::new("sh")
        .args(["-c", &script])
        .output()
        .expect("sh starts");
    assert!(
        output.status.success(),
        "{line}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn interrupt(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).expect("the demonstration runs");
}
