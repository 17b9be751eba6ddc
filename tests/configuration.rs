//! The configuration from the operator's point of view: `check`, `run` and reload report every problem alike.

use std::{
    fs::{self, File},
    io::ErrorKind,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, SystemTime},
};

use tempfile::TempDir;
use testkit::{Ca, CommandOutcome, Proxy, ProxyBuilder, command_line, wait_until};

use crate::support::{self, BINARY, LIMIT};

/// A valid configuration. Each case below breaks it at one point.
const GOOD: &str = r#"
ssldir = "{dir}/ssl"
certname = "puppet"

[listeners.agents]
address = "127.0.0.1:{port}"

[trust]
crl = "{dir}/crl.pem"

[pools.ca]
scheme = "http"
members = ["127.0.0.1:1"]

[pools.compilers]
scheme = "http"
members = ["127.0.0.1:2"]

[admin]
socket = "{dir}/admin.sock"
"#;

/// One mistake and the report about it.
struct Mistake {
    /// The original text.
    from: &'static str,
    /// The text that replaces it.
    to: &'static str,
    /// The text that the caret marks; empty if the file has no such text.
    caret: &'static str,
    /// Key path, problem, expectation, help.
    report: &'static [&'static str],
}

const fn mistake(
    from: &'static str,
    to: &'static str,
    caret: &'static str,
    report: &'static [&'static str],
) -> Mistake {
    Mistake {
        from,
        to,
        caret,
        report,
    }
}

const MISTAKES: &[Mistake] = &[
    mistake(
        "[trust]",
        "workrs = 2\n[trust]",
        "workrs",
        &["listeners.agents.workrs: unknown key", "known keys"],
    ),
    mistake(
        "certname = \"puppet\"",
        "certname = \"puppet\"\nworkrs = 2",
        "workrs",
        &["workrs: unknown key", "did you mean `workers`?"],
    ),
    mistake(
        "[trust]",
        "[trust]\ndepth = \"1\"",
        "\"1\"",
        &["trust.depth", "wrong type", "expected an integer"],
    ),
    mistake(
        "[trust]",
        "[trust]\ncrl_expired = \"warm\"",
        "\"warm\"",
        &[
            "trust.crl_expired",
            "expected \"warn\", \"reject\", or \"grace:\"",
        ],
    ),
    mistake(
        "[trust]",
        "[tls]\ncertificates = [{ chain = \"{dir}/nowhere.pem\", key = \"{dir}/ssl/private_keys/puppet.pem\" }]\n[trust]",
        "\"{dir}/nowhere.pem\"",
        &["tls.certificates[0].chain", "cannot be read: No such file"],
    ),
    mistake(
        "[trust]",
        "[tls]\ncertificates = [{ chain = \"{dir}/ssl/certs/puppet.pem\", key = \"{dir}/garbage.pem\" }]\n[trust]",
        "\"{dir}/garbage.pem\"",
        &["tls.certificates[0].key", "garbage.pem"],
    ),
    mistake(
        "[trust]",
        "[tls]\ncertificates = [{ chain = \"{dir}/ssl/certs/puppet.pem\", key = \"{dir}/other.key\" }]\n[trust]",
        "\"{dir}/other.key\"",
        &["tls.certificates[0].key", "does not belong to certificate"],
    ),
    mistake(
        "[trust]",
        "[tls]\ncertificates = [{ chain = \"{dir}/ssl/certs/puppet.pem\", key = \"{dir}/open.key\" }]\n[trust]",
        "\"{dir}/open.key\"",
        &[
            "tls.certificates[0].key",
            "open to everyone on this machine (mode 0644)",
            "expected a private key that only its owner and group can read",
            "chmod o= ",
        ],
    ),
    mistake(
        "[\"127.0.0.1:2\"]",
        "[]",
        "[]",
        &[
            "pools.compilers.members: an empty pool",
            "expected at least one member",
        ],
    ),
    mistake(
        "[pools.ca]",
        "[pools.cas]",
        "",
        &[
            "pools: no pool `ca`",
            "expected [pools.ca] with its `members`",
            "if it is the pool `cas`, rename that to `ca`",
        ],
    ),
    mistake(
        "[admin]",
        "[[routes]]\nname = \"forge\"\npool = \"compliers\"\n[admin]",
        "\"compliers\"",
        &[
            "routes[0].pool: no pool `compliers`",
            "did you mean \"compilers\"?",
        ],
    ),
    mistake(
        "[admin]",
        "[[routes]]\nname = \"near\"\npool = \"ca\"\nsource = [\"10.0.0.1/8\"]\n[admin]",
        "\"10.0.0.1/8\"",
        &[
            "routes[0].source[0]: \"10.0.0.1/8\" has bits beyond its prefix; the network is 10.0.0.0/8",
            "expected an IP address, or a network",
        ],
    ),
    mistake(
        "[\"127.0.0.1:2\"]",
        "[{ address = \"127.0.0.1:2\", backup = true }]",
        "[{ address = \"127.0.0.1:2\", backup = true }]",
        &[
            "pools.compilers.members: every member is a backup",
            "expected at least one member that is not a backup",
        ],
    ),
    mistake(
        "[\"127.0.0.1:2\"]",
        "[\"127.0.0.1:2\"]\ncheck = { type = \"legacy\", port = 8080 }",
        "8080",
        &[
            "pools.compilers.check.port: this type of check cannot use another port",
            "expected type = \"http\" or type = \"tcp\"",
        ],
    ),
    mistake(
        "[trust]",
        "[listeners.others]\naddress = \"127.0.0.1:{port}\"\n[trust]",
        "\"127.0.0.1:{port}\"",
        &[
            "listeners.others.address: listener `agents` has the same address",
            "expected another address",
        ],
    ),
    mistake(
        "[\"127.0.0.1:2\"]",
        "[\"192.0.2.1:8139\"]",
        "\"192.0.2.1:8139\"",
        &[
            "pools.compilers.members[0]: plain HTTP to \"192.0.2.1:8139\" would leave this machine",
            "expected a loopback address, `localhost` or a Unix socket",
            "plaintext = \"trusted-network\"",
        ],
    ),
    mistake(
        "crl = \"{dir}/crl.pem\"",
        "crl = \"{dir}/garbage.pem\"",
        "\"{dir}/garbage.pem\"",
        &["trust.crl: CRL ", "garbage.pem\": contains no CRL"],
    ),
    mistake(
        "[trust]",
        "[trust]\nca = \"{dir}/garbage.pem\"",
        "\"{dir}/garbage.pem\"",
        &[
            "trust.ca: certificate ",
            "garbage.pem\": contains no certificate",
        ],
    ),
];

