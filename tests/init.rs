//! `init`: a configuration from the facts of a machine, and a CA by which compilers accept the proxy and no other client.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use serde_json::Value;
use tempfile::TempDir;
use testkit::{Ca, CommandOutcome, StandIn, Tool, command_line};

use crate::support::{BINARY, Estate, assert_identity, doctor::Clinic, paths::CATALOG};

/// A directory that `init` examines as a machine.
struct Machine(TempDir);

impl Machine {
    fn new() -> Self {
        Self(TempDir::new().expect("a directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, text).expect("a file of the test's own");
    }

    fn init(&self, arguments: &[&str]) -> CommandOutcome {
        let root = self.0.path().display().to_string();
        let words = [&["init", "--root", &root], arguments].concat();
        command_line(&PathBuf::from(BINARY), &words)
    }

    /// The configuration that `init` prints.
    #[track_caller]
    fn printed(&self, arguments: &[&str]) -> String {
        let outcome = self.init(&[&["--output", "-"], arguments].concat());
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        outcome.stdout
    }
}

#[test]
fn a_ca_that_renews_is_recognised_by_the_life_of_the_certificate() {
    for (life, renews) in [(60, true), (5 * 365, false)] {
        let (machine, ca) = (Machine::new(), Ca::new());
        machine.write(
            "etc/puppetlabs/puppet/puppet.conf",
            "[main]\nserver = ca.example.com\n",
        );
        let own = ca.leaf("proxy01").valid_days(0, life).issue();
        ca.write_ssldir_with(&machine.path("etc/puppetlabs/puppet/ssl"), &own);
        let outcome = machine.init(&["--output", "-"]);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        let is_set = outcome.stdout.contains("\n[ca]\nrenewal = true\n");
        assert_eq!(is_set, renews, "{}", outcome.stdout);
        let step = outcome
            .stderr
            .contains("Add proxy01 to infra_inventory.txt");
        assert_eq!(step, renews, "{}", outcome.stderr);
    }
}

fn mode(path: &Path) -> u32 {
    let metadata = fs::metadata(path).expect("it exists");
    metadata.permissions().mode() & 0o7777
}

#[test]
fn the_written_file_has_the_facts_of_the_machine_and_check_accepts_it() {
    let (machine, ca) = (Machine::new(), Ca::new());
    machine.write(
        "etc/puppetlabs/puppet/puppet.conf",
        "[main]\nserver = puppet.example.com\n[agent]\nca_server = ca.example.com\nca_port = 8141\n",
    );
    ca.write_ssldir(
        &machine.path("etc/puppetlabs/puppet/ssl"),
        "proxy01.example.com",
    );
    let file = machine.path("new/proscenium.toml");
    let shown = file.display().to_string();
    let compilers = [
        "--compiler",
        "c1.example.com",
        "--compiler",
        "c2.example.com:8142",
    ];
    let outcome = machine.init(&[&["--output", &shown][..], &compilers].concat());
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    for expected in [
        "ca.example.com:8141 (`ca_server` in /etc/puppetlabs/puppet/puppet.conf)",
        "c2.example.com:8142 (--compiler)",
        "proxy01.example.com (the only certificate with a key in /etc/puppetlabs/puppet/ssl)",
        "allow-header-cert-info: true",
        "proscenium check --user proscenium",
    ] {
        assert!(outcome.stdout.contains(expected), "{expected}: {outcome:?}");
    }
    assert_eq!(mode(&file), 0o644);
    let text = fs::read_to_string(&file).expect("it is written");
    for line in [
        "ssldir = \"/etc/puppetlabs/puppet/ssl\"",
        "certname = \"proxy01.example.com\"",
        "members = [\"ca.example.com:8141\"]",
        "members = [\"c1.example.com:8140\", \"c2.example.com:8142\"]",
    ] {
        assert!(text.lines().any(|its| its == line), "{line}: {text}");
    }
    assert!(!text.contains("FILL IN"), "{text}");
    // The directory of the test stands for the root of the machine.
    let ssldir = machine.path("etc/puppetlabs/puppet/ssl");
    fs::write(
        &file,
        text.replace("/etc/puppetlabs/puppet/ssl", &ssldir.display().to_string()),
    )
    .expect("a file of the test's own");
    let words = ["check", "--files-only", "--config", &shown];
    let checked = command_line(&PathBuf::from(BINARY), &words);
    assert_eq!(checked.code, Some(0), "{checked:?}");
}

#[test]
fn an_existing_file_is_replaced_only_with_force() {
    let machine = Machine::new();
    let file = machine.path("proscenium.toml");
    let shown = file.display().to_string();
    let packaged = include_str!("../packaging/proscenium.toml");
    for (text, words) in [
        ("# mine\n", "exists: replace it with --force"),
        (
            packaged,
            "is the file of the package, unchanged: replace it with --force",
        ),
    ] {
        machine.write("proscenium.toml", text);
        // `--config` names the file too.
        for option in ["--output", "--config"] {
            let refused = machine.init(&[option, &shown]);
            assert_eq!(refused.code, Some(1), "{refused:?}");
            assert!(refused.stderr.contains(words), "{refused:?}");
            assert_eq!(fs::read_to_string(&file).expect("it exists"), text);
        }
        let replaced = machine.init(&["--output", &shown, "--force"]);
        assert_eq!(replaced.code, Some(0), "{replaced:?}");
        let text = fs::read_to_string(&file).expect("it exists");
        assert!(text.contains("written by `proscenium init`"), "{text}");
    }
    let left = fs::read_dir(machine.path("")).expect("a directory").count();
    assert_eq!(left, 1, "no temporary file is left");
}

#[test]
fn an_unknown_server_is_left_to_fill_in() {
    let machine = Machine::new();
    let text = machine.printed(&[]);
    assert_eq!(text.matches("FILL IN").count(), 3, "{text}");
    let text = machine.printed(&["--ca", "ca.example.com"]);
    assert_eq!(text.matches("FILL IN").count(), 2, "{text}");
    let file = machine.path("out.toml").display().to_string();
    let outcome = machine.init(&["--output", &file, "--json"]);
    let answer: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    assert_eq!(
        answer["missing"],
        serde_json::json!(["the CA server", "the compilers"])
    );
    let step = answer["steps"][0]["text"][0].as_str().unwrap_or_default();
    assert!(
        step.contains("Fill in the CA server and the compilers"),
        "{answer:#}"
    );
}

/// Agents know the proxy by the name of the old server. The proxy would send requests to itself.
#[test]
fn the_machines_own_name_is_not_a_member() {
    let machine = Machine::new();
    machine.write(
        "etc/puppetlabs/puppet/puppet.conf",
        "[main]\ncertname = puppet.example.com\nserver = Puppet.example.com\nca_server = ca.example.com\n",
    );
    let text = machine.printed(&[]);
    assert!(
        text.contains("members = [\"ca.example.com:8140\"]"),
        "{text}"
    );
    assert!(text.contains("FILL IN the compilers"), "{text}");
    assert!(!text.contains("Puppet.example.com"), "{text}");
}

#[test]
fn debians_directories_and_settings_that_refer_to_others_are_found() {
    let machine = Machine::new();
    machine.write(
        "etc/puppet/puppet.conf",
        "[main]\nvardir = /srv/puppet\nssldir = $vardir/ssl\ncertname = $other\nserver = puppet.example.com\nserverport = 8150\n",
    );
    let text = machine.printed(&[]);
    assert!(text.contains("\nssldir = \"/srv/puppet/ssl\"\n"), "{text}");
    assert!(text.contains("\n# certname = "), "{text}");
    assert_eq!(
        text.matches("members = [\"puppet.example.com:8150\"]")
            .count(),
        2,
        "{text}"
    );
    fs::remove_file(machine.path("etc/puppet/puppet.conf")).expect("it exists");
    fs::create_dir_all(machine.path("var/lib/puppet/ssl")).expect("a directory");
    let text = machine.printed(&[]);
    assert!(
        text.contains("\nssldir = \"/var/lib/puppet/ssl\"\n"),
        "{text}"
    );
}

#[test]
fn running_programs_srv_records_and_a_port_in_use_are_reported() {
    let machine = Machine::new();
    machine.write(
        "etc/puppetlabs/puppet/puppet.conf",
        "[agent]\nuse_srv_records = true\nsrv_domain = example.com\n",
    );
    machine.write(
        "proc/17/cmdline",
        "/usr/bin/java\0-jar\0/opt/puppet-server-release.jar\0",
    );
    machine.write("proc/18/cmdline", "nginx: worker process\0");
    machine.write(
        "proc/net/tcp",
        "  sl  local_address\n   0: 0100007F:1FCC 0A00007F:0050 01\n",
    );
    let file = machine.path("one.toml").display().to_string();
    let free = machine.init(&["--output", &file]);
    for expected in [
        "Puppet Server, nginx",
        "port 8140    free",
        "SRV records  example.com",
    ] {
        assert!(free.stdout.contains(expected), "{expected}: {free:?}");
    }
    assert!(!free.stdout.contains("Port 8140 is in use"), "{free:?}");
    machine.write(
        "proc/net/tcp6",
        "  sl  local_address\n   0: 00000000000000000000000000000000:1FCC 00000000000000000000000000000000:0000 0A\n",
    );
    let used = machine.init(&["--output", &file, "--force"]);
    for expected in ["port 8140    in use", "Port 8140 is in use"] {
        assert!(used.stdout.contains(expected), "{expected}: {used:?}");
    }
}

#[test]
fn an_invalid_address_is_reported_and_nothing_is_written() {
    let machine = Machine::new();
    let file = machine.path("proscenium.toml");
    let shown = file.display().to_string();
    let refused = machine.init(&["--output", &shown, "--ca", "ca example com:8140"]);
    assert_eq!(refused.code, Some(78), "{refused:?}");
    assert!(refused.stderr.contains("ca example com"), "{refused:?}");
    assert!(!file.exists());
    let directory = machine.path("ca").display().to_string();
    for compiler in ["../c1", "c1/x:8140", ":8140", ".."] {
        let refused = machine.init(&["--compiler-ca", &directory, "--compiler", compiler]);
        assert_eq!(refused.code, Some(64), "{refused:?}");
        assert!(!machine.path("ca").exists());
    }
}

#[test]
fn a_ca_for_compilers_has_private_keys_and_is_not_overwritten() {
    let machine = Machine::new();
    let directory = machine.path("compiler-ca");
    let shown = directory.display().to_string();
    let arguments = [
        "--compiler-ca",
        &shown,
        "--compiler",
        "c1.example.com:8140",
        "--compiler",
        "c2",
    ];
    let made = machine.init(&arguments);
    assert_eq!(made.code, Some(0), "{made:?}");
    assert_eq!(mode(&directory), 0o700);
    let expected = [
        ("auth.conf", 0o644),
        ("proxy-ca-crl.pem", 0o644),
        ("proxy-ca.key", 0o600),
        ("proxy-ca.pem", 0o644),
        ("to-compilers.key", 0o600),
        ("to-compilers.pem", 0o644),
        ("webserver-c1.example.com.conf", 0o644),
        ("webserver-c2.conf", 0o644),
    ];
    let mut found: Vec<_> = fs::read_dir(&directory)
        .expect("it is a directory")
        .map(|entry| {
            entry
                .expect("a file")
                .file_name()
                .into_string()
                .expect("UTF-8")
        })
        .collect();
    found.sort();
    assert_eq!(found, expected.map(|(name, _)| name));
    for (name, expected) in expected {
        assert_eq!(mode(&directory.join(name)), expected, "{name}");
    }
    let year = time_of(&directory.join("proxy-ca.pem"));
    assert!(made.stdout.contains(&format!("until {year}-")), "{made:?}");
    for expected in [
        "ssl-cert: /etc/puppetlabs/puppet/ssl/certs/c1.example.com.pem",
        "client-auth: need",
        "allow-header-cert-info: true",
        "chain = \"/etc/proscenium/tls/to-compilers.pem\"",
    ] {
        assert!(made.stdout.contains(expected), "{expected}: {made:?}");
    }
    let key = fs::read(directory.join("proxy-ca.key")).expect("a key");
    let again = machine.init(&arguments);
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(
        again
            .stderr
            .contains("exists, and a CA in it may be in use"),
        "{again:?}"
    );
    assert_eq!(
        fs::read(directory.join("proxy-ca.key")).expect("a key"),
        key
    );
    let left = fs::read_dir(machine.path("")).expect("a directory").count();
    assert_eq!(left, 1, "no temporary directory is left");
}

#[test]
fn openssl_accepts_the_certificate_by_the_ca_and_its_crl() {
    let Some(mut openssl) = Tool::Openssl.command() else {
        return;
    };
    let machine = Machine::new();
    let directory = machine.path("compiler-ca");
    let made = machine.init(&["--compiler-ca", &directory.display().to_string(), "--json"]);
    let answer: Value = serde_json::from_str(&made.stdout).expect("JSON");
    assert!(answer["not_after"].is_string(), "{answer:#}");
    let verified = openssl
        .args([
            "verify",
            "-x509_strict",
            "-crl_check",
            "-purpose",
            "sslclient",
        ])
        .args([
            "-CAfile",
            "proxy-ca.pem",
            "-CRLfile",
            "proxy-ca-crl.pem",
            "to-compilers.pem",
        ])
        .current_dir(&directory)
        .output()
        .expect("openssl starts");
    let output = String::from_utf8_lossy(&verified.stdout);
    assert_eq!(output.trim(), "to-compilers.pem: OK", "{verified:?}");
}

#[test]
fn a_compiler_that_trusts_only_the_new_ca_serves_the_proxy_and_refuses_agents() {
    let (machine, ca) = (Machine::new(), Ca::new());
    let directory = machine.path("compiler-ca");
    let made = machine.init(&["--compiler-ca", &directory.display().to_string()]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let text = |name: &str| fs::read_to_string(directory.join(name)).expect("it is written");
    let compiler = StandIn::builder("c1")
        .tls_by_files(
            &text("proxy-ca.pem"),
            &text("proxy-ca-crl.pem"),
            &ca.server("c1"),
        )
        .start();
    let address = compiler.address();
    let (chain, key) = (text("to-compilers.pem"), text("to-compilers.key"));
    let estate = Estate::builder()
        .ca(&ca)
        .configuration(move |proxy, servers| {
            proxy
                .file("to-compilers.pem", &chain, 0o644)
                .file("to-compilers.key", &key, 0o600)
                .with(&format!(
                    "[pools.ca]\nscheme = \"http\"\nmembers = [{:?}]\n\
                     [pools.compilers]\nmembers = [{address:?}]\n\
                     [pools.compilers.tls]\nchain = \"{{dir}}/to-compilers.pem\"\nkey = \"{{dir}}/to-compilers.key\"\n",
                    servers.ca_server.address()
                ))
        })
        .start();
    let agent = ca.agent("web01");
    assert_eq!(estate.client(&agent).get(CATALOG).status, 200);
    assert_identity(&compiler.last(), "SUCCESS", Some("CN=web01"));
    // With an agent's certificate in place of the proxy's, no connection opens.
    compiler.forget();
    estate
        .proxy
        .write("to-compilers.pem", &agent.chain_pem(), 0o644);
    estate
        .proxy
        .write("to-compilers.key", &agent.key_pem, 0o600);
    estate.proxy.reload_applied();
    assert_eq!(estate.client(&agent).get(CATALOG).status, 502);
    assert!(compiler.requests().is_empty(), "{:?}", compiler.requests());
}

#[test]
fn doctor_watches_the_dates_of_the_ca_for_compilers() {
    let machine = Machine::new();
    let directory = machine.path("compiler-ca");
    let made = machine.init(&["--compiler-ca", &directory.display().to_string()]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let text = |name: &str| fs::read_to_string(directory.join(name)).expect("it is written");
    let clinic = Clinic::with_compiler(|ca, _| {
        StandIn::builder("c1")
            .tls_by_files(
                &text("proxy-ca.pem"),
                &text("proxy-ca-crl.pem"),
                &ca.server("c1"),
            )
            .start()
    });
    for (name, mode) in [
        ("to-compilers.pem", 0o644),
        ("to-compilers.key", 0o600),
        ("proxy-ca.pem", 0o644),
        ("proxy-ca-crl.pem", 0o644),
    ] {
        clinic.write(name, &text(name), mode);
    }
    let (proof, code) = clinic.examined(&[]);
    assert_eq!(code, Some(0), "{proof:#}");
    let passed = proof["passed"].as_array().expect("a list");
    assert!(
        passed.iter().any(|passed| passed["check"] == "compiler-ca"),
        "{proof:#}"
    );
    // Files that belong to another CA.
    let front = &clinic.front;
    clinic.write("proxy-ca.pem", &front.bundle_pem(), 0o644);
    clinic.write("proxy-ca-crl.pem", &front.crl_pem(), 0o644);
    let words = &["to-compilers.pem", "compilers that use proxy-ca.pem"];
    clinic.assert_found("compiler-ca", "warning", words);
    front.crl_next_update_seconds(6 * 3600);
    let credential = front.agent("proscenium");
    clinic.write_credential("to-compilers", &credential);
    clinic.write("proxy-ca-crl.pem", &front.crl_pem(), 0o644);
    clinic.assert_found(
        "compiler-ca",
        "warning",
        &["proxy-ca-crl.pem", "expires on"],
    );
    front.crl_next_update_days(-1);
    clinic.write("proxy-ca-crl.pem", &front.crl_pem(), 0o644);
    clinic.assert_found(
        "compiler-ca",
        "failure",
        &["proxy-ca-crl.pem", "expired on"],
    );
    front.crl_next_update_days(3650);
    front.revoke(&credential);
    clinic.write("proxy-ca-crl.pem", &front.crl_pem(), 0o644);
    clinic.assert_found("compiler-ca", "failure", &["to-compilers.pem", "revoked"]);
    clinic.write("proxy-ca-crl.pem", "no CRL", 0o644);
    clinic.assert_found(
        "compiler-ca",
        "warning",
        &["proxy-ca.pem", "proxy-ca-crl.pem"],
    );
}

/// The year in which a certificate expires.
fn time_of(path: &Path) -> i32 {
    let pem = fs::read(path).expect("a certificate");
    let (_, pem) = x509_parser::pem::parse_x509_pem(&pem).expect("PEM");
    let certificate = pem.parse_x509().expect("a certificate");
    certificate.validity().not_after.to_datetime().year()
}
