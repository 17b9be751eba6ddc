//! The reasons in access records, metrics and `who`: every word that this crate writes there.

use pki::CsrRule;
use routing::RefusalReason;

/// Why a request was refused, failed or was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogReason {
    /// The framing could be read in two ways.
    BadFraming,
    /// The client broke the rules of HTTP/2.
    BadFrames,
    /// The request head is malformed.
    BadHead,
    /// Host is missing, repeated or not a host.
    BadHost,
    /// The path could be read in two ways.
    BadPath,
    /// The request target is neither a path nor a URL.
    BadTarget,
    /// The request body does not match its framing.
    BodyBroken,
    /// A body made no progress for too long.
    BodyTimeout,
    /// The client sent its body below the minimum rate.
    BodyTooSlow,
    /// The request body is larger than the route allows.
    BodyTooLarge,
    /// The CA has as many requests of clients without a certificate as it may.
    CaBusy,
    /// The same for one address.
    CaBusyAddress,
    /// One address without a certificate asks the CA too often.
    CaRateAddress,
    /// Clients without a certificate ask the CA too often.
    CaRateTotal,
    /// The certificate does not fit into the header.
    CertificateTooLarge,
    /// The client closed the connection or the stream.
    ClientGone,
    /// The client holds its share of the pool's connections.
    ClientShare,
    /// The drain grace period expired.
    DrainGrace,
    /// The member did not answer in time.
    FirstByteTimeout,
    /// The request head did not arrive in time.
    HeadTimeout,
    /// The request head is too large.
    HeadTooLarge,
    /// The member closed the connection before its answer was complete.
    MemberClosed,
    /// The member is starting or stopping.
    MemberStarting,
    /// Every available member is at its limit.
    MembersFull,
    /// The status answer: no compiler is available.
    NoCompilerAvailable,
    /// No member of the pool is available.
    NoMemberAvailable,
    /// The CA answered a renewal with another certificate.
    NotRenewed,
    /// The client read its response below the minimum rate.
    ReadTooSlow,
    /// The certificate was accepted before and is refused now.
    RefusedCertificate,
    /// Renewal is off until the next requested reload.
    RenewalOff,
    /// The CA redirected a renewal.
    RenewalRedirected,
    /// The pool has no header for the certificate to renew.
    RenewalWithoutCertificate,
    /// The client sent too many frames without content (HTTP/2).
    TooManyFrames,
    /// The client cancelled too many requests (HTTP/2).
    TooManyResets,
    /// A tunnel was idle for too long.
    TunnelIdleTimeout,
    /// The member switched protocols without a request to do so.
    UnsolicitedUpgrade,
    /// The client read nothing of its answer for too long.
    WriteTimeout,
    /// A route, an access rule or the endpoint refuses the request.
    Route(RefusalReason),
    /// The certificate request breaks a rule.
    Csr(CsrRule),
    /// No connection to the member: the word of [`upstream::DialError::reason`].
    Dial(&'static str),
}

impl LogReason {
    /// The word in records and metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::BadFraming => "bad-framing",
            Self::BadFrames => "bad-frames",
            Self::BadHead => "bad-head",
            Self::BadHost => "bad-host",
            Self::BadPath => "bad-path",
            Self::BadTarget => "bad-target",
            Self::BodyBroken => "body-broken",
            Self::BodyTimeout => "body-timeout",
            Self::BodyTooSlow => "body-too-slow",
            Self::BodyTooLarge => "body-too-large",
            Self::CaBusy => "ca-busy",
            Self::CaBusyAddress => "ca-busy-address",
            Self::CaRateAddress => "ca-rate-address",
            Self::CaRateTotal => "ca-rate-total",
            Self::CertificateTooLarge => "certificate-too-large",
            Self::ClientGone => "client-gone",
            Self::ClientShare => "client-share",
            Self::DrainGrace => "drain-grace",
            Self::FirstByteTimeout => "first-byte-timeout",
            Self::HeadTimeout => "head-timeout",
            Self::HeadTooLarge => "head-too-large",
            Self::MemberClosed => "member-closed",
            Self::MemberStarting => "member-starting",
            Self::MembersFull => "members-full",
            Self::NoCompilerAvailable => "no-compiler-available",
            Self::NoMemberAvailable => "no-member-available",
            Self::NotRenewed => "not-renewed",
            Self::ReadTooSlow => "read-too-slow",
            Self::RefusedCertificate => "refused-certificate",
            Self::RenewalOff => "renewal-off",
            Self::RenewalRedirected => "renewal-redirected",
            Self::RenewalWithoutCertificate => "renewal-without-certificate",
            Self::TooManyFrames => "too-many-frames",
            Self::TooManyResets => "too-many-resets",
            Self::TunnelIdleTimeout => "tunnel-idle-timeout",
            Self::UnsolicitedUpgrade => "unsolicited-upgrade",
            Self::WriteTimeout => "write-timeout",
            Self::Route(reason) => reason.as_str(),
            Self::Csr(rule) => rule.reason(),
            Self::Dial(reason) => reason,
        }
    }
}