#[test]
fn check_run_and_reload_report_each_mistake_alike() {
    let ca = Ca::new();
    let proxy = good(&ca).start();
    let right = proxy.config_text();
    let config = proxy.config_path().display().to_string();
    for mistake in MISTAKES {
        let placed_text = |text: &str| placed(text, &proxy);
        let (from, to) = (placed_text(mistake.from), placed_text(mistake.to));
        assert!(right.contains(&from), "{from}");
        let text = right.replacen(&from, &to, 1);
        proxy.write_config(&text);
        let checked = proxy.command(&["check"], &[]);
        assert_eq!(
            (checked.code, checked.stdout.as_str()),
            (Some(78), ""),
            "{to}: {}",
            checked.stderr
        );
        let mut output: Vec<String> = mistake
            .report
            .iter()
            .map(|words| placed_text(words))
            .collect();
        if !mistake.caret.is_empty() {
            let caret = placed_text(mistake.caret);
            let at = text
                .rfind(&caret)
                .expect("the caret's place is in the text");
            let line = text[..at].lines().count().max(1);
            let line = line + usize::from(text[..at].ends_with('\n'));
            let column = text[..at].rfind('\n').map_or(at, |end| at - end - 1) + 1;
            output.push(format!("{config}:{line}:{column}"));
            output.push("^".repeat(caret.len()));
        }
        for words in &output {
            assert!(
                checked.stderr.contains(words),
                "{words:?} is not in {}",
                checked.stderr
            );
        }
        let run = proxy.command(&["run"], &[]);
        assert_eq!((run.code, &run.stderr), (Some(78), &checked.stderr), "{to}");
        let reloaded = proxy.command(&["reload"], &[]);
        assert_eq!(reloaded.code, Some(78), "{to}: {}", reloaded.stderr);
        assert!(
            reloaded.stderr.contains(checked.stderr.trim_end()),
            "{} is not what check says: {}",
            reloaded.stderr,
            checked.stderr
        );
        // The event is one line; the response to `reload` has the whole report.
        let first = checked.stderr.lines().find(|l| l.starts_with("error"));
        let first = first.expect("a refusal has an error");
        proxy.wait_for_event(&format!("stays active: {first}"));
    }
    let status = proxy.status();
    assert_eq!(
        (&status["phase"], proxy.generation()),
        (&"serving".into(), 1)
    );
    assert_eq!(
        proxy
            .metrics()
            .sum("proscenium_reloads_total", &[("result", "refused")]),
        MISTAKES.len() as f64
    );
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let ca = Ca::new();
    let text = r#"
ssldir = "{dir}/ssl"
certname = "puppet"
workrs = 2

[listeners.agents]
address = "127.0.0.1:{port}"
idle_timeout = "4s"

[listeners.others]
address = "127.0.0.1:{port}"

[tls]
certificates = [
  { chain = "{dir}/nowhere.pem", key = "{dir}/open.key" },
  { chain = "{dir}/ssl/certs/puppet.pem", key = "{dir}/other.key" },
]

[trust]
ca = "{dir}/garbage.pem"
crl = "{dir}/crl.pem"
depth = "1"

[pools.compilers]
members = []
scheme = "htps"

[pools.reports]
scheme = "http"
members = ["192.0.2.1:8139"]

[[routes]]
name = "reports"
pool = "report"
path = { prefix = "/a", exact = "/b" }
"#;
    let outcome = good(&ca).whole(text).check();
    assert_eq!(outcome.code, Some(78));
    for expected in [
        "workrs: unknown key",
        "listeners.agents.idle_timeout: \"4s\" is too short",
        "listeners.others.address: listener `agents` has the same address",
        "tls.certificates[0].chain: ",
        "tls.certificates[0].key: ",
        "tls.certificates[1].key: ",
        "trust.ca: ",
        "trust.depth: ",
        "pools.compilers.members: an empty pool",
        "pools.compilers.scheme: \"htps\" is not a valid value",
        "pools.reports.members[0]: plain HTTP",
        "pools: no pool `ca`",
        "routes[0].pool: no pool `report`",
        "routes[0].path: more than one key",
        "proscenium.toml: 14 errors, ",
    ] {
        assert!(
            outcome.stderr.contains(expected),
            "{expected:?} is not in {}",
            outcome.stderr
        );
    }
}

