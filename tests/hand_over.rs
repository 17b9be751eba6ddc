//! A new process takes over: no request is lost, what operators have set stays, and a new process that fails changes
//! nothing.

use std::{
    fs,
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{
    Client, CommandOutcome, Proxy, ProxyBuilder, TestConnection, TestCredential, wait_until,
};

use crate::support::{BINARY, Estate, LIMIT, assert_refused, done, paths::CATALOG, tunnels};

/// Longer than a process needs to close its idle connections.
const END: Duration = Duration::from_secs(60);

#[test]
fn a_new_process_takes_over_and_no_request_is_lost() {
    let estate = Estate::builder().one_agent_for_many().start();
    let agent = estate.ca.agent("web01");
    let (stops, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let asking: Vec<_> = (0..16)
            .map(|_| scope.spawn(|| ask_until(&estate.client(&agent), &stops, &answered)))
            .collect();
        for _ in 0..3 {
            let before = answered.load(Ordering::SeqCst);
            wait_for(|| answered.load(Ordering::SeqCst) > before + 20);
            let mut former = estate.proxy.take_over().unwrap_or_else(|o| panic!("{o:?}"));
            let outcome = former.wait_for_end(END);
            assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
            assert!(
                outcome.stderr.contains("cut=0"),
                "every connection was finished: {}",
                outcome.stderr
            );
        }
        stops.store(true, Ordering::SeqCst);
        for asking in asking {
            asking.join().expect("every request is answered");
        }
    });
    assert_eq!(estate.proxy.generation(), 4);
}

/// Sends requests, some on new connections, until `stops` is set. The client never retries.
fn ask_until(client: &Client, stops: &AtomicBool, answered: &AtomicU64) {
    let mut connection = client.connect().expect("connects");
    let mut requests = 0;
    while !stops.load(Ordering::SeqCst) {
        let answer = connection.get(CATALOG);
        assert_eq!(answer.status, 200, "{answer:?}");
        answered.fetch_add(1, Ordering::SeqCst);
        requests += 1;
        if answer.says_close() || requests % 7 == 0 {
            connection = client.connect().expect("connects");
        }
    }
}

#[test]
fn states_blocks_and_agents_are_passed_on_and_each_process_ends_by_itself() {
    let estate = Estate::start();
    let (good, bad) = (estate.ca.agent("web01"), estate.ca.agent("web02"));
    assert_eq!(estate.client(&good).get(CATALOG).status, 200);
    let member = estate.compilers[0].address();
    done(&estate.proxy, &["drain"], &[&member, "--why", "upgrade"]);
    done(&estate.proxy, &["block"], &["web02", "--why", "stolen"]);

    let mut former = estate.proxy.take_over().unwrap_or_else(|o| panic!("{o:?}"));
    assert_eq!(former.wait_for_end(END).code, Some(0));
    assert!(estate.proxy.admin_socket().exists());
    let who = wait_until(LIMIT, || {
        let shown = done(&estate.proxy, &["who"], &["web01"]);
        shown.contains("/puppet/v3/catalog/web01").then_some(())
    });
    assert!(
        who.is_some(),
        "the agents that were seen are passed on: {}",
        done(&estate.proxy, &["who"], &["web01"])
    );
    assert!(done(&estate.proxy, &["blocks"], &[]).contains("stolen"));
    assert_refused(&estate.client(&bad).get(CATALOG), 403, &["blocked"]);
    let state = |status: &Value| member_state(status, &member);
    assert_eq!(state(&estate.proxy.status()), "drain");

    // A second hand-over, then a stop, which removes the socket's file.
    let mut former = estate.proxy.take_over().unwrap_or_else(|o| panic!("{o:?}"));
    assert_eq!(former.wait_for_end(END).code, Some(0));
    assert_eq!(state(&estate.proxy.status()), "drain");
    let socket = estate.proxy.admin_socket();
    assert_eq!(estate.client(&good).get(CATALOG).status, 200);
    estate.proxy.terminate();
    assert_eq!(estate.proxy.wait_for_end(END).code, Some(0));
    assert!(!socket.exists());
}

