//! `doctor`: an estate that is as it should be has no findings, and each fault that is planted is found by its name.

use std::path::PathBuf;

use rcgen::DnType;
use serde_json::Value;
use tempfile::TempDir;
use testkit::{Ca, Credential, HeldPort, Manner, Outcome, Recorded, Reply, StandIn, command_line};

use crate::support::{BINARY, Estate, QUICK_CHECK};

/// An estate as docs/operating.md wants it: compilers that believe headers and let in nobody but the proxy, by a CA that
/// exists for that alone, and a CA server that goes by certificates. No proxy runs.
struct Clinic {
    directory: TempDir,
    ca: Ca,
    /// The CA of the proxy's certificate towards compilers.
    front: Ca,
    agent: Credential,
    ca_server: StandIn,
    compiler: StandIn,
    /// Where nobody listens.
    closed: HeldPort,
    pool: fn(&Self) -> String,
    /// More of the configuration; `{dir}` is the directory.
    more: String,
    /// Whether a running proxy would ask the CA for its lists.
    fetches: bool,
}

impl Clinic {
    fn new() -> Self {
        let (ca, front) = (Ca::new(), Ca::other());
        let ca_server = StandIn::builder("ca").ca(&ca).tls(&ca, &ca.server("ca"));
        let compiler = StandIn::builder("c1").tls(&front, &ca.server("c1"));
        Self::of(ca, front, ca_server.start(), compiler.start())
    }

    fn of(ca: Ca, front: Ca, ca_server: StandIn, compiler: StandIn) -> Self {
        ca_server.behave(Manner::peer());
        compiler.behave(Manner::headers());
        let clinic = Self {
            directory: TempDir::new().expect("a temporary directory"),
            agent: ca.agent("web01"),
            closed: HeldPort::take(),
            pool: Self::tls_pool,
            more: String::new(),
            fetches: false,
            ca,
            front,
            ca_server,
            compiler,
        };
        clinic.ca.write_ssldir(&clinic.path("ssl"), "puppet");
        clinic.write("crl.pem", &clinic.ca.crl_pem(), 0o644);
        clinic.write_credential("to-compilers", &clinic.front.agent("proscenium"));
        clinic.write_credential("agent", &clinic.agent);
        clinic
    }

    /// With another compiler.
    fn with_compiler(compiler: impl FnOnce(&Ca, &Ca) -> StandIn) -> Self {
        let (ca, front) = (Ca::new(), Ca::other());
        let ca_server = StandIn::builder("ca").ca(&ca).tls(&ca, &ca.server("ca"));
        let compiler = compiler(&ca, &front);
        Self::of(ca, front, ca_server.start(), compiler)
    }

    /// The proxy's certificate towards compilers, if they are spoken to over TLS.
    fn tls_pool(&self) -> String {
        let dir = self.directory.path().display();
        format!(
            "members = [{:?}]\n[pools.compilers.tls]\n\
             chain = \"{dir}/to-compilers.pem\"\nkey = \"{dir}/to-compilers.key\"\n",
            self.compiler.address()
        )
    }

    fn plain_pool(&self) -> String {
        format!(
            "scheme = \"http\"\nmembers = [{:?}]\n",
            self.compiler.address()
        )
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str, mode: u32) {
        std::fs::write(self.path(name), text).expect("a file of the test's own");
        self.chmod(name, mode);
    }

    fn chmod(&self, name: &str, mode: u32) {
        use std::os::unix::fs::PermissionsExt;
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(self.path(name), permissions).expect("a mode");
    }

    fn write_credential(&self, name: &str, credential: &Credential) {
        self.write(&format!("{name}.pem"), &credential.chain_pem(), 0o644);
        self.write(&format!("{name}.key"), &credential.key_pem, 0o600);
    }

    /// The proxy's own certificate towards agents and the CA server.
    fn write_own(&self, credential: &Credential) {
        self.ca.write_ssldir_with(&self.path("ssl"), credential);
    }

    fn run(&self, arguments: &[&str]) -> Outcome {
        let dir = self.directory.path().display();
        let text = format!(
            "ssldir = \"{dir}/ssl\"\ncertname = \"puppet\"\n\
             [trust]\ncrl = [\"{dir}/crl.pem\"]\n[trust.fetch]\nenabled = {}\n\
             [state]\ndirectory = \"{dir}/state\"\n\
             [admin]\nsocket = \"{dir}/admin.sock\"\n\
             [listeners.agents]\naddress = \"127.0.0.1:8140\"\n\
             [pools.ca]\nmembers = [{:?}]\n\
             [pools.compilers]\n{}{}",
            self.fetches,
            self.ca_server.address(),
            (self.pool)(self),
            self.more.replace("{dir}", &dir.to_string())
        );
        self.write("proscenium.toml", &text, 0o644);
        let config = self.path("proscenium.toml").display().to_string();
        let port = self.closed.address().port().to_string();
        let mut words = vec!["doctor", "--config", &config];
        words.extend(arguments);
        for option in ["--plain-port", "--tls-port"] {
            if !arguments.contains(&option) {
                words.extend([option, &port]);
            }
        }
        command_line(&PathBuf::from(BINARY), &words)
    }

    /// What is found with an ordinary agent's certificate at hand, as JSON, and the exit code.
    fn examined(&self, arguments: &[&str]) -> (Value, Option<i32>) {
        let (cert, key) = (self.path("agent.pem"), self.path("agent.key"));
        let mut words = vec!["--json", "--agent-cert", cert.to_str().expect("UTF-8")];
        words.extend(["--agent-key", key.to_str().expect("UTF-8")]);
        words.extend(arguments);
        let outcome = self.run(&words);
        let proof = serde_json::from_str(&outcome.stdout)
            .unwrap_or_else(|error| panic!("{error}: {outcome:?}"));
        (proof, outcome.code)
    }

    /// Asserts that this was found, with these words, and that each finding has a remedy.
    #[track_caller]
    fn assert_found(&self, check: &str, severity: &str, words: &[&str]) -> Value {
        self.assert_found_with(&[], check, severity, words)
    }

