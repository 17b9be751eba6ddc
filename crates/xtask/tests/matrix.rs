//! Runs a few rows of the matrix: each prints one line, and the command exits 0 if no row of Proscenium is wrong.
#![expect(
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
fn the_page_lists_every_row_in_order() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["matrix", "--list"])
        .output()
        .expect("xtask starts");
    let listed = String::from_utf8_lossy(&output.stdout);
    let listed: Vec<_> = listed.lines().collect();
    assert!(listed.len() >= 60, "{listed:?}");
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/matrix.md");
    let page = std::fs::read_to_string(page).expect("the page is readable");
    let shown: Vec<_> = page
        .lines()
        .filter_map(|line| line.split_once("  "))
        .map(|(name, _)| name)
        .filter(|name| name.ends_with(", HTTP/1.1") || name.ends_with(", HTTP/2"))
        .collect();
    assert_eq!(shown, listed);
}
