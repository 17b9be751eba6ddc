//! Why a request gets no member's response.

use std::{sync::Arc, time::Duration};

use balancing::{RateExceeded, RateScope};
use pki::CsrRefusal;
use routing::RouteRefusal;
use upstream::{DialError, QueryError, WireError, cause};

use crate::{
    body_fault::BodyFault, ca_kind::UnansweredQuestion, reason::LogReason,
    sanitize::InvalidRequest, strangers::SlotsFull,
};

/// Why a request gets no member's response. Only `respond::to_response` maps these errors to status codes.
#[derive(Debug)]
pub(crate) enum ProxyError {
    /// Two parsers could read the request differently.
    InvalidRequest(InvalidRequest),
    /// No route matches, or the client has no access.
    Refused(Box<RouteRefusal>),
    /// The client's certificate is too large for a header of the pool's servers.
    OverlongCertificate {
        pool: Arc<str>,
        bytes: usize,
        max: usize,
    },
    /// The client's certificate request breaks a rule.
    Csr(Box<CsrRefusal>),
    /// A client without a verified certificate sends too many requests to the CA.
    TooSoon(RateExceeded),
    /// The CA is serving the maximum number of requests from such clients.
    CaBusy(SlotsFull),
    /// Renewal is off, because the CA answered a renewal with a certificate that is not the client's.
    RenewalOff,
    /// The CA would not get the certificate to renew.
    RenewalWithoutCertificate,
    /// The CA server may not be a Puppet Server, so it gets no renewal.
    UnknownCa {
        pool: Arc<str>,
        question: Arc<UnansweredQuestion>,
    },
    /// The CA answered a renewal with something other than the client's new certificate.
    NotRenewed { member: Arc<str>, what: String },
    /// The body is too large, stalled or incomplete.
    Body(BodyFault),
    /// The members use HTTP/1.0, and the length of the body is not known.
    LengthRequired,
    /// The queue of a pool refuses the request. `retry_after`: when an agent that supports it should try again.
    Queue {
        pool: Arc<str>,
        reason: LogReason,
        retry_after: Option<Duration>,
    },
    /// No member is available.
    Unavailable {
        pool: Arc<str>,
        reason: LogReason,
        source: Option<DialError>,
    },
    /// The TLS handshake with a member failed.
    Unreachable(DialError),
    /// A member closed the connection or sent something that is not a response, or its host no longer answers. The member may
    /// have acted on the request.
    Broken {
        member: Arc<str>,
        source: WireError,
        /// Whether a byte of the response had arrived.
        begun: bool,
    },
    /// A member did not respond in time.
    Late { member: Arc<str>, limit: Duration },
    /// A member read nothing of the request body for too long.
    Stalled { member: Arc<str>, limit: Duration },
    /// This attempt failed, and the pool has used up its retries.
    NotRetried(Box<Self>),
    /// A member's response cannot be passed on.
    Answer { member: Arc<str>, reason: LogReason },
}

impl ProxyError {
    pub(crate) fn reason(&self) -> LogReason {
        match self {
            Self::InvalidRequest(invalid) => invalid.reason(),
            Self::Refused(refusal) => LogReason::Route(refusal.reason),
            Self::OverlongCertificate { .. } => LogReason::CertificateTooLarge,
            Self::Csr(refusal) => LogReason::Csr(refusal.rule),
            Self::TooSoon(too_soon) => match too_soon.of {
                RateScope::Address => LogReason::CaRateAddress,
                RateScope::Total => LogReason::CaRateTotal,
            },
            Self::CaBusy(full) => match full.of {
                RateScope::Address => LogReason::CaBusyAddress,
                RateScope::Total => LogReason::CaBusy,
            },
            Self::UnknownCa { question, .. } => match &**question {
                UnansweredQuestion::Query(QueryError::Dial(error)) => {
                    LogReason::Dial(error.reason())
                }
                UnansweredQuestion::Query(_) | UnansweredQuestion::Status(_) => {
                    LogReason::RenewalOff
                }
            },
            Self::RenewalOff => LogReason::RenewalOff,
            Self::RenewalWithoutCertificate => LogReason::RenewalWithoutCertificate,
            Self::NotRenewed { .. } => LogReason::NotRenewed,
            Self::Body(BodyFault::TooLarge(_)) => LogReason::BodyTooLarge,
            Self::Body(BodyFault::Idle(_)) | Self::Stalled { .. } => LogReason::BodyTimeout,
            Self::Body(BodyFault::Slow(_)) => LogReason::BodyTooSlow,
            Self::Body(BodyFault::Broken) => LogReason::BodyBroken,
            Self::Body(BodyFault::Gone) => LogReason::ClientGone,
            Self::LengthRequired => LogReason::LengthRequired,
            Self::Queue { reason, .. }
            | Self::Unavailable { reason, .. }
            | Self::Answer { reason, .. } => *reason,
            Self::Unreachable(error) => LogReason::Dial(error.reason()),
            Self::NotRetried(_) => LogReason::RetryBudget,
            Self::Broken { source, .. } if source.is_malformed() => LogReason::MemberMalformed,
            Self::Broken { source, .. } if source.is_unanswered() => LogReason::DownWait,
            Self::Broken { .. } => LogReason::MemberClosed,
            Self::Late { .. } => LogReason::FirstByteTimeout,
        }
    }

    pub(crate) fn cause(&self) -> Option<String> {
        match self {
            Self::Unavailable {
                source: Some(error),
                ..
            }
            | Self::Unreachable(error) => Some(error.to_string()),
            Self::UnknownCa { question, .. } => Some(question.to_string()),
            Self::NotRetried(failure) => {
                let reason = failure.reason().as_str();
                let cause = failure.cause();
                Some(format!(
                    "{reason}: {}",
                    cause.as_deref().unwrap_or("no cause")
                ))
            }
            Self::Broken { source, .. } => Some(cause(source)),
            Self::InvalidRequest(invalid) => Some(invalid.to_string()),
            Self::Csr(refusal) => Some(refusal.what.clone()),
            Self::NotRenewed { what, .. } => Some(what.clone()),
            _ => None,
        }
    }
}
