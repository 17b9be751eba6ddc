//! What a configuration says about trust.

/// What becomes of a CRL past its next update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CrlExpired {
    /// It is judged by, with an alarm. The default (docs/decisions).
    #[default]
    Warn,
    /// Clients of its issuer are refused.
    Reject,
}

/// `[trust]`, without the files it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustSettings {
    /// Most intermediate CA certificates on a verified path, 0 to 6. Default 6.
    pub depth: u8,
    /// What becomes of an expired CRL. Default `warn`.
    pub crl_expired: CrlExpired,
    /// Issuers (RFC 2253) whose certificates are accepted without a CRL; `*` is all of them. Default none.
    pub unchecked: Vec<String>,
    /// CAs (RFC 2253) whose SHA-1 signatures and small RSA keys are admitted. Default none.
    pub legacy_signatures: Vec<String>,
}

impl Default for TrustSettings {
    fn default() -> Self {
        Self {
            depth: 6,
            crl_expired: CrlExpired::Warn,
            unchecked: Vec::new(),
            legacy_signatures: Vec::new(),
        }
    }
}

/// What the names of members are told by, and told to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberNames {
    /// Whether a member is told which name is wanted of it before it shows its certificate; it is verified either way.
    pub indicated: bool,
    /// Whether a certificate without any subjectAltName is good for its CN.
    pub from_cn: bool,
}
