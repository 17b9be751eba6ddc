//! The reasons in access records, metrics and `who`: every word that this crate writes there.

use pki::CsrRule;
use routing::{AccessStep, RefusalReason};
use upstream::DialError;

/// Declares the reasons of this crate with their words, so that the list of the known words has each of them.
macro_rules! log_reasons {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)+) => {
        /// Why a request was refused, failed or was cut off.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum LogReason {
            $($(#[$doc])* $name,)+
            /// A route, an access rule or the endpoint refuses the request.
            Route(RefusalReason),
            /// The certificate request breaks a rule.
            Csr(CsrRule),
            /// No connection to the member: the word of [`upstream::DialError::reason`].
            Dial(&'static str),
        }

        impl LogReason {
            /// The words of this crate.
            const OWN_WORDS: &[&str] = &[$($word,)+];

            /// The word in records and metrics.
            pub(crate) fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)+
                    Self::Route(reason) => reason.as_str(),
                    Self::Csr(rule) => rule.reason(),
                    Self::Dial(reason) => reason,
                }
            }
        }
    };
}

log_reasons! {
    /// The client has as many requests that hold a JRuby as it may, and as many wait as may.
    AgentMax = "agent-max",
    /// An attempt failed, and the pool has made as many retries as `retry_budget` allows.
    RetryBudget = "retry-budget",
    /// The framing could be read in two ways.
    BadFraming = "bad-framing",
    /// The client broke the rules of HTTP/2.
    BadFrames = "bad-frames",
    /// The request head is malformed.
    BadHead = "bad-head",
    /// Host is missing, repeated or not a host.
    BadHost = "bad-host",
    /// The path could be read in two ways.
    BadPath = "bad-path",
    /// The request target is neither a path nor a URL.
    BadTarget = "bad-target",
    /// The request body does not match its framing.
    BodyBroken = "body-broken",
    /// A body made no progress for too long.
    BodyTimeout = "body-timeout",
    /// The client sent its body below the minimum rate.
    BodyTooSlow = "body-too-slow",
    /// The request body is larger than the route allows.
    BodyTooLarge = "body-too-large",
    /// The CA has as many requests of clients without a certificate as it may.
    CaBusy = "ca-busy",
    /// The same for one address.
    CaBusyAddress = "ca-busy-address",
    /// One address without a certificate asks the CA too often.
    CaRateAddress = "ca-rate-address",
    /// Clients without a certificate ask the CA too often.
    CaRateTotal = "ca-rate-total",
    /// The certificate does not fit into the header.
    CertificateTooLarge = "certificate-too-large",
    /// The client closed the connection or the stream.
    ClientGone = "client-gone",
    /// The client holds its share of the pool's connections.
    ClientShare = "client-share",
    /// The tunnel was closed in its turn, because the process stops or the configuration no longer has its way.
    Drained = "drained",
    /// The drain grace period expired.
    DrainGrace = "drain-grace",
    /// Names of members are replaced on the route, and the text of the member is encoded or a part of one.
    EncodedText = "encoded-text",
    /// The member did not answer in time.
    FirstByteTimeout = "first-byte-timeout",
    /// The request head did not arrive in time.
    HeadTimeout = "head-timeout",
    /// The request head is too large.
    HeadTooLarge = "head-too-large",
    /// Members speak HTTP/1.0, and the body is sent in chunks and is too large to buffer.
    LengthRequired = "length-required",
    /// Every member has as many connections as it may.
    MembersFull = "members-full",
    /// The member closed the connection before its answer was complete.
    MemberClosed = "member-closed",
    /// The member is starting or stopping.
    MemberStarting = "member-starting",
    /// The status answer: no compiler is available.
    NoCompilerAvailable = "no-compiler-available",
    /// No member of the pool is available.
    NoMemberAvailable = "no-member-available",
    /// A member that is asked by HTTP/1.0 answered with an interim response or a transfer coding.
    NotHttp10 = "not-http-1.0",
    /// The CA answered a renewal with another certificate.
    NotRenewed = "not-renewed",
    /// As many requests wait for a member of the pool as may.
    QueueFull = "queue-full",
    /// The queue was full, and a request of an agent that would fail its run took the place.
    QueueMadeRoom = "queue-made-room",
    /// The request waited for a member for as long as it may.
    QueueTimeout = "queue-timeout",
    /// The client read its response below the minimum rate.
    ReadTooSlow = "read-too-slow",
    /// The certificate was accepted before and is refused now.
    RefusedCertificate = "refused-certificate",
    /// Renewal is off until the next requested reload.
    RenewalOff = "renewal-off",
    /// The CA redirected a renewal.
    RenewalRedirected = "renewal-redirected",
    /// The pool has no header for the certificate to renew.
    RenewalWithoutCertificate = "renewal-without-certificate",
    /// The client sent too many frames without content (HTTP/2).
    TooManyFrames = "too-many-frames",
    /// The client cancelled too many requests (HTTP/2).
    TooManyResets = "too-many-resets",
    /// A tunnel was idle for too long.
    TunnelIdleTimeout = "tunnel-idle-timeout",
    /// The member switched protocols without a request to do so.
    UnsolicitedUpgrade = "unsolicited-upgrade",
    /// The client read nothing of its answer for too long.
    WriteTimeout = "write-timeout",
}

/// The words that `proscenium_refusals_total` can have as a reason, except those of certificate requests.
pub fn refusal_reasons() -> Vec<&'static str> {
    let routes = [
        RefusalReason::NoRoute,
        RefusalReason::Method,
        RefusalReason::Environment,
    ];
    let steps = AccessStep::REFUSALS.map(RefusalReason::Access);
    let routes = routes.into_iter().chain(steps).map(RefusalReason::as_str);
    let own = LogReason::OWN_WORDS.iter().copied();
    own.chain(routes).chain(DialError::REASONS).collect()
}