#[test]
fn a_name_that_does_not_resolve_is_not_a_mistake() {
    let ca = Ca::new();
    let text = GOOD
        .replace("scheme = \"http\"\n", "")
        .replace("127.0.0.1:2", "no-such-host.invalid:8140");
    let outcome = good(&ca).whole(&text).check();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stdout.ends_with(": good\n"), "{}", outcome.stdout);
}

#[test]
fn a_credential_with_rights_on_members_is_refused_with_the_command_for_a_new_one() {
    let ca = Ca::new();
    // The extension `pp_cli_auth`, which the certificate of the CA host has.
    let own = ca
        .leaf("puppet")
        .dns("puppet")
        .extension(&[1, 3, 6, 1, 4, 1, 34380, 1, 3, 39], "true")
        .issue();
    let towards = |scheme: &str| {
        let text = GOOD.replace("scheme = \"http\"\n", &format!("scheme = \"{scheme}\"\n"));
        good(&ca).credential(&own).whole(&text).check()
    };
    let shown = towards("https");
    assert_eq!(shown.code, Some(78), "{}", shown.stderr);
    for expected in [
        "pp_cli_auth",
        "puppet ssl bootstrap --certname proscenium.puppet --ssldir ",
        "[upstream.tls] chain = ",
    ] {
        assert!(
            shown.stderr.contains(expected),
            "{expected:?} is not in {}",
            shown.stderr
        );
    }
    // The proxy presents this certificate to clients only, so it may have the extension.
    let kept = towards("http");
    assert_eq!(kept.code, Some(0), "{}", kept.stderr);
    assert!(kept.stderr.contains("pp_cli_auth"), "{}", kept.stderr);
}

