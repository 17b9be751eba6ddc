//! The threads that compute handshakes delay no request: the kernel runs them only when no other thread wants to run.
//! The workers themselves compute handshakes that cost less than the transfer to another thread.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
};

use testkit::{Ca, Client, HeldPort, Response, TestCredential, Tool, wait_until};

use crate::support::{Estate, EstateBuilder, LIMIT, assert_refused, fixtures, paths::CATALOG};

/// `SCHED_OTHER` and `SCHED_IDLE` of sched(7).
const NORMAL: u64 = 0;
const IDLE: u64 = 5;

/// Counts the process's threads of this name in each scheduling class. Numbers of workers in names are ignored.
fn classes(pid: u32, name: &str) -> BTreeMap<u64, usize> {
    let tasks = Path::new("/proc").join(pid.to_string()).join("task");
    let mut classes = BTreeMap::new();
    for task in fs::read_dir(tasks).expect("the process runs").flatten() {
        // A thread may end while the test reads the directory.
        let Ok(stat) = fs::read_to_string(task.path().join("stat")) else {
            continue;
        };
        let (of, fields) = stat
            .split_once('(')
            .expect("proc(5)")
            .1
            .rsplit_once(") ")
            .expect("proc(5)");
        if of.trim_end_matches(|c: char| c.is_ascii_digit()) == name {
            // Field 41 of proc(5); the first two are cut off.
            let class = fields.split_whitespace().nth(41 - 3).expect("proc(5)");
            *classes.entry(class.parse().expect("a number")).or_default() += 1;
        }
    }
    classes
}

/// An estate whose proxy has an RSA key, as Puppet's CA makes them.
fn with_rsa() -> EstateBuilder {
    let ca = Ca::new();
    let [chain, key] = ["rsa2048.pem", "rsa2048.key"].map(fixtures::text);
    let key = TestCredential::from_pem("rsa2048", &chain, &key);
    let rsa = ca.leaf("puppet").issue_with_key_of(&key);
    Estate::builder().ca(&ca).credential(&rsa)
}

/// How often the first handshake thread has gone to sleep, read while it has no job.
fn sleeps(estate: &Estate) -> u64 {
    let tasks = Path::new("/proc")
        .join(estate.proxy.pid().to_string())
        .join("task");
    let asleep = || {
        let of_thread = |task: &fs::DirEntry| {
            fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name == "handshake-0\n")
        };
        let mut tasks = fs::read_dir(&tasks).expect("the process runs").flatten();
        let status = tasks
            .find(of_thread)
            .expect("a thread for handshakes")
            .path()
            .join("status");
        let status = fs::read_to_string(status).expect("the process runs");
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        field("State:")?.contains('S').then_some(())?;
        field("voluntary_ctxt_switches:")?.trim().parse().ok()
    };
    wait_until(LIMIT, asleep).expect("a thread that waits for a job")
}

/// Clients of both versions of TLS, with tickets and without.
const KINDS: [fn(Client) -> Client; 3] = [Client::tls13, Client::tls12, Client::without_tickets];

#[test]
fn resumed_handshakes_do_not_reach_the_thread_and_full_ones_with_an_rsa_key_do() {
    let estate = with_rsa().top("workers = 1").start();
    let agent = estate.ca.agent("web01");
    for kind in KINDS {
        // On a busy machine, the worker waits and then computes the handshake itself, so the test retries.
        let before = sleeps(&estate);
        let client = wait_until(LIMIT, || {
            let client = kind(estate.client(&agent));
            assert_eq!(client.get(CATALOG).status, 200);
            (sleeps(&estate) > before).then_some(client)
        });
        let client = client.expect("the thread computes full handshakes");
        let before = sleeps(&estate);
        for _ in 0..20 {
            let mut resumed = client.connect().expect("connects");
            assert!(resumed.resumed());
            assert_eq!(resumed.get(CATALOG).status, 200);
        }
        assert_eq!(sleeps(&estate), before);
    }
}

#[test]
fn no_handshake_of_a_listener_without_an_rsa_key_reaches_the_thread() {
    let estate = Estate::builder().top("workers = 1").start();
    let agent = estate.ca.agent("web01");
    let before = sleeps(&estate);
    for _ in 0..20 {
        let mut full = estate.client(&agent).connect().expect("connects");
        assert!(!full.resumed());
        assert_eq!(full.get(CATALOG).status, 200);
    }
    assert_eq!(sleeps(&estate), before);
}

#[test]
fn a_session_that_the_proxy_does_not_know_gets_a_full_handshake() {
    let twin = HeldPort::take();
    let listener = format!("[listeners.twin]\naddress = \"127.0.0.1:{twin}\"");
    let proxy = with_rsa().top("workers = 1").with(&listener);
    let estate = proxy.start();
    let agent = estate.ca.agent("web01");
    for kind in KINDS {
        let client = kind(estate.client(&agent));
        assert_eq!(client.get(CATALOG).status, 200);
        let hello = hello(&client);
        // Each listener has its own keys and sessions. The client offers each of them the session of the other.
        for address in [twin.address(), estate.proxy.address()] {
            let mut full = client.clone().at(address).connect().expect("connects");
            assert!(!full.resumed());
            assert_eq!(full.get(CATALOG).status, 200);
        }
        // The worker computes only the first of these handshakes.
        let before = sleeps(&estate);
        let reached = wait_until(LIMIT, || {
            let mut stream = TcpStream::connect(twin.address()).expect("connects");
            stream.write_all(&hello).expect("is taken");
            stream.read_exact(&mut [0]).expect("an answer");
            drop(stream);
            (sleeps(&estate) > before).then_some(())
        });
        assert!(reached.is_some(), "false hints keep the thread idle");
    }
}

