//! The admin API of the built program: accounts, conditions, the audit log, and what it shows of traffic and configuration.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, net::UnixStream, process::CommandExt},
    path::Path,
    process::{Command, Stdio},
};

use rustix::fs::Mode;
use serde_json::{Value, json};
use testkit::{Client, Proxy, Response, has_own_namespaces, mount_over, wait_until};

use crate::support::{BINARY, Estate, LIMIT, done, paths::CATALOG, wait_for};

/// An account that no machine has, and groups for it.
const ACCOUNT: u32 = 3_000_001;
const READERS: u32 = 3_000_002;
const OPERATORS: u32 = 3_000_003;

#[test]
fn members_of_the_groups_read_or_operate_and_other_accounts_do_nothing() {
    let estate = Estate::builder()
        .admin(&format!(
            "read_group = \"{READERS}\"\noperate_group = \"{OPERATORS}\""
        ))
        .start();
    let proxy = &estate.proxy;
    let mode = |proxy: &Proxy| {
        let metadata = fs::metadata(proxy.admin_socket()).unwrap();
        metadata.permissions().mode() & 0o777
    };
    assert_eq!(mode(proxy), 0o666);
    if rustix::process::geteuid().is_root() {
        // The other account must be able to reach the socket and the program.
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(proxy.directory(), open).unwrap();
        fs::copy(BINARY, proxy.directory().join("program")).unwrap();
        let status = |group| run_as(proxy, group, &["status"]);
        let address = estate.compilers[0].address();
        let drain = |group| run_as(proxy, group, &["drain", "compilers", &address]);
        assert_eq!(status(READERS), (true, String::new()));
        assert!(status(OPERATORS).0);
        let (passed, error) = drain(READERS);
        assert!(!passed && error.contains("operate_group"), "{error}");
        let (passed, error) = status(4711);
        assert!(!passed && error.contains("read_group"), "{error}");
        assert_eq!(drain(OPERATORS), (true, String::new()));
        let writable = proxy.directory().join("writable");
        fs::create_dir(&writable).unwrap();
        fs::set_permissions(&writable, fs::Permissions::from_mode(0o777)).unwrap();
        let bundle = |group: u32| {
            let file = writable.join(format!("{group}.json")).display().to_string();
            run_as(proxy, group, &["support-bundle", &file])
        };
        assert_eq!(bundle(READERS), (true, String::new()));
        let (passed, error) = bundle(4711);
        assert!(!passed && error.contains("no part of the proxy"), "{error}");
        assert!(error.contains("read_group"), "{error}");
        let lines = audit(proxy);
        let results: Vec<_> = lines
            .iter()
            .map(|line| (&line["action"], &line["uid"]))
            .collect();
        let account = json!(ACCOUNT);
        assert_eq!(
            results,
            [(&json!("refused"), &account), (&json!("drain"), &account)]
        );
    }
    // A reload that removes the groups makes the socket private again.
    proxy.edit_config("read_group", "# read_group");
    proxy.edit_config("operate_group", "# operate_group");
    proxy.reload_applied();
    assert_eq!(mode(proxy), 0o600);
}

/// `/etc/group` is a named pipe, so a look-up of a group never ends.
#[test]
fn accounts_whose_groups_are_looked_up_do_not_delay_a_block_by_root() {
    let is_root = rustix::process::geteuid().is_root();
    let test = "admin_api::accounts_whose_groups_are_looked_up_do_not_delay_a_block_by_root";
    if !is_root || !has_own_namespaces(test) {
        return;
    }
    let estate = Estate::builder()
        .admin("read_group = \"readers\"\noperate_group = \"operators\"")
        .start();
    let proxy = &estate.proxy;
    let pipe = proxy.directory().join("group");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RUSR).expect("a pipe");
    mount_over(&pipe, Path::new("/etc/group"));
    fs::set_permissions(proxy.directory(), fs::Permissions::from_mode(0o755)).expect("its mode");
    fs::copy(BINARY, proxy.directory().join("program")).expect("a program");
    let strangers: Vec<_> = (0..8)
        .map(|_| command_as(proxy, READERS, &["status"]))
        .map(|mut command| command.spawn().expect("runs"))
        .collect();
    let look_ups = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", proxy.pid())).expect("its threads");
        let names = tasks.flatten().map(|task| task.path().join("comm"));
        let names = names.filter_map(|name| fs::read_to_string(name).ok());
        names.filter(|name| name == "groups\n").count()
    };
    wait_for("a look-up", || look_ups() > 0);
    done(proxy, &["block"], &["web01", "--why", "stolen"]);
    assert_eq!(look_ups(), 1, "the look-up has not ended yet");
    for stranger in strangers {
        let outcome = stranger.wait_with_output().expect("ends");
        assert!(
            !outcome.status.success(),
            "without an answer, it is refused"
        );
    }
}