#[test]
fn a_missing_certificate_of_the_agent_is_reported_with_the_command_for_one() {
    let ca = Ca::new();
    let empty = TempDir::new().expect("a temporary directory");
    let ssldir = empty.path().display().to_string();
    for verb in ["check", "run"] {
        let outcome = on_ssldir(&ca, verb, &ssldir, "front.example.com");
        assert_eq!(outcome.code, Some(78), "{}", outcome.stderr);
        for expected in [
            "no certificate for front.example.com",
            &format!(
                "puppet ssl bootstrap --certname front.example.com --dns_alt_names puppet,front.example.com --ssldir {ssldir}"
            ),
            "puppetserver ca sign --certname front.example.com",
        ] {
            assert!(
                outcome.stderr.contains(expected),
                "{expected:?} is not in {}",
                outcome.stderr
            );
        }
    }
}

#[test]
fn a_key_that_the_service_may_not_read_is_reported_with_the_command_to_fix_it() {
    let ca = Ca::new();
    let directory = TempDir::new().expect("a temporary directory");
    let path = |name: &str| directory.path().join(name);
    let open = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a file of our own");
    };
    open(directory.path(), 0o755);
    ca.write_ssldir(&path("ssl"), "puppet");
    open(&path("ssl/private_keys"), 0o755);
    let key = path("ssl/private_keys/puppet.pem");
    fs::copy(BINARY, path("proscenium")).expect("the program can be copied");
    let text = GOOD.replace("{port}", "8140");
    let text = text.replace("{dir}/crl.pem", "{dir}/ssl/crl.pem");
    let text = text.replace("{dir}", &directory.path().display().to_string());
    fs::write(path("proscenium.toml"), text).expect("a file of our own");
    let mut check = Command::new(path("proscenium"));
    check
        .arg("check")
        .arg("--config")
        .arg(path("proscenium.toml"));
    match rustix::process::geteuid().is_root() {
        // Root may read every file.
        true => {
            open(&key, 0o600);
            check.uid(OTHER_ACCOUNT).gid(OTHER_ACCOUNT);
        }
        false => open(&key, 0o000),
    }
    check.current_dir("/").stdin(Stdio::null());
    // Busy (ETXTBSY) while a child process of another test still has the copy open for writing, until that process
    // executes its program.
    let outcome = wait_until(LIMIT, || match check.output() {
        Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => None,
        ended => Some(ended),
    });
    let outcome = outcome.expect("not for ever").expect("the program runs");
    let shown = String::from_utf8_lossy(&outcome.stderr);
    assert_eq!(outcome.status.code(), Some(78), "{shown}");
    let keys = path("ssl/private_keys").display().to_string();
    assert!(shown.contains("may not read the private key"), "{shown}");
    assert!(
        shown.contains("run `setfacl -m u:") && shown.contains(&format!("{keys}/puppet.pem`")),
        "{shown}"
    );
}

#[test]
fn ssldir_and_certname_of_the_command_line_override_the_file() {
    let ca = Ca::new();
    let elsewhere = TempDir::new().expect("a temporary directory");
    let ssldir = elsewhere.path().display().to_string();
    let credential = ca.server("front.example.com");
    ca.write_ssldir_with(elsewhere.path(), &credential);
    let text = GOOD
        .replace("{dir}/ssl", "/nonexistent")
        .replace("certname = \"puppet\"", "certname = \"absent\"");
    let output = |words: &CommandOutcome| {
        words
            .stdout
            .contains("is valid for front.example.com, puppet")
    };
    let built = || {
        good(&ca)
            .whole(&text)
            .argument("--ssldir")
            .argument(&ssldir)
            .argument("--certname")
            .argument("front.example.com")
    };
    let checked = built().check();
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    assert!(output(&checked), "{}", checked.stdout);
    let proxy = built().start();
    let shown = proxy.client(None).connect().expect("connects");
    assert_eq!(shown.peer_certificates()[0], credential.cert_der);
    proxy.wait_for_event("is valid for front.example.com, puppet");
    // A reload uses the values of the command line.
    assert_eq!(proxy.reload()["result"], "unchanged");
    // Without the command line, the values of the file apply.
    let unhelped = good(&ca).whole(&text).check();
    assert_eq!(unhelped.code, Some(78));
    assert!(
        unhelped
            .stderr
            .contains("the ssldir /nonexistent does not exist"),
        "{}",
        unhelped.stderr
    );
}

