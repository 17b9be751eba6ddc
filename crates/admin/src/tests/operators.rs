//! Conditions, permissions, the audit log, events, and the description of the API.

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

use super::{Admin, Fake, refusal_status};
use crate::*;

const DRAIN: &str = r#"{"state": "drain", "why": "upgrade"}"#;

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")
}

fn post(path: &str, fields: &str, body: &str) -> String {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nHost: x\r\n{fields}Content-Length: {length}\r\n\r\n{body}")
}

fn field<'a>(answer: &'a str, name: &str) -> &'a str {
    let line = answer.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name} in {answer}"))
}

fn json(answer: &str) -> Value {
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap()
}

#[tokio::test]
async fn an_error_is_a_problem_detail() {
    let admin = Admin::start(Fake::default());
    let answer = admin.raw(&get("/v1/nothing")).await;
    assert_eq!(field(&answer, "content-type: "), "application/problem+json");
    let problem = json(&answer);
    assert_eq!(problem["type"], "about:blank");
    assert_eq!(problem["title"], "Not Found");
    assert_eq!(problem["status"], 404);
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("GET and POST /v1/blocks")
    );
}

#[tokio::test]
async fn a_change_with_the_tag_of_an_earlier_state_changes_nothing() {
    let admin = Admin::start(Fake::default());
    for (read, change, body) in [
        (
            "/v1/blocks",
            "/v1/blocks",
            r#"{"blocked": {"certname": "web03"}, "why": "lost"}"#,
        ),
        ("/v1/blocks", "/v1/blocks/lift", r#"{"certname": "web01"}"#),
        (
            "/v1/members/state",
            "/v1/members/state",
            r#"{"members": {"member": "c1:8140"}, "state": "drain"}"#,
        ),
        ("/v1/pools/p/members/m", "/v1/pools/p/members/m", DRAIN),
        ("/v1/log-level", "/v1/log-level", r#"{"level": "debug"}"#),
        ("/v1/configuration", "/v1/reload", ""),
    ] {
        let stale = admin
            .raw(&post(change, "If-Match: \"0000\"\r\n", body))
            .await;
        assert!(stale.starts_with("HTTP/1.1 412"), "{change}: {stale}");
        assert!(admin.control.audit.lock().unwrap().is_empty(), "{change}");
        let shown = admin.raw(&get(read)).await;
        let tag = field(&shown, "etag: ");
        let current = admin
            .raw(&post(change, &format!("If-Match: {tag}\r\n"), body))
            .await;
        assert!(!current.starts_with("HTTP/1.1 412"), "{change}: {current}");
        assert_eq!(
            admin.control.audit.lock().unwrap().drain(..).count(),
            1,
            "{change}"
        );
    }
    for change in ["/v1/crl/fetch", "/v1/reopen-logs"] {
        let answer = admin.raw(&post(change, "If-Match: *\r\n", "")).await;
        assert!(answer.starts_with("HTTP/1.1 412"), "{answer}");
    }
}

#[tokio::test]
async fn every_change_is_in_the_audit_log() {
    let admin = Admin::start(Fake::default());
    admin.raw(&post("/v1/pools/p/members/m", "", DRAIN)).await;
    admin
        .raw(&post("/v1/blocks/lift", "", r#"{"certname": "web09"}"#))
        .await;
    admin.raw(&post("/v1/reload", "", "")).await;
    let entries = admin.control.audit.lock().unwrap();
    let [drain, unblock, reload] = entries.as_slice() else {
        panic!("{entries:?}")
    };
    assert_eq!(drain.action, "drain");
    assert_eq!(drain.subject["member"], "m");
    assert_eq!(drain.why, "upgrade");
    assert_eq!(drain.result, "done");
    assert!(drain.uid.is_some());
    assert_eq!(unblock.action, "unblock");
    assert!(
        unblock.result.contains("web09 is not blocked"),
        "{unblock:?}"
    );
    assert_eq!(reload.action, "reload");
    assert_eq!(reload.before["number"], reload.after["number"]);
}

#[tokio::test]
async fn an_account_does_what_its_group_permits() {
    let explain = post("/v1/explain", "", r#"{"method": "GET", "url": "/"}"#);
    let drain = post("/v1/pools/p/members/m", "", DRAIN);
    let turn = r#"{"request": "4f", "command": "true", "timeout_seconds": 60}"#;
    let turn = post("/v1/fleet/turn", "", turn);
    for (permission, read, operate) in [
        (Permission::None, "403", "403"),
        (Permission::Read, "200", "403"),
        (Permission::Operate, "200", "200"),
    ] {
        let admin = Admin::start(Fake {
            permission,
            ..Fake::default()
        });
        for (request, expected) in [
            (&get("/v1/status"), read),
            (&get("/v1/openapi.json"), read),
            (&get("/v1/pools/p/members/m"), read),
            (&explain, read),
            (&drain, operate),
            (&turn, operate),
        ] {
            let answer = admin.raw(request).await;
            assert_eq!(
                &answer[9..12],
                expected,
                "{permission:?}: {request} {answer}"
            );
        }
        let refused = admin.control.audit.lock().unwrap();
        let refused = refused.iter().filter(|entry| entry.action == "refused");
        assert_eq!(refused.count(), usize::from(permission == Permission::Read));
    }
}

#[tokio::test]
async fn a_turn_has_one_line_in_the_audit_log_however_often_it_is_asked_for() {
    let admin = Admin::start(Fake::default());
    let client = admin.client();
    let mut request = TurnRequest {
        request: "4f".to_owned(),
        command: "systemctl restart proscenium".to_owned(),
        timeout_seconds: 60,
        had_turn: false,
    };
    for had_turn in [false, true, true] {
        request.had_turn = had_turn;
        assert!(client.ask_for_turn(&request).await.unwrap().has_turn);
    }
    request.timeout_seconds = 0;
    let refused = client.ask_for_turn(&request).await.unwrap_err();
    assert_eq!(refusal_status(&refused), Some(422), "{refused}");
    let end = TurnEnd {
        request: "4f".to_owned(),
    };
    let refused = client.end_turn(&end).await.unwrap_err();
    assert_eq!(refusal_status(&refused), Some(404), "{refused}");
    let entries = admin.control.audit.lock().unwrap();
    let [entry] = entries.as_slice() else {
        panic!("{entries:?}")
    };
    assert_eq!(entry.action, "fleet-turn");
    assert_eq!(entry.subject["command"], "systemctl restart proscenium");
}

#[tokio::test]
async fn past_events_are_selected_by_time_and_number() {
    let admin = Admin::start(Fake::default());
    let client = admin.client();
    let all = client.past_events(None, None).await.unwrap().events;
    assert_eq!(all.len(), 3);
    let since = client.past_events(Some(&all[1].at), None).await.unwrap();
    assert_eq!(since.events, all[1..]);
    let one = client.past_events(Some(&all[1].at), Some(1)).await.unwrap();
    assert_eq!(one.events, all[1..2]);
    let path = "/v1/events/history";
    for (query, expected) in [
        ("", "200"),
        ("?since=2023-11-14", "200"),
        ("?since=2023-11-14T23:13:20%2B01:00&limit=7", "200"),
        ("?since=yesterday", "400"),
        ("?limit=-1", "400"),
        ("?limit=4294967296", "400"),
        ("?from=2023-11-14", "400"),
    ] {
        let answer = admin.raw(&get(&format!("{path}{query}"))).await;
        assert_eq!(&answer[9..12], expected, "{query}: {answer}");
    }
}

#[tokio::test]
async fn events_show_the_state_and_then_its_changes() {
    let admin = Admin::start(Fake::default());
    let mut stream = UnixStream::connect(&admin.socket).await.unwrap();
    stream
        .write_all(get("/v1/events").as_bytes())
        .await
        .unwrap();
    let mut read = Vec::new();
    let member = r#""member":"c1:8140","health":"up""#;
    read_until(&mut stream, &mut read, member).await;
    admin.control.status.lock().unwrap().pools[0].members[0].health = MemberHealth::Down;
    let raised = AlarmStatus {
        severity: AlarmSeverity::Critical,
        key: "pool-unavailable:compilers".to_owned(),
        since: std::time::SystemTime::UNIX_EPOCH.into(),
        message: "no member".to_owned(),
        effect: "Runs fail.".to_owned(),
        first_step: "Run `proscenium status`.".to_owned(),
        runbook: "operating/health.md".to_owned(),
        caused_by: None,
    };
    admin.control.status.lock().unwrap().alarms = vec![raised];
    read_until(&mut stream, &mut read, r#""health":"down""#).await;
    read_until(
        &mut stream,
        &mut read,
        r#""key":"pool-unavailable:compilers""#,
    )
    .await;
    read_until(&mut stream, &mut read, "event: rates").await;
    read_until(&mut stream, &mut read, r#""failures_per_second":0.0"#).await;
    admin.control.status.lock().unwrap().alarms.clear();
    read_until(&mut stream, &mut read, r#""active":false"#).await;
    admin.stop.send(true).unwrap();
    stream.read_to_end(&mut read).await.unwrap();
}

/// Reads until this text has arrived.
async fn read_until(stream: &mut UnixStream, read: &mut Vec<u8>, wanted: &str) {
    while !String::from_utf8_lossy(read).contains(wanted) {
        let length = stream.read_buf(read).await.unwrap();
        assert!(
            length > 0,
            "{wanted} is not in {}",
            String::from_utf8_lossy(read)
        );
    }
}

#[tokio::test]
async fn one_event_stream_too_many_is_refused() {
    let admin = Admin::start(Fake::default());
    let mut streams = Vec::new();
    for _ in 0..8 {
        let mut stream = UnixStream::connect(&admin.socket).await.unwrap();
        stream
            .write_all(get("/v1/events").as_bytes())
            .await
            .unwrap();
        read_until(&mut stream, &mut Vec::new(), "event: ").await;
        streams.push(stream);
    }
    let answer = admin.raw(&get("/v1/events")).await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    drop(streams);
    // The slots are free when the server has noticed.
    loop {
        let mut stream = UnixStream::connect(&admin.socket).await.unwrap();
        stream
            .write_all(get("/v1/events").as_bytes())
            .await
            .unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.unwrap();
        if head.ends_with(b"200") {
            break;
        }
    }
}

#[tokio::test]
async fn the_description_has_every_endpoint_and_the_forms_of_bodies() {
    let admin = Admin::start(Fake::default());
    let description = json(&admin.raw(&get("/v1/openapi.json")).await);
    assert!(description["openapi"].as_str().unwrap().starts_with("3.1"));
    let paths = &description["paths"];
    for path in ["/v1/status", "/metrics", "/v1/events", "/v1/members/state"] {
        assert!(paths[path]["get"].is_object(), "{path}");
    }
    let block = &paths["/v1/blocks"]["post"];
    assert!(block["requestBody"].is_object() && block["responses"]["default"].is_object());
    assert!(description["components"]["schemas"]["Problem"].is_object());
}
