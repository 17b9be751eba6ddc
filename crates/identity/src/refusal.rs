//! Why a certificate is refused, and the messages that explain the reason to the agent's user.

use std::fmt;

use crate::Certname;

/// Why a client's certificate is refused. Headers carry the reason after `FAILED:`. In records and metrics it is a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The CRL of its issuer lists the certificate or a CA certificate above it.
    Revoked,
    /// The operator of this proxy blocked the certificate.
    Blocked,
    /// The certificate has expired.
    Expired,
    /// The certificate is not valid yet.
    NotYetValid,
    /// No path leads to a CA in the bundle.
    UnknownIssuer,
    /// A signature on the path does not match.
    BadSignature,
    /// The trust store has no CRL of an issuer on the path.
    CrlMissing,
    /// The `next_update` of a CRL has passed, and the policy is to reject.
    CrlExpired,
    /// A CA certificate on the path has expired.
    CaExpired,
    /// A CA certificate on the path is not valid yet.
    CaNotYetValid,
    /// The certificate has an extended key usage without client authentication.
    WrongPurpose,
    /// The path has more CA certificates than `depth` allows.
    Depth,
    /// The certificate has a critical extension that the proxy does not support.
    CriticalExtension,
    /// The bytes are not a well-formed certificate.
    Malformed,
    /// Puppet servers read the subject in different ways.
    Subject,
    /// The proxy does not support the algorithm of a key or signature.
    UnsupportedAlgorithm,
    /// The certificate is not X.509 version 3.
    CertificateVersion,
    /// The client presented a CA certificate as its own.
    NotAnEndEntity,
    /// A CA certificate on the path may not issue certificates, or may not issue this one.
    PathConstraint,
}

impl Reason {
    /// Every reason, for metrics and tables.
    pub const ALL: [Self; 19] = [
        Self::Revoked,
        Self::Blocked,
        Self::Expired,
        Self::NotYetValid,
        Self::UnknownIssuer,
        Self::BadSignature,
        Self::CrlMissing,
        Self::CrlExpired,
        Self::CaExpired,
        Self::CaNotYetValid,
        Self::WrongPurpose,
        Self::Depth,
        Self::CriticalExtension,
        Self::Malformed,
        Self::Subject,
        Self::UnsupportedAlgorithm,
        Self::CertificateVersion,
        Self::NotAnEndEntity,
        Self::PathConstraint,
    ];

    /// The stable label, in lower case with hyphens.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Revoked => "revoked",
            Self::Blocked => "blocked",
            Self::Expired => "expired",
            Self::NotYetValid => "not-yet-valid",
            Self::UnknownIssuer => "unknown-issuer",
            Self::BadSignature => "bad-signature",
            Self::CrlMissing => "crl-missing",
            Self::CrlExpired => "crl-expired",
            Self::CaExpired => "ca-expired",
            Self::CaNotYetValid => "ca-not-yet-valid",
            Self::WrongPurpose => "wrong-purpose",
            Self::Depth => "depth",
            Self::CriticalExtension => "critical-extension",
            Self::Malformed => "malformed",
            Self::Subject => "subject",
            Self::UnsupportedAlgorithm => "unsupported-algorithm",
            Self::CertificateVersion => "certificate-version",
            Self::NotAnEndEntity => "not-an-end-entity",
            Self::PathConstraint => "path-constraint",
        }
    }

    /// The rest of a sentence that begins with "the certificate".
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Revoked => "is revoked",
            Self::Blocked => "is blocked by the operator of this proxy",
            Self::Expired => "has expired",
            Self::NotYetValid => "is not valid yet",
            Self::UnknownIssuer => "was not issued by a CA that this proxy trusts",
            Self::BadSignature => {
                "has a signature that does not match the key of its issuer (another CA with the same name?)"
            }
            Self::CrlMissing => "cannot be verified: the proxy has no CRL of its issuer",
            Self::CrlExpired => "cannot be verified: the CRL of its issuer is past its next update",
            Self::CaExpired => "was issued by a CA that has expired",
            Self::CaNotYetValid => "was issued by a CA that is not valid yet",
            Self::WrongPurpose => "is not valid for client authentication",
            Self::Depth => "has more CAs above it than this proxy allows",
            Self::CriticalExtension => "has a critical extension that this proxy does not support",
            Self::Malformed => "is not a well-formed certificate",
            Self::Subject => "has a subject that Puppet servers do not all read in the same way",
            Self::UnsupportedAlgorithm => {
                "uses a key or signature algorithm that this proxy does not support"
            }
            Self::CertificateVersion => "is not an X.509 version 3 certificate",
            Self::NotAnEndEntity => "is a CA certificate, not an agent certificate",
            Self::PathConstraint => "was issued by a CA that is not allowed to issue it",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A refused certificate, with the reason and the advice for the agent's user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub reason: Reason,
    /// The certificate's subject, serial and issuer, from [`crate::Subject::describe`].
    pub certificate: String,
    /// What the user should run or check, as one or more sentences. May be empty.
    pub help: String,
    /// The certname in the certificate, if it follows the rules of the Puppet CA except for its case. It is not
    /// verified, except as `is_issued` says.
    pub claimed: Option<Certname>,
    /// Whether a trusted CA has issued this certificate, so that `claimed` is the name of the agent that holds its key. It is
    /// set only for a certificate that is revoked, blocked or expired.
    pub is_issued: bool,
}

