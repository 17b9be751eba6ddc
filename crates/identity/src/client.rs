//! The identity of a client: verified, anonymous, or refused with a reason.

use std::fmt;
use std::sync::Arc;

use crate::{Agent, Reason, Refusal};

/// The identity of a connection's client.
#[derive(Clone, Debug)]
pub enum ClientIdentity {
    /// The client's certificate has a verified chain.
    Verified(Arc<Agent>),
    /// The client sent no certificate.
    Anonymous,
    /// The client proved that it holds the certificate's key, but the proxy does not accept the certificate.
    Refused(Refusal),
}

impl ClientIdentity {
    /// The verdict that `X-Client-Verify` carries.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Verified(_) => Verdict::Success,
            Self::Anonymous => Verdict::None,
            Self::Refused(refusal) => Verdict::Failed(refusal.reason),
        }
    }

    /// The agent, if the client is verified.
    pub fn agent(&self) -> Option<&Agent> {
        match self {
            Self::Verified(agent) => Some(agent),
            Self::Anonymous | Self::Refused(_) => None,
        }
    }
}

/// The result of verification, as headers and records spell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// `SUCCESS`
    Success,
    /// `NONE`
    None,
    /// `FAILED:reason`
    Failed(Reason),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Success => f.write_str("SUCCESS"),
            Self::None => f.write_str("NONE"),
            Self::Failed(reason) => write!(f, "FAILED:{reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_spelled_as_puppet_servers_expect() {
        let refused = ClientIdentity::Refused(Refusal {
            reason: Reason::Revoked,
            certificate: String::new(),
            help: String::new(),
            claimed: None,
            is_issued: true,
        });
        assert_eq!(refused.verdict().to_string(), "FAILED:revoked");
        assert_eq!(ClientIdentity::Anonymous.verdict().to_string(), "NONE");
        assert_eq!(Verdict::Success.to_string(), "SUCCESS");
    }
}
