//! Findings and passed tests, each with the name of its check.

use std::fmt;

use config::ConfigReport;
use serde::Serialize;

/// The result of an examination.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DoctorReport {
    /// Whether a start would refuse the configuration: then no member was contacted.
    pub configuration_refused: bool,
    /// The findings, the most severe first.
    pub findings: Vec<DoctorFinding>,
    /// The tests that passed.
    pub passed: Vec<PassedCheck>,
}

/// Something that is wrong, or that could not be tested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DoctorFinding {
    /// The check.
    pub check: Check,
    /// The severity.
    pub severity: FindingSeverity,
    /// The subject: a file, a CA, or a member with its pool.
    pub about: String,
    /// A description of the finding.
    pub found: String,
    /// The remedy.
    pub remedy: String,
}

/// A check that passed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PassedCheck {
    /// The check.
    pub check: Check,
    /// The subject.
    pub about: String,
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingSeverity {
    /// A property that could not be tested, or that is correct and worth knowing.
    Note,
    /// A fault that will become a failure, or that is a failure in other circumstances.
    Warning,
    /// A client is locked out, or wrongly accepted.
    Failure,
}

macro_rules! checks {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)*) => {
        /// The checks, by their names in reports.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        pub enum Check {
            $($(#[$doc])* #[serde(rename = $word)] $name,)*
        }

        impl Check {
            /// Every check.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The name of the check.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }
        }
    };
}

checks! {
    /// What `check` reports about the configuration.
    Configuration = "configuration",
    /// Which accounts may write the files that decide about trust, and which may read the proxy's keys.
    Files = "files",
    /// Whether the proxy's certificates are valid now.
    CertificateDates = "certificate-dates",
    /// Whether the trusted CAs are valid now.
    CaDates = "ca-dates",
    /// Whether a certificate of the proxy is revoked, blocked, or issued by a CA that agents do not know.
    OwnCertificate = "own-certificate",
    /// Whether a certificate of the proxy has rights on members.
    CredentialRights = "credential-rights",
    /// Whether the CA by which compilers accept the proxy, and its CRL, are valid now.
    CompilerCa = "compiler-ca",
    /// Whether the proxy has a certificate with which members can be queried under its name.
    OwnName = "own-name",
    /// Whether the certificate that was provided as an ordinary agent's is one.
    AgentCertificate = "agent-certificate",
    /// Whether each issuer has a CRL that has not expired.
    Crl = "crl",
    /// Whether the CA server has a newer CRL than the active one.
    CrlFresh = "crl-fresh",
    /// Whether a member accepts connections.
    MemberReached = "member-reached",
    /// Whether a member's certificate is valid for its name and now.
    MemberCertificate = "member-certificate",
    /// Whether a member accepts the proxy's certificate.
    CredentialAccepted = "credential-accepted",
    /// Whether a member's status says that it can serve.
    Status = "status",
    /// Whether a compiler shows how many JRubies it has.
    Jrubies = "jrubies",
    /// Whether a compiler keeps parsed environments between requests.
    Environments = "environments",
    /// Whether a member's clock agrees with this host's.
    Clock = "clock",
    /// Whether a member of the CA's pool is a CA server, and a compiler is not.
    Service = "service",
    /// Whether a compiler reads the trusted headers from the proxy.
    HeadersRead = "headers-read",
    /// Whether a compiler serves the proxy's own documents to the proxy.
    OwnNode = "own-node",
    /// Whether a compiler refuses other nodes' documents to the proxy's name.
    OthersNode = "others-node",
    /// Whether a compiler refuses a client that the proxy marks as unknown.
    UnknownClient = "unknown-client",
    /// Whether the CA server believes headers.
    CaHeaders = "ca-headers",
    /// Whether the CA server lets the proxy's certificate administer it.
    CaRights = "ca-rights",
    /// Whether a member refuses a client without a certificate that claims an identity.
    OutsideAnonymous = "outside-anonymous",
    /// Whether a member refuses an agent that claims another identity.
    OutsideAgent = "outside-agent",
    /// Whether a member refuses the same in plain HTTP.
    OutsidePlain = "outside-plain",
    /// Whether a passthrough member refuses a client that claims an identity.
    Passthrough = "passthrough",
    /// Whether a member accepts request heads as long as the proxy may send.
    HeadRoom = "head-room",
    /// Whether an endpoint of the fleet's store is reached.
    FleetReached = "fleet-reached",
    /// Whether the certificate of that endpoint is valid now.
    FleetCertificate = "fleet-certificate",
    /// Whether the proxy may read and write the records of its fleet.
    FleetRights = "fleet-rights",
    /// Whether the proxy may write other keys of the store.
    FleetOtherKeys = "fleet-other-keys",
    /// Whether the database of that endpoint has room.
    FleetDatabase = "fleet-database",
    /// Whether agents reject the dates of the proxy's certificate because their clock is wrong.
    AgentClocks = "agent-clocks",
    /// What the running proxy reports about itself.
    Running = "running",
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for FindingSeverity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Failure => "failure",
        })
    }
}