impl Refusal {
    /// The body of a 403, which the agent prints: one line of printable ASCII.
    pub fn text(&self) -> String {
        let sentence = self.reason.sentence();
        let mut text = format!("The certificate {} {sentence}", self.certificate);
        // The label is added because users search records and metrics for it. Some sentences already contain it.
        if !sentence.contains(self.reason.as_str()) {
            text.push_str(&format!(" ({})", self.reason));
        }
        text.push('.');
        if !self.help.is_empty() {
            text.push(' ');
            text.push_str(&self.help);
        }
        printable(&text)
    }
}

/// `text`, in which everything except printable ASCII is written as `\xNN` for each of its UTF-8 bytes.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            0x20..=0x7e => out.push(char::from(byte)),
            _ => {
                out.push_str("\\x");
                push_hex(&mut out, byte);
            }
        }
    }
    out
}

pub(crate) fn push_hex(out: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.push(char::from(DIGITS[usize::from(byte >> 4)]));
    out.push(char::from(DIGITS[usize::from(byte & 0xf)]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_unique_label() {
        let mut names: Vec<_> = Reason::ALL.iter().map(|r| r.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Reason::ALL.len());
        for name in names {
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'),
                "{name}"
            );
        }
    }

    #[test]
    fn the_text_contains_the_reasons_label_once() {
        for reason in Reason::ALL {
            let refusal = Refusal {
                reason,
                certificate: "X".to_owned(),
                help: String::new(),
                claimed: None,
                is_issued: true,
            };
            let text = refusal.text();
            assert_eq!(text.matches(reason.as_str()).count(), 1, "{text}");
        }
    }

    #[test]
    fn the_text_is_one_line_of_printable_ascii_for_any_certificate() {
        let refusal = Refusal {
            reason: Reason::Revoked,
            certificate: "subject \"CN=a\r\nX: y\u{1b}[2J\u{fc}\", serial 0x05".to_owned(),
            help: "Run \"puppet ssl clean\" on the agent.".to_owned(),
            claimed: None,
            is_issued: true,
        };
        let text = refusal.text();
        assert!(text.bytes().all(|b| (0x20..=0x7e).contains(&b)), "{text}");
        assert_eq!(
            text,
            "The certificate subject \"CN=a\\x0D\\x0AX: y\\x1B[2J\\xC3\\xBC\", serial 0x05 is revoked. \
             Run \"puppet ssl clean\" on the agent."
        );
    }
}