    #[track_caller]
    fn assert_found_with(
        &self,
        arguments: &[&str],
        check: &str,
        severity: &str,
        words: &[&str],
    ) -> Value {
        let (proof, code) = self.examined(arguments);
        let findings = proof["findings"].as_array().expect("a list").clone();
        for finding in &findings {
            let remedy = finding["remedy"].as_str().unwrap_or_default();
            assert!(!remedy.is_empty(), "no remedy: {finding:#}");
        }
        let named = |finding: &&Value| {
            let text = format!("{} {}", finding["about"], finding["found"]);
            finding["check"] == check
                && finding["severity"] == severity
                && words.iter().all(|word| text.contains(word))
        };
        assert!(
            findings.iter().any(|finding| named(&finding)),
            "{check} ({severity}, {words:?}) is not among {findings:#?}"
        );
        let least = match (proof["configuration_refused"] == true, severity) {
            (true, _) => 78,
            (false, "failure") => 2,
            (false, "warning") => 1,
            (false, _) => 0,
        };
        assert!(code >= Some(least), "{code:?}: {findings:#?}");
        proof
    }

    /// Nothing that was asked of a member can have changed it.
    #[track_caller]
    fn assert_only_asked(&self) {
        for request in self
            .ca_server
            .requests()
            .into_iter()
            .chain(self.compiler.requests())
        {
            assert_eq!(request.method, "GET", "{}", request.raw_text());
            let told = request.headers.all("x-client-dn");
            assert!(
                told.iter()
                    .all(|dn| ["CN=puppet", "CN=proscenium-doctor.invalid"].contains(dn)),
                "another name was said: {}",
                request.raw_text()
            );
        }
    }
}

#[test]
fn an_estate_that_is_closed_has_no_findings() {
    let clinic = Clinic::new();
    let (proof, code) = clinic.examined(&[]);
    let findings: Vec<_> = proof["findings"]
        .as_array()
        .expect("a list")
        .iter()
        .collect();
    let not_running = |finding: &&&Value| finding["check"] == "running";
    let rest: Vec<_> = findings.iter().filter(|f| !not_running(f)).collect();
    assert!(rest.is_empty(), "{rest:#?}");
    assert_eq!(
        (findings.len(), code),
        (1, Some(0)),
        "no proxy runs: {findings:#?}"
    );
    let passed = proof["passed"].as_array().expect("a list");
    for check in [
        "files",
        "certificate-dates",
        "ca-dates",
        "own-certificate",
        "credential-rights",
        "own-name",
        "agent-certificate",
        "crl",
        "crl-fresh",
        "member-reached",
        "member-certificate",
        "credential-accepted",
        "status",
        "clock",
        "service",
        "headers-read",
        "own-node",
        "others-node",
        "unknown-client",
        "ca-headers",
        "ca-rights",
        "outside-anonymous",
        "outside-agent",
        "outside-plain",
        "head-room",
        "configuration",
    ] {
        assert!(
            passed.iter().any(|passed| passed["check"] == check),
            "{check} is not in {passed:#?}"
        );
    }
    clinic.assert_only_asked();
}

#[test]
fn a_key_that_everyone_may_read_is_found() {
    let clinic = Clinic::new();
    clinic.chmod("ssl/private_keys/puppet.pem", 0o644);
    let path = clinic
        .path("ssl/private_keys/puppet.pem")
        .display()
        .to_string();
    let proof = clinic.assert_found("configuration", "failure", &[&path, "open to everyone"]);
    let remedy = proof["findings"][0]["remedy"].as_str().unwrap_or_default();
    assert!(remedy.contains("chmod o="), "{proof:#}");
    assert!(
        clinic.compiler.requests().is_empty(),
        "nobody is asked by a refused configuration"
    );
}

#[test]
fn a_list_that_everyone_may_write_is_found() {
    let clinic = Clinic::new();
    clinic.chmod("crl.pem", 0o666);
    clinic.assert_found("files", "failure", &["crl.pem", "every user", "0666"]);
}

#[test]
fn a_directory_in_which_everyone_may_put_another_file_is_found() {
    let clinic = Clinic::new();
    clinic.chmod("ssl/certs", 0o777);
    clinic.assert_found(
        "files",
        "failure",
        &["certs/ca.pem", "its directory", "0777"],
    );
}

#[test]
fn a_directory_further_up_or_behind_a_link_in_which_everyone_may_write_is_found() {
    let clinic = Clinic::new();
    clinic.chmod("ssl", 0o777);
    let ssl = clinic.path("ssl").display().to_string();
    let found = &["certs/ca.pem", &ssl, "on its path", "0777"];
    clinic.assert_found("files", "failure", found);
    clinic.chmod("ssl", 0o755);
    let open = clinic.path("open");
    std::fs::create_dir(&open).expect("a directory of the test's own");
    clinic.write("open/crl.pem", &clinic.ca.crl_pem(), 0o644);
    clinic.chmod("open", 0o777);
    std::fs::remove_file(clinic.path("crl.pem")).expect("it is there");
    std::os::unix::fs::symlink(open.join("crl.pem"), clinic.path("crl.pem")).expect("a link");
    let open = open.display().to_string();
    clinic.assert_found(
        "files",
        "failure",
        &["crl.pem", &open, "every user", "0777"],
    );
}

#[test]
fn what_a_start_would_find_in_the_state_directory_is_found() {
    let clinic = Clinic::new();
    std::fs::create_dir(clinic.path("state")).expect("a directory of the test's own");
    clinic.chmod("state", 0o700);
    clinic.write("state/blocks.json", "{\"version\": 1", 0o600);
    let found = &["blocks.json", "the proxy would not start"];
    clinic.assert_found("files", "failure", found);
    clinic.write("state/blocks.json", "{\"version\":1,\"blocks\":[]}", 0o600);
    let (proof, code) = clinic.examined(&[]);
    assert_eq!(code, Some(0), "{proof:#}");
    clinic.write("state/members.json", "{\"version\":1,\"members\":[", 0o600);
    clinic.write("state/persistence-key", "short", 0o600);
    let found = &["members.json", "would be ready after a start"];
    clinic.assert_found("files", "warning", found);
    let found = &["persistence-key", "wrong length"];
    clinic.assert_found("files", "warning", found);
    clinic.write(
        "state/members.json",
        "{\"version\":1,\"members\":[]}",
        0o600,
    );
    clinic.write("state/persistence-key", &"k".repeat(32), 0o600);
    let (proof, code) = clinic.examined(&[]);
    assert_eq!(code, Some(0), "{proof:#}");
    let mut clinic = clinic;
    clinic.fetches = true;
    clinic.write("state/crl-accepted.json", "no JSON", 0o600);
    let found = &["crl-accepted.json", "cannot read which CRLs"];
    clinic.assert_found("files", "warning", found);
}

