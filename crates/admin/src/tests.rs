//! The control plane over a real socket, with a stand-in behind it.

use std::{os::unix::net::UnixListener as StdListener, path::PathBuf, sync::Arc, time::SystemTime};

use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    sync::{Semaphore, watch},
    task::{JoinHandle, JoinSet},
};

use super::*;
use samples::status;
use stand_in::Fake;

mod operators;
pub(crate) mod samples;
pub(crate) mod stand_in;

/// The status code of a refusal, which its text does not have.
fn refusal_status(error: &AdminClientError) -> Option<u16> {
    match error {
        AdminClientError::Refused { status, .. } => Some(status.as_u16()),
        _ => None,
    }
}

#[tokio::test]
async fn the_client_reads_the_status_of_the_control() {
    let admin = Admin::start(Fake::default());
    let shown = admin.client().status().await.unwrap();
    assert_eq!(shown, status());
}

#[tokio::test]
async fn the_json_uses_the_words_of_the_vocabulary() {
    let admin = Admin::start(Fake::default());
    let answer = admin
        .raw("GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n")
        .await;
    for expected in [
        "HTTP/1.1 200 OK\r\n",
        "content-type: application/json\r\n",
        "connection: close\r\n",
        r#""phase": "serving""#,
        r#""health": "up""#,
        r#""administrative_state": "ready""#,
        r#""in_flight": 3"#,
        r#""loaded_at": "1970-01-01T00:00:00Z""#,
        r#""result": "refused""#,
    ] {
        assert!(answer.contains(expected), "{expected} is not in {answer}");
    }
}

#[tokio::test]
async fn metrics_are_in_the_format_that_the_scraper_prefers() {
    let admin = Admin::start(Fake::default());
    for (accept, content_type, format) in [
        ("", "text/plain; version=0.0.4; charset=utf-8", "Text"),
        (
            "Accept: text/plain;q=0.5\r\nAccept: application/openmetrics-text; version=1.0.0\r\n",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            "OpenMetrics",
        ),
    ] {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{accept}\r\n");
        let answer = admin.raw(&request).await;
        assert!(
            answer.contains(&format!("content-type: {content_type}\r\n")),
            "{answer}"
        );
        assert!(answer.contains(&format!("\r\n\r\n{format}")), "{answer}");
    }
    let head = admin.raw("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"));
}

#[tokio::test]
async fn a_reload_is_reported_by_status_code_and_text() {
    for (result, status_line) in [
        (ReloadResult::Applied, "HTTP/1.1 200 OK"),
        (ReloadResult::Unchanged, "HTTP/1.1 200 OK"),
        (ReloadResult::HandedOver, "HTTP/1.1 200 OK"),
        (ReloadResult::Refused, "HTTP/1.1 422 Unprocessable Entity"),
        (ReloadResult::Failed, "HTTP/1.1 422 Unprocessable Entity"),
        (ReloadResult::Stopping, "HTTP/1.1 409 Conflict"),
    ] {
        let admin = Admin::start(Fake {
            result,
            ..Fake::default()
        });
        let answer = admin
            .raw("POST /v1/reload HTTP/1.1\r\nHost: x\r\n\r\n")
            .await;
        assert!(answer.starts_with(status_line), "{result:?}: {answer}");
        let expected = ReloadOutcome {
            result,
            generation: 7,
            report: "what was found".to_owned(),
        };
        assert_eq!(admin.client().reload().await.unwrap(), expected);
    }
}

