//! Problems of trust material and credentials.

/// One problem with the files that a configuration names.
///
/// Messages contain the caller's name for the file (usually a path) and the PEM block, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PkiProblem {
    /// The file is not PEM, or one of its blocks is damaged.
    #[error("{what} \"{name}\": not PEM: {why}")]
    NotPem {
        /// The expected kind: `certificate`, `CRL`, `key`.
        what: &'static str,
        /// The material's name.
        name: String,
        /// The parser's message.
        why: String,
    },
    /// The file is PEM, but has no block of the expected kind.
    #[error("{what} \"{name}\": contains no {what}")]
    Empty {
        /// The expected kind.
        what: &'static str,
        /// The material's name.
        name: String,
    },
    /// The content of a block does not match its label.
    #[error("{what} \"{name}\" block {block}: not a {what}: {why}")]
    Malformed {
        /// The expected kind.
        what: &'static str,
        /// The material's name.
        name: String,
        /// The block, counted from 1.
        block: usize,
        /// What is wrong with its bytes.
        why: String,
    },
    /// The bundle has no usable CA certificate.
    #[error("the CA bundle contains no valid CA certificate, so the proxy could verify no client")]
    NoCa,
    /// Why a certificate of the bundle cannot be used as a CA. It is an error if no other certificate can be used, and
    /// otherwise a warning.
    #[error("{0}")]
    CaUnusable(String),
    /// There is no usable CRL, although the configuration requires revocation checks.
    #[error(
        "no valid CRL, and `unchecked` names no issuer: the proxy would accept revoked certificates"
    )]
    NoCrl,
    /// Why a CRL cannot be used. It is an error if the CRL is needed, and otherwise a warning.
    #[error("{0}")]
    CrlUnusable(String),
    /// A key that aws-lc cannot sign with.
    #[error("key \"{name}\": cannot be used: {why}")]
    UnusableKey {
        /// The key's name.
        name: String,
        /// The key parser's message.
        why: String,
    },
    /// The key does not belong to the chain's first certificate.
    #[error("key \"{key}\" does not belong to certificate \"{chain}\" ({subject})")]
    KeyMismatch {
        /// The key's name.
        key: String,
        /// The chain's name.
        chain: String,
        /// The leaf's subject.
        subject: String,
    },
    /// rustls refused the configuration.
    #[error("TLS configuration: {0}")]
    Tls(String),
}

impl PkiProblem {
    /// Whether a problem of a trust store concerns the CRLs. Otherwise, it concerns the bundle.
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