#[test]
fn a_pool_of_something_else_is_reached_and_asked_for_nothing_more() {
    let mut clinic = Clinic::new();
    let database = StandIn::builder("db")
        .tls(&clinic.front, &clinic.ca.server("db"))
        .start();
    database.answer(|request| {
        let status = request.path().starts_with("/status/");
        Some(if status {
            Reply::ok("running")
        } else {
            Reply::status(404)
        })
    });
    clinic.more = format!(
        "[pools.database]\nmembers = [{:?}]\n[pools.database.tls]\n\
         chain = \"{{dir}}/to-compilers.pem\"\nkey = \"{{dir}}/to-compilers.key\"\n",
        database.address()
    );
    let (proof, _) = clinic.examined(&[]);
    let about = format!("{} in pool database", database.address());
    let passed = proof["passed"].as_array().expect("a list");
    let reached =
        |passed: &Value| passed["check"] == "member-reached" && passed["about"] == about.as_str();
    assert!(passed.iter().any(reached), "{proof:#}");
    let findings = proof["findings"].as_array().expect("a list");
    let about_it = |finding: &&Value| finding["about"] == about.as_str();
    assert_eq!(findings.iter().find(about_it), None);
}

#[test]
fn a_certificate_of_ours_that_has_ended_or_is_about_to_is_found() {
    let clinic = Clinic::new();
    clinic.write_own(&clinic.ca.leaf("puppet").expired().issue());
    clinic.assert_found(
        "certificate-dates",
        "failure",
        &["puppet.pem", "expired on"],
    );
    clinic.write_own(&clinic.ca.leaf("puppet").valid_days(-60, 7).issue());
    clinic.assert_found("certificate-dates", "warning", &["puppet.pem", "days"]);
}

#[test]
fn a_certificate_of_ours_with_rights_on_members_is_found() {
    let clinic = Clinic::new();
    let pp_cli_auth = [1, 3, 6, 1, 4, 1, 34380, 1, 3, 39];
    clinic.write_own(
        &clinic
            .ca
            .leaf("puppet")
            .extension(&pp_cli_auth, "true")
            .issue(),
    );
    clinic.assert_found("configuration", "failure", &["pp_cli_auth"]);
}

#[test]
fn a_list_that_has_expired_and_one_that_is_about_to_are_found() {
    let clinic = Clinic::new();
    clinic.ca.crl_next_update_days(-1);
    clinic.write("crl.pem", &clinic.ca.crl_pem(), 0o644);
    let issuer = format!("CN={}", clinic.ca.name());
    clinic.assert_found("crl", "failure", &[&issuer, "expired on"]);
    clinic.ca.crl_next_update_seconds(6 * 3600);
    clinic.write("crl.pem", &clinic.ca.crl_pem(), 0o644);
    clinic.assert_found("crl", "warning", &[&issuer, "expires"]);
}

#[test]
fn a_ca_that_has_ended_is_found_and_told_by_check_and_one_that_was_renewed_harms_nobody() {
    let clinic = Clinic::new();
    let bundle = |cas: &[&str]| {
        let text = clinic.ca.bundle_pem() + &cas.concat();
        clinic.write("ssl/certs/ca.pem", &text, 0o644);
    };
    let ended = ca_pem("Puppet CA: old", 2001);
    bundle(&[&ended]);
    clinic.assert_found("ca-dates", "failure", &["CN=Puppet CA: old", "expired on"]);
    let config = clinic.path("proscenium.toml").display().to_string();
    let check = || command_line(&PathBuf::from(BINARY), &["check", "--config", &config]);
    let told = "CA CN=Puppet CA: old expired on 2001";
    assert!(check().stderr.contains(told), "{}", check().stderr);
    bundle(&[&ended, &ca_pem("Puppet CA: old", 2999)]);
    let found = &["CN=Puppet CA: old", "another CA certificate with that name"];
    clinic.assert_found("ca-dates", "warning", found);
    bundle(&[]);
    assert!(!check().stderr.contains("expired"), "{}", check().stderr);
    // One that only members are judged by.
    let mut clinic = clinic;
    let members = clinic.ca.bundle_pem() + &ended;
    clinic.write("members-ca.pem", &members, 0o644);
    clinic.pool = |clinic| {
        let dir = clinic.directory.path().display();
        format!("{}ca = \"{dir}/members-ca.pem\"\n", clinic.tls_pool())
    };
    clinic.more = "crl = \"{dir}/crl.pem\"\n".to_owned();
    let found = &["CN=Puppet CA: old", "members-ca.pem", "expired on"];
    clinic.assert_found("ca-dates", "failure", found);
    let told = "which verifies members, is expired or not valid yet";
    assert!(check().stderr.contains(told), "{}", check().stderr);
}

/// A CA of this name whose time ends with that year.
fn ca_pem(name: &str, until: i32) -> String {
    let mut ca = rcgen::CertificateParams::default();
    ca.distinguished_name.push(DnType::CommonName, name);
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    ca.not_before = rcgen::date_time_ymd(2000, 1, 1);
    ca.not_after = rcgen::date_time_ymd(until, 12, 31);
    let key = rcgen::KeyPair::generate().expect("a key");
    ca.self_signed(&key).expect("a certificate").pem()
}

#[test]
fn a_ca_without_a_list_is_found() {
    let clinic = Clinic::new();
    clinic.write("crl.pem", &clinic.ca.issuing_crl_pem(), 0o644);
    let proof = clinic.assert_found("crl", "failure", &["no CRL of this CA"]);
    assert!(
        remedies(&proof, "crl").contains("`[trust] crl`"),
        "{proof:#}"
    );
    // The members' certificates cannot be checked either, and another one would not help.
    let remedies = remedies(&proof, "member-certificate");
    assert!(remedies.contains("fix that CRL"), "{proof:#}");
    assert!(!remedies.contains("issue a certificate"), "{proof:#}");
}

#[test]
fn a_list_that_revokes_ourselves_is_found() {
    let clinic = Clinic::new();
    let own = clinic.ca.server("puppet");
    clinic.write_own(&own);
    clinic.ca.revoke(&own);
    clinic.write("crl.pem", &clinic.ca.crl_pem(), 0o644);
    clinic.assert_found("own-certificate", "failure", &["puppet.pem", "revoked"]);
}