/// The ClientHello that this client sends.
fn hello(client: &Client) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let client = client.clone().at(address);
    let connecting = thread::spawn(move || client.connect().is_ok());
    let (mut stream, _) = listener.accept().expect("a client");
    let mut record = vec![0; 5];
    stream.read_exact(&mut record).expect("a record");
    let length = usize::from(u16::from_be_bytes([record[3], record[4]]));
    record.resize(5 + length, 0);
    stream.read_exact(&mut record[5..]).expect("a hello");
    drop(stream);
    assert!(!connecting.join().expect("no panic"));
    record
}

#[test]
fn each_worker_has_a_thread_of_class_idle_for_its_handshakes() {
    let estate = with_rsa().top("workers = 3").start();
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    let pid = estate.proxy.pid();
    assert_eq!(classes(pid, "handshake-"), [(IDLE, 3)].into());
    assert_eq!(classes(pid, "worker-"), [(NORMAL, 3)].into());
    assert_eq!(
        estate.proxy.status()["handshake_priority"],
        serde_json::Value::Null
    );
}

#[test]
fn where_the_class_is_refused_one_warning_says_what_to_allow_and_handshakes_go_on() {
    if Tool::Strace.command().is_none() {
        return;
    }
    let estate = with_rsa()
        .proxy(|proxy| proxy.top("workers = 3").refusing("sched_setscheduler"))
        .start();
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    assert_eq!(
        classes(estate.proxy.pid(), "handshake-"),
        [(NORMAL, 3)].into()
    );
    let status = estate.proxy.status();
    assert_eq!(
        status["handshake_priority"],
        "Operation not permitted (os error 1)"
    );
    let text = estate.proxy.command(&["status"], &[]).stdout;
    assert!(
        text.contains("handshakes compete with requests for CPU time"),
        "{text}"
    );
    let stderr = estate.proxy.stderr();
    let warnings = stderr
        .matches("SystemCallFilter=sched_setscheduler")
        .count();
    assert_eq!(warnings, 1, "{stderr}");
}

/// A host between one client and the proxy. It forwards the client's ClientHello, and holds back what the client sends
/// next until the test allows it to continue.
struct Halfway {
    address: SocketAddr,
    reached: Receiver<()>,
    go_on: SyncSender<()>,
}

impl Halfway {
    fn start(proxy: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let ((reach, reached), (go_on, may_go_on)) = (sync_channel(1), sync_channel(1));
        thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("a client");
            let mut server = TcpStream::connect(proxy).expect("connects");
            let mut hello = vec![0; 16 << 10];
            let length = client.read(&mut hello).expect("a hello");
            server.write_all(&hello[..length]).expect("is taken");
            let (mut answers, mut back) = (
                server.try_clone().expect("a descriptor"),
                client.try_clone().expect("a descriptor"),
            );
            thread::spawn(move || {
                let _ = io::copy(&mut answers, &mut back);
                let _ = back.shutdown(Shutdown::Write);
            });
            client.peek(&mut [0]).expect("the client's answer");
            reach.send(()).expect("the test waits");
            may_go_on.recv().expect("the test goes on");
            let _ = io::copy(&mut client, &mut server);
            let _ = server.shutdown(Shutdown::Write);
        });
        Self {
            address,
            reached,
            go_on,
        }
    }
}

/// The response to an agent; `event` happens during its handshake.
fn answer_across(estate: &Estate, agent: &TestCredential, event: impl FnOnce()) -> Response {
    let halfway = Halfway::start(estate.proxy.address());
    let client = estate.client(agent).at(halfway.address);
    thread::scope(|scope| {
        let asking = scope.spawn(|| client.get(CATALOG));
        halfway
            .reached
            .recv_timeout(LIMIT)
            .expect("an answer to the hello");
        event();
        halfway.go_on.send(()).expect("it waits");
        asking.join().expect("an answer")
    })
}

#[test]
fn a_handshake_that_spans_a_revocation_is_verified_against_the_new_crl() {
    let estate = with_rsa().start();
    let agent = estate.ca.agent("web01");
    let answer = answer_across(&estate, &agent, || {
        estate.ca.revoke(&agent);
        estate.proxy.swap_crl();
    });
    assert_refused(&answer, 403, &["revoked"]);
}

#[test]
fn a_handshake_that_spans_a_reload_a_hand_over_or_a_stop_is_completed() {
    let estate = with_rsa().start();
    let agent = estate.ca.agent("web01");
    let answer = answer_across(&estate, &agent, || {
        estate.edit_config("[admin]", "[tls]\nsession_lifetime = \"1h\"\n[admin]");
        estate.proxy.reload_applied();
    });
    assert_eq!(answer.status, 200);

    let mut former = None;
    let answer = answer_across(&estate, &agent, || {
        former = Some(estate.proxy.take_over().unwrap_or_else(|o| panic!("{o:?}")));
    });
    assert_eq!((answer.status, answer.says_close()), (200, true));
    let outcome = former.expect("a former process").wait_for_end(LIMIT);
    assert!(outcome.stderr.contains("cut=0"), "{}", outcome.stderr);

    let answer = answer_across(&estate, &agent, || {
        estate.proxy.terminate();
        estate.wait_for_event("draining");
    });
    assert_eq!((answer.status, answer.says_close()), (200, true));
    assert_eq!(estate.proxy.wait_for_end(LIMIT).code, Some(0));
}
