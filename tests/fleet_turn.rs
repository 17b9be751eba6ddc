//! `proscenium fleet turn`: at most one proxy of a fleet is stopped or restarted at a time.

use std::{
    fs::{self, File},
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
};

use rustix::{
    fs::OFlags,
    process::{Pid, Signal, kill_process},
};
use serde_json::Value;
use tempfile::TempDir;
use testkit::{Proxy, Tool, wait_until};

use crate::{
    fleet::Fleet,
    support::{BINARY, Estate, LIMIT, done, paths::CATALOG},
};

/// A `fleet turn` whose command waits until the test lets it end.
struct TurnCommand {
    directory: TempDir,
    child: Child,
}

impl TurnCommand {
    /// `end`: how the command ends, in the language of the shell.
    fn start(proxy: &Proxy, options: &[&str], end: &str) -> Self {
        let directory = TempDir::new().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        let log = File::create(path("stderr")).expect("a file");
        let script = format!("mkfifo go && : >runs && : <go && {end}");
        let child = Command::new(BINARY)
            .args(["fleet", "turn", "--config"])
            .arg(proxy.config_path())
            .args(options)
            .args(["--", "sh", "-c", &script])
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("it starts");
        Self { directory, child }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn stderr(&self) -> String {
        fs::read_to_string(self.path("stderr")).expect("a file")
    }

    fn has_begun(&self) -> bool {
        self.path("runs").exists()
    }

    #[track_caller]
    fn wait_until_it_runs(&self) {
        let has_begun = || self.has_begun().then_some(());
        assert!(wait_until(LIMIT, has_begun).is_some(), "{}", self.stderr());
    }

    /// Waits until the output contains a text, and asserts that the command has not begun.
    #[track_caller]
    fn wait_until_it_waits_for(&self, expected: &str) {
        let is_there = || self.stderr().contains(expected).then_some(());
        let found = wait_until(LIMIT, is_there);
        assert!(found.is_some(), "{expected}: {}", self.stderr());
        assert!(!self.has_begun(), "{}", self.stderr());
    }

    /// Makes the command end.
    fn go(&self) {
        fs::write(self.path("go"), "").expect("the command reads it");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Waits for the command, and returns its exit code.
    #[track_caller]
    fn wait(&mut self) -> Option<i32> {
        let ended = wait_until(LIMIT, || self.child.try_wait().expect("a child"));
        ended.unwrap_or_else(|| panic!("{}", self.stderr())).code()
    }
}

impl Drop for TurnCommand {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Ends a command that still waits for the test.
        let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
        let mut go = File::options();
        go.write(true).custom_flags(nonblocking);
        drop(go.open(self.path("go")));
    }
}

/// The proxy that has the turn, as another one shows it.
fn turn_at(proxy: &Proxy) -> Value {
    let fleet: Value = serde_json::from_str(&done(proxy, &["fleet"], &["--json"])).expect("JSON");
    fleet["turn"].clone()
}

#[track_caller]
fn wait_for_turn(proxy: &Proxy, expected: Option<&str>) {
    let expected = expected.map_or(Value::Null, Value::from);
    let is_there = || {
        let turn = turn_at(proxy);
        (turn.get("proxy").unwrap_or(&Value::Null) == &expected).then_some(())
    };
    let found = wait_until(LIMIT, is_there);
    assert!(found.is_some(), "{expected}: {}", turn_at(proxy));
}

/// Asserts that the lease for the turn has this length. It ends the turn of a proxy that no longer runs.
#[track_caller]
fn assert_turn_lease(fleet: &Fleet, seconds: u32) {
    let control =
        |arguments: &[&str]| String::from_utf8(fleet.store.control(arguments, &[])).expect("text");
    let leases = control(&["lease", "list"]);
    let leases = leases.lines().filter(|line| !line.starts_with("found"));
    let granted: Vec<_> = leases
        .map(|lease| control(&["lease", "timetolive", lease, "--keys"]))
        .filter(|lease| lease.contains("[/proscenium/test/turn]"))
        .collect();
    let [granted] = granted.as_slice() else {
        panic!("{granted:?}")
    };
    let expected = format!("granted with TTL({seconds}s)");
    assert!(granted.contains(&expected), "{granted}");
}

/// Waits until a proxy has heard of this number of proxies.
#[track_caller]
fn wait_for_proxies(proxy: &Proxy, count: usize) {
    proxy.wait_for_status("all proxies", |status| {
        let proxies = status["fleet"]["proxies"].as_array();
        proxies.is_some_and(|proxies| proxies.len() == count)
    });
}

/// Waits until a proxy has heard that p2 is not ready, for this reason.
#[track_caller]
fn wait_until_unready(proxy: &Proxy, expected: &str) {
    proxy.wait_for_status(expected, |status| {
        let proxies = status["fleet"]["proxies"].as_array().into_iter().flatten();
        let mut second = proxies.filter(|one| one["name"] == "p2");
        second.any(|one| one["unready"] == *expected)
    });
}

/// Two proxies, each with servers of its own, that have heard of each other.
fn two_proxies(fleet: &Fleet, settings: &str) -> [Estate; 2] {
    let table = fleet.store.fleet_table() + settings;
    let estates = ["p1", "p2"].map(|name| fleet.proxy_with(name, &table));
    for estate in &estates {
        wait_for_proxies(&estate.proxy, 2);
    }
    estates
}

#[test]
fn turns_exclude_one_another_and_pass_the_exit_code_on() {
    let Some(fleet) = Fleet::start(1) else { return };
    let estates = two_proxies(&fleet, "");
    let [first, second] = [&estates[0].proxy, &estates[1].proxy];
    let mut one = TurnCommand::start(first, &[], "exit 0");
    one.wait_until_it_runs();
    wait_for_turn(second, Some("p1"));
    let turn = turn_at(second);
    let command = turn["command"].as_str().unwrap_or_default();
    assert!(command.starts_with("sh -c mkfifo go"), "{turn}");
    let text = done(second, &["fleet"], &[]);
    assert!(text.contains("p1 has the turn since "), "{text}");
    let mut two = TurnCommand::start(second, &[], "exit 3");
    let mut again = TurnCommand::start(first, &[], "exit 0");
    two.wait_until_it_waits_for("p1 has the turn since ");
    again.wait_until_it_waits_for("another command of this proxy, which has the turn");
    again.signal(Signal::INT);
    assert_eq!(again.wait(), Some(130), "{}", again.stderr());
    assert!(!again.has_begun());
    one.go();
    assert_eq!(one.wait(), Some(0), "{}", one.stderr());
    two.wait_until_it_runs();
    wait_for_turn(first, Some("p2"));
    two.go();
    assert_eq!(two.wait(), Some(3), "{}", two.stderr());
    wait_for_turn(first, None);
    let audit = fs::read_to_string(first.state_directory().join("audit.log")).expect("a log");
    assert_eq!(audit.matches("\"fleet-turn\"").count(), 1, "{audit}");
}

#[test]
fn a_proxy_that_is_not_ready_is_waited_for_and_named() {
    let Some(fleet) = Fleet::start(1) else { return };
    let estates = two_proxies(&fleet, "");
    let [first, second] = [&estates[0].proxy, &estates[1].proxy];
    let compilers: Vec<_> = estates[1]
        .compilers
        .iter()
        .map(|one| one.address())
        .collect();
    for address in &compilers {
        done(second, &["drain"], &[address, "--force"]);
    }
    wait_until_unready(first, "no compiler is available");
    let mut turn = TurnCommand::start(first, &[], "exit 0");
    let expected = "waiting: p2 is not ready: no compiler is available";
    turn.wait_until_it_waits_for(expected);
    let text = done(first, &["fleet"], &[]);
    let expected = "p2: not ready: no compiler is available";
    assert!(text.contains(expected), "{text}");
    assert_eq!(turn_at(first), Value::Null);
    done(second, &["ready"], &[&compilers[0]]);
    turn.wait_until_it_runs();
    turn.go();
    assert_eq!(turn.wait(), Some(0), "{}", turn.stderr());
}

#[test]
fn a_proxy_that_hands_over_or_stops_is_waited_for_and_named() {
    let Some(fleet) = Fleet::start(1) else { return };
    let table = fleet.store.fleet_table();
    let (first, second) = (
        fleet.proxy("p1"),
        Estate::builder()
            .ca(&fleet.ca)
            .compilers(1)
            .certname("p2")
            .with(&table)
            .own_copy()
            .start(),
    );
    let agent = fleet.ca.agent("web01");
    let (first, second, compiler) = (&first.proxy, &second.proxy, &second.compilers[0]);
    wait_for_proxies(first, 2);
    // The reload executes another program, which never takes over.
    let (program, kept) = (second.program(), second.directory().join("kept"));
    fs::hard_link(&program, &kept).expect("a link");
    second.write("program", "#!/bin/sh\nexec sleep 1000\n", 0o755);
    second.signal(Signal::HUP);
    wait_until_unready(first, "a new process is about to take over");
    let mut one = TurnCommand::start(first, &[], "exit 0");
    one.wait_until_it_waits_for("p2 is not ready: a new process is about to take over");
    fs::rename(&kept, &program).expect("the program");
    assert_eq!(second.reload()["result"], "unchanged");
    one.wait_until_it_runs();
    one.go();
    assert_eq!(one.wait(), Some(0), "{}", one.stderr());
    compiler.hold();
    thread::scope(|scope| {
        let client = second.client(Some(&agent));
        let posting = scope.spawn(move || client.request("POST", CATALOG, &[], b"facts"));
        compiler.wait_for_request(1, LIMIT);
        second.terminate();
        wait_until_unready(first, "draining");
        let mut two = TurnCommand::start(first, &[], "exit 0");
        two.wait_until_it_waits_for("p2 is not ready: draining");
        compiler.release();
        assert_eq!(posting.join().expect("it asks").status, 200);
        two.wait_until_it_runs();
        two.go();
        assert_eq!(two.wait(), Some(0), "{}", two.stderr());
    });
    second.wait_for_end(LIMIT);
}

#[test]
fn a_turn_survives_a_hand_over_and_a_restart_of_its_proxy() {
    let (Some(fleet), Some(_)) = (Fleet::start(1), Tool::Etcdctl.command()) else {
        return;
    };
    let estates = two_proxies(&fleet, "");
    let [first, second] = [&estates[0].proxy, &estates[1].proxy];
    let mut one = TurnCommand::start(first, &[], "exit 0");
    one.wait_until_it_runs();
    let mut two = TurnCommand::start(second, &[], "exit 0");
    two.wait_until_it_waits_for("p1 has the turn since ");
    let since = turn_at(second)["since"].clone();
    let mut former = first.take_over().unwrap_or_else(|o| panic!("{o:?}"));
    former.wait_for_end(LIMIT);
    wait_for_turn(first, Some("p1"));
    assert_turn_lease(&fleet, 15);
    first.terminate();
    first.wait_for_end(LIMIT);
    wait_for_proxies(second, 1);
    assert_turn_lease(&fleet, 1800);
    let text = done(second, &["fleet"], &[]);
    assert!(text.contains(", and is not registered now"), "{text}");
    // The command ends while the proxy is down. `fleet turn` then waits for the proxy.
    one.go();
    let waits = || one.stderr().contains("waiting: ").then_some(());
    assert!(wait_until(LIMIT, waits).is_some(), "{}", one.stderr());
    assert_eq!(turn_at(second)["since"], since);
    assert!(!two.has_begun(), "{}", two.stderr());
    first.start_again();
    assert_eq!(one.wait(), Some(0), "{}", one.stderr());
    assert!(!one.stderr().contains("lost"), "{}", one.stderr());
    two.wait_until_it_runs();
    two.go();
    assert_eq!(two.wait(), Some(0), "{}", two.stderr());
}

#[test]
fn without_the_store_a_fleet_or_the_proxy_nothing_is_run() {
    let Some(fleet) = Fleet::start(1) else { return };
    let estate = Estate::start();
    let member = fleet.proxy("p1");
    let first = &member.proxy;
    wait_for_proxies(first, 1);
    fleet.store.kill(0);
    let refused = |proxy: &Proxy, options: &[&str], expected: &str| {
        let mut turn = TurnCommand::start(proxy, options, "exit 0");
        assert_eq!(turn.wait(), Some(125), "{}", turn.stderr());
        let stderr = turn.stderr();
        let expected = format!("fleet turn: the command was not executed: {expected}");
        assert!(stderr.starts_with(&expected), "{expected}: {stderr}");
        assert!(!turn.has_begun());
    };
    refused(&estate.proxy, &[], "this proxy is not part of a fleet");
    refused(first, &["--timeout", "25h"], "the timeout must be between");
    refused(first, &[], "the store of the fleet is not reached: ");
    first.terminate();
    first.wait_for_end(LIMIT);
    refused(first, &[], "no proscenium is listening on ");
}

#[test]
fn the_turn_of_a_killed_proxy_ends_with_its_lease() {
    let Some(fleet) = Fleet::start(1) else { return };
    let estates = two_proxies(&fleet, "lease = \"5s\"\n");
    let [first, second] = [&estates[0].proxy, &estates[1].proxy];
    let mut one = TurnCommand::start(first, &["--timeout", "1s"], "exit 0");
    one.wait_until_it_runs();
    wait_for_turn(second, Some("p1"));
    first.signal(Signal::KILL);
    let mut two = TurnCommand::start(second, &[], "exit 0");
    two.wait_until_it_waits_for("p1 has the turn since ");
    two.wait_until_it_runs();
    wait_for_turn(second, Some("p2"));
    one.go();
    assert_eq!(one.wait(), Some(124), "{}", one.stderr());
    let expected = "this proxy is not ready after the command: no proscenium is listening on ";
    assert!(one.stderr().contains(expected), "{}", one.stderr());
    assert!(one.stderr().contains("the turn was not given back: "));
    two.go();
    assert_eq!(two.wait(), Some(0), "{}", two.stderr());
}

#[test]
fn a_signal_ends_the_wait_and_the_command_and_gives_the_turn_back() {
    let Some(fleet) = Fleet::start(1) else { return };
    let estates = two_proxies(&fleet, "");
    let [first, second] = [&estates[0].proxy, &estates[1].proxy];
    let mut one = TurnCommand::start(first, &[], "exit 0");
    one.wait_until_it_runs();
    let mut two = TurnCommand::start(second, &[], "exit 0");
    two.wait_until_it_waits_for("p1 has the turn since ");
    two.signal(Signal::TERM);
    assert_eq!(two.wait(), Some(143), "{}", two.stderr());
    assert!(
        two.stderr()
            .contains("was not executed: the wait was interrupted")
    );
    one.signal(Signal::TERM);
    assert_eq!(one.wait(), Some(143), "{}", one.stderr());
    wait_for_turn(second, None);
    assert!(!two.has_begun());
    // If the command cannot be executed, `fleet turn` also returns the turn.
    for (command, expected) in [("/nonexistent", 127), ("/", 126)] {
        let outcome = first.command(&["fleet", "turn"], &["--", command]);
        assert_eq!(outcome.code, Some(expected), "{outcome:?}");
        wait_for_turn(second, None);
    }
}

#[test]
fn a_command_line_that_is_killed_leaves_no_turn_behind() {
    let Some(fleet) = Fleet::start(1) else { return };
    let estates = two_proxies(&fleet, "");
    let [first, second] = [&estates[0].proxy, &estates[1].proxy];
    let one = TurnCommand::start(first, &[], "exit 0");
    one.wait_until_it_runs();
    wait_for_turn(second, Some("p1"));
    one.signal(Signal::KILL);
    wait_for_turn(second, None);
}

#[test]
fn a_turn_survives_the_restart_of_a_machine() {
    let Some(fleet) = Fleet::start(1) else { return };
    let estates = two_proxies(&fleet, "");
    let [first, second] = [&estates[0].proxy, &estates[1].proxy];
    let one = TurnCommand::start(first, &[], "exit 0");
    one.wait_until_it_runs();
    wait_for_turn(second, Some("p1"));
    // `fleet turn` is killed first, as when the machine shuts down.
    one.signal(Signal::KILL);
    first.terminate();
    first.wait_for_end(LIMIT);
    wait_for_proxies(second, 1);
    wait_for_turn(second, Some("p1"));
    first.start_again();
    wait_for_proxies(second, 2);
    wait_for_turn(second, None);
}

#[test]
fn a_turn_that_the_store_has_lost_is_taken_again_and_a_forged_one_counts() {
    let (Some(fleet), Some(_)) = (Fleet::start(1), Tool::Etcdctl.command()) else {
        return;
    };
    let estates = two_proxies(&fleet, "");
    let [first, second] = [&estates[0].proxy, &estates[1].proxy];
    let mut one = TurnCommand::start(first, &[], "exit 0");
    one.wait_until_it_runs();
    wait_for_turn(second, Some("p1"));
    fleet.store.kill(0);
    fleet.store.wipe(0);
    fleet.store.restart(0);
    wait_for_proxies(second, 2);
    wait_for_turn(second, Some("p1"));
    one.go();
    assert_eq!(one.wait(), Some(0), "{}", one.stderr());
    wait_for_turn(second, None);
    fleet
        .store
        .control(&["put", "/proscenium/test/turn", "forged"], &[]);
    let turn = TurnCommand::start(second, &[], "exit 0");
    turn.wait_until_it_waits_for("the key turn of the store");
}