#[test]
fn a_list_older_than_the_cas_own_is_found() {
    let clinic = Clinic::new();
    clinic.ca.revoke(&clinic.ca.agent("web09"));
    clinic.assert_found(
        "crl-fresh",
        "warning",
        &["in pool ca", "number 1", "the proxy uses an older one"],
    );
}

#[test]
fn a_member_that_is_down_is_found() {
    let clinic = Clinic::new();
    clinic.compiler.kill();
    let address = clinic.compiler.address();
    clinic.assert_found(
        "member-reached",
        "failure",
        &[&address, "in pool compilers", "cannot connect"],
    );
}

#[test]
fn t05_a_member_that_is_down_and_open_elsewhere_is_found_for_both() {
    let clinic = Clinic::new();
    clinic.compiler.kill();
    let open = StandIn::start("c1");
    open.behave(Manner::headers());
    let port = open.socket_address().port().to_string();
    let ports = &["--plain-port", &*port];
    clinic.assert_found_with(ports, "member-reached", "failure", &["cannot connect"]);
    let found = &[
        "in pool compilers",
        "in plain HTTP on port",
        &port,
        "trusts the identity headers",
    ];
    clinic.assert_found_with(ports, "outside-plain", "failure", found);
}

#[test]
fn the_ports_of_a_member_that_is_down_are_not_called_closed() {
    let clinic = Clinic::new();
    clinic.compiler.kill();
    let proof = clinic.assert_found("member-reached", "failure", &["cannot connect"]);
    for check in ["outside-plain", "outside-anonymous", "outside-agent"] {
        assert_not_passed(&proof, check, "in pool compilers");
    }
}

#[test]
fn a_member_that_speaks_another_protocol_than_its_pool_is_found_by_that() {
    let clinic = Clinic::with_compiler(|_, _| StandIn::start("c1"));
    let found = &["it uses plain HTTP there, but this pool uses TLS"];
    clinic.assert_found("member-reached", "failure", found);
    let mut clinic = Clinic::new();
    clinic.pool = Clinic::plain_pool;
    let found = &["it uses TLS there, but this pool uses plain HTTP"];
    let proof = clinic.assert_found("member-reached", "failure", found);
    let remedies = remedies(&proof, "member-reached");
    assert!(remedies.contains("scheme = \"https\""), "{remedies}");
}

#[test]
fn a_member_with_another_name_or_an_old_certificate_is_found() {
    let other = |ca: &Ca, front: &Ca| {
        StandIn::builder("c1")
            .tls(front, &ca.agent("c9.example.com"))
            .start()
    };
    let clinic = Clinic::with_compiler(other);
    let found = &["127.0.0.1", "c9.example.com"];
    let proof = clinic.assert_found("member-certificate", "failure", found);
    let remedy = remedies(&proof, "member-certificate");
    assert!(remedy.contains("`server_name`"), "{remedy}");
    let ended = |ca: &Ca, front: &Ca| {
        let ended = ca.leaf("c1").ip("127.0.0.1").valid_days(-9, -1).issue();
        StandIn::builder("c1").tls(front, &ended).start()
    };
    let found = &["127.0.0.1", "expired"];
    let proof = Clinic::with_compiler(ended).assert_found("member-certificate", "failure", found);
    let remedy = remedies(&proof, "member-certificate");
    assert!(
        remedy.contains("renew its certificate on that server"),
        "{remedy}"
    );
    let ending = |ca: &Ca, front: &Ca| {
        let ending = ca.leaf("c1").ip("127.0.0.1").valid_days(-30, 3).issue();
        StandIn::builder("c1").tls(front, &ending).start()
    };
    Clinic::with_compiler(ending).assert_found(
        "member-certificate",
        "warning",
        &["CN=c1", "it expires on"],
    );
}

#[test]
fn a_member_that_refuses_our_certificate_is_found() {
    let compiler = |ca: &Ca, _: &Ca| {
        StandIn::builder("c1")
            .tls(&Ca::named("Another proxy's"), &ca.server("c1"))
            .start()
    };
    let clinic = Clinic::with_compiler(compiler);
    clinic.assert_found("credential-accepted", "failure", &["in pool compilers"]);
}

#[test]
fn t05_a_compiler_that_believes_whoever_shows_no_certificate_is_found() {
    let compiler = |ca: &Ca, front: &Ca| {
        StandIn::builder("c1")
            .tls_wanting(front, &ca.server("c1"))
            .start()
    };
    let clinic = Clinic::with_compiler(compiler);
    let found = &[
        "trusts the identity headers",
        "without a certificate",
        "/puppet/v3/node/puppet",
    ];
    clinic.assert_found("outside-anonymous", "failure", found);
    clinic.assert_only_asked();
    // Rules that give nobody a node do not hide that the headers of everybody are read.
    clinic.compiler.answer(|request| {
        request
            .path()
            .starts_with("/puppet/v3/node/")
            .then(|| Reply::status(403))
    });
    clinic.assert_found("outside-anonymous", "failure", &["answered 400"]);
    // One that believes nobody and serves everybody is a door that stands open.
    clinic.compiler.behave(Manner::peer());
    clinic.assert_found("outside-anonymous", "warning", &["answers 403"]);
}

#[test]
fn t05_a_compiler_that_believes_any_agent_is_found() {
    let compiler = |ca: &Ca, _: &Ca| StandIn::builder("c1").tls(ca, &ca.server("c1")).start();
    let clinic = Clinic::with_compiler(compiler);
    clinic.write_credential("to-compilers", &clinic.ca.agent("proscenium"));
    clinic.assert_found(
        "outside-agent",
        "failure",
        &["with an ordinary agent's certificate"],
    );
    clinic.assert_only_asked();
    // Without an agent's certificate that is said to be not proved, and is no failure.
    let outcome = clinic.run(&[]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stdout);
    for expected in [
        "note     outside-agent",
        "not tested",
        "--agent-cert",
        "passed: configuration, files",
    ] {
        assert!(
            outcome.stdout.contains(expected),
            "{expected} is not in {}",
            outcome.stdout
        );
    }
}