#[tokio::test]
async fn a_member_state_reaches_the_control_whatever_its_name() {
    let admin = Admin::start(Fake::default());
    for (pool, member, state) in [
        (
            "compilers",
            "c1.example.com:8140",
            AdministrativeState::Drain,
        ),
        (
            "compilers",
            "unix:/run/a b/%2F.sock",
            AdministrativeState::Maintenance,
        ),
        ("p/o?o#l", "[::1]:8140", AdministrativeState::Ready),
    ] {
        let members = MemberSelection {
            pool: Some(pool.to_owned()),
            member: Some(member.to_owned()),
            host: None,
        };
        let request = MemberStateRequest::new(members, MemberStateChange::to(state));
        let client = admin.client();
        let outcome = client.set_member_states(&request).await.unwrap();
        assert_eq!(outcome.members[0].member.administrative_state, state);
        let set = admin.control.set.lock().unwrap().pop().unwrap();
        assert_eq!(set, request);
        assert_eq!(client.member(pool, member).await.unwrap().address, member);
        let one = admin
            .raw(&format!(
                "POST /v1/pools/{}/members/{} HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n{{\"state\": \"ready\"}}  ",
                percent_encoding::utf8_percent_encode(pool, percent_encoding::NON_ALPHANUMERIC),
                percent_encoding::utf8_percent_encode(member, percent_encoding::NON_ALPHANUMERIC),
            ))
            .await;
        assert!(one.starts_with("HTTP/1.1 200"), "{one}");
        let set = admin.control.set.lock().unwrap().pop().unwrap();
        assert_eq!(set.members, request.members);
        assert_eq!(set.state, AdministrativeState::Ready);
    }
}

#[tokio::test]
async fn an_unknown_member_is_refused_with_the_known_names() {
    let admin = Admin::start(Fake::default());
    let error = admin
        .client()
        .member("compilers", "unknown")
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"no member "unknown" in pool "compilers"; the members are: c1:8140, c2:8140"#
    );
}