impl DoctorReport {
    /// The highest severity among the findings.
    pub fn worst(&self) -> Option<FindingSeverity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }

    pub(crate) fn passed(&mut self, check: Check, about: &str) {
        self.passed.push(PassedCheck {
            check,
            about: about.to_owned(),
        });
    }

    pub(crate) fn found(
        &mut self,
        check: Check,
        severity: FindingSeverity,
        about: &str,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.findings.push(DoctorFinding {
            check,
            severity,
            about: about.to_owned(),
            found: found.into(),
            remedy: remedy.into(),
        });
    }

    pub(crate) fn append(&mut self, mut other: Self) {
        self.findings.append(&mut other.findings);
        self.passed.append(&mut other.passed);
    }

    /// Adds the problems for which a start would refuse the configuration.
    pub(crate) fn refused(&mut self, report: &ConfigReport) {
        self.configuration_refused = true;
        self.problems(report);
    }

    /// Adds the warnings with which a start would accept the configuration, except those that a check has already
    /// reported for the same file.
    pub(crate) fn warned(&mut self, report: &ConfigReport) {
        let mut report = report.clone();
        let shown = |message: &str| {
            let mut grave = self.findings.iter();
            grave.any(|finding| {
                finding.severity >= FindingSeverity::Warning && message.contains(&finding.about)
            })
        };
        report.problems.retain(|problem| !shown(&problem.message));
        if report.problems.is_empty() {
            self.passed(Check::Configuration, &report.file);
        }
        self.problems(&report);
    }

    fn problems(&mut self, report: &ConfigReport) {
        for problem in &report.problems {
            let place = problem.place.as_ref();
            let about = match place {
                Some(place) => format!("{}:{}:{}", report.file, place.line, place.column),
                None => report.file.clone(),
            };
            let found = match problem.key.as_str() {
                "" => problem.message.clone(),
                key => format!("{key}: {}", problem.message),
            };
            let expected = problem.expected.iter();
            let expected = expected.map(|expected| format!("expected {expected}"));
            let remedy: Vec<_> = expected.chain(problem.help.iter().cloned()).collect();
            let remedy = if remedy.is_empty() {
                "correct it, then run doctor again; `proscenium check` shows the line".to_owned()
            } else {
                remedy.join("; ")
            };
            let grade = match problem.severity {
                config::ProblemSeverity::Error => FindingSeverity::Failure,
                config::ProblemSeverity::Warning => FindingSeverity::Warning,
            };
            self.found(Check::Configuration, grade, &about, found, remedy);
        }
    }

    /// Sorts the findings, the most severe first; equally severe ones keep the order of the checks.
    pub(crate) fn sort(&mut self) {
        let key = |finding: &DoctorFinding| (std::cmp::Reverse(finding.severity), finding.check);
        self.findings
            .sort_by(|one, other| (key(one), &one.about).cmp(&(key(other), &other.about)));
        self.passed.sort();
    }
}