#[test]
fn t05_a_plain_port_that_believes_headers_is_found() {
    let clinic = Clinic::new();
    let open = StandIn::start("c1");
    open.behave(Manner::headers());
    let port = open.socket_address().port().to_string();
    let found = &[
        "in plain HTTP on port",
        &port,
        "trusts the identity headers",
    ];
    clinic.assert_found_with(&["--plain-port", &port], "outside-plain", "failure", found);
}

#[test]
fn t05_the_tls_port_of_a_compiler_that_is_spoken_to_in_plain_http_is_found() {
    let mut clinic = Clinic::with_compiler(|_, _| StandIn::start("c1"));
    clinic.pool = Clinic::plain_pool;
    clinic.assert_found("outside-plain", "note", &["plain HTTP on loopback"]);
    let open = StandIn::builder("c1")
        .tls_wanting(&clinic.ca, &clinic.ca.server("c1"))
        .start();
    open.behave(Manner::headers());
    let port = open.socket_address().port().to_string();
    let found = &["over TLS on port", &port, "trusts the identity headers"];
    clinic.assert_found_with(
        &["--tls-port", &port],
        "outside-anonymous",
        "failure",
        found,
    );
    clinic.assert_found_with(&["--tls-port", &port], "outside-agent", "failure", found);
}

#[test]
fn t05_another_tls_port_of_a_compilers_host_that_believes_headers_is_found() {
    let clinic = Clinic::new();
    let open = StandIn::builder("c1")
        .tls_wanting(&clinic.ca, &clinic.ca.server("c1"))
        .start();
    open.behave(Manner::headers());
    let port = open.socket_address().port().to_string();
    let found = &[
        "over TLS on port",
        &port,
        "trusts the identity headers",
        "in pool compilers",
    ];
    for check in ["outside-anonymous", "outside-agent"] {
        clinic.assert_found_with(&["--tls-port", &port], check, "failure", found);
    }
    // Somebody else's, where agents are welcome: not the compiler's affair.
    open.behave(Manner::peer());
    let (proof, code) = clinic.examined(&["--tls-port", &port]);
    assert_eq!(code, Some(0), "{proof:#}");
}

#[test]
fn a_compiler_that_goes_by_our_own_certificate_is_found() {
    let clinic = Clinic::new();
    clinic.compiler.behave(Manner::peer());
    clinic.assert_found(
        "headers-read",
        "failure",
        &["does not read the trusted headers"],
    );
    clinic.assert_found("own-node", "failure", &["answered 403"]);
    // By the same name in both certificates it would seem to do as it should.
    clinic.write_credential("to-compilers", &clinic.front.agent("puppet"));
    let found = &[
        "for an unverified client",
        "uses the identity of the proxy's certificate",
    ];
    clinic.assert_found("unknown-client", "failure", found);
}

#[test]
fn a_compiler_that_gives_an_agent_what_is_anothers_is_found() {
    let clinic = Clinic::new();
    clinic.compiler.answer(|request| {
        let known = request.headers.get("x-client-verify") == Some("SUCCESS");
        let node = request.path().starts_with("/puppet/v3/node/");
        (known && node).then(|| Reply::ok("{}"))
    });
    clinic.assert_found(
        "others-node",
        "failure",
        &["serves the documents of another node to puppet"],
    );
}

#[test]
fn t07_a_ca_server_that_believes_headers_is_found() {
    let clinic = Clinic::new();
    clinic.ca_server.behave(Manner::headers());
    clinic.assert_found("ca-headers", "failure", &["in pool ca", "trusts headers"]);
    clinic.assert_found(
        "outside-agent",
        "failure",
        &["trusts headers", "ordinary agent"],
    );
}

#[test]
fn a_ca_server_that_lets_us_administer_it_is_found() {
    let clinic = Clinic::new();
    clinic.ca_server.answer(|request| {
        let status = request.path().contains("/certificate_status/");
        status.then(|| Reply::ok("{}"))
    });
    clinic.assert_found(
        "ca-rights",
        "failure",
        &["administer", "certificate_status/puppet"],
    );
}

#[test]
fn a_compiler_in_the_cas_place_and_a_ca_in_a_compilers_are_found() {
    let clinic = Clinic::new();
    clinic.ca_server.answer(|request| {
        request
            .path()
            .starts_with("/puppet-ca/")
            .then(|| Reply::status(404))
    });
    clinic.assert_found("service", "failure", &["in pool ca", "answered 404"]);
    clinic.compiler.answer(|request| {
        request
            .path()
            .starts_with("/puppet-ca/")
            .then(|| Reply::ok("-----BEGIN CERTIFICATE-----"))
    });
    clinic.assert_found("service", "warning", &["in pool compilers", "CA service"]);
}

#[test]
fn a_clock_that_differs_is_found() {
    let clinic = Clinic::new();
    clinic.compiler.behave(Manner::headers().clock_ahead(3600));
    clinic.ca_server.behave(Manner::peer().clock_ahead(-120));
    clinic.assert_found(
        "clock",
        "failure",
        &["in pool compilers", "ahead of the clock of this host"],
    );
    clinic.assert_found(
        "clock",
        "warning",
        &["in pool ca", "behind the clock of this host"],
    );
}

#[test]
fn a_status_that_makes_no_sense_is_found() {
    let clinic = Clinic::new();
    for (reply, words) in [
        (
            Reply::status(404),
            ["answered 404", "expected 200 `running`"],
        ),
        (
            Reply::status(503).body(b"starting"),
            ["answered 503", "`starting`"],
        ),
        (Reply::ok("It works!"), ["answered 200", "`It works!`"]),
        (Reply::ok("not running"), ["answered 200", "`not running`"]),
    ] {
        clinic.compiler.answer(move |request| {
            request
                .path()
                .starts_with("/status/")
                .then(|| reply.clone())
        });
        clinic.assert_found("status", "failure", &words);
    }
}

#[test]
fn a_compiler_that_reads_short_heads_alone_is_found() {
    let clinic = Clinic::new();
    clinic
        .compiler
        .behave(Manner::headers().head_bytes_max(4096));
    clinic.assert_found("head-room", "warning", &["forward_cert_max", "431"]);
    clinic
        .compiler
        .behave(Manner::headers().head_bytes_max(1024));
    clinic.assert_found(
        "head-room",
        "failure",
        &["the proxy's own certificate takes"],
    );
}