#[test]
fn the_former_process_obeys_blocks_and_crls_that_come_after_the_hand_over() {
    let estate = with_tunnels();
    let agents = ["web01", "web02", "web03"].map(|name| estate.ca.agent(name));
    let [mut blocked, mut revoked, mut other] = tunnels(&estate, &agents);
    let mut former = estate.proxy.take_over().unwrap_or_else(|o| panic!("{o:?}"));
    done(&estate.proxy, &["block"], &["web01", "--why", "stolen"]);
    assert!(blocked.is_closed_within(LIMIT), "{}", former.stderr());
    estate.ca.revoke(&agents[1]);
    estate.proxy.write_crl();
    assert!(revoked.is_closed_within(LIMIT), "{}", former.stderr());
    assert_echoes(&mut other);
    // The metrics listener is that of the new process alone.
    let address = estate.proxy.status()["metrics_address"].clone();
    let address = address.as_str().expect("an address").parse();
    let metrics = Client::plain(address.expect("an address"));
    for _ in 0..20 {
        assert_eq!(metrics.get("/ready").status, 200);
    }
    // Stopping the service signals both processes. The former process is draining already.
    former.terminate();
    former.wait_for_event("a stop is requested");
    assert_echoes(&mut other);
    assert!(former.is_running(), "it has a tunnel");
    drop(other);
    let outcome = former.wait_for_end(END);
    assert_eq!(outcome.code, Some(0));
    assert!(outcome.stderr.contains("applied stored blocks"));
}

#[test]
fn blocks_and_crls_apply_while_the_process_stops() {
    let estate = with_tunnels();
    let agents = ["web01", "web02", "web03"].map(|name| estate.ca.agent(name));
    let [mut blocked, mut revoked, mut other] = tunnels(&estate, &agents);
    estate.proxy.terminate();
    estate.wait_for_status("draining", |status| status["phase"] == "draining");
    done(&estate.proxy, &["block"], &["web01", "--why", "stolen"]);
    assert!(blocked.is_closed_within(LIMIT));
    estate.ca.revoke(&agents[1]);
    estate.proxy.write_crl();
    assert!(revoked.is_closed_within(LIMIT));
    assert_echoes(&mut other);
    // The former process loads no configuration any more, because a new one could open a listener.
    let outcome = estate.proxy.reload();
    assert_eq!(outcome["result"], "stopping", "{outcome}");
    drop(other);
    assert_eq!(estate.proxy.wait_for_end(END).code, Some(0));
}

/// An estate whose clients have tunnels, which stay open while a process drains.
fn with_tunnels() -> Estate {
    tunnels::start(
        tunnels::builder("")
            .materials("watch = \"notify\"\nsettle = \"10ms\"")
            .top("drain_grace = \"10m\"")
            .with("[metrics]\naddress = \"127.0.0.1:0\""),
    )
}

