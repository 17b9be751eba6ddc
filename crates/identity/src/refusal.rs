//! Why a certificate is refused, and the sentences that say so to the agent's user.

use std::fmt;

use crate::Certname;

/// Why a client's certificate is refused: the word after `FAILED:`, in records and in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The certificate, or one above it, is on its issuer's CRL.
    Revoked,
    /// The operator of this proxy has blocked it.
    Blocked,
    /// The certificate's time is over.
    Expired,
    /// The certificate's time has not begun.
    NotYetValid,
    /// No path leads to a CA of the bundle.
    UnknownIssuer,
    /// A signature on the path is wrong.
    BadSignature,
    /// No CRL of an issuer on the path is at hand.
    CrlMissing,
    /// The CRL in force is past its next update, and the policy is to reject.
    CrlExpired,
    /// A CA certificate on the path is past its time.
    CaExpired,
    /// A CA certificate on the path is before its time.
    CaNotYetValid,
    /// An extended key usage is present and does not name client authentication.
    WrongPurpose,
    /// More CA certificates on the path than `depth` allows.
    Depth,
    /// A critical extension that is not understood.
    CriticalExtension,
    /// Not a well-formed certificate.
    Malformed,
    /// The subject is none that every Puppet server reads alike.
    Subject,
    /// A key or signature algorithm that is not supported.
    UnsupportedAlgorithm,
    /// Not an X.509 version 3 certificate.
    CertificateVersion,
    /// A CA certificate in the place of an agent's.
    NotAnEndEntity,
    /// A certificate on the path may not issue others, or not this one.
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

    /// The stable name, lower case with hyphens.
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

    /// What is wrong, as the end of a sentence that begins with "the certificate".
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

/// A refused certificate: why, which, and what to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// Which certificate: subject, serial, issuer (as [`crate::Subject::describe`] says it).
    pub certificate: String,
    /// What to run or to look at, as one or more sentences; may be empty.
    pub help: String,
    /// The name that the certificate says, where it is an agent's by the rules of Puppet's CA, except for its case.
    /// Nothing proves it.
    pub claimed: Option<Certname>,
}

impl Refusal {
    /// The plain text that an agent prints as the body of a 403: printable ASCII, one line.
    pub fn text(&self) -> String {
        let sentence = self.reason.sentence();
        let mut text = format!("The certificate {} {sentence}", self.certificate);
        // The word of records and metrics is there to be found; said once it is enough.
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

/// `text` with everything but printable ASCII written as `\xNN` of its UTF-8 bytes.
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

/// Appends two upper-case hexadecimal digits.
pub(crate) fn push_hex(out: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.push(char::from(DIGITS[usize::from(byte >> 4)]));
    out.push(char::from(DIGITS[usize::from(byte & 0xf)]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_one_kebab_name_each() {
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
    fn the_text_says_the_reasons_name_once() {
        for reason in Reason::ALL {
            let refusal = Refusal {
                reason,
                certificate: "X".to_owned(),
                help: String::new(),

                claimed: None,
            };
            let text = refusal.text();
            assert_eq!(text.matches(reason.as_str()).count(), 1, "{text}");
        }
    }

    #[test]
    fn the_text_is_one_printable_ascii_line_whatever_the_certificate_says() {
        let refusal = Refusal {
            reason: Reason::Revoked,
            certificate: "subject \"CN=a\r\nX: y\u{1b}[2J\u{fc}\", serial 0x05".to_owned(),
            help: "Run \"puppet ssl clean\" on the agent.".to_owned(),

            claimed: None,
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
