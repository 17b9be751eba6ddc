//! The page of `proscenium ui`: who may use it, what it may read and change, and when it ends.

use std::{
    fs,
    os::fd::OwnedFd,
    path::Path,
    process::{Command, Stdio},
};

use rustix::{
    process::Signal,
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};
use serde_json::{Value, json};
use testkit::{Client, OperatorPage, Proxy, Response, wait_until};

use crate::support::{BINARY, Estate, LIMIT, paths::CATALOG};

fn page(proxy: &Proxy, arguments: &[&str]) -> OperatorPage {
    let config = proxy.config_path();
    OperatorPage::start(Path::new(BINARY), &config, arguments, Stdio::null())
}

#[test]
fn a_token_works_once_and_only_its_secret_opens_the_page() {
    let estate = Estate::start();
    let page = page(&estate.proxy, &[]);
    let status = |secret: &str| page.get("/api/status", secret).status;
    assert_eq!(status(""), 401);
    assert_eq!(status(page.token()), 401, "the token is not the secret");
    assert_eq!(page.client().get("/api/status").status, 401);
    assert_eq!(page.post("/session", "", &"0".repeat(64)).status, 401);
    let secret = page.open();
    assert_eq!(status(&secret), 200);
    let again = page.post("/session", "", page.token());
    assert_eq!(again.status, 401);
    assert!(
        again.text().contains("open the new address"),
        "{}",
        again.text()
    );
    assert_eq!(status(&secret), 200, "a second attempt changes nothing");
    let shown = page.get("/api/status", &secret).json();
    assert_eq!(shown["phase"], "serving");
    for answer in [page.get("/api/status", &secret), again] {
        assert_eq!(answer.headers.get("set-cookie"), None);
    }
}

#[test]
fn a_request_for_another_name_or_of_another_origin_is_refused() {
    let estate = Estate::start();
    let page = page(&estate.proxy, &[]);
    let secret = page.open();
    let address = page.address();
    for name in [
        "localhost",
        "attacker.example",
        "127.0.0.2",
        "127.0.0.1.attacker.example",
    ] {
        let client = Client::plain(address).server_name(name);
        for path in ["/", "/page.js", "/api/status", "/session"] {
            let answer = client.request("GET", path, &[("X-Proscenium-Secret", &secret)], b"");
            assert_eq!(answer.status, 403, "{name} {path}");
        }
    }
    let other_port = format!("http://127.0.0.1:{}", address.port() ^ 1);
    for origin in [
        "null",
        "http://attacker.example",
        &other_port,
        "https://127.0.0.1",
    ] {
        let fields = [("X-Proscenium-Secret", secret.as_str()), ("Origin", origin)];
        for path in ["/", "/api/status"] {
            let answer = page.client().request("GET", path, &fields, b"");
            assert_eq!(answer.status, 403, "{origin} {path}");
        }
        let token = page
            .client()
            .request("POST", "/session", &[("Origin", origin)], b"0");
        assert_eq!(token.status, 403, "{origin}");
    }
    let own = format!("http://{address}");
    let fields = [("X-Proscenium-Secret", secret.as_str()), ("Origin", &own)];
    let answer = page.client().request("GET", "/api/status", &fields, b"");
    assert_eq!(answer.status, 200);
}