#[test]
fn an_agents_certificate_that_is_no_ordinary_agents_is_not_proved_by() {
    let clinic = Clinic::new();
    let pp_cli_auth = [1, 3, 6, 1, 4, 1, 34380, 1, 3, 39];
    for (agent, words) in [
        (clinic.ca.agent("puppet"), "the name of this proxy"),
        (
            Ca::named("Nobody's").agent("web01"),
            "was not issued by a CA",
        ),
        (
            clinic
                .ca
                .leaf("web01")
                .extension(&pp_cli_auth, "true")
                .issue(),
            "authorization extension",
        ),
    ] {
        clinic.write_credential("agent", &agent);
        clinic.assert_found("agent-certificate", "warning", &["agent.pem", words]);
    }
}

#[test]
fn t07_a_ca_server_whose_status_is_not_served_is_not_called_good() {
    let clinic = Clinic::new();
    clinic.ca_server.behave(Manner::headers());
    // Nothing stands there, so no header is read there; its other endpoints read them.
    clinic.ca_server.answer(|request| {
        request
            .path()
            .starts_with("/status/")
            .then(|| Reply::status(404))
    });
    let proof = clinic.assert_found("ca-headers", "warning", &["in pool ca", "answered 404"]);
    assert_not_passed(&proof, "ca-headers", "in pool ca");
    assert_not_passed(&proof, "outside-agent", "in pool ca, with");
    clinic.assert_found("outside-agent", "note", &["in pool ca", "answered 404"]);
}

#[test]
fn t07_a_ca_server_in_a_pool_of_any_name_is_asked_as_a_ca_server() {
    let mut clinic = Clinic::new();
    let issuing = StandIn::builder("issuing")
        .ca(&clinic.ca)
        .tls(&clinic.ca, &clinic.ca.server("issuing"))
        .start();
    issuing.behave(Manner::headers());
    clinic.more = format!(
        "[pools.issuing]\nmembers = [{:?}]\n\
         [[routes]]\nname = \"issuing\"\npath = {{ prefix = \"/puppet-ca\" }}\npool = \"issuing\"\n",
        issuing.address()
    );
    clinic.assert_found(
        "ca-headers",
        "failure",
        &["in pool issuing", "trusts headers"],
    );
    issuing.behave(Manner::peer());
    let (proof, code) = clinic.examined(&[]);
    assert_eq!(code, Some(0), "{proof:#}");
    let remedies = proof["findings"].to_string();
    assert!(!remedies.contains("allow-header-cert-info: true"));
}

#[test]
fn t05_a_door_that_has_answered_once_is_not_called_closed() {
    let broken = |request: &Recorded| request.headers.get("x-client-cert") == Some("%zz");
    let compiler = |ca: &Ca, front: &Ca| {
        let wanting = StandIn::builder("c1").tls_wanting(front, &ca.server("c1"));
        wanting.start()
    };
    let clinic = Clinic::with_compiler(compiler);
    let refuses_once = |request: &Recorded| {
        let node = request.path().starts_with("/puppet/v3/node/");
        let reply = match node {
            true => Reply::status(403),
            false => Reply::hang_up(),
        };
        request.peer_certificates.is_empty().then_some(reply)
    };
    clinic.compiler.answer(refuses_once);
    clinic.assert_found(
        "outside-anonymous",
        "warning",
        &["in pool compilers", "answers 403"],
    );
    clinic
        .ca_server
        .answer(move |request| broken(request).then(Reply::hang_up));
    let proof = clinic.assert_found("outside-agent", "note", &["in pool ca", "not tested"]);
    assert_not_passed(&proof, "outside-agent", "in pool ca, with");
    let open = StandIn::start("c1");
    open.answer(refuses_once);
    let port = open.socket_address().port().to_string();
    clinic.assert_found_with(
        &["--plain-port", &port],
        "outside-plain",
        "note",
        &["not tested", &port],
    );
}

#[test]
fn a_compiler_that_says_nothing_about_nodes_is_asked_all_the_same() {
    let mut clinic = Clinic::new();
    let batch = StandIn::builder("batch")
        .tls(&clinic.front, &clinic.ca.server("batch"))
        .start();
    batch.behave(Manner::peer());
    batch.answer(|request| {
        let node = request.path().starts_with("/puppet/v3/node/");
        node.then(Reply::hang_up)
    });
    clinic.more = format!(
        "[pools.batch]\nmembers = [{:?}]\n[pools.batch.tls]\n\
         chain = \"{{dir}}/to-compilers.pem\"\nkey = \"{{dir}}/to-compilers.key\"\n",
        batch.address()
    );
    clinic.assert_found(
        "headers-read",
        "failure",
        &["in pool batch", "does not read the trusted headers"],
    );
    clinic.assert_found("unknown-client", "warning", &["in pool batch"]);
}

#[test]
fn a_compiler_that_forbids_its_jruby_counts_is_found_with_the_rule_for_its_auth_conf() {
    let clinic = Clinic::new();
    clinic
        .compiler
        .answer(|request| request.is_jruby_reading().then(|| Reply::status(403)));
    let words = ["in pool compilers", "balances without JRuby counts"];
    let proof = clinic.assert_found("jrubies", "note", &words);
    assert_not_passed(&proof, "jrubies", "in pool compilers");
    let findings = proof["findings"].to_string();
    let rule = "match-request: { path: \\\"/status/v1/services/jruby-metrics\\\", type: path, method: get }";
    assert!(findings.contains(rule), "{findings}");
}

#[test]
fn a_ca_server_that_gives_nobody_its_lists_is_found() {
    let clinic = Clinic::new();
    clinic.ca_server.answer(|request| {
        let lists = request.path().contains("/certificate_revocation_list/");
        lists.then(|| Reply::status(403))
    });
    let found = &["in pool ca", "certificate_revocation_list/ca answered 403"];
    let proof = clinic.assert_found("crl-fresh", "warning", found);
    assert_not_passed(&proof, "crl-fresh", "in pool ca");
}

#[test]
fn what_a_status_that_is_not_served_says_of_headers_is_nothing() {
    let clinic = Clinic::new();
    for status in [400, 404] {
        clinic.compiler.answer(move |request| {
            request
                .path()
                .starts_with("/status/")
                .then(|| Reply::status(status))
        });
        let answered = format!("answered {status}");
        let proof =
            clinic.assert_found("headers-read", "warning", &["in pool compilers", &answered]);
        assert_not_passed(&proof, "headers-read", "in pool compilers");
    }
}

