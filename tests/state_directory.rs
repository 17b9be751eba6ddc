//! The state directory: what survives a restart, and that an unusable directory raises an alarm and stops nothing.

use std::{fs, os::unix::fs::PermissionsExt};

use crate::support::{Estate, paths::CATALOG};

const UNUSABLE: &str = "proscenium_state_directory_unusable";

#[test]
fn the_state_directory_of_the_service_manager_is_created_for_its_owner_only() {
    let estate = Estate::start();
    let directory = estate.proxy.state_directory();
    let mode = fs::metadata(&directory)
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
    let state = estate.proxy.status()["state"].clone();
    assert_eq!(state["directory"], directory.display().to_string());
    assert!(state["unusable"].is_null(), "{state}");
    assert_eq!(estate.proxy.metrics().sum(UNUSABLE, &[]), 0.0);
}

#[test]
fn an_unusable_state_directory_is_an_alarm_and_stops_nothing() {
    let estate = Estate::builder()
        .file("occupied", "a file", 0o600)
        .with("[state]\ndirectory = \"{dir}/occupied\"")
        .start();
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    let status = estate.proxy.status();
    let why = status["state"]["unusable"].as_str().unwrap_or_default();
    assert!(why.contains("it is not a directory"), "{why}");
    assert_eq!(estate.proxy.metrics().sum(UNUSABLE, &[]), 1.0);
    let output = estate.proxy.stderr();
    assert!(output.contains("lost at the next restart"), "{output}");
    assert!(!estate.proxy.state_directory().exists());
}