#[test]
fn every_response_forbids_inline_script_frames_caches_and_referrers() {
    let estate = Estate::start();
    let page = page(&estate.proxy, &[]);
    let secret = page.open();
    let refused = Client::plain(page.address()).get("/");
    assert_eq!(refused.status, 403);
    let answers: [(u16, Response); 6] = [
        (200, page.client().get("/")),
        (200, page.client().get("/page.js")),
        (200, page.get("/api/status", &secret)),
        (401, page.client().get("/api/status")),
        (404, page.get("/api/metrics", &secret)),
        (403, refused),
    ];
    for (status, answer) in answers {
        assert_eq!(answer.status, status, "{}", answer.text());
        let header = |name| answer.headers.get(name).unwrap_or_default();
        let policy = header("content-security-policy");
        for part in [
            "default-src 'none'",
            "script-src 'self';",
            "style-src 'self';",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        ] {
            assert!(policy.contains(part), "{part} in {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(header("referrer-policy"), "no-referrer");
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("cache-control"), "no-store");
        assert_eq!(answer.headers.get("access-control-allow-origin"), None);
    }
}

#[test]
fn the_page_is_not_a_relay_for_the_whole_admin_api() {
    let estate = Estate::start();
    let page = page(&estate.proxy, &["--actions"]);
    let secret = page.open();
    for path in [
        "/v1/status",
        "/v1/reload",
        "/metrics",
        "/api/metrics",
        "/api/configuration",
        "/api/reload",
        "/api/../v1/reload",
        "/api/status/../../v1/reload",
    ] {
        for method in ["GET", "POST"] {
            let fields = [("X-Proscenium-Secret", secret.as_str())];
            let answer = page.client().request(method, path, &fields, b"");
            assert_eq!(answer.status, 404, "{method} {path}");
        }
    }
    assert_eq!(page.post("/api/status", &secret, "").status, 405);
    assert_eq!(estate.proxy.generation(), 1);
    for name in [
        "traffic",
        "history",
        "requests",
        "refusals",
        "certificates",
        "blocks",
    ] {
        assert_eq!(
            page.get(&format!("/api/{name}"), &secret).status,
            200,
            "{name}"
        );
    }
    assert_eq!(
        page.post("/api/who", &secret, &"x".repeat(9_000)).status,
        413
    );
}

#[test]
fn an_address_that_other_machines_reach_is_refused() {
    let estate = Estate::start();
    for address in ["0.0.0.0:8141", "192.0.2.1:8141", "[::]:8141"] {
        let refused = estate.proxy.command(&["ui", "--listen", address], &[]);
        assert_eq!(refused.code, Some(64), "{refused:?}");
        assert!(refused.stderr.contains("ssh -L"), "{refused:?}");
    }
}

#[test]
fn a_proxy_that_does_not_answer_is_named_before_the_page_opens() {
    let outcome = Command::new(BINARY)
        .args([
            "ui",
            "--listen",
            "127.0.0.1:0",
            "--socket",
            "/nonexistent/admin.sock",
        ])
        .output()
        .expect("runs");
    assert_eq!(outcome.status.code(), Some(1));
    let error = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert!(error.contains("/nonexistent/admin.sock"), "{error}");
}

#[test]
fn the_page_changes_nothing_without_actions() {
    let estate = Estate::start();
    let page = page(&estate.proxy, &[]);
    assert!(!page.actions);
    let secret = page.open();
    for (path, body) in changes(&estate) {
        assert_eq!(page.post(path, "", &body.to_string()).status, 401);
        let refused = page.post(path, &secret, &body.to_string());
        assert_eq!(refused.status, 403, "{path}");
        assert!(refused.text().contains("--actions"), "{}", refused.text());
    }
    assert!(!estate.proxy.state_directory().join("audit.log").exists());
}

/// The changes that the page may request, one request each.
fn changes(estate: &Estate) -> [(&'static str, Value); 4] {
    let member = estate.compilers[0].address();
    let state = |state: &str| json!({"pool": "compilers", "member": member, "state": state, "why": "kernel update"});
    [
        ("/api/member", state("drain")),
        ("/api/member", state("ready")),
        ("/api/block", json!({"certname": "web01", "why": "stolen"})),
        ("/api/unblock", json!({"certname": "web01"})),
    ]
}

#[test]
fn changes_need_a_reason_and_are_in_the_audit_log_as_those_of_the_operator() {
    let estate = Estate::start();
    let page = page(&estate.proxy, &["--actions"]);
    assert!(page.actions);
    let secret = page.open();
    for (path, mut body) in changes(&estate).into_iter().take(3) {
        body["why"] = json!("  ");
        assert_eq!(page.post(path, &secret, &body.to_string()).status, 422);
        body.as_object_mut().unwrap().remove("why");
        assert_eq!(page.post(path, &secret, &body.to_string()).status, 400);
    }
    for (path, body) in changes(&estate) {
        let answer = page.post(path, &secret, &body.to_string());
        assert_eq!(answer.status, 200, "{path} {}", answer.text());
    }
    let text = fs::read_to_string(estate.proxy.state_directory().join("audit.log")).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let seen: Vec<_> = lines
        .iter()
        .map(|line| {
            (
                line["action"].as_str().unwrap(),
                line["why"].as_str().unwrap_or(""),
            )
        })
        .collect();
    let expected = [
        ("drain", "kernel update"),
        ("ready", "kernel update"),
        ("block", "stolen"),
        ("unblock", ""),
    ];
    assert_eq!(seen, expected);
    let uid = rustix::process::geteuid().as_raw();
    assert!(lines.iter().all(|line| line["uid"] == uid), "{lines:?}");
}

#[test]
fn a_drain_can_have_an_end() {
    let estate = Estate::start();
    let page = page(&estate.proxy, &["--actions"]);
    let secret = page.open();
    let mut body = changes(&estate)[0].1.clone();
    for (until, status) in [
        ("tomorrow", 422),
        ("", 422),
        ("2h", 200),
        ("2099-01-31", 200),
    ] {
        body["until"] = json!(until);
        let answer = page.post("/api/member", &secret, &body.to_string());
        assert_eq!(answer.status, status, "{until}: {}", answer.text());
    }
    let member = estate.proxy.status()["pools"][1]["members"][0].clone();
    assert_eq!(
        member["administrative"]["until"], "2099-01-31T00:00:00Z",
        "{member}"
    );
}

#[test]
fn the_last_member_is_drained_only_by_force() {
    let estate = Estate::builder().compilers(1).start();
    let page = page(&estate.proxy, &["--actions"]);
    let secret = page.open();
    let mut body = changes(&estate)[0].1.clone();
    let refused = page.post("/api/member", &secret, &body.to_string());
    assert_eq!(refused.status, 409, "{}", refused.text());
    body["force"] = json!(true);
    assert_eq!(
        page.post("/api/member", &secret, &body.to_string()).status,
        200
    );
    body["state"] = json!("maintenance");
    assert_eq!(
        page.post("/api/member", &secret, &body.to_string()).status,
        400
    );
}

#[test]
fn a_search_finds_an_agent_with_its_last_runs() {
    let estate = Estate::start();
    for name in ["web01", "web02", "db01"] {
        let agent = estate.ca.agent(name);
        let catalog = CATALOG.replace("web01", name);
        assert_eq!(estate.client(&agent).get(&catalog).status, 200);
    }
    estate.wait_for_records(3);
    let page = page(&estate.proxy, &[]);
    let secret = page.open();
    let ask = |path: &str, name: &str| {
        let body = json!({"certname": name}).to_string();
        page.post(path, &secret, &body).json()
    };
    let found = ask("/api/agents", "WEB");
    assert_eq!((&found["seen"], &found["matches"]), (&json!(3), &json!(2)));
    assert_eq!(found["agents"][0]["certname"], "web01");
    assert_eq!(ask("/api/agents", "mail")["matches"], 0);
    assert_eq!(ask("/api/who", "web01")["verdict"], "SUCCESS");
    let runs = wait_until(LIMIT, || {
        let runs = ask("/api/runs", "web01");
        (runs["runs"][0]["requests"][0]["status"] == 200).then_some(runs)
    });
    let runs = runs.unwrap_or_else(|| panic!("{}", ask("/api/runs", "web01")));
    let request = runs["runs"][0]["requests"][0]["request"].as_str().unwrap();
    assert!(request.contains("/catalog/web01"), "{runs}");
}

#[test]
fn a_search_says_why_there_is_no_access_log() {
    let estate = Estate::builder()
        .access_log_alone("path = \"stdout\"")
        .start();
    let page = page(&estate.proxy, &[]);
    let runs = page
        .post("/api/runs", &page.open(), "{\"certname\": \"web01\"}")
        .json();
    assert_eq!(runs["runs"], json!([]));
    let problem = runs["problem"].as_str().unwrap();
    assert!(problem.contains("no access log that is a file"), "{runs}");
}

#[test]
fn history_and_probes_of_the_past_are_in_the_admin_api() {
    let estate = Estate::builder()
        .compiler_pool(crate::support::QUICK_CHECK)
        .start();
    estate.agent("web01").get(CATALOG);
    let page = page(&estate.proxy, &[]);
    let secret = page.open();
    estate.compilers[0].kill();
    let probes = |proxy: &Proxy| proxy.status()["pools"][1]["members"][0]["recent_probes"].clone();
    let failed = wait_until(LIMIT, || {
        let probes = probes(&estate.proxy);
        let all = probes.as_array()?.clone();
        let failed = all
            .iter()
            .filter(|probe| !probe["failure"].is_null())
            .count();
        (all.len() == 20 && failed > 0).then_some(())
    });
    assert!(failed.is_some(), "{}", probes(&estate.proxy));
    let recorded = wait_until(LIMIT, || {
        let history = page.get("/api/history", &secret).json();
        let recent = history["recent"].as_array()?.clone();
        recent
            .iter()
            .find(|period| period["work"]["catalog"]["requests"] == 1)
            .cloned()
    });
    let recorded = recorded.expect("a period of ten seconds has the catalog");
    assert!(
        recorded["milliseconds"].as_u64().unwrap() >= 9_000,
        "{recorded}"
    );
}

#[test]
fn the_page_ends_with_a_signal() {
    let estate = Estate::start();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut page = page(&estate.proxy, &[]);
        page.signal(signal);
        assert!(page.wait_for_end().success(), "{signal:?}");
    }
}

#[test]
fn enter_opens_a_new_page_and_the_end_of_the_terminal_ends_it() {
    let estate = Estate::start();
    let terminal =
        openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
    grantpt(&terminal).expect("the terminal is ours");
    unlockpt(&terminal).expect("the terminal is new");
    let name = ptsname(&terminal, Vec::new()).expect("a name");
    let own = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(Path::new(name.to_str().expect("text")))
        .expect("the other side");
    let stdin = Stdio::from(OwnedFd::from(own));
    let config = estate.proxy.config_path();
    let mut page = OperatorPage::start(Path::new(BINARY), &config, &[], stdin);
    let (first, secret) = (page.url.clone(), page.open());
    rustix::io::write(&terminal, b"\n").expect("a key is pressed");
    page.read_address();
    assert_ne!(page.url, first);
    assert_eq!(page.get("/api/status", &secret).status, 401);
    let secret = page.open();
    assert_eq!(page.get("/api/status", &secret).status, 200);
    drop(terminal);
    assert!(page.wait_for_end().success());
}
