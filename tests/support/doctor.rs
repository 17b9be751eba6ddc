//! An estate for `doctor` to examine, without a running proxy.

use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;
use testkit::{Ca, CommandOutcome, HeldPort, Manner, StandIn, TestCredential, command_line};

use crate::support::BINARY;

/// An estate as docs/operating/compilers.md recommends: compilers that trust headers and accept only the proxy, by a
/// separate CA, and a CA server that uses certificates. No proxy runs.
pub(crate) struct Clinic {
    pub(crate) directory: TempDir,
    pub(crate) ca: Ca,
    /// The CA of the proxy's certificate towards compilers.
    pub(crate) front: Ca,
    pub(crate) agent: TestCredential,
    pub(crate) ca_server: StandIn,
    pub(crate) compiler: StandIn,
    /// An address on which no server listens.
    pub(crate) closed: HeldPort,
    pub(crate) pool: fn(&Self) -> String,
    /// Additional configuration; `{dir}` is the directory.
    pub(crate) more: String,
    /// Whether a running proxy would fetch CRLs from the CA.
    pub(crate) fetches: bool,
}

impl Clinic {
    pub(crate) fn new() -> Self {
        let (ca, front) = (Ca::new(), Ca::other());
        let ca_server = StandIn::builder("ca").ca(&ca).tls(&ca, &ca.server("ca"));
        let compiler = StandIn::builder("c1").tls(&front, &ca.server("c1"));
        Self::of(ca, front, ca_server.start(), compiler.start())
    }

    pub(crate) fn of(ca: Ca, front: Ca, ca_server: StandIn, compiler: StandIn) -> Self {
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

    /// An estate with another compiler.
    pub(crate) fn with_compiler(compiler: impl FnOnce(&Ca, &Ca) -> StandIn) -> Self {
        let (ca, front) = (Ca::new(), Ca::other());
        let ca_server = StandIn::builder("ca").ca(&ca).tls(&ca, &ca.server("ca"));
        let compiler = compiler(&ca, &front);
        Self::of(ca, front, ca_server.start(), compiler)
    }

    /// The proxy's certificate towards compilers, if they are reached over TLS.
    pub(crate) fn tls_pool(&self) -> String {
        let dir = self.directory.path().display();
        format!(
            "members = [{:?}]\n[pools.compilers.tls]\n\
             chain = \"{dir}/to-compilers.pem\"\nkey = \"{dir}/to-compilers.key\"\n",
            self.compiler.address()
        )
    }

    pub(crate) fn plain_pool(&self) -> String {
        format!(
            "scheme = \"http\"\nmembers = [{:?}]\n",
            self.compiler.address()
        )
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str, mode: u32) {
        std::fs::write(self.path(name), text).expect("a file of the test's own");
        self.chmod(name, mode);
    }

    pub(crate) fn chmod(&self, name: &str, mode: u32) {
        use std::os::unix::fs::PermissionsExt;
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(self.path(name), permissions).expect("a mode");
    }

    pub(crate) fn write_credential(&self, name: &str, credential: &TestCredential) {
        self.write(&format!("{name}.pem"), &credential.chain_pem(), 0o644);
        self.write(&format!("{name}.key"), &credential.key_pem, 0o600);
    }

    /// The proxy's own certificate towards agents and the CA server.
    pub(crate) fn write_own(&self, credential: &TestCredential) {
        self.ca.write_ssldir_with(&self.path("ssl"), credential);
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> CommandOutcome {
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

    /// The findings with an ordinary agent's certificate, as JSON, and the exit code.
    pub(crate) fn examined(&self, arguments: &[&str]) -> (Value, Option<i32>) {
        let (cert, key) = (self.path("agent.pem"), self.path("agent.key"));
        let mut words = vec!["--json", "--agent-cert", cert.to_str().expect("UTF-8")];
        words.extend(["--agent-key", key.to_str().expect("UTF-8")]);
        words.extend(arguments);
        let outcome = self.run(&words);
        let proof = serde_json::from_str(&outcome.stdout)
            .unwrap_or_else(|error| panic!("{error}: {outcome:?}"));
        (proof, outcome.code)
    }

    /// Asserts that there is a finding with these words, and that each finding has a remedy.
    #[track_caller]
    pub(crate) fn assert_found(&self, check: &str, severity: &str, words: &[&str]) -> Value {
        self.assert_found_with(&[], check, severity, words)
    }

    #[track_caller]
    pub(crate) fn assert_found_with(
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

    /// Asserts that no request can have changed a member.
    #[track_caller]
    pub(crate) fn assert_only_asked(&self) {
        for request in self
            .ca_server
            .requests()
            .into_iter()
            .chain(self.compiler.requests())
        {
            assert_eq!(request.method, "GET", "{}", request.raw_text());
            let output = request.headers.all("x-client-dn");
            assert!(
                output
                    .iter()
                    .all(|dn| ["CN=puppet", "CN=proscenium-doctor.invalid"].contains(dn)),
                "another name was said: {}",
                request.raw_text()
            );
        }
    }
}

/// The remedies of the findings of a check.
pub(crate) fn remedies(proof: &Value, check: &str) -> String {
    let findings = proof["findings"].as_array().into_iter().flatten();
    let remedies = findings
        .filter(|finding| finding["check"] == check)
        .filter_map(|finding| finding["remedy"].as_str());
    remedies.collect::<Vec<_>>().join("; ")
}

/// Asserts that this check did not pass for the member that these words name.
#[track_caller]
pub(crate) fn assert_not_passed(proof: &Value, check: &str, about: &str) {
    let mut passed = proof["passed"].as_array().expect("a list").iter();
    let named = |passed: &&Value| {
        passed["check"] == check && passed["about"].as_str().is_some_and(|a| a.contains(about))
    };
    assert_eq!(passed.find(named), None, "{proof:#}");
}