#[test]
fn the_former_process_opens_its_log_again_when_the_new_one_does() {
    let estate = with_tunnels();
    let agents = ["web01", "web02", "web03"].map(|name| estate.ca.agent(name));
    let [first, second, third] = tunnels(&estate, &agents);
    let mut former = estate.proxy.take_over().unwrap_or_else(|o| panic!("{o:?}"));
    let log = estate.proxy.directory().join("access.json");
    let rotated = ["access.json.1", "access.json.2"].map(|n| estate.proxy.directory().join(n));
    let records = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let is_recorded = |agent: &str| records(&log).contains(agent);
    fs::rename(&log, &rotated[0]).expect("renames");
    // What logrotate sends to the main process.
    estate.proxy.signal(Signal::USR1);
    former.wait_for_event("reopened the log files");
    drop(first);
    wait_for(|| is_recorded("web01"));

    fs::rename(&log, &rotated[1]).expect("renames");
    let outcome = estate.proxy.command(&["reload"], &[]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    wait_for(|| former.stderr().matches("reopened the log files").count() == 2);
    drop((second, third));
    wait_for(|| is_recorded("web02") && is_recorded("web03"));
    let outcome = former.wait_for_end(END);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    // The harness counts the records of all files.
    let all: Vec<_> = rotated
        .iter()
        .chain([&log])
        .map(|path| records(path))
        .collect();
    fs::write(&log, all.concat()).expect("writes");
}

/// One tunnel for each agent.
fn tunnels(estate: &Estate, agents: &[TestCredential; 3]) -> [TestConnection; 3] {
    agents.each_ref().map(|agent| {
        let mut tunnel = tunnels::opened(estate, agent);
        assert_echoes(&mut tunnel);
        tunnel
    })
}

#[track_caller]
fn assert_echoes(tunnel: &mut TestConnection) {
    tunnel.send_raw(b"hello").expect("is sent");
    assert_eq!(tunnel.read_bytes(5).expect("an echo"), b"hello");
}

#[test]
fn a_new_process_that_fails_leaves_the_other_serving() {
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    let config = estate.proxy.config_text();
    estate.write_config(&format!("{config}\nnonsense = true\n"));
    let outcome = failed(&estate.proxy);
    assert_eq!(outcome.code, Some(78), "{}", outcome.stderr);
    assert_serves(&estate, &agent);

    // A new process that fails while it prepares: its address belongs to another program.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address");
    estate.write_config(&format!(
        "{config}\n[listeners.taken]\naddress = \"{address}\"\n"
    ));
    let outcome = failed(&estate.proxy);
    assert_eq!(outcome.code, Some(75), "{}", outcome.stderr);
    assert_serves(&estate, &agent);

    // A new process that ends after the state directory has been unlocked.
    let mut peer = Peer::connect(&estate.proxy.state_directory());
    peer.send(&json!({"hello": {"version": 1, "build": "test"}}));
    peer.receive_sockets();
    peer.send(&json!("prepared"));
    assert_eq!(peer.receive(), json!("unlocked"));
    drop(peer);
    estate.wait_for_event("no hand-over, this process continues to serve");
    assert_serves(&estate, &agent);
    done(&estate.proxy, &["block"], &["web09", "--why", "stolen"]);

    estate.write_config(&config);
    let mut former = estate.proxy.take_over().unwrap_or_else(|o| panic!("{o:?}"));
    assert_eq!(former.wait_for_end(END).code, Some(0));
    assert!(done(&estate.proxy, &["blocks"], &[]).contains("web09"));
}

#[test]
fn a_change_during_a_hand_over_waits_until_it_is_known_which_process_serves() {
    let estate = Estate::start();
    let member = estate.compilers[0].address();
    let mut peer = prepared_peer(&estate.proxy);
    peer.send(&json!("prepared"));
    assert_eq!(peer.receive(), json!("unlocked"));
    let drain = ["--why", "upgrade", &*member];
    thread::scope(|scope| {
        let drained = scope.spawn(|| done(&estate.proxy, &["drain"], &drain));
        // Whenever the command arrives, the state is not applied before the peer is gone.
        assert_eq!(member_state(&estate.proxy.status(), &member), "ready");
        drop(peer);
        drained.join().expect("is drained");
    });
    let stored = fs::read_to_string(estate.proxy.state_directory().join("members.json"));
    assert!(stored.expect("is stored").contains(&*member));
}

#[test]
fn a_stop_ends_a_hand_over_that_has_not_happened() {
    let estate = Estate::start();
    let peer = prepared_peer(&estate.proxy);
    estate.proxy.terminate();
    assert_eq!(estate.proxy.wait_for_end(END).code, Some(0));
    drop(peer);
}

/// A peer that has received the sockets.
fn prepared_peer(proxy: &Proxy) -> Peer {
    let mut peer = Peer::connect(&proxy.state_directory());
    peer.send(&json!({"hello": {"version": 1, "build": "test"}}));
    peer.receive_sockets();
    peer
}

#[test]
fn a_peer_that_sends_nonsense_or_another_version_gets_no_hand_over() {
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    let mut peer = Peer::connect(&estate.proxy.state_directory());
    peer.send(&json!({"hello": {"version": 99, "build": "test"}}));
    let refused = peer.receive();
    assert!(refused.to_string().contains("has version 99"), "{refused}");
    for bytes in [&b"\xff\xff\xff\xff"[..], b"\0\0\0\x02{]", b"\0", b""] {
        let mut peer = Peer::connect(&estate.proxy.state_directory());
        peer.0.write_all(bytes).expect("is taken");
    }
    assert_serves(&estate, &agent);
    let mut former = estate.proxy.take_over().unwrap_or_else(|o| panic!("{o:?}"));
    assert_eq!(former.wait_for_end(END).code, Some(0));
}

#[test]
fn a_second_process_without_a_hand_over_does_not_start() {
    let estate = Estate::start();
    let config = estate.proxy.config_text();
    let pid = estate.proxy.pid();
    let port = estate.proxy.address().port();
    // Only the state directory is shared.
    let other = config
        .replace(&format!(":{port}\""), ":0\"")
        .replace("admin.sock", "other.sock");
    estate.proxy.write("other.toml", &other, 0o644);
    let path = estate.proxy.directory().join("other.toml");
    let outcome = std::process::Command::new(estate.proxy.program())
        .args(["run", "--config"])
        .arg(path)
        .env("STATE_DIRECTORY", estate.proxy.state_directory())
        .output()
        .expect("runs");
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    assert_eq!(outcome.status.code(), Some(75), "{stderr}");
    assert!(
        stderr.contains(&format!("another process ({pid}) uses the state directory"))
            && stderr.contains("run --hand-over"),
        "{stderr}"
    );
}

#[test]
fn a_process_takes_over_where_none_runs_by_an_ordinary_start() {
    let estate = Estate::builder().argument("--hand-over").start();
    estate.wait_for_event("so this is a start");
    assert_serves(&estate, &estate.ca.agent("web01"));
}

#[test]
fn unix_sockets_and_the_metrics_listener_are_passed_on() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("agents.sock");
    let tables = format!(
        "[listeners.local]\naddress = \"unix:{}\"\n[metrics]\naddress = \"127.0.0.1:0\"\n",
        path.display()
    );
    let estate = Estate::builder().with(&tables).top("workers = 3").start();
    let metrics = || estate.proxy.status()["metrics_address"].clone();
    let address = metrics();
    // Fewer workers than sockets, then more.
    for workers in ["1", "4"] {
        let config = estate.proxy.config_text();
        let line = config.lines().find(|line| line.starts_with("workers"));
        estate.edit_config(line.expect("a line"), &format!("workers = {workers}"));
        let mut former = estate.proxy.take_over().unwrap_or_else(|o| panic!("{o:?}"));
        assert_eq!(former.wait_for_end(END).code, Some(0));
        assert_eq!(metrics(), address);
        for _ in 0..8 {
            UnixStream::connect(&path).expect("the file is still there");
            assert_serves(&estate, &estate.ca.agent("web01"));
        }
    }
    estate.proxy.terminate();
    assert_eq!(estate.proxy.wait_for_end(END).code, Some(0));
    assert!(!path.exists());
}

