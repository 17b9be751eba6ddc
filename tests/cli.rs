//! The command line: exit codes, output on each stream, and the verbs that query a running proxy.

use std::{
    fs::{self, Permissions},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
};

use serde_json::Value;
use tempfile::TempDir;
use testkit::{Ca, CommandOutcome, Tool, command_line};

use crate::support::{self, assert_contains};

const BINARY: &str = env!("CARGO_BIN_EXE_proscenium");

#[test]
fn help_shows_every_verb_and_the_exit_codes() {
    let help = proscenium(&["--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    for expected in [
        "init",
        "run",
        "check",
        "explain",
        "config",
        "reload",
        "reopen-logs",
        "log-level",
        "status",
        "ready",
        "drain",
        "maintenance",
        "block",
        "unblock",
        "who",
        "refusals",
        "doctor",
        "blocks",
        "version",
        "64",
        "78",
    ] {
        assert!(
            help.stdout.contains(expected),
            "{expected} is not in {}",
            help.stdout
        );
    }
    let show = proscenium(&["config", "show", "--help"]);
    assert_eq!(show.code, Some(0));
    assert!(show.stdout.contains("--defaults"));
}

#[test]
fn version_is_a_verb_and_a_flag() {
    let short = format!("proscenium {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(proscenium(&["-V"]).stdout, short);
    let version = proscenium(&["version"]);
    assert_eq!(
        (version.code, version.stderr.as_str()),
        (Some(0), ""),
        "{version:?}"
    );
    assert_eq!(proscenium(&["--version"]).stdout, version.stdout);
    let json = proscenium(&["version", "--json"]);
    let json: Value = serde_json::from_str(&json.stdout).expect("JSON");
    let lines = format!(
        "{short}commit: {}\nrustc: {}\nTLS: {}\nprofile: {}\n",
        json["commit"].as_str().unwrap(),
        json["rustc"].as_str().unwrap(),
        json["tls"].as_str().unwrap(),
        json["profile"].as_str().unwrap()
    );
    let profile = if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    };
    assert_eq!(json["profile"], profile);
    assert_eq!(version.stdout, lines);
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    // A debug build does not run git unless its environment names a commit. The tests of the build script cover git.
    let commit = option_env!("PROSCENIUM_COMMIT").unwrap_or("unknown");
    assert_eq!(json["commit"], commit);
    let words = regex::Regex::new(r"^\d+\.\d+\.\d+\S* \(\w+ [\d-]+\)$").unwrap();
    assert!(words.is_match(json["rustc"].as_str().unwrap()), "{json}");
    let libraries = regex::Regex::new(r"^rustls \d[\d.]+, aws-lc-rs \d[\d.]+$").unwrap();
    assert!(libraries.is_match(json["tls"].as_str().unwrap()), "{json}");
}

#[test]
fn help_of_a_verb_is_the_same_as_a_verb_and_as_an_option() {
    assert_eq!(proscenium(&["help"]).stdout, proscenium(&["--help"]).stdout);
    let verbs = verbs(&proscenium::command());
    assert!(verbs.len() > 20, "{verbs:?}");
    for verb in verbs {
        let verb: Vec<_> = verb.iter().map(String::as_str).collect();
        let by_verb = proscenium(&[&["help"], &verb[..]].concat());
        let by_option = proscenium(&[&verb[..], &["--help"]].concat());
        assert_eq!((by_verb.code, by_verb.stderr.as_str()), (Some(0), ""));
        assert_eq!(by_verb.stdout, by_option.stdout, "{verb:?}");
    }
}

/// Each verb, as its words on the command line.
fn verbs(command: &clap::Command) -> Vec<Vec<String>> {
    let mut verbs = Vec::new();
    for verb in command.get_subcommands() {
        let name = verb.get_name().to_owned();
        verbs.push(vec![name.clone()]);
        let below = self::verbs(verb).into_iter();
        verbs.extend(below.map(|words| [vec![name.clone()], words].concat()));
    }
    verbs
}

#[test]
fn help_ends_with_the_exit_codes_of_the_verb() {
    for verb in proscenium::verbs_with_exit_codes() {
        let words: Vec<_> = verb.split(' ').chain(["--help"]).collect();
        let help = proscenium(&words).stdout;
        let (_, codes) = help.split_once("\nExit codes:\n").expect("exit codes");
        let shown: Vec<u8> = codes
            .lines()
            .filter_map(|line| line.get(..5)?.trim().parse().ok())
            .collect();
        let declared = proscenium::exit_codes(verb).iter().map(|(code, _)| *code);
        assert_eq!(shown, declared.collect::<Vec<_>>(), "{help}");
    }
}

#[test]
fn an_invalid_command_line_exits_64() {
    for (arguments, expected) in [
        (&[][..], "Usage: proscenium"),
        (&["chek"], "a similar subcommand exists: 'check'"),
        (&["run", "--frob"], "--frob"),
        (&["run", "--log", "info=loud=very"], "--log"),
        (&["drain"], "<MEMBER>"),
        (&["drain", "a", "b", "c"], "<MEMBER>"),
        (&["drain", "a", "--host", "b"], "--host"),
        (&["explain"], "<URL>"),
        (
            &["explain", "/x", "--cert", "a.pem", "--certname", "a"],
            "cannot be used with",
        ),
        (&["explain", "/x", "--header", "nonsense"], "NAME: VALUE"),
        (&["config"], "show"),
    ] {
        let outcome = proscenium(arguments);
        assert_eq!(
            (outcome.code, outcome.stdout.as_str()),
            (Some(64), ""),
            "{arguments:?}"
        );
        assert_contains(&outcome.stderr, expected);
    }
}

#[test]
fn an_unknown_key_is_refused_by_every_verb_that_reads_the_configuration() {
    let directory = TempDir::new().unwrap();
    let config = directory.path().join("proscenium.toml");
    fs::write(
        &config,
        "workers = 1\n[pools.compilers]\nmembrs = [\"c1:8140\"]\n",
    )
    .unwrap();
    let config = config.to_str().unwrap();
    for verb in [
        &["run", "--config", config][..],
        &["check", "--config", config],
        &["explain", "/puppet/v3/catalog/web01", "--config", config],
        &["config", "show", "--config", config],
    ] {
        let outcome = proscenium(verb);
        assert_eq!(
            (outcome.code, outcome.stdout.as_str()),
            (Some(78), ""),
            "{verb:?}"
        );
        for expected in [&format!("{config}:3:1"), "membrs", "members", "^^^^^^"] {
            assert!(
                outcome.stderr.contains(expected),
                "{expected} is not in {}",
                outcome.stderr
            );
        }
    }
}

#[test]
fn a_missing_configuration_exits_78() {
    let outcome = proscenium(&["check", "--config", "/nonexistent/proscenium.toml"]);
    assert_eq!(outcome.code, Some(78));
    assert_contains(&outcome.stderr, "/nonexistent/proscenium.toml");
}

#[test]
fn verbs_that_query_the_proxy_print_what_to_do_where_none_runs() {
    let directory = TempDir::new().unwrap();
    let socket = directory.path().join("admin.sock");
    let config = directory.path().join("proscenium.toml");
    // The file is also invalid, but the command still finds the socket in it.
    let text = format!("workers = oops\n[admin]\nsocket = {socket:?}\n");
    fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();
    let other = directory.path().join("other.sock");
    let other = other.to_str().unwrap();
    for (arguments, socket) in [
        (
            &["reload", "--config", config][..],
            socket.to_str().unwrap(),
        ),
        (&["status", "--config", config], socket.to_str().unwrap()),
        (
            &["drain", "p", "m", "--config", config],
            socket.to_str().unwrap(),
        ),
        (&["ready", "p", "m", "--socket", other], other),
        (&["maintenance", "p", "m", "--socket", other], other),
    ] {
        let outcome = proscenium(arguments);
        assert_eq!(
            (outcome.code, outcome.stdout.as_str()),
            (Some(1), ""),
            "{arguments:?}"
        );
        let expected = format!("no proscenium is listening on {socket}: is it running?");
        assert!(outcome.stderr.contains(&expected), "{}", outcome.stderr);
    }
}

#[test]
fn check_lists_the_names_of_certificates_and_the_active_crls() {
    let ca = Ca::new();
    let good = configured(&ca, "127.0.0.1:1").check();
    assert_eq!(good.code, Some(0), "{}", good.stderr);
    assert!(
        good.stdout.contains("puppet") && good.stdout.contains("CRL"),
        "{}",
        good.stdout
    );
    assert!(
        good.stdout.ends_with("proscenium.toml: good\n"),
        "{}",
        good.stdout
    );
}

#[test]
fn check_and_run_report_all_that_the_host_lacks_at_once() {
    let ca = Ca::new();
    let lacking = || {
        configured(&ca, "127.0.0.1:1")
            .file("file", "", 0o644)
            .whole(LACKING)
    };
    let checked = lacking().check();
    let started = lacking().try_start().map(drop).unwrap_err();
    for outcome in [&checked, &started] {
        assert_eq!(outcome.code, Some(78), "{}", outcome.stderr);
        assert!(!outcome.stdout.contains("good\n"), "{}", outcome.stdout);
        for expected in [
            "listeners.foreign.address: cannot listen on 192.0.2.1:8140",
            "no interface of this host has that address",
            "access_log.path: cannot write the access log",
            "/none does not exist",
            "admin.socket: cannot create the admin socket",
            "proscenium.toml: 3 errors",
        ] {
            assert!(
                outcome.stderr.contains(expected),
                "{expected} is not in {}",
                outcome.stderr
            );
        }
    }
    let files = lacking().argument("--files-only").check();
    assert_eq!(files.code, Some(0), "{}", files.stderr);
}

#[test]
fn an_address_in_use_exits_75_because_a_restart_may_help() {
    let ca = Ca::new();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap();
    let taken = || {
        configured(&ca, "127.0.0.1:1").with(&format!("[listeners.taken]\naddress = \"{address}\""))
    };
    for outcome in [taken().check(), taken().try_start().map(drop).unwrap_err()] {
        assert_eq!(outcome.code, Some(75), "{}", outcome.stderr);
        let expected = format!("listeners.taken.address: cannot listen on {address}");
        assert!(outcome.stderr.contains(&expected), "{}", outcome.stderr);
    }
}

#[test]
fn check_accepts_addresses_of_the_running_proxy_and_creates_nothing() {
    let ca = Ca::new();
    let proxy = configured(&ca, "127.0.0.1:1").start();
    let good = proxy.command(&["check"], &[]);
    assert_eq!(good.code, Some(0), "{}", good.stderr);
    let names = || {
        let entries = fs::read_dir(proxy.directory()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    proxy.edit_config("/access.json", "/other.json");
    let before = names();
    let good = proxy.command(&["check"], &[]);
    assert_eq!(good.code, Some(0), "{}", good.stderr);
    assert_eq!(names(), before);
}

#[test]
fn check_strict_fails_on_warnings_and_json_is_printed() {
    let ca = Ca::new();
    // Without a state directory the proxy still starts, with an alarm.
    let warned = || {
        configured(&ca, "127.0.0.1:1")
            .file("occupied", "a file", 0o600)
            .with("[state]\ndirectory = \"{dir}/occupied\"")
    };
    let lenient = warned().argument("--json").check();
    let strict = warned().argument("--json").argument("--strict").check();
    for (outcome, code, result) in [(&lenient, 0, "good"), (&strict, 78, "refused")] {
        assert_eq!(outcome.code, Some(code), "{}", outcome.stderr);
        let json: Value = serde_json::from_str(&outcome.stdout).unwrap();
        assert_eq!(json["result"], result);
        assert!(json["facts"][0].is_string(), "{json}");
        let problems = json["problems"].as_array().unwrap();
        let of_state = problems
            .iter()
            .find(|problem| problem["key"] == "state.directory")
            .unwrap();
        assert_eq!(of_state["severity"], "warning");
        assert_eq!(of_state["file"], json["file"]);
        assert!(of_state["line"].as_u64() > Some(1), "{of_state}");
        assert!(of_state["help"].is_array(), "{of_state}");
        let message = of_state["message"].as_str().unwrap();
        assert!(message.contains("it is not a directory"), "{message}");
    }
    let refused = configured(&ca, "127.0.0.1:1")
        .with("[pols]")
        .argument("--json")
        .check();
    assert_eq!(refused.code, Some(78));
    let json: Value = serde_json::from_str(&refused.stdout).unwrap();
    assert_eq!(json["result"], "refused");
    assert_eq!(json["problems"][0]["key"], "pols");
}

#[test]
fn check_refuses_a_configuration_that_would_lock_agents_out() {
    let ca = Ca::new();
    for (credential, expected) in [
        (
            ca.leaf("puppet").dns("puppet").expired().issue(),
            "agents refuse the certificate",
        ),
        (
            ca.leaf("puppet").dns("puppet").valid_days(1, 9).issue(),
            "compare this host's clock",
        ),
        (
            ca.leaf("puppet").without_san().issue(),
            "it has no subjectAltName",
        ),
    ] {
        let checked = configured(&ca, "127.0.0.1:1")
            .credential(&credential)
            .check();
        assert_eq!(checked.code, Some(78), "{}", checked.stderr);
        assert!(checked.stderr.contains(expected), "{}", checked.stderr);
    }
    for fetch in ["enabled = false", "enabled = true"] {
        let checked = configured(&ca, "127.0.0.1:1")
            .fetch(fetch)
            .file("other-crl.pem", &Ca::other().crl_pem(), 0o644)
            .with("[trust]\ncrl = \"{dir}/other-crl.pem\"")
            .check();
        assert_eq!(checked.code, Some(78), "{fetch}: {}", checked.stderr);
        assert!(checked.stderr.contains("CRL"), "{}", checked.stderr);
    }
}

#[test]
fn check_tests_the_rights_of_another_account() {
    let ca = Ca::new();
    // The key of this test belongs to the account that runs it.
    let asked = configured(&ca, "127.0.0.1:1")
        .argument("--user")
        .argument("daemon")
        .check();
    if rustix::process::geteuid().is_root() {
        assert_eq!(asked.code, Some(78), "{}", asked.stderr);
        let expected = "daemon may not read the private key";
        assert!(asked.stderr.contains(expected), "{}", asked.stderr);
    } else {
        assert_eq!(asked.code, Some(1), "{}", asked.stderr);
        assert!(asked.stderr.contains("only root"), "{}", asked.stderr);
    }
    let unknown = configured(&ca, "127.0.0.1:1")
        .argument("--user")
        .argument("no-such-account")
        .check();
    assert_eq!(unknown.code, Some(1), "{}", unknown.stderr);
    assert_contains(&unknown.stderr, "does not exist");
}

#[test]
fn the_commands_that_check_prints_open_the_ssldir_of_debians_agent() {
    // Only root may grant access to files of other accounts.
    if !rustix::process::geteuid().is_root() || Tool::Setfacl.command().is_none() {
        return;
    }
    let ca = Ca::new();
    let place = TempDir::new().unwrap();
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    // The directories as Debian's package creates them: /var/lib/puppet and its ssldir, both with mode 0750.
    let puppet = place.path().join("puppet");
    let ssldir = puppet.join("ssl");
    ca.write_ssldir(&ssldir, "puppet");
    let keys = ssldir.join("private_keys");
    for directory in [&puppet, &ssldir, &keys] {
        fs::set_permissions(directory, Permissions::from_mode(0o750)).unwrap();
    }
    let check = || {
        configured(&ca, "127.0.0.1:1")
            .argument("--files-only")
            .argument("--user")
            .argument("daemon")
            .argument("--ssldir")
            .argument(ssldir.to_str().unwrap())
            .check()
    };
    let closed = check();
    assert_eq!(closed.code, Some(78), "{}", closed.stderr);
    let commands: Vec<_> = closed.stderr.split('`').skip(1).step_by(2).collect();
    let commands = commands.iter().filter(|text| text.starts_with("setfacl"));
    for command in commands {
        assert!(command.contains(puppet.to_str().unwrap()), "{command}");
        let ran = Command::new("sh").arg("-c").arg(command).status().unwrap();
        assert!(ran.success(), "{command}");
    }
    let open = check();
    assert_eq!(open.code, Some(0), "{}", open.stderr);
}

#[test]
fn the_help_about_a_file_fits_the_mistake_in_it() {
    let ca = Ca::new();
    let own = ca.server("puppet");
    let place = TempDir::new().unwrap();
    let der = place.path().join("der.crt");
    fs::write(&der, &own.cert_der).unwrap();
    let pair = |chain: &str, key: &str| {
        configured(&ca, "127.0.0.1:1")
            .file("own.pem", &own.cert_pem, 0o644)
            .file("own.key", &own.key_pem, 0o640)
            .with(&format!(
                "[[tls.certificates]]\nchain = {chain:?}\nkey = {key:?}"
            ))
            .check()
    };
    let der = der.to_str().unwrap();
    for (outcome, expected, misleading) in [
        (
            pair("{dir}/own.pem", "{dir}/ssl"),
            "name one of the files in this directory",
            "chmod",
        ),
        (
            pair("{dir}/own.key", "{dir}/own.pem"),
            "`chain` and `key` may be swapped",
            "chmod",
        ),
        (
            pair(der, "{dir}/own.key"),
            "it is DER; convert it with `openssl x509 -inform der",
            "holds no certificate",
        ),
        (
            configured(&ca, "127.0.0.1:1")
                .argument("--ssldir")
                .argument("{dir}/sll")
                .check(),
            "/sll does not exist",
            "puppet ssl bootstrap",
        ),
    ] {
        assert_eq!(outcome.code, Some(78), "{expected}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(expected), "{}", outcome.stderr);
        assert!(!outcome.stderr.contains(misleading), "{}", outcome.stderr);
    }
}

#[test]
fn reload_waits_and_its_exit_code_shows_the_outcome() {
    let ca = Ca::new();
    let proxy = configured(&ca, "127.0.0.1:1").start();

    proxy.edit_config(
        "[pools.ca]",
        "[pools.other]\nscheme = \"http\"\nmembers = [\"127.0.0.1:3\"]\n[pools.ca]",
    );
    let applied = proxy.command(&["reload"], &[]);
    assert_eq!(applied.code, Some(0), "{}", applied.stderr);
    assert!(
        applied
            .stdout
            .ends_with("applied: generation 2 is active\n"),
        "{}",
        applied.stdout
    );

    let unchanged = proxy.command(&["reload"], &[]);
    assert_eq!(unchanged.code, Some(0), "{}", unchanged.stderr);

    proxy.edit_config("[pools.other]", "[pols.other]");
    let refused = proxy.command(&["reload"], &[]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(78), ""));
    for expected in ["pols", "pools", "stays active"] {
        assert!(
            refused.stderr.contains(expected),
            "{expected} is not in {}",
            refused.stderr
        );
    }
    let status = proxy.status();
    assert_eq!(status["phase"], "serving");
    assert_eq!(status["last_reload"]["result"], "refused");
}

#[test]
fn an_unknown_member_exits_1_and_lists_the_members() {
    let ca = Ca::new();
    let proxy = configured(&ca, "127.0.0.1:1").start();
    for (pool, member, expected) in [
        ("compilers", "c9:8140", "127.0.0.1:1"),
        ("catalogs", "127.0.0.1:1", "compilers"),
    ] {
        let outcome = proxy.command(&["drain", pool, member], &[]);
        assert_eq!(outcome.code, Some(1));
        assert!(outcome.stderr.contains(expected), "{}", outcome.stderr);
    }
}

#[test]
fn explain_shows_pool_and_access_without_a_running_proxy() {
    let ca = Ca::new();
    let proxy = configured(&ca, "127.0.0.1:1").start();
    for (arguments, expected) in [
        (
            &["/puppet/v3/catalog/web01", "--certname", "web01"][..],
            "compilers",
        ),
        (&["/puppet/v3/catalog/web01"], "403"),
        (&["/puppet/v3/catalog/web01", "--certname", "web02"], "403"),
        (&["/puppet-ca/v1/certificate/ca"], "127.0.0.1:2"),
        (&["/puppet/v3/%2e%2e/x", "--certname", "web01"], "400"),
        (
            &["https://puppet:8140/nowhere", "--certname", "web01"],
            "404",
        ),
    ] {
        let outcome = proxy.command(&["explain"], arguments);
        let is_refused = ["400", "403", "404"].contains(&expected);
        let code = Some(i32::from(is_refused));
        assert_eq!(outcome.code, code, "{}", outcome.stderr);
        assert_contains(&outcome.stdout, expected);
    }
}

#[test]
fn config_show_prints_what_the_parser_reads_back() {
    let ca = Ca::new();
    let proxy = configured(&ca, "127.0.0.1:1").start();
    for flags in [&[][..], &["--defaults"]] {
        let shown = proxy.command(&["config", "show"], flags);
        assert_eq!(shown.code, Some(0), "{}", shown.stderr);
        proxy.write_config(&shown.stdout);
        let again = proxy.command(&["config", "show"], flags);
        assert_eq!(again.stdout, shown.stdout);
    }
}

/// Valid files for a host that lacks both the address and the directories.
const LACKING: &str = r#"
ssldir = "{dir}/ssl"
certname = "puppet"
[listeners.agents]
address = "127.0.0.1:{port}"
[listeners.foreign]
address = "192.0.2.1:8140"
[access_log]
path = "{dir}/none/access.log"
[admin]
socket = "{dir}/file/admin.sock"
[pools.ca]
scheme = "http"
members = ["127.0.0.1:2"]
[pools.compilers]
scheme = "http"
members = ["127.0.0.1:1"]
"#;

/// A CA and one compiler over plain HTTP.
fn configured(ca: &Ca, compiler: &str) -> testkit::ProxyBuilder {
    support::proxy(ca)
        .with("[pools.ca]\nscheme = \"http\"\nmembers = [\"127.0.0.1:2\"]")
        .with(&format!(
            "[pools.compilers]\nscheme = \"http\"\nmembers = [\"{compiler}\"]"
        ))
}

fn proscenium(arguments: &[&str]) -> CommandOutcome {
    command_line(Path::new(BINARY), arguments)
}