#[test]
fn a_pool_that_reads_other_headers_is_told_what_is_not_proved() {
    let mut clinic = Clinic::new();
    clinic.more = "[pools.compilers.identity]\nverify_header = \"X-Front-Verify\"\n".to_owned();
    clinic.assert_found("headers-read", "note", &["in pool compilers", "not tested"]);
}

#[test]
fn a_member_that_drips_is_waited_for_so_long_and_no_longer() {
    let clinic = Clinic::new();
    clinic.compiler.answer(|_| {
        let slow = Reply::ok("running").dribble(1, std::time::Duration::from_secs(3));
        Some(slow)
    });
    clinic.assert_found(
        "member-reached",
        "failure",
        &["in pool compilers", "no answer within 10s"],
    );
}

#[test]
fn no_other_name_is_read_out_of_our_own() {
    let mut clinic = Clinic::new();
    clinic.more = "[identity]\nsubject = \"single-cn\"\n".to_owned();
    for name in ["web01?x=", "web01#", "web01%2f", "a b"] {
        let own = clinic.ca.leaf("puppet");
        clinic.write_own(&own.subject(&[(DnType::CommonName, name)]).issue());
        clinic.assert_found(
            "own-name",
            "note",
            &["could not send requests in the proxy's name"],
        );
    }
    let requests = clinic.compiler.requests().into_iter();
    for request in requests.chain(clinic.ca_server.requests()) {
        let text = request.raw_text();
        assert!(!text.contains("web01") && !text.contains("a b"), "{text}");
    }
}

#[test]
fn no_text_of_a_member_moves_the_cursor() {
    let odd = |ca: &Ca, front: &Ca| {
        let odd = ca.leaf("c9").without_san().dns("c9\u{1b}[2J\u{7f}").issue();
        StandIn::builder("c1").tls(front, &odd).start()
    };
    let outcome = Clinic::with_compiler(odd).run(&[]);
    assert_eq!(outcome.code, Some(2), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("c9"), "{}", outcome.stdout);
    let moves = |c: char| !c.is_ascii() || c.is_control() && c != '\n';
    assert!(!outcome.stdout.contains(moves), "{:?}", outcome.stdout);
    let clinic = Clinic::new();
    let odd = "running\u{1b}[2J\u{202e}gninnur";
    clinic
        .compiler
        .answer(move |request| (request.path() == "/status/v1/simple").then(|| Reply::ok(odd)));
    let outcome = clinic.run(&[]);
    assert!(
        outcome.stdout.contains("`running?[2J?"),
        "{}",
        outcome.stdout
    );
    assert!(!outcome.stdout.contains(moves), "{:?}", outcome.stdout);
}

#[test]
fn no_line_of_a_key_is_said_or_sent() {
    let clinic = Clinic::new();
    let lines = |key: &str| -> Vec<String> {
        let body = key.lines().filter(|line| !line.starts_with("-----"));
        body.map(str::to_owned).collect()
    };
    let mut secret = lines(&clinic.agent.key_pem);
    let own = std::fs::read_to_string(clinic.path("ssl/private_keys/puppet.pem"));
    secret.extend(lines(&own.expect("a key of the test's own")));
    assert!(secret.len() >= 4);
    let (cert, key) = (clinic.path("agent.pem"), clinic.path("agent.key"));
    let (cert, key) = (cert.to_str().expect("UTF-8"), key.to_str().expect("UTF-8"));
    for words in [
        ["--agent-cert", cert, "--agent-key", key],
        ["--agent-cert", key, "--agent-key", cert],
        ["--agent-cert", key, "--agent-key", key],
    ] {
        for json in [&["--json"][..], &[]] {
            let outcome = clinic.run(&[&words[..], json].concat());
            for line in &secret {
                assert!(!outcome.stdout.contains(line), "{words:?}");
                assert!(!outcome.stderr.contains(line), "{words:?}");
            }
        }
    }
    let sent = [&clinic.ca_server, &clinic.compiler].map(StandIn::raw_connections);
    let sent: Vec<u8> = sent.into_iter().flatten().flatten().collect();
    let sent = String::from_utf8_lossy(&sent);
    assert!(sent.contains("/status/v1/simple"));
    assert!(secret.iter().all(|line| !sent.contains(line)));
}

#[test]
fn what_the_running_proxy_says_is_told_too() {
    let estate = Estate::builder().compiler_pool(QUICK_CHECK).start();
    let down = estate.compilers[0].address();
    estate.compilers[0].kill();
    estate.proxy.wait_for_health("compilers", &down, "down");
    let outcome = estate.proxy.command(&["doctor"], &["--json"]);
    let proof: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    let findings = proof["findings"].as_array().expect("a list");
    let told = findings.iter().any(|finding| {
        let found = finding["found"].as_str().unwrap_or_default();
        finding["check"] == "running" && found.contains(&down) && found.contains("is down")
    });
    assert!(told, "{proof:#}");
    assert_eq!(outcome.code, Some(2));
}

#[test]
fn a_pool_of_which_nobody_takes_requests_is_found_and_maintenance_is_no_fault() {
    let estate = Estate::builder().compiler_pool(QUICK_CHECK).start();
    let running = || {
        let outcome = estate.proxy.command(&["doctor"], &["--json"]);
        let proof: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
        let findings = proof["findings"].as_array().into_iter().flatten();
        let running = findings.filter(|finding| finding["check"] == "running");
        running
            .filter(|finding| finding["severity"] != "note")
            .map(ToString::to_string)
            .collect::<String>()
    };
    let [one, two] = [0, 1].map(|n: usize| estate.compilers[n].address());
    let administer = |verb: &str, member: &str| {
        crate::support::set_state(&estate.proxy, verb, "compilers", member);
    };
    estate.compilers[0].kill();
    estate.proxy.wait_for_health("compilers", &one, "down");
    administer("maintenance", &one);
    assert_eq!(running(), "", "it was taken out");
    administer("drain", &two);
    let told = running();
    for words in ["no member of pool compilers", &two, "drain", "failure"] {
        assert!(told.contains(words), "{words}: {told}");
    }
    administer("ready", &two);
    assert_eq!(running(), "", "one is enough");
}

