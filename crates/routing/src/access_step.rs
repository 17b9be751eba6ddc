//! The results of access control.

/// The result of access control, which includes the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessStep {
    /// Granted: the class is open to anyone.
    OpenToAnyone,
    /// Granted: the route is for any client.
    AnyClient,
    /// Granted: a verified agent.
    Verified,
    /// Granted: the document is the agent's own.
    Own,
    /// Granted: the route's `allow` names the agent.
    Named,
    /// Granted: a rule opens the class to this agent.
    AllowedByRule,
    /// Granted: the certificate is refused, and the listener forwards that verdict.
    FailedForwarded,
    /// 404: renewal is not configured, or this route does not open it.
    NotConfigured,
    /// 404: the path is longer than that of its endpoint.
    NoEndpoint,
    /// 403: the certificate is refused.
    RefusedCertificate,
    /// 403: no certificate.
    NoCertificate,
    /// 403: another agent's document.
    NotOwn,
    /// 403: `allow` does not name the agent.
    NotAllowed,
    /// 403: the class is closed unless a route opens it.
    ClassClosed,
    /// 403: the proxy never forwards requests to this endpoint.
    Never,
    /// 403: a rule refuses the request.
    RefusedByRule,
}

impl AccessStep {
    /// The results that refuse a request.
    pub const REFUSALS: [Self; 9] = [
        Self::NotConfigured,
        Self::NoEndpoint,
        Self::RefusedCertificate,
        Self::NoCertificate,
        Self::NotOwn,
        Self::NotAllowed,
        Self::ClassClosed,
        Self::Never,
        Self::RefusedByRule,
    ];

    /// Whether the request may be forwarded.
    pub const fn is_granted(self) -> bool {
        matches!(
            self,
            Self::OpenToAnyone
                | Self::AnyClient
                | Self::Verified
                | Self::Own
                | Self::Named
                | Self::AllowedByRule
                | Self::FailedForwarded
        )
    }

    /// The name in records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OpenToAnyone => "open-to-anyone",
            Self::AnyClient => "any-client",
            Self::Verified => "verified",
            Self::Own => "own",
            Self::Named => "named",
            Self::AllowedByRule => "allowed-by-rule",
            Self::FailedForwarded => "failed-forwarded",
            Self::NotConfigured => "not-configured",
            Self::NoEndpoint => "no-endpoint",
            Self::RefusedCertificate => "refused-certificate",
            Self::NoCertificate => "no-certificate",
            Self::NotOwn => "not-own",
            Self::NotAllowed => "not-allowed",
            Self::ClassClosed => "class-closed",
            Self::Never => "never",
            Self::RefusedByRule => "access-rule",
        }
    }

    /// Whether access rules cannot change the result: the client's identity or the endpoint alone determines it.
    pub(crate) const fn is_beyond_rules(self) -> bool {
        matches!(
            self,
            Self::NotConfigured
                | Self::NoEndpoint
                | Self::RefusedCertificate
                | Self::NoCertificate
                | Self::Never
        )
    }
}