#[test]
fn silent_connections_do_not_delay_an_operator() {
    let estate = Estate::builder().start();
    let _silent: Vec<_> = (0..120)
        .map(|_| UnixStream::connect(estate.proxy.admin_socket()).expect("connects"))
        .collect();
    done(&estate.proxy, &["block"], &["web01", "--why", "stolen"]);
    assert_eq!(estate.proxy.status()["blocks"], 1);
}

/// Runs a command with the account and this group; returns whether it succeeded, and its errors.
fn run_as(proxy: &Proxy, group: u32, words: &[&str]) -> (bool, String) {
    let output = command_as(proxy, group, words).output().expect("runs");
    (
        output.status.success(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// A command with the account and this group.
fn command_as(proxy: &Proxy, group: u32, words: &[&str]) -> Command {
    let mut command = Command::new(proxy.directory().join("program"));
    command
        .args(words)
        .arg("--socket")
        .arg(proxy.admin_socket())
        .current_dir("/")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .uid(ACCOUNT)
        .gid(group);
    command
}

/// The lines of the audit log.
fn audit(proxy: &Proxy) -> Vec<Value> {
    let text = fs::read_to_string(proxy.state_directory().join("audit.log")).expect("an audit log");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

fn post(proxy: &Proxy, target: &str, fields: &[(&str, &str)], body: &Value) -> Response {
    let body = body.to_string();
    let fields = [&[("Connection", "close")], fields].concat();
    Client::unix(&proxy.admin_socket()).request("POST", target, &fields, body.as_bytes())
}

#[test]
fn a_change_with_a_stale_entity_tag_is_refused_and_every_change_is_logged() {
    let estate = Estate::start();
    let proxy = &estate.proxy;
    let block = |name: &str| json!({"blocked": {"certname": name}, "why": "lost"});
    let tag = proxy
        .admin("GET", "/v1/blocks")
        .headers
        .get("etag")
        .unwrap()
        .to_owned();
    assert_eq!(
        post(proxy, "/v1/blocks", &[("If-Match", &tag)], &block("web01")).status,
        200
    );
    let stale = post(proxy, "/v1/blocks", &[("If-Match", &tag)], &block("web02"));
    assert_eq!(stale.status, 412, "{}", stale.text());
    assert_eq!(
        proxy
            .admin("GET", "/v1/blocks")
            .json()
            .as_array()
            .unwrap()
            .len(),
        1
    );
    proxy.reload();
    let lines = audit(proxy);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(lines[0]["action"], "block");
    assert_eq!(lines[0]["why"], "lost");
    assert_eq!(lines[0]["before"], Value::Null);
    assert_eq!(lines[0]["after"]["blocked"]["certname"], "web01");
    assert_eq!(lines[0]["result"], "done");
    assert_eq!(lines[1]["action"], "reload");
    assert_eq!(lines[1]["result"], "unchanged");
}

#[test]
fn an_audit_log_that_cannot_be_written_is_an_alarm_and_leaves_the_change_in_the_events() {
    let estate = Estate::builder()
        .admin("audit_log = \"{dir}/audit/audit.log\"")
        .start();
    let block = json!({"blocked": {"certname": "web01"}, "why": "lost"});
    assert_eq!(post(&estate.proxy, "/v1/blocks", &[], &block).status, 200);
    estate.wait_for_event("cannot write to the audit log");
    let status = estate.proxy.status();
    let alarm = &status["alarms"][0];
    assert_eq!(alarm["key"], "audit-log", "{status}");
    let directory = estate.proxy.directory().join("audit");
    let message = alarm["message"].as_str().unwrap_or_default();
    assert!(
        message.contains(&directory.display().to_string()),
        "{message}"
    );
    // The next change that is logged clears the alarm.
    fs::create_dir(&directory).expect("a directory");
    assert_eq!(post(&estate.proxy, "/v1/blocks", &[], &block).status, 200);
    assert_eq!(estate.proxy.status()["alarms"], json!([]));
}

#[test]
fn a_dry_run_and_the_configuration_show_what_a_reload_would_change() {
    let estate = Estate::start();
    let proxy = &estate.proxy;
    let dry_run = || post(proxy, "/v1/reload/dry-run", &[], &Value::Null);
    assert_eq!(dry_run().json()["result"], "unchanged");
    let metrics = || proxy.admin("GET", "/metrics").text().lines().count();
    let before = metrics();
    let text = proxy.config_text();
    proxy.write_config(&format!(
        "{text}\n[pools.extra]\nscheme = \"http\"\nmembers = [\"127.0.0.1:1\"]\n[[routes]]\n\
         path = {{ prefix = \"/extra\" }}\npool = \"extra\"\nname = \"extra\"\n"
    ));
    let would = dry_run().json();
    assert_eq!(would["result"], "applied", "{would}");
    assert!(
        would["report"].as_str().unwrap().contains("extra"),
        "{would}"
    );
    assert_eq!(proxy.generation(), 1);
    assert_eq!(metrics(), before);
    let shown = proxy.admin("GET", "/v1/configuration").json();
    assert_eq!(shown["reload"]["result"], "applied");
    assert!(!shown["active"].as_str().unwrap().contains("extra"));
    proxy.write_config("nonsense = true");
    let refused = dry_run();
    assert_eq!(
        (refused.status, &refused.json()["result"]),
        (422, &json!("refused"))
    );
    proxy.write_config(&text);
    assert_eq!(dry_run().json()["result"], "unchanged");
}

#[test]
fn explain_shows_the_members_of_the_running_proxy() {
    let estate = Estate::start();
    let proxy = &estate.proxy;
    let catalog = json!({"method": "GET", "url": CATALOG, "certname": "web01"});
    let explain = || post(proxy, "/v1/explain", &[], &catalog).json();
    let c1 = estate.compilers[0].address();
    let explained = explain();
    assert_eq!(explained["outcome"]["pool"], "compilers", "{explained}");
    let member = &explained["outcome"]["members"][0];
    assert_eq!(
        (&member["address"], &member["is_used"]),
        (&json!(c1), &json!(true))
    );
    let drained = proxy.command(&["drain", "compilers", &c1], &[]);
    assert_eq!(drained.code, Some(0), "{}", drained.stderr);
    let forward = &explain()["outcome"];
    let not_used = json!({
        "address": c1, "is_backup": false, "priority": 0, "is_used": false, "why": "not used: drain",
    });
    let members = forward["members"].as_array().expect("members");
    assert_eq!(members.last(), Some(&not_used), "{forward}");
    assert_eq!(forward["queue"]["kind"], "does-not-wait", "{forward}");
    let other = json!({"method": "GET", "url": "/puppet/v3/catalog/web02", "certname": "web01"});
    assert_eq!(
        post(proxy, "/v1/explain", &[], &other).json()["is_refused"],
        true
    );
    for (invalid, status) in [
        (json!({"method": "GET", "url": "/", "source": 1}), 400),
        (json!({"method": "GET", "url": "/", "source": "here"}), 422),
        (json!({"method": "A B", "url": "/"}), 422),
    ] {
        let answer = post(proxy, "/v1/explain", &[], &invalid);
        assert_eq!(answer.status, status, "{}", answer.text());
    }
}

#[test]
fn traffic_counts_requests_and_refusals() {
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    assert_eq!(
        estate.client(&agent).get("/puppet/v3/catalog/web02").status,
        403
    );
    let traffic = || estate.proxy.admin("GET", "/v1/traffic").json();
    let done = wait_until(LIMIT, || {
        let shown = traffic();
        let counted = shown["work"]["catalog"]["requests"].as_u64() >= Some(1)
            && shown["handshakes"]["ok"].as_u64() >= Some(1);
        counted.then_some(())
    });
    assert!(done.is_some());
    let refusals = traffic()["refusals"].as_object().unwrap().clone();
    assert_eq!(
        refusals.values().filter_map(Value::as_u64).sum::<u64>(),
        1,
        "{refusals:?}"
    );
}

#[test]
fn requests_in_flight_and_the_slowest_name_their_agents() {
    let estate = Estate::builder().compilers(1).start();
    estate.compilers[0].hold();
    let client = estate.agent("web01");
    let requests = || estate.proxy.admin("GET", "/v1/requests").json();
    std::thread::scope(|scope| {
        let catalog = scope.spawn(|| client.get(CATALOG).status);
        wait_for("a request in flight", || {
            requests()["in_flight"][0]["client"] == "web01"
        });
        let shown = requests();
        assert_eq!(shown["in_flight"][0]["pool"], "compilers", "{shown}");
        estate.compilers[0].release();
        assert_eq!(catalog.join().unwrap(), 200);
    });
    wait_for("a slow request", || {
        requests()["slowest"][0]["client"] == "web01"
    });
    let slowest = requests();
    assert_eq!(slowest["slowest"][0]["status"], 200);
    assert!(
        slowest["slowest"][0]["milliseconds"].as_u64() >= Some(1_000),
        "{slowest}"
    );
    assert_eq!(slowest["in_flight"], json!([]));
}

#[test]
fn certificates_that_expire_soon_are_listed() {
    let estate = Estate::start();
    let short = estate.ca.leaf("web01").valid_days(-1, 1).issue();
    let long = estate.ca.agent("web02");
    for agent in [&short, &long] {
        estate.client(agent).get(CATALOG);
    }
    let shown = estate.proxy.admin("GET", "/v1/certificates").json();
    let agents: Vec<_> = shown["agents"].as_array().unwrap().iter().collect();
    let names: Vec<_> = agents.iter().map(|agent| &agent["certname"]).collect();
    assert_eq!(names, [&json!("web01")]);
}