#[test]
fn a_file_that_is_examined_and_not_in_force_yet_is_told() {
    let estate = Estate::start();
    let told = |state: Option<PathBuf>| {
        let mut doctor = std::process::Command::new(BINARY);
        doctor.args(["doctor", "--json", "--config"]);
        doctor.arg(estate.proxy.config_path());
        doctor.env_remove("STATE_DIRECTORY");
        doctor.envs(state.map(|state| ("STATE_DIRECTORY", state)));
        let output = doctor.output().expect("it runs");
        let proof: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let findings = proof["findings"].as_array().into_iter().flatten();
        let running = findings.filter(|finding| finding["check"] == "running");
        running.map(ToString::to_string).collect::<String>()
    };
    let state = estate.proxy.state_directory();
    assert_eq!(told(Some(state.clone())), "", "it was started so");
    let elsewhere = told(None);
    assert!(
        elsewhere.contains("uses the state directory"),
        "{elsewhere}"
    );
    assert!(elsewhere.contains("STATE_DIRECTORY="), "{elsewhere}");
    let more = "[csr]\nrsa_bits_min = 4096\n";
    let text = estate.proxy.config_text();
    estate.proxy.write_config(&format!("{text}\n{more}"));
    let edited = told(Some(state.clone()));
    assert!(edited.contains("uses another configuration"), "{edited}");
    assert!(edited.contains("\"note\""), "{edited}");
    estate.proxy.reload_applied();
    assert_eq!(told(Some(state.clone())), "", "it was reloaded");
    // With other cores than the service's there is nothing to compare by.
    let text = estate.proxy.config_text();
    estate.proxy.write_config(&format!("workers = 61\n{text}"));
    assert_eq!(told(Some(state)), "", "it has as many workers as cores");
}

#[test]
fn whoever_else_listens_on_the_admin_socket_is_told_with_what_helps() {
    let clinic = Clinic::new();
    let socket = clinic.path("admin.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    let other = std::thread::spawn(move || {
        for _ in 0..2 {
            let (mut caller, _) = listener.accept().expect("a caller");
            let _ = std::io::Write::write_all(&mut caller, b"SSH-2.0-somebody\r\n");
        }
    });
    let proof = clinic.assert_found("running", "warning", &["is that proscenium"]);
    let remedies = remedies(&proof, "running");
    assert!(remedies.contains("ss -xlp"), "{remedies}");
    assert!(!remedies.contains("as root"), "{remedies}");
    drop(clinic.run(&[]));
    other.join().expect("it was asked twice");
}

#[test]
fn the_guide_says_what_each_check_proves() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operating.md");
    let guide = std::fs::read_to_string(guide).expect("the guide is there");
    for check in server::doctor::Check::ALL {
        assert!(
            guide.contains(&format!("`{check}`")),
            "{check} is not in the guide"
        );
    }
}

#[test]
fn the_help_of_doctor_says_what_its_exit_codes_mean() {
    let help = command_line(&PathBuf::from(BINARY), &["doctor", "--help"]);
    let words: Vec<_> = help.stdout.split_whitespace().collect();
    let help = words.join(" ");
    for expected in [
        "1 Warnings: a condition",
        "2 Failures: agents",
        "--agent-cert",
        "--plain-port",
        "8139",
        "--json",
    ] {
        assert!(help.contains(expected), "{expected} is not in {help}");
    }
}

/// What is advised by the findings of a check.
fn remedies(proof: &Value, check: &str) -> String {
    let findings = proof["findings"].as_array().into_iter().flatten();
    let remedies = findings
        .filter(|finding| finding["check"] == check)
        .filter_map(|finding| finding["remedy"].as_str());
    remedies.collect::<Vec<_>>().join("; ")
}

/// Asserts that this check is not among what was proved of whom these words name.
#[track_caller]
fn assert_not_passed(proof: &Value, check: &str, about: &str) {
    let mut passed = proof["passed"].as_array().expect("a list").iter();
    let named = |passed: &&Value| {
        passed["check"] == check && passed["about"].as_str().is_some_and(|a| a.contains(about))
    };
    assert_eq!(passed.find(named), None, "{proof:#}");
}

/// A passthrough pool with this member, beside the compilers.
fn passing(member: &StandIn) -> String {
    format!(
        "[listeners.pcp]\naddress = \"127.0.0.1:8142\"\npassthrough = \"brokers\"\n\
         [pools.brokers]\nmembers = [{{ address = {:?}, server_name = \"localhost\" }}]\n\
         trusted_headers_off = true\n",
        member.address()
    )
}

#[test]
fn t18_forged_headers_are_sent_through_each_passthrough_pool() {
    let mut clinic = Clinic::new();
    let broker = StandIn::builder("b1")
        .tls_wanting(&clinic.ca, &clinic.ca.server("b1"))
        .start();
    // It goes by the certificate of its peer, as a message broker does.
    broker.behave(Manner::peer());
    clinic.more = passing(&broker);
    let (proof, code) = clinic.examined(&[]);
    let passed = proof["passed"].as_array().expect("a list");
    for how in [
        "without a certificate",
        "with an ordinary agent's",
        "in plain HTTP",
    ] {
        let is_passed = |passed: &&Value| {
            let about = passed["about"].as_str().unwrap_or_default();
            passed["check"] == "passthrough" && about.contains(how)
        };
        assert!(
            passed.iter().any(|passed| is_passed(&passed)),
            "{how}: {proof:#}"
        );
    }
    assert_eq!(code, Some(0), "{proof:#}");
    assert!(!broker.requests().is_empty(), "it was asked");

    // A compiler that was forgotten there believes whoever comes.
    broker.behave(Manner::headers());
    let found = &[
        "in pool brokers",
        "passed through",
        "trusts the identity headers",
        "without a certificate",
    ];
    clinic.assert_found("passthrough", "failure", found);
}

#[test]
fn a_passthrough_member_that_cannot_be_verified_is_not_called_safe() {
    let mut clinic = Clinic::new();
    let elsewhere = Ca::new();
    let broker = StandIn::builder("b1")
        .tls_wanting(&elsewhere, &elsewhere.server("b1"))
        .start();
    clinic.more = passing(&broker);
    let proof = clinic.assert_found("passthrough", "note", &["not tested over TLS"]);
    assert_not_passed(&proof, "passthrough", "over TLS");
}
