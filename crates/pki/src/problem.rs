//! What can be wrong with trust material or a credential: one diagnosis each.

/// One thing that is wrong with the material a configuration names.
///
/// Messages quote the name the caller gave (usually a path) and the PEM block, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PkiProblem {
    /// The text is not PEM at all, or a block of it is damaged.
    #[error("{what} \"{name}\": not PEM: {why}")]
    NotPem {
        /// What was expected there: `certificate`, `CRL`, `key`.
        what: &'static str,
        /// The material's name.
        name: String,
        /// What the reader said.
        why: String,
    },
    /// PEM, but none of its blocks is what was expected.
    #[error("{what} \"{name}\": contains no {what}")]
    Empty {
        /// What was expected there.
        what: &'static str,
        /// The material's name.
        name: String,
    },
    /// A block that says what it is, and is not.
    #[error("{what} \"{name}\" block {block}: not a {what}: {why}")]
    Malformed {
        /// What was expected there.
        what: &'static str,
        /// The material's name.
        name: String,
        /// Which block, from 1.
        block: usize,
        /// What is wrong with its bytes.
        why: String,
    },
    /// The bundle holds no certificate that may be a CA.
    #[error("the CA bundle contains no valid CA certificate, so the proxy could verify no client")]
    NoCa,
    /// A certificate of the bundle that cannot be used as a CA, where none can: otherwise a warning.
    #[error("{0}")]
    CaUnusable(String),
    /// No usable CRL, and the configuration does not say that revocation is not checked.
    #[error(
        "no valid CRL, and `unchecked` names no issuer: the proxy would accept revoked certificates"
    )]
    NoCrl,
    /// A CRL that cannot be used, where it would have been needed: otherwise a warning.
    #[error("{0}")]
    CrlUnusable(String),
    /// A key that aws-lc cannot sign with.
    #[error("key \"{name}\": cannot be used: {why}")]
    UnusableKey {
        /// The key's name.
        name: String,
        /// What the key reader said.
        why: String,
    },
    /// The chain's first certificate holds another key.
    #[error("key \"{key}\" does not belong to certificate \"{chain}\" ({subject})")]
    KeyMismatch {
        /// The key's name.
        key: String,
        /// The chain's name.
        chain: String,
        /// The leaf's subject.
        subject: String,
    },
    /// rustls would not take what was put together.
    #[error("TLS configuration: {0}")]
    Tls(String),
}

impl PkiProblem {
    /// Whether it is the CRLs that are wrong, where it is told of a trust store: otherwise it is the bundle.
    pub fn is_about_crls(&self) -> bool {
        match self {
            Self::NotPem { what, .. } | Self::Empty { what, .. } | Self::Malformed { what, .. } => {
                *what == "CRL"
            }
            Self::NoCrl | Self::CrlUnusable(_) => true,
            Self::NoCa
            | Self::CaUnusable(_)
            | Self::UnusableKey { .. }
            | Self::KeyMismatch { .. }
            | Self::Tls(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_about_the_crls_or_about_the_bundle() {
        let name = || "x.pem".to_owned();
        let of = |what: &'static str| {
            [
                PkiProblem::NotPem {
                    what,
                    name: name(),
                    why: String::new(),
                },
                PkiProblem::Empty { what, name: name() },
                PkiProblem::Malformed {
                    what,
                    name: name(),
                    block: 1,
                    why: String::new(),
                },
            ]
        };
        assert!(of("CRL").iter().all(PkiProblem::is_about_crls));
        assert!(!of("certificate").iter().any(PkiProblem::is_about_crls));
        assert!(PkiProblem::NoCrl.is_about_crls());
        assert!(PkiProblem::CrlUnusable(String::new()).is_about_crls());
        let others = [
            PkiProblem::NoCa,
            PkiProblem::CaUnusable(String::new()),
            PkiProblem::Tls(String::new()),
            PkiProblem::UnusableKey {
                name: name(),
                why: String::new(),
            },
            PkiProblem::KeyMismatch {
                key: name(),
                chain: name(),
                subject: String::new(),
            },
        ];
        assert!(!others.iter().any(PkiProblem::is_about_crls));
    }
}