#[test]
fn while_the_agents_copy_of_the_crl_is_active_every_output_shows_its_age() {
    let ca = Ca::new();
    let ssl = TempDir::new().expect("a temporary directory");
    let ssldir = ssl.path().display().to_string();
    ca.write_ssldir(ssl.path(), "puppet");
    let written = |ago: Duration| {
        let copy = File::options().write(true).open(ssl.path().join("crl.pem"));
        copy.and_then(|file| file.set_modified(SystemTime::now() - ago))
            .expect("a file of our own");
    };
    written(3 * DAY);
    let text = GOOD
        .replace("{dir}/ssl", &ssldir)
        .replace("{dir}/crl.pem", &format!("{ssldir}/crl.pem"));
    let checked = good(&ca).whole(&text).check();
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    assert!(
        checked
            .stderr
            .contains("the agent's own copy, written 3 days ago"),
        "{}",
        checked.stderr
    );
    let proxy = good(&ca).whole(&text).start();
    proxy.wait_for_event("the agent's own copy, written 3 days ago");
    let age = || proxy.metrics().sum(COPY_AGE, &[]);
    assert!(age() >= (3 * DAY).as_secs_f64(), "{}", age());
    let of_status = proxy.status()["trust"]["crls"][0]["agent_copy_age_seconds"].as_u64();
    assert!(
        of_status.is_some_and(|age| age >= (3 * DAY).as_secs()),
        "{of_status:?}"
    );
    // An agent run fetched the CRL again unchanged, so the age of the copy restarts.
    written(Duration::ZERO);
    assert_eq!(proxy.reload()["result"], "unchanged");
    assert!(age() < DAY.as_secs_f64(), "{}", age());
    // Another CRL does not change the age of the copy, and is not a copy itself.
    written(3 * DAY);
    let both = format!(
        "crl = [\"{ssldir}/crl.pem\", \"{}/crl.pem\"]",
        proxy.directory().display()
    );
    proxy.edit_config(&format!("crl = \"{ssldir}/crl.pem\""), &both);
    proxy.reload_applied();
    assert!(age() >= (3 * DAY).as_secs_f64(), "{}", age());
}

/// The files that `GOOD` needs, and the broken files that the mistakes name.
fn good(ca: &Ca) -> ProxyBuilder {
    let other = ca.server("other");
    support::proxy(ca)
        .whole(GOOD)
        .file("crl.pem", &ca.crl_pem(), 0o644)
        .file("other.key", &other.key_pem, 0o640)
        .file("open.key", &other.key_pem, 0o644)
        .file("garbage.pem", "no PEM at all\n", 0o640)
}

/// Runs a verb on a valid configuration with the agent's files of this ssldir.
fn on_ssldir(ca: &Ca, verb: &str, ssldir: &str, certname: &str) -> CommandOutcome {
    let directory = TempDir::new().expect("a temporary directory");
    let crl = directory.path().join("crl.pem");
    fs::write(&crl, ca.crl_pem()).expect("a file of our own");
    let text = GOOD.replace("{port}", "8140");
    let text = text.replace("{dir}", &directory.path().display().to_string());
    let config = directory.path().join("proscenium.toml");
    fs::write(&config, text).expect("a file of our own");
    let config = config.display().to_string();
    let arguments = [
        verb,
        "--config",
        &config,
        "--ssldir",
        ssldir,
        "--certname",
        certname,
    ];
    command_line(Path::new(BINARY), &arguments)
}

/// The text of a mistake as it appears in this proxy's file.
fn placed(text: &str, proxy: &Proxy) -> String {
    let directory = proxy.directory().display().to_string();
    text.replace("{dir}", &directory)
        .replace("{port}", &proxy.address().port().to_string())
}

/// An account that owns no file.
const OTHER_ACCOUNT: u32 = 65534;
const DAY: Duration = Duration::from_secs(86_400);
const COPY_AGE: &str = "proscenium_crl_agent_copy_age_seconds";