#[tokio::test]
async fn an_invalid_request_is_refused_in_one_sentence() {
    let admin = Admin::start(Fake::default());
    let long_body = format!(
        "POST /v1/pools/p/members/m HTTP/1.1\r\nContent-Length: 5000\r\n\r\n{}",
        "x".repeat(5000)
    );
    let long_head = format!(
        "GET /v1/status HTTP/1.1\r\nX: {}\r\n\r\n",
        "x".repeat(20_000)
    );
    let state = |body: &str| {
        let length = body.len();
        format!("POST /v1/pools/p/members/m HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    for (request, status_line, expected) in [
        ("GET / HTTP/1.1\r\n\r\n", "404 Not Found", "GET /v1/status"),
        (
            "GET /v1/reload HTTP/1.1\r\n\r\n",
            "405 Method Not Allowed",
            "use POST",
        ),
        (
            "GET /v1/reload HTTP/1.1\r\n\r\n",
            "405 Method Not Allowed",
            "allow: POST\r\n",
        ),
        (
            "POST /v1/status HTTP/1.1\r\n\r\n",
            "405 Method Not Allowed",
            "use GET",
        ),
        (
            "DELETE /metrics HTTP/1.1\r\n\r\n",
            "405 Method Not Allowed",
            "DELETE is not supported",
        ),
        (&long_body, "413 Payload Too Large", "the body must be"),
        (&long_head, "431 Request Header Fields Too Large", ""),
        (&state(""), "400 Bad Request", "the body must be"),
        (
            &state(r#"{"state":"off"}"#),
            "400 Bad Request",
            "unknown variant `off`",
        ),
        (
            &state(r#"{"state":"drain","x":1}"#),
            "400 Bad Request",
            "unknown field `x`",
        ),
        ("nonsense\r\n\r\n", "400 Bad Request", ""),
    ] {
        let answer = admin.raw(request).await;
        let first_line = answer.lines().next().unwrap_or_default();
        assert_eq!(first_line, format!("HTTP/1.1 {status_line}"), "{request}");
        assert!(answer.contains(expected), "{expected} is not in {answer}");
    }
    assert!(admin.control.set.lock().unwrap().is_empty());
}

#[tokio::test]
async fn one_request_too_many_is_shed_and_the_others_are_answered() {
    let admin = Admin::start(Fake {
        reloads: Semaphore::new(0),
        ..Fake::default()
    });
    let mut waiting = JoinSet::new();
    for _ in 0..16 {
        let client = admin.client();
        waiting.spawn(async move { client.reload().await.map(|outcome| outcome.generation) });
    }
    wait_for(|| *admin.control.reloading.lock().unwrap() == 16).await;
    let error = admin.client().status().await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("too many admin requests at once"),
        "{error}"
    );
    admin.control.reloads.add_permits(16);
    for reloaded in waiting.join_all().await {
        assert_eq!(reloaded.unwrap(), 7);
    }
    assert_eq!(admin.client().status().await.unwrap(), status());
}

#[tokio::test]
async fn stopping_finishes_a_running_request_and_accepts_no_more() {
    let admin = Admin::start(Fake {
        reloads: Semaphore::new(0),
        ..Fake::default()
    });
    let client = admin.client();
    let running = tokio::spawn(async move { client.reload().await });
    wait_for(|| *admin.control.reloading.lock().unwrap() == 1).await;
    // A caller that has sent nothing does not delay the stop.
    let _silent = UnixStream::connect(&admin.socket).await.unwrap();
    admin.stop.send(true).unwrap();
    admin.control.reloads.add_permits(1);
    assert_eq!(running.await.unwrap().unwrap().generation, 7);
    admin.serving.await.unwrap();
    let client = AdminClient::new(admin.socket);
    assert!(matches!(
        client.status().await,
        Err(AdminClientError::NotListening { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_hangs_is_disconnected() {
    let admin = Admin::start(Fake {
        metrics: "x".repeat(8 << 20),
        ..Fake::default()
    });
    for request in [
        "",
        "GET /v1/status HTTP/1.1\r\nHost",
        "POST /v1/pools/p/members/m HTTP/1.1\r\nContent-Length: 20\r\n\r\n{",
    ] {
        let answer = admin.raw(request).await;
        assert!(!answer.contains("200 OK"), "{request}: {answer}");
    }
    let mut caller = UnixStream::connect(&admin.socket).await.unwrap();
    caller
        .write_all(b"GET /metrics HTTP/1.1\r\n\r\n")
        .await
        .unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    let mut answer = Vec::new();
    // Either the end or a reset, but never the whole response.
    let _ = caller.read_to_end(&mut answer).await;
    assert!(answer.len() < 8 << 20, "{} bytes", answer.len());
}

#[tokio::test(start_paused = true)]
async fn a_reload_that_never_ends_is_answered_anyway() {
    let admin = Admin::start(Fake {
        reloads: Semaphore::new(0),
        ..Fake::default()
    });
    let error = admin.client().reload().await.unwrap_err();
    assert_eq!(refusal_status(&error), Some(504), "{error}");
}

#[tokio::test]
async fn a_client_says_what_to_do_if_no_process_listens() {
    let directory = TempDir::new().unwrap();
    let absent = directory.path().join("absent.sock");
    let abandoned = directory.path().join("abandoned.sock");
    drop(StdListener::bind(&abandoned).unwrap());
    for socket in [absent, abandoned] {
        let error = AdminClient::new(&socket).status().await.unwrap_err();
        let text = error.to_string();
        let expected = format!(
            "no proscenium is listening on {}: is it running?",
            socket.display()
        );
        assert!(text.starts_with(&expected), "{text}");
    }
}

#[tokio::test]
async fn a_client_refuses_responses_of_other_programs() {
    let endless = b"HTTP/1.1 200 OK\r\n\r\n"
        .iter()
        .copied()
        .chain(std::iter::repeat_n(b'x', 17 << 20));
    for (spoken, expected) in [
        (b"220 mail ready\r\n".to_vec(), "is invalid"),
        (b"".to_vec(), "is invalid"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}".to_vec(),
            "is invalid",
        ),
        (
            b"HTTP/1.1 500 Oops\r\nContent-Length: 2\r\n\r\n{}".to_vec(),
            "without a reason (500 Internal Server Error)",
        ),
        (endless.collect(), "is too long"),
    ] {
        let error = other_program(spoken).await.status().await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_does_not_wait_for_ever() {
    let directory = TempDir::new().unwrap();
    let socket = directory.path().join("silent.sock");
    let _listener = UnixListener::bind(&socket).unwrap();
    let error = AdminClient::new(&socket).status().await.unwrap_err();
    assert!(error.to_string().contains("within 30 s"), "{error}");
}

#[tokio::test]
async fn the_addresses_of_a_proxy_of_another_version_are_read() {
    let directory = TempDir::new().unwrap();
    let socket = directory.path().join("admin.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let old = async {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await.unwrap();
            let body =
                r#"{"version":"0.0.1","listeners":[{"name":"agents","address":"[::]:8140"}]}"#;
            let length = body.len();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    };
    let client = AdminClient::new(&socket);
    let asked = async {
        assert!(client.status().await.is_err(), "it lacks fields");
        assert_eq!(client.listener_addresses().await.unwrap(), ["[::]:8140"]);
    };
    tokio::join!(old, asked);
}

/// A running control plane on its own socket.
struct Admin {
    control: Arc<Fake>,
    socket: PathBuf,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
    _directory: TempDir,
}

impl Admin {
    fn start(control: Fake) -> Self {
        let directory = TempDir::new().unwrap();
        let socket = directory.path().join("admin.sock");
        let listener = StdListener::bind(&socket).unwrap();
        let control = Arc::new(control);
        let (stop, stopped) = watch::channel(false);
        let served = control.clone();
        let serving = tokio::spawn(async move { serve(listener, served, stopped).await.unwrap() });
        Self {
            control,
            socket,
            stop,
            serving,
            _directory: directory,
        }
    }

    fn client(&self) -> AdminClient {
        AdminClient::new(&self.socket)
    }

    /// Sends these bytes and reads until the end.
    async fn raw(&self, request: &str) -> String {
        let mut stream = UnixStream::connect(&self.socket).await.unwrap();
        // A refusal may arrive, and the connection close, before everything is sent.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }
}

fn block(certname: &str) -> BlockStatus {
    BlockStatus {
        blocked: BlockSubject {
            certname: Some(certname.to_owned()),
            ..BlockSubject::default()
        },
        why: "stolen".to_owned(),
        by: "uid 0".to_owned(),
        since: SystemTime::UNIX_EPOCH.into(),
        until: Timestamp::parse("2030-01-01"),
    }
}

#[tokio::test]
async fn a_block_shows_its_account_and_whether_a_restart_would_undo_it() {
    let admin = Admin::start(Fake::default());
    let request = BlockRequest {
        blocked: block("web02").blocked,
        why: "stolen".to_owned(),
        until: None,
    };
    let shown = admin.client().block(&request).await.unwrap();
    assert_eq!(shown.block.blocked, request.blocked);
    assert_eq!(shown.block.by, "operator");
    assert_eq!(shown.not_persisted.as_deref(), Some("no space left"));
    assert_eq!(admin.client().blocks().await.unwrap(), [block("web01")]);
}

#[tokio::test]
async fn an_invalid_block_is_refused_with_a_sentence() {
    let admin = Admin::start(Fake::default());
    let request = BlockRequest {
        blocked: block("web02").blocked,
        why: String::new(),
        until: None,
    };
    let refused = admin.client().block(&request).await.unwrap_err();
    assert!(refused.to_string().contains("why is empty"), "{refused}");
    let refused = admin.client().unblock(&request.blocked).await.unwrap_err();
    let wanted = "certname web02 is not blocked";
    assert!(refused.to_string().contains(wanted), "{refused}");
    let asked = WhoRequest {
        certname: Some("web03".to_owned()),
        ..WhoRequest::default()
    };
    let refused = admin.client().who(&asked).await.unwrap_err();
    assert!(refused.to_string().contains("no agent is named web03"));
    let answer = admin
        .raw("POST /v1/blocks HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\n{\"who\": \"me\"}")
        .await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert!(answer.contains("the body must be"), "{answer}");
}

/// A client of another program's socket, which answers with these bytes.
async fn other_program(answer: Vec<u8>) -> AdminClient {
    let directory = TempDir::new().unwrap();
    let socket = directory.path().join("other.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    tokio::spawn(async move {
        let _directory = directory;
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 1024];
        let _ = stream.read(&mut request).await;
        let _ = stream.write_all(&answer).await;
    });
    AdminClient::new(socket)
}

async fn wait_for(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::task::yield_now().await;
    }
}
