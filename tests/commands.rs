//! The commands of an operator: JSON, repetition, dry runs, traces and the support bundle.

use std::{
    env,
    fs::{self, Permissions},
    io::{BufRead, BufReader},
    os::unix::{
        fs::{PermissionsExt, symlink},
        net::UnixListener,
    },
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use serde_json::{Value, json};
use testkit::{CommandOutcome, StandIn, wait_until};

use crate::support::{BINARY, Estate, LIMIT, assert_contains, paths::CATALOG};

fn parsed(outcome: &CommandOutcome) -> Value {
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"))
}

#[test]
fn every_command_prints_json() {
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    estate.client(&agent).get(CATALOG);
    let member = estate.compilers[0].address();
    for (words, field) in [
        (&["status"][..], "/phase"),
        (&["requests"], "/slowest"),
        (&["certificates"], "/agents"),
        (&["who"], "/seen"),
        (&["who", "web01"], "/about"),
        (&["refusals"], "/refusals"),
        (&["block", "web02", "--why", "lost"], "/block/why"),
        (&["blocks"], "/0/why"),
        (&["unblock", "web02"], "/block/why"),
        (
            &["drain", "compilers", &member, "--wait"],
            "/members/0/pool",
        ),
        (&["ready", "compilers", &member], "/members/0/pool"),
        (&["reload", "--dry-run"], "/result"),
        (&["reload"], "/result"),
        (&["reopen-logs"], "/reopened"),
        (&["log-level"], "/level"),
        (&["log-level", "debug"], "/previous"),
        (&["crl", "show"], "/crls"),
        (&["config", "show"], "/listeners/agents/address"),
        (&["config", "show", "--defaults"], "/workers"),
        (&["config", "diff"], "/reload/result"),
        (&["explain", "--certname", "web01", CATALOG], "/steps"),
        (
            &["explain", "--live", "--certname", "web01", CATALOG],
            "/steps",
        ),
        (&["check", "--files-only"], "/result"),
        (&["version"], "/version"),
    ] {
        let outcome = estate.proxy.command(&[words, &["--json"]].concat(), &[]);
        assert_eq!(outcome.code, Some(0), "{words:?} {outcome:?}");
        assert!(
            parsed(&outcome).pointer(field).is_some(),
            "{words:?} {outcome:?}"
        );
    }
    let failed = estate.proxy.command(&["crl", "fetch", "--json"], &[]);
    assert_eq!(
        (failed.code, &parsed(&failed)["result"]),
        (Some(1), &Value::from("off"))
    );
    let run = estate.proxy.command(&["run", "--json"], &[]);
    assert_eq!(run.code, Some(64), "{run:?}");
}

#[test]
fn watch_repeats_a_command_that_shows_and_refuses_others() {
    let estate = Estate::start();
    for (words, expected) in [
        (
            &["log-level", "--watch=1"][..],
            "unexpected argument '--watch'",
        ),
        (&["reload", "--watch"], "unexpected argument '--watch'"),
        (&["top", "--watch"], "unexpected argument '--watch'"),
        (&["explain", CATALOG, "--watch"], "--live"),
    ] {
        let refused = estate.proxy.command(words, &[]);
        assert_eq!(refused.code, Some(64), "{words:?}: {refused:?}");
        assert!(refused.stderr.contains(expected), "{words:?}: {refused:?}");
    }
    let mut child = Command::new(BINARY)
        .args(["blocks", "--watch=1"])
        .arg("--socket")
        .arg(estate.proxy.admin_socket())
        .stdout(Stdio::piped())
        .spawn()
        .expect("runs");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    for _ in 0..2 {
        let line = lines.next().expect("a line").expect("text");
        assert_eq!(line, "no blocks");
    }
    child.kill().expect("runs until it is ended");
    child.wait().expect("ends");
}

#[test]
fn config_diff_and_a_dry_run_show_an_edited_file_before_it_is_active() {
    let estate = Estate::start();
    let proxy = &estate.proxy;
    let diff = || proxy.command(&["config", "diff"], &[]);
    let same = diff();
    assert_eq!(same.code, Some(0), "{same:?}");
    assert!(same.stdout.contains("which is active"), "{same:?}");
    let text = proxy.config_text();
    proxy.write_config(&format!("drain_grace = \"7m\"\n{text}"));
    let differs = diff();
    assert_eq!(differs.code, Some(1), "{differs:?}");
    assert!(differs.stdout.contains("drain_grace"), "{differs:?}");
    let dry_run = proxy.command(&["reload", "--dry-run"], &[]);
    assert_eq!(dry_run.code, Some(0), "{dry_run:?}");
    assert!(
        dry_run.stdout.ends_with("nothing was changed\n"),
        "{dry_run:?}"
    );
    assert_eq!(proxy.generation(), 1);
    proxy.write_config(&format!("nonsense = 1\n{text}"));
    let refused = proxy.command(&["reload", "--dry-run"], &[]);
    assert_eq!(refused.code, Some(78), "{refused:?}");
    proxy.write_config(&text);
}

#[test]
fn config_show_and_diff_name_settings_that_wait_for_a_restart() {
    let estate = Estate::start();
    let proxy = &estate.proxy;
    let text = proxy.config_text();
    assert!(!text.contains("queue_max"), "{text}");
    let changed = text.replace("[access_log]", "[access_log]\nqueue_max = 4321");
    assert_ne!(text, changed);
    proxy.write_config(&changed);
    proxy.reload_applied();
    let diff = proxy.command(&["config", "diff"], &[]);
    assert_eq!(diff.code, Some(1), "{diff:?}");
    assert_contains(
        &diff.stdout,
        "used after a restart only: access_log.queue_max",
    );
    let status = proxy.admin("GET", "/v1/configuration").json();
    let active = status["active"].as_str().expect("a text");
    assert!(!active.contains("4321"), "it is not active");
    let shown = proxy.command(&["config", "show"], &[]);
    assert!(shown.stdout.contains("queue_max = 4321"), "{shown:?}");
    let waits = "apply after a restart: access_log.queue_max";
    assert!(shown.stderr.contains(waits), "{shown:?}");
}

#[test]
fn trace_shows_the_requests_of_one_agent() {
    let estate = Estate::start();
    for name in ["web01", "web02"] {
        let agent = estate.ca.agent(name);
        assert_eq!(
            estate
                .client(&agent)
                .get(&CATALOG.replace("web01", name))
                .status,
            200
        );
    }
    estate.wait_for_records(2);
    let trace = || estate.proxy.command(&["trace", "web01"], &[]);
    let shown = wait_until(LIMIT, || {
        let shown = trace();
        shown
            .stdout
            .contains("GET /puppet/v3/catalog/web01")
            .then_some(shown)
    });
    let shown = shown.unwrap_or_else(|| panic!("{:?}", trace()));
    assert!(shown.stdout.contains(": 1 requests in "), "{shown:?}");
    assert!(!shown.stdout.contains("web02"), "{shown:?}");
    let none = estate.proxy.command(&["trace", "web09"], &[]);
    assert!(none.stdout.contains("no request of web09"), "{none:?}");
}

#[test]
fn trace_reads_the_log_of_several_that_it_understands() {
    let estate = Estate::start();
    let proxy = &estate.proxy;
    let path = |name: &str| proxy.directory().join(name).display().to_string();
    let (apache, combined) = (path("apache.log"), path("combined.log"));
    let logs = format!(
        "[[access_log]]\npath = {apache:?}\nformat = '%h %u %>s'\n\n\
         [[access_log]]\npath = {combined:?}\n\n[[access_log]]\n"
    );
    proxy.edit_config("[access_log]\n", &logs);
    proxy.reload_applied();
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    let read_from = |file: &str| {
        let read = || {
            let shown = proxy.command(&["trace", "web01"], &[]).stdout;
            let request = shown.contains("GET /puppet/v3/catalog/web01");
            request.then_some(shown)
        };
        let shown = wait_until(LIMIT, read).expect("the request");
        let last = format!("read from {file}\n");
        assert!(shown.ends_with(&last), "{last}: {shown}");
    };
    read_from(&path("access.json"));
    proxy.edit_config("format = \"json\"", "format = \"%h %>s\"");
    read_from(&combined);
    proxy.edit_config(&format!("{combined:?}"), "\"stdout\"");
    let refused = proxy.command(&["trace", "web01"], &[]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let words = "no access log that is a file in format json or combined";
    assert!(refused.stderr.contains(words), "{refused:?}");
}

/// What bash offers for a line that ends at the cursor, with the options at its end for the call of the program.
fn completed(words: &[&str], options: &[&str]) -> Vec<String> {
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/completions/proscenium.bash"
    );
    // bash separates words at colons and equals signs too, and calls the function with the word before the cursor.
    let call = r#"compopt() { :; }
        . "$1"; COMP_LINE="$2"; COMP_POINT=${#COMP_LINE}; shift 2
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        _proscenium_with_names proscenium "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}"
        printf '%s\n' "${COMPREPLY[@]}""#;
    let (last, before) = words.split_last().expect("words");
    let line = [&["proscenium"][..], options, before].concat();
    let mut split: Vec<&str> = line.clone();
    for (index, part) in last.split(':').enumerate() {
        split.extend((index > 0).then_some(":"));
        split.push(part);
    }
    let path = Path::new(BINARY).parent().expect("a directory");
    let path = format!("{}:{}", path.display(), env::var("PATH").expect("a path"));
    let output = Command::new("bash")
        .args(["-c", call, "bash", script])
        .arg(format!("{} {last}", line.join(" ")))
        .args(split)
        .env("PATH", path)
        .output()
        .expect("bash starts");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{words:?}");
    let printed = String::from_utf8_lossy(&output.stdout);
    let printed = printed
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('-'));
    printed.map(str::to_owned).collect()
}

#[test]
fn the_shell_completes_members_pools_and_blocked_names() {
    let estate = Estate::start();
    let config = estate.proxy.config_path().display().to_string();
    let options = ["--config", &*config];
    let offered = |words: &[&str]| completed(words, &options);
    let addresses: Vec<_> = estate.compilers.iter().map(StandIn::address).collect();
    for verb in ["ready", "drain", "maintenance"] {
        let names = offered(&[verb, ""]);
        for name in addresses
            .iter()
            .map(String::as_str)
            .chain(["ca", "compilers"])
        {
            assert!(
                names.iter().any(|offered| offered == name),
                "{verb}: {names:?}"
            );
        }
    }
    assert_eq!(offered(&["drain", "comp"]), ["compilers"]);
    assert_eq!(offered(&["drain", "--wait", "comp"]), ["compilers"]);
    let (_, port) = addresses[0].rsplit_once(':').expect("a port");
    assert_eq!(offered(&["drain", &addresses[0]]), [port]);
    assert_eq!(offered(&["drain", "--host", "127"]), ["127.0.0.1"]);
    assert_eq!(offered(&["drain", "--why", "comp"]), ["comp"]);
    assert_eq!(offered(&["unblock", "web"]), [""; 0]);
    let blocked = ["web07", "--why", "lost"];
    assert_eq!(estate.proxy.command(&["block"], &blocked).code, Some(0));
    assert_eq!(offered(&["unblock", "web"]), ["web07"]);
    assert_eq!(offered(&["status", "web"]), [""; 0]);
    // No process listens on the first socket, and none answers on the second one.
    let silent = estate.proxy.directory().join("silent.sock");
    let _listener = UnixListener::bind(&silent).expect("listens");
    for socket in ["/nonexistent/admin.sock", &silent.display().to_string()] {
        let begun = Instant::now();
        let offered = completed(&["drain", "comp"], &["--socket", socket]);
        assert_eq!(offered, [""; 0], "{socket}");
        assert!(begun.elapsed() < LIMIT, "{socket}");
    }
}

#[test]
fn a_support_bundle_has_the_status_and_no_key() {
    let estate = Estate::start();
    let file = estate.proxy.directory().join("bundle.json");
    let path = file.display().to_string();
    let written = estate.proxy.command(&["support-bundle", &path], &[]);
    assert_eq!(written.code, Some(0), "{written:?}");
    let content = fs::read_to_string(&file).expect("the bundle");
    assert!(!content.contains("PRIVATE KEY"));
    let bundle: Value = serde_json::from_str(&content).expect("JSON");
    assert_eq!(bundle["status"]["phase"], "serving");
    for (part, expected) in [
        ("version", "TLS: "),
        ("metrics", "proscenium_build_info"),
        ("configuration", "[listeners.agents]"),
    ] {
        assert!(bundle[part].to_string().contains(expected), "{part}");
    }
    for list in [
        "events",
        "traffic",
        "requests",
        "members",
        "blocks",
        "agents",
        "refusals",
        "certificates",
    ] {
        assert!(
            bundle[list].is_object() || bundle[list].is_array(),
            "{list}"
        );
    }
    assert_eq!(bundle["errors"], json!({}), "every part is readable");
    let again = estate.proxy.command(&["support-bundle", &path], &[]);
    assert_eq!(
        again.code,
        Some(1),
        "an existing file is not overwritten: {again:?}"
    );
}

#[test]
fn a_support_bundle_of_a_dead_proxy_has_what_the_host_shows() {
    let directory = tempfile::TempDir::new().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let programs = path("programs");
    fs::create_dir(&programs).expect("a directory");
    let journalctl = programs.join("journalctl");
    fs::write(&journalctl, "#!/bin/sh\necho of the journal: $*\n").expect("a program");
    fs::set_permissions(&journalctl, Permissions::from_mode(0o755)).expect("is executable");
    let lines = "{\"certname\":\"web01\"}\n".repeat(100_000);
    fs::write(path("access.json"), lines + "the last record\n").expect("a log");
    let event =
        r#"{"at":"2026-01-31T08:00:00Z","kind":"process","subject":"","message":"drained"}"#;
    fs::create_dir(path("state")).expect("a directory");
    fs::write(path("state").join("history.jsonl"), event).expect("a stored event");
    let config = format!(
        "[state]\ndirectory = {:?}\n[admin]\nsocket = {:?}\n[access_log]\npath = {:?}\nformat = \"json\"\n[pools.ca]\nnonsense = 1\n",
        path("state"),
        path("none.sock"),
        path("access.json"),
    );
    fs::write(path("proscenium.toml"), config).expect("a configuration");
    let write = |bundle: &str| {
        let mut command = Command::new(BINARY);
        command.arg("support-bundle").arg(path(bundle));
        command.arg("--config").arg(path("proscenium.toml"));
        command.env("PATH", &programs).output().expect("runs")
    };
    let written = write("bundle.json");
    assert_eq!(written.status.code(), Some(3), "{written:?}");
    let said = String::from_utf8_lossy(&written.stderr);
    assert!(said.contains("the proxy did not answer"), "{said}");
    assert!(said.contains("none.sock"), "{said}");
    let content = fs::read_to_string(path("bundle.json")).expect("the bundle");
    let bundle: Value = serde_json::from_str(&content).expect("JSON");
    assert_eq!(
        bundle["check"]["output"]["result"], "refused",
        "{}",
        bundle["check"]
    );
    assert_eq!(
        bundle["doctor"]["problem"], "exit status: 78",
        "{}",
        bundle["doctor"]
    );
    assert!(bundle["doctor"]["output"]["findings"].is_array());
    for (part, field, expected) in [
        ("version", "", "TLS: "),
        ("config", "/errors", "nonsense"),
        ("journal", "/output", "of the journal: --unit=proscenium"),
        ("clock", "/problem", "timedatectl is not installed"),
        ("chrony", "/problem", "chronyc is not installed"),
        ("unit", "/problem", "systemctl is not installed"),
        ("events", "/events/0/message", "drained"),
        ("limits", "/end", "Max open files"),
        ("open_files", "/file", "/proc/sys/fs/file-nr"),
        ("access_log", "/end", "the last record"),
        ("errors", "/proxy", "no proscenium is listening"),
    ] {
        let found = bundle[part].pointer(field).and_then(Value::as_str);
        assert!(
            found.is_some_and(|text| text.contains(expected)),
            "{part}: {}",
            bundle[part]
        );
    }
    let end = bundle["access_log"]["end"].as_str().expect("text");
    assert!(end.len() < 1 << 20, "{} bytes", end.len());

    // The account of the service may have replaced its log by a link to a file that only root can read.
    fs::rename(path("access.json"), path("secret")).expect("a file");
    symlink(path("secret"), path("access.json")).expect("a link");
    assert_eq!(write("linked.json").status.code(), Some(3));
    let content = fs::read_to_string(path("linked.json")).expect("the bundle");
    assert!(!content.contains("the last record"));
    let bundle: Value = serde_json::from_str(&content).expect("JSON");
    let problem = bundle["access_log"]["problem"].as_str().unwrap_or_default();
    assert!(problem.contains("symbolic link"), "{problem}");
}

#[test]
fn top_needs_a_terminal() {
    let estate = Estate::start();
    let top = estate.proxy.command(&["top"], &[]);
    assert_eq!(top.code, Some(64), "{top:?}");
    assert!(top.stderr.contains("status --watch"), "{top:?}");
}

#[test]
fn config_show_prints_the_settings_as_json() {
    let estate = Estate::start();
    let show = |flags: &[&str]| {
        let outcome = estate.proxy.command(&["config", "show", "--json"], flags);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        parsed(&outcome)
    };
    let shown = show(&[]);
    let members: Vec<_> = estate.compilers.iter().map(StandIn::address).collect();
    assert_eq!(shown["pools"]["compilers"]["members"], json!(members));
    assert_eq!(shown.get("dns"), None, "its settings are defaults");
    let all = show(&["--defaults"]);
    assert_eq!(all["pools"]["compilers"]["members"], json!(members));
    assert_eq!(all["listeners"]["agents"]["http2"], json!(true));
    assert!(all["dns"].is_object(), "{all}");
    let text = all.to_string();
    assert!(text.contains("private_keys") && !text.contains("PRIVATE KEY"));
}

#[test]
fn lists_are_tables_on_a_terminal_and_lines_elsewhere() {
    let estate = Estate::start();
    let agent = estate.ca.agent("web01");
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    let block = ["block", "web01", "--why", "stolen"];
    assert_eq!(estate.proxy.command(&block, &[]).code, Some(0));
    assert_eq!(estate.client(&agent).get(CATALOG).status, 403);
    let refused = || estate.proxy.command(&["refusals"], &[]).stdout;
    let has_refusal = || {
        refused()
            .contains("on listener agents: blocked")
            .then_some(())
    };
    assert!(wait_until(LIMIT, has_refusal).is_some(), "{}", refused());
    for (verb, header, line) in [
        ("blocks", "BLOCKED  ", "certname web01, since "),
        ("refusals", "LAST  ", "  on listener agents: blocked"),
        ("who", "EXPIRES  ", "  web01  serial "),
    ] {
        let lines = estate.proxy.command(&[verb], &[]).stdout;
        assert!(lines.contains(line), "{verb}: {lines}");
        let table = on_terminal(&estate, verb);
        assert!(table.starts_with(header), "{verb}: {table}");
        assert!(table.contains("web01"), "{verb}: {table}");
        assert!(!table.contains(line), "{verb}: {table}");
    }
}

/// The output of a command on a terminal, which script(1) opens.
fn on_terminal(estate: &Estate, verb: &str) -> String {
    let socket = estate.proxy.admin_socket();
    let command = format!("{BINARY} {verb} --socket {}", socket.display());
    let output = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .stdin(Stdio::null())
        .output()
        .expect("script runs");
    let text = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    assert!(output.status.success(), "{text}");
    // The terminal shows the end of the input.
    text.trim_start_matches("^D\u{8}\u{8}").to_owned()
}
