//! What was found and what was proved, with a name each.

use std::fmt;

use config::ConfigReport;
use serde::Serialize;

/// All that came of an examination.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DoctorReport {
    /// Whether a start would refuse the configuration: then no member was contacted.
    pub configuration_refused: bool,
    /// What is wrong or could not be proved, the gravest first.
    pub findings: Vec<DoctorFinding>,
    /// What was proved.
    pub passed: Vec<PassedCheck>,
}

/// Something that is wrong, or could not be proved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DoctorFinding {
    /// Which check.
    pub check: Check,
    /// How grave it is.
    pub severity: FindingSeverity,
    /// What it is about: a file, a CA, a member with its pool.
    pub about: String,
    /// What was found.
    pub found: String,
    /// What to do.
    pub remedy: String,
}

/// A check that found nothing wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PassedCheck {
    /// Which check.
    pub check: Check,
    /// What it is about.
    pub about: String,
}

/// How grave a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingSeverity {
    /// It could not be proved, or is as it has to be and worth knowing.
    Note,
    /// It will become a failure, or is one in other circumstances.
    Warning,
    /// A client is locked out, or wrongly accepted.
    Failure,
}

macro_rules! checks {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)*) => {
        /// The checks, by the names that reports give them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        pub enum Check {
            $($(#[$doc])* #[serde(rename = $word)] $name,)*
        }

        impl Check {
            /// Every check.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }
        }
    };
}

checks! {
    /// What `check` says of the configuration.
    Configuration = "configuration",
    /// Who may write the files that decide whom we believe, and read our keys.
    Files = "files",
    /// Whether our certificates are in time.
    CertificateDates = "certificate-dates",
    /// Whether the CAs that we believe are in time.
    CaDates = "ca-dates",
    /// Whether our own certificates are revoked, blocked or of a CA that agents do not know.
    OwnCertificate = "own-certificate",
    /// Whether a certificate of ours has rights on members.
    CredentialRights = "credential-rights",
    /// Whether there is a certificate by which members can be asked as ourselves.
    OwnName = "own-name",
    /// Whether the certificate that was given for an ordinary agent's is one.
    AgentCertificate = "agent-certificate",
    /// Whether each issuer has a list that is in time.
    Crl = "crl",
    /// Whether the CA server has a newer CRL than the active one.
    CrlFresh = "crl-fresh",
    /// Whether a member takes connections.
    MemberReached = "member-reached",
    /// Whether a member's certificate is good for its name, and in time.
    MemberCertificate = "member-certificate",
    /// Whether a member takes our certificate.
    CredentialAccepted = "credential-accepted",
    /// Whether a member says that it can work.
    Status = "status",
    /// Whether a compiler shows how many JRubies it has.
    Jrubies = "jrubies",
    /// Whether a member's clock is ours.
    Clock = "clock",
    /// Whether a member of the CA's pool is a CA server, and a compiler none.
    Service = "service",
    /// Whether a compiler reads the trusted headers from us.
    HeadersRead = "headers-read",
    /// Whether a compiler gives us our own documents.
    OwnNode = "own-node",
    /// Whether a compiler refuses us those of others.
    OthersNode = "others-node",
    /// Whether a compiler refuses whom we say that we do not know.
    UnknownClient = "unknown-client",
    /// Whether the CA server believes headers.
    CaHeaders = "ca-headers",
    /// Whether the CA server lets our certificate administer it.
    CaRights = "ca-rights",
    /// Whether a member refuses a client without a certificate that claims an identity.
    OutsideAnonymous = "outside-anonymous",
    /// Whether a member refuses an agent that claims another identity.
    OutsideAgent = "outside-agent",
    /// Whether a member refuses the same in plain HTTP.
    OutsidePlain = "outside-plain",
    /// Whether a passthrough member refuses a client that claims an identity.
    Passthrough = "passthrough",
    /// Whether a member reads heads as long as we may send.
    HeadRoom = "head-room",
    /// Whether agents believe our dates: a clock that is wrong over there.
    AgentClocks = "agent-clocks",
    /// What the running proxy says of itself.
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
    /// The gravest that was found.
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

    /// What a start would not take.
    pub(crate) fn refused(&mut self, report: &ConfigReport) {
        self.configuration_refused = true;
        self.problems(report);
    }

    /// What a start would accept with a warning, except for what a check has reported for the same file.
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
            let remedy = match remedy.is_empty() {
                true => "correct it, then run doctor again; `proscenium check` shows the line"
                    .to_owned(),
                false => remedy.join("; "),
            };
            let grade = match problem.severity {
                config::ProblemSeverity::Error => FindingSeverity::Failure,
                config::ProblemSeverity::Warning => FindingSeverity::Warning,
            };
            self.found(Check::Configuration, grade, &about, found, remedy);
        }
    }

    /// The gravest first; checks in their order.
    pub(crate) fn sort(&mut self) {
        let key = |finding: &DoctorFinding| (std::cmp::Reverse(finding.severity), finding.check);
        self.findings
            .sort_by(|one, other| (key(one), &one.about).cmp(&(key(other), &other.about)));
        self.passed.sort();
    }
}
