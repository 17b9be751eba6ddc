//! The admin socket of a running proxy: permissions, and the responses of the API.

use std::{
    fs,
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
    },
};

use serde_json::Value;
use testkit::{Ca, Client, Proxy, Response};

use crate::support::{self, assert_contains};

#[test]
fn only_the_owner_may_use_the_admin_socket() {
    let proxy = started(&Ca::new(), "127.0.0.1:1");
    let metadata = fs::metadata(proxy.admin_socket()).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_start_does_not_take_over_a_socket_that_another_process_serves() {
    let first = started(&Ca::new(), "127.0.0.1:1");
    let port = first.address().port().to_string();
    let second = support::proxy(&Ca::new())
        .whole(&first.config_text().replace(&port, "{port}"))
        .try_start();
    let outcome = second.err().expect("the socket is taken");
    // The exit code allows a retry, because the other process may exit.
    assert_eq!(outcome.code, Some(75), "{}", outcome.stderr);
    assert!(
        outcome
            .stderr
            .contains("another process accepts connections there"),
        "{}",
        outcome.stderr
    );
    assert!(!outcome.stderr.contains("listening"), "{}", outcome.stderr);
    assert_eq!(first.status()["phase"], "serving");
}

#[test]
fn a_file_at_the_path_of_the_admin_socket_is_not_removed() {
    let outcome = support::proxy(&Ca::new())
        .file("admin.sock", "not to be lost", 0o600)
        .without_members()
        .try_start()
        .err()
        .expect("no socket can be there");
    assert_contains(&outcome.stderr, "a file that is not a socket");
}

#[test]
fn a_stopping_process_leaves_the_socket_of_its_successor() {
    let proxy = started(&Ca::new(), "127.0.0.1:1");
    let socket = proxy.admin_socket();
    fs::remove_file(&socket).unwrap();
    let _successor = UnixListener::bind(&socket).unwrap();
    proxy.terminate();
    assert_eq!(proxy.wait_for_end(support::LIMIT).code, Some(0));
    assert!(UnixStream::connect(&socket).is_ok(), "its socket is gone");
}

#[test]
fn silent_callers_do_not_delay_other_callers() {
    let proxy = started(&Ca::new(), "127.0.0.1:1");
    let _silent: Vec<UnixStream> = (0..20)
        .map(|_| UnixStream::connect(proxy.admin_socket()).unwrap())
        .collect();
    assert_eq!(proxy.status()["phase"], "serving");
}

#[test]
fn status_shows_listeners_pools_and_the_active_crls() {
    let ca = Ca::new();
    let proxy = started(&ca, "127.0.0.1:1");
    let status = proxy.status();
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(status["generation"]["number"], 1);
    assert_eq!(status["last_reload"], Value::Null);
    assert_eq!(status["listeners"][0]["name"], "agents");
    assert_eq!(
        status["listeners"][0]["address"],
        proxy.address().to_string()
    );
    let pools = status["pools"].as_array().unwrap();
    let names: Vec<&str> = pools
        .iter()
        .filter_map(|pool| pool["name"].as_str())
        .collect();
    assert_eq!(names, ["ca", "compilers"]);
    let number = ca.crl_number().to_string();
    let crls = status["trust"]["crls"].as_array().unwrap();
    assert!(
        crls.iter().any(|crl| crl["number"] == number.as_str()),
        "{crls:?}"
    );
    assert!(
        crls.iter()
            .all(|crl| crl["agent_copy_age_seconds"].is_u64()),
        "{crls:?}"
    );
}

#[test]
fn metrics_are_prometheus_text_unless_the_scraper_prefers_openmetrics() {
    let proxy = started(&Ca::new(), "127.0.0.1:1");
    let answer = proxy.admin("GET", "/metrics");
    let content_type = "text/plain; version=0.0.4; charset=utf-8";
    assert_eq!(
        (answer.status, answer.headers.only("content-type")),
        (200, content_type)
    );
    let text = answer.text();
    assert!(!text.contains("# EOF") && !text.contains("# UNIT"));
    assert!(text.contains("# TYPE proscenium_requests_total counter\n"));
}

#[test]
fn a_refused_reload_is_422_with_every_problem_in_its_report() {
    let proxy = started(&Ca::new(), "127.0.0.1:1");
    proxy.edit_config("[pools.ca]", "[pools.ca]\ncolour = \"red\"\nshape = 7");
    let answer = proxy.admin("POST", "/v1/reload");
    let outcome = answer.json();
    assert_eq!(
        (answer.status, &outcome["result"]),
        (422, &Value::from("refused"))
    );
    let report = outcome["report"].as_str().unwrap();
    assert!(
        report.contains("colour") && report.contains("shape"),
        "{report}"
    );
    assert_eq!(proxy.generation(), 1);
}

#[test]
fn unknown_api_requests_are_refused_with_a_list_of_the_known_ones() {
    let proxy = started(&Ca::new(), "127.0.0.1:1");
    for (method, target, status, expected) in [
        ("GET", "/v2/status", 404, "GET /v1/status"),
        ("GET", "/v1/reload", 405, "POST"),
        ("POST", "/v1/status", 405, "GET"),
        (
            "POST",
            "/v1/pools/compilers/members/127.0.0.1:1",
            400,
            "drain",
        ),
    ] {
        let answer = proxy.admin(method, target);
        assert_eq!(answer.status, status, "{method} {target}");
        let error = answer.json()["detail"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn an_administrative_state_survives_a_reload() {
    let ca = Ca::new();
    let proxy = started(&ca, "127.0.0.1:1");
    set_state(&proxy, "127.0.0.1:1", "maintenance");
    ca.renew_crl();
    proxy.swap_crl();
    let status = proxy.status();
    assert_eq!(status["generation"]["number"], 2);
    let member = &status["pools"][1]["members"][0];
    assert_eq!(member["administrative_state"], "maintenance");
}

fn started(ca: &Ca, compiler: &str) -> Proxy {
    let pool = |name: &str, member: &str| {
        format!("[pools.{name}]\nscheme = \"http\"\nmembers = [\"{member}\"]")
    };
    support::proxy(ca)
        .with(&pool("ca", "127.0.0.1:2"))
        .with(&pool("compilers", compiler))
        .start()
}

fn set_state(proxy: &Proxy, member: &str, state: &str) -> Response {
    let target = format!("/v1/pools/compilers/members/{member}");
    let body = format!("{{\"state\": \"{state}\", \"force\": true}}");
    Client::unix(&proxy.admin_socket()).request("POST", &target, &[], body.as_bytes())
}
