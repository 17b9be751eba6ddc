//! The reasons that this crate writes in access records, metrics and `who`.

use pki::CsrRule;
use routing::{AccessStep, RefusalReason};
use upstream::DialError;

/// Declares the reasons of this crate, so that the list of known reasons has each of them.
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
            /// No connection to the member was possible. The label is that of [`upstream::DialError::reason`].
            Dial(&'static str),
        }

        impl LogReason {
            const OWN_WORDS: &[&str] = &[$($word,)+];

            /// The label in records and metrics.
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
    /// The client runs its maximum number of requests that hold a JRuby, and its maximum number of requests is waiting.
    AgentMax = "agent-max",
    /// An attempt failed, and the pool has already made as many retries as `retry_budget` allows.
    RetryBudget = "retry-budget",
    /// Two parsers could read the framing differently.
    BadFraming = "bad-framing",
    /// The client violated HTTP/2.
    BadFrames = "bad-frames",
    /// The request head is malformed.
    BadHead = "bad-head",
    /// Host is missing, repeated or not a host.
    BadHost = "bad-host",
    /// Two parsers could read the path differently.
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
    /// The CA is serving the maximum number of requests from clients without a certificate.
    CaBusy = "ca-busy",
    /// The CA is serving the maximum number of such requests from one address.
    CaBusyAddress = "ca-busy-address",
    /// One address without a certificate sends too many requests to the CA.
    CaRateAddress = "ca-rate-address",
    /// Clients without a certificate send too many requests to the CA.
    CaRateTotal = "ca-rate-total",
    /// The certificate does not fit into the header.
    CertificateTooLarge = "certificate-too-large",
    /// The client closed the connection or the stream.
    ClientGone = "client-gone",
    /// The client holds its share of the pool's connections.
    ClientShare = "client-share",
    /// The member's host no longer answers TCP keep-alive on the connection.
    DownWait = "down-wait",
    /// The tunnel was closed in its turn, because the process drains or the configuration no longer routes it to this
    /// member.
    Drained = "drained",
    /// The drain grace period expired.
    DrainGrace = "drain-grace",
    /// The route replaces names of members, and the member's text is encoded or partial.
    EncodedText = "encoded-text",
    /// The member did not respond in time.
    FirstByteTimeout = "first-byte-timeout",
    /// The request head did not arrive in time.
    HeadTimeout = "head-timeout",
    /// The request head is too large.
    HeadTooLarge = "head-too-large",
    /// The members use HTTP/1.0, and the body comes in chunks and is too large to buffer.
    LengthRequired = "length-required",
    /// Every member has its maximum number of connections.
    MembersFull = "members-full",
    /// The member closed the connection before its response was complete.
    MemberClosed = "member-closed",
    /// The tunnel was closed in its turn, because its member is down and the pool has `on_down = "cut"`.
    MemberDown = "member-down",
    /// The member sent something that is not a valid response.
    MemberMalformed = "member-malformed",
    /// The member is starting or stopping.
    MemberStarting = "member-starting",
    /// No compiler is available (status response).
    NoCompilerAvailable = "no-compiler-available",
    /// No member of the pool is available.
    NoMemberAvailable = "no-member-available",
    /// A member that gets requests over HTTP/1.0 sent an interim response or a transfer coding.
    NotHttp10 = "not-http-1.0",
    /// The CA answered a renewal with a certificate that is not the client's next one.
    NotRenewed = "not-renewed",
    /// The queue of the pool has its maximum length.
    QueueFull = "queue-full",
    /// The queue was full, and a request of an agent that would fail its run got the slot.
    QueueMadeRoom = "queue-made-room",
    /// The request waited the maximum time for a member.
    QueueTimeout = "queue-timeout",
    /// The client read its response below the minimum rate.
    ReadTooSlow = "read-too-slow",
    /// The client read its response slowly and held more than its fair part of the pool's connections, while another request
    /// waited for one of them.
    ReadDisplaced = "read-displaced",
    /// The certificate was accepted before and is now refused.
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
    /// The client read none of its response for too long.
    WriteTimeout = "write-timeout",
}

/// The labels that `proscenium_refusals_total` can have as a reason, except those of certificate requests.
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