#[test]
fn a_reload_with_another_build_on_disk_hands_over_and_one_that_fails_is_refused() {
    let estate = Estate::builder().proxy(ProxyBuilder::own_copy).start();
    let agent = estate.ca.agent("web01");
    let before = estate.proxy.status()["process"]["pid"].clone();
    assert_eq!(estate.proxy.reload()["result"], "unchanged");
    let program = estate.proxy.program();
    let bytes = fs::read(&program).expect("the program");

    replace(&program, b"#!/bin/sh\nexit 3\n");
    let outcome = estate.proxy.command(&["reload"], &[]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(
        outcome.stderr.contains("did not take over") && outcome.stderr.contains("exit status: 3"),
        "{}",
        outcome.stderr
    );
    assert_eq!(estate.proxy.status()["last_reload"]["result"], "failed");
    assert_serves(&estate, &agent);
    assert_eq!(estate.proxy.status()["process"]["pid"], before);

    replace(&program, &[&bytes[..], b"another build"].concat());
    let outcome = estate.proxy.command(&["reload"], &[]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let pid = wait_until(LIMIT, || {
        let answer = estate.proxy.try_admin("GET", "/v1/status").ok()?;
        let pid = answer.json()["process"]["pid"].clone();
        (pid != before).then_some(pid)
    });
    let pid = pid.and_then(|pid| pid.as_u64()).expect("another process");
    estate.proxy.adopt(u32::try_from(pid).expect("a process"));
    assert!(
        outcome
            .stdout
            .contains(&format!("process {pid} has taken over"))
    );
    assert_serves(&estate, &agent);
    assert_eq!(estate.proxy.wait_for_exit(END), Some(0));
    assert_serves(&estate, &agent);
    assert_eq!(estate.proxy.reload()["result"], "unchanged");
}

/// The new program determines the exit code of `reload` and what the command prints.
#[test]
fn a_reload_says_how_a_new_program_failed() {
    let estate = Estate::builder().proxy(ProxyBuilder::own_copy).start();
    let agent = estate.ca.agent("web01");
    let program = estate.proxy.program();
    let shell = |line: &str| format!("#!/bin/sh\n{line}\n");
    for (new, code, words) in [
        (shell("kill -SEGV $$"), 1, "it crashed (signal: 11"),
        (shell("kill -ILL $$"), 1, "it crashed (signal: 4"),
        (shell("kill -ABRT $$"), 1, "it crashed (signal: 6"),
        (shell("exit 101"), 1, "it crashed (exit status: 101)"),
        (shell("kill -KILL $$"), 1, "it was killed (signal: 9"),
        (shell("exit 127"), 1, "it does not run on this host"),
        (shell("exit 0"), 1, "it ended with exit status: 0"),
        (shell("exit 78"), 78, "it refuses the configuration"),
        ("no program".to_owned(), 1, "it cannot be run: "),
        (
            "#!/nonexistent/interpreter\n".to_owned(),
            1,
            "it cannot be run: ",
        ),
    ] {
        replace(&program, new.as_bytes());
        let outcome = estate.proxy.command(&["reload"], &[]);
        assert_eq!(outcome.code, Some(code), "{new}: {outcome:?}");
        assert!(outcome.stderr.contains(words), "{new}: {}", outcome.stderr);
        let refuses = outcome.stderr.contains("refuses the configuration");
        assert_eq!(refuses, code == 78, "{new}: {}", outcome.stderr);
        assert_serves(&estate, &agent);
    }
}

#[test]
fn a_new_program_ends_with_the_command_that_requested_it() {
    let estate = Estate::builder().proxy(ProxyBuilder::own_copy).start();
    let agent = estate.ca.agent("web01");
    let before = estate.proxy.status()["process"]["pid"].clone();
    let program = estate.proxy.program();
    replace(&program, b"#!/bin/sh\nexec sleep 1000\n");
    let mut reload = std::process::Command::new(BINARY)
        .args(["reload", "--config"])
        .arg(estate.proxy.config_path())
        .spawn()
        .expect("runs");
    let pid = preparing(&estate.proxy);
    let shown = done(&estate.proxy, &["status"], &[]);
    let line = format!("hand-over: process {pid} prepares to take over since ");
    assert!(shown.contains(&line), "{shown}");
    // systemd kills the command of a reload that takes too long.
    reload.kill().expect("runs");
    reload.wait().expect("ends");
    estate.wait_for_status("the end", |status| {
        status["hand_over"].is_null() && status["last_reload"]["result"] == "failed"
    });
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    estate.wait_for_event("TimeoutStartSec");
    assert_serves(&estate, &agent);
    assert_eq!(estate.proxy.status()["process"]["pid"], before);
}

#[test]
fn a_new_program_ends_with_the_process_that_has_started_it() {
    for signal in [Signal::TERM, Signal::KILL] {
        let estate = Estate::builder().proxy(ProxyBuilder::own_copy).start();
        replace(&estate.proxy.program(), b"#!/bin/sh\nexec sleep 1000\n");
        estate.proxy.signal(Signal::HUP);
        let pid = preparing(&estate.proxy);
        estate.proxy.signal(signal);
        estate.proxy.wait_for_end(END);
        wait_for(|| !Path::new(&format!("/proc/{pid}")).exists());
    }
}

#[test]
fn a_program_that_was_replaced_while_it_prepared_does_not_take_over() {
    let estate = Estate::builder().proxy(ProxyBuilder::own_copy).start();
    let agent = estate.ca.agent("web01");
    let before = estate.proxy.status()["process"]["pid"].clone();
    let program = estate.proxy.program();
    let bytes = fs::read(&program).expect("the program");
    let place = estate.proxy.directory().to_owned();
    let (next, go) = (place.join("next"), place.join("go"));
    fs::copy(&program, &next).expect("a copy");
    replace(&next, &[&bytes[..], b"another build"].concat());
    let slow = format!(
        "#!/bin/sh\nuntil test -e {}; do sleep 0.01; done\nexec {} \"$@\"\n",
        go.display(),
        next.display()
    );
    replace(&program, slow.as_bytes());
    estate.proxy.signal(Signal::HUP);
    preparing(&estate.proxy);
    replace(&program, &bytes);
    fs::write(&go, "").expect("it continues");
    estate.wait_for_event("is no longer the one on disk");
    estate.wait_for_status("the end", |status| {
        status["hand_over"].is_null() && status["last_reload"]["result"] == "failed"
    });
    assert_serves(&estate, &agent);
    assert_eq!(estate.proxy.status()["process"]["pid"], before);

    // An operator starts the program, and its file is removed.
    let script = "exec 3<\"$0\"; rm \"$0\"; exec /proc/self/fd/3 run --hand-over --config \"$1\"";
    let outcome = std::process::Command::new("sh")
        .args(["-c", script])
        .args([&next, &estate.proxy.config_path()])
        .env("STATE_DIRECTORY", estate.proxy.state_directory())
        .output()
        .expect("runs");
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    assert!(stderr.contains("is no longer the one on disk"), "{stderr}");
    assert_serves(&estate, &agent);
    assert_eq!(estate.proxy.status()["process"]["pid"], before);
}

#[test]
fn a_reload_ends_a_hand_over_to_a_program_that_was_replaced() {
    let estate = Estate::builder().proxy(ProxyBuilder::own_copy).start();
    let program = estate.proxy.program();
    let bytes = fs::read(&program).expect("the program");
    replace(&program, b"#!/bin/sh\nexec sleep 1000\n");
    estate.proxy.signal(Signal::HUP);
    let pid = preparing(&estate.proxy);
    replace(&program, &bytes);
    assert_eq!(estate.proxy.reload()["result"], "unchanged");
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

/// The number of the process that prepares to take over.
fn preparing(proxy: &Proxy) -> u64 {
    let status = proxy.wait_for_status("a hand-over", |status| !status["hand_over"].is_null());
    status["hand_over"]["pid"].as_u64().expect("a process")
}

#[test]
fn a_drain_waits_for_the_requests_of_the_former_process() {
    let estate = Estate::builder().compilers(1).start();
    let agent = estate.ca.agent("web01");
    let member = estate.compilers[0].address();
    estate.compilers[0].hold();
    thread::scope(|scope| {
        let asking = scope.spawn(|| estate.client(&agent).get(CATALOG));
        estate.compilers[0].wait_for_request(1, LIMIT);
        let first = estate.proxy.pid();
        let mut former = estate.proxy.take_over().unwrap_or_else(|o| panic!("{o:?}"));
        let status = estate.proxy.status();
        assert_eq!(status["former_processes"][0]["pid"], first);
        assert_eq!(in_flight(&status), 1);
        let shown = done(&estate.proxy, &["status"], &[]);
        let line = format!("former process {first}: finishes 1 requests on 1 connections");
        assert!(shown.contains(&line), "{shown}");
        let wait = ["--force", "--wait", "--timeout", "1s", &*member];
        let waited = estate.proxy.command(&["drain"], &wait);
        assert_eq!(waited.code, Some(3), "{waited:?}");
        assert!(waited.stderr.contains("1 in flight"), "{waited:?}");

        // A second hand-over: the third process knows both former processes.
        let second = estate.proxy.pid();
        let mut next = estate.proxy.take_over().unwrap_or_else(|o| panic!("{o:?}"));
        let status = estate.proxy.status();
        let formers = status["former_processes"].as_array().expect("a list");
        let pids: Vec<_> = formers.iter().map(|former| &former["pid"]).collect();
        assert_eq!(pids, [first, second]);
        assert_eq!(in_flight(&status), 1);
        assert!(former.is_running() && next.is_running());
        let waiting = scope.spawn(|| {
            let wait = ["--force", "--wait", "--timeout", "1m", &*member];
            done(&estate.proxy, &["drain"], &wait)
        });
        estate.compilers[0].release();
        assert_eq!(asking.join().expect("asks").status, 200);
        let waited = waiting.join().expect("waits");
        assert!(waited.contains("no request is left"), "{waited}");
        assert_eq!(former.wait_for_end(END).code, Some(0));
        assert_eq!(next.wait_for_end(END).code, Some(0));
        estate.wait_for_status("no former process", |status| {
            status["former_processes"] == json!([]) && in_flight(status) == 0
        });
    });
}

#[test]
fn the_requests_of_a_former_process_that_dies_count_no_more() {
    let estate = Estate::builder().compilers(1).start();
    let agent = estate.ca.agent("web01");
    let member = estate.compilers[0].address();
    estate.compilers[0].hold();
    thread::scope(|scope| {
        let asking = scope.spawn(|| estate.client(&agent).try_request("GET", CATALOG, &[], b""));
        estate.compilers[0].wait_for_request(1, LIMIT);
        let former = estate.proxy.take_over().unwrap_or_else(|o| panic!("{o:?}"));
        assert_eq!(in_flight(&estate.proxy.status()), 1);
        // The former process is killed.
        drop(former);
        let wait = ["--force", "--wait", "--timeout", "1m", &*member];
        let waited = done(&estate.proxy, &["drain"], &wait);
        assert!(waited.contains("no request is left"), "{waited}");
        assert!(asking.join().expect("asks").is_err());
        estate.compilers[0].release();
    });
}

#[test]
fn a_former_process_sends_no_request_to_a_member_that_is_drained() {
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    let member = estate.compilers[0].address();
    let head = format!("GET {CATALOG} HTTP/1.1\r\nHost: puppet\r\n");
    let mut connections: Vec<_> = (0..6)
        .map(|_| {
            let mut connection = estate.client(&agent).connect().expect("connects");
            connection.send_raw(head.as_bytes()).expect("is sent");
            connection
        })
        .collect();
    let mut former = estate.proxy.take_over().unwrap_or_else(|o| panic!("{o:?}"));
    done(&estate.proxy, &["drain"], &[&member]);
    for connection in &mut connections {
        connection.send_raw(b"\r\n").expect("is sent");
        assert_eq!(connection.read_response().expect("an answer").status, 200);
    }
    assert_eq!(former.wait_for_end(END).code, Some(0));
    assert!(estate.compilers[0].requests().is_empty());
    assert_eq!(estate.compilers[1].requests().len(), 6);
}

#[test]
fn a_stop_lets_the_former_process_finish_its_requests() {
    let estate = Estate::builder().compilers(1).start();
    let agent = estate.ca.agent("web01");
    estate.compilers[0].hold();
    thread::scope(|scope| {
        let asking = scope.spawn(|| estate.client(&agent).get(CATALOG));
        estate.compilers[0].wait_for_request(1, LIMIT);
        let mut former = estate.proxy.take_over().unwrap_or_else(|o| panic!("{o:?}"));
        // Stopping the service signals both processes. systemd kills the former process when the main process has
        // ended.
        former.terminate();
        estate.proxy.terminate();
        former.wait_for_event("a stop is requested");
        estate.wait_for_event("draining");
        estate.compilers[0].release();
        assert_eq!(asking.join().expect("asks").status, 200);
        let (former, main) = (former.wait_for_end(END), estate.proxy.wait_for_end(END));
        assert_eq!((former.code, main.code), (Some(0), Some(0)));
        let drained = |events: &str| {
            let line = events.lines().find(|line| line.contains(" drained "));
            line.and_then(|line| line.split_whitespace().next().map(str::to_owned))
        };
        let (first, last) = (drained(&former.stderr), drained(&main.stderr));
        assert!(first.is_some() && first < last, "{first:?} {last:?}");
    });
}

#[test]
fn a_former_process_does_not_delay_the_start_after_a_crash_of_the_new_one() {
    let estate = Estate::builder()
        .compilers(1)
        .top("drain_grace = \"10m\"")
        .start();
    let agent = estate.ca.agent("web01");
    estate.compilers[0].hold();
    thread::scope(|scope| {
        let asking = scope.spawn(|| estate.client(&agent).try_request("GET", CATALOG, &[], b""));
        estate.compilers[0].wait_for_request(1, LIMIT);
        let mut former = estate.proxy.take_over().unwrap_or_else(|o| panic!("{o:?}"));
        estate.proxy.signal(Signal::KILL);
        assert_eq!(estate.proxy.wait_for_end(END).code, None);
        assert!(former.is_running());
        // systemd terminates the remaining processes of the service before it starts the service again.
        former.terminate();
        let outcome = former.wait_for_end(END);
        assert_eq!(outcome.code, Some(0));
        assert!(outcome.stderr.contains(" cut=1 "), "{}", outcome.stderr);
        assert!(asking.join().expect("asks").is_err());
        estate.compilers[0].release();
    });
}

/// The number of requests in flight at all members.
fn in_flight(status: &Value) -> u64 {
    let pools = status["pools"].as_array().cloned().unwrap_or_default();
    let members = pools.iter().flat_map(|pool| pool["members"].as_array());
    let counts = members.flatten().map(|member| member["in_flight"].as_u64());
    counts.flatten().sum()
}

fn failed(proxy: &Proxy) -> CommandOutcome {
    match proxy.take_over() {
        Ok(_) => panic!("it has taken over"),
        Err(outcome) => outcome,
    }
}

#[track_caller]
fn assert_serves(estate: &Estate, agent: &TestCredential) {
    assert_eq!(estate.client(agent).get(CATALOG).status, 200);
}

fn member_state(status: &Value, address: &str) -> String {
    let pools = status["pools"].as_array().cloned().unwrap_or_default();
    let members = pools.iter().flat_map(|pool| pool["members"].as_array());
    let found = members
        .flatten()
        .find(|member| member["address"] == address);
    found.map_or_else(String::new, |member| {
        member["administrative_state"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    })
}

#[track_caller]
fn wait_for(met: impl Fn() -> bool) {
    assert!(wait_until(LIMIT, || met().then_some(())).is_some());
}

/// Replaces a file as a package manager does.
pub(crate) fn replace(path: &Path, bytes: &[u8]) {
    let new = path.with_extension("new");
    fs::write(&new, bytes).expect("a file");
    let mode = fs::metadata(path).expect("the program").permissions();
    fs::set_permissions(&new, mode).expect("its mode");
    fs::rename(&new, path).expect("is replaced");
}

/// A peer on the socket for hand-overs, which sends what the test wants.
struct Peer(UnixStream);

impl Peer {
    fn connect(state: &Path) -> Self {
        let stream = UnixStream::connect(state.join("hand-over.sock")).expect("connects");
        stream.set_read_timeout(Some(LIMIT)).expect("an option");
        Self(stream)
    }

    fn send(&mut self, message: &Value) {
        let text = message.to_string();
        let length = u32::try_from(text.len()).expect("short").to_be_bytes();
        self.0.write_all(&length).expect("is taken");
        self.0.write_all(text.as_bytes()).expect("is taken");
    }

    fn receive(&mut self) -> Value {
        let mut length = [0; 4];
        self.0.read_exact(&mut length).expect("a message");
        let mut body = vec![0; u32::from_be_bytes(length) as usize];
        self.0.read_exact(&mut body).expect("a message");
        serde_json::from_slice(&body).expect("JSON")
    }

    fn receive_sockets(&mut self) {
        while self.receive()["sockets"]["is_last"] != true {}
    }
}
