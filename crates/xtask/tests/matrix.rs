//! Runs a few rows of the matrix: each prints one line, and the command exits 0 if no row of Proscenium is wrong.
#![allow(
    clippy::disallowed_methods,
    reason = "tests start programs and read the environment"
)]

use std::process::{Command, Stdio};

#[test]
fn each_row_prints_a_line_and_no_row_of_the_proxy_is_wrong() {
    for (only, rows) in [
        ("two CNs", 4),
        ("blocked, on an open", 2),
        ("another CA's CRL", 1),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
            .args(["matrix", "--only", only])
            .stdin(Stdio::null())
            .output()
            .expect("xtask starts");
        let text = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}{stderr}");
        let ok = text
            .lines()
            .filter(|line| line.contains(only) && line.ends_with(" ok"));
        assert_eq!(ok.count(), rows, "{text}");
        assert!(text.contains(&format!("0 of {rows} rows WRONG")), "{text}");
    }
}

#[test]
fn there_are_at_least_sixty_rows() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["matrix", "--list"])
        .output()
        .expect("xtask starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let rows = text.lines().count();
    assert!(rows >= 60, "{rows}: {text}");
}
